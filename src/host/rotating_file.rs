//! Appends to files that many processes share, and rotates them when they are full.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fs2::FileExt;
use rustix::fs::OFlags;

use super::files::{check_regular, open_in_new_folder};

/// The limits of a rotated file.
#[derive(Clone, Copy, Debug)]
pub struct RotatingFile {
    /// A file of at least this many bytes is rotated before the next text.
    pub full_at: u64,
    /// The maximum number of files: `x`, `x.1`, `x.2` and so on, the oldest last.
    pub files: u32,
    /// The mode of the files. A file that another program created with a wider mode gets this one, because every reader of a file could
    /// lock it.
    pub mode: u32,
}

impl RotatingFile {
    /// Appends `text` in one write, on a line of its own. When the file is full, rotates the files
    /// first. The new file begins with what `heading` returns, which is called before any file is
    /// renamed.
    ///
    /// # Errors
    /// A file cannot be created, renamed or written.
    pub fn append(
        self,
        path: &Path,
        text: &[u8],
        heading: impl FnOnce() -> Vec<u8>,
    ) -> io::Result<()> {
        let mut file = self.open(path)?;
        let meta = file.metadata()?;
        check_regular(&meta)?;
        if meta.mode() & 0o777 & !self.mode != 0 {
            // Fails for a file of another user, which may still be appended to.
            let _ = file.set_permissions(Permissions::from_mode(self.mode));
        }
        let is_full = meta.len() >= self.full_at;
        // A call does not wait for a rotation. If it does not get the lock at once, it appends to
        // the full file. Only a process that opened the file before its mode was set can hold the
        // lock for long.
        let is_far_too_long = meta.len() >= 2 * self.full_at;
        if is_full && (FileExt::try_lock_exclusive(&file).is_ok() || is_far_too_long) {
            self.rotate(path, &file, heading)?;
            file = self.open(path)?;
        }
        if ends_within_line(&file, meta.len()) {
            return file.write_all(&[b"\n", text].concat());
        }
        file.write_all(text)
    }

    fn open(self, path: &Path) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::APPEND | OFlags::CREATE;
        open_in_new_folder(path, flags, self.mode)
    }

    /// Renames every file to the next number. The oldest file is overwritten.
    ///
    /// The caller holds a lock on the full file, so only one call rotates it. For later calls the
    /// path no longer leads to the file that they opened, and they do nothing.
    fn rotate(self, path: &Path, full: &File, heading: impl FnOnce() -> Vec<u8>) -> io::Result<()> {
        let opened = full.metadata()?;
        let at_path = fs::symlink_metadata(path)?;
        if (opened.dev(), opened.ino()) != (at_path.dev(), at_path.ino()) {
            return Ok(());
        }
        let first_text = heading();
        for n in (0..self.files.saturating_sub(1)).rev() {
            if let Err(e) = fs::rename(rotated_path(path, n), rotated_path(path, n + 1))
                && e.kind() != io::ErrorKind::NotFound
            {
                return Err(e);
            }
        }
        if first_text.is_empty() {
            return Ok(());
        }
        self.open(path)?.write_all(&first_text)
    }
}

/// Whether the last line of a file of this length has no end, as in a damaged file. A text after it could not be read.
fn ends_within_line(file: &File, length: u64) -> bool {
    let mut last = [b'\n'];
    // A file that was rotated since then is shorter, and nothing is read.
    let _ = file.read_at(&mut last, length.saturating_sub(1));
    last != *b"\n"
}

/// Returns the path of the `n`th file before the current one. 0 means the current file.
pub fn rotated_path(path: &Path, n: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    if n > 0 {
        name.push(format!(".{n}"));
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: RotatingFile = RotatingFile {
        full_at: 100,
        files: 8,
        mode: 0o640,
    };

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("appending-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn full_file_is_rotated_and_oldest_is_removed() {
        let folder = folder("rotate");
        let path = folder.join("x.log");
        let rotated_path = |n: u32| rotated_path(&path, n);
        File::create(&path).unwrap().set_len(KEPT.full_at).unwrap();
        fs::write(rotated_path(1), "one").unwrap();
        fs::write(rotated_path(7), "seven").unwrap();
        KEPT.append(&path, b"new\n", Vec::new).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(fs::metadata(rotated_path(1)).unwrap().len(), KEPT.full_at);
        assert_eq!(fs::read_to_string(rotated_path(2)).unwrap(), "one");
        assert!(!rotated_path(8).exists(), "at most eight files are kept");
        File::create(&path)
            .unwrap()
            .set_len(KEPT.full_at - 1)
            .unwrap();
        let unused_heading = || panic!("it is not full");
        KEPT.append(&path, b"more\n", unused_heading).unwrap();
        // With the end of the line before it.
        assert_eq!(fs::metadata(&path).unwrap().len(), KEPT.full_at + 5);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn full_file_is_rotated_once_by_concurrent_calls() {
        let folder = folder("crowd");
        let path = folder.join("x.log");
        File::create(&path).unwrap().set_len(KEPT.full_at).unwrap();
        let late = KEPT.open(&path).unwrap();
        KEPT.append(&path, b"first\n", Vec::new).unwrap();
        KEPT.rotate(&path, &late, Vec::new).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first\n");
        assert!(!rotated_path(&path, 2).exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn text_after_a_torn_line_begins_a_new_one() {
        let folder = folder("torn");
        let path = folder.join("x.log");
        fs::write(&path, "torn").unwrap();
        for text in [&b"first\n"[..], b"second\n"] {
            KEPT.append(&path, text, Vec::new).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, "torn\nfirst\nsecond\n");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn append_does_not_wait_for_a_rotation() {
        let folder = folder("locked");
        let path = folder.join("x.log");
        File::create(&path).unwrap().set_len(KEPT.full_at).unwrap();
        let locked = File::open(&path).unwrap();
        FileExt::lock_exclusive(&locked).unwrap();
        KEPT.append(&path, b"late\n", || panic!("it is not rotated"))
            .unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), KEPT.full_at + 6);
        drop(locked);
        KEPT.append(&path, b"new\n", Vec::new).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn log_of_the_original_gets_our_mode_and_readers_do_not_prevent_its_rotation() {
        let folder = folder("readers");
        let path = folder.join("x.log");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
        fs::write(&path, "of the original\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let reader = File::open(&path).unwrap();
        FileExt::lock_shared(&reader).unwrap();
        KEPT.append(&path, b"ours\n", Vec::new).unwrap();
        assert_eq!(mode(), KEPT.mode);
        while fs::metadata(&path).unwrap().len() < 2 * KEPT.full_at {
            KEPT.append(&path, b"and more of it\n", Vec::new).unwrap();
        }
        KEPT.append(&path, b"new\n", Vec::new).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
        // The umask may clear more bits of a new file's mode.
        assert_eq!(mode() & !KEPT.mode, 0);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn rotated_file_begins_with_heading() {
        let folder = folder("heading");
        let path = folder.join("x.log");
        let full = vec![b'x'; 100];
        fs::write(&path, &full).unwrap();
        let heading = || {
            assert_eq!(fs::read(&path).unwrap(), full, "nothing has moved yet");
            b"heading\n".to_vec()
        };
        KEPT.append(&path, b"text\n", heading).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "heading\ntext\n");
        fs::remove_dir_all(folder).unwrap();
    }
}
