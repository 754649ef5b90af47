//! What a call needs to save: the state, the disk that it is on, the lock, and the log.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::inspection::{Inspection, LockingProcess};
use crate::host::{check_room, io_reason, read_text, room, write_refusal};
use crate::ops::finding::{Finding, FindingKind as Kind, Visibility};
use crate::ops::install::{Kind as Installed, look};
use crate::ops::node::Node;
use crate::ops::screen::{format_age, join_first};
use crate::plugin::check_disk;
use crate::state::{MODE, Origin, State, StoreError, WAIT, set_aside_before};

/// Examines all of it.
pub fn examine(node: &Node, inspection: &Inspection, visibility: &mut Visibility) -> Vec<Finding> {
    let mut found = state(node, inspection, visibility);
    found.extend(state_folder(node, visibility));
    found.extend(lock(node, inspection.lock_holder.as_ref()));
    let log = node.paths().log();
    found.push(log_file(&log, visibility.is_root));
    found.extend(log_folder(&folder_of(&log), visibility));
    found
}

fn folder_of(file: &Path) -> PathBuf {
    file.parent().unwrap_or(file).to_owned()
}

/// The state file: its mode, its health, who wrote it, and the corrupt ones that were set aside.
fn state(node: &Node, inspection: &Inspection, visibility: &mut Visibility) -> Vec<Finding> {
    let report = &inspection.state.report;
    let path = node.paths().state();
    let mut found = Vec::new();
    if let Ok(meta) = fs::metadata(&path)
        && meta.is_file()
        && report.is_readable
    {
        found.push(state_file(&path, meta.permissions().mode(), meta.size()));
    }
    let why = report.detail.as_deref().unwrap_or_default();
    let is_hidden = report.condition == "unreadable" && visibility.hides(&report.path, why);
    found.extend(report.finding.clone().filter(|_| !is_hidden));
    let plugin = node.paths().plugin_folder().join(node.paths().name());
    let is_ours = || {
        let looked = look(&plugin, &node.paths().own_executable());
        looked.is_ok_and(|(kind, _)| matches!(kind, Installed::This | Installed::Ours))
    };
    found.extend(writer(&inspection.state.state, is_ours));
    found.extend(backup(&node.paths().backup(), visibility.is_root));
    if let Some(quarantine) = report.quarantine() {
        let remedy = "no action needed: the runtime tries again, and running pods are not affected";
        found.push(Finding::warning(Kind::State, &quarantine, &remedy).about(path.display()));
    }
    let aside = set_aside_before(node.paths());
    if !aside.is_empty() {
        let aside = join_first(aside.iter().map(|p| p.display().to_string()));
        found.push(set_aside(&aside, &path));
    }
    found
}

/// The mode and size of the file; `mode` may include the file type.
fn state_file(path: &Path, mode: u32, bytes: u64) -> Finding {
    let mode = mode & 0o7777;
    let text = format_args!("{}, mode {mode:04o}, {bytes} bytes", path.display());
    if mode == MODE {
        return Finding::ok(Kind::State, &text);
    }
    let remedy = format_args!("no action needed: the next ADD makes it {MODE:04o}");
    Finding::note(Kind::State, &text, &remedy)
}

/// Why root may not write the file. A folder that cannot be written either is a matter of its disk.
fn refusal(path: &Path, is_root: bool) -> Option<io::Error> {
    let is_judged = is_root && write_refusal(&folder_of(path)).is_none();
    write_refusal(path).filter(|_| is_judged)
}

/// The backup, if it cannot be replaced.
fn backup(path: &Path, is_root: bool) -> Option<Finding> {
    let refusal = refusal(path, is_root);
    if refusal.is_none() && !is_other_kind(path, Metadata::is_file) {
        return None;
    }
    let shown = path.display();
    let text = format_args!(
        "{shown} cannot be replaced: without it, new pods wait for 30 s after the state is lost"
    );
    let remedy = "take it away, and the next save writes a new one:";
    let finding = Finding::warning(Kind::State, &text, &remedy).about(&shown);
    let commands = match refusal.map(|error| error.kind()) {
        Some(io::ErrorKind::ReadOnlyFilesystem) => vec![format!("sudo umount {shown}")],
        _ => vec![
            format!("sudo chattr -i {shown}"),
            format!("sudo mv {shown} {shown}.old"),
        ],
    };
    Some(finding.with_commands(commands))
}

/// Which plugin wrote the state last. `is_ours` tells whether the runtime calls this program.
fn writer(state: &State, is_ours: impl FnOnce() -> bool) -> Option<Finding> {
    if state.is_empty() {
        return None;
    }
    let created = match state.document.version() {
        "" => String::new(),
        version => format!("; version {version} created it"),
    };
    let who = match &state.document.origin {
        // These are a matter of the state's condition.
        Origin::Unreadable(_) | Origin::Newer { .. } => return None,
        Origin::Ours(save) if save.is_overtaken => {
            let text = format_args!("the original plugin wrote it after this plugin{created}");
            if is_ours() {
                let remedy = "no action needed: this program is installed now, and the next ADD compares the state with the node";
                return Some(Finding::note(Kind::State, &text, &remedy));
            }
            let remedy = "unless that is intended, check which executable the runtime calls: only this plugin protects released addresses";
            return Some(Finding::warning(Kind::State, &text, &remedy));
        }
        Origin::Ours(_) => "this plugin",
        Origin::Older(_) => "an older version of this plugin",
        Origin::Foreign => "the original plugin",
    };
    let text = format_args!("{who} wrote it last{created}");
    Some(Finding::ok(Kind::State, &text))
}

fn set_aside(aside: &str, path: &Path) -> Finding {
    let path = path.display();
    let text = format_args!("could not be read and were set aside: {aside}");
    let remedy = "nobody needs them but to find out what corrupted them; to remove them:";
    let finding = Finding::note(Kind::SetAside, &text, &remedy).about(&path);
    finding.with_commands([format!("sudo rm {path}.corrupt-*")])
}

/// The folder of the state: whether a new state can be written.
fn state_folder(node: &Node, visibility: &mut Visibility) -> Option<Finding> {
    let folder = folder_of(&node.paths().state());
    let shown = folder.display().to_string();
    let Err(StoreError { source: error, .. }) = check_disk(&node.context) else {
        let text = format_args!("{shown} has room for a new state");
        return Some(Finding::ok(Kind::Disk, &text));
    };
    let why = io_reason(&error);
    if visibility.hides(&shown, &why) {
        return None;
    }
    let effect = "every ADD and DEL fails with code 5; running pods and the state are not affected";
    let mut evidence = vec![effect.to_owned()];
    let finding = match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => Finding::read_only(Kind::Disk, &folder),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            evidence.extend(describe_room(&folder));
            let text = format_args!("{shown} is full: a new state cannot be written");
            let remedy = "remove what filled it; this lists the largest files:";
            let finding = Finding::error(Kind::Disk, &text, &remedy);
            finding.with_commands([format!("sudo du -xah {shown}/ | sort -h | tail")])
        }
        _ => {
            let text = format_args!("a new state cannot be written to {shown}: {why}");
            let remedy = "make it a folder that root may write:";
            let finding = Finding::error(Kind::Disk, &text, &remedy);
            finding.with_commands([format!("sudo ls -ld {shown}")])
        }
    };
    Some(finding.about(&shown).with_evidence(evidence))
}

/// What is left of a file system.
fn describe_room(folder: &Path) -> Option<String> {
    let room = room(folder).ok()?;
    let files = room.files.map(|files| format!(", {files} inodes"));
    let (kib, files) = (room.bytes / 1024, files.unwrap_or_default());
    Some(format!("{kib} KiB are free{files}"))
}

/// Whether something stands at this path that is not of the kind that belongs there.
fn is_other_kind(path: &Path, is_kind: fn(&Metadata) -> bool) -> bool {
    fs::metadata(path).is_ok_and(|meta| !is_kind(&meta))
}

/// The lock and its folder. The lock is judged from the kernel's list, and never taken.
fn lock(node: &Node, holder: Option<&LockingProcess>) -> Vec<Finding> {
    let (folder, file) = (node.paths().lock_folder(), node.paths().lock_file());
    let is_read_only = |error: io::Error| error.kind() == io::ErrorKind::ReadOnlyFilesystem;
    let mut found = Vec::new();
    if is_other_kind(&folder, Metadata::is_dir) {
        let folder = folder.display();
        let text = format_args!("{folder} is not a folder");
        let remedy = "remove it; the next call creates the folder:";
        let finding = Finding::error(Kind::Lock, &text, &remedy).about(&folder);
        found.push(finding.with_commands([format!("sudo rm {folder}")]));
    } else if write_refusal(&folder).is_some_and(is_read_only) {
        found.push(Finding::read_only(Kind::Lock, &folder));
    }
    if is_other_kind(&file, Metadata::is_file) {
        let file = file.display();
        let text = format_args!("{file} is not a file");
        let remedy = "move it away; the next call creates the file:";
        let finding = Finding::error(Kind::Lock, &text, &remedy).about(&file);
        found.push(finding.with_commands([format!("sudo mv {file} {file}.old")]));
    }
    found.push(match holder {
        Some(holder) => held(holder, &file),
        None if read_text(&node.paths().locks()).is_ok() => {
            Finding::ok(Kind::Lock, &"nobody holds it")
        }
        None => {
            let text = "its holder is unknown, as /proc/locks cannot be read";
            Finding::ok(Kind::Lock, &text)
        }
    });
    found
}

fn held(holder: &LockingProcess, file: &Path) -> Finding {
    let (process, pid, wait) = (&holder.process, holder.process.pid, WAIT.as_secs());
    let since = match holder.age.map(format_age) {
        Some(age) if holder.is_stopped => format!("started {age} ago and is stopped now"),
        Some(age) => format!("started {age} ago"),
        None => "is gone or cannot be seen from here, or a child of it".to_owned(),
    };
    let text = format_args!("{process}, which {since}, holds it");
    if !holder.is_stuck() {
        return Finding::ok(Kind::Lock, &text);
    }
    let remedy = format_args!(
        "every ADD and DEL waits {wait} s for it and fails with code 11; the state stays intact. See what it does, and end it if it hangs:"
    );
    let commands = match holder.age {
        Some(_) => vec![format!("ps -fp {pid}"), format!("sudo kill -KILL {pid}")],
        None => vec![format!("sudo find -L /proc/[0-9]*/fd -samefile {file:?}")],
    };
    Finding::error(Kind::Lock, &text, &remedy).with_commands(commands)
}

fn log_file(path: &Path, is_root: bool) -> Finding {
    let shown = path.display();
    let Ok(meta) = fs::symlink_metadata(path) else {
        let text = format_args!("{shown} does not exist yet");
        return Finding::ok(Kind::Log, &text);
    };
    let why = if meta.is_symlink() {
        "is a link, which is not followed"
    } else if !meta.is_file() {
        "is not a file"
    } else if refusal(path, is_root).is_some() {
        "cannot be written"
    } else {
        let text = format_args!("{shown}, {} KiB", meta.len().div_ceil(1024));
        return Finding::ok(Kind::Log, &text);
    };
    let remedy = "pods are not affected, but nothing is logged: move it away, and the next call makes a new one:";
    let finding = Finding::warning(Kind::Log, &format_args!("{shown} {why}"), &remedy);
    let finding = finding.about(&shown);
    finding.with_commands([format!("sudo mv {shown} {shown}.old")])
}

fn log_folder(folder: &Path, visibility: &mut Visibility) -> Option<Finding> {
    let error = check_room(folder, 4096).err()?;
    let (shown, why) = (folder.display().to_string(), io_reason(&error));
    if error.kind() == io::ErrorKind::NotFound || visibility.hides(&shown, &why) {
        return None;
    }
    let text = format_args!("nothing can be logged in {shown}: {why}");
    let remedy = "pods are not affected; make room, or make it writable:";
    let finding = Finding::warning(Kind::Log, &text, &remedy).about(&shown);
    Some(finding.with_commands([format!("df -h {shown}; df -i {shown}; findmnt -T {shown}")]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::Moment;
    use crate::ops::finding::Severity;
    use crate::state::Document;

    fn parsed(json: &str) -> State {
        State::new(Document::parse(json.as_bytes(), Some("boot"), Moment(9)).unwrap())
    }

    #[test]
    fn the_last_writer_is_reported() {
        let pools = r#""IPAM":{"Version":"v1.4.59","TimeStamp":"t","AddressSpaces":{"local":{"Pools":{"10.1.0.0/16":{}}}}}"#;
        let line = |key: &str| writer(&parsed(&format!("{{{pools}{key}}}")), || false);
        for (key, status, words) in [
            (
                "",
                Severity::Ok,
                "the original plugin wrote it last; version v1.4.59",
            ),
            (
                r#","azure-vnet-ipam":{"format":4,"bootId":"boot","timeStamp":"t"}"#,
                Severity::Ok,
                "this plugin wrote it last",
            ),
            (
                r#","azure-vnet-ipam":{"format":4,"bootId":"boot","timeStamp":"x"}"#,
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
        assert_eq!(writer(&parsed("{}"), || false), None);
    }
}
