//! Which pool an ADD without subnet draws from (contract section 10, differences D4 and D5), and what a pool has to give.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::{Family, Moment, Pool, PoolCount, Space};

impl Space {
    /// The original's walk over the pools gives up the flag of every one that nobody uses, whoever asked and whatever comes
    /// of it (contract section 10).
    pub(super) fn drop_idle_flags(&mut self) {
        for pool in self.pools.values_mut() {
            if pool.ref_count > 0 && !pool.in_use() {
                pool.ref_count = 0;
            }
        }
    }

    /// An ADD that finds nothing free leaves the flag on the pool it chose when that is in use, as the original does: it takes
    /// the pool whole first, and does not give it back while others are in it.
    pub(super) fn flag_exhausted(&mut self, fits: impl Fn(&Pool) -> bool) {
        let unflagged = self
            .pools
            .values_mut()
            .filter(|pool| pool.ref_count == 0 && fits(pool) && pool.in_use());
        if let Some(pool) = unflagged.max_by_key(|pool| (pool.priority, pool.records.len())) {
            pool.ref_count = 1;
        }
    }

    /// The pool to draw from: of those that fit and can give an address, one not handed out whole before one that was, then
    /// one with an address that is not resting, then the higher priority, then more free addresses, then the first by its
    /// text.
    pub(super) fn choose(
        &self,
        fits: impl Fn(&str, &Pool) -> bool,
        free: impl Fn(&str, &Pool) -> PoolCount,
    ) -> Option<&str> {
        self.pools
            .iter()
            .filter(|(key, pool)| fits(key, pool))
            .map(|(key, pool)| (key.as_str(), pool, free(key, pool)))
            .filter(|(_, _, count)| count.free + count.resting > 0)
            .min_by_key(|(_, pool, count)| {
                let handed_out = pool.ref_count > 0;
                (
                    handed_out,
                    count.free == 0,
                    Reverse((pool.priority, count.free + count.resting)),
                )
            })
            .map(|(key, _, _)| key)
    }
}

impl Pool {
    /// Whether it is of the wanted family and on the wanted interface.
    pub(super) fn suits(&self, family: Family, if_name: Option<&str>) -> bool {
        self.family() == family && if_name.is_none_or(|wanted| wanted == self.if_name)
    }

    /// What it holds and can give; `taken` tells the addresses that are in use in another pool.
    pub(super) fn count(
        &self,
        key: &str,
        rest: Duration,
        now: Moment,
        taken: &BTreeSet<IpAddr>,
    ) -> PoolCount {
        let mut count = PoolCount {
            subnet: key.to_owned(),
            ..PoolCount::default()
        };
        for record in &self.records {
            match record.free() {
                None => count.held += 1,
                Some(_) if taken.contains(&record.address()) => count.held += 1,
                Some(free) if free.released.is_some_and(|at| now.since(at) < rest) => {
                    count.resting += 1
                }
                Some(_) => count.free += 1,
            }
        }
        count
    }

    /// The free address whose turn it is: never used before used, longest released first, the lowest of equals (difference
    /// D14). One that rests is last by this order, and so is given only when nothing else is left.
    pub(super) fn next_free(&self, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        self.records
            .iter()
            .filter_map(|record| Some((record, record.free()?)))
            .filter(|(record, _)| !taken.contains(&record.address()))
            .min_by_key(|(record, free)| (free.released, record.key))
            .map(|(record, _)| record.key)
    }
}
