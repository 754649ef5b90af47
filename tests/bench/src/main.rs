//! The benchmark. One executable has three parts: the measurement, the floor to compare with, and the wire server. It mounts file
//! systems and creates links, so it must run in separate namespaces. tests/bench/run does that.

mod floor;
mod measure;
mod table;
mod wire;

fn main() -> std::io::Result<()> {
    // With CNI_COMMAND it was called as a plugin.
    match std::env::var("CNI_COMMAND") {
        Ok(verb) => floor::call(&verb),
        Err(_) => table::print(),
    }
}
