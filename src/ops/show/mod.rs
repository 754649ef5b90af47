//! `show`: the pools, their usage and their leases.

mod bar;
mod operations;
mod print;
mod report;

pub use operations::print as print_events;
pub use report::{ShowReport, SourceReport};

use super::cli::ShowArgs;
use super::node::Node;
use super::node_config::NodeConfig;
use super::outcome::{CommandError, CommandOutput, json};
use super::state_view::StateView;
use crate::source::last_attempts;

/// Runs the command.
pub fn run(node: &Node, args: &ShowArgs) -> Result<CommandOutput, CommandError> {
    if args.events {
        let events = node.history()?.records;
        return Ok(CommandOutput::success(match args.format.is_json() {
            true => json(&events)?,
            false => print_events(&events, &node.screen),
        }));
    }
    let config = NodeConfig::read(node.paths());
    let mut show = read(node, &config)?;
    if let Some(pool) = &args.pool {
        show.narrow(pool)?;
    }
    Ok(CommandOutput::success(match args.format.is_json() {
        true => json(&show)?,
        false => show.print(&node.screen, node.paths().name()),
    }))
}

/// Reads what `show` prints.
///
/// # Errors
/// The state cannot be read.
pub fn read(node: &Node, config: &NodeConfig) -> Result<ShowReport, CommandError> {
    let StateView { state, report, .. } = StateView::read(node)?;
    let ipam = state.ipam();
    let attempts = last_attempts(node.paths(), node.context.boot_id.as_deref());
    let counts = ipam.counts(config.conf.cooldown, &config.conf.exclude, node.now.boot);
    Ok(ShowReport::new(ipam, counts, report, attempts, &node.now))
}
