//! `errors`: prints the table of errors.

use super::outcome::CommandOutput;
use crate::failure::table::{ERROR_TABLE, ErrorRow};

/// The columns of a line.
const WIDTH: usize = 70;

/// What stands above the table.
const INTRODUCTION: &str = "\
A failed CNI call prints one JSON object on stdout and exits with status 1. Its
msg begins with one of these messages, in which X stands for any text and N for
any number; its details name files and addresses, and say what to do here.
";

/// Runs the command.
pub fn run() -> CommandOutput {
    CommandOutput::success(text())
}

/// Returns the table with its introduction.
pub fn text() -> String {
    let rows: String = ERROR_TABLE.iter().map(row_text).collect();
    format!("{INTRODUCTION}\n{rows}")
}

/// Formats a row: the code with its messages, and what to do.
fn row_text(row: &ErrorRow) -> String {
    let mut out = String::new();
    for (n, message) in row.messages.iter().enumerate() {
        let code = if n == 0 {
            (row.code as u8).to_string()
        } else {
            String::new()
        };
        wrap(&mut out, &format!("  {code:<3}  "), 9, message);
    }
    wrap(&mut out, "       -> ", 10, row.remedy);
    out
}

/// Adds a text in lines of `WIDTH` columns: the first one after `start`, the others indented.
fn wrap(out: &mut String, start: &str, indent: usize, text: &str) {
    let mut line = start.to_owned();
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.len() + 1 + word.len() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    out.push_str(&line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_printed_and_fits() {
        let text = text();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for row in ERROR_TABLE {
            for message in row.messages {
                assert!(words.contains(message), "{message}");
            }
            assert!(words.contains(row.remedy), "{}", row.remedy);
        }
        for line in text.lines().filter(|line| line.starts_with(' ')) {
            assert!(line.len() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn long_texts_are_wrapped() {
        let mut out = String::new();
        wrap(&mut out, "  1  ", 5, &"word ".repeat(20));
        assert!(out.lines().count() == 2, "{out}");
        assert!(out.starts_with("  1  word word"), "{out}");
        assert!(
            out.lines().nth(1).unwrap().starts_with("     word"),
            "{out}"
        );
    }
}
