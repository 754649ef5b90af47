//! Reads processes, threads and lists from /proc.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::stat;

use crate::host::read_bounded;

/// The inode of the first PID namespace (PROC_PID_INIT_INO). In any other PID namespace some processes are invisible.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// The most bytes read of a list of mounts or addresses.
const LIST_LIMIT: usize = 64 << 20;
/// Lists the folders of the processes or threads in a folder of /proc.
///
/// # Errors
/// The list cannot be read to its end.
pub(super) fn list_numbered(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if name.as_bytes().iter().all(u8::is_ascii_digit) {
            found.push(folder.join(name));
        }
    }
    Ok(found)
}

/// Lists the folders of the threads of a process; empty for a single thread, unless `in_any_case`.
///
/// # Errors
/// The list cannot be read to its end, although the process goes on and may be inspected.
pub(super) fn list_threads(process: &Path, in_any_case: bool) -> io::Result<Vec<PathBuf>> {
    let task = process.join("task");
    // A folder has two links, plus one for each thread here.
    let has_one = || stat(&task).is_ok_and(|found| found.st_nlink <= 3);
    if !in_any_case && has_one() {
        return Ok(Vec::new());
    }
    match list_numbered(&task) {
        Err(e) if is_gone(&e) || e.kind() == io::ErrorKind::PermissionDenied => Ok(Vec::new()),
        listed => listed,
    }
}

/// Returns whether the error means that a process has ended, or that a mount is covered or gone.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Reads one of the kernel's lists.
pub(super) fn read_list(path: &Path) -> io::Result<String> {
    let bytes = read_bounded(path, LIST_LIMIT)?.required()?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns whether /proc shows every process of the machine. It does so only in the first PID namespace, and only where it is
/// mounted without `hidepid`.
pub(super) fn sees_all_processes(proc: &Path) -> bool {
    let first = id(&proc.join("self/ns/pid")).is_ok_and(|(_, inode)| inode == FIRST_PID_NAMESPACE);
    first && proc.join("1/net/fib_trie").exists()
}

/// Returns device and inode of what a path leads to.
pub(super) fn id(path: &Path) -> io::Result<(u64, u64)> {
    let stat = stat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}
