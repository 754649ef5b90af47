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
mod live_attachments;
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
mod testing;

pub use attachment_check::CheckFailure;
pub use changes::{Change, ChangeKind, Changes};
pub use collect::{Collected, Stale};
pub use evidence::{Entry, Evidence, EvidenceList, Existence, Kernel, Place, Routes};
pub use family::Family;
pub use invariants::Violation;
pub use inventory::{Inventory, ListedPool};
pub use live_attachments::LiveAttachments;
pub use liveness::{AGAIN, GRACE, Judge, Judgement, OLD, Reason, Verdict, judge};
pub use merge::Merged;
pub use model::{Ipam, Pool, Space, Subnet};
pub use order::{are_in_order, by_text};
pub use owner::{Attachment, Claim, NetNs, Owner};
pub use rebuild::{Found, Releases};
pub use reclaim::{Candidate, Judged};
pub use record::{Free, Held, Moment, Record, Tombstone, Usage};
pub use release::{Freed, Hint};
pub use replay::{JournalEntry, LastWords};
pub use request::{Grant, GrantKind, Holder, PoolCount, PoolSelector, Refusal, Request, Stage};
