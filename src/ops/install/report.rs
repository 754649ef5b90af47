//! What `install` and `uninstall` report.

use std::path::PathBuf;

use serde::Serialize;

use super::occupant::Occupant;
use crate::ops::build_info;
use crate::ops::screen::{Screen, Tint};

/// The report of `install`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstallReport {
    /// The time, RFC 3339.
    pub time: String,
    /// Where the runtime looks for the plugin.
    pub path: PathBuf,
    /// Whether the file there was replaced.
    pub changed: bool,
    /// Why nothing was done.
    pub refused: Option<String>,
    /// What stood there before.
    pub found: Occupant,
    /// The version of this executable.
    pub version: &'static str,
    /// Its SHA-256.
    pub sha256: String,
    /// Where the file that was replaced is kept.
    pub saved: Option<PathBuf>,
    /// What did not work out.
    pub warnings: Vec<String>,
}

/// The report of `install --verify`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyReport {
    /// The time, RFC 3339.
    pub time: String,
    /// Where the runtime looks for the plugin.
    pub path: PathBuf,
    /// Whether this very executable stands there, and may be executed.
    pub same: bool,
    /// What stands there.
    pub found: Occupant,
    /// The version of this executable.
    pub version: &'static str,
    /// Its SHA-256.
    pub sha256: String,
}

/// The report of `uninstall`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UninstallReport {
    /// The time, RFC 3339.
    pub time: String,
    /// One entry for each name.
    pub plugins: Vec<UninstalledPlugin>,
    /// What did not work out.
    pub warnings: Vec<String>,
}

/// What `uninstall` did at one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UninstalledPlugin {
    /// Where the runtime looks for the plugin.
    pub path: PathBuf,
    /// Whether the file there was replaced or removed.
    pub changed: bool,
    /// Why nothing was done.
    pub refused: Option<String>,
    /// What stood there before.
    pub found: Occupant,
    /// What stands there instead: the saved file that came back.
    pub restored: Option<Occupant>,
}

impl InstallReport {
    /// Prints the report as text.
    pub fn print(&self, screen: &Screen) -> String {
        let (path, found) = (self.path.display(), self.found.describe());
        let mut text = match (&self.refused, self.changed) {
            (Some(why), _) => screen.paragraph("", 0, &format!("Not installed: {why}.")),
            (None, false) => screen.paragraph(
                "",
                0,
                &format!("{} is installed already as {path}.", build_info::LINE),
            ),
            (None, true) => screen.paragraph(
                "",
                0,
                &format!("{} is installed as {path}.", build_info::LINE),
            ),
        };
        if self.changed {
            let kept = match &self.saved {
                Some(saved) => format!(", kept as {}", saved.display()),
                None => String::new(),
            };
            text.push_str(&screen.paragraph("", 2, &format!("Before: {found}{kept}.")));
        }
        text + &print_warnings(&self.warnings, screen)
    }
}

impl VerifyReport {
    /// Prints the report as text.
    pub fn print(&self, screen: &Screen) -> String {
        let (path, found) = (self.path.display(), self.found.describe());
        let verdict = match (self.same, self.found.executable) {
            (true, _) => format!("{path} is this executable."),
            (false, false) if self.found.sha256.as_ref() == Some(&self.sha256) => {
                format!("{path} is this executable, but it may not be executed.")
            }
            (false, _) => format!("{path} is not this executable: there is {found}."),
        };
        let mut text = screen.paragraph("", 0, &verdict);
        let mut line = |name: &str, version: &str, sha256: &str| {
            let line = format!("{sha256} ({version})");
            text.push_str(&screen.paragraph(&format!("  {name:<10}"), 12, &line));
        };
        line("expected", self.version, &self.sha256);
        if let (false, Some(sha256)) = (self.same, &self.found.sha256) {
            line(
                "found",
                self.found.version.as_deref().unwrap_or("?"),
                sha256,
            );
        }
        text
    }
}

impl UninstallReport {
    /// Prints the report as text.
    pub fn print(&self, screen: &Screen) -> String {
        let mut text = String::new();
        for plugin in &self.plugins {
            let path = plugin.path.display();
            let line = match (&plugin.refused, &plugin.restored) {
                (Some(why), _) => format!("Not uninstalled: {why}."),
                (None, Some(restored)) => format!("{path} is {} again.", restored.describe()),
                (None, None) if plugin.changed => {
                    format!("{path} is removed; nothing stands there now.")
                }
                (None, None) => format!(
                    "Nothing to do at {path}: there is {}.",
                    plugin.found.describe()
                ),
            };
            text.push_str(&screen.paragraph("", 0, &line));
        }
        text + &print_warnings(&self.warnings, screen)
    }
}

fn print_warnings(warnings: &[String], screen: &Screen) -> String {
    let mut text = String::new();
    for warning in warnings {
        let warning = screen.paragraph("", 2, &format!("Warning: {warning}"));
        text.push_str(&screen.tint(Tint::Doubtful, warning.trim_end()));
        text.push('\n');
    }
    text
}
