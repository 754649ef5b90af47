//! When somebody else than this program has used the state: the original, or version 0.1.0, which write no journal.

use std::io;

use crate::host::ReadOutcome;
use crate::ipam::Moment;
use crate::state::files::{Files, StateFile};

/// Notes that a call found somebody else to have held the lock before it: what that gave stands in no journal.
///
/// # Errors
/// The system refuses.
pub fn note_other_writer(files: &dyn Files, now: Moment) -> io::Result<()> {
    // Of the same length every time, so that nothing of the last one is left behind.
    files.overwrite(StateFile::OtherWriter, format!("{:020}", now.0).as_bytes())
}

/// When that was last, if ever.
pub fn other_writer(files: &dyn Files) -> Option<Moment> {
    match files.read(StateFile::OtherWriter, 64, 0) {
        Ok(ReadOutcome::Missing) => None,
        Ok(ReadOutcome::Read(bytes)) => {
            let text = String::from_utf8(bytes).ok();
            // Whatever it says, it is there.
            let at = text.and_then(|text| text.trim().parse().ok());
            Some(Moment(at.unwrap_or(u64::MAX)))
        }
        _ => Some(Moment(u64::MAX)),
    }
}
