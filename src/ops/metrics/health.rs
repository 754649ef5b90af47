//! The metrics of the installation and of the last check.

use std::collections::BTreeMap;

use super::page::Page;

/// The result of a check: counts, and no names of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastCheck {
    /// When it was: seconds since 1970.
    pub time: i64,
    /// The exit status of `check`.
    pub status: u8,
    /// The number of findings by kind and severity.
    pub findings: BTreeMap<(&'static str, &'static str), usize>,
}

/// Prints them.
pub fn print(page: &mut Page, installed: &[(&'static str, bool)], check: Option<&LastCheck>) {
    page.gauge(
        "executable_matches",
        "1 if the installed plugin is the executable that watches it; 0 if it is another one, or missing.",
    );
    for (name, is_ours) in installed {
        page.sample(&[("name", name)], &u8::from(*is_ours));
    }
    let Some(check) = check else {
        return;
    };
    page.gauge(
        "last_check_findings",
        "Findings of the last check of node-loop, by kind and severity.",
    );
    for ((kind, severity), count) in &check.findings {
        page.sample(&[("kind", kind), ("severity", severity)], count);
    }
    page.gauge(
        "last_check_status",
        "Exit status of the last check of node-loop: 0 nothing is wrong, 1 problems, 2 not everything could be examined.",
    );
    page.sample(&[], &check.status);
    page.gauge(
        "last_check_timestamp_seconds",
        "Time of the last check of node-loop, in seconds since 1970.",
    );
    page.sample(&[], &check.time);
}
