//! Finds out whether a state was lost, and what must be done before it can be relied on.

use super::State;
use super::trust::{KeyStatus, PendingWork};

impl State {
    /// Describes what must be done before the state can be relied on.
    pub fn describe_pending(&self) -> Option<&'static str> {
        match &self.pending {
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

    /// Returns why the state must be rebuilt, if it must. A missing state counts as an empty one. `last` is the generation of the last
    /// grant in this boot. Without one the node is fresh, and starts at once if the kernel shows none of its addresses.
    pub fn lost_reason(&self, rebuild_owed: bool, last: Option<u64>) -> Option<&str> {
        if let PendingWork::Rebuild(loss) = &self.pending {
            return Some(&loss.why);
        }
        match &self.key_status {
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
