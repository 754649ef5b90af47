//! A node in its own namespaces, on which the genuine azure-vnet creates the network of pods.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

#[cfg(feature = "tls")]
use crate::callers::examples;
use crate::callers::later;
use crate::harness::wait::{output, wait_until};
use crate::harness::{
    Outcome, Reply, WireServer, binary, held, install, package, run, sh, sh_with, skip, xml,
};

pub const STATE: &str = "/var/run/azure-vnet-ipam.json";
pub const ENDPOINTS: &str = "/var/run/azure-vnet.json";
const PLUGINS: &str = "/opt/cni/bin";
const CONFLISTS: &str = "/etc/cni/net.d";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The address of eth0. The wire server lists it as the primary one.
pub const NODE: &str = "10.224.0.4";

/// The version that this plugin replaces, both of azure-vnet and of the original.
pub const REPLACED: &str = "v1.4.59";

/// The version that the tests use: AZURE_VNET_VERSION, or the replaced version.
pub fn version() -> String {
    env::var("AZURE_VNET_VERSION").unwrap_or(REPLACED.to_owned())
}

/// The folder into which `tests/original/build` puts a version of azure-vnet and azure-vnet-ipam as Microsoft wrote
/// them.
pub fn original_folder(version: &str) -> PathBuf {
    package().join("target/original").join(version)
}

/// The folder of the version in use. The executables need the network to be built. Without them, the test is reported
/// as skipped.
pub fn genuine(test: &str) -> Option<PathBuf> {
    let folder = original_folder(&version());
    let is_there = |name: &str| folder.join(name).exists();
    if is_there("azure-vnet") && is_there("azure-vnet-ipam") {
        return Some(folder);
    }
    skip(format_args!(
        "{test}: tests/original/build has not built azure-vnet"
    ));
    None
}

/// Which IPAM plugin azure-vnet calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipam {
    Ours,
    Original,
}

/// A node. Dropping it stops the wire server; everything else ends with the namespaces.
pub struct AksNode {
    pub wire: WireServer,
    /// The configuration of the network.
    conflist: Value,
}

/// The container ID of the nth pod, as long as those of runtimes.
pub fn container(n: u32) -> String {
    format!("{n:08x}{:056x}", n + 0x1000)
}

/// The name of the nth pod.
pub fn pod(n: u32) -> String {
    format!("web-{n}")
}

fn netns(n: u32) -> String {
    format!("/var/run/netns/{}", pod(n))
}

impl AksNode {
    /// Creates a node whose pods get these addresses of 10.224.0.0/16. `genuine` is the folder of the main plugin in
    /// the conflist. Must be called in a virtual network.
    pub fn new(genuine: &Path, conflist: Value, last: impl IntoIterator<Item = u16>) -> AksNode {
        for folder in ["/run", "/var/log", "/var/lib/cni", "/opt"] {
            sh(&format!(
                "mkdir -p {folder} && mount -t tmpfs none {folder}"
            ));
        }
        sh("[ /var/run -ef /run ] || mount --bind /run /var/run");
        // The folder of conflists may not exist, and the machine's own /etc must not change.
        sh("mkdir -p /run/etc /run/netns && cp -a /etc/. /run/etc && mount --bind /run/etc /etc");
        sh(&format!("rm -rf /etc/cni; mkdir -p {CONFLISTS} {PLUGINS}"));
        // The command sysctl requires a folder that is not a link.
        sh("rm /proc/sys && mkdir /proc/sys && mount --bind /proc/real/sys /proc/sys");
        let path = Path::new(CONFLISTS).join("10-azure.conflist");
        fs::write(path, conflist.to_string()).unwrap();
        let main_plugin = genuine.join(conflist["plugins"][0]["type"].as_str().unwrap());
        sh_with(&format!("cp \"$1\" {PLUGINS}"), &[&main_plugin]);
        // portmap only has to exist: this test calls the first plugin of the chain directly.
        sh(&format!("ln -s /bin/true {PLUGINS}/portmap"));
        let (azure, answer) = (env::var_os("AZURE").unwrap(), Reply::Xml(xml(last)));
        let wire = thread::spawn(move || {
            let azure = fs::File::open(azure).unwrap();
            move_into_link_name_space(azure.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            WireServer::on("168.63.129.16:80", answer)
        });
        let node = AksNode {
            wire: wire.join().unwrap(),
            conflist,
        };
        node.use_ipam(Ipam::Ours);
        node
    }

    /// Makes azure-vnet ask for IPv6 addresses too. They come from this range of the node.
    #[cfg(feature = "tls")]
    pub fn with_ipv6(mut self, range: &str) -> (AksNode, impl Drop) {
        let (_, mut conflist) = examples()
            .into_iter()
            .find(|e| e.0 == "azure-dual-stack")
            .unwrap();
        conflist["plugins"][0]["mode"] = self.conflist["plugins"][0]["mode"].clone();
        self.conflist = conflist;
        install(&Path::new(PLUGINS).join("azure-vnet-ipamv6"));
        (self, join_cluster(range))
    }

    /// Installs an IPAM plugin as the one that azure-vnet calls.
    pub fn use_ipam(&self, ipam: Ipam) {
        let path = Path::new(PLUGINS).join("azure-vnet-ipam");
        match ipam {
            Ipam::Ours => install(&path),
            Ipam::Original => {
                // A newer azure-vnet-ipam searches /proc for itself. The children of azure-vnet are not there, so use
                // the replaced version.
                let original = original_folder(REPLACED).join("azure-vnet-ipam");
                sh_with("install -m 755 \"$1\" \"$2\"", &[&original, &path]);
            }
        }
    }

    /// Replaces one IPAM plugin by the other, as an operator does. The original is either installed first, or kept by
    /// `install`.
    pub fn exchange(&self, to: Ipam) {
        let mut command = match to {
            Ipam::Ours => Command::new(binary()),
            Ipam::Original => Command::new(Path::new(PLUGINS).join("azure-vnet-ipam")),
        };
        let name = match to {
            Ipam::Ours => "install",
            Ipam::Original => "uninstall",
        };
        run(command.arg(name), "").success();
    }

    pub fn list(&self, last: impl IntoIterator<Item = u16>) {
        self.wire.set(Reply::Xml(xml(last)));
    }

    /// Calls azure-vnet as a runtime does.
    pub fn call(&self, command: &str, n: u32) -> Outcome {
        self.call_later(0, command, n)
    }

    /// Calls azure-vnet with the boot clock this many seconds ahead.
    pub fn call_later(&self, seconds: u64, command: &str, n: u32) -> Outcome {
        // The plugins read their own entry in /proc by process ID.
        let plugin = self.conflist["plugins"][0]["type"].as_str().unwrap();
        let line = format!("ln -sfn real/$$ /proc/$$ && exec {PLUGINS}/{plugin}");
        let mut azure_vnet = later(seconds, Path::new("sh"));
        azure_vnet.args(["-c", &line]).envs([
            ("CNI_COMMAND", command.to_owned()),
            ("CNI_CONTAINERID", container(n)),
            ("CNI_NETNS", netns(n)),
            ("CNI_IFNAME", "eth0".to_owned()),
            ("CNI_PATH", PLUGINS.to_owned()),
            (
                "CNI_ARGS",
                format!(
                    "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={}",
                    pod(n),
                    container(n)
                ),
            ),
        ]);
        let mut conf = self.conflist["plugins"][0].clone();
        conf["name"] = self.conflist["name"].clone();
        conf["cniVersion"] = self.conflist["cniVersion"].clone();
        let outcome = run(&mut azure_vnet, &conf.to_string());
        for entry in fs::read_dir("/proc").unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            // The process of the uplink must continue.
            if name.parse::<u32>().is_ok() && !path.exists() {
                let _ = fs::remove_file(path);
            }
        }
        outcome
    }

    /// Calls the plugin as azure-vnet does to release the address of the nth pod.
    pub fn release(&self, n: u32, address: &str) {
        let conf = json!({
            "cniVersion": "0.3.0", "name": "azure", "type": "azure-vnet",
            "ipam": { "type": "azure-vnet-ipam", "subnet": "10.224.0.0/16", "ipAddress": address },
        });
        let mut ipam = Command::new(Path::new(PLUGINS).join("azure-vnet-ipam"));
        ipam.envs([
            ("CNI_COMMAND", "DEL"),
            ("CNI_CONTAINERID", &container(n)),
            ("CNI_NETNS", &netns(n)),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", PLUGINS),
        ]);
        run(&mut ipam, &conf.to_string()).assert_no_output();
    }

    /// Adds a pod in a new network namespace. The ADD must succeed. Returns the address.
    pub fn add(&self, n: u32) -> String {
        self.add_later(0, n)
    }

    pub fn add_later(&self, seconds: u64, n: u32) -> String {
        let outcome = self.try_add_later(seconds, n);
        assert_eq!(outcome.exit, Some(0), "{outcome:?}\n{}", self.logs());
        let address = outcome.address();
        assert_eq!(addresses_in(n), [format!("{address}/16")]);
        address
    }

    pub fn try_add(&self, n: u32) -> Outcome {
        self.try_add_later(0, n)
    }

    pub fn try_add_later(&self, seconds: u64, n: u32) -> Outcome {
        if !Path::new(&netns(n)).exists() {
            sh(&format!("ip netns add {}", pod(n)));
        }
        self.call_later(seconds, "ADD", n)
    }

    /// Deletes a pod as a runtime does. The DEL must succeed.
    pub fn del(&self, n: u32) {
        let outcome = self.call("DEL", n);
        outcome.assert_no_output();
        self.vanish(n);
    }

    /// Removes the pod's network namespace and the links into it.
    pub fn vanish(&self, n: u32) {
        if Path::new(&netns(n)).exists() {
            // The kernel destroys a namespace with a delay. Until then it has a number for it.
            let line = format!("{} (id: ", pod(n));
            let named = sh("ip netns list");
            let number = named
                .lines()
                .find_map(|named| named.strip_prefix(&line)?.strip_suffix(')'));
            sh(&format!("ip netns del {}", pod(n)));
            if let Some(number) = number {
                wait_until(format!("the end of network namespace {number}"), || {
                    let all = sh("ip netns list-id");
                    !all.lines()
                        .any(|line| line.split_whitespace().nth(1) == Some(number))
                });
            }
        }
    }

    /// Container ID by address, from the IPAM state.
    pub fn held(&self) -> BTreeMap<String, String> {
        self.held_in(STATE)
    }

    pub fn held_in(&self, state: &str) -> BTreeMap<String, String> {
        match fs::read(state) {
            Ok(state) => held(&serde_json::from_slice(&state).unwrap()),
            Err(_) => BTreeMap::new(),
        }
    }

    /// The expected content of the IPAM state with these pods.
    pub fn expected<'a>(
        &self,
        pods: impl IntoIterator<Item = (u32, &'a str)>,
    ) -> BTreeMap<String, String> {
        let pods = pods.into_iter();
        pods.map(|(n, address)| (address.to_owned(), container(n)))
            .collect()
    }

    /// azure-vnet's own state: the address of each endpoint by endpoint ID.
    pub fn endpoints(&self) -> BTreeMap<String, String> {
        let Ok(text) = fs::read(ENDPOINTS) else {
            return BTreeMap::new();
        };
        let state: Value = serde_json::from_slice(&text).unwrap();
        let network = &state["Network"]["ExternalInterfaces"]["eth0"]["Networks"]["azure"];
        let endpoints = network["Endpoints"].as_object().into_iter().flatten();
        endpoints
            .map(|(id, endpoint)| {
                let address = endpoint["IPAddresses"][0]["IP"].as_str().unwrap();
                (id.clone(), address.to_owned())
            })
            .collect()
    }

    /// Runs a command of an operator.
    pub fn command(&self, line: &str) -> Outcome {
        let mut command = Command::new(Path::new(PLUGINS).join("azure-vnet-ipam"));
        run(command.args(line.split(' ')), "")
    }

    /// Replaces the boot ID, as a reboot does.
    pub fn reboot(&self, id: &str) {
        fs::write("/run/boot-id", format!("{id}\n")).unwrap();
        sh(&format!("mount --bind /run/boot-id {BOOT_ID}"));
    }

    /// The last lines of both logs.
    pub fn logs(&self) -> String {
        sh("tail -n 30 /var/log/azure-vnet.log /var/log/azure-vnet-ipam.log")
    }

    /// The requests in the log of the installed plugin, by command.
    pub fn log(&self) -> String {
        fs::read_to_string("/var/log/azure-vnet-ipam.log").unwrap_or_default()
    }

    /// Deletes all pods and all state, so that the node is like new.
    pub fn reset(&self) {
        for name in sh("ls /run/netns").split_whitespace() {
            sh(&format!("ip netns del {name}"));
        }
        wait_until("the end of all links of pods", || {
            !links().iter().any(|link| link.starts_with("azv"))
        });
        let bridge = links().into_iter().find(|link| link.starts_with("azure"));
        if let Some(bridge) = bridge {
            sh(&format!(
                "ip link del {bridge} && ip addr add {NODE}/16 dev eth0 && ip route add default via 10.224.0.1"
            ));
            sh("ebtables -t nat -F");
        }
        sh("rm -rf /run/azure-vnet /run/azure-vnet*.json /run/.azure-vnet*");
    }
}

/// Makes this node Node1 of a cluster. The cluster assigns it this range of IPv6 addresses.
#[cfg(feature = "tls")]
pub fn join_cluster(range: &str) -> impl Drop + use<> {
    sh("mkdir -p /var/lib/kubelet && mount -t tmpfs none /var/lib/kubelet");
    sh("echo Node1 >/proc/sys/kernel/hostname");
    crate::kubernetes::joined_below(Path::new("/"), range)
}

/// The network interfaces of the host.
pub fn links() -> Vec<String> {
    let all = sh("ip -o link");
    all.lines()
        .filter_map(link_name)
        .map(str::to_owned)
        .collect()
}

/// The name in a line of `ip -o link`, such as `5: azv0123456789a@if4: <BROADCAST>`.
fn link_name(line: &str) -> Option<&str> {
    line.split_whitespace().nth(1)?.split(['@', ':']).next()
}

/// The IPv4 addresses of a pod's eth0, with prefix lengths.
pub fn addresses_in(n: u32) -> Vec<String> {
    let mut ip = Command::new("ip");
    let output = output(ip.args(["-j", "-4", "-n", &pod(n), "addr", "show", "dev", "eth0"]));
    let links: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| json!([]));
    let all = links[0]["addr_info"].as_array().into_iter().flatten();
    all.map(|a| format!("{}/{}", a["local"].as_str().unwrap(), a["prefixlen"]))
        .collect()
}
