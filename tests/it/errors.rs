//! Invalid input is answered with one error object with the right code, and changes nothing. The recorded cases of the original have
//! more of it, and `error_table.rs` every error that there is.

use serde_json::{Value, json};

use crate::harness::{Node, Outcome, Reply, conf, xml};

/// Checks rows `INPUT => CODE MESSAGE`, with the beginning of the message, and that the state is as before, but for the newest ADD.
fn assert_refused<const N: usize>(
    name: &str,
    rows: [&str; N],
    add: impl Fn(&Node, &str) -> Outcome,
) {
    let (node, _wire) = Node::with_wire(name, Reply::Xml(xml([5, 6])));
    node.add("holder").success();
    let records = |node: &Node| {
        let state: Value = node.state();
        [
            &state["IPAM"]["AddressSpaces"],
            &state["azure-vnet-ipam"]["records"],
        ]
        .map(Value::clone)
    };
    let before = records(&node);
    for row in rows {
        let (input, expected) = row.split_once(" => ").unwrap();
        let (code, msg) = add(&node, input).error();
        let found = format!("{code} {msg}");
        assert!(found.starts_with(expected), "{row}: {found}");
    }
    assert_eq!(records(&node), before);
}

#[test]
fn invalid_environments_are_refused() {
    let rows = [
        "CNI_CONTAINERID= => 4 required env variables [CNI_CONTAINERID] missing",
        "CNI_NETNS= => 4 required env variables [CNI_NETNS] missing",
        "CNI_IFNAME= => 4 required env variables [CNI_IFNAME] missing",
        "CNI_CONTAINERID=../../etc => 4 invalid characters in containerID",
        "CNI_IFNAME=a\u{a0}b => 4 interface name contains / or : or whitespace characters",
        "CNI_IFNAME=.. => 4 interface name is . or ..",
        "CNI_IFNAME=äääääääää => 4 interface name is too long",
        "CNI_COMMAND=UPDATE => 4 unknown CNI_COMMAND: UPDATE",
        "CNI_COMMAND=add => 4 unknown CNI_COMMAND: add",
        "AZURE_VNET_IPAM_QUERY_URL=https://example.invalid/ => 7 invalid query URL",
    ];
    assert_refused("environment", rows, |node, input| {
        let (name, value) = input.split_once('=').unwrap();
        node.call("ADD", "c1").env(name, value).run()
    });
    let node = Node::new("bare");
    let missing = |verb: &str| {
        let bare = node.call(verb, "").without("CNI_NETNS");
        bare.without("CNI_IFNAME").run().error()
    };
    assert_eq!(missing("NONE"), (3, "missing containerID".to_owned()));
    let all = "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME] missing";
    assert_eq!(missing("ADD"), (4, all.to_owned()));
    for (verb, id) in [("GC", "c1"), ("GC", ""), ("STATUS", "c1"), ("STATUS", "")] {
        let call = node.call(verb, id).stdin(conf("1.0.0", json!({})));
        let msg = format!("config version does not allow {verb}");
        assert_eq!(call.run().error(), (1, msg), "{id}");
    }
}

#[test]
fn invalid_network_configurations_are_refused() {
    let huge = format!(r#"{{"name":"a","x":"{}"}} => 6"#, "x".repeat(1 << 20));
    let deep = format!(r#"{{"name":"a","x":{}}} => 6"#, "[".repeat(100_000));
    let rows = [
        " => 6 error unmarshall network config: unexpected end of JSON input",
        "hello => 6 error unmarshall network config: ",
        "[] => 6 error unmarshall network config: ",
        r#"{"name":1} => 6 error unmarshall network config: "#,
        r#"{"name":"a"} x => 6 error unmarshall network config: "#,
        "null => 7 missing network name",
        r#"{"name":"../x"} => 7 invalid characters found in network name"#,
        r#"{"name":"a","cniVersion":3} => 6 decoding version from network config: "#,
        r#"{"name":"a","cniVersion":"0.3"} => 1 incompatible CNI versions"#,
        r#"{"name":"a","cniVersion":"2.0.0"} => 1 incompatible CNI versions"#,
        r#"{"name":"a","ipam":7} => 100 Failed to parse network configuration: "#,
        r#"{"name":"a","ipam":{"environment":"x"}} => 100 Failed to parse network configuration: Invalid configuration"#,
        r#"{"name":"a","ipam":{"queryUrl":"gopher://x"}} => 7 invalid query URL"#,
        r#"{"name":"a","ipam":{"addressSpace":"x"}} => 100 Failed to allocate pool: Invalid address space"#,
        r#"{"name":"a","ipam":{"subnet":"10.9.0.0/16"}} => 100 Failed to allocate address: Pool id 10.9.0.0/16 not found :Invalid address pool"#,
        r#"{"name":"a","master":"eth9"} => 100 Failed to allocate pool: no available address pools"#,
        &huge,
        &deep,
    ];
    assert_refused("netconf", rows, |node, stdin| {
        node.call("ADD", "c1").stdin(stdin).run()
    });
}

#[test]
fn error_echoes_the_callers_version() {
    let node = Node::new("errorversion");
    let wrong = |version| conf(version, json!({ "environment": "x" }));
    for (stdin, version) in [
        (wrong("0.1.0"), "0.1.0"),
        (wrong("1.0.0"), "1.0.0"),
        ("x".to_owned(), "1.1.0"),
    ] {
        let outcome = node.call("ADD", "c1").stdin(stdin).run();
        assert_eq!(outcome.json()["cniVersion"], version);
    }
}

#[test]
fn container_names_appear_only_in_details() {
    let (node, _wire) = Node::with_wire("details", Reply::Xml(xml([5])));
    node.add("secret-container").success();
    let full =
        "Failed to allocate address: No available addresses in 10.224.0.0/16: 1 held, 0 free";
    assert_eq!(node.add("c2").error().1, full);
    let asked = conf("0.3.0", json!({ "ipAddress": "10.224.0.5" }));
    let held = node.call("ADD", "c2").stdin(asked).run();
    assert!(!held.error().1.contains("secret-container"));
    let details = held.json()["details"].as_str().unwrap().to_owned();
    assert!(details.contains("secret-container"), "{details}");
}

#[test]
fn del_succeeds_when_nothing_exists() {
    let (node, wire) = Node::with_wire("del", Reply::Xml(xml([5])));
    let hints = [
        json!({}),
        json!({ "subnet": "10.9.0.0/16" }),
        json!({ "subnet": 7, "ipAddress": [] }),
        json!({ "addressSpace": "nowhere" }),
        json!({ "environment": "nonsense" }),
        json!({ "environment": "mas" }),
        json!({ "queryUrl": "gopher://x" }),
        json!({ "subnet": "x", "ipAddress": "y" }),
    ];
    let del = |hint: &Value| {
        let call = node.call("DEL", "c1").without("CNI_NETNS");
        let stdin = conf("0.3.0", hint.clone());
        call.stdin(stdin).run().assert_no_output();
    };
    for hint in &hints {
        del(hint);
        assert!(!node.state_path().exists(), "a DEL makes no state");
    }
    assert_eq!(wire.count(), 0, "and asks nobody");
    for hint in &hints {
        node.add("c1").success();
        del(hint);
        assert!(node.held().is_empty(), "{hint}");
    }
}
