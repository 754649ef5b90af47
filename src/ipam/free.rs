//! Frees records. One that the source no longer lists is removed from its pool.

use std::mem;
use std::net::IpAddr;

use super::{Free, Held, Moment, Pool, Record, Usage};

impl Pool {
    /// Frees the record stored under `key`. Returns its address and its former holder; `None` when nobody held it.
    pub(super) fn free(
        &mut self,
        key: &IpAddr,
        released: Option<Moment>,
    ) -> Option<(IpAddr, Held)> {
        let record = self.record_mut(key)?;
        let address = record.address();
        let held = record.free_held(released)?;
        if held.unlisted {
            self.records.retain(|record| record.key != *key);
        }
        Some((address, held))
    }

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
        self.held()?;
        let free = Usage::Free(Free {
            released,
            ..Free::default()
        });
        match mem::replace(&mut self.usage, free) {
            Usage::Held(held) => Some(held),
            Usage::Free(_) => None,
        }
    }
}
