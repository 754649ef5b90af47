//! The lock on the state, which the original takes too (contract section 4). Only its holder can write.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::fs::{major, minor};

use super::error::LockError;
use super::files::{Files, HeldLock};
use super::lock_record::LockText;
use crate::host::{Paths, read_text};

/// The most that a call waits for the lock: longer than a burst of calls takes, and shorter than kubelet's timeout.
pub const WAIT: Duration = Duration::from_secs(30);

/// The lock on the state, and with it the right to write. Released when dropped.
#[derive(Debug)]
pub struct Locked<'f> {
    pub(super) files: &'f dyn Files,
    pub(super) lock: Box<dyn HeldLock + 'f>,
    /// The record of the last save.
    pub(super) text: LockText,
    /// The length of the journal, where it is in step with the state that was read or saved.
    pub(super) in_step: Option<u64>,
}

impl<'f> Locked<'f> {
    /// Waits for the lock.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn acquire(files: &'f dyn Files, wait: Duration) -> Result<Self, LockError> {
        let lock = files.lock(wait)?;
        // One that cannot be read may be anybody's.
        let text = lock.text();
        Ok(Locked {
            files,
            text: text.map_or(LockText::Other, |text| LockText::parse(&text)),
            lock,
            in_step: None,
        })
    }
}

/// A process that holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its process ID.
    pub pid: u32,
    /// The name of its program, if /proc has it.
    pub name: Option<String>,
}

impl fmt::Display for LockHolder {
    /// `process 7 (sleep)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        match &self.name {
            Some(name) => write!(f, " ({name})"),
            None => Ok(()),
        }
    }
}

/// Returns the present holder of the lock by the kernel's list; `None` if there is none, or the list cannot be read. Takes no lock.
pub fn holder_now(paths: &Paths) -> Option<LockHolder> {
    let file = fs::metadata(paths.lock_file()).ok()?;
    let (dev, ino) = (file.dev(), file.ino());
    let locks = read_text(&paths.locks()).ok()?;
    let id = format!("{:02x}:{:02x}:{ino}", major(dev), minor(dev));
    let pid = locks.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (kind, _, _) = (fields.next()?, fields.next()?, fields.next()?);
        let (pid, file) = (fields.next()?, fields.next()?);
        (kind == "FLOCK" && file == id)
            .then(|| pid.parse::<u32>().ok())
            .flatten()
    })?;
    let name = read_text(&paths.process(pid).join("comm"));
    let name = name.ok().map(|name| name.trim().to_owned());
    Some(LockHolder { pid, name })
}

/// Returns the holder of the lock for an error.
pub(super) fn holder(paths: &Paths) -> String {
    holder_now(paths).map_or_else(|| "an unknown process".to_owned(), |h| h.to_string())
}
