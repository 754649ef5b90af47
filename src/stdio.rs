//! The standard streams. stdout carries one document of the protocol or nothing (promise P3).

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::stdio::{stderr, stdout};

use crate::host::{boot_now, write_stream};
use crate::ipam::Moment;

/// Whether the process was started with stdout closed.
static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether anything was printed.
static HAS_PRINTED: AtomicBool = AtomicBool::new(false);

/// Checks stdout before `main` begins. Rust's start-up opens /dev/null in place of a closed stream, so everything printed
/// later would seem to reach the caller.
#[expect(
    unsafe_code,
    reason = "nothing else runs before the standard library's start-up; the function only asks for a flag"
)]
#[used]
#[unsafe(link_section = ".init_array")]
static CHECK_STDOUT: extern "C" fn() = {
    extern "C" fn check_stdout() {
        let closed = rustix::io::fcntl_getfd(stdout()).is_err();
        STDOUT_WAS_CLOSED.store(closed, Ordering::Relaxed);
    }
    check_stdout
};

/// How long a runtime may leave its pipe full.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Prints a document to stdout for a runtime, with a timeout.
///
/// # Errors
/// stdout was closed from the start, or the write failed or timed out.
pub fn print(text: &str) -> io::Result<()> {
    print_until(text, Some(boot_now().after(TIMEOUT)))
}

/// Prints a text to stdout without a time limit, because an operator may read it slowly.
///
/// # Errors
/// stdout was closed from the start, or the write failed.
pub fn print_without_timeout(text: &str) -> io::Result<()> {
    print_until(text, None)
}

fn print_until(text: &str, deadline: Option<Moment>) -> io::Result<()> {
    if STDOUT_WAS_CLOSED.load(Ordering::Relaxed) {
        return Err(rustix::io::Errno::BADF.into());
    }
    let printed = write_stream(stdout(), text.as_bytes(), deadline);
    let written = printed.as_ref().map_or_else(|(n, _)| *n, |()| text.len());
    if written > 0 {
        HAS_PRINTED.store(true, Ordering::Relaxed);
    }
    printed.map_err(|(_, error)| error)
}

/// Whether anything was printed to stdout, even the beginning of a document. Nothing may follow it.
pub fn has_printed() -> bool {
    HAS_PRINTED.load(Ordering::Relaxed)
}

/// Prints a text to stderr. Errors are ignored: nobody may be there to read it.
pub fn eprint(text: &str) {
    let _ = write_stream(stderr(), text.as_bytes(), None);
}
