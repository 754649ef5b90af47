//! The program under its other name, azure-vnet-ipamv6. azure-vnet calls that name for IPv6 addresses.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::families::node_of_two_families;
use crate::harness::{Node, Outcome, SUBNET, binary, held};
#[cfg(feature = "tls")]
use crate::harness::{Reply, xml};

/// A link to the program in a folder of the node.
fn link(node: &Node) -> PathBuf {
    let path = node.path("/opt/cni/bin/azure-vnet-ipamv6");
    if !path.exists() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(binary(), &path).unwrap();
    }
    path
}

/// The configuration that azure-vnet sends to azure-vnet-ipamv6, with a source that needs no Kubernetes API.
fn conf(ipam: Value) -> String {
    let mut ipam = ipam;
    ipam["type"] = "azure-vnet-ipamv6".into();
    json!({ "cniVersion": "0.3.0", "name": "azure", "type": "azure-vnet", "ipam": ipam })
        .to_string()
}

fn call_ipamv6(node: &Node, command: &str, id: &str, stdin: &str) -> Outcome {
    node.call(command, id)
        .with_program(link(node))
        .stdin(stdin)
        .run()
}

fn run_ipamv6(node: &Node, words: &[&str]) -> Outcome {
    node.command(words.iter().copied())
        .with_program(link(node))
        .run()
}

fn state(node: &Node) -> Value {
    let text = std::fs::read(node.path("/var/run/azure-vnet-ipamv6.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn azure_vnet_ipamv6_has_its_own_files_and_ipv6_addresses() {
    let (node, _wire) = node_of_two_families("sibling", 5..30);
    let v6 = call_ipamv6(&node, "ADD", "c1", &conf(json!({})));
    assert_eq!(v6.address(), "fd00:1:2::5");
    assert!(
        !node.state_path().exists(),
        "the other's state is not touched"
    );
    // The type in the configuration has no effect.
    let other = conf(json!({})).replace("azure-vnet-ipamv6", "other");
    let second = call_ipamv6(&node, "ADD", "c2", &other);
    assert_eq!(second.address(), "fd00:1:2::6");
    assert_eq!(node.add("c1").address(), "10.224.0.5");
    for file in [
        "/var/run/azure-vnet/azure-vnet-ipamv6.lock",
        "/var/run/azure-vnet/azure-vnet-ipamv6.fetch",
        "/var/run/.azure-vnet-ipamv6.backup",
        "/var/run/azure-vnet/azure-vnet-ipamv6.events",
        "/var/log/azure-vnet-ipamv6.log",
    ] {
        assert!(node.path(file).exists(), "{file}");
    }
    assert_eq!(held(&state(&node)).len(), 2);
    // On later calls, azure-vnet sends the subnet that it stored.
    let later = conf(json!({ "subnet": "fd00:1:2::/120" }));
    let third = call_ipamv6(&node, "ADD", "c3", &later);
    assert_eq!(third.address(), "fd00:1:2::7");
    let by_address = json!({ "subnet": "fd00:1:2::/120", "ipAddress": "fd00:1:2::5" });
    call_ipamv6(&node, "DEL", "c1", &conf(by_address)).assert_no_output();
    for id in ["c2", "c3"] {
        call_ipamv6(&node, "DEL", id, &later).assert_no_output();
    }
    assert!(held(&state(&node)).is_empty());
    assert_eq!(node.held().len(), 1, "the other's address is still held");
}

/// azure-vnet passes the subnet of its first IPAM call on to the second, if its own network has only that one.
#[test]
fn ipv4_does_not_apply_under_the_ipv6_name() {
    let (node, _wire) = node_of_two_families("sibling-subnet", 5..30);
    let with_v4 = conf(json!({ "subnet": SUBNET }));
    let add = call_ipamv6(&node, "ADD", "c1", &with_v4);
    assert_eq!(add.address(), "fd00:1:2::5");
    let named = conf(json!({ "subnet": SUBNET, "ipAddress": "10.224.0.9" }));
    let (_, msg) = call_ipamv6(&node, "ADD", "c2", &named).error();
    assert_eq!(msg, "Failed to allocate address: Address not found");
    let families = conf(json!({ "families": ["ipv4", "ipv6"] }));
    let (_, msg) = call_ipamv6(&node, "ADD", "c2", &families).error();
    assert!(msg.starts_with("ipam.families must be "), "{msg}");
    call_ipamv6(&node, "DEL", "c1", &with_v4).assert_no_output();
    assert!(held(&state(&node)).is_empty());
}

#[test]
fn messages_name_the_program_as_called() {
    let (node, _wire) = node_of_two_families("sibling-words", 5..7);
    for id in ["c1", "c2"] {
        call_ipamv6(&node, "ADD", id, &conf(json!({}))).success();
    }
    let full = call_ipamv6(&node, "ADD", "c3", &conf(json!({})));
    full.error();
    let details = full.json()["details"].as_str().unwrap().to_owned();
    assert!(details.contains("`azure-vnet-ipamv6 show`"), "{details}");
    assert!(!details.contains("`azure-vnet-ipam "), "{details}");

    for (line, status, words) in [
        ("--version", 0, "azure-vnet-ipamv6 "),
        ("--help", 0, "\nUsage: azure-vnet-ipamv6 <COMMAND>\n"),
        ("--help", 0, "/var/run/azure-vnet-ipamv6.json"),
        // One settings file serves both names.
        ("--help", 0, "/etc/azure-vnet-ipam.json"),
        ("show", 0, "fd00:1:2::5"),
        (
            "release",
            2,
            "\nUsage: azure-vnet-ipamv6 release <ADDRESS>\n",
        ),
    ] {
        let Outcome {
            exit,
            stdout,
            stderr,
            ..
        } = run_ipamv6(&node, &[line]);
        assert_eq!(exit, Some(status), "{line}: {stdout}{stderr}");
        assert!((stdout + &stderr).contains(words), "{line}");
    }
    let reclaim = run_ipamv6(&node, &["reclaim"]);
    assert!(
        !reclaim.success().stdout.contains("azure-vnet-ipam "),
        "{reclaim:?}"
    );
}

#[test]
fn azure_vnet_rewrites_its_configuration() {
    let (node, _wire) = node_of_two_families("sibling-conf", 5..30);
    let ipam = json!({ "type": "azure-vnet-ipam", "queryInterval": "7" });
    let azure = |mode: &str| json!({ "cniVersion": "0.3.0", "name": "azure", "plugins": [{ "type": "azure-vnet", "ipv6Mode": mode, "ipam": ipam }] });
    for (mode, is_used) in [("ipv6nat", true), ("", false)] {
        node.put("/etc/cni/net.d/10-azure.conflist", azure(mode).to_string());
        let report = run_ipamv6(&node, &["check", "--all", "--json"]).json();
        let findings = report["findings"].as_array().unwrap();
        let of_conflist = |finding: &Value| finding["kind"] == "conflist";
        assert_eq!(findings.iter().any(of_conflist), is_used, "{report:#}");
        let unused = "Nothing is wrong; azure-vnet-ipamv6 is not in use.";
        assert_eq!(report["summary"] == unused, !is_used, "{report:#}");
    }
}

/// Both families in one call, each from its own source.
#[cfg(feature = "tls")]
#[test]
fn one_call_allocates_from_both_sources() {
    let (node, wire) = node_of_two_families("both-sources", 5..30);
    node.put("/proc/sys/kernel/hostname", "node1");
    let api = crate::kubernetes::joined_below(&node.root, "fd00:10:244:3::/64");
    let ipam = json!({ "families": ["ipv4", "ipv6"], "ipv6Environment": "ipv6NodeIpam" });
    let stdin = crate::harness::conf("1.0.0", ipam);
    let add = |id: &str| node.call("ADD", id).stdin(&*stdin).run();
    let ips = add("c1").success().json()["ips"].clone();
    assert_eq!(ips[0]["address"], "10.224.0.5/16");
    // The address must not come from the IPv6 subnet that the wire server lists.
    assert_eq!(ips[1]["address"], "fd00:10:244:3::2/120");
    assert_eq!((wire.count(), api.requests().len()), (1, 1));
    // A failing source removes no addresses, whichever source it is.
    wire.set(Reply::Status(500, String::new()));
    add("c2").success();
    assert_eq!(
        api.requests().len(),
        1,
        "what one says does not count without the other"
    );
    wire.set(Reply::Xml(xml(5..30)));
    drop(api);
    std::fs::remove_file(node.path("/var/run/azure-vnet/azure-vnet-ipam.fetch")).unwrap();
    add("c3").success();
    assert_eq!(node.held().len(), 6);
    let log = node.log();
    assert!(
        log.contains("Source refresh failed, err:Kubernetes node, by "),
        "{log}"
    );
    node.put("/etc/cni/net.d/10.conf", &stdin);
    let report = node.run_command(["check"]);
    assert_eq!(report.exit, Some(1));
    assert!(report.stdout.contains("does a firewall"), "{report:?}");
    let pools = &node.state()["IPAM"]["AddressSpaces"]["local"]["Pools"];
    let names: Vec<&String> = pools.as_object().unwrap().keys().collect();
    assert_eq!(names, ["10.224.0.0/16", "fd00:10:244:3::/120"]);
}

#[cfg(feature = "tls")]
#[test]
fn check_names_what_its_container_does_not_mount() {
    let node = Node::new("sibling-container");
    // A link could lead to another file in the container. Another process copies, as a file that is open for writing cannot be executed.
    let installed = node.path("/opt/cni/bin/azure-vnet-ipamv6");
    std::fs::create_dir_all(installed.parent().unwrap()).unwrap();
    let copied = std::process::Command::new("cp")
        .args([&binary(), &installed])
        .status();
    assert!(copied.unwrap().success());
    let ipam = json!({ "type": "azure-vnet-ipamv6", "environment": "ipv6NodeIpam" });
    let conf = json!({ "cniVersion": "1.0.0", "name": "azure", "type": "azure-vnet-ipamv6", "ipam": ipam });
    node.put("/etc/cni/net.d/1.conf", conf.to_string());
    node.put("/proc/sys/kernel/hostname", "node-1\n");
    node.put("/proc/self/mountinfo", "2 1 0:1 / / rw - tmpfs tmpfs rw\n");
    node.put("/proc/1/mountinfo", "1 0 0:1 / / rw - tmpfs tmpfs rw\n");
    let path = node.path("/var/lib/kubelet/kubeconfig");
    let path = path.to_str().unwrap();
    let not_seen = json!(format!("{path}, which this container does not mount"));
    for (is_on_node, words) in [
        (false, "1 source problem; new pods get no address."),
        (
            true,
            "whether new pods get addresses cannot be seen in this container.",
        ),
    ] {
        let report = run_ipamv6(&node, &["check", "-o", "json"]).json();
        let summary = report["summary"].as_str().unwrap();
        assert!(summary.ends_with(words), "{report:#}");
        let lists = report["notSeen"].as_array().unwrap().contains(&not_seen);
        assert_eq!(lists, is_on_node, "{report:#}");
        node.put(&format!("/proc/1/root{path}"), "");
    }
}
