//! The files that record who holds which address, and the clock. They are behind a trait, so that the plugin and the tests' model of a node
//! run the same code.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::{ReadOutcome, io_reason};
use crate::ipam::Moment;

/// One of these files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateFile {
    /// The state itself.
    State,
    /// The backup: the state as it was last saved.
    Backup,
    /// The lock file. Its text is the record of the last save.
    Lock,
}

/// The files of one node, and its clock. `Paths` are the real ones.
pub trait Files: Debug {
    /// Returns the present moment on the boot clock.
    fn now(&self) -> Moment;

    /// Returns the present wall-clock time in the form of a state.
    fn wall_time(&self) -> String;

    /// Waits for the lock.
    ///
    /// # Errors
    /// Another process holds the lock for longer than `wait`, or the system refuses it.
    fn lock(&self, wait: Duration) -> Result<Box<dyn HeldLock + '_>, LockError>;

    /// Returns the path of a file, for messages.
    fn path(&self, file: StateFile) -> PathBuf;

    /// Reads a file of at most `limit` bytes into a buffer with `room` spare bytes.
    ///
    /// # Errors
    /// The file exists but cannot be read.
    fn read(&self, file: StateFile, limit: usize, room: usize) -> io::Result<ReadOutcome>;

    /// Returns the length of a regular file in bytes; `None` if there is no such file.
    fn size(&self, file: StateFile) -> Option<u64>;

    /// Replaces the state atomically.
    ///
    /// The text is written to a file beside the state and flushed to the disk. It replaces the state only if other calls still lock the
    /// same lock file as this one. Then the folder is flushed. With `aside`, a state that cannot be read is first kept under a name with
    /// that time.
    ///
    /// # Errors
    /// A step fails, or the lock was lost. The old state is then in place, unless only flushing the folder failed.
    fn replace_state(
        &self,
        lock: &dyn HeldLock,
        text: &[u8],
        aside: Option<&str>,
    ) -> Result<(), StoreError>;

    /// Replaces the backup, if other calls still lock the same lock file as this one. It is not flushed to the disk: a power cut ends the
    /// boot, and a backup of another boot does not count.
    ///
    /// # Errors
    /// The system refuses, or the lock was lost. The old backup is then in place.
    fn replace_backup(&self, lock: &dyn HeldLock, text: &[u8]) -> io::Result<()>;

    /// Removes the temporary files of killed calls of the original, and the files of earlier versions that the backup replaces.
    fn remove_leftovers(&self);
}

/// The lock. It is released when this is dropped.
pub trait HeldLock: Debug {
    /// Returns whether the locked file is still the one that other calls lock.
    fn is_current(&self) -> bool;

    /// Returns the text of the lock file.
    ///
    /// # Errors
    /// The lock file cannot be read.
    fn text(&self) -> io::Result<Vec<u8>>;

    /// Replaces the text of the lock file in place. A text of the same length needs neither space nor an inode.
    ///
    /// # Errors
    /// The system refuses.
    fn set_text(&self, text: &[u8]) -> io::Result<()>;
}

/// Why the lock could not be acquired.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("timed out after {} s waiting for the lock on the state", waited.as_secs())]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// Its holder, if known.
        holder: String,
        /// The time that the call waited.
        waited: Duration,
    },
    /// The lock file or its folder cannot be created, opened or locked.
    #[error("cannot lock the state: {}: {}", path.display(), io_reason(source))]
    Io {
        /// The lock file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The lock file was removed while this call held it. Another call may have used the same state, so the result of this one does not
    /// count.
    #[error("the lock on the state was lost: {} was removed or replaced during the call", path.display())]
    Removed {
        /// The lock file.
        path: PathBuf,
    },
}

/// An error of a file.
#[derive(Debug, thiserror::Error)]
#[error("{step} {}: {}", path.display(), io_reason(source))]
pub struct StoreError {
    /// The operation that failed.
    pub step: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
    /// What became of the new state.
    pub outcome: SaveOutcome,
}

/// What became of the state that a failed save wanted to replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveOutcome {
    /// The old state is in place.
    NotSaved,
    /// The new state is in place. A power cut might undo that.
    Saved,
    /// The lock was lost before the new state was in place: see [`LockError::Removed`].
    LockLost,
    /// The lock was lost after the new state was in place.
    LockLostAfterSave,
    /// Nothing was decided. The record or the backup cannot be read, so it is unknown whether the state lacks addresses.
    NotDecided,
}

impl StoreError {
    /// Creates the error from the system's.
    pub fn at<'a>(step: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> StoreError + 'a {
        move |source| StoreError {
            step,
            path: path.to_owned(),
            source,
            outcome: SaveOutcome::NotSaved,
        }
    }

    /// Creates the error for a lock file that was removed while this call held it.
    pub fn lost_lock(path: &Path) -> StoreError {
        let removed = io::Error::other("it was removed while it was held");
        StoreError {
            outcome: SaveOutcome::LockLost,
            ..StoreError::at("cannot go on with", path)(removed)
        }
    }

    /// Returns whether the new state is in place nevertheless.
    pub fn is_in_place(&self) -> bool {
        matches!(
            self.outcome,
            SaveOutcome::Saved | SaveOutcome::LockLostAfterSave
        )
    }

    /// Returns whether the lock file was removed while this call held it.
    pub fn lock_was_lost(&self) -> bool {
        matches!(
            self.outcome,
            SaveOutcome::LockLost | SaveOutcome::LockLostAfterSave
        )
    }
}
