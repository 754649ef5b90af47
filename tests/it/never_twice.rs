//! Ways to allocate an address twice, or to free the address of a live pod. Each was possible once, and was found by
//! attacking the plugin.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::harness::wait::wait_until;
use crate::harness::{Gate, Node, Reply, Running, SUBNET, WireServer, sh, sh_with, xml};
use crate::namespaces::{Pods, has_namespace_cookies};
use crate::privileged::{in_private_namespaces, only_in};

/// A node on which `c1` holds 10.224.0.5. Its network namespace and libcni's cache show the address.
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
    node.remove_backup();
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
fn special_file_as_namespace_path_does_not_block() {
    let (node, _wire) = Node::with_wire("fifo", Reply::Xml(xml([5])));
    node.put("/var/run/netns/x", "");
    sh_with("mkfifo \"$1\"", &[&node.path("/var/run/netns/fifo")]);
    for path in ["/var/run/netns/fifo", "/var/run/netns/x", "/var/run/netns"] {
        let add = node.call("ADD", "c1").env("CNI_NETNS", path).run();
        assert_eq!(add.address(), "10.224.0.5", "{path}");
    }
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
    // Remove the fetch lock, so that the next call does not wait for it.
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
fn calls_do_not_wait_for_moments_in_the_future() {
    const NEVER: u64 = u64::MAX - 1;
    let (node, wire) = node_with_a_pod("future");
    let attempts = fs::read(node.fetch_lock_path()).unwrap();
    let mut attempts: Value = serde_json::from_slice(&attempts).unwrap();
    attempts["failed"] = NEVER.into();
    fs::write(node.fetch_lock_path(), attempts.to_string()).unwrap();
    let before = wire.count();
    node.add("c2").success();
    assert_eq!(wire.count(), before + 1);
    let change = |change: fn(&mut Value)| {
        let mut state = node.state();
        change(&mut state["azure-vnet-ipam"]);
        fs::write(node.state_path(), state.to_string()).unwrap();
    };
    change(|ours| ours["refreshed"] = NEVER.into());
    wire.set(Reply::Xml(xml([5, 6, 15])));
    node.del("c2").assert_no_output();
    assert_eq!(node.add("c3").address(), "10.224.0.15");
    change(|ours| ours["quarantineUntil"] = NEVER.into());
    assert_eq!(node.add("c4").address(), "10.224.0.6");
    change(|ours| ours["records"]["local"][SUBNET]["10.224.0.5"]["since"] = NEVER.into());
    node.add("c5").error();
    let since = &node.state()["azure-vnet-ipam"]["records"]["local"][SUBNET]["10.224.0.5"]["since"];
    assert!(since.as_u64().unwrap() < NEVER);
}

/// The places where a call sleeps: between loading the state and the rename, and between the rename and printing the
/// result.
const PLACES: [&str; 2] = [
    "inject=fsync:delay_enter=2000000:when=1",
    "inject=fsync:delay_enter=2000000:when=2",
];

/// Starts a call that sleeps at a place. Returns when the call is about to sleep.
fn start_slow_call(node: &Node, command: &str, id: &str, place: &str) -> Running {
    let state = node.state_bytes();
    let slow = node.call(command, id).strace(&[place]).start();
    wait_until("the slow call to sleep", || {
        if place == PLACES[0] {
            new_state(node).exists()
        } else {
            node.state_bytes() != state
        }
    });
    slow
}

fn new_state(node: &Node) -> PathBuf {
    node.path("/var/run/azure-vnet-ipam.json.new")
}

/// Checks that the call failed because it lost the lock. The runtime then repeats it.
#[track_caller]
fn assert_lost_lock(slow: Running, at: &str) {
    let (code, msg) = slow.finish().error();
    let is_lost = code == 11 && msg.contains("the lock on the state was lost");
    assert!(is_lost, "{at}: {msg}");
}

#[test]
#[ignore = "needs strace"]
fn add_fails_when_its_temp_file_is_replaced() {
    let (node, _wire) = Node::with_wire("another", Reply::Xml(xml(5..10)));
    node.add("c0").success();
    let slow = start_slow_call(&node, "ADD", "c1", PLACES[0]);
    let beside = node.path("/var/run/half");
    fs::write(&beside, "{").unwrap();
    fs::rename(&beside, new_state(&node)).unwrap();
    assert_lost_lock(slow, "");
    assert_eq!(node.held().len(), 1);
    node.add("c1").success();
    assert_eq!(node.held().len(), 2);
}

#[test]
#[ignore = "needs strace"]
fn call_fails_when_its_lock_folder_is_removed() {
    for place in PLACES {
        let (node, _wire) = Node::with_wire("lockgone", Reply::Xml(xml(5..10)));
        let lock_folder = node.path("/var/run/azure-vnet");
        node.add("c0").success();
        for (command, id, other, left) in [
            ("ADD", "c1", "c2", ["c0", "c2"]),
            ("DEL", "c0", "c1", ["c1", "c2"]),
        ] {
            let slow = start_slow_call(&node, command, id, place);
            fs::remove_dir_all(&lock_folder).unwrap();
            node.add(other).success();
            assert_lost_lock(slow, place);
            if command == "DEL" {
                node.del(id).assert_no_output();
            }
            let held: BTreeSet<_> = node.held().into_values().collect();
            assert_eq!(held, left.map(str::to_owned).into(), "{command} {place}");
        }
    }
}

/// Starts a pod whose network namespace has the inode of a former pod's. The kernel uses the lowest free number, so
/// the lower numbers are occupied first. Returns `None` when another process gets the number.
pub fn start_in_reused_inode(inode: u64, gone: &str) -> Option<String> {
    const MOST: usize = 30;
    (0..MOST).map(|n| format!("reused{n}-{gone}")).find(|pod| {
        sh(&format!("ip netns add {pod}"));
        inode_of(pod) == inode
    })
}

pub fn inode_of(pod: &str) -> u64 {
    fs::metadata(format!("/run/netns/{pod}")).unwrap().ino()
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn reused_inode_does_not_keep_a_dead_holder_alive() {
    only_in!(in_private_namespaces);
    let pods = Pods::in_namespaces([5]);
    for gone in (0..100).map(|n| format!("gone{n}")) {
        let address = pods.start(&gone);
        let inode = inode_of(&gone);
        pods.remove_without_del(&gone);
        if let Some(pod) = start_in_reused_inode(inode, &gone) {
            if !has_namespace_cookies() {
                pods.add_later(3700, "new").error();
                sh(&format!("ip netns del {pod}"));
            }
            let new = pods.add_later(3700, "new");
            assert_eq!(new.address(), address, "{gone} is gone");
            return;
        }
        pods.del(&gone);
    }
    panic!("no inode was reused");
}

/// Kernels before 6.18 report the cookie of a namespace only to a socket in it.
#[test]
#[ignore = "needs root, unshare, iproute2 and strace"]
fn namespace_identity_is_the_same_on_every_kernel_interface() {
    only_in!(in_private_namespaces);
    let pods = Pods::in_namespaces([5]);
    sh("ip netns add one");
    let cookie = |without: &[&str]| {
        pods.call("ADD", "one").strace(without).run().success();
        let ours = pods.node.state()["azure-vnet-ipam"]["records"]["local"][SUBNET].clone();
        pods.del("one");
        ours["10.224.0.5"]["netns"]["cookie"].as_u64()
    };
    let no_ioctl = "inject=ioctl:error=ENOTTY";
    let neither = [no_ioctl, "inject=getsockopt:error=ENOPROTOOPT"];
    let by_ioctl = cookie(&[]);
    let by_socket = cookie(&[no_ioctl]);
    assert_eq!(by_socket.is_some(), has_namespace_cookies());
    assert_eq!(by_ioctl, by_socket);
    assert_eq!(cookie(&neither), None);
}
