//! Full disks, read-only folders and real interfaces. Each test has private mount and network namespaces.

use std::fs::{self, File};
use std::io::{self, Seek};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::json;

use crate::harness::wait::Process;
use crate::harness::{MAC, Node, Reply, SUBNET, conf, is_long, package, sh, sh_with, skip, xml};

/// The time limit of a test that runs again in namespaces.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// The time limit with `LONG=1`: the faults on a kubelet's node take longer.
const LONG_LIMIT: Duration = Duration::from_secs(60 * 60);

/// This variable is set in the second run.
const INNER: &str = "AZURE_VNET_IPAM_PRIVATE";

/// Runs a test again, alone, through a program that executes its arguments as a command. Returns true in the second
/// run.
#[track_caller]
pub fn run_again(test: &str, elsewhere: &mut Command) -> bool {
    if std::env::var_os(INNER).is_some() {
        return true;
    }
    elsewhere
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--include-ignored", "--nocapture"])
        .env(INNER, "1");
    // A pipe would stay open while any process that the test left behind is running.
    let output = Captured(memfd_create(test, MemfdFlags::CLOEXEC).unwrap().into());
    if !std::env::args().any(|argument| argument == "--nocapture") {
        let stream = || output.0.try_clone().unwrap();
        elsewhere.stdout(stream()).stderr(stream());
    }
    let limit = if is_long() { LONG_LIMIT } else { LIMIT };
    let status = Process::start(elsewhere).status_within(limit);
    assert!(status.success(), "{test} failed in its namespaces");
    false
}

/// The output of a second run. It becomes the output of the test, so the runner prints it at the end, and only if the
/// test fails.
struct Captured(File);

impl Drop for Captured {
    fn drop(&mut self) {
        let _ = self.0.rewind();
        let text = io::read_to_string(&self.0).unwrap_or_default();
        for reason in text.lines().filter_map(|l| l.strip_prefix("skipped: ")) {
            skip(reason);
        }
        print!("{text}");
    }
}

/// Runs a test again in private namespaces that hide the machine's other processes. Returns true in the second run.
#[track_caller]
pub fn in_private_namespaces(test: &str) -> bool {
    run_again(test, &mut Command::new(package().join("tests/private")))
}

/// Runs a test again in private namespaces in which the machine's processes are visible. The test must use addresses
/// that no other process has.
#[track_caller]
pub fn in_private_namespaces_with_all_processes(test: &str) -> bool {
    let mut private = Command::new(package().join("tests/private"));
    run_again(test, private.arg("--all-processes"))
}

/// Runs a test again in private namespaces, on a node of a virtual network. See `tests/uplink`.
#[track_caller]
pub fn in_a_virtual_network(test: &str, metric: &str) -> bool {
    let mut private = Command::new(package().join("tests/private"));
    private.arg(package().join("tests/uplink"));
    run_again(test, private.env("METRIC", metric))
}

/// Returns from the test unless this is its second run, in namespaces that a function of this module creates.
macro_rules! only_in {
    ($namespaces:path) => {
        fn here() {}
        let test = std::any::type_name_of_val(&here);
        let test = test.strip_prefix(concat!(env!("CARGO_CRATE_NAME"), "::"));
        if !$namespaces(test.unwrap().strip_suffix("::here").unwrap()) {
            return;
        }
    };
}
pub(crate) use only_in;

fn mount(node: &Node, folder: &str, options: &str) {
    let path = node.path(folder);
    fs::create_dir_all(&path).unwrap();
    sh_with(
        &format!("mount -t tmpfs -o {options} none \"$1\""),
        &[&path],
    );
}

#[test]
#[ignore = "needs root and unshare"]
fn full_disk_changes_nothing() {
    only_in!(in_private_namespaces);
    let (node, _wire) = Node::with_wire("full", Reply::Xml(xml(5..30)));
    mount(&node, "/var/run", "size=64k");
    // The lock is on another disk, so that only the state fails.
    mount(&node, "/var/run/azure-vnet", "size=64k");
    node.add("c1").success();
    let before = node.state_bytes();
    let _ = fs::write(node.path("/var/run/filler"), vec![0; 1 << 20]);
    let (code, msg) = node.add("c2").error();
    assert_eq!(code, 5);
    assert!(
        msg.starts_with("Failed to allocate address: ") && msg.contains("no space left"),
        "{msg}"
    );
    let (code, msg) = node.del("c1").error();
    assert_eq!(code, 5);
    assert!(msg.starts_with("Failed to release address: "), "{msg}");
    node.del("c2").assert_no_output();
    assert_eq!(node.state_bytes(), before);
    assert_eq!(node.leftover_files(), ["filler"]);
    fs::remove_file(node.path("/var/run/filler")).unwrap();
    node.del("c1").assert_no_output();
    node.add("c2").success();
    sh_with("umount \"$1\"/azure-vnet \"$1\"", &[&node.path("/var/run")]);
}

#[test]
#[ignore = "needs root and unshare"]
fn full_disk_does_not_block_the_lock() {
    only_in!(in_private_namespaces);
    let (node, _wire) = Node::with_wire("fulllock", Reply::Xml(xml(5..30)));
    mount(&node, "/var/run/azure-vnet", "size=16k");
    node.add("c1").success();
    let _ = fs::write(node.path("/var/run/azure-vnet/filler"), vec![0; 1 << 20]);
    node.add("c2").success();
    node.del("c1").assert_no_output();
    assert_eq!(node.held().len(), 1);
    sh_with("umount \"$1\"", &[&node.path("/var/run/azure-vnet")]);
}

#[test]
#[ignore = "needs root and unshare"]
fn read_only_run_fails_add_but_not_idle_del() {
    only_in!(in_private_namespaces);
    for first in [true, false] {
        let (node, _wire) = Node::with_wire("readonly", Reply::Xml(xml(5..30)));
        mount(&node, "/var/run", "size=1m");
        if first {
            node.add("c1").success();
        }
        let run = node.path("/var/run");
        sh_with("mount -o remount,ro \"$1\"", &[&run]);
        let (code, msg) = node.add("c2").error();
        assert!(
            code == 5 && msg.contains("read-only file system"),
            "{code} {msg}"
        );
        node.del("c2").assert_no_output();
        if first {
            assert_eq!(
                node.del("c1").error().0,
                5,
                "a release that cannot be kept is none"
            );
            assert_eq!(node.held().len(), 1);
        }
        sh_with("mount -o remount,rw \"$1\"", &[&run]);
        node.del("c1").assert_no_output();
        sh_with("umount \"$1\"", &[&run]);
    }
}

/// Creates eth0 and eth1 with the MAC addresses that the test wire servers list.
fn make_links() {
    sh(&format!(
        "ip link add eth0 address {} type veth peer name peer0",
        format_ipv6(MAC)
    ));
    sh("ip link add eth1 address 7c:1e:52:f9:f3:c5 type veth peer name peer1");
}

/// The interface that the plugin matches to the first interface of the answer.
fn matched_interface() -> String {
    let (node, _wire) = Node::with_wire("links", Reply::Xml(xml([5])));
    // Without this folder below the root, the plugin queries the kernel.
    fs::remove_dir_all(node.path("/sys")).unwrap();
    let add = node.call("ADD", "c1").stdin(conf("0.3.0", json!({})));
    add.run().success();
    let pool = &node.state()["IPAM"]["AddressSpaces"]["local"]["Pools"][SUBNET];
    pool["IfName"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn kernel_interfaces_are_matched() {
    only_in!(in_private_namespaces);
    make_links();
    assert_eq!(matched_interface(), "eth0");
    // A bridge copies the MAC address of its port. Azure lists the port.
    sh(
        "ip link add azure0 type bridge && ip link set azure0 address 7c:1e:52:f9:f3:c4 && ip link set eth0 master azure0",
    );
    assert_eq!(matched_interface(), "eth0");
    sh("ip link del azure0");
    for n in 0..100 {
        sh(&format!("ip link add many{n} type veth peer name ynam{n}"));
    }
    assert_eq!(matched_interface(), "eth0", "among two hundred others");
}

/// Accelerated networking: a virtual function with the same MAC address is enslaved to the interface.
#[test]
#[ignore = "needs root, unshare, iproute2 and a kernel with bonding"]
fn enslaved_interface_is_not_matched() {
    only_in!(in_private_namespaces);
    make_links();
    sh(
        "ip link set eth0 down && ip link add bond0 type bond && ip link set bond0 address 7c:1e:52:f9:f3:c4",
    );
    sh("ip link set eth0 master bond0");
    assert_eq!(matched_interface(), "bond0");
}

fn format_ipv6(mac: &str) -> String {
    mac.as_bytes()
        .chunks(2)
        .map(|b| std::str::from_utf8(b).unwrap())
        .collect::<Vec<_>>()
        .join(":")
}
