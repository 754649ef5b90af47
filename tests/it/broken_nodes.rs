//! A table of broken nodes. On each, `check` reports the problems and predicts an ADD; a real ADD verifies the prediction; the
//! commands that `check` printed are run as they stand; and then `check` finds nothing, with every pod as it was.
//!
//! `rows` has the table. `tests/broken/node` makes a node with pods in namespaces of its own, which may be broken already. A row breaks it with shell
//! commands. One row of each kind of finding has its screen in `tests/fixtures/broken`; `ACCEPT=1` takes new ones.

mod examine;
mod rows;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use proptest::prelude::{Just, ProptestConfig, Strategy};
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestRunner};
use serde_json::Value;

use crate::harness::wait::output;
use crate::harness::{binary, package};
use crate::privileged::{in_private_namespaces_with_all_processes, only_in, run_again};
use examine::{
    assert_commands_are_harmless, assert_prediction, break_node, check, examine, stdout_of,
    try_command,
};

/// One broken node.
#[derive(Debug)]
struct Row {
    /// Its name: that of the test and of the fixture.
    name: &'static str,
    /// Whether its screen is compared with a fixture.
    screen: bool,
    /// The kind of node, of which `tests/broken/node` knows six.
    kind: &'static str,
    /// What breaks it beside that.
    broken_by: &'static str,
    /// The kinds of findings that are errors or warnings, as `check` orders them; a group counts once.
    findings: &'static [&'static str],
    /// Whether an ADD succeeds.
    add: Add,
    /// What a person does whom no command can replace: the administrator of Azure, or of the network. The network configuration and
    /// Azure's answer are put back where nothing else is to be done.
    by_hand: &'static str,
    /// The name of the plugin that is examined.
    program: &'static str,
    /// How much later everything happens, in seconds, so that what is dead counts as such.
    later: u32,
    /// How many seconds after that it is healed.
    heals_after: u32,
}

/// What an ADD comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Add {
    /// It gets an address.
    Succeeds,
    /// It fails.
    Fails,
    /// It fails, and succeeds when the runtime tries again half a minute later.
    Waits,
    /// Nobody can know.
    Unknown,
}

/// A healthy node, as the base of all rows.
const HEALTHY: Row = Row {
    name: "",
    screen: false,
    kind: "healthy",
    broken_by: "true",
    program: "azure-vnet-ipam",
    findings: &[],
    add: Add::Succeeds,
    by_hand: "cp $REPOSITORY/testdata/bridge.conflist /etc/cni/net.d/10-bridge.conflist; cd /run/broken-node; rm -f wire.xml.http; cp $REPOSITORY/testdata/wire.xml .",
    later: 0,
    heals_after: 0,
};

fn row(name: &str) -> &'static Row {
    rows::all()
        .into_iter()
        .find(|row| row.name == name)
        .unwrap()
}

/// The test of a row. `path` is its path in this crate.
fn test_row(path: &str, name: &str) {
    let row = row(name);
    let (_, test) = path.split_once("::").unwrap();
    let mut node = Command::new(package().join("tests/broken/node"));
    if run_again(test, node.arg(row.kind).env("BIN", binary())) {
        examine(row);
    }
}

/// The names of two rows, in the second run of the test.
const CAUSES: &str = "AZURE_VNET_IPAM_CAUSES";
/// The exit status of that run where a cause cannot be made beside the other.
const NOT_MADE: i32 = 3;

/// On nodes with the causes of two rows, chosen at random, a real ADD verifies what `check` predicts. The commands that it prints then
/// harm neither the network of the host nor a pod. `PROPTEST_RNG_SEED` chooses other nodes, and `LONG=1` more of them.
#[test]
#[ignore = "needs root, unshare, iproute2, perl, iptables and time namespaces"]
fn two_causes_on_one_node_are_predicted() {
    if let Ok(names) = std::env::var(CAUSES) {
        let rows: Vec<&Row> = names.split(' ').map(row).collect();
        if break_node(&rows).is_err() {
            std::process::exit(NOT_MADE);
        }
        let later = rows.iter().map(|row| row.later).max().unwrap();
        let (report, _) = check(later);
        assert_prediction(later, &report);
        assert_commands_are_harmless(later, &report);
        return;
    }
    let seed = std::env::var("PROPTEST_RNG_SEED").map_or(1, |seed| seed.parse().unwrap());
    let count = if std::env::var_os("LONG").is_some() {
        300
    } else {
        100
    };
    let test = "broken_nodes::two_causes_on_one_node_are_predicted";
    let rows = rows::all();
    let pairs = rows.iter().flat_map(|a| rows.iter().map(|b| [*a, *b]));
    // Of two kinds of nodes, one must be the healthy one.
    let can_be_one = |[a, b]: &[&Row; 2]| {
        let is_alone = a.name == b.name || [a.name, b.name].contains(&"healthy");
        !is_alone && (a.kind == b.kind || [a.kind, b.kind].contains(&HEALTHY.kind))
    };
    let pairs = Just(pairs.filter(can_be_one).collect::<Vec<_>>()).prop_shuffle();
    let mut random = TestRunner::new(ProptestConfig {
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    });
    let pairs = Mutex::new(pairs.new_tree(&mut random).unwrap().current());
    let (made, wrong) = (AtomicUsize::new(0), Mutex::new(String::new()));
    let try_nodes = || {
        while made.load(Ordering::SeqCst) < count {
            let [a, b] = pairs.lock().unwrap().pop().unwrap();
            let kind = [a.kind, b.kind][usize::from(a.kind == HEALTHY.kind)];
            let mut node = Command::new(package().join("tests/broken/node"));
            node.arg(kind).arg(std::env::current_exe().unwrap());
            node.args(["--exact", test, "--ignored", "--nocapture"]);
            node.env("BIN", binary());
            println!("{} and {}", a.name, b.name);
            let done = output(node.env(CAUSES, format!("{} {}", a.name, b.name)));
            let status = done.status.code();
            made.fetch_add(usize::from(status != Some(NOT_MADE)), Ordering::SeqCst);
            if ![Some(0), Some(NOT_MADE)].contains(&status) {
                let text = String::from_utf8_lossy(&done.stderr);
                *wrong.lock().unwrap() += &format!("{} and {}: {text}\n", a.name, b.name);
            }
        }
    };
    thread::scope(|scope| [(); 4].map(|()| drop(scope.spawn(try_nodes))));
    println!("seed {seed}: {made:?} nodes");
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{wrong}");
}

/// A pod whose network namespace is mounted only in the mount namespace of another process, and no link of the host leads to.
const POD_IN_ANOTHER_MOUNT_NAMESPACE: &str = r#"
    address=$(add former)
    ip netns del former
    rm /var/lib/cni/results/*
    ip netns add hidden
    ip -n hidden link add b0 type bridge
    ip -n hidden addr add "$address/16" dev b0
    setsid unshare -m --propagation private sleep 600 </dev/null >/dev/null 2>&1 &
    ln -s real/$! /proc/$!
    until [[ $(cat /proc/$!/comm) == sleep ]]; do sleep 0.05; done
    until ! umount /run/netns/hidden 2>/dev/null; do :; done
"#;

#[test]
#[ignore = "needs root, unshare, iproute2, perl, setpriv and time namespaces"]
fn process_that_may_not_be_inspected_makes_the_scan_incomplete() {
    let test = "broken_nodes::process_that_may_not_be_inspected_makes_the_scan_incomplete";
    let mut node = Command::new(package().join("tests/broken/node"));
    if !run_again(test, node.arg("healthy").env("BIN", binary())) {
        return;
    }
    for line in [
        "cp /opt/cni/bin/azure-vnet-ipam $OURS",
        POD_IN_ANOTHER_MOUNT_NAMESPACE,
    ] {
        try_command(line).unwrap();
    }
    let (report, _) = check(3700);
    assert_eq!(report["notSeen"], serde_json::json!([]), "{report:#}");
    let leaks = |report: &Value| {
        let findings = report["findings"].as_array().unwrap().iter();
        findings.filter(|finding| finding["kind"] == "leak").count()
    };
    assert_eq!(leaks(&report), 0, "{report:#}");
    // Root without this capability may not look at the mounts of other processes.
    let blind =
        "later 3700 setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace $OURS check --json";
    let report: Value = serde_json::from_str(&stdout_of(blind)).unwrap();
    let not_seen = report["notSeen"][0].as_str().unwrap();
    assert!(not_seen.contains("may not be inspected"), "{report:#}");
    assert_eq!(leaks(&report), 0, "{report:#}");
}

/// Three nodes on a machine without the folders of CNI: one after whose end nothing is to be done, one that is killed, and one
/// whose parent is killed. Prints which folders are left. Prints nothing before all processes of the nodes have ended.
const KILLED_NODES: &str = r#"
    mount -t tmpfs none /mnt
    for folder in /etc /opt /var/lib; do
        mkdir -p "/mnt$folder/upper" "/mnt$folder/work"
        mount -t overlay -o "lowerdir=$folder,upperdir=/mnt$folder/upper,workdir=/mnt$folder/work" none "$folder"
    done
    rm -rf /etc/cni /opt/cni /var/lib/cni
    mkfifo /mnt/namespaces
    exec 5<>/mnt/namespaces
    # Whatever keeps a namespace: another mount namespace, a pod, a stopped process.
    program='setsid unshare -m --propagation private sleep 600 & ip netns exec web-1 sleep 600 & kill -STOP $!
        readlink /proc/self/ns/uts >&5; sleep 600'
    "$1" healthy true
    "$1" healthy bash -c "$program" &
    node=$!
    read -r first <&5
    bash -c '"$1" healthy bash -c "$2"; true' bash "$1" "$program" &
    parent=$!
    read -r second <&5
    kill -KILL $node $parent
    for namespace in "$first" "$second"; do
        until ! readlink /proc/[0-9]*/ns/uts | grep -qF "$namespace"; do sleep 0.05; done
    done
    ls -d /etc/cni /opt/cni /var/lib/cni 2>/dev/null || true
"#;

#[test]
#[ignore = "needs root, unshare, iproute2, perl, setpriv and overlay mounts"]
fn killed_nodes_leave_no_folders_and_no_processes() {
    only_in!(in_private_namespaces_with_all_processes);
    let mut left = Command::new("sh");
    left.args(["-c", KILLED_NODES, "sh"]);
    let left = output(
        left.arg(package().join("tests/broken/node"))
            .env("BIN", binary()),
    );
    assert_eq!(String::from_utf8_lossy(&left.stdout), "", "{left:?}");
    assert!(left.status.success(), "{left:?}");
}

#[test]
fn every_kind_of_finding_has_one_screen() {
    let (with_screen, others): (Vec<&Row>, Vec<&Row>) =
        rows::all().into_iter().partition(|row| row.screen);
    let shown: BTreeSet<_> = with_screen.iter().flat_map(|row| row.findings).collect();
    let found: BTreeSet<_> = others.iter().flat_map(|row| row.findings).collect();
    assert!(found.is_subset(&shown), "{found:?}");
    let names: BTreeSet<_> = with_screen
        .iter()
        .map(|row| format!("{}.txt", row.name))
        .collect();
    let folder = fs::read_dir(package().join("tests/fixtures/broken")).unwrap();
    let files = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.collect::<BTreeSet<_>>(), names);
}
