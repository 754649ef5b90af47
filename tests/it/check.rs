//! `check --all` on nodes in a folder.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::wait::output;
use crate::harness::{Node, Outcome, Reply, WireServer, install, sh_with, xml};

const CONFLIST: &str = "/etc/cni/net.d/10-azure.conflist";
const EXECUTABLE: &str = "/opt/cni/bin/azure-vnet-ipam";

const OTHER_INTERFACE: &str =
    r#"<Interface MacAddress="7C1E52F9F3C9" IsPrimary="false"></Interface></Interfaces>"#;

/// A healthy node with one pod.
fn healthy(name: &str) -> (Node, WireServer) {
    let (node, wire) = Node::with_wire(name, Reply::Xml(xml([5, 6, 7])));
    // The conflists have keys in any case, and keys of the main plugins.
    let ours = json!({ "type": "azure-vnet-ipam", "Exclude": [], "mode": [], "podCIDR": [] });
    let conflist = json!({
        "cniVersion": "1.0.0", "name": "azure",
        "plugins": [{ "type": "azure-vnet", "ipam": ours }, { "type": "portmap" }],
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
    // In a folder, the processes of the node cannot be seen.
    let status = if findings.iter().any(is_problem) {
        1
    } else {
        2
    };
    assert_eq!(outcome.exit, Some(status), "{report:#}");
    findings
}

/// Checks that one finding matches a line such as `lock error: is not a file -> move it away`. The line has the kind
/// and the severity, words of the text, and words of the remedy or commands.
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
    // `check` must not wait for the lock.
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
    assert_finding(
        &node,
        "conflist warning: does not exist: no pod gets a network, unless the runtime reads another folder -> make it",
    );
    assert!(!node.path("/var").exists(), "nothing is made");
}

#[test]
fn multus_may_lead_to_this_plugin() {
    let (node, _wire) = healthy("check");
    let ours = fs::read_to_string(node.path(CONFLIST)).unwrap();
    let name = CONFLIST.rsplit('/').next().unwrap();
    let severities = || {
        let all = findings(&node).into_iter();
        all.filter(|finding| finding["kind"] == "conflist")
            .map(|finding| finding["severity"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let put = |members: &str| {
        let conf = format!(r#"{{"cniVersion":"1.0.0","name":"m","type":"multus",{members}}}"#);
        node.put("/etc/cni/net.d/00-multus.conf", conf);
    };
    put(&format!(r#""clusterNetwork":"/host/etc/cni/net.d/{name}""#));
    assert_eq!(severities(), ["ok"]);
    put(r#""clusterNetwork":"other""#);
    assert_eq!(severities(), ["warning", "ok"]);
    put(&format!(r#""delegates":[{ours}]"#));
    assert_eq!(severities(), ["ok", "ok"]);
    fs::remove_file(node.path(CONFLIST)).unwrap();
    assert_eq!(severities(), ["ok"]);
    put(r#""delegates":[1]"#);
    assert_eq!(severities(), ["error"]);
}

/// Findings that `broken_nodes.rs` does not cover.
#[test]
fn minor_problems_are_reported() {
    let (node, mut wire) = healthy("check");
    // By now, everything that started with the machine is old.
    node.advance_clock(3600);
    for wanted in [
        "log ok:  KiB",
        "settings ok: does not exist",
        "conflist ok: network azure, plugin azure-vnet",
        "conflict ok: no other IPAM plugin",
        "lock ok: is unknown",
    ] {
        assert_finding(&node, wanted);
    }
    let conflist = fs::read_to_string(node.path(CONFLIST)).unwrap();
    // A row is a file, its content, and the expected finding.
    for (file, content, wanted) in [
        ("/proc/locks", "", "lock ok: no process holds the lock"),
        (
            "/proc/locks",
            &node.lock_line(4711),
            "lock error: process 4711, which has ended or -> find",
        ),
        (
            "/proc/4711/stat",
            "4711 (sleep) S 1 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 0 11 12\n",
            "lock error: process 4711, started -> kill -KILL 4711",
        ),
        (
            "/etc/azure-vnet-ipam.json",
            r#"{"cooldown":5}"#,
            "settings ok: is valid",
        ),
        (
            "/etc/azure-vnet-ipam.json",
            r#"{"cooldown":"soon"}"#,
            "settings warning: cooldown -> is ignored until",
        ),
        (
            "/var/run/azure-vnet-ipam.json.corrupt-2026",
            "{",
            "set-aside note: .corrupt-2026 -> rm ",
        ),
        (
            CONFLIST,
            &conflist.replace("\"cniVersion\":\"1.0.0\",", ""),
            "conflist note: without cniVersion -> add",
        ),
    ] {
        node.put(file, content);
        assert_finding(&node, wanted);
    }
    for (answer, wanted) in [
        (
            xml([5]).replace("10.224.", "10.225."),
            "pool note: 10.224.0.0/16: 1 held -> released",
        ),
        (
            xml([5, 6, 7]).replace("10.224.0.7", "10.9.0.7"),
            "source warning: the source lists -> correct what the source lists",
        ),
        (
            // The node does not have the additional interface.
            xml([]).replace("</Interfaces>", OTHER_INTERFACE),
            "interface error: lists no address for pods -> assign secondary",
        ),
    ] {
        wire.set(Reply::Xml(answer));
        assert_finding(&node, wanted);
    }
    wire.stop();
    let node = node.env("AZURE_VNET_IPAM_QUERY_URL", "ftp://x/");
    assert_finding(&node, "source error: ftp://x/ -> AZURE_VNET_IPAM_QUERY_URL");
    let node = node.env("AZURE_VNET_IPAM_QUERY_URL", "file:/nowhere.xml");
    assert_finding(&node, "source error: /nowhere.xml -> ls -l /nowhere.xml");
    fs::remove_file(node.path("/var/log/azure-vnet-ipam.log")).unwrap();
    fs::create_dir(node.path("/var/log/azure-vnet-ipam.log")).unwrap();
    assert_finding(&node, "log warning: is not a file -> mv ");
    // Without backup and record, only the missing key is reported.
    node.remove_backup();
    fs::remove_file(node.lock_path()).unwrap();
    let mut state = node.state();
    state["azure-vnet-ipam"] = json!({ "format": 4, "records": 7 });
    fs::write(node.state_path(), state.to_string()).unwrap();
    assert_finding(
        &node,
        "state note: the key of this plugin -> no cleanup is needed",
    );
}

#[test]
fn without_root_one_sentence_lists_what_needs_root() {
    let (node, _wire) = healthy("check");
    // Who may write there is another finding.
    sh_with("chmod -R a+rX,go-w \"$1\"", &[&node.root]);
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
