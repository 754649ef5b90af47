//! What an operator types: without CNI_COMMAND in the environment the first argument names a command.
//!
//! Commands that only look take no lock, and work whatever has become of the state. What they find is a value first, from
//! which text and JSON are made.

mod arguments;
mod check;
mod commands;
mod completions;
mod doctor;
mod explain;
mod export;
mod help;
mod holder;
mod man;
mod metrics;
mod node;
mod operator;
mod outcome;
mod progress;
mod reclaim;
mod release;
mod screen;
mod setup;
mod show;
mod state_view;
#[cfg(test)]
mod tests;
mod traces;

use std::ffi::OsString;
use std::process::ExitCode;

use arguments::Parsed;
use node::Node;
use outcome::CommandError;

use crate::cni::CniVersion;
use crate::host::Paths;
use crate::ipam::Moment;
use crate::stdio;

/// It could not be done, or what was typed is not a command.
const CANNOT: u8 = 2;

/// Carries out what was typed.
pub fn main(args: impl IntoIterator<Item = OsString>, paths: &Paths, started: Moment) -> ExitCode {
    let name = paths.name();
    let help = |text| print(&paths.named(text), 0);
    let mut args = args.into_iter();
    let Some(first) = args.next() else {
        // As the original, which a runtime never calls so.
        stdio::tell(&about(name));
        return ExitCode::SUCCESS;
    };
    let typed = first.to_string_lossy();
    let command = match &*typed {
        "--version" | "-V" => return print(&format!("{name} {}\n", env!("CARGO_PKG_VERSION")), 0),
        "--help" | "-h" => return help(help::all()),
        "help" => match args.next() {
            None => return help(help::all()),
            Some(topic) => match commands::named(&topic.to_string_lossy()) {
                Some(command) => return help(help::of(command)),
                None => return refuse(name, &format!("there is no command {topic:?}")),
            },
        },
        typed => match commands::named(typed) {
            Some(command) => command,
            None => return refuse(name, &format!("there is no command {typed:?}")),
        },
    };
    let arguments = match arguments::parse(command, args) {
        Ok(Parsed::Run(arguments)) => arguments,
        Ok(Parsed::Help) => return help(help::of(command)),
        Err(why) => {
            return refuse(&format!("{name} {}", command.name), &why);
        }
    };
    match (command.run)(&Node::here(paths, started), &arguments) {
        // These are the same under both names.
        Ok(done) if matches!(command.name, "man" | "completions") => print(&done.text, done.status),
        Ok(done) => print(&paths.named(done.text), done.status),
        Err(CommandError(why)) => {
            let why = paths.named(why);
            stdio::tell(&format!("{name} {}: {why}\n", command.name));
            ExitCode::from(CANNOT)
        }
    }
}

/// What was typed means nothing.
fn refuse(what: &str, why: &str) -> ExitCode {
    stdio::tell(&format!("{what}: {why}; see {what} --help\n"));
    ExitCode::from(CANNOT)
}

fn about(name: &str) -> String {
    let versions = CniVersion::texts().join(", ");
    format!(
        "{name} v{}\nCNI protocol versions supported: {versions}\n",
        env!("CARGO_PKG_VERSION")
    )
}

fn print(text: &str, status: u8) -> ExitCode {
    // What tells nothing needs nobody to listen: stdout may be closed.
    if text.is_empty() {
        return ExitCode::from(status);
    }
    match stdio::print_at_leisure(text) {
        Ok(()) => ExitCode::from(status),
        // Whoever read it has seen enough, as `head` has.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::from(status),
        Err(e) => {
            let why = crate::host::io_reason(&e);
            stdio::tell(&format!(
                "what was asked is done, but the answer cannot be printed: {why}\n"
            ));
            ExitCode::from(CANNOT)
        }
    }
}
