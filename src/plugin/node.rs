//! The node that a call works on, behind a trait: the tests' model of a node runs the same ADD, DEL and GC.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tracing::warn;

use super::decide::Host;
use super::look::follow_claims;
use crate::evidence::{self, Progress};
use crate::host::{Paths, RouteLookup, host_routes, io_reason};
use crate::ipam::{Candidate, Evidence, Existence, Held, Kernel, NetNs};
use crate::state::Files;

/// The files of the state and the clock, what the host has, and what there is to be seen.
pub trait Node: Files + Host {
    /// What speaks for whom, among others for these records.
    fn evidence(&self, candidates: &[Candidate], progress: &Progress) -> Evidence;
}

impl Node for Paths {
    fn evidence(&self, candidates: &[Candidate], progress: &Progress) -> Evidence {
        // Nobody is taken for dead whose namespace may be kept where it is seldom looked for.
        let netns = |held: &Held| held.claim.as_ref().and_then(|claim| claim.netns.clone());
        let sought = candidates.iter().map(|c| (c.key, netns(&c.held)));
        let sought: Vec<(IpAddr, Option<NetNs>)> = sought.collect();
        let are_shown = |kernel: &Kernel| {
            let is_shown = |(address, netns): &(IpAddr, Option<NetNs>)| {
                let exists = |netns| kernel.existence(netns) == Existence::Certain;
                kernel.configured.contains_key(address) || netns.as_ref().is_some_and(exists)
            };
            !sought.is_empty() && sought.iter().all(is_shown)
        };
        let mut evidence = evidence::gather(self, progress, &are_shown);
        let held = candidates.iter().map(|candidate| &candidate.held);
        follow_claims(held, &mut evidence, self);
        evidence
    }
}

impl Host for Paths {
    fn has(&self, address: IpAddr) -> bool {
        if !self.is_this_host() {
            return false;
        }
        RouteLookup::open().and_then(|lookup| lookup.has(address)).unwrap_or_else(|e| {
            warn!(target: "ipam", "the kernel does not tell whether the host has {address}: {}.", io_reason(&e));
            false
        })
    }

    fn all(&self) -> BTreeSet<IpAddr> {
        host_routes().unwrap_or_default()
    }
}
