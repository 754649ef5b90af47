//! The original is replaced by this plugin and comes back, while calls go on. `genuine_azure_vnet.rs` exchanges them below azure-vnet.
//!
//! The original knows no root but `/`, so that this runs in namespaces of its own, with the wire server at its real address.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::folder::{KEPT, Original, PluginFolder, V4};
use crate::harness::wait::{SetOnDrop, wait_until};
use crate::harness::{Node, Outcome, Reply, SUBNET, WireServer, binary, conf, held, run, sh, xml};
use crate::privileged::{in_private_namespaces, only_in};

const STATE: &str = "/run/azure-vnet-ipam.json";
const LOCK: &str = "/run/azure-vnet/azure-vnet-ipam.lock";
/// The record that proves the journal, in the lock file.
const RECORD: &str = "azure-vnet-ipam 8f3c5c52-0000-4000-8000-000000000001 000000000000004711\n";

/// A node whose plugin is the original or ours.
struct Turns {
    folder: PluginFolder,
    original: Original,
}

impl Turns {
    /// Must be called in private mount and network namespaces. The original is in place.
    fn in_namespaces() -> Turns {
        for path in ["/run", "/var/log"] {
            sh(&format!("mount -t tmpfs none {path}"));
        }
        // What the machine's own pods left behind there is none of this node's.
        sh("[ ! -d /var/lib/cni ] || mount -t tmpfs none /var/lib/cni");
        sh("ip addr add 168.63.129.16/32 dev lo");
        sh(
            "ip link add eth0 address 7c:1e:52:f9:f3:c4 type veth peer name peer0 && ip link set eth0 up && ip link set peer0 up",
        );
        let folder = PluginFolder::on(Node::new("turns"));
        let original = Original::new(&folder.node);
        folder.put_executable(V4, &original.path);
        Turns { folder, original }
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

    fn add(&self, pod: &str) -> String {
        // The first ADD of a node names no subnet, and takes the pool.
        let ipam = match fs::exists(STATE).unwrap() {
            true => json!({ "subnet": SUBNET }),
            false => json!({}),
        };
        self.call("ADD", pod, ipam).address()
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
        assert!(self.folder.read(KEPT) == self.original.bytes);
    }

    /// The installed executable uninstalls itself.
    fn uninstall(&self) {
        let text = self.run_command(&self.folder.file(V4), "uninstall");
        assert!(text.starts_with("The original is back as "), "{text}");
        assert!(self.folder.read(V4) == self.original.bytes);
        assert_eq!(self.folder.names(), [V4]);
    }
}

#[test]
#[ignore = "needs root, iproute2 and tests/original/build"]
fn calls_go_on_while_the_original_is_replaced_and_comes_back() {
    only_in!(in_private_namespaces);
    let node = Turns::in_namespaces();
    // The original writes its process ID into the lock file at every call, also at the VERSION that tells it from a broken file.
    fs::create_dir("/run/azure-vnet").unwrap();
    fs::write(LOCK, RECORD).unwrap();
    node.install();
    assert_eq!(fs::read_to_string(LOCK).unwrap(), RECORD);
    node.uninstall();
    assert_eq!(fs::read_to_string(LOCK).unwrap(), RECORD);
    fs::remove_file(LOCK).unwrap();
    if !node.original.is_stand_in {
        let log = fs::read_to_string("/var/log/azure-vnet-ipam.log").unwrap();
        let line = "[cni-ipam] Plugin azure-vnet-ipam version v1.4.59.";
        assert!(log.contains(line), "the original was called: {log}");
    }

    let _wire = WireServer::on("168.63.129.16:80", Reply::Xml(xml(5..17)));
    let kept = node.add("kept");
    let (is_over, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let used = Mutex::new(BTreeSet::from([kept.clone()]));
    let churn = &|pod: &str| {
        while !is_over.load(Ordering::SeqCst) {
            let address = node.add(pod);
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
    println!("{calls:?} calls beside 10 replacements");
    assert_eq!(node.add("kept"), kept);
    let state: Value = serde_json::from_slice(&fs::read(STATE).unwrap()).unwrap();
    assert_eq!(held(&state), BTreeMap::from([(kept, "kept".to_owned())]));
    let pool = &state["IPAM"]["AddressSpaces"]["local"]["Pools"][SUBNET];
    assert_eq!(pool["Addresses"].as_object().unwrap().len(), 12, "{state}");
}
