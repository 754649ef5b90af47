//! `release` and `reclaim`.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use super::events;
use crate::harness::{Node, Outcome, Reply, xml};
use crate::namespaces::Pods;
use crate::privileged::{in_private_namespaces, only_in};

#[test]
fn release_is_refused_unless_everything_matches() {
    let (node, _wire) = Node::with_wire("release", Reply::Xml(xml([5, 6])));
    let nothing = node.run_line("release 10.224.0.5 --container c1234567");
    assert_eq!(nothing.exit, Some(1), "{nothing:?}");
    node.add("c123456789").success();
    let before = node.state_bytes();
    for row in [
        "10.224.0.5 => 2 --container c123456789",
        "nonsense --container c123456789 => 2 is not an address",
        "10.224.0.5 --container c12 => 2 \"c12\" is too short for a container ID: type at least its first 4 characters",
        "10.224.0.5 --container c12346 => 1 not by container c12346",
        "10.224.0.5 --container other123 => 1 not by container other123",
        "10.224.0.5 --container unknown => 1 not by container unknown",
        "10.224.0.6 --container c123456789 => 1 is free already",
        "10.9.0.6 --container c123456789 => 1 in none of the pools",
        // In a folder, the scan of the node is never complete.
        "10.224.0.5 --container c123456789 => 1 --force",
    ] {
        let (args, expected) = row.split_once(" => ").unwrap();
        let (exit, words) = expected.split_once(' ').unwrap();
        let refused = node.run_line(&format!("release {args}"));
        let text = format!("{}{}", refused.stdout, refused.stderr).replace('\n', " ");
        assert_eq!(refused.exit, exit.parse().ok(), "{row}: {text}");
        assert!(text.contains(words), "{row}: {text}");
    }
    assert_eq!(node.state_bytes(), before);
    let forced = node.run_line("release 10.224.0.5 --container c123 --force --json");
    let report = forced.success().json();
    assert_eq!(
        (&report["released"], &report["refused"]),
        (&json!(true), &Value::Null)
    );
    assert!(node.held().is_empty());
    let log = node.log();
    let line = log
        .lines()
        .find(|line| line.contains("was released by"))
        .unwrap();
    assert!(line.contains("uid 0") || line.contains("uid "), "{line}");
    assert!(
        line.contains("no terminal") && line.contains("despite"),
        "{line}"
    );
    let event = events(&node).pop().unwrap();
    assert_eq!(event["verb"], "release");
    assert_eq!(event["addresses"], json!(["10.224.0.5"]));
    assert!(event["by"].as_str().unwrap().starts_with("uid "), "{event}");
}

#[test]
fn a_pod_is_released_by_its_whole_name_with_all_its_addresses() {
    let (node, _wire) = Node::with_wire("pod", Reply::Xml(xml(5..12)));
    for (id, interface, pod) in [
        ("c123456789", "eth0", "shop;K8S_POD_NAME=web-1"),
        ("c123456789", "eth1", "shop;K8S_POD_NAME=web-1"),
        ("d123456789", "eth0", "shop;K8S_POD_NAME=web-10"),
        ("e123456789", "eth0", "shop;K8S_POD_NAME=twice"),
        ("f123456789", "eth0", "test;K8S_POD_NAME=twice"),
        ("0123456789", "eth0", "shop;K8S_POD_NAME=retried"),
        ("1123456789", "eth0", "shop;K8S_POD_NAME=retried"),
    ] {
        let args = format!("K8S_POD_INFRA_CONTAINER_ID={id};K8S_POD_NAMESPACE={pod}");
        let add = node.call("ADD", id).env("CNI_ARGS", &args);
        add.env("CNI_IFNAME", interface).run().success();
    }
    let before = node.state_bytes();
    for row in [
        "--pod web-1 => 1 its holder may be alive",
        "--pod web --force => 2 type the whole name:\n  shop/web-1\n  shop/web-10\n",
        "--pod web-10x --force => 2 no pod \"web-10x\" holds an address",
        "--pod twice --force => 2 2 pods have this name",
        "--pod retried --force => 2 2 sandboxes of pod shop/retried hold addresses",
        "--pod web-1 --container c123456789 => 2 cannot be used with",
        "10.224.0.5 --pod web-1 => 2 cannot be used with",
        "--force => 2 Usage:",
    ] {
        let (args, expected) = row.split_once(" => ").unwrap();
        let (exit, words) = expected.split_once(' ').unwrap();
        let refused = node.run_line(&format!("release {args}"));
        let text = format!("{}{}", refused.stdout, refused.stderr);
        assert_eq!(refused.exit, exit.parse().ok(), "{row}: {text}");
        assert!(text.contains(words), "{row}: {text}");
    }
    assert_eq!(node.state_bytes(), before);
    let released = node.run_line("release --pod web-1 --force --json");
    let report = released.success().json();
    assert_eq!(report["holders"].as_array().unwrap().len(), 2, "{report:#}");
    assert_eq!(node.held().len(), 5);
    let event = events(&node).pop().unwrap();
    assert_eq!(event["addresses"], json!(["10.224.0.5", "10.224.0.6"]));
}

#[test]
fn reclaim_of_a_pod_judges_only_its_holders() {
    let (node, _wire) = Node::with_wire("pod", Reply::Xml(xml(5..9)));
    for (id, pod) in [("c1", "web-1"), ("c2", "web-2")] {
        let args =
            format!("K8S_POD_INFRA_CONTAINER_ID={id};K8S_POD_NAMESPACE=shop;K8S_POD_NAME={pod}");
        node.call("ADD", id).env("CNI_ARGS", &args).run().success();
    }
    let young = node
        .run_line("reclaim --pod shop/web-1 --json")
        .success()
        .json();
    assert_eq!(young["young"], 1);
    node.advance_clock(3600);
    // In a folder, the scan of the node is never complete.
    let judged = node.run_line("reclaim --pod web-1 --json").success().json();
    assert_eq!(judged["kept"][0]["holder"]["pod"], "shop/web-1");
    assert_eq!(judged["kept"].as_array().unwrap().len(), 1, "{judged:#}");
    for (line, words) in [
        ("reclaim --pod web", "type the whole name"),
        ("reclaim --pod nobody", "no pod \"nobody\" holds an address"),
    ] {
        let refused = node.run_line(line);
        assert_eq!(refused.exit, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
}

#[test]
fn release_handles_other_boots_and_original_records() {
    let (node, _wire) = Node::with_wire("release", Reply::Xml(xml([5, 6])));
    node.add("c123456789").success();
    node.put("/proc/sys/kernel/random/boot_id", "another\n");
    let line = "release 10.224.0.5 --container c123456789 --force";
    node.run_line(line).success();
    assert!(node.held().is_empty());
    node.add("c123456789").success();
    node.make_state_the_originals();
    let address = node.held().into_keys().next().unwrap();
    let line = format!("release {address} --container c123456789 --force");
    node.run_line(&line).success();
    assert!(node.held().is_empty());
}

#[test]
fn either_of_two_holders_of_an_address_can_be_released() {
    let (node, _wire) = Node::with_wire("twice", Reply::Xml(xml([5])));
    node.add("c123456789").success();
    let mut state = node.state();
    let pools = &mut state["IPAM"]["AddressSpaces"]["local"]["Pools"];
    let mut other = pools["10.224.0.0/16"].clone();
    other["Addresses"]["10.224.0.5"]["ID"] = "d123456789".into();
    pools["10.224.0.0/24"] = other;
    fs::write(node.state_path(), state.to_string()).unwrap();
    for id in ["c123456789", "d123456789"] {
        node.run_line(&format!("release 10.224.0.5 --container {id} --force"))
            .success();
    }
    assert!(node.held().is_empty());
}

/// The tests of `ops::held` cover which prefixes are accepted.
#[test]
fn ambiguous_prefixes_are_refused_with_the_candidates() {
    let (node, _wire) = Node::with_wire("prefixes", Reply::Xml(xml([5, 6])));
    for id in ["abcdef0001", "abcdef0002"] {
        node.add(id).success();
    }
    let candidates = "\"abcd\" is ambiguous: 2 containers begin with it; type more characters of one of these:\n  abcdef0001\n  abcdef0002\n";
    for line in ["release 10.224.0.5 --container abcd", "show abcd"] {
        let outcome = node.run_line(line);
        assert_eq!((outcome.exit, &*outcome.stdout), (Some(2), ""), "{line}");
        assert!(outcome.stderr.ends_with(candidates), "{outcome:?}");
    }
    // `release` considers only holders. `show` also explains operations, so its prefix stays ambiguous.
    for line in ["5 --container abcdef0001", "6 --container abcd"] {
        node.run_line(&format!("release 10.224.0.{line} --force"))
            .success();
    }
    assert_eq!(node.run_line("show abcd").exit, Some(2));
}

/// Runs a command with the boot clock `seconds` ahead.
fn later(pods: &Pods, seconds: u64, line: &str) -> Outcome {
    pods.at(seconds, || pods.node.run_line(line))
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn live_pod_is_not_released_and_dead_pod_is() {
    only_in!(in_private_namespaces);
    let pods = Pods::in_namespaces(5..20);
    let run = |line: &str| pods.node.run_line(line);
    let living = pods.start("living01");
    let dead = pods.start("dead0001");
    let refused = run(&format!("release {living} --container living01"));
    assert_eq!(refused.exit, Some(1), "{refused:?}");
    assert!(refused.stdout.contains("is configured in"), "{refused:?}");
    pods.remove_without_del("dead0001");
    let released = run(&format!("release {dead} --container dead0001"));
    released.success();
    let held: Vec<String> = pods.held().into_values().collect();
    assert_eq!(held, ["living01"]);
    let forced = run(&format!("release {living} --container living01 --force"));
    assert!(
        forced.success().stdout.contains("is configured in"),
        "it says what it ignored"
    );
    assert!(pods.held().is_empty());
    // The pod uses its address, but no record holds it.
    let checked = run("check --json");
    let findings = checked.json()["findings"].clone();
    let stray = findings
        .as_array()
        .unwrap()
        .iter()
        .find(|f| f["kind"] == "stray");
    assert_eq!(stray.unwrap()["subject"], living, "{findings:#}");
    assert_eq!(checked.exit, Some(1));
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn reclaim_frees_only_dead_holders() {
    only_in!(in_private_namespaces);
    const HOUR: u64 = 3601;
    const QUARTER: u64 = 901;
    let pods = Pods::in_namespaces(5..20);
    let living = pods.start("living01");
    let gone = ["gone0001", "gone0002"].map(|pod| pods.start(pod));
    for pod in ["gone0001", "gone0002"] {
        pods.remove_without_del(pod);
    }
    let young = pods.node.run_line("reclaim --yes --json").success().json();
    assert_eq!((&young["young"], &young["freed"]), (&json!(3), &json!([])));
    let before = pods.node.state_bytes();
    let addresses = |report: &Value, key: &str| -> BTreeSet<String> {
        let list = report[key].as_array().unwrap().iter();
        list.map(|t| t["holder"]["address"].as_str().unwrap().to_owned())
            .collect()
    };
    let checked = later(&pods, HOUR, "check --json").json();
    let leaks: BTreeSet<&str> = checked["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["kind"] == "leak")
        .map(|finding| finding["subject"].as_str().unwrap())
        .collect();
    assert_eq!(leaks, gone.iter().map(String::as_str).collect());
    // `show --leaked` lists the same two, although no reclaim has marked them.
    let shown = later(&pods, HOUR, "show --leaked --json").success().json();
    let leaked = shown["pools"][0]["holders"].as_array().unwrap().iter();
    let leaked: BTreeSet<&str> = leaked.map(|h| h["address"].as_str().unwrap()).collect();
    assert_eq!((leaked, &shown["pools"][0]["leaked"]), (leaks, &json!(2)));
    let would = later(&pods, HOUR, "reclaim --json").success().json();
    assert_eq!(addresses(&would, "freed"), BTreeSet::from(gone.clone()));
    assert_eq!(
        (&would["done"], &would["alive"]),
        (&json!(false), &json!(1))
    );
    assert_eq!(pods.node.state_bytes(), before, "a dry run changes nothing");
    // The first scan of records older than 15 minutes only marks them.
    let first = later(&pods, QUARTER, "reclaim --yes --json")
        .success()
        .json();
    assert_eq!(addresses(&first, "kept"), BTreeSet::from(gone.clone()));
    assert_eq!(pods.held().len(), 3);
    let second = later(&pods, QUARTER + 61, "reclaim --yes --json")
        .success()
        .json();
    assert_eq!(addresses(&second, "freed"), BTreeSet::from(gone));
    let held: Vec<(String, String)> = pods.held().into_iter().collect();
    assert_eq!(held, [(living, "living01".to_owned())]);
    let event = events(&pods.node).pop().unwrap();
    assert_eq!(
        (&event["verb"], &event["reclaimed"]),
        (&json!("reclaim"), &json!(2))
    );
    let freed = event["freed"].as_array().unwrap().iter();
    let freed: BTreeSet<_> = freed.map(|f| f["container"].as_str().unwrap()).collect();
    assert_eq!(freed, BTreeSet::from(["gone0001", "gone0002"]));
    for pod in ["gone0001", "gone0002"] {
        let shown = pods.node.run_line(&format!("show {pod} --json"));
        let shown = shown.success().json();
        let verbs = shown["events"].as_array().unwrap().iter();
        let verbs: Vec<_> = verbs.map(|e| e["verb"].as_str().unwrap()).collect();
        assert_eq!(verbs, ["ADD", "reclaim"], "{shown:#}");
    }
    let shown = pods.node.run_line("show living01 --json");
    let verbs = shown.json()["events"].as_array().unwrap().len();
    assert_eq!(verbs, 1, "{shown:?}");
}
