//! Finds the pool and the record for a request (contract section 10, differences D4 and D5).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::net::IpAddr;

use super::choose::Unavailable;
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
        let out = |key: &str| Unavailable {
            held_elsewhere: elsewhere.get(key).unwrap_or(&none),
            on_host: request.on_host,
            exclude: request.exclude,
        };
        let fitting = self.fitting(request.pool)?;
        if let Some(address) = request.address {
            let mut refusal = Refusal::AddressNotFound {
                address: address.to_owned(),
            };
            for (key, pool) in fitting {
                match pool.find_named(address, request, &out(key), now) {
                    Ok(place) => return Ok((key.to_owned(), place)),
                    Err(Refusal::AddressNotFound { .. }) => {}
                    Err(found) => refusal = found,
                }
            }
            return Err(refusal);
        }
        for (key, pool) in &fitting {
            if let Some(place) = pool.find_held_by(request.attachment) {
                return Ok(((*key).to_owned(), place));
            }
        }
        let counts = fitting.iter();
        let counts = counts.map(|(key, pool)| pool.count(key, request.cooldown, now, &out(key)));
        let counts: Vec<PoolCount> = counts.collect();
        let able = iter::zip(&fitting, &counts).filter_map(|((key, pool), count)| {
            let next = pool.next_free(&out(key))?;
            Some((*key, *pool, count, next))
        });
        let best = able.min_by_key(|(_, pool, count, _)| {
            let handed_out = pool.ref_count > 0;
            let most = (pool.priority, count.free + count.resting);
            (handed_out, count.free == 0, Reverse(most))
        });
        let Some((key, pool, _, next)) = best else {
            return Err(Refusal::Exhausted { pools: counts });
        };
        let left_over = pool.find_left_over(&request.attachment.container_id, &out(key));
        Ok((key.to_owned(), left_over.unwrap_or(next)))
    }

    /// The pools that fit a request.
    fn fitting(&self, selector: PoolSelector<'_>) -> Result<Vec<(&str, &Pool)>, Refusal> {
        let pools = self.pools.iter().map(|(key, pool)| (key.as_str(), pool));
        let named = match selector {
            PoolSelector::Named(subnet) => self.pool_named(subnet),
            PoolSelector::Any { .. } => None,
        };
        let fits = |(key, pool): &(&str, &Pool)| match selector {
            PoolSelector::Named(_) => Some(*key) == named,
            PoolSelector::Any { family, if_name } => pool.suits(family, if_name),
        };
        let fitting: Vec<_> = pools.clone().filter(fits).collect();
        match selector {
            _ if !fitting.is_empty() => Ok(fitting),
            PoolSelector::Named(subnet) => Err(Refusal::NoPool {
                subnet: subnet.to_owned(),
                known: self.pools.keys().cloned().collect(),
            }),
            PoolSelector::Any { family, .. } => {
                let passed_over = pools.map(|(key, pool)| {
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
        request: &Request<'_>,
        out: &Unavailable<'_>,
        now: Moment,
    ) -> Result<IpAddr, Refusal> {
        let not_found = || Refusal::AddressNotFound {
            address: address.to_owned(),
        };
        let key = named_address(address).ok_or_else(not_found)?;
        let record = self.record(&key).ok_or_else(not_found)?;
        let in_use = |holder| Refusal::AddressInUse {
            address: key,
            holder,
        };
        let address = record.address();
        match &record.usage {
            Usage::Held(held) if held.owner.is_attachment(request.attachment) => Ok(key),
            Usage::Held(held) => Err(in_use(match held.owner.container_id() {
                Some(id) => Holder::Container(id.to_owned()),
                None => Holder::Unknown,
            })),
            Usage::Free(_) if out.excludes(&address) => {
                Err(Refusal::AddressExcluded { address: key })
            }
            Usage::Free(_) if out.on_host.contains(&address) => Err(in_use(Holder::TheHost)),
            Usage::Free(_) if out.contains(&address) => Err(in_use(Holder::Unknown)),
            Usage::Free(free) => match free.released.map(|at| now.since(at)) {
                Some(cooled_for) if cooled_for < request.cooldown => Err(Refusal::AddressResting {
                    address: key,
                    left: request.cooldown - cooled_for,
                }),
                _ => Ok(key),
            },
        }
    }

    /// Finds the record that the attachment holds. One that names the attachment goes before one that names only its container.
    fn find_held_by(&self, attachment: &Attachment) -> Option<IpAddr> {
        let held = |claimed: bool| {
            self.records.iter().find(move |r| {
                r.held().is_some_and(|h| {
                    h.owner.claim().is_some() == claimed && h.owner.is_attachment(attachment)
                })
            })
        };
        held(true).or_else(|| held(false)).map(|r| r.key)
    }

    /// Finds a free record that an old version of the original left with this container's ID. The original grants it again.
    fn find_left_over(&self, container_id: &str, out: &Unavailable<'_>) -> Option<IpAddr> {
        let left = self.records.iter().find(|r| {
            r.free()
                .is_some_and(|f| f.left_over_id.as_deref() == Some(container_id))
                && !out.contains(&r.address())
        });
        left.map(|r| r.key)
    }
}
