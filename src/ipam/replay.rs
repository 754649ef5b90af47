//! Applies what the journal of grants knows: to its own base, which makes it the state again, or to a state that may lack some of it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Change, Held, Ipam, Owner, Pool, Record, Space, Usage};

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
                let is_freed = |_: (&str, &str), record: &Record, _: &Held| {
                    let mut freed = change.addresses.iter();
                    freed.any(|(address, _)| *address == record.address())
                };
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

    /// Holds what `journaled` holds and this state does not, and notes what it released. The owners must be confirmed then. What is held
    /// brings its pool, which has nothing else then. Returns the number of held addresses.
    pub fn hold_journaled(&mut self, journaled: &Ipam) -> usize {
        self.generation = self.generation.max(journaled.generation);
        let known = self.held_addresses();
        let mut count = 0;
        for (space, key, pool) in journaled.pools() {
            for record in &pool.records {
                let address = record.address();
                let held = match &record.usage {
                    Usage::Held(held) if !known.contains(&address) => held,
                    Usage::Held(_) => continue,
                    Usage::Free(free) => {
                        if let Some(Usage::Free(here)) =
                            self.record_of(address).map(|r| &mut r.usage)
                            && here.released < free.released
                        {
                            here.released = free.released;
                            here.released_in = free.released_in;
                        }
                        continue;
                    }
                };
                count += 1;
                if self.hold_again(address, held.clone()) {
                    continue;
                }
                let spaces = self.spaces.entry(space.to_owned());
                let target = spaces.or_insert_with(|| Space {
                    pools: BTreeMap::new(),
                    ..journaled.spaces.get(space).cloned().unwrap_or_default()
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
        if let Some(record) = self.record_of(address) {
            let unlisted = record.held().is_some_and(|held| held.unlisted);
            record.usage = Usage::Held(Held { unlisted, ..held });
            return true;
        }
        let mut pools = self.spaces.values_mut().flat_map(|space| &mut space.pools);
        let fits = |(key, pool): &(&String, &mut Pool)| {
            pool.net(key).is_some_and(|net| net.contains(&address))
        };
        let fitting = pools.find(fits);
        fitting
            .map(|(_, pool)| pool.insert_held(address, held))
            .is_some()
    }

    /// The first record of an address.
    fn record_of(&mut self, address: IpAddr) -> Option<&mut Record> {
        self.pools_mut().find_map(|pool| {
            // Mostly it stands where its key does.
            let is_its = |record: &Record| record.address() == address;
            let place = pool.place(&address).ok();
            let place = place.filter(|place| pool.records.get(*place).is_some_and(is_its));
            let place = place.or_else(|| pool.records.iter().position(is_its))?;
            pool.records.get_mut(place)
        })
    }
}

impl Pool {
    /// Adds the record of an address that the source does not list.
    fn insert_held(&mut self, address: IpAddr, held: Held) {
        let (Ok(place) | Err(place)) = self.place(&address);
        let mut record = Record::new(address);
        record.usage = Usage::Held(Held {
            unlisted: true,
            ..held
        });
        self.records.insert(place, record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::Moment;
    use crate::ipam::testing::{attached, with_pools};

    fn change(is_held: bool, container_id: &str, addresses: &[(&str, u64)]) -> Change {
        Change {
            is_held,
            at: Moment(9),
            addresses: addresses
                .iter()
                .map(|(a, of)| (a.parse().unwrap(), *of))
                .collect(),
            owner: attached(container_id, 0),
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
