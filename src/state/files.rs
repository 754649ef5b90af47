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
    /// The lock file, whose text is the record that proves the journal.
    Lock,
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

    /// The length of the journal and its last bytes, as many as `end` has room for. `None` where it is shorter or cannot be read.
    fn journal_end(&self, end: &mut [u8]) -> Option<u64>;

    /// Appends to the journal, which has this length.
    ///
    /// # Errors
    /// It has another length, or cannot be written. Part of the text may have been written.
    fn append_to_journal(&self, length: u64, text: &[u8]) -> io::Result<()>;

    /// Replaces the whole journal, without flushing it to the disk.
    ///
    /// # Errors
    /// The system refuses; the old journal is in its place then.
    fn replace_journal(&self, text: &[u8]) -> io::Result<()>;

    /// Lets only root read the state.
    fn make_state_private(&self);

    /// Replaces the state: written beside it, flushed to the disk, put in its place if the lock is still the one that others would
    /// take, and the folder flushed too. Before that, a state that cannot be read is linked `aside`, under a name with that time.
    ///
    /// # Errors
    /// The system refuses one of these, or the lock was lost; the old state is in place then, unless flushing the folder failed.
    fn replace_state(
        &self,
        lock: &dyn HeldLock,
        text: &[u8],
        aside: Option<&str>,
    ) -> Result<(), StoreError>;

    /// Removes the temporary files of killed calls of the original, and the files of version 0.2.0 that the journal replaces.
    fn remove_leftovers(&self);
}

/// The lock, held until this is dropped.
pub trait HeldLock: Debug {
    /// Whether the locked file is still the one that other calls lock.
    fn is_current(&self) -> bool;

    /// The text of the lock file.
    ///
    /// # Errors
    /// It cannot be read.
    fn text(&self) -> io::Result<Vec<u8>>;

    /// Replaces that text in place, which needs neither space nor an inode where it was as long.
    ///
    /// # Errors
    /// The system refuses.
    fn set_text(&self, text: &[u8]) -> io::Result<()>;
}
