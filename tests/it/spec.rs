//! The requirements of CNI SPEC.md 1.1.0 on an IPAM plugin: every "must", "must not" and "should", named by
//! section and paraphrased. Requirements on runtimes and on plugins that create interfaces are left out.

use std::fs;
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Node, Outcome, Reply, WireServer, conf, xml};
use crate::verbs::{call_without_container, conf_with, prev_result};

fn node(last: impl IntoIterator<Item = u16>) -> (Node, WireServer) {
    Node::with_wire("spec", Reply::Xml(xml(last)))
}

fn add(node: &Node, container_id: &str) -> Outcome {
    node.call("ADD", container_id)
        .stdin(conf("1.1.0", json!({})))
        .run()
}

fn del(node: &Node, container_id: &str) -> Outcome {
    node.call("DEL", container_id)
        .stdin(conf("1.1.0", json!({})))
        .run()
}

fn check(node: &Node, container_id: &str, members: Value) -> Outcome {
    node.call("CHECK", container_id)
        .stdin(conf_with(json!({}), members))
        .run()
}

/// Section 1, Configuration format: a name must start with a letter or digit, followed by those and `_`, `.`, `-`.
#[test]
fn s1_network_names_are_validated() {
    let (node, _wire) = node([5, 6]);
    let named = |name: &str| {
        let conf = conf("1.1.0", json!({})).replace("\"azure\"", &format!("\"{name}\""));
        node.call("ADD", "c1").stdin(conf).run()
    };
    named("a0_.-Z").success();
    for bad in ["", "_a", "-a", ".a", "a/b", "a b", "ä"] {
        assert_eq!(named(bad).error().0, 7, "{bad}");
    }
}

/// Section 1, Plugin configuration objects: plugins may define more keys; foreign keys are ignored.
#[test]
fn s1_unknown_keys_are_ignored() {
    let (node, _wire) = node([5]);
    let others = json!({ "ipMasq": true, "dns": { "nameservers": ["1.1.1.1"] }, "args": { "labels": { "a": 1 } }, "x": [7], "capabilities": { "ips": true } });
    node.call("ADD", "c1")
        .stdin(conf_with(json!({ "y": {} }), others))
        .run()
        .success();
}

/// Section 1, well-known keys should keep their meaning: `capabilities` and `runtimeConfig` request addresses.
#[test]
fn s1_capability_is_read_from_runtime_config() {
    let (node, _wire) = node([5, 6]);
    let asks =
        json!({ "capabilities": { "ips": true }, "runtimeConfig": { "ips": ["10.224.0.6/16"] } });
    let add = node.call("ADD", "c1").stdin(conf_with(json!({}), asks));
    assert_eq!(add.run().address(), "10.224.0.6");
}

/// Section 2, Parameters: a container ID must not be empty, and has the form of a name.
#[test]
fn s2_container_ids_are_validated() {
    let (node, _wire) = node([5]);
    for bad in ["", "_a", "a/b", "a b"] {
        assert_eq!(add(&node, bad).error().0, 4, "{bad}");
    }
    add(&node, "a0_.-Z").success();
}

/// Section 2, Parameters: a plugin that cannot use an interface name must return an error.
#[test]
fn s2_interface_names_are_validated() {
    let (node, _wire) = node([5]);
    for bad in ["", ".", "..", "a/b", "a:b", "a b", "abcdefghijklmnop"] {
        let call = node.call("ADD", "c1").env("CNI_IFNAME", bad);
        assert_eq!(call.run().error().0, 4, "{bad}");
    }
}

/// Section 2, Errors: exit 0 on success; non-zero and an error object on stdout on failure. Section 5, Error: what is written to
/// stderr is free text and never the answer.
#[test]
fn s2_failure_has_exit_status_and_error_object() {
    let (node, _wire) = node([5]);
    let added = add(&node, "c1");
    assert!(added.exit == Some(0) && added.stderr.is_empty());
    let failed = add(&node, "c2");
    assert!(failed.stdout.starts_with('{') && failed.stderr.is_empty());
    let (code, msg) = failed.error();
    assert!(code >= 100 && !msg.is_empty());
    assert_eq!(failed.json()["cniVersion"], "1.1.0");
}

/// Section 2, ADD: `prevResult` must be passed on or changed properly. A delegated plugin's result is its own addresses, so that
/// of a previous plugin nothing may appear twice or be lost in it.
#[test]
fn s2_add_ignores_a_previous_result() {
    let (node, _wire) = node([5]);
    let add = node
        .call("ADD", "c1")
        .stdin(conf_with(json!({}), prev_result(&["192.168.0.9"])))
        .run();
    let ips = add.success().json()["ips"].clone();
    assert_eq!(
        ips,
        json!([{ "address": "10.224.0.5/16", "gateway": "10.224.0.1" }])
    );
}

/// Section 2, DEL: must accept several DELs of one attachment, and succeed when nothing is there. All resources of the attachment
/// are released, with and without `prevResult`.
#[test]
fn s2_del_releases_all_and_succeeds_when_repeated() {
    let (node, _wire) = node([5, 6]);
    for members in [json!({}), prev_result(&["10.224.0.5"])] {
        add(&node, "c1").success();
        for _ in 0..3 {
            let call = node.call("DEL", "c1");
            let stdin = conf_with(json!({}), members.clone());
            call.stdin(stdin).run().assert_no_output();
            assert!(node.held().is_empty());
        }
    }
}

/// Section 2, DEL: should end without error when resources are missing: namespace, source, state.
#[test]
fn s2_del_succeeds_without_state_or_source() {
    let (node, wire) = node([5]);
    del(&node, "c1").assert_no_output();
    add(&node, "c1").success();
    wire.set(Reply::Silent);
    let call = node.call("DEL", "c1").without("CNI_NETNS");
    call.stdin(conf("1.1.0", json!({})))
        .run()
        .assert_no_output();
    assert!(node.held().is_empty());
    fs::remove_file(node.state_path()).unwrap();
    del(&node, "c1").assert_no_output();
}

/// Section 2, CHECK: must use `prevResult`, prints nothing or an error, and should fail when an address of `prevResult`, or a
/// reservation, is missing.
#[test]
fn s2_check_follows_the_previous_result() {
    let (node, _wire) = node([5, 6]);
    add(&node, "c1").success();
    let before = node.state_bytes();
    check(&node, "c1", prev_result(&["10.224.0.5"])).assert_no_output();
    check(&node, "c1", prev_result(&["10.224.0.6"])).error();
    assert_eq!(node.state_bytes(), before, "a CHECK changes nothing");
    del(&node, "c1").assert_no_output();
    let missing = check(&node, "c1", prev_result(&["10.224.0.5"]));
    assert_eq!(missing.error().0, 3);
}

/// Section 2, CHECK: must allow for a later plugin of the chain to have changed routes and other things.
#[test]
fn s2_check_ignores_addresses_of_other_plugins() {
    let (node, _wire) = node([5]);
    add(&node, "c1").success();
    let mut changed = prev_result(&["10.224.0.5", "172.16.0.1"]);
    changed["prevResult"]["routes"] = json!([{ "dst": "10.0.0.0/8" }]);
    changed["prevResult"]["interfaces"] = json!([{ "name": "x" }]);
    check(&node, "c1", changed).assert_no_output();
}

/// Section 2, CHECK: must work immediately after ADD.
#[test]
fn s2_check_succeeds_right_after_add() {
    let (node, _wire) = node(5..15);
    thread::scope(|scope| {
        for n in 0..8 {
            let node = &node;
            scope.spawn(move || {
                let pod = format!("c{n}");
                let address = add(node, &pod).address();
                check(node, &pod, prev_result(&[&address])).assert_no_output();
            });
        }
    });
}

/// Section 2, STATUS: must exit 0 when ADDs can be served.
#[test]
fn s2_status_succeeds_when_ready() {
    let (node, _wire) = node([5]);
    call_without_container(&node, "STATUS", json!({}))
        .run()
        .assert_no_output();
}

/// Section 2, STATUS: must exit with an error when it is known that ADDs cannot be served; should when what it depends on is
/// not there. The code is 50.
#[test]
fn s2_status_fails_when_broken() {
    let (node, wire) = node([5]);
    wire.set(Reply::Status(503, String::new()));
    let broken = call_without_container(&node, "STATUS", json!({})).run();
    assert_eq!(broken.error().0, 50);
}

/// Section 2, STATUS: should fail when limited resources are exhausted; with `ipam.statusWhenFull` (the reference page tells why not
/// by default).
#[test]
fn s2_status_reports_exhaustion_when_configured() {
    let (node, _wire) = node([5]);
    add(&node, "c1").success();
    let asked = |when: &str| {
        call_without_container(&node, "STATUS", json!({}))
            .stdin(conf("1.1.0", json!({ "statusWhenFull": when })))
            .run()
    };
    assert_eq!(asked("error").error().0, 50);
    asked("ready").assert_no_output();
}

/// Section 2, STATUS: must not be relied on. ADD and DEL work whatever it returned, and without it.
#[test]
fn s2_add_works_without_status() {
    let (node, wire) = node([5, 6]);
    add(&node, "c1").success();
    fs::rename(node.state_path(), node.path("/aside")).unwrap();
    node.remove_journal();
    wire.set(Reply::Status(503, String::new()));
    call_without_container(&node, "STATUS", json!({}))
        .run()
        .error();
    fs::rename(node.path("/aside"), node.state_path()).unwrap();
    add(&node, "c2").success();
    del(&node, "c1").assert_no_output();
}

/// Section 2, VERSION: prints the caller's version and all supported versions.
#[test]
fn s2_version_lists_versions() {
    let node = Node::new("spec");
    for version in ["0.4.0", "1.0.0", "1.1.0"] {
        let call = node.call("VERSION", "");
        let answer = call.stdin(json!({ "cniVersion": version }).to_string());
        let answer = answer.run().success().json();
        assert_eq!(answer["cniVersion"], version);
        let all = [
            "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
        ];
        assert_eq!(answer["supportedVersions"], json!(all));
    }
}

/// Section 2, GC: the list of valid attachments is required.
#[test]
fn s2_gc_requires_its_list() {
    let (node, _wire) = node([5]);
    add(&node, "c1").success();
    node.advance_clock(600);
    assert_eq!(
        call_without_container(&node, "GC", json!({}))
            .run()
            .error()
            .0,
        7
    );
    assert_eq!(node.held().len(), 1);
}

/// Section 2, GC: valid attachments must stay.
#[test]
fn s2_gc_keeps_valid_attachments() {
    let (node, _wire) = node([5]);
    add(&node, "c1").success();
    node.advance_clock(600);
    let valid = json!([{ "containerID": "c1", "ifname": "eth0" }]);
    let gc = call_without_container(&node, "GC", json!({ "cni.dev/valid-attachments": valid }));
    gc.run().assert_no_output();
    assert_eq!(node.held().len(), 1);
}

/// Section 2, GC: should go on after an error, remove what it can, and report all at its end. (That others are freed meanwhile,
/// `callers::cnitool_runs_every_verb_without_main_plugin` shows with a real kernel.)
#[test]
fn s2_gc_reports_what_it_could_not_free() {
    let (node, _wire) = node([5, 6]);
    add(&node, "c1").success();
    add(&node, "c2").success();
    node.advance_clock(600);
    let gc = call_without_container(&node, "GC", json!({ "cni.dev/attachments": null })).run();
    let (_, msg) = gc.error();
    assert!(msg.starts_with("2 stale addresses are kept"), "{msg}");
    let details = gc.json()["details"].as_str().unwrap().to_owned();
    assert!(
        details.contains("c1") && details.contains("c2"),
        "{details}"
    );
}

/// Section 3, Lifecycle and ordering: must cope with running at once for different containers, locking what is shared.
#[test]
fn s3_parallel_containers_get_distinct_addresses() {
    let (node, _wire) = node(5..25);
    let addresses: Vec<_> = thread::scope(|scope| {
        let calls: Vec<_> = (0..20)
            .map(|n| {
                let node = &node;
                scope.spawn(move || add(node, &format!("c{n}")).address())
            })
            .collect();
        calls.into_iter().map(|c| c.join().unwrap()).collect()
    });
    let mut apart = addresses.clone();
    apart.sort();
    apart.dedup();
    assert_eq!(apart.len(), 20, "{addresses:?}");
}

/// Section 3, Attachment parameters: an attachment is (network, container ID, interface name).
#[test]
fn s3_attachment_is_network_container_and_interface() {
    let (node, _wire) = node([5, 6, 7]);
    let add = |network: &str, if_name: &str| {
        let conf = conf("1.1.0", json!({})).replace("\"azure\"", &format!("\"{network}\""));
        let call = node.call("ADD", "c1").env("CNI_IFNAME", if_name);
        call.stdin(conf).run().address()
    };
    let three = [add("a", "eth0"), add("b", "eth0"), add("a", "net1")];
    assert_eq!(three, ["10.224.0.5", "10.224.0.6", "10.224.0.7"]);
    assert_eq!(add("a", "eth0"), "10.224.0.5");
}

/// Section 2, ADD: a successful plugin must print a result. Section 4, Delegated plugins: an IPAM plugin must find address, gateway and
/// routes, and return them.
#[test]
fn s4_result_has_address_gateway_and_routes() {
    let (node, _wire) = node([5]);
    let result = add(&node, "c1").json();
    assert_eq!(result["ips"][0]["address"], "10.224.0.5/16");
    assert_eq!(result["ips"][0]["gateway"], "10.224.0.1");
    assert_eq!(
        result["routes"],
        json!([{ "dst": "0.0.0.0/0", "gw": "10.224.0.1" }])
    );
}

/// Section 5, ADD success: the version must be the input's; a delegated plugin must leave out `interfaces`, and `interface` in
/// `ips`.
#[test]
fn s5_result_is_abbreviated() {
    let (node, _wire) = node([5]);
    for version in ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let call = node.call("ADD", "c1").stdin(conf(version, json!({})));
        let result = call.run().success().json();
        assert_eq!(result["cniVersion"], version);
        assert_eq!(result.get("interfaces"), None);
        assert_eq!(result["ips"][0].get("interface"), None);
        assert_eq!(
            result["ips"][0].get("version").is_some(),
            version < "1.0.0",
            "only results up to 0.4.0 name the family"
        );
    }
}

/// Section 5, Error: `cniVersion`, `code` and `msg`, perhaps `details`; codes below 100 only with their fixed meanings.
#[test]
fn s5_errors_have_the_specified_codes() {
    let (node, _wire) = node([5]);
    let code = |stdin: &str| node.call("ADD", "c1").stdin(stdin).run().error().0;
    assert_eq!(code(r#"{"name":"a","cniVersion":"9.0.0"}"#), 1);
    assert_eq!(code("{"), 6);
    assert_eq!(code(r#"{"cniVersion":"1.1.0"}"#), 7);
    assert_eq!(node.call("PLAY", "c1").run().error().0, 4);
    add(&node, "c1").success();
    assert_eq!(add(&node, "c2").error().0, 100);
}
