//! The files of a node on its disk.

use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::{LockError, StoreError};
use super::files::{Files, HeldLock, StateFile};
use super::lock::holder;
use super::store::MODE;
use crate::host::{
    self, LockOutcome, Paths, ReadOutcome, append_options, boot_now, check_regular, create_new,
    open, overwrite, read_bounded_with, wall_now, write_private,
};
use crate::ipam::Moment;

/// How many set-aside states are kept.
const SET_ASIDE: usize = 3;

/// The lock file, locked.
#[derive(Debug)]
struct LockFile {
    file: File,
    path: PathBuf,
}

impl HeldLock for LockFile {
    fn is_current(&self) -> bool {
        let (held, there) = (self.file.metadata(), fs::metadata(&self.path));
        let id = |file: &Metadata| (file.dev(), file.ino());
        matches!((held, there), (Ok(held), Ok(there)) if id(&held) == id(&there))
    }

    fn text(&self) -> Vec<u8> {
        let mut text = vec![0; 64];
        let length = self.file.read_at(&mut text, 0).unwrap_or(0);
        text.truncate(length);
        text
    }

    fn set_text(&self, text: &[u8]) {
        let _ = overwrite(&self.file, text);
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
        match host::lock(&path, wait) {
            Ok(LockOutcome::Held(file)) => Ok(Box::new(LockFile { file, path })),
            Ok(LockOutcome::TimedOut) => Err(LockError::Busy {
                holder: holder(self, &path),
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
            StateFile::LastGrant => self.last_grant_path(),
            StateFile::RebuildMark => self.rebuild_owed(),
            StateFile::BootMarker => self.boot_marker(),
            StateFile::OtherWriter => self.other_writer(),
        }
    }

    fn read(&self, file: StateFile, limit: usize, room: usize) -> io::Result<ReadOutcome> {
        read_bounded_with(&self.path(file), limit, room)
    }

    fn size(&self, file: StateFile) -> Option<u64> {
        let meta = fs::symlink_metadata(self.path(file)).ok()?;
        meta.is_file().then_some(meta.len())
    }

    fn exists(&self, file: StateFile) -> bool {
        self.path(file).exists()
    }

    fn overwrite(&self, file: StateFile, text: &[u8]) -> io::Result<()> {
        let opened = write_private(&self.path(file), text)?;
        match file {
            // Flushed, so that a power cut cannot undo it after the state was set aside.
            StateFile::RebuildMark => opened.sync_all(),
            _ => Ok(()),
        }
    }

    fn append(&self, file: StateFile, length: u64, text: &[u8]) -> io::Result<()> {
        let mut file = open_regular(&self.path(file))?;
        if file.metadata()?.len() != length {
            return Err(io::Error::other("somebody else has written to it"));
        }
        file.write_all(text)
    }

    fn truncate(&self, file: StateFile, length: u64) -> io::Result<()> {
        open_regular(&self.path(file))?.set_len(length)
    }

    fn replace(&self, file: StateFile, text: &[u8]) -> io::Result<()> {
        let path = self.path(file);
        let new = suffixed(&path, ".new");
        let mut file = create_new(&new, MODE)?;
        file.write_all(text)?;
        fs::rename(&new, &path)
    }

    fn remove(&self, file: StateFile) {
        let _ = fs::remove_file(self.path(file));
    }

    fn make_state_private(&self) {
        let path = self.state();
        if fs::metadata(&path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o777 != MODE)
        {
            // A read-only file system keeps it, which is no reason to fail.
            let _ = fs::set_permissions(&path, Permissions::from_mode(MODE));
        }
    }

    fn replace_state(&self, lock: &dyn HeldLock, text: &[u8]) -> Result<(), StoreError> {
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
                Ok((there, written)) if there.ino() == written.ino() => {}
                _ => return Err(lost_lock()),
            }
            fs::rename(&new, &path).map_err(StoreError::at("cannot put in place", &new))?;
            Ok(opened)
        });
        let replaced = replaced.map_err(|error| {
            // Only the holder of a newer lock removes the new file of this call, or replaces it.
            let kinds = [io::ErrorKind::NotFound, io::ErrorKind::AlreadyExists];
            let lock_was_lost =
                error.lock_was_lost || !lock.is_current() || kinds.contains(&error.source.kind());
            if !lock_was_lost {
                let _ = fs::remove_file(&new);
            }
            StoreError {
                lock_was_lost,
                ..error
            }
        });
        let error = StoreError::at("cannot flush", folder);
        replaced?.sync_all().map_err(|e| StoreError {
            is_in_place: true,
            ..error(e)
        })
    }

    fn set_state_aside(&self, time: &str) -> Result<PathBuf, StoreError> {
        let path = self.state();
        let name = |time: &str| suffixed(&path, &format!(".corrupt-{}", time.replace(':', "")));
        let aside = name(time);
        fs::rename(&path, &aside).map_err(StoreError::at("cannot set aside", &path))?;
        let kept = set_aside_before(self);
        let surplus = kept.len().saturating_sub(SET_ASIDE);
        for old in kept.iter().take(surplus) {
            let _ = fs::remove_file(old);
        }
        Ok(aside)
    }

    /// The original's temporary files: `azure-vnet-ipam.json` and digits. Nobody else writes while the lock is held.
    fn remove_leftovers(&self) {
        let digits = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
        for left in siblings(&self.state(), digits) {
            let _ = fs::remove_file(left);
        }
    }
}

/// Lists the states that were set aside, the oldest first.
pub fn set_aside_before(paths: &Paths) -> Vec<PathBuf> {
    let mut kept = siblings(&paths.state(), |rest| rest.starts_with(".corrupt-"));
    kept.sort_by(Ord::cmp);
    kept
}

/// Opens a file for appending; it must be a regular one.
fn open_regular(path: &Path) -> io::Result<File> {
    let file = append_options(MODE).open(path)?;
    check_regular(&file.metadata()?)?;
    Ok(file)
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
