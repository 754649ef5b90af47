//! How far a state that was read can be trusted, and what is to be done first.

use std::time::Duration;

use super::State;
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

impl State {
    /// What is still to be done before it can be believed in full, in words.
    pub fn doubt(&self) -> Option<&'static str> {
        match &self.owed {
            PendingWork::Nothing => None,
            PendingWork::Reconcile => Some(
                "the original plugin wrote it; the next ADD looks for addresses in use that it does not know",
            ),
            PendingWork::Rebuild(_) => {
                Some("it was lost; the next ADD rebuilds it from what the node shows")
            }
            PendingWork::NewBoot(_) => Some(
                "it is of before the last start of the node; the next ADD frees what the node does not show",
            ),
        }
    }

    /// Why it has to be rebuilt, if it has; a state that is not there counts as an empty one. `last` is the generation of the last
    /// address that was given in this boot. A node on which none was given is fresh, and starts at once if the kernel agrees.
    pub fn lost_reason(&self, rebuild_owed: bool, last: Option<u64>) -> Option<&str> {
        if let PendingWork::Rebuild(loss) = &self.owed {
            return Some(&loss.why);
        }
        match &self.own {
            KeyStatus::Absent if self.is_empty() && rebuild_owed => Some("it could not be read"),
            KeyStatus::Absent if self.is_empty() && last.is_some() => {
                Some("it is gone, though addresses were given since the node started")
            }
            KeyStatus::Ours | KeyStatus::OriginalWroteLast
                if last.is_some_and(|last| self.ipam().generation < last) =>
            {
                Some("it is older than the last address that was given")
            }
            KeyStatus::Absent
            | KeyStatus::Ours
            | KeyStatus::OriginalWroteLast
            | KeyStatus::Unreadable(_)
            | KeyStatus::Newer { .. } => None,
        }
    }
}
