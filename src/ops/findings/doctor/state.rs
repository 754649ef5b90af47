//! The state file: its health, mode, writer and folder.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::diagnostic::{Diagnostic, Subject, Visibility, join_first, not_writable};
use crate::host::is_read_only;
use crate::ops::node::Node;
use crate::ops::state_view::{StateHealth, StateReport, StateView};
use crate::state::{KeyStatus, MODE, State, set_aside_before};

/// Examines the state.
pub fn examine(node: &Node, state: &StateView, visibility: &mut Visibility) -> Vec<Diagnostic> {
    let paths = node.paths();
    let path = paths.state();
    let mut lines = Vec::new();
    if let Ok(meta) = fs::metadata(&path)
        && state.report.condition.is_readable()
    {
        lines.push(file(&path, meta.permissions().mode(), meta.size()));
    }
    lines.extend(health(&state.report, visibility));
    lines.extend(writer(&state.state));
    if let Some(quarantine) = state.report.quarantine() {
        lines.push(Diagnostic::warning(Subject::State, &quarantine, &"wait"));
    }
    if visibility.is_root && is_read_only(&path) {
        lines.push(read_only(&path));
    }
    let aside = set_aside_before(paths);
    let aside: Vec<_> = aside.iter().map(|p| p.display().to_string()).collect();
    lines.extend(set_aside(aside, &path));
    lines
}

/// The health of the state, unless there is nothing to say.
fn health(report: &StateReport, visibility: &mut Visibility) -> Option<Diagnostic> {
    let text = report.text()?;
    if report.condition == StateHealth::Unreadable
        && visibility.hides(&report.path, report.detail.as_deref().unwrap_or_default())
    {
        return None;
    }
    Some(match report.remedy() {
        Some(remedy) => Diagnostic::wrong(Subject::State, &text, &remedy),
        None => Diagnostic::ok(Subject::State, &text),
    })
}

/// The mode and size of the file; `mode` may include the file type.
fn file(path: &Path, mode: u32, bytes: u64) -> Diagnostic {
    let mode = mode & 0o7777;
    let text = format_args!("{}, mode {mode:04o}, {bytes} bytes", path.display());
    if mode == MODE {
        return Diagnostic::ok(Subject::State, &text);
    }
    let remedy = format_args!(
        "the next call makes it {MODE:04o}; or now: chmod {MODE:o} {}",
        path.display()
    );
    Diagnostic::warning(Subject::State, &text, &remedy)
}

/// Which plugin wrote the state last.
fn writer(state: &State) -> Option<Diagnostic> {
    let created = match state.version() {
        "" => String::new(),
        version => format!("; version {version} created it"),
    };
    match &state.key_status {
        KeyStatus::Absent if state.is_empty() => None,
        KeyStatus::Absent => {
            let text = format_args!("the original plugin wrote it last{created}");
            Some(Diagnostic::ok(Subject::State, &text))
        }
        KeyStatus::Ours => {
            let text = format_args!("this plugin wrote it last{created}");
            Some(Diagnostic::ok(Subject::State, &text))
        }
        KeyStatus::OriginalWroteLast => Some(Diagnostic::warning(
            Subject::State,
            &format_args!("the original plugin wrote it after this plugin{created}"),
            &"unless that is intended, check which executable the runtime calls: only this plugin protects released addresses",
        )),
        // These are matters of the state's health.
        KeyStatus::Unreadable(_) | KeyStatus::Newer { .. } => None,
    }
}

fn read_only(path: &Path) -> Diagnostic {
    not_writable(Subject::State, path.parent().unwrap_or(path))
}

fn set_aside(aside: Vec<String>, path: &Path) -> Option<Diagnostic> {
    if aside.is_empty() {
        return None;
    }
    let (aside, path) = (join_first(aside), path.display());
    let text = format_args!("could not be read and were set aside: {aside}");
    let remedy =
        format_args!("find out what corrupted them, then remove them: rm {path}.corrupt-*");
    Some(Diagnostic::warning(Subject::SetAside, &text, &remedy))
}

#[cfg(test)]
mod tests {
    use super::super::diagnostic::Status;
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
                quarantine_seconds: None,
            };
            health(&report, &mut Visibility::new(true))
        };
        assert_eq!(line(StateHealth::Ok, None), None);
        let fresh = line(StateHealth::Fresh, None).unwrap();
        assert_eq!((fresh.status, fresh.remedy), (Status::Ok, None));
        let lost = line(StateHealth::Lost, Some("it is gone")).unwrap();
        assert_eq!(lost.status, Status::Wrong);
        assert!(lost.text.contains("it is gone"));
        assert!(lost.remedy.unwrap().contains("new pods wait 30 s"));
    }

    #[test]
    fn permission_denied_is_a_matter_of_visibility() {
        let report = StateReport {
            path: PATH.to_owned(),
            condition: StateHealth::Unreadable,
            detail: Some("permission denied".to_owned()),
            quarantine_seconds: None,
        };
        assert_eq!(health(&report, &mut Visibility::new(false)), None);
        let line = health(&report, &mut Visibility::new(true)).unwrap();
        assert_eq!(line.status, Status::Wrong);
    }

    #[test]
    fn the_state_should_be_private() {
        assert_eq!(file(Path::new(PATH), 0o100_600, 7).status, Status::Ok);
        let line = file(Path::new(PATH), 0o100_644, 7);
        assert_eq!(line.status, Status::Warning);
        assert!(line.text.contains("mode 0644, 7 bytes"), "{line:?}");
        assert!(line.remedy.unwrap().contains("chmod 600"));
    }

    #[test]
    fn the_last_writer_is_reported() {
        let pools = r#""IPAM":{"Version":"v1.4.59","TimeStamp":"t","AddressSpaces":{"local":{"Pools":{"10.1.0.0/16":{}}}}}"#;
        let line = |key: &str| writer(&parsed(&format!("{{{pools}{key}}}")));
        for (key, status, words) in [
            (
                "",
                Status::Ok,
                "the original plugin wrote it last; version v1.4.59",
            ),
            (
                r#","azure-vnet-ipam":{"format":2,"bootId":"boot","timeStamp":"t"}"#,
                Status::Ok,
                "this plugin wrote it last",
            ),
            (
                r#","azure-vnet-ipam":{"format":2,"bootId":"boot","timeStamp":"x"}"#,
                Status::Warning,
                "after this plugin",
            ),
        ] {
            let line = line(key).unwrap();
            assert_eq!(line.status, status, "{line:?}");
            assert!(line.text.contains(words), "{line:?}");
            assert_eq!(line.remedy.is_none(), status == Status::Ok, "{line:?}");
        }
        assert_eq!(line(r#","azure-vnet-ipam":{"format":99}"#), None);
        assert_eq!(writer(&parsed("{}")), None);
    }

    #[test]
    fn a_read_only_folder_is_reported() {
        let line = read_only(Path::new(PATH));
        assert_eq!(line.status, Status::Wrong);
        assert_eq!(line.text, "/var/run cannot be written");
        assert!(line.remedy.unwrap().contains("findmnt -T /var/run"));
    }

    #[test]
    fn states_that_were_set_aside_are_named() {
        let line = set_aside(vec!["a.corrupt-1".to_owned()], Path::new(PATH)).unwrap();
        assert_eq!(line.status, Status::Warning);
        assert!(line.text.contains("a.corrupt-1"));
        assert!(line.remedy.unwrap().contains("json.corrupt-*"));
        assert_eq!(set_aside(vec![], Path::new(PATH)), None);
    }
}
