//! CRI-O. Its pods need no process: a mount in /run/netns keeps their network namespace.

use std::fs;
use std::process::Command;

use serde_json::json;

use super::{
    ADDRESSES, IMAGE, Runtime, SOCKET, add_later, build_pause_image, kill_again_and_again,
};
use crate::callers::{examples, tool};
use crate::harness::wait::{output, wait_until};
use crate::harness::{Reply, sh, sh_with, skip, xml_of};
use crate::privileged::{in_private_namespaces_with_all_processes, only_in};

/// Images and pods of CRI-O. They end with the mount namespace.
const STORAGE: &str = "/run/storage";

/// Returns from the test when CRI-O is not installed, as on Debian.
macro_rules! only_with_crio {
    () => {
        if sh("command -v crio || true").is_empty() {
            skip("no crio on PATH; .ci/run runtimes builds it");
            return;
        }
    };
}

/// Starts CRI-O. Must be called in private mount and network namespaces.
fn start(last: impl IntoIterator<Item = u16>) -> Runtime {
    let mut crio = Runtime::new("crio", true, last);
    let (conmon, pinns, runc) = (tool("conmon"), tool("pinns"), tool("runc"));
    let (conmon, pinns, runc) = (conmon.display(), pinns.display(), runc.display());
    let policy = crio.host.folder.join("policy.json");
    fs::write(
        &policy,
        r#"{"default":[{"type":"insecureAcceptAnything"}]}"#,
    )
    .unwrap();
    let config = format!(
        r#"[crio]
root = "{STORAGE}"
runroot = "{STORAGE}-run"
storage_driver = "vfs"
[crio.api]
listen = "{SOCKET}"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
pinns_path = "{pinns}"
irqbalance_config_restore_file = "disable"
default_runtime = "runc"
[crio.runtime.runtimes.runc]
runtime_path = "{runc}"
monitor_path = "{conmon}"
[crio.image]
pause_image = "{IMAGE}"
signature_policy = "{}"
[crio.network]
network_dir = "/etc/cni/net.d"
plugin_dirs = ["/opt/cni/bin"]
[crio.nri]
enable_nri = false
"#,
        policy.display()
    );
    fs::write(crio.config(), config).unwrap();
    let image = build_pause_image(&crio.host.folder);
    sh_with(
        &format!(
            "skopeo --policy \"$1\" copy oci-archive:\"$2\" 'containers-storage:[vfs@{STORAGE}+{STORAGE}-run]{IMAGE}'"
        ),
        &[&policy, &image],
    );
    crio.run();
    crio
}

/// The number of successful calls of a verb, from the log of the plugin.
fn calls(verb: &str) -> usize {
    let log = fs::read_to_string("/var/log/azure-vnet-ipam.log").unwrap();
    log.matches(&format!(" {verb} done in ")).count()
}

#[test]
#[ignore = "needs root, CRI-O, conmon, skopeo, runc, crictl and the plugin bridge"]
fn killed_crio_leaks_no_address() {
    only_with_crio!();
    only_in!(in_private_namespaces_with_all_processes);
    kill_again_and_again(start(ADDRESSES));
}

#[test]
#[ignore = "needs root, CRI-O, conmon, skopeo, runc, crictl and the plugin bridge"]
fn crio_calls_every_verb() {
    only_with_crio!();
    only_in!(in_private_namespaces_with_all_processes);
    let mut crio = start([5, 6]);
    // CRI-O calls STATUS until the network is ready for the first time.
    crio.kill();
    crio.host.wire.set(Reply::Status(500, String::new()));
    crio.run();
    wait_until("the reason why the network is not ready", || {
        let (is_ready, why) = crio.network();
        !is_ready && why.contains("status 500")
    });
    let xml = xml_of(crio.host.subnets.ipv4, [5, 6]);
    crio.host.wire.set(Reply::Xml(xml));
    wait_until("a ready network", || crio.network().0);

    // CRI-O calls ADD, and CHECK right after it.
    assert!(crio.run_pod(1));
    let pod = crio.host.held();
    assert_eq!(pod.len(), 1);
    assert_eq!(calls("CHECK"), 1);
    let explained =
        output(Command::new(crio.host.folder.join("bin/azure-vnet-ipam")).args(["show", &pod[0]]));
    let explained = String::from_utf8(explained.stdout).unwrap();
    let evidence = [
        "configured in /run/netns/",
        "the CNI cache: pod default/pod1",
    ];
    assert!(
        evidence.iter().all(|e| explained.contains(e)),
        "{explained}"
    );
    sh("rm /run/azure-vnet-ipam.json /run/.azure-vnet-ipam.backup");
    assert!(!crio.run_pod(2));
    assert_eq!(crio.host.held(), pod);

    // When it starts, CRI-O calls CHECK for each pod and GC for each network. The plugin bridge does not pass GC on.
    crio.kill();
    let (_, conflist) = examples().into_iter().find(|e| e.0 == "cnitool").unwrap();
    fs::write("/etc/cni/net.d/cnitool.conflist", conflist.to_string()).unwrap();
    let conf = json!({ "cniVersion": "1.1.0", "name": conflist["name"] });
    // The quarantine is over 60 s later.
    add_later(60, &crio.host, "dead", &conf.to_string());
    assert_eq!(crio.host.held().len(), 2);
    crio.run_later(3700);
    wait_until("the GC", || calls("GC") == 1);
    assert_eq!(crio.host.held(), pod);
    assert_eq!(calls("CHECK"), 2);

    crio.remove_pods();
    assert!(crio.host.held().is_empty());

    // When it starts, CRI-O calls DEL for each pod in libcni's cache that it no longer knows.
    assert!(crio.run_pod(3));
    assert_eq!(crio.host.held().len(), 1);
    crio.kill();
    sh(&format!("rm -r {STORAGE}/vfs-containers"));
    crio.run();
    wait_until("the DEL", || crio.host.held().is_empty());
}
