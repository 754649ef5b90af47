//! The lock on the state: whether the next call would get it. It is judged from the kernel's list, and never taken.

use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::time::Duration;

use super::finding::{Finding, FindingKind};
use super::texts::read_only;
use super::visibility::Visibility;
use crate::host::{Paths, is_not_writable, read_text};
use crate::ipam::Moment;
use crate::ops::node::Node;
use crate::ops::screen::format_age;
use crate::state::{LockError, LockHolder, WAIT, holder_now};

const KIND: FindingKind = FindingKind::Lock;

/// A process that holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its ID and name.
    pub process: LockHolder,
    /// What /proc says of it; `None` where it has ended, or belongs to another PID namespace.
    condition: Option<Condition>,
}

/// What /proc says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Condition {
    age: Duration,
    /// Whether it was stopped, by a signal or a debugger.
    is_stopped: bool,
}

/// The present holder of the lock, if there is one.
pub fn holder(node: &Node) -> Option<Holder> {
    let paths = node.paths();
    let process = holder_now(paths)?;
    let stat = read_text(&paths.process(process.pid).join("stat"));
    let condition = stat.ok().and_then(|stat| parse_stat(&stat, node.now.boot));
    Some(Holder { process, condition })
}

impl Holder {
    /// Whether the next call would wait for the lock until it times out.
    pub fn is_stuck(&self) -> bool {
        let is_stuck = |condition: Condition| condition.is_stopped || condition.age > WAIT;
        self.condition.is_some_and(is_stuck)
    }
}

/// Why the lock could not be acquired even though nobody holds it.
pub fn obstacle(paths: &Paths) -> Option<LockError> {
    let is_kind =
        |path: &Path, is: fn(&Metadata) -> bool| fs::metadata(path).map_or(true, |m| is(&m));
    let kind = if !is_kind(&paths.lock_folder(), Metadata::is_dir) {
        io::ErrorKind::NotADirectory
    } else if !is_kind(&paths.lock_file(), Metadata::is_file) {
        io::ErrorKind::IsADirectory
    } else {
        return None;
    };
    Some(LockError::Io {
        path: paths.lock_file(),
        source: kind.into(),
    })
}

/// Examines the lock and its folder.
pub fn examine(node: &Node, holder: Option<&Holder>, visibility: &Visibility) -> Vec<Finding> {
    let paths = node.paths();
    let (folder, file) = (paths.lock_folder(), paths.lock_file());
    let refuses = visibility.is_root && is_not_writable(&folder);
    let mut lines = Vec::new();
    lines.extend(lock_folder(
        &folder,
        fs::metadata(&folder).ok().as_ref(),
        refuses,
    ));
    lines.extend(lock_file(&file, fs::metadata(&file).ok().as_ref()));
    lines.push(match read_text(&paths.locks()) {
        Err(_) if holder.is_none() => {
            let text = "its holder is unknown, as /proc/locks cannot be read";
            Finding::ok(KIND, &text)
        }
        _ => held(holder),
    });
    lines
}

fn lock_folder(path: &Path, meta: Option<&Metadata>, refuses: bool) -> Option<Finding> {
    if meta?.is_dir() {
        return refuses.then(|| read_only(KIND, path));
    }
    let path = path.display();
    let text = format_args!("{path} is not a folder");
    let remedy = "remove it; the next call creates the folder:";
    let finding = Finding::error(KIND, &text, &remedy).about(path.to_string());
    Some(finding.with_commands([format!("sudo rm {path}")]))
}

fn lock_file(path: &Path, meta: Option<&Metadata>) -> Option<Finding> {
    if meta?.is_file() {
        return None;
    }
    let path = path.display();
    let text = format_args!("{path} is not a file");
    let remedy = "move it away; the next call creates the file:";
    let finding = Finding::error(KIND, &text, &remedy).about(path.to_string());
    Some(finding.with_commands([format!("sudo mv {path} {path}.old")]))
}

fn held(holder: Option<&Holder>) -> Finding {
    let Some(holder) = holder else {
        return Finding::ok(KIND, &"nobody holds it");
    };
    let process = &holder.process;
    let Some(condition) = holder.condition else {
        let remedy = "no action needed: a call holds it only for a moment";
        return Finding::note(KIND, &format_args!("{process} holds it"), &remedy);
    };
    let age = format_age(condition.age);
    let stopped = if condition.is_stopped {
        " and is stopped now"
    } else {
        ""
    };
    let text = format_args!("{process}, which started {age} ago{stopped}, holds it");
    if !holder.is_stuck() {
        return Finding::ok(KIND, &text);
    }
    let (pid, wait) = (process.pid, WAIT.as_secs());
    let remedy = format_args!(
        "every ADD and DEL waits {wait} s for it and fails with code 11; the state stays intact. See what it does, and end it if it hangs:"
    );
    let finding = Finding::error(KIND, &text, &remedy);
    finding.with_commands([format!("ps -fp {pid}"), format!("sudo kill -KILL {pid}")])
}

/// The age and condition of a process, from its line in /proc/PID/stat.
fn parse_stat(stat: &str, now: Moment) -> Option<Condition> {
    /// The kernel counts in hundredths of a second on every machine.
    const TICK: u64 = 10_000_000;
    /// The index of the start time after the name, which ends with the last parenthesis.
    const STARTED: usize = 19;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let started: u64 = fields.get(STARTED)?.parse().ok()?;
    Some(Condition {
        age: now.since(Moment(started.saturating_mul(TICK))),
        is_stopped: matches!(*fields.first()?, "T" | "t"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    fn at(seconds: u64, is_stopped: bool) -> Finding {
        let condition = Condition {
            age: Duration::from_secs(seconds),
            is_stopped,
        };
        held(Some(&holder(Some(condition))))
    }

    fn holder(condition: Option<Condition>) -> Holder {
        Holder {
            process: LockHolder {
                pid: 4711,
                name: Some("sleep".to_owned()),
            },
            condition,
        }
    }

    #[test]
    fn a_lock_held_for_long_is_an_error_and_its_holder_named() {
        assert_eq!(held(None).severity, Severity::Ok);
        assert_eq!(at(30, false).severity, Severity::Ok);
        let finding = at(31, false);
        assert_eq!(finding.severity, Severity::Error);
        let words = "process 4711 (sleep), which started 31s ago";
        assert!(finding.text.contains(words), "{finding:?}");
        assert_eq!(finding.commands, ["ps -fp 4711", "sudo kill -KILL 4711"]);
        assert_eq!(held(Some(&holder(None))).severity, Severity::Note);
    }

    #[test]
    fn a_stopped_holder_is_stuck_at_once() {
        let finding = at(1, true);
        assert_eq!(finding.severity, Severity::Error);
        assert!(finding.text.contains("is stopped now"), "{finding:?}");
    }

    #[test]
    fn the_condition_of_a_process_is_read_behind_its_name() {
        let stat = "7 (a) b (c) T 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 1500 11 12";
        let now = Moment(20_000_000_000);
        let condition = parse_stat(stat, now).unwrap();
        assert_eq!(condition.age, Duration::from_secs(5));
        assert!(condition.is_stopped);
        assert!(
            !parse_stat(&stat.replace(" T ", " S "), now)
                .unwrap()
                .is_stopped
        );
        for odd in ["", "7 (a) S 1", "7 a"] {
            assert_eq!(parse_stat(odd, now), None, "{odd}");
        }
    }
}
