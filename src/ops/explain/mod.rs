//! `explain`: the whole story of one address, container or pod.

mod address;
mod print;
pub mod story;

use story::{Story, Subject};

use super::cli::ExplainArgs;
use super::node::Node;
use super::outcome::{CommandError, CommandOutput, json};
use super::progress;
use super::setup::Setup;
use super::state_view::StateView;
use crate::plugin::note_moved_namespaces;

/// Carries it out.
pub fn run(node: &Node, args: &ExplainArgs) -> Result<CommandOutput, CommandError> {
    let subject = Subject::of(&args.subject);
    let state = StateView::read(node)?;
    let setup = Setup::read(node.paths());
    let mut evidence = progress::capture_snapshot(Vec::new(), &node.context).evidence;
    note_moved_namespaces(state.ipam().holders(), &mut evidence, node.paths());
    let events = node.history()?.records;
    let mut story = Story::of(
        &subject,
        state.ipam(),
        &evidence,
        events,
        &setup.conf,
        &node.now,
    );
    story.state = Some(state.report);
    Ok(CommandOutput {
        status: u8::from(!story.is_known()),
        text: match args.json {
            true => json(&story)?,
            false => story.print(&node.screen),
        },
    })
}
