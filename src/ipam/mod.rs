//! The domain: address spaces, pools and records. It merges the listing of a source into them, and allocates, releases and reclaims
//! addresses.
//!
//! The domain is pure. It takes and returns values, without IO, clock and logging.

mod allocate;
mod choose;
mod evidence;
mod evidence_index;
mod exclusions;
mod find;
mod grant;
mod holder;
mod invariants;
mod liveness;
mod merge;
mod model;
mod order;
mod predecessors;
mod rebuild;
mod reclaim;
mod record;
mod release;
#[cfg(test)]
pub(crate) mod testing;
mod union;
mod wanted;

pub use choose::{Counts, Taken};
pub use evidence::{
    Entry, Evidence, EvidenceList, Existence, Kernel, OtherName, Place, Routes, UnreadablePart,
};
pub use evidence_index::EvidenceIndex;
pub use exclusions::Exclusions;
pub use find::CheckFailure;
pub use grant::{Grant, GrantKind, InUseBy, POOL_STAGE, PoolCount, Refusal, RetriedPod};
pub use holder::{Attachment, Holder, NetNs};
pub use invariants::Violation;
pub use liveness::{AGAIN, GRACE, Judgement, OLD, Reason, Verdict};
pub use merge::{Inventory, ListedPool, Merged, Reserved};
pub use model::{Family, Ipam, Pool, Space, Subnet};
pub use order::{are_in_order, by_text};
pub use reclaim::{Candidate, Judged, Stale};
pub use record::{Free, Held, Moment, Record, Tombstone, Usage, format_age};
pub use release::{Freed, Hint};
pub use wanted::{PoolSelector, Wanted, WantedAddress};
