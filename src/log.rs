//! The log file, shared with the original and in its format, with a level:
//! `2026/11/20 21:09:39 [28145] INFO [ipam] text` (contract section 15).
//!
//! Lines are buffered in memory and written together at the end of the call, because a write for
//! each line would take longer than the rest of a DEL. A call never fails because of its log
//! (difference D18).

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::mem;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber, span};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};

use crate::host::{RotatingFile, alters_terminal, wall_now};

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

/// The buffered lines, and the prefix for lines of the current second.
struct LineBuffer {
    lines: VecDeque<String>,
    /// The number of lines dropped behind the first ones.
    left_out: usize,
    second: Option<i64>,
    prefix: String,
}

/// Displays a duration in milliseconds with one decimal.
pub struct Milliseconds(pub Duration);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.as_secs() * 10_000 + u64::from(self.0.subsec_micros() / 100);
        write!(f, "{}.{} ms", tenths / 10, tenths % 10)
    }
}

/// Starts buffering lines of `level` (`ipam.logLevel`) and above; unknown levels mean `info`.
pub fn start(level: Option<&str>) {
    let max_level = match level.map(str::to_ascii_lowercase).as_deref() {
        Some("trace") => LevelFilter::TRACE,
        Some("debug") => LevelFilter::DEBUG,
        Some("warn" | "warning") => LevelFilter::WARN,
        Some("error" | "fatal" | "panic") => LevelFilter::ERROR,
        Some("off" | "none") => LevelFilter::OFF,
        _ => LevelFilter::INFO,
    };
    // Fails if logging has started already. The first level stays then.
    let _ = tracing::subscriber::set_global_default(OriginalFormat { max_level });
}

/// Writes the buffered lines.
pub fn flush(path: &Path) {
    let lines = buffer().take();
    if !lines.is_empty() {
        // A failure cannot be reported anywhere.
        let _ = KEPT.append(path, lines.as_bytes(), Vec::new);
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
        let (level, target) = (event.metadata().level(), event.metadata().target());
        // Writing to a string cannot fail.
        let _ = write!(line, "{level} [{target}] ");
        let _ = DefaultFields::new().format_fields(Writer::new(&mut line), event);
        buffer().add(wall_now().seconds, line);
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
            second: None,
            prefix: String::new(),
        }
    }

    /// Buffers a line and adds its prefix.
    fn add(&mut self, second: i64, line: String) {
        if self.second != Some(second) {
            self.second = Some(second);
            self.prefix = format!("{} [{}] ", wall_now().format_for_log(), std::process::id());
        }
        if self.lines.len() == FIRST_LINES + LAST_LINES {
            self.lines.remove(FIRST_LINES);
            self.left_out += 1;
        }
        let mut text = self.prefix.clone();
        // Callers and servers choose parts of the text, which must not fake lines or control a
        // terminal.
        for c in shorten(line).chars() {
            text.push(if alters_terminal(c) { ' ' } else { c });
        }
        text.push('\n');
        self.lines.push_back(text);
    }

    /// Takes the buffered text.
    fn take(&mut self) -> String {
        let mut lines = mem::take(&mut self.lines);
        let left_out = mem::take(&mut self.left_out);
        if left_out > 0 {
            let prefix = &self.prefix;
            let line = format!("{prefix}WARN [cni-ipam] {left_out} lines were dropped here.\n");
            lines.insert(FIRST_LINES, line);
        }
        lines.into_iter().collect()
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
    fn durations_are_told_in_milliseconds() {
        for (micros, text) in [(0, "0.0 ms"), (1_250, "1.2 ms"), (3_000_999, "3000.9 ms")] {
            assert_eq!(
                Milliseconds(Duration::from_micros(micros)).to_string(),
                text
            );
        }
    }

    #[test]
    fn control_characters_are_replaced() {
        let mut lines = LineBuffer {
            second: Some(7),
            prefix: "2026/11/20 21:09:39 [1] ".to_owned(),
            ..LineBuffer::new()
        };
        lines.add(7, "INFO [ipam] a\nb\x1b[31m".into());
        assert_eq!(
            lines.lines,
            ["2026/11/20 21:09:39 [1] INFO [ipam] a b [31m\n"]
        );
        lines.add(7, "INFO [ipam] ä\nb\u{9b}31m\u{202e}c".into());
        assert!(lines.lines[1].ends_with("[ipam] ä b 31m c\n"));
        lines.add(8, "INFO [ipam] c".into());
        assert_ne!(lines.lines[2], "2026/11/20 21:09:39 [1] INFO [ipam] c\n");
    }

    #[test]
    fn of_many_lines_the_first_and_the_last_are_written() {
        let written = |count: usize| {
            let mut lines = LineBuffer::new();
            for n in 0..count {
                lines.add(7, format!("INFO [ipam] line {n}."));
            }
            let text = lines.take();
            assert!(lines.take().is_empty());
            text
        };
        let text = written(FIRST_LINES + LAST_LINES);
        assert_eq!(text.lines().count(), FIRST_LINES + LAST_LINES);
        assert!(!text.contains("left out"), "{text}");
        let text = written(100_000);
        let found: Vec<_> = text
            .lines()
            .map(|l| l.split_once("] ").unwrap().1)
            .collect();
        assert_eq!(found.len(), FIRST_LINES + 1 + LAST_LINES);
        assert_eq!(found[FIRST_LINES - 1], "INFO [ipam] line 899.");
        assert_eq!(
            found[FIRST_LINES],
            "WARN [cni-ipam] 99000 lines were dropped here."
        );
        assert_eq!(found[FIRST_LINES + 1], "INFO [ipam] line 99900.");
        assert_eq!(found[FIRST_LINES + LAST_LINES], "INFO [ipam] line 99999.");
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let mut lines = LineBuffer::new();
        lines.add(7, format!("INFO [ipam] {}", "ä".repeat(1 << 20)));
        let text = lines.take();
        assert!(
            text.ends_with("ää...\n") && text.len() < LONGEST + 100,
            "{}",
            text.len()
        );
    }
}
