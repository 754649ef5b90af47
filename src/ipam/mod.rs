//! The domain, pure: address spaces, pools and records; what a source lists; how the two are merged; which address an
//! attachment gets and how it comes back. Values in, values out: no IO, no clock, no logging.

mod changes;
mod check;
mod choose;
mod collect;
mod evidence;
mod evidence_index;
mod family;
mod free;
mod holds;
mod inventory;
mod merge;
mod model;
mod order;
mod owner;
mod rebuild;
mod reclaim;
mod release;
mod request;
mod shown;
mod take;
#[cfg(test)]
mod testing;
mod text;
mod verdict;

pub use changes::{Change, ChangeKind, Changes, JournalEntry, holdings};
pub use check::Violation;
pub use collect::{Collected, Stale};
pub use evidence::{Entry, Evidence, EvidenceList, Existence, Kernel, Place, Routes};
pub use family::Family;
pub use holds::CheckFailure;
pub use inventory::{Inventory, ListedPool};
pub use merge::Merged;
pub use model::{Free, Held, Ipam, Moment, Pool, Record, Space, Subnet, Tombstone, Usage};
pub use order::{are_in_order, by_text};
pub use owner::{Attachment, Claim, NetNs, Owner};
pub use rebuild::Found;
pub use reclaim::{Candidate, Judged};
pub use release::{Freed, Hint};
pub use request::{Grant, GrantKind, Holder, PoolCount, PoolSelector, Refusal, Request, Stage};
pub use shown::LiveAttachments;
pub use text::{
    format_ipv6, format_octet, leading_address, leading_v4, leading_v6, named_address, read_address,
};
pub use verdict::{AGAIN, GRACE, Judge, Judgement, OLD, Reason, Verdict, judge};
