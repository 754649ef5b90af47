//! Adds the holders of an older copy of a state, when nothing proves that the newer one is complete.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Held, Ipam, Moment, Pool, Record, Space, Usage};

impl Ipam {
    /// Adds the holder of every address that is held in `other` and not here. Releases in `other` do not count. If no pool here has the
    /// address, its pool is added without other records. Returns the number of added holders.
    pub fn hold_also(&mut self, other: &Ipam, now: Moment) -> usize {
        self.generation = self.generation.max(other.generation);
        let mut known = self.held_addresses();
        let mut count = 0;
        for (space_name, pool_name, pool) in other.pools() {
            for (record, held) in pool.held() {
                // This state or another pool may hold it already.
                if !known.insert(record.address()) {
                    continue;
                }
                count += 1;
                if self.hold_in_a_pool(record.address(), held.clone(), now) {
                    continue;
                }
                let space = other.spaces.get(space_name).cloned().unwrap_or_default();
                let without_pools = || Space {
                    pools: BTreeMap::new(),
                    ..space
                };
                let space = self.spaces.entry(space_name.to_owned());
                let pools = &mut space.or_insert_with(without_pools).pools;
                let without_records = || Pool {
                    records: Vec::new(),
                    ..pool.clone()
                };
                pools
                    .entry(pool_name.to_owned())
                    .or_insert_with(without_records)
                    .insert_held(record.address(), held.clone(), now);
            }
        }
        count
    }

    /// Forgets the last namespaces of the released addresses. Nothing proves that they were not
    /// allocated again.
    pub fn forget_last_namespaces(&mut self) {
        for (_, usage) in self.usages_mut() {
            if let Usage::Free(free) = usage {
                free.last_netns = None;
            }
        }
        for free in self.omitted.values_mut() {
            free.last_netns = None;
        }
    }

    /// Makes a free address held: in its record, or else in the first pool with a subnet that contains it. Returns false if there is
    /// neither.
    fn hold_in_a_pool(&mut self, address: IpAddr, held: Held, now: Moment) -> bool {
        if let Some((_, usage)) = self.usages_mut().find(|(named, _)| *named == address) {
            *usage = Usage::Held(Held {
                unlisted: None,
                ..held
            });
            return true;
        }
        let mut pools = self.spaces.values_mut().flat_map(|space| &mut space.pools);
        let fitting = pools.find(|(name, pool)| {
            pool.net(name)
                .is_some_and(|subnet| subnet.contains(&address))
        });
        fitting
            .map(|(_, pool)| pool.insert_held(address, held, now))
            .is_some()
    }
}

impl Pool {
    /// Adds the record of an address that the source does not list.
    fn insert_held(&mut self, address: IpAddr, held: Held, now: Moment) {
        let (Ok(place) | Err(place)) = self.place(&address);
        let mut record = Record::new(address);
        record.usage = Usage::Held(Held {
            unlisted: held.unlisted.or(Some(now)),
            ..held
        });
        self.records.insert(place, record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::Moment;
    use crate::ipam::testing::{attached, hold, holders, ip, with_pools};

    #[test]
    fn holders_of_older_copy_are_added_and_replace_none() {
        let mut newer = with_pools(&[("10.1.0.0/24", 0, &["10.1.0.5", "10.1.0.6"])]);
        hold(&mut newer, "10.1.0.5", attached("new", 0), Moment(9));
        let listed: &[&str] = &["10.1.0.5", "10.1.0.6", "10.1.0.7"];
        let mut older = with_pools(&[
            ("10.1.0.0/24", 0, listed),
            ("10.2.0.0/24", 0, &["10.2.0.5", "10.2.0.6"]),
        ]);
        for (address, holder) in [
            ("10.1.0.5", "old"),
            ("10.1.0.6", "b"),
            ("10.1.0.7", "c"),
            ("10.2.0.5", "d"),
        ] {
            hold(&mut older, address, attached(holder, 0), Moment(1));
        }
        older.generation = 7;
        assert_eq!(newer.hold_also(&older, Moment(9)), 3);
        assert_eq!(
            holders(&newer),
            "10.1.0.5=new 10.1.0.6=b 10.1.0.7=c 10.2.0.5=d"
        );
        assert_eq!(newer.generation, 7);
        let added = newer.pools().find(|(_, name, _)| *name == "10.2.0.0/24");
        let (_, _, pool) = added.unwrap();
        let addresses: Vec<_> = pool.records.iter().map(Record::address).collect();
        assert_eq!(
            addresses,
            [ip("10.2.0.5")],
            "what is free there stays unknown"
        );
        assert!(
            pool.held()
                .all(|(_, held)| held.unlisted == Some(Moment(9)))
        );
    }
}
