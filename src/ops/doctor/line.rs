//! One line of the report, and what is said of things that only root may see.

use std::fmt::Display;
use std::path::Path;

use serde::{Serialize, Serializer};

use crate::ops::screen::{Screen, Tint};

/// The subjects that `check` is about too.
pub const STATE: &str = "state";
/// States that could not be read.
pub const SET_ASIDE: &str = "set-aside";
/// The lock on the state.
pub const LOCK: &str = "lock";
/// The source of the pools.
pub const SOURCE: &str = "source";
/// The interfaces that the source lists.
pub const INTERFACE: &str = "interface";

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// As it should be.
    Ok,
    /// It works, but somebody should know.
    Warning,
    /// Pods get no address because of it, or may get a wrong one.
    Wrong,
}

/// What was found about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// How it is.
    pub status: Status,
    /// What it is about, in a word.
    pub subject: &'static str,
    /// What was found, without full stop.
    pub text: String,
    /// What to do; nothing where all is well.
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

impl Line {
    /// It is as it should be.
    pub fn ok(subject: &'static str, text: &dyn Display) -> Line {
        Line::new(Status::Ok, subject, text, None)
    }

    /// Somebody should know.
    pub fn warning(subject: &'static str, text: &dyn Display, remedy: &dyn Display) -> Line {
        Line::new(Status::Warning, subject, text, Some(remedy))
    }

    /// It is wrong.
    pub fn wrong(subject: &'static str, text: &dyn Display, remedy: &dyn Display) -> Line {
        Line::new(Status::Wrong, subject, text, Some(remedy))
    }

    /// Texts are put together here and not where they are told, which makes a third of all these functions.
    #[inline(never)]
    fn new(
        status: Status,
        subject: &'static str,
        text: &dyn Display,
        remedy: Option<&dyn Display>,
    ) -> Line {
        Line {
            status,
            subject,
            text: text.to_string(),
            remedy: remedy.map(ToString::to_string),
        }
    }

    /// The text for people: status, subject, what was found; below it what to do.
    pub fn print(&self, screen: &Screen) -> String {
        const STATUS: usize = 9;
        const INDENT: usize = 20;
        const ARROW: &str = "->";
        let word = self.status.word();
        let head = format!("{word:STATUS$}{}", self.subject);
        let plain = screen.paragraph(&head, INDENT, &self.text);
        // Coloured at last, as the codes of colours take no columns.
        let rest = plain.strip_prefix(word).unwrap_or_default();
        let mut text = screen.tint(self.status.tint(), word) + rest;
        if let Some(remedy) = &self.remedy {
            let head = format!("{:INDENT$}{ARROW} ", "");
            text.push_str(&screen.paragraph(&head, INDENT + ARROW.len() + 1, remedy));
        }
        text
    }
}

/// What the user who asks is shown by the system.
#[derive(Debug)]
pub struct Visibility {
    /// Whether it is root.
    pub is_root: bool,
    hidden: Vec<String>,
}

impl Visibility {
    /// Of the user whom this process belongs to.
    pub fn of_this_process() -> Visibility {
        Visibility::of(rustix::process::geteuid().is_root())
    }

    /// Of root, or of another.
    pub fn of(is_root: bool) -> Visibility {
        Visibility {
            is_root,
            hidden: Vec::new(),
        }
    }

    /// Whether `why` something cannot be read is only that the user is not root; takes note of `what` then.
    pub fn misses(&mut self, what: &str, why: &str) -> bool {
        let is_refusal = matches!(why, "permission denied" | "operation not permitted");
        let refused = !self.is_root && is_refusal;
        if refused && !self.hidden.iter().any(|hidden| hidden == what) {
            self.hidden.push(what.to_owned());
        }
        refused
    }

    /// What root would see, and this user does not.
    pub fn line(self) -> Option<Line> {
        if self.is_root {
            return None;
        }
        let mut hidden = self.hidden;
        hidden.push("what may be written".to_owned());
        let hidden = hidden.join(", ");
        let text = format_args!("not looked at, as only root may: {hidden}");
        Some(Line::warning("root", &text, &"run it with sudo"))
    }
}

/// A folder that calls have to write in, and may not.
pub fn not_writable(subject: &'static str, folder: &Path) -> Line {
    let folder = folder.display();
    Line::wrong(
        subject,
        &format_args!("{folder} cannot be written"),
        &format_args!("mount it for writing: `findmnt -T {folder}` tells where it is from"),
    )
}

/// The first few of them, and how many more there are.
pub fn some(items: impl IntoIterator<Item = String>) -> String {
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
    fn a_line_fits_its_screen_with_and_without_colours() {
        let line = Line::wrong(
            "interface",
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
    fn only_others_than_root_are_told_to_use_sudo_and_once() {
        let mut sight = Visibility::of(false);
        assert!(sight.misses("the state", "permission denied"));
        assert!(sight.misses("the state", "operation not permitted"));
        assert!(!sight.misses("the log", "input/output error"));
        let line = sight.line().unwrap();
        assert_eq!(line.status, Status::Warning);
        assert_eq!(line.text.matches("the state").count(), 1);
        assert!(line.remedy.unwrap().contains("sudo"));
        let mut root = Visibility::of(true);
        assert!(!root.misses("the state", "permission denied"));
        assert_eq!(root.line(), None);
    }

    #[test]
    fn long_lists_are_cut() {
        let items = |count: usize| some((0..count).map(|n| n.to_string()));
        assert_eq!(items(4), "0, 1, 2, 3");
        assert_eq!(items(9), "0, 1, 2, 3 and 5 more");
    }
}
