//! Reading and replacing the state file (promise P5: the whole old one or the whole new one).

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::document::ROOM;
use super::lock::Locked;
use super::{Document, Own, Stamp};
use crate::host::{Bounded, Paths, boot_now, overwrite, read_bounded_with, words};
use crate::sorting::sort_by;

/// Larger states than this are not read (promise P9). 65,536 addresses take 7 MB.
const LIMIT: usize = 64 << 20;

/// The mode of the state: only root reads it.
pub const MODE: u32 = 0o600;

/// How many states that could not be read are kept.
const SET_ASIDE: usize = 3;

/// What the state file was like.
#[derive(Debug)]
pub enum Loaded {
    /// It is not there.
    Missing,
    /// A state; an empty file reads as an empty one.
    Read(Box<Document>),
    /// It is there, but no state.
    Corrupt(String),
}

/// What went wrong with the file itself.
#[derive(Debug, thiserror::Error)]
#[error("{step} {}: {}", path.display(), words(source))]
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
    fn at<'a>(step: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> StoreError + 'a {
        move |source| StoreError {
            step,
            path: path.to_owned(),
            source,
            is_in_place: false,
            lock_was_lost: false,
        }
    }
}

/// Reads the state. Reading needs no lock, since the file is only ever replaced as a whole; what is to be written back must
/// be read under it.
///
/// # Errors
/// The file is there, but the system does not let it be read.
pub fn load(paths: &Paths, boot_id: Option<&str>) -> Result<Loaded, StoreError> {
    let path = paths.state();
    let bytes = match read_bounded_with(&path, LIMIT, ROOM) {
        Ok(Bounded::Read(bytes)) => bytes,
        Ok(Bounded::Missing) => return Ok(Loaded::Missing),
        Ok(Bounded::TooLarge) => {
            return Ok(Loaded::Corrupt(format!("it is larger than {LIMIT} bytes")));
        }
        Err(e) if e.kind() == io::ErrorKind::IsADirectory => {
            return Ok(Loaded::Corrupt("it is a folder".to_owned()));
        }
        Err(source) => {
            return Err(StoreError {
                step: "cannot read",
                path,
                source,
                is_in_place: false,
                lock_was_lost: false,
            });
        }
    };
    if bytes.is_empty() {
        return Ok(Loaded::Read(Box::default()));
    }
    Ok(match Document::parse(&bytes, boot_id, boot_now()) {
        Ok(mut document) => {
            document.reuse(bytes);
            Loaded::Read(Box::new(document))
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
        let path = self.paths.state();
        if fs::metadata(&path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o777 != MODE)
        {
            // On a read-only file system it stays as it is, which is no reason to stop.
            let _ = fs::set_permissions(&path, Permissions::from_mode(MODE));
        }
        load(self.paths, boot_id)
    }

    /// Replaces the state: written beside it, flushed to the disk, put in its place, and the folder flushed too.
    ///
    /// # Errors
    /// The system refuses one of these, or the lock was lost; the old state is in place then, unless flushing the folder failed.
    pub fn save(&mut self, document: &mut Document, stamp: Stamp<'_>) -> Result<(), StoreError> {
        if !matches!(document.own, Own::Ours) {
            self.remove_left_overs();
        }
        let text = document.print(stamp);
        let path = self.paths.state();
        if text.len() > LIMIT {
            let source = io::Error::other(format!("it would be larger than {LIMIT} bytes"));
            return Err(StoreError::at("cannot write", &path)(source));
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        let new = suffixed(&path, ".new");
        // The folder is opened before anything is in place, so that little is left to go wrong after.
        let replaced = write_new(&new, &text).and_then(|written| {
            let opened = File::open(folder).map_err(StoreError::at("cannot open", folder))?;
            self.check_lock()?;
            // That of another call would be half-written.
            let there =
                fs::symlink_metadata(&new).and_then(|there| Ok((there, written.metadata()?)));
            match there {
                Ok((there, written)) if there.ino() == written.ino() => {}
                _ => return Err(self.lost_lock()),
            }
            fs::rename(&new, &path).map_err(StoreError::at("cannot put in place", &new))?;
            Ok(opened)
        });
        let replaced = replaced.map_err(|error| {
            // Only the holder of a new lock takes away the new file of this call, or puts its own there.
            let kinds = [io::ErrorKind::NotFound, io::ErrorKind::AlreadyExists];
            let lock_was_lost =
                error.lock_was_lost || !self.is_current() || kinds.contains(&error.source.kind());
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

    /// Puts away a state that cannot be read, and leaves a mark that what it may have held is not known. Tells where it is
    /// now.
    ///
    /// # Errors
    /// The system refuses; the state is in its place then.
    pub fn set_aside(&mut self, time: &str) -> Result<PathBuf, StoreError> {
        self.check_lock()?;
        let mark = self.paths.rebuild_owed();
        File::create(&mark)
            .and_then(|f| f.sync_all())
            .map_err(StoreError::at("cannot make", &mark))?;
        let path = self.paths.state();
        let name = |time: &str| suffixed(&path, &format!(".corrupt-{}", time.replace(':', "")));
        let aside = name(time);
        fs::rename(&path, &aside).map_err(StoreError::at("cannot set aside", &path))?;
        let kept = set_aside_before(self.paths);
        let surplus = kept.len().saturating_sub(SET_ASIDE);
        for old in kept.iter().take(surplus) {
            let _ = fs::remove_file(old);
        }
        Ok(aside)
    }

    fn check_lock(&self) -> Result<(), StoreError> {
        match self.is_current() {
            true => Ok(()),
            false => Err(self.lost_lock()),
        }
    }

    fn lost_lock(&self) -> StoreError {
        let path = self.paths.lock();
        let gone = io::Error::other("it was removed while it was held");
        StoreError {
            lock_was_lost: true,
            ..StoreError::at("cannot go on with", &path)(gone)
        }
    }

    /// Removes what killed calls of the original left half-written (`azure-vnet-ipam.json` and digits); ours always has the
    /// same name. Nobody else writes while the lock is held.
    fn remove_left_overs(&self) {
        let digits = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
        for left in siblings(&self.paths.state(), digits) {
            let _ = fs::remove_file(left);
        }
    }
}

/// The states that could not be read and were set aside, the oldest first.
pub fn set_aside_before(paths: &Paths) -> Vec<PathBuf> {
    let mut kept = siblings(&paths.state(), |rest| rest.starts_with(".corrupt-"));
    sort_by(&mut kept, Ord::cmp);
    kept
}

/// Whether a state was lost and not rebuilt since.
pub fn is_rebuild_owed(paths: &Paths) -> bool {
    paths.rebuild_owed().exists()
}

/// Which address was the last to be given since the node started: the generation of its claim, kept beside the state for the
/// time when that is gone or an old copy of it was put back. `None` when none was given in this boot.
pub fn last_use(paths: &Paths, boot_id: Option<&str>) -> Option<u64> {
    let text = match fs::read_to_string(paths.last_use()) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // Where the whole folder has gone, this is still there, and tells nothing but that some were given.
            let marker = fs::read_to_string(paths.boot_marker()).ok()?;
            return is_same_boot(id(&marker), boot_id).then_some(0);
        }
        // Whatever it says, it is there.
        Err(_) => return Some(0),
    };
    match text.split_once(' ') {
        Some((generation, of)) if is_same_boot(id(of), boot_id) => {
            Some(generation.parse().unwrap_or(0))
        }
        Some(_) => None,
        None => Some(0),
    }
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
pub fn note_boot(paths: &Paths, boot_id: Option<&str>) -> Result<(), StoreError> {
    let path = paths.boot_marker();
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(MODE)
        .open(&path);
    file.and_then(|mut file| file.write_all(boot_id.unwrap_or_default().as_bytes()))
        .map_err(StoreError::at("cannot write", &path))
}

/// Notes that an address is about to be given.
///
/// # Errors
/// The system refuses.
pub fn note_use(paths: &Paths, boot_id: Option<&str>, generation: u64) -> Result<(), StoreError> {
    let path = paths.last_use();
    // Of the same length every time, so that nothing of the last one is left behind.
    let text = format!("{generation:020} {}", boot_id.unwrap_or_default());
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(MODE)
        .open(&path);
    file.and_then(|file| overwrite(&file, text.as_bytes()))
        .map_err(StoreError::at("cannot write", &path))
}

fn write_new(new: &Path, text: &[u8]) -> Result<File, StoreError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(MODE);
    let file = match options.open(new) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            // A killed call left it.
            fs::remove_file(new).and_then(|()| options.open(new))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let folder = new.parent().unwrap_or(Path::new("/"));
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(folder)
                .and_then(|()| options.open(new))
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

/// The files beside `path` whose names begin with its own, where `wanted` likes the rest of the name.
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
