//! The genuine azure-vnet, built from its source, with this plugin as its IPAM plugin. Each test has nodes in its own
//! namespaces.

pub mod host;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::callers::examples;
use crate::harness::wait::wait_until;
use crate::harness::{Outcome, Reply, sh, xml};
use crate::privileged::in_a_virtual_network;
use host::{
    AksNode, ENDPOINTS, Ipam, NODE, REPLACED, STATE, addresses_in, container, genuine, links, pod,
    version,
};

#[cfg(feature = "tls")]
const STATE_V6: &str = "/var/run/azure-vnet-ipamv6.json";
const BRIDGE: &str = "bridge";
const TRANSPARENT: &str = "transparent";

/// Runs a test on a node in its own namespaces, if azure-vnet was built. The name of the test is that of the function
/// that contains the closure.
#[track_caller]
fn on_a_node<T: FnOnce(AksNode)>(mode: &str, last: impl IntoIterator<Item = u16>, test: T) {
    let name = std::any::type_name::<T>().strip_prefix(concat!(env!("CARGO_CRATE_NAME"), "::"));
    let name = name
        .and_then(|name| name.strip_suffix("::{{closure}}"))
        .unwrap();
    if let Some(genuine) = genuine(name)
        && in_a_virtual_network(name, "")
    {
        let (_, mut conflist) = examples().into_iter().find(|e| e.0 == "azure").unwrap();
        conflist["plugins"][0]["mode"] = mode.into();
        test(AksNode::new(&genuine, conflist, last));
    }
}

/// Whether azure-vnet is newer than the replaced version. On a failed ADD, a newer version removes the endpoint
/// before it releases the address, even the endpoint of a running pod. It also passes a DEL on when its own state is
/// gone.
fn is_newer() -> bool {
    version() != REPLACED
}

/// The message of a failed call of azure-vnet.
#[track_caller]
fn message(outcome: &Outcome) -> (i64, String) {
    assert_eq!(outcome.exit, Some(1), "{outcome:?}");
    let error = outcome.json();
    (
        error["code"].as_i64().unwrap(),
        error["msg"].as_str().unwrap().to_owned(),
    )
}

/// What the state says about one address: attachment, pod and network namespace.
fn recorded(address: &str) -> Value {
    let state: Value = serde_json::from_slice(&fs::read(STATE).unwrap()).unwrap();
    state["azure-vnet-ipam"]["records"]["local"]["10.224.0.0/16"][address].clone()
}

fn check_life_of_pods(node: &AksNode) {
    // Three calls of azure-vnet may take long, so the cooldown must outlast them.
    fs::write("/etc/azure-vnet-ipam.json", r#"{"cooldown": 3600}"#).unwrap();
    // The first ADD creates the network, from the pool that the plugin chose.
    let one = node.add(1);
    assert_eq!(one, "10.224.0.5", "{}", node.logs());
    assert!(node.log().contains("subnet - address -"), "{}", node.log());
    let (two, three) = (node.add(2), node.add(3));
    assert!(
        node.log().contains("subnet 10.224.0.0/16 address -"),
        "{}",
        node.log()
    );
    let all = node.expected([(1, &*one), (2, &*two), (3, &*three)]);
    assert_eq!(node.held(), all);
    let endpoints = node.endpoints();
    assert_eq!(endpoints.len(), 3);
    for (n, address) in [(1, &one), (2, &two), (3, &three)] {
        assert_eq!(endpoints[&format!("{n:08x}-eth0")], *address);
        let record = recorded(address);
        assert_eq!(record["network"], "azure", "{record}");
        assert_eq!(record["ifName"], "eth0", "{record}");
        assert_eq!(record["pod"], format!("default/{}", pod(n)), "{record}");
    }
    check_commands(node, &[2, 3]);
    // Runtimes send a second DEL.
    node.del(1);
    node.del(1);
    // A container that azure-vnet never saw.
    node.del(77);
    let left = node.expected([(2, &*two), (3, &*three)]);
    assert_eq!(node.held(), left);
    assert_eq!(node.endpoints().len(), 2);
    let show = node.command("show --json").json().to_string();
    assert!(show.contains(r#""cooldown":1"#), "{show}");
    let four = node.add(4);
    assert!(
        ![&one, &two, &three].contains(&&four),
        "{one} is in cooldown: {four}"
    );
    check_commands(node, &[2, 3, 4]);
    for n in [2, 3, 4] {
        node.del(n);
    }
    assert!(node.held().is_empty() && node.endpoints().is_empty());
    // The kernel removes a namespace some time later, together with its link on the host.
    wait_until("the end of the pods' links", || {
        !links().iter().any(|link| link.starts_with("azv"))
    });
    check_commands(node, &[]);
}

/// Checks that the commands find nothing wrong, and show these pods.
#[track_caller]
fn check_commands(node: &AksNode, pods: &[u32]) {
    let check = node.command("check");
    assert_eq!(check.exit, Some(0), "{}{}", check.stdout, check.stderr);
    let show = node.command("show").stdout;
    for n in pods {
        assert!(show.contains(&format!("default/{}", pod(*n))), "{show}");
    }
}

#[test]
#[ignore = "needs root, iproute2, ebtables, procps and azure-vnet"]
fn pods_live_in_transparent_mode() {
    on_a_node(TRANSPARENT, 5..15, |node| check_life_of_pods(&node));
}

#[test]
#[ignore = "needs root, iproute2, ebtables, procps and azure-vnet"]
fn pods_live_in_bridge_mode() {
    on_a_node(BRIDGE, 5..15, |node| {
        check_life_of_pods(&node);
    });
}

/// azure-vnet answers a second ADD of a container with an error, and releases the address of the running pod. Newer
/// versions first remove the pod's network on the host. `take_down` is the command that does so for ADDRESS.
fn check_repeated_add(node: &AksNode, take_down: &str) {
    let (one, two) = (node.add(1), node.add(2));
    let (_, why) = message(&node.call("ADD", 1));
    assert!(why.contains("Endpoint already exists"), "{why}");
    if !is_newer() {
        let both = node.expected([(1, &*one), (2, &*two)]);
        assert_eq!(addresses_in(1), [format!("{one}/16")], "the pod goes on");
        assert_eq!(node.held(), both);
        check_commands(node, &[1, 2]);
    }
    // The DEL of the container releases the address.
    node.del(1);
    assert_eq!(node.held(), node.expected([(2, &*two)]));
    check_commands(node, &[2]);
    // Newer versions remove the pod's network, release the address, and only then delete the endpoint.
    node.release(2, &two);
    assert_eq!(node.held(), node.expected([(2, &*two)]));
    sh(take_down.replace("ADDRESS", &two).as_str());
    node.release(2, &two);
    assert!(node.held().is_empty());
    assert_eq!(node.endpoints().len(), 1);
}

#[test]
#[ignore = "needs root, iproute2, ebtables, procps and azure-vnet"]
fn repeated_add_keeps_the_address_in_transparent_mode() {
    on_a_node(TRANSPARENT, 5..9, |node| {
        check_repeated_add(&node, "ip route del ADDRESS")
    });
}

#[test]
#[ignore = "needs root, iproute2, ebtables, procps and azure-vnet"]
fn repeated_add_keeps_the_address_in_bridge_mode() {
    on_a_node(BRIDGE, 5..9, |node| {
        check_repeated_add(&node, "ip netns exec web-2 ip link del eth0")
    });
}

/// Uses transparent mode. In bridge mode azure-vnet needs the table `broute` for IPv6, which ebtables 1.8.9 with
/// nftables does not have.
#[cfg(feature = "tls")]
#[test]
#[ignore = "needs root, iproute2, ebtables, procps and azure-vnet"]
fn pods_have_addresses_of_both_families() {
    on_a_node(TRANSPARENT, 5..9, |node| {
        let (node, _api) = node.with_ipv6("fd00:10:224::/64");
        let both = |n: u32| {
            let result = node.try_add(n);
            assert_eq!(result.exit, Some(0), "{result:?} {}", node.logs());
            let ips = result.json()["ips"].clone();
            [0, 1].map(|i| {
                let address = ips[i]["address"].as_str().unwrap();
                address.split('/').next().unwrap().to_owned()
            })
        };
        let ([one, one_v6], [two, two_v6]) = (both(1), both(2));
        assert_eq!((&*one_v6, &*two_v6), ("fd00:10:224::2", "fd00:10:224::3"));
        let held = || (node.held(), node.held_in(STATE_V6));
        let expected = (
            node.expected([(1, &*one), (2, &*two)]),
            node.expected([(1, &*one_v6), (2, &*two_v6)]),
        );
        assert_eq!(held(), expected);
        let (_, why) = message(&node.call("ADD", 1));
        assert!(why.contains("Endpoint already exists"), "{why}");
        if !is_newer() {
            assert_eq!(held(), expected);
        }
        node.del(1);
        let left = (node.expected([(2, &*two)]), node.expected([(2, &*two_v6)]));
        assert_eq!(held(), left);
        node.del(2);
        assert!(node.held().is_empty() && node.held_in(STATE_V6).is_empty());
    });
}

#[test]
#[ignore = "needs root, iproute2, ebtables, procps and azure-vnet"]
fn failed_adds_leave_nothing_held() {
    on_a_node(TRANSPARENT, 5..7, |node| {
        // The answer does not list the node's interface. azure-vnet then deletes the state, although none exists, and
        // tries again.
        let listed = xml(5..7);
        node.wire
            .set(Reply::Xml(listed.replace("7C1E52F9F3C4", "7C1E52000000")));
        let (_, why) = message(&node.try_add(1));
        assert!(why.contains("no available address pools"), "{why}");
        assert_eq!(
            node.log().matches(" ADD container ").count(),
            2,
            "{}",
            node.log()
        );
        node.wire.set(Reply::Xml(listed));
        // A later step of azure-vnet fails, because no interface of the host is in the subnet.
        sh(&format!(
            "ip addr del {NODE}/16 dev eth0 && ip addr add {NODE} dev eth0 && ip route add 10.224.0.1 dev eth0 && ip route add default via 10.224.0.1"
        ));
        let (_, why) = message(&node.try_add(1));
        assert!(why.contains("Failed to find the master interface"), "{why}");
        assert!(node.held().is_empty(), "{:?}", node.held());
        sh(&format!(
            "ip addr del {NODE} dev eth0 && ip addr add {NODE}/16 dev eth0 && ip route add default via 10.224.0.1"
        ));
        // Another step fails after the network was created: the pod's network namespace is gone.
        let one = node.add(1);
        sh("ip netns add other && ip netns del other");
        let (_, why) = message(&node.call("ADD", 2));
        assert!(why.contains("ailed to create endpoint"), "{why}");
        let only = node.expected([(1, &*one)]);
        assert_eq!(node.held(), only);
        // Runtimes send a DEL after a failed ADD.
        node.del(2);
        // The pool is exhausted.
        let two = node.add(2);
        let both = node.expected([(1, &*one), (2, &*two)]);
        let (endpoints, before) = (fs::read(ENDPOINTS).unwrap(), links());
        let (_, why) = message(&node.try_add(3));
        let ours =
            "Failed to allocate address: No available addresses in 10.224.0.0/16: 2 held, 0 free";
        assert!(why.contains(ours), "{why}");
        assert_eq!(node.held(), both);
        assert_eq!((fs::read(ENDPOINTS).unwrap(), links()), (endpoints, before));
        node.del(3);
        assert_eq!(node.held(), both);
        // The last address is allocated although it is in cooldown.
        node.del(1);
        assert_eq!(node.add(3), one);
    });
}

#[test]
#[ignore = "needs root, iproute2, ebtables, procps and azure-vnet"]
fn lost_state_is_rebuilt_in_bridge_mode() {
    on_a_node(BRIDGE, 5..12, |node| {
        let (one, two) = (node.add(1), node.add(2));
        // The backup still exists.
        fs::remove_file(STATE).unwrap();
        let three = node.add(3);
        let all = node.expected([(1, &*one), (2, &*two), (3, &*three)]);
        assert_eq!(node.held(), all);
        // Without the backup, azure-vnet reports that the pod must wait, and does not delete the state.
        let lose = || {
            fs::remove_file(STATE).unwrap();
            fs::remove_file("/run/.azure-vnet-ipam.backup").unwrap();
        };
        lose();
        let (_, why) = message(&node.try_add(4));
        assert!(why.contains("the state is being rebuilt"), "{why}");
        assert_eq!(node.held(), all);
        let four = node.add_later(31, 4);
        for (n, address) in [(1, &one), (2, &two), (3, &three), (4, &four)] {
            let record = recorded(address);
            assert_eq!(record["pod"], format!("default/{}", pod(n)), "{record}");
        }
    });
}

/// Cilium's agent removes azure-vnet's state. Bridge mode is not tested: azure-vnet then makes its bridge a port of a
/// second bridge, and fails.
#[test]
#[ignore = "needs root, iproute2, ebtables, procps and azure-vnet"]
fn pods_that_azure_vnet_forgot_keep_their_addresses() {
    on_a_node(TRANSPARENT, 5..9, |node| {
        let (one, two) = (node.add(1), node.add(2));
        fs::remove_file(ENDPOINTS).unwrap();
        // azure-vnet knows no network. The replaced version then calls no IPAM plugin.
        node.call("DEL", 1).assert_no_output();
        let mut left = node.expected([(1, &*one), (2, &*two)]);
        if is_newer() {
            left.remove(&one);
        }
        assert_eq!(node.held(), left);
        // The next ADD of azure-vnet names no subnet.
        let three = node.add(3);
        left.insert(three, container(3));
        assert_eq!(node.held(), left);
        // azure-vnet passes a DEL on, even for a container ID that it does not know.
        node.del(2);
        left.remove(&two);
        assert_eq!(node.held(), left);
        node.del(1);
        node.del(3);
        assert!(node.held().is_empty());
    });
}

/// azure-vnet v1.4.59 does not compare boot times as a CNI plugin, so its state survives a reboot.
#[test]
#[ignore = "needs root, iproute2, ebtables, procps and azure-vnet"]
fn reboot_frees_the_addresses_of_all_pods() {
    on_a_node(TRANSPARENT, 5..8, |node| {
        for n in 1..=3 {
            node.add(n);
        }
        node.reboot("8f3c5c52-0000-4000-8000-000000000002");
        for n in 1..=3 {
            node.vanish(n);
        }
        let one = node.add(4);
        assert_eq!(node.held(), node.expected([(4, &*one)]));
        assert_eq!(node.endpoints().len(), 4, "azure-vnet keeps what it knew");
        // The runtime deletes the pods of the last boot.
        for n in 1..=3 {
            node.del(n);
        }
        assert_eq!(node.held(), node.expected([(4, &*one)]));
        assert_eq!(node.endpoints().len(), 1);
    });
}

/// The results of azure-vnet over the life of a node. Each ADD has only one address to choose from, so the results
/// can be compared.
fn history(node: &AksNode, ipam: Ipam) -> Vec<(String, Option<i32>, String)> {
    node.reset();
    node.use_ipam(ipam);
    let mut results = Vec::new();
    let mut call = |what: &str, outcome: Outcome| {
        results.push((what.to_owned(), outcome.exit, outcome.stdout));
    };
    node.list([]);
    call("ADD without any address", node.try_add(1));
    node.list([5]);
    call("first ADD", node.try_add(1));
    node.list([5, 6]);
    call("second ADD", node.try_add(2));
    call("ADD with an exhausted pool", node.try_add(3));
    call("DEL after it", node.call("DEL", 3));
    call("DEL", node.call("DEL", 1));
    node.vanish(1);
    call("DEL again", node.call("DEL", 1));
    call("DEL of an unknown container", node.call("DEL", 77));
    call("ADD of the address that came back", node.try_add(4));
    call("ADD of a container that runs", node.try_add(4));
    for n in [2, 4] {
        call("last DELs", node.call("DEL", n));
    }
    results
}

fn check_against_original(node: &AksNode) {
    let original = history(node, Ipam::Original);
    let ours = history(node, Ipam::Ours);
    assert_eq!(original.len(), ours.len());
    for (original, ours) in original.iter().zip(&ours) {
        // Difference D1: our message continues where the original's ends.
        let without_more = |text: &str| match text.split_once("No available addresses") {
            Some((start, _)) => start.to_owned(),
            None => text.to_owned(),
        };
        let ours = (ours.0.clone(), ours.1, without_more(&ours.2));
        let original = (original.0.clone(), original.1, without_more(&original.2));
        assert_eq!(ours, original);
    }
}

#[test]
#[ignore = "needs root, iproute2, ebtables, procps and azure-vnet"]
fn azure_vnet_returns_the_same_as_with_the_original() {
    on_a_node(TRANSPARENT, [5], |node| check_against_original(&node));
}

/// Checks that the IPAM state and azure-vnet's own have exactly these addresses.
#[track_caller]
fn assert_held(node: &AksNode, expected: &BTreeMap<String, String>) {
    assert_eq!(node.held(), *expected);
    let mut endpoints: Vec<_> = node.endpoints().into_values().collect();
    endpoints.sort();
    assert_eq!(endpoints, expected.keys().cloned().collect::<Vec<_>>());
}

/// The two plugins take turns on one state, below azure-vnet.
#[test]
#[ignore = "needs root, iproute2, ebtables, procps and azure-vnet"]
fn pods_live_while_the_plugin_is_exchanged() {
    on_a_node(TRANSPARENT, 5..60, |node| {
        let mut expected = BTreeMap::new();
        node.use_ipam(Ipam::Original);
        for n in 1..=20 {
            for (ipam, n) in [(Ipam::Original, n + 100), (Ipam::Ours, n)] {
                node.exchange(ipam);
                let address = node.add(n);
                assert!(expected.insert(address, container(n)).is_none());
                assert_held(&node, &expected);
            }
            if n % 2 == 0 {
                // Each plugin deletes a pod of the other.
                for (ipam, n) in [(Ipam::Ours, n + 100), (Ipam::Original, n)] {
                    node.exchange(ipam);
                    node.del(n);
                    expected.retain(|_, id| *id != container(n));
                    assert_held(&node, &expected);
                }
            }
        }
        assert!(Path::new(ENDPOINTS).exists());
    });
}
