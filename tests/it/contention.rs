//! Many processes in parallel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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
fn two_hundred_parallel_containers_get_distinct_addresses() {
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
    for ((command, id), outcome) in adds.iter().zip(run_in_parallel(&node, &adds)) {
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
    for outcome in run_in_parallel(&node, &dels) {
        outcome.success();
    }
    assert!(node.held().is_empty());
    assert_eq!(node.leftover_files(), [""; 0]);
}

#[test]
fn small_pool_serves_as_many_as_it_has() {
    let (node, _wire) = Node::with_wire("small", Reply::Xml(xml(5..35)));
    let adds: Vec<_> = (0..60).map(|n| ("ADD", format!("c{n}"))).collect();
    let outcomes = run_in_parallel(&node, &adds);
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

#[test]
fn full_pool_never_gives_an_address_twice_under_churn() {
    let (node, _wire) = Node::with_wire("churn", Reply::Xml(xml(5..15)));
    let node = &node;
    // Each thread is a container that comes and goes. Between its ADD and its DEL nobody else may hold its address.
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
                    node.del(&id).assert_no_output();
                }
            });
        }
    });
    assert!(node.held().is_empty());
}

/// A call, as observed from outside.
struct Seen {
    command: &'static str,
    id: String,
    began: Instant,
    ended: Instant,
    /// The address that an ADD returned.
    address: Option<String>,
    fine: bool,
}

/// Checks that no address has two holders. A container holds its address from the end of its ADD to the start of its DEL.
fn check_for_overlaps(mut seen: Vec<Seen>) -> usize {
    seen.sort_by_key(|s| s.began);
    let end_of_time = seen.iter().map(|s| s.ended).max().unwrap();
    // By address: the holders, each with start and end.
    let mut held: BTreeMap<String, Vec<(Instant, Instant, String)>> = BTreeMap::new();
    for add in &seen {
        let Some(address) = add.address.as_ref().filter(|_| add.command == "ADD") else {
            continue;
        };
        let del = seen
            .iter()
            .find(|d| d.command == "DEL" && d.id == add.id && d.ended > add.began);
        let until = del.map_or(end_of_time, |d| d.began);
        if until > add.ended {
            held.entry(address.clone())
                .or_default()
                .push((add.ended, until, add.id.clone()));
        }
    }
    for (address, times) in &held {
        for (n, (from, until, id)) in times.iter().enumerate() {
            for (other_from, other_until, other) in &times[n + 1..] {
                let apart = until <= other_from || other_until <= from;
                assert!(
                    apart || id == other,
                    "{address} was held by {id} and {other} at once"
                );
            }
        }
    }
    held.values().map(Vec::len).sum()
}

#[test]
fn small_pool_with_flapping_source_never_overlaps() {
    const CROWD: usize = 256;
    const WAVES: u64 = 12;
    let (node, wire) = Node::with_wire("mob", Reply::Xml(xml(5..45)));
    let node = &node;
    let seen = std::sync::Mutex::new(Vec::new());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (wire, is_over) = (&wire, &is_over);
        let _over = SetOnDrop(is_over);
        scope.spawn(move || {
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
            for mood in moods.iter().cycle() {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                wire.set(mood.clone());
                thread::sleep(some);
            }
        });
        for wave in 0..WAVES {
            // All containers in parallel: ADD, repeated ADD, DEL, or DEL before ADD.
            let callers: Vec<_> = (0..CROWD)
                .map(|n| {
                    let seen = &seen;
                    scope.spawn(move || {
                        let dice = (wave * 31 + n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60;
                        let command = if dice < 9 { "ADD" } else { "DEL" };
                        let id = format!("c{}-{}", n % 96, wave / 3);
                        let began = Instant::now();
                        let outcome = node.call(command, &id).run();
                        let ended = Instant::now();
                        let address = (command == "ADD" && outcome.exit == Some(0))
                            .then(|| outcome.address());
                        let fine = outcome.exit == Some(0) || outcome.error().0 == 100;
                        seen.lock().unwrap().push(Seen {
                            command,
                            id,
                            began,
                            ended,
                            address,
                            fine,
                        });
                    })
                })
                .collect();
            callers.into_iter().for_each(|c| c.join().unwrap());
            // Release everything, to make room for the next wave.
            for id in node.held().into_values() {
                let began = Instant::now();
                node.del(&id).assert_no_output();
                seen.lock().unwrap().push(Seen {
                    command: "DEL",
                    id,
                    began,
                    ended: Instant::now(),
                    address: None,
                    fine: true,
                });
            }
        }
    });
    let seen = seen.into_inner().unwrap();
    assert!(
        seen.iter().all(|s| s.fine),
        "a call failed for another reason than a full pool"
    );
    let calls = seen.len();
    let holdings = check_for_overlaps(seen);
    println!("{calls} calls, {holdings} holdings without overlap");
    assert!(holdings > 30);
}

#[test]
fn overlap_check_detects_overlaps() {
    let now = Instant::now();
    let at = |ms: u64| now + Duration::from_millis(ms);
    let add = |id: &str, from: u64, to: u64| Seen {
        command: "ADD",
        id: id.into(),
        began: at(from),
        ended: at(to),
        address: Some("10.0.0.1".into()),
        fine: true,
    };
    let del = |id: &str, from: u64, to: u64| Seen {
        command: "DEL",
        id: id.into(),
        began: at(from),
        ended: at(to),
        address: None,
        fine: true,
    };
    assert_eq!(
        check_for_overlaps(vec![
            add("a", 0, 1),
            del("a", 5, 7),
            add("b", 4, 6),
            del("b", 8, 9)
        ]),
        2
    );
    let twice = std::panic::catch_unwind(|| {
        check_for_overlaps(vec![
            add("a", 0, 1),
            del("a", 5, 7),
            add("b", 2, 4),
            del("b", 8, 9),
        ])
    });
    assert!(twice.is_err());
}
