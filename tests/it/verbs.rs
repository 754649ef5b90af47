//! CHECK, GC, STATUS, the settings file, and requested addresses.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Call, Node, Reply, conf, merged, xml};

/// A network configuration of version 1.1.0 with these keys beside `ipam`.
pub fn conf_with(ipam: Value, members: Value) -> String {
    let conf = serde_json::from_str(&conf("1.1.0", ipam)).unwrap();
    merged(conf, members).to_string()
}

pub fn prev_result(addresses: &[&str]) -> Value {
    let ips: Vec<_> = addresses
        .iter()
        .map(|a| json!({ "address": format!("{a}/16") }))
        .collect();
    json!({ "prevResult": { "cniVersion": "1.1.0", "ips": ips } })
}

/// A call of a verb without a container: GC or STATUS.
pub fn call_without_container<'a>(node: &'a Node, command: &str, members: Value) -> Call<'a> {
    node.call(command, "")
        .without("CNI_CONTAINERID")
        .without("CNI_NETNS")
        .without("CNI_IFNAME")
        .stdin(conf_with(json!({}), members))
}

pub fn status(node: &Node, ipam: Value) -> Call<'_> {
    call_without_container(node, "STATUS", json!({})).stdin(conf("1.1.0", ipam))
}

#[test]
fn check_queries_no_source_and_waits_for_no_lock() {
    let (node, wire) = Node::with_wire("passing", Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    let before = (wire.count(), node.state_bytes());
    let _lock = node.hold_lock();
    wire.set(Reply::Silent);
    // Other plugins of the chain may have added addresses.
    for addresses in [&["10.224.0.5"][..], &["10.224.0.5", "172.16.0.1"]] {
        let stdin = conf_with(json!({}), prev_result(addresses));
        let check = node.call("CHECK", "c1").stdin(stdin);
        check.run().assert_no_output();
    }
    assert_eq!((wire.count(), node.state_bytes()), before);
}

#[test]
fn gc_keeps_valid_and_young_records_and_other_networks() {
    let (node, _wire) = Node::with_wire("gc", Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    let gc = |members: Value| call_without_container(&node, "GC", members).run();
    let nothing = json!({ "cni.dev/valid-attachments": [] });
    gc(nothing.clone()).assert_no_output();
    node.advance_clock(600);
    gc(merged(nothing.clone(), json!({ "name": "other" }))).assert_no_output();
    let valid = json!([{ "containerID": "c1", "ifname": "eth0" }]);
    for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        gc(json!({ key: valid })).assert_no_output();
    }
    // Without a complete scan of the node, nothing is freed, and the error reports that.
    let kept = gc(nothing.clone());
    let details = kept.json()["details"].as_str().unwrap().to_owned();
    assert!(details.contains("10.224.0.5 of container c1"), "{details}");
    assert_eq!(node.held().len(), 1);
    // Without a state there is nothing to free.
    node.remove_backup();
    for state in ["", "{ half"] {
        fs::write(node.state_path(), state).unwrap();
        gc(nothing.clone()).assert_no_output();
    }
}

#[test]
fn status_is_ready_while_adds_can_be_served() {
    let (node, wire) = Node::with_wire("status", Reply::Status(500, String::new()));
    let refused = |ipam: Value, words: &str| {
        let (code, msg) = status(&node, ipam).run().error();
        assert!(code == 50 && msg.contains(words), "{words}: {msg}");
    };
    refused(json!({}), "no pools, and no source");
    wire.set(Reply::Xml(xml([])));
    refused(json!({}), "0 held, 0 free");
    wire.set(Reply::Xml(xml([5])));
    refused(json!({ "environment": "null" }), "");
    refused(json!({ "exclude": ["0.0.0.0/0"] }), "1 excluded");
    status(&node, json!({})).run().assert_no_output();
    assert!(!node.state_path().exists(), "a STATUS makes no state");
    assert!(!node.path("/var/run/azure-vnet").exists(), "and no lock");
    node.add("c1").success();
    let (asked, before, log) = (wire.count(), node.state_bytes(), node.log());
    let lock = node.hold_lock();
    for ipam in [json!({}), json!({ "statusWhenFull": "ready" })] {
        status(&node, ipam).run().assert_no_output();
    }
    refused(json!({ "statusWhenFull": "error" }), "1 held, 0 free");
    assert_eq!((wire.count(), node.state_bytes()), (asked, before));
    drop(lock);
    let ready_lines = node.log()[log.len()..].matches("STATUS").count();
    assert_eq!(ready_lines, 1, "only problems are logged");
    // The next ADD rebuilds a corrupt state if the source answers.
    node.remove_backup();
    fs::write(node.state_path(), "{ half").unwrap();
    status(&node, json!({})).run().assert_no_output();
    wire.set(Reply::Status(500, String::new()));
    refused(json!({}), "no pools, and no source");
    assert_eq!(node.leftover_files(), [""; 0], "nothing is set aside");
}

#[test]
fn addresses_can_be_requested_in_every_way_of_host_local() {
    let (node, _wire) = Node::with_wire("asked", Reply::Xml(xml([5, 6, 7])));
    // A row is CNI_ARGS and members of the configuration. The plugin ignores members of other plugins.
    for row in [
        r#" | {"ipam":{"ipAddress":"10.224.0.7"}}"#,
        r#" | {"name":"a0_.-Z","x":[7],"ipam":{"y":{},"ipAddress":"10.224.0.7/16","subnet":"10.224.0.0/16"}}"#,
        "IgnoreUnknown=1;FOO=bar;IP=10.224.0.7 | {}",
        r#"IP=10.224.0.7/16 | {"ipam":{"subnet":"10.224.0.0/16"}}"#,
        r#" | {"args":{"labels":{"a":1},"cni":{"ips":["10.224.0.7"]}}}"#,
        r#" | {"runtimeConfig":{"ips":["10.224.0.7/16"]},"args":{"cni":{"ips":null}}}"#,
        r#"IP=10.224.0.7 | {"runtimeConfig":{"ips":["10.224.0.7"]}}"#,
        r#"IP=10.224.0.7 | {"prevResult":{"cniVersion":"1.1.0","ips":[{"address":"192.168.0.9/16"}]}}"#,
    ] {
        let (args, members) = row.split_once(" | ").unwrap();
        let members: Value = serde_json::from_str(members).unwrap();
        let call = |verb: &str| {
            let call = node.call(verb, "a0_.-Z").env("CNI_ARGS", args);
            call.stdin(conf_with(json!({}), members.clone())).run()
        };
        let address = json!([{ "address": "10.224.0.7/16", "gateway": "10.224.0.1" }]);
        assert_eq!(call("ADD").success().json()["ips"], address, "{row}");
        call("DEL").assert_no_output();
        node.advance_clock(31);
    }
    node.call("ADD", "c1")
        .env("CNI_ARGS", "IP=10.224.0.7")
        .run()
        .success();
    node.del("c1").assert_no_output();
    let at_once = conf("1.0.0", json!({ "ipAddress": "10.224.0.7", "cooldown": 0 }));
    node.call("ADD", "c1").stdin(at_once).run().success();
}

fn settings(node: &Node, text: impl ToString) {
    node.put("/etc/azure-vnet-ipam.json", text.to_string());
}

#[test]
fn settings_file_supplies_defaults() {
    let (node, _wire) = Node::with_wire("settings", Reply::Xml(xml([5, 6, 7])));
    settings(&node, json!({ "exclude": ["10.224.0.5", "10.224.0.6/31"] }));
    let (_, msg) = node.add("c1").error();
    assert!(msg.ends_with(": 0 held, 0 free, 3 excluded"), "{msg}");
    let own = conf("1.0.0", json!({ "exclude": ["10.224.0.5"] }));
    let add = node.call("ADD", "c1").stdin(own).run();
    assert_eq!(add.address(), "10.224.0.6", "the netconf's go before them");
    assert_eq!(
        node.add("c1").address(),
        "10.224.0.6",
        "who has one keeps it"
    );
}

#[test]
fn invalid_settings_file_is_a_warning_and_fails_no_pod() {
    let (node, _wire) = Node::with_wire("badsettings", Reply::Xml(xml([5, 6])));
    for (text, left) in [
        ("{", "it is not a JSON object"),
        ("[]", "it is not a JSON object"),
        (
            r#"{"exclude":["x"]}"#,
            r#"ipam.exclude must be a list, for example ["10.224.0.128/25"]: "x" is not an address or a prefix"#,
        ),
        (r#"{"exlude":[]}"#, r#"unknown key "exlude""#),
        (
            r#"{"environment":"moon"}"#,
            r#"ipam.environment must be one of azure, mas, fileIpam, ipv6NodeIpam, null: found "moon""#,
        ),
        (
            r#"{"subnet":"10.9.0.0/16"}"#,
            "subnet belongs in a network configuration",
        ),
    ] {
        settings(&node, text);
        node.add("c1").success();
        let log = node.log();
        assert!(
            log.contains(left) && log.contains("this is ignored"),
            "{text}: {log}"
        );
        status(&node, json!({})).run().assert_no_output();
        node.del("c1").assert_no_output();
        let file = node.path("/etc/azure-vnet-ipam.json");
        let checked = node.run_line("check");
        assert_eq!(checked.exit, Some(1), "{text}");
        let unwrapped = checked
            .stdout
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(unwrapped.contains(left), "{checked:?}");
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn routes_and_dns_can_be_configured() {
    let (node, _wire) = Node::with_wire("routes", Reply::Xml(xml([5])));
    let routes =
        json!([{ "dst": "10.0.0.0/8", "gw": "10.224.0.9" }, { "dst": "0.0.0.0/0", "mtu": 1400 }]);
    let dns = json!({ "nameservers": ["10.0.0.10"], "domain": "a.b", "search": ["c.d"], "options": ["ndots:5"] });
    let add = |version: &str| {
        let ipam = json!({ "routes": routes, "dns": dns });
        let add = node.call("ADD", "c1").stdin(conf(version, ipam)).run();
        add.success().json()
    };
    let newest = add("1.1.0");
    assert_eq!((&newest["routes"], &newest["dns"]), (&routes, &dns));
    let older = add("0.3.1");
    assert_eq!(older["routes"][1], json!({ "dst": "0.0.0.0/0" }));
    assert_eq!(add("0.2.0")["ip4"]["routes"][0], routes[0]);
    let none = conf("1.0.0", json!({ "routes": [], "dns": {} }));
    let bare = node.call("ADD", "c1").stdin(none).run().json();
    assert_eq!((bare.get("routes"), &bare["dns"]), (None, &json!({})));
}

#[test]
fn networks_and_interfaces_can_have_their_own_pools() {
    let second = r#"<Interface MacAddress="7C1E52F9F3C5" IsPrimary="false"><IPSubnet Prefix="10.225.0.0/16"><IPAddress Address="10.225.0.5" IsPrimary="false"/></IPSubnet></Interface></Interfaces>"#;
    let both = xml([5, 6]).replace("</Interfaces>", second);
    let (node, _wire) = Node::with_wire("networks", Reply::Xml(both));
    let call = |verb: &str, network: &str, master: &str, if_name: &str| {
        let stdin = conf_with(json!({}), json!({ "name": network, "master": master }));
        let call = node.call(verb, "c1").env("CNI_IFNAME", if_name);
        call.stdin(stdin).run()
    };
    let held = || Vec::from_iter(node.held().into_keys());
    let add = |network, master, if_name| call("ADD", network, master, if_name).address();
    assert_eq!(add("blue", "eth0", "eth0"), "10.224.0.5");
    assert_eq!(add("red", "eth1", "net1"), "10.225.0.5");
    assert_eq!(add("red", "eth0", "eth0"), "10.224.0.6");
    // The address in the other network with the same interface name stays held.
    call("DEL", "blue", "eth0", "eth0").assert_no_output();
    assert_eq!(held(), ["10.224.0.6", "10.225.0.5"]);
    call("DEL", "red", "eth1", "net1").assert_no_output();
    assert_eq!(held(), ["10.224.0.6"]);
}

#[test]
fn previous_result_releases_nothing_of_others() {
    let (node, _wire) = Node::with_wire("hint", Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    node.add("c2").success();
    for netns in ["", "/var/run/netns/gone"] {
        for previous in [
            prev_result(&["10.224.0.6"]),
            json!({ "prevResult": { "ips": "nonsense" } }),
            json!({ "prevResult": 7 }),
        ] {
            node.call("DEL", "c3")
                .env("CNI_NETNS", netns)
                .stdin(conf_with(json!({}), previous))
                .run()
                .assert_no_output();
        }
    }
    assert_eq!(node.held().len(), 2);
    node.call("DEL", "c1")
        .stdin(conf_with(json!({}), prev_result(&["10.224.0.6"])))
        .run()
        .assert_no_output();
    assert_eq!(
        node.held().into_values().collect::<Vec<_>>(),
        ["c2"],
        "its own address goes, whatever the hint"
    );
}
