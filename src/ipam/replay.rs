//! Applies what the journal of grants knows: to its own base, which makes it the state again, or to a state that may lack some of it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{Change, Held, Ipam, Owner, Pool, Record, Usage, by_text};

impl Change {
    /// The holder of one of the addresses.
    fn held(&self, generation: u64) -> Held {
        let mut owner = self.owner.clone();
        if let Owner::Attachment(claim) = &mut owner {
            claim.generation = generation;
        }
        Held {
            owner,
            since: self.at,
            ..Held::default()
        }
    }
}

impl Ipam {
    /// Makes changes that were made to this state once.
    pub fn replay(&mut self, changes: &[Change]) {
        for change in changes {
            for (address, of) in &change.addresses {
                self.generation = self.generation.max(*of);
                if change.is_held {
                    self.hold_again(*address, change.held(*of));
                }
            }
            if !change.is_held {
                let is_freed = |a, _: &Held| change.addresses.iter().any(|(freed, _)| *freed == a);
                let freed = self.free_where(is_freed, Some(change.at));
                self.note_dropped(&freed, change.at);
            }
        }
    }

    /// Holds what the changes grant, and frees nothing: some between them may be missing.
    pub fn replay_holds(&mut self, changes: &[Change]) {
        for change in changes.iter().filter(|change| change.is_held) {
            for (address, of) in &change.addresses {
                self.generation = self.generation.max(*of);
                let records = self.pools().filter_map(|(_, _, pool)| pool.record(address));
                if !{ records }.any(|record| record.held().is_some()) {
                    self.hold_again(*address, change.held(*of));
                }
            }
        }
    }

    /// Holds what `journaled` holds and this state does not, and notes what it released. The owners must be confirmed then. What is held brings its pool,
    /// which has nothing else then. Returns the number of held addresses.
    pub fn hold_journaled(&mut self, journaled: &Ipam) -> usize {
        for (_, _, pool) in journaled.pools() {
            for (address, free) in pool
                .records
                .iter()
                .filter_map(|r| Some((r.address(), r.free()?)))
            {
                let mut records = self.pools_mut().filter_map(|pool| pool.record_of(address));
                if let Some(Usage::Free(here)) = records.next().map(|record| &mut record.usage)
                    && here.released < free.released
                {
                    here.released = free.released;
                    here.released_in = free.released_in;
                }
            }
        }
        let records = self.pools().flat_map(|(_, _, pool)| &pool.records);
        let known = records.filter(|record| record.held().is_some());
        let known: BTreeSet<IpAddr> = known.map(Record::address).collect();
        self.generation = self.generation.max(journaled.generation);
        let mut count = 0;
        for (space, key, pool) in journaled.pools() {
            for record in &pool.records {
                let address = record.address();
                let Some(held) = record.held().filter(|_| !known.contains(&address)) else {
                    continue;
                };
                count += 1;
                if self.hold_again(address, held.clone()) {
                    continue;
                }
                let target = self.spaces.entry(space.to_owned()).or_insert_with(|| {
                    let mut space = journaled.spaces.get(space).cloned().unwrap_or_default();
                    space.pools.clear();
                    space
                });
                let pool = target.pools.entry(key.to_owned()).or_insert_with(|| Pool {
                    records: Vec::new(),
                    ..pool.clone()
                });
                pool.insert_held(address, held.clone());
            }
        }
        count
    }

    /// Holds an address, whoever holds it now. Returns false where no pool fits.
    fn hold_again(&mut self, address: IpAddr, held: Held) -> bool {
        for pool in self.pools_mut() {
            if let Some(record) = pool.record_of(address) {
                let unlisted = record.held().is_some_and(|held| held.unlisted);
                record.usage = Usage::Held(Held { unlisted, ..held });
                return true;
            }
        }
        let mut pools = self.spaces.values_mut().flat_map(|space| &mut space.pools);
        let fits = |(key, pool): &(&String, &mut Pool)| {
            pool.net(key).is_some_and(|net| net.contains(&address))
        };
        match pools.find(fits) {
            Some((_, pool)) => pool.insert_held(address, held),
            None => return false,
        }
        true
    }
}

impl Pool {
    /// Adds the record of an address that the source does not list.
    fn insert_held(&mut self, address: IpAddr, held: Held) {
        let place = self
            .records
            .partition_point(|r| by_text(&r.key, &address).is_lt());
        let mut record = Record::new(address);
        record.usage = Usage::Held(Held {
            unlisted: true,
            ..held
        });
        self.records.insert(place, record);
    }

    /// The record of an address, which mostly stands where its key does.
    fn record_of(&mut self, address: IpAddr) -> Option<&mut Record> {
        let is_at_key = self
            .record(&address)
            .is_some_and(|record| record.address() == address);
        if is_at_key {
            return self.record_mut(&address);
        }
        let mut records = self.records.iter_mut();
        records.find(|record| record.address() == address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::testing::with_pools;
    use crate::ipam::{Attachment, Moment};

    fn change(is_held: bool, container_id: &str, addresses: &[(&str, u64)]) -> Change {
        Change {
            is_held,
            at: Moment(9),
            addresses: addresses
                .iter()
                .map(|(a, of)| (a.parse().unwrap(), *of))
                .collect(),
            owner: Owner::from_attachment(&Attachment {
                network: "azure".into(),
                container_id: container_id.into(),
                if_name: "eth0".into(),
            }),
        }
    }

    fn granted(container_id: &str, address: &str, of: u64) -> Change {
        change(true, container_id, &[(address, of)])
    }

    fn released(container_id: &str, address: &str, of: u64) -> Change {
        change(false, container_id, &[(address, of)])
    }

    fn held(ipam: &Ipam) -> Vec<(String, String)> {
        let records = ipam.pools().flat_map(|(_, _, pool)| &pool.records);
        let held = records.filter_map(|r| Some((r, r.held()?)));
        held.map(|(r, h)| {
            (
                r.address().to_string(),
                h.owner.container_id().unwrap_or_default().to_owned(),
            )
        })
        .collect()
    }

    #[track_caller]
    fn assert_held(ipam: &Ipam, expected: &[(&str, &str)]) {
        let expected = expected.iter().map(|(a, b)| ((*a).into(), (*b).into()));
        assert_eq!(held(ipam), expected.collect::<Vec<_>>());
        assert_eq!(ipam.check(), []);
    }

    #[test]
    fn changes_are_made_again() {
        let mut ipam = with_pools(&[("10.1.0.0/16", 0, &["10.1.0.5", "10.1.0.6", "10.1.0.7"])]);
        ipam.replay(&[
            granted("c1", "10.1.0.5", 1),
            granted("c2", "10.1.0.6", 2),
            granted("c3", "10.1.0.7", 3),
            released("c1", "10.1.0.5", 1),
            granted("c4", "10.1.0.5", 4),
            released("c2", "10.1.0.6", 2),
            // The source did not list it then.
            granted("c5", "10.1.0.9", 5),
        ]);
        assert_held(
            &ipam,
            &[("10.1.0.5", "c4"), ("10.1.0.7", "c3"), ("10.1.0.9", "c5")],
        );
        let (_, _, pool) = ipam.pools().next().unwrap();
        let free = pool.records[1].free().unwrap();
        assert_eq!(free.released, Some(Moment(9)));
        assert_eq!(ipam.generation, 5);
        ipam.replay(&[released("c5", "10.1.0.9", 5)]);
        assert_held(&ipam, &[("10.1.0.5", "c4"), ("10.1.0.7", "c3")]);
        assert_eq!(ipam.dropped.len(), 1);
    }

    #[test]
    fn what_is_journaled_is_held_and_brings_its_pool() {
        let mut journaled = with_pools(&[
            ("10.1.0.0/16", 0, &["10.1.0.5", "10.1.0.6"]),
            ("10.9.0.0/16", 1, &["10.9.0.9", "10.9.0.10"]),
        ]);
        journaled.replay(&[
            granted("old", "10.1.0.5", 1),
            granted("c2", "10.1.0.6", 2),
            granted("c3", "10.1.0.9", 3),
            granted("c4", "10.9.0.9", 3),
        ]);
        let mut ipam = with_pools(&[("10.1.0.0/16", 0, &["10.1.0.5", "10.1.0.6"])]);
        ipam.replay(&[granted("new", "10.1.0.5", 1)]);
        assert_eq!(ipam.hold_journaled(&journaled), 3);
        assert_held(
            &ipam,
            &[
                ("10.1.0.5", "new"),
                ("10.1.0.6", "c2"),
                ("10.1.0.9", "c3"),
                ("10.9.0.9", "c4"),
            ],
        );
    }

    #[test]
    fn holds_behind_a_gap_free_nothing() {
        let mut ipam = with_pools(&[("10.1.0.0/16", 0, &["10.1.0.5", "10.1.0.6"])]);
        ipam.replay(&[granted("c1", "10.1.0.5", 1)]);
        ipam.replay_holds(&[
            released("c1", "10.1.0.5", 1),
            granted("c2", "10.1.0.5", 3),
            granted("c3", "10.1.0.6", 4),
        ]);
        assert_held(&ipam, &[("10.1.0.5", "c1"), ("10.1.0.6", "c3")]);
    }
}
