//! `show`: the pools, their usage and their leases.

mod bar;
mod print;
mod report;

pub use report::{ShowReport, SourceReport};

use super::cli::{EventsArgs, ShowArgs};
use super::events;
use super::node::Node;
use super::node_config::NodeConfig;
use super::outcome::{CommandError, CommandOutput, json};
use super::state_view::StateView;
use crate::source::last_attempts;

/// Runs the command.
pub fn run(node: &Node, args: &ShowArgs) -> Result<CommandOutput, CommandError> {
    if args.events {
        if args.pool.is_some() || args.pod.is_some() || args.suspect {
            let text = "--events shows no holders; to filter operations, use the command events";
            return Err(CommandError(text.to_owned()));
        }
        let args = EventsArgs {
            format: args.format,
            ..EventsArgs::default()
        };
        return events::run(node, &args);
    }
    let config = NodeConfig::read(node.paths());
    let mut show = read(node, &config)?;
    if let Some(pool) = &args.pool {
        show.narrow(pool)?;
    }
    if args.suspect || args.pod.is_some() {
        show.filter(args.pod.as_deref(), args.suspect);
    }
    Ok(CommandOutput::success(match args.format.is_json() {
        true => json(&show)?,
        false => show.print(&node.screen.bounded(), node.paths().name()),
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
