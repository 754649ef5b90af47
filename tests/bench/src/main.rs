//! One executable with three faces: the measuring itself, the floor that it measures against, and the wire server.

mod floor;
mod measure;
mod table;
mod wire;

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Set in the namespaces.
const INSIDE: &str = "AZURE_VNET_IPAM_BENCH_INSIDE";

fn main() -> ExitCode {
    // As a plugin, like those that it is measured against.
    if let Ok(verb) = env::var("CNI_COMMAND") {
        return match floor::call(&verb) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("floor: {e}");
                ExitCode::FAILURE
            }
        };
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    if env::var_os(INSIDE).is_none() {
        return enter(&arguments);
    }
    match table::print(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Starts again in network and mount namespaces of its own.
fn enter(arguments: &[String]) -> ExitCode {
    let me = env::current_exe().unwrap_or_default();
    let error = Command::new("unshare")
        .args(["-mn", "--propagation", "private", "sh", "-c"])
        .args(["ip link set lo up && exec \"$@\"", "sh"])
        .arg(me)
        .args(arguments)
        .env(INSIDE, "1")
        .exec();
    eprintln!("bench: unshare: {error}; this needs root");
    ExitCode::from(2)
}
