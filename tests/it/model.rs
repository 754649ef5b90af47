//! Random histories of a whole node. Pods come, go and vanish. Calls are killed or raced. The node reboots. Files are
//! lost, damaged or replaced by old copies. The source changes, and lists become unreadable. The original takes turns
//! with this plugin on one file. The results are compared with a model that knows which pods are alive.
//!
//! The plugin's own ADD, DEL, GC and reclaim run on real texts of state, backup and record. Disk, kernel and clock
//! are in memory.

mod enumerate;
mod events;
mod fields;
mod losses;
mod node;
pub(crate) mod original;
mod ours;
mod promises;
mod seen;
mod world;

use azure_vnet_ipam::ipam::Family;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed};

use events::event;
pub(crate) use events::{Answer, Blindness};
pub(crate) use node::Fault;
pub(crate) use world::{Container, Id, InFlight, Rules, SUBNETS, User, World};

/// A node with a source that lists up to six addresses.
pub(crate) const NODE: Rules = Rules {
    families: &[Family::V4],
    addresses: 6,
    second_interface: Some(7),
    agent: None,
    has_cookies: true,
    kernel_shows_addresses: true,
    is_ticking: true,
    releases_are_final: false,
    losses_are_seen_once: false,
    has_copies: false,
};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").map_or(3000, |n| n.parse().unwrap()),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("testdata/histories.txt"))),
        // A fixed seed, so that results can be reproduced. With PROPTEST_CASES, PROPTEST_RNG_SEED is the seed.
        rng_seed: match std::env::var_os("PROPTEST_CASES") {
            None => RngSeed::Fixed(1),
            Some(_) => ProptestConfig::default().rng_seed,
        },
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_history_grants_an_address_twice_or_leaks_one(events in prop::collection::vec(event(), 1..60)) {
        World::new(NODE).live_through(&events);
    }

    #[test]
    fn no_history_fails_on_a_kernel_without_namespace_numbers(events in prop::collection::vec(event(), 1..60)) {
        World::new(Rules { has_cookies: false, ..NODE }).live_through(&events);
    }

    #[test]
    fn no_history_fails_with_dual_stack_pods(events in prop::collection::vec(event(), 1..60)) {
        World::new(Rules { families: &[Family::V4, Family::V6], ..NODE }).live_through(&events);
    }
}
