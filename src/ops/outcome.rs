//! What a command came to.

use std::path::Path;

use crate::host::{io_reason, is_obeyed, replace};
use crate::state::StoreError;

/// A command that was carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// What is printed.
    pub text: String,
    /// The exit status.
    pub status: u8,
}

/// A command that could not be carried out: what is told on stderr, with exit status 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError(pub String);

impl CommandOutput {
    /// It worked, and this is what it tells.
    pub fn well(text: String) -> CommandOutput {
        CommandOutput { text, status: 0 }
    }

    /// It worked, and this is what it tells: in `file`, which gets these permission bits, or on stdout where none was named.
    /// The path is as it was typed, like those of every other program.
    ///
    /// # Errors
    /// The file cannot be put there.
    pub fn told_in(
        file: Option<&Path>,
        text: String,
        mode: u32,
    ) -> Result<CommandOutput, CommandError> {
        let Some(file) = file else {
            return Ok(CommandOutput::well(text));
        };
        match replace(file, text.as_bytes(), mode) {
            Ok(()) => Ok(CommandOutput::default()),
            Err(e) => {
                let what = format!("cannot write {}", file.display());
                Err(CommandError::with(&what, &e))
            }
        }
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        CommandError(hinted(error.to_string(), &error.source))
    }
}

impl CommandError {
    /// The system refuses something.
    pub fn with(what: &str, error: &std::io::Error) -> CommandError {
        CommandError(hinted(format!("{what}: {}", io_reason(error)), error))
    }
}

/// With what to do where only root may.
fn hinted(text: String, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => format!("{text}; run it with sudo"),
        _ => text,
    }
}

/// A report as JSON, for programs.
pub fn json(report: &impl serde::Serialize) -> Result<String, CommandError> {
    let text = serde_json::to_string_pretty(report);
    text.map(|text| escaped(text) + "\n")
        .map_err(|e| CommandError(format!("cannot print JSON: {e}")))
}

/// JSON without what a terminal would obey. What is below a blank is escaped in strings already, and is layout elsewhere.
fn escaped(json: String) -> String {
    let is_escaped = |c: char| c > ' ' && is_obeyed(c);
    if !json.contains(is_escaped) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        match is_escaped(c) {
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    out
}
