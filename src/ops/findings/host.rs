//! How much of the node could be looked at.

use super::finding::{Finding, FindingKind};
use super::visibility::Visibility;
use crate::ipam::Kernel;

/// Examines it. Users other than root never see everything, which is reported with all else that they do not see.
pub fn examine(kernel: &Kernel, visibility: &mut Visibility) -> Option<Finding> {
    let Some(why) = &kernel.incomplete else {
        let count = kernel.namespaces.len();
        let text = format_args!("{count} network namespaces were looked into");
        return Some(Finding::ok(FindingKind::Host, &text));
    };
    let reason = if visibility.is_root {
        why
    } else {
        "permission denied"
    };
    if visibility.hides("network namespaces of pods", reason) {
        return None;
    }
    Some(Finding::note(
        FindingKind::Host,
        &format_args!("the node could not be scanned completely: {why}"),
        &"run it as root on the node itself, not in a container; with no more access than this, the plugin reclaims nothing",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    #[test]
    fn an_incomplete_look_is_a_note_to_root() {
        let kernel = |why: Option<&str>| Kernel {
            incomplete: why.map(str::to_owned),
            ..Kernel::default()
        };
        let found = |why, is_root| {
            let found = examine(&kernel(why), &mut Visibility::new(is_root));
            found.map(|finding| finding.severity)
        };
        assert_eq!(found(None, true), Some(Severity::Ok));
        assert_eq!(found(Some("/proc is hidden"), true), Some(Severity::Note));
        assert_eq!(found(Some("/proc is hidden"), false), None);
    }
}
