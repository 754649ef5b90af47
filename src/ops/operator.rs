//! The operator who runs a command, for the log and the events.

use std::fs;
use std::io::IsTerminal;

use rustix::process::getuid;

use crate::events::OperationRecord;
use crate::host::{boot_now, wall_now};
use crate::log;
use crate::plugin::Context;

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
    let path = are_terminals.iter().position(|is| *is).and_then(|stream| {
        let path = fs::read_link(format!("/proc/self/fd/{stream}")).ok()?;
        Some(path.display().to_string())
    });
    path.unwrap_or_else(|| "no terminal".to_owned())
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
