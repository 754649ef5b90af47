//! A diagnostic, and what this user cannot see.

use std::fmt::Display;
use std::path::Path;

use serde::{Serialize, Serializer};

use crate::failure::SUDO_REMEDY;
use crate::ops::screen::{Screen, Tint};

/// What a diagnostic is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// This program.
    Version,
    /// The state file.
    State,
    /// Corrupt states that were set aside.
    SetAside,
    /// The lock on the state.
    Lock,
    /// The log file.
    Log,
    /// The settings file.
    Settings,
    /// The source of the pools.
    Source,
    /// The interfaces that the source lists.
    Interface,
    /// The pools of the state.
    Pool,
    /// The network configurations.
    Conflist,
    /// The executable that runtimes call.
    Executable,
    /// Other IPAM plugins with addresses of our pools.
    Owner,
    /// The addresses of the host itself.
    Host,
    /// What only root can see.
    Root,
}

impl Subject {
    /// The word for it, on screens and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Subject::Version => "version",
            Subject::State => "state",
            Subject::SetAside => "set-aside",
            Subject::Lock => "lock",
            Subject::Log => "log",
            Subject::Settings => "settings",
            Subject::Source => "source",
            Subject::Interface => "interface",
            Subject::Pool => "pool",
            Subject::Conflist => "conflist",
            Subject::Executable => "executable",
            Subject::Owner => "owner",
            Subject::Host => "host",
            Subject::Root => "root",
        }
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The status of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nothing is wrong.
    Ok,
    /// It works, but needs attention.
    Warning,
    /// Pods get no address, or may get a wrong one.
    Wrong,
}

/// The result of one examination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The status.
    pub status: Status,
    /// What it is about.
    pub subject: Subject,
    /// The text, without full stop.
    pub text: String,
    /// What to do; `None` where nothing is wrong.
    pub remedy: Option<String>,
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl Status {
    /// The word for it, on screens and in JSON.
    fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Wrong => "wrong",
        }
    }

    fn tint(self) -> Tint {
        match self {
            Status::Ok => Tint::Good,
            Status::Warning => Tint::Doubtful,
            Status::Wrong => Tint::Bad,
        }
    }
}

impl Diagnostic {
    /// Nothing is wrong.
    pub fn ok(subject: Subject, text: &dyn Display) -> Diagnostic {
        Diagnostic::new(Status::Ok, subject, text, None)
    }

    /// It needs attention.
    pub fn warning(subject: Subject, text: &dyn Display, remedy: &dyn Display) -> Diagnostic {
        Diagnostic::new(Status::Warning, subject, text, Some(remedy))
    }

    /// Something is wrong.
    pub fn wrong(subject: Subject, text: &dyn Display, remedy: &dyn Display) -> Diagnostic {
        Diagnostic::new(Status::Wrong, subject, text, Some(remedy))
    }

    /// Texts are formatted here, out of line, which saves a third of the size of the callers.
    #[inline(never)]
    fn new(
        status: Status,
        subject: Subject,
        text: &dyn Display,
        remedy: Option<&dyn Display>,
    ) -> Diagnostic {
        Diagnostic {
            status,
            subject,
            text: text.to_string(),
            remedy: remedy.map(ToString::to_string),
        }
    }

    /// Prints status, subject and text, and the remedy below.
    pub fn print(&self, screen: &Screen) -> String {
        const STATUS: usize = 9;
        const INDENT: usize = 20;
        const ARROW: &str = "->";
        let word = self.status.word();
        let head = format!("{word:STATUS$}{}", self.subject.as_str());
        let plain = screen.paragraph(&head, INDENT, &self.text);
        // Colours are added last, as their codes take no columns.
        let rest = plain.strip_prefix(word).unwrap_or_default();
        let mut text = screen.tint(self.status.tint(), word) + rest;
        if let Some(remedy) = &self.remedy {
            let head = format!("{:INDENT$}{ARROW} ", "");
            text.push_str(&screen.paragraph(&head, INDENT + ARROW.len() + 1, remedy));
        }
        text
    }
}

/// What this user is allowed to see.
#[derive(Debug)]
pub struct Visibility {
    /// Whether the user is root.
    pub is_root: bool,
    hidden: Vec<String>,
}

impl Visibility {
    /// The visibility of the effective user of this process.
    pub fn of_process() -> Visibility {
        Visibility::new(rustix::process::geteuid().is_root())
    }

    /// The visibility of root, or of another user.
    pub fn new(is_root: bool) -> Visibility {
        Visibility {
            is_root,
            hidden: Vec::new(),
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

    /// The diagnostic that lists what only root would see.
    pub fn line(self) -> Option<Diagnostic> {
        if self.is_root {
            return None;
        }
        let mut hidden = self.hidden;
        hidden.push("write permissions".to_owned());
        let hidden = hidden.join(", ");
        let text = format_args!("not checked, as this needs root: {hidden}");
        Some(Diagnostic::warning(Subject::Root, &text, &SUDO_REMEDY))
    }
}

/// A folder that must be writable, and is not.
pub fn not_writable(subject: Subject, folder: &Path) -> Diagnostic {
    let folder = folder.display();
    Diagnostic::wrong(
        subject,
        &format_args!("{folder} cannot be written"),
        &format_args!("mount it writable: `findmnt -T {folder}` shows its source"),
    )
}

/// The first few items, and the number of the others.
pub fn join_first(items: impl IntoIterator<Item = String>) -> String {
    const FEW: usize = 4;
    let mut items = items.into_iter();
    let mut text = items.by_ref().take(FEW).collect::<Vec<_>>().join(", ");
    let more = items.count();
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnostic_fits_its_screen_with_and_without_colours() {
        let line = Diagnostic::wrong(
            Subject::Interface,
            &"no interface of this node has the hardware address 7c:1e:52:f9:f3:c6",
            &"attach the interface in Azure, or restart the node so that both agree",
        );
        let narrow = Screen {
            width: Some(60),
            colours: false,
        };
        let text = line.print(&narrow);
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "wrong    interface  no interface of this node has the",
                "                    hardware address 7c:1e:52:f9:f3:c6",
                "                    -> attach the interface in Azure, or",
                "                       restart the node so that both agree",
            ]
        );
        let coloured = Screen {
            colours: true,
            ..narrow
        };
        let text = line.print(&coloured);
        assert!(text.starts_with("\x1b[31mwrong\x1b[0m    interface  no"));
        assert_eq!(text.lines().count(), 4, "colours take no columns");
    }

    #[test]
    fn only_other_users_than_root_are_told_to_use_sudo() {
        let mut visibility = Visibility::new(false);
        assert!(visibility.hides("the state", "permission denied"));
        assert!(visibility.hides("the state", "operation not permitted"));
        assert!(!visibility.hides("the log", "input/output error"));
        let line = visibility.line().unwrap();
        assert_eq!(line.status, Status::Warning);
        assert_eq!(line.text.matches("the state").count(), 1);
        assert!(line.remedy.unwrap().contains("sudo"));
        let mut root = Visibility::new(true);
        assert!(!root.hides("the state", "permission denied"));
        assert_eq!(root.line(), None);
    }

    #[test]
    fn long_lists_are_cut() {
        let items = |count: usize| join_first((0..count).map(|n| n.to_string()));
        assert_eq!(items(4), "0, 1, 2, 3");
        assert_eq!(items(9), "0, 1, 2, 3 and 5 more");
    }
}
