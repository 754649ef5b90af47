//! BSD file locks with a bound on the wait (contract section 4).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use fs2::FileExt;

/// What became of waiting for a lock.
#[derive(Debug)]
pub enum Waited {
    /// It is held until this file is closed.
    Held(File),
    /// Others held it all the time.
    TimedOut,
}

/// Opens the lock file, made when missing, and locks it against everybody else. It is never replaced or removed by us; should somebody else do so
/// while we wait, the new file is locked instead, since those who come later will look there.
///
/// # Errors
/// The file or its folder cannot be made or opened; the kernel refuses to lock.
pub fn lock(path: &Path, wait: Duration) -> io::Result<Waited> {
    let start = Instant::now();
    loop {
        let left = wait.saturating_sub(start.elapsed());
        let Waited::Held(file) = wait_for(open(path)?, left)? else {
            return Ok(Waited::TimedOut);
        };
        let (held, there) = (file.metadata()?, fs::metadata(path));
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino())) {
            return Ok(Waited::Held(file));
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    match options.open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o755)
                    .create(folder)?;
            }
            options.open(path)
        }
        other => other,
    }
}

/// flock(2) knows no time limit, so a contended lock is waited for by a thread that sleeps in the kernel: nothing polls, and
/// the kernel's queue keeps its order. A thread left behind by a time-out gives the lock back as soon as it gets it.
fn wait_for(file: File, wait: Duration) -> io::Result<Waited> {
    match FileExt::try_lock_exclusive(&file) {
        Ok(()) => return Ok(Waited::Held(file)),
        Err(e) if e.raw_os_error() != fs2::lock_contended_error().raw_os_error() => return Err(e),
        Err(_) if wait.is_zero() => return Ok(Waited::TimedOut),
        Err(_) => {}
    }
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .stack_size(64 * 1024)
        .spawn(move || {
            // Fails when nobody waits any more; the file is closed then, and the lock with it.
            let _ = sender.send(FileExt::lock_exclusive(&file).map(|()| file));
        })?;
    match receiver.recv_timeout(wait) {
        Ok(locked) => locked.map(Waited::Held),
        Err(_) => Ok(Waited::TimedOut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("flock-{name}-{}", std::process::id()))
    }

    fn held(path: &Path, wait: Duration) -> Option<File> {
        match lock(path, wait).unwrap() {
            Waited::Held(file) => Some(file),
            Waited::TimedOut => None,
        }
    }

    const SHORT: Duration = Duration::from_millis(30);
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_lock_keeps_others_out_until_it_is_dropped() {
        let folder = scratch("modes");
        let path = folder.join("sub/lock");
        let first = held(&path, SHORT).unwrap();
        assert!(held(&path, SHORT).is_none());
        assert!(held(&path, Duration::ZERO).is_none());
        drop(first);
        assert!(
            held(&path, LONG).is_some(),
            "the threads that timed out gave it back"
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_lock_that_is_freed_in_time_is_taken() {
        let path = scratch("freed");
        let first = held(&path, SHORT).unwrap();
        let waiter = thread::spawn({
            let path = path.clone();
            move || held(&path, LONG).is_some()
        });
        thread::sleep(SHORT);
        drop(first);
        assert!(waiter.join().unwrap());
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_lock_file_that_was_replaced_meanwhile_is_not_trusted() {
        let path = scratch("replaced");
        let first = held(&path, SHORT).unwrap();
        let waiter = thread::spawn({
            let path = path.clone();
            move || held(&path, LONG).map(|f| f.metadata().unwrap().ino())
        });
        thread::sleep(SHORT);
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
