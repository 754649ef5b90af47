//! One executable with three faces: the measuring itself, the floor that it measures against, and the wire server. It mounts and
//! makes links, so that it must be started in namespaces of its own, as tests/bench/run does.

mod floor;
mod measure;
mod table;
mod wire;

use std::env;
use std::process::ExitCode;

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
    match table::print(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench: {e}");
            ExitCode::FAILURE
        }
    }
}
