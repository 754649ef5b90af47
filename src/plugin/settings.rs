//! The file of defaults: settings that the main plugin's configuration cannot carry, as azure-vnet drops keys it does not
//! know.

use std::path::Path;

use crate::cni::Defaults;
use crate::host::{ReadOutcome, io_reason, read_bounded};

/// Larger files are not read.
const LIMIT: usize = 256 << 10;

/// Reads the file, and tells what is wrong in it. A pod never fails for that: what is wrong is left out, the rest counts.
pub fn read(path: &Path) -> (Defaults, Vec<String>) {
    let none = |why| (Defaults::default(), vec![why]);
    match read_bounded(path, LIMIT) {
        Ok(ReadOutcome::Read(bytes)) => Defaults::read(&bytes),
        Ok(ReadOutcome::Missing) => Default::default(),
        Ok(ReadOutcome::TooLarge) => none(format!("it is larger than {LIMIT} bytes")),
        Err(e) => none(io_reason(&e)),
    }
}

/// Checks the file for the person who wrote it.
///
/// # Errors
/// What is wrong in it, a line each.
pub fn check_settings(path: &Path) -> Result<(), String> {
    if !path.exists() {
        return Err(format!("{}: it does not exist\n", path.display()));
    }
    let (_, wrong) = read(path);
    let lines: String = wrong
        .iter()
        .map(|why| format!("{}: {why}\n", path.display()))
        .collect();
    if lines.is_empty() { Ok(()) } else { Err(lines) }
}
