//! When the source is queried: fetches of a burst, failures, and implausible answers.

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::harness::wait::{LIMIT, wait_until};
use crate::harness::{Gate, Node, Reply, SUBNET, conf, lock_waiters, xml};

#[test]
fn burst_makes_one_fetch() {
    const BURST: usize = 40;
    let answer = Reply::Xml(xml(5..45));
    let gate = Gate::default();
    let (node, wire) = Node::with_wire("burst", Reply::Gated(gate.clone(), Box::new(answer)));
    let calls = (0..BURST).map(|n| node.call("ADD", &format!("c{n}")).start());
    let calls: Vec<_> = calls.collect();
    // One call fetches. All other calls have started and wait for it.
    wait_until("a burst that waits for one fetch", || {
        wire.count() == 1 && lock_waiters(&node.fetch_lock_path()) == BURST - 1
    });
    gate.open();
    let mut addresses: Vec<_> = calls.into_iter().map(|c| c.finish().address()).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), BURST);
    assert_eq!(wire.count(), 1, "it served all who had started before");
}

#[test]
fn query_interval_allows_old_data_until_pool_is_exhausted() {
    let (node, wire) = Node::with_wire("interval", Reply::Xml(xml([5, 6])));
    let add = |id: &str| {
        node.call("ADD", id)
            .stdin(conf(
                "0.3.0",
                json!({ "subnet": SUBNET, "queryInterval": "3600" }),
            ))
            .run()
    };
    add("c1").success();
    add("c2").success();
    assert_eq!(wire.count(), 1);
    wire.set(Reply::Xml(xml([5, 6, 7])));
    assert_eq!(
        add("c3").address(),
        "10.224.0.7",
        "asked when nothing was left"
    );
    assert_eq!(wire.count(), 2);
    add("c4").error();
    assert_eq!(wire.count(), 3);
}

#[test]
fn failed_fetch_pauses_fetching_while_pools_serve() {
    let (node, wire) = Node::with_wire("pause", Reply::Xml(xml([5, 6, 7])));
    node.add("c1").success();
    wire.set(Reply::Status(500, "oops".into()));
    node.add("c2").success();
    assert_eq!(wire.count(), 2);
    node.add("c3").success();
    assert_eq!(wire.count(), 2, "not asked again within ten seconds");
    wire.set(Reply::Xml(xml([5, 6, 7, 8])));
    assert_eq!(
        node.add("c4").address(),
        "10.224.0.8",
        "but when nothing was left"
    );
    assert_eq!(wire.count(), 3);
}

#[test]
fn garbage_answer_never_harms() {
    let good = xml([5, 6, 7, 8]);
    let garbage = [
        Reply::Xml(String::new()),
        Reply::Xml("<html><body>welcome</body></html>".into()),
        Reply::Xml(good[..good.len() / 2].to_owned()),
        Reply::Xml("<Interfaces/>".into()),
        Reply::Status(404, good.clone()),
        Reply::Status(302, good.clone()),
        Reply::Raw(b"SSH-2.0-OpenSSH\r\n".to_vec()),
        Reply::Raw(Vec::new()),
        Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n<Interfaces>".to_vec()),
        Reply::Xml(format!("<Interfaces>{}", " ".repeat(5 << 20))),
        // Valid but useless answers: one has no interface of this node, the other has no address for pods.
        Reply::Xml(good.replace("7C1E52F9F3C4", "001122334455")),
        Reply::Xml(xml([])),
    ];
    for (n, reply) in garbage.into_iter().enumerate() {
        let (node, wire) = Node::with_wire("garbage", Reply::Xml(good.clone()));
        node.add("c1").success();
        node.add("c2").success();
        node.del("c2").assert_no_output();
        wire.set(reply);
        assert_eq!(node.add("c3").address(), "10.224.0.7", "reply {n}");
        assert_eq!(wire.count(), 3, "reply {n} was seen");
        let pool = &node.state()["IPAM"]["AddressSpaces"]["local"]["Pools"][SUBNET]["Addresses"];
        assert_eq!(
            pool.as_object().unwrap().len(),
            4,
            "reply {n} took nothing away"
        );
        assert!(
            node.log().contains("Source refresh failed"),
            "reply {n} was logged"
        );
        assert_eq!(node.held().len(), 2);
    }
}

#[test]
fn implausible_answer_is_believed_after_a_minute() {
    let (node, wire) = Node::with_wire("drastic", Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    wire.set(Reply::Xml(xml([])));
    node.add("c2").success();
    node.advance_clock(45);
    node.add("c1").success();
    let state = |node: &Node| {
        node.state()["IPAM"]["AddressSpaces"]["local"]["Pools"][SUBNET]["Addresses"]
            .as_object()
            .unwrap()
            .len()
    };
    node.del("c2").assert_no_output();
    assert_eq!(
        (wire.count(), state(&node)),
        (3, 2),
        "seen again, and still doubted"
    );
    node.advance_clock(45);
    node.add("c1").success();
    assert_eq!(
        (wire.count(), state(&node)),
        (4, 1),
        "only what is held is left"
    );
    assert_eq!(
        node.add("c2").error().1,
        "Failed to allocate address: No available addresses in 10.224.0.0/16: 1 held, 0 free"
    );
}

#[test]
fn slow_source_does_not_block_other_calls() {
    // The source has three seconds. A busy machine may need longer to start the other calls.
    let is_seen = (0..10).any(|_| other_calls_go_on_during_a_fetch());
    assert!(is_seen, "a DEL does not wait");
}

/// Starts a DEL and an ADD while another ADD waits for the source. Returns whether both came before the source was given up.
fn other_calls_go_on_during_a_fetch() -> bool {
    let (node, wire) = Node::with_wire("slow", Reply::Xml(xml([5, 6, 7])));
    node.add("c1").success();
    wire.set(Reply::Silent);
    let mut waiting = node.call("ADD", "c2").start();
    wait_until("the request of the ADD", || wire.count() == 2);
    node.del("c1").assert_no_output();
    let second = node.call("ADD", "c3").start();
    let mut waits = false;
    wait_until("an ADD that waits for the fetch of another", || {
        waits = lock_waiters(&node.fetch_lock_path()) == 1;
        waits || !waiting.is_running()
    });
    let add = waiting.finish();
    assert!(add.took >= Duration::from_secs(3), "{:?}", add.took);
    assert_ne!(add.address(), second.finish().address());
    assert_eq!(wire.count(), 2, "one attempt for all who were there");
    waits
}

#[test]
fn stored_pools_serve_while_another_call_queries_the_source() {
    let (node, wire) = Node::with_wire("turn", Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    let turn = fs::File::open(node.fetch_lock_path()).unwrap();
    turn.try_lock().unwrap();
    let add = node.add("c2");
    assert_eq!(add.address(), "10.224.0.6");
    let (limit, took) = (Duration::from_secs(3), add.took);
    assert!(
        (limit..2 * limit).contains(&took),
        "it waits once: {took:?}"
    );
    assert_eq!(wire.count(), 1);
}

#[test]
fn source_gets_more_time_without_pools_whatever_the_state_contains() {
    let answer = xml([5, 6]);
    let reply = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}",
        answer.len()
    );
    let slow = Reply::InTwo(Vec::new(), Duration::from_secs(4), reply.into_bytes());
    let (node, wire) = Node::with_wire("patience", slow);
    node.put("/var/run/azure-vnet-ipam.json", "{".repeat(600));
    let (code, message) = node.add("c1").error();
    assert_eq!(
        code, 11,
        "the pools are there, and the loss is seen: {message}"
    );
    assert_eq!(wire.count(), 1);
}

#[test]
fn dripping_source_is_cut_off() {
    let half = xml([5]);
    let (first, second) = half.split_at(half.len() / 2);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{first}",
        half.len()
    );
    let (node, wire) = Node::with_wire("drip", Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    wire.set(Reply::InTwo(
        head.into_bytes(),
        LIMIT,
        second.as_bytes().to_vec(),
    ));
    let add = node.add("c2");
    assert_eq!(add.address(), "10.224.0.6", "before the rest came");
}

#[test]
fn changed_interface_is_matched_again() {
    let (node, _wire) = Node::with_wire("links", Reply::Xml(xml([5, 6, 7])));
    let link = |name: &str| node.path(&format!("sys/class/net/{name}"));
    let carries = || {
        let state = node.state();
        let pools = state["IPAM"]["AddressSpaces"]["local"]["Pools"].clone();
        let names = pools.as_object().unwrap().values();
        names
            .map(|p| p["IfName"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    node.add("c1").success();
    node.add("c2").success();
    assert_eq!(carries(), ["eth0"]);
    // The interface is renamed.
    std::fs::rename(link("eth0"), link("eth9")).unwrap();
    node.add("c1").success();
    assert_eq!(carries(), ["eth9"]);
    // Another interface takes the old name.
    std::fs::rename(link("eth9"), link("eth7")).unwrap();
    node.put("sys/class/net/eth9/address", "00:11:22:33:44:55\n");
    node.add("c2").success();
    assert_eq!(carries(), ["eth7"]);
}

#[test]
fn different_source_has_its_own_stamps() {
    let (node, wire) = Node::with_wire("names", Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    wire.set(Reply::Status(500, String::new()));
    node.add("c2").success();
    let file = r#"{"Interfaces":[{"MacAddress":"7C:1E:52:F9:F3:C4","IsPrimary":true,"IPSubnets":[{"Prefix":"10.224.0.0/16","IPAddresses":[{"Address":"10.224.0.9"}]}]}]}"#;
    node.put("/etc/kubernetes/interfaces.json", file);
    let mas = conf("0.3.0", json!({ "environment": "mas", "subnet": SUBNET }));
    assert_eq!(
        node.call("ADD", "c3").stdin(mas).run().address(),
        "10.224.0.9"
    );
}
