//! The options that choose how a command prints its report.

use clap::{Args, ValueEnum};

/// How a command prints its report. Every command that has a report takes the same two options.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct OutputFormat {
    /// Print JSON, whose shape is stable, instead of text
    #[arg(long, overrides_with = "format")]
    json: bool,
    /// Print the report as text or json
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
    /// JSON.
    #[value(help = None)]
    Json,
}

impl OutputFormat {
    /// Returns whether the report is printed as JSON. Of `--json` and `-o`, the last one applies.
    pub fn is_json(self) -> bool {
        self.json || self.format == Format::Json
    }
}
