//! Network namespaces to which neither a mount nor the main thread of a process refers. Their addresses are in use
//! all the same, even without a link on the host, as with macvlan.

use std::any::Any;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::harness::wait::{Process, SetOnDrop, output, wait_until};
use crate::harness::{Reply, sh, xml};
use crate::namespaces::{Pods, make_process_visible};
use crate::privileged::{in_private_namespaces, only_in};

const HOUR: u64 = 3600 + 1;

/// Creates a node with one address. A pod holds it, in a network namespace without a link to the host.
fn node_with_a_pod() -> Pods {
    let pods = Pods::in_namespaces([5]);
    start_pod(&pods);
    pods
}

fn start_pod(pods: &Pods) {
    sh("ip netns add one");
    let address = pods.add("one").address();
    sh(&format!(
        "ip -n one link set lo up && ip -n one addr add {address}/32 dev lo"
    ));
    // The ADD named another path, so only the address shows that the pod is alive.
    let mut state = pods.node.state();
    let ours = &mut state["azure-vnet-ipam"]["records"]["local"][crate::harness::SUBNET];
    ours[&*address].as_object_mut().unwrap().remove("netns");
    fs::write(pods.node.state_path(), state.to_string()).unwrap();
}

#[track_caller]
fn assert_allocated_again(pods: &Pods, what: &str) {
    wait_until(format!("the end of the namespace {what}"), || {
        pods.add_later(HOUR, "new").exit == Some(0)
    });
}

fn enter(namespace: &str) {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

/// A process that shows a network namespace, and the value that keeps the namespace until it is dropped.
type Kept = (u32, Box<dyn Any>);
type Keep = fn() -> Kept;

/// A thread in the namespace. It ends when the other end of its channel is dropped.
fn keep_by_another_thread() -> Kept {
    struct Inside(Option<mpsc::Sender<()>>, Option<JoinHandle<()>>);
    impl Drop for Inside {
        fn drop(&mut self) {
            self.0.take();
            self.1.take().unwrap().join().unwrap();
        }
    }
    let (inside, is_inside) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        enter("one");
        inside.send(()).unwrap();
        let _ = left.recv();
    });
    is_inside.recv().unwrap();
    sh("ip netns del one");
    let inside = Inside(Some(leave), Some(thread));
    (std::process::id(), Box::new(inside))
}

/// A process in the namespace whose first thread has ended.
fn keep_by_a_later_thread() -> Kept {
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
    (process.id(), Box::new(process))
}

/// A process in another mount namespace, in which the network namespace is mounted.
fn keep_by_a_mount_elsewhere() -> Kept {
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
    (id, Box::new(elsewhere))
}

#[test]
#[ignore = "needs root, unshare, iproute2 and python3"]
fn address_is_found_however_its_namespace_is_kept() {
    only_in!(in_private_namespaces);
    let pods = Pods::in_namespaces([5]);
    let ways: [(&str, Keep); 3] = [
        ("of another thread", keep_by_another_thread),
        (
            "of a process whose main thread ended",
            keep_by_a_later_thread,
        ),
        ("mounted elsewhere", keep_by_a_mount_elsewhere),
    ];
    for (what, keep) in ways {
        start_pod(&pods);
        let (process, kept) = keep();
        make_process_visible(process);
        let before = pods.node.log().len();
        // The pod keeps its address while its namespace exists, and the scan is complete.
        pods.add_later(HOUR, "new").error();
        assert_eq!(pods.held()["10.224.0.5"], "one", "{what}");
        let log = pods.node.log().split_off(before);
        assert!(!log.contains("not complete"), "{what}: {log}");
        drop(kept);
        sh(&format!("rm /proc/{process}"));
        assert_allocated_again(&pods, what);
        pods.del("new");
    }
}

/// The second scan shows all holders that it checks. The pod that only the first scan checked is not shown.
#[test]
#[ignore = "needs root, unshare and iproute2"]
fn address_is_found_by_the_second_scan_of_a_call() {
    only_in!(in_private_namespaces);
    let pods = Pods::in_namespaces([5]);
    pods.start("one");
    sh("ip netns add other && ip -n other link set lo up");
    sh("ip -n other addr add 10.224.0.6/32 dev lo");
    let mut inside = Command::new("ip");
    let inside = Process::start(inside.args(["netns", "exec", "other", "sleep", "1000"]));
    let comm = format!("/proc/real/{}/comm", inside.id());
    wait_until("a process in the namespace", || {
        fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n")
    });
    sh("ip netns del other");
    make_process_visible(inside.id());
    // A newly listed address makes the call scan the node. An empty pool makes it scan again.
    pods.wire.set(Reply::Xml(xml(5..7)));
    pods.add_later(HOUR, "new").error();
    assert_eq!(pods.held()["10.224.0.6"], "");
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn namespace_below_another_mount_is_reported_as_unseen() {
    only_in!(in_private_namespaces);
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
    only_in!(in_private_namespaces);
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
    assert_allocated_again(&pods, "that a descriptor keeps");
}

/// The plugin does not search for a namespace that only a descriptor refers to. The link to the host shows that it
/// exists.
#[test]
#[ignore = "needs root, unshare and iproute2"]
fn namespace_that_a_descriptor_keeps_is_reported_as_unseen_by_its_link() {
    only_in!(in_private_namespaces);
    let pods = node_with_a_pod();
    sh("ip link add v-one type veth peer name eth0 netns one");
    let kept = File::open("/run/netns/one").unwrap();
    sh("ip netns del one");
    make_process_visible(std::process::id());
    pods.add_later(HOUR, "new").error();
    let log = pods.node.log();
    assert!(
        log.contains("the other end of v-one is in a network namespace that was not found"),
        "{log}"
    );
    drop(kept);
    assert_allocated_again(&pods, "that a descriptor keeps");
}

/// Namespaces are created and destroyed during the scan.
#[test]
#[ignore = "needs root, unshare and iproute2"]
fn busy_node_still_reclaims_dead_addresses() {
    only_in!(in_private_namespaces);
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
            // A single scan may find a namespace that is being destroyed. Not all repeated scans do.
            let mut scans = 0;
            wait_until("a scan that is complete", || {
                scans += 1;
                pods.add_later(HOUR, "new").exit == Some(0)
            });
            assert!(scans < 10, "{n}: {scans} scans");
            pods.del("new");
        }
    });
}
