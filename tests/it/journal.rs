//! The journal of grants. With a complete journal, a lost state delays no pod and no address is granted twice. With an incomplete
//! one, the quarantine protects the addresses.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::contention::run_all_in_parallel;
use crate::families::{conf_of_two_families, node_of_two_families};
use crate::harness::{Node, Outcome, Reply, SUBNET, WireServer, conf, xml};
use crate::namespaces::Pods;
use crate::privileged::in_private_namespaces;

fn journal(node: &Node) -> PathBuf {
    node.path("/var/run/azure-vnet/azure-vnet-ipam.journal")
}

fn lines(node: &Node) -> Vec<String> {
    let text = fs::read_to_string(journal(node)).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// A node on which `c1` to `c3` hold addresses and `c4` released one. Only state and journal know them.
fn node(name: &str) -> (Node, WireServer) {
    let (node, wire) = Node::with_wire(name, Reply::Xml(xml(5..20)));
    for id in ["c1", "c2", "c3", "c4"] {
        node.add(id).success();
    }
    node.del("c4").assert_no_output();
    (node, wire)
}

const THREE: [(&str, &str); 3] = [
    ("10.224.0.5", "c1"),
    ("10.224.0.6", "c2"),
    ("10.224.0.7", "c3"),
];

#[track_caller]
fn assert_held(node: &Node, expected: &[(&str, &str)]) {
    let held: Vec<_> = node.held().into_iter().collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(address, id)| ((*address).to_owned(), (*id).to_owned()))
        .collect();
    assert_eq!(held, expected);
}

#[test]
fn lost_state_is_rebuilt_at_once_with_owners() {
    for damage in [None, Some(""), Some("{ half"), Some("\0\0\0\0")] {
        let (node, _wire) = node("journal");
        match damage {
            None => fs::remove_file(node.state_path()).unwrap(),
            Some(text) => fs::write(node.state_path(), text).unwrap(),
        }
        let address = node.add("c5").address();
        assert!(
            THREE.iter().all(|(held, _)| *held != address),
            "{damage:?}: {address}"
        );
        node.del("c5").assert_no_output();
        assert_held(&node, &THREE);
        // Once more: the journal continues with the new state.
        fs::remove_file(node.state_path()).unwrap();
        node.del("c2").assert_no_output();
        node.add("c1").success();
        assert_held(&node, &[THREE[0], THREE[2]]);
    }
}

#[test]
fn del_without_state_is_journaled() {
    for damage in [None, Some(""), Some("{ half")] {
        let (node, mut wire) = node("journaldel");
        match damage {
            None => fs::remove_file(node.state_path()).unwrap(),
            Some(text) => fs::write(node.state_path(), text).unwrap(),
        }
        node.del("c1").assert_no_output();
        // The same for a DEL that finds a state that could not be rebuilt yet.
        wire.stop();
        node.add("c9").error();
        node.del("c2").assert_no_output();
        wire.start();
        node.add("c3").success();
        assert_held(&node, &THREE[2..]);
    }
}

#[test]
fn old_state_copy_is_brought_up_to_date() {
    let (node, _wire) = Node::with_wire("oldcopies", Reply::Xml(xml(5..20)));
    let mut copies = Vec::new();
    for id in ["c1", "c2", "c3", "c4"] {
        node.add(id).success();
        copies.push(node.state_bytes());
    }
    node.del("c4").assert_no_output();
    copies.push(node.state_bytes());
    for (n, copy) in copies.iter().enumerate() {
        fs::write(node.state_path(), copy).unwrap();
        let address = node.add("new").address();
        assert!(
            THREE.iter().all(|(held, _)| *held != address),
            "copy {n}: {address}"
        );
        node.del("new").assert_no_output();
        assert_held(&node, &THREE);
        // A DEL also uses what only the journal knows.
        fs::write(node.state_path(), copy).unwrap();
        node.del("c3").assert_no_output();
        assert_held(&node, &THREE[..2]);
        let again = json!({ "subnet": SUBNET, "ipAddress": "10.224.0.7", "rest": 0 });
        let again = node.call("ADD", "c3").stdin(conf("0.3.0", again)).run();
        again.success();
    }
}

/// Ways to make the journal incomplete.
#[test]
fn incomplete_journal_causes_quarantine() {
    type Damage = fn(&Node);
    let damages: [(&str, Damage); 7] = [
        ("it is gone", |node| fs::remove_file(journal(node)).unwrap()),
        ("it is empty", |node| fs::write(journal(node), "").unwrap()),
        ("its first line is damaged", |node| {
            let text = fs::read_to_string(journal(node)).unwrap();
            fs::write(journal(node), text.replacen("journal 1", "journal X", 1)).unwrap();
        }),
        ("a line is missing", |node| {
            let mut lines = lines(node);
            lines.remove(2);
            fs::write(journal(node), lines.join("\n") + "\n").unwrap();
        }),
        ("a line is damaged", |node| {
            let text = fs::read_to_string(journal(node)).unwrap();
            fs::write(journal(node), text.replacen("\"c2\"", "\"c9\"", 1)).unwrap();
        }),
        ("its end is cut off", |node| {
            let lines = lines(node);
            // The grant and the release of c4.
            let kept = lines[..lines.len() - 2].join("\n") + "\n";
            fs::write(journal(node), kept).unwrap();
        }),
        ("it is of another boot", |node| {
            let text = fs::read_to_string(journal(node)).unwrap();
            let other = text.replacen("8f3c5c52-0000-4000-8000-000000000001", "another", 1);
            fs::write(journal(node), other).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let (node, _wire) = node("journalgap");
        damage(&node);
        fs::remove_file(node.state_path()).unwrap();
        let add = node.add("c5");
        assert_eq!(add.exit, Some(1), "{what}: {add:?}");
        add.assert_quarantined();
        // The remaining lines still hold their addresses.
        let held = node.held();
        let left = ["a line", "its end"]
            .iter()
            .any(|left| what.starts_with(left));
        assert_eq!(held.contains_key("10.224.0.5"), left, "{what}: {held:?}");
        node.advance_clock(31);
        node.add("c5").success();
    }
}

#[test]
fn torn_last_line_is_ignored() {
    let (node, _wire) = node("torn");
    let text = fs::read_to_string(journal(&node)).unwrap();
    // As after a kill while writing the line: the state is in place and nothing was printed.
    fs::write(journal(&node), format!("{text}6 0123 {{\"kind\":\"gra")).unwrap();
    fs::remove_file(node.state_path()).unwrap();
    node.add("c5").success();
    node.del("c5").assert_no_output();
    assert_held(&node, &THREE);
    // The torn line is removed before the next one is written.
    let text = fs::read_to_string(journal(&node)).unwrap();
    fs::write(journal(&node), format!("{text}99 x")).unwrap();
    node.add("c6").success();
    fs::remove_file(node.state_path()).unwrap();
    node.del("c6").assert_no_output();
    node.add("c7").success();
    node.del("c7").assert_no_output();
    assert_held(&node, &THREE);
}

#[test]
fn other_writer_causes_quarantine_for_a_while() {
    let (node, _wire) = node("others");
    // The original held the lock and granted an address that is not in the journal.
    let others = || fs::write(node.lock_path(), "4711").unwrap();
    others();
    fs::remove_file(node.state_path()).unwrap();
    node.add("c5").assert_quarantined();
    node.advance_clock(31);
    node.add("c5").success();
    // A call of ours in between does not hide that.
    others();
    node.del("c5").assert_no_output();
    fs::remove_file(node.state_path()).unwrap();
    node.add("c6").assert_quarantined();
    node.advance_clock(31);
    node.add("c6").success();
    // Half a minute later the addresses that it granted are visible on the node.
    others();
    node.del("c6").assert_no_output();
    node.advance_clock(31);
    fs::remove_file(node.state_path()).unwrap();
    node.add("c7").success();
}

#[test]
fn address_granted_by_0_1_0_makes_journal_incomplete() {
    let (node, _wire) = node("older");
    // Version 0.1.0 notes the last generation and drops unknown keys from the state.
    let used = node.path("/var/run/azure-vnet/azure-vnet-ipam.used");
    let note = fs::read_to_string(&used).unwrap();
    let (_, boot) = note.split_once(' ').unwrap();
    fs::write(&used, format!("{:020} {boot}", 77)).unwrap();
    fs::remove_file(node.state_path()).unwrap();
    node.add("c5").assert_quarantined();
}

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
fn journal_stays_small_and_keeps_every_holder() {
    let (node, _wire) = node("compact");
    let mut largest = 0;
    for _ in 0..400 {
        let address = node.add("c9").address();
        node.del("c9").assert_no_output();
        assert!(!address.is_empty());
        largest = largest.max(fs::metadata(journal(&node)).unwrap().len());
    }
    assert!((60 << 10..70 << 10).contains(&largest), "{largest}");
    assert!(fs::metadata(journal(&node)).unwrap().len() < largest);
    fs::remove_file(node.state_path()).unwrap();
    node.add("c9").success();
    node.del("c9").assert_no_output();
    assert_held(&node, &THREE);
}

#[test]
fn both_addresses_of_a_pod_share_one_line() {
    let (node, _wire) = node_of_two_families("journal-dual", 5..30);
    let add = |id: &str| node.call("ADD", id).stdin(conf_of_two_families()).run();
    add("c1").success();
    add("c2").success();
    let last = lines(&node).pop().unwrap();
    let json = last.splitn(3, ' ').nth(2).unwrap();
    let line: Value = serde_json::from_str(json).unwrap();
    assert_eq!(
        (&line["kind"], &line["id"]),
        (&json!("grant"), &json!("c2"))
    );
    assert_eq!(line["addresses"].as_array().unwrap().len(), 2);
    fs::remove_file(node.state_path()).unwrap();
    add("c3").success();
    assert_eq!(node.held().len(), 6);
}

#[test]
fn unwritable_journal_fails_no_call() {
    let (node, _wire) = Node::with_wire("nojournal", Reply::Xml(xml(5..20)));
    fs::create_dir_all(journal(&node)).unwrap();
    node.add("c1").success();
    node.add("c2").success();
    node.del("c1").assert_no_output();
    assert!(
        node.log()
            .contains("azure-vnet-ipam.journal could not be written")
    );
    fs::remove_file(node.state_path()).unwrap();
    node.add("c3").assert_quarantined();
    fs::remove_dir(journal(&node)).unwrap();
    node.advance_clock(31);
    node.add("c3").success();
}
