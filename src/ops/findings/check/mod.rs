//! `check`: compares the state with the node.

pub mod finding;
mod foreign;
pub mod records;

pub use finding::CheckReport;
use finding::{Finding, FindingKind};

use std::collections::BTreeSet;

use crate::ipam::{Evidence, EvidenceList, Routes};
use crate::ops::cli::ReportArgs;
use crate::ops::findings::doctor::diagnostic::Subject;
use crate::ops::findings::doctor::{Diagnostic, Inspection, Status, examine};
use crate::ops::lease::held_records;
use crate::ops::node::Node;
use crate::ops::outcome::{CommandError, CommandOutput, json};
use crate::ops::state_view::StateView;

/// Runs the command.
pub fn run(node: &Node, args: &ReportArgs) -> Result<CommandOutput, CommandError> {
    let before = StateView::read(node)?;
    let inspection = Inspection::gather(node);
    let lines = examine(node, &inspection);
    let found = check(node, &before, &inspection, &lines)?;
    Ok(CommandOutput {
        status: found.status(),
        text: match args.format.is_json() {
            true => json(&found)?,
            false => found.print(&node.screen),
        },
    })
}

/// Makes all findings from an inspection and its diagnostics. `before` is the state as it was before the inspection, so that
/// changes in between are not reported.
///
/// # Errors
/// This user may not read the state.
pub fn check(
    node: &Node,
    before: &StateView,
    inspection: &Inspection,
    lines: &[Diagnostic],
) -> Result<CheckReport, CommandError> {
    inspection.state.require_permission()?;
    let ipam = inspection.state.ipam();
    let ours = inspection.config.ours(node.paths().name());
    let names = ours.filter_map(|(file, _)| file.conflist.as_ref().ok()?.name.clone());
    let networks: BTreeSet<_> = names.collect();
    let mut findings: Vec<Finding> = lines
        .iter()
        .filter_map(|line| from_diagnostic(node, inspection, line))
        .collect();
    let evidence = &inspection.evidence;
    findings.extend(records::findings(
        (before.ipam(), ipam),
        evidence,
        &networks,
        &node.now,
        node.paths().name(),
    ));
    findings.sort_by_key(|finding| finding.kind);
    Ok(CheckReport {
        time: node.now.wall_time(node.now.boot),
        findings,
        not_seen: not_seen(evidence),
        compared: held_records(ipam).count(),
    })
}

/// Makes a finding of a diagnostic about the state, the lock or the source. The others concern the configuration.
fn from_diagnostic(node: &Node, inspection: &Inspection, line: &Diagnostic) -> Option<Finding> {
    let kind = match (line.subject, line.status) {
        (Subject::SetAside, _) => FindingKind::SetAside,
        (_, Status::Ok | Status::Warning) => return None,
        (Subject::State, _) => FindingKind::State,
        (Subject::Lock, _) => FindingKind::Lock,
        (Subject::Source, _) => FindingKind::Source,
        (Subject::Interface, _) => FindingKind::Interface,
        _ => return None,
    };
    let paths = node.paths();
    let subject = match kind {
        FindingKind::Lock => paths.lock_file().display().to_string(),
        FindingKind::Source | FindingKind::Interface => match &inspection.source {
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

/// The evidence that could not be checked.
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
