//! A finding: one fact about this node, whether it is a problem, and what to do about it.

use std::fmt::Display;
use std::net::IpAddr;
use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;

use crate::ops::held::HeldAddress;
use crate::ops::screen::{Tint, pluralize};

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
    /// The commands to type, in their order.
    pub commands: Vec<String>,
    /// The address, if the finding is about a held address.
    pub holder: Option<HeldAddress>,
}

/// How bad a finding is, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Pods get no address, or may get a wrong one.
    Error,
    /// It works, but somebody should act.
    Warning,
    /// No action is needed: it is harmless, or the next ADD repairs it.
    Note,
    /// It is as it should be.
    #[value(skip)]
    Ok,
}

/// Declares the kinds of findings, the most urgent first: the name of each, and what the summary calls one and several.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $name:literal, $one:literal, $many:literal;)*) => {
        /// What a finding is about. Of one severity, the first kind comes first.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum FindingKind {
            $($(#[$doc])* #[serde(rename = $name)] $kind,)*
        }

        impl FindingKind {
            /// Its name, on screens and in JSON.
            pub fn name(self) -> &'static str {
                match self {
                    $(FindingKind::$kind => $name,)*
                }
            }

            /// What the summary calls so many of them.
            pub fn count(self, count: usize) -> String {
                match self {
                    $(FindingKind::$kind => pluralize(count, $one, $many),)*
                }
            }
        }
    };
}

kinds! {
    /// The disk that the state is on.
    Disk: "disk", "disk problem", "disk problems";
    /// The state: lost, unreadable, or in need of repair.
    State: "state", "state problem", "state problems";
    /// Two attachments claim one address, or another namespace than that of its holder has it.
    Duplicate: "duplicate", "duplicate", "duplicates";
    /// A pod uses an address that is free in the state, so another pod may get it.
    Stray: "stray", "stray address", "stray addresses";
    /// The lock on the state.
    Lock: "lock", "lock problem", "lock problems";
    /// The network configurations.
    Conflist: "conflist", "conflist problem", "conflist problems";
    /// The executables that runtimes call.
    Executable: "executable", "executable problem", "executable problems";
    /// The source of the pools.
    Source: "source", "source problem", "source problems";
    /// The interfaces that the source lists.
    Interface: "interface", "interface problem", "interface problems";
    /// A pool of the state.
    Pool: "pool", "pool problem", "pool problems";
    /// An ADD would fail, for a reason that no other finding gives.
    Add: "add", "problem", "problems";
    /// Other IPAM plugins that allocate from our subnets.
    Conflict: "conflict", "conflict with another IPAM", "conflicts with other IPAMs";
    /// The host itself has a free address of a pool, or a route to it.
    OnHost: "on-host", "address on the host", "addresses on the host";
    /// A free address that a sandbox still has, which the runtime could not remove.
    Withheld: "withheld", "withheld address", "withheld addresses";
    /// An address that the source took from a running pod.
    Unlisted: "unlisted", "address not listed any more", "addresses not listed any more";
    /// The network namespace of a holder does not have the address.
    Unconfigured: "unconfigured", "address not configured", "addresses not configured";
    /// Packets of a pod do not get there, or do not leave as they should: the host discards them or routes them elsewhere.
    Unrouted: "unrouted", "address not routed", "addresses not routed";
    /// A sandbox that the runtime has replaced and kept.
    Replaced: "replaced", "replaced sandbox", "replaced sandboxes";
    /// An address is held, but there is no evidence of its holder.
    Leak: "leak", "leak", "leaks";
    /// A pod has an address that the pools do not know.
    Foreign: "foreign", "foreign address", "foreign addresses";
    /// The holder of a held address is unknown.
    UnknownHolder: "unknown-holder", "unknown holder", "unknown holders";
    /// Files of the runtime's record of results that cannot be read.
    Cache: "cache", "problem with the runtime's records", "problems with the runtime's records";
    /// The settings file.
    Settings: "settings", "settings problem", "settings problems";
    /// The log.
    Log: "log", "log problem", "log problems";
    /// Corrupt states that were set aside.
    SetAside: "set-aside", "problem", "problems";
    /// The network namespaces of the node.
    Host: "host", "problem", "problems";
    /// This program.
    Version: "version", "problem", "problems";
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

    /// Creates the error of a folder that is read-only.
    pub fn read_only(kind: FindingKind, folder: &Path) -> Finding {
        let shown = folder.display();
        let text = format_args!("{shown} cannot be written");
        let remedy =
            "find out why it is read-only (`dmesg` names disks that fail), then make it writable:";
        let command = remount("rw", folder);
        let finding = Finding::error(kind, &text, &remedy).about(shown);
        finding.with_commands([command])
    }

    /// Creates a finding.
    pub fn new(
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

/// Whether a shell reads this path as one word, so that it may stand in a printed command.
pub fn is_plain_path(path: &str) -> bool {
    path.chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.:@+/".contains(c))
}

/// The command that mounts the file system of a path again with an option.
pub fn remount(option: &str, path: &Path) -> String {
    format!("sudo mount -o remount,{option} {}", mount_point(path))
}

/// The mount point of the file system of a path, as part of a command. Of mounts on one place, the last one counts.
pub fn mount_point(path: &Path) -> String {
    format!(
        "\"$(findmnt -n -o TARGET -T {} | tail -n 1)\"",
        path.display()
    )
}

/// What findings have in common that are printed as one: also the remedy, and of packets that do not arrive, what leads them elsewhere.
fn group(of: &Finding) -> (Severity, FindingKind, &str, Option<&str>, Option<&[String]>) {
    let may_have_others = !of.cause.is_empty();
    let is_unrouted = of.kind == FindingKind::Unrouted;
    (
        of.severity,
        of.kind,
        of.cause,
        may_have_others.then_some(&of.remedy),
        (may_have_others && is_unrouted).then_some(&of.evidence),
    )
}

/// Whether two findings are printed as one group.
pub fn have_one_cause(one: &Finding, other: &Finding) -> bool {
    !one.cause.is_empty() && group(one) == group(other)
}

/// Sorts findings: the worst first, then by kind, group and subject. Addresses sort by value.
pub fn sort(findings: &mut [Finding]) {
    fn place(of: &Finding) -> impl Ord {
        let address: Option<IpAddr> = of.subject.parse().ok();
        (group(of), address, &of.subject)
    }
    findings.sort_by(|a, b| place(a).cmp(&place(b)));
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

/// What this user is allowed to see.
#[derive(Debug, Default)]
pub struct Visibility {
    /// Whether the user is root.
    pub is_root: bool,
    /// A path of the node that the source needs, and that the container of this process lacks.
    pub not_mounted: Option<String>,
    hidden: Vec<String>,
}

impl Visibility {
    /// The visibility of the effective user of this process.
    pub fn of_process() -> Visibility {
        Visibility {
            is_root: rustix::process::geteuid().is_root(),
            ..Visibility::default()
        }
    }

    /// Whether `what` cannot be read only because the user is not root, and records that.
    pub fn hides(&mut self, what: &str, why: &str) -> bool {
        let is_refusal = matches!(why, "permission denied" | "operation not permitted");
        let refused = !self.is_root && is_refusal;
        if refused && !self.hidden.iter().any(|hidden| hidden == what) {
            self.hidden.push(what.to_owned());
        }
        refused
    }

    /// What was hidden, for a user other than root.
    pub fn hidden(&self) -> Option<String> {
        let hidden = self.hidden.iter().map(String::as_str);
        let hidden: Vec<&str> = hidden.chain(["write permissions"]).collect();
        (!self.is_root).then(|| hidden.join(", "))
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

    #[test]
    fn what_only_root_sees_is_listed_once() {
        let mut visibility = Visibility::default();
        assert!(visibility.hides("the state", "permission denied"));
        assert!(visibility.hides("the state", "operation not permitted"));
        assert!(!visibility.hides("the log", "input/output error"));
        let hidden = visibility.hidden();
        assert_eq!(hidden.as_deref(), Some("the state, write permissions"));
        let mut root = Visibility {
            is_root: true,
            ..Visibility::default()
        };
        assert!(!root.hides("the state", "permission denied"));
        assert_eq!(root.hidden(), None);
    }
}
