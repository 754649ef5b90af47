//! The identity of a network namespace.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::thread::{self, JoinHandle};

use rustix::fs::{fstat, fstatfs, stat};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Paths;
use super::files::open;
use super::netlink::Netlink;
use crate::ipam::NetNs;

/// The namespace at `path` (CNI_NETNS). `None` when the path is empty.
pub fn netns(paths: &Paths, path: &str) -> Option<NetNs> {
    (!path.is_empty()).then(|| NetNs {
        path: path.into(),
        id: namespace_id(paths, path),
        cookie: None,
    })
}

/// Finds out the kernel's number of a namespace while its caller does something else.
pub enum CookieLookup {
    /// It was told at once.
    Known(Option<u64>),
    /// Somebody is on the way into the namespace.
    Entering(JoinHandle<Option<u64>>),
}

impl CookieLookup {
    /// Begins. Where the kernel does not tell from outside (before Linux 6.18), a thread goes into the namespace, as that changes
    /// the thread for good.
    pub fn start(paths: &Paths, path: &str) -> CookieLookup {
        let path = paths.under_root(path);
        let Some(file) = open(path.as_ref()).ok().filter(is_namespace) else {
            return CookieLookup::Known(None);
        };
        if let Some(cookie) = namespace_cookie(&file) {
            return CookieLookup::Known(Some(cookie));
        }
        let entering = thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
            Netlink::open().ok()?.namespace_cookie()
        });
        match entering {
            Ok(entering) => CookieLookup::Entering(entering),
            Err(_) => CookieLookup::Known(None),
        }
    }

    /// The number, if the kernel tells it.
    pub fn finish(self) -> Option<u64> {
        match self {
            CookieLookup::Known(cookie) => cookie,
            CookieLookup::Entering(entering) => entering.join().ok()?,
        }
    }
}

fn is_namespace(file: &File) -> bool {
    const NSFS_MAGIC: i128 = 0x6e73_6673;
    // The field has another type on every C library.
    fstatfs(file).is_ok_and(|found| i128::from(found.f_type) == NSFS_MAGIC)
}

/// The kernel's number of the namespace that this file is, which no other gets within a boot; `None` where it does not tell (before
/// Linux 6.18), or of a file of another kind.
pub(super) fn namespace_cookie(file: &File) -> Option<u64> {
    read_cookie(file.as_fd(), CookieOf::Namespace)
}

/// Whether the network namespace that this file is belongs to a user namespace below the one that is `own` by device and inode, as
/// everybody may make them. What the kernel does not tell counts as no.
pub(super) fn is_of_another_user_namespace(file: &File, own: (u64, u64)) -> bool {
    let owner = open_related(file.as_fd(), Related::OwnerOfNamespace);
    let owner = owner.and_then(|owner| Ok(fstat(owner)?));
    // Of one above our own it tells nothing.
    owner.is_ok_and(|owner| (owner.st_dev, owner.st_ino) != own)
}

/// The sockets of another process.
pub struct SocketsOfProcess {
    process: OwnedFd,
}

impl SocketsOfProcess {
    /// Opens the way to the process that a path like /proc/7 leads to, if it may be looked into.
    pub fn open(process: &Path) -> Option<SocketsOfProcess> {
        let pid = Pid::from_raw(number_in(process)?)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        Some(SocketsOfProcess { process })
    }

    /// The network namespace of the socket that a path like /proc/7/fd/3 leads to, unless it is one of those that are known by the
    /// kernel's number.
    pub fn namespace(&self, socket: &Path, is_known: impl Fn(u64) -> bool) -> Option<File> {
        let flags = PidfdGetfdFlags::empty();
        let socket = pidfd_getfd(&self.process, number_in(socket)?, flags).ok()?;
        if read_cookie(socket.as_fd(), CookieOf::Socket).is_none_or(is_known) {
            return None;
        }
        open_related(socket.as_fd(), Related::NamespaceOfSocket)
            .ok()
            .map(File::from)
    }
}

/// The number that the name of a file is.
fn number_in(path: &Path) -> Option<i32> {
    path.file_name()?.to_str()?.parse().ok()
}

/// What is opened through a descriptor.
#[derive(Clone, Copy)]
enum Related {
    /// The user namespace that a namespace belongs to: NS_GET_USERNS of ioctl_nsfs(2), since Linux 4.9.
    OwnerOfNamespace,
    /// The network namespace that a socket is in: SIOCGSKNS, since Linux 4.10.
    NamespaceOfSocket,
}

/// Opens it.
#[allow(unsafe_code)]
fn open_related(file: BorrowedFd<'_>, what: Related) -> io::Result<OwnedFd> {
    /// `_IO(0xb7, 0x1)`
    const NS_GET_USERNS: u32 = 0xb7 << 8 | 0x1;
    const SIOCGSKNS: u32 = 0x894c;
    let request = match what {
        Related::OwnerOfNamespace => NS_GET_USERNS,
        Related::NamespaceOfSocket => SIOCGSKNS,
    };
    // SAFETY: `file` is open for as long as it is borrowed. Neither call takes an argument; they answer with a new descriptor, which
    // nobody else knows of, or with -1.
    unsafe {
        match libc::ioctl(file.as_raw_fd(), request as _) {
            -1 => Err(io::Error::last_os_error()),
            opened => Ok(OwnedFd::from_raw_fd(opened)),
        }
    }
}

/// Of what a number is asked.
#[derive(Clone, Copy)]
pub(super) enum CookieOf {
    /// Of the namespace that a file is: NS_GET_ID of ioctl_nsfs(2), since Linux 6.18.
    Namespace,
    /// Of the namespace that a socket is in: SO_NETNS_COOKIE of socket(7), since Linux 5.14. It is the same number.
    Socket,
}

/// Asks the kernel for a number of 64 bits.
#[allow(unsafe_code)]
pub(super) fn read_cookie(file: BorrowedFd<'_>, of: CookieOf) -> Option<u64> {
    /// `_IOR(0xb7, 0xd, __u64)`; its size is in it, so that the kernel writes no more.
    const NS_GET_ID: u32 = 2 << 30 | 8 << 16 | 0xb7 << 8 | 0xd;
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let mut cookie: u64 = 0;
    let mut length: libc::socklen_t = 8;
    let pointer = std::ptr::from_mut(&mut cookie);
    let file = file.as_raw_fd();
    // SAFETY: `file` is open for as long as it is borrowed. Both calls write at most the 8 bytes that `pointer` leads to, which live
    // until the function ends: the ioctl by its definition, the other by `length`.
    let answer = unsafe {
        match of {
            CookieOf::Namespace => libc::ioctl(file, NS_GET_ID as _, pointer),
            CookieOf::Socket => libc::getsockopt(
                file,
                libc::SOL_SOCKET,
                SO_NETNS_COOKIE,
                pointer.cast(),
                &raw mut length,
            ),
        }
    };
    (answer == 0 && length == 8).then_some(cookie)
}

/// Device and inode numbers of what `path` leads to; `None` when it leads nowhere.
pub fn namespace_id(paths: &Paths, path: &str) -> Option<(u64, u64)> {
    let found = stat(paths.under_root(path)).ok()?;
    Some((found.st_dev, found.st_ino))
}
