//! The one place where files are opened (promise P9). A pipe or device in a file's place must not block a call: files are opened
//! without blocking, are used only when they are regular, and are read with a limit. Writers follow no symbolic link. And whether
//! a folder takes a new file.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::fs::{CWD, Mode, OFlags, openat, statvfs};
use rustix::io::{Errno, retry_on_intr};

use super::libc_calls::use_huge_pages;

/// The mode of new files: only root may read or lock them.
pub const PRIVATE: u32 = 0o600;

/// The outcome of reading a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The file does not exist.
    Missing,
    /// Its bytes.
    Read(Vec<u8>),
    /// The file is larger than the limit.
    TooLarge,
}

impl ReadOutcome {
    /// Returns the bytes.
    ///
    /// # Errors
    /// The file is missing or too large.
    pub fn required(self) -> io::Result<Vec<u8>> {
        match self {
            ReadOutcome::Read(bytes) => Ok(bytes),
            ReadOutcome::Missing => Err(io::ErrorKind::NotFound.into()),
            ReadOutcome::TooLarge => Err(io::ErrorKind::FileTooLarge.into()),
        }
    }
}

/// Reads at most `limit` bytes of a file.
///
/// # Errors
/// The file exists but cannot be read.
pub fn read_bounded(path: &Path, limit: usize) -> io::Result<ReadOutcome> {
    read_bounded_with(path, limit, 0)
}

/// Like [`read_bounded`], with spare capacity for `room` more bytes.
///
/// # Errors
/// As [`read_bounded`].
pub fn read_bounded_with(path: &Path, limit: usize, room: usize) -> io::Result<ReadOutcome> {
    read_opened(open(path), limit, room)
}

/// Like [`read_bounded`], for a file in a folder that others may write to, where a link could lead to any file.
///
/// # Errors
/// As [`read_bounded`], or it is a link.
pub fn read_no_link(path: &Path, limit: usize) -> io::Result<ReadOutcome> {
    read_opened(open_with(path, OFlags::NOFOLLOW, 0), limit, 0)
}

fn read_opened(opened: io::Result<File>, limit: usize, room: usize) -> io::Result<ReadOutcome> {
    let file = match opened {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(ReadOutcome::Missing),
        Err(e) => return Err(e),
    };
    let meta = file.metadata()?;
    if !meta.is_file() && !meta.is_dir() {
        return Err(not_regular());
    }
    let length = usize::try_from(meta.len()).unwrap_or(usize::MAX);
    if meta.is_file() && length > limit {
        return Ok(ReadOutcome::TooLarge);
    }
    // Files of the kernel have a length of 0, and tell their end only by an empty read.
    let enough = if length > 0 { length } else { usize::MAX };
    let bytes = read_until(&file, length + room, limit, enough)?;
    Ok(if bytes.len() > limit {
        ReadOutcome::TooLarge
    } else {
        ReadOutcome::Read(bytes)
    })
}

/// Reads a whole text file of the kernel or of this program.
///
/// # Errors
/// The file is missing, cannot be read, is not UTF-8, or is larger than 4 MiB.
pub fn read_text(path: &Path) -> io::Result<String> {
    const LIMIT: usize = 4 << 20;
    let bytes = read_bounded(path, LIMIT)?.required()?;
    String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Opens a folder or a network namespace without blocking, whatever is in its place.
///
/// # Errors
/// It is missing or may not be opened.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::RDONLY, 0)
}

/// Opens a file without blocking, whatever is in its place; a new one gets this mode. Unless it is new, call [`check_regular`] next.
///
/// # Errors
/// The system refuses.
pub fn open_with(path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Not `open`, behind which musl sets FD_CLOEXEC once more: nine system calls of a DEL.
    let opened = retry_on_intr(|| openat(CWD, path, flags, Mode::from_raw_mode(mode)));
    Ok(opened?.into())
}

/// What a file is opened with to be written.
pub const WRITE: OFlags = OFlags::WRONLY.union(OFlags::NOFOLLOW);

/// What a lock file is opened with. Links are followed, as other programs open the same file.
pub const LOCK: OFlags = OFlags::RDWR.union(OFlags::CREATE);

/// Opens a file, and makes its folder when that is missing.
///
/// # Errors
/// The system refuses.
pub fn open_in_new_folder(path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
    // Somebody may remove the folder between the two steps.
    const TRIES: usize = 20;
    for _ in 1..TRIES {
        match open_with(path, flags, mode) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let folder = path.parent().unwrap_or(path);
        let made = DirBuilder::new().recursive(true).mode(0o755).create(folder);
        match made {
            Err(e) if e.kind() != io::ErrorKind::NotFound && !folder.is_dir() => return Err(e),
            _ => {}
        }
    }
    open_with(path, flags, mode)
}

/// Creates a file without a name in a folder. It is gone when it is closed.
///
/// # Errors
/// The system refuses, or knows no such files there.
pub fn create_nameless(folder: &Path) -> io::Result<File> {
    open_with(folder, OFlags::WRONLY | OFlags::TMPFILE, PRIVATE)
}

/// Checks that an open file is a regular one.
///
/// # Errors
/// It is not a regular file.
pub fn check_regular(meta: &fs::Metadata) -> io::Result<()> {
    match meta.is_file() {
        true => Ok(()),
        false => Err(not_regular()),
    }
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

/// Reads a file from its current position to its end, or until there are more than `limit` bytes. With the `expected` length this
/// takes two system calls; the standard library takes six.
///
/// # Errors
/// It cannot be read.
pub fn read_up_to(file: impl AsFd, expected: usize, limit: usize) -> io::Result<Vec<u8>> {
    read_until(file, expected, limit, usize::MAX)
}

/// As [`read_up_to`], but does not ask whether there is more when it has `enough` bytes.
fn read_until(
    file: impl AsFd,
    expected: usize,
    limit: usize,
    enough: usize,
) -> io::Result<Vec<u8>> {
    /// Files of the kernel have a length of 0.
    const LEAST: usize = 512;
    let mut bytes = Vec::with_capacity(expected.max(LEAST) + 1);
    use_huge_pages(bytes.spare_capacity_mut());
    while bytes.len() <= limit && bytes.len() < enough {
        if bytes.len() == bytes.capacity() {
            bytes.reserve(bytes.len());
        }
        let read = retry_on_intr(|| rustix::io::read(&file, spare_capacity(&mut bytes)))?;
        if read == 0 {
            break;
        }
    }
    Ok(bytes)
}

/// Replaces the contents of a small file in place, by one write and, if it was longer, a truncation. A kill in between leaves
/// the end of the old text behind the new one.
///
/// # Errors
/// It is not a regular file, or cannot be written.
pub fn overwrite(file: &File, text: &[u8]) -> io::Result<()> {
    let before = file.metadata()?;
    check_regular(&before)?;
    file.write_all_at(text, 0)?;
    let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
    if before.len() > length {
        file.set_len(length)?;
    }
    Ok(())
}

/// Replaces the file at `path` atomically, with these permission bits whatever the umask. The text is written to
/// `<path>.<pid>.new`, which is then renamed. It is not flushed to the disk: after a power cut the file may be empty.
///
/// # Errors
/// The system refuses, or `path` is not a regular file. Links are not followed, as in a folder that everybody may write to they
/// could lead to any file. The old file stays then, and the new one is removed.
pub fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(not_regular());
    }
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(new);
    // A killed process with the same ID may have left one.
    let mut file = create_new(&new, mode)?;
    let replaced = file
        .write_all(text)
        .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&new);
    }
    replaced
}

/// Creates a new file, and removes one that a killed call left.
///
/// # Errors
/// The system refuses.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    let create = || open_with(path, WRITE | OFlags::CREATE | OFlags::EXCL, mode);
    match create() {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path).and_then(|()| create())
        }
        opened => opened,
    }
}

/// Returns why a file or folder that exists may not be written, if so. For root, "permission denied" means that it is immutable, or
/// that a security module forbids it.
pub fn write_refusal(path: &Path) -> Option<io::Error> {
    let error = rustix::fs::access(path, rustix::fs::Access::WRITE_OK).err()?;
    (error != rustix::io::Errno::NOENT).then(|| error.into())
}

/// Returns the system's words for an error, without the number that Rust appends.
pub fn io_reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((io_reason, _)) => io_reason.to_lowercase(),
        None => text,
    }
}

/// The space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The free space in bytes.
    pub bytes: u64,
    /// The number of files that it can still take; `None` where the file system sets no limit.
    pub files: Option<u64>,
}

/// Checks that a file of this length could be written into a folder: writes one without a name, which is gone when this returns.
///
/// # Errors
/// The system refuses: the file system is full or read-only, or this user may not write there.
pub fn check_room(folder: &Path, length: usize) -> io::Result<()> {
    const PIECE: [u8; 4096] = [b' '; 4096];
    let mut file = match create_nameless(folder) {
        Ok(file) => file,
        // The file system, or the kernel, knows no files without a name.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
            return check_numbers(folder, length);
        }
        Err(e) => return Err(e),
    };
    let mut left = length;
    while left > 0 {
        let piece = PIECE.get(..left.min(PIECE.len())).unwrap_or(&PIECE);
        file.write_all(piece)?;
        left -= piece.len();
    }
    Ok(())
}

/// Checks the numbers of the file system, which a quota may make too good.
fn check_numbers(folder: &Path, length: usize) -> io::Result<()> {
    let room = room(folder)?;
    match room.bytes < length as u64 || room.files == Some(0) {
        true => Err(Errno::NOSPC.into()),
        false => Ok(()),
    }
}

/// Returns the space that the file system of a folder has left for this user.
///
/// # Errors
/// The system refuses.
pub fn room(folder: &Path) -> io::Result<Room> {
    let found = statvfs(folder)?;
    Ok(Room {
        bytes: found.f_bavail.saturating_mul(found.f_frsize),
        files: (found.f_files > 0).then_some(found.f_favail),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_up_to_exceeds_expected_length_but_not_limit() {
        let path = std::env::temp_dir().join(format!("up-to-{}", std::process::id()));
        let text = b"0123456789".repeat(500);
        fs::write(&path, &text).unwrap();
        let read =
            |expected, limit| read_up_to(File::open(&path).unwrap(), expected, limit).unwrap();
        assert_eq!(read(0, 10_000), text);
        assert_eq!(read(5000, 5000), text);
        assert!(read(0, 4000).len() > 4000, "it tells that there is more");
        fs::remove_file(&path).unwrap();
    }

    /// A folder of its own, and the names of what is in it.
    fn folder(name: &str) -> (PathBuf, impl Fn() -> Vec<String>) {
        let folder = std::env::temp_dir().join(format!("replace-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let looked_at = folder.clone();
        let names = move || {
            let entries = fs::read_dir(&looked_at).unwrap();
            let mut names: Vec<_> = entries
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        (folder, names)
    }

    #[test]
    fn replace_is_atomic_and_sets_the_mode() {
        let (folder, names) = folder("whole");
        let path = folder.join("x.prom");
        let left_over = folder.join(format!("x.prom.{}.new", std::process::id()));
        fs::write(left_over, "of a killed process with the same ID").unwrap();
        for (text, mode) in [("long text", 0o644), ("short", 0o600), ("", 0o644)] {
            let before = File::open(&path);
            replace(&path, text.as_bytes(), mode).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            let meta = fs::metadata(&path).unwrap();
            assert_eq!(meta.permissions().mode() & 0o7777, mode);
            if let Ok(before) = before {
                assert!(
                    before.metadata().unwrap().len() > meta.len(),
                    "not in place"
                );
            }
            assert_eq!(names(), ["x.prom"]);
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn replace_refuses_what_is_not_a_regular_file() {
        let (folder, names) = folder("other");
        fs::create_dir(folder.join("folder")).unwrap();
        fs::write(folder.join("target"), "old").unwrap();
        std::os::unix::fs::symlink(folder.join("target"), folder.join("link")).unwrap();
        for name in ["folder", "link"] {
            let error = replace(&folder.join(name), b"new", 0o644).unwrap_err();
            assert_eq!(io_reason(&error), "it is not a regular file");
        }
        let error = replace(&folder.join("missing/x"), b"new", 0o644).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read_to_string(folder.join("target")).unwrap(), "old");
        assert_eq!(names(), ["folder", "link", "target"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_takes_a_file_and_keeps_none() {
        let folder = std::env::temp_dir().join(format!("room-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        check_room(&folder, 10_000).unwrap();
        check_numbers(&folder, 10_000).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        assert!(room(&folder).unwrap().bytes > 10_000);
        assert!(check_numbers(&folder, usize::MAX).is_err());
        std::fs::remove_dir(&folder).unwrap();
        let gone = check_room(&folder, 1).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
