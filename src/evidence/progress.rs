//! Counts what was read of the node, for a progress line.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counters that another thread may read meanwhile.
#[derive(Debug, Default)]
pub struct Progress {
    /// The network namespaces that were scanned.
    pub(super) namespaces: AtomicUsize,
    /// The files of libcni's cache that were read.
    pub(super) cached: AtomicUsize,
}

impl Progress {
    /// Returns how many network namespaces were scanned, and how many files of libcni's cache were read.
    pub fn counts(&self) -> (usize, usize) {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        (count(&self.namespaces), count(&self.cached))
    }
}
