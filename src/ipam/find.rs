//! Finds the pool and the record for a request (contract section 10, differences D4 and D5).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::net::IpAddr;

use super::choose::Limits;
use super::{
    Attachment, Holder, Moment, Pool, PoolCount, PoolSelector, Refusal, Request, Space, Usage,
};
use crate::codec::named_address;

impl Space {
    /// Whether the attachment holds an address of any pool.
    pub(super) fn holds_any(&self, attachment: &Attachment) -> bool {
        let mut pools = self.pools.values();
        pools.any(|pool| pool.find_held_by(attachment).is_some())
    }

    /// Finds the pool and the record to allocate: the requested one, or the one that the attachment holds. Otherwise an unused pool
    /// comes first, then one with an address that is not in its cooldown, then the higher priority, then more free addresses, then
    /// the first by its text.
    pub(super) fn find(
        &self,
        request: &Request<'_>,
        elsewhere: &BTreeMap<String, BTreeSet<IpAddr>>,
        now: Moment,
    ) -> Result<(String, IpAddr), Refusal> {
        let none = BTreeSet::new();
        let limits = |key: &str| Limits {
            held_elsewhere: elsewhere.get(key).unwrap_or(&none),
            on_host: request.on_host,
            exclude: request.exclude,
            cooldown: request.cooldown,
            now,
        };
        let fitting = self.fitting(request.pool)?;
        if let Some(address) = request.address {
            let mut refusal = Refusal::AddressNotFound {
                address: address.to_owned(),
            };
            for (key, pool) in fitting {
                match pool.find_named(address, request.attachment, &limits(key)) {
                    Ok(place) => return Ok((key.clone(), place)),
                    Err(Refusal::AddressNotFound { .. }) => {}
                    Err(found) => refusal = found,
                }
            }
            return Err(refusal);
        }
        for (key, pool) in &fitting {
            if let Some(place) = pool.find_held_by(request.attachment) {
                return Ok(((*key).clone(), place));
            }
        }
        let counts = fitting
            .iter()
            .map(|(key, pool)| pool.count(key, &limits(key)));
        let counts: Vec<PoolCount> = counts.collect();
        let able = iter::zip(&fitting, &counts).filter_map(|((key, pool), count)| {
            let next = pool.next_free(&limits(key))?;
            Some((*key, *pool, count, next))
        });
        let best = able.min_by_key(|(_, pool, count, _)| {
            let handed_out = pool.ref_count > 0;
            let most = (pool.priority, count.free + count.cooldown);
            (handed_out, count.free == 0, Reverse(most))
        });
        let Some((key, pool, _, next)) = best else {
            return Err(Refusal::Exhausted { pools: counts });
        };
        let left_over = pool.find_left_over(&request.attachment.container_id, &limits(key));
        Ok((key.clone(), left_over.unwrap_or(next)))
    }

    /// The pools that fit a request.
    fn fitting(&self, selector: PoolSelector<'_>) -> Result<Vec<(&String, &Pool)>, Refusal> {
        let fitting: Vec<_> = match selector {
            PoolSelector::Named(subnet) => {
                let named = self.pool_named(subnet);
                let pool = named.and_then(|key| self.pools.get_key_value(key));
                pool.into_iter().collect()
            }
            PoolSelector::Any { family, if_name } => {
                let suits = |(_, pool): &(&String, &Pool)| pool.suits(family, if_name);
                self.pools.iter().filter(suits).collect()
            }
        };
        match selector {
            _ if !fitting.is_empty() => Ok(fitting),
            PoolSelector::Named(subnet) => Err(Refusal::NoPool {
                subnet: subnet.to_owned(),
                known: self.pools.keys().cloned().collect(),
            }),
            PoolSelector::Any { family, .. } => {
                let passed_over = self.pools.iter().map(|(key, pool)| {
                    format!("{key} ({}, interface {:?})", pool.family(), pool.if_name)
                });
                Err(Refusal::NoPools {
                    family,
                    passed_over: passed_over.collect(),
                })
            }
        }
    }
}

impl Pool {
    /// Finds the record of the requested address, if the attachment holds it or may get it. A prefix length behind the address is
    /// ignored.
    fn find_named(
        &self,
        address: &str,
        attachment: &Attachment,
        limits: &Limits<'_>,
    ) -> Result<IpAddr, Refusal> {
        let named = named_address(address).and_then(|key| self.record(&key));
        let record = named.ok_or_else(|| Refusal::AddressNotFound {
            address: address.to_owned(),
        })?;
        let key = record.key;
        let in_use = |holder| Refusal::AddressInUse {
            address: key,
            holder,
        };
        let address = record.address();
        match &record.usage {
            Usage::Held(held) if held.owner.is_attachment(attachment) => Ok(key),
            Usage::Held(held) => Err(in_use(match held.owner.container_id() {
                Some(id) => Holder::Container(id.to_owned()),
                None => Holder::Unknown,
            })),
            Usage::Free(_) if limits.exclude(&address) => {
                Err(Refusal::AddressExcluded { address: key })
            }
            Usage::Free(_) if limits.on_host.contains(&address) => Err(in_use(Holder::TheHost)),
            Usage::Free(_) if limits.forbid(&address) => Err(in_use(Holder::Unknown)),
            Usage::Free(free) => match limits.cooldown_left(free) {
                Some(left) => Err(Refusal::AddressInCooldown { address: key, left }),
                None => Ok(key),
            },
        }
    }

    /// Finds the record that the attachment holds. One that names the attachment goes before one that names only its container.
    fn find_held_by(&self, attachment: &Attachment) -> Option<IpAddr> {
        let its = self
            .held()
            .filter(|(_, held)| held.owner.is_attachment(attachment));
        let first = its.min_by_key(|(_, held)| held.owner.claim().is_none());
        first.map(|(record, _)| record.key)
    }

    /// Finds a free record that an old version of the original left with this container's ID. The original grants it again.
    fn find_left_over(&self, container_id: &str, limits: &Limits<'_>) -> Option<IpAddr> {
        let left = self.records.iter().find(|r| {
            r.free()
                .is_some_and(|f| f.left_over_id.as_deref() == Some(container_id))
                && !limits.forbid(&r.address())
        });
        left.map(|r| r.key)
    }
}
