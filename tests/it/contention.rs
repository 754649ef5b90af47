//! Many processes in parallel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::wait::SetOnDrop;
use crate::harness::{Call, Node, Outcome, Reply, Running, xml};

/// Starts all ADDs or DELs before it waits for any of them.
fn run_in_parallel(node: &Node, calls: &[(&str, String)]) -> Vec<Outcome> {
    let calls = calls.iter().map(|(command, id)| node.call(command, id));
    run_all_in_parallel(calls)
}

/// Starts all calls before it waits for any of them.
pub fn run_all_in_parallel<'a>(calls: impl Iterator<Item = Call<'a>>) -> Vec<Outcome> {
    let running: Vec<_> = calls.map(Call::start).collect();
    running.into_iter().map(Running::finish).collect()
}

#[test]
fn parallel_containers_get_as_many_addresses_as_there_are() {
    let (node, _wire) = Node::with_wire("crowd", Reply::Xml(xml(5..155)));
    let with_versions = |command: &'static str| {
        let ids = (0..200).map(|n| format!("c{n}"));
        ids.enumerate().flat_map(move |(n, id)| {
            let version = (n % 10 == 0).then(|| ("VERSION", String::new()));
            [(command, id)].into_iter().chain(version)
        })
    };
    let adds: Vec<_> = with_versions("ADD").collect();
    let mut given = BTreeMap::new();
    for ((command, id), outcome) in adds.iter().zip(run_in_parallel(&node, &adds)) {
        if *command == "VERSION" {
            assert!(outcome.success().stdout.contains("supportedVersions"));
        } else if outcome.exit == Some(0) {
            let other = given.insert(outcome.address(), id.clone());
            assert_eq!(other, None, "given twice");
        } else {
            assert_eq!(outcome.error().0, 100);
        }
    }
    assert_eq!(given.len(), 150);
    assert_eq!(node.held(), given, "what the callers got");
    let dels: Vec<_> = with_versions("DEL").collect();
    for outcome in run_in_parallel(&node, &dels) {
        outcome.success();
    }
    assert!(node.held().is_empty());
    assert_eq!(node.leftover_files(), [""; 0]);
}

#[test]
fn parallel_adds_of_one_container_share_one_address() {
    let (node, _wire) = Node::with_wire("same", Reply::Xml(xml(5..35)));
    let adds = vec![("ADD", "c1".to_owned()); 30];
    let given: BTreeSet<_> = run_in_parallel(&node, &adds)
        .iter()
        .map(Outcome::address)
        .collect();
    assert_eq!(given.len(), 1);
    assert_eq!(node.held().len(), 1);
}

/// Each thread is a container that is created and deleted. Between its ADD and its DEL, no other container may get
/// its address.
#[test]
fn full_pool_with_flapping_source_never_allocates_an_address_twice() {
    let (node, wire) = Node::with_wire("churn", Reply::Xml(xml(5..45)));
    let holders = Mutex::new(BTreeMap::<String, String>::new());
    let refused = AtomicUsize::new(0);
    let is_over = AtomicBool::new(false);
    let good = || Reply::Xml(xml(5..45));
    let some = Duration::from_millis(40);
    let moods = [
        good(),
        Reply::Status(500, String::new()),
        good(),
        Reply::Xml(xml(5..30)),
        Reply::After(some, Box::new(good())),
        Reply::Raw(b"HTT".to_vec()),
    ];
    let come_and_go = &|n: usize| {
        for id in (0..12).map(|round| format!("c{n}-{}", round / 2)) {
            let add = node.add(&id);
            let address = (add.exit == Some(0)).then(|| add.address());
            if let Some(address) = &address {
                let other = holders.lock().unwrap().insert(address.clone(), id.clone());
                assert_eq!(other, None, "{address} is held by two");
                assert_eq!(node.add(&id).address(), *address, "its repeated ADD");
                holders.lock().unwrap().remove(address);
            } else {
                assert_eq!(add.error().0, 100, "{add:?}");
                refused.fetch_add(1, Ordering::SeqCst);
            }
            node.del(&id).assert_no_output();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for mood in moods.iter().cycle() {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                wire.set(mood.clone());
                thread::sleep(some);
            }
        });
        let _over = SetOnDrop(&is_over);
        let threads: Vec<_> = (0..96)
            .map(|n| scope.spawn(move || come_and_go(n)))
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    println!("{refused:?} ADDs were refused");
    assert!(node.held().is_empty());
}
