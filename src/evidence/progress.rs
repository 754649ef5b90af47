//! How long a look at the node may take, and how far it has come.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Counters that another thread may read meanwhile, for a progress line.
#[derive(Debug)]
pub struct Progress {
    /// A look at the network namespaces that takes longer stops, and is not complete.
    pub(super) limit: Duration,
    /// The network namespaces that were scanned.
    pub(super) namespaces: AtomicUsize,
    /// The files of libcni's cache that were read.
    pub(super) cached: AtomicUsize,
}

impl Default for Progress {
    /// Of a call, for which azure-vnet waits for 10 s. An idle node with 400 network namespaces takes 25 ms.
    fn default() -> Progress {
        Progress {
            limit: Duration::from_secs(2),
            ..Progress::of_command()
        }
    }
}

impl Progress {
    /// Of a command, which people can end.
    pub fn of_command() -> Progress {
        Progress {
            limit: Duration::MAX,
            namespaces: AtomicUsize::new(0),
            cached: AtomicUsize::new(0),
        }
    }

    /// Returns how many network namespaces were scanned, and how many files of libcni's cache were read.
    pub fn counts(&self) -> (usize, usize) {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        (count(&self.namespaces), count(&self.cached))
    }
}
