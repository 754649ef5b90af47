//! The state file: its health, mode, writer and folder.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::finding::{Finding, FindingKind};
use super::texts::join_first;
use super::visibility::Visibility;
use crate::ops::node::Node;
use crate::ops::state_view::{StateReport, StateView};
use crate::state::{Condition, MODE, State, set_aside_before};

/// Examines the state.
pub fn examine(node: &Node, state: &StateView, visibility: &mut Visibility) -> Vec<Finding> {
    let paths = node.paths();
    let path = paths.state();
    let mut lines = Vec::new();
    if let Ok(meta) = fs::metadata(&path)
        && meta.is_file()
        && state.report.is_readable()
    {
        lines.push(file(&path, meta.permissions().mode(), meta.size()));
    }
    lines.extend(health(&state.report, visibility));
    lines.extend(writer(&state.state));
    if let Some(quarantine) = state.report.quarantine() {
        let remedy = "no action needed: the runtime tries again, and running pods are not affected";
        lines
            .push(Finding::warning(FindingKind::State, &quarantine, &remedy).about(path.display()));
    }
    let aside = set_aside_before(paths);
    let aside: Vec<_> = aside.iter().map(|p| p.display().to_string()).collect();
    lines.extend(set_aside(aside, &path));
    lines
}

/// The health of the state, unless there is nothing to say.
fn health(report: &StateReport, visibility: &mut Visibility) -> Option<Finding> {
    let text = report.text()?;
    if report.condition.is_none()
        && visibility.hides(&report.path, report.detail.as_deref().unwrap_or_default())
    {
        return None;
    }
    let finding = match (&report.condition, report.remedy()) {
        (None | Some(Condition::Newer { .. }), Some(remedy)) => {
            Finding::error(FindingKind::State, &text, &remedy)
        }
        (_, Some(remedy)) if report.is_key_unreadable || report.is_restored => {
            Finding::note(FindingKind::State, &text, &remedy)
        }
        (_, Some(remedy)) => Finding::warning(FindingKind::State, &text, &remedy),
        (_, None) => Finding::ok(FindingKind::State, &text),
    };
    Some(finding.about(&report.path))
}

/// The mode and size of the file; `mode` may include the file type.
fn file(path: &Path, mode: u32, bytes: u64) -> Finding {
    let mode = mode & 0o7777;
    let text = format_args!("{}, mode {mode:04o}, {bytes} bytes", path.display());
    if mode == MODE {
        return Finding::ok(FindingKind::State, &text);
    }
    let remedy = format_args!("no action needed: the next call makes it {MODE:04o}");
    Finding::note(FindingKind::State, &text, &remedy)
}

/// Which plugin wrote the state last.
fn writer(state: &State) -> Option<Finding> {
    let created = match state.version() {
        "" => String::new(),
        version => format!("; version {version} created it"),
    };
    if state.is_empty() || state.key_unreadable.is_some() {
        return None;
    }
    match (&state.condition, state.saved, state.other_wrote_last) {
        // That is a matter of the state's condition.
        (Condition::Newer { .. }, _, _) => None,
        (_, None, _) => {
            let text = format_args!("the original plugin wrote it last{created}");
            Some(Finding::ok(FindingKind::State, &text))
        }
        (_, Some(_), false) => {
            let text = format_args!("this plugin wrote it last{created}");
            Some(Finding::ok(FindingKind::State, &text))
        }
        (_, Some(_), true) => Some(Finding::warning(
            FindingKind::State,
            &format_args!("the original plugin wrote it after this plugin{created}"),
            &"unless that is intended, check which executable the runtime calls: only this plugin protects released addresses",
        )),
    }
}

fn set_aside(aside: Vec<String>, path: &Path) -> Option<Finding> {
    if aside.is_empty() {
        return None;
    }
    let (aside, path) = (join_first(aside), path.display());
    let text = format_args!("could not be read and were set aside: {aside}");
    let remedy = "nobody needs them but to find out what corrupted them; to remove them:";
    let finding = Finding::note(FindingKind::SetAside, &text, &remedy).about(path.to_string());
    Some(finding.with_commands([format!("sudo rm {path}.corrupt-*")]))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;
    use crate::ipam::Moment;

    const PATH: &str = "/var/run/azure-vnet-ipam.json";

    fn parsed(json: &str) -> State {
        State::parse(json.as_bytes(), Some("boot"), Moment(9)).unwrap()
    }

    #[test]
    fn a_missing_state_is_wrong_only_where_addresses_were_given() {
        let line = |condition, detail: Option<&str>| {
            let report = StateReport {
                path: PATH.to_owned(),
                condition,
                detail: detail.map(str::to_owned),
                ..StateReport::default()
            };
            health(&report, &mut Visibility::new(true))
        };
        assert_eq!(line(Some(Condition::Ready), None), None);
        let fresh = line(Some(Condition::Fresh), None).unwrap();
        assert_eq!((fresh.severity, &*fresh.remedy), (Severity::Ok, ""));
        let lost = line(
            Some(Condition::Lost(Default::default())),
            Some("it is gone"),
        )
        .unwrap();
        assert_eq!(lost.severity, Severity::Warning);
        assert!(lost.text.contains("it is gone"));
        assert!(lost.remedy.contains("new pods wait 30 s"));
    }

    #[test]
    fn permission_denied_is_a_matter_of_visibility() {
        let report = StateReport {
            path: PATH.to_owned(),
            detail: Some("permission denied".to_owned()),
            ..StateReport::default()
        };
        assert_eq!(health(&report, &mut Visibility::new(false)), None);
        let line = health(&report, &mut Visibility::new(true)).unwrap();
        assert_eq!(line.severity, Severity::Error);
    }

    #[test]
    fn the_state_should_be_private() {
        assert_eq!(file(Path::new(PATH), 0o100_600, 7).severity, Severity::Ok);
        let line = file(Path::new(PATH), 0o100_644, 7);
        assert_eq!(line.severity, Severity::Note);
        assert!(line.text.contains("mode 0644, 7 bytes"), "{line:?}");
    }

    #[test]
    fn the_last_writer_is_reported() {
        let pools = r#""IPAM":{"Version":"v1.4.59","TimeStamp":"t","AddressSpaces":{"local":{"Pools":{"10.1.0.0/16":{}}}}}"#;
        let line = |key: &str| writer(&parsed(&format!("{{{pools}{key}}}")));
        for (key, status, words) in [
            (
                "",
                Severity::Ok,
                "the original plugin wrote it last; version v1.4.59",
            ),
            (
                r#","azure-vnet-ipam":{"format":3,"bootId":"boot","timeStamp":"t"}"#,
                Severity::Ok,
                "this plugin wrote it last",
            ),
            (
                r#","azure-vnet-ipam":{"format":3,"bootId":"boot","timeStamp":"x"}"#,
                Severity::Warning,
                "after this plugin",
            ),
        ] {
            let line = line(key).unwrap();
            assert_eq!(line.severity, status, "{line:?}");
            assert!(line.text.contains(words), "{line:?}");
            assert_eq!(line.remedy.is_empty(), status == Severity::Ok, "{line:?}");
        }
        assert_eq!(line(r#","azure-vnet-ipam":{"format":99}"#), None);
        assert_eq!(writer(&parsed("{}")), None);
    }

    #[test]
    fn states_that_were_set_aside_are_named() {
        let line = set_aside(vec!["a.corrupt-1".to_owned()], Path::new(PATH)).unwrap();
        assert_eq!(line.severity, Severity::Note);
        assert!(line.text.contains("a.corrupt-1"));
        assert!(line.commands[0].ends_with("json.corrupt-*"));
        assert_eq!(set_aside(vec![], Path::new(PATH)), None);
    }
}
