//! The commands of operators, on nodes in a folder and on nodes with real pods.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::contention::run_all_in_parallel;
use crate::harness::wait::output;
use crate::harness::{Node, Outcome, Reply, conf, install, xml};
use crate::namespaces::Pods;
use crate::privileged::in_private_namespaces;

const EVENTS: &str = "/var/run/azure-vnet/azure-vnet-ipam.events";

fn events(node: &Node) -> Vec<Value> {
    let outcome = node.run_line("show --events --json");
    outcome.success().json().as_array().unwrap().clone()
}

/// The text that a command prints with a variable in its environment.
fn run_with(node: &Node, line: &str, name: &str, value: &str) -> String {
    let call = node.call("", "").without("CNI_COMMAND").env(name, value);
    let call = line.split(' ').fold(call, |call, word| call.arg(word));
    call.run().success().stdout.clone()
}

/// All files below the folder with content and modification time.
fn everything(folder: &Path) -> BTreeMap<String, (Vec<u8>, i64, i64)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            found.extend(everything(&path));
        } else {
            let contents = fs::read(&path).unwrap();
            let name = path.display().to_string();
            found.insert(name, (contents, meta.mtime(), meta.mtime_nsec()));
        }
    }
    found
}

#[test]
fn control_characters_are_never_printed() {
    let (node, _wire) = Node::with_wire("marks", Reply::Xml(xml(5..9)));
    let marks = "\u{7f}\u{80}\u{9b}31m\u{9f}\u{61c}\u{200e}\u{200f}\u{2028}\u{202a}\u{202e}\u{2066}\u{2069}";
    let pod = format!("web{marks}-1");
    let args = format!("K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}");
    node.call("ADD", "c9")
        .env("CNI_ARGS", &args)
        .env("CNI_NETNS", &format!("/var/run/netns/{pod}"))
        .run()
        .success();
    let alters_terminal = |c: char| marks.replace("31m", "").contains(c);
    for words in [
        &["show"][..],
        &["show", "--json"],
        &["show", "--events"],
        &["show", "--events", "--json"],
        &["check"],
        &["check", "--json"],
        &["explain", "c9"],
        &["explain", "c9", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["export"],
        &["reclaim"],
        &["reclaim", "--json"],
        &["metrics"],
    ] {
        let answer = node.run_command(words.iter().copied());
        for text in [&answer.stdout, &answer.stderr] {
            assert!(!text.contains(alters_terminal), "{words:?}: {text:?}");
        }
        if words.contains(&"--json") || words.contains(&"export") {
            answer.json();
        }
    }
    let report = node.run_command(["show", "--json"]).json().to_string();
    assert!(report.contains(&format!("default/{pod}")), "{report}");
    assert!(!node.log().contains(alters_terminal));
}

#[test]
fn every_operation_of_a_crowd_is_recorded() {
    let (node, _wire) = Node::with_wire("events", Reply::Xml(xml(5..220)));
    let ids: Vec<String> = (0..200).map(|n| format!("c{n}")).collect();
    for outcome in run_all_in_parallel(ids.iter().map(|id| node.call("ADD", id))) {
        outcome.success();
    }
    let events = events(&node);
    let containers: BTreeSet<&str> = events
        .iter()
        .map(|e| e["container"].as_str().unwrap())
        .collect();
    assert_eq!((events.len(), containers.len()), (200, 200));
    for event in &events {
        assert_eq!((&event["verb"], &event["code"]), (&json!("ADD"), &json!(0)));
        assert_eq!(event["addresses"].as_array().unwrap().len(), 1);
        assert!(event["microseconds"].as_u64().unwrap() > 0);
    }
}

#[test]
fn failures_are_recorded_and_queries_are_not() {
    let (node, wire) = Node::with_wire("events", Reply::Xml(xml([5])));
    node.add("c1").success();
    let (code, msg) = node.add("c2").error();
    node.del("c1").assert_no_output();
    node.call("ADD", "bad id").run().error();
    for verb in ["STATUS", "VERSION"] {
        node.call(verb, "").stdin(conf("1.1.0", json!({}))).run();
    }
    drop(wire);
    node.add("c3").success();
    node.call("NONSENSE", "c4").run().error();
    let events = events(&node);
    let verbs: Vec<_> = events.iter().map(|e| e["verb"].as_str().unwrap()).collect();
    assert_eq!(verbs, ["ADD", "ADD", "DEL", "ADD", "ADD", "unknown"]);
    assert_eq!(events[1]["code"], code);
    assert!(msg.starts_with(events[1]["msg"].as_str().unwrap()), "{msg}");
    assert_eq!(events[2]["addresses"], json!(["10.224.0.5"]));
    assert_eq!(events[3]["code"], 4);
    assert_eq!(events[4]["refreshFailed"], true);
}

#[test]
fn full_events_file_is_rotated_without_loss() {
    let (node, _wire) = Node::with_wire("events", Reply::Xml(xml(5..100)));
    node.add("c0").success();
    let line = fs::read_to_string(node.path(EVENTS)).unwrap();
    let count = (256 << 10) / line.len() - 20;
    node.put(EVENTS, line.repeat(count));
    let ids: Vec<String> = (1..80).map(|n| format!("c{n}")).collect();
    for outcome in run_all_in_parallel(ids.iter().map(|id| node.call("ADD", id))) {
        outcome.success();
    }
    assert!(node.path(&format!("{EVENTS}.1")).exists());
    assert_eq!(events(&node).len(), 256);
    let metrics = node.run_line("metrics").stdout;
    let total = count + 79;
    let wanted =
        format!("azure_vnet_ipam_operations_total{{verb=\"ADD\",result=\"ok\"}} {total}\n");
    assert!(metrics.contains(&wanted), "{wanted}{metrics}");
}

#[test]
fn unwritable_events_fail_no_call() {
    let (node, _wire) = Node::with_wire("events", Reply::Xml(xml(5..9)));
    fs::create_dir_all(node.path(EVENTS)).unwrap();
    node.add("c1").success();
    node.del("c1").assert_no_output();
    assert_eq!(events(&node), [] as [Value; 0]);
}

#[test]
fn arguments_with_cni_command_are_refused_on_stderr() {
    let (node, _wire) = Node::with_wire("never", Reply::Xml(xml([5])));
    for (verb, line) in [
        ("VERSION", "show"),
        ("VERSION", "--help"),
        ("ADD", "help"),
        ("ADD", "release 10.224.0.5"),
        ("DEL", "--version"),
        ("STATUS", "nonsense"),
    ] {
        let call = line
            .split(' ')
            .fold(node.call(verb, "c1"), |call, word| call.arg(word));
        let outcome = call.run();
        assert_eq!((outcome.exit, &*outcome.stdout), (Some(2), ""), "{line}");
        assert_eq!(
            outcome.stderr,
            "azure-vnet-ipam: CNI_COMMAND is set, and a CNI call has no arguments; unset CNI_COMMAND to run commands\n",
            "{line}"
        );
    }
    assert!(!node.state_path().exists(), "nothing was done");
    // An exported but empty CNI_COMMAND is none.
    let help = node.call("", "").arg("--help").run();
    assert!(help.success().stdout.contains("Usage: "), "{help:?}");
}

#[test]
fn read_only_commands_touch_nothing() {
    let (node, _wire) = Node::with_wire("look", Reply::Xml(xml([5, 6])));
    // Each with its exit status on a node without a state, with a valid state, and with an unusable one. No conflist
    // names the plugin.
    let looks = [
        ("show", [0, 0, 0]),
        ("show --events", [0, 0, 0]),
        ("check", [1, 1, 1]),
        ("explain 10.224.0.5", [1, 0, 0]),
        ("reclaim", [0, 0, 2]),
        ("doctor", [1, 1, 1]),
        ("export", [0, 0, 0]),
        ("metrics", [0, 0, 0]),
    ];
    const NONE: usize = 0;
    const GOOD: usize = 1;
    const BROKEN: usize = 2;
    let look = |what: &str, condition: usize| {
        let before = everything(&node.root);
        for (line, statuses) in looks {
            let seen = node.run_line(line);
            assert_eq!(
                seen.exit,
                Some(statuses[condition]),
                "{what}, {line}: {seen:?}"
            );
            assert!(!seen.stdout.contains("panicked") && !seen.stderr.contains("panicked"));
            let is_told = !seen.stdout.is_empty() || !seen.stderr.is_empty();
            assert!(is_told, "{what}, {line}: {seen:?}");
        }
        assert!(everything(&node.root) == before, "{what}");
    };
    look("nothing there", NONE);
    node.add("c1").success();
    look("a state", GOOD);
    node.advance_clock(7200);
    look("an old state", GOOD);
    let good = node.state_bytes();
    for (what, bytes) in [
        ("zeros", vec![0; 4096]),
        ("half", good[..good.len() / 2].to_vec()),
        ("empty", Vec::new()),
        ("newer", br#"{"azure-vnet-ipam": {"format": 99}}"#.to_vec()),
    ] {
        fs::write(node.state_path(), bytes).unwrap();
        look(what, BROKEN);
    }
    fs::remove_file(node.state_path()).unwrap();
    look("lost", BROKEN);
    fs::create_dir(node.state_path()).unwrap();
    look("a folder", BROKEN);
}

#[test]
fn show_can_be_limited_to_one_pool() {
    let (node, _wire) = Node::with_wire("pool", Reply::Xml(xml([5])));
    node.add("c1").success();
    let report = node.run_line("show 10.224.0.0/16 --json").success().json();
    assert_eq!(report["pools"][0]["holders"][0]["container"], "c1");
    let none = node.run_line("show 10.9.0.0/16");
    assert_eq!((none.exit, none.stdout.as_str()), (Some(2), ""));
    assert!(
        none.stderr.contains("the pools are 10.224.0.0/16"),
        "{none:?}"
    );
}

#[test]
fn show_can_be_limited_to_some_holders() {
    let (node, _wire) = Node::with_wire("filters", Reply::Xml(xml(5..20)));
    for (id, pod) in [("c1", "web-1"), ("c2", "web-2"), ("c3", "dns")] {
        let args = format!("K8S_POD_NAMESPACE=shop;K8S_POD_NAME={pod}");
        node.call("ADD", id).env("CNI_ARGS", &args).run().success();
    }
    node.add("c4").success();
    // A DEL that came before its ADD makes a suspect.
    node.del("c5").assert_no_output();
    node.add("c5").success();
    let shown = |line: &str| -> Vec<String> {
        let report = node.run_line(format!("show --json {line}").trim_end());
        let report = report.success().json();
        let pool = &report["pools"][0];
        assert_eq!(pool["held"], 5, "the counts are those of the pool");
        let holders = pool["holders"].as_array().unwrap().iter();
        holders
            .map(|holder| holder["container"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(shown(""), ["c1", "c2", "c3", "c4", "c5"]);
    assert_eq!(shown("--pod web"), ["c1", "c2"]);
    assert_eq!(shown("--pod shop/web-2"), ["c2"]);
    assert_eq!(shown("--pod shop/"), ["c1", "c2", "c3"]);
    assert_eq!(shown("--pod shop/web --suspect"), [""; 0]);
    assert_eq!(shown("--suspect"), ["c5"]);
    let none = node.run_line("show --pod nobody").success().stdout.clone();
    assert!(none.starts_with("No holder matches.\n\nSource:"), "{none}");
    let text = node.run_line("show --suspect").success().stdout.clone();
    assert!(
        text.contains("suspect\n") && !text.contains("shop/"),
        "{text}"
    );
    let both = node.run_line("show --suspect --events");
    assert_eq!((both.exit, &*both.stdout), (Some(2), ""), "{both:?}");
}

#[test]
fn events_can_be_limited() {
    let (node, _wire) = Node::with_wire("limits", Reply::Xml(xml(5..20)));
    for (id, pod) in [("c1", "web-1"), ("c2", "web-2"), ("c3", "dns")] {
        let args = format!("K8S_POD_NAMESPACE=shop;K8S_POD_NAME={pod}");
        node.call("ADD", id).env("CNI_ARGS", &args).run().success();
    }
    node.del("c1").assert_no_output();
    let old =
        json!({ "time": "2020-01-01T00:00:00Z", "verb": "GC", "code": 0, "container": "old" });
    let lines = fs::read_to_string(node.path(EVENTS)).unwrap();
    node.put(EVENTS, format!("{old}\n{lines}"));
    let shown = |line: &str| -> Vec<String> {
        let list = node.run_line(format!("events --json {line}").trim_end());
        let list = list.success().json();
        let list = list.as_array().unwrap().iter();
        list.map(|event| {
            let verb = event["verb"].as_str().unwrap();
            format!("{verb} {}", event["container"].as_str().unwrap())
        })
        .collect()
    };
    let all = ["GC old", "ADD c1", "ADD c2", "ADD c3", "DEL c1"];
    assert_eq!(shown(""), all);
    assert_eq!(shown("--tail 2"), all[3..]);
    assert_eq!(shown("--since 1h"), all[1..]);
    assert_eq!(shown("--since 2020-01-01T00:00:01Z --tail 9"), all[1..]);
    assert_eq!(shown("--since 2019-12-30"), all);
    assert_eq!(shown("--pod shop/web"), all[1..3]);
    assert_eq!(shown("--address 10.224.0.5"), ["ADD c1", "DEL c1"]);
    for (line, words) in [
        (
            "events --since soon",
            "--since \"soon\" is neither a duration such as 90s",
        ),
        ("events --address 10.224", "\"10.224\" is not an address"),
    ] {
        let outcome = node.run_line(line);
        assert_eq!((outcome.exit, &*outcome.stdout), (Some(2), ""), "{line}");
        assert!(outcome.stderr.contains(words), "{outcome:?}");
    }
    let alias = node.run_line("show --events").success().stdout.clone();
    assert_eq!(alias, node.run_line("events").stdout);
    assert_eq!(
        node.run_line("events --pod nobody").stdout,
        "No operation matches.\n"
    );
}

/// Every line of a screen, in a pipe and on a terminal of 80 columns alike, for a pod with the longest name that Kubernetes
/// allows and for IPv6.
#[test]
fn screens_of_show_and_events_fit_80_columns_in_a_pipe() {
    let (node, _wire) = Node::with_wire("width", Reply::Xml(xml(5..20)));
    let (namespace, name) = ("n".repeat(63), "p".repeat(253));
    let args = format!("K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}");
    node.call("ADD", &"c".repeat(64))
        .env("CNI_ARGS", &args)
        .run()
        .success();
    node.call("ADD", "c2")
        .env("CNI_ARGS", "K8S_POD_NAME=x")
        .run();
    node.call("BAD", &"/".repeat(200)).run().error();
    for line in ["show", "events", "show --events"] {
        let text = node.run_line(line).success().stdout.clone();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
        let wide = run_with(&node, line, "COLUMNS", "500");
        assert!(wide.contains(&"p".repeat(60)), "{wide}");
    }
}

#[test]
fn times_on_screens_are_local_and_in_json_utc() {
    let (node, _wire) = Node::with_wire("zones", Reply::Xml(xml(5..9)));
    node.add("c123").success();
    let line = json!({ "time": "2026-01-02T03:04:05+05:00", "verb": "CHECK", "code": 0, "container": "c123" });
    let lines = fs::read_to_string(node.path(EVENTS)).unwrap();
    node.put(EVENTS, format!("{line}\n{lines}"));
    let utc = node.run_line("events --json").json()[0]["time"].clone();
    assert_eq!(utc, "2026-01-01T22:04:05Z");
    // POSIX time zones need no files: west is positive.
    for (zone, heading, time) in [
        ("<+0530>-5:30", "TIME (+05:30)", "01-02 03:34:05"),
        ("<-03>3", "TIME (-03:00)", "01-01 19:04:05"),
        ("UTC0", "TIME (UTC)", "01-01 22:04:05"),
    ] {
        let events = run_with(&node, "events", "TZ", zone);
        assert!(events.starts_with(heading), "{events}");
        assert!(events.contains(&format!("\n{time}  CHECK")), "{events}");
        let story = run_with(&node, "explain c123", "TZ", zone);
        let since = story.lines().find(|line| line.contains(" since ")).unwrap();
        let shown_zone = heading.trim_start_matches("TIME (").trim_end_matches(')');
        assert!(since.contains(&format!(" {shown_zone}, ")), "{story}");
        assert!(story.contains(heading), "{story}");
        let json = run_with(&node, "explain c123 --json", "TZ", zone);
        let json: Value = serde_json::from_str(&json).unwrap();
        let since = &json["addresses"][0]["holder"]["since"];
        for time in [&json["time"], since, &json["events"][0]["time"]] {
            assert!(time.as_str().unwrap().ends_with('Z'), "{zone}: {json:#}");
        }
    }
}

#[test]
fn release_is_refused_unless_everything_matches() {
    let (node, _wire) = Node::with_wire("release", Reply::Xml(xml([5, 6])));
    let nothing = node.run_line("release 10.224.0.5 --container c1234567");
    assert_eq!(nothing.exit, Some(1), "{nothing:?}");
    node.add("c123456789").success();
    let before = node.state_bytes();
    for (line, exit, words) in [
        ("release 10.224.0.5", 2, "--container c123456789"),
        (
            "release nonsense --container c123456789",
            2,
            "is not an address",
        ),
        (
            "release 10.224.0.5 --container c12",
            2,
            "\"c12\" is too short for a container ID: type at least its first 4 characters",
        ),
        (
            "release 10.224.0.5 --container c12346",
            1,
            "not by container c12346",
        ),
        (
            "release 10.224.0.5 --container other123",
            1,
            "not by container other123",
        ),
        (
            "release 10.224.0.5 --container unknown",
            1,
            "not by container unknown",
        ),
        (
            "release 10.224.0.6 --container c123456789",
            1,
            "is free already",
        ),
        (
            "release 10.9.0.6 --container c123456789",
            1,
            "in none of the pools",
        ),
        // On a node in a folder the scan is never complete.
        ("release 10.224.0.5 --container c123456789", 1, "--force"),
    ] {
        let refused = node.run_line(line);
        let text = format!("{}{}", refused.stdout, refused.stderr).replace('\n', " ");
        assert_eq!(refused.exit, Some(exit), "{line}: {text}");
        assert!(text.contains(words), "{line}: {text}");
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
fn release_handles_other_boots_and_original_records() {
    let (node, _wire) = Node::with_wire("release", Reply::Xml(xml([5, 6])));
    node.add("c123456789").success();
    node.put("/proc/sys/kernel/random/boot_id", "another\n");
    let line = "release 10.224.0.5 --container c123456789 --force";
    node.run_line(line).success();
    assert!(node.held().is_empty());
    node.add("c123456789").success();
    let mut state = node.state();
    state.as_object_mut().unwrap().remove("azure-vnet-ipam");
    let address = node.held().into_keys().next().unwrap();
    fs::write(node.state_path(), state.to_string()).unwrap();
    let line = format!("release {address} --container c123456789 --force");
    node.run_line(&line).success();
    assert!(node.held().is_empty());
}

#[test]
fn state_without_our_key_is_not_reported_as_lost() {
    for command in [
        "reclaim --yes",
        "release 10.224.0.5 --container c123456789 --force",
        "DEL",
    ] {
        let (node, _wire) = Node::with_wire("keyless", Reply::Xml(xml([5, 6, 7])));
        node.add("c123456789").success();
        node.add("c2").success();
        let mut state = node.state();
        state.as_object_mut().unwrap().remove("azure-vnet-ipam");
        fs::write(node.state_path(), state.to_string()).unwrap();
        match command {
            "DEL" => node.del("c123456789").assert_no_output(),
            line => {
                node.run_line(line).success();
            }
        }
        let report = node.run_line("show --json").success().json();
        assert_ne!(
            report["state"]["condition"], "lost",
            "{command}: {report:#}"
        );
        assert_eq!(report["state"]["quarantineSeconds"], Value::Null);
    }
}

#[test]
fn lost_state_is_not_reported_as_empty() {
    let (node, _wire) = Node::with_wire("gone", Reply::Xml(xml([5])));
    node.add("c123456789").success();
    fs::remove_file(node.state_path()).unwrap();
    for line in [
        "reclaim",
        "reclaim --yes",
        "release 10.224.0.5 --container c123456789",
    ] {
        let outcome = node.run_line(line);
        assert_eq!(
            (outcome.exit, outcome.stdout.as_str()),
            (Some(2), ""),
            "{line}"
        );
        assert!(outcome.stderr.contains("was lost"), "{line}: {outcome:?}");
    }
    assert!(!node.state_path().exists());
}

#[test]
fn caller_text_is_escaped_on_the_terminal() {
    let (node, _wire) = Node::with_wire("escape", Reply::Xml(xml([5])));
    let args = "K8S_POD_NAMESPACE=x;K8S_POD_NAME=\u{1b}[31mred\ny";
    let added = node.call("ADD", "c1").env("CNI_ARGS", args).run();
    added.success();
    for line in [
        "show",
        "show --events",
        "explain 10.224.0.5",
        "check",
        "reclaim",
    ] {
        let text = node.run_line(line).stdout;
        assert!(!text.contains('\u{1b}'), "{line}: {text:?}");
    }
}

#[test]
fn export_contains_no_credentials() {
    let node = Node::new("secrets").env(
        "AZURE_VNET_IPAM_QUERY_URL",
        "http://user:hush@127.0.0.1:1/x?sig=hush",
    );
    let conflist = json!({
        "cniVersion": "1.0.0", "name": "azure", "plugins": [
            { "type": "bridge", "token": "hush", "ipam": { "type": "azure-vnet-ipam", "key": "hush",
                "queryUrl": "http://u:hush@h/?sig=hush", "routes": [{ "dst": "http://u:hush@h" }] } },
            { "type": "calico", "ipam": { "type": "calico-ipam", "token": "hush" } },
        ],
    });
    node.put("/etc/cni/net.d/10-x.conflist", conflist.to_string());
    node.add("c1").error();
    let file = node.path("/case.json");
    let outcome = node.run_line(&format!("export --output {}", file.display()));
    assert_eq!(outcome.success().stdout, "");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let text = fs::read_to_string(file).unwrap();
    serde_json::from_str::<Value>(&text).unwrap();
    assert!(!text.contains("hush"), "{text}");
    assert!(
        text.contains("calico-ipam") && text.contains("127.0.0.1:1"),
        "{text}"
    );
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
fn release_and_explain_take_the_same_prefixes() {
    let (node, _wire) = Node::with_wire("prefixes", Reply::Xml(xml([5, 6, 7])));
    for id in ["abcdef0001", "abcdef0002", "abc"] {
        node.add(id).success();
    }
    let candidates = "\"abcd\" is ambiguous: 2 containers begin with it; type more characters of one of these:\n  abcdef0001\n  abcdef0002\n";
    for line in ["release 10.224.0.5 --container abcd", "explain abcd"] {
        let outcome = node.run_line(line);
        assert_eq!((outcome.exit, &*outcome.stdout), (Some(2), ""), "{line}");
        assert!(outcome.stderr.ends_with(candidates), "{outcome:?}");
    }
    let outcome = node.run_line("explain ab");
    assert_eq!(outcome.exit, Some(1), "{outcome:?}");
    let text = "Nothing is known about ab. \"ab\" is too short for a container ID: type at least its first 4 characters.";
    assert_eq!(flowing(&outcome.stdout), text);
    // A whole ID may be short, and be the beginning of others.
    node.run_line("explain abc").success();
    node.run_line("release 10.224.0.7 --container abc --force")
        .success();
    node.run_line("explain abcdef0002").success();
    node.run_line("release 10.224.0.6 --container abcdef0002 --force")
        .success();
    // Only holders count for a release, but operations are explained as well.
    node.run_line("release 10.224.0.5 --container abcd --force")
        .success();
    assert_eq!(node.run_line("explain abcd").exit, Some(2));
    assert!(node.held().is_empty());
}

/// A text on one line, without the indentation of a wrapped one.
fn flowing(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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
    fs::write(node.state_path(), &good[..good.len() / 2]).unwrap();
    check("the state is corrupt");
    fs::remove_file(node.state_path()).unwrap();
    check("the state was lost");
    fs::write(node.state_path(), good).unwrap();
    let (_, text) = explain("10.224.0.6");
    assert!(text.starts_with("10.224.0.6 free"), "{text}");
}

#[test]
#[ignore = "needs root, who can become somebody else"]
fn missing_permission_is_answered_with_sudo_in_one_line() {
    let (node, _wire) = Node::with_wire("nobody", Reply::Xml(xml([5])));
    node.add("c1").success();
    // A path where another user may execute it.
    let own = node.path("/plugin");
    install(&own);
    node.make_accessible_to_everybody();
    fs::set_permissions(node.state_path(), fs::Permissions::from_mode(0o600)).unwrap();
    for line in ["show", "explain 10.224.0.5", "reclaim", "export", "metrics"] {
        let mut command = Command::new(&own);
        command.env_clear().envs(&node.env).args(line.split(' '));
        let output = output(command.uid(65_534).gid(65_534));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(2), 0),
            "{line}: {stderr}"
        );
        assert!(
            stderr.lines().count() == 1 && stderr.contains("sudo"),
            "{line}: {stderr}"
        );
    }
    // These two report what they can see.
    for line in ["check", "doctor"] {
        let mut command = Command::new(&own);
        command.env_clear().envs(&node.env).arg(line);
        let output = output(command.uid(65_534).gid(65_534));
        let text = String::from_utf8(output.stdout).unwrap();
        let hidden = "whether new pods get addresses cannot be seen without root";
        assert!(text.contains("sudo") && text.contains(hidden), "{text}");
        assert_ne!(output.status.code(), Some(0), "{text}");
    }
}

/// Runs a command with the boot clock `seconds` ahead.
fn later(pods: &Pods, seconds: u64, line: &str) -> Outcome {
    pods.at(seconds, || pods.node.run_line(line))
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn live_pod_is_not_released_and_dead_pod_is() {
    if !in_private_namespaces("operator::live_pod_is_not_released_and_dead_pod_is") {
        return;
    }
    let pods = Pods::in_namespaces(5..20);
    let living = pods.start("living01");
    let dead = pods.start("dead0001");
    let refused = pods
        .node
        .run_line(&format!("release {living} --container living01"));
    assert_eq!(refused.exit, Some(1), "{refused:?}");
    assert!(refused.stdout.contains("is configured in"), "{refused:?}");
    pods.remove_without_del("dead0001");
    let released = pods
        .node
        .run_line(&format!("release {dead} --container dead0001"));
    released.success();
    let held: Vec<String> = pods.held().into_values().collect();
    assert_eq!(held, ["living01"]);
    let forced = pods
        .node
        .run_line(&format!("release {living} --container living01 --force"));
    assert!(
        forced.success().stdout.contains("is configured in"),
        "it says what it ignored"
    );
    assert!(pods.held().is_empty());
    // That pod uses its address, but no record holds it.
    let checked = pods.node.run_line("check --json");
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
    if !in_private_namespaces("operator::reclaim_frees_only_dead_holders") {
        return;
    }
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
    let would = later(&pods, HOUR, "reclaim --json").success().json();
    let addresses = |report: &Value, key: &str| -> BTreeSet<String> {
        let list = report[key].as_array().unwrap().iter();
        list.map(|t| t["holder"]["address"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(addresses(&would, "freed"), BTreeSet::from(gone.clone()));
    assert_eq!(
        (&would["done"], &would["alive"]),
        (&json!(false), &json!(1))
    );
    assert_eq!(pods.node.state_bytes(), before, "a dry run changes nothing");
    // The first look at records older than 15 minutes only marks them.
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
        let story = pods.node.run_line(&format!("explain {pod} --json"));
        let story = story.success().json();
        let verbs = story["events"].as_array().unwrap().iter();
        let verbs: Vec<_> = verbs.map(|e| e["verb"].as_str().unwrap()).collect();
        assert_eq!(verbs, ["ADD", "reclaim"], "{story:#}");
    }
    let story = pods.node.run_line("explain living01 --json");
    let verbs = story.json()["events"].as_array().unwrap().len();
    assert_eq!(verbs, 1, "{story:?}");
}
