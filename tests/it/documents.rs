//! The state file as an interface. States of the original are read without loss and written back byte for byte.

use azure_vnet_ipam::ipam::Moment;
use azure_vnet_ipam::state::{Condition, Document, WriteStamp};
use serde_json::Value;

use crate::harness::{Node, Reply, xml};
use crate::model::original;
use crate::recorded::cases;

/// All state files that the original wrote in the recorded cases.
fn states_of_the_original() -> Vec<(String, String)> {
    let mut texts = Vec::new();
    for case in cases() {
        for (n, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            if let Some(text) = step["state_after_text"].as_str() {
                texts.push((format!("{} step {n}", case["name"]), text.to_owned()));
            }
        }
    }
    assert!(texts.len() >= 10, "only {} texts", texts.len());
    texts
}

/// Parses and prints a state. The time stamp stays, and our key is removed.
fn reprint(json: &str, time: &str) -> String {
    let mut document = Document::parse(json.as_bytes(), None, Moment(0)).unwrap();
    let stamp = WriteStamp {
        version: "v0",
        time,
        boot_id: None,
    };
    let text = document.print(&Condition::Reconcile, stamp);
    let text = String::from_utf8(text).unwrap();
    let (before, ours) = text.split_once(",\n\t\"azure-vnet-ipam\": {").unwrap();
    let (_, after) = ours.split_once("\n\t}").unwrap();
    format!("{before}{after}")
}

#[test]
fn states_of_the_original_are_rewritten_byte_for_byte() {
    for (name, text) in states_of_the_original() {
        let value: Value = serde_json::from_str(&text).unwrap();
        let time = value["IPAM"]["TimeStamp"].as_str().unwrap();
        assert_eq!(reprint(&text, time), text, "{name}");
    }
}

#[test]
fn states_of_the_original_keep_their_values_when_read() {
    let mut read = 0;
    for case in cases() {
        for step in case["steps"].as_array().unwrap() {
            let state = &step["state_after"];
            if step["state_written"] != true || !state.is_object() {
                continue;
            }
            let time = state["IPAM"]["TimeStamp"].as_str().unwrap();
            let written: Value = serde_json::from_str(&reprint(&state.to_string(), time)).unwrap();
            assert_eq!(written["IPAM"], state["IPAM"], "{}", case["name"]);
            read += 1;
        }
    }
    assert!(read > 300, "only {read} states");
}

#[test]
fn state_after_use_follows_the_originals_format() {
    let (node, wire) = Node::with_wire("parity", Reply::Xml(xml(5..20)));
    for (round, listed) in [5..20, 5..19, 5..18].into_iter().enumerate() {
        for n in 0..8 {
            node.add(&format!("c{round}-{n}")).success();
        }
        for n in (0..8).step_by(2 - round % 2) {
            node.del(&format!("c{round}-{n}")).assert_no_output();
        }
        node.del("never-added").assert_no_output();
        wire.set(Reply::Xml(xml(listed)));
    }
    let text = String::from_utf8(node.state_bytes()).unwrap();
    let state: Value = serde_json::from_str(&text).unwrap();
    let ipam = &state["IPAM"];
    let time = ipam["TimeStamp"].as_str().unwrap();
    let text_of_ours = text.split_once(",\n\t\"azure-vnet-ipam\": {").unwrap().0;
    assert_eq!(
        reprint(&text, time),
        format!("{text_of_ours}\n}}"),
        "reading it and printing it changes nothing"
    );
    let form: String = time
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    let (date, rest) = form.split_at("0000-00-00T00:00:00".len());
    assert_eq!(date, "0000-00-00T00:00:00");
    assert!(
        rest.ends_with('Z') || rest.contains('+') || rest.contains('-'),
        "{time}"
    );
    assert!(
        !time.contains("0Z") || !time.contains('.'),
        "trailing zeros are cut: {time}"
    );
    for (address, record) in ipam["AddressSpaces"]["local"]["Pools"]["10.224.0.0/16"]["Addresses"]
        .as_object()
        .unwrap()
    {
        assert_eq!(record["Addr"], **address);
        assert_eq!(
            record["InUse"] == true,
            record["ID"] != "",
            "the original releases nothing without an ID"
        );
    }
    let keys: Vec<_> = state.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["IPAM", "azure-vnet-ipam"]);
}

#[test]
fn changes_by_the_original_take_precedence_over_our_key() {
    let (node, _wire) = Node::with_wire("between", Reply::Xml(xml(5..9)));
    for pod in ["c1", "c2", "c3"] {
        node.add(pod).success();
    }
    // The original releases c1, allocates its address to x, and leaves our key as it was.
    let mut state = node.state();
    state["IPAM"]["TimeStamp"] = "2026-01-01T00:00:00Z".into();
    let records =
        &mut state["IPAM"]["AddressSpaces"]["local"]["Pools"]["10.224.0.0/16"]["Addresses"];
    records["10.224.0.5"]["ID"] = "x".into();
    records["10.224.0.6"] = serde_json::json!({ "ID": "", "Addr": "10.224.0.6", "InUse": false });
    std::fs::write(node.state_path(), state.to_string()).unwrap();
    std::fs::write(node.lock_path(), original::LOCK_TEXT).unwrap();
    node.del("c1").assert_no_output();
    assert_eq!(node.held()["10.224.0.5"], "x", "our entry for c1 is void");
    assert_eq!(
        node.add("c4").address(),
        "10.224.0.8",
        "what it released is in cooldown"
    );
    node.del("x").assert_no_output();
    assert_eq!(node.held().into_values().collect::<Vec<_>>(), ["c3", "c4"]);
}
