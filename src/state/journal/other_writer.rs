//! The note of other writers of the state: the original and version 0.1.0, which write no journal.

use std::io;

use crate::host::ReadOutcome;
use crate::ipam::Moment;
use crate::state::files::{Files, StateFile};

/// Notes that another writer held the lock before this call. Its grants are in no journal.
///
/// # Errors
/// The system refuses.
pub fn note_other_writer(files: &dyn Files, now: Moment) -> io::Result<()> {
    // Always of the same length, so that it overwrites the last one.
    files.overwrite(StateFile::OtherWriter, format!("{:020}", now.0).as_bytes())
}

/// Returns when another writer was last seen, if ever.
pub fn other_writer(files: &dyn Files) -> Option<Moment> {
    match files.read(StateFile::OtherWriter, 64, 0) {
        Ok(ReadOutcome::Missing) => None,
        Ok(ReadOutcome::Read(bytes)) => {
            let text = String::from_utf8(bytes).ok();
            // Unreadable, but it exists.
            let at = text.and_then(|text| text.trim().parse().ok());
            Some(Moment(at.unwrap_or(u64::MAX)))
        }
        _ => Some(Moment(u64::MAX)),
    }
}
