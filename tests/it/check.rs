//! `check --all` and `check-settings` on nodes with one problem each.

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

/// All findings of `check --all --json`.
fn findings(node: &Node) -> Vec<Value> {
    let outcome = run(node, &["check", "--all", "--json"]);
    assert_eq!(outcome.stderr, "", "{outcome:?}");
    let report = outcome.json();
    let findings = report["findings"].as_array().unwrap().clone();
    let is_problem =
        |finding: &Value| finding["severity"] == "error" || finding["severity"] == "warning";
    // The processes of a node in a folder cannot be seen.
    let status = if findings.iter().any(is_problem) {
        1
    } else {
        2
    };
    assert_eq!(outcome.exit, Some(status), "{report:#}");
    findings
}

/// Checks for one finding, such as `lock error: is not a file -> move it away`: its kind and severity, words of its text, and words
/// of its remedy or commands.
#[track_caller]
fn assert_finding(node: &Node, wanted: &str) {
    let (head, words) = wanted.split_once(": ").unwrap();
    let (kind, severity) = head.split_once(' ').unwrap();
    let (text, remedy) = words.split_once(" -> ").unwrap_or((words, ""));
    let findings = findings(node);
    let has = |value: &Value, words: &str| value.as_str().unwrap().contains(words);
    let found = findings.iter().any(|finding| {
        finding["kind"] == kind
            && finding["severity"] == severity
            && has(&finding["text"], text)
            && (has(&finding["remedy"], remedy) || finding["commands"].to_string().contains(remedy))
            && (finding["remedy"] == "") == (severity == "ok")
    });
    assert!(found, "{wanted:?}: {findings:#?}");
}

#[test]
fn healthy_node_is_ok_and_left_untouched() {
    let (node, _wire) = healthy("check");
    let before = (node.state_bytes(), node.log(), node.leftover_files());
    // It does not wait for the lock.
    let _lock = node.hold_lock();
    let outcome = run(&node, &["check", "--all"]);
    assert_eq!(outcome.exit, Some(2), "{outcome:?}");
    let text = outcome.stdout;
    assert!(
        text.is_ascii() && text.starts_with("Nothing wrong was found in "),
        "{text}"
    );
    for words in ["answered in ", "3 addresses for pods", "1 held, 2 free"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let short = run(&node, &["check"]).stdout;
    assert!(!short.contains("answered in "), "{short}");
    assert_eq!(
        (node.state_bytes(), node.log(), node.leftover_files()),
        before
    );
}

#[test]
fn fresh_node_reports_only_missing_files() {
    let (node, _wire) = Node::with_wire("check", Reply::Xml(xml([5])));
    let is_error = |finding: &Value| finding["severity"] == "error";
    assert!(!findings(&node).iter().any(is_error));
    assert_finding(&node, "state ok: has no pools yet");
    assert_finding(&node, "conflist warning: none in -> put one there");
    assert!(!node.path("/var").exists(), "nothing is made");
}

#[test]
fn lost_or_corrupt_state_is_reported() {
    let (node, _wire) = healthy("check");
    let good = node.state_bytes();
    let at_once = "the next ADD restores it at once";
    fs::remove_file(node.state_path()).unwrap();
    assert_finding(&node, &format!("state note: it is gone -> {at_once}"));
    node.put(STATE, "{");
    assert_finding(
        &node,
        &format!("state note: lost or damaged: EOF -> {at_once}"),
    );
    fs::remove_file(node.state_path()).unwrap();
    let journal = fs::read(node.journal_path()).unwrap();
    node.remove_journal();
    assert_finding(&node, "state warning: it is gone -> new pods wait 30 s");
    node.put(STATE, "{");
    let remedy = "the next ADD rebuilds it";
    assert_finding(&node, &format!("state warning: is corrupt -> {remedy}"));
    let newer = r#"{"azure-vnet-ipam":{"format":99}}"#;
    node.put(STATE, newer);
    assert_finding(&node, "state error: format 99 -> install the newer");
    fs::write(node.state_path(), &good).unwrap();
    fs::write(node.journal_path(), journal).unwrap();
    fs::set_permissions(node.state_path(), Permissions::from_mode(0o644)).unwrap();
    assert_finding(&node, "state note: mode 0644 -> no action needed");
    node.put(&format!("{STATE}.corrupt-2026"), "{");
    assert_finding(&node, "set-aside note: .corrupt-2026 -> rm ");
    fs::remove_file(node.state_path()).unwrap();
    node.remove_journal();
    assert_eq!(node.add("c2").error().0, 11);
    assert_finding(
        &node,
        "state warning: new pods wait for -> no action needed",
    );
    // Without journal and record, only the key is lost.
    node.remove_journal();
    fs::remove_file(node.lock_path()).unwrap();
    let mut state: Value = serde_json::from_slice(&good).unwrap();
    state["azure-vnet-ipam"] = json!({ "format": 3, "records": 7 });
    node.put(STATE, state.to_string());
    assert_finding(
        &node,
        "state note: the key of this plugin -> no cleanup is needed",
    );
}

#[test]
fn unusable_or_long_held_lock_is_reported() {
    let (node, _wire) = healthy("check");
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
    assert_finding(&node, "lock note: process 4711 (sleep) -> no action needed");
    node.put(
        "/proc/4711/stat",
        "4711 (sleep) S 1 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 0 11 12\n",
    );
    assert_finding(
        &node,
        "lock error: process 4711 (sleep), which started -> kill -KILL 4711",
    );
    node.put("/proc/locks", "");
    assert_finding(&node, "lock ok: nobody holds it");
    fs::remove_file(node.path("/proc/locks")).unwrap();
    assert_finding(&node, "lock ok: is unknown");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_finding(&node, "lock error: is not a file -> move it away");
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    node.put("/var/run/azure-vnet", "");
    assert_finding(&node, "lock error: is not a folder -> rm ");
}

#[test]
fn unwritable_log_and_invalid_settings_are_reported() {
    let (node, _wire) = healthy("check");
    assert_finding(&node, "log ok:  KiB");
    fs::remove_file(node.path("/var/log/azure-vnet-ipam.log")).unwrap();
    fs::create_dir(node.path("/var/log/azure-vnet-ipam.log")).unwrap();
    assert_finding(&node, "log warning: is not a file -> sudo mv ");
    assert_finding(&node, "settings ok: does not exist");
    node.put("/etc/azure-vnet-ipam.json", r#"{"cooldown":5}"#);
    assert_finding(&node, "settings ok: is valid");
    node.put("/etc/azure-vnet-ipam.json", r#"{"cooldown":"soon"}"#);
    assert_finding(&node, "settings warning: cooldown -> check-settings");
}

#[test]
fn dead_source_is_reported_with_a_remedy() {
    let (node, mut wire) = healthy("check");
    wire.set(Reply::Status(503, String::new()));
    assert_finding(&node, "source error: status 503 -> curl -i 'http://127");
    wire.set(Reply::Xml("<Interfaces>".to_owned()));
    assert_finding(&node, "source error: not a complete XML -> curl -s ");
    wire.stop();
    assert_finding(&node, "source error: refused -> ip route get 127.0.0.1");
    let node = node.env("AZURE_VNET_IPAM_QUERY_URL", "ftp://x/");
    assert_finding(&node, "source error: ftp://x/ -> AZURE_VNET_IPAM_QUERY_URL");
    let node = node.env("AZURE_VNET_IPAM_QUERY_URL", "file:/nowhere.xml");
    assert_finding(&node, "source error: /nowhere.xml -> ls -l /nowhere.xml");
}

#[test]
fn mismatched_interfaces_and_pools_are_reported() {
    let (node, wire) = healthy("check");
    let other = xml([5, 6]).replace("7C1E52F9F3C4", "7C1E52F9F3C9");
    wire.set(Reply::Xml(other));
    let has = "7c:1e:52:f9:f3:c9, which no interface of this node has; it has eth0 7c:1e:52:f9:f3:c4, eth1";
    assert_finding(
        &node,
        &format!("interface error: {has} -> attach the interface"),
    );
    wire.set(Reply::Xml(xml([])));
    assert_finding(&node, "interface error: no address for pods -> assign");
    wire.set(Reply::Xml(xml([5]).replace("10.224.", "10.225.")));
    assert_finding(&node, "pool note: 10.224.0.0/16: 1 held -> released");
    wire.set(Reply::Xml(xml([5, 6, 7]).replace("10.224.0.7", "10.9.0.7")));
    assert_finding(&node, "source warning: 1 of the listed -> outside their");
    node.add("c2").success();
    assert_finding(&node, "pool warning: 2 held, 0 free -> more secondary");
}

#[test]
fn invalid_conflists_are_reported() {
    let (node, _wire) = healthy("check");
    assert_finding(&node, "conflist ok: network azure, plugin azure-vnet");
    node.put("/etc/cni/net.d/20-broken.conf", "{");
    assert_finding(&node, "conflist error: EOF -> correct it");
    fs::remove_file(node.path("/etc/cni/net.d/20-broken.conf")).unwrap();
    let other = r#"{"cniVersion":"1.0.0","name":"x","type":"ptp"}"#;
    node.put("/etc/cni/net.d/05-other.conf", other);
    assert_finding(&node, "conflist warning: 05-other.conf is -> before it");
    fs::remove_file(node.path("/etc/cni/net.d/05-other.conf")).unwrap();
    let good = fs::read_to_string(node.path(CONFLIST)).unwrap();
    node.put(CONFLIST, good.replace("\"cniVersion\":\"1.0.0\",", ""));
    assert_finding(&node, "conflist note: without cniVersion -> add");
    let bad = r#""type":"azure-vnet-ipam","environment":"mars""#;
    node.put(CONFLIST, good.replace(r#""type":"azure-vnet-ipam""#, bad));
    assert_finding(&node, "conflist error: every ADD fails:  -> mars");
    fs::write(node.path(CONFLIST), &good).unwrap();
    fs::set_permissions(node.path(EXECUTABLE), Permissions::from_mode(0o644)).unwrap();
    assert_finding(&node, "executable error: mode 0644 -> chmod 755");
    fs::remove_file(node.path(EXECUTABLE)).unwrap();
    assert_finding(&node, "executable warning: does not exist -> install it");
}

#[test]
fn other_plugins_with_the_same_addresses_are_reported() {
    let (node, _wire) = healthy("check");
    assert_finding(&node, "owner ok: no other IPAM plugin");
    node.put("/var/lib/cni/networks/kubenet/10.224.0.6", "c9\r\neth0");
    node.put("/var/lib/cni/networks/kubenet/lock", "");
    assert_finding(
        &node,
        "owner error: 1 of them in our pools: 10.224.0.6 -> rm -r ",
    );
    fs::remove_dir_all(node.path("/var/lib/cni/networks")).unwrap();
    let other = json!({
        "cniVersion": "1.0.0", "name": "x", "type": "bridge",
        "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.224.8.0/24" }]] },
    });
    node.put("/etc/cni/net.d/20-other.conf", other.to_string());
    assert_finding(
        &node,
        "owner error: host-local allocates from 10.224.8.0/24 -> another subnet",
    );
}

#[test]
fn without_root_one_sentence_lists_what_needs_root() {
    let (node, _wire) = healthy("check");
    node.make_accessible_to_everybody();
    fs::set_permissions(node.state_path(), Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(node.path(CONFLIST), Permissions::from_mode(0o000)).unwrap();
    // Run as a user who may execute the program.
    const NOBODY: u32 = 65534;
    let mut command = Command::new(node.path(EXECUTABLE));
    command
        .env_clear()
        .envs(&node.env)
        .args(["check", "--json"]);
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = output(&mut command);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let not_seen = report["notSeen"].as_array().unwrap();
    assert_eq!(not_seen.len(), 1, "{report:#}");
    let text = not_seen[0].as_str().unwrap();
    for hidden in [
        "azure-vnet-ipam.json",
        "10-azure.conflist",
        "network namespaces",
        "sudo",
    ] {
        assert!(text.contains(hidden), "{text}");
    }
    let findings = report["findings"].as_array().unwrap();
    let is_error = |finding: &Value| finding["severity"] == "error";
    assert!(!findings.iter().any(is_error), "{report:#}");
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
