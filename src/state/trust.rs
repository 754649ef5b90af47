//! What is known of a state that was read, and what is still to be done about it.

use std::time::Duration;

use crate::ipam::Moment;

/// What our own key was like when the state was read.
#[derive(Debug, Default)]
pub enum KeyStatus {
    /// Not there: the original alone has written this state.
    #[default]
    Absent,
    /// Of a format that is read, and the last to write was one of us.
    Ours,
    /// Of a format that is read, but the original has written since.
    OriginalWroteLast,
    /// There, but not to be understood; its facts are lost, the records are not.
    Unreadable(String),
    /// Of a newer format: kept as it is, and nothing but releases done.
    Newer {
        /// Its format version.
        format: u64,
        /// Its text.
        text: String,
    },
}

/// What is still to be done before a state can be believed in full; kept in the state until it is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PendingWork {
    /// Nothing.
    #[default]
    Nothing,
    /// A look at what the node has in use: nobody of us has written this state, so it may have been started from nothing.
    Reconcile,
    /// It is of this other boot: what the node does not show has gone.
    NewBoot(Option<String>),
    /// A rebuild: the state was lost, and has no pools yet that could be rebuilt.
    Rebuild(Loss),
}

/// That a state was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// How it is known.
    pub why: String,
    /// When it was first seen. Whoever was being given an address then is through [`QUARANTINE`] later.
    pub seen: Moment,
}

/// After a state was lost, an ADD that was under way may still wire its address for so long.
pub const QUARANTINE: Duration = Duration::from_secs(30);
