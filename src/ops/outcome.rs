//! The output of a command and its format, or why it failed.

use std::fs;
use std::io::IsTerminal;
use std::net::IpAddr;
use std::path::Path;

use clap::{Args, ValueEnum};
use rustix::process::{geteuid, getuid};
use serde::Serialize;

use super::node_config::NodeConfig;
use super::screen::Screen;
use crate::codec::named_address;
use crate::events::OperationRecord;
use crate::failure::SUDO_REMEDY;
use crate::host::{Paths, alters_terminal, boot_now, io_reason, replace, wall_now};
use crate::log;
use crate::plugin::Context;
use crate::state::StoreError;

/// How a command prints its report. Every command that has a report takes the same two options.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct OutputFormat {
    /// Print JSON instead of text
    #[arg(long, overrides_with = "format")]
    json: bool,
    /// Print the report as text, wide or json
    // Without a long name, as `--output` names a file elsewhere. The manual page would show the values as a list that mandoc warns
    // of.
    #[arg(short = 'o', value_name = "FORMAT", default_value = "text")]
    #[arg(hide_possible_values = true, overrides_with = "json")]
    format: Format,
}

/// A format of reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text, laid out for a terminal.
    #[default]
    #[value(help = None)]
    Text,
    /// Text in which no name is cut.
    #[value(help = None)]
    Wide,
    /// JSON.
    #[value(help = None)]
    Json,
}

impl OutputFormat {
    /// Returns whether the report is printed as JSON. Of `--json` and `-o`, the last one applies.
    pub fn is_json(self) -> bool {
        self.json || self.format == Format::Json
    }

    /// Returns the screen for the report: of any width if it is asked for.
    pub fn screen(self, screen: Screen) -> Screen {
        let width = screen.width.filter(|_| self.format != Format::Wide);
        Screen { width, ..screen }
    }

    /// Creates the output of a command: its report as JSON, or what `print` makes of it.
    ///
    /// # Errors
    /// The report cannot be printed as JSON.
    pub fn output(
        self,
        status: u8,
        report: &impl Serialize,
        print: impl FnOnce() -> String,
    ) -> Result<CommandOutput, CommandError> {
        let text = if self.is_json() {
            json(report)?
        } else {
            print()
        };
        Ok(CommandOutput { text, status })
    }
}

/// The output of a command that ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// The text for stdout.
    pub text: String,
    /// The exit status.
    pub status: u8,
}

/// Why a command failed: a text for stderr. The exit status is 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError(pub String);

impl CommandOutput {
    /// Creates the output of a command that succeeded.
    pub fn success(text: String) -> CommandOutput {
        CommandOutput { text, status: 0 }
    }

    /// Writes a text to `file` with the permission bits `mode`. Without a `file` it returns the text for stdout.
    ///
    /// The path is used as it was typed, without the folder that is put in front of the plugin's own paths.
    ///
    /// # Errors
    /// The file cannot be replaced.
    pub fn to_file_or_stdout(
        file: Option<&Path>,
        text: String,
        mode: u32,
    ) -> Result<CommandOutput, CommandError> {
        let Some(file) = file else {
            return Ok(CommandOutput::success(text));
        };
        match replace(file, text.as_bytes(), mode) {
            Ok(()) => Ok(CommandOutput::default()),
            Err(e) => {
                let what = format!("failed to write {}", file.display());
                Err(CommandError::from_io(&what, &e))
            }
        }
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        CommandError(with_sudo_hint(error.to_string(), &error.source))
    }
}

impl CommandError {
    /// Creates an error from a refusal of the system: `what: why`.
    pub fn from_io(what: &str, error: &std::io::Error) -> CommandError {
        CommandError(with_sudo_hint(
            format!("{what}: {}", io_reason(error)),
            error,
        ))
    }
}

/// Adds a remedy if only root has the permission.
fn with_sudo_hint(text: String, error: &std::io::Error) -> String {
    if needs_root(error) {
        format!("{text}; {SUDO_REMEDY}")
    } else {
        text
    }
}

/// Whether the system refuses something to this user that root may do.
pub fn needs_root(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied && !geteuid().is_root()
}

/// Parses an address that was typed.
///
/// # Errors
/// It is not one.
pub fn parse_address(text: &str) -> Result<IpAddr, CommandError> {
    named_address(text).ok_or_else(|| CommandError(format!("{text:?} is not an address")))
}

/// Formats a report as JSON.
pub fn json(report: &impl Serialize) -> Result<String, CommandError> {
    let text = serde_json::to_string_pretty(report);
    text.map(|text| escape_control_characters(&text) + "\n")
        .map_err(|e| CommandError(format!("failed to format JSON: {e}")))
}

/// Escapes the characters that a terminal obeys. JSON strings escape those below a blank already; elsewhere they are layout.
fn escape_control_characters(json: &str) -> String {
    let is_escaped = |c: char| c > ' ' && alters_terminal(c);
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_escaped(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    out
}

/// Describes the person at the terminal: the user ID, also that before sudo, and the terminal.
pub fn describe_operator() -> String {
    let uid = getuid().as_raw();
    let sudo = std::env::var("SUDO_UID").ok().filter(|id| !id.is_empty());
    let sudo = sudo.map_or_else(String::new, |id| format!(" through sudo by uid {id}"));
    format!("uid {uid}{sudo} on {}", terminal())
}

/// Returns the path of the terminal behind one of the standard streams.
fn terminal() -> String {
    let are_terminals = [
        std::io::stdin().is_terminal(),
        std::io::stdout().is_terminal(),
        std::io::stderr().is_terminal(),
    ];
    let path = are_terminals
        .iter()
        .position(|is| *is)
        .and_then(|stream| fs::read_link(Paths::own_stream(stream)).ok());
    path.map_or_else(
        || "no terminal".to_owned(),
        |path| path.display().to_string(),
    )
}

/// Starts the log of a command, which goes where that of calls goes.
pub fn start_log(paths: &Paths) {
    if NodeConfig::read(paths).syslog {
        log::use_syslog(paths.syslog());
    }
    log::start(None);
}

/// Writes the record of a command to the file of operations, and flushes the log.
pub fn record_operation(context: &Context, record: OperationRecord) {
    let record = OperationRecord {
        time: wall_now().to_string(),
        by: Some(describe_operator()),
        microseconds: u64::try_from(boot_now().since(context.started).as_micros())
            .unwrap_or(u64::MAX),
        ..record
    };
    record.append(&context.paths);
    log::flush(&context.paths.log());
}
