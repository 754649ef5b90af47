//! The state file: its lock, its text in the original's form with our own key beside it, and its atomic replacement.

mod apply;
mod condition;
mod disk;
mod document;
mod error;
mod files;
mod journal;
mod lock;
mod lock_record;
mod model;
mod original;
mod ours;
mod print_ours;
mod record;
mod settle;
mod store;

#[doc(hidden)]
pub use crate::host::ReadOutcome;
pub use condition::{Condition, Loss, QUARANTINE};
pub use disk::set_aside_before;
pub use error::{LockError, StoreError};
pub use files::{Files, HeldLock, StateFile};
pub use lock::{LockHolder, Locked, WAIT, holder_now};
pub use model::{State, WriteStamp};
pub use ours::FORMAT;
pub use store::{MODE, view};
