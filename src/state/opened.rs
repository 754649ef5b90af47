//! The state as a call works on it.

use super::condition::Condition;
use super::model::{Document, WriteStamp};
use crate::ipam::Ipam;

/// A state that was opened: its contents, and how far they can be relied on.
#[derive(Debug, Default)]
pub struct State {
    /// Its contents.
    pub document: Box<Document>,
    /// What must be done before it can be relied on.
    pub condition: Condition,
    /// Whether it must be saved even if the call changes nothing, because the file or the record lacks it.
    pub must_save: bool,
    /// Why the state was lost, if the backup restored it.
    pub restored: Option<String>,
    /// Why the file is not a valid state, if so. The file is then kept under another name when it is replaced.
    pub corrupt: Option<String>,
    /// The newest number of this boot in the record or the backup, if the record does not prove the state; 0 otherwise.
    pub seen: u64,
}

impl State {
    /// Creates a state with the condition that its document was saved with.
    pub fn new(document: Box<Document>) -> State {
        State {
            condition: document.origin.condition(),
            document,
            ..State::default()
        }
    }

    /// Returns whether a newer version of this program wrote it.
    pub fn is_newer(&self) -> bool {
        matches!(self.condition, Condition::Newer { .. })
    }

    /// Returns whether it has no pools.
    pub fn is_empty(&self) -> bool {
        self.document.is_empty()
    }

    /// Returns the addresses.
    pub fn ipam(&self) -> &Ipam {
        self.document.ipam()
    }

    /// Returns the addresses, mutably.
    pub fn ipam_mut(&mut self) -> &mut Ipam {
        self.document.ipam_mut()
    }

    /// Prints the text to write: see [`Document::print`].
    pub fn print(&mut self, stamp: WriteStamp<'_>) -> Vec<u8> {
        self.document.print(&self.condition, stamp)
    }
}
