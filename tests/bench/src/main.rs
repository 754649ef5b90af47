//! One executable with three faces: the measuring itself, the floor that it measures against, and the wire server. It mounts and
//! makes links, so that it must be started in namespaces of its own, as tests/bench/run does.

mod floor;
mod measure;
mod table;
mod wire;

fn main() -> std::io::Result<()> {
    // As a plugin, like those that it is measured against.
    match std::env::var("CNI_COMMAND") {
        Ok(verb) => floor::call(&verb),
        Err(_) => table::print(),
    }
}
