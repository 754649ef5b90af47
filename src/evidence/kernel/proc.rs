//! Reads processes, threads, mounts and addresses from /proc.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::stat;

use crate::host::read_bounded;

/// The inode of the initial PID namespace (PROC_PID_INIT_INO). In any other PID namespace some
/// processes are invisible.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// The largest list of mounts or addresses that is read, in bytes.
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

/// Lists the folders of the threads of a process. Without `in_any_case`, the list of a process with
/// a single thread is empty.
///
/// # Errors
/// The list cannot be read to its end, although the process is running and may be inspected.
pub(super) fn list_threads(process: &Path, in_any_case: bool) -> io::Result<Vec<PathBuf>> {
    let task = process.join("task");
    // This folder has one link for each thread, beside the two links that every folder has.
    let has_one_thread = || stat(&task).is_ok_and(|found| found.st_nlink <= 3);
    if !in_any_case && has_one_thread() {
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

/// Returns whether /proc shows every process of the machine. It does so only in the initial PID
/// namespace, and only where it is mounted without `hidepid`.
pub(super) fn sees_all_processes(proc: &Path) -> bool {
    let is_initial =
        id(&proc.join("self/ns/pid")).is_ok_and(|(_, inode)| inode == INITIAL_PID_NAMESPACE);
    is_initial && proc.join("1/net/fib_trie").exists()
}

/// Returns the device and the inode of the file at a path.
pub(super) fn id(path: &Path) -> io::Result<(u64, u64)> {
    let stat = stat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Reads the addresses of the network namespace of a process.
pub(super) fn read_addresses(process: &Path) -> io::Result<BTreeSet<IpAddr>> {
    let net = process.join("net");
    let mut found = parse_fib_trie(&read_list(&net.join("fib_trie"))?);
    match read_list(&net.join("if_inet6")) {
        Ok(if_inet6) => found.extend(parse_if_inet6(&if_inet6)),
        // The file is missing if IPv6 is disabled.
        Err(e) if is_gone(&e) => {}
        Err(e) => return Err(e),
    }
    Ok(found)
}

/// Parses the local addresses in fib_trie: each is followed by the line `/32 host LOCAL`.
fn parse_fib_trie(fib_trie: &str) -> BTreeSet<IpAddr> {
    let mut found = BTreeSet::new();
    let mut leaf: Option<Ipv4Addr> = None;
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(leaf.map(IpAddr::V4));
        }
    }
    found
}

/// Parses the addresses in if_inet6: each line begins with the 32 hexadecimal digits of one.
fn parse_if_inet6(if_inet6: &str) -> impl Iterator<Item = IpAddr> {
    if_inet6.lines().filter_map(|line| {
        let digits = line.split_whitespace().next()?;
        let bits = u128::from_str_radix(digits, 16).ok()?;
        Some(IpAddr::from(bits.to_be_bytes()).to_canonical())
    })
}

/// A mount of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NetnsMount {
    /// The mount point. Another mount may cover it.
    pub path: PathBuf,
    /// The inode of the namespace.
    pub inode: u64,
}

/// Lists the mounts of network namespaces in a file like /proc/self/mountinfo.
pub(super) fn list_netns_mounts(mountinfo: &Path) -> io::Result<Vec<NetnsMount>> {
    let text = read_list(mountinfo)?;
    Ok(text.lines().filter_map(parse_netns_mount).collect())
}

/// Parses a line of mountinfo. Returns `None` if it is not the mount of a network namespace.
fn parse_netns_mount(line: &str) -> Option<NetnsMount> {
    let mut fields = line.split(' ').skip(3);
    let root = fields.next()?;
    let path = fields.next()?;
    Some(NetnsMount {
        path: unescape(path).into(),
        inode: parse_inode(root)?,
    })
}

/// Parses the inode in a name like `net:[4026532198]`.
fn parse_inode(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("net:[")?.strip_suffix(']')?;
    digits.parse().ok()
}

/// Replaces the escapes of blank, tab, newline and backslash. The kernel writes these characters in
/// octal digits, because they would separate fields and lines.
fn unescape(path: &str) -> String {
    path.replace(r"\040", " ")
        .replace(r"\011", "\t")
        .replace(r"\012", "\n")
        .replace(r"\134", r"\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_proc() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 10.1.0.0/16 2 0 2\n        |-- 10.1.0.0\n           /16 link UNICAST\n        |-- 10.1.0.5\n           /32 host LOCAL\n     |-- 10.1.255.255\n        /32 link BROADCAST\nLocal:\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        let found: Vec<_> = parse_fib_trie(text)
            .into_iter()
            .map(|a| a.to_string())
            .collect();
        assert_eq!(found, ["10.1.0.5", "127.0.0.1"]);
        let own = read_addresses(Path::new("/proc/self")).unwrap();
        assert!(own.contains(&"127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn mount_points_are_unescaped() {
        assert_eq!(unescape("/run/netns/a\\040b\\134c"), "/run/netns/a b\\c");
        assert_eq!(unescape("/x\\"), "/x\\");
        assert_eq!(unescape("/x\\9zz"), "/x\\9zz");
    }

    #[test]
    fn only_mounted_network_namespaces_count() {
        let path = std::env::temp_dir().join(format!("mountinfo-{}", std::process::id()));
        let lines = "36 35 0:4 net:[4026532198] /run/netns/cni-1 rw shared:1 - nsfs nsfs rw\n\
                     37 35 0:4 mnt:[4026532199] /run/snapd/ns/x rw - nsfs nsfs rw\n\
                     38 35 0:4 net:[4026532200] /run/netns/a\\040b rw - nsfs nsfs rw\n\
                     short line\n";
        std::fs::write(&path, lines).unwrap();
        let found = list_netns_mounts(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            found,
            [
                ("/run/netns/cni-1", 4026532198),
                ("/run/netns/a b", 4026532200)
            ]
            .map(|(path, inode)| NetnsMount {
                path: path.into(),
                inode,
            })
        );
        assert!(list_netns_mounts(&path).is_err());
    }
}
