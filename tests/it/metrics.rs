//! Metrics for Prometheus: their values after known operations, and the file that a collector reads.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::harness::{Node, Outcome, Reply, SUBNET, conf, package, run, xml};

/// Runs `metrics`.
fn run_metrics(node: &Node, args: &[&str]) -> Outcome {
    node.run_command(["metrics"].into_iter().chain(args.iter().copied()))
}

fn text(node: &Node) -> String {
    let outcome = run_metrics(node, &[]);
    assert_eq!(outcome.stderr, "", "{outcome:?}");
    outcome.success().stdout.clone()
}

/// Metrics by name and labels, without the common prefix and the name of the plugin.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    let text = text.replace("{plugin=\"azure-vnet-ipam\",", "{");
    let text = text.replace("{plugin=\"azure-vnet-ipam\"}", "");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let series = series.strip_prefix("azure_vnet_ipam_").unwrap().to_owned();
        let known = figures.insert(series, value.parse().unwrap());
        assert_eq!(known, None, "{line} appears twice");
    }
    figures
}

/// The metrics of the pool: size, free, held, cooldown, suspect, excluded, and used by the host.
fn pool_metrics(figures: &BTreeMap<String, f64>) -> [f64; 7] {
    let labels = format!(r#"space="local",pool="{SUBNET}",interface="eth0""#);
    let plain = ["", "free_", "held_", "cooldown_", "suspect_"]
        .map(|what| figures[&format!("pool_{what}addresses{{{labels}}}")]);
    let withheld = ["excluded", "host"].map(|reason| {
        figures[&format!(r#"pool_withheld_addresses{{{labels},reason="{reason}"}}"#)]
    });
    let [all, free, held, cooldown, suspect] = plain;
    let [excluded, host] = withheld;
    [all, free, held, cooldown, suspect, excluded, host]
}

fn operations(figures: &BTreeMap<String, f64>, verb: &str) -> [f64; 2] {
    ["ok", "error"]
        .map(|result| figures[&format!(r#"operations_total{{verb="{verb}",result="{result}"}}"#)])
}

/// A node with an operation of every kind that is counted.
fn node_with_history(name: &str) -> Node {
    let (node, wire) = Node::with_wire(name, Reply::Xml(xml(5..15)));
    node.put(
        "/etc/azure-vnet-ipam.json",
        r#"{"exclude": ["10.224.0.14"]}"#,
    );
    for id in ["c1", "c2", "c3"] {
        node.add(id).success();
    }
    node.del("c2").assert_no_output();
    // The DEL arrives before the ADD.
    node.del("c4").assert_no_output();
    node.add("c4").success();
    let taken = json!({ "subnet": SUBNET, "ipAddress": "10.224.0.5" });
    let taken = conf("0.3.0", taken);
    node.call("ADD", "c5").stdin(taken).run().error();
    wire.set(Reply::Status(500, String::new()));
    node.add("c6").success();
    node
}

#[test]
fn metrics_match_what_happened() {
    let node = node_with_history("figures");
    let text = text(&node);
    let figures = parse(&text);
    assert_eq!(pool_metrics(&figures), [10.0, 4.0, 4.0, 1.0, 1.0, 1.0, 0.0]);
    assert_eq!(operations(&figures, "ADD"), [5.0, 1.0]);
    assert_eq!(operations(&figures, "DEL"), [2.0, 0.0]);
    assert_eq!(operations(&figures, "CHECK"), [0.0, 0.0]);
    let errors = figures
        .iter()
        .filter(|(series, _)| series.starts_with("operation_errors_total"));
    let errors: Vec<_> = errors.map(|(_, count)| *count).collect();
    assert_eq!(errors, [1.0]);
    assert_eq!(figures["refresh_failures_total"], 1.0);
    assert_eq!(figures["reclaimed_addresses_total"], 0.0);
    assert_eq!(figures["quarantine_remaining_seconds"], 0.0);
    assert_eq!(figures["state_readable"], 1.0);
    assert!((0.0..60.0).contains(&figures["refresh_age_seconds"]));

    node.advance_clock(31);
    let later = pool_metrics(&parse(&self::text(&node)));
    assert_eq!(later, [10.0, 5.0, 4.0, 0.0, 1.0, 1.0, 0.0]);
}

#[test]
fn metrics_change_nothing_and_wait_for_no_lock() {
    let node = node_with_history("look");
    let _lock = node.hold_lock();
    let fetch = fs::File::open(node.fetch_lock_path()).unwrap();
    fetch.try_lock().unwrap();
    let before = (node.state_bytes(), node.log());
    let first = parse(&text(&node));
    let mut second = parse(&text(&node));
    let age = first["refresh_age_seconds"];
    assert!(second["refresh_age_seconds"] >= age);
    second.insert("refresh_age_seconds".into(), age);
    assert_eq!(first, second);
    assert_eq!((node.state_bytes(), node.log()), before);
}

#[test]
fn missing_state_has_no_pools() {
    let node = Node::new("missing");
    let figures = parse(&text(&node));
    assert_eq!(figures["state_readable"], 1.0);
    assert_eq!(operations(&figures, "ADD"), [0.0, 0.0]);
    let has_series = |start: &str| figures.keys().any(|series| series.starts_with(start));
    assert!(!has_series("pool_") && !has_series("refresh_age") && !has_series("operation_errors"));
    // The command must not create files either.
    assert!(!node.path("/var").exists());
}

#[test]
fn corrupt_state_still_yields_other_metrics() {
    let node = node_with_history("damaged");
    let before = parse(&text(&node));
    node.remove_backup();
    for damage in [&b"{\"IPAM\": "[..], b"\xff\xfe", b"[]"] {
        fs::write(node.state_path(), damage).unwrap();
        let figures = parse(&text(&node));
        assert_eq!(figures["state_readable"], 0.0);
        let has_series = |start: &str| figures.keys().any(|series| series.starts_with(start));
        assert!(!has_series("pool_") && !has_series("quarantine") && !has_series("refresh_age"));
        for series in before.keys().filter(|series| series.contains("_total")) {
            assert_eq!(figures[series], before[series], "{series}");
        }
    }
    assert_eq!(node.leftover_files(), [""; 0], "nothing was put away");
}

#[test]
fn lost_state_and_old_stamps_are_reported() {
    let (node, _wire) = Node::with_wire("lost", Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    fs::remove_file(node.state_path()).unwrap();
    node.remove_backup();
    let figures = parse(&text(&node));
    assert_eq!(figures["state_readable"], 0.0);
    assert!(!figures.keys().any(|series| series.starts_with("pool_")));
    node.add("c2").error();
    let figures = parse(&text(&node));
    let left = figures["quarantine_remaining_seconds"];
    assert!(left > 0.0 && left <= 30.0, "{left}");
    node.put(
        "/proc/sys/kernel/random/boot_id",
        "8f3c5c52-0000-4000-8000-000000000002\n",
    );
    let figures = parse(&text(&node));
    assert_eq!(figures["quarantine_remaining_seconds"], 0.0);
    assert_eq!(
        figures["state_readable"], 1.0,
        "a new boot has no state yet"
    );
    assert!(!figures.contains_key("refresh_age_seconds"));
}

#[test]
fn durations_and_waits_are_counted() {
    let (node, _wire) = Node::with_wire("durations", Reply::Xml(xml(5..15)));
    node.add("c1").success();
    node.del("c1").assert_no_output();
    let duration = |figures: &BTreeMap<String, f64>, verb: &str, part: &str, le: &str| {
        figures[&format!(r#"operation_duration_seconds_{part}{{verb="{verb}"{le}}}"#)]
    };
    let before = parse(&text(&node));
    for verb in ["ADD", "DEL"] {
        assert_eq!(duration(&before, verb, "bucket", r#",le="+Inf""#), 1.0);
        assert!(duration(&before, verb, "sum", "") > 0.0);
    }
    // This ADD waits for the lock.
    const WAIT: Duration = Duration::from_secs(2);
    let lock = node.hold_lock();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| node.add("c2"));
        thread::sleep(WAIT);
        drop(lock);
        waiting.join().unwrap().success();
    });
    let after = parse(&text(&node));
    assert_eq!(duration(&after, "ADD", "count", ""), 2.0);
    let short = |figures| duration(figures, "ADD", "bucket", r#",le="0.1""#);
    assert_eq!(short(&after), short(&before));
    let waits = after["lock_waits_total"] - before["lock_waits_total"];
    assert_eq!(waits, 1.0);
    let waited = after["lock_wait_seconds_total"];
    assert!(waited > 0.1, "{waited}");
}

/// A folder for collectors on the node, and a file in it.
fn collector_file(node: &Node) -> (PathBuf, String) {
    let folder = node.path("/collected");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("ipam.prom").to_str().unwrap().to_owned();
    (folder, file)
}

fn file_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn output_file_is_for_the_collector() {
    let node = node_with_history("file");
    let (folder, file) = collector_file(&node);
    fs::write(&file, "old").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    // The file must not depend on stdout or on the umask.
    let call = node.call("", "").without("CNI_COMMAND");
    let line = format!("umask 077; exec \"$0\" metrics --output {file} >&-");
    call.run_in_shell(&line).assert_no_output();
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o644, "for the collector, who is not root");
    assert!(fs::read_to_string(&file).unwrap().ends_with("\"} 1\n"));
    assert_eq!(file_names(&folder), ["ipam.prom"]);
}

#[test]
fn unwritable_output_file_is_reported_and_leaves_nothing() {
    let node = node_with_history("refused");
    let (folder, file) = collector_file(&node);
    fs::write(&file, "old").unwrap();
    let check = |outcome: Outcome, path: &str, words: &str| {
        assert_eq!(outcome.exit, Some(2), "{outcome:?}");
        assert_eq!(outcome.stdout, "");
        let expected = format!("azure-vnet-ipam metrics: failed to write {path}: {words}\n");
        assert_eq!(outcome.stderr, expected);
        assert_eq!(file_names(&folder), ["ipam.prom"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    };
    let missing = node.path("/nowhere/ipam.prom");
    let missing = missing.to_str().unwrap();
    let outcome = run_metrics(&node, &["--output", missing]);
    check(outcome, missing, "no such file or directory");
    let path = folder.to_str().unwrap();
    let outcome = run_metrics(&node, &["--output", path]);
    check(outcome, path, "it is not a regular file");
    // The file can be created, but not written, as on a full disk.
    let call = node.call("", "").without("CNI_COMMAND");
    let line = format!("trap '' XFSZ; ulimit -f 0; exec \"$0\" metrics --output {file}");
    check(call.run_in_shell(&line), &file, "file too large");
}

#[test]
#[ignore = "needs promtool"]
fn promtool_accepts_the_metrics_and_the_alerts() {
    let rules = package().join("conflist-examples/kubernetes/alerts.test.yaml");
    let outcome = run(
        Command::new("promtool").args(["test", "rules"]).arg(rules),
        "",
    );
    assert_eq!(outcome.exit, Some(0), "{outcome:?}");
    let damaged = node_with_history("lint-damaged");
    fs::write(damaged.state_path(), "{").unwrap();
    for node in [
        node_with_history("lint"),
        Node::new("lint-missing"),
        damaged,
    ] {
        let text = text(&node);
        let outcome = run(Command::new("promtool").args(["check", "metrics"]), &text);
        let actual = (outcome.exit, &*outcome.stdout, &*outcome.stderr);
        assert_eq!(actual, (Some(0), "", ""), "{text}");
    }
}
