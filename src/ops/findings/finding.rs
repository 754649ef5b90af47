//! A finding: one fact about this node, whether it is a problem, and what to do about it.

use std::fmt::Display;
use std::net::IpAddr;

use serde::{Serialize, Serializer};

use crate::ops::lease::Lease;
use crate::ops::screen::Tint;

/// One fact about this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// What it is about.
    pub kind: FindingKind,
    /// How bad it is.
    pub severity: Severity,
    /// The address, file or server concerned; empty where the text names it.
    pub subject: String,
    /// The description, without full stop.
    pub text: String,
    /// What all findings of one cause have in common; empty where a finding stands alone.
    pub cause: &'static str,
    /// The evidence.
    pub evidence: Vec<String>,
    /// The remedy, without full stop; empty where nothing is wrong.
    pub remedy: String,
    /// The commands to type. A command may have several lines.
    pub commands: Vec<String>,
    /// The lease, if the finding is about a held address.
    pub holder: Option<Lease>,
}

/// How bad a finding is, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Pods get no address, or may get a wrong one.
    Error,
    /// It works, but somebody should act.
    Warning,
    /// Nobody needs to act: it is harmless, or heals by itself.
    Note,
    /// It is as it should be.
    Ok,
}

/// What a finding is about. Of one severity, the first kind comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// The disk that the state is on.
    Disk,
    /// The state: lost, unreadable, or in need of repair.
    State,
    /// Two attachments claim one address.
    Duplicate,
    /// A pod uses an address that is free in the state, so another pod may get it.
    Stray,
    /// The lock on the state.
    Lock,
    /// The network configurations.
    Conflist,
    /// The executables that runtimes call.
    Executable,
    /// The source of the pools.
    Source,
    /// The interfaces that the source lists.
    Interface,
    /// A pool of the state.
    Pool,
    /// An ADD would fail, for a reason that no other finding gives.
    Add,
    /// Other IPAM plugins with addresses of our pools.
    Owner,
    /// The host itself has a free address of a pool, or a route to it.
    Wired,
    /// An address is held, but there is no evidence of its holder.
    Leak,
    /// A pod has an address that the pools do not know.
    Foreign,
    /// The owner of a held address is unknown.
    UnknownOwner,
    /// What the node shows.
    Host,
    /// The settings file.
    Settings,
    /// The log.
    Log,
    /// Corrupt states that were set aside.
    SetAside,
    /// What only root can see.
    Root,
    /// This program.
    Version,
}

impl Finding {
    /// Creates a finding that nothing is wrong.
    pub fn ok(kind: FindingKind, text: &dyn Display) -> Finding {
        Finding::new(Severity::Ok, kind, text, &"")
    }

    /// Creates a note.
    pub fn note(kind: FindingKind, text: &dyn Display, remedy: &dyn Display) -> Finding {
        Finding::new(Severity::Note, kind, text, remedy)
    }

    /// Creates a warning.
    pub fn warning(kind: FindingKind, text: &dyn Display, remedy: &dyn Display) -> Finding {
        Finding::new(Severity::Warning, kind, text, remedy)
    }

    /// Creates an error.
    pub fn error(kind: FindingKind, text: &dyn Display, remedy: &dyn Display) -> Finding {
        Finding::new(Severity::Error, kind, text, remedy)
    }

    fn new(
        severity: Severity,
        kind: FindingKind,
        text: &dyn Display,
        remedy: &dyn Display,
    ) -> Finding {
        Finding {
            kind,
            severity,
            subject: String::new(),
            text: text.to_string(),
            cause: "",
            evidence: Vec::new(),
            remedy: remedy.to_string(),
            commands: Vec::new(),
            holder: None,
        }
    }

    /// Sets the address, file or server concerned.
    pub fn about(mut self, subject: impl Display) -> Finding {
        self.subject = subject.to_string();
        self
    }

    /// Sets the commands to type.
    pub fn with_commands(mut self, commands: impl IntoIterator<Item = String>) -> Finding {
        self.commands = commands.into_iter().collect();
        self
    }

    /// Sets the evidence.
    pub fn with_evidence(mut self, evidence: Vec<String>) -> Finding {
        self.evidence = evidence;
        self
    }

    /// Whether somebody should act.
    pub fn is_problem(&self) -> bool {
        self.severity <= Severity::Warning
    }
}

/// Sorts findings: the worst first, then by kind, cause and subject. Addresses sort by value.
pub fn sort(findings: &mut [Finding]) {
    findings.sort_by_cached_key(|finding| {
        let address: Option<IpAddr> = finding.subject.parse().ok();
        let cause = finding.cause;
        (
            finding.severity,
            finding.kind,
            cause,
            address,
            finding.subject.clone(),
        )
    });
}

impl Severity {
    /// Its name, on screens and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
            Severity::Ok => "ok",
        }
    }

    /// Its colour.
    pub fn tint(self) -> Tint {
        match self {
            Severity::Error => Tint::Bad,
            Severity::Warning => Tint::Doubtful,
            Severity::Note => Tint::Faint,
            Severity::Ok => Tint::Good,
        }
    }
}

impl Serialize for Severity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FindingKind {
    /// Its name, on screens and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::Disk => "disk",
            FindingKind::State => "state",
            FindingKind::Duplicate => "duplicate",
            FindingKind::Stray => "stray",
            FindingKind::Lock => "lock",
            FindingKind::Conflist => "conflist",
            FindingKind::Executable => "executable",
            FindingKind::Source => "source",
            FindingKind::Interface => "interface",
            FindingKind::Pool => "pool",
            FindingKind::Add => "add",
            FindingKind::Owner => "owner",
            FindingKind::Wired => "wired",
            FindingKind::Leak => "leak",
            FindingKind::Foreign => "foreign",
            FindingKind::UnknownOwner => "unknown-owner",
            FindingKind::Host => "host",
            FindingKind::Settings => "settings",
            FindingKind::Log => "log",
            FindingKind::SetAside => "set-aside",
            FindingKind::Root => "root",
            FindingKind::Version => "version",
        }
    }

    /// What the summary calls one, and several.
    pub fn nouns(self) -> (&'static str, &'static str) {
        match self {
            FindingKind::Duplicate => ("duplicate", "duplicates"),
            FindingKind::Stray => ("stray address", "stray addresses"),
            FindingKind::Leak => ("leak", "leaks"),
            FindingKind::Wired => ("address on the host", "addresses on the host"),
            FindingKind::Foreign => ("foreign address", "foreign addresses"),
            FindingKind::UnknownOwner => ("unknown owner", "unknown owners"),
            FindingKind::Disk => ("disk problem", "disk problems"),
            FindingKind::State => ("state problem", "state problems"),
            FindingKind::Lock => ("lock problem", "lock problems"),
            FindingKind::Conflist => ("conflist problem", "conflist problems"),
            FindingKind::Executable => ("executable problem", "executable problems"),
            FindingKind::Source => ("source problem", "source problems"),
            FindingKind::Interface => ("interface problem", "interface problems"),
            FindingKind::Pool => ("pool problem", "pool problems"),
            FindingKind::Owner => ("conflict with another IPAM", "conflicts with other IPAMs"),
            FindingKind::Settings => ("settings problem", "settings problems"),
            FindingKind::Log => ("log problem", "log problems"),
            FindingKind::Add
            | FindingKind::Host
            | FindingKind::SetAside
            | FindingKind::Root
            | FindingKind::Version => ("problem", "problems"),
        }
    }
}

impl Serialize for FindingKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_come_first_and_addresses_by_value() {
        let leak = |address: &str| Finding::warning(FindingKind::Leak, &"", &"").about(address);
        let mut findings = [
            Finding::ok(FindingKind::Version, &""),
            leak("10.1.0.10"),
            leak("10.1.0.8"),
            Finding::error(FindingKind::Pool, &"", &""),
            Finding::error(FindingKind::Disk, &"", &""),
        ];
        sort(&mut findings);
        let sorted = findings.each_ref().map(|f| (f.kind.name(), &*f.subject));
        assert_eq!(
            sorted,
            [
                ("disk", ""),
                ("pool", ""),
                ("leak", "10.1.0.8"),
                ("leak", "10.1.0.10"),
                ("version", ""),
            ]
        );
    }
}
