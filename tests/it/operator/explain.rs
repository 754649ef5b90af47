//! `explain`.

use std::fs;

use serde_json::json;

use super::{EVENTS, flowing};
use crate::harness::{Node, Reply, xml};

#[test]
fn explain_finds_addresses_containers_and_pods() {
    let (node, _wire) = Node::with_wire("explain", Reply::Xml(xml([5, 6])));
    let args = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1";
    node.call("ADD", "c123456789")
        .env("CNI_ARGS", args)
        .run()
        .success();
    for subject in ["10.224.0.5", "c12345", "c123456789", "shop/web-1", "web-1"] {
        let report = node
            .run_line(&format!("explain {subject} --json"))
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
        let outcome = node.run_line(&format!("explain {subject}"));
        assert_eq!(outcome.exit, Some(1), "{subject}: {outcome:?}");
        assert!(outcome.stdout.contains("Nothing is known"), "{outcome:?}");
    }
    // The events still name the pod after the release.
    node.del("c123456789").assert_no_output();
    let text = node.run_line("explain web-1").success().stdout.clone();
    assert!(
        text.contains("holds no address") && text.contains("ADD"),
        "{text}"
    );
}

#[test]
fn explain_shows_the_reclaim_that_took_the_address_of_a_pod() {
    let (node, _wire) = Node::with_wire("taken", Reply::Xml(xml(5..40)));
    let add = |id: &str, pod: &str| {
        let args = format!("K8S_POD_NAMESPACE=shop;K8S_POD_NAME={pod}");
        let call = node.call("ADD", id).env("CNI_ARGS", &args);
        call.run().address()
    };
    let addresses: Vec<String> = (0..30)
        .map(|n| add(&format!("{n:04}container"), &format!("web-{n}")))
        .collect();
    // Another boot frees all of them, and names the holders of none; a reclaim that judged them names them.
    let freed = (0..30).map(|n| {
        json!({ "address": addresses[n], "container": format!("{n:04}container"), "pod": format!("shop/web-{n}") })
    });
    let mut lines = fs::read_to_string(node.path(EVENTS)).unwrap();
    let by = "uid 0 on /dev/pts/0";
    lines += &(json!({ "time": "2026-11-20T21:09:39Z", "verb": "reclaim", "code": 0, "by": by, "reclaimed": 30 })
        .to_string()
        + "\n");
    lines += &(json!({ "more": freed.collect::<Vec<_>>() }).to_string() + "\n");
    node.put(EVENTS, &lines);
    for n in [0, 7, 29] {
        let report = node.run_line(&format!("explain web-{n} --json"));
        let report = report.success().json();
        let verbs = report["events"].as_array().unwrap().iter();
        let verbs: Vec<_> = verbs.map(|e| e["verb"].as_str().unwrap()).collect();
        assert_eq!(verbs, ["ADD", "reclaim"], "{n}");
        assert_eq!(report["events"][1]["freed"][n]["address"], addresses[n]);
    }
    let text = node.run_line("explain web-29").success().stdout.clone();
    assert!(text.contains("reclaim"), "{text}");
}

#[test]
fn explain_says_unknown_where_records_are_missing() {
    let (node, _wire) = Node::with_wire("missing", Reply::Xml(xml([5, 6])));
    let args = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1";
    node.call("ADD", "c123456789")
        .env("CNI_ARGS", args)
        .run()
        .success();
    let explain = |subject: &str| {
        let outcome = node.run_line(&format!("explain {subject}"));
        (outcome.exit, flowing(&outcome.stdout))
    };
    let check = |why: &str| {
        let (exit, text) = explain("shop/web-1");
        assert_eq!(exit, Some(0), "{text}");
        let sentence = format!("Unknown whether shop/web-1 holds an address: {why}.");
        assert!(text.contains(&sentence), "{text}");
        assert!(!text.contains("holds no address"), "{text}");
        let (exit, text) = explain("10.224.0.5");
        assert_eq!(exit, Some(0), "{text}");
        assert!(
            text.contains("10.224.0.5 unknown whether a pod holds it"),
            "{text}"
        );
        assert!(
            text.contains(&format!("{why}, so a pod may hold it")),
            "{text}"
        );
        let (exit, text) = explain("shop/web-2");
        assert_eq!(exit, Some(1), "{text}");
        let sentence = format!("Who or what shop/web-2 is cannot be told: {why}.");
        assert!(text.contains(&sentence), "{text}");
        let report = node.run_line("explain 10.224.0.6 --json");
        let report = report.json();
        assert_eq!(report["unknown"], why);
        assert_eq!(report["addresses"][0]["use"], "unknown");
    };
    let good = node.state_bytes();
    node.remove_journal();
    fs::write(node.state_path(), &good[..good.len() / 2]).unwrap();
    check("the state is corrupt");
    fs::remove_file(node.state_path()).unwrap();
    check("the state was lost");
    fs::write(node.state_path(), good).unwrap();
    let (_, text) = explain("10.224.0.6");
    // Without the journal, the state is compared with the node first.
    assert!(text.contains(" 10.224.0.6 free"), "{text}");
}
