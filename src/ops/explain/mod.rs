//! `explain`: everything that is known about one address, container or pod.

mod address;
pub mod explanation;
mod print;
pub mod query;
mod sharing;
mod timeline;

use explanation::Explanation;
use query::Query;

use super::cli::ExplainArgs;
use super::node::Node;
use super::node_config::NodeConfig;
use super::outcome::{CommandError, CommandOutput, json};
use super::progress;
use super::state_view::StateView;
use crate::plugin::note_moved_namespaces;

/// Runs the command.
pub fn run(node: &Node, args: &ExplainArgs) -> Result<CommandOutput, CommandError> {
    let state = StateView::read(node)?;
    let config = NodeConfig::read(node.paths());
    let mut evidence = progress::capture_snapshot(Vec::new(), &node.context).evidence;
    note_moved_namespaces(state.ipam().holders(), &mut evidence, node.paths());
    let events = node.history()?.records;
    let subject = Query::parse(&args.subject).resolve(state.ipam(), &evidence, &events)?;
    let mut explanation = Explanation::new(
        &subject,
        state.ipam(),
        &evidence,
        events,
        &config.conf,
        &node.now,
        node.paths().name(),
    );
    explanation.set_state(state.report);
    Ok(CommandOutput {
        status: u8::from(!explanation.is_known()),
        text: match args.format.is_json() {
            true => json(&explanation)?,
            false => explanation.print(&node.screen.bounded()),
        },
    })
}
