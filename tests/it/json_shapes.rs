//! The shape of `--json`, key by key, because programs rely on it. In the fixtures, values that differ between runs
//! are placeholders of the same type.
//!
//! To change a shape on purpose, run `ACCEPT=1 cargo test --test it json_shapes` and update the table in
//! `.github/REFERENCE.md`. Shapes that need a real node, such as a leak with all evidence, are in `check-leaks.json`
//! and `reclaim-freed.json`. Tests beside the code compare them.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::harness::{Node, Reply, SUBNET, WireServer, binary, conf, install, package, xml};
use crate::install::folder::{PluginFolder, V4, original};

/// Keys whose values are boot clock times in nanoseconds, or counts that vary.
const MOMENTS: [&str; 6] = [
    "since",
    "suspect",
    "released",
    "at",
    "refreshed",
    "generation",
];

/// A node with two old pods, a young suspect one, an address in cooldown, an excluded one, and failed operations.
fn node_with_history(name: &str) -> (Node, WireServer) {
    let (node, wire) = Node::with_wire(name, Reply::Xml(xml(5..12)));
    let ours = json!({ "type": "azure-vnet-ipam", "cooldown": 3600, "token": "hush" });
    let conflist = json!({
        "cniVersion": "1.0.0", "name": "azure",
        "plugins": [{ "type": "azure-vnet", "ipam": ours }, { "type": "portmap" }],
    });
    node.put("/etc/cni/net.d/10-azure.conflist", conflist.to_string());
    node.put(
        "/etc/azure-vnet-ipam.json",
        r#"{"exclude": ["10.224.0.11"]}"#,
    );
    for name in ["azure-vnet-ipam", "azure-vnet", "portmap"] {
        install(&node.path(&format!("/opt/cni/bin/{name}")));
    }
    for id in ["0a1b2c3d4e5f6071", "9f8e7d6c5b4a3928"] {
        let pod = format!(
            "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-{};K8S_POD_INFRA_CONTAINER_ID={id}",
            &id[..1]
        );
        node.call("ADD", id).env("CNI_ARGS", &pod).run().success();
    }
    node.advance_clock(2 * 60 * 60);
    node.add("c3").success();
    node.del("c3").assert_no_output();
    // The DEL arrives before the ADD.
    node.del("c4").assert_no_output();
    node.add("c4").success();
    node.del("c5").assert_no_output();
    let taken = json!({ "subnet": SUBNET, "ipAddress": "10.224.0.5" });
    let taken = conf("0.3.0", taken);
    node.call("ADD", "c6").stdin(taken).run().error();
    node.cache(
        "azure",
        "c4",
        "eth0",
        "/var/run/netns/gone",
        &["10.224.0.8"],
    );
    (node, wire)
}

/// Checks the exit status of a command, and that its output has the shape of the fixture.
#[track_caller]
fn assert_output_has_shape(node: &Node, line: &str, status: i32, fixture: &str) {
    let outcome = node.run_line(line);
    assert_eq!(outcome.exit, Some(status), "{outcome:?}");
    assert_eq!(outcome.stderr, "", "{outcome:?}");
    let mut value = outcome.json();
    replace_volatile_values(&mut value, "", node.root.to_str().unwrap());
    let found = format!("{value:#}\n");
    let path = package().join(format!("tests/fixtures/json/{fixture}.json"));
    if std::env::var_os("ACCEPT").is_some() {
        fs::write(path, found).unwrap();
        return;
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == found,
        "`{line}` does not print what {} has, but:\n{found}Where that is meant: ACCEPT=1 cargo test --test it json_shapes",
        path.display()
    );
}

/// Replaces values that differ between runs or users by placeholders.
fn replace_volatile_values(value: &mut Value, key: &str, root: &str) {
    match value {
        Value::Object(members) => {
            // Only operations that had to wait have this key.
            if members.contains_key("verb") {
                members.remove("lockMicroseconds");
            }
            for (key, member) in members {
                replace_volatile_values(member, key, root);
            }
        }
        Value::Array(items) => {
            // A node in a folder has no processes to scan, and users other than root can see less.
            if key == "notSeen" && !items.is_empty() {
                *items = vec!["HIDDEN".into()];
            }
            if key == "log" && !items.is_empty() {
                *items = vec!["LINE".into()];
            }
            for item in items {
                replace_volatile_values(item, key, root);
            }
        }
        Value::Number(number) => {
            let is_moment = MOMENTS.contains(&key) && number.as_u64() > Some(1_000_000);
            let is_count =
                ["microseconds", "lockMicroseconds", "lockWaits", "buckets"].contains(&key);
            if is_moment || is_count || key.ends_with("Seconds") {
                *value = 0.into();
            }
        }
        Value::String(text) => {
            *text = match key {
                "time" | "since" | "timeStamp" | "TimeStamp" => "TIME".to_owned(),
                "kernel" => "KERNEL".to_owned(),
                "by" => "WHO".to_owned(),
                "version" | "program" | "Version" => "VERSION".to_owned(),
                // Root needs no sudo.
                _ => without_volatile_parts(&text.replace("sudo ", ""), root),
            };
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Replaces folder, ports, versions and quantities in a text by placeholders.
fn without_volatile_parts(text: &str, root: &str) -> String {
    const UNITS: [&str; 6] = ["us", "ms", "s", "bytes", "KiB", "minutes"];
    let is_number = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_digit() || c == '.')
    };
    let is_age = |word: &str| {
        let digits = word.trim_end_matches(['s', 'm', 'h', 'd']);
        digits.len() < word.len()
            && word.starts_with(|c: char| c.is_ascii_digit())
            && word
                .chars()
                .all(|c| c.is_ascii_digit() || "smhd".contains(c))
    };
    // Replace only the program's version, and keep CNI versions.
    let version = env!("CARGO_PKG_VERSION");
    let text = text
        .replace(binary().to_str().unwrap(), "PROGRAM")
        .replace(root, "ROOT")
        .replace(&format!("ipam {version}"), "ipam VERSION")
        .replace(&format!("v{version}"), "VERSION");
    let mut parts = text.split("127.0.0.1:");
    let mut normalized = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let port = part.trim_start_matches(|c: char| c.is_ascii_digit());
        normalized += &format!("127.0.0.1:PORT{port}");
    }
    let words: Vec<&str> = normalized.split(' ').collect();
    let replaced = words.iter().enumerate().map(|(n, word)| {
        let next = words.get(n + 1).map_or("", |next| {
            next.trim_end_matches(|c: char| c.is_ascii_punctuation())
        });
        match word {
            word if is_number(word) && UNITS.contains(&next) => "N",
            word if is_age(word) => "AGE",
            word => word,
        }
    });
    replaced.collect::<Vec<_>>().join(" ")
}

#[test]
fn show_json_has_its_shape() {
    let (node, _wire) = node_with_history("shapes-show");
    assert_output_has_shape(&node, "show --json", 0, "show");
    assert_output_has_shape(&node, "events --json", 0, "show-events");
    let fresh = Node::new("shapes-fresh");
    assert_output_has_shape(&fresh, "show -o json", 0, "show-fresh");
    node.remove_backup();
    node.put("/var/run/azure-vnet-ipam.json", "{");
    assert_output_has_shape(&node, "show --json", 0, "show-corrupt");
}

#[test]
fn check_json_has_its_shape() {
    let (node, mut wire) = node_with_history("shapes-check");
    // A node in a folder has no processes to scan.
    assert_output_has_shape(&node, "check --json", 2, "check");
    assert_output_has_shape(&node, "check --all --json", 2, "check-all");
    let state = String::from_utf8(node.state_bytes()).unwrap();
    node.put(
        "/var/run/azure-vnet-ipam.json",
        state.replace("\"9f8e7d6c5b4a3928\"", "\"\""),
    );
    node.put("/var/run/azure-vnet-ipam.json.corrupt-2026", "{");
    wire.stop();
    assert_output_has_shape(&node, "check --json", 1, "check-findings");
}

#[test]
fn show_subject_json_has_its_shape() {
    let (node, _wire) = node_with_history("shapes-subject");
    for (subject, status, fixture) in [
        ("10.224.0.5", 0, "show-held"),
        ("10.224.0.9", 0, "show-free"),
        ("10.224.0.7", 0, "show-cooldown"),
        ("default/web-9", 0, "show-pod"),
        ("c5", 0, "show-container"),
        ("nobody", 1, "show-unknown"),
    ] {
        let line = format!("show {subject} --json");
        assert_output_has_shape(&node, &line, status, fixture);
    }
}

#[test]
fn reclaim_json_has_its_shape() {
    let (node, _wire) = node_with_history("shapes-reclaim");
    assert_output_has_shape(&node, "reclaim --json", 0, "reclaim");
    let fresh = Node::new("shapes-fresh");
    assert_output_has_shape(&fresh, "reclaim --yes --json", 0, "reclaim-fresh");
}

#[test]
fn release_json_has_its_shape() {
    let (node, _wire) = node_with_history("shapes-release");
    let line = "release 10.224.0.5 --container 0a1b2c3d --json";
    assert_output_has_shape(&node, line, 1, "release-refused");
    let line = "release 10.224.0.5 --container 0a1b2c3d --force --json";
    assert_output_has_shape(&node, line, 0, "release");
    assert_output_has_shape(&node, line, 1, "release-free");
    assert_output_has_shape(&node, "events --json", 0, "show-events-release");
}

#[test]
fn export_json_has_its_shape() {
    let (node, _wire) = node_with_history("shapes-export");
    assert_output_has_shape(&node, "export", 0, "export");
    node.remove_backup();
    node.put("/var/run/azure-vnet-ipam.json", "{");
    assert_output_has_shape(&node, "export", 0, "export-corrupt");
}

#[test]
fn install_json_has_its_shape() {
    let folder = PluginFolder::new("shapes-install");
    folder.put(V4, b"#!/bin/sh\n");
    assert_output_has_shape(&folder.node, "install -o json", 1, "install-refused");
    folder.put(V4, &original("x"));
    assert_output_has_shape(&folder.node, "uninstall -o json", 0, "uninstall");
}

/// The keys of our own documents, without those of the state file.
fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                found.insert(key.clone());
                if key != "ipam" && member.get("IPAM").is_none() {
                    keys(member, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

#[test]
fn every_json_key_is_in_the_reference() {
    let page = fs::read_to_string(package().join(".github/REFERENCE.md")).unwrap();
    let section = page.split("\n### JSON\n").nth(1).unwrap();
    let section = section.split("\n### ").next().unwrap();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(package().join("tests/fixtures/json")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        keys(&serde_json::from_str(&text).unwrap(), &mut found);
    }
    assert!(found.len() > 60, "{found:?}");
    found.retain(|key| !section.contains(&format!("`{key}`")));
    assert!(found.is_empty(), "not in the reference: {found:?}");
}

#[test]
fn volatile_parts_are_replaced() {
    assert_eq!(
        without_volatile_parts("/r/x at 127.0.0.1:4711 in 0.3 ms, 3 held 2h0m ago", "/r"),
        "ROOT/x at 127.0.0.1:PORT in N ms, 3 held AGE ago"
    );
}
