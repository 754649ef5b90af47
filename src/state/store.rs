//! Reading and replacing the state file (promise P5: the whole old one or the whole new one).

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::lock::Locked;
use super::{Document, Own, Stamp};
use crate::host::{Bounded, Paths, boot_id, boot_now, read_bounded, words};

/// Larger states than this are not read (promise P9). 65,536 addresses take 7 MB.
const LIMIT: usize = 64 << 20;

/// Only root reads it.
const MODE: u32 = 0o600;

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
}

impl StoreError {
    fn at<'a>(step: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> StoreError + 'a {
        move |source| StoreError {
            step,
            path: path.to_owned(),
            source,
        }
    }
}

/// Reads the state. Reading needs no lock, since the file is only ever replaced as a whole; what is to be written back must
/// be read under it.
///
/// # Errors
/// The file is there, but the system does not let it be read.
pub fn load(paths: &Paths) -> Result<Loaded, StoreError> {
    let path = paths.state();
    let bytes = match read_bounded(&path, LIMIT) {
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
            });
        }
    };
    if bytes.is_empty() {
        return Ok(Loaded::Read(Box::default()));
    }
    Ok(
        match Document::parse(&bytes, boot_id(paths).as_deref(), boot_now()) {
            Ok(document) => Loaded::Read(Box::new(document)),
            Err(error) => Loaded::Corrupt(error.to_string()),
        },
    )
}

impl Locked<'_> {
    /// Reads the state. One that others may read is made private, as it becomes anyway when it is next written.
    ///
    /// # Errors
    /// As [`load`].
    pub fn load(&self) -> Result<Loaded, StoreError> {
        let path = self.paths.state();
        if fs::metadata(&path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o777 != MODE)
        {
            // On a read-only file system it stays as it is, which is no reason to stop.
            let _ = fs::set_permissions(&path, Permissions::from_mode(MODE));
        }
        load(self.paths)
    }

    /// Replaces the state: written beside it, flushed to the disk, put in its place, and the folder flushed too.
    ///
    /// # Errors
    /// The system refuses one of these; the old state is in place then, unless flushing the folder failed.
    pub fn save(&mut self, document: &mut Document, stamp: Stamp<'_>) -> Result<(), StoreError> {
        if !matches!(document.own, Own::Ours) {
            self.remove_left_overs();
        }
        let text = document.print(stamp);
        let path = self.paths.state();
        let new = suffixed(&path, ".new");
        let written = write_new(&new, &text).and_then(|()| {
            fs::rename(&new, &path).map_err(StoreError::at("cannot put in place", &new))
        });
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        let flushed = File::open(folder).and_then(|folder| folder.sync_all());
        flushed.map_err(StoreError::at("cannot flush", folder))
    }

    /// Puts away a state that cannot be read, and leaves a mark that what it may have held is not known. Tells where it is
    /// now.
    ///
    /// # Errors
    /// The system refuses; the state is in its place then.
    pub fn set_aside(&mut self, time: &str) -> Result<PathBuf, StoreError> {
        let mark = self.paths.rebuild_owed();
        File::create(&mark)
            .and_then(|f| f.sync_all())
            .map_err(StoreError::at("cannot make", &mark))?;
        let path = self.paths.state();
        let name = |time: &str| suffixed(&path, &format!(".corrupt-{}", time.replace(':', "")));
        let aside = name(time);
        fs::rename(&path, &aside).map_err(StoreError::at("cannot set aside", &path))?;
        let mut kept = siblings(&path, |rest| rest.starts_with(".corrupt-"));
        kept.sort();
        let surplus = kept.len().saturating_sub(SET_ASIDE);
        for old in kept.iter().take(surplus) {
            let _ = fs::remove_file(old);
        }
        Ok(aside)
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

/// Whether a state was lost and not made anew since.
pub fn is_rebuild_owed(paths: &Paths) -> bool {
    paths.rebuild_owed().exists()
}

/// Whether no address was given yet since the node started.
pub fn is_first_use(paths: &Paths, boot_id: Option<&str>) -> bool {
    !fs::read_to_string(paths.first_use()).is_ok_and(|of| of == boot_id.unwrap_or_default())
}

/// Notes that an address was given, for the time when the state is gone. The note outlives the state but not the boot.
///
/// # Errors
/// The system refuses.
pub fn note_first_use(paths: &Paths, boot_id: Option<&str>) -> Result<(), StoreError> {
    if !is_first_use(paths, boot_id) {
        return Ok(());
    }
    let path = paths.first_use();
    fs::write(&path, boot_id.unwrap_or_default()).map_err(StoreError::at("cannot write", &path))
}

fn write_new(new: &Path, text: &[u8]) -> Result<(), StoreError> {
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
    file.sync_all().map_err(StoreError::at("cannot flush", new))
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
