//! Ways to grant an address twice, or to free the address of a live pod. Each was possible once and was found by attacking
//! the plugin.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::contention::run_all_in_parallel;
use crate::harness::wait::{Process, SetOnDrop, wait_until};
use crate::harness::{
    Gate, Node, Outcome, Reply, SUBNET, WireServer, binary, conf, sh, sh_with, xml,
};
use crate::namespaces::Pods;
use crate::privileged::in_private_namespaces;

/// A node on which `c1` holds 10.224.0.5, as its network namespace and libcni's cache show.
fn node_with_a_pod(name: &str) -> (Node, WireServer) {
    let (node, wire) = Node::with_wire(name, Reply::Xml(xml(5..10)));
    node.put("/var/run/netns/c1", "");
    let add = node.call("ADD", "c1").env("CNI_NETNS", "/var/run/netns/c1");
    assert_eq!(add.run().address(), "10.224.0.5");
    node.cache("azure", "c1", "eth0", "/var/run/netns/c1", &["10.224.0.5"]);
    (node, wire)
}

#[test]
fn pending_rebuild_waits_for_source() {
    let (node, mut wire) = node_with_a_pod("slowsource");
    fs::remove_file(node.state_path()).unwrap();
    node.remove_journal();
    wire.stop();
    node.add("c2").error();
    wire.set(Reply::After(
        Duration::from_secs(4),
        Box::new(Reply::Xml(xml(5..10))),
    ));
    wire.start();
    node.add("c2").assert_quarantined();
}

#[test]
fn endless_quarantine_ends() {
    let (node, _wire) = node_with_a_pod("endless");
    let mut state = node.state();
    state["azure-vnet-ipam"]["quarantineUntil"] = (u64::MAX - 1).into();
    fs::write(node.state_path(), state.to_string()).unwrap();
    assert_eq!(node.add("c2").address(), "10.224.0.6");
}

#[test]
fn special_file_as_namespace_path_does_not_block() {
    let (node, _wire) = Node::with_wire("fifo", Reply::Xml(xml([5])));
    node.put("/var/run/netns/x", "");
    sh_with("mkfifo \"$1\"", &[&node.path("/var/run/netns/fifo")]);
    for path in ["/var/run/netns/fifo", "/var/run/netns/x", "/var/run/netns"] {
        let add = node.call("ADD", "c1").env("CNI_NETNS", path).run();
        assert_eq!(add.address(), "10.224.0.5", "{path}");
    }
}

/// A call for a second interface of the container, on another network.
fn call_for_second_interface(node: &Node, command: &str) -> Outcome {
    let mut conf: Value = serde_json::from_str(&conf("1.0.0", json!({}))).unwrap();
    conf["name"] = "second".into();
    let call = node.call(command, "c1").env("CNI_IFNAME", "net1");
    call.stdin(conf.to_string()).run()
}

#[test]
fn second_interface_does_not_inherit_the_originals_record() {
    let (node, _wire) = node_with_a_pod("second");
    node.make_state_the_originals();
    assert_eq!(
        call_for_second_interface(&node, "ADD").address(),
        "10.224.0.6"
    );
    call_for_second_interface(&node, "DEL").assert_no_output();
    let held: Vec<_> = node.held().into_iter().collect();
    assert_eq!(held, [("10.224.0.5".to_owned(), "c1".to_owned())]);
    // The same when the original granted it after we wrote the state.
    let (node, _wire) = node_with_a_pod("second");
    let mut state = node.state();
    let ours = &mut state["azure-vnet-ipam"];
    ours["records"] = json!({});
    state["IPAM"]["TimeStamp"] = "2026-01-01T00:00:00Z".into();
    fs::write(node.state_path(), state.to_string()).unwrap();
    assert_eq!(
        call_for_second_interface(&node, "ADD").address(),
        "10.224.0.6"
    );
    call_for_second_interface(&node, "DEL").assert_no_output();
    assert_eq!(node.held()["10.224.0.5"], "c1");
    // The first interface still holds it.
    assert_eq!(node.add("c1").address(), "10.224.0.5");
    node.del("c1").assert_no_output();
    assert!(node.held().is_empty());
}

#[test]
fn older_answer_is_not_merged_over_a_newer_one() {
    let (node, wire) = Node::with_wire("older", Reply::Xml(xml([5, 6])));
    node.add("c1").success();
    let gate = Gate::default();
    wire.set(Reply::Gated(
        gate.clone(),
        Box::new(Reply::Xml(xml([5, 6]))),
    ));
    let slow = node.call("ADD", "c2").start();
    wait_until("the request of the slow ADD", || wire.count() == 2);
    // The fetch lock is removed, so the next call does not wait for it.
    fs::remove_file(node.fetch_lock_path()).unwrap();
    wire.set(Reply::Xml(xml([5, 8, 9])));
    node.add("c3").success();
    gate.open();
    assert_ne!(slow.finish().address(), "10.224.0.6", "it left the node");
    let pool = &node.state()["IPAM"]["AddressSpaces"]["local"]["Pools"][SUBNET]["Addresses"];
    let addresses: Vec<_> = pool.as_object().unwrap().keys().collect();
    assert_eq!(addresses, ["10.224.0.5", "10.224.0.8", "10.224.0.9"]);
}

#[test]
fn stamp_in_the_future_does_not_prevent_a_fetch() {
    let (node, wire) = Node::with_wire("future", Reply::Xml(xml([5, 6, 7])));
    node.add("c1").success();
    for key in ["answered", "failed"] {
        let stamps = fs::read(node.fetch_lock_path()).unwrap();
        let mut stamps: Value = serde_json::from_slice(&stamps).unwrap();
        stamps[key] = (u64::MAX / 2).into();
        fs::write(node.fetch_lock_path(), stamps.to_string()).unwrap();
        let before = wire.count();
        node.add("c2").success();
        assert_eq!(wire.count(), before + 1, "{key}");
    }
    // The same for a stamp in the state.
    let mut state = node.state();
    state["azure-vnet-ipam"]["refreshed"] = (u64::MAX / 2).into();
    fs::write(node.state_path(), state.to_string()).unwrap();
    wire.set(Reply::Xml(xml([5, 6, 9])));
    node.del("c2").assert_no_output();
    assert_eq!(node.add("c3").address(), "10.224.0.9");
}

/// A call that sleeps for two seconds at a system call, so that others can act meanwhile.
fn start_slow_call(node: &Node, command: &str, id: &str, at: &str) -> Process {
    let call = node.call(command, id);
    let stdin = node.path("/conf.json");
    fs::write(&stdin, conf("0.3.0", json!({ "subnet": SUBNET }))).unwrap();
    let mut strace = Command::new("strace");
    strace.env_clear().envs(&call.env);
    strace.env("PATH", std::env::var_os("PATH").unwrap());
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", at]);
    strace.arg(binary()).stdin(fs::File::open(stdin).unwrap());
    Process::start(strace.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// Where the call sleeps: after it loaded the state and before the rename, and between the rename and the printing of the
/// result.
const PLACES: [&str; 2] = [
    "inject=fsync:delay_enter=2000000:when=1",
    "inject=fsync:delay_enter=2000000:when=2",
];

/// Runs a slow call and removes the lock folder after it has decided.
fn start_and_remove_lock_folder(node: &Node, command: &str, id: &str, place: &str) -> Process {
    let state = node.state_bytes();
    let new = node.path("/var/run/azure-vnet-ipam.json.new");
    let slow = start_slow_call(node, command, id, place);
    wait_until("the slow call to have decided", || {
        new.exists() || node.state_bytes() != state
    });
    fs::remove_dir_all(node.path("/var/run/azure-vnet")).unwrap();
    slow
}

/// Checks that the call failed because the lock was taken from it, so that the runtime repeats it.
#[track_caller]
fn assert_lost_lock(slow: Process, at: &str) {
    let slow = slow.output();
    assert_eq!(slow.status.code(), Some(1), "{at}: {slow:?}");
    let error: Value = serde_json::from_slice(&slow.stdout).unwrap();
    let msg = error["msg"].as_str().unwrap();
    assert!(
        error["code"] == 11 && msg.contains(LOST_LOCK),
        "{at}: {msg}"
    );
}

const LOST_LOCK: &str = "the lock on the state was lost";

#[test]
#[ignore = "needs strace"]
fn add_fails_when_its_temp_file_is_replaced() {
    let (node, _wire) = Node::with_wire("another", Reply::Xml(xml(5..10)));
    node.add("c0").success();
    let slow = start_slow_call(&node, "ADD", "c1", PLACES[0]);
    let new = node.path("/var/run/azure-vnet-ipam.json.new");
    wait_until("the slow ADD to have decided", || new.exists());
    let beside = node.path("/var/run/half");
    fs::write(&beside, "{").unwrap();
    fs::rename(&beside, &new).unwrap();
    assert_lost_lock(slow, "");
    assert_eq!(node.held().len(), 1);
    node.add("c1").success();
    assert_eq!(node.held().len(), 2);
}

#[test]
#[ignore = "needs strace"]
fn call_whose_lock_folder_is_removed_counts_for_nothing() {
    for place in PLACES {
        let (node, _wire) = Node::with_wire("lockgone", Reply::Xml(xml(5..10)));
        node.add("c0").success();
        let slow = start_and_remove_lock_folder(&node, "ADD", "c1", place);
        node.add("c2").success();
        assert_lost_lock(slow, place);
        let held: Vec<_> = node.held().into_values().collect();
        assert_eq!(held, ["c0", "c2"], "{place}");
        let slow = start_and_remove_lock_folder(&node, "DEL", "c0", place);
        node.add("c1").success();
        assert_lost_lock(slow, place);
        node.del("c0").assert_no_output();
        let mut held: Vec<_> = node.held().into_values().collect();
        held.sort();
        assert_eq!(held, ["c1", "c2"], "{place}");
    }
}

#[test]
fn lock_folder_removed_repeatedly_grants_nothing_twice() {
    let (node, _wire) = Node::with_wire("lockstorm", Reply::Xml(xml(5..255)));
    node.add("c0").success();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let outcomes = thread::scope(|scope| {
        let _over = SetOnDrop(&is_over);
        scope.spawn(|| {
            for _ in 0..40 {
                let _ = fs::remove_dir_all(node.path("/var/run/azure-vnet"));
                thread::sleep(Duration::from_millis(10));
                if is_over.load(std::sync::atomic::Ordering::SeqCst) {
                    return;
                }
            }
        });
        run_all_in_parallel((1..200).map(|n| node.call("ADD", &format!("c{n}"))))
    });
    let repeated = outcomes.into_iter().enumerate().map(|(n, outcome)| {
        if outcome.exit == Some(0) {
            return outcome;
        }
        let (code, msg) = outcome.error();
        assert!(code == 11 && msg.contains(LOST_LOCK), "{msg}");
        node.add(&format!("c{}", n + 1))
    });
    let outcomes: Vec<_> = repeated.collect();
    let held = node.held();
    let mut given = std::collections::BTreeSet::new();
    for (n, outcome) in outcomes.iter().enumerate() {
        let address = outcome.address();
        assert!(given.insert(address.clone()), "{address} is given twice");
        assert_eq!(held[&address], format!("c{}", n + 1), "{address}");
    }
}

/// Starts a pod whose network namespace has the inode that another pod's had. The kernel uses the lowest free number, so the
/// numbers below are occupied first. Returns `None` when another process gets the number.
fn start_in_reused_inode(inode: u64, gone: &str) -> Option<String> {
    const MOST: usize = 30;
    (0..MOST).map(|n| format!("reused{n}-{gone}")).find(|pod| {
        sh(&format!("ip netns add {pod}"));
        inode_of(pod) == inode
    })
}

fn inode_of(pod: &str) -> u64 {
    fs::metadata(format!("/run/netns/{pod}")).unwrap().ino()
}

/// A pod whose inode is reused soon after it ended.
struct Reused {
    address: String,
    /// The pod that ended.
    gone: String,
    /// The state while that pod ran.
    copy: Vec<u8>,
    /// The pod that has its inode now.
    stranger: String,
}

/// Starts and ends pods, with or without a DEL, until an inode is reused.
fn reuse_an_inode(pods: &Pods, with_del: bool) -> Reused {
    for n in 0..100 {
        let gone = format!("gone{n}");
        let address = pods.start(&gone);
        let copy = pods.node.state_bytes();
        let inode = inode_of(&gone);
        if with_del {
            pods.del(&gone);
        }
        pods.remove_without_del(&gone);
        if let Some(stranger) = start_in_reused_inode(inode, &gone) {
            return Reused {
                address,
                gone,
                copy,
                stranger,
            };
        }
        pods.del(&gone);
    }
    panic!("no inode was reused");
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn reused_inode_does_not_confirm_a_dead_owner() {
    if !in_private_namespaces("never_twice::reused_inode_does_not_confirm_a_dead_owner") {
        return;
    }
    let pods = Pods::in_namespaces([5]);
    let reused = reuse_an_inode(&pods, true);
    let (address, two) = (&reused.address, &reused.stranger);
    assert_eq!(pods.add(two).address(), *address);
    sh(&format!(
        "ip -n {two} link set lo up && ip -n {two} addr add {address}/32 dev lo"
    ));
    // An old copy of the state is put back, in which the dead pod holds the address.
    fs::write(pods.node.state_path(), &reused.copy).unwrap();
    pods.node.remove_journal();
    pods.add("three").assert_quarantined();
    assert_eq!(pods.held()[address], "", "held, for nobody knows whom");
    // The late DEL of the dead pod.
    let hint = conf("0.3.0", json!({ "subnet": SUBNET, "ipAddress": address }));
    let del = pods.call("DEL", &reused.gone).stdin(hint);
    del.run().assert_no_output();
    assert!(pods.held().contains_key(address), "another pod has it");
}

#[test]
#[ignore = "needs root, unshare, iproute2 and Linux 5.14"]
fn reused_inode_does_not_keep_a_dead_holder_alive() {
    if !in_private_namespaces("never_twice::reused_inode_does_not_keep_a_dead_holder_alive") {
        return;
    }
    let pods = Pods::in_namespaces([5]);
    let reused = reuse_an_inode(&pods, false);
    let new = pods.add_later(3700, "new");
    assert_eq!(new.address(), reused.address, "{} is gone", reused.gone);
}

/// Kernels before 6.18 report the number of a namespace only to a socket in it.
#[test]
#[ignore = "needs root, unshare, iproute2 and strace"]
fn namespace_identity_is_the_same_on_every_kernel_interface() {
    if !in_private_namespaces(
        "never_twice::namespace_identity_is_the_same_on_every_kernel_interface",
    ) {
        return;
    }
    let pods = Pods::in_namespaces([5]);
    sh("ip netns add one");
    let cookie = |without: &[&str]| {
        let call = pods.call("ADD", "one");
        let stdin = pods.node.path("/conf.json");
        fs::write(&stdin, conf("0.3.0", json!({ "subnet": SUBNET }))).unwrap();
        let mut strace = Command::new("strace");
        strace.env_clear().envs(&call.env);
        strace.env("PATH", std::env::var_os("PATH").unwrap());
        strace.args(["-f", "-qq", "-o", "/dev/null"]).args(without);
        strace.arg(binary()).stdin(fs::File::open(stdin).unwrap());
        let add = Process::start(strace.stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert!(add.output().status.success(), "{without:?}");
        let ours = pods.node.state()["azure-vnet-ipam"]["records"]["local"][SUBNET].clone();
        pods.del("one");
        ours["10.224.0.5"]["netns"]["cookie"].as_u64()
    };
    let no_ioctl = ["-e", "inject=ioctl:error=ENOTTY"];
    let neither = [
        no_ioctl[0],
        no_ioctl[1],
        "-e",
        "inject=getsockopt:error=ENOPROTOOPT",
    ];
    let by_ioctl = cookie(&[]);
    let by_socket = cookie(&no_ioctl);
    assert!(by_socket.is_some(), "this needs Linux 5.14 or later");
    assert!(by_ioctl.is_none() || by_ioctl == by_socket);
    assert_eq!(cookie(&neither), None);
}
