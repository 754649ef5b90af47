//! containerd with a container that `ctr run --cni` started, on the shipped bridge conflist. `kubelet` has pods of the CRI.

use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::callers::{Host, tool};
use crate::harness::wait::{Process, output, wait_until};
use crate::harness::{package, sh, sh_with};
use crate::privileged::{in_private_namespaces_with_all_processes, only_in};

pub const SOCKET: &str = "/run/containerd.sock";
pub const IMAGE: &str = "docker.io/local/pause:1";

/// The snapshotter of the pods, which works on every file system.
pub const SNAPSHOTTER: &str = "native";

/// The configuration of a containerd whose files are below `folder`.
pub fn containerd_config(folder: &dyn Display) -> String {
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
    snapshotter = "{SNAPSHOTTER}"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
"#
    )
}

/// Puts the plugins and the shipped bridge conflist where containerd looks for them.
pub fn install_network(host: &Host) {
    sh_with("cp -L \"$1\"/bin/* /opt/cni/bin/", &[&host.folder]);
    let conflist = package().join("conflist-examples/bridge.conflist");
    let conflist = fs::read_to_string(conflist).unwrap();
    // This containerd does not support CNI 1.1.0.
    let conflist = conflist.replace("1.1.0", "1.0.0");
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

pub fn wait_for_containerd() {
    wait_until("containerd to answer", || {
        let mut ctr = Command::new(tool("ctr"));
        output(ctr.args(["-a", SOCKET, "version"])).status.success()
    });
}

/// Builds the image of all pods, and makes containerd have it.
pub fn import_pause_image(folder: &Path) {
    let archive = folder.join("pause.tar");
    let build = package().join("tests/kubelet/pause-image");
    sh_with("\"$1\" \"$2\"", &[&build, &archive]);
    ctr(&["images", "import", archive.to_str().unwrap()]);
}

/// Kills the shims, which outlive the daemon with their pods. Only this test's shims are in its network namespace.
pub fn kill_shims() {
    sh(
        "here=$(readlink /proc/self/ns/net); for shim in $(pgrep containerd-shim); do \
        if [ \"$(readlink /proc/$shim/ns/net)\" = \"$here\" ]; then kill -9 $(pgrep -P $shim) $shim; fi; done; true",
    );
}

/// Kills the shims when a test ends.
struct Shims;

impl Drop for Shims {
    fn drop(&mut self) {
        kill_shims();
    }
}

#[test]
#[ignore = "needs root, containerd, runc and the plugin bridge"]
fn ctr_container_gets_an_address() {
    only_in!(in_private_namespaces_with_all_processes);
    let host = Host::new([5, 6]);
    for (place, content) in [("/etc/cni", "net.d"), ("/opt/cni", "bin")] {
        sh(&format!(
            "mkdir -p {place} && mount -t tmpfs none {place} && mkdir {place}/{content}"
        ));
    }
    install_network(&host);
    let config = host.folder.join("config.toml");
    fs::write(&config, containerd_config(&host.folder.display())).unwrap();
    let mut daemon = Command::new(tool("containerd"));
    daemon.arg("-c").arg(config).stdout(Stdio::null());
    let _shims = Shims;
    let _daemon = Process::start(daemon.stderr(Stdio::null()));
    wait_for_containerd();
    import_pause_image(&host.folder);
    // The name also appears in the machine's control groups.
    let name = &*format!("one-{}", std::process::id());
    let run = ["run", "-d", "--cni", "--snapshotter", SNAPSHOTTER];
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
    // Version 1 of this client sends no DEL. Then only a reclaim gives the address back.
    let version = ctr(&["version"]);
    let sends_del = version.contains("Version:  v2") || version.contains("Version:  2");
    assert_eq!(host.held().len(), usize::from(!sends_del), "{version}");
}
