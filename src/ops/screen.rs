//! The layout of text output: width, colours, paragraphs and tables.

use std::io::IsTerminal;

use rustix::stdio::stdout;
use rustix::termios::tcgetwinsize;

use crate::host::{Timestamp, alters_terminal};
pub use crate::ipam::format_age;

/// The output device of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// The number of columns; `None` for a file or a pipe.
    pub width: Option<usize>,
    /// Whether to use colours. They never carry information alone.
    pub colours: bool,
}

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    /// Nothing is wrong.
    Good,
    /// Needs attention.
    Doubtful,
    /// Wrong.
    Bad,
    /// Less important.
    Faint,
    /// A heading.
    Strong,
}

impl Screen {
    /// The minimum width.
    const LEAST: usize = 40;
    /// The width that every terminal has at least.
    const USUAL: usize = 80;

    /// The screen of stdout. `NO_COLOR` and `TERM=dumb` are honoured, and COLUMNS also where stdout is no terminal.
    pub fn for_stdout() -> Screen {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let is_terminal = std::io::stdout().is_terminal();
        let asked = || {
            let size = tcgetwinsize(stdout()).ok()?;
            Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
        };
        let columns = set("COLUMNS").and_then(|columns| columns.to_str()?.parse().ok());
        let width = columns.or_else(|| is_terminal.then(|| asked().unwrap_or(Self::USUAL)));
        let has_colours = set("NO_COLOR").is_none() && set("TERM").is_none_or(|t| t != "dumb");
        Screen {
            width: width.map(|width| width.max(Self::LEAST)),
            colours: is_terminal && has_colours,
        }
    }

    /// The same screen with a width in any case.
    pub fn bounded(self) -> Screen {
        Screen {
            width: self.width.or(Some(Self::USUAL)),
            ..self
        }
    }

    /// Colours the text, if colours are on.
    pub fn tint(&self, tint: Tint, text: &str) -> String {
        if !self.colours || text.is_empty() {
            return text.to_owned();
        }
        let code = match tint {
            Tint::Good => "32",
            Tint::Doubtful => "33",
            Tint::Bad => "31",
            Tint::Faint => "2",
            Tint::Strong => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Wraps a paragraph at the width of the screen, and indents it by `indent` columns. The first line begins with `head`,
    /// which takes the place of the indentation.
    pub fn paragraph(&self, head: &str, indent: usize, text: &str) -> String {
        let is_too_long = |line: &str, word: &str| {
            self.width
                .is_some_and(|width| line.chars().count() + 1 + word.chars().count() > width)
        };
        let mut out = String::new();
        let mut line = format!("{head:indent$}");
        let mut empty = true;
        for word in text.split_whitespace().map(replace_control) {
            if !empty && is_too_long(&line, &word) {
                out.push_str(line.trim_end());
                out.push('\n');
                line = " ".repeat(indent);
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(&word);
            empty = false;
        }
        out.push_str(line.trim_end());
        out.push('\n');
        out
    }

    /// Lays out a table, indented by this number of columns: a line for each row, of which the first one has the headings. Columns
    /// are as wide as their longest cell. Of an ID only the end is cut, as its first characters are good for a command, and an
    /// IPv4 address is not cut.
    pub fn table(&self, mut rows: Vec<Vec<String>>, indent: usize) -> Vec<String> {
        const GAP: &str = "  ";
        const ID: &str = "CONTAINER";
        /// They give way one after the other where the screen is too narrow. The name of the pod is cut last.
        const ELASTIC: [&str; 5] = ["NETWORK", ID, "ADDRESS", "POD", "WHO"];
        for cell in rows.iter_mut().flatten() {
            *cell = replace_control(cell);
        }
        let headings = rows.first().cloned().unwrap_or_default();
        let mut widths = vec![0; headings.len()];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let gaps = GAP.len() * headings.len().saturating_sub(1);
        let total = indent + widths.iter().sum::<usize>() + gaps;
        let mut excess = self.width.map_or(0, |width| total.saturating_sub(width));
        for name in ELASTIC {
            let mut columns = headings.iter().zip(&mut widths);
            if let Some((_, width)) = columns.find(|(heading, _)| *heading == name) {
                let least = match name {
                    "ADDRESS" => "255.255.255.255".len(),
                    ID => ID.len(),
                    _ => 8,
                };
                let less = (*width).min(width.saturating_sub(excess).max(least));
                excess -= *width - less;
                *width = less;
            }
        }
        let print = |row: &Vec<String>| {
            let mut line = " ".repeat(indent);
            for ((cell, width), heading) in row.iter().zip(&widths).zip(&headings) {
                let cell = if heading == ID {
                    cell.chars().take(*width).collect()
                } else {
                    elide_middle(cell, *width)
                };
                line.push_str(&format!("{cell:width$}{GAP}"));
            }
            line.trim_end().to_owned()
        };
        let mut lines: Vec<String> = rows.iter().map(print).collect();
        if let Some(headings) = lines.first_mut() {
            *headings = self.tint(Tint::Strong, headings);
        }
        lines
    }
}

/// Cuts the middle out of a text that is too long: its start names the namespace, its end the pod.
fn elide_middle(text: &str, width: usize) -> String {
    const GAP: &str = "..";
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(GAP.len());
    let head = kept.div_ceil(2);
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(length - (kept - head)).collect();
    format!("{start}{GAP}{end}")
}

/// Replaces control characters, as callers choose parts of the text.
pub fn replace_control(text: &str) -> String {
    text.chars()
        .map(|c| if alters_terminal(c) { '?' } else { c })
        .collect()
}

/// Returns the seconds east of UTC at a time on screens, which are local. Unit tests compare screens with fixtures, so theirs must not
/// depend on the machine.
pub fn screen_offset(time: Timestamp) -> i32 {
    if cfg!(test) { 0 } else { time.local_offset() }
}

/// Splits a time, `offset` seconds east of UTC, into date, time and zone of `2026-11-20 22:09:39 +01:00`. The zone is `UTC` where
/// there is no offset.
pub fn split_time(time: Timestamp, offset: i32) -> [String; 3] {
    let text = Timestamp::from_seconds(time.seconds).format(offset);
    let (date, rest) = text.split_once('T').unwrap_or_default();
    let (time, zone) = rest.split_at(rest.len().min(8));
    let zone = if zone == "Z" { "UTC" } else { zone };
    [date, time, zone].map(str::to_owned)
}

/// Formats a time of RFC 3339 in the local time zone: `2026-11-20 22:09:39 +01:00`. Other text is returned unchanged.
pub fn format_time(time: &str) -> String {
    match Timestamp::parse(time) {
        Some(time) => split_time(time, screen_offset(time)).join(" "),
        None => time.to_owned(),
    }
}

/// A count with its noun in singular or plural.
pub fn pluralize(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    }
}

/// The first few of the items. If there are others, a text with their number follows.
pub fn first_few(
    items: impl IntoIterator<Item = String>,
    most: usize,
    more: impl Fn(usize) -> String,
) -> Vec<String> {
    let mut items = items.into_iter();
    let mut few: Vec<String> = items.by_ref().take(most).collect();
    let others = items.count();
    if others > 0 {
        few.push(more(others));
    }
    few
}

/// The first four of the items, as part of a sentence.
pub fn join_first(items: impl IntoIterator<Item = String>) -> String {
    first_few(items, 4, |n| format!("and {n} more")).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NARROW: Screen = Screen {
        width: Some(40),
        colours: false,
    };
    const PLAIN: Screen = Screen {
        width: None,
        colours: false,
    };

    #[test]
    fn ages_have_two_units_at_most() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3599, "59m"),
            (3600, "1h0m"),
            (11_520, "3h12m"),
            (86_399, "23h59m"),
            (360_000, "4d4h"),
        ] {
            assert_eq!(format_age(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn times_are_split_in_every_zone() {
        let time = Timestamp::from_seconds(1_795_208_979);
        for (offset, text) in [
            (0, "2026-11-20 21:09:39 UTC"),
            (3600, "2026-11-20 22:09:39 +01:00"),
            (-12_600, "2026-11-20 17:39:39 -03:30"),
        ] {
            assert_eq!(split_time(time, offset).join(" "), text);
        }
    }

    #[test]
    fn long_lists_are_cut() {
        let items = |count: usize| join_first((0..count).map(|n| n.to_string()));
        assert_eq!(items(4), "0, 1, 2, 3");
        assert_eq!(items(9), "0, 1, 2, 3, and 5 more");
    }

    #[test]
    fn a_paragraph_is_broken_between_words() {
        let text = NARROW.paragraph("wrong", 8, "one two three four five six seven eight nine");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "wrong   one two three four five six",
                "        seven eight nine"
            ]
        );
        let long = "x".repeat(50);
        assert_eq!(NARROW.paragraph("", 2, &long), format!("  {long}\n"));
        assert_eq!(PLAIN.paragraph("", 0, &long.repeat(9)).lines().count(), 1);
    }

    #[test]
    fn the_elastic_column_is_cut_first() {
        let pod = "kube-system/coredns-7db6d8ff4d-x2x5z";
        let rows = [["ADDRESS", "POD", "SINCE"], ["10.224.0.5", pod, "3h12m"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec()).to_vec();
        let text = NARROW.table(rows.clone(), 0).join("\n");
        assert!(
            text.lines().all(|line| line.chars().count() <= 40),
            "{text}"
        );
        assert!(
            text.contains("kube-syste..") && text.contains("x2x5z"),
            "{text}"
        );
        let wide = PLAIN.table(rows, 0).join("\n");
        assert!(wide.contains(pod));
    }

    #[test]
    fn ids_keep_their_first_characters_and_their_heading() {
        let headings = ["CONTAINER", "POD"].map(str::to_owned);
        let rows = vec![
            headings.to_vec(),
            vec!["0123456789abcdef".into(), "x".repeat(26)],
        ];
        let text = NARROW.table(rows.clone(), 0).join("\n");
        assert!(
            text.starts_with("CONTAINER     POD\n0123456789ab  xxx"),
            "{text}"
        );
        let narrower = Screen {
            width: Some(30),
            ..NARROW
        };
        let text = narrower.table(rows, 0).join("\n");
        assert!(text.starts_with("CONTAINER  POD\n012345678  xxx"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 30),
            "{text}"
        );
    }
}
