//! `version`: prints what this executable was built from.

use serde::Serialize;

use super::build_info::{COMMIT, FEATURES, LINE, TARGET, VERSION};
use super::cli::ReportArgs;
use super::node::Node;
use super::outcome::{CommandError, CommandOutput, json};

/// The report of `version`.
#[derive(Serialize)]
struct BuildReport {
    /// The name that the program was started by.
    program: &'static str,
    version: &'static str,
    commit: &'static str,
    target: &'static str,
    features: &'static [&'static str],
}

/// Runs the command.
///
/// # Errors
/// The report cannot be printed as JSON.
pub fn run(node: &Node, args: &ReportArgs) -> Result<CommandOutput, CommandError> {
    let program = node.paths().name();
    Ok(CommandOutput::success(match args.format.is_json() {
        true => json(&BuildReport {
            program,
            version: VERSION,
            commit: COMMIT,
            target: TARGET,
            features: FEATURES,
        })?,
        false => format!("{program} {LINE}\n"),
    }))
}
