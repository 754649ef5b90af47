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
                let is_held = self
                    .pools()
                    .filter_map(|(_, _, pool)| pool.record(address))
                    .any(|record| record.held().is_some());
                if !is_held {
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
                            here.releaser.clone_from(&free.releaser);
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
