//! `doctor` and `check-settings` on nodes with one problem each.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::wait::output;
use crate::harness::{Node, Outcome, Reply, WireServer, install, xml};

const CONFLIST: &str = "/etc/cni/net.d/10-azure.conflist";
const STATE: &str = "/var/run/azure-vnet-ipam.json";
const EXECUTABLE: &str = "/opt/cni/bin/azure-vnet-ipam";

/// A healthy node with one pod.
fn healthy(name: &str) -> (Node, WireServer) {
    let (node, wire) = Node::with_wire(name, Reply::Xml(xml([5, 6, 7])));
    let conflist = json!({
        "cniVersion": "1.0.0", "name": "azure",
        "plugins": [{ "type": "azure-vnet", "ipam": { "type": "azure-vnet-ipam" } }, { "type": "portmap" }],
    });
    node.put(CONFLIST, conflist.to_string());
    for name in ["azure-vnet-ipam", "azure-vnet", "portmap"] {
        install(&node.path(&format!("/opt/cni/bin/{name}")));
    }
    node.add("c1").success();
    (node, wire)
}

fn run(node: &Node, args: &[&str]) -> Outcome {
    node.run_command(args.iter().copied())
}

/// All lines of `doctor --json`.
fn lines(node: &Node) -> Vec<Value> {
    let outcome = run(node, &["doctor", "--json"]);
    assert_eq!(outcome.stderr, "", "{outcome:?}");
    let report = outcome.json();
    let lines = report["lines"].as_array().unwrap().clone();
    let is_problem = |line: &Value| line["status"] == "wrong" || line["status"] == "warning";
    // The processes of a node in a folder cannot be seen.
    let status = if lines.iter().any(is_problem) { 1 } else { 2 };
    assert_eq!(outcome.exit, Some(status), "{report:#}");
    lines
}

/// Checks for a line with this status whose text and remedy contain these words.
#[track_caller]
fn assert_diagnostic(node: &Node, subject: &str, status: &str, text: &str, remedy: &str) {
    let lines = lines(node);
    let has = |line: &Value, key: &str, words: &str| {
        line[key]
            .as_str()
            .is_some_and(|found| found.contains(words))
    };
    let found = lines.iter().any(|line| {
        line["subject"] == subject
            && line["status"] == status
            && has(line, "text", text)
            && (has(line, "remedy", remedy)
                || line["commands"].to_string().contains(remedy) && !remedy.is_empty()
                || line["remedy"].is_null() && remedy.is_empty())
    });
    assert!(found, "{subject} {status} {text:?} {remedy:?}: {lines:#?}");
}

#[test]
fn healthy_node_is_ok_and_left_untouched() {
    let (node, _wire) = healthy("doctor");
    let before = (node.state_bytes(), node.log(), node.leftover_files());
    // `doctor` does not wait for the lock.
    let _lock = node.hold_lock();
    let outcome = run(&node, &["doctor"]);
    assert_eq!(outcome.exit, Some(2), "{outcome:?}");
    let last = outcome.stdout.lines().last().unwrap();
    assert!(
        last.starts_with("0 errors, 0 warnings, "),
        "{}",
        outcome.stdout
    );
    assert!(outcome.stdout.is_ascii());
    for words in ["answered in ", "3 addresses for pods", "1 held, 2 free"] {
        assert!(
            outcome.stdout.contains(words),
            "{words}: {}",
            outcome.stdout
        );
    }
    assert_eq!(
        (node.state_bytes(), node.log(), node.leftover_files()),
        before
    );
}

#[test]
fn json_report_has_its_shape() {
    let (node, _wire) = healthy("doctor");
    let report = run(&node, &["doctor", "--json"]).json();
    let keys: Vec<_> = report.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["lines", "summary", "time", "version"]);
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert!(report["time"].as_str().unwrap().ends_with('Z'));
    for line in report["lines"].as_array().unwrap() {
        assert_eq!(line.as_object().unwrap().len(), 7, "{line}");
        assert!(["ok", "note", "warning", "wrong"].contains(&line["status"].as_str().unwrap()));
        assert!(line["subject"].is_string() && line["text"].is_string());
        assert_eq!(line["remedy"].is_null(), line["status"] == "ok", "{line}");
    }
}

#[test]
fn fresh_node_reports_only_missing_files() {
    let (node, _wire) = Node::with_wire("doctor", Reply::Xml(xml([5])));
    assert!(lines(&node).iter().all(|line| line["status"] != "wrong"));
    assert_diagnostic(&node, "state", "ok", "has no pools yet", "");
    assert_diagnostic(&node, "conflist", "warning", "none in", "put one there");
    assert!(!node.path("/var").exists(), "nothing is made");
}

#[test]
fn lost_or_corrupt_state_is_reported() {
    let (node, _wire) = healthy("doctor");
    let good = node.state_bytes();
    let at_once = "the next ADD restores it at once";
    fs::remove_file(node.state_path()).unwrap();
    assert_diagnostic(&node, "state", "note", "it is gone", at_once);
    node.put(STATE, "{");
    assert_diagnostic(&node, "state", "note", "lost or damaged: EOF", at_once);
    fs::remove_file(node.state_path()).unwrap();
    let journal = fs::read(node.journal_path()).unwrap();
    node.remove_journal();
    assert_diagnostic(
        &node,
        "state",
        "warning",
        "it is gone",
        "new pods wait 30 s",
    );
    node.put(STATE, "{");
    let remedy = "the next ADD rebuilds it";
    assert_diagnostic(&node, "state", "warning", "is corrupt", remedy);
    let newer = r#"{"azure-vnet-ipam":{"format":99}}"#;
    node.put(STATE, newer);
    assert_diagnostic(&node, "state", "wrong", "format 99", "install the newer");
    fs::write(node.state_path(), &good).unwrap();
    fs::write(node.journal_path(), journal).unwrap();
    fs::set_permissions(node.state_path(), Permissions::from_mode(0o644)).unwrap();
    assert_diagnostic(&node, "state", "note", "mode 0644", "no action needed");
    node.put(&format!("{STATE}.corrupt-2026"), "{");
    assert_diagnostic(&node, "set-aside", "note", ".corrupt-2026", "rm ");
    fs::remove_file(node.state_path()).unwrap();
    node.remove_journal();
    assert_eq!(node.add("c2").error().0, 11);
    assert_diagnostic(
        &node,
        "state",
        "warning",
        "new pods wait for",
        "no action needed",
    );
    // Without journal and record, only the key is lost.
    node.remove_journal();
    fs::remove_file(node.lock_path()).unwrap();
    let mut state: Value = serde_json::from_slice(&good).unwrap();
    state["azure-vnet-ipam"] = json!({ "format": 3, "records": 7 });
    node.put(STATE, state.to_string());
    assert_diagnostic(
        &node,
        "state",
        "note",
        "the key of this plugin",
        "no cleanup is needed",
    );
}

#[test]
fn unusable_or_long_held_lock_is_reported() {
    let (node, _wire) = healthy("doctor");
    // Long after everything that started with the machine.
    node.advance_clock(3600);
    let path = node.lock_path();
    let meta = fs::metadata(&path).unwrap();
    let (major, minor) = ((meta.dev() >> 8) & 0xfff, meta.dev() & 0xff);
    let inode = meta.ino();
    node.put(
        "/proc/locks",
        format!("1: FLOCK  ADVISORY  WRITE 4711 {major:02x}:{minor:02x}:{inode} 0 EOF\n"),
    );
    node.put("/proc/4711/comm", "sleep\n");
    assert_diagnostic(
        &node,
        "lock",
        "note",
        "process 4711 (sleep)",
        "no action needed",
    );
    node.put(
        "/proc/4711/stat",
        "4711 (sleep) S 1 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 0 11 12\n",
    );
    assert_diagnostic(
        &node,
        "lock",
        "wrong",
        "process 4711 (sleep), which started",
        "kill -KILL 4711",
    );
    node.put("/proc/locks", "");
    assert_diagnostic(&node, "lock", "ok", "nobody holds it", "");
    fs::remove_file(node.path("/proc/locks")).unwrap();
    assert_diagnostic(&node, "lock", "ok", "is unknown", "");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_diagnostic(&node, "lock", "wrong", "is not a file", "move it away");
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    node.put("/var/run/azure-vnet", "");
    assert_diagnostic(&node, "lock", "wrong", "is not a folder", "rm ");
}

#[test]
fn unwritable_log_and_invalid_settings_are_reported() {
    let (node, _wire) = healthy("doctor");
    assert_diagnostic(&node, "log", "ok", " KiB", "");
    fs::remove_file(node.path("/var/log/azure-vnet-ipam.log")).unwrap();
    fs::create_dir(node.path("/var/log/azure-vnet-ipam.log")).unwrap();
    assert_diagnostic(&node, "log", "warning", "is not a file", "sudo mv ");
    assert_diagnostic(&node, "settings", "ok", "does not exist", "");
    node.put("/etc/azure-vnet-ipam.json", r#"{"cooldown":5}"#);
    assert_diagnostic(&node, "settings", "ok", "is valid", "");
    node.put("/etc/azure-vnet-ipam.json", r#"{"cooldown":"soon"}"#);
    assert_diagnostic(&node, "settings", "warning", "cooldown", "check-settings");
}

#[test]
fn dead_source_is_reported_with_a_remedy() {
    let (node, mut wire) = healthy("doctor");
    wire.set(Reply::Status(503, String::new()));
    assert_diagnostic(
        &node,
        "source",
        "wrong",
        "status 503",
        "curl -i 'http://127",
    );
    wire.set(Reply::Xml("<Interfaces>".to_owned()));
    assert_diagnostic(&node, "source", "wrong", "not a complete XML", "curl -s ");
    wire.stop();
    assert_diagnostic(
        &node,
        "source",
        "wrong",
        "refused",
        "ip route get 127.0.0.1",
    );
    let node = node.env("AZURE_VNET_IPAM_QUERY_URL", "ftp://x/");
    assert_diagnostic(
        &node,
        "source",
        "wrong",
        "ftp://x/",
        "AZURE_VNET_IPAM_QUERY_URL",
    );
    let node = node.env("AZURE_VNET_IPAM_QUERY_URL", "file:/nowhere.xml");
    assert_diagnostic(
        &node,
        "source",
        "wrong",
        "/nowhere.xml",
        "ls -l /nowhere.xml",
    );
}

#[test]
fn mismatched_interfaces_and_pools_are_reported() {
    let (node, wire) = healthy("doctor");
    let other = xml([5, 6]).replace("7C1E52F9F3C4", "7C1E52F9F3C9");
    wire.set(Reply::Xml(other));
    let has = "7c:1e:52:f9:f3:c9, which no interface of this node has; it has eth0 7c:1e:52:f9:f3:c4, eth1";
    assert_diagnostic(&node, "interface", "wrong", has, "attach the interface");
    wire.set(Reply::Xml(xml([])));
    assert_diagnostic(&node, "interface", "wrong", "no address for pods", "assign");
    wire.set(Reply::Xml(xml([5]).replace("10.224.", "10.225.")));
    assert_diagnostic(&node, "pool", "note", "10.224.0.0/16: 1 held", "released");
    wire.set(Reply::Xml(xml([5, 6, 7]).replace("10.224.0.7", "10.9.0.7")));
    assert_diagnostic(
        &node,
        "source",
        "warning",
        "1 of the listed",
        "outside their",
    );
    node.add("c2").success();
    assert_diagnostic(&node, "pool", "warning", "2 held, 0 free", "more secondary");
}

#[test]
fn invalid_conflists_are_reported() {
    let (node, _wire) = healthy("doctor");
    assert_diagnostic(
        &node,
        "conflist",
        "ok",
        "network azure, plugin azure-vnet",
        "",
    );
    node.put("/etc/cni/net.d/20-broken.conf", "{");
    assert_diagnostic(&node, "conflist", "wrong", "EOF", "correct it");
    fs::remove_file(node.path("/etc/cni/net.d/20-broken.conf")).unwrap();
    let other = r#"{"cniVersion":"1.0.0","name":"x","type":"ptp"}"#;
    node.put("/etc/cni/net.d/05-other.conf", other);
    assert_diagnostic(
        &node,
        "conflist",
        "warning",
        "05-other.conf is",
        "before it",
    );
    fs::remove_file(node.path("/etc/cni/net.d/05-other.conf")).unwrap();
    let good = fs::read_to_string(node.path(CONFLIST)).unwrap();
    node.put(CONFLIST, good.replace("\"cniVersion\":\"1.0.0\",", ""));
    assert_diagnostic(&node, "conflist", "note", "without cniVersion", "add");
    let bad = r#""type":"azure-vnet-ipam","environment":"mars""#;
    node.put(CONFLIST, good.replace(r#""type":"azure-vnet-ipam""#, bad));
    assert_diagnostic(&node, "conflist", "wrong", "every ADD fails: ", "mars");
    fs::write(node.path(CONFLIST), &good).unwrap();
    fs::set_permissions(node.path(EXECUTABLE), Permissions::from_mode(0o644)).unwrap();
    assert_diagnostic(&node, "executable", "wrong", "mode 0644", "chmod 755");
    fs::remove_file(node.path(EXECUTABLE)).unwrap();
    assert_diagnostic(
        &node,
        "executable",
        "warning",
        "does not exist",
        "install it",
    );
}

#[test]
fn other_plugins_with_the_same_addresses_are_reported() {
    let (node, _wire) = healthy("doctor");
    assert_diagnostic(&node, "owner", "ok", "no other IPAM plugin", "");
    node.put("/var/lib/cni/networks/kubenet/10.224.0.6", "c9\r\neth0");
    node.put("/var/lib/cni/networks/kubenet/lock", "");
    assert_diagnostic(
        &node,
        "owner",
        "wrong",
        "1 of them in our pools: 10.224.0.6",
        "rm -r ",
    );
    fs::remove_dir_all(node.path("/var/lib/cni/networks")).unwrap();
    let other = json!({
        "cniVersion": "1.0.0", "name": "x", "type": "bridge",
        "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.224.8.0/24" }]] },
    });
    node.put("/etc/cni/net.d/20-other.conf", other.to_string());
    assert_diagnostic(
        &node,
        "owner",
        "wrong",
        "host-local allocates from 10.224.8.0/24",
        "another subnet",
    );
}

#[test]
fn without_root_one_line_lists_what_needs_root() {
    let (node, _wire) = healthy("doctor");
    node.make_accessible_to_everybody();
    fs::set_permissions(node.state_path(), Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(node.path(CONFLIST), Permissions::from_mode(0o000)).unwrap();
    // Run as a user who may execute the program.
    const NOBODY: u32 = 65534;
    let mut command = Command::new(node.path(EXECUTABLE));
    command
        .env_clear()
        .envs(&node.env)
        .args(["doctor", "--json"]);
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = output(&mut command);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lines = report["lines"].as_array().unwrap();
    let sudo: Vec<_> = lines
        .iter()
        .filter(|line| line["remedy"].as_str().is_some_and(|r| r.contains("sudo")))
        .collect();
    assert_eq!(sudo.len(), 1, "{lines:#?}");
    let text = sudo[0]["text"].as_str().unwrap();
    for hidden in [
        "azure-vnet-ipam.json",
        "10-azure.conflist",
        "network namespaces",
    ] {
        assert!(text.contains(hidden), "{text}");
    }
    assert!(
        lines.iter().all(|line| line["status"] != "wrong"),
        "{lines:#?}"
    );
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn check_settings_reports_valid_and_invalid_files() {
    let node = Node::new("settings");
    let file = node.path("/etc/azure-vnet-ipam.json");
    node.put("/etc/azure-vnet-ipam.json", r#"{"cooldown":5}"#);
    let right = run(&node, &["check-settings"]);
    let text = format!("{} is valid\n", file.display());
    assert_eq!((right.exit, right.stdout), (Some(0), text));
    node.put("/etc/other.json", r#"{"cooldown":"soon"}"#);
    let other = node.path("/etc/other.json");
    let wrong = run(&node, &["check-settings", other.to_str().unwrap()]);
    assert_eq!((wrong.exit, wrong.stdout.as_str()), (Some(1), ""));
    assert!(wrong.stderr.contains("cooldown"), "{wrong:?}");
}
