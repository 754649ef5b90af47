//! The state file: its lock, its text in the original's form with our own facts beside, and its replacement in one step.

mod disk;
mod files;
mod go_json;
mod join;
mod journal;
mod lock;
mod model;
mod original;
mod ours;
mod out;
mod print_ours;
mod record;
mod store;
mod trust;

#[doc(hidden)]
pub use crate::host::ReadOutcome;
pub use disk::set_aside_before;
pub use files::{Files, HeldLock, StateFile};
pub use journal::{Journal, carry_out, note_release, plan};
pub use lock::{LockError, LockHolder, Locked, MOST_ROUNDS, WAIT, holder_now};
pub use model::{State, WriteStamp};
pub use ours::FORMAT;
pub use store::{
    Loaded, MODE, StoreError, is_rebuild_owed, last_grant, last_granted_generation, load,
    note_boot, note_use,
};
pub use trust::{KeyStatus, Loss, PendingWork, QUARANTINE};
