//! What this executable was built from, and `version`, which prints it.

use serde::Serialize;

use super::node::Node;
use super::outcome::{CommandError, CommandOutput, OutputFormat};

/// The version of the program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The first digits of the commit, or "unknown" (`src/build.rs`).
pub const COMMIT: &str = env!("AZURE_VNET_IPAM_BUILD_COMMIT");
/// The target that it was built for.
pub const TARGET: &str = env!("AZURE_VNET_IPAM_BUILD_TARGET");
/// The features of the package that it was built with.
pub const FEATURES: &[&str] = if cfg!(feature = "tls") { &["tls"] } else { &[] };

/// The version and the build, as `--version` prints them after the name.
pub const LINE: &str = env!("AZURE_VNET_IPAM_BUILD_LINE");

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
pub fn run(node: &Node, format: OutputFormat) -> Result<CommandOutput, CommandError> {
    let program = node.paths().name();
    let report = BuildReport {
        program,
        version: VERSION,
        commit: COMMIT,
        target: TARGET,
        features: FEATURES,
    };
    format.output(0, &report, || format!("{program} {LINE}\n"))
}
