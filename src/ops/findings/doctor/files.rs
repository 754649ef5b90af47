//! The lock, the log and the settings file.

use std::fs::{self, Metadata};
use std::path::Path;
use std::time::Duration;

use super::diagnostic::{Diagnostic, Subject, Visibility, not_writable};
use crate::host::{is_not_writable, read_text};
use crate::ipam::Moment;
use crate::ops::node::Node;
use crate::ops::node_config::NodeConfig;
use crate::ops::screen::format_age;
use crate::state::{LockHolder, WAIT, holder_now};

/// Examines them.
pub fn examine(node: &Node, config: &NodeConfig, visibility: &mut Visibility) -> Vec<Diagnostic> {
    let paths = node.paths();
    let (folder, lock, log) = (paths.lock_folder(), paths.lock_file(), paths.log());
    let refuses = |path: &Path| visibility.is_root && is_not_writable(path);
    let mut lines = Vec::new();
    lines.extend(lock_folder(
        &folder,
        fs::metadata(&folder).ok().as_ref(),
        refuses(&folder),
    ));
    lines.extend(lock_file(&lock, fs::metadata(&lock).ok().as_ref()));
    let holder = holder_now(paths).map(|holder| {
        let stat = read_text(&paths.process(holder.pid).join("stat"));
        let running = stat.ok().and_then(|stat| running(&stat, node.now.boot));
        (holder, running)
    });
    lines.push(match read_text(&paths.locks()) {
        Err(_) if holder.is_none() => {
            let text = "its holder is unknown, as /proc/locks cannot be read";
            Diagnostic::ok(Subject::Lock, &text)
        }
        _ => held(holder),
    });
    let meta = fs::symlink_metadata(&log).ok();
    lines.push(log_file(&log, meta.as_ref(), refuses(&log)));
    let path = paths.settings();
    let exists = fs::symlink_metadata(&path).is_ok();
    lines.extend(settings(
        &path,
        paths.name(),
        exists,
        &config.wrong_settings,
        visibility,
    ));
    lines
}

fn lock_folder(path: &Path, meta: Option<&Metadata>, refuses: bool) -> Option<Diagnostic> {
    if meta?.is_dir() {
        return refuses.then(|| not_writable(Subject::Lock, path));
    }
    let path = path.display();
    let remedy = format_args!("remove it: rm {path}; the next call creates the folder");
    Some(Diagnostic::wrong(
        Subject::Lock,
        &format_args!("{path} is not a folder"),
        &remedy,
    ))
}

fn lock_file(path: &Path, meta: Option<&Metadata>) -> Option<Diagnostic> {
    if meta?.is_file() {
        return None;
    }
    let path = path.display();
    let remedy = "move it away; the next call creates the file".to_owned();
    Some(Diagnostic::wrong(
        Subject::Lock,
        &format_args!("{path} is not a file"),
        &remedy,
    ))
}

/// The holder of the lock, and the age of that process.
fn held(holder: Option<(LockHolder, Option<Duration>)>) -> Diagnostic {
    let Some((holder, running)) = holder else {
        return Diagnostic::ok(Subject::Lock, &"nobody holds it");
    };
    let Some(running) = running else {
        // The process may have ended, or belong to another PID namespace.
        let remedy = "run doctor again: a call holds it only for a moment";
        return Diagnostic::warning(Subject::Lock, &format_args!("{holder} holds it"), &remedy);
    };
    let text = format_args!(
        "{holder}, which started {} ago, holds it",
        format_age(running)
    );
    if running <= WAIT {
        return Diagnostic::ok(Subject::Lock, &text);
    }
    let (pid, wait) = (holder.pid, WAIT.as_secs());
    let remedy = format_args!(
        "pods get no address while it is held, and calls time out after {wait} s. See what it does: `ps -fp {pid}`; if it hangs, end it: `kill {pid}`. The state stays intact"
    );
    Diagnostic::wrong(Subject::Lock, &text, &remedy)
}

/// The age of a process, from its line in /proc/PID/stat.
fn running(stat: &str, now: Moment) -> Option<Duration> {
    /// The kernel counts in hundredths of a second on every machine.
    const TICK: u64 = 10_000_000;
    /// The index of the start time after the name, which ends with the last parenthesis.
    const STARTED: usize = 19;
    let (_, fields) = stat.rsplit_once(')')?;
    let started: u64 = fields.split_whitespace().nth(STARTED)?.parse().ok()?;
    Some(now.since(Moment(started.saturating_mul(TICK))))
}

fn log_file(path: &Path, meta: Option<&Metadata>, refuses: bool) -> Diagnostic {
    let shown = path.display();
    let unwritten = |why: &str| {
        let remedy = "pods are not affected, but nothing is logged: make it a writable file";
        Diagnostic::warning(Subject::Log, &format_args!("{shown} {why}"), &remedy)
    };
    match meta {
        None => Diagnostic::ok(Subject::Log, &format_args!("{shown} does not exist yet")),
        Some(meta) if meta.is_symlink() => unwritten("is a link, which is not followed"),
        Some(meta) if !meta.is_file() => unwritten("is not a file"),
        Some(_) if refuses => unwritten("cannot be written"),
        Some(meta) => Diagnostic::ok(
            Subject::Log,
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
) -> Vec<Diagnostic> {
    let shown = path.display();
    if !exists {
        return vec![Diagnostic::ok(
            Subject::Settings,
            &format_args!("{shown} does not exist: defaults apply"),
        )];
    }
    if wrong.is_empty() {
        return vec![Diagnostic::ok(
            Subject::Settings,
            &format_args!("{shown} is valid"),
        )];
    }
    let mut lines = Vec::new();
    for why in wrong {
        if !visibility.hides(&shown.to_string(), why) {
            let remedy = format_args!(
                "it is ignored until it is corrected; then run `{program} check-settings`"
            );
            lines.push(Diagnostic::wrong(
                Subject::Settings,
                &format_args!("{shown}: {why}"),
                &remedy,
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::diagnostic::Status;
    use super::*;

    fn holder() -> LockHolder {
        LockHolder {
            pid: 4711,
            name: Some("sleep".to_owned()),
        }
    }

    #[test]
    fn a_lock_held_for_long_is_wrong_and_its_holder_named() {
        let at = |seconds| held(Some((holder(), Some(Duration::from_secs(seconds)))));
        assert_eq!(held(None).status, Status::Ok);
        assert_eq!(at(30).status, Status::Ok);
        let line = at(31);
        assert_eq!(line.status, Status::Wrong);
        assert!(
            line.text
                .contains("process 4711 (sleep), which started 31s ago")
        );
        assert!(line.remedy.unwrap().contains("kill 4711"));
        assert_eq!(held(Some((holder(), None))).status, Status::Warning);
    }

    #[test]
    fn the_age_of_a_process_is_read_behind_its_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 1500 11 12";
        let now = Moment(20_000_000_000);
        assert_eq!(running(stat, now), Some(Duration::from_secs(5)));
        for odd in ["", "7 (a) S 1", "7 a"] {
            assert_eq!(running(odd, now), None, "{odd}");
        }
    }

    #[test]
    fn settings_are_valid_invalid_or_missing() {
        let path = Path::new("/etc/x.json");
        let mut visibility = Visibility::new(true);
        assert_eq!(
            settings(path, "azure-vnet-ipam", false, &[], &mut visibility)[0].status,
            Status::Ok
        );
        assert_eq!(
            settings(path, "azure-vnet-ipam", true, &[], &mut visibility)[0].status,
            Status::Ok
        );
        let wrong = ["rest must be a number".to_owned(), "x".to_owned()];
        let lines = settings(path, "azure-vnet-ipam", true, &wrong, &mut visibility);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].status, Status::Wrong);
        assert!(lines[0].text.contains("rest must be a number"));
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
