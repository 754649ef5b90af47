//! Calls of libc that no crate wraps safely: the start of the process, dispositions of signals,
//! timers, and namespaces.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether stdout was closed when the process was started.
static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Checks stdout before Rust's own start-up, which opens /dev/null in place of a closed stream. A
/// result that is printed there would seem to reach the caller.
#[used]
#[unsafe(link_section = ".init_array")]
#[allow(unsafe_code)]
static CHECK_STDOUT: extern "C" fn() = {
    extern "C" fn check_stdout() {
        let is_closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
        STDOUT_WAS_CLOSED.store(is_closed, Ordering::Relaxed);
    }
    check_stdout
};

/// Returns whether stdout was closed when the process was started.
pub fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// Makes a write beyond RLIMIT_FSIZE fail with EFBIG.
///
/// By default, such a write raises a signal that kills the process. A call that is killed while it
/// writes its log has already printed its address, but the runtime would count the ADD as failed.
#[allow(unsafe_code)]
pub fn ignore_file_size_signal() {
    // SAFETY: no handler is installed, so no code runs when the signal arrives. Nothing else in the
    // process changes its disposition.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Makes SIGTERM and SIGINT end the process at once, with exit status 0. Without a handler, the
/// kernel ignores both for the first process of a container.
#[allow(unsafe_code)]
pub fn exit_on_termination_signals() {
    extern "C" fn exit(_signal: libc::c_int) {
        // SAFETY: `_exit` may be called in signal handlers, and does not return.
        unsafe { libc::_exit(0) }
    }
    let handler = exit as extern "C" fn(libc::c_int);
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: the handler only ends the process, so it reads no half-changed data. Nothing else
        // in the process changes these dispositions. The kernel refuses an unknown number.
        unsafe {
            libc::signal(signal, handler as libc::sighandler_t);
        }
    }
}

/// A timer that interrupts the blocking system calls of this thread until it is dropped. It fires
/// repeatedly, because the first signal may arrive just before the thread blocks.
pub(super) struct Interruptions(libc::timer_t);

impl Interruptions {
    /// Starts the timer, which fires first after `wait`.
    ///
    /// # Errors
    /// The user already has as many timers and pending signals as RLIMIT_SIGPENDING allows.
    #[allow(unsafe_code)]
    pub fn after(wait: Duration) -> io::Result<Interruptions> {
        /// The libc crate defines this for glibc only.
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
        // SAFETY: all of these structures may be zero, and live until the block ends. The handler
        // does nothing, and nothing else in the process uses SIGALRM. The signal is unblocked,
        // because the parent process may have blocked it. The timer is set only after it exists.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            // SA_RESTART is not set, so that the signal ends the system call.
            action.sa_sigaction = handler as libc::sighandler_t;
            libc::sigaction(libc::SIGALRM, &raw const action, ptr::null_mut());
            let mut alarm: libc::sigset_t = mem::zeroed();
            libc::sigemptyset(&raw mut alarm);
            libc::sigaddset(&raw mut alarm, libc::SIGALRM);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const alarm, ptr::null_mut());
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

/// Opens the user namespace that a namespace belongs to: NS_GET_USERNS of ioctl_nsfs(2), since Linux
/// 4.9.
#[allow(unsafe_code)]
pub(super) fn open_user_namespace(namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// `_IO(0xb7, 0x1)`
    const NS_GET_USERNS: u32 = 0xb7 << 8 | 0x1;
    // SAFETY: `namespace` is open for as long as it is borrowed. The request takes no argument. It
    // returns -1, or a new descriptor that nothing else owns.
    unsafe {
        match libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS as _) {
            -1 => Err(io::Error::last_os_error()),
            opened => Ok(OwnedFd::from_raw_fd(opened)),
        }
    }
}

/// The kind of descriptor that a namespace cookie is read from.
#[derive(Clone, Copy)]
pub(super) enum CookieSource {
    /// A namespace: NS_GET_ID of ioctl_nsfs(2), since Linux 6.18.
    Namespace,
    /// A socket, for the namespace that it is in: SO_NETNS_COOKIE of socket(7), since Linux 5.14.
    /// The number is the same.
    Socket,
}

/// Reads the cookie of a namespace, a number that is unique within a boot. Returns `None` if the
/// kernel does not report it.
#[allow(unsafe_code)]
pub(super) fn read_cookie(file: BorrowedFd<'_>, source: CookieSource) -> Option<u64> {
    /// `_IOR(0xb7, 0xd, __u64)`. The number includes the size, so the kernel writes no more.
    const NS_GET_ID: u32 = 2 << 30 | 8 << 16 | 0xb7 << 8 | 0xd;
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let mut cookie: u64 = 0;
    let mut length: libc::socklen_t = 8;
    let pointer = std::ptr::from_mut(&mut cookie);
    let descriptor = file.as_raw_fd();
    // SAFETY: `file` is open for as long as it is borrowed. Both calls write at most 8 bytes
    // through `pointer`: the ioctl by its definition, getsockopt because of `length`. `cookie` has
    // 8 bytes and lives until the function ends.
    let status = unsafe {
        match source {
            CookieSource::Namespace => libc::ioctl(descriptor, NS_GET_ID as _, pointer),
            CookieSource::Socket => libc::getsockopt(
                descriptor,
                libc::SOL_SOCKET,
                SO_NETNS_COOKIE,
                pointer.cast(),
                &raw mut length,
            ),
        }
    };
    (status == 0 && length == 8).then_some(cookie)
}
