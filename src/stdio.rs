//! The standard streams. stdout carries one document of the protocol or nothing (promise P3).

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::stdio::{stderr, stdout};

use crate::host::{boot_now, stdout_was_closed, write_stream};
use crate::ipam::Moment;

/// Whether anything was printed.
static HAS_PRINTED: AtomicBool = AtomicBool::new(false);

/// How long a runtime may leave its pipe full.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Prints a document to stdout for a runtime, with a timeout.
///
/// # Errors
/// stdout was closed from the start, or the write failed or timed out.
pub fn print(text: &str) -> io::Result<()> {
    print_until(text, Some(boot_now().after(TIMEOUT)))
}

/// Prints a text to stdout. Without a deadline it waits for the reader without end, because an
/// operator may read slowly.
///
/// # Errors
/// As [`print()`].
pub fn print_until(text: &str, deadline: Option<Moment>) -> io::Result<()> {
    if stdout_was_closed() {
        return Err(rustix::io::Errno::BADF.into());
    }
    let (written, result) = match write_stream(stdout(), text.as_bytes(), deadline) {
        Ok(()) => (text.len(), Ok(())),
        Err((written, error)) => (written, Err(error)),
    };
    HAS_PRINTED.fetch_or(written > 0, Ordering::Relaxed);
    result
}

/// Returns whether anything was printed to stdout, even a part of a document. Nothing else may be
/// printed then.
pub fn has_printed() -> bool {
    HAS_PRINTED.load(Ordering::Relaxed)
}

/// Prints a text to stderr. Errors are ignored, because there may be no reader.
pub fn eprint(text: &str) {
    let _ = write_stream(stderr(), text.as_bytes(), None);
}
