//! Allocates an address for an attachment (contract sections 10 and 11, differences D4, D5, D8, D9, D11, D14).

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::IpAddr;

use ipnet::IpNet;

use super::invariants::overlapping;
use super::{
    Claim, Grant, GrantKind, Held, Ipam, Moment, Owner, Pool, PoolSelector, Refusal, Request, Usage,
};

impl Ipam {
    /// Allocates an address for the attachment: the requested one, else the one that it holds in a pool that fits, else the next one
    /// in the order of hand-out. An attachment that requests another address than it holds gets both, as from the original; its DEL
    /// frees both.
    ///
    /// # Errors
    /// A [`Refusal`]. Then no further address is held, but flags of pools ([`Pool::ref_count`]) may differ.
    pub fn allocate(&mut self, request: &Request<'_>, now: Moment) -> Result<Grant, Refusal> {
        let elsewhere = self.held_elsewhere(request.space);
        let generation = self.generation + 1;
        let Some(space) = self.spaces.get_mut(request.space) else {
            return Err(Refusal::NoSpace {
                stage: request.pool.stage(),
                space: request.space.to_owned(),
            });
        };
        let quarantine = self.quarantine.filter(|until| *until > now);
        let quarantined = |until: Moment| Refusal::Quarantined {
            left: until.since(now),
        };
        if let Some(until) = quarantine
            && !space.holds_any(request.attachment)
        {
            return Err(quarantined(until));
        }
        if let PoolSelector::Any { .. } = request.pool {
            space.clear_unused_ref_counts();
        }
        let found = space.find(request, &elsewhere, now);
        if let (PoolSelector::Any { family, if_name }, Err(Refusal::Exhausted { .. })) =
            (request.pool, &found)
        {
            space.flag_exhausted(|pool| pool.suits(family, if_name));
        }
        let (pool_key, place) = found?;
        let refusal = || Refusal::NoSubnet {
            pool: pool_key.clone(),
        };
        let pool = space.pools.get_mut(&pool_key).ok_or_else(refusal)?;
        let net = pool.net(&pool_key).ok_or_else(refusal)?;
        let gateway = pool.gateway;
        let record = pool.record_mut(&place).ok_or_else(refusal)?;
        // In a quarantine, an attachment gets only an address that it is known to hold.
        if let Some(until) = quarantine
            && record.held().is_none()
        {
            return Err(quarantined(until));
        }
        let address = IpNet::new(record.address(), net.prefix_len()).map_err(|_| refusal())?;
        let mut tombstones = self.tombstones.iter();
        let early_del = tombstones.position(|t| t.attachment == *request.attachment);
        let held = Held {
            owner: Owner::Attachment(Box::new(Claim {
                pod: request.pod.map(Into::into),
                netns: request.netns.cloned(),
                ..Claim::new(request.attachment, generation)
            })),
            since: now,
            // Its DEL came first, and another one may never come.
            suspect: early_del.map(|n| self.tombstones.remove(n)).and(Some(now)),
            unlisted: record.held().is_some_and(|held| held.unlisted),
        };
        self.changes.hold(address.addr(), &held);
        record.addr = Some(address.addr());
        let kind = match mem::replace(&mut record.usage, Usage::Held(held)) {
            Usage::Held(_) => GrantKind::Renewed,
            Usage::Free(free) => GrantKind::New(free),
        };
        if matches!(request.pool, PoolSelector::Any { .. }) && pool.ref_count == 0 {
            pool.ref_count = 1;
        }
        self.generation = generation;
        Ok(Grant {
            space: request.space.to_owned(),
            pool: pool_key,
            key: place,
            address,
            gateway,
            kind,
            generation,
        })
    }

    /// Returns, for every pool of `space`, those of its addresses that are in use under another record. An address has one holder,
    /// however many pools list it (difference D9). Nearly always empty.
    pub(super) fn held_elsewhere(&self, space: &str) -> BTreeMap<String, BTreeSet<IpAddr>> {
        let pools: Vec<_> = self.pools().collect();
        let nets: Vec<_> = pools.iter().map(|(_, key, pool)| pool.net(key)).collect();
        let overlapping = overlapping(&nets);
        let mut found = BTreeMap::new();
        for (n, (here, key, pool)) in pools.iter().enumerate() {
            let others = overlapping.get(&n).into_iter().flatten();
            let others = others.filter_map(|other| Some(pools.get(*other)?.2));
            let is_odd = pool.records.iter().any(|r| r.address() != r.key);
            let sharing = is_odd.then_some(*pool).into_iter().chain(others);
            let taken: BTreeSet<_> = sharing.flat_map(Pool::held_addresses).collect();
            if *here == space && !taken.is_empty() {
                found.insert((*key).to_owned(), taken);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
