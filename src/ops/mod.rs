//! The commands of an operator: without CNI_COMMAND in the environment the first argument names a command.
//!
//! Commands that only look take no lock and work with any state, even a broken one. Each one first builds a value, from which
//! it makes text and JSON.

mod cli;
mod conf_file;
mod conf_types;
mod events;
mod export;
mod finding;
mod findings;
mod held;
mod help;
mod install;
mod leak;
mod metrics;
mod node;
mod node_config;
mod node_loop;
mod outcome;
mod probe;
mod reclaim;
mod release;
mod screen;
mod show;
mod state_view;
#[cfg(test)]
mod tests;
mod tree;
mod version;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

use cli::Command;
#[doc(hidden)]
pub use cli::command as command_line;
use findings::check::{self, CheckReport};
use findings::inspection::Inspection;
use node::Node;
use outcome::{CommandError, CommandOutput};
#[doc(hidden)]
pub use tree::Tree;

use crate::cni::CniVersion;
use crate::host::{Paths, boot_now, io_reason};
use crate::ipam::Moment;
use crate::stdio;

/// The exit status of a usage error and of a command that failed.
const FAILED: u8 = 2;

/// Runs the command that the arguments name. Returns the exit status.
pub fn main(args: &[OsString], paths: &Paths, started: Moment) -> u8 {
    let program = paths.name();
    if args.is_empty() {
        // As the original does, which a runtime never calls this way.
        let mut text = version_text(program);
        if std::io::stderr().is_terminal() {
            text.push_str(&format!("`{program} help` lists its commands.\n"));
        }
        stdio::eprint(&text);
        return 0;
    }
    let (command, name) = match cli::parse(program, args) {
        Ok(parsed) => parsed,
        Err(error) => return print_help_or_usage_error(&error),
    };
    let node = Node::here(&paths.with_plugin_folder(command.plugin_folder()), started);
    match run(&command, &node) {
        Ok(output) => print(&output.text, output.status),
        Err(CommandError(reason)) => {
            stdio::eprint(&format!("{program} {name}: {reason}\n"));
            FAILED
        }
    }
}

/// Refuses a CNI call that has arguments: it could be meant as a command, also as one that releases an address.
pub fn refuse_arguments(paths: &Paths) -> u8 {
    let program = paths.name();
    stdio::eprint(&format!(
        "{program}: CNI_COMMAND is set, and a CNI call has no arguments; unset CNI_COMMAND to run commands\n"
    ));
    FAILED
}

/// The report of `check` for a node whose files are all below `root`, for the fuzzer.
#[doc(hidden)]
pub fn check_text(root: PathBuf) -> String {
    let paths = Paths::new(Some(root), crate::NAME);
    let mut node = Node::here(&paths, boot_now());
    node.screen = node.screen.bounded();
    let report = CheckReport::new(&node, &Inspection::gather(&node));
    report.print(&node.screen, &node.program, true)
}

fn run(command: &Command, node: &Node) -> Result<CommandOutput, CommandError> {
    match command {
        Command::Show(args) => show::run(node, args),
        Command::Events(args) => events::run(node, args),
        Command::Check(args) => check::run(node, args),
        Command::Reclaim(args) => reclaim::run(node, args),
        Command::Release(args) => release::run(node, args),
        Command::Export(args) => export::run(node, args),
        Command::Metrics(args) => metrics::run(node, args),
        Command::NodeLoop(args) => node_loop::run(node.paths(), args),
        Command::Install(args) => install::run(node, args),
        Command::Uninstall(args) => install::run_uninstall(node, args),
        Command::Version(format) => version::run(node, *format),
    }
}

/// Prints what clap has to say: help and version to stdout, a usage error to stderr.
fn print_help_or_usage_error(error: &clap::Error) -> u8 {
    let text = error.render().to_string();
    if error.use_stderr() {
        stdio::eprint(&text);
        return FAILED;
    }
    print(&text, 0)
}

/// The text for a call without CNI_COMMAND and without arguments.
fn version_text(program: &str) -> String {
    let versions = CniVersion::texts().join(", ");
    format!(
        "{program} v{}\nCNI protocol versions supported: {versions}\n",
        env!("CARGO_PKG_VERSION")
    )
}

fn print(text: &str, status: u8) -> u8 {
    // An empty text needs no reader: stdout may be closed.
    if text.is_empty() {
        return status;
    }
    match stdio::print_until(text, None) {
        // Otherwise the reader has seen enough, as `head` has.
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            let reason = io_reason(&e);
            stdio::eprint(&format!(
                "the command succeeded, but its output cannot be printed: {reason}\n"
            ));
            FAILED
        }
        _ => status,
    }
}
