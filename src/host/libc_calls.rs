//! Calls of libc that no crate makes safe: the dispositions of signals, timers, and what the kernel says of namespaces.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

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

/// Asks for huge pages behind memory that is to be filled, from 4 MiB on: the text of 65,536 addresses takes 1,700 page faults without.
#[allow(unsafe_code)]
pub(super) fn use_huge_pages<T>(memory: &mut [MaybeUninit<T>]) {
    const LEAST: usize = 4 << 20;
    /// No kernel has larger ones by default.
    const PAGE: usize = 64 << 10;
    let length = size_of_val(memory);
    if length >= LEAST {
        let start = memory.as_mut_ptr().cast::<u8>();
        let skipped = start.align_offset(PAGE);
        // SAFETY: the memory stays as it is; a kernel without huge pages refuses.
        let _ = unsafe {
            libc::madvise(
                start.wrapping_add(skipped).cast(),
                length - skipped,
                libc::MADV_HUGEPAGE,
            )
        };
    }
}

/// Interrupts what blocks this thread, again and again until it is dropped: the first time may be just before it blocks.
pub(super) struct Interruptions(libc::timer_t);

impl Interruptions {
    /// Begins after this time.
    ///
    /// # Errors
    /// The user has as many timers and signals as it may have (RLIMIT_SIGPENDING).
    #[allow(unsafe_code)]
    pub fn after(wait: Duration) -> io::Result<Interruptions> {
        /// The libc crate has it for glibc only.
        const SIGEV_THREAD_ID: libc::c_int = 4;
        const INTERVAL: Duration = Duration::from_millis(10);
        extern "C" fn nothing(_signal: libc::c_int) {}
        let handler = nothing as extern "C" fn(libc::c_int);
        let spec = |time: Duration| libc::timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        let times = libc::itimerspec {
            it_interval: spec(INTERVAL),
            // Zero would mean never.
            it_value: spec(wait.max(Duration::from_nanos(1))),
        };
        // SAFETY: all of these structures may be zero, and live until the block ends. The handler does nothing, and nothing else in the
        // process wants SIGALRM, which may be blocked by whoever started it. The timer is set only if it could be made.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            // Without SA_RESTART, so that the system call ends.
            action.sa_sigaction = handler as libc::sighandler_t;
            libc::sigaction(libc::SIGALRM, &raw const action, ptr::null_mut());
            libc::sigaddset(&raw mut action.sa_mask, libc::SIGALRM);
            libc::pthread_sigmask(
                libc::SIG_UNBLOCK,
                &raw const action.sa_mask,
                ptr::null_mut(),
            );
            let mut event: libc::sigevent = mem::zeroed();
            event.sigev_signo = libc::SIGALRM;
            event.sigev_notify = SIGEV_THREAD_ID;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = mem::zeroed();
            if libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) != 0
                || libc::timer_settime(timer, 0, &raw const times, ptr::null_mut()) != 0
            {
                return Err(io::Error::last_os_error());
            }
            Ok(Interruptions(timer))
        }
    }
}

impl Drop for Interruptions {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the timer was made by `after`, and nothing else deletes it.
        unsafe {
            libc::timer_delete(self.0);
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
