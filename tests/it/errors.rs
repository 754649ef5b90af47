//! Every invalid input is answered with one error object with the right code, and changes nothing.

use serde_json::json;

use crate::harness::{Node, Reply, conf, xml};

/// Checks that the state has the same bytes before and after.
fn assert_state_unchanged(node: &Node, call: impl FnOnce(&Node)) {
    node.add("holder").success();
    let before = node.state_bytes();
    call(node);
    let mut after = node.state();
    let mut was: serde_json::Value = serde_json::from_slice(&before).unwrap();
    for state in [&mut was, &mut after] {
        state["IPAM"]["TimeStamp"] = json!(null);
        state["azure-vnet-ipam"]["timeStamp"] = json!(null);
        state["azure-vnet-ipam"]["refreshed"] = json!(null);
        state["azure-vnet-ipam"]["generation"] = json!(null);
    }
    assert_eq!(was, after);
}

#[test]
fn invalid_environments_are_refused() {
    let (node, _wire) = Node::with_wire("environment", Reply::Xml(xml([5, 6])));
    let cases: &[(&str, &str, i64, &str)] = &[
        (
            "CNI_CONTAINERID",
            "",
            4,
            "required env variables [CNI_CONTAINERID] missing",
        ),
        (
            "CNI_NETNS",
            "",
            4,
            "required env variables [CNI_NETNS] missing",
        ),
        (
            "CNI_IFNAME",
            "",
            4,
            "required env variables [CNI_IFNAME] missing",
        ),
        (
            "CNI_CONTAINERID",
            "a/b",
            4,
            "invalid characters in containerID",
        ),
        (
            "CNI_CONTAINERID",
            "../../etc",
            4,
            "invalid characters in containerID",
        ),
        (
            "CNI_IFNAME",
            "eth0/1",
            4,
            "interface name contains / or : or whitespace characters",
        ),
        ("CNI_IFNAME", "..", 4, "interface name is . or .."),
        (
            "CNI_IFNAME",
            "abcdefghijklmnop",
            4,
            "interface name is too long",
        ),
        ("CNI_COMMAND", "UPDATE", 4, "unknown CNI_COMMAND: UPDATE"),
        ("CNI_COMMAND", "add", 4, "unknown CNI_COMMAND: add"),
        (
            "AZURE_VNET_IPAM_QUERY_URL",
            "https://example.invalid/",
            7,
            "invalid query URL",
        ),
    ];
    assert_state_unchanged(&node, |node| {
        for (name, value, code, msg) in cases {
            let (got, text) = node.call("ADD", "c1").env(name, value).run().error();
            assert!(
                got == *code && text.starts_with(msg),
                "{name}={value}: {got} {text}"
            );
        }
        let (code, msg) = node.call("NONE", "").run().error();
        assert_eq!((code, msg.as_str()), (3, "missing containerID"));
        let bare = node
            .call("ADD", "")
            .without("CNI_NETNS")
            .without("CNI_IFNAME")
            .run()
            .error();
        assert_eq!(
            bare.1,
            "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME] missing"
        );
        for (verb, too_old) in [
            ("CHECK", &["0.1.0", "0.3.1"][..]),
            ("GC", &["0.3.1", "0.4.0", "1.0.0"]),
            ("STATUS", &["0.3.1", "0.4.0", "1.0.0"]),
        ] {
            for version in too_old {
                for id in ["c1", ""] {
                    if verb == "CHECK" && id.is_empty() {
                        continue;
                    }
                    let call = node.call(verb, id).stdin(conf(version, json!({})));
                    let msg = format!("config version does not allow {verb}");
                    assert_eq!(call.run().error(), (1, msg), "{version} {id}");
                }
            }
        }
    });
    node.call("ADD", "c1").without("CNI_PATH").run().success();
}

#[test]
fn invalid_network_configurations_are_refused() {
    let (node, _wire) = Node::with_wire("netconf", Reply::Xml(xml([5, 6])));
    let cases: &[(&str, i64, &str)] = &[
        (
            "",
            6,
            "error unmarshall network config: unexpected end of JSON input",
        ),
        ("hello", 6, "error unmarshall network config: "),
        ("[]", 6, "error unmarshall network config: "),
        (r#"{"name":1}"#, 6, "error unmarshall network config: "),
        (r#"{"name":"a"} x"#, 6, "error unmarshall network config: "),
        ("null", 7, "missing network name"),
        (r#"{"cniVersion":"0.3.0"}"#, 7, "missing network name"),
        (
            r#"{"name":"../x"}"#,
            7,
            "invalid characters found in network name",
        ),
        (
            r#"{"name":"a","cniVersion":3}"#,
            6,
            "decoding version from network config: ",
        ),
        (
            r#"{"name":"a","cniVersion":"0.3"}"#,
            1,
            "incompatible CNI versions",
        ),
        (
            r#"{"name":"a","cniVersion":"2.0.0"}"#,
            1,
            "incompatible CNI versions",
        ),
        (
            r#"{"name":"a","ipam":7}"#,
            100,
            "Failed to parse network configuration: ",
        ),
        (
            r#"{"name":"a","ipam":{"subnet":7}}"#,
            100,
            "Failed to parse network configuration: ",
        ),
        (
            r#"{"name":"a","ipam":{"environment":"x"}}"#,
            100,
            "Failed to parse network configuration: Invalid configuration",
        ),
        (
            r#"{"name":"a","ipam":{"queryUrl":"gopher://x"}}"#,
            7,
            "invalid query URL",
        ),
        (
            r#"{"name":"a","ipam":{"addressSpace":"x"}}"#,
            100,
            "Failed to allocate pool: Invalid address space",
        ),
        (
            r#"{"name":"a","ipam":{"subnet":"10.9.0.0/16"}}"#,
            100,
            "Failed to allocate address: Pool id 10.9.0.0/16 not found :Invalid address pool",
        ),
        (
            r#"{"name":"a","ipam":{"ipAddress":"10.224.0.99"}}"#,
            100,
            "Failed to allocate address: Address not found",
        ),
        (
            r#"{"name":"a","ipam":{"ipAddress":"10.224.0.5"}}"#,
            100,
            "Failed to allocate address: Address already in use",
        ),
        (
            r#"{"name":"a","master":"eth9"}"#,
            100,
            "Failed to allocate pool: no available address pools",
        ),
    ];
    assert_state_unchanged(&node, |node| {
        for (stdin, code, msg) in cases {
            let (got, text) = node.call("ADD", "c1").stdin(*stdin).run().error();
            assert!(
                got == *code && text.starts_with(msg),
                "{stdin}: {got} {text}"
            );
        }
        let huge = format!(r#"{{"name":"a","x":"{}"}}"#, "x".repeat(1 << 20));
        assert_eq!(node.call("ADD", "c1").stdin(huge).run().error().0, 6);
        let deep = format!(r#"{{"name":"a","x":{}}}"#, "[".repeat(100_000));
        assert_eq!(node.call("ADD", "c1").stdin(deep).run().error().0, 6);
    });
}

#[test]
fn error_echoes_the_callers_version() {
    let node = Node::new("errorversion");
    for version in ["0.1.0", "0.4.0", "1.0.0", "1.1.0"] {
        let outcome = node
            .call("ADD", "c1")
            .stdin(conf(version, json!({ "environment": "x" })))
            .run();
        assert_eq!(outcome.json()["cniVersion"], version);
    }
    assert_eq!(
        node.call("ADD", "c1").stdin("x").run().json()["cniVersion"],
        "1.1.0"
    );
}

#[test]
fn container_names_appear_only_in_details() {
    let (node, _wire) = Node::with_wire("details", Reply::Xml(xml([5])));
    node.add("secret-container").success();
    let full = node.add("c2");
    assert_eq!(
        full.error().1,
        "Failed to allocate address: No available addresses in 10.224.0.0/16: 1 held, 0 free"
    );
    let asked = conf("0.3.0", json!({ "ipAddress": "10.224.0.5" }));
    let held = node.call("ADD", "c2").stdin(asked).run();
    assert!(!held.error().1.contains("secret-container"));
    assert!(
        held.json()["details"]
            .as_str()
            .unwrap()
            .contains("secret-container")
    );
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
    for hint in &hints {
        node.call("DEL", "c1")
            .stdin(conf("0.3.0", hint.clone()))
            .run()
            .assert_no_output();
        assert!(!node.state_path().exists(), "a DEL makes no state");
    }
    assert_eq!(wire.count(), 0, "and asks nobody");
    for hint in hints {
        node.add("c1").success();
        node.call("DEL", "c1")
            .without("CNI_NETNS")
            .stdin(conf("0.3.0", hint.clone()))
            .run()
            .assert_no_output();
        assert!(node.held().is_empty(), "{hint}");
    }
}
