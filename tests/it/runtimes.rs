//! containerd with real pods: `ctr run --cni`, and the CRI through crictl, on the shipped bridge conflist.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::callers::{Host, later, tool};
use crate::harness::wait::{Process, output, wait_until};
use crate::harness::{held, run, sh, sh_with, wait_for_ping};
use crate::privileged::in_private_namespaces_with_all_processes;

const IMAGE: &str = "local/pause:1";

/// Whether the containerd that is found is a version 2.
fn is_containerd_2() -> bool {
    let version = output(Command::new(tool("containerd")).arg("--version"));
    String::from_utf8_lossy(&version.stdout).contains("containerd/v2 ")
}

/// The snapshotter of the pods: in containerd 2 the one that lets them have users of their own, else one that works on every file
/// system.
pub fn snapshotter() -> &'static str {
    match is_containerd_2() {
        true => "overlayfs",
        false => "native",
    }
}

/// The configuration of a containerd whose files are below `folder`, and whose sandboxes run `image`.
pub fn containerd_config(folder: &dyn Display, socket: &str, image: &str) -> String {
    let snapshotter = snapshotter();
    format!(
        r#"version = 2
root = "{folder}/root"
state = "/run/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{image}"
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

/// A containerd with folders of its own, on a node in namespaces of its own.
struct Containerd {
    host: Host,
    process: Option<Process>,
}

impl Containerd {
    /// Must be called in private mount and network namespaces.
    fn start(last: impl IntoIterator<Item = u16>) -> Containerd {
        let host = Host::new(last);
        let folder = host.folder.clone();
        // containerd's client uses fixed paths.
        for (place, content) in [("/etc/cni", "net.d"), ("/opt/cni", "bin")] {
            sh(&format!("mkdir -p {place} && mount -t tmpfs none {place}"));
            let copy =
                format!("mkdir {place}/{content} && cp -L \"$1\"/{content}/* {place}/{content}/");
            sh_with(&copy, &[&folder]);
        }
        // The only network of these pods.
        sh("cd /etc/cni/net.d && ls | grep -v '^bridge.conflist$' | xargs rm -f");
        // This containerd does not support CNI 1.1.0.
        sh("sed -i 's/1\\.1\\.0/1.0.0/' /etc/cni/net.d/bridge.conflist");
        // Bridged pods are subject to the host's firewall rules.
        sh("sysctl -qw net.bridge.bridge-nf-call-iptables=0 2>/dev/null || true");
        let config = containerd_config(&folder.display(), "/run/containerd.sock", IMAGE);
        fs::write(folder.join("config.toml"), config).unwrap();
        let mut containerd = Containerd {
            host,
            process: None,
        };
        containerd.run();
        let image = make_image(&folder);
        containerd.ctr(&["images", "import", image.to_str().unwrap()]);
        containerd
    }

    /// Starts the daemon and waits until it answers.
    fn run(&mut self) {
        let log = fs::File::create(self.host.folder.join("containerd.log")).unwrap();
        let mut daemon = Command::new(tool("containerd"));
        daemon.arg("-c").arg(self.host.folder.join("config.toml"));
        self.process = Some(Process::start(daemon.stdout(Stdio::null()).stderr(log)));
        wait_until("containerd to answer", || {
            self.crictl(&["info"]).status.success()
        });
        // Pods can be created when the network is ready.
        let ready = || {
            let info = self.crictl(&["info"]);
            let info: Value = serde_json::from_slice(&info.stdout).unwrap_or_default();
            let conditions = info["status"]["conditions"].as_array().cloned();
            conditions
                .unwrap_or_default()
                .iter()
                .any(|c| c["type"] == "NetworkReady" && c["status"] == true)
        };
        wait_until("the network of containerd to be ready", ready);
    }

    fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.host.folder.join("containerd.log")).unwrap_or_default()
    }

    fn ctr(&self, args: &[&str]) -> String {
        let mut ctr = Command::new(tool("ctr"));
        ctr.args(["-a", "/run/containerd.sock", "-n", "k8s.io"]);
        let output = output(ctr.args(args));
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn crictl(&self, args: &[&str]) -> Output {
        const SOCKET: &str = "unix:///run/containerd.sock";
        let mut crictl = Command::new(tool("crictl"));
        crictl.args(["-r", SOCKET, "-i", SOCKET, "-t", "60s"]);
        output(crictl.args(args))
    }

    /// Creates a pod and returns its ID.
    fn run_pod(&self, n: usize) -> Result<String, String> {
        let path = self.host.folder.join(format!("pod{n}.json"));
        let pod = json!({
            "metadata": { "name": format!("pod{n}"), "namespace": "default", "uid": format!("uid{n}"), "attempt": 1 },
            "log_directory": "/tmp",
            "linux": {},
        });
        fs::write(&path, pod.to_string()).unwrap();
        // The bridge plugin fails when a port of its bridge is removed at the same moment. kubelet would retry, and so does this,
        // unless our ADD failed.
        const OF_THE_MAIN_PLUGIN: &str = "failed (add)";
        const MOST: usize = 5;
        let our_failures = || {
            let log = fs::read_to_string("/var/log/azure-vnet-ipam.log").unwrap_or_default();
            log.matches("ADD failed in").count()
        };
        let before = our_failures();
        let mut result = Err(String::new());
        for _ in 0..MOST {
            let output = self.crictl(&["runp", path.to_str().unwrap()]);
            result = match output.status.success() {
                true => Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned()),
                false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            };
            let is_theirs =
                |error: &String| error.contains(OF_THE_MAIN_PLUGIN) && our_failures() == before;
            if !result.as_ref().is_err_and(is_theirs) {
                break;
            }
        }
        result
    }

    /// The address and the network namespace of a pod.
    fn inspect(&self, id: &str) -> (String, String) {
        let output = self.crictl(&["inspectp", "-o", "json", id]);
        let pod: Value = serde_json::from_slice(&output.stdout).unwrap();
        let address = pod["status"]["network"]["ip"].as_str().unwrap().to_owned();
        let namespaces = pod["info"]["runtimeSpec"]["linux"]["namespaces"]
            .as_array()
            .unwrap();
        let network = namespaces.iter().find(|n| n["type"] == "network").unwrap();
        (address, network["path"].as_str().unwrap().to_owned())
    }

    fn remove_pod(&self, id: &str) {
        for verb in ["stopp", "rmp"] {
            let output = self.crictl(&[verb, id]);
            assert!(output.status.success(), "{verb} {id}: {output:?}");
        }
    }

    /// Runs an ADD by hand with the boot clock one hour ahead.
    fn add_an_hour_later(&self, container_id: &str) {
        let conf = json!({ "cniVersion": "1.0.0", "name": "azure-bridge", "ipam": { "type": "azure-vnet-ipam" } });
        let mut add = later(3700, &self.host.folder.join("bin/azure-vnet-ipam"));
        add.envs([
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", container_id),
            ("CNI_NETNS", "/run/netns/none"),
            ("CNI_IFNAME", "eth0"),
        ]);
        run(&mut add, &conf.to_string()).success();
    }

    /// Container ID by address, for all held addresses.
    fn holders(&self) -> BTreeMap<String, String> {
        let state = fs::read("/run/azure-vnet-ipam.json").unwrap();
        held(&serde_json::from_slice(&state).unwrap())
    }

    fn pods(&self) -> Vec<String> {
        let output = self.crictl(&["pods", "-q"]);
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("{}", self.log());
        }
        drop(self.process.take());
        kill_shims();
    }
}

/// Kills the shims, which outlive the daemon with their pods. Only this test's shims are in its network namespace.
pub fn kill_shims() {
    sh(
        "here=$(readlink /proc/self/ns/net); for shim in $(pgrep containerd-shim); do \
        if [ \"$(readlink /proc/$shim/ns/net)\" = \"$here\" ]; then kill -9 $(pgrep -P $shim) $shim; fi; done; true",
    );
}

/// Creates an image with one program that sleeps for ever.
fn make_image(folder: &Path) -> PathBuf {
    let build = r#"
        mkdir -p image/layer && cd image
        echo 'fn main() { loop { std::thread::park() } }' >pause.rs
        rustc -O --target "$(uname -m)-unknown-linux-musl" -o layer/pause pause.rs
        tar -C layer -cf layer.tar pause
        sum=$(sha256sum layer.tar | cut -d' ' -f1)
        arch=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
        echo '{"architecture":"'$arch'","os":"linux","config":{"Entrypoint":["/pause"]},"rootfs":{"type":"layers","diff_ids":["sha256:'$sum'"]}}' >config.json
        echo '[{"Config":"config.json","RepoTags":["local/pause:1"],"Layers":["layer.tar"]}]' >manifest.json
        tar -cf ../pause.tar manifest.json config.json layer.tar
    "#;
    sh_with(&format!("set -e; cd \"$1\"; {build}"), &[folder]);
    folder.join("pause.tar")
}

/// libcni's cache entries of our network, without those of loopback.
fn cached() -> Vec<String> {
    let entries = fs::read_dir("/var/lib/cni/results").into_iter().flatten();
    entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("azure-bridge-"))
        .collect()
}

#[test]
#[ignore = "needs root, containerd, runc, crictl and the plugin bridge"]
fn cri_starts_and_removes_twenty_pods_at_once() {
    if !in_private_namespaces_with_all_processes(
        "runtimes::cri_starts_and_removes_twenty_pods_at_once",
    ) {
        return;
    }
    let containerd = Containerd::start(5..35);
    let pods: Vec<(String, (String, String))> = thread::scope(|scope| {
        let starting: Vec<_> = (0..20)
            .map(|n| {
                let containerd = &containerd;
                scope.spawn(move || {
                    let id = containerd.run_pod(n).unwrap();
                    let about = containerd.inspect(&id);
                    (id, about)
                })
            })
            .collect();
        starting.into_iter().map(|s| s.join().unwrap()).collect()
    });
    let addresses: BTreeSet<_> = pods
        .iter()
        .map(|(_, (address, _))| address.clone())
        .collect();
    assert_eq!(addresses.len(), 20, "{pods:?}");
    let held: BTreeSet<_> = containerd.host.held().into_iter().collect();
    assert_eq!(held, addresses);
    for ((_, (_, netns)), (_, (other, _))) in pods.iter().zip(pods.iter().cycle().skip(1)) {
        wait_for_ping(&format!("nsenter --net={netns}"), other);
    }
    assert_eq!(cached().len(), 20);
    thread::scope(|scope| {
        for (id, _) in &pods {
            scope.spawn(|| containerd.remove_pod(id));
        }
    });
    assert_eq!(containerd.host.held(), [""; 0]);
    assert_eq!(cached(), [""; 0]);
}

#[test]
#[ignore = "needs root, containerd, runc, crictl and the plugin bridge"]
fn ctr_container_gets_an_address() {
    if !in_private_namespaces_with_all_processes("runtimes::ctr_container_gets_an_address") {
        return;
    }
    let containerd = Containerd::start([5, 6]);
    let image = containerd.ctr(&["images", "ls", "-q"]);
    let image = image.lines().find(|i| i.contains("pause")).unwrap();
    // The name also appears in the machine's control groups.
    let name = &*format!("one-{}", std::process::id());
    containerd.ctr(&[
        "run",
        "-d",
        "--cni",
        "--snapshotter",
        snapshotter(),
        image,
        name,
    ]);
    let address = containerd.host.subnets.ipv4(5);
    assert_eq!(containerd.host.held(), [address.as_str()]);
    let pid = containerd.ctr(&["tasks", "ls"]);
    let pid = pid.lines().find_map(|l| {
        let mut fields = l.split_whitespace();
        (fields.next() == Some(name)).then(|| fields.next().unwrap().to_owned())
    });
    let addresses = sh(&format!("nsenter -t {} -n ip addr", pid.unwrap()));
    assert!(addresses.contains(&format!("{address}/24")), "{addresses}");
    containerd.ctr(&["tasks", "kill", "-s", "KILL", name]);
    wait_until("the container to stop", || {
        containerd.ctr(&["tasks", "ls"]).contains("STOPPED")
    });
    containerd.ctr(&["tasks", "rm", name]);
    containerd.ctr(&["containers", "rm", name]);
    if is_containerd_2() {
        // This client sends a DEL before the signal.
        assert_eq!(containerd.host.held(), [""; 0]);
        return;
    }
    // This client sends no DEL. The address is reclaimed when it is needed and long dead.
    assert_eq!(containerd.host.held(), [address.as_str()]);
    containerd.add_an_hour_later("new0");
    containerd.add_an_hour_later("new1");
    let holders = containerd.holders();
    assert_eq!(holders.len(), 2, "{holders:?}");
    assert_eq!(holders[&address], "new1", "{holders:?}");
}

#[test]
#[ignore = "needs root, containerd, runc, crictl and the plugin bridge"]
fn killed_containerd_leaks_no_address() {
    if !in_private_namespaces_with_all_processes("runtimes::killed_containerd_leaks_no_address") {
        return;
    }
    let mut containerd = Containerd::start(5..15);
    for (round, delay) in [30, 60, 90, 120, 200, 400].into_iter().enumerate() {
        let daemon =
            Pid::from_raw(containerd.process.as_ref().unwrap().id().cast_signed()).unwrap();
        thread::scope(|scope| {
            for n in 0..6 {
                let containerd = &containerd;
                scope.spawn(move || containerd.run_pod(round * 10 + n));
            }
            // Kill at a different moment each time.
            thread::sleep(Duration::from_millis(delay));
            kill_process(daemon, Signal::KILL).unwrap();
        });
        containerd.kill();
        let held = containerd.host.held().len();
        containerd.run();
        for id in containerd.pods() {
            containerd.remove_pod(&id);
        }
        assert_eq!(containerd.pods(), [""; 0]);
        println!(
            "killed after {delay} ms, {held} addresses held then: {} addresses forgotten so far",
            containerd.host.held().len()
        );
    }
    // A containerd that lost its data never sends a DEL for these pods.
    for n in 100..104 {
        containerd.run_pod(n).unwrap();
    }
    let before = containerd.host.held().len();
    containerd.kill();
    kill_shims();
    sh("for n in /run/netns/cni-*; do umount \"$n\"; rm \"$n\"; done");
    // The kernel destroys namespaces, and their links on the host, with a delay.
    wait_until("the end of all links", || {
        sh("ip -o link show type veth master azbr0").is_empty()
    });
    assert_eq!(containerd.host.held().len(), before);
    assert!(before >= 4);
    // An hour later every address can be allocated again.
    for n in 0..10 {
        containerd.add_an_hour_later(&format!("new{n}"));
    }
    let holders = containerd.holders();
    assert!(
        holders.values().all(|id| id.starts_with("new")),
        "{holders:?}"
    );
    assert_eq!(holders.len(), 10, "{holders:?}");
}
