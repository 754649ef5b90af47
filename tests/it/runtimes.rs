//! Runtimes with real pods on the shipped bridge conflist: `ctr run --cni`, and the CRI of containerd and CRI-O while
//! they are killed. `kubelet` has more tests of the CRI.

mod crio;

use std::fmt::Display;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::callers::{Host, later, tool};
use crate::harness::wait::{Process, output, wait_until};
use crate::harness::{Reply, conf, held, package, run, sh, sh_with, skip, xml_of};
use crate::privileged::{in_private_namespaces_with_all_processes, only_in};

pub const SOCKET: &str = "/run/cri.sock";
pub const IMAGE: &str = "docker.io/local/pause:1";

/// The version of the installed containerd, such as [1, 6].
fn containerd_version() -> Vec<u32> {
    let version = output(Command::new(tool("containerd")).arg("--version"));
    let text = String::from_utf8(version.stdout).unwrap();
    let numbers = text.split_whitespace().nth(2).unwrap().split('.').take(2);
    numbers
        .map(|n| n.trim_start_matches('v').parse().unwrap())
        .collect()
}

/// Only containerd 2 supports CNI 1.1.0.
pub fn is_containerd_2() -> bool {
    containerd_version() >= vec![2]
}

/// The snapshotter for pods. That of containerd 2 supports pods with their own user namespaces. The other one works
/// on every file system.
pub fn snapshotter() -> &'static str {
    if is_containerd_2() {
        "overlayfs"
    } else {
        "native"
    }
}

/// The configuration of a containerd that has its files below `folder`.
pub fn containerd_config(folder: &dyn Display) -> String {
    let snapshotter = snapshotter();
    format!(
        r#"version = 2
root = "{folder}/root"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{IMAGE}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
"#
    )
}

/// Installs the plugins and the shipped bridge conflist for a runtime.
pub fn install_network(host: &Host, has_cni_1_1: bool) {
    sh_with("cp -L \"$1\"/bin/* /opt/cni/bin/", &[&host.folder]);
    let conflist = package().join("testdata/bridge.conflist");
    let conflist = fs::read_to_string(conflist).unwrap();
    let conflist = if has_cni_1_1 {
        conflist
    } else {
        conflist.replace("1.1.0", "1.0.0")
    };
    fs::write("/etc/cni/net.d/bridge.conflist", conflist).unwrap();
    // Bridged pods are subject to the host's firewall rules.
    sh("sysctl -qw net.bridge.bridge-nf-call-iptables=0 2>/dev/null || true");
}

/// Runs `ctr` on the containers of the CRI.
#[track_caller]
pub fn ctr(args: &[&str]) -> String {
    let mut ctr = Command::new(tool("ctr"));
    let done = output(ctr.args(["-a", SOCKET, "-n", "k8s.io"]).args(args));
    assert!(done.status.success(), "{args:?}: {done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// Builds the image of all pods, as an archive.
fn build_pause_image(folder: &Path) -> PathBuf {
    let archive = folder.join("pause.tar");
    let build = package().join("tests/kubelet/pause-image");
    sh_with("\"$1\" \"$2\"", &[&build, &archive]);
    archive
}

/// Builds the image of all pods, and imports it into containerd.
pub fn import_pause_image(folder: &Path) {
    let archive = build_pause_image(folder);
    ctr(&["images", "import", archive.to_str().unwrap()]);
}

/// Kills the shims and their pods, which outlive the daemon. Only this test's shims are in its network namespace.
pub fn kill_shims() {
    sh(
        "here=$(readlink /proc/self/ns/net); for shim in $(pgrep containerd-shim); do \
        if [ \"$(readlink /proc/$shim/ns/net)\" = \"$here\" ]; then kill -9 $(pgrep -P $shim) $shim; fi; done; true",
    );
}

/// A runtime with its own folders, on a node in its own namespaces.
struct Runtime {
    host: Host,
    daemon: &'static str,
    process: Option<Process>,
}

impl Runtime {
    /// Starts containerd. Must be called in private mount and network namespaces.
    fn containerd(last: impl IntoIterator<Item = u16>) -> Runtime {
        let mut containerd = Runtime::new("containerd", is_containerd_2(), last);
        let config = containerd_config(&containerd.host.folder.display());
        fs::write(containerd.config(), config).unwrap();
        containerd.run();
        import_pause_image(&containerd.host.folder);
        containerd
    }

    fn new(
        daemon: &'static str,
        has_cni_1_1: bool,
        last: impl IntoIterator<Item = u16>,
    ) -> Runtime {
        let host = Host::new(last);
        for (place, content) in [("/etc/cni", "net.d"), ("/opt/cni", "bin")] {
            sh(&format!(
                "mkdir -p {place} && mount -t tmpfs none {place} && mkdir {place}/{content}"
            ));
        }
        install_network(&host, has_cni_1_1);
        Runtime {
            host,
            daemon,
            process: None,
        }
    }

    fn config(&self) -> PathBuf {
        self.host.folder.join("config.toml")
    }

    fn log(&self) -> PathBuf {
        self.host.folder.join("daemon.log")
    }

    /// Starts the daemon and waits until it answers.
    fn run(&mut self) {
        self.run_later(0);
    }

    /// Starts the daemon with the boot clock `seconds` ahead.
    fn run_later(&mut self, seconds: u64) {
        let log = fs::File::create(self.log()).unwrap();
        let mut daemon = match seconds {
            0 => Command::new(tool(self.daemon)),
            _ => later(seconds, &tool(self.daemon)),
        };
        daemon.arg("-c").arg(self.config());
        self.process = Some(Process::start(daemon.stdout(Stdio::null()).stderr(log)));
        wait_until("the CRI to answer", || {
            self.crictl(&["info"]).status.success()
        });
    }

    fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }

    fn crictl(&self, args: &[&str]) -> Output {
        let socket = format!("unix://{SOCKET}");
        let mut crictl = Command::new(tool("crictl"));
        crictl.args(["-r", &socket, "-i", &socket, "-t", "60s"]);
        output(crictl.args(args))
    }

    /// Creates a pod as kubelet does. Its containers share no processes. Returns whether it runs.
    fn run_pod(&self, n: usize) -> bool {
        self.run_pod_with(
            n,
            json!({ "security_context": { "namespace_options": { "pid": 1 } } }),
        )
    }

    fn run_pod_with(&self, n: usize, linux: Value) -> bool {
        let path = self.host.folder.join(format!("pod{n}.json"));
        let pod = json!({
            "metadata": { "name": format!("pod{n}"), "namespace": "default", "uid": format!("uid{n}"), "attempt": 1 },
            "log_directory": "/tmp",
            "linux": linux,
        });
        fs::write(&path, pod.to_string()).unwrap();
        let done = self.crictl(&["runp", path.to_str().unwrap()]);
        println!("{done:?}");
        done.status.success()
    }

    /// Whether the network is ready, and the reason if it is not.
    fn network(&self) -> (bool, String) {
        let info: Value = serde_json::from_slice(&self.crictl(&["info"]).stdout).unwrap();
        let mut conditions = info["status"]["conditions"].as_array().unwrap().iter();
        let network = conditions.find(|c| c["type"] == "NetworkReady").unwrap();
        (network["status"] == true, network["message"].to_string())
    }

    fn remove_pods(&self) {
        for verb in ["stopp", "rmp"] {
            let pods = self.crictl(&["pods", "-q"]).stdout;
            for id in str::from_utf8(&pods).unwrap().lines() {
                let done = self.crictl(&[verb, id]);
                assert!(done.status.success(), "{verb} {id}: {done:?}");
            }
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("{}", fs::read_to_string(self.log()).unwrap_or_default());
        }
        drop(self.process.take());
        kill_shims();
        // CRI-O does not remove the control groups of pods that ran when it was killed.
        sh(
            "for id in $(grep -o ' ADD container [^ ]*' /var/log/azure-vnet-ipam.log | cut -d' ' -f4); do \
            rmdir /sys/fs/cgroup/crio-$id /sys/fs/cgroup/*/crio-$id 2>/dev/null; done; true",
        );
    }
}

#[test]
#[ignore = "needs root, containerd, runc, crictl and the plugin bridge"]
fn ctr_container_gets_an_address() {
    only_in!(in_private_namespaces_with_all_processes);
    let host = &Runtime::containerd([5, 6]).host;
    // The name must be unique, because the machine's control groups use it too.
    let name = &*format!("one-{}", std::process::id());
    let run = ["run", "-d", "--cni", "--snapshotter", snapshotter()];
    ctr(&[&run[..], &[IMAGE, name]].concat());
    let address = host.subnets.ipv4(5);
    assert_eq!(host.held(), [address.as_str()]);
    let tasks = ctr(&["tasks", "ls"]);
    let pid = tasks.lines().find_map(|line| {
        let (task, rest) = line.split_once(' ')?;
        (task == name).then(|| rest.split_whitespace().next().unwrap())
    });
    let addresses = sh(&format!("nsenter -t {} -n ip addr", pid.unwrap()));
    assert!(addresses.contains(&format!("{address}/24")), "{addresses}");
    ctr(&["tasks", "kill", "-s", "KILL", name]);
    wait_until("the container to stop", || {
        ctr(&["tasks", "ls"]).contains("STOPPED")
    });
    ctr(&["tasks", "rm", name]);
    ctr(&["containers", "rm", name]);
    // Version 1.6 of this client sends no DEL, so the address needs a reclaim.
    assert_eq!(host.held().is_empty(), containerd_version() > vec![1, 6]);
}

#[test]
#[ignore = "needs root, containerd, runc, crictl and the plugin bridge"]
fn killed_containerd_leaks_no_address() {
    only_in!(in_private_namespaces_with_all_processes);
    kill_again_and_again(Runtime::containerd(ADDRESSES));
}

/// The last bytes of addresses for a runtime that is killed again and again. Until a reclaim, each of its pods may hold one.
const ADDRESSES: Range<u16> = 5..50;

/// Kills a runtime while it creates pods. Afterwards each of its addresses can be allocated.
fn kill_again_and_again(mut runtime: Runtime) {
    for (round, delay) in [30, 60, 90, 120, 200, 400].into_iter().enumerate() {
        runtime.remove_pods();
        let daemon = runtime.process.as_ref().unwrap().id();
        thread::scope(|scope| {
            for n in 0..6 {
                let runtime = &runtime;
                scope.spawn(move || runtime.run_pod(round * 10 + n));
            }
            // Kill at a different moment each time.
            thread::sleep(Duration::from_millis(delay));
            let daemon = Pid::from_raw(daemon.cast_signed()).unwrap();
            kill_process(daemon, Signal::KILL).unwrap();
        });
        runtime.kill();
        runtime.run();
    }
    runtime.remove_pods();
    // From here on, no DEL is sent for these pods: the runtime has lost its data.
    for n in 100..104 {
        // The plugin bridge fails while the kernel removes links from its bridge.
        wait_until("a pod", || runtime.run_pod(n));
    }
    assert!(runtime.host.held().len() >= 4);
    runtime.kill();
    kill_shims();
    sh("for n in /run/netns/*; do umount \"$n\"; rm \"$n\"; done");
    // The kernel destroys namespaces, and their links on the host, with a delay.
    wait_until("the end of all links", || {
        sh("ip -o link show type veth master azbr0").is_empty()
    });
    // An hour later every address can be allocated again.
    for n in ADDRESSES {
        let conf = conf("1.0.0", json!({}));
        add_later(3700, &runtime.host, &format!("new{n}"), &conf);
    }
    let state = fs::read("/run/azure-vnet-ipam.json").unwrap();
    let holders = held(&serde_json::from_slice(&state).unwrap());
    assert!(
        holders.values().all(|id| id.starts_with("new")),
        "{holders:?}"
    );
    assert_eq!(holders.len(), ADDRESSES.len(), "{holders:?}");
}

/// Runs an ADD of a container without a network namespace, with the boot clock `seconds` ahead.
fn add_later(seconds: u64, host: &Host, id: &str, conf: &str) {
    let mut add = later(seconds, &host.folder.join("bin/azure-vnet-ipam"));
    add.envs([
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", id),
        ("CNI_NETNS", "/run/netns/none"),
        ("CNI_IFNAME", "eth0"),
    ]);
    run(&mut add, conf).success();
}

/// Returns from the test when containerd is version 1.
macro_rules! only_with_containerd_2 {
    () => {
        if !is_containerd_2() {
            skip("this is containerd 1");
            return;
        }
    };
}

#[test]
#[ignore = "needs root, containerd 2, runc, crictl and the plugin bridge"]
fn status_reports_a_node_without_pools_to_containerd_2() {
    only_with_containerd_2!();
    only_in!(in_private_namespaces_with_all_processes);
    let containerd = Runtime::containerd([5]);
    wait_until("a ready network", || containerd.network().0);
    let wire = &containerd.host.wire;
    wire.set(Reply::Status(500, String::new()));
    wait_until("the reason why the network is not ready", || {
        let (is_ready, why) = containerd.network();
        !is_ready && why.contains("status 500")
    });
    wire.set(Reply::Xml(xml_of(containerd.host.subnets.ipv4, [5])));
    wait_until("a network that is ready again", || containerd.network().0);
    assert!(containerd.run_pod(1));
    // The state has pools, so the network is ready even when the source fails.
    wire.set(Reply::Status(500, String::new()));
    // This is longer than two intervals of containerd's STATUS calls.
    thread::sleep(Duration::from_secs(11));
    assert!(containerd.network().0);
    containerd.remove_pods();
    assert!(containerd.host.held().is_empty());
}

#[test]
#[ignore = "needs root, containerd 2, runc 1.2, crictl and the plugin bridge"]
fn pod_with_a_user_namespace_is_found() {
    only_with_containerd_2!();
    only_in!(in_private_namespaces_with_all_processes);
    let containerd = Runtime::containerd([5, 6]);
    let ids = json!([{ "host_id": 1_000_000, "container_id": 0, "length": 65536 }]);
    let users = json!({ "mode": 0, "uids": ids, "gids": ids });
    let linux = json!({ "security_context": { "namespace_options": { "userns_options": users } } });
    assert!(containerd.run_pod_with(1, linux));
    let before = containerd.host.held();
    let id = String::from_utf8(containerd.crictl(&["pods", "-q"]).stdout).unwrap();
    let pod = containerd.crictl(&["inspectp", id.trim()]).stdout;
    let pod: Value = serde_json::from_slice(&pod).unwrap();
    let map = fs::read_to_string(format!("/proc/{}/uid_map", pod["info"]["pid"])).unwrap();
    assert!(map.contains(" 1000000 "), "{map}");
    // Without state and backup, only the node shows that the pod has its address. New addresses are not allocated at
    // once.
    sh("rm /run/azure-vnet-ipam.json /run/.azure-vnet-ipam.backup");
    assert!(!containerd.run_pod(2));
    assert_eq!(containerd.host.held(), before);
    containerd.remove_pods();
    assert!(containerd.host.held().is_empty());
}
