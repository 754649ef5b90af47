//! What a call needs from the node. It is a trait, so that tests can run the same ADD, DEL and GC on a simulated node.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use tracing::warn;

use crate::evidence::{self, Progress};
use crate::host::{
    Paths, host_has, host_namespace_id, host_routes, io_reason, namespace_has, namespace_id, netns,
};
use crate::ipam::{Candidate, Evidence, Held, NetNs};
use crate::source::{MatchedListing, Source, SourceError, Turn};
use crate::state::Files;

/// The addresses of the host, and those of network namespaces.
pub trait Host: std::fmt::Debug {
    /// Whether the host has the address, or a route to this single address.
    fn has(&self, address: IpAddr) -> bool;
    /// All addresses that [`Host::has`] is true for.
    fn all(&self) -> BTreeSet<IpAddr>;
    /// Whether the network namespace of the last holder still has the address, or cannot be entered. The address was released `ago`.
    /// False if there is now another namespace at its path.
    fn namespace_has(&self, last: &NetNs, address: IpAddr, ago: Duration) -> bool;
}

/// The node: files, clock, addresses of the host, network namespaces, the source, and the evidence of live attachments.
pub trait Node: Files + Host {
    /// The network namespace at a path (CNI_NETNS); `None` when the path is empty.
    fn netns(&self, path: &str) -> Option<NetNs>;
    /// Whether it is the host's own network namespace.
    fn is_host_netns(&self, netns: &NetNs) -> bool;
    /// Whether nothing is at the path of a network namespace.
    fn is_gone(&self, netns: &NetNs) -> bool;
    /// Waits for the turn to query a source. `None` if it timed out, because other calls had the turn.
    ///
    /// # Errors
    /// The file that is locked for it cannot be created or locked.
    fn wait_for_turn(
        &self,
        source: &Source,
        boot_id: Option<&str>,
        limit: Duration,
    ) -> Result<Option<Turn>, SourceError>;
    /// Queries a source.
    ///
    /// # Errors
    /// There is no valid answer within `limit`.
    fn query(
        &self,
        source: &Source,
        turn: &Turn,
        limit: Duration,
    ) -> Result<MatchedListing, SourceError>;
    /// Scans the node for the evidence of live attachments. `candidates` are the records to judge by it.
    fn evidence(&self, candidates: &[Candidate], progress: &Progress) -> Evidence;
    /// Whether azure-vnet records this container with this address, and has not torn its endpoint down.
    fn is_connected(&self, container_id: &str, address: IpAddr) -> bool;
}

impl Host for Paths {
    fn has(&self, address: IpAddr) -> bool {
        host_has(self, address).unwrap_or_else(|e| {
            warn!(target: "ipam", "the kernel does not say whether the host has {address}: {}.", io_reason(&e));
            false
        })
    }

    fn all(&self) -> BTreeSet<IpAddr> {
        host_routes(self).unwrap_or_default()
    }

    fn namespace_has(&self, last: &NetNs, address: IpAddr, ago: Duration) -> bool {
        namespace_has(self, last, address, ago)
    }
}

impl Node for Paths {
    fn netns(&self, path: &str) -> Option<NetNs> {
        netns(self, path)
    }

    fn is_host_netns(&self, netns: &NetNs) -> bool {
        netns.id.is_some() && netns.id == host_namespace_id(self)
    }

    fn is_gone(&self, netns: &NetNs) -> bool {
        matches!(namespace_id(self, &netns.path), Ok(None))
    }

    fn wait_for_turn(
        &self,
        source: &Source,
        boot_id: Option<&str>,
        limit: Duration,
    ) -> Result<Option<Turn>, SourceError> {
        Turn::wait(self, &source.name(), boot_id, limit)
    }

    fn query(
        &self,
        source: &Source,
        turn: &Turn,
        limit: Duration,
    ) -> Result<MatchedListing, SourceError> {
        source.query_with_links(turn.links(), limit, self)
    }

    fn evidence(&self, candidates: &[Candidate], progress: &Progress) -> Evidence {
        let mut evidence = evidence::gather(self, progress);
        let held = candidates.iter().map(|candidate| &candidate.held);
        note_moved_namespaces(held, &mut evidence, self);
        evidence
    }

    fn is_connected(&self, container_id: &str, address: IpAddr) -> bool {
        evidence::is_connected(self, container_id, address)
    }
}

/// Notes which paths of recorded network namespaces lead to another namespace than at their ADD. Paths of processes are left out: such a
/// path ends with its process, and the namespace may still exist.
pub(crate) fn note_moved_namespaces<'a>(
    held: impl Iterator<Item = &'a Held>,
    evidence: &mut Evidence,
    paths: &Paths,
) {
    for netns in held.filter_map(|held| held.holder.netns.as_ref()) {
        let now = namespace_id(paths, &netns.path).ok().flatten();
        if let Some(then) = netns.id
            && now.is_some_and(|now| now != then)
            && !netns.path.starts_with("/proc/")
        {
            evidence
                .kernel
                .moved_paths
                .insert((netns.path.clone(), then));
        }
    }
}
