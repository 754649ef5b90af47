//! Pods with an address of each family, made by main plugins that nobody here wrote, on the conflists that are shipped.

use std::process::Command;

use serde_json::Value;

use crate::callers::{Host, ping};
use crate::families::xml;
use crate::harness::{Reply, sh};
use crate::privileged::in_private_namespaces;

/// Adds a pod; gives its addresses, IPv4 first.
fn add(host: &Host, network: &str, pod: &str) -> [String; 2] {
    sh(&format!("ip netns add {pod}"));
    let output = host.cnitool("add", network, pod);
    assert!(output.status.success(), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ips = result["ips"].as_array().unwrap();
    let address = |n: usize| {
        let text = ips[n]["address"].as_str().unwrap();
        text.split('/').next().unwrap().to_owned()
    };
    assert_eq!(ips.len(), 2, "{result}");
    [address(0), address(1)]
}

/// Two pods reach each other over both families, and so does one that comes later; the routes of both lead out.
fn two_pods(host: &Host, network: &str, gateway: &str) {
    let pods = ["pod1", "pod2"].map(|pod| (pod, add(host, network, pod)));
    for ((from, _), (_, to)) in [(&pods[0], &pods[1]), (&pods[1], &pods[0])] {
        assert!(!to[0].contains(':') && to[1].contains(':'), "{to:?}");
        for address in to {
            ping(from, address);
        }
        ping(from, gateway);
        let mut shown = Command::new("ip");
        shown.args(["-n", from, "-6", "route", "show", "default"]);
        let routes = String::from_utf8(shown.output().unwrap().stdout).unwrap();
        assert!(routes.contains(&format!("via {gateway}")), "{routes}");
        let checked = host.cnitool("check", network, from);
        assert!(checked.status.success(), "{checked:?}");
    }
    assert_eq!(host.held().len(), 4);
    // Somebody removes the state: what the kernel shows of either family is held.
    std::fs::remove_file("/run/azure-vnet-ipam.json").unwrap();
    sh("ip netns add pod3");
    let waiting = host.cnitool("add", network, "pod3");
    assert!(!waiting.status.success(), "{waiting:?}");
    let mut expected: Vec<String> = pods.iter().flat_map(|(_, both)| both.clone()).collect();
    expected.sort();
    assert_eq!(host.held(), expected);
    for (pod, _) in &pods {
        host.del(network, pod);
    }
    assert!(host.held().is_empty());
}

#[test]
#[ignore = "needs root, iproute2, ping, cnitool and the plugin bridge"]
fn pods_on_a_bridge_reach_each_other_over_both_families() {
    if in_private_namespaces("dual_stack::pods_on_a_bridge_reach_each_other_over_both_families") {
        let host = Host::new([]);
        host.wire.set(Reply::Xml(xml(5..20, 5..20)));
        two_pods(&host, "azure-dual-bridge", "fd00:1:2::1");
    }
}

#[cfg(feature = "tls")]
#[test]
#[ignore = "needs root, iproute2, ping, cnitool and the plugin ptp"]
fn pods_point_to_point_with_ipv6_of_the_nodes_own_range() {
    if in_private_namespaces("dual_stack::pods_point_to_point_with_ipv6_of_the_nodes_own_range") {
        let host = Host::new(5..20);
        sh("mkdir -p /var/lib/kubelet && mount -t tmpfs none /var/lib/kubelet");
        sh("echo Node1 >/proc/sys/kernel/hostname");
        let api = crate::kubernetes::joined_below(std::path::Path::new("/"));
        two_pods(&host, "azure-dual-ptp", "fd00:10:244:3::1");
        assert!(api.requests()[0].starts_with("GET /api/v1/nodes/node1 "));
    }
}

#[test]
#[ignore = "needs root, iproute2, cnitool and the plugin bridge"]
fn routes_and_addresses_of_the_host_speak_for_ipv6_too() {
    if !in_private_namespaces("dual_stack::routes_and_addresses_of_the_host_speak_for_ipv6_too") {
        return;
    }
    let host = Host::new([]);
    host.wire.set(Reply::Xml(xml(5..10, 5..10)));
    // What the host has, or has a route to, is not given.
    sh("ip -6 route add fd00:1:2::5/128 dev eth0 && ip -6 address add fd00:1:2::6/128 dev lo");
    let [v4, v6] = add(&host, "azure-dual-bridge", "pod1");
    assert_eq!((&*v4, &*v6), ("10.224.0.5", "fd00:1:2::7"));
    // The pod goes, and nobody says so; of its addresses one still has a route.
    sh("ip netns del pod1 && ip -6 route add fd00:1:2::7/128 dev eth0");
    let hours_later = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--time", "--boottime", "7200", "--fork"]);
        command.arg(host.folder.join("bin/azure-vnet-ipam"));
        let output = command.args(words).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let told = hours_later(&["explain", &v6]);
    assert!(told.contains("the host has a route to it"), "{told}");
    let told = hours_later(&["explain", &v4]);
    assert!(
        told.contains("fd00:1:2::7 of the same pod is configured"),
        "{told}"
    );
    hours_later(&["reclaim", "--yes"]);
    assert_eq!(host.held(), [v4, v6]);
    sh("ip -6 route del fd00:1:2::7/128 dev eth0");
    hours_later(&["reclaim", "--yes"]);
    assert!(host.held().is_empty());
}
