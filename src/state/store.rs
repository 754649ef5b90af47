//! Reading and replacing the state file (promise P5: the whole old one or the whole new one).

use std::io;
use std::path::{Path, PathBuf};

use super::files::{Files, StateFile};
use super::lock::Locked;
use super::model::ROOM;
use super::ours::MOST_COUNTED;
use super::{KeyStatus, State, WriteStamp};
use crate::host::{ReadOutcome, io_reason};

/// Larger states than this are not read (promise P9). 65,536 addresses take 7 MB.
const LIMIT: usize = 64 << 20;

/// Notes are no longer than this.
const NOTE_LIMIT: usize = 4096;

/// The mode of the state: only root reads it.
pub const MODE: u32 = 0o600;

/// What reading the state file came to.
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

    /// The same, to be changed.
    pub fn into_document(self) -> Option<State> {
        match self {
            Loaded::Ready(state) | Loaded::Newer { state, .. } => Some(*state),
            Loaded::Missing | Loaded::Corrupt(_) => None,
        }
    }
}

/// What went wrong with the file itself.
#[derive(Debug, thiserror::Error)]
#[error("{step} {}: {}", path.display(), io_reason(source))]
pub struct StoreError {
    /// What was being done.
    pub step: &'static str,
    /// With which file.
    pub path: PathBuf,
    /// What the system says.
    pub source: io::Error,
    /// Whether the new state is in place all the same, though a power cut might take it back.
    pub is_in_place: bool,
    /// Whether the lock file was removed while this call held it: somebody else may be writing. The call is to be decided again
    /// under the new lock.
    pub lock_was_lost: bool,
}

impl StoreError {
    /// Turns the system's error about a file into one of the store.
    pub fn at<'a>(step: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> StoreError + 'a {
        move |source| StoreError {
            step,
            path: path.to_owned(),
            source,
            is_in_place: false,
            lock_was_lost: false,
        }
    }

    /// The lock file was removed while it was held.
    pub fn lost_lock(path: &Path) -> StoreError {
        let gone = io::Error::other("it was removed while it was held");
        StoreError {
            lock_was_lost: true,
            ..StoreError::at("cannot go on with", path)(gone)
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
            state.reuse(bytes);
            let state = Box::new(state);
            match state.own {
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
        if !matches!(state.own, KeyStatus::Ours) {
            self.files.remove_left_overs();
        }
        let text = state.print(stamp);
        if text.len() > LIMIT {
            let source = io::Error::other(format!("it would be larger than {LIMIT} bytes"));
            let path = self.files.path(StateFile::State);
            return Err(StoreError::at("cannot write", &path)(source));
        }
        self.files.replace_state(&*self.lock, &text)
    }

    /// Puts away a state that cannot be read, and leaves a mark that what it may have held is not known. Tells where it is
    /// now.
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

/// Whether a state was lost and not rebuilt since.
pub fn is_rebuild_owed(files: &dyn Files) -> bool {
    files.exists(StateFile::RebuildMark)
}

/// The generation of [`last_grant`].
pub fn last_granted_generation(files: &dyn Files, boot_id: Option<&str>) -> Option<u64> {
    last_grant(files, boot_id).map(|last| last.generation)
}

/// What is noted of the last address that was given since the node started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastGrant {
    /// The generation of its claim; 0 where that is not known.
    pub generation: u64,
    /// Whether it is known to be of this boot. It may be where a boot ID cannot be read.
    pub is_of_this_boot: bool,
}

/// Which address was the last to be given since the node started, kept beside the state for the time when that is gone or an old copy
/// of it was put back. `None` when none was given in this boot.
pub fn last_grant(files: &dyn Files, boot_id: Option<&str>) -> Option<LastGrant> {
    let unknown = LastGrant {
        generation: 0,
        is_of_this_boot: false,
    };
    let text = match files.read(StateFile::LastGrant, NOTE_LIMIT, 0) {
        Ok(ReadOutcome::Read(bytes)) => String::from_utf8(bytes).unwrap_or_default(),
        Ok(ReadOutcome::Missing) => {
            // Where the whole folder has gone, this is still there, and tells nothing but that some were given.
            let Ok(ReadOutcome::Read(bytes)) = files.read(StateFile::BootMarker, NOTE_LIMIT, 0)
            else {
                return None;
            };
            let marker = String::from_utf8(bytes).ok()?;
            return is_same_boot(id(&marker), boot_id).then_some(unknown);
        }
        // Whatever it says, it is there.
        Ok(ReadOutcome::TooLarge) | Err(_) => return Some(unknown),
    };
    match text.split_once(' ') {
        Some((generation, of)) if is_same_boot(id(of), boot_id) => Some(LastGrant {
            generation: number(generation).unwrap_or(0),
            is_of_this_boot: id(of).is_some() && boot_id.is_some(),
        }),
        Some(_) => None,
        None => Some(unknown),
    }
}

/// A generation as it stands in a file; nothing where nobody can have written it.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n| *n <= MOST_COUNTED)
}

/// A boot ID as it stands in a file; nothing where it was not known.
fn id(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|id| !id.is_empty())
}

/// Whether both may be of one boot. A boot ID that a caller cannot read is unknown, and never tells of another boot.
pub(super) fn is_same_boot(one: Option<&str>, other: Option<&str>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

/// Notes, outside of the folder that [`note_use`] writes to, that addresses are given in this boot.
///
/// # Errors
/// The system refuses.
pub fn note_boot(files: &dyn Files, boot_id: Option<&str>) -> Result<(), StoreError> {
    note(files, StateFile::BootMarker, boot_id.unwrap_or_default())
}

/// Notes that an address is about to be given.
///
/// # Errors
/// The system refuses.
pub fn note_use(
    files: &dyn Files,
    boot_id: Option<&str>,
    generation: u64,
) -> Result<(), StoreError> {
    // Of the same length every time, so that nothing of the last one is left behind.
    let text = format!("{generation:020} {}", boot_id.unwrap_or_default());
    note(files, StateFile::LastGrant, &text)
}

fn note(files: &dyn Files, file: StateFile, text: &str) -> Result<(), StoreError> {
    files
        .overwrite(file, text.as_bytes())
        .map_err(|e| StoreError::at("cannot write", &files.path(file))(e))
}
