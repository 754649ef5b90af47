//! The journal of grants. With a complete journal, a lost state delays no pod and no address is granted twice. With an incomplete
//! one, the quarantine protects the addresses.

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
    if in_private_namespaces("journal::crowd_on_a_real_node_survives_repeated_state_deletion") {
        let pods = Pods::in_namespaces(5..258);
        // Some pods run, so that a scan finds them.
        let running = ["one", "two", "three"].map(|pod| pods.start(pod));
        crowd_under_deletions(&pods.node);
        let held: Vec<_> = pods.held().into_keys().collect();
        assert_eq!(held, running);
    }
}

/// 200 parallel ADDs and their DELs. None is refused, no address is granted twice, and no other address changes.
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
    // Only now: after a deletion the state is empty until a call has rebuilt it.
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
fn journal_stays_small() {
    let (node, _wire) = Node::with_wire("compact", Reply::Xml(xml(5..20)));
    let length = || fs::metadata(node.journal_path()).unwrap().len();
    let mut largest = 0;
    for _ in 0..400 {
        node.add("c9").success();
        node.del("c9").assert_no_output();
        largest = largest.max(length());
    }
    assert!((60 << 10..70 << 10).contains(&largest), "{largest}");
    assert!(length() < largest);
}

#[test]
fn both_addresses_of_a_pod_share_one_line() {
    let (node, _wire) = node_of_two_families("journal-dual", 5..30);
    let add = |id: &str| node.call("ADD", id).stdin(conf_of_two_families()).run();
    add("c1").success();
    add("c2").success();
    let journal = fs::read_to_string(node.journal_path()).unwrap();
    let last = journal.lines().last().unwrap();
    for (address, id) in node.held() {
        assert_eq!(
            last.contains(&format!("\"{address}\"")),
            id == "c2",
            "{last}"
        );
    }
    fs::remove_file(node.state_path()).unwrap();
    add("c3").success();
    assert_eq!(node.held().len(), 6);
}

#[test]
fn unwritable_journal_fails_no_call() {
    let (node, _wire) = Node::with_wire("nojournal", Reply::Xml(xml(5..20)));
    node.add("c1").success();
    node.remove_journal();
    fs::create_dir(node.journal_path()).unwrap();
    node.add("c2").success();
    node.del("c1").assert_no_output();
    assert!(node.log().contains(".journal could not be written: "));
}
