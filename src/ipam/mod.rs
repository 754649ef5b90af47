//! The domain, pure: address spaces, pools and records; what a source lists; how the two are merged; which address an
//! attachment gets and how it comes back. Values in, values out: no IO, no clock, no logging.

mod check;
mod choose;
mod inventory;
mod merge;
mod model;
mod order;
mod release;
mod request;
mod take;

pub use check::Violation;
pub use inventory::{Inventory, ListedPool};
pub use merge::Merged;
pub use model::{
    Attachment, Claim, Family, Free, Held, Ipam, Moment, NetNs, Pool, Record, Space, Subnet, Usage,
};
pub use order::by_text;
pub use release::{Freed, Hint};
pub use request::{Grant, Novelty, PoolCount, PoolWish, Refusal, Request, Stage};
