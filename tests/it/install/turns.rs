//! This plugin replaces the original, and the original comes back, while calls continue. `genuine_azure_vnet.rs`
//! exchanges them below azure-vnet.
//!
//! The original always uses `/` as its root. So this test runs in its own namespaces, with the wire server at its
//! real address.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::folder::{KEPT, Original, PluginFolder, V4};
use crate::genuine_azure_vnet::host::REPLACED;
use crate::harness::wait::{SetOnDrop, wait_until};
use crate::harness::{Node, Outcome, Reply, SUBNET, WireServer, binary, conf, held, run, sh, xml};
use crate::privileged::{in_private_namespaces, only_in};

const STATE: &str = "/run/azure-vnet-ipam.json";
const LOCK: &str = "/run/azure-vnet/azure-vnet-ipam.lock";

/// Runs a verb with the installed plugin, as azure-vnet does.
fn call(plugin: &Path, verb: &str, pod: &str, ipam: Value) -> Outcome {
    let mut call = Command::new(plugin);
    call.env_clear().envs([
        ("CNI_COMMAND", verb),
        ("CNI_CONTAINERID", pod),
        ("CNI_NETNS", &format!("/var/run/netns/{pod}")),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
    ]);
    run(&mut call, &conf("0.3.0", ipam))
}

#[test]
#[ignore = "needs root, iproute2 and tests/original/build"]
fn calls_go_on_while_the_original_is_replaced_and_comes_back() {
    only_in!(in_private_namespaces);
    // Hide the entries of the machine's own pods in /var/lib/cni.
    sh(
        "for folder in /run /var/log /var/lib/cni; do mkdir -p $folder && mount -t tmpfs none $folder; done
        ip addr add 168.63.129.16/32 dev lo
        ip link add eth0 address 7c:1e:52:f9:f3:c4 type veth peer name peer0 && ip link set eth0 up && ip link set peer0 up",
    );
    let folder = &PluginFolder::on(Node::new("turns"));
    let original = Original::new(&folder.node);
    let plugin = &folder.file(V4);
    folder.put_executable(V4, &original.path);
    let operator = |program: &Path, command: &str, words: &str| {
        let mut operator = Command::new(program);
        let operator = operator.env_clear().args([command, "--dir"]);
        let done = run(operator.arg(&folder.path), "");
        assert!(done.success().stdout.contains(words), "{done:?}");
    };
    let install = || {
        operator(&binary(), "install", " Before: another file, kept as");
        assert!(folder.is_ours(V4));
        assert!(folder.read(KEPT) == original.bytes);
    };
    // The installed executable uninstalls itself.
    let uninstall = || {
        operator(plugin, "uninstall", "The original is back as ");
        assert!(folder.read(V4) == original.bytes);
        assert_eq!(folder.names(), [V4]);
    };
    // The original logs each call, even the VERSION with which `install` distinguishes it from a broken file.
    install();
    uninstall();
    let _ = fs::remove_file(LOCK);
    if !original.is_stand_in {
        let log = fs::read_to_string("/var/log/azure-vnet-ipam.log").unwrap();
        let line = format!("[cni-ipam] Plugin azure-vnet-ipam version {REPLACED}.");
        assert!(log.contains(&line), "the original was called: {log}");
    }

    let _wire = WireServer::on("168.63.129.16:80", Reply::Xml(xml(5..17)));
    let add = |pod: &str| {
        // The first ADD of a node names no subnet. It creates the pool.
        let ipam = if fs::exists(STATE).unwrap() {
            json!({ "subnet": SUBNET })
        } else {
            json!({})
        };
        call(plugin, "ADD", pod, ipam).address()
    };
    let kept = add("kept");
    let (is_over, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let used = Mutex::new(BTreeSet::from([kept.clone()]));
    let churn = &|pod: &str| {
        while !is_over.load(Ordering::SeqCst) {
            let address = add(pod);
            let is_free = used.lock().unwrap().insert(address.clone());
            assert!(is_free, "{address} is given to {pod}");
            assert!(used.lock().unwrap().remove(&address));
            let ipam = json!({ "subnet": SUBNET, "ipAddress": address });
            call(plugin, "DEL", pod, ipam).assert_no_output();
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
            install();
            go_on();
            uninstall();
        }
        go_on();
        drop(over);
    });
    println!("{calls:?} calls beside 10 replacements");
    assert_eq!(add("kept"), kept);
    let state: Value = serde_json::from_slice(&fs::read(STATE).unwrap()).unwrap();
    assert_eq!(held(&state), BTreeMap::from([(kept, "kept".to_owned())]));
    let pool = &state["IPAM"]["AddressSpaces"]["local"]["Pools"][SUBNET];
    assert_eq!(pool["Addresses"].as_object().unwrap().len(), 12, "{state}");
}
