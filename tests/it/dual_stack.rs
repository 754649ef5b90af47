//! Dual-stack pods of real main plugins, with the shipped conflists.

use std::ops::Range;

use serde_json::Value;

use crate::callers::{Host, later};
use crate::harness::wait::{output, wait_until};
use crate::harness::{MAC, OwnSubnets, Reply, sh};
use crate::privileged::{
    in_private_namespaces_with_all_processes as in_private_namespaces, only_in,
};

/// A host whose wire server lists addresses of both families.
fn host_of_two_families(last: Range<u16>) -> Host {
    let host = Host::new([]);
    let one = |address: String| format!(r#"<IPAddress Address="{address}" IsPrimary="false"/>"#);
    let ipv4: String = last.clone().map(|n| one(host.subnets.ipv4(n))).collect();
    let ipv6: String = last.map(|n| one(host.subnets.ipv6(n))).collect();
    let OwnSubnets {
        ipv4: subnet,
        ipv6: subnet_v6,
        ..
    } = host.subnets;
    host.wire.set(Reply::Xml(format!(
        r#"<Interfaces><Interface MacAddress="{MAC}" IsPrimary="true"><IPSubnet Prefix="{subnet}">{ipv4}</IPSubnet><IPSubnet Prefix="{subnet_v6}">{ipv6}</IPSubnet></Interface></Interfaces>"#
    )));
    host
}

/// Adds a pod and returns its addresses, IPv4 first.
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

#[test]
#[ignore = "needs root, iproute2, cnitool and the plugin ptp"]
fn lost_state_is_rebuilt_with_both_families() {
    only_in!(in_private_namespaces);
    const NET: &str = "azure-dual-ptp";
    let host = host_of_two_families(5..20);
    let pods = ["pod1", "pod2"].map(|pod| (pod, add(&host, NET, pod)));
    for (pod, both) in &pods {
        assert!(!both[0].contains(':') && both[1].contains(':'), "{both:?}");
        let checked = host.cnitool("check", NET, pod);
        assert!(checked.status.success(), "{checked:?}");
    }
    assert_eq!(host.held().len(), 4);
    // Without a state, the addresses of both families that the kernel shows are held.
    std::fs::remove_file("/run/azure-vnet-ipam.json").unwrap();
    std::fs::remove_file("/run/.azure-vnet-ipam.backup").unwrap();
    sh("ip netns add pod3");
    let waiting = host.cnitool("add", NET, "pod3");
    assert!(!waiting.status.success(), "{waiting:?}");
    let mut expected: Vec<String> = pods.iter().flat_map(|(_, both)| both.clone()).collect();
    expected.sort();
    assert_eq!(host.held(), expected);
    for (pod, _) in &pods {
        host.del(NET, pod);
    }
    assert!(host.held().is_empty());
}

#[test]
#[ignore = "needs root, iproute2, cnitool and the plugin ptp"]
fn host_routes_and_addresses_protect_ipv6_too() {
    only_in!(in_private_namespaces);
    let host = host_of_two_families(5..10);
    // Addresses of the host and addresses with a host route are not allocated.
    let [five, six] = [5, 6].map(|n| host.subnets.ipv6(n));
    sh(&format!(
        "ip -6 route add {five}/128 dev eth0 && ip -6 address add {six}/128 dev lo"
    ));
    let [v4, v6] = add(&host, "azure-dual-ptp", "pod1");
    assert_eq!(v4, host.subnets.ipv4(5));
    assert_eq!(v6, host.subnets.ipv6(7));
    // The pod vanishes without a DEL. One of its addresses still has a host route.
    sh(&format!(
        "ip netns del pod1 && ip -6 route add {v6}/128 dev eth0 metric 5"
    ));
    wait_until("the end of the pod's link", || {
        !sh("ip -o link show type veth").contains(": veth")
    });
    let hours_later = |words: &[&str]| {
        let mut command = later(7200, &host.folder.join("bin/azure-vnet-ipam"));
        let output = output(command.args(words));
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let explanation = hours_later(&["show", &v6]);
    assert!(
        explanation.contains("the host has a route to it"),
        "{explanation}"
    );
    let explanation = hours_later(&["show", &v4]);
    assert!(
        explanation.contains(&format!("{v6} of the same pod is configured")),
        "{explanation}"
    );
    hours_later(&["reclaim", "--yes"]);
    assert_eq!(host.held(), [v4.as_str(), v6.as_str()]);
    sh(&format!("ip -6 route del {v6}/128 dev eth0"));
    hours_later(&["reclaim", "--yes"]);
    assert!(host.held().is_empty());
}
