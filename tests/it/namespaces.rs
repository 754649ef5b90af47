//! Real pods, made with ip netns and veth, keep their addresses in the kernel while the state is lost, damaged or wrong.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Instant;

use serde_json::json;

use crate::harness::wait::{Process, output, wait_until};
use crate::harness::{Node, Outcome, Reply, SUBNET, WireServer, conf, is_long, sh, sh_with, xml};
use crate::privileged::{in_private_namespaces, only_in};
use crate::verbs::{call_without_container, status};

/// A node in private namespaces, with the kernel's interfaces and /proc. Its other files are in a folder.
pub struct Pods {
    pub node: Node,
    pub wire: WireServer,
}

impl Pods {
    /// Creates a node with these addresses. Must be called in private mount and network namespaces.
    pub fn in_namespaces(last: impl IntoIterator<Item = u16>) -> Pods {
        // Shared, so that namespaces mounted later are visible below the node's root too.
        sh(
            "mount -t tmpfs none /run && mkdir /run/netns && mount --bind /run/netns /run/netns && mount --make-shared /run/netns",
        );
        sh(
            "ip link add eth0 address 7c:1e:52:f9:f3:c4 type veth peer name peer0 && ip link set eth0 up && ip link set peer0 up",
        );
        sh("ip link add br0 type bridge && ip link set br0 up");
        let (node, wire) = Node::with_wire("pods", Reply::Xml(xml(last)));
        // Bind the real /proc, interfaces and namespaces below the root.
        fs::remove_dir_all(node.path("/sys")).unwrap();
        fs::remove_dir_all(node.path("/proc")).unwrap();
        for folder in ["/proc", "/var/run/netns"] {
            fs::create_dir_all(node.path(folder)).unwrap();
        }
        sh_with("mount --rbind /proc \"$1\"", &[&node.path("/proc")]);
        let namespaces = node.path("/var/run/netns");
        sh_with("mount --rbind /run/netns \"$1\"", &[&namespaces]);
        Pods { node, wire }
    }

    pub fn call(&self, command: &str, pod: &str) -> crate::harness::Call<'_> {
        self.node
            .call(command, pod)
            .env("CNI_NETNS", &format!("/var/run/netns/{pod}"))
    }

    pub fn add(&self, pod: &str) -> Outcome {
        self.call("ADD", pod).run()
    }

    pub fn del(&self, pod: &str) {
        self.call("DEL", pod).run().assert_no_output();
    }

    /// Runs an ADD with the boot clock `seconds` ahead.
    pub fn add_later(&self, seconds: u64, pod: &str) -> Outcome {
        self.at(seconds, || self.add(pod))
    }

    /// Runs `work` with the boot clock `seconds` ahead of the machine's.
    pub fn at<T>(&self, seconds: u64, work: impl FnOnce() -> T) -> T {
        self.node.set_clock(seconds);
        let result = work();
        self.node.set_clock(0);
        result
    }

    /// Starts a pod: a namespace, an ADD, and the address on an interface in the namespace.
    pub fn start(&self, pod: &str) -> String {
        sh(&format!("ip netns add {pod}"));
        let address = self.add(pod).address();
        self.configure_address(pod, &address);
        address
    }

    pub fn configure_address(&self, pod: &str, address: &str) {
        sh(&format!(
            "ip link add v-{pod} type veth peer name eth0 netns {pod} && ip link set v-{pod} master br0 up && \
             ip -n {pod} addr add {address}/16 dev eth0 && ip -n {pod} link set eth0 up"
        ));
    }

    /// Removes a pod as a crash would, without a DEL.
    pub fn remove_without_del(&self, pod: &str) {
        sh(&format!("ip netns del {pod}"));
        // The kernel destroys a namespace and its link on the host with a delay.
        wait_until(format!("the end of pod {pod}"), || {
            !has_link(&format!("v-{pod}"))
        });
    }

    /// Writes libcni's cache entry of the pod.
    pub fn write_cache_entry(&self, pod: &str, address: &str) {
        self.node.cache(
            "azure",
            pod,
            "eth0",
            &format!("/var/run/netns/{pod}"),
            &[address],
        );
    }

    pub fn held(&self) -> BTreeMap<String, String> {
        self.node.held()
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        for mounted in ["/proc", "/var/run/netns"] {
            output(
                Command::new("umount")
                    .arg("-l")
                    .arg(self.node.path(mounted)),
            );
        }
    }
}

/// Makes a process visible in the node's /proc.
pub fn make_process_visible(id: u32) {
    sh(&format!("ln -sfn real/{id} /proc/{id}"));
}

/// Returns whether the kernel reports the cookie of a socket's network namespace, as Linux does since 5.14.
pub fn has_namespace_cookies() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|n| n.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(Some(5)), Some(Some(14)))
}

fn string_map(expected: &[(&str, &str)]) -> BTreeMap<String, String> {
    expected
        .iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

const GRACE: u64 = 15 * 60 + 1;
const HOUR: u64 = 3600 + 1;

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn exhausted_pool_reclaims_only_dead_addresses() {
    only_in!(in_private_namespaces);
    let pods = Pods::in_namespaces(5..8);
    let (one, two, three) = (pods.start("one"), pods.start("two"), pods.start("three"));
    pods.write_cache_entry("two", &two);
    pods.remove_without_del("one");
    pods.remove_without_del("two");
    assert_eq!(
        pods.add("new").error().1,
        "Failed to allocate address: No available addresses in 10.224.0.0/16: 3 held, 0 free"
    );
    assert_eq!(pods.held().len(), 3, "too young");
    let (code, msg) = pods.add_later(GRACE, "new").error();
    assert_eq!(
        (code, msg.as_str()),
        (
            100,
            "Failed to allocate address: No available addresses in 10.224.0.0/16: 3 held, 0 free, 2 suspected leaks"
        )
    );
    assert_eq!(pods.held().len(), 3, "found so once");
    assert_eq!(pods.add_later(GRACE + 30, "new").error().0, 100);
    let full = || status(&pods.node, json!({ "statusWhenFull": "error" })).run();
    assert_eq!(pods.at(GRACE + 30, full).error().0, 50);
    pods.at(GRACE + 61, full).assert_no_output();
    let given = pods.add_later(GRACE + 61, "new").address();
    assert!(given == one || given == two);
    assert_eq!(
        pods.held(),
        string_map(&[(&given, "new"), (&three, "three")])
    );
    let log = pods.node.log();
    assert!(
        log.contains(&format!(
            "{one} is reclaimed from container one, pod -: no sign of life"
        )),
        "{log}"
    );
    assert!(
        log.contains(&format!("{two} is reclaimed from container two")),
        "though the cache has it: its namespace is gone"
    );
    let next = pods.add_later(GRACE + 62, "next").address();
    assert_ne!(next, given);
    for (pod, address) in [("new", &given), ("next", &next)] {
        sh(&format!("ip netns add {pod}"));
        pods.configure_address(pod, address);
    }
    assert_eq!(
        pods.add_later(3 * HOUR, "more").error().0,
        100,
        "the others live"
    );
    assert_eq!(pods.held()[&three], "three");
}

/// A single sign of life is enough to keep a record.
#[test]
#[ignore = "needs root, unshare and iproute2"]
fn every_sign_of_life_prevents_reclaim() {
    only_in!(in_private_namespaces);
    let pods = Pods::in_namespaces(5..6);
    let address = pods.start("one");
    let still_held = |what: &str| {
        for seconds in [HOUR, HOUR + 100] {
            pods.add_later(seconds, "new").error();
        }
        assert_eq!(pods.held(), string_map(&[(&address, "one")]), "{what}");
    };
    still_held("the kernel shows the address in the pod's namespace");
    sh("ip -n one addr flush dev eth0");
    still_held("the namespace of its ADD exists, though the address is not the kernel's");
    sh(&format!(
        "ip netns add other && ip -n other link set lo up && ip -n other addr add {address}/32 dev lo"
    ));
    pods.remove_without_del("one");
    still_held("another namespace has the address");
    sh("ip netns del other");
    sh("ip netns add one");
    pods.write_cache_entry("one", &address);
    still_held("libcni's cache has it, and the namespace it names exists");
    pods.remove_without_del("one");
    fs::remove_dir_all(pods.node.path("/var/lib/cni")).unwrap();
    let vnet = json!({"Network": {"ExternalInterfaces": {"eth0": {"Networks": {"azure": {"Endpoints": {"one-eth0": {
        "Id": "one-eth0", "ContainerID": "one", "IPAddresses": [{ "IP": address, "Mask": "//8AAA==" }],
        "HostIfName": "azv1", "NetworkNameSpace": "/var/run/netns/one",
    }}}}}}}});
    pods.node.put("/var/run/azure-vnet.json", vnet.to_string());
    sh("ip netns add vm && ip link add azv1 type veth peer name azv2 netns vm");
    still_held("azure-vnet has an endpoint whose link leads to a namespace without addresses");
    sh("ip link del azv1 && ip netns del vm");
    fs::write(pods.node.path("/var/run/azure-vnet.json"), "{ half").unwrap();
    still_held("azure-vnet's state cannot be read");
    fs::remove_file(pods.node.path("/var/run/azure-vnet.json")).unwrap();
    pods.node.put("/var/lib/cni/results/azure-one-eth0", "");
    still_held("an empty file of the cache may be its");
    fs::remove_dir_all(pods.node.path("/var/lib/cni")).unwrap();
    pods.node
        .put("/var/lib/cni/results", "a file in the place of the folder");
    still_held("the cache cannot be read");
    fs::remove_file(pods.node.path("/var/lib/cni/results")).unwrap();
    sh(&format!("ip route add {address}/32 dev br0"));
    still_held("the host has a route to it");
    sh(&format!("ip route del {address}/32 dev br0"));
    // Only an open file and a link refer to this namespace.
    let hider = hide_a_namespace();
    still_held("a link leads to a namespace that was not found");
    drop(hider);
    assert_eq!(
        pods.add_later(HOUR, "new").address(),
        address,
        "and without any, it goes"
    );
}

/// Starts a process that holds a network namespace open. The host has a link into the namespace, but it is not
/// mounted, and no process is in it.
pub fn hide_a_namespace() -> impl Drop {
    struct Hider(Option<Process>);
    impl Drop for Hider {
        fn drop(&mut self) {
            drop(self.0.take());
            // The kernel destroys a namespace, and its link, with a delay.
            if !std::thread::panicking() {
                wait_until("the end of the hidden namespace", || !has_link("v-hidden"));
            }
        }
    }
    sh("ip netns add hidden && ip link add v-hidden type veth peer name eth0 netns hidden");
    let hold = {
        let mut hold = Command::new("sleep");
        let namespace = fs::File::open("/run/netns/hidden").unwrap();
        // The file is opened before the process starts, so there is nothing to wait for. Dropping the command closes
        // this process's copy.
        Process::start(hold.arg("1000").stdin(namespace))
    };
    sh("ip netns del hidden");
    Hider(Some(hold))
}

/// Whether this test's network namespace has a link of this name.
fn has_link(name: &str) -> bool {
    output(Command::new("ip").args(["link", "show", name]))
        .status
        .success()
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn live_pod_loses_its_suspect_mark() {
    only_in!(in_private_namespaces);
    type ScanOfNode = fn(&Pods);
    let scans: [(&str, ScanOfNode); 3] = [
        ("reclaim", |pods| {
            pods.node.run_command(["reclaim", "--yes"]).success();
        }),
        ("GC", |pods| {
            let valid = json!([{ "containerID": "one", "ifname": "eth0" }]);
            let gc = call_without_container(
                &pods.node,
                "GC",
                json!({ "cni.dev/valid-attachments": valid }),
            );
            // The other record is kept, because the kernel shows its address.
            gc.run().error();
        }),
        ("ADD", |pods| {
            pods.add("new").error();
        }),
    ];
    let pods = Pods::in_namespaces(5..7);
    pods.start("zero");
    pods.node.advance_clock(GRACE);
    let one = pods.start("one");
    for (what, scan) in scans {
        pods.del("one");
        // This ADD finds nothing dead. The next one counts as the second scan.
        pods.del("one");
        assert_eq!(pods.add("one").address(), one);
        let suspects = |pods: &Pods| {
            let metrics = pods.node.run_command(["metrics"]).stdout;
            let mut lines = metrics.lines();
            let line = lines.find(|l| l.starts_with("azure_vnet_ipam_pool_suspect_addresses{"));
            line.unwrap().split(' ').next_back().unwrap().to_owned()
        };
        assert_eq!(suspects(&pods), "1", "{what}");
        scan(&pods);
        assert_eq!(suspects(&pods), "0", "{what}");
    }
}

#[test]
#[ignore = "needs root, unshare and iproute2"]
fn addresses_of_the_host_are_not_allocated() {
    only_in!(in_private_namespaces);
    let pods = Pods::in_namespaces(5..10);
    // cloud-init has configured all addresses on the host, and a crashed main plugin has left a route.
    sh(
        "ip addr add 10.224.0.5/16 dev eth0 && ip addr add 10.224.0.6/16 dev eth0 && ip route add 10.224.0.7/32 dev br0",
    );
    assert_eq!(pods.add("one").address(), "10.224.0.8");
    assert_eq!(pods.add("two").address(), "10.224.0.9");
    let full = pods.add("three");
    let text = "Failed to allocate address: No available addresses in 10.224.0.0/16: 2 held, 0 free, 3 on the host";
    assert_eq!(full.error().1, text);
    assert!(
        full.json()["details"]
            .as_str()
            .unwrap()
            .contains("cloud-init")
    );
    let asked = conf(
        "0.3.0",
        json!({ "subnet": SUBNET, "ipAddress": "10.224.0.5" }),
    );
    assert_eq!(
        pods.call("ADD", "three").stdin(asked).run().error().1,
        "Failed to allocate address: Address already in use"
    );
    sh("ip addr del 10.224.0.6/16 dev eth0");
    assert_eq!(
        pods.add("three").address(),
        "10.224.0.6",
        "an address that the host lost is allocated"
    );
    assert!(
        pods.node
            .log()
            .contains("10.224.0.5 is free, but the host has it or a route to it")
    );
    assert_eq!(
        pods.add("one").address(),
        "10.224.0.8",
        "a held address is not examined"
    );
}

/// Creates and deletes attachments beside many pods and many threads. With LONG=1 there are as many as on a large
/// node.
#[test]
#[ignore = "needs root, unshare and iproute2"]
fn attachments_come_and_go_on_a_crowded_node() {
    only_in!(in_private_namespaces);
    /// The number of attachments that are alive at a time.
    const LIVE: usize = 25;
    let (crowd, threads, rounds) = if is_long() {
        (500, 5000, 1000)
    } else {
        (20, 200, 100)
    };
    let pods = Pods::in_namespaces(5..2000);
    let mut holders: BTreeMap<String, String> = (0..crowd)
        .map(|n| format!("pod{n}"))
        .map(|pod| (pods.start(&pod), pod))
        .collect();
    assert_eq!(holders.len(), crowd, "given twice");
    make_process_visible(std::process::id());
    let (over, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    thread::scope(|scope| {
        for _ in 0..threads {
            let thread = thread::Builder::new().stack_size(64 * 1024);
            let wait = || wait.lock().unwrap().recv().is_err();
            thread.spawn_scoped(scope, wait).unwrap();
        }
        let start = Instant::now();
        let mut live = std::collections::VecDeque::new();
        for n in 0..rounds {
            let id = format!("c{n}");
            let address = pods.add(&id).address();
            let other = holders.insert(address.clone(), id.clone());
            assert_eq!(other, None, "{address} is given twice");
            live.push_back((address, id));
            if live.len() > LIVE {
                let (address, id) = live.pop_front().unwrap();
                holders.remove(&address);
                pods.del(&id);
            }
        }
        let minutes = start.elapsed().as_secs_f64() / 60.0;
        println!("{:.0} ADDs and DELs a minute", f64::from(rounds) / minutes);
        assert_eq!(pods.held(), holders, "what the callers got");
        let start = Instant::now();
        let check = pods.node.run_line("check");
        println!("check took {:?}", start.elapsed());
        let compared = format!("{} holders compared with the node", holders.len());
        assert!(check.stdout.contains(&compared), "{}", check.stdout);
        assert!(!check.stdout.contains("leak"), "{}", check.stdout);
        for (_, id) in live {
            pods.del(&id);
        }
        drop(over);
    });
    for n in 0..crowd {
        pods.del(&format!("pod{n}"));
    }
    assert_eq!(pods.held(), BTreeMap::new());
}
