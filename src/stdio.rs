//! The standard streams. stdout carries one document of the protocol or nothing (promise P3).

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, mem, process};

use rustix::stdio::{stderr, stdin, stdout};

use crate::host::{boot_now, open, write_stream};
use crate::ipam::Moment;

/// Whether the process was started with stdout closed.
static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether anything was printed.
static HAS_PRINTED: AtomicBool = AtomicBool::new(false);

/// Opens /dev/null in place of every stream that is closed, as no other file may get its number. What is printed later would seem to
/// reach the caller, so it is kept in mind that stdout was closed.
pub fn open_closed_streams() {
    for stream in [stdin(), stdout(), stderr()] {
        if rustix::io::fcntl_getfd(stream).is_err() {
            STDOUT_WAS_CLOSED.fetch_or(stream.as_raw_fd() == 1, Ordering::Relaxed);
            // It gets the lowest number that is free, and keeps it.
            mem::forget(open("/dev/null".as_ref()).unwrap_or_else(|_| process::abort()));
        }
    }
}

/// How long a runtime may leave its pipe full.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Prints a document to stdout for a runtime, with a timeout.
///
/// # Errors
/// stdout was closed from the start, or the write failed or timed out.
pub fn print(text: &str) -> io::Result<()> {
    print_until(text, Some(boot_now().after(TIMEOUT)))
}

/// Prints a text to stdout, by default without a time limit, because an operator may read it slowly.
///
/// # Errors
/// As [`print()`].
pub fn print_until(text: &str, deadline: Option<Moment>) -> io::Result<()> {
    if STDOUT_WAS_CLOSED.load(Ordering::Relaxed) {
        return Err(rustix::io::Errno::BADF.into());
    }
    let printed = write_stream(stdout(), text.as_bytes(), deadline);
    let written = printed.as_ref().map_or_else(|(n, _)| *n, |()| text.len());
    HAS_PRINTED.fetch_or(written > 0, Ordering::Relaxed);
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
