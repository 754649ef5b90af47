//! What a call needs to save: the state, the disk that it is on, the lock, and the log.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::IgnoredAny;

use super::inspection::{Inspection, LockingProcess};
use crate::host::{BLOCK, check_room, io_reason, read_text, room, write_refusal};
use crate::ipam::{Evidence, EvidenceList, UnreadablePart};
use crate::log::check_syslog;
use crate::ops::finding::{
    Finding, FindingKind as Kind, Severity, Visibility, is_plain_path, mount_point,
};
use crate::ops::install::{Kind as Installed, identify};
use crate::ops::node::Node;
use crate::ops::outcome::needs_root;
use crate::ops::screen::{format_age, join_first, pluralize};
use crate::plugin::check_disk;
use crate::state::{
    LockObstacle, MODE, Origin, State, StoreError, WAIT, check_replace, lock_obstacle,
    set_aside_before,
};

/// Examines the state, the disk, the lock, the log and the runtime's records.
pub fn examine(node: &Node, inspection: &Inspection, visibility: &mut Visibility) -> Vec<Finding> {
    let mut found = state(node, inspection, visibility);
    found.extend(state_folder(node, visibility));
    found.extend(lock(
        node,
        inspection.lock_holder.as_ref(),
        visibility.is_root,
    ));
    let log = node.paths().log();
    found.push(log_file(&log, visibility.is_root));
    found.extend(log_folder(
        &folder_of(&log),
        "nothing can be logged",
        visibility,
    ));
    let lock_folder = node.paths().lock_folder();
    // On the file system of the state, it is a matter of that one.
    if device(&lock_folder) != device(&folder_of(&node.paths().state())) {
        let what = "operations cannot be recorded";
        found.extend(log_folder(&lock_folder, what, visibility));
    }
    found.extend(operations(node, visibility.is_root));
    if inspection.config.syslog && !node.is_in_container() {
        found.extend(syslog(&node.paths().syslog(), &log, visibility));
    }
    if inspection.config.ours(node.paths().name()).next().is_some() {
        found.extend(cache_folder(node, visibility));
    }
    if inspection.executables.is_ours_unusable() {
        found.extend(plugin_folder(node, visibility));
    }
    found.extend(cache_files(&inspection.evidence, node));
    let (paths, cache) = (node.paths(), node.paths().cni_cache());
    let state = vec![folder_of(&paths.state()), paths.state(), paths.backup()];
    let records = with_files(&cache).into_iter().chain([folder_of(&cache)]);
    for (kind, paths, what) in [
        (Kind::State, state, "the state"),
        (Kind::Lock, with_files(&paths.lock_folder()), "the lock"),
        (Kind::Cache, records.collect(), "the runtime's records"),
        (
            Kind::Conflist,
            with_files(&paths.conf_folder()),
            "network configurations",
        ),
        (Kind::Settings, vec![paths.settings()], "the settings"),
        (
            Kind::Executable,
            inspection.executables.paths(),
            "plugins, which root executes",
        ),
    ] {
        found.extend(changeable_by_others(node, kind, &paths, what));
    }
    found
}

/// A folder and the files in it.
fn with_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort_unstable();
    [vec![folder.to_owned()], files].concat()
}

/// A file or folder that root relies on, and that other users can change.
struct Exposed {
    /// Its path, with no link at its end.
    path: String,
    /// The path with what it leads to, owner and mode.
    described: String,
    /// Whether it belongs to another user, although it should belong to root.
    is_foreign: bool,
    is_writable: bool,
}

impl Exposed {
    /// Examines a path, or the file or folder that it leads to. `root` is the metadata of the root folder: below a root, root's files have
    /// another owner.
    fn find(path: &Path, kind: Kind, root: &Metadata) -> Option<Exposed> {
        // How a user namespace shows the owner of files from outside it.
        const OVERFLOW: u32 = 65534;
        const STICKY: u32 = 0o1000;
        // A device has the mode that its users need.
        let meta = fs::metadata(path)
            .ok()
            .filter(|meta| meta.is_file() || meta.is_dir())?;
        let mut shown = path.display().to_string();
        let mut changed = path.to_owned();
        if path.is_symlink() {
            changed = fs::canonicalize(path).ok()?;
            shown.push_str(&format!(", a link to {}", changed.display()));
        }
        let (owner, group, mode) = (meta.uid(), meta.gid(), meta.permissions().mode() & 0o7777);
        let is_own = is_of_this_plugin(kind);
        let others_write = if is_own && ![0, root.gid()].contains(&group) {
            0o022
        } else {
            0o002
        };
        // In such a folder, others can only add files, of which runtimes read only network configurations.
        let is_harmless = kind != Kind::Conflist && meta.is_dir() && mode & STICKY != 0;
        let exposed = Exposed {
            path: changed.display().to_string(),
            described: format!("{shown} (owner {owner}:{group}, mode {mode:04o})"),
            is_foreign: is_own && ![0, root.uid(), OVERFLOW].contains(&owner),
            is_writable: mode & others_write != 0 && !is_harmless,
        };
        (exposed.is_foreign || exposed.is_writable).then_some(exposed)
    }
}

/// Whether the files of this kind are this plugin's own, which belong to root alone. Others may belong to the program or the installer that
/// wrote them, and must not be writable for everybody: on healthy nodes, kubespray makes its user `kube` the owner of /opt/cni/bin
/// and /etc/cni/net.d, and releases of the reference plugins were packed with the owner 1001.
fn is_of_this_plugin(kind: Kind) -> bool {
    matches!(kind, Kind::State | Kind::Lock)
}

/// The files and folders that root relies on, and that other users can change.
fn changeable_by_others(node: &Node, kind: Kind, paths: &[PathBuf], what: &str) -> Option<Finding> {
    let root = fs::metadata(node.paths().under_root("/")).ok()?;
    // In a container, a link may lead to another file than on the node.
    let follows = |path: &&PathBuf| !(path.is_symlink() && node.is_in_container());
    let exposed: Vec<Exposed> = paths
        .iter()
        .filter(follows)
        .filter_map(|path| Exposed::find(path, kind, &root))
        .collect();
    let first = exposed.first()?;
    let paths = |has: fn(&Exposed) -> bool| -> Vec<String> {
        let found = exposed.iter().filter(|exposed| has(exposed));
        found.map(|exposed| exposed.path.clone()).collect()
    };
    let (foreign, writable) = (paths(|e| e.is_foreign), paths(|e| e.is_writable));
    let remove_write = if is_of_this_plugin(kind) {
        "sudo chmod go-w"
    } else {
        "sudo chmod o-w"
    };
    let mut steps = Vec::new();
    let mut commands = Vec::new();
    if !foreign.is_empty() {
        steps.push("make root the owner");
        commands.extend(on_plain("sudo chown root", &foreign));
    }
    if !writable.is_empty() {
        steps.push("take the write permission away");
        commands.extend(on_plain(remove_write, &writable));
    }
    let who = if is_of_this_plugin(kind) {
        "users other than root"
    } else {
        "all users"
    };
    let text = format!(
        "{who} can change {what}: {}",
        join_first(exposed.iter().map(|exposed| exposed.described.clone()))
    );
    let end = if commands.is_empty() { "" } else { ":" };
    let remedy = format!("{}{end}", steps.join(", and "));
    let finding = Finding::warning(kind, &text, &remedy).about(&first.path);
    Some(finding.with_commands(commands))
}

/// The commands that apply this one to paths. A name that a shell would read as more than a name is left to the reader.
fn on_plain(command: &str, paths: &[String]) -> Vec<String> {
    /// As many as a line takes.
    const PER_COMMAND: usize = 10;
    let plain: Vec<&str> = paths
        .iter()
        .map(String::as_str)
        .filter(|path| is_plain_path(path))
        .collect();
    plain
        .chunks(PER_COMMAND)
        .map(|paths| format!("{command} {}", paths.join(" ")))
        .collect()
}

/// The number of the file system of a folder.
fn device(folder: &Path) -> Option<u64> {
    fs::metadata(folder).map(|meta| meta.dev()).ok()
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
        let identified = identify(&plugin, &node.paths().own_executable());
        identified.is_ok_and(|(kind, _)| matches!(kind, Installed::This | Installed::Ours))
    };
    found.extend(writer(&inspection.state.state, is_ours));
    found.extend(backup(&node.paths().backup()));
    if let Some(quarantine) = report.quarantine() {
        let remedy = "no action needed: the runtime tries again, and running pods are not affected";
        found.push(Finding::warning(Kind::State, &quarantine, &remedy).about(path.display()));
    }
    let aside = set_aside_before(node.paths());
    if !aside.is_empty() {
        found.push(set_aside(&aside, &path));
    }
    found
}

/// The mode and size of the file; `mode` may include the file type.
fn state_file(path: &Path, mode: u32, bytes: u64) -> Finding {
    let mode = mode & 0o7777;
    let text = format_args!("{}, mode {mode:04o}, {bytes} bytes", path.display());
    // That others can change it is a finding of its own.
    if mode == MODE || mode & 0o002 != 0 {
        return Finding::ok(Kind::State, &text);
    }
    let remedy = format_args!("no action needed: the next ADD makes it {MODE:04o}");
    Finding::note(Kind::State, &text, &remedy)
}

/// The backup, if it cannot be replaced.
fn backup(path: &Path) -> Option<Finding> {
    let other_kind = || {
        let error = StoreError::at("cannot replace", path);
        is_other_kind(path, Metadata::is_file).then(|| error(io::ErrorKind::IsADirectory.into()))
    };
    // A folder that cannot be written either is a matter of its disk.
    if write_refusal(&folder_of(path)).is_some() {
        return None;
    }
    let error = check_replace(path).err().or_else(other_kind)?;
    let (what, commands) = obstacle(&error.path, &error.source);
    let text = format_args!(
        "{what}, so the backup cannot be replaced: without it, new pods wait for 30 s after the state is lost"
    );
    let remedy = "take it away, and the next save writes a new backup:";
    let finding = Finding::warning(Kind::State, &text, &remedy).about(path.display());
    Some(finding.with_commands(commands))
}

/// Describes why a path cannot be written or replaced, with the commands that take it out of the way.
fn obstacle(path: &Path, error: &io::Error) -> (String, Vec<String>) {
    let shown = path.display();
    let (what, command) = match error.kind() {
        io::ErrorKind::IsADirectory => ("is not a file", format!("sudo mv {shown} {shown}.old")),
        io::ErrorKind::NotADirectory => ("is not a folder", format!("sudo mv {shown} {shown}.old")),
        io::ErrorKind::NotFound => (
            "is a link that leads to no folder",
            format!("sudo mkdir -p \"$(readlink -m {shown})\""),
        ),
        _ if error.raw_os_error() == Some(libc::ELOOP) => (
            "is a link that leads to itself",
            format!("sudo mv {shown} {shown}.old"),
        ),
        io::ErrorKind::ResourceBusy => ("is a mount point", format!("sudo umount {shown}")),
        _ if error.raw_os_error() == Some(libc::EPERM) => (
            "is immutable or append-only",
            format!("sudo chattr -i -a {shown}"),
        ),
        _ => {
            let why = format!("{shown} cannot be written: {}", io_reason(error));
            let commands = vec![format!(
                "ls -ld {shown}; lsattr -d {shown}; findmnt -T {shown}"
            )];
            return (why, commands);
        }
    };
    (format!("{shown} {what}"), vec![command])
}

/// Which plugin wrote the state last. `is_ours` says whether the runtime calls this program.
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

fn set_aside(aside: &[PathBuf], path: &Path) -> Finding {
    let path = path.display();
    let shown = join_first(aside.iter().map(|p| p.display().to_string()));
    let text = format_args!("corrupt states were set aside: {shown}");
    let remedy = "they are needed only to find out what corrupted the state; to remove them:";
    let finding = Finding::note(Kind::SetAside, &text, &remedy).about(&path);
    let recursively = if aside.iter().any(|path| path.is_dir()) {
        "-r "
    } else {
        ""
    };
    finding.with_commands([format!("sudo rm {recursively}{path}.corrupt-*")])
}

/// The folder of the state: whether a new state can be written.
fn state_folder(node: &Node, visibility: &mut Visibility) -> Option<Finding> {
    let folder = folder_of(&node.paths().state());
    let shown = folder.display().to_string();
    let Err(StoreError {
        path,
        source: error,
        ..
    }) = check_disk(&node.context)
    else {
        let text = format_args!("{shown} has room for a new state");
        return Some(Finding::ok(Kind::Disk, &text));
    };
    let why = io_reason(&error);
    if visibility.hides(&shown, &why) {
        return None;
    }
    let effects = [
        "a new state cannot be written",
        "every ADD and DEL fails with code 5; running pods and the state are not affected",
    ];
    Some(unwritable(&folder, &path, &error, effects))
}

/// The folder of plugins, if `install` would fail there.
fn plugin_folder(node: &Node, visibility: &mut Visibility) -> Option<Finding> {
    let folder = node.paths().plugin_folder();
    let length = fs::metadata(node.paths().own_executable()).ok()?.len();
    let error = check_room(&folder, usize::try_from(length).ok()?).err()?;
    let (shown, why) = (folder.display().to_string(), io_reason(&error));
    // A container that only reads the folder mounts it so.
    let is_mounted_so = error.kind() == io::ErrorKind::ReadOnlyFilesystem && node.is_in_container();
    if is_mounted_so || visibility.hides(&shown, &why) {
        return None;
    }
    let effects = [
        "this plugin cannot be installed",
        "`install` fails until then; running pods are not affected",
    ];
    Some(unwritable(&folder, &folder, &error, effects))
}

/// What to do about a link that leads to no folder.
const MAKE_FOLDER: &str =
    "mount the disk that the link leads to, if that is missing, or make the folder:";

/// The finding for a folder that cannot be written, as `path` does not let it. `[lost, effect]` is what that means, in two sentences.
fn unwritable(folder: &Path, path: &Path, error: &io::Error, [lost, effect]: [&str; 2]) -> Finding {
    let shown = folder.display();
    let mut evidence = vec![effect.to_owned()];
    let finding = match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => Finding::read_only(Kind::Disk, folder),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            evidence.extend(describe_room(folder));
            let text = format_args!("{shown} is full: {lost}");
            let lacks_inodes = room(folder).is_ok_and(|room| room.files == Some(0));
            let (largest, du) = if lacks_inodes {
                ("folders with the most files", "du -xS --inodes")
            } else {
                ("largest files", "du -xah")
            };
            let remedy =
                format!("remove what filled it; this lists the {largest} of its file system:");
            let finding = Finding::error(Kind::Disk, &text, &remedy);
            let start = mount_point(folder);
            finding.with_commands([format!("sudo {du} {start} | sort -h | tail")])
        }
        kind => {
            let (what, commands) = obstacle(path, error);
            let text = format_args!("{what}: {lost}");
            let remedy = match kind {
                io::ErrorKind::NotFound => MAKE_FOLDER,
                _ => "make it writable, or take it away:",
            };
            Finding::error(Kind::Disk, &text, &remedy).with_commands(commands)
        }
    };
    finding.about(shown).with_evidence(evidence)
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
fn lock(node: &Node, holder: Option<&LockingProcess>, is_root: bool) -> Vec<Finding> {
    let file = node.paths().lock_file();
    let mut found = Vec::new();
    if let Some(LockObstacle { path, source }) = visible_lock_obstacle(node, is_root) {
        found.push(match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if path == file => {
                misled_lock(&file, source.kind())
            }
            io::ErrorKind::ReadOnlyFilesystem => Finding::read_only(Kind::Lock, &path),
            io::ErrorKind::StorageFull => {
                let effects = [
                    "the lock file cannot be created",
                    "every ADD and DEL fails with code 5; running pods and the state are not affected",
                ];
                unwritable(&path, &path, &source, effects)
            }
            _ => {
                let (what, commands) = obstacle(&path, &source);
                let text = format_args!("{what}, so no call can take the lock");
                let remedy = match source.kind() {
                    io::ErrorKind::NotFound => MAKE_FOLDER,
                    _ => "take it away, or make it writable; the next call makes what is missing:",
                };
                let finding = Finding::error(Kind::Lock, &text, &remedy).about(path.display());
                finding.with_commands(commands)
            }
        });
    }
    found.push(match holder {
        Some(holder) => held(holder, &file),
        None if read_text(&node.paths().locks()).is_ok() => {
            Finding::ok(Kind::Lock, &"no process holds the lock")
        }
        None => {
            let text = "the holder of the lock is unknown, as /proc/locks cannot be read";
            Finding::ok(Kind::Lock, &text)
        }
    });
    found
}

/// The finding for a lock file that is a link, where the folder that it leads to is missing or is no folder.
fn misled_lock(file: &Path, why: io::ErrorKind) -> Finding {
    let shown = file.display();
    let (what, remedy, command) = if why == io::ErrorKind::NotFound {
        let make = format!("sudo mkdir -p \"$(dirname \"$(readlink -m {shown})\")\"");
        ("a folder that does not exist", MAKE_FOLDER, make)
    } else {
        let remedy = "take the link away; the next call makes a lock file in its place:";
        let move_away = format!("sudo mv {shown} {shown}.old");
        ("a path that is not a folder", remedy, move_away)
    };
    let text = format_args!("{shown} is a link into {what}, so no call can take the lock");
    let finding = Finding::error(Kind::Lock, &text, &remedy).about(&shown);
    finding.with_commands([command])
}

/// Why no call can take the lock, if that can be seen from here.
pub fn visible_lock_obstacle(node: &Node, is_root: bool) -> Option<LockObstacle> {
    // In a container, a link may lead to another folder than on the node.
    let is_visible = |obstacle: &LockObstacle| {
        let leads_elsewhere = node.is_in_container() && node.paths().lock_file().is_symlink();
        !leads_elsewhere || obstacle.path == node.paths().lock_folder()
    };
    lock_obstacle(node.paths(), is_root).filter(is_visible)
}

fn held(holder: &LockingProcess, file: &Path) -> Finding {
    let (process, pid, wait) = (&holder.process, holder.process.pid, WAIT.as_secs());
    let since = match holder.age.map(format_age) {
        Some(age) if holder.is_stopped => format!("started {age} ago and stopped now"),
        Some(age) => format!("started {age} ago"),
        None => {
            "which has ended or cannot be seen from here, or a child of that process".to_owned()
        }
    };
    let text = format_args!("{process}, {since}, holds the lock");
    if !holder.is_stuck() && !holder.is_foreign() {
        return Finding::ok(Kind::Lock, &text);
    }
    if !holder.is_stuck() {
        let remedy = format_args!(
            "it is not a call of the plugin: every ADD and DEL waits for it, and fails after {wait} s with code 11. See what it does:"
        );
        let finding = Finding::warning(Kind::Lock, &text, &remedy);
        return finding.with_commands([format!("ps -fp {pid}")]);
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

/// Why root may not write the file. A folder that cannot be written either is a matter of its disk.
fn refusal(path: &Path, is_root: bool) -> Option<io::Error> {
    let is_judged = is_root && write_refusal(&folder_of(path)).is_none();
    write_refusal(path).filter(|_| is_judged)
}

fn log_file(path: &Path, is_root: bool) -> Finding {
    let shown = path.display();
    let Ok(meta) = fs::symlink_metadata(path) else {
        let text = format_args!("{shown} does not exist yet");
        return Finding::ok(Kind::Log, &text);
    };
    if meta.is_file()
        && let Some(error) = refusal(path, is_root)
    {
        let (what, commands) = obstacle(path, &error);
        let remedy = "pods are not affected, but nothing is recorded there: make it writable:";
        let finding = Finding::warning(Kind::Log, &what, &remedy).about(&shown);
        return finding.with_commands(commands);
    }
    let why = if meta.is_symlink() {
        "is a link, which is not followed"
    } else if !meta.is_file() {
        "is not a file"
    } else {
        let text = format_args!("{shown}, {} KiB", meta.len().div_ceil(1024));
        return Finding::ok(Kind::Log, &text);
    };
    let remedy = "pods are not affected, but nothing is logged: move it away, and the next call makes a new one:";
    let finding = Finding::warning(Kind::Log, &format_args!("{shown} {why}"), &remedy);
    let finding = finding.about(&shown);
    finding.with_commands([format!("sudo mv {shown} {shown}.old")])
}

/// The socket of syslog, if the log is to go there, and nothing listens.
fn syslog(socket: &Path, log: &Path, visibility: &mut Visibility) -> Option<Finding> {
    let why = io_reason(&check_syslog(socket).err()?);
    let (shown, log) = (socket.display().to_string(), log.display());
    if visibility.hides(&shown, &why) {
        return None;
    }
    let text = format_args!("logTarget is syslog, but nothing listens at {shown}: {why}");
    let remedy = format_args!(
        "start journald or a syslog, or remove logTarget from the network configuration; until then the log goes to {log}"
    );
    Some(Finding::warning(Kind::Log, &text, &remedy).about(&shown))
}

/// The list of operations, if it cannot be written, or parts of it cannot be read.
fn operations(node: &Node, is_root: bool) -> Vec<Finding> {
    let file = log_file(&node.paths().events(), is_root);
    if file.is_problem() {
        return vec![file];
    }
    let remedy =
        "no action needed: new operations are recorded, and the file is replaced when it is full";
    let note = |what: &String| Finding::note(Kind::Log, what, &remedy);
    match node.history() {
        Ok(history) => history.damage.iter().map(note).collect(),
        Err(error) if is_root => vec![note(&format!("the list of operations: {}", error.0))],
        Err(_) => Vec::new(),
    }
}

/// The folder of the log or of the operations. `effect` is what does not happen if it takes no more.
fn log_folder(folder: &Path, effect: &str, visibility: &mut Visibility) -> Option<Finding> {
    let error = check_room(folder, BLOCK).err()?;
    let (shown, why) = (folder.display().to_string(), io_reason(&error));
    if error.kind() == io::ErrorKind::NotFound || visibility.hides(&shown, &why) {
        return None;
    }
    let text = format_args!("{effect} in {shown}: {why}");
    if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        return Some(Finding {
            severity: Severity::Warning,
            text: text.to_string(),
            ..Finding::read_only(Kind::Log, folder)
        });
    }
    let remedy = "pods are not affected; make room, or make it writable:";
    let finding = Finding::warning(Kind::Log, &text, &remedy).about(&shown);
    Some(finding.with_commands([format!("df -h {shown}; df -i {shown}; findmnt -T {shown}")]))
}

/// Why the runtime cannot record the result of an ADD in libcni's cache, with the folder that refuses. libcni undoes an ADD whose result
/// it cannot record. It creates missing folders, but not those that a link leads to.
pub fn cache_obstacle(node: &Node) -> Option<(PathBuf, io::Error)> {
    /// More than a result takes.
    const ROOM: usize = 16 << 10;
    let cache = node.paths().cni_cache();
    let mut folders = cache.ancestors();
    let folder = folders.find(|folder| folder.exists() || folder.is_symlink())?;
    let error = check_room(folder, ROOM).err()?;
    let is_hidden = match error.kind() {
        // A container that only reads it mounts it so, and what a link leads to is on the node.
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotFound => node.is_in_container(),
        _ => needs_root(&error),
    };
    (!is_hidden).then(|| (folder.to_owned(), error))
}

fn cache_folder(node: &Node, visibility: &mut Visibility) -> Option<Finding> {
    let (folder, error) = cache_obstacle(node)?;
    let (shown, why) = (folder.display().to_string(), io_reason(&error));
    if visibility.hides(&shown, &why) {
        return None;
    }
    let effects = [
        "the runtime cannot record the results of ADDs",
        "the runtime undoes every ADD whose result it cannot record",
    ];
    Some(unwritable(&folder, &folder, &error, effects))
}

/// Whether a file of libcni's cache may be one that is just being written. A whole document is not.
pub fn may_be_half_written(part: &UnreadablePart, node: &Node) -> bool {
    const WRITING: Duration = Duration::from_secs(60);
    let is_recent = part.changed.is_some_and(|at| node.now.since(at) <= WRITING);
    let is_whole = || {
        let text = read_text(&node.paths().cni_cache().join(&part.name));
        text.is_ok_and(|text| serde_json::from_str::<IgnoredAny>(&text).is_ok())
    };
    is_recent && !is_whole()
}

/// The files of libcni's cache that cannot be read.
fn cache_files(evidence: &Evidence, node: &Node) -> Option<Finding> {
    let EvidenceList::Read { doubtful, .. } = &evidence.cache else {
        return None;
    };
    let damaged = doubtful
        .iter()
        .filter(|part| !may_be_half_written(part, node));
    let names: BTreeSet<&str> = damaged.map(|part| &*part.name).collect();
    if names.is_empty() {
        return None;
    }
    let folder = node.paths().cni_cache();
    let aside = folder.with_file_name("damaged-results");
    let (folder, aside) = (folder.display(), aside.display());
    let text = format!(
        "{} in {folder} cannot be read: {}",
        pluralize(names.len(), "file", "files"),
        join_first(names.iter().map(|name| (*name).to_owned()))
    );
    let remedy = "no address is reclaimed that may belong to one of them; the runtime does not need them, so move them away:";
    let mut commands = vec![format!("sudo mkdir -p {aside}")];
    let paths: Vec<String> = names
        .iter()
        .map(|name| format!("{folder}/{name}"))
        .collect();
    commands.extend(on_plain(&format!("sudo mv -t {aside}"), &paths));
    let finding = Finding::warning(Kind::Cache, &text, &remedy).about(&folder);
    Some(finding.with_commands(commands))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::Moment;
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
