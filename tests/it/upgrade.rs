//! Upgrades from version 0.2.0. The files are those of a node with the pods c1 and c2, after a release of 10.224.0.7.

use std::fs;

use serde_json::Value;

use crate::harness::{Node, Reply, WireServer, xml};
use crate::model::original;

const OLD_JOURNAL: &str = "/var/run/.azure-vnet-ipam.journal";

fn node_of_version_0_2(name: &str) -> (Node, WireServer) {
    let (node, wire) = Node::with_wire(name, Reply::Xml(xml(5..10)));
    for (path, content) in [
        (
            "/var/run/azure-vnet-ipam.json",
            include_str!("../fixtures/v0.2.0/state.json"),
        ),
        (OLD_JOURNAL, include_str!("../fixtures/v0.2.0/journal")),
        (
            "/var/run/azure-vnet/azure-vnet-ipam.lock",
            include_str!("../fixtures/v0.2.0/lock"),
        ),
    ] {
        node.put(path, content);
    }
    (node, wire)
}

/// Changes the records of the pool as a call of the original does.
fn originals_call(node: &Node, change: impl FnOnce(&mut serde_json::Map<String, Value>)) {
    let mut state = node.state();
    change(original::records(&mut state).unwrap());
    state["IPAM"]["TimeStamp"] = "2026-01-01T00:00:00Z".into();
    fs::write(node.state_path(), state.to_string()).unwrap();
    fs::write(node.lock_path(), original::LOCK_TEXT).unwrap();
}

fn held(node: &Node) -> Vec<String> {
    let held = node.held().into_iter();
    held.map(|(address, id)| format!("{address}={id}"))
        .collect()
}

#[test]
fn pods_outlive_an_upgrade_a_rollback_to_the_original_and_another_upgrade() {
    let (node, _wire) = node_of_version_0_2("upgrade");
    assert_eq!(node.add("c1").address(), "10.224.0.5", "a repeated ADD");
    assert!(!node.path(OLD_JOURNAL).exists());
    assert_eq!(
        node.add("c4").address(),
        "10.224.0.8",
        "what it released is in cooldown"
    );
    let records = &node.state()["azure-vnet-ipam"]["records"]["local"]["10.224.0.0/16"];
    assert_eq!(
        records["10.224.0.6"]["ifName"], "eth0",
        "who holds what is kept"
    );
    node.del("c2").assert_no_output();
    originals_call(&node, |records| {
        original::take(records, "10.224.0.7", "c5");
        original::release(records, "c4");
    });
    assert_eq!(node.add("c6").address(), "10.224.0.9");
    node.del("c5").assert_no_output();
    assert_eq!(held(&node), ["10.224.0.5=c1", "10.224.0.9=c6"]);
    // Version 0.2.0 refuses this format, with an error that names both versions.
    assert_eq!(node.state()["azure-vnet-ipam"]["format"], 4);
}

#[test]
fn a_del_is_the_first_call_after_an_upgrade() {
    let (node, _wire) = node_of_version_0_2("upgrade-del");
    node.del("c2").assert_no_output();
    assert_eq!(held(&node), ["10.224.0.5=c1"]);
    assert_eq!(node.add("c4").address(), "10.224.0.8");
}

#[test]
fn a_quarantine_goes_on_after_an_upgrade() {
    let (node, _wire) = node_of_version_0_2("upgrade-quarantine");
    let mut state = node.state();
    state["azure-vnet-ipam"]["quarantineUntil"] = (1_u64 << 50).into();
    fs::write(node.state_path(), state.to_string()).unwrap();
    node.add("c4").assert_quarantined();
}

#[test]
fn a_state_from_before_an_upgrade_is_an_old_copy_after_it() {
    let (node, _wire) = node_of_version_0_2("upgrade-old");
    let old = node.state_bytes();
    node.add("c4").success();
    fs::write(node.state_path(), &old).unwrap();
    assert_eq!(node.add("c5").address(), "10.224.0.9");
    fs::write(node.state_path(), &old).unwrap();
    node.remove_backup();
    node.add("c6").assert_quarantined();
}
