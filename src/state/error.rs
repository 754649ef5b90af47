//! The errors of the lock and of the files of the state.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::io_reason;

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
    /// The lock file was removed while this call held it. Another call may have decided on the same state, so this one counts for nothing.
    #[error("the lock on the state was lost: {} was removed or replaced meanwhile", path.display())]
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
    /// Whether the new state is in place nevertheless. A power cut might undo it.
    pub is_in_place: bool,
    /// Whether the lock file was removed while this call held it: see [`LockError::Removed`].
    pub lock_was_lost: bool,
}

impl StoreError {
    /// Creates the error from the system's.
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
