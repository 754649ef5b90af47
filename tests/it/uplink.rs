//! Reachability under each example of a conflist, on a node of a virtual network that `tests/uplink` creates.

use std::fs;

use serde_json::Value;

use crate::callers::tool;
use crate::genuine_azure_vnet::host::{AksNode, genuine};
use crate::harness::{Reply, package, sh, sh_with, xml};
use crate::privileged::in_a_virtual_network;

/// The connections that must work on every node.
const ALL: &str = "host-outside host-pod host-vm pod-host pod-outside pod-pod pod-vm vm-pod";

/// Adds two pods to a node with this conflist. Checks which connections work, in each family of addresses.
fn examine(test: &str, conflist: &str, metric: &str, expected: &str) {
    let conflist = fs::read(package().join(conflist)).unwrap();
    let conflist: Value = serde_json::from_slice(&conflist).unwrap();
    let main_plugin = conflist["plugins"][0]["type"].as_str().unwrap().to_owned();
    let folder = match &*main_plugin {
        "azure-vnet" => genuine(test),
        name => tool(name).parent().map(ToOwned::to_owned),
    };
    let Some(folder) = folder else { return };
    if !in_a_virtual_network(test, metric) {
        return;
    }
    let node = AksNode::new(&folder, conflist, 5..9);
    if main_plugin == "azure-vnet" {
        // The other main plugins turn on forwarding.
        sh("sysctl -qw net.ipv4.ip_forward=1");
    }
    let address = |n| format!(r#"<IPAddress Address="fd00:224::{n}" IsPrimary="false"/>"#);
    let ipv6: String = (5..9).map(address).collect();
    let ipv6 = format!(r#"<IPSubnet Prefix="fd00:224::/64">{ipv6}</IPSubnet></Interface>"#);
    node.wire
        .set(Reply::Xml(xml(5..9).replace("</Interface>", &ipv6)));
    #[cfg(feature = "tls")]
    let _api = crate::genuine_azure_vnet::host::join_cluster("fd00:10:244::/64");
    for n in [1, 2] {
        let added = node.try_add(n);
        assert_eq!(added.exit, Some(0), "{added:?} {}", node.logs());
    }
    let script = package().join("tests/uplink");
    let reached = sh_with("\"$1\" --reach web-1 web-2", &[&script]);
    let families = 1 + usize::from(test.contains("dual_stack") || test.contains("ipv6"));
    assert_eq!(
        reached.lines().collect::<Vec<_>>(),
        vec![expected; families]
    );
    let check = node.command("check");
    let status = i32::from(expected != ALL);
    assert_eq!(check.exit, Some(status), "{}", check.stdout);
}

macro_rules! nodes {
    ($($name:ident: $conflist:literal, $metric:literal, $reached:expr;)*) => {$(
        #[test]
        #[ignore = "needs root, iproute2, procps, ping, the plugins bridge and ptp, and azure-vnet"]
        fn $name() {
            examine(concat!("uplink::", stringify!($name)), $conflist, $metric, $reached);
        }
    )*};
}

nodes! {
    ptp: "conflist-examples/ptp.conflist", "", ALL;
    ptp_beside_a_metric: "conflist-examples/ptp.conflist", "100", ALL;
    ptp_dual_stack: "conflist-examples/ptp-dual-stack.conflist", "", ALL;
    ptp_dual_stack_beside_a_metric: "conflist-examples/ptp-dual-stack.conflist", "100", ALL;
    azure: "conflist-examples/azure.conflist", "", ALL;
    azure_beside_a_metric: "conflist-examples/azure.conflist", "100", ALL;
    // The bridge has the address of Azure's gateway, so the subnet is behind both the bridge and eth0.
    bridge: "testdata/bridge.conflist", "", "host-outside host-vm pod-pod";
    bridge_beside_a_metric: "testdata/bridge.conflist", "100", "host-outside host-pod pod-host pod-outside pod-pod";
    // These need a Kubernetes API, and so the feature `tls`.
    ptp_node_ipv6: "conflist-examples/ptp-node-ipv6.conflist", "", ALL;
    ptp_node_ipv6_beside_a_metric: "conflist-examples/ptp-node-ipv6.conflist", "100", ALL;
}
