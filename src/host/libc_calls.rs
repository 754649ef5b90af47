//! Calls of libc that no crate makes safe: the dispositions of signals, and what the kernel says of namespaces.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Makes a write beyond RLIMIT_FSIZE fail with EFBIG, and one to a pipe without a reader with EPIPE. By default a signal kills the
/// process, also one that has already printed an address and only writes its log, so that the runtime would take the ADD for failed.
#[allow(unsafe_code)]
pub fn ignore_write_signals() {
    for signal in [libc::SIGXFSZ, libc::SIGPIPE] {
        // SAFETY: no handler is installed, so no code can run at a signal; nothing else in the process changes the disposition of it,
        // and an unknown number would only be refused.
        unsafe {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// Makes SIGTERM and SIGINT end the process at once, with exit status 0. Without a handler, the kernel ignores both for the first
/// process of a container.
#[allow(unsafe_code)]
pub fn exit_on_termination_signals() {
    extern "C" fn exit(_signal: libc::c_int) {
        // SAFETY: `_exit` may be called in signal handlers, and returns to nobody.
        unsafe { libc::_exit(0) }
    }
    let handler = exit as extern "C" fn(libc::c_int);
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: the handler only ends the process, so that it cannot meet half-changed data; nothing else in the process changes
        // the dispositions, and an unknown number would only be refused.
        unsafe {
            libc::signal(signal, handler as libc::sighandler_t);
        }
    }
}

/// A namespace that can be opened through a descriptor.
#[derive(Clone, Copy)]
pub(super) enum RelatedNamespace {
    /// The user namespace that a namespace belongs to: NS_GET_USERNS of ioctl_nsfs(2), since Linux 4.9.
    OwningUserNamespace,
    /// The network namespace that a socket is in: SIOCGSKNS, since Linux 4.10.
    NetworkOfSocket,
}

/// Opens a namespace through a descriptor.
#[allow(unsafe_code)]
pub(super) fn open_related_namespace(
    file: BorrowedFd<'_>,
    what: RelatedNamespace,
) -> io::Result<OwnedFd> {
    /// `_IO(0xb7, 0x1)`
    const NS_GET_USERNS: u32 = 0xb7 << 8 | 0x1;
    const SIOCGSKNS: u32 = 0x894c;
    let request = match what {
        RelatedNamespace::OwningUserNamespace => NS_GET_USERNS,
        RelatedNamespace::NetworkOfSocket => SIOCGSKNS,
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

/// What a descriptor stands for when the kernel is asked for a namespace cookie.
#[derive(Clone, Copy)]
pub(super) enum CookieSource {
    /// A namespace: NS_GET_ID of ioctl_nsfs(2), since Linux 6.18.
    Namespace,
    /// A socket, for the namespace that it is in: SO_NETNS_COOKIE of socket(7), since Linux 5.14. The number is the same.
    Socket,
}

/// Asks the kernel for the cookie of a namespace, a number that is unique within a boot. `None` where the kernel does not tell.
#[allow(unsafe_code)]
pub(super) fn read_cookie(file: BorrowedFd<'_>, of: CookieSource) -> Option<u64> {
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
            CookieSource::Namespace => libc::ioctl(file, NS_GET_ID as _, pointer),
            CookieSource::Socket => libc::getsockopt(
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
