//! Five broken nodes: `check` reports each problem, and its remedy, run as printed, repairs the node.
//!
//! `tests/broken/node` creates the nodes. Each test runs itself again inside its node.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::wait::output;
use crate::harness::{binary, package};
use crate::privileged::run_again;

/// Runs the test again on a node of this kind. Returns true inside that node.
fn on_broken_node(kind: &str, test: &str) -> bool {
    let mut node = Command::new(package().join("tests/broken/node"));
    run_again(
        &format!("broken::{test}"),
        node.arg(kind).env("BIN", binary()),
    )
}

/// Runs a command as an operator would.
fn run_command(line: &str) -> Output {
    output(Command::new("bash").args(["-c", line]))
}

/// Runs a command, checks its exit status, and returns its stdout.
#[track_caller]
fn stdout_of(line: &str, status: i32) -> String {
    let output = run_command(line);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{line}: {text}{errors}");
    assert!(text.is_ascii(), "{text}");
    text
}

/// Adds a pod `seconds` later and returns its address.
#[track_caller]
fn add_pod_later(seconds: u32, pod: &str) -> String {
    let address = stdout_of(&format!("later {seconds} add {pod}"), 0);
    address.trim().to_owned()
}

/// The printed remedy of the finding that contains these words.
#[track_caller]
fn remedy(report: &str, words: &[&str]) -> String {
    // `check` prints each finding as a paragraph.
    let has_all =
        |finding: &&str| finding.contains("-> ") && words.iter().all(|word| finding.contains(word));
    let finding = report.split("\n\n").find(has_all);
    let finding = finding.unwrap_or_else(|| panic!("{words:?}: {report}"));
    let (_, remedy) = finding
        .split_once("-> ")
        .unwrap_or_else(|| panic!("no remedy: {finding}"));
    remedy.trim_end().to_owned()
}

/// Runs the command of a remedy.
#[track_caller]
fn run_remedy(command: &str) -> String {
    // The test is root already, and small machines have no sudo.
    stdout_of(command.strip_prefix("sudo ").unwrap_or(command), 0)
}

/// Pod to address, as the kernel has them. Checks that no two pods share an address.
#[track_caller]
fn running_pods() -> BTreeMap<String, String> {
    let line = "for pod in $(ip netns list | cut -d ' ' -f 1); do ip -n $pod -o -4 address show dev eth0 | sed \"s|.*inet \\([^/]*\\)/.*|$pod \\1|\"; done";
    let text = stdout_of(line, 0);
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let found: BTreeMap<String, String> = lines
        .map(|(pod, address)| (format!("default/{pod}"), address.to_owned()))
        .collect();
    let mut addresses: Vec<_> = found.values().collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), found.len(), "one twice: {found:?}");
    found
}

/// Pod to address, as the state has them.
fn held_addresses() -> BTreeMap<String, String> {
    let report: Value = serde_json::from_str(&stdout_of("azure-vnet-ipam show --json", 0)).unwrap();
    let holders = report["pools"].as_array().unwrap().iter();
    let holders = holders.flat_map(|pool| pool["holders"].as_array().unwrap());
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    holders
        .map(|holder| (text(&holder["pod"]), text(&holder["address"])))
        .collect()
}

/// Checks that `check`, run `seconds` later, finds nothing, and that state and kernel agree.
#[track_caller]
fn assert_repaired(seconds: u32) {
    let report = stdout_of(&format!("later {seconds} azure-vnet-ipam check"), 0);
    assert!(report.starts_with("Nothing is wrong; "), "{report}");
    assert_eq!(held_addresses(), running_pods());
}

/// The quarantine of a rebuilt state, plus one second.
const QUARANTINE: u32 = 31;

#[test]
#[ignore = "needs root, unshare, iproute2, perl and time namespaces"]
fn healthy_node_has_no_findings() {
    if !on_broken_node("healthy", "healthy_node_has_no_findings") {
        return;
    }
    assert_repaired(0);
    assert_eq!(running_pods().len(), 3);
    // The tools of the script work.
    let four = add_pod_later(0, "web-4");
    stdout_of("del web-1", 0);
    assert_repaired(0);
    stdout_of("vanish web-4", 0);
    let report = stdout_of("later 3700 azure-vnet-ipam check", 1);
    remedy(&report, &["leak", &four, "default/web-4"]);
}

#[test]
#[ignore = "needs root, unshare, iproute2, perl and time namespaces"]
fn leaked_addresses_are_reclaimed() {
    if !on_broken_node("leaked", "leaked_addresses_are_reclaimed") {
        return;
    }
    let (before, recorded) = (running_pods(), held_addresses());
    assert_eq!((before.len(), recorded.len()), (3, 5));
    let report = stdout_of("azure-vnet-ipam check", 1);
    assert!(report.starts_with("2 leaks; "), "{report}");
    let mut remedies = Vec::new();
    for pod in ["default/web-2", "default/web-5"] {
        let gone = "nothing on this node shows the pods";
        remedies.push(remedy(&report, &["leak", &recorded[pod], pod, gone]));
    }
    assert_eq!(remedies[0], remedies[1]);
    // The command is on its own line.
    let command = remedies[0].lines().last().unwrap().trim();
    assert_eq!(command, "sudo azure-vnet-ipam reclaim --yes");
    let freed = run_remedy(command);
    assert!(freed.starts_with("Freed 2 addresses:"), "{freed}");
    assert_eq!(running_pods(), before);
    assert_repaired(0);
    let new = add_pod_later(0, "new");
    assert!(!recorded.values().any(|address| *address == new), "{new}");
    assert_repaired(0);
}

/// Checks that the next ADD rebuilds the lost state and that no address is granted twice.
#[track_caller]
fn assert_rebuild_reported(report: &str, cause: &str) {
    const STATE: &str = "/var/run/azure-vnet-ipam.json";
    let before = running_pods();
    assert_eq!(before.len(), 3);
    let to_do = remedy(report, &["state", STATE, cause]);
    for words in [
        "no cleanup is needed",
        "running pods keep their addresses",
        "the next ADD rebuilds it",
        "new pods wait 30 s",
    ] {
        assert!(to_do.contains(words), "{words}: {to_do}");
    }
    let refused = stdout_of("add new", 1);
    assert!(refused.contains("the state was lost"), "{refused}");
    let report = stdout_of("azure-vnet-ipam check", 1);
    assert!(
        report.contains("the state was lost and rebuilt: new pods wait for "),
        "{report}"
    );
    assert_new_pod_harms_nobody(QUARANTINE, &before);
}

/// Checks that another pod gets an address of its own, and that all others keep theirs.
#[track_caller]
fn assert_new_pod_harms_nobody(wait: u32, before: &BTreeMap<String, String>) {
    let new = add_pod_later(wait, "new");
    assert!(!before.values().any(|address| *address == new), "{new}");
    let mut after = running_pods();
    after.remove("default/new");
    assert_eq!(after, *before, "who ran keeps the address");
}

#[test]
#[ignore = "needs root, unshare, iproute2, perl and time namespaces"]
fn corrupt_state_is_rebuilt() {
    if !on_broken_node("corrupt", "corrupt_state_is_rebuilt") {
        return;
    }
    stdout_of("rm /var/run/.azure-vnet-ipam.journal", 0);
    let report = stdout_of("azure-vnet-ipam check", 1);
    assert!(remedy(&report, &["state"]).ends_with("the corrupt file is kept"));
    assert_rebuild_reported(&report, "is corrupt");
    // The corrupt copy is kept, and is a note until someone removes it.
    let report = stdout_of(&format!("later {QUARANTINE} azure-vnet-ipam check"), 0);
    assert!(report.starts_with("Nothing is wrong; "), "{report}");
    let to_do = remedy(&report, &["set-aside", ".json.corrupt-"]);
    run_remedy(to_do.lines().last().unwrap().trim());
    assert_repaired(QUARANTINE);
}

#[test]
#[ignore = "needs root, unshare, iproute2, perl and time namespaces"]
fn deleted_state_is_restored() {
    if !on_broken_node("deleted", "deleted_state_is_restored") {
        return;
    }
    let report = stdout_of("azure-vnet-ipam check", 0);
    assert!(report.starts_with("Nothing is wrong; "), "{report}");
    let to_do = remedy(
        &report,
        &["state", "it is gone, though addresses were given"],
    );
    assert!(
        to_do.contains("the next ADD restores it at once"),
        "{to_do}"
    );
    assert_new_pod_harms_nobody(0, &running_pods());
    assert_repaired(0);
}

/// The commands below a remedy, one per line.
fn commands(remedy: &str) -> Vec<String> {
    let lines = remedy.lines().skip(1);
    lines.map(|line| line.trim().to_owned()).collect()
}

#[test]
#[ignore = "needs root, unshare, iproute2, perl, iptables and time namespaces"]
fn dead_wire_server_is_reported_with_a_remedy() {
    if !on_broken_node("dead-source", "dead_wire_server_is_reported_with_a_remedy") {
        return;
    }
    const SERVER: &str = "http://168.63.129.16/machine/plugins";
    let unanswered = |why: &str| {
        let report = stdout_of("azure-vnet-ipam check", 1);
        assert!(report.starts_with("1 source problem; "), "{report}");
        let meanwhile = "meanwhile pods get addresses of the stored pools";
        remedy(&report, &["source", SERVER, why, meanwhile])
    };
    let before = running_pods();
    let to_do = unanswered("it did not answer within 3 s");
    assert!(to_do.contains("or Azure's side"), "{to_do}");
    let commands = commands(&to_do);
    let [route, rules] = &commands[..] else {
        panic!("{commands:?}")
    };
    // The node can reach the address, but the server is dead. Pods are served from the stored pools, as the remedy says.
    assert!(run_remedy(route).contains(" dev eth0 "));
    let new = add_pod_later(0, "new");
    assert!(!before.values().any(|address| *address == new), "{new}");
    // The wire server comes back.
    stdout_of("wire start", 0);
    assert_repaired(0);
    // A wrong route on the node. The first command shows it.
    stdout_of(
        "ip route replace 168.63.129.16 dev azbr0; ip neigh replace 168.63.129.16 lladdr 12:34:56:78:9a:bc dev azbr0 nud permanent",
        0,
    );
    assert_eq!(unanswered(""), to_do);
    assert!(run_remedy(route).contains(" dev azbr0 "));
    stdout_of("ip route replace 168.63.129.16 dev wire0", 0);
    assert_repaired(0);
    // A firewall rule that drops the packets. The second command shows it.
    let rule = "OUTPUT -d 168.63.129.16/32 -j DROP";
    stdout_of(&format!("iptables -A {rule}"), 0);
    assert_eq!(unanswered("it did not answer within 3 s"), to_do);
    assert!(run_remedy(rules).contains(rule));
    stdout_of(&format!("iptables -D {rule}"), 0);
    assert_repaired(0);
}

#[test]
#[ignore = "needs root, unshare, iproute2, perl and time namespaces"]
fn changed_mac_address_is_reported_and_repaired() {
    if !on_broken_node("wrong-mac", "changed_mac_address_is_reported_and_repaired") {
        return;
    }
    let refused = stdout_of("add web-1", 1);
    let asks = "does the hardware address match? `azure-vnet-ipam check` compares them";
    assert!(refused.contains(asks), "{refused}");
    let report = stdout_of("azure-vnet-ipam check", 1);
    assert!(report.starts_with("1 interface problem; "), "{report}");
    let to_do = remedy(
        &report,
        &[
            "interface",
            "lists 7c:1e:52:f9:f3:c4, which no interface of this node has",
            "it has eth0 00:0d:3a:9f:12:34",
        ],
    );
    let (_, command) = to_do.split_once("changed by hand:").unwrap();
    let command = command.trim();
    let right = "sudo ip link set dev eth0 address 7c:1e:52:f9:f3:c4";
    assert_eq!(command, right);
    run_remedy(command);
    assert_repaired(0);
    add_pod_later(0, "web-1");
    assert_repaired(0);
    assert_eq!(running_pods().len(), 1);
}
