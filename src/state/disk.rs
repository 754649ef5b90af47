//! The files of a node on its disk.

use std::cell::Cell;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use super::files::{Files, HeldLock, LockError, OpenJournal, SaveOutcome, StateFile, StoreError};
use super::lock::{LOCK_TEXT_LIMIT, holder};
use super::store::MODE;
use crate::host::{
    self, LockOutcome, Paths, ReadOutcome, boot_now, check_regular, create_new, open, open_with,
    read_bounded_with, wall_now,
};
use crate::ipam::Moment;

/// How many set-aside states are kept.
const SET_ASIDE: usize = 3;

/// The lock file, locked.
#[derive(Debug)]
struct LockFile {
    file: File,
    path: PathBuf,
    /// Of the file, which may no longer be the one at the path.
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
        // What another program wrote may be longer.
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
            StateFile::Journal => self.journal(),
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

    fn read_journal_end(&self, end: &mut [u8]) -> io::Result<()> {
        let file = open_with(&self.journal(), OFlags::RDONLY | OFlags::NOFOLLOW, MODE)?;
        read_end(&file, end)?;
        Ok(())
    }

    fn open_journal(&self, end: &mut [u8]) -> io::Result<OpenJournal> {
        let file = open_with(&self.journal(), OFlags::RDWR | OFlags::NOFOLLOW, MODE)?;
        let length = read_end(&file, end)?;
        Ok(OpenJournal {
            length,
            file: Some(file),
        })
    }

    fn append_to_journal(&self, journal: OpenJournal, text: &[u8]) -> io::Result<()> {
        let file = journal.file.ok_or(io::ErrorKind::NotFound)?;
        if file.metadata()?.len() != journal.length {
            return Err(io::Error::other("another call has written to it"));
        }
        file.write_all_at(text, journal.length)
    }

    fn replace_journal(&self, text: &[u8]) -> io::Result<()> {
        let path = self.journal();
        let new = suffixed(&path, ".new");
        let replaced = create_new(&new, MODE)
            .and_then(|mut file| file.write_all(text))
            .and_then(|()| fs::rename(&new, &path));
        if replaced.is_err() {
            // A full disk is not to stay full for it.
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
        // Opened first, so that little can fail after the rename.
        let replaced = write_new(&new, text).and_then(|written| {
            let opened = open(folder).map_err(StoreError::at("cannot open", folder))?;
            if !lock.is_current() {
                return Err(lost_lock());
            }
            // Otherwise the file may be another call's, half-written.
            let there =
                fs::symlink_metadata(&new).and_then(|there| Ok((there, written.metadata()?)));
            match there {
                Ok((there, written)) if id(&there) == id(&written) => {}
                _ => return Err(lost_lock()),
            }
            if let Some(time) = aside {
                keep_aside(self, time);
            }
            fs::rename(&new, &path).map_err(StoreError::at("cannot put in place", &new))?;
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
        for left in self.of_version_0_2_0() {
            let _ = fs::remove_file(left);
        }
    }
}

/// Reads the last bytes of a regular file, as many as `end` has room for. Returns its length.
fn read_end(file: &File, end: &mut [u8]) -> io::Result<u64> {
    let meta = file.metadata()?;
    check_regular(&meta)?;
    let start = meta.len().checked_sub(end.len() as u64);
    file.read_exact_at(end, start.ok_or(io::ErrorKind::UnexpectedEof)?)?;
    Ok(meta.len())
}

/// Links a state that cannot be read to a name of its own, so that the path is never without a state; a folder, which cannot be linked,
/// is renamed. Where neither works it is lost, as nothing in it could be read.
fn keep_aside(paths: &Paths, time: &str) {
    let path = paths.state();
    let aside = suffixed(&path, &format!(".corrupt-{}", time.replace(':', "")));
    match fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_file() => {
            let _ = fs::hard_link(&path, &aside);
            // Others may have been able to read it.
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

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Lists the files beside `path` whose names begin with its own and whose remaining name `wanted` accepts.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_that_may_only_be_read_shows_its_end() {
        let root = std::env::temp_dir().join(format!("journal-end-{}", std::process::id()));
        let paths = Paths::new(Some(root.clone()), "azure-vnet-ipam");
        let journal = paths.journal();
        fs::create_dir_all(journal.parent().unwrap()).unwrap();
        fs::write(&journal, "base and end").unwrap();
        fs::set_permissions(&journal, Permissions::from_mode(0o400)).unwrap();
        let mut end = [0; 3];
        paths.read_journal_end(&mut end).unwrap();
        assert_eq!(&end, b"end");
        let too_short = paths.read_journal_end(&mut [0; 13]).unwrap_err();
        assert_eq!(too_short.kind(), io::ErrorKind::UnexpectedEof);
        if !rustix::process::geteuid().is_root() {
            let refused = paths.open_journal(&mut end).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        }
        fs::remove_dir_all(root).unwrap();
    }
}
