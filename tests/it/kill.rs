//! ADD and DEL killed at every system call: the state stays readable, nothing is taken from others, nothing is left to clean
//! up by hand, and the call repeated succeeds.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Node, Reply, WireServer, binary, xml};

/// A node on which `c1` holds an address and `c2` another.
fn node() -> (Node, WireServer) {
    let (node, wire) = Node::with_wire("kill", Reply::Xml(xml(5..10)));
    node.add("c1").success();
    node.add("c2").success();
    (node, wire)
}

/// Runs a call under strace with these arguments.
fn strace(node: &Node, command: &str, container_id: &str, args: &[&str]) -> std::process::Output {
    let call = node.call(command, container_id);
    let conf = node.path("/conf.json");
    fs::write(
        &conf,
        crate::harness::conf(
            "0.3.0",
            serde_json::json!({ "subnet": crate::harness::SUBNET }),
        ),
    )
    .unwrap();
    let mut strace = Command::new("strace");
    strace
        .env_clear()
        .envs(&call.env)
        .env("PATH", std::env::var_os("PATH").unwrap());
    strace
        .args(["-f", "-qq"])
        .args(args)
        .arg(binary())
        .stdin(fs::File::open(conf).unwrap())
        .output()
        .unwrap()
}

/// How often a call makes each system call.
fn census(node: &Node, command: &str, container_id: &str) -> BTreeMap<String, usize> {
    let trace = node.path("/trace");
    let output = strace(
        node,
        command,
        container_id,
        &["-o", trace.to_str().unwrap()],
    );
    assert!(output.status.success(), "{output:?}");
    let mut counts = BTreeMap::new();
    for line in fs::read_to_string(trace).unwrap().lines() {
        let call = line
            .split_whitespace()
            .nth(1)
            .unwrap()
            .split('(')
            .next()
            .unwrap();
        if call
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && call != "execve"
            && call != "exit_group"
        {
            *counts.entry(call.to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Kills `command` of `container_id` at every system call, each time on a new node, and calls `after` on what is left.
fn at_every_system_call_of(
    node: impl Fn() -> (Node, WireServer),
    command: &str,
    container_id: &str,
    after: impl Fn(&Node, &str),
) {
    let (first, _wire) = node();
    let census = census(&first, command, container_id);
    let total: usize = census.values().sum();
    assert!(total > 30, "{census:?}");
    let mut kills = 0;
    for (call, count) in census {
        for n in 1..=count {
            let (node, _wire) = node();
            let inject = format!("inject={call}:signal=KILL:when={n}");
            let output = strace(
                &node,
                command,
                container_id,
                &["-o", "/dev/null", "-e", &inject],
            );
            kills += usize::from(!output.status.success());
            after(&node, &format!("{command} killed at {call} number {n}"));
        }
    }
    println!("{command}: {kills} kills at {total} system calls");
    // Calls of a thread that waits for a lock, or of reading a socket in other portions, need not come again.
    assert!(kills * 10 >= total * 9, "only {kills} of {total}");
}

/// What must hold after every kill.
fn sound(node: &Node, at: &str) -> Value {
    let state: Value =
        serde_json::from_slice(&node.state_bytes()).unwrap_or_else(|e| panic!("{at}: {e}"));
    let held = crate::harness::held(&state);
    assert_eq!(
        held.get("10.224.0.5").map(String::as_str),
        Some("c1"),
        "{at}"
    );
    state
}

#[test]
#[ignore = "needs strace"]
fn add_killed_at_every_system_call() {
    at_every_system_call_of(node, "ADD", "c3", |node, at| {
        sound(node, at);
        let address = node.add("c3").address();
        let held = node.held();
        assert_eq!(held.len(), 3, "{at}: {held:?}");
        assert_eq!(held[&address], "c3", "{at}");
        assert_eq!(node.left_overs(), [""; 0], "{at}");
        node.del("c3").silent();
        assert_eq!(node.held().len(), 2, "{at}");
    });
}

#[test]
#[ignore = "needs strace"]
fn del_killed_at_every_system_call() {
    at_every_system_call_of(node, "DEL", "c2", |node, at| {
        sound(node, at);
        node.del("c2").silent();
        assert_eq!(
            node.held().into_values().collect::<Vec<_>>(),
            ["c1"],
            "{at}"
        );
        node.add("c3").success();
        assert_eq!(node.left_overs(), [""; 0], "{at}");
    });
}

#[test]
#[ignore = "needs strace"]
fn the_first_add_of_a_node_killed_at_every_system_call() {
    let fresh = || Node::with_wire("first", Reply::Xml(xml(5..10)));
    at_every_system_call_of(fresh, "ADD", "c1", |node, at| {
        if node.state_path().exists() {
            serde_json::from_slice::<Value>(&node.state_bytes())
                .unwrap_or_else(|e| panic!("{at}: {e}"));
        }
        assert_eq!(node.add("c1").address(), "10.224.0.5", "{at}");
        assert_eq!(node.held().len(), 1, "{at}");
    });
}
