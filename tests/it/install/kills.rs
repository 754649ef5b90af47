//! `install` and `uninstall` killed at every system call, while ADDs run through the path all the time.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::folder::{Found, KEPT, PluginFolder, V4, original, working_original};
use crate::harness::wait::{Process, SetOnDrop, wait_until};
use crate::harness::{Node, Reply, binary, conf, xml};

/// Of a system call that is made more often, such as a read of a large file, this many are tried.
const MOST_OF_ONE: usize = 12;

/// The command line of one of our commands.
fn ours(command: &str) -> Vec<String> {
    vec![
        binary().into_os_string().into_string().unwrap(),
        command.to_owned(),
    ]
}

/// Runs a command under strace with these arguments. Returns whether the command itself was killed.
fn strace(folder: &PluginFolder, command: &[String], args: &[&str]) -> bool {
    let mut strace = Command::new("strace");
    strace.env_clear().envs(&folder.node.env);
    strace.env("PATH", std::env::var_os("PATH").unwrap());
    strace.args(["-f", "-qq"]).args(args).args(command);
    strace.stdin(Stdio::null());
    strace.stdout(Stdio::null()).stderr(Stdio::null());
    Process::start(&mut strace).status().code().is_none()
}

/// The system calls of a command, each with the greatest number of times that one process makes it.
fn census(folder: &PluginFolder, command: &[String]) -> Vec<(String, usize)> {
    let trace = folder.node.path("/trace");
    assert!(!strace(folder, command, &["-o", trace.to_str().unwrap()]));
    let text = fs::read_to_string(trace).unwrap();
    let calls = text.lines().filter_map(|line| {
        let (process, call) = line.split_once(' ')?;
        let call = call.trim_start().split('(').next()?;
        let is_call = call
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let is_call = is_call && !call.is_empty() && call != "exit_group";
        is_call.then(|| (call.to_owned(), process.to_owned()))
    });
    let mut counts = std::collections::BTreeMap::<_, usize>::new();
    for call in calls {
        *counts.entry(call).or_default() += 1;
    }
    let mut most = std::collections::BTreeMap::<String, usize>::new();
    for ((call, _), count) in counts {
        let known = most.entry(call).or_default();
        *known = count.max(*known);
    }
    most.into_iter().collect()
}

/// Evenly spread numbers from 1 to `count`.
fn sample(count: usize) -> Vec<usize> {
    let tries = count.min(MOST_OF_ONE);
    (0..tries)
        .map(|n| 1 + n * (count - 1) / (tries - 1).max(1))
        .collect()
}

/// ADDs and DELs through the path until `is_over`. Returns what failed.
fn add_and_delete(
    folder: &PluginFolder,
    is_over: &AtomicBool,
    done: &AtomicUsize,
) -> Option<String> {
    let stdin = folder.node.path("/conf.json");
    fs::write(&stdin, conf("1.0.0", serde_json::json!({}))).unwrap();
    while !is_over.load(Ordering::SeqCst) {
        for verb in ["ADD", "DEL"] {
            let mut call = Command::new(folder.file(V4));
            call.env_clear().envs(&folder.node.call(verb, "c1").env);
            call.stdin(fs::File::open(&stdin).unwrap());
            let call = call.stdout(Stdio::piped()).stderr(Stdio::piped());
            // It reports more than a panic of the harness would: a path without plugin cannot be started.
            match call.output() {
                Ok(output) if output.status.success() => {}
                Ok(output) => return Some(format!("{verb}: {output:?}")),
                Err(e) => return Some(format!("{verb} cannot be started: {e}")),
            }
        }
        done.fetch_add(1, Ordering::SeqCst);
    }
    None
}

/// Kills a command at every system call. Calls `reset` before each run and `after` behind it, which returns false to stop. Returns
/// the number of tries.
fn kill_at_every_system_call(
    folder: &PluginFolder,
    command: &[String],
    needed: &[&str],
    reset: impl Fn(),
    after: impl Fn(&str) -> bool,
) -> usize {
    reset();
    let census = census(folder, command);
    let command_line = command.join(" ");
    let total: usize = census.iter().map(|(_, count)| count).sum();
    assert!(total > 30, "{census:?}");
    for needed in needed {
        let is_made = census.iter().any(|(call, _)| call.starts_with(needed));
        assert!(is_made, "{needed}: {census:?}");
    }
    let (mut kills, mut tries) = (0, 0);
    for (call, count) in &census {
        for n in sample(*count) {
            reset();
            let inject = format!("inject={call}:signal=KILL:when={n}");
            tries += 1;
            let args = ["-o", "/dev/null", "-e", &inject];
            kills += usize::from(strace(folder, command, &args));
            if !after(&format!("{command_line} killed at {call} number {n}")) {
                return tries;
            }
        }
    }
    println!("{command_line}: {kills} kills of {tries} tries, at {total} system calls");
    assert!(kills * 2 > tries, "{kills} of {tries}");
    tries
}

/// The same, while ADDs run through the path all the time. Returns the first one that failed.
fn kill_beside_adds(
    folder: &PluginFolder,
    command: &[String],
    needed: &[&str],
    reset: impl Fn(),
    after: impl Fn(&str),
) -> Result<(), String> {
    reset();
    let (is_over, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (tries, failed) = thread::scope(|scope| {
        let over = SetOnDrop(&is_over);
        let adds = scope.spawn(|| add_and_delete(folder, &is_over, &done));
        let tries = kill_at_every_system_call(folder, command, needed, reset, |at| {
            let before = done.load(Ordering::SeqCst);
            after(at);
            // At least one whole ADD at whatever was left behind.
            wait_until("an ADD", || {
                done.load(Ordering::SeqCst) > before || adds.is_finished()
            });
            !adds.is_finished()
        });
        drop(over);
        (tries, adds.join().unwrap())
    });
    let adds = done.load(Ordering::SeqCst);
    match failed {
        Some(failed) => Err(failed),
        None => {
            assert!(adds > tries, "{adds} ADDs in {tries} tries");
            Ok(())
        }
    }
}

/// What both of our commands do.
const NEEDED: [&str; 3] = ["flock", "fsync", "rename"];

fn put(folder: &PluginFolder, name: &str, from: &Path) {
    let same = fs::read(folder.file(name)).is_ok_and(|now| now == fs::read(from).unwrap());
    if !same {
        folder.put_executable(name, from);
    }
}

#[test]
#[ignore = "needs strace"]
fn a_working_plugin_is_there_whenever_install_is_killed() {
    let (node, _wire) = Node::with_wire("kill-install", Reply::Xml(xml(5..30)));
    let folder = PluginFolder::on(node);
    let original = working_original(&folder.node);
    let content = fs::read(&original).unwrap();
    put(&folder, V4, &original);
    let reset = || {
        put(&folder, V4, &original);
        let _ = fs::remove_file(folder.file(KEPT));
    };
    let found = kill_beside_adds(&folder, &ours("install"), &NEEDED, reset, |at| {
        let now = folder.read(V4);
        assert!(now == content || folder.is_ours(V4), "{at}");
        if folder.is_ours(V4) {
            assert!(folder.read(KEPT) == content, "{at}");
        }
        let again = folder.node.run_line("install");
        assert_eq!(again.exit, Some(0), "{at}: {again:?}");
        assert!(folder.is_ours(V4), "{at}");
        assert!(folder.read(KEPT) == content, "{at}");
        assert_eq!(folder.names(), [V4, KEPT], "{at}");
    });
    assert_eq!(found, Ok(()));
}

#[test]
#[ignore = "needs strace"]
fn a_working_plugin_is_there_whenever_uninstall_is_killed() {
    let (node, _wire) = Node::with_wire("kill-uninstall", Reply::Xml(xml(5..30)));
    let folder = PluginFolder::on(node);
    let original = working_original(&folder.node);
    let content = fs::read(&original).unwrap();
    put(&folder, V4, &binary());
    let reset = || {
        put(&folder, KEPT, &original);
        put(&folder, V4, &binary());
    };
    let found = kill_beside_adds(&folder, &ours("uninstall"), &NEEDED, reset, |at| {
        let is_back = folder.read(V4) == content;
        assert!(is_back || folder.is_ours(V4), "{at}");
        assert_eq!(is_back, !folder.file(KEPT).exists(), "{at}");
        folder.node.run_line("uninstall").success();
        assert!(folder.read(V4) == content, "{at}");
        assert_eq!(folder.names(), [V4], "{at}");
    });
    assert_eq!(found, Ok(()));
}

/// A broken copy of the original lies in its place.
#[test]
#[ignore = "needs strace"]
fn kept_original_survives_whenever_a_forced_install_is_killed() {
    let folder = PluginFolder::new("kill-forced");
    let broken = b"#!/bin/sh\nexit 0\n";
    let reset = || {
        folder.put(V4, broken);
        folder.put(KEPT, &original("kept"));
    };
    let mut command = ours("install");
    command.push("--force".to_owned());
    kill_at_every_system_call(&folder, &command, &NEEDED, reset, |at| {
        assert!(folder.is_ours(V4) || folder.read(V4) == broken, "{at}");
        assert_eq!(folder.read(KEPT), original("kept"), "{at}");
        folder.node.run_line("uninstall --force").success();
        assert_eq!(folder.read(V4), original("kept"), "{at}");
        assert_eq!(folder.found(KEPT), Found::Nothing, "{at}");
        assert_eq!(folder.names(), [V4], "{at}");
        true
    });
}

/// Proves that the tests above can fail: other ways to replace a file leave a moment without a plugin.
#[test]
#[ignore = "needs strace"]
fn moment_without_plugin_is_found() {
    let (node, _wire) = Node::with_wire("kill-scripts", Reply::Xml(xml(5..30)));
    let folder = PluginFolder::on(node);
    let new = folder.file("new");
    for script in [
        "rm \"$1\" && cp \"$2\" \"$1\"",
        "mv \"$1\" \"$1.orig\" && mv \"$2\" \"$1\"",
    ] {
        let reset = || {
            put(&folder, V4, &binary());
            put(&folder, "new", &binary());
        };
        let paths = [&folder.file(V4), &new].map(|path| path.to_str().unwrap().to_owned());
        let command = ["sh", "-c", script, "sh"].map(str::to_owned).into_iter();
        let command: Vec<_> = command.chain(paths).collect();
        let found = kill_beside_adds(&folder, &command, &["execve"], reset, |_| {});
        let found = found.unwrap_err();
        assert!(found.contains("cannot be started: "), "{script}: {found}");
        assert!(
            found.contains("NotFound") || found.contains("No such file"),
            "{found}"
        );
    }
}
