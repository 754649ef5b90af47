//! IPv6, and pods that get an address of each family in one call (`ipam.families`).

use std::fs;
use std::ops::Range;

use serde_json::{Value, json};

use crate::harness::{Call, MAC, Node, Outcome, Reply, SUBNET, WireServer, conf, merged};

const SUBNET_V6: &str = "fd00:1:2::/120";

/// A wire server's answer whose interface has an IPv4 and an IPv6 subnet. Each number is the last part of one address
/// in both subnets.
pub fn xml(v4: Range<u16>, v6: Range<u16>) -> String {
    let one = |address: String| format!(r#"<IPAddress Address="{address}" IsPrimary="false"/>"#);
    let v4: String = v4.map(|n| one(format!("10.224.0.{n}"))).collect();
    // This is not the canonical form of the addresses.
    let v6: String = v6.map(|n| one(format!("FD00:1:2:0::0{n:x}"))).collect();
    format!(
        r#"<Interfaces><Interface MacAddress="{MAC}" IsPrimary="true"><IPSubnet Prefix="{SUBNET}">{v4}</IPSubnet><IPSubnet Prefix="fd00:1:2:0::/120">{v6}</IPSubnet></Interface></Interfaces>"#
    )
}

/// A node with addresses of both families.
pub fn node_of_two_families(name: &str, last: Range<u16>) -> (Node, WireServer) {
    Node::with_wire(name, Reply::Xml(xml(last.clone(), last)))
}

pub fn conf_of_two_families() -> String {
    conf("1.0.0", json!({ "families": ["ipv4", "ipv6"] }))
}

fn dual_stack_call<'a>(node: &'a Node, command: &str, id: &str) -> Call<'a> {
    node.call(command, id).stdin(conf_of_two_families())
}

/// The addresses of a result in order, with prefix lengths.
fn addresses(outcome: &Outcome) -> Vec<String> {
    let result = outcome.success().json();
    let ips = result["ips"].as_array().unwrap();
    let text = |ip: &Value| ip["address"].as_str().unwrap().to_owned();
    ips.iter().map(text).collect()
}

fn is_v6(address: &str) -> bool {
    address.contains(':')
}

#[test]
fn result_has_both_families_in_every_version() {
    let (node, _wire) = node_of_two_families("dual-versions", 5..30);
    let routes = json!([
        { "dst": "0.0.0.0/0", "gw": "10.224.0.1" },
        { "dst": "::/0", "gw": "fd00:1:2::1" },
    ]);
    let versions = [
        "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
    ];
    for version in versions {
        let stdin = conf(version, json!({ "families": ["ipv4", "IPv6"] }));
        let outcome = node.call("ADD", "c1").stdin(stdin).run();
        let result = outcome.success().json();
        assert_eq!(result["cniVersion"], version);
        let expected = match version {
            "0.1.0" | "0.2.0" => json!({
                "ip4": { "ip": "10.224.0.5/16", "gateway": "10.224.0.1", "routes": [routes[0]] },
                "ip6": { "ip": "fd00:1:2::5/120", "gateway": "fd00:1:2::1", "routes": [routes[1]] },
            }),
            "1.0.0" | "1.1.0" => json!({
                "ips": [
                    { "address": "10.224.0.5/16", "gateway": "10.224.0.1" },
                    { "address": "fd00:1:2::5/120", "gateway": "fd00:1:2::1" },
                ],
                "routes": routes,
            }),
            _ => json!({
                "ips": [
                    { "version": "4", "address": "10.224.0.5/16", "gateway": "10.224.0.1" },
                    { "version": "6", "address": "fd00:1:2::5/120", "gateway": "fd00:1:2::1" },
                ],
                "routes": routes,
            }),
        };
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(result[key], *value, "{version}");
        }
    }
    assert_eq!(node.held().len(), 2);
    node.del("c1").assert_no_output();
    assert!(node.held().is_empty());
}

#[test]
fn result_order_follows_the_configuration() {
    let (node, _wire) = node_of_two_families("dual-order", 5..30);
    let add = |families: Value| {
        let stdin = conf("1.0.0", json!({ "families": families }));
        addresses(&node.call("ADD", "c1").stdin(stdin).run())
    };
    let (v4, v6) = ("10.224.0.5/16", "fd00:1:2::5/120");
    assert_eq!(add(json!(["ipv6", "ipv4"])), [v6, v4]);
    assert_eq!(add(json!(["ipv4", "ipv6"])), [v4, v6]);
    assert_eq!(add(json!(["ipv6"])), [v6]);
    assert_eq!(add(json!(["ipv4"])), [v4]);
    assert_eq!(node.held().len(), 2, "all of it is one attachment's");
}

#[test]
fn del_releases_an_address_without_holder_beside_its_own() {
    let (node, _wire) = node_of_two_families("dual-orphaned", 5..10);
    let given = addresses(&dual_stack_call(&node, "ADD", "c1").run());
    let mut state = node.state();
    let pool = &mut state["IPAM"]["AddressSpaces"]["local"]["Pools"][SUBNET_V6];
    pool["Addresses"]["fd00:1:2::5"]["ID"] = "".into();
    fs::write(node.state_path(), state.to_string()).unwrap();
    let netns = "/var/run/netns/pod";
    node.put(netns, "");
    node.cache("azure", "c1", "eth0", netns, &["10.224.0.5", "fd00:1:2::5"]);
    let ips: Vec<_> = given.iter().map(|a| json!({ "address": a })).collect();
    let conf = serde_json::from_str(&conf_of_two_families()).unwrap();
    let previous = json!({ "prevResult": { "cniVersion": "1.0.0", "ips": ips } });
    let del = node
        .call("DEL", "c1")
        .stdin(merged(conf, previous).to_string());
    del.run().assert_no_output();
    assert!(node.held().is_empty(), "{:?}", node.held());
}

#[test]
fn add_allocates_both_families_or_none() {
    let (node, _wire) = Node::with_wire("dual-none", Reply::Xml(xml(5..10, 5..7)));
    dual_stack_call(&node, "ADD", "c1").run().success();
    dual_stack_call(&node, "ADD", "c2").run().success();
    let before = node.held();
    let (code, msg) = dual_stack_call(&node, "ADD", "c3").run().error();
    assert_eq!(code, 100);
    let expected = "Failed to allocate address: No available addresses in fd00:1:2::/120: 2 held";
    assert!(msg.starts_with(expected), "{msg}");
    assert_eq!(node.held(), before);
}

#[test]
fn family_without_pool_is_reported_without_the_recovery_words() {
    // azure-vnet deletes the state when it reads these words.
    let (node, _wire) = Node::with_wire("dual-one", Reply::Xml(crate::harness::xml(5..10)));
    let outcome = dual_stack_call(&node, "ADD", "c3").run();
    let (code, msg) = outcome.error();
    assert_eq!(code, 100);
    assert_eq!(msg, "Failed to allocate pool: no pool has IPv6 addresses");
    let details = outcome.json()["details"].as_str().unwrap().to_owned();
    assert!(details.contains("10.224.0.0/16"), "{details}");
    assert!(node.held().is_empty());
    // STATUS reports it even while the existing pools are full.
    for n in 0..6 {
        let stdin = conf("1.1.0", json!({ "families": ["ipv4", "ipv6"] }));
        let (code, msg) = node.call("STATUS", "").stdin(stdin).run().error();
        assert!(code == 50 && msg.contains("no pool has IPv6"), "{msg}");
        node.add(&format!("f{n}"));
    }
}

#[test]
fn family_with_empty_source_keeps_addresses_for_a_minute() {
    let v4 = |last| crate::harness::xml(last);
    let (node, wire) = Node::with_wire("dual-sources", Reply::Xml(v4(5..10)));
    let file = format!(
        r#"{{"Interfaces":[{{"MacAddress":"{MAC}","IsPrimary":true,"IPSubnets":[{{"Prefix":"{SUBNET_V6}","IPAddresses":[{{"Address":"fd00:1:2::5"}},{{"Address":"fd00:1:2::6"}},{{"Address":"fd00:1:2::7"}}]}}]}}]}}"#
    );
    node.put("/etc/kubernetes/interfaces.json", file);
    let families = json!({ "families": ["ipv4", "ipv6"], "ipv6Environment": "fileIpam" });
    let add = |id: &str| {
        let call = node.call("ADD", id);
        call.stdin(conf("1.0.0", families.clone())).run()
    };
    assert_eq!(addresses(&add("c1")), ["10.224.0.5/16", "fd00:1:2::5/120"]);
    // The source of the other family still answers as before.
    wire.set(Reply::Xml(v4(0..0)));
    assert_eq!(addresses(&add("c2")), ["10.224.0.6/16", "fd00:1:2::6/120"]);
    assert!(node.log().contains("the stored pools stay for now"));
    node.advance_clock(61);
    let (_, msg) = add("c3").error();
    let full = "No available addresses in 10.224.0.0/16: 2 held, 0 free";
    assert!(msg.contains(full), "{msg}");
    assert_eq!(node.held().len(), 4, "what pods have stays theirs");
}

#[test]
fn closed_stdout_returns_both_addresses() {
    let (node, _wire) = node_of_two_families("dual-stdout", 5..10);
    dual_stack_call(&node, "ADD", "c1").run().success();
    let before = node.held();
    let outcome = dual_stack_call(&node, "ADD", "c2").run_in_shell(r#""$0" >&-"#);
    assert_eq!(outcome.exit, Some(1));
    assert_eq!(node.held(), before);
    // Addresses that were held before the call stay held.
    let outcome = dual_stack_call(&node, "ADD", "c1").run_in_shell(r#""$0" >&-"#);
    assert_eq!(outcome.exit, Some(1));
    assert_eq!(node.held(), before);
}

#[test]
fn each_family_can_be_requested_by_address() {
    let (node, _wire) = node_of_two_families("dual-asked", 5..30);
    let families = json!(["ipv4", "ipv6"]);
    let asked = |ips: Value, ipam: Value| {
        let stdin = json!({ "cniVersion": "1.0.0", "name": "azure", "ipam": ipam, "runtimeConfig": { "ips": ips } });
        node.call("ADD", "c1").stdin(stdin.to_string()).run()
    };
    let both = json!(["fd00:1:2::9/120", "10.224.0.8"]);
    let outcome = asked(both.clone(), json!({ "families": families }));
    assert_eq!(addresses(&outcome), ["10.224.0.8/16", "fd00:1:2::9/120"]);
    // A request for one address of each family is enough. The result has the order of the request.
    let outcome = asked(both, json!({}));
    assert_eq!(addresses(&outcome), ["fd00:1:2::9/120", "10.224.0.8/16"]);
    node.del("c1").assert_no_output();
    let outcome = asked(json!(["fd00:1:2::a"]), json!({ "families": families }));
    let got = addresses(&outcome);
    assert!(
        got[0].starts_with("10.224.0.") && got[1] == "fd00:1:2::a/120",
        "{got:?}"
    );
    node.del("c1").assert_no_output();
    let ipam = json!({ "families": families, "ipAddress": "fd00:1:2:0:0::B" });
    let got = addresses(&asked(json!([]), ipam));
    assert_eq!(got[1], "fd00:1:2::b/120");
    node.del("c1").assert_no_output();
    // A subnet applies to its own family only.
    for (subnet, asked_for) in [(SUBNET, "10.224.0.14"), (SUBNET_V6, "fd00:1:2::e")] {
        let ipam = json!({ "families": families, "subnet": subnet });
        let got = addresses(&asked(json!([asked_for]), ipam));
        assert_eq!((got.len(), is_v6(&got[0])), (2, false));
        assert!(got.iter().any(|a| a.starts_with(asked_for)), "{got:?}");
        node.del("c1").assert_no_output();
    }
    let not_found = |outcome: Outcome| {
        let (code, msg) = outcome.error();
        assert_eq!(
            (code, &*msg),
            (100, "Failed to allocate address: Address not found")
        );
    };
    not_found(asked(
        json!(["fd00:1:2::9"]),
        json!({ "families": ["ipv4"] }),
    ));
    not_found(asked(json!(["fd00:9::9"]), json!({ "families": families })));
    let banana = json!({ "families": families, "ipAddress": "banana" });
    not_found(asked(json!([]), banana));
    assert!(node.held().is_empty());
}

#[test]
fn check_and_gc_cover_both_families() {
    let (node, _wire) = node_of_two_families("dual-check", 5..30);
    let result = dual_stack_call(&node, "ADD", "c1").run().json();
    let call = |command: &str, members: Value| {
        let stdin: Value = serde_json::from_str(&conf_of_two_families()).unwrap();
        let stdin = merged(merged(stdin, json!({ "cniVersion": "1.1.0" })), members);
        node.call(command, "c1").stdin(stdin.to_string()).run()
    };
    call("CHECK", json!({ "prevResult": result })).assert_no_output();
    let mut other = result.clone();
    other["ips"][1]["address"] = "fd00:1:2::20/120".into();
    let (_, msg) = call("CHECK", json!({ "prevResult": other })).error();
    assert!(
        msg.contains("fd00:1:2::20 is not held for this attachment"),
        "{msg}"
    );
    call("STATUS", json!({})).assert_no_output();
    node.advance_clock(120);
    let valid = json!([{ "containerID": "c1", "ifname": "eth0" }]);
    let gc = |valid: Value| call("GC", json!({ "cni.dev/valid-attachments": valid }));
    gc(valid).assert_no_output();
    // The kernel cannot be scanned here, so stale records are kept and counted.
    let (code, msg) = gc(json!([])).error();
    assert_eq!(
        (code, &*msg),
        (100, "2 stale addresses are kept, 0 are freed")
    );
    assert_eq!(node.held().len(), 2);
}

#[test]
fn ipv6_pool_is_stored_in_canonical_form() {
    let (node, _wire) = node_of_two_families("v6-text", 5..30);
    let spelled = conf("0.4.0", json!({ "subnet": "FD00:1:2:0:0::/120" }));
    let outcome = node.call("ADD", "c1").stdin(spelled).run();
    assert_eq!(addresses(&outcome), ["fd00:1:2::5/120"]);
    let pool = &node.state()["IPAM"]["AddressSpaces"]["local"]["Pools"][SUBNET_V6];
    assert_eq!(pool["IsIPv6"], true);
    assert_eq!(pool["Gateway"], "fd00:1:2::1");
    assert_eq!(pool["Subnet"]["IP"], "fd00:1:2::");
    assert_eq!(pool["Addresses"]["fd00:1:2::1c"]["InUse"], false);
    let outcome = node.run_command(["show"]);
    assert!(
        outcome
            .success()
            .stdout
            .contains("fd00:1:2::/120 on eth0, gateway fd00:1:2::1")
    );
    let shown = node.run_command(["show", "FD00:1:2:0::5"]);
    assert!(shown.success().stdout.contains("c1"), "{shown:?}");
    let metrics = node.run_command(["metrics"]);
    let line = r#"azure_vnet_ipam_pool_held_addresses{plugin="azure-vnet-ipam",space="local",pool="fd00:1:2::/120",interface="eth0"} 1"#;
    assert!(metrics.success().stdout.contains(line), "{metrics:?}");
    // DEL accepts any spelling.
    let spelled = json!({ "subnet": "fd00:1:2:0::/120", "ipAddress": "FD00:1:2:0:0::5" });
    node.call("DEL", "c1")
        .stdin(conf("0.4.0", spelled))
        .run()
        .assert_no_output();
    assert!(node.held().is_empty());
}

#[test]
fn release_command_for_one_family_keeps_the_other() {
    let (node, _wire) = node_of_two_families("v6-release", 5..30);
    dual_stack_call(&node, "ADD", "c1").run().success();
    node.advance_clock(3600);
    let released = node.run_command(["release", "fd00:1:2:0::5", "--container", "c1", "--force"]);
    released.success();
    let left: Vec<String> = node.held().into_keys().collect();
    assert_eq!(left, ["10.224.0.5"]);
}
