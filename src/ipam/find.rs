//! Finds the pool and the record for a request (contract section 10, differences D4 and D5), and checks an attachment for CHECK.

use std::cmp::Reverse;
use std::iter;
use std::net::IpAddr;

use super::choose::Limits;
use super::predecessors::retried_pod;
use super::{
    Attachment, Holder, InUseBy, Ipam, Pool, PoolCount, PoolSelector, Record, Refusal, Space,
    Usage, Wanted, WantedAddress,
};
use crate::codec::named_address;

impl Space {
    /// Returns whether the attachment holds an address of any pool.
    pub(super) fn holds_any(&self, attachment: &Attachment) -> bool {
        let mut pools = self.pools.values();
        pools.any(|pool| pool.find_held_by(attachment).is_some())
    }

    /// Finds the pool and the record to allocate: the requested one, or the one that the attachment holds.
    ///
    /// Otherwise a pool with an address that is not in its cooldown comes first. Then come an unused pool, the higher priority, more free
    /// addresses, and the first by its text.
    pub(super) fn find(
        &self,
        add: &Wanted,
        wanted: &WantedAddress,
        limits: &Limits<'_>,
    ) -> Result<(String, IpAddr), Refusal> {
        let fitting = self.fitting(add, wanted)?;
        let held_elsewhere = |key| self.find_held_elsewhere(&add.attachment, &fitting, key);
        if let Some(address) = &wanted.address {
            if let Some(place) = named_address(address).and_then(|key| held_elsewhere(Some(key))) {
                return Ok(place);
            }
            let mut refusal = Refusal::AddressNotFound {
                address: address.clone(),
            };
            for (key, pool) in &fitting {
                match pool.find_named(key, address, &add.attachment, limits) {
                    Ok(place) => return Ok(((*key).clone(), place)),
                    Err(Refusal::AddressNotFound { .. }) => {}
                    Err(found) => refusal = found,
                }
            }
            return Err(refusal);
        }
        for (key, pool) in &fitting {
            if let Some(place) = pool.find_held_by(&add.attachment) {
                return Ok(((*key).clone(), place));
            }
        }
        // Its subnet may have been resized since its first ADD.
        if let Some(place) = held_elsewhere(None) {
            return Ok(place);
        }
        let counts: Vec<PoolCount> = fitting
            .iter()
            .map(|(key, pool)| pool.count(key, limits))
            .collect();
        let available = iter::zip(&fitting, &counts).filter_map(|((key, pool), count)| {
            let next = pool.next_free(key, limits)?;
            Some((*key, *pool, count, next))
        });
        let best = available.min_by_key(|(_, pool, count, _)| {
            let handed_out = pool.ref_count > 0;
            let most = (pool.priority, count.free + count.cooldown);
            (count.free == 0, handed_out, Reverse(most))
        });
        let Some((key, pool, _, next)) = best else {
            return Err(Refusal::Exhausted {
                pools: counts,
                retried: retried_pod(fitting.iter().map(|(_, pool)| *pool)),
                listed: self.listed_instead(&wanted.pool, &fitting),
            });
        };
        let left_over = pool.find_left_over(key, &add.attachment.container_id, limits);
        Ok((key.clone(), left_over.unwrap_or(next)))
    }

    /// Returns the listed subnets of the family, if the source no longer lists the named one.
    fn listed_instead(&self, wanted: &PoolSelector, fitting: &[(&String, &Pool)]) -> Vec<String> {
        let is_gone = |(_, pool): &(&String, &Pool)| !pool.is_listed();
        if !matches!(wanted, PoolSelector::Named(_)) || !fitting.iter().all(is_gone) {
            return Vec::new();
        }
        let family = wanted.family();
        let pools = self.pools.iter();
        let listed = pools.filter(|(_, pool)| pool.family() == family && pool.is_listed());
        listed.map(|(key, _)| key.clone()).collect()
    }

    /// Finds a record that the attachment holds in any pool. One of `pools` must list its address. With `wanted`, it must be that address.
    fn find_held_elsewhere(
        &self,
        attachment: &Attachment,
        pools: &[(&String, &Pool)],
        wanted: Option<IpAddr>,
    ) -> Option<(String, IpAddr)> {
        let is_listed = |key: &IpAddr| pools.iter().any(|(_, pool)| pool.record(key).is_some());
        self.pools.iter().find_map(|(pool_key, pool)| {
            let (record, _) = pool.held().find(|(record, held)| {
                held.holder.is_attachment(attachment)
                    && wanted.is_none_or(|wanted| wanted == record.key)
                    && is_listed(&record.key)
            })?;
            Some((pool_key.clone(), record.key))
        })
    }

    /// Returns the pools that fit.
    ///
    /// azure-vnet deletes the state when it reads "no available address pools". So that message must mean that there is no pool at all.
    fn fitting(
        &self,
        add: &Wanted,
        wanted: &WantedAddress,
    ) -> Result<Vec<(&String, &Pool)>, Refusal> {
        match &wanted.pool {
            PoolSelector::Named(subnet) => {
                let named = self.pool_named(subnet);
                let pool = named.and_then(|key| self.pools.get_key_value(key));
                let Some(pool) = pool else {
                    return Err(Refusal::NoPool {
                        subnet: subnet.clone(),
                        known: self.pools.keys().cloned().collect(),
                    });
                };
                Ok(vec![pool])
            }
            PoolSelector::Any { family, if_name } => {
                let suits = |(_, pool): &(&String, &Pool)| pool.suits(*family, if_name.as_deref());
                let fitting: Vec<_> = self.pools.iter().filter(suits).collect();
                if !fitting.is_empty() {
                    return Ok(fitting);
                }
                if let Some(address) = wanted.address.as_ref().filter(|_| wanted.decides_family) {
                    return Err(Refusal::AddressNotFound {
                        address: address.clone(),
                    });
                }
                let passed_over = self.pools.iter().map(|(key, pool)| {
                    format!("{key} ({}, interface {:?})", pool.family(), pool.if_name)
                });
                let (family, if_name) = (*family, if_name.clone());
                let passed_over: Vec<String> = passed_over.collect();
                if add.addresses.len() > 1 && !passed_over.is_empty() {
                    return Err(Refusal::NoPoolOfFamily {
                        family,
                        if_name,
                        passed_over,
                    });
                }
                Err(Refusal::NoPools {
                    family,
                    if_name,
                    passed_over,
                })
            }
        }
    }
}

impl Pool {
    /// Finds the record of the requested address, if the attachment holds it or may get it. A prefix length after the address is ignored.
    fn find_named(
        &self,
        pool_key: &str,
        address: &str,
        attachment: &Attachment,
        limits: &Limits<'_>,
    ) -> Result<IpAddr, Refusal> {
        let named = named_address(address).and_then(|key| self.record(&key));
        let reserved = self.reserved(pool_key);
        let is_there =
            |record: &&Record| record.held().is_some() || reserved.name(record.address()).is_none();
        let not_found = || Refusal::AddressNotFound {
            address: address.to_owned(),
        };
        let record = named.filter(is_there).ok_or_else(not_found)?;
        let key = record.key;
        let in_use = |in_use_by| Refusal::AddressInUse {
            address: key,
            in_use_by,
        };
        let address = record.address();
        match &record.usage {
            Usage::Held(held) if held.holder.is_attachment(attachment) => Ok(key),
            Usage::Held(held) => Err(in_use(match held.holder.container_id() {
                "" => InUseBy::Unknown,
                id => InUseBy::Container(id.to_owned()),
            })),
            Usage::Free(_) if limits.exclude(&address) => {
                Err(Refusal::AddressExcluded { address: key })
            }
            Usage::Free(_) if limits.taken.on_host.contains(&address) => {
                Err(in_use(InUseBy::TheHost))
            }
            Usage::Free(_) if limits.taken.withheld.contains(&address) => {
                Err(in_use(InUseBy::LastSandbox))
            }
            Usage::Free(_) if limits.forbid(&address) => Err(in_use(InUseBy::Unknown)),
            Usage::Free(free) => match limits.cooldown_left(free) {
                Some(left) => Err(Refusal::AddressInCooldown { address: key, left }),
                None => Ok(key),
            },
        }
    }

    /// Finds the record that the attachment holds. One that names the attachment comes before one that names only its container.
    fn find_held_by(&self, attachment: &Attachment) -> Option<IpAddr> {
        let held = self
            .held()
            .filter(|(_, held)| held.holder.is_attachment(attachment));
        let first = held.min_by_key(|(_, held)| !held.holder.has_interface());
        first.map(|(record, _)| record.key)
    }

    /// Finds a free record that an old version of the original left with this container's ID. The original allocates it again.
    fn find_left_over(&self, key: &str, container_id: &str, limits: &Limits<'_>) -> Option<IpAddr> {
        let mut records = self.records_for_pods(key);
        let left = records.find(|r| {
            r.free()
                .is_some_and(|f| f.left_over_id.as_deref() == Some(container_id))
                && !limits.forbid(&r.address())
        });
        left.map(|r| r.key)
    }
}

/// An address that the attachment should hold and does not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckFailure {
    /// It holds no address at all.
    #[error("no address is held for this attachment")]
    Nothing,
    /// The address is free.
    #[error("{address} is not held for this attachment: it is free")]
    Free {
        /// The address.
        address: IpAddr,
    },
    /// Another attachment holds the address.
    #[error("{address} is not held for this attachment, but for another")]
    Others {
        /// The address.
        address: IpAddr,
        /// The holder's container ID.
        holder: String,
    },
}

impl Ipam {
    /// Compares the records with the addresses in the result of `attachment`. Only addresses in our pools are checked. Without a result,
    /// the attachment must hold at least one address. An address of an unknown holder passes, because it may be this attachment's.
    ///
    /// # Errors
    /// The first address that it does not hold.
    pub fn check_attachment(
        &self,
        attachment: &Attachment,
        expected: Option<&[IpAddr]>,
    ) -> Result<(), CheckFailure> {
        let holds_any = self
            .holders()
            .any(|held| held.holder.is_attachment(attachment));
        let Some(expected) = expected else {
            return holds_any.then_some(()).ok_or(CheckFailure::Nothing);
        };
        for address in expected.iter().copied() {
            let ours = self.pools().filter(|(_, key, pool)| {
                let net = pool.net(key);
                net.is_some_and(|net| net.contains(&address))
            });
            let ours: Vec<_> = ours.map(|(_, _, pool)| pool).collect();
            let records = ours.iter().flat_map(|pool| &pool.records);
            let records = records.filter(|record| record.address() == address);
            let holders: Vec<&Holder> = records
                .filter_map(|record| Some(&*record.held()?.holder))
                .collect();
            let may_be_its =
                |holder: &&Holder| holder.is_attachment(attachment) || holder.is_unknown();
            if ours.is_empty() || holders.iter().any(may_be_its) {
                continue;
            }
            return Err(match holders.first() {
                Some(holder) => CheckFailure::Others {
                    address,
                    holder: holder.container_id().to_owned(),
                },
                None if holds_any => CheckFailure::Free { address },
                None => CheckFailure::Nothing,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::Moment;
    use crate::ipam::testing::{attached, attachment, hold, ip, with_pools};

    #[test]
    fn check_accepts_addresses_that_attachment_holds_or_may_hold() {
        // .8 is free.
        let all: &[&str] = &["10.1.0.5", "10.1.0.6", "10.1.0.7", "10.1.0.8"];
        let mut ipam = with_pools(&[("10.1.0.0/16", 0, all)]);
        let old = Holder::from_container_id("c2");
        let holders = [attached("c1", 0), old, Holder::default()];
        for (address, holder) in all.iter().zip(holders) {
            hold(&mut ipam, address, holder, Moment(0));
        }
        let free = |address| {
            Err(CheckFailure::Free {
                address: ip(address),
            })
        };
        let others = Err(CheckFailure::Others {
            address: ip("10.1.0.5"),
            holder: "c1".into(),
        });
        let nothing = Err(CheckFailure::Nothing);
        for (id, if_name, addresses, expected) in [
            ("c1", "eth0", Some(&["10.1.0.5"][..]), Ok(())),
            ("c1", "eth0", Some(&["192.168.0.1", "10.1.0.5"]), Ok(())),
            ("c1", "eth0", None, Ok(())),
            ("c2", "net1", Some(&["10.1.0.6"]), Ok(())),
            ("c9", "eth0", Some(&["10.1.0.7"]), Ok(())),
            ("c9", "eth0", Some(&["192.168.0.1", "fd00::1"]), Ok(())),
            ("c9", "eth0", Some(&[]), Ok(())),
            (
                "c2",
                "eth0",
                Some(&["10.1.0.6", "10.1.0.5"]),
                others.clone(),
            ),
            ("c1", "net1", Some(&["10.1.0.5"]), others),
            ("c1", "eth0", Some(&["10.1.0.8"]), free("10.1.0.8")),
            ("c1", "eth0", Some(&["10.1.0.99"]), free("10.1.0.99")),
            ("c9", "eth0", Some(&["10.1.0.8"]), nothing.clone()),
            ("c1", "net1", None, nothing),
        ] {
            let parsed = addresses.map(|all| all.iter().map(|a| ip(a)).collect::<Vec<_>>());
            let found = ipam.check_attachment(&attachment(id, if_name), parsed.as_deref());
            assert_eq!(found, expected, "{id} {if_name} {addresses:?}");
        }
    }
}
