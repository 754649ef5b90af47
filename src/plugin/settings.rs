//! The file of defaults for `ipam`. azure-vnet drops keys that it does not know, so its configuration cannot carry them.

use std::path::Path;

use crate::cni::Defaults;
use crate::host::{ReadOutcome, io_reason, read_bounded};

/// Larger files are not read.
const LIMIT: usize = 256 << 10;

/// Reads the file. Returns its valid members and a message for each invalid one, which is ignored so that no pod fails for it.
pub fn read(path: &Path) -> (Defaults, Vec<String>) {
    let none = |why| (Defaults::default(), vec![why]);
    match read_bounded(path, LIMIT) {
        Ok(ReadOutcome::Read(bytes)) => Defaults::read(&bytes),
        Ok(ReadOutcome::Missing) => Default::default(),
        Ok(ReadOutcome::TooLarge) => none(format!("it is larger than {LIMIT} bytes")),
        Err(e) => none(io_reason(&e)),
    }
}
