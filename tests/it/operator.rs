//! The commands of operators, on nodes in a folder and on nodes with real pods.

mod release;
mod subjects;
mod views;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::contention::run_all_in_parallel;
use crate::harness::wait::output;
use crate::harness::{Node, Reply, conf, install, xml};

const EVENTS: &str = "/var/run/azure-vnet/azure-vnet-ipam.events";

fn events(node: &Node) -> Vec<Value> {
    let outcome = node.run_line("events --json");
    outcome.success().json().as_array().unwrap().clone()
}

/// The text that a command prints with a variable in its environment.
fn run_with(node: &Node, line: &str, name: &str, value: &str) -> String {
    let call = node.call("", "").without("CNI_COMMAND").env(name, value);
    let call = line.split(' ').fold(call, |call, word| call.arg(word));
    call.run().success().stdout.clone()
}

/// All files below the folder with their content and modification time.
fn everything(folder: &Path) -> BTreeMap<String, (Vec<u8>, i64, i64)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            found.extend(everything(&path));
        } else {
            let contents = fs::read(&path).unwrap();
            let name = path.display().to_string();
            found.insert(name, (contents, meta.mtime(), meta.mtime_nsec()));
        }
    }
    found
}

#[test]
fn failures_are_recorded_and_queries_are_not() {
    let (node, wire) = Node::with_wire("events", Reply::Xml(xml([5])));
    node.add("c1").success();
    let (code, msg) = node.add("c2").error();
    node.del("c1").assert_no_output();
    node.call("ADD", "bad id").run().error();
    for verb in ["STATUS", "VERSION"] {
        node.call(verb, "").stdin(conf("1.1.0", json!({}))).run();
    }
    drop(wire);
    node.add("c3").success();
    node.call("NONSENSE", "c4").run().error();
    let events = events(&node);
    let verbs: Vec<_> = events.iter().map(|e| e["verb"].as_str().unwrap()).collect();
    assert_eq!(verbs, ["ADD", "ADD", "DEL", "ADD", "ADD", "unknown"]);
    assert_eq!(events[1]["code"], code);
    assert!(msg.starts_with(events[1]["msg"].as_str().unwrap()), "{msg}");
    for n in [0, 2] {
        assert_eq!(events[n]["addresses"], json!(["10.224.0.5"]));
        assert!(events[n]["microseconds"].as_u64().unwrap() > 0);
    }
    assert_eq!(events[3]["code"], 4);
    assert_eq!(events[4]["refreshFailed"], true);
}

#[test]
fn full_events_file_is_rotated_without_loss() {
    let (node, _wire) = Node::with_wire("events", Reply::Xml(xml(5..100)));
    node.add("c0").success();
    let line = fs::read_to_string(node.path(EVENTS)).unwrap();
    let count = (256 << 10) / line.len() - 20;
    node.put(EVENTS, line.repeat(count));
    let ids: Vec<String> = (1..80).map(|n| format!("c{n}")).collect();
    for outcome in run_all_in_parallel(ids.iter().map(|id| node.call("ADD", id))) {
        outcome.success();
    }
    assert!(node.path(&format!("{EVENTS}.1")).exists());
    assert_eq!(events(&node).len(), 256);
    let metrics = node.run_line("metrics").stdout;
    let total = count + 79;
    let wanted = format!(
        "azure_vnet_ipam_operations_total{{plugin=\"azure-vnet-ipam\",verb=\"ADD\",result=\"ok\"}} {total}\n"
    );
    assert!(metrics.contains(&wanted), "{wanted}{metrics}");
}

#[test]
fn unwritable_events_fail_no_call() {
    let (node, _wire) = Node::with_wire("events", Reply::Xml(xml(5..9)));
    fs::create_dir_all(node.path(EVENTS)).unwrap();
    node.add("c1").success();
    node.del("c1").assert_no_output();
    assert_eq!(events(&node), [] as [Value; 0]);
}

#[test]
fn arguments_with_cni_command_are_refused_on_stderr() {
    let (node, _wire) = Node::with_wire("never", Reply::Xml(xml([5])));
    for (verb, line) in [
        ("VERSION", "show"),
        ("VERSION", "--help"),
        ("ADD", "help"),
        ("ADD", "release 10.224.0.5"),
        ("DEL", "--version"),
        ("STATUS", "nonsense"),
    ] {
        let call = line
            .split(' ')
            .fold(node.call(verb, "c1"), |call, word| call.arg(word));
        let outcome = call.run();
        assert_eq!((outcome.exit, &*outcome.stdout), (Some(2), ""), "{line}");
        assert_eq!(
            outcome.stderr,
            "azure-vnet-ipam: CNI_COMMAND is set, and a CNI call has no arguments; unset CNI_COMMAND to run commands\n",
            "{line}"
        );
    }
    assert!(!node.state_path().exists(), "nothing was done");
    // An empty CNI_COMMAND counts as not set.
    let help = node.call("", "").arg("--help").run();
    assert!(help.success().stdout.contains("Usage: "), "{help:?}");
}

#[test]
fn read_only_commands_touch_nothing() {
    let (node, _wire) = Node::with_wire("look", Reply::Xml(xml([5, 6])));
    // Each command has three exit statuses: without a state, with a valid state, and with an unusable one. No
    // conflist names the plugin.
    let commands = [
        ("show", [0, 0, 0]),
        ("events", [0, 0, 0]),
        ("check", [1, 1, 1]),
        ("check --all", [1, 1, 1]),
        ("show 10.224.0.5", [1, 0, 0]),
        ("reclaim", [0, 0, 2]),
        ("export", [0, 0, 0]),
        ("metrics", [0, 0, 0]),
    ];
    const NONE: usize = 0;
    const GOOD: usize = 1;
    const BROKEN: usize = 2;
    let run_all = |what: &str, condition: usize| {
        let before = everything(&node.root);
        for (line, statuses) in commands {
            let seen = node.run_line(line);
            assert_eq!(
                seen.exit,
                Some(statuses[condition]),
                "{what}, {line}: {seen:?}"
            );
            assert!(!seen.stdout.contains("panicked") && !seen.stderr.contains("panicked"));
            let has_output = !seen.stdout.is_empty() || !seen.stderr.is_empty();
            assert!(has_output, "{what}, {line}: {seen:?}");
        }
        assert!(everything(&node.root) == before, "{what}");
    };
    run_all("nothing there", NONE);
    node.add("c1").success();
    run_all("a state", GOOD);
    node.advance_clock(7200);
    run_all("an old state", GOOD);
    let good = node.state_bytes();
    node.remove_backup();
    for (what, bytes) in [
        ("zeros", vec![0; 4096]),
        ("half", good[..good.len() / 2].to_vec()),
        ("empty", Vec::new()),
        ("newer", br#"{"azure-vnet-ipam": {"format": 99}}"#.to_vec()),
    ] {
        fs::write(node.state_path(), bytes).unwrap();
        run_all(what, BROKEN);
    }
    fs::remove_file(node.state_path()).unwrap();
    run_all("lost", BROKEN);
    fs::create_dir(node.state_path()).unwrap();
    run_all("a folder", BROKEN);
}

#[test]
fn export_contains_no_credentials() {
    let node = Node::new("secrets").env(
        "AZURE_VNET_IPAM_QUERY_URL",
        "http://user:hush@127.0.0.1:1/x?sig=hush",
    );
    let conflist = json!({
        "cniVersion": "1.0.0", "name": "azure", "plugins": [
            { "type": "bridge", "token": "hush", "ipam": { "type": "azure-vnet-ipam", "key": "hush",
                "queryUrl": "http://u:hush@h/?sig=hush", "routes": [{ "dst": "http://u:hush@h" }] } },
            { "type": "calico", "ipam": { "type": "calico-ipam", "token": "hush" } },
        ],
    });
    node.put("/etc/cni/net.d/10-x.conflist", conflist.to_string());
    node.add("c1").error();
    let file = node.path("/case.json");
    let outcome = node.run_line(&format!("export --output {}", file.display()));
    assert_eq!(outcome.success().stdout, "");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let text = fs::read_to_string(file).unwrap();
    serde_json::from_str::<Value>(&text).unwrap();
    assert!(!text.contains("hush"), "{text}");
    assert!(
        text.contains("calico-ipam") && text.contains("127.0.0.1:1"),
        "{text}"
    );
}

#[test]
#[ignore = "needs root, who can become somebody else"]
fn missing_permission_is_answered_with_sudo_in_one_line() {
    let (node, _wire) = Node::with_wire("nobody", Reply::Xml(xml([5])));
    node.add("c1").success();
    // Another user must be able to execute the program at this path.
    let own = node.path("/plugin");
    install(&own);
    node.make_accessible_to_everybody();
    fs::set_permissions(node.state_path(), fs::Permissions::from_mode(0o600)).unwrap();
    for line in ["show", "show 10.224.0.5", "reclaim", "export", "metrics"] {
        let mut command = Command::new(&own);
        command.env_clear().envs(&node.env).args(line.split(' '));
        let output = output(command.uid(65_534).gid(65_534));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(2), 0),
            "{line}: {stderr}"
        );
        assert!(
            stderr.lines().count() == 1 && stderr.contains("sudo"),
            "{line}: {stderr}"
        );
    }
}
