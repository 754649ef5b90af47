//! The files of a node on its disk.

use std::cell::Cell;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::{Files, HeldLock, LockError, SaveOutcome, StateFile, StoreError};
use super::lock::{LOCK_TEXT_LIMIT, holder};
use super::obstacle::suffixed;
use super::store::MODE;
use crate::host::{
    self, LockOutcome, Paths, ReadOutcome, boot_now, create_new, open, read_bounded_with, wall_now,
};
use crate::ipam::Moment;

/// How many set-aside states are kept.
const SET_ASIDE: usize = 3;

/// The lock file, locked.
#[derive(Debug)]
struct LockFile {
    file: File,
    path: PathBuf,
    /// Device and inode of the locked file. Another file may be at the path by now.
    id: (u64, u64),
    /// The length of the text as it was read, in bytes.
    text_length: Cell<usize>,
}

fn id(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

impl HeldLock for LockFile {
    fn is_current(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|there| id(&there) == self.id)
    }

    fn text(&self) -> io::Result<Vec<u8>> {
        let mut text = vec![0; LOCK_TEXT_LIMIT];
        let length = self.file.read_at(&mut text, 0)?;
        text.truncate(length);
        self.text_length.set(length);
        Ok(text)
    }

    fn set_text(&self, text: &[u8]) -> io::Result<()> {
        self.file.write_all_at(text, 0)?;
        // The text that another program wrote may be longer.
        if self.text_length.get() > text.len() {
            self.file.set_len(text.len() as u64)
        } else {
            Ok(())
        }
    }
}

impl Files for Paths {
    fn now(&self) -> Moment {
        boot_now()
    }

    fn wall_time(&self) -> String {
        wall_now().to_string()
    }

    fn lock(&self, wait: Duration) -> Result<Box<dyn HeldLock + '_>, LockError> {
        let path = self.lock_file();
        let locked = host::lock(&path, wait).and_then(|outcome| match outcome {
            LockOutcome::Held(file) => Ok(Some((id(&file.metadata()?), file))),
            LockOutcome::TimedOut => Ok(None),
        });
        match locked {
            Ok(Some((id, file))) => Ok(Box::new(LockFile {
                file,
                path,
                id,
                text_length: Cell::default(),
            })),
            Ok(None) => Err(LockError::Busy {
                holder: holder(self),
                path,
                waited: wait,
            }),
            Err(source) => Err(LockError::Io { path, source }),
        }
    }

    fn path(&self, file: StateFile) -> PathBuf {
        match file {
            StateFile::State => self.state(),
            StateFile::Backup => self.backup(),
            StateFile::Lock => self.lock_file(),
        }
    }

    fn read(&self, file: StateFile, limit: usize, room: usize) -> io::Result<ReadOutcome> {
        read_bounded_with(&self.path(file), limit, room)
    }

    fn size(&self, file: StateFile) -> Option<u64> {
        let meta = fs::symlink_metadata(self.path(file)).ok()?;
        meta.is_file().then_some(meta.len())
    }

    fn replace_backup(&self, lock: &dyn HeldLock, text: &[u8]) -> io::Result<()> {
        let path = self.backup();
        let new = suffixed(&path, ".new");
        let replaced = create_new(&new, MODE)
            .and_then(|mut file| file.write_all(text))
            .and_then(|()| {
                if lock.is_current() {
                    fs::rename(&new, &path)
                } else {
                    Err(io::Error::other("the lock was lost"))
                }
            });
        if replaced.is_err() && lock.is_current() {
            // A full disk would stay full because of this file.
            let _ = fs::remove_file(&new);
        }
        replaced
    }

    fn replace_state(
        &self,
        lock: &dyn HeldLock,
        text: &[u8],
        aside: Option<&str>,
    ) -> Result<(), StoreError> {
        let path = self.state();
        let folder = path.parent().unwrap_or(Path::new("/"));
        let new = suffixed(&path, ".new");
        let lost_lock = || StoreError::lost_lock(&self.lock_file());
        // The folder is opened first, so that little can fail after the rename.
        let replaced = write_new(&new, text).and_then(|written| {
            let opened = open(folder).map_err(StoreError::at("cannot open", folder))?;
            if !lock.is_current() {
                return Err(lost_lock());
            }
            // A different file may be another call's, and half-written.
            let there =
                fs::symlink_metadata(&new).and_then(|there| Ok((there, written.metadata()?)));
            match there {
                Ok((there, written)) if id(&there) == id(&written) => {}
                _ => return Err(lost_lock()),
            }
            if let Some(time) = aside {
                keep_aside(self, time);
            }
            fs::rename(&new, &path).map_err(StoreError::at("cannot replace", &path))?;
            Ok(opened)
        });
        let replaced = replaced.map_err(|error| {
            // Only the holder of a newer lock removes the new file of this call, or replaces it.
            let kinds = [io::ErrorKind::NotFound, io::ErrorKind::AlreadyExists];
            let lock_was_lost =
                error.lock_was_lost() || !lock.is_current() || kinds.contains(&error.source.kind());
            if lock_was_lost {
                StoreError {
                    outcome: SaveOutcome::LockLost,
                    ..error
                }
            } else {
                let _ = fs::remove_file(&new);
                error
            }
        });
        let error = StoreError::at("cannot flush", folder);
        replaced?.sync_all().map_err(|e| StoreError {
            outcome: SaveOutcome::Saved,
            ..error(e)
        })
    }

    fn remove_leftovers(&self) {
        let digits = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
        for left in siblings(&self.state(), digits) {
            let _ = fs::remove_file(left);
        }
        for left in self.of_earlier_versions() {
            let _ = fs::remove_file(left);
        }
    }
}

/// Keeps a state that cannot be read under another name. It is linked, so that the path is never without a state. A folder cannot be linked
/// and is renamed. If neither works, the state is lost, but nothing in it could be read.
fn keep_aside(paths: &Paths, time: &str) {
    let path = paths.state();
    let aside = suffixed(&path, &format!(".corrupt-{}", time.replace(':', "")));
    match fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_file() => {
            let _ = fs::hard_link(&path, &aside);
            // Other users may have been able to read the state.
            let _ = fs::set_permissions(&aside, Permissions::from_mode(MODE));
        }
        Ok(_) => drop(fs::rename(&path, &aside)),
        Err(_) => {}
    }
    let kept = set_aside_before(paths);
    let surplus = kept.len().saturating_sub(SET_ASIDE);
    for old in kept.iter().take(surplus) {
        let _ = fs::remove_file(old);
    }
}

/// Lists the states that were set aside, the oldest first.
pub fn set_aside_before(paths: &Paths) -> Vec<PathBuf> {
    let mut kept = siblings(&paths.state(), |rest| rest.starts_with(".corrupt-"));
    kept.sort_unstable();
    kept
}

fn write_new(new: &Path, text: &[u8]) -> Result<File, StoreError> {
    let file = match create_new(new, MODE) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let folder = new.parent().unwrap_or(Path::new("/"));
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(folder)
                .and_then(|()| create_new(new, MODE))
        }
        other => other,
    };
    let mut file = file.map_err(StoreError::at("cannot create temp file", new))?;
    file.write_all(text)
        .map_err(StoreError::at("cannot write", new))?;
    file.sync_all()
        .map_err(StoreError::at("cannot flush", new))?;
    Ok(file)
}

/// Lists the files beside `path` with names that begin with its name. `wanted` decides by the rest of the name.
fn siblings(path: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str()))
    else {
        return Vec::new();
    };
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter(|n| n.strip_prefix(name).is_some_and(&wanted))
        .map(|n| folder.join(n))
        .collect()
}
