//! Kills `install` and `uninstall` at every system call, while ADDs run through the path all the time.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::accidents;
use super::folder::{KEPT, PluginFolder, V4, original, working_original};
use crate::harness::strace::kill_at_every_system_call;
use crate::harness::wait::{SetOnDrop, wait_until};
use crate::harness::{Node, Reply, binary, conf, xml};

/// The number of tries for a system call that is made more often, such as a read of a large file.
const MOST_OF_ONE: usize = 12;

fn kill(folder: &PluginFolder, line: &str, reset: impl Fn(), after: impl Fn(&str)) {
    let call = || folder.node.command(line.split(' '));
    let done = kill_at_every_system_call(&folder.node, MOST_OF_ONE, call, reset, after);
    assert!(done.kills * 2 > done.tries);
}

/// Kills at every system call while ADDs and DELs run through the path. They must succeed.
fn kill_beside_adds(folder: &PluginFolder, line: &str, reset: impl Fn(), after: impl Fn(&str)) {
    let (is_over, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let add_and_delete = || {
        while !is_over.load(Ordering::SeqCst) {
            for verb in ["ADD", "DEL"] {
                let call = folder.node.call(verb, "c1").with_program(folder.file(V4));
                call.stdin(conf("1.0.0", serde_json::json!({})))
                    .run()
                    .success();
            }
            done.fetch_add(1, Ordering::SeqCst);
        }
    };
    reset();
    thread::scope(|scope| {
        let _over = SetOnDrop(&is_over);
        let adds = scope.spawn(add_and_delete);
        kill(folder, line, reset, |at| {
            let before = done.load(Ordering::SeqCst);
            after(at);
            // Wait for at least one complete ADD with the files that the killed command left behind.
            wait_until("an ADD", || {
                assert!(!adds.is_finished(), "{at}: a call failed");
                done.load(Ordering::SeqCst) > before
            });
        });
    });
}

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
    let reset = || {
        put(&folder, V4, &original);
        let _ = fs::remove_file(folder.file(KEPT));
    };
    kill_beside_adds(&folder, "install", reset, |at| {
        let now = folder.read(V4);
        assert!(now == content || folder.is_ours(V4), "{at}");
        if folder.is_ours(V4) {
            assert!(folder.read(KEPT) == content, "{at}");
        }
        folder.node.run_line("install").success();
        assert!(folder.is_ours(V4), "{at}");
        assert!(folder.read(KEPT) == content, "{at}");
        assert_eq!(folder.names(), [V4, KEPT], "{at}");
    });
}

#[test]
#[ignore = "needs strace"]
fn a_working_plugin_is_there_whenever_uninstall_is_killed() {
    let (node, _wire) = Node::with_wire("kill-uninstall", Reply::Xml(xml(5..30)));
    let folder = PluginFolder::on(node);
    let original = working_original(&folder.node);
    let content = fs::read(&original).unwrap();
    let reset = || {
        put(&folder, KEPT, &original);
        put(&folder, V4, &binary());
    };
    kill_beside_adds(&folder, "uninstall", reset, |at| {
        let is_back = folder.read(V4) == content;
        assert!(is_back || folder.is_ours(V4), "{at}");
        assert_eq!(is_back, !folder.file(KEPT).exists(), "{at}");
        folder.node.run_line("uninstall").success();
        assert!(folder.read(V4) == content, "{at}");
        assert_eq!(folder.names(), [V4], "{at}");
    });
}

/// A broken file is in place of the plugin, and the original is kept.
#[test]
#[ignore = "needs strace"]
fn kept_original_survives_whenever_a_forced_install_is_killed() {
    let folder = PluginFolder::new("kill-forced");
    for (kind, put) in accidents() {
        let reset = || {
            put(&folder, V4);
            folder.put(KEPT, &original("kept"));
        };
        reset();
        let broken = folder.found(V4);
        kill(&folder, "install --force", reset, |at| {
            let at = format!("over {kind} {at}");
            assert!(folder.found(V4) == broken || folder.is_ours(V4), "{at}");
            assert_eq!(folder.read(KEPT), original("kept"), "{at}");
            folder.node.run_line("uninstall --force").success();
            assert_eq!(folder.read(V4), original("kept"), "{at}");
            let _ = fs::remove_file(folder.file("target"));
            assert_eq!(folder.names(), [V4], "{at}");
        });
    }
}
