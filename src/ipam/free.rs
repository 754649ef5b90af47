//! Frees records. One that the source no longer lists is removed from its pool.

use std::mem;
use std::net::IpAddr;

use super::{Dropped, Free, Held, Ipam, Moment, NetNs, Pool, Record, TEARDOWN, Usage};

impl Ipam {
    /// Frees every held address that `select` picks, in every pool.
    pub(super) fn free_where(
        &mut self,
        select: impl Fn(IpAddr, &Held) -> bool,
        released: Option<Moment>,
    ) -> Vec<(IpAddr, Held)> {
        let mut freed = Vec::new();
        for pool in self.pools_mut() {
            let selects = |record: &Record, held: &Held| select(record.address(), held);
            freed.extend(pool.free_where(selects, released));
        }
        freed
    }

    /// Notes releases for the journal, and those of addresses whose records went.
    pub(super) fn note_releases(&mut self, freed: &[(IpAddr, Held)], now: Moment) {
        for (address, held) in freed {
            self.changes.release(*address, held, now);
        }
        self.note_dropped(freed, now);
    }

    /// Remembers the freed addresses whose records went.
    pub(super) fn note_dropped(&mut self, freed: &[(IpAddr, Held)], at: Moment) {
        self.dropped
            .retain(|dropped| at.since(dropped.at) < TEARDOWN);
        let unlisted = freed.iter().filter(|(_, held)| held.unlisted);
        self.dropped.extend(unlisted.map(|(address, held)| Dropped {
            address: *address,
            at,
            netns: held.owner.netns().and_then(NetNs::identity),
        }));
    }
}

impl Pool {
    /// Frees every held record that `select` picks. Returns their addresses and former holders.
    pub(super) fn free_where(
        &mut self,
        select: impl Fn(&Record, &Held) -> bool,
        released: Option<Moment>,
    ) -> Vec<(IpAddr, Held)> {
        let mut freed = Vec::new();
        self.records.retain_mut(|record| {
            if !record.held().is_some_and(|held| select(record, held)) {
                return true;
            }
            let Some(held) = record.free_held(released) else {
                return true;
            };
            let stays = !held.unlisted;
            freed.push((record.address(), held));
            stays
        });
        freed
    }
}

impl Record {
    /// Makes a held record free. Returns the former holder.
    fn free_held(&mut self, released: Option<Moment>) -> Option<Held> {
        let netns = self.held()?.owner.netns();
        let free = Usage::Free(Free {
            released,
            released_in: released.and(netns).and_then(NetNs::identity),
            ..Free::default()
        });
        match mem::replace(&mut self.usage, free) {
            Usage::Held(held) => Some(held),
            Usage::Free(_) => None,
        }
    }
}
