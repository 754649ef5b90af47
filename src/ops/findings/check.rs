//! `check`: the problems of this node, the worst first, each cause once.

use serde::Serialize;

use super::diagnosis::Diagnosis;
use super::finding::{Finding, FindingKind, Severity};
use super::group::{Group, group};
use super::predictions::Prediction;
use crate::ops::cli::ReportArgs;
use crate::ops::metrics::LastCheck;
use crate::ops::node::Node;
use crate::ops::outcome::{CommandError, CommandOutput, json};
use crate::ops::screen::{Screen, Tint, pluralize};

/// The report of `check`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckReport {
    /// The time, RFC 3339.
    pub time: String,
    /// The first line of the screen.
    pub summary: String,
    /// What is wrong or worth a note, the worst first.
    pub findings: Vec<Finding>,
    /// What could not be checked.
    pub not_seen: Vec<String>,
    /// The number of leases that were compared with the node.
    pub compared: usize,
    /// What an ADD of each network configuration would come to.
    pub adds: Vec<Prediction>,
}

/// Runs the command.
///
/// # Errors
/// The report cannot be printed as JSON.
pub fn run(node: &Node, args: &ReportArgs) -> Result<CommandOutput, CommandError> {
    let diagnosis = Diagnosis::make(node);
    let status = diagnosis.status();
    let report = CheckReport::new(diagnosis);
    let text = match args.format.is_json() {
        true => json(&report)?,
        false => report.print(&node.screen, &node.program),
    };
    Ok(CommandOutput { text, status })
}

/// Counts the findings of a diagnosis, without those that say that something is right.
pub fn summarize(node: &Node, diagnosis: &Diagnosis) -> LastCheck {
    /// Counted even where there are none, so that the first one shows as an increase.
    const ALWAYS: [(FindingKind, Severity); 3] = [
        (FindingKind::Duplicate, Severity::Error),
        (FindingKind::Leak, Severity::Warning),
        (FindingKind::Stray, Severity::Error),
    ];
    let mut check = LastCheck {
        time: node.now.wall,
        status: diagnosis.status(),
        findings: ALWAYS
            .map(|(kind, severity)| ((kind.name(), severity.name()), 0))
            .into(),
    };
    for finding in &diagnosis.findings {
        if finding.severity != Severity::Ok {
            let key = (finding.kind.name(), finding.severity.name());
            *check.findings.entry(key).or_default() += 1;
        }
    }
    check
}

/// The most lines that the findings take; a screen has 60.
const MOST_LINES: usize = 52;

/// Makes and prints the report.
pub fn text(node: &Node) -> String {
    CheckReport::new(Diagnosis::make(node)).print(&node.screen, &node.program)
}

impl CheckReport {
    /// Makes the report of a diagnosis.
    pub fn new(diagnosis: Diagnosis) -> CheckReport {
        let summary = diagnosis.summary();
        let mut findings = diagnosis.findings;
        // What could not be seen has its own lines.
        let is_told = |kind| matches!(kind, FindingKind::Host | FindingKind::Root);
        findings.retain(|f| f.severity != Severity::Ok && !is_told(f.kind));
        CheckReport {
            time: diagnosis.time,
            summary,
            findings,
            not_seen: diagnosis.not_seen,
            compared: diagnosis.compared,
            adds: diagnosis.adds,
        }
    }

    /// Prints the report as text. Commands begin with `program`.
    pub fn print(&self, screen: &Screen, program: &str) -> String {
        let worst = self.findings.first().map_or(Severity::Ok, |f| f.severity);
        let tint = match worst {
            Severity::Note => Tint::Good,
            worst => worst.tint(),
        };
        let summary = screen.paragraph("", 0, &self.summary);
        let mut text = format!("{}\n", screen.tint(tint, summary.trim_end()));
        let (mut lines, mut left_out) = (0, 0);
        for group in group(&self.findings) {
            let mut printed = print_group(&group, screen, program, true);
            if lines + printed.lines().count() >= MOST_LINES {
                printed = print_group(&group, screen, program, false);
            }
            lines += printed.lines().count() + 1;
            if lines > MOST_LINES {
                left_out += group.len();
                continue;
            }
            text.push_str(&format!("\n{printed}"));
        }
        if left_out > 0 {
            let more = pluralize(left_out, "more finding", "more findings");
            let more = format!("And {more}: `{program} doctor` prints all.");
            text.push_str(&format!("\n{}", screen.paragraph("", 0, &more)));
        }
        text.push('\n');
        for why in &self.not_seen {
            text.push_str(&screen.paragraph("", 0, &format!("Not checked: {why}.")));
        }
        let holders = pluralize(self.compared, "holder", "holders");
        text.push_str(&format!("{holders} compared with the node.\n"));
        text
    }
}

/// Prints the findings of one cause, with the evidence or without.
fn print_group(group: &Group<'_>, screen: &Screen, program: &str, with_evidence: bool) -> String {
    /// The most findings of a group that are printed one by one.
    const MOST_MEMBERS: usize = 4;
    const INDENT: usize = 4;
    /// The column of the subject.
    const HEAD: usize = 20;
    let (severity, kind) = (group.first.severity, group.first.kind.name());
    let description = group.describe(MOST_MEMBERS, INDENT + 3, program);
    let head = format!("{:9}{kind} ", severity.name());
    let plain = screen.paragraph(&head, HEAD, &description.subject);
    // Colours are added last, as their codes take no columns.
    let rest = plain.strip_prefix(severity.name()).unwrap_or_default();
    let mut text = screen.tint(severity.tint(), severity.name()) + rest;
    text.push_str(&screen.paragraph("", INDENT, &description.text));
    for line in description.evidence.iter().filter(|_| with_evidence) {
        text.push_str(&screen.paragraph("    -", INDENT + 2, line));
    }
    if !description.remedy.is_empty() {
        text.push_str(&screen.paragraph("    ->", INDENT + 3, &description.remedy));
    }
    for line in &description.commands {
        text.push_str(&format!("{:indent$}{line}\n", "", indent = INDENT + 3));
    }
    text
}
