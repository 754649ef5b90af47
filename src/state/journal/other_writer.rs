//! When somebody else than this program has used the state: the original, or version 0.1.0, which write no journal.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use crate::host::{Bounded, Paths, read_bounded};
use crate::ipam::Moment;
use crate::state::store::MODE;

/// Notes that a call found somebody else to have held the lock before it: what that gave stands in no journal.
///
/// # Errors
/// The system refuses.
pub fn note_other_writer(paths: &Paths, now: Moment) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(MODE);
    let mut file = options.open(paths.other_writer())?;
    file.write_all(now.0.to_string().as_bytes())
}

/// When that was last, if ever.
pub fn other_writer(paths: &Paths) -> Option<Moment> {
    match read_bounded(&paths.other_writer(), 64) {
        Ok(Bounded::Missing) => None,
        Ok(Bounded::Read(bytes)) => {
            let text = String::from_utf8(bytes).ok();
            // Whatever it says, it is there.
            let at = text.and_then(|text| text.trim().parse().ok());
            Some(Moment(at.unwrap_or(u64::MAX)))
        }
        _ => Some(Moment(u64::MAX)),
    }
}
