//! The domain, pure: address spaces, pools and records; what a source lists; how the two are merged; which address an
//! attachment gets and how it comes back. Values in, values out: no IO, no clock, no logging.

mod allocate;
mod attachment_check;
mod changes;
mod choose;
mod collect;
mod evidence;
mod evidence_index;
mod family;
mod find;
mod free;
mod invariants;
mod inventory;
mod liveness;
mod merge;
mod model;
mod order;
mod owner;
mod rebuild;
mod reclaim;
mod record;
mod release;
mod replay;
mod request;
#[cfg(test)]
pub(crate) mod testing;

pub use attachment_check::CheckFailure;
pub use changes::{Change, Changes};
pub use collect::Stale;
pub use evidence::{
    Entry, Evidence, EvidenceList, Existence, Kernel, Place, Routes, UnreadablePart,
};
pub use evidence_index::EvidenceIndex;
pub use family::Family;
pub use free::Freed;
pub use invariants::Violation;
pub use inventory::{Inventory, ListedPool};
pub use liveness::{AGAIN, GRACE, Judgement, OLD, Reason, Verdict};
pub use merge::Merged;
pub use model::{Ipam, Pool, Space, Subnet};
pub use order::{are_in_order, by_text};
pub use owner::{Attachment, Claim, NetNs, NetNsId, Owner};
pub use reclaim::{Candidate, Judged};
pub use record::{Dropped, Free, Held, Moment, Record, TEARDOWN, Tombstone, Usage};
pub use release::Hint;
pub use request::{
    Grant, GrantKind, Holder, POOL_STAGE, PoolCount, PoolSelector, Refusal, Request,
};
