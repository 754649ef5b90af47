//! What this user is allowed to see.

use crate::failure::SUDO_REMEDY;

use super::finding::{Finding, FindingKind};

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

    /// What was hidden, for a user other than root.
    pub fn hidden(&self) -> Option<String> {
        if self.is_root {
            return None;
        }
        let mut hidden = self.hidden.clone();
        hidden.push("write permissions".to_owned());
        Some(hidden.join(", "))
    }

    /// The finding that lists what only root would see.
    pub fn finding(&self) -> Option<Finding> {
        let hidden = self.hidden()?;
        let text = format_args!("not checked, as this needs root: {hidden}");
        Some(Finding::note(FindingKind::Root, &text, &SUDO_REMEDY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_users_than_root_are_told_to_use_sudo() {
        let mut visibility = Visibility::new(false);
        assert!(visibility.hides("the state", "permission denied"));
        assert!(visibility.hides("the state", "operation not permitted"));
        assert!(!visibility.hides("the log", "input/output error"));
        let finding = visibility.finding().unwrap();
        assert_eq!(finding.text.matches("the state").count(), 1);
        assert!(finding.remedy.contains("sudo"));
        let mut root = Visibility::new(true);
        assert!(!root.hides("the state", "permission denied"));
        assert_eq!(root.finding(), None);
    }
}
