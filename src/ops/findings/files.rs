//! The log and the settings file.

use std::fs::{self, Metadata};
use std::path::Path;

use super::finding::{Finding, FindingKind};
use super::visibility::Visibility;
use crate::host::is_not_writable;
use crate::ops::node::Node;
use crate::ops::node_config::NodeConfig;

/// Examines them.
pub fn examine(node: &Node, config: &NodeConfig, visibility: &mut Visibility) -> Vec<Finding> {
    let paths = node.paths();
    let log = paths.log();
    // A folder that cannot be written is a matter of its disk.
    let is_open = log.parent().is_none_or(|folder| !is_not_writable(folder));
    let refuses = |path: &Path| visibility.is_root && is_open && is_not_writable(path);
    let mut lines = Vec::new();
    let meta = fs::symlink_metadata(&log).ok();
    lines.push(log_file(&log, meta.as_ref(), refuses(&log)));
    let path = paths.settings();
    let exists = fs::symlink_metadata(&path).is_ok();
    lines.extend(settings(
        &path,
        &node.program,
        exists,
        &config.wrong_settings,
        visibility,
    ));
    lines
}

fn log_file(path: &Path, meta: Option<&Metadata>, refuses: bool) -> Finding {
    let shown = path.display();
    let unwritten = |why: &str| {
        let remedy = "pods are not affected, but nothing is logged: move it away, and the next call makes a new one:";
        let finding = Finding::warning(FindingKind::Log, &format_args!("{shown} {why}"), &remedy);
        let finding = finding.about(shown.to_string());
        finding.with_commands([format!("sudo mv {shown} {shown}.old")])
    };
    match meta {
        None => Finding::ok(
            FindingKind::Log,
            &format_args!("{shown} does not exist yet"),
        ),
        Some(meta) if meta.is_symlink() => unwritten("is a link, which is not followed"),
        Some(meta) if !meta.is_file() => unwritten("is not a file"),
        Some(_) if refuses => unwritten("cannot be written"),
        Some(meta) => Finding::ok(
            FindingKind::Log,
            &format_args!("{shown}, {} KiB", meta.len().div_ceil(1024)),
        ),
    }
}

fn settings(
    path: &Path,
    program: &str,
    exists: bool,
    wrong: &[String],
    visibility: &mut Visibility,
) -> Vec<Finding> {
    let shown = path.display();
    if !exists {
        return vec![Finding::ok(
            FindingKind::Settings,
            &format_args!("{shown} does not exist: defaults apply"),
        )];
    }
    if wrong.is_empty() {
        return vec![Finding::ok(
            FindingKind::Settings,
            &format_args!("{shown} is valid"),
        )];
    }
    let mut lines = Vec::new();
    for why in wrong {
        if !visibility.hides(&shown.to_string(), why) {
            let remedy = format_args!(
                "it is ignored until it is corrected; then run `{program} check-settings`"
            );
            lines.push(Finding::warning(
                FindingKind::Settings,
                &format_args!("{shown}: {why}"),
                &remedy,
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    #[test]
    fn settings_are_valid_invalid_or_missing() {
        let path = Path::new("/etc/x.json");
        let mut visibility = Visibility::new(true);
        assert_eq!(
            settings(path, "azure-vnet-ipam", false, &[], &mut visibility)[0].severity,
            Severity::Ok
        );
        assert_eq!(
            settings(path, "azure-vnet-ipam", true, &[], &mut visibility)[0].severity,
            Severity::Ok
        );
        let wrong = ["cooldown must be a number".to_owned(), "x".to_owned()];
        let lines = settings(path, "azure-vnet-ipam", true, &wrong, &mut visibility);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].severity, Severity::Warning);
        assert!(lines[0].text.contains("cooldown must be a number"));
        let denied = ["permission denied".to_owned()];
        assert_eq!(
            settings(
                path,
                "azure-vnet-ipam",
                true,
                &denied,
                &mut Visibility::new(false)
            ),
            []
        );
    }
}
