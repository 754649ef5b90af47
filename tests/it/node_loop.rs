//! `node-loop`: the file that it writes, what it watches, and how it ends.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};

use crate::bounds::state_with_holders;
use crate::harness::wait::{Process, wait_until};
use crate::harness::{
    Node, Outcome, Reply, Running, SUBNET, WireServer, binary, install, package, xml, xml_of,
};
use crate::install::folder::{KEPT, PluginFolder, V4, original};
use crate::namespaces::Pods;
use crate::privileged::{in_private_namespaces, only_in};

/// The intervals are longer than any test. The tests advance the clock of the node instead.
const INTERVALS: [&str; 4] = ["--interval", "600", "--check-interval", "3600"];

/// The file for the collector, in a folder that does not exist yet.
fn output_file(node: &Node) -> PathBuf {
    node.path("/collected/ipam.prom")
}

fn make_folder(node: &Node) -> PathBuf {
    let file = output_file(node);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    file
}

/// Starts the loop on a node with a clock that can be advanced.
fn start(node: &Node, options: &[&str]) -> Running {
    node.set_clock(0);
    let file = output_file(node);
    let call = node.call("", "").without("CNI_COMMAND");
    let words = ["node-loop", "--output", file.to_str().unwrap()];
    let words = words.iter().chain(&INTERVALS).chain(options);
    words.fold(call, |call, word| call.arg(word)).start()
}

fn pid_of(node_loop: &Running) -> Pid {
    Pid::from_raw(i32::try_from(node_loop.id()).unwrap()).unwrap()
}

/// Sends SIGTERM to the loop, which must end at once.
#[track_caller]
fn stop(node_loop: Running) -> Outcome {
    let began = Instant::now();
    kill_process(pid_of(&node_loop), Signal::TERM).unwrap();
    let outcome = node_loop.finish();
    // The limit is far below the intervals, and far above the time that a busy machine needs.
    assert!(began.elapsed() < Duration::from_secs(30), "{outcome:?}");
    assert_eq!((outcome.exit, &*outcome.stdout), (Some(0), ""));
    outcome
}

fn text(node: &Node) -> String {
    fs::read_to_string(output_file(node)).unwrap_or_default()
}

fn wait_for_line(node: &Node, line: &str) {
    let line = format!("azure_vnet_ipam_{line}\n");
    wait_until(
        format!("{line:?} in {}", output_file(node).display()),
        || text(node).contains(&line),
    );
}

/// Waits until the loop has checked the node again. Each check queries the source, so its count exceeds `before`.
fn wait_for_check(wire: &WireServer, before: usize) {
    wait_until("a check", || wire.count() > before);
}

/// Advances the clock until the loop checks the node again.
fn check_again(node: &Node, wire: &WireServer) {
    let before = wire.count();
    node.advance_clock(3600);
    wait_for_check(wire, before);
}

#[test]
fn metrics_have_the_installation_and_the_check() {
    let (node, _wire) = Node::with_wire("loop", Reply::Xml(xml(5..15)));
    make_folder(&node);
    node.add("c1").success();
    install(&node.path("/opt/cni/bin/azure-vnet-ipam"));
    let node_loop = start(&node, &[]);
    wait_for_line(&node, r#"executable_matches{plugin="azure-vnet-ipam"} 1"#);
    wait_for_line(
        &node,
        r#"last_check_findings{plugin="azure-vnet-ipam",kind="duplicate",severity="error"} 0"#,
    );
    let outcome = stop(node_loop);
    assert_eq!(outcome.stderr, "");
    let own = |text: &str| {
        let varies = ["refresh_age_seconds", "executable_matches", "last_check"];
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.retain(|line| !varies.iter().any(|name| line.contains(name)));
        lines
    };
    let printed = node.run_line("metrics").success().stdout.clone();
    assert_eq!(own(&text(&node)), own(&printed), "the same as `metrics`");
    assert!(!printed.contains("executable_matches"));
}

#[test]
fn replaced_executable_is_reported_once() {
    let (node, _wire) = Node::with_wire("loop-replaced", Reply::Xml(xml(5..15)));
    make_folder(&node);
    let plugin = node.path("/opt/cni/bin/azure-vnet-ipam");
    let node_loop = start(&node, &[]);
    let name = r#"executable_matches{plugin="azure-vnet-ipam"}"#;
    wait_for_line(&node, &format!("{name} 0"));
    install(&plugin);
    node.advance_clock(600);
    wait_for_line(&node, &format!("{name} 1"));
    fs::remove_file(&plugin).unwrap();
    fs::write(&plugin, "#!/bin/sh\n").unwrap();
    for _ in 0..3 {
        let before = fs::metadata(output_file(&node)).unwrap().ino();
        node.advance_clock(600);
        wait_until("another round", || {
            fs::metadata(output_file(&node)).is_ok_and(|now| now.ino() != before)
        });
    }
    wait_for_line(&node, &format!("{name} 0"));
    let stderr = stop(node_loop).stderr;
    let path = plugin.display();
    let prefix = "azure-vnet-ipam node-loop: azure-vnet-ipam: ";
    let problem = format!("{prefix}{path} is not this executable");
    let [one, two, three] = &stderr.lines().collect::<Vec<_>>()[..] else {
        panic!("{stderr}")
    };
    assert!(
        one.starts_with(&problem) && three.starts_with(&problem),
        "{stderr}"
    );
    assert_eq!(*two, format!("{prefix}works again"));
    // Without --reinstall, the other file stays.
    assert_eq!(fs::read(&plugin).unwrap(), b"#!/bin/sh\n");
}

#[test]
fn replaced_executable_is_reinstalled_with_the_option() {
    let folder = PluginFolder::new("loop-reinstall");
    let node = &folder.node;
    make_folder(node);
    folder.put(V4, &original("x"));
    let node_loop = start(node, &["--reinstall"]);
    wait_for_line(node, r#"executable_matches{plugin="azure-vnet-ipam"} 1"#);
    assert!(folder.is_ours(V4));
    assert_eq!(folder.read(KEPT), original("x"));
    // A file that only --force would replace is left alone.
    folder.put(V4, b"#!/bin/sh\n");
    node.advance_clock(600);
    wait_for_line(node, r#"executable_matches{plugin="azure-vnet-ipam"} 0"#);
    let stderr = stop(node_loop).stderr;
    assert!(stderr.contains("not installed again: "), "{stderr}");
    assert!(folder.read(V4) == b"#!/bin/sh\n");
}

#[test]
fn failing_step_does_not_end_the_loop() {
    let (node, wire) = Node::with_wire("loop-failing", Reply::Xml(xml(5..15)));
    install(&node.path("/opt/cni/bin/azure-vnet-ipam"));
    let mut node_loop = start(&node, &[]);
    wait_for_check(&wire, 0);
    for _ in 0..3 {
        check_again(&node, &wire);
    }
    assert!(node_loop.is_running());
    make_folder(&node);
    // Wait for a check, because the loop runs it after it has reported the failed step.
    check_again(&node, &wire);
    wait_for_line(&node, r#"state_readable{plugin="azure-vnet-ipam"} 1"#);
    let stderr = stop(node_loop).stderr;
    let file = output_file(&node);
    let expected = format!(
        "azure-vnet-ipam node-loop: metrics: failed to write {}: no such file or directory\n\
         azure-vnet-ipam node-loop: metrics: works again\n",
        file.display()
    );
    assert_eq!(stderr, expected);
}

/// The peak of the resident memory, in KiB.
fn most_memory(node_loop: &Running) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", node_loop.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let words = line.unwrap().split_whitespace().next();
    words.unwrap().parse().unwrap()
}

#[test]
fn memory_stays_what_one_round_needs() {
    let (node, wire) = Node::with_wire("loop-memory", Reply::Xml(xml(5..250)));
    make_folder(&node);
    node.put("/var/run/azure-vnet-ipam.json", state_with_holders(40));
    let node_loop = start(&node, &[]);
    let mut early = 0;
    wait_for_check(&wire, 0);
    for round in 0..60 {
        check_again(&node, &wire);
        if round == 20 {
            early = most_memory(&node_loop);
        }
    }
    let late = most_memory(&node_loop);
    stop(node_loop);
    assert!(
        late < early + 1024,
        "{early} KiB after 20 rounds, {late} KiB after 60"
    );
}

#[test]
fn memory_of_the_largest_node_fits_the_limit_of_the_daemonset() {
    let all = xml_of(SUBNET.parse().unwrap(), 0..=u16::MAX);
    let (node, wire) = Node::with_wire("loop-largest", Reply::Xml(all));
    make_folder(&node);
    node.put("/var/run/azure-vnet-ipam.json", state_with_holders(65_000));
    let node_loop = start(&node, &[]);
    wait_for_check(&wire, 0);
    check_again(&node, &wire);
    wait_for_line(&node, r#"last_check_status{plugin="azure-vnet-ipam"} 1"#);
    let most = most_memory(&node_loop);
    stop(node_loop);
    let manifest = package().join("conflist-examples/kubernetes/daemonset.yaml");
    let manifest = fs::read_to_string(manifest).unwrap();
    let (_, limit) = manifest.split_once("limits: {memory: ").unwrap();
    let limit: u64 = limit.split_once("Mi").unwrap().0.parse().unwrap();
    assert!(most < limit << 10, "{most} KiB");
}

#[test]
fn loop_that_hangs_is_not_alive() {
    let (node, _wire) = Node::with_wire("loop-alive", Reply::Xml(xml(5..15)));
    make_folder(&node);
    let file = output_file(&node);
    let written = |ago: u64| {
        let at = SystemTime::now() - Duration::from_secs(ago);
        File::open(&file).unwrap().set_modified(at).unwrap();
    };
    let ask = || {
        let words = ["node-loop", "--is-alive", "--interval=600", "--output"];
        node.run_command(words.iter().copied().chain(file.to_str()))
            .exit
    };
    assert_eq!(ask(), Some(2), "no loop has started yet");
    let node_loop = start(&node, &[]);
    wait_until("the first round", || ask() == Some(0));
    let signal = |signal| kill_process(pid_of(&node_loop), signal).unwrap();
    signal(Signal::STOP);
    written(9 * 600);
    assert_eq!(ask(), Some(0));
    written(10 * 600);
    assert_eq!(ask(), Some(1));
    signal(Signal::CONT);
    node.advance_clock(600);
    wait_until("another round", || ask() == Some(0));
    stop(node_loop);
}

#[test]
fn intervals_have_bounds() {
    let node = Node::new("loop-usage");
    for line in [
        "node-loop",
        "node-loop --is-alive",
        "node-loop --output x --interval 0",
        "node-loop --output x --interval 86401",
        "node-loop --output x --check-interval 1m",
        "node-loop --output x --names azure-vnet",
    ] {
        let outcome = node.run_line(line);
        assert_eq!(outcome.exit, Some(2), "{line}: {outcome:?}");
    }
}

#[test]
#[ignore = "needs root and unshare"]
fn loop_ends_at_once_as_first_process_of_a_container() {
    let node = Node::new("loop-first");
    let file = make_folder(&node);
    let mut command = Command::new("unshare");
    command.envs(&node.env);
    command
        .args(["--pid", "--fork", "--kill-child"])
        .arg(binary());
    command.args(["node-loop", "--output"]).arg(&file);
    let process = Process::start(&mut command);
    wait_until("the first round", || file.exists());
    let children = format!("/proc/{0}/task/{0}/children", process.id());
    let children = fs::read_to_string(children).unwrap();
    let pid: i32 = children.trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    let status = process.status_within(Duration::from_secs(30));
    assert!(status.success(), "{status:?}");
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn dead_holders_are_reclaimed_with_the_option() {
    only_in!(in_private_namespaces);
    let pods = Pods::in_namespaces(5..15);
    let node = &pods.node;
    install(&node.path("/opt/cni/bin/azure-vnet-ipam"));
    make_folder(node);
    pods.start("living");
    pods.start("dead");
    pods.remove_without_del("dead");
    for (options, expected) in [
        (&[][..], &["dead", "living"][..]),
        (&["--reclaim"], &["living"]),
    ] {
        let before = pods.wire.count();
        let node_loop = start(node, options);
        wait_for_check(&pods.wire, before);
        // By the second check, the holders are older than an hour.
        for _ in 0..2 {
            check_again(node, &pods.wire);
        }
        stop(node_loop);
        let mut held: Vec<String> = pods.held().into_values().collect();
        held.sort();
        assert_eq!(held, expected, "{options:?}");
    }
    let events = node.run_line("events -o json").json();
    let listed = events.as_array().unwrap().iter();
    let reclaims = listed.filter(|event| event["verb"] == "reclaim");
    assert_eq!(reclaims.count(), 1, "{events:#?}");
}
