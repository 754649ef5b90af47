//! The log file, shared with the original and in its format, with a level:
//! `2026/11/20 21:09:39 [28145] INFO [ipam] text` (contract section 15).
//!
//! Lines are buffered in memory and written together at the end of the call, because a write for
//! each line would take longer than the rest of a DEL. A call never fails because of its log
//! (difference D18).

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::io;
use std::mem;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, span};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};

use crate::host::{RotatingFile, Timestamp, alters_terminal, wall_now};

/// `.log` and `.log.1` to `.log.7`, 5 MB each.
const KEPT: RotatingFile = RotatingFile {
    full_at: 5 << 20,
    files: 8,
    mode: 0o600,
};

/// The capacity of a line; most lines are shorter.
const USUAL_LENGTH: usize = 192;

/// The number of lines kept from the start of a call (promise P9). A call on a node with 250 pods
/// needs fewer.
const FIRST_LINES: usize = 900;
/// The number of lines kept from the end, which has the result of the call.
const LAST_LINES: usize = 100;
/// The length limit of a line, and of a message.
const LONGEST: usize = 4096;

/// Lines not yet written.
static LINES: Mutex<LineBuffer> = Mutex::new(LineBuffer::new());

/// The buffered lines.
struct LineBuffer {
    lines: VecDeque<Line>,
    /// The number of lines dropped after the first ones.
    left_out: usize,
    /// The socket of syslog, if the lines go there.
    syslog: Option<PathBuf>,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    at: Timestamp,
    level: Level,
    /// The part after the level.
    text: String,
}

/// Displays a duration in milliseconds with one decimal.
pub struct Milliseconds(pub Duration);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.as_secs() * 10_000 + u64::from(self.0.subsec_micros() / 100);
        write!(f, "{}.{} ms", tenths / 10, tenths % 10)
    }
}

/// Starts buffering lines of `level` (`logLevel`) and above; without one, of `info` and above.
pub fn start(level: Option<LevelFilter>) {
    let max_level = level.unwrap_or(LevelFilter::INFO);
    // Fails if logging has started already. The first level stays then.
    let _ = tracing::subscriber::set_global_default(OriginalFormat { max_level });
}

/// Checks that syslog takes lines at this socket. Nothing is sent.
///
/// # Errors
/// Nothing listens there.
pub fn check_syslog(socket: &Path) -> io::Result<()> {
    UnixDatagram::unbound()?.connect(socket)
}

/// Sends the lines to syslog at this socket instead of the file.
pub fn use_syslog(socket: PathBuf) {
    buffer().syslog = Some(socket);
}

/// Writes the buffered lines to the file at `path`, or to syslog under the file's name. What syslog does not take at once is
/// written to the file.
pub fn flush(path: &Path) {
    let mut lines = buffer().take();
    // Not while the buffer is locked, which a panic would need.
    let syslog = buffer().syslog.clone();
    if let Some(socket) = syslog {
        let tag = path.file_stem().unwrap_or_default().to_string_lossy();
        let _ = send(&socket, &tag, &mut lines);
    }
    if !lines.is_empty() {
        // A failure cannot be reported anywhere.
        let _ = KEPT.append(path, print(&lines).as_bytes(), Vec::new);
    }
}

/// Sends lines to syslog, one datagram each, and removes them. It never waits.
///
/// # Errors
/// Nothing listens, or the socket is full.
fn send(socket: &Path, tag: &str, lines: &mut VecDeque<Line>) -> io::Result<()> {
    let stream = UnixDatagram::unbound()?;
    stream.set_nonblocking(true)?;
    stream.connect(socket)?;
    while let Some(line) = lines.front() {
        stream.send(line.for_syslog(tag).as_bytes())?;
        lines.pop_front();
    }
    Ok(())
}

/// Prints lines for the file.
fn print(lines: &VecDeque<Line>) -> String {
    let mut text = String::with_capacity(lines.len() * USUAL_LENGTH);
    let (mut second, mut prefix) = (None, String::new());
    for line in lines {
        if second != Some(line.at.seconds) {
            second = Some(line.at.seconds);
            prefix = format!("{} [{}]", line.at.format_for_log(), std::process::id());
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{prefix} {} {}", line.level, line.text);
    }
    text
}

impl Line {
    /// Prints it as syslog(3) does (RFC 3164): `<27>Nov 20 21:09:39 azure-vnet-ipam[28145]: ERROR [ipam] text`.
    fn for_syslog(&self, tag: &str) -> String {
        const DAEMON: u8 = 3 << 3;
        let severity = match self.level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        let (priority, time) = (DAEMON + severity, self.at.format_for_syslog());
        let (pid, level, text) = (std::process::id(), self.level, &self.text);
        format!("<{priority}>{time} {tag}[{pid}]: {level} {text}")
    }
}

/// Drops the buffered lines.
pub fn discard() {
    buffer().take();
}

/// Formats events as the original does. Spans are not used, so nothing is kept between events.
struct OriginalFormat {
    max_level: LevelFilter,
}

impl Subscriber for OriginalFormat {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.max_level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.max_level)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = String::with_capacity(USUAL_LENGTH);
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        // Writing to a string cannot fail.
        let _ = write!(line, "[{target}] ");
        let _ = DefaultFields::new().format_fields(Writer::new(&mut line), event);
        buffer().add(wall_now(), level, line);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn buffer() -> MutexGuard<'static, LineBuffer> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LineBuffer {
    const fn new() -> LineBuffer {
        LineBuffer {
            lines: VecDeque::new(),
            left_out: 0,
            syslog: None,
        }
    }

    /// Buffers a line.
    fn add(&mut self, at: Timestamp, level: Level, text: String) {
        if self.lines.len() == FIRST_LINES + LAST_LINES {
            self.lines.remove(FIRST_LINES);
            self.left_out += 1;
        }
        // Callers and servers choose parts of the text, which must not fake lines or control a
        // terminal.
        let harmless = |c| if alters_terminal(c) { ' ' } else { c };
        let text = shorten(text).chars().map(harmless).collect();
        self.lines.push_back(Line { at, level, text });
    }

    /// Takes the buffered lines.
    fn take(&mut self) -> VecDeque<Line> {
        let mut lines = mem::take(&mut self.lines);
        let left_out = mem::take(&mut self.left_out);
        if left_out > 0 {
            let dropped = Line {
                at: wall_now(),
                level: Level::WARN,
                text: format!("[cni-ipam] {left_out} lines were dropped here."),
            };
            lines.insert(FIRST_LINES, dropped);
        }
        lines
    }
}

/// Shortens a text that may quote callers and servers, whose texts may be long. Cuts it between two
/// characters.
pub fn shorten(mut text: String) -> String {
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_in_milliseconds() {
        for (micros, text) in [(0, "0.0 ms"), (1_250, "1.2 ms"), (3_000_999, "3000.9 ms")] {
            assert_eq!(
                Milliseconds(Duration::from_micros(micros)).to_string(),
                text
            );
        }
    }

    const AT: Timestamp = Timestamp::from_seconds(1_700_000_000);

    fn add(lines: &mut LineBuffer, text: &str) {
        lines.add(AT, Level::INFO, text.to_owned());
    }

    #[test]
    fn control_characters_are_replaced() {
        let mut lines = LineBuffer::new();
        add(&mut lines, "[ipam] a\nb\x1b[31m");
        add(&mut lines, "[ipam] ä\nb\u{9b}31m\u{202e}c");
        let start = format!("{} [{}] INFO ", AT.format_for_log(), std::process::id());
        assert_eq!(
            print(&lines.take()),
            format!("{start}[ipam] a b [31m\n{start}[ipam] ä b 31m c\n")
        );
    }

    #[test]
    fn of_many_lines_the_first_and_the_last_are_written() {
        let written = |count: usize| {
            let mut lines = LineBuffer::new();
            for n in 0..count {
                add(&mut lines, &format!("[ipam] line {n}."));
            }
            let found: Vec<_> = lines.take().into_iter().map(|line| line.text).collect();
            assert!(lines.take().is_empty());
            found
        };
        let found = written(FIRST_LINES + LAST_LINES);
        assert_eq!(found.len(), FIRST_LINES + LAST_LINES);
        assert_eq!(found[FIRST_LINES], "[ipam] line 900.");
        let found = written(100_000);
        assert_eq!(found.len(), FIRST_LINES + 1 + LAST_LINES);
        assert_eq!(found[FIRST_LINES - 1], "[ipam] line 899.");
        assert_eq!(
            found[FIRST_LINES],
            "[cni-ipam] 99000 lines were dropped here."
        );
        assert_eq!(found[FIRST_LINES + 1], "[ipam] line 99900.");
        assert_eq!(found[FIRST_LINES + LAST_LINES], "[ipam] line 99999.");
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let mut lines = LineBuffer::new();
        add(&mut lines, &format!("[ipam] {}", "ä".repeat(1 << 20)));
        let text = print(&lines.take());
        assert!(
            text.ends_with("ää...\n") && text.len() < LONGEST + 100,
            "{}",
            text.len()
        );
    }

    #[test]
    fn lines_that_syslog_does_not_take_stay() {
        let socket = std::env::temp_dir().join(format!("syslog-{}", std::process::id()));
        let mut lines = LineBuffer::new();
        lines.add(AT, Level::ERROR, "[ipam] failed".to_owned());
        for n in 0..FIRST_LINES {
            add(&mut lines, &format!("[ipam] line {n}."));
        }
        let mut left = lines.take();
        let all = left.clone();
        assert!(send(&socket, "ipam", &mut left).is_err(), "nothing listens");
        assert_eq!(left, all);
        let syslog = UnixDatagram::bind(&socket).unwrap();
        let mut received = VecDeque::new();
        // Nobody reads while lines are sent: a full socket does not stop the call.
        while let Err(e) = send(&socket, "ipam", &mut left) {
            assert_eq!(e.kind(), io::ErrorKind::WouldBlock);
            read_all(&syslog, &mut received);
        }
        read_all(&syslog, &mut received);
        std::fs::remove_file(socket).unwrap();
        assert_eq!(received.len(), all.len());
        let (time, pid) = (AT.format_for_syslog(), std::process::id());
        assert_eq!(
            received[0],
            format!("<27>{time} ipam[{pid}]: ERROR [ipam] failed")
        );
        assert!(received[1].starts_with("<30>"), "{}", received[1]);
    }

    /// Reads what waits in a socket.
    fn read_all(syslog: &UnixDatagram, received: &mut VecDeque<String>) {
        let mut datagram = [0; 256];
        syslog.set_nonblocking(true).unwrap();
        while let Ok(length) = syslog.recv(&mut datagram) {
            let text = String::from_utf8(datagram[..length].to_vec()).unwrap();
            received.push_back(text);
        }
    }
}
