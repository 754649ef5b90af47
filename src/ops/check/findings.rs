//! What is found, as a value.

use serde::{Serialize, Serializer};

use crate::ops::holder::Holder;
use crate::ops::screen::{Screen, Tint, counted};

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What it is.
    pub kind: Kind,
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
    pub holder: Option<Holder>,
}

/// What a finding is, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
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

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Kind {
    /// Its name, on screens and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::State => "state",
            Kind::Duplicate => "duplicate",
            Kind::Stray => "stray",
            Kind::Lock => "lock",
            Kind::Source => "source",
            Kind::Interface => "interface",
            Kind::Leak => "leak",
            Kind::Wired => "wired",
            Kind::UnknownOwner => "unknown-owner",
            Kind::Foreign => "foreign",
            Kind::SetAside => "set-aside",
        }
    }

    /// Whether pods may suffer by it now.
    fn is_grave(self) -> bool {
        matches!(
            self,
            Kind::State
                | Kind::Duplicate
                | Kind::Stray
                | Kind::Lock
                | Kind::Source
                | Kind::Interface
        )
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checked {
    /// When, RFC 3339.
    pub time: String,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// What could not be looked at: nothing may be wrong there, or much.
    pub not_seen: Vec<String>,
    /// How many holders were compared with the node.
    pub compared: usize,
}

impl Checked {
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
            let tint = if finding.kind.is_grave() {
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
        let holders = counted(self.compared, "holder", "holders");
        let last = match self.findings.len() {
            0 if self.not_seen.is_empty() => screen.tint(
                Tint::Good,
                &format!("Nothing is wrong; {holders} compared with the node."),
            ),
            0 => format!("Nothing wrong was found where it could be looked; {holders} compared."),
            n => format!(
                "{}; {holders} compared with the node.",
                screen.tint(Tint::Bad, &counted(n, "finding", "findings"))
            ),
        };
        text.push_str(&last);
        text.push('\n');
        text
    }
}
