//! `install` and `uninstall`: put this executable in the place of the original plugin, and bring the original back.
//!
//! Each command looks at the folder ([`occupant`]), decides on values what to do ([`plan`]), and carries it out ([`folder`]) under
//! a lock on the folder. At every moment a working plugin stands at the path, whatever kills the command.
//!
//! Where a symbolic link stands at the path, the link itself is replaced, never what it leads to: other names may lead to the same
//! file. The link is kept as `.orig`, and comes back as a link.

mod access;
mod command;
mod elf;
mod errors;
mod folder;
mod go_build_info;
mod marker;
mod occupant;
mod plan;
mod report;
mod trial;
mod uninstall;

pub use command::{Installation, run};
pub use uninstall::run as run_uninstall;
