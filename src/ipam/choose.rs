//! Which pool an ADD without subnet draws from (contract section 10, differences D4 and D5), and what a pool has to give.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use super::{Family, Moment, Pool, PoolCount, Space, Usage};

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
    pub(super) fn choose<'t>(
        &self,
        fits: impl Fn(&Pool) -> bool,
        out_of_reach: impl Fn(&str) -> OutOfReach<'t>,
        rest: Duration,
        now: Moment,
    ) -> Option<&str> {
        let candidates = self.pools.iter().filter(|(_, pool)| fits(pool));
        let candidates = candidates.map(|(key, pool)| (key.as_str(), pool, out_of_reach(key)));
        candidates
            .filter(|(_, pool, out)| pool.next_free(out).is_some())
            .min_by_key(|(key, pool, out)| {
                let count = pool.count(key, rest, now, out);
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

/// Addresses that are not to be given though their records are free.
#[derive(Clone, Copy)]
pub(super) struct OutOfReach<'a> {
    /// In use under another record.
    pub held_elsewhere: &'a BTreeSet<IpAddr>,
    /// Somebody else's, as the host shows.
    pub wired: &'a BTreeSet<IpAddr>,
    /// Not to be given, as the configuration has it.
    pub exclude: &'a [IpNet],
}

impl OutOfReach<'_> {
    pub fn contains(&self, address: &IpAddr) -> bool {
        self.held_elsewhere.contains(address)
            || self.wired.contains(address)
            || self.excludes(address)
    }

    pub fn excludes(&self, address: &IpAddr) -> bool {
        self.exclude.iter().any(|net| net.contains(address))
    }
}

impl Pool {
    /// Whether it is of the wanted family and on the wanted interface.
    pub fn suits(&self, family: Family, if_name: Option<&str>) -> bool {
        self.family() == family && if_name.is_none_or(|wanted| wanted == self.if_name)
    }

    /// What it holds and can give.
    pub(super) fn count(
        &self,
        key: &str,
        rest: Duration,
        now: Moment,
        out: &OutOfReach<'_>,
    ) -> PoolCount {
        let mut count = PoolCount {
            subnet: key.to_owned(),
            ..PoolCount::default()
        };
        for record in &self.records {
            let address = record.address();
            match &record.usage {
                Usage::Held(held) => {
                    count.held += 1;
                    count.suspect += usize::from(held.suspect.is_some());
                }
                Usage::Free(_) if out.held_elsewhere.contains(&address) => count.held += 1,
                Usage::Free(_) if out.excludes(&address) => count.excluded += 1,
                Usage::Free(free) if free.wired || out.wired.contains(&address) => count.wired += 1,
                Usage::Free(free) if free.released.is_some_and(|at| now.since(at) < rest) => {
                    count.resting += 1
                }
                Usage::Free(_) => count.free += 1,
            }
        }
        count
    }

    /// The free address whose turn it is: never used before used, longest released first, the lowest of equals (difference
    /// D14). One that rests is last by this order, and so is given only when nothing else is left. Those that the host had
    /// when it was last looked at come after all others.
    pub(super) fn next_free(&self, out: &OutOfReach<'_>) -> Option<IpAddr> {
        self.records
            .iter()
            .filter_map(|record| Some((record, record.free()?)))
            .filter(|(record, _)| !out.contains(&record.address()))
            .min_by_key(|(record, free)| (free.wired, free.released, record.key))
            .map(|(record, _)| record.key)
    }
}
