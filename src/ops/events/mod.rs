//! `events`: the last operations.

mod filter;
mod print;

pub use print::print_events;

use filter::Filter;

use super::cli::EventsArgs;
use super::node::Node;
use super::outcome::{CommandError, CommandOutput, json};

/// Runs the command.
pub fn run(node: &Node, args: &EventsArgs) -> Result<CommandOutput, CommandError> {
    let filter = Filter::parse(args, node.now.wall)?;
    let all = node.history()?.records;
    let was_empty = all.is_empty();
    let events = filter.apply(all);
    Ok(CommandOutput::success(match args.format.is_json() {
        true => json(&events)?,
        false if events.is_empty() && !was_empty => "No operation matches.\n".to_owned(),
        false => print_events(&events, &node.screen.bounded()),
    }))
}
