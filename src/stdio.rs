//! The standard streams. stdout belongs to the protocol: it carries one document or nothing (promise P3).

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::stdio::{stderr, stdout};

/// Whether the process was started with stdout closed.
static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether a document was printed.
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

/// Writes a document to stdout.
///
/// # Errors
/// Not all of it could be written, or stdout was closed from the start.
pub fn print(text: &str) -> io::Result<()> {
    if STDOUT_WAS_CLOSED.load(Ordering::Relaxed) {
        return Err(rustix::io::Errno::BADF.into());
    }
    HAS_PRINTED.store(true, Ordering::Relaxed);
    write(stdout(), text)
}

/// Whether anything was printed to stdout, or tried to.
pub fn has_printed() -> bool {
    HAS_PRINTED.load(Ordering::Relaxed)
}

/// Writes text for people to stderr; nobody may be there to read it.
pub fn tell(text: &str) {
    let _ = write(stderr(), text);
}

/// Not through the standard library's streams: they take a closed one for success.
fn write(stream: rustix::fd::BorrowedFd<'_>, text: &str) -> io::Result<()> {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match rustix::io::write(stream, rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
