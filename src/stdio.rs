//! The standard streams. stdout belongs to the protocol: it carries one document or nothing (promise P3).

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

/// Looks before `main` begins: Rust's start-up opens /dev/null in place of a closed stream, and everything printed there
/// would seem to have reached the caller.
#[expect(
    unsafe_code,
    reason = "nothing else runs before the standard library's start-up; the function only asks for a flag"
)]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        let closed = rustix::io::fcntl_getfd(stdout()).is_err();
        STDOUT_WAS_CLOSED.store(closed, Ordering::Relaxed);
    }
    look
};

/// For how long a runtime may leave its pipe full.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes a document to stdout, for a runtime.
///
/// # Errors
/// Not all of it could be written in time, or stdout was closed from the start.
pub fn print(text: &str) -> io::Result<()> {
    print_until(text, Some(boot_now().after(PATIENCE)))
}

/// Writes a document to stdout, for a person who may take any time to read it.
///
/// # Errors
/// Not all of it could be written, or stdout was closed from the start.
pub fn print_at_leisure(text: &str) -> io::Result<()> {
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

/// Whether anything was printed to stdout, also the beginning of a document alone: nothing may follow it.
pub fn has_printed() -> bool {
    HAS_PRINTED.load(Ordering::Relaxed)
}

/// Writes text for people to stderr; nobody may be there to read it.
pub fn tell(text: &str) {
    let _ = write_stream(stderr(), text.as_bytes(), None);
}
