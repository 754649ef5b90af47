//! What can go wrong with the lock and with the files of the state.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::{Paths, io_reason};

/// Why the lock is not held.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Others hold it.
    #[error("timed out after {} s waiting for the lock on the state", waited.as_secs())]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// Who holds it, as far as can be told.
        holder: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The lock file or its folder cannot be made, opened or locked.
    #[error("cannot lock the state: {}: {}", path.display(), io_reason(source))]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl LockError {
    /// What is to be said when the lock file is removed, again and again, by somebody else while it is held.
    pub fn removed(paths: &Paths) -> LockError {
        LockError::Io {
            path: paths.lock_file(),
            source: io::Error::other("it is removed again and again"),
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
