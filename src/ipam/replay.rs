//! Applies the entries of the journal of grants to a state that lacks them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::{ChangeKind, Held, Ipam, Moment, Owner, Pool, Record, Usage, by_text};

/// An entry of the journal: one holder, and all of its addresses that changed in one call.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalEntry {
    /// Its number; consecutive.
    pub sequence: u64,
    /// What happened.
    pub kind: ChangeKind,
    /// When it happened.
    pub at: Moment,
    /// The generation of the state after it.
    pub generation: u64,
    /// The addresses, each with the generation of its claim. Empty for a release that found no state: then all of the attachment.
    pub addresses: Vec<(IpAddr, u64)>,
    /// The owner; the generation in its claim is not used.
    pub owner: Owner,
}

impl JournalEntry {
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

    /// Whether it releases the address from this holder: the same ADD's, or where no address is named, the same attachment's.
    fn frees(&self, address: IpAddr, held: &Held) -> bool {
        if self.addresses.is_empty() {
            let attachment = self.owner.attachment();
            return attachment.is_some_and(|attachment| held.owner.is_attachment(&attachment));
        }
        let generation = held.owner.generation();
        self.addresses.iter().any(|(freed, of)| {
            *freed == address
                && held.owner.container_id() == self.owner.container_id()
                && generation.is_none_or(|generation| generation == *of)
        })
    }
}

/// The last word of the entries about each address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastWords {
    /// Granted and not released.
    pub held: BTreeMap<IpAddr, Held>,
    /// Released and not granted again, with the moment of the release.
    pub released: BTreeMap<IpAddr, Moment>,
}

impl LastWords {
    /// Reads entries in their order.
    pub fn of(entries: &[JournalEntry]) -> LastWords {
        let mut words = LastWords::default();
        for entry in entries {
            if entry.kind.is_held_after() {
                for (address, of) in &entry.addresses {
                    words.held.insert(*address, entry.held(*of));
                    words.released.remove(address);
                }
            } else {
                words.release(entry);
            }
        }
        words
    }

    fn release(&mut self, entry: &JournalEntry) {
        let named = entry.addresses.iter().map(|(address, _)| *address);
        let affected: Vec<_> = match entry.addresses.is_empty() {
            true => self.held.keys().copied().collect(),
            false => named.collect(),
        };
        for address in affected {
            let held = self.held.get(&address);
            if held.is_some_and(|held| entry.frees(address, held)) {
                self.held.remove(&address);
                self.released.insert(address, entry.at);
            }
        }
    }
}

impl Ipam {
    /// Applies the entries that are newer than an old copy of the state.
    pub fn replay(&mut self, entries: &[JournalEntry]) {
        for entry in entries {
            self.generation = self.generation.max(entry.generation);
            if entry.kind.is_held_after() {
                for (address, of) in &entry.addresses {
                    self.hold_again(*address, entry.held(*of));
                }
                continue;
            }
            for pool in self.pools_mut() {
                let frees = |record: &Record, held: &Held| entry.frees(record.address(), held);
                pool.free_where(frees, Some(entry.at));
            }
        }
    }

    /// Holds what the journal grants and does not release. Evidence goes first; where it knows no owner, a journal that `is_complete`
    /// names the owner. In an incomplete one a release and another grant may be missing, so the owner stays unknown. Returns the
    /// number of addresses.
    pub fn hold_journaled(
        &mut self,
        holdings: &BTreeMap<IpAddr, Held>,
        is_complete: bool,
    ) -> usize {
        let records = self.pools().flat_map(|(_, _, pool)| &pool.records);
        let mut held_now = BTreeSet::new();
        let mut ownerless = BTreeSet::new();
        for record in records {
            let Some(held) = record.held() else { continue };
            held_now.insert(record.address());
            if is_complete && held.owner.is_unknown() {
                ownerless.insert(record.address());
            }
        }
        let again = holdings.iter().filter(|(address, held)| {
            self.generation = self.generation.max(held.owner.generation().unwrap_or(0));
            let is_free = !held_now.contains(address) || ownerless.contains(address);
            let held = match is_complete {
                true => (*held).clone(),
                false => Held {
                    since: held.since,
                    ..Held::default()
                },
            };
            is_free && self.hold_again(**address, held)
        });
        again.count()
    }

    /// Notes when free addresses were released, so that they rest.
    pub fn note_releases(&mut self, released: &BTreeMap<IpAddr, Moment>) {
        for (address, at) in released {
            for record in self.pools_mut().filter_map(|pool| pool.record_of(*address)) {
                if let Usage::Free(free) = &mut record.usage {
                    free.released = free.released.max(Some(*at));
                }
            }
        }
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
        let mut spaces = self.spaces.values_mut().flat_map(|space| &mut space.pools);
        let of_subnet =
            spaces.find(|(key, pool)| pool.net(key).is_some_and(|net| net.contains(&address)));
        let Some((_, pool)) = of_subnet else {
            return false;
        };
        let place = pool
            .records
            .partition_point(|r| by_text(&r.key, &address).is_lt());
        let mut record = Record::new(address);
        record.usage = Usage::Held(Held {
            unlisted: true,
            ..held
        });
        pool.records.insert(place, record);
        true
    }
}

impl Pool {
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
    use crate::ipam::Attachment;
    use crate::ipam::testing::with_pools;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn owner(container_id: &str) -> Owner {
        Owner::from_attachment(&Attachment {
            network: "azure".into(),
            container_id: container_id.into(),
            if_name: "eth0".into(),
        })
    }

    fn entry(kind: ChangeKind, container_id: &str, addresses: &[(&str, u64)]) -> JournalEntry {
        JournalEntry {
            sequence: 1,
            kind,
            at: Moment(9),
            generation: addresses.iter().map(|(_, of)| *of).max().unwrap_or(0),
            addresses: addresses.iter().map(|(a, of)| (ip(a), *of)).collect(),
            owner: owner(container_id),
        }
    }

    fn held(ipam: &Ipam) -> Vec<(String, String)> {
        let records = ipam.pools().flat_map(|(_, _, pool)| &pool.records);
        let held = records.filter_map(|r| Some((r, r.held()?)));
        held.map(|(r, h)| {
            (
                r.address().to_string(),
                h.owner.container_id().unwrap().to_owned(),
            )
        })
        .collect()
    }

    #[test]
    fn what_was_granted_and_not_released_is_held() {
        use ChangeKind::{Granted, Released, Renewed};
        let entries = [
            entry(Granted, "c1", &[("10.1.0.5", 1)]),
            entry(Granted, "c2", &[("10.1.0.6", 2)]),
            entry(Renewed, "c1", &[("10.1.0.5", 3)]),
            entry(Released, "c2", &[("10.1.0.6", 2)]),
            // Of another holder, or of an earlier ADD of the same: they free nothing.
            entry(Released, "c9", &[("10.1.0.5", 3)]),
            entry(Released, "c1", &[("10.1.0.5", 1)]),
            entry(Granted, "c3", &[("10.1.0.7", 4), ("fd00::7", 5)]),
        ];
        let LastWords { held, released } = LastWords::of(&entries);
        let keys: Vec<_> = held.keys().map(ToString::to_string).collect();
        assert_eq!(keys, ["10.1.0.5", "10.1.0.7", "fd00::7"]);
        let generation = |address: &str| held[&ip(address)].owner.generation().unwrap();
        assert_eq!((generation("10.1.0.5"), generation("fd00::7")), (3, 5));
        // A DEL that found no state.
        let all = [&entries[..], &[entry(Released, "c3", &[])]].concat();
        let words = LastWords::of(&all);
        assert_eq!(words.held.len(), 1);
        assert_eq!(released, BTreeMap::from([(ip("10.1.0.6"), Moment(9))]));
        let keys: Vec<_> = words.released.keys().map(ToString::to_string).collect();
        assert_eq!(keys, ["10.1.0.6", "10.1.0.7", "fd00::7"]);
        // Granted again: the release is not the last word.
        let all = [&all[..], &[entry(Granted, "c4", &[("10.1.0.6", 6)])]].concat();
        assert!(!LastWords::of(&all).released.contains_key(&ip("10.1.0.6")));
    }

    #[test]
    fn evidence_is_known_better_than_the_journal() {
        let mut ipam = with_pools(&[("10.1.0.0/16", 0, &["10.1.0.5", "10.1.0.6"])]);
        let evident = [entry(ChangeKind::Found, "new", &[("10.1.0.5", 1)])];
        ipam.replay(&evident);
        let journaled = LastWords::of(&[
            entry(ChangeKind::Granted, "old", &[("10.1.0.5", 1)]),
            entry(ChangeKind::Granted, "c2", &[("10.1.0.6", 2)]),
            entry(ChangeKind::Granted, "c3", &[("10.1.0.9", 3)]),
            entry(ChangeKind::Granted, "c4", &[("10.9.0.9", 3)]),
        ]);
        assert_eq!(ipam.hold_journaled(&journaled.held, true), 2);
        let expected = [("10.1.0.5", "new"), ("10.1.0.6", "c2"), ("10.1.0.9", "c3")];
        let expected = expected.map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(
            held(&ipam),
            expected,
            "of no subnet of ours is nobody's here"
        );
        assert_eq!(ipam.check(), []);
    }

    #[test]
    fn an_old_copy_is_brought_up_to_date() {
        use ChangeKind::{Collected, Granted, Reclaimed, Released};
        let mut ipam = with_pools(&[("10.1.0.0/16", 0, &["10.1.0.5", "10.1.0.6", "10.1.0.7"])]);
        ipam.replay(&[
            entry(Granted, "c1", &[("10.1.0.5", 1)]),
            entry(Granted, "c2", &[("10.1.0.6", 2)]),
            entry(Granted, "c3", &[("10.1.0.7", 3)]),
        ]);
        ipam.replay(&[
            entry(Released, "c1", &[("10.1.0.5", 1)]),
            entry(Granted, "c4", &[("10.1.0.5", 4)]),
            entry(Released, "c1", &[("10.1.0.5", 1)]),
            entry(Reclaimed, "c2", &[("10.1.0.6", 2)]),
            entry(Collected, "c3", &[("10.1.0.7", 9)]),
        ]);
        let expected = [("10.1.0.5", "c4"), ("10.1.0.7", "c3")];
        let expected = expected.map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(held(&ipam), expected);
        assert_eq!(ipam.generation, 9);
        assert_eq!(ipam.check(), []);
    }
}
