//! Network namespaces that neither a mount nor the main thread of a process refers to. Their addresses are in use all the same,
//! even without a link on the host, as with macvlan.

use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::harness::wait::{Process, SetOnDrop, output, wait_until};
use crate::harness::{Reply, sh, sh_with, xml};
use crate::namespaces::{Pods, make_process_visible};
use crate::privileged::in_private_namespaces;

const HOUR: u64 = 3600 + 1;

/// A node with one address, held by a pod in a network namespace without a link to the host.
fn node_with_a_pod() -> Pods {
    let pods = Pods::in_namespaces([5]);
    sh("ip netns add one");
    let address = pods.add("one").address();
    sh(&format!(
        "ip -n one link set lo up && ip -n one addr add {address}/32 dev lo"
    ));
    // The ADD named another path, so only the address shows that the pod lives.
    let mut state = pods.node.state();
    let ours = &mut state["azure-vnet-ipam"]["records"]["local"][crate::harness::SUBNET];
    ours[&*address].as_object_mut().unwrap().remove("netns");
    fs::write(pods.node.state_path(), state.to_string()).unwrap();
    pods
}

/// Checks that the pod keeps its address while its namespace exists, and that the scan counts as complete.
#[track_caller]
fn assert_seen(pods: &Pods) {
    pods.add_later(HOUR, "new").error();
    assert_eq!(pods.held()["10.224.0.5"], "one");
    let log = pods.node.log();
    assert!(!log.contains("not complete"), "{log}");
}

#[track_caller]
fn assert_allocated_again(pods: &Pods) {
    wait_until("the end of the namespace", || {
        pods.add_later(HOUR, "new").exit == Some(0)
    });
}

fn hide_processes(id: u32) {
    sh(&format!("rm /proc/{id}"));
}

fn enter(namespace: &str) {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn address_in_another_threads_namespace_is_found() {
    if !in_private_namespaces("hidden::address_in_another_threads_namespace_is_found") {
        return;
    }
    let pods = node_with_a_pod();
    thread::scope(|scope| {
        let (inside, is_inside) = mpsc::channel();
        let (leave, left) = mpsc::channel::<()>();
        scope.spawn(move || {
            enter("one");
            inside.send(()).unwrap();
            // Runs until the other end is dropped.
            let _ = left.recv();
        });
        is_inside.recv().unwrap();
        sh("ip netns del one");
        make_process_visible(std::process::id());
        assert_seen(&pods);
        drop(leave);
    });
    assert_allocated_again(&pods);
}

/// The holders that the second look is about are all shown, and the pod that only the first one was about is not.
#[test]
#[ignore = "needs root, unshare and iproute2"]
fn address_is_found_by_the_second_look_of_a_call() {
    if !in_private_namespaces("hidden::address_is_found_by_the_second_look_of_a_call") {
        return;
    }
    let pods = Pods::in_namespaces([5]);
    pods.start("one");
    sh("ip netns add other && ip -n other link set lo up");
    sh("ip -n other addr add 10.224.0.6/32 dev lo");
    let _kept = File::open("/run/netns/other").unwrap();
    sh("ip netns del other");
    make_process_visible(std::process::id());
    // An address that is new in the list makes the call look at the node, and an empty pool makes it look again.
    pods.wire.set(Reply::Xml(xml(5..7)));
    pods.add_later(HOUR, "new").error();
    assert_eq!(pods.held()["10.224.0.6"], "");
}

#[test]
#[ignore = "needs root, unshare, iproute2 and python3"]
fn address_is_found_after_the_main_thread_ended() {
    if !in_private_namespaces("hidden::address_is_found_after_the_main_thread_ended") {
        return;
    }
    let pods = node_with_a_pod();
    let mut process = Command::new("ip");
    let code = "import ctypes, threading, time\n\
                threading.Thread(target=time.sleep, args=(1000,)).start()\n\
                ctypes.CDLL(None).pthread_exit(None)";
    process.args(["netns", "exec", "one", "python3", "-c", code]);
    let process = Process::start(&mut process);
    let status = format!("/proc/real/{}/status", process.id());
    wait_until("the end of the first thread", || {
        fs::read_to_string(&status).is_ok_and(|text| text.contains("State:\tZ"))
    });
    sh("ip netns del one");
    make_process_visible(process.id());
    assert_seen(&pods);
    process.kill();
    assert_allocated_again(&pods);
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn address_in_namespace_held_by_descriptor_is_found() {
    if !in_private_namespaces("hidden::address_in_namespace_held_by_descriptor_is_found") {
        return;
    }
    let pods = node_with_a_pod();
    let kept = File::open("/run/netns/one").unwrap();
    sh("ip netns del one");
    make_process_visible(std::process::id());
    assert_seen(&pods);
    drop(kept);
    assert_allocated_again(&pods);
}

#[test]
#[ignore = "needs root, unshare, iproute2 and Linux 5.14"]
fn address_in_namespace_held_by_socket_is_found() {
    if !in_private_namespaces("hidden::address_in_namespace_held_by_socket_is_found") {
        return;
    }
    let pods = node_with_a_pod();
    let inside = thread::spawn(|| {
        enter("one");
        UdpSocket::bind("127.0.0.1:0").unwrap()
    });
    let kept = inside.join().unwrap();
    sh("ip netns del one");
    make_process_visible(std::process::id());
    assert_seen(&pods);
    drop(kept);
    assert_allocated_again(&pods);
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn address_in_namespace_mounted_elsewhere_is_found() {
    if !in_private_namespaces("hidden::address_in_namespace_mounted_elsewhere_is_found") {
        return;
    }
    let pods = node_with_a_pod();
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["-m", "--propagation", "private", "sleep", "1000"]);
    let elsewhere = Process::start(&mut elsewhere);
    let id = elsewhere.id();
    let own = fs::read_link("/proc/self/ns/mnt").unwrap();
    let started = format!("/proc/real/{id}/comm");
    wait_until("a process in another mount namespace", || {
        let is_elsewhere =
            fs::read_link(format!("/proc/real/{id}/ns/mnt")).is_ok_and(|ns| ns != own);
        is_elsewhere && fs::read_to_string(&started).is_ok_and(|name| name == "sleep\n")
    });
    // Keep the file: without it the mount would propagate.
    for _ in 0..2 {
        output(Command::new("umount").arg("/run/netns/one"));
    }
    make_process_visible(id);
    assert_seen(&pods);
    elsewhere.kill();
    hide_processes(id);
    assert_allocated_again(&pods);
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn namespace_below_another_mount_is_reported_as_unseen() {
    if !in_private_namespaces("hidden::namespace_below_another_mount_is_reported_as_unseen") {
        return;
    }
    let pods = node_with_a_pod();
    sh("ip netns add other && mount --bind /run/netns/other /run/netns/one");
    let (code, _) = pods.add_later(HOUR, "new").error();
    assert_eq!(code, 100);
    let log = pods.node.log();
    let reason = "another mount covers the network namespace at /run/netns/one";
    assert!(log.contains(reason), "{log}");
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn namespace_known_to_the_host_by_number_is_reported_as_unseen() {
    if !in_private_namespaces("hidden::namespace_known_to_the_host_by_number_is_reported_as_unseen")
    {
        return;
    }
    let pods = node_with_a_pod();
    // The link was moved there; nothing remains on the host.
    sh("ip link add macvlan0 link eth0 type macvlan && ip link set macvlan0 netns one");
    let kept = File::open("/run/netns/one").unwrap();
    sh("ip netns del one");
    // The process that holds the namespace is not visible.
    pods.add_later(HOUR, "new").error();
    let log = pods.node.log();
    assert!(log.contains("that the host knows as number"), "{log}");
    drop(kept);
    assert_allocated_again(&pods);
}

/// Namespaces come and go while the node is looked at.
#[test]
#[ignore = "needs root, unshare and iproute2"]
fn busy_node_still_reclaims_dead_addresses() {
    if !in_private_namespaces("hidden::busy_node_still_reclaims_dead_addresses") {
        return;
    }
    let pods = Pods::in_namespaces([5]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = SetOnDrop(&is_over);
        for n in 0..2 {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut names = (0..).map(|i| format!("b{n}-{i}"));
                while !is_over.load(Ordering::SeqCst) {
                    let name = names.next().unwrap();
                    sh(&format!(
                        "ip netns add {name} && ip link add {name} type veth peer name eth0 netns {name} && ip netns del {name}"
                    ));
                }
            });
        }
        for n in 0..30 {
            let pod = format!("dead{n}");
            pods.add(&pod).success();
            // A single scan may meet a namespace that is being destroyed; repeated scans do not all do so.
            let mut looks = 0;
            wait_until("a look that is complete", || {
                looks += 1;
                pods.add_later(HOUR, "new").exit == Some(0)
            });
            assert!(looks < 10, "{n}: {looks} looks");
            pods.del("new");
        }
    });
}

#[test]
#[ignore = "needs root, unshare, iproute2 and python3"]
fn scan_of_many_threads_and_descriptors_is_fast() {
    if !in_private_namespaces("hidden::scan_of_many_threads_and_descriptors_is_fast") {
        return;
    }
    let pods = Pods::in_namespaces([5]);
    let lines: String = (0..500).map(|n| format!("netns add many{n}\n")).collect();
    fs::write(pods.node.path("/batch"), lines).unwrap();
    sh_with("ip -batch \"$1\"", &[&pods.node.path("/batch")]);
    let code = "import socket, sys, threading, time\n\
                kept = [socket.socket() for _ in range(20)]\n\
                threads = [threading.Thread(target=time.sleep, args=(1000,)) for _ in range(49)]\n\
                [thread.start() for thread in threads]\n\
                time.sleep(1000)";
    let start = |_| {
        let mut process = Command::new("python3");
        Process::start(process.args(["-c", code]))
    };
    let processes: Vec<Process> = (0..100).map(start).collect();
    for process in &processes {
        let tasks = format!("/proc/real/{}/task", process.id());
        wait_until("the threads of a process", || {
            fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() == 50)
        });
        make_process_visible(process.id());
    }
    pods.add("dead").success();
    assert_eq!(pods.add_later(HOUR, "new").address(), "10.224.0.5");
    let log = pods.node.log();
    let looks: Vec<_> = log
        .lines()
        .filter(|l| l.contains("looked at the node in"))
        .collect();
    println!("{looks:#?}");
}
