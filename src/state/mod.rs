//! The state: its lock, its text and its atomic replacement. The text has the original's form, with our own key beside it. The backup and
//! the record show whether a state lacks addresses.

mod address_record;
mod apply;
mod condition;
mod disk;
mod files;
mod judge;
mod lock;
mod model;
mod obstacle;
mod opened;
mod origin;
mod original;
mod ours;
mod store;

#[doc(hidden)]
pub use crate::host::ReadOutcome;
pub use condition::Condition;
pub use disk::set_aside_before;
pub use files::{Files, HeldLock, LockError, SaveOutcome, StateFile, StoreError};
pub use lock::{LockHolder, Locked, WAIT, holder_now};
pub use model::{Document, Refreshed, WriteStamp};
pub use obstacle::{LockObstacle, check_replace, check_save, lock_obstacle};
pub use opened::State;
pub use origin::{Origin, Save};
pub use ours::{FORMAT, Loss, QUARANTINE};
pub use store::{MODE, view};
