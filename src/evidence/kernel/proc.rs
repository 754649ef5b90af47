//! What /proc shows: processes, threads, and lists.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::stat;

use crate::host::{ReadOutcome, read_bounded};

/// The inode of the first PID namespace (PROC_PID_INIT_INO). In another one not every process is to be seen.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// A list of mounts, or of a namespace's addresses, takes no more than this.
const LIST_LIMIT: usize = 64 << 20;
/// No such process.
const ESRCH: i32 = 3;

/// What leads to each of the processes or threads in a folder of /proc.
pub(super) fn list_numbered(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let names =
        fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let numbers = names.filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    Ok(numbers.map(|name| folder.join(name)).collect())
}

/// What leads to each thread of a process, if it has more than one or they are wanted anyway.
pub(super) fn list_threads(process: &Path, in_any_case: bool) -> Vec<PathBuf> {
    let task = process.join("task");
    // A folder has two links, and this one another for each thread.
    let has_one = || stat(&task).is_ok_and(|found| found.st_nlink <= 3);
    match !in_any_case && has_one() {
        true => Vec::new(),
        false => list_numbered(&task).unwrap_or_default(),
    }
}

/// What leads to a process that has ended, or to a mount that is covered or gone.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
}

/// The text of one of the kernel's lists.
pub(super) fn read_list(path: &Path) -> io::Result<String> {
    match read_bounded(path, LIST_LIMIT)? {
        ReadOutcome::Read(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        ReadOutcome::Missing => Err(io::ErrorKind::NotFound.into()),
        ReadOutcome::TooLarge => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// Whether /proc shows every process of the machine: only in the first PID namespace, and only where its mount does not hide
/// those of others from us.
pub(super) fn sees_all_processes(proc: &Path) -> bool {
    let first = id(&proc.join("self/ns/pid")).is_ok_and(|(_, inode)| inode == FIRST_PID_NAMESPACE);
    first && proc.join("1/net/fib_trie").exists()
}

pub(super) fn id(path: &Path) -> io::Result<(u64, u64)> {
    let stat = stat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}
