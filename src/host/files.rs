//! Reading files with a bound on their size (promise P9).

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::io::retry_on_intr;

/// What became of reading a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bounded {
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
pub fn read_bounded(path: &Path, limit: usize) -> io::Result<Bounded> {
    read_bounded_with(path, limit, 0)
}

/// The same, with so much room behind the bytes.
///
/// # Errors
/// As [`read_bounded`].
pub fn read_bounded_with(path: &Path, limit: usize, room: usize) -> io::Result<Bounded> {
    // A pipe in a file's place must not keep a call waiting.
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = match File::options().read(true).custom_flags(nonblock).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Bounded::Missing),
        Err(e) => return Err(e),
    };
    let meta = file.metadata()?;
    if !meta.is_file() && !meta.is_dir() {
        return Err(io::Error::other("it is no regular file"));
    }
    let expected = usize::try_from(meta.len()).unwrap_or(limit).min(limit);
    let bytes = read_up_to(&file, expected + room, limit)?;
    Ok(if bytes.len() > limit {
        Bounded::TooLarge
    } else {
        Bounded::Read(bytes)
    })
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
/// It cannot be written.
pub fn overwrite(file: &File, text: &[u8]) -> io::Result<()> {
    file.write_all_at(text, 0)?;
    let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
    if file.metadata()?.len() > length {
        file.set_len(length)?;
    }
    Ok(())
}

/// Whether a file could not be put at `path`, as its folder is there and may not be written.
pub fn is_read_only(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(path);
    let access = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK);
    matches!(
        access,
        Err(rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS)
    )
}

/// What the system says of an error, without the number that Rust appends.
pub fn words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_kept() {
        let path = std::env::temp_dir().join(format!("bounded-{}", std::process::id()));
        assert_eq!(read_bounded(&path, 4).unwrap(), Bounded::Missing);
        std::fs::write(&path, "four").unwrap();
        assert_eq!(
            read_bounded(&path, 4).unwrap(),
            Bounded::Read(b"four".into())
        );
        assert_eq!(read_bounded(&path, 3).unwrap(), Bounded::TooLarge);
        std::fs::remove_file(&path).unwrap();
        assert!(
            read_bounded(&std::env::temp_dir(), 4).is_err(),
            "a folder cannot be read"
        );
    }

    #[test]
    fn more_is_read_than_was_expected_and_no_more_than_is_allowed() {
        let path = std::env::temp_dir().join(format!("up-to-{}", std::process::id()));
        let text = b"0123456789".repeat(500);
        std::fs::write(&path, &text).unwrap();
        let read =
            |expected, limit| read_up_to(File::open(&path).unwrap(), expected, limit).unwrap();
        assert_eq!(read(0, 10_000), text);
        assert_eq!(read(5000, 5000), text);
        assert!(read(0, 4000).len() > 4000, "it tells that there is more");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn nothing_of_a_longer_text_is_left() {
        let path = std::env::temp_dir().join(format!("overwrite-{}", std::process::id()));
        let file = File::create_new(&path).unwrap();
        for text in ["12345", "6789", "", "longer than all"] {
            overwrite(&file, text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        std::fs::remove_file(&path).unwrap();
    }
}
