//! Takes BSD file locks with a timeout (contract section 4).

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use fs2::FileExt;

use super::clock::{block_at_most, boot_now};
use super::files::{LOCK, PRIVATE, check_regular, open, open_in_new_folder};
use super::libc_calls::Interruptions;
use crate::ipam::Moment;

/// The outcome of waiting for a lock.
#[derive(Debug)]
pub enum LockOutcome {
    /// The lock is held until this file is closed.
    Held(File),
    /// Others held the lock until the timeout.
    TimedOut,
}

/// Locks a file exclusively, and creates it when it is missing.
///
/// This program never replaces or removes a lock file. If another program does so during the wait,
/// the new file is locked instead, because later processes will lock that one.
///
/// # Errors
/// The file or its folder cannot be created or opened; the kernel refuses to lock.
pub fn lock(path: &Path, wait: Duration) -> io::Result<LockOutcome> {
    let deadline = boot_now().after(wait);
    loop {
        let opened = open_in_new_folder(path, LOCK, PRIVATE)?;
        let LockOutcome::Held(file) = wait_for(opened, deadline)? else {
            return Ok(LockOutcome::TimedOut);
        };
        let held = file.metadata()?;
        let at_path = fs::metadata(path);
        check_regular(&held)?;
        if held.mode() & 0o077 != 0 {
            // The original leaves the file readable, and every reader could lock it. Setting the
            // mode fails on a read-only file system, where the lock still works.
            let _ = file.set_permissions(Permissions::from_mode(PRIVATE));
        }
        if at_path.is_ok_and(|meta| (meta.dev(), meta.ino()) == (held.dev(), held.ino())) {
            return Ok(LockOutcome::Held(file));
        }
        if deadline.since(boot_now()).is_zero() && !wait.is_zero() {
            return Ok(LockOutcome::TimedOut);
        }
    }
}

/// Locks a folder exclusively. The lock is on the folder itself, which must exist.
///
/// # Errors
/// It cannot be opened, or is not a folder; the kernel refuses to lock.
pub fn lock_folder(folder: &Path, wait: Duration) -> io::Result<LockOutcome> {
    let opened = open(folder)?;
    if !opened.metadata()?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    wait_for(opened, boot_now().after(wait))
}

/// Waits for a lock in the kernel, which serves waiting processes in the order of their arrival.
/// flock(2) has no timeout, so a timer interrupts it.
fn wait_for(file: File, deadline: Moment) -> io::Result<LockOutcome> {
    let left = || deadline.since(boot_now());
    match FileExt::try_lock_exclusive(&file) {
        Ok(()) => return Ok(LockOutcome::Held(file)),
        Err(e) if e.raw_os_error() != fs2::lock_contended_error().raw_os_error() => return Err(e),
        Err(_) if left().is_zero() => return Ok(LockOutcome::TimedOut),
        Err(_) => {}
    }
    let _interruptions = Interruptions::after(block_at_most(left()))?;
    loop {
        match FileExt::lock_exclusive(&file) {
            Ok(()) => return Ok(LockOutcome::Held(file)),
            Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
            Err(_) if left().is_zero() => return Ok(LockOutcome::TimedOut),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("flock-{name}-{}", std::process::id()))
    }

    fn held(path: &Path, wait: Duration) -> Option<File> {
        match lock(path, wait).unwrap() {
            LockOutcome::Held(file) => Some(file),
            LockOutcome::TimedOut => None,
        }
    }

    const SHORT: Duration = Duration::from_millis(30);
    const LONG: Duration = Duration::from_secs(60);

    /// Waits until a process is blocked in flock(2) on this file. In /proc/locks, the line of such a
    /// process has an arrow.
    fn wait_until_contended(path: &Path) {
        let inode = fs::metadata(path).unwrap().ino();
        let file = format!(":{inode} 0 EOF");
        let deadline = Instant::now() + LONG;
        let is_contended = || {
            let locks = fs::read_to_string("/proc/locks").unwrap();
            let mut lines = locks.lines();
            lines.any(|line| line.contains("-> FLOCK") && line.ends_with(&file))
        };
        while !is_contended() {
            assert!(
                Instant::now() < deadline,
                "timed out waiting for somebody to wait for {}",
                path.display()
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn lock_excludes_others_until_dropped() {
        let folder = scratch("modes");
        let path = folder.join("sub/lock");
        let first = held(&path, SHORT).unwrap();
        assert!(held(&path, SHORT).is_none());
        assert!(held(&path, Duration::ZERO).is_none());
        drop(first);
        assert!(
            held(&path, LONG).is_some(),
            "a process that timed out no longer waits"
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn replaced_lock_file_is_locked_instead() {
        let path = scratch("replaced");
        let first = held(&path, SHORT).unwrap();
        let waiter = thread::spawn({
            let path = path.clone();
            move || held(&path, LONG).map(|f| f.metadata().unwrap().ino())
        });
        wait_until_contended(&path);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "new").unwrap();
        drop(first);
        assert_eq!(
            waiter.join().unwrap(),
            Some(fs::metadata(&path).unwrap().ino())
        );
        fs::remove_file(path).unwrap();
    }
}
