//! Ways to leak an address permanently. Each was possible once, and was found by attacking the plugin.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};

use crate::harness::wait::{Process, output, wait_until};
use crate::harness::{Node, Reply, SUBNET, conf, sh, xml};
use crate::namespaces::{Pods, hide_a_namespace, make_process_visible};
use crate::never_twice::{inode_of, start_in_reused_inode};
use crate::privileged::{in_private_namespaces, only_in};

const HOUR: u64 = 3600 + 1;
const QUARANTINE: u64 = 31;

/// azure-vnet's state with these endpoints: container, address and link on the host.
pub fn azure_vnet_state(endpoints: &[(&str, &str, &str)]) -> String {
    let endpoint = |(container, address, link): &(&str, &str, &str)| {
        let id = format!("{container}-eth0");
        let endpoint = json!({
            "Id": id, "ContainerID": container, "IPAddresses": [{ "IP": address, "Mask": "//8AAA==" }],
            "HostIfName": link, "NetworkNameSpace": format!("/var/run/netns/{container}"),
        });
        (id, endpoint)
    };
    let endpoints: serde_json::Map<_, _> = endpoints.iter().map(endpoint).collect();
    let networks = json!({ "azure": { "Endpoints": endpoints } });
    json!({ "Network": { "ExternalInterfaces": { "eth0": { "Networks": networks } } } }).to_string()
}

/// A process in a pod's network namespace, visible in the node's /proc.
fn start_process_in(pod: &str) -> Process {
    let mut inside = Command::new("ip");
    inside.args(["netns", "exec", pod, "sleep", "1000"]);
    let inside = Process::start(&mut inside);
    let (id, pod) = (inside.id(), format!("/run/netns/{pod}"));
    let inode = |path: &str| fs::metadata(path).map(|found| found.ino()).ok();
    wait_until("a process in the pod's namespace", || {
        inode(&format!("/proc/real/{id}/ns/net")) == inode(&pod)
    });
    make_process_visible(id);
    inside
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn path_with_a_reused_process_id_is_no_sign_of_life() {
    only_in!(in_private_namespaces);
    let pods = Pods::in_namespaces(5..7);
    let (one, two) = (pods.start("one"), pods.start("two"));
    pods.remove_without_del("one");
    let other = start_process_in("two");
    let of_another_pod = format!("/proc/{}/ns/net", other.id());
    // On the host, the process with this ID is the plugin.
    for netns in ["/proc/1/ns/net", &of_another_pod] {
        pods.node.cache("azure", "one", "eth0", netns, &[&one]);
        assert_eq!(pods.add_later(HOUR, "new").address(), one, "{netns}");
        pods.del("new");
        let again = json!({ "ipAddress": one, "subnet": SUBNET, "cooldown": 0 });
        let add = pods.call("ADD", "one").stdin(conf("0.3.0", again));
        assert_eq!(add.run().address(), one);
    }
    // A live pod may have such a path too.
    pods.node
        .cache("azure", "two", "eth0", &of_another_pod, &[&two]);
    fs::remove_file(pods.node.state_path()).unwrap();
    pods.node.remove_backup();
    pods.add("new").error();
    let held: Vec<_> = pods.held().into_iter().collect();
    assert_eq!(held, [(two, "two".to_owned())]);
}

/// Writes a cache entry without a network namespace, as libcni before 1.2 does, for example in containerd 1.6.
pub fn cache_without_namespace(node: &Node, pod: &str, address: &str) {
    node.cache("azure", pod, "eth0", "", &[address]);
    let path = node.path(&format!("/var/lib/cni/results/azure-{pod}-eth0"));
    let mut entry: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    entry.as_object_mut().unwrap().remove("netns");
    fs::write(path, entry.to_string()).unwrap();
}

/// A user's process in its own user and network namespaces, with these addresses on lo. It is visible in the node's
/// /proc.
fn start_user_namespace_with(addresses: &[&str]) -> Process {
    let mut line = "ip link set lo up".to_owned();
    for address in addresses {
        line.push_str(&format!(" && ip addr add {address}/32 dev lo"));
    }
    let mut user = Command::new("unshare");
    user.args(["-Urn", "sh", "-c", &format!("{line} && exec sleep 1000")]);
    let user = Process::start(&mut user);
    let id = user.id();
    let last = addresses.last().unwrap();
    wait_until("the addresses of the user's namespace", || {
        let mut nsenter = Command::new("nsenter");
        nsenter.arg(format!("--net=/proc/real/{id}/ns/net"));
        let addresses = output(nsenter.args(["ip", "-o", "addr", "show", "dev", "lo"])).stdout;
        String::from_utf8_lossy(&addresses).contains(&format!("{last}/32"))
    });
    make_process_visible(id);
    user
}

const POOL: [&str; 3] = ["10.224.0.5", "10.224.0.6", "10.224.0.7"];

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn user_namespace_reserves_no_address() {
    only_in!(in_private_namespaces);
    let pods = Pods::in_namespaces(5..8);
    let one = pods.start("one");
    let _user = start_user_namespace_with(&POOL);
    fs::remove_file(pods.node.state_path()).unwrap();
    pods.node.remove_backup();
    pods.add("new").error();
    let held: Vec<_> = pods.held().into_keys().collect();
    assert_eq!(held, [one], "what a pod has, though a user has it too");
    for (n, pod) in ["two", "three"].into_iter().enumerate() {
        let add = pods.add_later(QUARANTINE, pod);
        assert_eq!(add.address(), POOL[n + 1]);
    }
    // On a fresh node, such a namespace does not count as a sign of a lost state either.
    pods.remove_without_del("one");
    fs::remove_file(pods.node.state_path()).unwrap();
    fs::remove_dir_all(pods.node.path("/var/run/azure-vnet")).unwrap();
    pods.node.remove_backup();
    pods.add("new").success();
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn user_namespace_delays_reclaim_but_not_del() {
    only_in!(in_private_namespaces);
    let pods = Pods::in_namespaces(5..7);
    let (one, two) = (pods.start("one"), pods.start("two"));
    let user = start_user_namespace_with(&[&one, &two]);
    pods.remove_without_del("one");
    pods.remove_without_del("two");
    pods.add_later(HOUR, "new").error();
    assert_eq!(pods.held().len(), 2);
    pods.del("one");
    assert_eq!(pods.start("new"), one);
    pods.add_later(HOUR, "more").error();
    user.kill();
    // The network namespace is destroyed a moment after the process ends.
    let shown = || pods.node.run_command(["show", &two, "--json"]).json();
    wait_until("the end of the user's namespace", || {
        shown()["addresses"][0]["shown"] == json!([])
    });
    assert_eq!(pods.add_later(HOUR, "more").address(), two);
}

/// The network namespace of a pod with `hostUsers: false` also belongs to another user namespace, but it is mounted.
#[test]
#[ignore = "needs root, unshare and iproute2"]
fn pod_with_user_namespace_keeps_its_address() {
    only_in!(in_private_namespaces);
    let pods = Pods::in_namespaces(5..7);
    let address = pods.add("one").address();
    let pod = start_user_namespace_with(&[&address]);
    sh(&format!(
        "touch /run/netns/one && mount --bind /proc/real/{}/ns/net /run/netns/one",
        pod.id()
    ));
    pods.add("two").success();
    pods.add_later(HOUR, "new").success();
    assert_eq!(pods.held()[&address], "one", "not the one that is gone");
    pods.write_cache_entry("one", &address);
    fs::remove_file(pods.node.state_path()).unwrap();
    pods.node.remove_backup();
    pods.add("new").error();
    let held: Vec<_> = pods.held().into_iter().collect();
    assert_eq!(held, [(address, "one".to_owned())]);
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn address_of_the_originals_pod_is_free_during_its_teardown() {
    only_in!(in_private_namespaces);
    let pods = Pods::in_namespaces(5..7);
    let address = pods.start("old");
    pods.node.make_state_the_originals();
    // The main plugin releases the address before it removes the network namespace.
    pods.del("old");
    pods.add("new").success();
    assert!(!pods.held().contains_key(&*address), "{:?}", pods.held());
}

/// Runs an ADD, and calls `happens` in the middle of it. The ADD is stopped when it opens a file for the nth time,
/// and continued afterwards. On an emulated processor, its scan may be over before that.
fn during_an_add(pods: &Pods, file: &Path, nth: usize, happens: impl FnOnce()) {
    static LISTED: AtomicU16 = AtomicU16::new(10);
    // A newly listed address makes the ADD scan the node.
    let end = LISTED.fetch_add(1, Ordering::Relaxed);
    pods.wire.set(Reply::Xml(xml(5..end)));
    let trace = pods.node.path("/trace");
    let _ = fs::remove_file(&trace);
    let inject = format!("inject=openat:signal=STOP:when={nth}");
    let words = ["strace", "-f", "-qq", "-e", &inject, "-P"].map(Path::new);
    let words = words.into_iter().chain([file, "-o".as_ref(), &trace]);
    let mut adding = pods.call("ADD", "new").under(words).start();
    // `PID --- stopped by SIGSTOP ---`
    let stopped = || {
        let trace = fs::read_to_string(&trace).unwrap_or_default();
        let line = trace.lines().find(|line| line.contains("stopped by"))?;
        Some(line.split(' ').next()?.to_owned())
    };
    wait_until("the ADD to open the file", || {
        stopped().is_some() || !adding.is_running()
    });
    happens();
    if let Some(process) = stopped() {
        sh(&format!("kill -CONT {process}"));
    }
    adding.finish().success();
    pods.del("new");
}

/// A node on which no scan is complete while the second value exists.
fn node_with_something_hidden() -> (Pods, impl Drop) {
    let pods = Pods::in_namespaces(5..9);
    sh("ip netns add new");
    (pods, hide_a_namespace())
}

/// The scan reads the cache entry before the DEL of its pod, and follows the path in the entry after the DEL.
#[test]
#[ignore = "needs root, unshare, iproute2 and strace"]
fn pod_deleted_during_a_scan_leaves_no_holder() {
    only_in!(in_private_namespaces);
    let (pods, _hidden) = node_with_something_hidden();
    // `ip netns del` unmounts the path and then removes it. In between, the path leads to an ordinary file.
    for (pod, end) in [
        ("one", "ip netns del one"),
        ("two", "umount /run/netns/two"),
    ] {
        let address = pods.start(pod);
        pods.write_cache_entry(pod, &address);
        let entry = format!("/var/lib/cni/results/azure-{pod}-eth0");
        let entry = pods.node.path(&entry);
        during_an_add(&pods, &entry, 1, || {
            pods.del(pod);
            fs::remove_file(&entry).unwrap();
            sh(end);
        });
        assert_eq!(pods.held().get(&address), None, "{end}");
    }
}

/// The scan finds two network namespaces with the same inode. Kernels since 6.18 let it distinguish them.
#[test]
#[ignore = "needs root, unshare, iproute2 and strace"]
fn pod_with_an_inode_reused_during_a_scan_leaves_no_holder() {
    only_in!(in_private_namespaces);
    let (pods, _hidden) = node_with_something_hidden();
    // The second round of the scan finds the successor of the pod's namespace.
    let mounts = pods.node.path("/proc/self/mountinfo");
    let is_reused = (0..20).map(|n| format!("old{n}")).any(|pod| {
        let address = pods.start(&pod);
        let inode = inode_of(&pod);
        // The scan stays in the last namespace while it waits.
        sh(&format!("ip netns add last{pod}"));
        let mut successor = None;
        during_an_add(&pods, &mounts, 2, || {
            pods.del(&pod);
            pods.remove_without_del(&pod);
            successor = start_in_reused_inode(inode, &pod);
        });
        assert_eq!(pods.held().get(&address), None);
        successor.is_some()
    });
    assert!(is_reused);
}
