//! Ways to grant an address twice, or to free the address of a live pod. Each was possible once and was found by attacking
//! the plugin.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::contention::run_all_in_parallel;
use crate::harness::wait::{Process, SetOnDrop, output, wait_until};
use crate::harness::{
    Gate, MAC, Node, Outcome, Reply, SUBNET, WireServer, binary, conf, sh, sh_with, xml,
};
use crate::namespaces::Pods;
use crate::privileged::in_private_namespaces;
use crate::verbs::call_without_container;

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
fn loss_is_remembered_while_the_source_is_useless() {
    let other_mac = xml(5..10).replace(MAC, "001122334455");
    let useless = [
        Reply::Xml(other_mac),
        Reply::Xml("<Interfaces></Interfaces>".to_owned()),
        Reply::Xml(xml([])),
    ];
    for (n, answer) in useless.into_iter().enumerate() {
        for damage in [None, Some("{ half")] {
            let what = format!("answer {n}, damage {damage:?}");
            let (node, wire) = node_with_a_pod("useless");
            match damage {
                None => fs::remove_file(node.state_path()).unwrap(),
                Some(text) => fs::write(node.state_path(), text).unwrap(),
            }
            node.remove_journal();
            wire.set(answer.clone());
            node.add("c2").error();
            // Also when the notes beside the state are removed meanwhile.
            for mark in ["rebuild", "used"] {
                let path = format!("/var/run/azure-vnet/azure-vnet-ipam.{mark}");
                let _ = fs::remove_file(node.path(&path));
            }
            wire.set(Reply::Xml(xml(5..10)));
            let add = node.add("c2");
            assert_eq!(add.exit, Some(1), "{what}: {add:?}");
            add.assert_quarantined();
            assert_eq!(node.held()["10.224.0.5"], "c1", "{what}");
            node.advance_clock(31);
            assert_eq!(node.add("c2").address(), "10.224.0.6", "{what}");
        }
    }
}

#[test]
fn quarantine_starts_when_loss_is_seen_with_source_down() {
    let (node, mut wire) = node_with_a_pod("sourcedown");
    fs::remove_file(node.state_path()).unwrap();
    node.remove_journal();
    wire.stop();
    node.add("c2").error();
    node.advance_clock(20);
    node.add("c2").error();
    node.advance_clock(11);
    wire.start();
    assert_eq!(node.add("c2").address(), "10.224.0.6", "31 s later");
    assert_eq!(node.held()["10.224.0.5"], "c1");
}

#[test]
fn pending_rebuild_waits_for_source_and_is_seen_by_0_1_0() {
    let (node, mut wire) = node_with_a_pod("slowsource");
    fs::remove_file(node.state_path()).unwrap();
    node.remove_journal();
    wire.stop();
    node.add("c2").error();
    // Version 0.1.0 does not know pending rebuilds, but compares this value with the note of the last grant.
    assert_eq!(node.state()["azure-vnet-ipam"]["generation"], 0);
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

#[test]
fn del_does_not_end_a_quarantine() {
    let (node, mut wire) = node_with_a_pod("delmeanwhile");
    fs::remove_file(node.state_path()).unwrap();
    node.remove_journal();
    wire.stop();
    node.add("c2").error();
    node.del("c7").assert_no_output();
    wire.start();
    node.add("c2").assert_quarantined();
    assert_eq!(node.held()["10.224.0.5"], "c1");
}

#[test]
fn lost_state_and_lock_folder_are_detected() {
    let wipe = |node: &Node| {
        fs::remove_file(node.state_path()).unwrap();
        fs::remove_dir_all(node.path("/var/run/azure-vnet")).unwrap();
    };
    // The cache shows it, also on a node where only the original granted addresses.
    let (node, _wire) = node_with_a_pod("wiped");
    wipe(&node);
    let _ = fs::remove_file(node.path("/var/run/.azure-vnet-ipam.boot"));
    node.add("c2").assert_quarantined();
    assert_eq!(node.held()["10.224.0.5"], "c1");
    // Only the note shows that addresses were granted in this boot. They may not be configured yet.
    let (node, _wire) = Node::with_wire("wiped", Reply::Xml(xml(5..10)));
    node.add("c1").success();
    wipe(&node);
    node.add("c2").assert_quarantined();
    node.advance_clock(31);
    node.add("c2").success();
    // The same when version 0.1.0 granted the first address.
    let (node, _wire) = Node::with_wire("wiped", Reply::Xml(xml(5..10)));
    node.add("c1").success();
    fs::remove_file(node.path("/var/run/.azure-vnet-ipam.boot")).unwrap();
    node.add("c2").success();
    wipe(&node);
    node.add("c3").assert_quarantined();
    // A note of another boot does not count.
    let (node, _wire) = Node::with_wire("wiped", Reply::Xml(xml(5..10)));
    node.add("c1").success();
    wipe(&node);
    let boot_id = "8f3c5c52-0000-4000-8000-000000000002\n";
    node.put("/proc/sys/kernel/random/boot_id", boot_id);
    node.add("c2").success();
}

/// The state without our key, as the original writes it.
fn remove_our_key(node: &Node) {
    let mut state = node.state();
    state.as_object_mut().unwrap().remove("azure-vnet-ipam");
    fs::write(node.state_path(), state.to_string()).unwrap();
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
    remove_our_key(&node);
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

#[test]
#[ignore = "needs strace"]
fn add_decides_again_when_its_temp_file_is_replaced() {
    let (node, _wire) = Node::with_wire("another", Reply::Xml(xml(5..10)));
    node.add("c0").success();
    let slow = start_slow_call(&node, "ADD", "c1", PLACES[0]);
    let new = node.path("/var/run/azure-vnet-ipam.json.new");
    wait_until("the slow ADD to have decided", || new.exists());
    let beside = node.path("/var/run/half");
    fs::write(&beside, "{").unwrap();
    fs::rename(&beside, &new).unwrap();
    let slow = slow.output();
    assert!(slow.status.success(), "{slow:?}");
    let held: Vec<_> = node.held().into_values().collect();
    assert_eq!(held, ["c0", "c1"]);
}

#[test]
#[ignore = "needs strace"]
fn lock_folder_removed_during_add_grants_nothing_twice() {
    for place in PLACES {
        let (node, _wire) = Node::with_wire("lockgone", Reply::Xml(xml(5..10)));
        node.add("c0").success();
        let slow = start_and_remove_lock_folder(&node, "ADD", "c1", place);
        let other = node.add("c2").address();
        let slow = slow.output();
        assert!(slow.status.success(), "{place}: {slow:?}");
        let result: Value = serde_json::from_slice(&slow.stdout).unwrap();
        let address = crate::harness::address(&result).unwrap();
        assert_ne!(address, other, "{place}");
        let held = node.held();
        assert_eq!(
            (held[&address].as_str(), held[&other].as_str()),
            ("c1", "c2"),
            "{place}"
        );
        assert_eq!(held.len(), 3, "{place}: {held:?}");
    }
}

#[test]
#[ignore = "needs strace"]
fn lock_folder_removed_during_del_keeps_the_release() {
    for place in PLACES {
        let (node, _wire) = Node::with_wire("lockgone", Reply::Xml(xml(5..10)));
        node.add("c0").success();
        node.add("c1").success();
        let slow = start_and_remove_lock_folder(&node, "DEL", "c1", place);
        node.add("c2").success();
        assert!(slow.output().status.success(), "{place}");
        let held: Vec<_> = node.held().into_values().collect();
        assert_eq!(held, ["c0", "c2"], "{place}");
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
            // Fewer times than a call retries, so that all are served.
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
    let held = node.held();
    let mut given = std::collections::BTreeSet::new();
    for (n, outcome) in outcomes.iter().enumerate() {
        let address = outcome.address();
        assert!(given.insert(address.clone()), "{address} is given twice");
        assert_eq!(held[&address], format!("c{}", n + 1), "{address}");
    }
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn unreadable_boot_id_is_not_a_reboot() {
    if !in_private_namespaces("never_twice::unreadable_boot_id_is_not_a_reboot") {
        return;
    }
    let pods = Pods::in_namespaces([5]);
    let boot_id = pods.node.path("/proc/sys/kernel/random/boot_id");
    let mask = || sh_with("mount --bind /dev/null \"$1\"", &[&boot_id]);
    let unmask = || sh_with("umount \"$1\"", &[&boot_id]);
    // The ADD is in progress; its address is not configured yet.
    let one = pods.add("one").address();
    mask();
    assert_eq!(pods.add("two").error().0, 100);
    assert_eq!(pods.held()[&one], "one");
    // States of callers with and without boot ID count as the same boot.
    pods.del("one");
    pods.call("ADD", "three")
        .stdin(conf("0.3.0", json!({ "subnet": SUBNET, "rest": 0 })))
        .run()
        .success();
    unmask();
    assert_eq!(pods.add("four").error().0, 100);
    assert_eq!(pods.held()[&one], "three");
    // A state deleted meanwhile is still detected as lost.
    fs::remove_file(pods.node.state_path()).unwrap();
    mask();
    // Without a boot ID the journal is not trusted.
    pods.add("five").assert_quarantined();
    unmask();
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn gc_keeps_address_claimed_by_a_live_entry_of_another_container() {
    if !in_private_namespaces(
        "never_twice::gc_keeps_address_claimed_by_a_live_entry_of_another_container",
    ) {
        return;
    }
    let pods = Pods::in_namespaces(5..10);
    let [one, two, three] = ["one", "two", "three"].map(|pod| pods.add(pod).address());
    output(Command::new("ip").args(["netns", "add", "other"]));
    // The cache names another container for the first address, azure-vnet's state for the second, no list for the third.
    pods.write_cache_entry("other", &one);
    let vnet = json!({"Network": {"ExternalInterfaces": {"eth0": {"Networks": {"azure": {"Endpoints": {"other-eth0": {
        "Id": "other-eth0", "ContainerID": "other", "IPAddresses": [{ "IP": two, "Mask": "//8AAA==" }],
        "HostIfName": "azv1", "NetworkNameSpace": "/var/run/netns/other",
    }}}}}}}});
    pods.node.put("/var/run/azure-vnet.json", vnet.to_string());
    let gc = |pods: &Pods| {
        let nothing = json!({ "cni.dev/valid-attachments": [] });
        pods.at(120, || {
            call_without_container(&pods.node, "GC", nothing).run()
        })
    };
    let kept = gc(&pods);
    assert_eq!(
        kept.error().1,
        "2 stale addresses are kept, 1 are freed",
        "{kept:?}"
    );
    let held: Vec<_> = pods.held().into_keys().collect();
    assert_eq!(held, [one, two], "not {three}");
    // Without that container they are free.
    output(Command::new("ip").args(["netns", "del", "other"]));
    gc(&pods).assert_no_output();
    assert!(pods.held().is_empty());
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
