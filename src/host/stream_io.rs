//! Reads and writes stdin and stdout with a deadline. The other end may be slow or a terminal, and it
//! may have set the stream to non-blocking.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::clock::{block_at_most, boot_now};
use crate::ipam::Moment;

/// The number of bytes that a ready pipe takes without blocking (PIPE_BUF).
const CHUNK: usize = 4096;

/// Writes a whole text.
///
/// # Errors
/// The stream cannot be written, or not all of it before `deadline`. The number is how many bytes
/// were written before the error.
pub fn write_stream(
    stream: BorrowedFd<'_>,
    text: &[u8],
    deadline: Option<Moment>,
) -> Result<(), (usize, io::Error)> {
    let mut rest = text;
    while !rest.is_empty() {
        let failed = |error: io::Error| (text.len() - rest.len(), error);
        wait_until_ready(stream, PollFlags::OUT, deadline).map_err(failed)?;
        let chunk = rest.get(..CHUNK).unwrap_or(rest);
        match rustix::io::write(stream, chunk) {
            Ok(0) => return Err(failed(io::ErrorKind::WriteZero.into())),
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(e) => return Err(failed(e.into())),
        }
    }
    Ok(())
}

/// Reads a stream to its end, or until there are more than `limit` bytes. The buffer begins with
/// room for `expected` bytes.
///
/// # Errors
/// It cannot be read, or does not end before `deadline`.
pub fn read_stream(
    stream: impl AsFd,
    expected: usize,
    limit: usize,
    deadline: Moment,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(expected);
    while bytes.len() <= limit {
        if bytes.len() == bytes.capacity() {
            bytes.reserve(bytes.len().max(1));
        }
        wait_until_ready(stream.as_fd(), PollFlags::IN, Some(deadline))?;
        match rustix::io::read(&stream, spare_capacity(&mut bytes)) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(bytes)
}

/// Waits until a stream can be read or written. The read or write that follows reports errors of
/// the stream.
fn wait_until_ready(
    stream: BorrowedFd<'_>,
    flags: PollFlags,
    deadline: Option<Moment>,
) -> io::Result<()> {
    loop {
        let left = deadline.map(|time| time.since(boot_now()));
        // A duration that does not fit into a `Timespec` means no limit.
        let timeout = left.and_then(|duration| Timespec::try_from(block_at_most(duration)).ok());
        let mut streams = [PollFd::from_borrowed_fd(stream, flags)];
        match poll(&mut streams, timeout.as_ref()) {
            Ok(0) if left == Some(Duration::ZERO) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Returns whether a character alters what a terminal shows instead of being shown. These are
/// control characters, marks of text direction, and line separators.
pub fn alters_terminal(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::thread;

    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn slow_reader_gets_whole_text() {
        let text: Vec<u8> = (b'a'..=b'w').cycle().take(1 << 20).collect();
        for flags in [OFlags::NONBLOCK, OFlags::empty()] {
            let (mut reader, writer) = io::pipe().unwrap();
            fcntl_setfl(&writer, flags).unwrap();
            let expected = text.clone();
            let reading = thread::spawn(move || {
                let mut found = Vec::new();
                reader.read_to_end(&mut found).unwrap();
                found == expected
            });
            write_stream(writer.as_fd(), &text, Some(boot_now().after(LONG))).unwrap();
            drop(writer);
            assert!(reading.join().unwrap());
        }
    }

    #[test]
    fn write_times_out_without_a_reader() {
        for flags in [OFlags::NONBLOCK, OFlags::empty()] {
            let (_reader, writer) = io::pipe().unwrap();
            fcntl_setfl(&writer, flags).unwrap();
            let soon = boot_now().after(Duration::from_millis(20));
            let (written, error) =
                write_stream(writer.as_fd(), &[0; 1 << 20], Some(soon)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(written > 0 && written < 1 << 20, "{written}");
        }
    }

    #[test]
    fn stream_is_read_to_end_limit_or_deadline() {
        let later = || boot_now().after(LONG);
        let (reader, mut writer) = io::pipe().unwrap();
        fcntl_setfl(&reader, OFlags::NONBLOCK).unwrap();
        writer.write_all(&[b'x'; 5000]).unwrap();
        assert!(read_stream(&reader, 1, 100, later()).unwrap().len() > 100);
        let soon = boot_now().after(Duration::from_millis(20));
        let error = read_stream(&reader, 1, 10_000, soon).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        writer.write_all(b"rest").unwrap();
        drop(writer);
        assert_eq!(read_stream(&reader, 0, 100, later()).unwrap(), b"rest");
    }

    #[test]
    fn control_and_direction_characters_alter_the_terminal() {
        for c in ['a', ' ', 'ä', '\u{a0}', '\u{202f}', '漢', '\u{5d0}'] {
            assert!(!alters_terminal(c), "{c:?}");
        }
        for c in ['\0', '\n', '\x1b', '\x7f', '\u{9b}', '\u{202e}', '\u{2066}'] {
            assert!(alters_terminal(c), "{c:?}");
        }
    }
}
