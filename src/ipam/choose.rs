//! Chooses the address in a pool (contract section 10, differences D4 and D5), and counts the addresses of pools by their use.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::{
    Exclusions, Family, Free, Ipam, Moment, Pool, PoolCount, Record, Reserved, Space, Usage,
};

/// The counts of held and available addresses.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Every pool, in the order of [`Ipam::pools`], with the name of its space.
    pub pools: Vec<(String, PoolCount)>,
    /// All pools together. An address that several pools have counts once. It counts as held if one of them holds it.
    pub total: PoolCount,
}

impl Ipam {
    /// Counts held and available addresses. `taken`, `cooldown` and `exclude` are those of an ADD. Addresses that are marked as on the host
    /// ([`Free::on_host`]) count as well.
    pub fn counts(
        &self,
        taken: &Taken,
        cooldown: Duration,
        exclude: &Exclusions,
        now: Moment,
    ) -> Counts {
        let limits = Limits {
            held: &self.held_addresses(),
            taken,
            exclude,
            cooldown,
            now,
        };
        let mut counts = Counts::default();
        let mut all: BTreeMap<IpAddr, &Record> = BTreeMap::new();
        for (space, key, pool) in self.pools() {
            counts
                .pools
                .push((space.to_owned(), pool.count(key, &limits)));
            for record in pool.records_for_pods(key) {
                let one = all.entry(record.address()).or_insert(record);
                if record.held().is_some() {
                    *one = record;
                }
            }
        }
        counts.total = count(all.into_values(), &limits);
        counts
    }
}

impl Space {
    /// Clears the flag of every unused pool. The original does so on every walk over the pools, whatever the result (contract section 10).
    pub(super) fn clear_unused_ref_counts(&mut self) {
        for pool in self.pools.values_mut() {
            if pool.ref_count > 0 && !pool.in_use() {
                pool.ref_count = 0;
            }
        }
    }

    /// Sets the flag of a used pool when an ADD found no free address in it. The original requests the whole pool first, and does not
    /// return it while it is in use.
    pub(super) fn flag_exhausted(&mut self, fits: impl Fn(&Pool) -> bool) {
        let unflagged = self
            .pools
            .values_mut()
            .filter(|pool| pool.ref_count == 0 && fits(pool) && pool.in_use());
        if let Some(pool) = unflagged.max_by_key(|pool| (pool.priority, pool.records.len())) {
            pool.ref_count = 1;
        }
    }
}

/// Addresses that are free in the state but in use on the node.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Those on the host, or routed by it (difference D19).
    pub on_host: BTreeSet<IpAddr>,
    /// Those that the network namespace of the last holder still has (difference D24).
    pub withheld: BTreeSet<IpAddr>,
}

/// The limits on the addresses that a pool can allocate.
#[derive(Clone, Copy)]
pub(super) struct Limits<'a> {
    /// Addresses in use ([`Ipam::held_addresses`]).
    pub held: &'a BTreeSet<IpAddr>,
    /// Addresses that are free in the state but in use on the node.
    pub taken: &'a Taken,
    /// The addresses that the configuration excludes.
    pub exclude: &'a Exclusions,
    /// The cooldown of a released address.
    pub cooldown: Duration,
    /// Now.
    pub now: Moment,
}

impl Limits<'_> {
    /// Returns whether the address must not be allocated although its record is free.
    pub fn forbid(&self, address: &IpAddr) -> bool {
        self.held.contains(address)
            || self.taken.on_host.contains(address)
            || self.taken.withheld.contains(address)
            || self.exclude(address)
    }

    /// Returns whether the configuration excludes the address.
    pub fn exclude(&self, address: &IpAddr) -> bool {
        self.exclude.contain(address)
    }

    /// Returns the remaining cooldown of the address.
    pub fn cooldown_left(&self, free: &Free) -> Option<Duration> {
        let cooled_for = self.now.since(free.released?);
        self.cooldown
            .checked_sub(cooled_for)
            .filter(|left| !left.is_zero())
    }
}

impl Pool {
    /// Returns whether the pool has the family and is on the interface. A node's own IPv6 range has no interface and fits every one.
    pub fn suits(&self, family: Family, if_name: Option<&str>) -> bool {
        let is_everywhere = self.is_ipv6 && self.if_name.is_empty();
        self.family() == family
            && (is_everywhere || if_name.is_none_or(|wanted| wanted == self.if_name))
    }

    /// Counts the held and available addresses of the pool.
    pub(super) fn count(&self, key: &str, limits: &Limits<'_>) -> PoolCount {
        PoolCount {
            subnet: key.to_owned(),
            ..count(self.records_for_pods(key), limits)
        }
    }

    /// Returns the records that pods hold or may get. No pod may have a reserved address. An address that differs from its key was never
    /// listed.
    pub(super) fn records_for_pods(&self, key: &str) -> impl Iterator<Item = &Record> {
        let reserved = self.reserved(key);
        self.records.iter().filter(move |record| {
            record.held().is_some()
                || (record.has_address_of_key() && reserved.name(record.key).is_none())
        })
    }

    /// Returns the addresses that no pod may have.
    pub(super) fn reserved(&self, key: &str) -> Reserved {
        let net = self.net(key);
        net.map_or_else(Reserved::default, |net| Reserved::new(&net, self.gateway))
    }

    /// Finds the next free address: a never used one first, then the longest released, then the lowest (difference D14). Addresses that the
    /// host had at the last scan come after these. An address in its cooldown comes last.
    pub(super) fn next_free(&self, key: &str, limits: &Limits<'_>) -> Option<IpAddr> {
        let available = self.records_for_pods(key).filter_map(|record| {
            let free = record.free()?;
            let is_cooling = limits.cooldown_left(free).is_some();
            (!limits.forbid(&record.address())).then(|| (is_cooling, queue_key(record, free)))
        });
        available.min().map(|(_, (_, _, key))| key)
    }

    /// Counts the free addresses of the pool that are allocated before this one.
    pub fn queue_position(&self, record: &Record) -> usize {
        let key = |record: &Record| Some(queue_key(record, record.free()?));
        let keys = self.records.iter().filter_map(key);
        keys.filter(|other| Some(*other) < key(record)).count()
    }
}

/// Counts addresses by their use.
fn count<'a>(records: impl IntoIterator<Item = &'a Record>, limits: &Limits<'_>) -> PoolCount {
    let mut count = PoolCount::default();
    for record in records {
        let address = record.address();
        let counted = match &record.usage {
            Usage::Held(held) => {
                count.suspect += usize::from(held.suspect.is_some());
                &mut count.held
            }
            Usage::Free(_) if limits.held.contains(&address) => &mut count.held_elsewhere,
            Usage::Free(_) if limits.exclude(&address) => &mut count.excluded,
            // The host may still have the route to a sandbox that was not removed.
            Usage::Free(_) if limits.taken.withheld.contains(&address) => &mut count.withheld,
            Usage::Free(free) if free.on_host || limits.taken.on_host.contains(&address) => {
                &mut count.on_host
            }
            Usage::Free(free) if limits.cooldown_left(free).is_some() => &mut count.cooldown,
            Usage::Free(_) => &mut count.free,
        };
        *counted += 1;
    }
    count
}

/// Returns the sort key of a free address.
fn queue_key(record: &Record, free: &Free) -> (bool, Option<Moment>, IpAddr) {
    (free.on_host, free.released, record.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::Held;
    use crate::ipam::testing::{record, with_pools};

    const COOLDOWN: Duration = Duration::from_secs(30);
    const NOW: Moment = Moment(100_000_000_000);

    #[test]
    fn every_address_is_counted_once() {
        let addresses = ["5", "6", "7", "8", "9", "10", "11"].map(|n| format!("10.1.0.{n}"));
        let addresses = addresses.each_ref().map(String::as_str);
        let mut ipam = with_pools(&[("10.1.0.0/16", 0, &addresses)]);
        let released = |second: u64| Free {
            released: Some(Moment(second * 1_000_000_000)),
            ..Free::default()
        };
        let on_host = Free {
            on_host: true,
            ..Free::default()
        };
        let suspect = Held {
            suspect: Some(NOW),
            ..Held::default()
        };
        for (address, usage) in [
            ("10.1.0.5", Usage::Held(Held::default())),
            ("10.1.0.6", Usage::Held(suspect)),
            ("10.1.0.7", Usage::Free(released(71))),
            (
                "10.1.0.8",
                Usage::Free(Free {
                    on_host: true,
                    ..released(70)
                }),
            ),
            ("10.1.0.9", Usage::Free(on_host)),
        ] {
            record(&mut ipam, address).usage = usage;
        }
        let taken = Taken {
            withheld: ["10.1.0.8".parse().unwrap()].into(),
            ..Taken::default()
        };
        let counts = ipam.counts(
            &taken,
            COOLDOWN,
            &Exclusions::new(vec!["10.1.0.10/32".parse().unwrap()]),
            NOW,
        );
        let expected = PoolCount {
            subnet: "10.1.0.0/16".into(),
            held: 2,
            suspect: 1,
            on_host: 1,
            excluded: 1,
            cooldown: 1,
            free: 1,
            withheld: 1,
            held_elsewhere: 0,
        };
        assert_eq!(counts.pools, [("local".into(), expected)]);
    }

    #[test]
    fn address_held_in_one_pool_counts_once_as_held() {
        let addresses: &[&str] = &["10.1.0.5", "10.1.0.6"];
        let mut ipam = with_pools(&[("10.1.0.0/16", 0, addresses), ("10.1.0.0/24", 1, addresses)]);
        record(&mut ipam, "10.1.0.5").usage = Usage::Held(Held::default());
        let counts = ipam.counts(&Taken::default(), COOLDOWN, &Exclusions::default(), NOW);
        let figures = |count: &PoolCount| (count.held, count.held_elsewhere, count.free);
        let by_pool: Vec<_> = counts
            .pools
            .iter()
            .map(|(_, count)| figures(count))
            .collect();
        assert_eq!(by_pool, [(1, 0, 1), (0, 1, 1)]);
        assert_eq!(figures(&counts.total), (1, 0, 1), "each address once");
    }
}
