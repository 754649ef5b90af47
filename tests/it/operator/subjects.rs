//! `show ADDRESS`, `show CONTAINER` and `show POD`.

use std::fs;

use serde_json::json;

use crate::harness::{Node, Reply, xml};

#[test]
fn show_finds_addresses_containers_and_pods() {
    let (node, _wire) = Node::with_wire("show", Reply::Xml(xml([5, 6])));
    let args = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1";
    node.call("ADD", "c123456789")
        .env("CNI_ARGS", args)
        .run()
        .success();
    for subject in ["10.224.0.5", "c12345", "c123456789", "shop/web-1", "web-1"] {
        let report = node
            .run_line(&format!("show {subject} --json"))
            .success()
            .json();
        let address = &report["addresses"][0];
        assert_eq!(
            (&address["address"], &address["use"]),
            (&json!("10.224.0.5"), &json!("held"))
        );
        assert_eq!(address["holder"]["pod"], "shop/web-1");
        assert_eq!(report["events"][0]["verb"], "ADD", "{report:#}");
    }
    for subject in ["10.9.9.9", "c12", "shop/web-2", "nobody"] {
        let outcome = node.run_line(&format!("show {subject}"));
        assert_eq!(outcome.exit, Some(1), "{subject}: {outcome:?}");
        assert!(outcome.stdout.contains("Nothing is known"), "{outcome:?}");
    }
    // After the release, the events still name the pod.
    node.del("c123456789").assert_no_output();
    let text = node.run_line("show web-1").success().stdout.clone();
    assert!(
        text.contains("holds no address") && text.contains("ADD"),
        "{text}"
    );
}

#[test]
fn show_says_unknown_where_records_are_missing() {
    let (node, _wire) = Node::with_wire("missing", Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    node.remove_backup();
    fs::remove_file(node.state_path()).unwrap();
    let report = node.run_line("show 10.224.0.6 --json").json();
    assert_eq!(report["unknown"], "the state was lost");
    assert_eq!(report["addresses"][0]["use"], "unknown");
}

#[test]
fn the_first_address_of_a_subnet_is_its_pool_unless_a_pod_can_have_it() {
    let (node, _wire) = Node::with_wire("first", Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    let pool = node.run_line("show 10.224.0.0 --json").success().json();
    assert_eq!(pool["pools"][0]["held"], 1, "{pool:#}");
    let mut state = node.state();
    let pools = &mut state["IPAM"]["AddressSpaces"]["local"]["Pools"];
    let mut other = pools["10.224.0.0/16"].clone();
    other["Addresses"] =
        json!({ "10.224.0.0": { "ID": "", "Addr": "10.224.0.0", "InUse": false } });
    pools["10.224.0.0/32"] = other;
    fs::write(node.state_path(), state.to_string()).unwrap();
    let address = node.run_line("show 10.224.0.0 --json").success().json();
    assert_eq!(
        address["addresses"][0]["pool"], "10.224.0.0/32",
        "{address:#}"
    );
}
