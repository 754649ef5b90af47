//! Identifies network namespaces, and runs functions inside them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::thread;

use rustix::fs::{fstat, fstatfs, stat};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Paths;
use super::files::open;
use super::libc_calls::{CookieSource, open_user_namespace, read_cookie};
use super::netlink::Netlink;
use crate::ipam::NetNs;

/// Returns the namespace at `path` (CNI_NETNS); `None` when the path is empty.
pub fn netns(paths: &Paths, path: &str) -> Option<NetNs> {
    (!path.is_empty()).then(|| NetNs {
        path: path.into(),
        id: namespace_id(paths, path).ok().flatten(),
        cookie: netns_cookie(paths, path),
    })
}

/// Returns the kernel's cookie of the namespace at `path`; `None` if the kernel does not report it.
pub fn netns_cookie(paths: &Paths, path: &str) -> Option<u64> {
    let file = open(&paths.under_root(path)).ok().filter(is_namespace)?;
    // Before Linux 6.18, the cookie can be read only from inside the namespace.
    let read_from_inside = || Ok(Netlink::open()?.namespace_cookie());
    namespace_cookie(&file).or_else(|| in_namespace(paths, path, read_from_inside).ok()?)
}

/// Runs `read` in the network namespace at this path.
///
/// # Errors
/// The namespace cannot be entered, or `read` fails.
pub fn in_namespace<T: Send>(
    paths: &Paths,
    netns: &str,
    read: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let namespace = open(&paths.under_root(netns))?;
    // A thread that enters a namespace cannot return, so a new thread enters it.
    thread::scope(|scope| {
        let read_from_inside = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            read()
        };
        let thread = thread::Builder::new().spawn_scoped(scope, read_from_inside)?;
        thread.join().map_err(|_| io::ErrorKind::Other)?
    })
}

/// Returns the device and inode of the network namespace of this process.
pub fn host_namespace_id(paths: &Paths) -> Option<(u64, u64)> {
    let own = paths.processes().join("self/ns/net");
    let found = stat(own).ok()?;
    Some((found.st_dev, found.st_ino))
}

pub(super) fn is_namespace(file: &File) -> bool {
    const NSFS_MAGIC: i128 = 0x6e73_6673;
    // The type of the field depends on the C library.
    fstatfs(file).is_ok_and(|found| i128::from(found.f_type) == NSFS_MAGIC)
}

/// Returns the cookie of an open namespace; `None` before Linux 6.18, and for other files.
pub(super) fn namespace_cookie(file: &File) -> Option<u64> {
    read_cookie(file.as_fd(), CookieSource::Namespace)
}

/// Returns whether an open network namespace belongs to a user namespace below `own` (device and
/// inode). Any user may create such a namespace. False if the kernel does not report it.
pub(super) fn is_of_another_user_namespace(file: &File, own: (u64, u64)) -> bool {
    // The kernel refuses this for a user namespace above our own.
    open_user_namespace(file.as_fd())
        .and_then(|owner| Ok(fstat(owner)?))
        .is_ok_and(|owner| (owner.st_dev, owner.st_ino) != own)
}

/// Returns the device and inode of what `path` leads to; `None` when nothing is there.
///
/// # Errors
/// It cannot be examined.
pub fn namespace_id(paths: &Paths, path: &str) -> io::Result<Option<(u64, u64)>> {
    match stat(paths.under_root(path)) {
        Ok(found) => Ok(Some((found.st_dev, found.st_ino))),
        // The path of a process disappears with the process.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::SRCH) => Ok(None),
        Err(e) => Err(e.into()),
    }
}
