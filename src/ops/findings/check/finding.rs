//! Findings and the report of `check`.

use serde::{Serialize, Serializer};

use crate::ops::lease::Lease;
use crate::ops::screen::{Screen, Tint, pluralize};

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The kind.
    pub kind: FindingKind,
    /// The address, file or server concerned.
    pub subject: String,
    /// The description.
    pub text: String,
    /// The evidence.
    pub evidence: Vec<String>,
    /// The remedy.
    pub remedy: String,
    /// The commands to type, one per line.
    pub commands: Vec<String>,
    /// The lease, if the finding is about a held address.
    pub holder: Option<Lease>,
}

/// The kind of a finding, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// The state is lost, cannot be read or written, or needs repair.
    State,
    /// Two attachments claim one address.
    Duplicate,
    /// A pod uses an address that is free in the state, so another pod may get it.
    Stray,
    /// The lock is held for too long.
    Lock,
    /// The source does not answer, or its answer is not valid.
    Source,
    /// The source lists an interface that this node does not have.
    Interface,
    /// An address is held, but there is no evidence of its holder.
    Leak,
    /// The host itself has a free address of a pool, or a route to it.
    Wired,
    /// The owner of a held address is unknown.
    UnknownOwner,
    /// A pod of our network has an address outside of the pools.
    Foreign,
    /// A corrupt file that was kept.
    SetAside,
}

impl Serialize for FindingKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FindingKind {
    /// Its name, on screens and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::State => "state",
            FindingKind::Duplicate => "duplicate",
            FindingKind::Stray => "stray",
            FindingKind::Lock => "lock",
            FindingKind::Source => "source",
            FindingKind::Interface => "interface",
            FindingKind::Leak => "leak",
            FindingKind::Wired => "wired",
            FindingKind::UnknownOwner => "unknown-owner",
            FindingKind::Foreign => "foreign",
            FindingKind::SetAside => "set-aside",
        }
    }

    /// Whether it can affect pods now.
    fn is_severe(self) -> bool {
        matches!(
            self,
            FindingKind::State
                | FindingKind::Duplicate
                | FindingKind::Stray
                | FindingKind::Lock
                | FindingKind::Source
                | FindingKind::Interface
        )
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckReport {
    /// The time, RFC 3339.
    pub time: String,
    /// The findings, the worst first.
    pub findings: Vec<Finding>,
    /// The evidence that could not be checked.
    pub not_seen: Vec<String>,
    /// The number of leases that were compared with the node.
    pub compared: usize,
}

impl CheckReport {
    /// The exit status: 0 clean, 1 findings, 2 incomplete evidence without findings.
    pub fn status(&self) -> u8 {
        match (self.findings.is_empty(), self.not_seen.is_empty()) {
            (false, _) => 1,
            (true, false) => 2,
            (true, true) => 0,
        }
    }

    /// Prints the report as text.
    pub fn print(&self, screen: &Screen) -> String {
        const INDENT: usize = 4;
        let mut text = String::new();
        for finding in &self.findings {
            let tint = if finding.kind.is_severe() {
                Tint::Bad
            } else {
                Tint::Doubtful
            };
            let kind = screen.tint(tint, finding.kind.name());
            text.push_str(&format!(
                "{kind}  {}\n",
                screen.tint(Tint::Strong, &finding.subject)
            ));
            text.push_str(&screen.paragraph("", INDENT, &finding.text));
            for evidence in &finding.evidence {
                text.push_str(&screen.paragraph("    -", INDENT + 2, evidence));
            }
            text.push_str(&screen.paragraph("    ->", INDENT + 3, &finding.remedy));
            for command in &finding.commands {
                // Not wrapped, so that it can be pasted.
                text.push_str(&format!("{:indent$}{command}\n", "", indent = INDENT + 5));
            }
            text.push('\n');
        }
        for why in &self.not_seen {
            text.push_str(&screen.paragraph("", 0, &format!("Not checked: {why}.")));
        }
        let holders = pluralize(self.compared, "holder", "holders");
        let last = match self.findings.len() {
            0 if self.not_seen.is_empty() => screen.tint(
                Tint::Good,
                &format!("Nothing is wrong; {holders} compared with the node."),
            ),
            0 => format!("Nothing wrong was found in what could be checked; {holders} compared."),
            n => format!(
                "{}; {holders} compared with the node.",
                screen.tint(Tint::Bad, &pluralize(n, "finding", "findings"))
            ),
        };
        text.push_str(&last);
        text.push('\n');
        text
    }
}
