//! The state file: its lock, its text in the original's form with our own key beside it, and its atomic replacement.

mod apply;
mod disk;
mod error;
mod files;
mod go_json;

mod journal;
mod last_grant;
mod lock;
mod lost;
mod model;
mod original;
mod ours;
mod out;
mod position;
mod print_ours;
mod record;
mod store;
mod trust;

#[doc(hidden)]
pub use crate::host::ReadOutcome;
pub use disk::set_aside_before;
pub use error::{LockError, StoreError};
pub use files::{Files, HeldLock, StateFile};
pub use journal::{Journal, note_release, prepare_update, write_update};
pub use last_grant::{LastGrant, last_grant, last_granted_generation, note_boot, note_use};
pub use lock::{LockHolder, Locked, MOST_ROUNDS, WAIT, holder_now};
pub use model::{State, WriteStamp};
pub use ours::FORMAT;
pub use store::{Loaded, MODE, is_rebuild_owed, load};
pub use trust::{KeyStatus, Loss, PendingWork, QUARANTINE};
