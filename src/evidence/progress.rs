//! Counts what was read of the node, for a progress line.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counters that another thread may read meanwhile.
#[derive(Debug, Default)]
pub struct Progress {
    namespaces: AtomicUsize,
    cached: AtomicUsize,
}

impl Progress {
    pub(super) fn count_namespace(&self) {
        self.namespaces.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_cache_entry(&self) {
        self.cached.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many network namespaces were scanned, and how many files of libcni's cache were read.
    pub fn counts(&self) -> (usize, usize) {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        (count(&self.namespaces), count(&self.cached))
    }
}
