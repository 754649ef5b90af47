//! What the steps of a call share: the node, what a look at it shows, and the defaults of `ipam`. The node is behind a trait: the tests
//! run the same ADD, DEL and GC on a node in memory.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tracing::{info, warn};

use crate::cni::{Defaults, NAME};
use crate::evidence::{self, Progress};
use crate::host::{
    Paths, ReadOutcome, boot_id, host_has, host_routes, io_reason, namespace_id, read_bounded,
};
use crate::ipam::{Candidate, Evidence, Held, Moment, NetNs, Request};
use crate::log::Milliseconds;
use crate::source::SourceOverrides;
use crate::state::Files;

/// What every step of a call needs to know.
#[derive(Debug)]
pub struct Context {
    /// The path of every file.
    pub paths: Paths,
    /// When the process started.
    pub started: Moment,
    /// The boot that moments belong to.
    pub boot_id: Option<String>,
    /// What the environment says instead of the network configuration about the source.
    pub source_overrides: SourceOverrides,
    /// The node that the call works on.
    pub node: Rc<dyn Node>,
    /// How long the call has waited for the lock on the state, in microseconds.
    lock_wait: Cell<u64>,
}

impl Context {
    /// Collects it for a call on this machine.
    pub fn new(paths: &Paths, started: Moment) -> Context {
        Context {
            paths: paths.clone(),
            source_overrides: SourceOverrides::from_env(),
            ..Context::on(Rc::new(paths.clone()), started, boot_id(paths))
        }
    }

    /// Collects it for a call on a node that only the tests' memory holds.
    #[doc(hidden)]
    pub fn on(node: Rc<dyn Node>, started: Moment, boot_id: Option<String>) -> Context {
        Context {
            paths: Paths::new(Some(PathBuf::from("/nonexistent")), NAME),
            started,
            boot_id,
            source_overrides: SourceOverrides::default(),
            node,
            lock_wait: Cell::new(0),
        }
    }

    /// Adds to the time that the call has waited for the lock on the state. A free lock is not waited for.
    pub fn note_lock_wait(&self, waited: Duration) {
        /// Taking a free lock is a matter of microseconds.
        const LEAST: Duration = Duration::from_millis(1);
        if waited >= LEAST {
            let waited = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
            self.lock_wait
                .set(self.lock_wait.get().saturating_add(waited));
        }
    }

    /// How long the call has waited for the lock on the state, in microseconds.
    pub fn lock_wait(&self) -> u64 {
        self.lock_wait.get()
    }
}

/// The addresses of the host, asked one at a time and as a whole.
pub trait Host: std::fmt::Debug {
    /// Whether the host has the address, or a route to it alone.
    fn has(&self, address: IpAddr) -> bool;
    /// All such addresses.
    fn all(&self) -> BTreeSet<IpAddr>;
}

/// The files and the clock, the host's addresses, and the evidence of who is alive.
pub trait Node: Files + Host {
    /// Gathers the evidence of who is alive. `candidates` are the records to be judged by it.
    fn evidence(&self, candidates: &[Candidate], progress: &Progress) -> Evidence;
    /// Whether azure-vnet has a container at this address, and did not take its endpoint down.
    fn is_connected(&self, container_id: &str, address: IpAddr) -> bool;
    /// Whether nothing is at the path of a network namespace.
    fn is_gone(&self, netns: &NetNs) -> bool;
}

impl Node for Paths {
    fn is_connected(&self, container_id: &str, address: IpAddr) -> bool {
        evidence::is_connected(self, container_id, address)
    }

    fn is_gone(&self, netns: &NetNs) -> bool {
        matches!(namespace_id(self, &netns.path), Ok(None))
    }

    fn evidence(&self, candidates: &[Candidate], progress: &Progress) -> Evidence {
        let mut evidence = evidence::gather(self, progress);
        let held = candidates.iter().map(|candidate| &candidate.held);
        note_moved_namespaces(held, &mut evidence, self);
        evidence
    }
}

impl Host for Paths {
    fn has(&self, address: IpAddr) -> bool {
        host_has(self, address).unwrap_or_else(|e| {
            warn!(target: "ipam", "the kernel does not tell whether the host has {address}: {}.", io_reason(&e));
            false
        })
    }

    fn all(&self) -> BTreeSet<IpAddr> {
        host_routes(self).unwrap_or_default()
    }
}

/// Notes which namespace paths of records lead to another namespace than at their ADD. The path of a process is left out: it ends
/// with the process, which says nothing about the namespace.
pub(crate) fn note_moved_namespaces<'a>(
    held: impl Iterator<Item = &'a Held>,
    evidence: &mut Evidence,
    paths: &Paths,
) {
    for netns in held.filter_map(|held| held.owner.netns()) {
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

/// What a look at the node showed.
#[derive(Clone, Debug, Default)]
pub struct NodeSnapshot {
    /// What it showed.
    pub evidence: Evidence,
    /// The records to judge by it, as they were before it began. What it does not show of them cannot be newer.
    pub candidates: Vec<Candidate>,
    /// When it began.
    pub began: Moment,
}

impl NodeSnapshot {
    /// Looks at the node now.
    pub fn capture(candidates: Vec<Candidate>, context: &Context) -> NodeSnapshot {
        NodeSnapshot::capture_with_progress(candidates, context, &Progress::default())
    }

    /// Looks at the node now, and reports on the way how far it has come.
    pub(crate) fn capture_with_progress(
        candidates: Vec<Candidate>,
        context: &Context,
        progress: &Progress,
    ) -> NodeSnapshot {
        let began = context.now();
        let evidence = context.node.evidence(&candidates, progress);
        let kernel = &evidence.kernel;
        info!(
            target: "ipam",
            "looked at the node in {}: {} network namespaces with {} addresses{}.",
            Milliseconds(context.now().since(began)),
            kernel.namespaces.len(),
            kernel.configured.len(),
            kernel.incomplete.as_ref().map_or_else(String::new, |why| format!("; not complete: {why}"))
        );
        NodeSnapshot {
            evidence,
            candidates,
            began,
        }
    }

    /// Marks the network namespaces of dead containers whose inode this ADD's own namespace has now. Where the kernel gives
    /// namespaces no number of their own, nothing else tells them apart.
    pub(super) fn note_own_namespace(&mut self, requests: &[Request<'_>]) {
        for request in requests {
            let Some(own) = request.netns else { continue };
            for held in self.candidates.iter().map(|candidate| &candidate.held) {
                if !held.owner.is_container(&request.attachment.container_id)
                    && let Some(then) = held.owner.netns()
                    && let Some(id) = then.id.filter(|id| Some(*id) == own.id)
                    && then.path != own.path
                {
                    let elsewhere = (then.path.clone(), id);
                    self.evidence.kernel.moved_paths.insert(elsewhere);
                }
            }
        }
    }
}

/// Reads the file of defaults for `ipam`, which azure-vnet's configuration cannot carry, as azure-vnet drops keys that it does not know.
/// Returns its valid members and a message for each invalid one, which is ignored so that no pod fails for it.
pub(crate) fn read_settings(path: &Path) -> (Defaults, Vec<String>) {
    /// Larger files are not read.
    const LIMIT: usize = 256 << 10;
    let none = |why| (Defaults::default(), vec![why]);
    match read_bounded(path, LIMIT) {
        Ok(ReadOutcome::Read(bytes)) => Defaults::read(&bytes),
        Ok(ReadOutcome::Missing) => Default::default(),
        Ok(ReadOutcome::TooLarge) => none(format!("it is larger than {LIMIT} bytes")),
        Err(e) => none(io_reason(&e)),
    }
}
