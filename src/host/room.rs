//! Finds out whether a folder takes a new file, without leaving one.

use std::io::{self, Write};
use std::path::Path;

use rustix::fs::statvfs;
use rustix::io::Errno;

use super::files::create_nameless;

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
