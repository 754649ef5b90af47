//! Records the last operations: which call or command, for whom, with what result, and how long it
//! took. The file is for people and metrics. No allocation depends on it, so it is not flushed to
//! disk.
//!
//! Writers append without a lock, and a full file is rotated. The first line of the next file has
//! the counts of the files before it, so that counters never go back.

mod history;
mod operation;
mod totals;

pub use history::{History, MAX_RECORDS, parse};
pub use operation::{FreedAddress, OperationRecord};
pub use totals::{Count, DURATION_BOUNDS, Durations, Totals};
