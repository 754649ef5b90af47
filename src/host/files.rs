//! Opens, reads and replaces files. All files are opened here (promise P9).
//!
//! A pipe or device in the place of a file must not block a call. So files are opened without
//! blocking, are used only if they are regular, and are read with a limit. Writers follow no symbolic
//! link.
//!
//! This file also checks whether a folder can take a new file.

use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::fs::{
    Access, AtFlags, CWD, Mode, OFlags, ResolveFlags, StatVfs, StatVfsMountFlags, StatxAttributes,
    StatxFlags, access, openat, openat2, statvfs, statx,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::geteuid;

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

/// Like [`read_bounded`], but follows no link. Meant for folders that others may write to, where a
/// link could lead to any file.
///
/// # Errors
/// As [`read_bounded`], or the file is a link.
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
    // The kernel reports a length of 0 for files such as those in /proc. Only an empty read shows
    // their end.
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

/// Opens a folder or a network namespace for reading. It does not block, even if a pipe is in its
/// place.
///
/// # Errors
/// It is missing or may not be opened.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::RDONLY, 0)
}

/// Opens a file. It does not block, even if a pipe is in its place. A new file gets this mode. For a
/// file that may have existed before, call [`check_regular`] next.
///
/// # Errors
/// The system refuses.
pub fn open_with(path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
    let always = OFlags::NONBLOCK | OFlags::CLOEXEC;
    let permissions = Mode::from_raw_mode(mode);
    // After `open`, musl would set FD_CLOEXEC again, which is a second system call for each file.
    let file = retry_on_intr(|| openat(CWD, path, flags | always, permissions))?;
    Ok(file.into())
}

/// Reads the metadata of a file below another root, such as that of a process in another mount namespace. Links are followed below that
/// root.
///
/// # Errors
/// It is missing, or the system refuses.
pub fn metadata_below(root: &Path, path: &Path) -> io::Result<Metadata> {
    let root = open_with(root, OFlags::PATH, 0)?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let open = || openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
    File::from(retry_on_intr(open)?).metadata()
}

/// The flags to open a file for writing.
pub const WRITE: OFlags = OFlags::WRONLY.union(OFlags::NOFOLLOW);

/// The flags to open a lock file. Links are followed, because other programs follow them too, and
/// all must lock the same file.
pub const LOCK: OFlags = OFlags::RDWR.union(OFlags::CREATE);

/// Opens a file, and creates its folder when that is missing.
///
/// # Errors
/// The system refuses.
pub fn open_in_new_folder(path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
    // Another process may remove the folder after it was created and before the file is opened.
    const TRIES: usize = 20;
    for _ in 1..TRIES {
        match open_with(path, flags, mode) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let folder = path.parent().unwrap_or(path);
        if let Err(e) = DirBuilder::new().recursive(true).mode(0o755).create(folder)
            && e.kind() != io::ErrorKind::NotFound
            && !folder.is_dir()
        {
            return Err(e);
        }
    }
    open_with(path, flags, mode)
}

/// Checks that an open file is a regular one.
///
/// # Errors
/// It is not a regular file.
pub fn check_regular(meta: &fs::Metadata) -> io::Result<()> {
    if meta.is_file() {
        Ok(())
    } else {
        Err(not_regular())
    }
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

/// Reads a file from its current position to its end, or until there are more than `limit` bytes.
/// The buffer begins with room for `expected` bytes.
///
/// # Errors
/// It cannot be read.
pub fn read_up_to(file: impl AsFd, expected: usize, limit: usize) -> io::Result<Vec<u8>> {
    read_until(file, expected, limit, usize::MAX)
}

/// Like [`read_up_to`], but stops at `enough` bytes without checking whether there are more.
fn read_until(
    file: impl AsFd,
    expected: usize,
    limit: usize,
    enough: usize,
) -> io::Result<Vec<u8>> {
    /// Files in /proc have a length of 0.
    const LEAST: usize = 512;
    let mut bytes = Vec::with_capacity(expected.max(LEAST) + 1);
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

/// Replaces the contents of a small file in place: writes the text, and then cuts off the rest of a
/// longer old text. If the process is killed in between, that rest stays.
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

/// Replaces the file at `path` atomically. It gets these permission bits, independent of the umask.
///
/// The text is written to `<path>.<pid>.new`, which is then renamed. It is not flushed to the disk,
/// so after a power cut the file may be empty.
///
/// # Errors
/// The system refuses, or `path` is not a regular file. Links are not followed: in a folder that
/// everybody may write to, a link could lead to any file. After an error the old file is in place,
/// and the new one is removed.
pub fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(not_regular());
    }
    let mut new_name = path.as_os_str().to_owned();
    new_name.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(new_name);
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

/// Creates a new file. Replaces a file of the same name, which a killed process may have left.
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

/// Returns why this user may not write a file or folder; `None` if it may, or if nothing is there.
/// For root, "permission denied" means that the file is immutable, or that a security module forbids
/// the access.
pub fn write_refusal(path: &Path) -> Option<io::Error> {
    match access(path, Access::WRITE_OK) {
        Ok(()) | Err(Errno::NOENT) => None,
        Err(error) => Some(error.into()),
    }
}

/// Returns why a file can be neither replaced nor removed; `None` if it can, or if nothing is there.
/// Such a file is immutable or append-only, or something is mounted on it.
pub fn replace_refusal(path: &Path) -> Option<io::Error> {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty()).ok()?;
    let has = |attribute| found.stx_attributes.intersects(attribute);
    if has(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND) {
        Some(Errno::PERM.into())
    } else if has(StatxAttributes::MOUNT_ROOT) {
        Some(Errno::BUSY.into())
    } else {
        None
    }
}

/// Returns the system's words for an error, without the number that Rust appends.
pub fn io_reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((reason, _)) => reason.to_lowercase(),
        None => text,
    }
}

/// Returns whether programs on the file system of this path must not be executed.
pub fn is_noexec(path: &Path) -> bool {
    statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

/// The free space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The free space in bytes.
    pub bytes: u64,
    /// The number of files that it can still take; `None` where the file system sets no limit.
    pub files: Option<u64>,
}

/// The space that a short text takes, in bytes: one block of most file systems.
pub const BLOCK: usize = 4096;

/// Checks that a new file of this length could be written into a folder. Writes nothing, so it does
/// not see limits that the file system does not report, such as the quota of a user.
///
/// # Errors
/// The file system is full or read-only, this user may not write there, or it is not a folder.
pub fn check_room(folder: &Path, length: usize) -> io::Result<()> {
    if !fs::metadata(folder)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    access(folder, Access::WRITE_OK | Access::EXEC_OK)?;
    let found = statvfs(folder)?;
    if found.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Err(Errno::ROFS.into());
    }
    let room = room_for(&found, geteuid().is_root());
    let needed = u64::try_from(length).unwrap_or(u64::MAX);
    if room.bytes < needed || room.files == Some(0) {
        return Err(Errno::NOSPC.into());
    }
    Ok(())
}

/// Returns the space that the file system of a folder has left for this user.
///
/// # Errors
/// The system refuses.
pub fn room(folder: &Path) -> io::Result<Room> {
    Ok(room_for(&statvfs(folder)?, geteuid().is_root()))
}

/// Returns the space that a file system has left for root or for other users. Some file systems
/// reserve blocks that only root may fill.
fn room_for(found: &StatVfs, is_root: bool) -> Room {
    let blocks = if is_root {
        found.f_bfree
    } else {
        found.f_bavail
    };
    let has_limited_files = found.f_files > 0;
    Room {
        bytes: blocks.saturating_mul(found.f_frsize),
        files: has_limited_files.then_some(found.f_favail),
    }
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

    /// Creates an empty folder. Returns it, and a function that lists the names in it.
    fn folder(name: &str) -> (PathBuf, impl Fn() -> Vec<String>) {
        let folder = std::env::temp_dir().join(format!("replace-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let listed = folder.clone();
        let names = move || {
            let entries = fs::read_dir(&listed).unwrap();
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
    fn check_room_writes_nothing_and_refuses_what_does_not_fit() {
        let (folder, names) = folder("room");
        check_room(&folder, 10_000).unwrap();
        assert!(names().is_empty());
        assert!(room(&folder).unwrap().bytes > 10_000);
        let too_long = check_room(&folder, usize::MAX).unwrap_err();
        assert_eq!(too_long.kind(), io::ErrorKind::StorageFull);
        let file = folder.join("file");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o700)).unwrap();
        let not_a_folder = check_room(&file, 1).unwrap_err();
        assert_eq!(not_a_folder.kind(), io::ErrorKind::NotADirectory);
        fs::remove_dir_all(&folder).unwrap();
        let missing = check_room(&folder, 1).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn room_depends_on_user_and_has_no_limit_of_files_without_inodes() {
        let mut found = statvfs("/").unwrap();
        found.f_frsize = 4096;
        found.f_bfree = 7;
        found.f_bavail = 3;
        found.f_files = 100;
        found.f_favail = 5;
        let expected_for_root = Room {
            bytes: 7 * 4096,
            files: Some(5),
        };
        let expected_for_others = Room {
            bytes: 3 * 4096,
            files: Some(5),
        };
        assert_eq!(room_for(&found, true), expected_for_root);
        assert_eq!(room_for(&found, false), expected_for_others);
        found.f_files = 0;
        assert_eq!(room_for(&found, true).files, None);
    }
}
