//! CHECK, GC, STATUS, the settings file, and requested addresses.

use std::fs;

use serde_json::{Value, json};

use crate::harness::wait::output;
use crate::harness::{Call, Node, Reply, binary, conf, xml};

/// A network configuration of version 1.1.0 with these keys beside `ipam`.
pub fn conf_with(ipam: Value, members: Value) -> String {
    let mut conf: Value = serde_json::from_str(&conf("1.1.0", ipam)).unwrap();
    for (key, value) in members.as_object().unwrap() {
        conf[key] = value.clone();
    }
    conf.to_string()
}

pub fn prev_result(addresses: &[&str]) -> Value {
    let ips: Vec<_> = addresses
        .iter()
        .map(|a| json!({ "address": format!("{a}/16") }))
        .collect();
    json!({ "prevResult": { "cniVersion": "1.1.0", "ips": ips } })
}

fn check<'a>(node: &'a Node, container_id: &str, addresses: &[&str]) -> Call<'a> {
    node.call("CHECK", container_id)
        .stdin(conf_with(json!({}), prev_result(addresses)))
}

/// A call of a verb without container: GC or STATUS.
pub fn call_without_container<'a>(node: &'a Node, command: &str, members: Value) -> Call<'a> {
    node.call(command, "")
        .without("CNI_CONTAINERID")
        .without("CNI_NETNS")
        .without("CNI_IFNAME")
        .stdin(conf_with(json!({}), members))
}

fn status(node: &Node, ipam: Value) -> Call<'_> {
    call_without_container(node, "STATUS", json!({})).stdin(conf("1.1.0", ipam))
}

#[test]
fn check_does_not_fail_for_transient_problems() {
    let (node, wire) = Node::with_wire("passing", Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    let asked = wire.count();
    // The lock is held and the source is dead.
    let lock = node.hold_lock();
    wire.set(Reply::Silent);
    check(&node, "c1", &["10.224.0.5"]).run().assert_no_output();
    assert_eq!(wire.count(), asked, "a CHECK asks nobody");
    drop(lock);
    // The state is temporarily unreadable.
    let aside = node.path("/aside");
    fs::rename(node.state_path(), &aside).unwrap();
    std::os::unix::fs::symlink(node.state_path(), node.state_path()).unwrap();
    let (code, msg) = check(&node, "c1", &["10.224.0.5"]).run().error();
    assert_eq!(code, 11, "{msg}");
    // A missing state is reported as such.
    fs::remove_file(node.state_path()).unwrap();
    node.remove_journal();
    let (code, msg) = check(&node, "c1", &["10.224.0.5"]).run().error();
    assert_eq!(
        (code, msg.as_str()),
        (
            100,
            "Check failed: the state is gone: it is gone, though addresses were given since the node started"
        )
    );
    fs::write(node.state_path(), "{ half").unwrap();
    let (code, msg) = check(&node, "c1", &["10.224.0.5"]).run().error();
    assert!(
        code == 100 && msg.starts_with("Check failed: the state is gone: "),
        "{msg}"
    );
    assert_eq!(node.leftover_files(), [""; 0], "nothing is set aside");
}

#[test]
fn gc_without_a_list_frees_nothing() {
    let (node, _wire) = Node::with_wire("gclist", Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    node.advance_clock(600);
    let before = node.state_bytes();
    let (code, msg) = call_without_container(&node, "GC", json!({})).run().error();
    assert_eq!(
        (code, msg.as_str()),
        (7, "cni.dev/valid-attachments is missing")
    );
    for wrong in [
        json!(7),
        json!({}),
        json!(["c1"]),
        json!([{ "ifname": "eth0" }]),
    ] {
        let gc = call_without_container(&node, "GC", json!({ "cni.dev/attachments": wrong }));
        assert_eq!(gc.run().error().0, 7, "{wrong}");
    }
    assert_eq!(node.state_bytes(), before);
    // Without a complete scan nothing is freed, and the error says so.
    let gc = call_without_container(&node, "GC", json!({ "cni.dev/valid-attachments": null }));
    let kept = gc.run();
    assert_eq!(
        kept.error(),
        (100, "1 stale addresses are kept, 0 are freed".into())
    );
    let details = kept.json()["details"].as_str().unwrap().to_owned();
    assert!(details.contains("10.224.0.5 of container c1"), "{details}");
    assert_eq!(node.state_bytes(), before);
    // GC without a state succeeds.
    node.remove_journal();
    for state in ["", "{ half"] {
        fs::write(node.state_path(), state).unwrap();
        call_without_container(&node, "GC", json!({ "cni.dev/attachments": [] }))
            .run()
            .assert_no_output();
    }
}

#[test]
fn gc_keeps_young_records_and_other_networks() {
    let (node, _wire) = Node::with_wire("gcyoung", Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    let nothing = json!({ "cni.dev/valid-attachments": [] });
    call_without_container(&node, "GC", nothing.clone())
        .run()
        .assert_no_output();
    node.advance_clock(600);
    let mut other: Value = serde_json::from_str(&conf_with(json!({}), nothing)).unwrap();
    other["name"] = "other".into();
    call_without_container(&node, "GC", json!({}))
        .stdin(other.to_string())
        .run()
        .assert_no_output();
    let valid = json!([{ "containerID": "c1", "ifname": "eth0" }]);
    call_without_container(&node, "GC", json!({ "cni.dev/attachments": valid }))
        .run()
        .assert_no_output();
    assert_eq!(node.held().len(), 1);
}

#[test]
fn status_is_ready_while_adds_can_be_served() {
    let (node, wire) = Node::with_wire("status", Reply::Xml(xml([5])));
    status(&node, json!({})).run().assert_no_output();
    assert!(!node.state_path().exists(), "a STATUS makes no state");
    assert!(!node.path("/var/run/azure-vnet").exists(), "and no lock");
    node.add("c1").success();
    let (asked, before, log) = (wire.count(), node.state_bytes(), node.log());
    let lock = node.hold_lock();
    // STATUS does not wait for the lock.
    status(&node, json!({})).run().assert_no_output();
    status(&node, json!({ "statusWhenFull": "ready" }))
        .run()
        .assert_no_output();
    let (code, msg) = status(&node, json!({ "statusWhenFull": "error" }))
        .run()
        .error();
    assert_eq!(code, 50);
    assert!(
        msg.starts_with("ADDs cannot be served: Failed to allocate address: No available addresses in 10.224.0.0/16: 1 held, 0 free"),
        "{msg}"
    );
    assert_eq!((wire.count(), node.state_bytes()), (asked, before));
    drop(lock);
    let ready_lines = node.log()[log.len()..].matches("STATUS").count();
    assert_eq!(ready_lines, 1, "only problems are logged");
}

#[test]
fn status_reports_what_is_broken() {
    let (node, wire) = Node::with_wire("broken", Reply::Status(500, String::new()));
    let error_message = |node: &Node, ipam: Value| {
        let (code, msg) = status(node, ipam).run().error();
        assert_eq!(code, 50, "{msg}");
        msg
    };
    let none = error_message(&node, json!({}));
    assert!(none.contains("no pools, and no source"), "{none}");
    wire.set(Reply::Xml(xml([5])));
    node.add("c1").success();
    let wrong = error_message(&node, json!({ "subnet": "10.9.0.0/16" }));
    assert!(wrong.contains("Pool id 10.9.0.0/16 not found"), "{wrong}");
    let mut newer = node.state();
    newer["azure-vnet-ipam"]["format"] = 99.into();
    fs::write(node.state_path(), newer.to_string()).unwrap();
    assert!(error_message(&node, json!({})).contains("format 99"));
    let (code, msg) = check(&node, "c1", &["10.224.0.5"]).run().error();
    assert!(code == 100 && msg.contains("format 99"), "{msg}");
    // The next ADD rebuilds a corrupt state, if the source answers.
    node.remove_journal();
    fs::write(node.state_path(), "{ half").unwrap();
    status(&node, json!({})).run().assert_no_output();
    wire.set(Reply::Status(500, String::new()));
    assert!(error_message(&node, json!({})).contains("no pools, and no source"));
    assert_eq!(
        node.leftover_files(),
        [""; 0],
        "a STATUS sets nothing aside"
    );
}

#[test]
fn status_distinguishes_a_full_pool_from_an_unusable_one() {
    let (node, wire) = Node::with_wire("never", Reply::Xml(xml([])));
    let asked = |ipam: Value| status(&node, ipam).run().error();
    let (code, msg) = asked(json!({}));
    assert!(code == 50 && msg.contains("0 held, 0 free"), "{msg}");
    wire.set(Reply::Xml(xml([5])));
    let (code, msg) = asked(json!({ "exclude": ["0.0.0.0/0"] }));
    assert!(code == 50 && msg.contains("1 excluded"), "{msg}");
    assert_eq!(asked(json!({ "environment": "null" })).0, 50);
    node.put("/var/run/azure-vnet", "");
    let (code, msg) = asked(json!({}));
    assert!(code == 50 && msg.contains("is not a folder"), "{msg}");
}

fn settings(node: &Node, text: impl ToString) {
    node.put("/etc/azure-vnet-ipam.json", text.to_string());
}

#[test]
fn settings_file_supplies_defaults() {
    let (node, _wire) = Node::with_wire("settings", Reply::Xml(xml([5, 6, 7])));
    settings(
        &node,
        json!({ "exclude": ["10.224.0.5", "10.224.0.6/31"], "cooldown": 0 }),
    );
    let (code, msg) = node.add("c1").error();
    assert_eq!(
        (code, msg.as_str()),
        (
            100,
            "Failed to allocate address: No available addresses in 10.224.0.0/16: 0 held, 0 free, 3 excluded"
        )
    );
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
        let by_hand = |file: Option<&str>| {
            let mut command = std::process::Command::new(binary());
            command.env_clear().envs(&node.env).arg("check-settings");
            output(command.args(file))
        };
        let file = node.path("/etc/azure-vnet-ipam.json");
        for checked in [by_hand(None), by_hand(file.to_str())] {
            assert_eq!(checked.status.code(), Some(1), "{text}");
            let stderr = String::from_utf8(checked.stderr).unwrap();
            assert!(stderr.contains(left), "{stderr}");
        }
        settings(&node, r#"{"cooldown":5}"#);
        assert!(by_hand(None).status.success());
        fs::remove_file(file).unwrap();
        assert_eq!(by_hand(None).status.code(), Some(1), "it is not there");
    }
}

#[test]
fn addresses_can_be_requested_in_every_way_of_host_local() {
    let (node, _wire) = Node::with_wire("asked", Reply::Xml(xml([5, 6, 7, 8])));
    // A row has CNI_ARGS and members of the configuration.
    let ask = |row: &str| {
        let (args, members) = row.split_once(" | ").unwrap();
        let mut members: Value = serde_json::from_str(members).unwrap();
        let call = node.call("ADD", "c1").env("CNI_ARGS", args);
        let ipam = members["ipam"].take();
        members.as_object_mut().unwrap().remove("ipam");
        let ipam = if ipam.is_null() { json!({}) } else { ipam };
        call.stdin(conf_with(ipam, members)).run()
    };
    for row in [
        r#" | {"ipam":{"ipAddress":"10.224.0.7"}}"#,
        r#" | {"ipam":{"ipAddress":"10.224.0.7/16","subnet":"10.224.0.0/16"}}"#,
        "IgnoreUnknown=1;FOO=bar;IP=10.224.0.7 | {}",
        r#"IP=10.224.0.7/16 | {"ipam":{"subnet":"10.224.0.0/16"}}"#,
        r#" | {"args":{"cni":{"ips":["10.224.0.7"]}}}"#,
        r#" | {"runtimeConfig":{"ips":["10.224.0.7/16"]},"args":{"cni":{"ips":null}}}"#,
        r#"IP=10.224.0.7 | {"runtimeConfig":{"ips":["10.224.0.7"]}}"#,
    ] {
        assert_eq!(ask(row).address(), "10.224.0.7", "{row}");
        node.del("c1").assert_no_output();
        node.advance_clock(31);
    }
    let taken = conf("1.1.0", json!({ "ipAddress": "10.224.0.5" }));
    node.call("ADD", "other").stdin(taken).run().success();
    let before = node.held();
    for row in [
        "IP=banana | {} => 7 invalid requested address \"banana\" in CNI_ARGS IP: it is not an address",
        "IP=;IP=zzz | {} => 7 invalid requested address \"zzz\" in CNI_ARGS IP: it is not an address",
        "IP=10.224.0.6;IP=10.224.0.7 | {} => 7 invalid requested address \"10.224.0.7\" in CNI_ARGS IP: another",
        r#" | {"runtimeConfig":{"ips":["10.224.0.6","10.224.0.6/16"]}} => 7 invalid requested address "10.224.0.6/16" in runtimeConfig.ips: it is there twice"#,
        r#" | {"runtimeConfig":{"ips":["10.224.0.6","10.224.0.8"]}} => 7 invalid requested address "10.224.0.8" in runtimeConfig.ips: another of its family"#,
        r#" | {"Args":{"CNI":{"IPS":["zzz"]}},"RuntimeConfig":{"IPs":[]}} => 7 invalid requested address "zzz" in args.cni.ips"#,
        r#"IP=10.224.0.6 | {"ipam":{"ipAddress":"10.224.0.8"}} => 7 invalid requested address "10.224.0.6" in CNI_ARGS IP: another"#,
        r#" | {"runtimeConfig":{"ips":"10.224.0.6"}} => 7 runtimeConfig.ips must be a list of addresses, for example "#,
        r#" | {"args":{"cni":{"ips":[6]}}} => 7 args.cni.ips must be a list of addresses, for example "#,
        "IP=10.224.0.99 | {} => 100 Failed to allocate address: Address not found",
        "IP=fd00::5 | {} => 100 Failed to allocate address: Address not found",
        r#"IP=10.224.0.6 | {"ipam":{"ipAddress":"10.224.0.8/99"}} => 100 Failed to allocate address: Address not found"#,
        r#"IP=fd00::5 | {"ipam":{"subnet":"10.224.0.0/16"}} => 100 Failed to allocate address: Address not found"#,
        "IP=10.224.0.5 | {} => 100 Failed to allocate address: Address already in use",
        r#"IP=10.224.0.6 | {"ipam":{"exclude":["10.224.0.0/24"]}} => 100 Failed to allocate address: Address 10.224.0.6 is excluded"#,
        "FOO=bar;IP=10.224.0.6 | {} => 4 unknown args in CNI_ARGS: FOO",
    ] {
        let (asked, expected) = row.split_once(" => ").unwrap();
        let (code, msg) = ask(asked).error();
        assert!(
            format!("{code} {msg}").starts_with(expected),
            "{row}: {msg}"
        );
    }
    assert_eq!(node.held(), before);
    node.del("other").assert_no_output();
    let (code, msg) = ask("IP=10.224.0.5 | {}").error();
    let cooldown = "Failed to allocate address: Address 10.224.0.5 was released a moment ago, and is in cooldown for ";
    assert!(code == 100 && msg.starts_with(cooldown), "{msg}");
    let at_once = ask(r#"IP=10.224.0.5 | {"ipam":{"cooldown":0}}"#);
    assert_eq!(at_once.address(), "10.224.0.5");
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
    let second = xml([5, 6])
        .replace(
            "</Interfaces>",
            "<Interface MacAddress=\"7C1E52F9F3C5\" IsPrimary=\"false\"><IPSubnet Prefix=\"10.225.0.0/16\"><IPAddress Address=\"10.225.0.5\" IsPrimary=\"false\"/></IPSubnet></Interface></Interfaces>",
        );
    let (node, _wire) = Node::with_wire("networks", Reply::Xml(second));
    let add = |network: &str, master: &str, if_name: &str| {
        let mut conf: Value = serde_json::from_str(&conf("1.0.0", json!({}))).unwrap();
        conf["name"] = network.into();
        conf["master"] = master.into();
        let call = node.call("ADD", "c1").env("CNI_IFNAME", if_name);
        (conf.to_string(), call.stdin(conf.to_string()).run())
    };
    let (first, one) = add("blue", "eth0", "eth0");
    let (other, two) = add("red", "eth1", "net1");
    let (_, three) = add("red", "eth0", "eth0");
    assert_eq!(
        [one.address(), two.address(), three.address()],
        ["10.224.0.5", "10.225.0.5", "10.224.0.6"]
    );
    node.call("DEL", "c1")
        .stdin(&first)
        .run()
        .assert_no_output();
    assert_eq!(
        node.held().into_keys().collect::<Vec<_>>(),
        ["10.224.0.6", "10.225.0.5"],
        "one network's DEL leaves the other's address of the same name"
    );
    node.call("DEL", "c1")
        .env("CNI_IFNAME", "net1")
        .stdin(&other)
        .run()
        .assert_no_output();
    assert_eq!(node.held().into_keys().collect::<Vec<_>>(), ["10.224.0.6"]);
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
