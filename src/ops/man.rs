//! The man page, from the table of commands: roff with the macros of man(7).

use super::arguments::Arguments;
use super::commands::{COMMANDS, Command};
use super::help::{self, add, sentence, spelled, usage};
use super::node::Node;
use super::outcome::{CommandError, CommandOutput};
use crate::cni::NAME;

/// When the texts of the page were last gone over, which its foot tells; the time of a build would make each one another.
const REVISED: &str = "2026-11-21";

/// Where more is told, as roff.
const SEE_ALSO: &str = ".BR ip\\-address (8),\n.BR ip\\-netns (8),\n.BR ip\\-route (8),\n";

const SPECIFICATION: &str = "the specification of CNI: https://www.cni.dev/docs/spec/";

/// Prints the man page.
///
/// # Errors
/// None; it looks at nothing.
pub fn run(_node: &Node, _arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    Ok(CommandOutput::well(page()))
}

/// The whole page.
fn page() -> String {
    let name = roff(NAME);
    let title = roff(&NAME.to_ascii_uppercase());
    let version = env!("CARGO_PKG_VERSION");
    let mut out = String::new();
    let foot = [" 8 ", REVISED, " \"", &name, " ", version];
    add(&mut out, &[".TH ", &title]);
    add(&mut out, &foot);
    // Neither hyphens nor gaps of the formatter's own: paths and options are read letter by letter.
    out.push_str("\" \"CNI plugins\"\n.nh\n.ad l\n");
    let about = " \\- CNI IPAM plugin for Azure nodes\n.SH SYNOPSIS\n.B ";
    add(&mut out, &[".SH NAME\n", &name, about, &name]);
    let call = roff(help::VERSION_CALL.0);
    let operands = "\n.I COMMAND\n[\\fIOPTION\\fR...]\n.PP\n.B ";
    add(&mut out, &[operands, &call, "\n.SH DESCRIPTION\n"]);
    paragraphs(&mut out, help::ABOUT);
    entries(&mut out, help::GENERAL);

    out.push_str(".SH COMMANDS\n");
    for command in COMMANDS {
        section(&mut out, command);
    }
    out.push_str(".SH ENVIRONMENT\n");
    entries(&mut out, help::ENVIRONMENT);
    out.push_str(".SH FILES\n");
    entries(&mut out, help::FILES);
    out.push_str(".SH EXIT STATUS\n");
    exits(&mut out, help::EXITS);

    out.push_str(".SH EXAMPLES");
    for command in COMMANDS {
        for (typed, purpose) in command.examples {
            example(&mut out, command.name, typed, purpose);
        }
    }
    let (typed, purpose) = help::VERSION_CALL;
    example(&mut out, "without a command", typed, purpose);

    add(&mut out, &["\n.SH SEE ALSO\n", SEE_ALSO, SPECIFICATION]);
    out.push('\n');
    out
}

/// One command: what is typed, what it does, its options, its exit statuses.
fn section(out: &mut String, command: &Command) {
    add(out, &[".SS ", &roff(&usage(command)), "\n"]);
    paragraphs(out, &[&sentence(command.about)]);
    if !command.text.is_empty() {
        out.push_str(".PP\n");
        paragraphs(out, command.text);
    }
    for option in command.options {
        entry(out, &spelled(option), option.about);
    }
    out.push_str(".PP\nExit status:\n.RS\n");
    exits(out, command.exits);
    out.push_str(".RE\n");
}

/// One example, which begins at the end of a line.
fn example(out: &mut String, command: &str, typed: &str, purpose: &str) {
    // A paragraph right below a heading would be one too many.
    if !out.ends_with("EXAMPLES") {
        out.push_str("\n.PP");
    }
    add(out, &["\n\\fB", &roff(command), "\\fR: ", &roff(purpose)]);
    add(out, &["\n.PP\n.RS 4\n.EX\n", &roff(typed), "\n.EE\n.RE"]);
}

fn exits(out: &mut String, exits: &[(u8, &str)]) {
    for (status, meaning) in exits {
        entry(out, &status.to_string(), meaning);
    }
}

fn paragraphs(out: &mut String, texts: &[&str]) {
    for (n, text) in texts.iter().enumerate() {
        let first = if n == 0 { "" } else { ".PP\n" };
        add(out, &[first, &roff(text), "\n"]);
    }
}

fn entries(out: &mut String, entries: &[(&str, &str)]) {
    for (term, meaning) in entries {
        entry(out, term, meaning);
    }
}

/// A term, and what it means.
fn entry(out: &mut String, term: &str, meaning: &str) {
    add(out, &[".TP\n\\fB", &roff(term), "\\fR\n"]);
    add(out, &[&roff(meaning), "\n"]);
}

/// Text as roff that shows just that; what stands between backticks is bold. Every hyphen is one that a shell takes for
/// such when it is copied from the page: the others are too few to be told apart.
fn roff(text: &str) -> String {
    let mut out = String::new();
    let mut bold = false;
    // A line that began with a dot would be a request.
    if text.starts_with('.') {
        out.push_str("\\&");
    }
    for c in text.chars() {
        let instead = match c {
            '\\' => "\\(rs",
            '-' => "\\-",
            '\'' => "\\(aq",
            '"' => "\\(dq",
            '^' => "\\(ha",
            '~' => "\\(ti",
            '`' => {
                bold = !bold;
                if bold { "\\fB" } else { "\\fR" }
            }
            c => {
                out.push(c);
                continue;
            }
        };
        out.push_str(instead);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_to_roff_is_escaped() {
        assert_eq!(roff(r"a\b --c 'd'"), r"a\(rsb \-\-c \(aqd\(aq");
        assert_eq!(roff(r#"."~^"#), r"\&.\(dq\(ti\(ha");
        assert_eq!(roff("so `check` does"), r"so \fBcheck\fR does");
    }

    #[test]
    fn every_line_is_text_or_a_known_request() {
        let known = [
            ".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".I", ".BR", ".RS", ".RE", ".EX", ".EE",
            ".nh", ".ad",
        ];
        for line in page().lines() {
            let first = line.split(' ').next().unwrap();
            assert!(!line.is_empty() && !line.starts_with('\''), "{line}");
            assert!(!line.starts_with('.') || known.contains(&first), "{line}");
        }
    }
}
