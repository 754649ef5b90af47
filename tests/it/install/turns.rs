//! The original and this plugin in turns, with pods running. `genuine_azure_vnet.rs` does so below azure-vnet.
//!
//! The original knows no root but `/`, so that these tests run in namespaces of their own, with the wire server at its real address.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::folder::{Original, PluginFolder, V4};
use crate::harness::wait::{SetOnDrop, wait_until};
use crate::harness::{Node, Outcome, Reply, SUBNET, WireServer, binary, conf, held, run, sh, xml};
use crate::privileged::in_private_namespaces;

const STATE: &str = "/run/azure-vnet-ipam.json";

/// The last parts of the addresses that the wire server lists.
const LISTED: std::ops::Range<u16> = 5..17;

/// A node with real pods, each with its address in its network namespace, whose plugin is the original or ours.
struct Turns {
    folder: PluginFolder,
    original: Original,
    _wire: WireServer,
    /// The address of each running pod, as its ADD printed it.
    pods: BTreeMap<String, String>,
    started: usize,
}

impl Turns {
    /// Must be called in private mount and network namespaces. The original is in place.
    fn in_namespaces() -> Turns {
        sh(
            "mount -t tmpfs none /run && mkdir /run/netns && mount --bind /run/netns /run/netns && mount --make-shared /run/netns",
        );
        sh("mount -t tmpfs none /var/log");
        // What the machine's own pods left behind there is none of this node's.
        sh("[ ! -d /var/lib/cni ] || mount -t tmpfs none /var/lib/cni");
        sh("ip addr add 168.63.129.16/32 dev lo");
        sh(
            "ip link add eth0 address 7c:1e:52:f9:f3:c4 type veth peer name peer0 && ip link set eth0 up && ip link set peer0 up",
        );
        sh("ip link add br0 type bridge && ip link set br0 up");
        let wire = WireServer::on("168.63.129.16:80", Reply::Xml(xml(LISTED)));
        let folder = PluginFolder::on(Node::new("turns"));
        let original = Original::new(&folder.node);
        folder.put_executable(V4, &original.path);
        Turns {
            original,
            folder,
            _wire: wire,
            pods: BTreeMap::new(),
            started: 0,
        }
    }

    /// Runs a verb through whatever is in place, as azure-vnet does.
    fn call(&self, verb: &str, pod: &str, ipam: Value) -> Outcome {
        let mut call = Command::new(self.folder.file(V4));
        call.env_clear().envs([
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", pod),
            ("CNI_NETNS", &format!("/var/run/netns/{pod}")),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
        ]);
        run(&mut call, &conf("0.3.0", ipam))
    }

    fn add(&self, pod: &str) -> Outcome {
        // The first ADD of a node names no subnet, and takes the pool.
        let is_first = !fs::exists(STATE).unwrap();
        let ipam = if is_first {
            json!({})
        } else {
            json!({ "subnet": SUBNET })
        };
        self.call("ADD", pod, ipam)
    }

    fn run_command(&self, program: &Path, command: &str) -> String {
        let mut operator = Command::new(program);
        let operator = operator.env_clear().args([command, "--dir"]);
        let done = run(operator.arg(&self.folder.path), "");
        done.success().stdout.clone()
    }

    fn install(&self) {
        let text = self.run_command(&binary(), "install");
        assert!(text.contains(" Before: another file, kept as"), "{text}");
        assert!(self.folder.is_ours(V4));
        assert!(self.folder.read("azure-vnet-ipam.orig") == self.original.bytes);
    }

    /// The installed executable uninstalls itself.
    fn uninstall(&self) {
        let text = self.run_command(&self.folder.file(V4), "uninstall");
        assert!(text.starts_with("The original is back as "), "{text}");
        assert!(self.folder.read(V4) == self.original.bytes);
        assert!(
            !self
                .folder
                .names()
                .contains(&"azure-vnet-ipam.orig".to_owned())
        );
    }

    /// Starts a pod: a network namespace, an ADD, and the address in the namespace. Returns false when no address is left.
    fn start(&mut self) -> bool {
        let pod = format!("pod{}", self.started);
        let outcome = self.add(&pod);
        if outcome.exit != Some(0) {
            let message = outcome.json()["msg"].to_string();
            assert!(message.contains("No available addresses"), "{message}");
            return false;
        }
        self.started += 1;
        let address = outcome.address();
        sh(&format!(
            "ip netns add {pod} && ip link add v-{pod} type veth peer name eth0 netns {pod} && \
             ip link set v-{pod} master br0 up && ip -n {pod} addr add {address}/16 dev eth0 && ip -n {pod} link set eth0 up"
        ));
        let taken = self.pods.values().any(|other| *other == address);
        assert!(!taken, "{address} is given to {pod}: {:?}", self.pods);
        self.pods.insert(pod, address);
        self.compare();
        true
    }

    /// Stops a pod. azure-vnet names its address unless it forgot the pod.
    fn stop(&mut self, pod: &str, is_forgotten: bool) {
        let address = self.pods.remove(pod).unwrap();
        let ipam = if is_forgotten {
            json!({ "subnet": SUBNET })
        } else {
            json!({ "subnet": SUBNET, "ipAddress": address })
        };
        self.call("DEL", pod, ipam).assert_no_output();
        sh(&format!("ip netns del {pod}"));
        self.compare();
    }

    /// Compares the state with what the ADDs and DELs were told: the records in use are the running pods' and no others, each with
    /// the ID of its pod, and every address of the wire server has its record. Somebody else's key is what it was.
    fn compare(&self) {
        let state: Value = serde_json::from_slice(&fs::read(STATE).unwrap()).unwrap();
        let expected: BTreeMap<_, _> = self.pods.iter().map(|(pod, a)| (a, pod)).collect();
        let found = held(&state);
        assert_eq!(found.iter().collect::<BTreeMap<_, _>>(), expected);
        let pool = &state["IPAM"]["AddressSpaces"]["local"]["Pools"][SUBNET];
        let records: BTreeSet<_> = pool["Addresses"].as_object().unwrap().keys().collect();
        let listed: Vec<_> = LISTED.map(|n| format!("10.224.0.{n}")).collect();
        assert_eq!(records, listed.iter().collect());
    }

    /// Each pod of the past gets its own address when its ADD is repeated.
    fn repeat_all(&self) {
        for (pod, address) in &self.pods {
            assert_eq!(self.add(pod).address(), *address, "{pod}");
        }
        self.compare();
    }

    /// Starts pods until no address is left: every free address is given once. Then stops those again.
    fn fill_and_drain(&mut self) {
        let before: Vec<_> = self.pods.keys().cloned().collect();
        while self.start() {}
        assert_eq!(self.pods.len(), LISTED.len(), "none is lost");
        let fillers: Vec<_> = self.pods.keys().cloned().collect();
        for (n, pod) in fillers.iter().enumerate() {
            if !before.contains(pod) {
                self.stop(pod, n % 2 == 0);
            }
        }
    }

    /// The pods that run now.
    fn running(&self) -> Vec<String> {
        self.pods.keys().cloned().collect()
    }
}

#[test]
#[ignore = "needs root, iproute2 and tests/original/build"]
fn original_and_this_plugin_take_turns_with_pods_running() {
    const TEST: &str = "install::turns::original_and_this_plugin_take_turns_with_pods_running";
    if !in_private_namespaces(TEST) {
        return;
    }
    let mut node = Turns::in_namespaces();
    let mut granted_by: [Vec<String>; 2] = Default::default();
    for turn in 0..6 {
        let (is_ours, is_forgotten) = (turn % 2 == 1, turn / 2 % 2 == 0);
        if turn > 0 {
            let state = fs::read(STATE).unwrap();
            match is_ours {
                true => node.install(),
                false => node.uninstall(),
            }
            assert_eq!(fs::read(STATE).unwrap(), state, "turn {turn}");
            // It frees what the other one gave, and knows of it only what the other one wrote.
            let pod = granted_by[usize::from(!is_ours)].pop().unwrap();
            node.stop(&pod, is_forgotten);
        }
        let before = node.running();
        for _ in 0..3 {
            assert!(node.start(), "there are addresses left");
        }
        if turn == 0 && !node.original.is_stand_in {
            let log = fs::read_to_string("/var/log/azure-vnet-ipam.log").unwrap();
            let line = "[cni-ipam] Plugin azure-vnet-ipam version v1.4.59.";
            assert!(
                log.contains(line),
                "it is the original that is called: {log}"
            );
        }
        let new = node.running().into_iter();
        let own = &mut granted_by[usize::from(is_ours)];
        own.extend(new.filter(|pod| !before.contains(pod)));
        node.stop(&own.remove(0), is_forgotten);
        node.fill_and_drain();
        node.repeat_all();
    }
    node.uninstall();
    assert!(!granted_by[0].is_empty() && !granted_by[1].is_empty());
    for (n, pod) in node.running().iter().enumerate() {
        node.stop(pod, n % 2 == 0);
    }
    assert!(node.pods.is_empty());
    node.fill_and_drain();
    println!("{} pods were started", node.started);
}

#[test]
#[ignore = "needs root, iproute2 and tests/original/build"]
fn calls_go_on_while_the_original_is_replaced_and_comes_back() {
    const TEST: &str = "install::turns::calls_go_on_while_the_original_is_replaced_and_comes_back";
    if !in_private_namespaces(TEST) {
        return;
    }
    let mut node = Turns::in_namespaces();
    // It keeps its address all the time.
    assert!(node.start());
    let (is_over, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let used = Mutex::new(BTreeSet::from_iter(node.pods.values().cloned()));
    let churn = |pod: &str| {
        while !is_over.load(Ordering::SeqCst) {
            let address = node.add(pod).address();
            let is_free = used.lock().unwrap().insert(address.clone());
            assert!(is_free, "{address} is given to {pod}");
            assert!(used.lock().unwrap().remove(&address));
            let ipam = json!({ "subnet": SUBNET, "ipAddress": address });
            node.call("DEL", pod, ipam).assert_no_output();
            calls.fetch_add(2, Ordering::SeqCst);
        }
    };
    thread::scope(|scope| {
        let over = SetOnDrop(&is_over);
        let pods = ["a", "b", "c"];
        let threads = pods.map(|pod| scope.spawn(move || churn(pod)));
        let go_on = || {
            let before = calls.load(Ordering::SeqCst);
            wait_until("calls through the plugin in place", || {
                calls.load(Ordering::SeqCst) >= before + 10
                    || threads.iter().any(|thread| thread.is_finished())
            });
        };
        for _ in 0..5 {
            go_on();
            node.install();
            go_on();
            node.uninstall();
        }
        go_on();
        drop(over);
    });
    println!(
        "{} calls beside 10 replacements",
        calls.load(Ordering::SeqCst)
    );
    node.compare();
    node.repeat_all();
}
