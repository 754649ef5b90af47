//! Reads processes, threads, mounts and addresses from /proc.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

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

/// Reads the addresses of the network namespace of a process.
pub(super) fn read_addresses(process: &Path) -> io::Result<BTreeSet<IpAddr>> {
    let text = |name: &str| read_list(&process.join("net").join(name));
    let mut found = parse_fib_trie(&text("fib_trie")?);
    // The file is missing where IPv6 is off.
    let v6 = match text("if_inet6") {
        Err(e) if is_gone(&e) => String::new(),
        read => read?,
    };
    found.extend(v6.lines().filter_map(|line| {
        let bits = u128::from_str_radix(line.split_whitespace().next()?, 16).ok()?;
        Some(IpAddr::from(bits.to_be_bytes()).to_canonical())
    }));
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
    let namespaces = text.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (root, path) = (fields.next()?, fields.next()?);
        let inode = inode(root)?;
        Some(NetnsMount {
            path: unescape(path).into(),
            inode,
        })
    });
    Ok(namespaces.collect())
}

/// Parses the inode in a name like `net:[4026532198]`.
fn inode(name: &str) -> Option<u64> {
    let inode = name.strip_prefix("net:[")?.strip_suffix(']')?;
    inode.parse().ok()
}

/// Replaces the characters that the kernel writes in octal digits, as they separate fields and lines.
fn unescape(path: &str) -> String {
    let path = path.replace(r"\040", " ").replace(r"\011", "\t");
    path.replace(r"\012", "\n").replace(r"\134", r"\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_what_proc_shows() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 10.1.0.0/16 2 0 2\n        |-- 10.1.0.0\n           /16 link UNICAST\n        |-- 10.1.0.5\n           /32 host LOCAL\n     |-- 10.1.255.255\n        /32 link BROADCAST\nLocal:\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        let found: Vec<_> = parse_fib_trie(text)
            .into_iter()
            .map(|a| a.to_string())
            .collect();
        assert_eq!(found, ["10.1.0.5", "127.0.0.1"]);
        let ours = read_addresses(Path::new("/proc/self")).unwrap();
        assert!(ours.contains(&"127.0.0.1".parse().unwrap()));
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
