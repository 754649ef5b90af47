//! Compares the page of errors with the errors that calls produce, in both directions.

use std::fs;
use std::process::Command;

use azure_vnet_ipam::failure::ERROR_PAGE;
use serde_json::{Value, json};

use crate::harness::wait::output;
use crate::harness::{Node, Reply, SUBNET, binary, conf, xml};
use crate::verbs::{call_without_container, conf_with, prev_result};

/// Code and message pattern of each error on the page.
fn read_page() -> Vec<(i64, String)> {
    let mut patterns = Vec::new();
    for entry in ERROR_PAGE.split("\n- ").skip(1) {
        let (code, rest) = entry.split_once(' ').unwrap();
        let (messages, _) = rest.split_once("\n  -> ").unwrap();
        let messages = messages.split('`').skip(1).step_by(2);
        patterns.extend(messages.map(|message| (code.parse().unwrap(), message.to_owned())));
    }
    patterns
}

#[test]
fn errors_prints_the_page() {
    let printed = output(Command::new(binary()).env_clear().arg("errors"));
    assert!(printed.status.success(), "{printed:?}");
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), ERROR_PAGE);
}

/// Whether a message begins with a pattern of the page, in which `X` and `N` match anything.
fn matches_pattern(words: &str, msg: &str) -> bool {
    let spaced = format!(" {words} ").replace("ipam.X", "ipam. X");
    let pieces: Vec<_> = spaced
        .split([' '])
        .collect::<Vec<_>>()
        .split(|word| ["X", "X:", "N"].contains(word))
        .map(|words| words.join(" ").trim().to_owned())
        .collect();
    let mut rest = msg;
    for (n, piece) in pieces.iter().enumerate() {
        match rest.find(piece.as_str()) {
            Some(0) => rest = &rest[piece.len()..],
            Some(at) if n > 0 => rest = &rest[at + piece.len()..],
            _ => return false,
        }
    }
    true
}

/// Collects errors of invalid calls.
fn collect_call_errors(found: &mut Vec<(i64, String)>) {
    let (node, _wire) = Node::with_wire("table", Reply::Xml(xml([5, 6, 7])));
    node.add("c1").success();
    let add = |stdin: &str| node.call("ADD", "c2").stdin(stdin).run().error();
    for stdin in [
        r#"{"name":"a","cniVersion":"2.0.0"}"#,
        "x",
        r#"{"name":"a","cniVersion":3}"#,
        "{}",
        r#"{"name":"/"}"#,
        r#"{"name":"a","ipam":{"queryUrl":"gopher://x"}}"#,
        r#"{"name":"a","ipam":{"cooldown":"x"}}"#,
        r#"{"name":"a","runtimeConfig":{"ips":["x"]}}"#,
        r#"{"name":"a","ipam":{"subnet":7}}"#,
        r#"{"name":"a","master":"eth9"}"#,
        r#"{"name":"a","ipam":{"families":["ipv4","ipv6"]}}"#,
        r#"{"name":"a","ipam":{"addressSpace":"x"}}"#,
        r#"{"name":"a","ipam":{"addressSpace":"x","subnet":"10.224.0.0/16"}}"#,
        r#"{"name":"a","ipam":{"subnet":"10.9.0.0/16"}}"#,
        r#"{"name":"a","ipam":{"ipAddress":"10.224.0.99"}}"#,
        r#"{"name":"a","ipam":{"ipAddress":"10.224.0.5"}}"#,
        r#"{"name":"a","ipam":{"ipAddress":"10.224.0.6","exclude":["10.224.0.6"]}}"#,
        r#"{"name":"a","ipam":{"exclude":["0.0.0.0/0"]}}"#,
    ] {
        found.push(add(stdin));
    }
    let long = "a".repeat(1025);
    found.push(add(&format!(r#"{{"name":"{long}"}}"#)));
    let with = |name: &str, value: &str| node.call("ADD", "c2").env(name, value).run().error();
    found.extend([
        with("CNI_NETNS", ""),
        with("CNI_CONTAINERID", "a/b"),
        with("CNI_CONTAINERID", &long),
        with("CNI_IFNAME", "a/b"),
        with("CNI_COMMAND", "UPDATE"),
        with("CNI_ARGS", "FOO=bar"),
        node.call("NONE", "").run().error(),
    ]);
    let check = |id: &str, stdin: String| node.call("CHECK", id).stdin(stdin).run().error();
    found.extend([
        check("c1", conf("0.3.1", json!({}))),
        node.call("GC", "").run().error(),
        node.call("STATUS", "").run().error(),
        check("c9", conf_with(json!({}), prev_result(&["10.224.0.6"]))),
        check("c1", conf_with(json!({}), prev_result(&["10.224.0.6"]))),
        check("c1", conf_with(json!({}), json!({ "prevResult": 7 }))),
    ]);
    let gc = |members: Value| call_without_container(&node, "GC", members).run().error();
    found.push(gc(json!({})));
    found.push(gc(json!({ "cni.dev/attachments": 7 })));
    node.advance_clock(600);
    found.push(gc(json!({ "cni.dev/attachments": [] })));
    node.del("c1").assert_no_output();
    found.push(add(r#"{"name":"a","ipam":{"ipAddress":"10.224.0.5"}}"#));
}

/// Collects errors of a broken node.
fn collect_node_errors(found: &mut Vec<(i64, String)>) {
    let (node, _wire) = Node::with_wire("tablenode", Reply::Xml(xml([5])));
    let folder = node.path("/var/run/azure-vnet");
    node.put("/var/run/azure-vnet", "");
    found.push(node.add("c1").error());
    fs::remove_file(folder).unwrap();
    let cramped = "trap '' XFSZ; ulimit -f 0; exec \"$0\"";
    found.push(node.call("ADD", "c1").run_in_shell(cramped).error());
    let _ = fs::remove_file(node.path("/var/run/azure-vnet-ipam.json.new"));
    // This error appears only in the log.
    node.call("ADD", "c1").run_in_shell("\"$0\" >/dev/full");
    let log = node.log();
    let line = log.split("failed in ").nth(2).unwrap_or(&log);
    let msg = line.split("with code 5: ").nth(1).unwrap_or(line);
    found.push((5, msg.to_owned()));
    node.add("c1").success();
    let mut state = node.state();
    state["azure-vnet-ipam"]["format"] = 99.into();
    let (path, good) = (node.state_path(), node.state_bytes());
    fs::write(&path, state.to_string()).unwrap();
    found.push(node.add("c2").error());
    found.push(
        call_without_container(&node, "STATUS", json!({}))
            .run()
            .error(),
    );
    fs::remove_file(&path).unwrap();
    node.remove_journal();
    let check = || {
        let call = node.call("CHECK", "c1");
        call.stdin(conf("1.0.0", json!({}))).run().error()
    };
    found.push(check());
    std::os::unix::fs::symlink(&path, &path).unwrap();
    found.push(check());
    fs::remove_file(&path).unwrap();
    fs::write(&path, "{ half").unwrap();
    found.push(node.add("c2").error());
    fs::write(&path, good).unwrap();
    found.push(node.add("c2").error());
}

/// Collects the error of a pool without subnet that the source does not list.
fn collect_error_of_pool_without_subnet(found: &mut Vec<(i64, String)>) {
    let node = Node::new("nosubnet");
    let record = json!({ "ID": "", "Addr": "10.1.0.5", "InUse": false });
    let pool = json!({ "Id": "x", "Addresses": { "10.1.0.5": record } });
    let space = json!({ "Id": "local", "Pools": { "x": pool } });
    let state = json!({ "IPAM": { "AddressSpaces": { "local": space } } });
    node.put("/var/run/azure-vnet-ipam.json", state.to_string());
    let named = conf("1.0.0", json!({ "subnet": "x" }));
    found.push(node.call("ADD", "c1").stdin(named).run().error());
}

#[test]
fn every_error_of_the_page_is_produced() {
    let table = read_page();
    assert!(table.len() > 35, "{table:?}");
    let (busy, _wire) = Node::with_wire("tablelock", Reply::Xml(xml([5])));
    busy.add("c1").success();
    let mut found = vec![
        // Internal errors, which the tests of `failure` cover.
        (100, "internal error".to_owned()),
        (
            100,
            "Failed to allocate address: the state contradicts itself".to_owned(),
        ),
    ];
    collect_call_errors(&mut found);
    collect_node_errors(&mut found);
    collect_error_of_pool_without_subnet(&mut found);
    let _lock = busy.hold_lock();
    busy.advance_clock(1);
    let mut waits = [busy.call("ADD", "c2").start()];
    busy.time_out_waiting_for_lock(&mut waits);
    found.extend(waits.map(|call| call.finish().error()));
    let lacking: Vec<_> = table
        .iter()
        .filter(|(code, words)| {
            !found
                .iter()
                .any(|(c, msg)| c == code && matches_pattern(words, msg))
        })
        .collect();
    assert_eq!(lacking, Vec::<&(i64, String)>::new(), "{found:#?}");
    let unlisted: Vec<_> = found
        .iter()
        .filter(|(code, msg)| {
            !table
                .iter()
                .any(|(c, words)| c == code && matches_pattern(words, msg))
        })
        .collect();
    assert_eq!(unlisted, Vec::<&(i64, String)>::new());
    assert!(found.iter().any(|(_, msg)| msg.contains(SUBNET)));
}
