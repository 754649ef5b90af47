//! The state as a call works on it.

use super::condition::Condition;
use super::model::{Document, WriteStamp};
use crate::ipam::Ipam;

/// A state that was opened: its contents, and what they are worth.
#[derive(Debug, Default)]
pub struct State {
    /// What it contains.
    pub document: Box<Document>,
    /// What must be done before it can be relied on.
    pub condition: Condition,
    /// Whether it differs from what the file has, or should have.
    pub must_save: bool,
    /// How the state was lost, where the backup has restored it.
    pub restored: Option<String>,
    /// Why the file is no state, if so; it is kept aside when it is replaced.
    pub corrupt: Option<String>,
    /// The newest number of this boot that the record or the backup has, where the record does not prove the state.
    pub seen: u64,
}

impl State {
    /// Takes a document for worth what it was saved with.
    pub fn new(document: Box<Document>) -> State {
        State {
            condition: document.origin.condition(),
            document,
            ..State::default()
        }
    }

    /// Whether a newer version of this program wrote it.
    pub fn is_newer(&self) -> bool {
        matches!(self.condition, Condition::Newer { .. })
    }

    /// Whether it has no pools.
    pub fn is_empty(&self) -> bool {
        self.document.is_empty()
    }

    /// The addresses.
    pub fn ipam(&self) -> &Ipam {
        self.document.ipam()
    }

    /// The same, to be changed.
    pub fn ipam_mut(&mut self) -> &mut Ipam {
        self.document.ipam_mut()
    }

    /// Prints the text to write: see [`Document::print`].
    pub fn print(&mut self, stamp: WriteStamp<'_>) -> Vec<u8> {
        self.document.print(&self.condition, stamp)
    }
}
