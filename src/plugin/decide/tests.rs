//! A table of decisions: the state and what is known of the world in, the decision out.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::*;
use crate::ipam::{Attachment, Family, Free, Held, Inventory, ListedPool, NetNsId, Place, Usage};
use crate::state::Loss;

const SECOND: u64 = 1_000_000_000;
/// Every record of the tables is older than any age that matters.
const NOW: Moment = Moment(100_000 * SECOND);
const SUBNET: &str = "10.0.0.0/24";

/// Device and inode of the network namespace of others.
const OTHER: (u64, u64) = (4, 77);

/// The pod that asks.
const POD: &str = "pod";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn listing(addresses: &[&str]) -> Inventory {
    let addresses = addresses.iter().map(|a| ip(a)).collect();
    let pool = ListedPool::new(SUBNET.parse().unwrap(), "eth0".to_owned(), 0, addresses);
    Inventory { pools: vec![pool] }
}

fn attachment(container_id: &str) -> Attachment {
    Attachment {
        network: "azure".into(),
        container_id: container_id.into(),
        if_name: "eth0".into(),
    }
}

static NOT_ON_HOST: BTreeSet<IpAddr> = BTreeSet::new();

fn request(attachment: &Attachment, family: Family) -> Request<'_> {
    Request {
        attachment,
        space: "local",
        pool: PoolSelector::Any {
            family,
            if_name: None,
        },
        address: None,
        pod: None,
        netns: None,
        cooldown: Duration::from_secs(30),
        on_host: &NOT_ON_HOST,
        exclude: &[],
    }
}

/// A state of ours with one pool, of which each container of `held` holds the next address.
fn state(addresses: &[&str], held: &[&str]) -> State {
    let mut state = State::default();
    state.ipam_mut().merge(&listing(addresses));
    for container_id in held {
        let attachment = attachment(container_id);
        let request = request(&attachment, Family::V4);
        state.ipam_mut().allocate(&request, Moment(SECOND)).unwrap();
    }
    state
}

fn snapshot(in_use: &[&str], candidates: Vec<Candidate>) -> NodeSnapshot {
    let mut snapshot = NodeSnapshot {
        candidates,
        began: NOW,
        ..NodeSnapshot::default()
    };
    for address in in_use {
        let place = Place::Namespace("/run/netns/other".into());
        let kernel = &mut snapshot.evidence.kernel;
        kernel.configured.insert(ip(address), place);
        let inside = kernel.addresses_by_namespace.entry(OTHER);
        inside.or_default().insert(ip(address));
    }
    snapshot
}

fn lost(seen: Moment) -> Condition {
    Condition::Lost(Loss {
        why: "it is gone".into(),
        seen,
        ..Loss::default()
    })
}

/// No state, and nothing that shows that there ever was one.
fn nothing() -> State {
    let mut state = State::default();
    state.condition = Condition::Lost(Loss {
        seen: NOW,
        may_be_fresh: true,
        ..Loss::default()
    });
    state
}

/// A host that has these addresses.
#[derive(Debug)]
struct HostWith<'a>(&'a [&'a str]);

impl Host for HostWith<'_> {
    fn has(&self, address: IpAddr) -> bool {
        self.all().contains(&address)
    }

    fn all(&self) -> BTreeSet<IpAddr> {
        self.0.iter().map(|a| ip(a)).collect()
    }
}

/// What is known beside the state.
struct World<'a> {
    families: &'a [Family],
    listed: Option<&'a [&'a str]>,
    retry: Option<RefreshReason>,
    snapshot: Option<NodeSnapshot>,
    on_host: &'a [&'a str],
}

impl Default for World<'_> {
    fn default() -> Self {
        World {
            families: &[Family::V4],
            listed: None,
            retry: None,
            snapshot: None,
            on_host: &[],
        }
    }
}

/// A decision in a line: what it comes to, and who holds what afterwards.
fn decided(state: &mut State, world: &World<'_>) -> String {
    let attachment = attachment(POD);
    let families = world.families.iter();
    let requests: Vec<_> = families.map(|f| request(&attachment, *f)).collect();
    let inventory = world.listed.map(listing);
    let inputs = Inputs {
        requests: &requests,
        inventory: inventory.as_ref(),
        snapshot: world.snapshot.as_ref(),
        retry: world.retry,
        now: NOW,
    };
    let decision = decide(state, &inputs, &HostWith(world.on_host), &mut Vec::new());
    let outcome = match decision {
        Decision::Snapshot(candidates) => {
            let keys: Vec<_> = candidates.iter().map(|c| c.key.to_string()).collect();
            return format!("needs a snapshot of [{}]", keys.join(" "));
        }
        Decision::Refresh(_) => return "needs a refresh".to_owned(),
        Decision::Inconsistent(violations) => return format!("inconsistent: {violations:?}"),
        Decision::Granted(grants) => {
            let addresses = grants.iter().map(|grant| {
                let again = matches!(grant.kind, GrantKind::Renewed);
                let addr = grant.address.addr();
                addr.to_string() + if again { " again" } else { "" }
            });
            addresses.collect::<Vec<_>>().join(", ")
        }
        Decision::Refused(refusal) => {
            let name = format!("{refusal:?}");
            name.split([' ', '{']).next().unwrap().to_owned()
        }
    };
    let saved = if state.must_save { "save" } else { "keep" };
    let records = state.ipam().pools().flat_map(|(_, _, pool)| &pool.records);
    let held = records.filter_map(|record| {
        let held: &Held = record.held()?;
        let last = record.key.to_string();
        let last = last.rsplit('.').next().unwrap().to_owned();
        let owner = held.owner.container_id().unwrap_or_default();
        Some(format!("{last}={owner}"))
    });
    let held: Vec<_> = held.collect();
    format!("{outcome}; {saved}; {}", held.join(" "))
}

/// The records of a full pool, to be judged.
fn candidates_of(state: &State) -> Vec<Candidate> {
    let attachment = attachment(POD);
    candidates(state.ipam(), &[request(&attachment, Family::V4)], NOW)
}

fn assert_decided(name: &str, mut state: State, world: World<'_>, expected: &str) {
    assert_eq!(decided(&mut state, &world), expected, "{name}");
}

#[test]
fn a_state_that_can_be_relied_on_decides_alone() {
    let two = ["10.0.0.4", "10.0.0.5"];
    for (name, held, world, expected) in [
        (
            "a free address is granted",
            &["a"][..],
            World::default(),
            "10.0.0.5; save; 4=a 5=pod",
        ),
        (
            "a repeated ADD renews",
            &["a", POD],
            World::default(),
            "10.0.0.5 again; save; 4=a 5=pod",
        ),
        (
            "the source is asked before a refusal",
            &["a", "b"],
            World {
                retry: Some(RefreshReason::Newer),
                ..World::default()
            },
            "needs a refresh",
        ),
        (
            "a full pool needs a look at its holders",
            &["a", "b"],
            World::default(),
            "needs a snapshot of [10.0.0.4 10.0.0.5]",
        ),
        (
            "an address of the host is skipped",
            &[],
            World {
                on_host: &["10.0.0.4"],
                ..World::default()
            },
            "10.0.0.5; save; 5=pod",
        ),
        (
            "one of two families alone is not granted",
            &[],
            World {
                families: &[Family::V4, Family::V6],
                ..World::default()
            },
            "NoPools; save; ",
        ),
        (
            "an address that left the source is not granted",
            &[],
            World {
                listed: Some(&["10.0.0.5"]),
                ..World::default()
            },
            "10.0.0.5; save; 5=pod",
        ),
        (
            "new addresses may be in use already",
            &[],
            World {
                listed: Some(&["10.0.0.4", "10.0.0.5", "10.0.0.6"]),
                ..World::default()
            },
            "needs a snapshot of []",
        ),
        (
            "a new address in use is held for an unknown owner",
            &["a"],
            World {
                listed: Some(&["10.0.0.4", "10.0.0.5", "10.0.0.6"]),
                snapshot: Some(snapshot(&["10.0.0.6"], vec![])),
                ..World::default()
            },
            "10.0.0.5; save; 4=a 5=pod 6=",
        ),
    ] {
        assert_decided(name, state(&two, held), world, expected);
    }
}

#[test]
fn a_full_pool_is_reclaimed_only_from_the_dead() {
    let full = || state(&["10.0.0.4", "10.0.0.5"], &["a", "b"]);
    for (name, in_use, expected) in [
        ("nobody is alive", &[][..], "10.0.0.4; save; 4=pod"),
        ("one is alive", &["10.0.0.4"], "10.0.0.5; save; 4=a 5=pod"),
        (
            "both are alive",
            &["10.0.0.4", "10.0.0.5"],
            "Exhausted; save; 4=a 5=b",
        ),
    ] {
        let state = full();
        let world = World {
            snapshot: Some(snapshot(in_use, candidates_of(&state))),
            ..World::default()
        };
        assert_decided(name, state, world, expected);
    }
    let state = full();
    let mut incomplete = snapshot(&[], candidates_of(&state));
    incomplete.evidence.kernel.incomplete = Some("/proc is hidden".to_owned());
    let world = World {
        snapshot: Some(incomplete),
        ..World::default()
    };
    let expected = "Exhausted; save; 4=a 5=b";
    assert_decided("an incomplete look frees nothing", state, world, expected);
}

#[test]
fn a_fresh_node_starts_when_the_kernel_agrees() {
    let listed = Some(&["10.0.0.4", "10.0.0.5"][..]);
    for (name, world, expected) in [
        ("there are no pools", World::default(), "NoSpace; keep; "),
        (
            "the node must be looked at",
            World {
                listed,
                ..World::default()
            },
            "needs a snapshot of []",
        ),
        (
            "nothing is in use",
            World {
                listed,
                snapshot: Some(snapshot(&[], vec![])),
                ..World::default()
            },
            "10.0.0.4; save; 4=pod",
        ),
        (
            "an address in use means that a state was lost",
            World {
                listed,
                snapshot: Some(snapshot(&["10.0.0.4"], vec![])),
                ..World::default()
            },
            "Quarantined; save; 4=",
        ),
    ] {
        assert_decided(name, nothing(), world, expected);
    }
}

#[test]
fn a_state_that_cannot_be_relied_on_is_compared_with_the_node_first() {
    let two = ["10.0.0.4", "10.0.0.5"];
    let state = |pending: Condition| {
        let mut state = state(&two, &["a"]);
        state.condition = pending;
        state
    };
    let pending = [Condition::Reconcile, Condition::NewBoot, lost(NOW)];
    for work in pending {
        let name = format!("{work:?}");
        let expected = "needs a snapshot of []";
        assert_decided(&name, state(work), World::default(), expected);
    }
    for (name, pending, in_use, expected) in [
        (
            "the original's state holds what the node shows besides",
            Condition::Reconcile,
            &["10.0.0.5"][..],
            "needs a snapshot of [10.0.0.4]",
        ),
        (
            "after a reboot what nothing shows is free",
            Condition::NewBoot,
            &[],
            "10.0.0.4; save; 4=pod",
        ),
        (
            "after a reboot what the kernel shows is held",
            Condition::NewBoot,
            &["10.0.0.4"],
            "10.0.0.5; save; 4=a 5=pod",
        ),
        (
            "after a loss everybody waits for those who were under way",
            lost(NOW),
            &["10.0.0.5"],
            "Quarantined; save; 4= 5=",
        ),
        (
            "a loss that was seen long ago has no quarantine left",
            lost(Moment(SECOND)),
            &[],
            "10.0.0.5; save; 4= 5=pod",
        ),
    ] {
        let world = World {
            snapshot: Some(snapshot(in_use, vec![])),
            ..World::default()
        };
        assert_decided(name, state(pending), world, expected);
    }
}

#[test]
fn what_an_incomplete_journal_holds_is_held_for_nobody_known() {
    let two = ["10.0.0.4", "10.0.0.5"];
    let journaled = Some(Box::new(state(&two, &["a"]).ipam().clone()));
    for (name, listed, expected) in [
        ("with the source", Some(&two[..]), "Quarantined; save; 4="),
        ("without it", None, "Quarantined; save; 4="),
    ] {
        let world = World {
            listed,
            snapshot: Some(snapshot(&[], vec![])),
            ..World::default()
        };
        let mut state = State::default();
        state.condition = Condition::Lost(Loss {
            seen: NOW,
            journaled: journaled.clone(),
            ..Loss::default()
        });
        assert_decided(name, state, world, expected);
    }
}

/// The DEL of a pod comes before its network namespace is taken down, and no other DEL follows.
#[test]
fn an_address_that_was_just_released_cools_down_though_its_namespace_shows_it() {
    let two = ["10.0.0.4", "10.0.0.5"];
    let (just, long_ago) = (Moment(NOW.0 - SECOND), Moment(NOW.0 - 31 * SECOND));
    for (name, released, id, condition, expected) in [
        (
            "just",
            just,
            OTHER,
            Condition::Reconcile,
            "10.0.0.5; save; 5=pod",
        ),
        (
            "long ago",
            long_ago,
            OTHER,
            Condition::Reconcile,
            "10.0.0.5; save; 4= 5=pod",
        ),
        (
            "another namespace",
            just,
            (4, 1),
            Condition::Reconcile,
            "10.0.0.5; save; 4= 5=pod",
        ),
        ("an old copy", just, OTHER, lost(NOW), "Quarantined; save; "),
    ] {
        let mut state = state(&two, &[]);
        let pool = state.ipam_mut().pools_mut().next().unwrap();
        pool.records[0].usage = Usage::Free(Free {
            released: Some(released),
            released_in: Some(NetNsId { id, cookie: None }),
            ..Free::default()
        });
        state.condition = condition;
        let world = World {
            snapshot: Some(snapshot(&["10.0.0.4"], vec![])),
            ..World::default()
        };
        assert_decided(name, state, world, expected);
    }
}

#[test]
fn an_operator_reclaims_nothing_in_a_quarantine() {
    for (end, expected) in [(None, false), (Some(Moment(NOW.0 + SECOND)), true)] {
        let mut state = state(&["10.0.0.4"], &["dead"]);
        let snapshot = snapshot(&[], candidates_of(&state));
        state.ipam_mut().quarantine = end;
        reclaim(&mut state, &snapshot, NOW, &mut Vec::new());
        let is_held = state.ipam().holders().next().is_some();
        assert_eq!(is_held, expected, "{end:?}");
    }
}

#[test]
fn a_quarantine_is_ended_by_a_snapshot_that_is_newer_than_its_end() {
    let state = || {
        let mut state = state(&["10.0.0.4"], &[]);
        state.ipam_mut().quarantine = Some(Moment(NOW.0 - SECOND));
        state
    };
    let early = NodeSnapshot {
        began: Moment(NOW.0 - 2 * SECOND),
        ..NodeSnapshot::default()
    };
    for (name, snapshot, expected) in [
        ("no snapshot", None, "needs a snapshot of []"),
        (
            "one from during the quarantine",
            Some(early),
            "needs a snapshot of []",
        ),
        (
            "a newer one",
            Some(snapshot(&[], vec![])),
            "10.0.0.4; save; 4=pod",
        ),
    ] {
        let world = World {
            snapshot,
            ..World::default()
        };
        assert_decided(name, state(), world, expected);
    }
}

#[test]
fn a_loss_stays_pending_until_there_are_pools() {
    let mut state = State::default();
    state.condition = lost(NOW);
    let world = World {
        snapshot: Some(snapshot(&[], vec![])),
        ..World::default()
    };
    assert_eq!(decided(&mut state, &world), "NoSpace; keep; ");
    assert_eq!(state.condition, lost(NOW));
}
