//! What is found, as a value.

use serde::{Serialize, Serializer};

use crate::ops::lease::Lease;
use crate::ops::screen::{Screen, Tint, pluralize};

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// The address, file or server that it is about.
    pub subject: String,
    /// In a sentence.
    pub text: String,
    /// What shows it.
    pub evidence: Vec<String>,
    /// What to do.
    pub remedy: String,
    /// What to type for it, line by line.
    pub commands: Vec<String>,
    /// Who holds the address, where it is about one that is held.
    pub holder: Option<Lease>,
}

/// What a finding is, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// The state is lost, cannot be read, or is not to be believed in full.
    State,
    /// Two attachments claim one address.
    Duplicate,
    /// A pod has an address of ours that nobody holds, so that another may get it.
    Stray,
    /// The lock is held for too long.
    Lock,
    /// The source does not answer, or answers nonsense.
    Source,
    /// The source lists an interface that this node does not have.
    Interface,
    /// An address is held, but nothing shows its holder.
    Leak,
    /// The host itself has a free address of ours, or a route to it.
    Wired,
    /// Nobody knows who holds an address.
    UnknownOwner,
    /// A pod of a network of ours has an address from elsewhere.
    Foreign,
    /// A file that is kept for people to look at.
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

    /// Whether pods may suffer by it now.
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
    /// When, RFC 3339.
    pub time: String,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// What could not be looked at: nothing may be wrong there, or much.
    pub not_seen: Vec<String>,
    /// How many holders were compared with the node.
    pub compared: usize,
}

impl CheckReport {
    /// 0 clean, 1 findings, 2 could not look.
    pub fn status(&self) -> u8 {
        match (self.findings.is_empty(), self.not_seen.is_empty()) {
            (false, _) => 1,
            (true, false) => 2,
            (true, true) => 0,
        }
    }

    /// The text for people.
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
                // Whole, to be copied.
                text.push_str(&format!("{:indent$}{command}\n", "", indent = INDENT + 5));
            }
            text.push('\n');
        }
        for why in &self.not_seen {
            text.push_str(&screen.paragraph("", 0, &format!("Not looked at: {why}.")));
        }
        let holders = pluralize(self.compared, "holder", "holders");
        let last = match self.findings.len() {
            0 if self.not_seen.is_empty() => screen.tint(
                Tint::Good,
                &format!("Nothing is wrong; {holders} compared with the node."),
            ),
            0 => format!("Nothing wrong was found where it could be looked; {holders} compared."),
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
