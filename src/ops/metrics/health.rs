//! The metrics of the installation and of the last check.

use super::page::Page;
use crate::ops::last_check::LastCheck;

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
        "Findings of the last recorded check, by kind and severity.",
    );
    for found in &check.findings {
        let labels = [("kind", &*found.kind), ("severity", &*found.severity)];
        page.sample(&labels, &found.count);
    }
    page.gauge(
        "last_check_status",
        "Exit status of the last recorded check: 0 nothing is wrong, 1 problems, 2 not everything could be examined.",
    );
    page.sample(&[], &check.status);
    page.gauge(
        "last_check_timestamp_seconds",
        "Time of the last recorded check, in seconds since 1970.",
    );
    page.sample(&[], &check.time);
}
