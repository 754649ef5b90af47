//! Signal dispositions of the process, and its sleep on the boot clock.

use super::clock::{block_at_most, boot_now};
use crate::ipam::Moment;

/// Makes a write beyond RLIMIT_FSIZE fail with EFBIG. By default SIGXFSZ kills the process, also one that has already printed an
/// address and only writes its log, so that the runtime would take the ADD for failed.
#[allow(unsafe_code)]
pub fn ignore_file_size_signal() {
    // SAFETY: no handler is installed, so no code can run at a signal; nothing else in the process changes the disposition of it,
    // and an unknown number would only be refused.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
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

/// Sleeps until the boot clock shows this time.
pub fn sleep_until(time: Moment) {
    loop {
        let left = time.since(boot_now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(block_at_most(left));
    }
}
