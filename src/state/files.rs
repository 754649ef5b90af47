//! The files that say who holds which address, and the clock. They are behind a trait, so that the plugin and the tests' model of a
//! node run the same code.

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::error::{LockError, StoreError};
use crate::host::ReadOutcome;
use crate::ipam::Moment;

/// One of these files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateFile {
    /// The state itself.
    State,
    /// The journal of grants.
    Journal,
    /// The note of the last grant: its generation and the boot.
    LastGrant,
    /// Exists while a lost state must still be rebuilt.
    RebuildMark,
    /// Exists since the first grant of a boot, outside of the folder of the others.
    BootMarker,
    /// The moment when a program without a journal was last seen to have held the lock.
    OtherWriter,
}

impl StateFile {
    /// All of them.
    pub const ALL: [StateFile; 6] = [
        StateFile::State,
        StateFile::Journal,
        StateFile::LastGrant,
        StateFile::RebuildMark,
        StateFile::BootMarker,
        StateFile::OtherWriter,
    ];
}

/// The files of one node, and its clock. `Paths` are the real ones.
pub trait Files: Debug {
    /// Now, on the boot clock.
    fn now(&self) -> Moment;

    /// Now, on the wall clock, as it is written into a state.
    fn wall_time(&self) -> String;

    /// Waits for the lock.
    ///
    /// # Errors
    /// Others hold it for longer than `wait`, or the system refuses.
    fn lock(&self, wait: Duration) -> Result<Box<dyn HeldLock + '_>, LockError>;

    /// The path of a file, for messages.
    fn path(&self, file: StateFile) -> PathBuf;

    /// Reads a file of at most `limit` bytes into a buffer with `room` more.
    ///
    /// # Errors
    /// It exists but cannot be read.
    fn read(&self, file: StateFile, limit: usize, room: usize) -> io::Result<ReadOutcome>;

    /// The length of a regular file in bytes; `None` where there is none.
    fn size(&self, file: StateFile) -> Option<u64>;

    /// Whether a file exists.
    fn exists(&self, file: StateFile) -> bool;

    /// Overwrites a small file, which may be incomplete after a kill.
    ///
    /// # Errors
    /// The system refuses.
    fn overwrite(&self, file: StateFile, text: &[u8]) -> io::Result<()>;

    /// Appends to a file of this length.
    ///
    /// # Errors
    /// It has another length, or cannot be written. Part of the text may have been appended.
    fn append(&self, file: StateFile, length: u64, text: &[u8]) -> io::Result<()>;

    /// Truncates a file.
    ///
    /// # Errors
    /// The system refuses.
    fn truncate(&self, file: StateFile, length: u64) -> io::Result<()>;

    /// Replaces a whole file, without flushing it to the disk.
    ///
    /// # Errors
    /// The system refuses.
    fn replace(&self, file: StateFile, text: &[u8]) -> io::Result<()>;

    /// Removes a file if possible.
    fn remove(&self, file: StateFile);

    /// Lets only root read the state.
    fn make_state_private(&self);

    /// Replaces the state: written beside it, flushed to the disk, put in its place if the lock is still the one that others would
    /// take, and the folder flushed too.
    ///
    /// # Errors
    /// The system refuses one of these, or the lock was lost; the old state is in place then, unless flushing the folder failed.
    fn replace_state(&self, lock: &dyn HeldLock, text: &[u8]) -> Result<(), StoreError>;

    /// Sets a state aside that cannot be read. Returns its new path.
    ///
    /// # Errors
    /// The system refuses; the state is in its place then.
    fn set_state_aside(&self, time: &str) -> Result<PathBuf, StoreError>;

    /// Removes the temporary files of killed calls of the original.
    fn remove_leftovers(&self);
}

/// The lock, held until this is dropped.
pub trait HeldLock: Debug {
    /// Whether the locked file is still the one that other calls lock.
    fn is_current(&self) -> bool;

    /// The text that its last holder wrote into it.
    fn text(&self) -> Vec<u8>;

    /// Writes into it. Failures are ignored, because a full disk must not block the state.
    fn set_text(&self, text: &[u8]);
}
