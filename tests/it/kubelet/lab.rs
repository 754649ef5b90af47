//! The node: its daemons, which can be killed and restarted, and its pods.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::config::kubeconfig_of;
use super::observe::{Observation, Pod};
use crate::apiserver::{ApiServer, As};
use crate::callers::{Host, examples, later, tool};
use crate::genuine_azure_vnet::host::{original_folder, version};
use crate::harness::wait::{Process, output, wait_until};
use crate::harness::{package, sh, sh_with, xml_of};
use crate::runtimes::{
    IMAGE, SOCKET, import_pause_image, install_network, is_containerd_2, kill_shims,
};

pub const NODE: &str = "lab-node";
/// The plugin that creates the network of pods, and calls this one for their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MainPlugin {
    Bridge,
    /// The genuine azure-vnet, in transparent mode.
    AzureVnet,
    /// Calico's plugin, without Calico's daemon. There are no network policies, and other nodes have no routes to the
    /// pods.
    Calico,
}

const PODS: &str = "/api/v1/namespaces/default/pods";
/// The time limit for a change of pods. kubelet retries a failed pod after 10 to 15 s. It restarts a container that
/// ended several times after up to 80 s.
const PATIENCE: Duration = Duration::from_secs(240);

/// A node with its control plane.
pub struct Lab {
    pub host: Host,
    pub api: ApiServer,
    /// The wire server's answer.
    pub answer: String,
    containerd: Option<Process>,
    kubelet: Option<Process>,
    /// The command that sets the boot clock of the daemons. If it is empty, they use the machine's clock.
    pub clock: Vec<String>,
}

impl Lab {
    /// Starts a node with this many addresses for pods, and waits until it is ready. Must be called in the namespaces
    /// of `tests/kubelet/lab`.
    pub fn start(addresses: u16) -> Lab {
        Lab::start_with(addresses, MainPlugin::Bridge)
    }

    /// Starts a node with another main plugin.
    pub fn start_with(addresses: u16, main_plugin: MainPlugin) -> Lab {
        sh(&format!("hostname {NODE}"));
        let pool = 5..5 + addresses;
        let host = Host::new(pool.clone());
        // systemd shares /run as well. Pods may follow what is mounted later.
        sh("mount --make-shared /run");
        // The node's own address and a default route. kube-apiserver finds the address by the route, which leads
        // nowhere.
        let own = host.subnets.ipv4(4);
        // azure-vnet uses the interface whose address is in the pool's subnet.
        let length = match main_plugin {
            MainPlugin::AzureVnet => 24,
            _ => 32,
        };
        sh(&format!(
            "ip addr add {own}/{length} dev eth0 && ip route add default dev eth0"
        ));
        install_network(&host, is_containerd_2());
        if main_plugin == MainPlugin::AzureVnet {
            install_example("azure", &original_folder(&version()).join("azure-vnet"));
        }
        let api = ApiServer::start(&[NODE]);
        if main_plugin == MainPlugin::Calico {
            install_calico(&api);
        }
        let mut lab = Lab {
            answer: xml_of(host.subnets.ipv4, pool),
            host,
            api,
            containerd: None,
            kubelet: None,
            clock: Vec::new(),
        };
        lab.configure();
        lab.start_containerd();
        import_pause_image(&lab.host.folder);
        lab.start_kubelet();
        // In a cluster, a controller creates this account.
        let account = json!({ "metadata": { "name": "default" } });
        let path = "/api/v1/namespaces/default/serviceaccounts";
        lab.api
            .request_successfully(As::Admin, "POST", path, &account);
        lab.wait_until_ready();
        lab
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.host.folder.join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Starts a daemon. Its output goes to a log in the folder. It is restarted when it ends.
    pub fn daemon(&self, name: &str, program: PathBuf, args: &[String]) -> Process {
        let path = self.path(&format!("{name}.log"));
        let log = fs::File::options().create(true).append(true).open(path);
        let log = log.unwrap();
        let line = self.clock.iter().map(PathBuf::from);
        let mut line = line.chain([program]);
        // systemd restarts daemons as well. kubelet ends when it is started before containerd.
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do \"$@\"; sleep 1; done", "sh"]);
        command.arg(line.next().unwrap());
        command.args(line).args(args).stdin(Stdio::null());
        Process::start(command.stdout(log.try_clone().unwrap()).stderr(log))
    }

    pub fn start_containerd(&mut self) {
        let config = self.path("config.toml").display().to_string();
        self.containerd =
            Some(self.daemon("containerd", tool("containerd"), &["-c".into(), config]));
        wait_until("containerd to answer", || {
            let mut ctr = Command::new(tool("ctr"));
            output(ctr.args(["-a", SOCKET, "version"])).status.success()
        });
    }

    pub fn start_kubelet(&mut self) {
        let program = package().join("target/apiserver/kubelet");
        let args = [
            format!("--config={}", self.path("kubelet.json").display()),
            format!("--kubeconfig={}", self.path("kubeconfig").display()),
            "--root-dir=/var/lib/kubelet".into(),
            format!("--hostname-override={NODE}"),
            format!("--node-ip={}", self.host.subnets.ipv4(4)),
            "--v=2".into(),
        ];
        self.kubelet = Some(self.daemon("kubelet", program, &args));
    }

    pub fn kill_kubelet(&mut self) {
        self.kubelet.take().unwrap().kill();
    }

    /// Kills containerd. Its shims and their pods continue.
    pub fn kill_containerd(&mut self) {
        self.containerd.take().unwrap().kill();
    }

    /// The status object of the node, null before it is registered.
    pub fn node_status(&self) -> Value {
        let path = format!("/api/v1/nodes/{NODE}");
        let (_, node) = self.api.ask(As::Admin, "GET", &path, None);
        node["status"].clone()
    }

    /// Waits until the node says that it is ready.
    pub fn wait_until_ready(&self) {
        wait_until("the node to be ready", || {
            let status = self.node_status();
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let is_ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
            conditions.iter().any(is_ready)
        });
    }

    /// Whether the container runtime supports pods with their own user namespaces.
    pub fn has_user_namespaces(&self) -> bool {
        let status = self.node_status();
        let handlers = status["runtimeHandlers"].as_array();
        handlers.is_some_and(|all| all.iter().any(|h| h["features"]["userNamespaces"] == true))
    }

    /// Creates a pod of this name on the node.
    pub fn create_pod(&self, name: &str) {
        self.create_pod_of(name, true);
    }

    /// Creates a pod. Without `host_users`, the pod has its own user namespace.
    pub fn create_pod_of(&self, name: &str, host_users: bool) {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name },
            "spec": {
                "nodeName": NODE,
                "hostUsers": host_users,
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "dnsPolicy": "Default",
                "terminationGracePeriodSeconds": 5,
                "containers": [{ "name": "pause", "image": IMAGE, "imagePullPolicy": "Never" }],
            },
        });
        self.api.request_successfully(As::Admin, "POST", PODS, &pod);
    }

    /// Asks the API server to delete a pod. The pod is gone when kubelet has stopped it.
    pub fn delete_pod(&self, name: &str) {
        let path = format!("{PODS}/{name}");
        self.api
            .request_successfully(As::Admin, "DELETE", &path, &json!({}));
    }

    /// The pods in the API server.
    pub fn pods(&self) -> Vec<Pod> {
        let (status, list) = self.api.ask(As::Admin, "GET", PODS, None);
        assert_eq!(status, 200, "{list}");
        let pods = list["items"].as_array().unwrap();
        pods.iter().map(Pod::from_object).collect()
    }

    /// Observes the node now.
    pub fn observe(&self) -> Observation {
        Observation::capture(self.pods())
    }

    /// Waits until exactly these pods run, and the state holds exactly their addresses. Returns how long that took.
    #[track_caller]
    pub fn wait_for_pods(&self, wanted: &BTreeSet<String>) -> Duration {
        self.wait_for(|seen| {
            let mut problems = seen.problems_of_pods(wanted);
            problems.extend(seen.lost());
            problems.extend(seen.forgotten());
            problems
        })
    }

    /// Waits until exactly these pods run, and the state holds their addresses. It may hold others. Returns how long that took.
    #[track_caller]
    pub fn wait_for_pods_only(&self, wanted: &BTreeSet<String>) -> Duration {
        self.wait_for(|seen| seen.problems_of_pods(wanted))
    }

    #[track_caller]
    fn wait_for(&self, problems: impl Fn(&Observation) -> Vec<String>) -> Duration {
        let start = Instant::now();
        let seen = self.observe_until(PATIENCE, |seen| problems(seen).is_empty());
        let took = start.elapsed();
        let left = problems(&seen);
        assert!(left.is_empty(), "after {took:?}: {left:#?}");
        took
    }

    /// The lines of the plugin's log about refused ADDs.
    pub fn refusals(&self) -> Vec<String> {
        let read = |name: &str| fs::read_to_string(name).unwrap_or_default();
        let logs = read("/var/log/azure-vnet-ipam.log.1") + &read("/var/log/azure-vnet-ipam.log");
        let lines = logs.lines().filter(|line| line.contains("ADD failed in"));
        lines.map(str::to_owned).collect()
    }

    /// Observes the node until it is as wanted, or this time is over. Returns the last observation. One that is not as wanted
    /// began after this time, even if the machine stood still meanwhile.
    pub fn observe_until(
        &self,
        patience: Duration,
        is_wanted: impl Fn(&Observation) -> bool,
    ) -> Observation {
        let start = Instant::now();
        loop {
            let is_over = start.elapsed() > patience;
            let seen = self.observe();
            if is_over || is_wanted(&seen) {
                return seen;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Removes the network namespaces that containerd forgot, and reclaims an hour later, as an operator would.
    /// Returns the number of addresses that are still orphaned.
    pub fn reclaim(&self) -> usize {
        for name in &self.observe().forgotten() {
            let path = PathBuf::from("/run/netns").join(name);
            sh_with("umount \"$1\" && rm \"$1\"", &[&path]);
        }
        // The kernel takes namespaces down with a delay.
        let start = Instant::now();
        loop {
            let is_over = start.elapsed() > Duration::from_secs(20);
            let mut reclaim = later(3700, "/opt/cni/bin/azure-vnet-ipam".as_ref());
            let done = output(reclaim.args(["reclaim", "--yes"]));
            let lost = self.observe().lost();
            if is_over || lost.is_empty() {
                println!("{done:?}\n{lost:#?}");
                return lost.len();
            }
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Replaces the bridge by a main plugin and the shipped conflist for it. The chained plugin portmap is left out.
fn install_example(name: &str, executable: &Path) {
    sh_with(
        "rm /etc/cni/net.d/* && cp \"$1\" /opt/cni/bin/",
        &[executable],
    );
    let (_, mut conflist) = examples().into_iter().find(|e| e.0 == name).unwrap();
    conflist["plugins"].as_array_mut().unwrap().truncate(1);
    fs::write(
        format!("/etc/cni/net.d/10-{name}.conflist"),
        conflist.to_string(),
    )
    .unwrap();
}

/// Replaces the bridge by Calico's plugin and the shipped conflist for it. Creates the API objects that the plugin
/// needs.
fn install_calico(api: &ApiServer) {
    install_example("calico", &package().join("target/calico/calico"));
    fs::write(
        "/etc/cni/net.d/calico-kubeconfig",
        kubeconfig_of(api, "admin"),
    )
    .unwrap();
    let group = "crd.projectcalico.org";
    let kind = "ClusterInformation";
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let definition = json!({
        "metadata": { "name": format!("clusterinformations.{group}") },
        "spec": {
            "group": group, "scope": "Cluster",
            "names": { "kind": kind, "plural": "clusterinformations" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    api.request_successfully(As::Admin, "POST", path, &definition);
    let information = json!({
        "apiVersion": format!("{group}/v1"), "kind": kind,
        "metadata": { "name": "default" }, "spec": { "datastoreReady": true },
    });
    let path = format!("/apis/{group}/v1/clusterinformations");
    wait_until("Calico's API", || {
        api.ask_text(As::Admin, "POST", &path, Some(&information)).0 == 201
    });
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.kubelet.take());
        drop(self.containerd.take());
        kill_shims();
        if thread::panicking() {
            let kept = std::env::temp_dir().join("azure-vnet-ipam-kubelet-logs");
            let _ = fs::create_dir_all(&kept);
            sh_with(
                "cp \"$1\"/*.log /var/log/azure-vnet*.log \"$2\" || true",
                &[&self.host.folder, &kept],
            );
            println!("the logs are in {}", kept.display());
        }
    }
}
