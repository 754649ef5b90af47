//! The backup. A lost state that the backup can replace delays no pod, and no address is allocated twice.

use std::collections::BTreeMap;
use std::fs;

use crate::contention::run_all_in_parallel;
use crate::families::{conf_of_two_families, node_of_two_families};
use crate::harness::{Node, Outcome, Reply, xml};
use crate::namespaces::Pods;
use crate::privileged::in_private_namespaces;

#[test]
fn crowd_survives_repeated_state_deletion() {
    let (node, _wire) = Node::with_wire("deletions", Reply::Xml(xml(5..258)));
    crowd_under_deletions(&node);
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn crowd_on_a_real_node_survives_repeated_state_deletion() {
    if in_private_namespaces("backup::crowd_on_a_real_node_survives_repeated_state_deletion") {
        let pods = Pods::in_namespaces(5..258);
        // Some pods run, so that a scan finds them.
        let running = ["one", "two", "three"].map(|pod| pods.start(pod));
        crowd_under_deletions(&pods.node);
        let held: Vec<_> = pods.held().into_keys().collect();
        assert_eq!(held, running);
    }
}

/// Runs 200 parallel ADDs and their DELs. No call is refused, no address is allocated twice, and no other address
/// changes.
fn crowd_under_deletions(node: &Node) {
    node.add("c0").success();
    let running: Vec<_> = (1..200)
        .map(|n| {
            if n % 20 == 0 {
                let _ = fs::remove_file(node.state_path());
            }
            node.call("ADD", &format!("c{n}")).start()
        })
        .collect();
    let mut given = BTreeMap::new();
    for (n, call) in running.into_iter().enumerate() {
        let address = call.finish().address();
        let earlier = given.insert(address.clone(), format!("c{}", n + 1));
        assert_eq!(earlier, None, "{address} is given twice");
    }
    // Read this last: after a deletion the state is empty until a call has rebuilt it.
    let held = node.held();
    for (address, id) in &given {
        assert_eq!(held.get(address), Some(id), "{address}");
    }
    let dels = (0..200).map(|n| node.call("DEL", &format!("c{n}")));
    run_all_in_parallel(dels)
        .iter()
        .for_each(Outcome::assert_no_output);
    assert!(node.held().values().all(|id| !id.starts_with('c')));
}

#[test]
fn lost_state_of_two_families_is_restored() {
    let (node, _wire) = node_of_two_families("backup-dual", 5..30);
    let add = |id: &str| node.call("ADD", id).stdin(conf_of_two_families()).run();
    add("c1").success();
    add("c2").success();
    fs::remove_file(node.state_path()).unwrap();
    add("c3").success();
    assert_eq!(node.held().len(), 6);
}

#[test]
fn unwritable_backup_fails_no_call() {
    let (node, _wire) = Node::with_wire("nobackup", Reply::Xml(xml(5..20)));
    node.add("c1").success();
    node.remove_backup();
    fs::create_dir(node.backup_path()).unwrap();
    node.add("c2").success();
    node.del("c1").assert_no_output();
    assert!(node.log().contains(".backup could not be written: "));
}
