//! How far a look at the node has come, for those who wait for it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts that another thread may read meanwhile.
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

    /// Network namespaces that were looked into, and cached results that were read.
    pub fn counts(&self) -> (usize, usize) {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        (count(&self.namespaces), count(&self.cached))
    }
}
