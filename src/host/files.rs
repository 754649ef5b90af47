//! The one place where files are opened (promise P9). Nothing that stands in a file's place keeps a call waiting: files are opened
//! without blocking, are used only when they are regular, and are read with a bound. Who writes follows no link in a file's place.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::io::retry_on_intr;

/// The mode of new files: nobody else is to read or lock them.
const PRIVATE: u32 = 0o600;

/// What became of reading a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// It is not there.
    Missing,
    /// Its bytes.
    Read(Vec<u8>),
    /// It is larger than the bound.
    TooLarge,
}

/// Reads at most `limit` bytes of a file.
///
/// # Errors
/// It is there but cannot be read.
pub fn read_bounded(path: &Path, limit: usize) -> io::Result<ReadOutcome> {
    read_bounded_with(path, limit, 0)
}

/// The same, with so much room behind the bytes.
///
/// # Errors
/// As [`read_bounded`].
pub fn read_bounded_with(path: &Path, limit: usize, room: usize) -> io::Result<ReadOutcome> {
    read_opened(open(path), limit, room)
}

/// The same, of a file in a folder that others may write to: a link there leads to files of others.
///
/// # Errors
/// As [`read_bounded`], or it is a link.
pub fn read_no_link(path: &Path, limit: usize) -> io::Result<ReadOutcome> {
    let mut options = File::options();
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    read_opened(options.read(true).custom_flags(flags).open(path), limit, 0)
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
    let expected = usize::try_from(meta.len()).unwrap_or(limit).min(limit);
    let bytes = read_up_to(&file, expected + room, limit)?;
    Ok(if bytes.len() > limit {
        ReadOutcome::TooLarge
    } else {
        ReadOutcome::Read(bytes)
    })
}

/// Reads a text of the kernel's or of ours, as a whole.
///
/// # Errors
/// It is not there, cannot be read, is not text, or is larger than any such text.
pub fn read_text(path: &Path) -> io::Result<String> {
    const LIMIT: usize = 4 << 20;
    match read_bounded(path, LIMIT)? {
        ReadOutcome::Read(bytes) => {
            String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
        }
        ReadOutcome::Missing => Err(io::ErrorKind::NotFound.into()),
        ReadOutcome::TooLarge => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// Opens what is not read as a file: a folder, or a network namespace. Whatever else it is, it does not keep the call waiting.
///
/// # Errors
/// It is not there or may not be opened.
pub fn open(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
}

/// How files of ours are opened for writing; new ones get this mode. To be followed by [`check_regular`], unless the file is new.
pub fn write_options(mode: u32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .mode(mode)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
    options
}

/// The same, at the end of what is there.
pub fn append_options(mode: u32) -> OpenOptions {
    let mut options = write_options(mode);
    options.append(true);
    options
}

/// How lock files are opened, which others open as well: through a link, too.
pub fn lock_options() -> OpenOptions {
    let mut options = write_options(PRIVATE);
    options.read(true).create(true).truncate(false);
    options.custom_flags(libc::O_NONBLOCK);
    options
}

/// Checks that an open file is a regular one, by what the kernel says of it.
///
/// # Errors
/// It is not.
pub fn check_regular(meta: &fs::Metadata) -> io::Result<()> {
    match meta.is_file() {
        true => Ok(()),
        false => Err(not_regular()),
    }
}

fn not_regular() -> io::Error {
    io::Error::other("it is not a regular file")
}

/// Writes a small file of ours in place, as [`overwrite`] does; a new one is private.
///
/// # Errors
/// It cannot be opened or written.
pub fn write_private(path: &Path, text: &[u8]) -> io::Result<File> {
    let file = write_options(PRIVATE)
        .create(true)
        .truncate(false)
        .open(path)?;
    overwrite(&file, text)?;
    Ok(file)
}

/// Reads on from where the file is, to its end or until there are more than `limit` bytes. With the `expected` length that
/// takes two system calls, where the standard library feels its way with six.
///
/// # Errors
/// It cannot be read.
pub fn read_up_to(file: impl AsFd, expected: usize, limit: usize) -> io::Result<Vec<u8>> {
    /// Files of the kernel tell no length.
    const LEAST: usize = 512;
    let mut bytes = Vec::with_capacity(expected.max(LEAST) + 1);
    while bytes.len() <= limit {
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

/// Replaces the contents of a small file in place, by one write and, if there was more before, a cut. What is cut off last is
/// behind what is new: not for what must be whole after a kill.
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

/// Puts a file with this text and these permission bits at `path`, whatever the umask: written beside it, under a name of this
/// process that ends in `.new`, and renamed. Who reads `path` finds the whole old file or the whole new one. Not flushed to
/// the disk: after a power cut it may be empty.
///
/// # Errors
/// The system refuses, or `path` is something else than a regular file: links are not followed, as in a folder that everybody
/// may write to they lead to files of others. What was there is still there then, and nothing beside it.
pub fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(not_regular());
    }
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(new);
    // A process that had the same ID may have been killed.
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

/// Makes a new file. What is there was left by a call that was killed, and goes.
///
/// # Errors
/// The system refuses.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = write_options(mode);
    options.create_new(true);
    match options.open(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path).and_then(|()| options.open(path))
        }
        opened => opened,
    }
}

/// Whether a file could not be put at `path`, as its folder is there and may not be written.
pub fn is_read_only(path: &Path) -> bool {
    is_not_writable(path.parent().unwrap_or(path))
}

/// Whether the file or folder is there and may not be written.
pub fn is_not_writable(path: &Path) -> bool {
    let access = rustix::fs::access(path, rustix::fs::Access::WRITE_OK);
    matches!(
        access,
        Err(rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS)
    )
}

/// What the system says of an error, without the number that Rust appends.
pub fn io_reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((io_reason, _)) => io_reason.to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_kept() {
        let path = std::env::temp_dir().join(format!("bounded-{}", std::process::id()));
        assert_eq!(read_bounded(&path, 4).unwrap(), ReadOutcome::Missing);
        fs::write(&path, "four").unwrap();
        assert_eq!(
            read_bounded(&path, 4).unwrap(),
            ReadOutcome::Read(b"four".into())
        );
        assert_eq!(read_bounded(&path, 3).unwrap(), ReadOutcome::TooLarge);
        fs::remove_file(&path).unwrap();
        assert!(
            read_bounded(&std::env::temp_dir(), 4).is_err(),
            "a folder cannot be read"
        );
    }

    #[test]
    fn more_is_read_than_was_expected_and_no_more_than_is_allowed() {
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

    #[test]
    fn nothing_of_a_longer_text_is_left() {
        let path = std::env::temp_dir().join(format!("overwrite-{}", std::process::id()));
        let file = File::create_new(&path).unwrap();
        for text in ["12345", "6789", "", "longer than all"] {
            overwrite(&file, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_written_in_place_is_private_and_follows_no_link() {
        let (folder, names) = folder("put");
        let target = folder.join("target");
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, folder.join("link")).unwrap();
        assert!(write_private(&folder.join("link"), b"new").is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
        let path = folder.join("x");
        for text in ["longer", "short"] {
            write_private(&path, text.as_bytes()).unwrap();
            assert_eq!(read_text(&path).unwrap(), text);
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
        assert!(
            write_private(Path::new("/dev/null"), b"").is_err(),
            "a device"
        );
        assert!(read_text(Path::new("/dev/zero")).is_err(), "a device");
        assert_eq!(names(), ["link", "target", "x"]);
        fs::remove_dir_all(folder).unwrap();
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
    fn a_file_is_replaced_as_a_whole_with_its_mode() {
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
    fn what_is_no_regular_file_stays_as_it_is() {
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
}
