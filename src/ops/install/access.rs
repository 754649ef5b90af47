//! What both commands need of the node.

use std::path::{Path, PathBuf};

use tracing::warn;

use super::errors::look_error;
use super::occupant::Occupant;
use crate::log;
use crate::ops::node::Node;
use crate::ops::operator::describe_operator;
use crate::ops::outcome::CommandError;

/// The folder in which the runtime looks for plugins. A folder that was typed is used as it is.
pub fn plugin_folder(node: &Node, typed: Option<&Path>) -> PathBuf {
    typed.map_or_else(|| node.paths().plugin_folder(), Path::to_owned)
}

/// Looks at a path.
///
/// # Errors
/// It exists but cannot be read.
pub fn look(path: &Path) -> Result<Occupant, CommandError> {
    Occupant::look(path).map_err(|e| look_error(path, &e))
}

/// Writes what was done, and by whom, to the log.
pub fn note(node: &Node, what: &str) {
    log::start(None);
    warn!(target: "ipam", "{what} by {}.", describe_operator());
    log::flush(&node.paths().log());
}
