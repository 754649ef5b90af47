//! Reads and replaces the state file (promise P5: the whole old state or the whole new one).

use std::io;
use std::path::PathBuf;

use super::error::StoreError;
use super::files::{Files, StateFile};
use super::lock::Locked;
use super::model::ROOM;
use super::{KeyStatus, State, WriteStamp};
use crate::host::ReadOutcome;

/// Larger states than this are not read (promise P9). 65,536 addresses take 7 MB.
const LIMIT: usize = 64 << 20;

/// The mode of the state: only root reads it.
pub const MODE: u32 = 0o600;

/// The result of reading the state file.
#[derive(Debug)]
pub enum Loaded {
    /// A state to work on; an empty file reads as an empty one. [`State::lost_reason`] tells whether it knows every grant.
    Ready(Box<State>),
    /// The file is not there: the node is fresh, or its state was lost.
    Missing,
    /// The file is there, but is not a state, for this reason.
    Corrupt(String),
    /// A newer version of this program wrote it. Only releases are safe.
    Newer {
        /// Its format version.
        format: u64,
        /// What can be read of it.
        state: Box<State>,
    },
}

impl Loaded {
    /// The state, where there is one that can be read.
    pub fn state(&self) -> Option<&State> {
        match self {
            Loaded::Ready(state) | Loaded::Newer { state, .. } => Some(state),
            Loaded::Missing | Loaded::Corrupt(_) => None,
        }
    }

    /// The state, to be changed.
    pub fn into_state(self) -> Option<State> {
        match self {
            Loaded::Ready(state) | Loaded::Newer { state, .. } => Some(*state),
            Loaded::Missing | Loaded::Corrupt(_) => None,
        }
    }
}

/// Reads the state. Reading needs no lock, since the file is only ever replaced as a whole; what is to be written back must
/// be read under it.
///
/// # Errors
/// The file is there, but the system does not let it be read.
pub fn load(files: &dyn Files, boot_id: Option<&str>) -> Result<Loaded, StoreError> {
    let bytes = match files.read(StateFile::State, LIMIT, ROOM) {
        Ok(ReadOutcome::Read(bytes)) => bytes,
        Ok(ReadOutcome::Missing) => return Ok(Loaded::Missing),
        Ok(ReadOutcome::TooLarge) => {
            return Ok(Loaded::Corrupt(format!("it is larger than {LIMIT} bytes")));
        }
        Err(e) if e.kind() == io::ErrorKind::IsADirectory => {
            return Ok(Loaded::Corrupt("it is a folder".to_owned()));
        }
        Err(e) => {
            let path = files.path(StateFile::State);
            return Err(StoreError::at("cannot read", &path)(e));
        }
    };
    if bytes.is_empty() {
        return Ok(Loaded::Ready(Box::default()));
    }
    Ok(match State::parse(&bytes, boot_id, files.now()) {
        Ok(mut state) => {
            state.keep_buffer(bytes);
            let state = Box::new(state);
            match state.key_status {
                KeyStatus::Newer { format, .. } => Loaded::Newer { format, state },
                _ => Loaded::Ready(state),
            }
        }
        Err(error) => Loaded::Corrupt(error.to_string()),
    })
}

impl Locked<'_> {
    /// Reads the state. One that others may read is made private, as it becomes anyway when it is next written.
    ///
    /// # Errors
    /// As [`load`].
    pub fn load(&self, boot_id: Option<&str>) -> Result<Loaded, StoreError> {
        self.files.make_state_private();
        load(self.files, boot_id)
    }

    /// Replaces the state.
    ///
    /// # Errors
    /// As [`Files::replace_state`].
    pub fn save(&mut self, state: &mut State, stamp: WriteStamp<'_>) -> Result<(), StoreError> {
        if !matches!(state.key_status, KeyStatus::Ours) {
            self.files.remove_leftovers();
        }
        let text = state.print(stamp);
        if text.len() > LIMIT {
            let source = io::Error::other(format!("it would be larger than {LIMIT} bytes"));
            let path = self.files.path(StateFile::State);
            return Err(StoreError::at("cannot write", &path)(source));
        }
        self.files.replace_state(&*self.lock, &text)
    }

    /// Sets a state aside that cannot be read, and marks that it must be rebuilt. Returns its new path.
    ///
    /// # Errors
    /// The system refuses; the state is in its place then.
    pub fn set_aside(&mut self, time: &str) -> Result<PathBuf, StoreError> {
        let mark = self.files.path(StateFile::RebuildMark);
        if !self.is_current() {
            return Err(StoreError::lost_lock(&mark));
        }
        self.files
            .overwrite(StateFile::RebuildMark, b"")
            .map_err(StoreError::at("cannot make", &mark))?;
        self.files.set_state_aside(time)
    }
}

/// Whether a state was lost and not rebuilt yet.
pub fn is_rebuild_owed(files: &dyn Files) -> bool {
    files.exists(StateFile::RebuildMark)
}
