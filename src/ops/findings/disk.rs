//! The disks that the state and the log are on: whether a new state can be written.

use std::io;
use std::path::Path;

use super::finding::{Finding, FindingKind};
use super::texts::read_only;
use super::visibility::Visibility;
use crate::host::{check_room, io_reason, room};
use crate::ops::node::Node;
use crate::plugin::check_disk;

/// The length of the smaller files, such as the journal, in bytes.
const SMALL: usize = 4096;

/// Examines them.
pub fn examine(node: &Node, visibility: &mut Visibility) -> Vec<Finding> {
    let paths = node.paths();
    let state = paths.state();
    let mut found = Vec::new();
    let folder = state.parent().unwrap_or(&state);
    let writable = check_disk(&node.context);
    let result = writable.map_err(|error| error.source);
    found.extend(state_folder(folder, result, visibility));
    let log = paths.log();
    let folder = log.parent().unwrap_or(&log);
    found.extend(log_folder(folder, check_room(folder, SMALL), visibility));
    found
}

/// Judges the folder of the state.
fn state_folder(
    folder: &Path,
    result: io::Result<()>,
    visibility: &mut Visibility,
) -> Option<Finding> {
    let shown = folder.display().to_string();
    let error = match result {
        Ok(()) => {
            let text = format_args!("{shown} has room for a new state");
            return Some(Finding::ok(FindingKind::Disk, &text));
        }
        Err(error) => error,
    };
    if visibility.hides(&shown, &io_reason(&error)) {
        return None;
    }
    let effect = "every ADD and DEL fails with code 5; running pods and the state are not affected";
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => Some(Finding {
            evidence: vec![effect.to_owned()],
            ..read_only(FindingKind::Disk, folder)
        }),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            let mut evidence = vec![effect.to_owned()];
            evidence.extend(describe_room(folder));
            let text = format_args!("{shown} is full: a new state cannot be written");
            let remedy = "remove what filled it; this lists the largest files:";
            let finding = Finding::error(FindingKind::Disk, &text, &remedy);
            Some(
                finding
                    .about(&shown)
                    .with_evidence(evidence)
                    .with_commands([format!("sudo du -xah {shown}/ | sort -h | tail")]),
            )
        }
        _ => {
            let why = io_reason(&error);
            let text = format_args!("a new state cannot be written to {shown}: {why}");
            let remedy = "make it a folder that root may write:";
            let finding = Finding::error(FindingKind::Disk, &text, &remedy).about(&shown);
            Some(finding.with_commands([format!("sudo ls -ld {shown}")]))
        }
    }
}

/// What is left of a file system.
fn describe_room(folder: &Path) -> Option<String> {
    let room = room(folder).ok()?;
    let files = match room.files {
        Some(files) => format!(", {files} inodes"),
        None => String::new(),
    };
    Some(format!("{} KiB are free{files}", room.bytes / 1024))
}

/// Judges the folder of the log.
fn log_folder(
    folder: &Path,
    result: io::Result<()>,
    visibility: &mut Visibility,
) -> Option<Finding> {
    let error = result.err()?;
    let (shown, why) = (folder.display().to_string(), io_reason(&error));
    if error.kind() == io::ErrorKind::NotFound || visibility.hides(&shown, &why) {
        return None;
    }
    let text = format_args!("nothing can be logged in {shown}: {why}");
    let remedy = "pods are not affected; make room, or make it writable:";
    let finding = Finding::warning(FindingKind::Log, &text, &remedy).about(&shown);
    Some(finding.with_commands([format!("df -h {shown}; df -i {shown}; findmnt -T {shown}")]))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    fn judged(kind: io::ErrorKind, is_root: bool) -> Option<Finding> {
        let mut visibility = Visibility::new(is_root);
        state_folder(Path::new("/run"), Err(kind.into()), &mut visibility)
    }

    #[test]
    fn every_reason_against_writing_has_its_remedy() {
        let full = judged(io::ErrorKind::StorageFull, true).unwrap();
        assert_eq!(full.severity, Severity::Error);
        assert!(full.text.contains("is full"), "{full:?}");
        assert!(full.commands[0].starts_with("sudo du "));
        let read_only = judged(io::ErrorKind::ReadOnlyFilesystem, true).unwrap();
        assert!(
            read_only.commands[0].contains("remount,rw"),
            "{read_only:?}"
        );
        let other = judged(io::ErrorKind::NotADirectory, true).unwrap();
        assert_eq!(other.severity, Severity::Error);
        assert_eq!(judged(io::ErrorKind::PermissionDenied, false), None);
        let ok = state_folder(Path::new("/run"), Ok(()), &mut Visibility::new(true));
        assert_eq!(ok.unwrap().severity, Severity::Ok);
    }

    #[test]
    fn a_log_that_cannot_be_written_is_a_warning() {
        let mut root = Visibility::new(true);
        let full = Err(io::ErrorKind::StorageFull.into());
        let found = log_folder(Path::new("/var/log"), full, &mut root).unwrap();
        assert_eq!(found.severity, Severity::Warning);
        assert_eq!(log_folder(Path::new("/var/log"), Ok(()), &mut root), None);
        let missing = Err(io::ErrorKind::NotFound.into());
        assert_eq!(log_folder(Path::new("/var/log"), missing, &mut root), None);
    }
}
