//! What an ADD is decided from, beside the state.

use super::snapshot::NodeSnapshot;
use crate::ipam::{Inventory, LastWords, Moment, Request};

/// What an ADD is decided from, beside the state.
pub struct Inputs<'a> {
    /// The requested addresses: all of them are granted, or none.
    pub requests: &'a [Request<'a>],
    /// The answer of the source that is not in the state yet.
    pub inventory: Option<&'a Inventory>,
    /// Why the state must be rebuilt, if it must: it is missing, or an old copy.
    pub lost: Option<String>,
    /// The generation of the last grant, as far as it is known beside the state.
    pub last_generation: u64,
    /// The newest look at the node, if there was one.
    pub snapshot: Option<&'a NodeSnapshot>,
    /// Whether the source can still be asked before the request is refused.
    pub may_ask_again: bool,
    /// What the journal of grants says, where the state was lost.
    pub journal: Option<&'a JournalReplay>,
    /// Now.
    pub now: Moment,
}

/// What the journal of grants says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JournalReplay {
    /// Its last word about each address.
    pub last_words: LastWords,
    /// The highest generation in it.
    pub generation: u64,
    /// Whether the journal covers every grant, so that there is nothing to wait for.
    pub is_complete: bool,
}
