//! Runs calls in every condition of the state while one system call fails. No address is allocated twice, nothing is
//! lost, no DEL succeeds without a release, and the output is one JSON document.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;

use serde_json::{Value, json};

use crate::harness::strace::count_system_calls;
use crate::harness::{Call, Node, Outcome, Reply, WireServer, is_long, xml};
use crate::model::original;
use crate::verbs::{call_without_container, conf_with, prev_result, status};

const ERRORS: [&str; 5] = ["EIO", "ENOSPC", "ENOMEM", "EMFILE", "EROFS"];

/// The system calls that start and end every process, or that only measure or wait.
const NOT_THE_PROGRAMS: [&str; 12] = [
    "poll",
    "arch_prctl",
    "set_tid_address",
    "rt_sigaction",
    "rt_sigprocmask",
    "sigaltstack",
    "sched_getaffinity",
    "prlimit64",
    "getrandom",
    "restart_syscall",
    "futex",
    // A failed close still closes the file, but under strace the file and its lock would stay open.
    "close",
];

/// The program may abort when it gets no memory or no thread.
const MAY_ABORT: [&str; 6] = ["brk", "mmap", "mprotect", "munmap", "mremap", "clone"];

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const VERBS: [&str; 7] = ["ADD", "DEL", "CHECK", "GC", "STATUS", "reclaim", "release"];

/// A condition of the state, and how it is produced on a node with two pods.
struct Situation {
    name: &'static str,
    arrange: fn(&Node),
    /// Whether a newer version has written the state. The program then only releases.
    is_newer: bool,
}

fn situations() -> [Situation; 9] {
    let situation = |name, arrange: fn(&Node)| Situation {
        name,
        arrange,
        is_newer: false,
    };
    [
        situation("ready", |_| ()),
        situation("restored from the backup", |node| {
            fs::remove_file(node.state_path()).unwrap();
        }),
        situation("lost", |node| {
            fs::write(node.state_path(), "{ half").unwrap();
            node.remove_backup();
        }),
        situation("in quarantine", |node| {
            fs::remove_file(node.state_path()).unwrap();
            node.remove_backup();
            node.add("c4").assert_quarantined();
        }),
        situation("without a record", |node| {
            fs::write(node.lock_path(), "").unwrap();
        }),
        situation("saved by the original", |node| {
            let mut state = node.state();
            original::take(original::records(&mut state).unwrap(), "10.224.0.9", "c5");
            state["IPAM"]["TimeStamp"] = "2026-01-01T00:00:00Z".into();
            fs::write(node.state_path(), state.to_string()).unwrap();
            fs::write(node.lock_path(), original::LOCK_TEXT).unwrap();
        }),
        situation("from another boot", |node| {
            node.put(BOOT_ID, "5a1f2d4e-0000-4000-8000-00000000ffff\n");
        }),
        situation("new", |node| {
            fs::remove_file(node.state_path()).unwrap();
            node.remove_backup();
            fs::remove_dir_all(node.path("/var/run/azure-vnet")).unwrap();
        }),
        Situation {
            is_newer: true,
            ..situation("of a newer format", |node| {
                let mut state = node.state();
                state["azure-vnet-ipam"]["format"] = 99.into();
                fs::write(node.state_path(), state.to_string()).unwrap();
            })
        },
    ]
}

/// A node with the pods c1 and c2, which have 10.224.0.5 and .6. libcni's cache shows them too.
fn node() -> (Node, WireServer) {
    let (node, wire) = Node::with_wire("failures", Reply::Xml(xml(5..10)));
    node.put(BOOT_ID, "5a1f2d4e-0000-4000-8000-000000000001\n");
    for (id, address) in [("c1", "10.224.0.5"), ("c2", "10.224.0.6")] {
        let netns = format!("/var/run/netns/{id}");
        node.put(&netns, "");
        let add = node.call("ADD", id).env("CNI_NETNS", &netns).run();
        assert_eq!(add.address(), address);
        node.cache("azure", id, "eth0", &netns, &[address]);
    }
    (node, wire)
}

fn call<'a>(node: &'a Node, verb: &str) -> Call<'a> {
    match verb {
        "ADD" => node.call("ADD", "c3"),
        "DEL" => node.call("DEL", "c2"),
        "CHECK" => {
            let previous = prev_result(&["10.224.0.5"]);
            node.call("CHECK", "c1")
                .stdin(conf_with(json!({}), previous))
        }
        "GC" => {
            let valid = json!([{ "containerID": "c1", "ifname": "eth0" }]);
            call_without_container(node, "GC", json!({ "cni.dev/valid-attachments": valid }))
        }
        "STATUS" => status(node, json!({})),
        "reclaim" => node.command(["reclaim", "--yes"]),
        _ => node.command(["release", "10.224.0.6", "--container", "c2"]),
    }
}

/// The files of a node that calls change.
struct Files(BTreeMap<PathBuf, Vec<u8>>);

impl Files {
    fn read(node: &Node) -> Files {
        let mut files = BTreeMap::new();
        let mut folders = vec![node.path("/var/run"), node.path("/var/lib/cni")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let content = fs::read(&path).unwrap();
                    files.insert(path, content);
                }
            }
        }
        Files(files)
    }

    fn restore(&self, node: &Node) {
        for folder in ["/var/run", "/var/lib/cni"] {
            fs::remove_dir_all(node.path(folder)).unwrap();
        }
        for (path, content) in &self.0 {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }
}

/// Checks the output of a call. Returns whether the call succeeded.
fn assert_output(outcome: &Outcome, verb: &str, at: &str) -> bool {
    let is_command = verb.starts_with(|c: char| c.is_ascii_lowercase());
    let may_abort = MAY_ABORT
        .iter()
        .any(|name| at.contains(&format!(" {name}:")));
    match outcome.exit {
        Some(0) => {
            if verb == "ADD" {
                outcome.json();
            } else if !is_command {
                assert_eq!(outcome.stdout, "", "{at}");
            }
            true
        }
        _ if may_abort => false,
        Some(_) if is_command => false,
        Some(1) => {
            // If stdout fails, only the exit status remains.
            let is_silent = outcome.stdout.is_empty()
                && [" write:", " ppoll:", " fcntl:"]
                    .iter()
                    .any(|name| at.contains(name));
            let error = serde_json::from_str::<Value>(&outcome.stdout);
            assert!(
                is_silent || error.is_ok_and(|error| error["code"].is_u64()),
                "{at}: {outcome:?}"
            );
            false
        }
        _ => panic!("{at}: {outcome:?}"),
    }
}

/// Checks that the node works after a call that may have failed.
fn assert_goes_on(node: &Node, at: &str, is_released: bool) {
    let mut add = node.add("c9");
    for _ in 0..2 {
        if add.exit == Some(1) && add.error().0 == 11 {
            node.advance_clock(31);
            add = node.add("c9");
        }
    }
    let address = add.address();
    assert_ne!(address, "10.224.0.5", "{at}");
    let held = node.held();
    assert!(held.contains_key("10.224.0.5"), "{at}: {held:?}");
    if is_released {
        assert_ne!(
            held.get("10.224.0.6").map(String::as_str),
            Some("c2"),
            "{at}"
        );
    } else {
        assert_ne!(address, "10.224.0.6", "{at}");
    }
    assert_eq!(held[&address], "c9", "{at}");
}

#[test]
#[ignore = "needs strace"]
fn every_failure_in_every_condition_is_survived() {
    let counts = thread::scope(|scope| {
        let tests = situations().map(|situation| scope.spawn(move || survive_failures(&situation)));
        tests.map(|test| test.join().unwrap())
    });
    let runs: usize = counts.iter().map(|(runs, _)| runs).sum();
    let failures: usize = counts.iter().map(|(_, failures)| failures).sum();
    println!("{runs} system calls, {failures} calls failed");
    assert!(failures * 5 > runs);
}

/// Makes each system call fail in turn. Returns the number of system calls, and how many calls of the program failed.
fn survive_failures(situation: &Situation) -> (usize, usize) {
    let (node, _wire) = node();
    (situation.arrange)(&node);
    let before = Files::read(&node);
    let (mut runs, mut failures) = (0, 0);
    let verbs = if is_long() { &VERBS[..] } else { &VERBS[..2] };
    for verb in verbs {
        let census = count_system_calls(&node, call(&node, verb));
        for (name, count) in census {
            if NOT_THE_PROGRAMS.contains(&name.as_str()) {
                continue;
            }
            let most = if is_long() { count } else { 6 };
            for n in (1..=count).step_by(count.div_ceil(most)) {
                // In the short run, each system call fails in only one way.
                let some = runs % ERRORS.len();
                let errors = if is_long() {
                    &ERRORS[..]
                } else {
                    &ERRORS[some..=some]
                };
                for error in errors {
                    let at = format!("{}, {verb}, {name}:error={error}:when={n}", situation.name);
                    before.restore(&node);
                    let inject = format!("inject={name}:error={error}:when={n}");
                    let outcome = call(&node, verb).strace(&[&inject]).run();
                    let is_success = assert_output(&outcome, verb, &at);
                    if is_success && *verb == "ADD" {
                        assert!(node.held().contains_key(&outcome.address()), "{at}");
                    }
                    let is_released = is_success && ["DEL", "release"].contains(verb);
                    if is_released {
                        fs::remove_file(node.path("/var/run/netns/c2")).unwrap();
                        fs::remove_file(node.path("/var/lib/cni/results/azure-c2-eth0")).unwrap();
                    }
                    if situation.is_newer {
                        let c2 = node.held().get("10.224.0.6").cloned();
                        assert!(!is_released || c2.is_none(), "{at}");
                    } else {
                        assert_goes_on(&node, &at, is_released);
                    }
                    failures += usize::from(!is_success);
                }
                runs += 1;
            }
        }
    }
    (runs, failures)
}
