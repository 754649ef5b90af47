//! How far a state can be relied on.

use super::ours::Loss;

/// What must be done before a state can be relied on. The state stores it until it is done.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Condition {
    /// Nothing. The state has every allocated address.
    #[default]
    Ready,
    /// Nothing. There was no state. The files, the node and the source do not show that one was lost.
    Fresh,
    /// It must be compared with the node. The original wrote it and may have started from nothing, or no record proves it.
    Reconcile,
    /// It is from another boot. Addresses that the node does not show must be released.
    NewBoot,
    /// Addresses may be missing in it.
    Lost(Loss),
    /// A newer version of this program wrote it. Only releases are safe.
    Newer {
        /// Its format version.
        format: u64,
    },
}

impl Condition {
    /// Returns the loss, if addresses may be missing.
    pub fn lost(&self) -> Option<&Loss> {
        match self {
            Condition::Lost(loss) => Some(loss),
            _ => None,
        }
    }

    /// Returns whether nothing shows that there was a state before. Such a state is saved without our key, so that the next call finds the
    /// same condition.
    pub(super) fn may_be_fresh(&self) -> bool {
        self.lost().is_some_and(|loss| loss.may_be_fresh)
    }
}
