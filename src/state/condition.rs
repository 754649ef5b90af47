//! What a state is worth.

use std::time::Duration;

use crate::ipam::{Change, Ipam, Moment};

/// What a state is worth, and so what must be done before it can be relied on. What is not done is kept in the state.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Condition {
    /// It knows every grant.
    #[default]
    Ready,
    /// There was none, and neither files, nor the node, nor the source show that one was lost.
    Fresh,
    /// It must be compared with the node: the original wrote it, which may have started from nothing; or it may be an old copy.
    Reconcile,
    /// It is of another boot: what the node does not show is to be freed.
    NewBoot,
    /// Grants are missing in it.
    Lost(Loss),
    /// A newer version of this program wrote it. Only releases are safe.
    Newer {
        /// Its format version.
        format: u64,
    },
}

/// The loss of a state that the journal could not make good.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loss {
    /// How it is known.
    pub why: String,
    /// When it was first seen. Every ADD of that time is complete [`QUARANTINE`] later.
    pub seen: Moment,
    /// What the journal holds, although it may lack some of it.
    pub journaled: Option<Box<Ipam>>,
    /// The changes in lines of the journal behind a gap, for the addresses of which its base has no pool.
    pub loose: Vec<Change>,
    /// Whether nothing shows that there ever was a state. The node and the source can prove then that it is [`Condition::Fresh`].
    pub may_be_fresh: bool,
}

/// The time after a loss within which an ADD may still configure an address of which no record is left.
pub const QUARANTINE: Duration = Duration::from_secs(30);

impl Condition {
    /// Why grants are missing, if any are.
    pub fn lost(&self) -> Option<&Loss> {
        match self {
            Condition::Lost(loss) => Some(loss),
            _ => None,
        }
    }
}
