//! The files on which it is decided who holds what, and the clock: behind a trait, so that the plugin and the tests' model of a node
//! run the same code on them.

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
    /// There while a rebuild of a lost state is owed.
    RebuildMark,
    /// There since the first grant of a boot, outside of the folder of the others.
    BootMarker,
    /// When a program that writes no journal was last seen to have held the lock.
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

    /// Where a file is, for messages.
    fn path(&self, file: StateFile) -> PathBuf;

    /// Reads a file of at most `limit` bytes, with so much room behind them.
    ///
    /// # Errors
    /// It is there but cannot be read.
    fn read(&self, file: StateFile, limit: usize, room: usize) -> io::Result<ReadOutcome>;

    /// The length of a regular file, in bytes; `None` where it is not there or something else.
    fn size(&self, file: StateFile) -> Option<u64>;

    /// Whether a file is there.
    fn exists(&self, file: StateFile) -> bool;

    /// Overwrites a small file. Not whole after a kill.
    ///
    /// # Errors
    /// The system refuses.
    fn overwrite(&self, file: StateFile, text: &[u8]) -> io::Result<()>;

    /// Appends to a file of this length.
    ///
    /// # Errors
    /// Its length is another one; the system refuses. Part of the text may be there then.
    fn append(&self, file: StateFile, length: u64, text: &[u8]) -> io::Result<()>;

    /// Cuts a file off.
    ///
    /// # Errors
    /// The system refuses.
    fn truncate(&self, file: StateFile, length: u64) -> io::Result<()>;

    /// Replaces a file as a whole. Not flushed to the disk.
    ///
    /// # Errors
    /// The system refuses.
    fn replace(&self, file: StateFile, text: &[u8]) -> io::Result<()>;

    /// Removes a file, if it is there and the system lets it.
    fn remove(&self, file: StateFile);

    /// Takes the right to read the state from all but root.
    fn make_state_private(&self);

    /// Replaces the state: written beside it, flushed to the disk, put in its place if the lock is still the one that others would
    /// take, and the folder flushed too.
    ///
    /// # Errors
    /// The system refuses one of these, or the lock was lost; the old state is in place then, unless flushing the folder failed.
    fn replace_state(&self, lock: &dyn HeldLock, text: &[u8]) -> Result<(), StoreError>;

    /// Puts a state that cannot be read away. Tells where it is then.
    ///
    /// # Errors
    /// The system refuses; the state is in its place then.
    fn set_state_aside(&self, time: &str) -> Result<PathBuf, StoreError>;

    /// Removes what killed calls of the original left half-written.
    fn remove_left_overs(&self);
}

/// The lock, held until this is dropped.
pub trait HeldLock: Debug {
    /// Whether the file that is locked is still the one that others would lock.
    fn is_current(&self) -> bool;

    /// What its last holder wrote into it.
    fn text(&self) -> Vec<u8>;

    /// Writes into it. A full disk must not keep anybody from the state, so that a failure is none.
    fn set_text(&self, text: &[u8]);
}
