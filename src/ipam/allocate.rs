//! Allocates an address for an attachment (contract sections 10 and 11, differences D4, D5, D8, D9, D11, D14).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::choose::Unavailable;
use super::invariants::overlapping;
use super::{
    Attachment, Claim, Family, Grant, GrantKind, Held, Ipam, Moment, Owner, Pool, PoolSelector,
    Record, Refusal, Request, Space, Stage, Usage,
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
            let stage = match request.pool {
                PoolSelector::Named(_) => Stage::Address,
                PoolSelector::Any { .. } => Stage::Pool,
            };
            return Err(Refusal::NoSpace {
                stage,
                space: request.space.to_owned(),
            });
        };
        let quarantine = self.quarantine.filter(|until| *until > now);
        if let Some(until) = quarantine
            && !space.holds_any(request.attachment)
        {
            return Err(Refusal::Quarantined {
                left: until.since(now),
            });
        }
        let none = BTreeSet::new();
        let out = |key: &str| Unavailable {
            held_elsewhere: elsewhere.get(key).unwrap_or(&none),
            on_host: request.on_host,
            exclude: request.exclude,
        };
        let (pool_key, place) = match request.pool {
            PoolSelector::Named(subnet) => {
                let key = space.pool_named(subnet).ok_or_else(|| Refusal::NoPool {
                    subnet: subnet.to_owned(),
                    known: space.pools.keys().cloned().collect(),
                })?;
                let key = key.to_owned();
                let place = space.find_in(&key, request, out(&key), now)?;
                (key, place)
            }
            PoolSelector::Any { family, if_name } => {
                space.clear_unused_ref_counts();
                let found = space.find_in_any(request, family, if_name, now, out);
                if let Err(Refusal::Exhausted { .. }) = found {
                    space.flag_exhausted(|pool| pool.suits(family, if_name));
                }
                found?
            }
        };
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
            return Err(Refusal::Quarantined {
                left: until.since(now),
            });
        }
        let address = IpNet::new(record.address(), net.prefix_len()).map_err(|_| refusal())?;
        let kind = record.claim(request, generation, now);
        if let Some(held) = record.held() {
            self.changes.hold(address.addr(), held);
        }
        let early_del = self
            .tombstones
            .iter()
            .position(|t| t.attachment == *request.attachment);
        if let (Some(n), Usage::Held(held)) = (early_del, &mut record.usage) {
            // Its DEL came first, and another one may never come.
            held.suspect = Some(now);
            self.tombstones.remove(n);
        }
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
        let held = |pool: &Pool| -> Vec<IpAddr> {
            pool.records
                .iter()
                .filter(|r| r.held().is_some())
                .map(Record::address)
                .collect()
        };
        let pools: Vec<_> = self.pools().collect();
        let nets: Vec<_> = pools.iter().map(|(_, key, pool)| pool.net(key)).collect();
        let overlapping = overlapping(&nets);
        let mut found = BTreeMap::new();
        for (n, (here, key, pool)) in pools.iter().enumerate() {
            if *here != space {
                continue;
            }
            let mut taken = BTreeSet::new();
            if pool.records.iter().any(|r| r.address() != r.key) {
                taken.extend(held(pool));
            }
            for other in overlapping.get(&n).into_iter().flatten() {
                if let Some((_, _, other)) = pools.get(*other) {
                    taken.extend(held(other));
                }
            }
            if !taken.is_empty() {
                found.insert((*key).to_owned(), taken);
            }
        }
        found
    }
}

impl Space {
    fn holds_any(&self, attachment: &Attachment) -> bool {
        let mut pools = self.pools.values();
        pools.any(|pool| pool.find_held_by(attachment).is_some())
    }

    /// Finds the record to allocate in one pool.
    fn find_in(
        &self,
        key: &str,
        request: &Request<'_>,
        out: Unavailable<'_>,
        now: Moment,
    ) -> Result<IpAddr, Refusal> {
        let no_pool = || Refusal::NoPool {
            subnet: key.to_owned(),
            known: vec![],
        };
        let pool = self.pools.get(key).ok_or_else(no_pool)?;
        if let Some(address) = request.address {
            return pool.find_named(address, request, out, now);
        }
        let exhausted = || Refusal::Exhausted {
            pools: vec![pool.count(key, request.cooldown, now, &out)],
        };
        pool.find_held_by(request.attachment)
            .or_else(|| pool.find_left_over(&request.attachment.container_id, out))
            .or_else(|| pool.next_free(&out))
            .ok_or_else(exhausted)
    }

    /// Finds the pool and the record to allocate when the caller names no subnet.
    fn find_in_any<'t>(
        &self,
        request: &Request<'_>,
        family: Family,
        if_name: Option<&str>,
        now: Moment,
        out: impl Fn(&str) -> Unavailable<'t>,
    ) -> Result<(String, IpAddr), Refusal> {
        let mut fitting = self
            .pools
            .iter()
            .filter(|(_, pool)| pool.suits(family, if_name))
            .peekable();
        if fitting.peek().is_none() {
            let passed_over = self.pools.iter().map(|(key, pool)| {
                format!("{key} ({}, interface {:?})", pool.family(), pool.if_name)
            });
            return Err(Refusal::NoPools {
                family,
                passed_over: passed_over.collect(),
            });
        }
        if let Some(address) = request.address {
            let mut worst = None;
            for (key, pool) in fitting {
                match pool.find_named(address, request, out(key), now) {
                    Ok(place) => return Ok((key.clone(), place)),
                    Err(Refusal::AddressNotFound { .. }) => {}
                    Err(found) => worst = Some(found),
                }
            }
            return Err(worst.unwrap_or_else(|| Refusal::AddressNotFound {
                address: address.to_owned(),
            }));
        }
        let mut counts = Vec::new();
        for (key, pool) in fitting {
            if let Some(place) = pool.find_held_by(request.attachment) {
                return Ok((key.clone(), place));
            }
            counts.push(pool.count(key, request.cooldown, now, &out(key)));
        }
        let key = self
            .choose(
                |pool| pool.suits(family, if_name),
                &out,
                request.cooldown,
                now,
            )
            .ok_or(Refusal::Exhausted { pools: counts })?;
        Ok((key.to_owned(), self.find_in(key, request, out(key), now)?))
    }
}

impl Record {
    /// Makes the attachment the holder, or renews what it holds.
    fn claim(&mut self, request: &Request<'_>, generation: u64, now: Moment) -> GrantKind {
        let (kind, unlisted) = match &self.usage {
            Usage::Held(held) => (GrantKind::Renewed, held.unlisted),
            Usage::Free(free) => (GrantKind::New(free.clone()), false),
        };
        self.addr = Some(self.address());
        self.usage = Usage::Held(Held {
            owner: Owner::Attachment(Box::new(Claim {
                container_id: request.attachment.container_id.as_str().into(),
                network: request.attachment.network.as_str().into(),
                if_name: request.attachment.if_name.as_str().into(),
                pod: request.pod.map(Into::into),
                netns: request.netns.cloned(),
                generation,
            })),
            since: now,
            suspect: None,
            unlisted,
        });
        kind
    }
}

#[cfg(test)]
mod tests;
