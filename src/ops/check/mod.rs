//! `check`: compares the state with the node.

pub mod findings;
pub mod records;

pub use findings::Checked;
use findings::{Finding, Kind};

use super::cli::ReportArgs;
use super::doctor::line::{INTERFACE, LOCK, SET_ASIDE, SOURCE, STATE};
use super::doctor::{Facts, Line, Status, examine};
use super::holder::held;
use super::node::Node;
use super::outcome::{CommandError, CommandOutput, json};
use super::state_view::StateView;
use crate::ipam::{Evidence, EvidenceList, Routes};
use crate::sorting::{set, sort_by_key};

/// Carries it out.
pub fn run(node: &Node, args: &ReportArgs) -> Result<CommandOutput, CommandError> {
    let before = StateView::read(node)?;
    let facts = Facts::gather(node);
    let lines = examine(node, &facts);
    let found = check(node, &before, &facts, &lines)?;
    Ok(CommandOutput {
        status: found.status(),
        text: match args.json {
            true => json(&found)?,
            false => found.print(&node.screen),
        },
    })
}

/// Everything that is wrong, from what was found out: `lines` are those of `doctor`, and `before` is the state of before, so that
/// what came and went meanwhile is not taken for wrong.
///
/// # Errors
/// This user may not read the state.
pub fn check(
    node: &Node,
    before: &StateView,
    facts: &Facts,
    lines: &[Line],
) -> Result<Checked, CommandError> {
    facts.state.require_permission()?;
    let ipam = facts.state.ipam();
    let ours = facts.setup.ours(node.paths().name());
    let names = ours.filter_map(|(file, _)| file.conflist.as_ref().ok()?.name.clone());
    let networks = set(names);
    let mut findings: Vec<Finding> = lines
        .iter()
        .filter_map(|line| of_line(node, facts, line))
        .collect();
    let evidence = &facts.evidence;
    findings.extend(records::findings(
        (before.ipam(), ipam),
        evidence,
        &networks,
        &node.now,
    ));
    sort_by_key(&mut findings, |finding| finding.kind);
    Ok(Checked {
        time: node.now.wall_time(node.now.boot),
        findings,
        not_seen: not_seen(evidence),
        compared: held(ipam).count(),
    })
}

/// What `doctor` finds wrong about the state, its lock and the source; the rest is about the node's configuration.
fn of_line(node: &Node, facts: &Facts, line: &Line) -> Option<Finding> {
    let kind = match (line.subject, line.status) {
        (SET_ASIDE, _) => Kind::SetAside,
        (_, Status::Ok | Status::Warning) => return None,
        (STATE, _) => Kind::State,
        (LOCK, _) => Kind::Lock,
        (SOURCE, _) => Kind::Source,
        (INTERFACE, _) => Kind::Interface,
        _ => return None,
    };
    let paths = node.paths();
    let subject = match kind {
        Kind::Lock => paths.lock_file().display().to_string(),
        Kind::Source | Kind::Interface => match &facts.source {
            Ok((source, _)) => source.name(),
            Err(_) => "the source".to_owned(),
        },
        _ => paths.state().display().to_string(),
    };
    Some(Finding {
        kind,
        subject,
        text: line.text.clone(),
        evidence: Vec::new(),
        remedy: line.remedy.clone().unwrap_or_default(),
        commands: Vec::new(),
        holder: None,
    })
}

/// What could not be looked at.
fn not_seen(evidence: &Evidence) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(why) = &evidence.kernel.incomplete {
        all.push(format!("some network namespaces ({why})"));
    }
    for (name, witness) in evidence.lists() {
        match witness {
            EvidenceList::Unreadable(why) => all.push(format!("{name} ({why})")),
            EvidenceList::Read { doubtful, .. } if !doubtful.is_empty() => {
                all.push(format!("parts of {name} ({})", doubtful.join(", ")));
            }
            EvidenceList::Read { .. } | EvidenceList::Absent => {}
        }
    }
    if let Routes::Unreadable(why) = &evidence.routes {
        all.push(format!("the routes of the host ({why})"));
    }
    all
}

#[cfg(test)]
mod tests;
