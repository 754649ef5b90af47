//! The lock on the state, which the original takes too (contract section 4). Only its holder can write.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{major, minor};

use super::error::LockError;
use super::files::{Files, HeldLock};
use super::journal::note_other_writer;
use crate::host::{Paths, read_text};

/// The most that a call waits for the lock: longer than a burst of calls takes, and shorter than kubelet's timeout.
pub const WAIT: Duration = Duration::from_secs(30);

/// Marks the process ID of a holder that is this program. The original writes only the number.
const MARK: &str = "azure-vnet-ipam";

/// How often a call decides again when the lock file is removed while it is held.
pub const MOST_ROUNDS: usize = 50;

/// The lock on the state, and with it the right to write. Released when dropped.
#[derive(Debug)]
pub struct Locked<'f> {
    pub(super) files: &'f dyn Files,
    pub(super) lock: Box<dyn HeldLock + 'f>,
}

impl<'f> Locked<'f> {
    /// Waits for the lock.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn acquire(files: &'f dyn Files, wait: Duration) -> Result<Self, LockError> {
        let lock = files.lock(wait)?;
        let last = lock.text();
        // The last holder was a program without a journal.
        if !last.is_empty() && !last.ends_with(MARK.as_bytes()) {
            let _ = note_other_writer(files, files.now());
        }
        // For operators, and for the error of calls that time out.
        lock.set_text(format!("{} {MARK}", std::process::id()).as_bytes());
        Ok(Locked { files, lock })
    }

    /// Whether the locked file is still the one that other calls lock. If it was removed meanwhile, another call may have loaded the
    /// same state, and this call must decide again under the new lock.
    pub fn is_current(&self) -> bool {
        self.lock.is_current()
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

impl LockHolder {
    fn new(paths: &Paths, pid: u32) -> LockHolder {
        let name = read_text(&paths.process(pid).join("comm"));
        LockHolder {
            pid,
            name: name.ok().map(|name| name.trim().to_owned()),
        }
    }
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
    Some(LockHolder::new(paths, pid))
}

/// Returns the holder of the lock for an error. Where the kernel's list cannot be read, it is the process ID in the file.
pub(super) fn holder(paths: &Paths, path: &Path) -> String {
    let written = || {
        let text = read_text(path).ok()?;
        text.split_whitespace().next()?.parse::<u32>().ok()
    };
    let holder = holder_now(paths).or_else(|| Some(LockHolder::new(paths, written()?)));
    holder.map_or_else(|| "an unknown process".to_owned(), |h| h.to_string())
}
