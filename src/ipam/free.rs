//! Frees records. One that the source no longer lists is removed from its pool.

use std::mem;
use std::net::IpAddr;

use super::{Dropped, Free, Held, Ipam, Moment, NetNs, NetNsId, Record, TEARDOWN, Usage};

/// An address that came back.
#[derive(Clone, Debug, PartialEq)]
pub struct Freed {
    /// The key of its pool.
    pub pool: String,
    /// The address.
    pub address: IpAddr,
    /// Its former holder. If the source no longer lists the address, it left the pool altogether.
    pub held: Held,
}

impl Ipam {
    /// Releases every held address that `select` picks by the names of space and pool, the record and its holder.
    pub(super) fn release_where(
        &mut self,
        select: impl Fn((&str, &str), &Record, &Held) -> bool,
        now: Moment,
    ) -> Vec<Freed> {
        let freed = self.free_where(select, Some(now));
        for Freed { address, held, .. } in &freed {
            self.changes.release(*address, held, now);
        }
        self.note_dropped(&freed, now);
        freed
    }

    /// Frees the same, and notes nothing.
    pub(super) fn free_where(
        &mut self,
        select: impl Fn((&str, &str), &Record, &Held) -> bool,
        released: Option<Moment>,
    ) -> Vec<Freed> {
        let mut freed = Vec::new();
        for (space_name, space) in &mut self.spaces {
            for (pool_name, pool) in &mut space.pools {
                pool.records.retain_mut(|record| {
                    let names = (space_name.as_str(), pool_name.as_str());
                    let held = record.held().filter(|held| select(names, record, held));
                    let Some(held) = held else { return true };
                    let netns = released.and(held.owner.netns());
                    let free = Usage::Free(Free {
                        released,
                        released_in: netns.and_then(NetNs::identity),
                        ..Free::default()
                    });
                    let Usage::Held(held) = mem::replace(&mut record.usage, free) else {
                        return true;
                    };
                    let stays = !held.unlisted;
                    freed.push(Freed {
                        pool: pool_name.clone(),
                        address: record.address(),
                        held,
                    });
                    stays
                });
            }
        }
        freed
    }

    /// Notes the network namespace of freed addresses whose records named none.
    pub fn note_teardown(&mut self, freed: &[Freed], netns: NetNsId) {
        for (address, usage) in self.usages_mut() {
            if let Usage::Free(free) = usage
                && freed.iter().any(|freed| freed.address == address)
            {
                free.released_in = free.released_in.or(Some(netns));
            }
        }
    }

    /// Remembers the freed addresses whose records went.
    pub(super) fn note_dropped(&mut self, freed: &[Freed], at: Moment) {
        self.dropped
            .retain(|dropped| at.since(dropped.at) < TEARDOWN);
        let unlisted = freed.iter().filter(|freed| freed.held.unlisted);
        self.dropped.extend(unlisted.map(|freed| Dropped {
            address: freed.address,
            at,
            netns: freed.held.owner.netns().and_then(NetNs::identity),
        }));
    }
}
