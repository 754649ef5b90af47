//! The state file as an interface: what the original wrote is read without loss and written again to the byte.

use azure_vnet_ipam::ipam::Moment;
use azure_vnet_ipam::state::{Document, Stamp};
use serde_json::Value;

use crate::recorded::cases;

/// Every text that the original wrote, from the recorded cases.
fn texts_of_the_original() -> Vec<(String, String)> {
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

/// The document printed again with the time stamp it had, and without our own key.
fn again(json: &str, time: &str) -> String {
    let mut document = Document::parse(json.as_bytes(), None, Moment(0)).unwrap();
    let text = document.print(Stamp {
        version: "v0",
        time,
        boot_id: None,
    });
    let text = String::from_utf8(text).unwrap();
    let (before, ours) = text.split_once(",\n\t\"azure-vnet-ipam\": {").unwrap();
    let (_, after) = ours.split_once("\n\t}").unwrap();
    format!("{before}{after}")
}

#[test]
fn what_the_original_wrote_is_written_again_to_the_byte() {
    for (name, text) in texts_of_the_original() {
        let value: Value = serde_json::from_str(&text).unwrap();
        let time = value["IPAM"]["TimeStamp"].as_str().unwrap();
        assert_eq!(again(&text, time), text, "{name}");
    }
}

#[test]
fn every_state_that_the_original_wrote_is_read_to_the_same_values() {
    let mut read = 0;
    for case in cases() {
        for step in case["steps"].as_array().unwrap() {
            let state = &step["state_after"];
            if step["state_written"] != true || !state.is_object() {
                continue;
            }
            let time = state["IPAM"]["TimeStamp"].as_str().unwrap();
            let written: Value = serde_json::from_str(&again(&state.to_string(), time)).unwrap();
            assert_eq!(written["IPAM"], state["IPAM"], "{}", case["name"]);
            read += 1;
        }
    }
    assert!(read > 300, "only {read} states");
}
