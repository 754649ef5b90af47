//! Many real processes at once.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Instant;

use crate::harness::{Node, Outcome, Reply, outcome, xml};

/// Starts all of these calls before it waits for any.
fn at_once(node: &Node, calls: &[(&str, String)]) -> Vec<Outcome> {
    let start = Instant::now();
    let running: Vec<_> = calls
        .iter()
        .map(|(command, id)| node.call(command, id).spawn())
        .collect();
    // Readers for all, so that no call waits for its output to be taken.
    let readers: Vec<_> = running
        .into_iter()
        .map(|c| thread::spawn(move || outcome(c, start)))
        .collect();
    readers.into_iter().map(|r| r.join().unwrap()).collect()
}

#[test]
fn two_hundred_containers_come_and_go() {
    let (node, _wire) = Node::with_wire("crowd", Reply::Xml(xml(5..259)));
    let with_versions = |command: &'static str| {
        let ids = (0..200).map(|n| format!("c{n}"));
        ids.enumerate().flat_map(move |(n, id)| {
            let version = (n % 10 == 0).then(|| ("VERSION", String::new()));
            [(command, id)].into_iter().chain(version)
        })
    };
    let adds: Vec<_> = with_versions("ADD").collect();
    let mut given = BTreeMap::new();
    for ((command, id), outcome) in adds.iter().zip(at_once(&node, &adds)) {
        if *command == "ADD" {
            assert_eq!(
                given.insert(outcome.address(), id.clone()),
                None,
                "given twice"
            );
        } else {
            assert!(outcome.success().stdout.contains("supportedVersions"));
        }
    }
    assert_eq!(given.len(), 200);
    assert_eq!(
        node.held(),
        given,
        "the state says what the callers were told"
    );
    let dels: Vec<_> = with_versions("DEL").collect();
    for outcome in at_once(&node, &dels) {
        outcome.success();
    }
    assert!(node.held().is_empty());
    assert_eq!(node.left_overs(), [""; 0]);
}

#[test]
fn a_pool_that_is_too_small_serves_as_many_as_it_has() {
    let (node, _wire) = Node::with_wire("small", Reply::Xml(xml(5..35)));
    let adds: Vec<_> = (0..60).map(|n| ("ADD", format!("c{n}"))).collect();
    let outcomes = at_once(&node, &adds);
    let given: BTreeSet<_> = outcomes
        .iter()
        .filter(|o| o.exit == Some(0))
        .map(Outcome::address)
        .collect();
    assert_eq!(given.len(), 30);
    for refused in outcomes.iter().filter(|o| o.exit != Some(0)) {
        assert_eq!(refused.error().0, 100);
    }
    assert_eq!(node.held().len(), 30);
}

#[test]
fn the_same_container_many_times_holds_one_address() {
    let (node, _wire) = Node::with_wire("same", Reply::Xml(xml(5..35)));
    let adds = vec![("ADD", "c1".to_owned()); 30];
    let given: BTreeSet<_> = at_once(&node, &adds).iter().map(Outcome::address).collect();
    assert_eq!(given.len(), 1);
    assert_eq!(node.held().len(), 1);
}

#[test]
fn coming_and_going_in_a_full_pool_never_gives_an_address_twice() {
    let (node, _wire) = Node::with_wire("churn", Reply::Xml(xml(5..15)));
    let node = &node;
    // Each thread is a container that comes and goes; what it holds between its ADD and its DEL, nobody else may hold.
    let holders = std::sync::Mutex::new(BTreeMap::<String, String>::new());
    thread::scope(|scope| {
        for n in 0..20 {
            let holders = &holders;
            scope.spawn(move || {
                for round in 0..5 {
                    let id = format!("c{n}-{round}");
                    let add = node.add(&id);
                    if add.exit == Some(0) {
                        let address = add.address();
                        let other = holders.lock().unwrap().insert(address.clone(), id.clone());
                        assert_eq!(other, None, "{address} is held by two");
                        holders.lock().unwrap().remove(&address);
                    }
                    node.del(&id).silent();
                }
            });
        }
    });
    assert!(node.held().is_empty());
}
