//! The condition of a state that was read, and what must be done about it.

use std::time::Duration;

use crate::ipam::Moment;

/// The condition of our own key when the state was read.
#[derive(Debug, Default)]
pub enum KeyStatus {
    /// Missing: only the original has written this state.
    #[default]
    Absent,
    /// Of a known format, and written last by this program.
    Ours,
    /// Of a known format, but the original has written since.
    OriginalWroteLast,
    /// Unreadable: its facts are lost, the records are not.
    Unreadable(String),
    /// Of a newer format: it is kept as it is, and only releases are done.
    Newer {
        /// Its format version.
        format: u64,
        /// Its text.
        text: String,
    },
}

/// What must be done before a state can be relied on. It is kept in the state until it is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PendingWork {
    /// Nothing.
    #[default]
    Nothing,
    /// Compare it with the node: the original wrote it, which may have started from nothing.
    Reconcile,
    /// It is of this other boot: free what the node does not show.
    NewBoot(Option<String>),
    /// Rebuild it: the state was lost, and has no pools yet.
    Rebuild(Loss),
}

/// The loss of a state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// How it is known.
    pub why: String,
    /// When it was first seen. Every ADD of that time is complete [`QUARANTINE`] later.
    pub seen: Moment,
}

/// The time after a loss within which an ADD may still configure an address of which no record is left.
pub const QUARANTINE: Duration = Duration::from_secs(30);
