//! `show` and `events`, and the texts that all views share.

use std::fs;

use serde_json::{Value, json};

use super::{EVENTS, run_with};
use crate::harness::{Node, Reply, xml};

#[test]
fn control_characters_are_never_printed() {
    let (node, _wire) = Node::with_wire("marks", Reply::Xml(xml(5..9)));
    let marks = "\u{1b}\u{7f}\u{80}\u{9b}31m\u{9f}\u{61c}\u{200e}\u{200f}\u{2028}\u{202a}\u{202e}\u{2066}\u{2069}";
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
        &["events"],
        &["events", "--json"],
        &["check"],
        &["check", "--json"],
        &["show", "c9"],
        &["show", "c9", "--json"],
        &["check", "--all"],
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
    let report = node.run_command(["show", "--json"]).json();
    let holder = &report["pools"][0]["holders"][0];
    assert_eq!(holder["pod"], format!("default/{pod}"));
    assert!(!node.log().contains(alters_terminal));
}

#[test]
fn show_can_be_limited_to_one_pool() {
    let (node, _wire) = Node::with_wire("pool", Reply::Xml(xml([5])));
    node.add("c1").success();
    let report = node.run_line("show 10.224.0.0/16 --json").success().json();
    assert_eq!(report["pools"][0]["holders"][0]["container"], "c1");
    let report = node.run_line("show 10.224.0.0 --json").success().json();
    assert_eq!(report["pools"][0]["subnet"], "10.224.0.0/16");
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
    node.advance_clock(60);
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
    assert_eq!(shown("--pod eb-2"), ["c2"]);
    assert_eq!(shown("--pod shop/"), ["c1", "c2", "c3"]);
    assert_eq!(shown("--namespace shop"), ["c1", "c2", "c3"]);
    assert_eq!(shown("--namespace sho"), [""; 0]);
    assert_eq!(shown("--namespace shop --pod dns"), ["c3"]);
    assert_eq!(shown("--sort age").last().unwrap(), "c5");
    // In a folder, the scan of the node is never complete.
    assert_eq!(shown("--leaked"), [""; 0]);
    let one = node.run_line("show eb-2").success().stdout.clone();
    assert!(one.contains("shop/web-2"), "{one}");
    let two = node.run_line("show web").stderr;
    assert!(two.ends_with("\n  shop/web-1\n  shop/web-2\n"), "{two}");
    let none = node.run_line("show --pod nobody").success().stdout.clone();
    assert!(none.starts_with("No holder matches.\n\nSource:"), "{none}");
    for (line, words) in [
        ("show web-1 --sort age", "apply to pools"),
        ("show --watch --json", "--watch prints text"),
        ("show --watch -o json", "--watch prints text"),
    ] {
        let refused = node.run_line(line);
        assert_eq!((refused.exit, &*refused.stdout), (Some(2), ""), "{line}");
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
}

/// The tests of `ops::events` cover the filters themselves.
#[test]
fn events_can_be_limited() {
    let (node, _wire) = Node::with_wire("limits", Reply::Xml(xml(5..20)));
    for id in ["c1", "c2", "c3"] {
        node.add(id).success();
    }
    let shown = |line: &str| node.run_line(line).success().stdout.clone();
    assert_eq!(shown("events --pod nobody"), "No operation matches.\n");
    // Without the headings, two lines are left.
    assert_eq!(shown("events --since 1h --tail 2").lines().count(), 3);
    assert!(shown("events --address 10.224.0.6").contains("c2"));
    for (argument, words) in [
        ("--since soon", "\"soon\" is neither a duration such as 90s"),
        ("--address 10.224", "\"10.224\" is not an address"),
    ] {
        let line = &format!("events {argument}");
        let outcome = node.run_line(line);
        assert_eq!((outcome.exit, &*outcome.stdout), (Some(2), ""), "{line}");
        assert!(outcome.stderr.contains(words), "{outcome:?}");
    }
}

/// `show --watch` ends when its reader closes the pipe, as `head` does.
#[test]
fn show_watch_ends_when_its_reader_does() {
    let (node, _wire) = Node::with_wire("watch", Reply::Xml(xml([5])));
    node.add("c1").success();
    let twice = r#""$0" "$@" | grep --max-count=2 "^10.224.0.0/16 on ""#;
    let shown = node.command(["show", "--watch"]).run_in_shell(twice);
    assert_eq!(shown.success().stdout.lines().count(), 2, "{shown:?}");
}

/// Uses a pod with the longest name that Kubernetes allows.
#[test]
fn events_fit_80_columns_in_a_pipe_and_show_cuts_nothing_there() {
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
    // The operations keep only the beginning of a long name.
    let pod = &name[..60];
    // The output is a pipe with the width from COLUMNS, or a terminal.
    for (line, columns, is_whole) in [
        ("show", Some(""), true),
        ("show", Some("80"), false),
        ("show", None, false),
        ("show -o wide", Some("80"), true),
        ("show -o wide", None, true),
        ("events", Some(""), false),
        ("events -o wide", Some(""), true),
    ] {
        let on_terminal = || node.command(line.split(' ')).env("TERM", "dumb");
        let text = match columns {
            Some(columns) => run_with(&node, line, "COLUMNS", columns),
            None => on_terminal().run_on_terminal(),
        };
        let fits = text.lines().all(|line| line.chars().count() <= 80);
        assert_eq!((text.contains(pod), fits), (is_whole, !is_whole), "{line}");
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
    // POSIX time zones need no files. In them, west is positive.
    for (zone, heading, time) in [
        ("<+0530>-5:30", "TIME (+05:30)", "01-02 03:34:05"),
        ("<-03>3", "TIME (-03:00)", "01-01 19:04:05"),
        ("UTC0", "TIME (UTC)", "01-01 22:04:05"),
    ] {
        let events = run_with(&node, "events", "TZ", zone);
        assert!(events.starts_with(heading), "{events}");
        assert!(events.contains(&format!("\n{time}  CHECK")), "{events}");
        let page = run_with(&node, "show c123", "TZ", zone);
        let since = page.lines().find(|line| line.contains(" since ")).unwrap();
        let shown_zone = heading.trim_start_matches("TIME (").trim_end_matches(')');
        assert!(since.contains(&format!(" {shown_zone}, ")), "{page}");
        assert!(page.contains(heading), "{page}");
        let json = run_with(&node, "show c123 --json", "TZ", zone);
        let json: Value = serde_json::from_str(&json).unwrap();
        let since = &json["addresses"][0]["holder"]["since"];
        for time in [&json["time"], since, &json["events"][0]["time"]] {
            assert!(time.as_str().unwrap().ends_with('Z'), "{zone}: {json:#}");
        }
    }
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
        node.make_state_the_originals();
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
    node.remove_backup();
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
