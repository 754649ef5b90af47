//! containerd with real pods: `ctr run --cni`, and the CRI through crictl, on the shipped bridge conflist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::callers::{Host, tool};
use crate::harness::{held, sh};
use crate::privileged::in_private_namespaces;

const IMAGE: &str = "local/pause:1";

/// A containerd with folders of its own, on a node in namespaces of its own.
struct Containerd {
    host: Host,
    process: Option<Child>,
}

impl Containerd {
    /// Must be called in mount and network namespaces of its own.
    fn start(last: impl IntoIterator<Item = u16>) -> Containerd {
        let host = Host::new(last);
        let folder = host.folder.clone();
        // What containerd's own client looks up in fixed places.
        for (place, content) in [("/etc/cni", "net.d"), ("/opt/cni", "bin")] {
            sh(&format!("mkdir -p {place} && mount -t tmpfs none {place}"));
            sh(&format!(
                "mkdir {place}/{content} && cp -L {}/{content}/* {place}/{content}/",
                folder.display()
            ));
        }
        // The one network of these pods.
        sh("cd /etc/cni/net.d && ls | grep -v '^bridge.conflist$' | xargs rm -f");
        // This containerd is older than 1.1.0.
        sh("sed -i 's/1\\.1\\.0/1.0.0/' /etc/cni/net.d/bridge.conflist");
        // Bridged pods talk to each other through the host's rules where there are any.
        sh("sysctl -qw net.bridge.bridge-nf-call-iptables=0 2>/dev/null || true");
        let config = format!(
            r#"version = 2
root = "{folder}/root"
state = "/run/containerd"
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{IMAGE}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
"#,
            folder = folder.display()
        );
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

    /// Starts the daemon, and waits until it answers.
    fn run(&mut self) {
        let log = fs::File::create(self.host.folder.join("containerd.log")).unwrap();
        let process = Command::new(tool("containerd"))
            .arg("-c")
            .arg(self.host.folder.join("config.toml"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
        let start = Instant::now();
        while !self.crictl(&["info"]).status.success() {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "containerd does not start: {}",
                self.log()
            );
            thread::sleep(Duration::from_millis(100));
        }
        // Pods can be made when the network is ready.
        let ready = || {
            let info = self.crictl(&["info"]);
            let info: Value = serde_json::from_slice(&info.stdout).unwrap_or_default();
            let conditions = info["status"]["conditions"].as_array().cloned();
            conditions
                .unwrap_or_default()
                .iter()
                .any(|c| c["type"] == "NetworkReady" && c["status"] == true)
        };
        while !ready() {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "the network is not ready: {}",
                self.log()
            );
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.host.folder.join("containerd.log")).unwrap_or_default()
    }

    fn ctr(&self, args: &[&str]) -> String {
        let output = Command::new(tool("ctr"))
            .args(["-a", "/run/containerd.sock", "-n", "k8s.io"])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn crictl(&self, args: &[&str]) -> Output {
        const SOCKET: &str = "unix:///run/containerd.sock";
        Command::new(tool("crictl"))
            .args(["-r", SOCKET, "-i", SOCKET, "-t", "60s"])
            .args(args)
            .output()
            .unwrap()
    }

    /// Makes a pod; gives its ID.
    fn run_pod(&self, n: usize) -> Result<String, String> {
        let path = self.host.folder.join(format!("pod{n}.json"));
        let pod = json!({
            "metadata": { "name": format!("pod{n}"), "namespace": "default", "uid": format!("uid{n}"), "attempt": 1 },
            "log_directory": "/tmp",
            "linux": {},
        });
        fs::write(&path, pod.to_string()).unwrap();
        let output = self.crictl(&["runp", path.to_str().unwrap()]);
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
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

    /// An ADD by hand, an hour later by the boot clock.
    fn add_an_hour_later(&self, container_id: &str) {
        let conf = json!({ "cniVersion": "1.0.0", "name": "azure-bridge", "ipam": { "type": "azure-vnet-ipam" } });
        sh(&format!(
            "echo '{conf}' | CNI_COMMAND=ADD CNI_CONTAINERID={container_id} CNI_NETNS=/run/netns/none CNI_IFNAME=eth0 \
             unshare --time --boottime 3700 --fork {}/bin/azure-vnet-ipam",
            self.host.folder.display()
        ));
    }

    /// Container ID by address, of all that are held.
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
        if let Some(mut process) = self.process.take() {
            if thread::panicking() {
                println!("{}", self.log());
            }
            let _ = process.kill();
            let _ = process.wait();
        }
        kill_shims();
    }
}

/// The shims, and with them the pods, outlive the daemon. Those of this test alone are in its network namespace.
fn kill_shims() {
    sh(
        "here=$(readlink /proc/self/ns/net); for shim in $(pgrep containerd-shim); do \
        if [ \"$(readlink /proc/$shim/ns/net)\" = \"$here\" ]; then kill -9 $(pgrep -P $shim) $shim; fi; done; true",
    );
}

/// An image with one file, which does nothing for ever.
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
    sh(&format!("set -e; cd {}; {build}", folder.display()));
    folder.join("pause.tar")
}

/// What libcni remembers of our network's attachments; it remembers loopback's too.
fn cached() -> Vec<String> {
    let entries = fs::read_dir("/var/lib/cni/results").into_iter().flatten();
    entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("azure-bridge-"))
        .collect()
}

#[test]
#[ignore = "needs root, containerd, runc, crictl and the plugin bridge"]
fn twenty_pods_at_once_under_the_cri() {
    if !in_private_namespaces("runtimes::twenty_pods_at_once_under_the_cri") {
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
        sh(&format!("nsenter --net={netns} ping -c 1 -W 5 {other}"));
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
fn a_container_of_ctr() {
    if !in_private_namespaces("runtimes::a_container_of_ctr") {
        return;
    }
    let containerd = Containerd::start([5, 6]);
    let image = containerd.ctr(&["images", "ls", "-q"]);
    let image = image.lines().find(|i| i.contains("pause")).unwrap();
    containerd.ctr(&[
        "run",
        "-d",
        "--cni",
        "--snapshotter",
        "native",
        image,
        "one",
    ]);
    assert_eq!(containerd.host.held(), ["10.224.0.5"]);
    let pid = containerd.ctr(&["tasks", "ls"]);
    let pid = pid.lines().find_map(|l| {
        let mut fields = l.split_whitespace();
        (fields.next() == Some("one")).then(|| fields.next().unwrap().to_owned())
    });
    let shown = sh(&format!("nsenter -t {} -n ip addr", pid.unwrap()));
    assert!(shown.contains("10.224.0.5/16"), "{shown}");
    containerd.ctr(&["tasks", "kill", "-s", "KILL", "one"]);
    let start = Instant::now();
    while !containerd.ctr(&["tasks", "ls"]).contains("STOPPED") {
        assert!(start.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(50));
    }
    containerd.ctr(&["tasks", "rm", "one"]);
    containerd.ctr(&["containers", "rm", "one"]);
    // This client sends no DEL. The address is nobody's, and comes back when it is needed and long gone.
    assert_eq!(containerd.host.held(), ["10.224.0.5"]);
    containerd.add_an_hour_later("new0");
    containerd.add_an_hour_later("new1");
    let holders = containerd.holders();
    assert_eq!(holders.len(), 2, "{holders:?}");
    assert_eq!(holders["10.224.0.5"], "new1", "{holders:?}");
}

#[test]
#[ignore = "needs root, containerd, runc, crictl and the plugin bridge"]
fn a_containerd_killed_while_pods_are_made_leaks_nothing() {
    if !in_private_namespaces("runtimes::a_containerd_killed_while_pods_are_made_leaks_nothing") {
        return;
    }
    let mut containerd = Containerd::start(5..15);
    for (round, delay) in [30, 60, 90, 120, 200, 400].into_iter().enumerate() {
        thread::scope(|scope| {
            for n in 0..6 {
                let containerd = &containerd;
                scope.spawn(move || containerd.run_pod(round * 10 + n));
            }
            thread::sleep(Duration::from_millis(delay));
            sh("pkill -9 -x containerd");
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
    // One that loses its memory: nobody will ever send a DEL for these.
    for n in 100..104 {
        containerd.run_pod(n).unwrap();
    }
    let before = containerd.host.held().len();
    containerd.kill();
    kill_shims();
    sh("for n in /run/netns/cni-*; do umount \"$n\"; rm \"$n\"; done");
    // The kernel tears namespaces down in its own time, and the links on the host go with them.
    sh("while ip -o link show type veth master azbr0 | grep -q .; do sleep 0.05; done");
    assert_eq!(containerd.host.held().len(), before);
    assert!(before >= 4);
    // An hour later every address can be had again.
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
