//! What a state is worth.

use super::ours::Loss;

/// What must be done before a state can be relied on. What is not done yet is kept in the state.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Condition {
    /// Nothing: it knows every address that was allocated.
    #[default]
    Ready,
    /// Nothing: there was none, and neither files, nor the node, nor the source show that one was lost.
    Fresh,
    /// It must be compared with the node: the original wrote it, which may have started from nothing; or nothing proves it.
    Reconcile,
    /// It is of another boot: what the node does not show is to be freed.
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
    /// The loss, if addresses may be missing.
    pub fn lost(&self) -> Option<&Loss> {
        match self {
            Condition::Lost(loss) => Some(loss),
            _ => None,
        }
    }

    /// Whether nothing shows that there was a state before. Without our key, it reads so again.
    pub(super) fn may_be_fresh(&self) -> bool {
        self.lost().is_some_and(|loss| loss.may_be_fresh)
    }
}
