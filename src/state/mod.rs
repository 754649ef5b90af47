//! The state file: its lock, its text in the original's form with our own key beside it, and its atomic replacement.

mod apply;
mod disk;
mod files;
mod journal;
mod lock;
mod model;
mod original;
mod ours;
mod record;
mod settle;
mod store;

#[doc(hidden)]
pub use crate::host::ReadOutcome;
pub use disk::set_aside_before;
pub use files::{Files, HeldLock, LockError, OpenJournal, SaveOutcome, StateFile, StoreError};
pub use lock::{LockHolder, Locked, WAIT, holder_now};
pub use model::{Condition, State, WriteStamp};
pub use ours::{FORMAT, Loss, QUARANTINE};
pub use store::{MODE, view};
