//! Ways to lose an address for good that were found by attacking the plugin: each of these was once possible.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Node, Reply, SUBNET, xml};
use crate::namespaces::Pods;
use crate::privileged::in_private_namespaces;
use crate::verbs::of_the_node;

const HOUR: u64 = 3600 + 1;

/// Lets the original save the state once: it renews its time stamp, and changes nothing else.
fn let_original_save(node: &Node) {
    let mut state = node.state();
    state["IPAM"]["TimeStamp"] = "2026-01-01T00:00:00Z".into();
    fs::write(node.state_path(), state.to_string()).unwrap();
}

/// What our part of the state says of an address.
fn facts(node: &Node, address: &str) -> Value {
    node.state()["azure-vnet-ipam"]["records"]["local"][SUBNET][address].clone()
}

#[test]
fn a_refused_add_saves_ages_when_the_original_wrote_last() {
    let (node, mut wire) = Node::with_wire("ages", Reply::Xml(xml([5])));
    node.add("c1").success();
    let_original_save(&node);
    wire.stop();
    node.advance_clock(100);
    let before = facts(&node, "10.224.0.5")["since"].clone();
    node.add("c2").error();
    let since = facts(&node, "10.224.0.5")["since"].clone();
    assert_ne!(since, before, "first seen now");
    node.advance_clock(100);
    node.add("c2").error();
    assert_eq!(facts(&node, "10.224.0.5")["since"], since);
}

#[test]
fn an_age_that_lies_ahead_begins_now() {
    let (node, mut wire) = Node::with_wire("ahead", Reply::Xml(xml([5])));
    node.add("c1").success();
    wire.stop();
    let mut state = node.state();
    let ours = &mut state["azure-vnet-ipam"]["records"]["local"][SUBNET]["10.224.0.5"];
    ours["since"] = (u64::MAX / 2).into();
    fs::write(node.state_path(), state.to_string()).unwrap();
    node.add("c2").error();
    let since = facts(&node, "10.224.0.5")["since"].as_u64().unwrap();
    assert!(since < u64::MAX / 2);
}

#[test]
fn a_gc_saves_ages_when_the_original_wrote_last() {
    let (node, _wire) = Node::with_wire("gcages", Reply::Xml(xml([5])));
    node.add("c1").success();
    let_original_save(&node);
    let gc = || {
        let nothing = json!({ "cni.dev/valid-attachments": [] });
        of_the_node(&node, "GC", nothing).run()
    };
    gc().silent();
    node.advance_clock(61);
    // Old enough now, and kept only because the node cannot be looked at here.
    assert_eq!(gc().error().1, "1 stale addresses are kept, 0 are freed");
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn leaks_come_back_after_the_original_wrote_last_and_the_source_died() {
    if !in_private_namespaces(
        "leaks::leaks_come_back_after_the_original_wrote_last_and_the_source_died",
    ) {
        return;
    }
    let mut pods = Pods::on_a_node(5..7);
    for pod in ["one", "two"] {
        pods.start(pod);
        pods.vanish(pod);
    }
    let_original_save(&pods.node);
    pods.wire.stop();
    pods.add("new").error();
    pods.add_later(HOUR, "new").success();
}
