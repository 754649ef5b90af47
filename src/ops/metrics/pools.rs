//! The metrics of pools.

use super::page::Page;
use crate::ipam::PoolCount;

/// The values of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolMetrics {
    /// The address space.
    pub space: String,
    /// The interface of the host; empty when unknown.
    pub interface: String,
    /// The subnet, and the number of addresses in each use.
    pub count: PoolCount,
    /// The number of held addresses whose holders are not known.
    pub unknown_owners: usize,
}

/// Prints them.
pub fn print(page: &mut Page, pools: &[PoolMetrics]) {
    type Figure = (&'static str, &'static str, fn(&PoolCount) -> usize);
    const FIGURES: [Figure; 5] = [
        ("pool_addresses", "All addresses of the pool.", |c| {
            c.held + c.free + c.cooldown + c.on_host + c.excluded
        }),
        ("pool_free_addresses", "Addresses free to allocate.", |c| {
            c.free
        }),
        ("pool_held_addresses", "Held addresses.", |c| c.held),
        (
            "pool_cooldown_addresses",
            "Addresses in cooldown, allocated only when no other is free.",
            |c| c.cooldown,
        ),
        (
            "pool_suspect_addresses",
            "Held addresses whose holders are suspected to be dead.",
            |c| c.suspect,
        ),
    ];
    for (name, help, figure) in FIGURES {
        page.gauge(name, help);
        for pool in pools {
            page.sample(&pool.labels(), &figure(&pool.count));
        }
    }
    page.gauge(
        "pool_unknown_owner_addresses",
        "Held addresses whose holders are not known.",
    );
    for pool in pools {
        page.sample(&pool.labels(), &pool.unknown_owners);
    }
    page.gauge(
        "pool_withheld_addresses",
        "Free addresses that are not allocated: the configuration excludes them, or the host has them.",
    );
    for pool in pools {
        let count = &pool.count;
        for (reason, count) in [("excluded", count.excluded), ("host", count.on_host)] {
            let [space, subnet, interface] = pool.labels();
            page.sample(&[space, subnet, interface, ("reason", reason)], &count);
        }
    }
}

impl PoolMetrics {
    /// The labels, with the space, as two spaces may have the same pool.
    fn labels(&self) -> [(&'static str, &str); 3] {
        [
            ("space", &self.space),
            ("pool", &self.count.subnet),
            ("interface", &self.interface),
        ]
    }
}
