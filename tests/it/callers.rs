//! Real callers, cnitool and the reference plugin ptp, with the shipped conflists.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::harness::wait::output;
use crate::harness::{
    Node, OwnSubnets, Reply, WireServer, held, install, package, run, sh, xml, xml_of,
};
use crate::privileged::{
    in_private_namespaces_with_all_processes as in_private_namespaces, only_in,
};

/// The shipped conflists: name of the file and content.
pub fn examples() -> Vec<(String, Value)> {
    let files = fs::read_dir(package().join("conflist-examples")).unwrap();
    let mut paths: Vec<_> = files.map(|e| e.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "conflist"));
    paths.sort();
    let read = |p: &PathBuf| {
        let content = serde_json::from_slice(&fs::read(p).unwrap());
        let name = p.file_stem().unwrap().to_str().unwrap();
        let content = content.unwrap_or_else(|e| panic!("{name}: {e}"));
        (name.to_owned(), content)
    };
    paths.iter().map(read).collect()
}

#[test]
fn every_example_conflist_works() {
    let mut names = BTreeSet::new();
    for (name, conflist) in examples() {
        let mut calls = 0;
        for plugin in conflist["plugins"].as_array().unwrap() {
            if plugin["ipam"]["type"] != "azure-vnet-ipam" {
                continue;
            }
            calls += 1;
            // These need more than an IPv4 wire server; `dual_stack` tests them.
            if !plugin["ipam"]["families"].is_null() {
                continue;
            }
            // A main plugin passes on its own configuration, with the name and version of the list.
            let mut conf = plugin.clone();
            conf["name"] = conflist["name"].clone();
            conf["cniVersion"] = conflist["cniVersion"].clone();
            let (node, _wire) = Node::with_wire("example", Reply::Xml(xml([5])));
            let add = node.call("ADD", "c1").stdin(conf.to_string()).run();
            assert_eq!(add.address(), "10.224.0.5", "{name}");
            assert_eq!(add.json()["cniVersion"], conflist["cniVersion"], "{name}");
            node.call("DEL", "c1")
                .stdin(conf.to_string())
                .run()
                .assert_no_output();
            assert!(node.held().is_empty(), "{name}");
        }
        assert_eq!(calls, 1, "{name}");
        names.insert(name);
    }
    let expected = ["azure", "calico", "cilium", "cnitool", "ptp"];
    assert!(expected.iter().all(|e| names.contains(*e)), "{names:?}");
}

/// The calls of cilium-cni v1.18.2 as its cmd/cmd.go makes them; the program itself needs its agent. Each call has
/// the whole configuration of the runtime's call. Cilium does not pass CHECK on.
#[test]
fn cilium_delegates_add_del_and_status() {
    let (_, conflist) = examples().into_iter().find(|e| e.0 == "cilium").unwrap();
    let mut conf = conflist["plugins"][0].clone();
    conf["name"] = conflist["name"].clone();
    // This is the first version that has STATUS.
    conf["cniVersion"] = "1.1.0".into();
    let (node, wire) = Node::with_wire("cilium", Reply::Xml(xml([5, 6])));
    let call = |command: &str, conf: &Value| node.call(command, "c1").stdin(conf.to_string()).run();
    call("STATUS", &conf).assert_no_output();
    let add = call("ADD", &conf);
    // Cilium reads the address and the gateway, and no interfaces.
    assert_eq!(add.address(), "10.224.0.5");
    assert_eq!(add.json()["ips"][0]["gateway"], "10.224.0.1");
    assert_eq!(add.json()["interfaces"], Value::Null);
    // When Cilium cannot create the endpoint, its DEL has no previous result.
    call("DEL", &conf).assert_no_output();
    assert!(node.held().is_empty());
    let mut again = conf.clone();
    again["prevResult"] = call("ADD", &conf).json();
    // The runtime's DEL has the previous result, and runtimes repeat the DEL.
    for _ in 0..2 {
        call("DEL", &again).assert_no_output();
        assert!(node.held().is_empty());
    }
    // STATUS reports to the agent why no pod can start.
    let (fresh, _none) = Node::with_wire("cilium", Reply::Status(500, String::new()));
    drop(wire);
    let status = fresh.call("STATUS", "").stdin(conf.to_string()).run();
    assert_eq!(status.error().0, 50);
}

/// The path of a program that `.ci/run` installs.
pub fn tool(name: &str) -> PathBuf {
    let home = std::env::var("HOME").unwrap_or_default();
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = format!("{home}/go/bin:/usr/local/go/bin:/opt/cni/bin:/usr/lib/cni:{path}");
    let mut places = folders.split(':').map(|f| Path::new(f).join(name));
    let found = places.find(|place| place.exists());
    found.unwrap_or_else(|| panic!("{name} is not installed; .ci/run shows how"))
}

/// Returns a command that runs with the boot clock `seconds` ahead.
pub fn later(seconds: u64, program: &Path) -> Command {
    // The offset is relative to the machine's clock, even in a nested time namespace.
    let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap();
    let offset = offsets.lines().find_map(|line| {
        let mut fields = line.strip_prefix("boottime")?.split_whitespace();
        fields.next()?.parse::<i64>().ok()
    });
    let seconds = offset.unwrap() + i64::try_from(seconds).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--time", "--boottime", &seconds.to_string(), "--fork"]);
    command.arg(program);
    command
}

/// A complete node in private namespaces: built-in paths, the wire server on its real address, a folder of plugins
/// and one of conflists. Other plugins need a /proc with all processes, so each test uses addresses that no other
/// process has.
pub struct Host {
    pub folder: PathBuf,
    pub wire: WireServer,
    pub subnets: OwnSubnets,
}

impl Host {
    /// Creates a host whose pods get these IPv4 addresses of a private subnet. Must be called in private mount and
    /// network namespaces.
    pub fn new(last: impl IntoIterator<Item = u16>) -> Host {
        let subnets = OwnSubnets::claim();
        let xml = xml_of(subnets.ipv4, last);
        let folder =
            std::env::temp_dir().join(format!("azure-vnet-ipam-host-{}", std::process::id()));
        for path in ["/run", "/var/log", "/var/lib/cni"] {
            sh(&format!("mkdir -p {path} && mount -t tmpfs none {path}"));
        }
        sh("ip addr add 168.63.129.16/32 dev lo");
        sh(
            "ip link add eth0 address 7c:1e:52:f9:f3:c4 type veth peer name peer0 && ip link set eth0 up && ip link set peer0 up",
        );
        // A killed test leaves its folder behind, and in a PID namespace the same process ID comes again.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("net.d")).unwrap();
        install(&folder.join("bin/azure-vnet-ipam"));
        for name in ["bridge", "ptp", "loopback"] {
            symlink(tool(name), folder.join("bin").join(name)).unwrap();
        }
        for (name, conflist) in examples() {
            let path = folder.join(format!("net.d/{name}.conflist"));
            fs::write(path, conflist.to_string()).unwrap();
        }
        Host {
            folder,
            wire: WireServer::on("168.63.129.16:80", Reply::Xml(xml)),
            subnets,
        }
    }

    pub fn cnitool(&self, command: &str, network: &str, pod: &str) -> Output {
        self.cnitool_later(0, command, network, pod)
    }

    /// Runs cnitool with the boot clock `seconds` ahead.
    pub fn cnitool_later(&self, seconds: u64, command: &str, network: &str, pod: &str) -> Output {
        output(&mut self.command(seconds, command, network, pod))
    }

    /// The command that runs cnitool with the boot clock `seconds` ahead.
    fn command(&self, seconds: u64, command: &str, network: &str, pod: &str) -> Command {
        let mut cnitool = later(seconds, &tool("cnitool"));
        cnitool
            .args([command, network, &format!("/run/netns/{pod}")])
            .env("NETCONFPATH", self.folder.join("net.d"))
            .env("CNI_PATH", self.folder.join("bin"));
        cnitool
    }

    /// Runs a verb that must succeed. Only ADD may print something.
    fn verb(&self, command: &str, network: &str, pod: &str) {
        let output = self.cnitool(command, network, pod);
        assert!(output.status.success(), "{command}: {output:?}");
    }

    /// Returns the message of a call that must fail.
    fn failure(&self, output: Output) -> String {
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap() + &String::from_utf8(output.stdout).unwrap()
    }

    /// Adds a pod to a network and returns its address.
    pub fn add(&self, network: &str, pod: &str) -> String {
        sh(&format!("ip netns add {pod}"));
        let output = self.cnitool("add", network, pod);
        assert!(output.status.success(), "{output:?}");
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let address = result["ips"][0]["address"].as_str().unwrap();
        address.strip_suffix("/24").unwrap().to_owned()
    }

    pub fn del(&self, network: &str, pod: &str) {
        let output = self.cnitool("del", network, pod);
        assert!(output.status.success(), "{output:?}");
        sh(&format!("ip netns del {pod}"));
    }

    /// The held addresses. Empty without a state.
    pub fn held(&self) -> Vec<String> {
        let Ok(text) = fs::read("/run/azure-vnet-ipam.json") else {
            return Vec::new();
        };
        held(&serde_json::from_slice(&text).unwrap())
            .into_keys()
            .collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
#[ignore = "needs root, iproute2 and cnitool"]
fn cnitool_runs_every_verb_without_main_plugin() {
    only_in!(in_private_namespaces);
    const NET: &str = "azure-ipam";
    let host = Host::new([5, 6, 7]);
    let one = host.subnets.ipv4(5);
    sh("ip netns add none");
    host.verb("status", NET, "none");
    for pod in ["pod1", "pod2"] {
        host.add(NET, pod);
        host.verb("check", NET, pod);
    }
    // cnitool clears libcni's cache and then sends a GC without a list, which frees nothing.
    fs::remove_file(cache_entry_path(NET, "pod1")).unwrap();
    let no_list = host.failure(host.cnitool_later(100, "gc", NET, "none"));
    assert!(
        no_list.contains("cni.dev/valid-attachments is missing"),
        "{no_list}"
    );
    assert_eq!(host.held(), [one.as_str()]);
    let gc = |seconds: u64, list: &str| {
        let conf = format!(
            r#"{{"cniVersion":"1.1.0","name":"{NET}","cni.dev/valid-attachments":{list},"cni.dev/attachments":{list}}}"#
        );
        let mut command = later(seconds, &host.folder.join("bin/azure-vnet-ipam"));
        run(command.env("CNI_COMMAND", "GC"), &conf)
    };
    // Young records are kept.
    gc(0, "null").assert_no_output();
    assert_eq!(host.held().len(), 1);
    // The pod still has its address, although the runtime does not list the pod.
    sh(&format!("ip -n pod1 addr add {one}/24 dev lo"));
    assert_eq!(host.add(NET, "pod3"), host.subnets.ipv4(7));
    fs::remove_file(cache_entry_path(NET, "pod3")).unwrap();
    let kept = gc(100, "[]").stdout;
    assert!(
        kept.contains("1 stale addresses are kept, 1 are freed")
            && kept.contains("the address is configured in "),
        "{kept}"
    );
    assert_eq!(host.held(), [one.as_str()]);
    // A host route also protects an address.
    sh(&format!(
        "ip -n pod1 addr del {one}/24 dev lo && ip route add {one}/32 dev eth0"
    ));
    let kept = gc(100, "[]").stdout;
    assert!(kept.contains("the host has a route to it"), "{kept}");
    sh(&format!("ip route del {one}/32"));
    for _ in 0..2 {
        // The second GC has nothing to do.
        gc(100, "null").assert_no_output();
        assert!(host.held().is_empty());
    }
    let log = fs::read_to_string("/var/log/azure-vnet-ipam.log").unwrap();
    assert!(log.contains("the runtime no longer knows it"), "{log}");
}

/// The path of libcni's cache entry for a pod.
fn cache_entry_path(network: &str, pod: &str) -> PathBuf {
    let netns = format!("\"/run/netns/{pod}\"");
    let entries = fs::read_dir("/var/lib/cni/results").unwrap();
    let mut paths = entries.map(|e| e.unwrap().path());
    paths
        .find(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with(&format!("{network}-"))
                && fs::read_to_string(path).unwrap().contains(&netns)
        })
        .unwrap_or_else(|| panic!("libcni does not remember {pod}"))
}

/// Tests every verb but GC, which ptp does not implement yet.
#[test]
#[ignore = "needs root, iproute2, cnitool and the plugin ptp"]
fn every_verb_works_through_a_main_plugin() {
    only_in!(in_private_namespaces);
    let network = "azure-ptp";
    let mut host = Host::new([5, 6]);
    // Older CNI versions have no STATUS and no GC.
    let path = host.folder.join("net.d/ptp.conflist");
    let conflist = fs::read_to_string(&path).unwrap();
    fs::write(&path, conflist.replace("1.0.0", "1.1.0")).unwrap();
    sh("ip netns add none");
    host.verb("status", network, "none");
    let (one, two) = (host.add(network, "pod1"), host.add(network, "pod2"));
    assert_eq!(host.held(), [one.clone(), two.clone()]);
    host.verb("check", network, "pod1");
    host.verb("check", network, "pod2");
    // An operator releases an address.
    let path = cache_entry_path(network, "pod1");
    let name = path.file_name().unwrap().to_str().unwrap();
    let container = name.strip_prefix(&format!("{network}-"));
    let container = container.and_then(|n| n.strip_suffix("-eth0")).unwrap();
    let mut del = Command::new(host.folder.join("bin/azure-vnet-ipam"));
    del.envs([
        ("CNI_COMMAND", "DEL"),
        ("CNI_CONTAINERID", container),
        ("CNI_IFNAME", "eth0"),
    ]);
    let conf = json!({ "cniVersion": "1.1.0", "name": network });
    run(&mut del, &conf.to_string()).assert_no_output();
    assert_eq!(host.held(), [two]);
    let lost = host.failure(host.cnitool("check", network, "pod1"));
    assert!(
        lost.contains("no address is held for this attachment"),
        "{one}: {lost}"
    );
    host.verb("check", network, "pod2");
    host.verb("gc", network, "none");
    assert!(
        host.held().is_empty(),
        "libcni takes down what it remembers"
    );
    host.del(network, "pod1");
    host.del(network, "pod2");
    host.wire.stop();
    sh("rm /run/azure-vnet-ipam.* /run/.azure-vnet-ipam.*");
    let broken = host.failure(host.cnitool("status", network, "none"));
    assert!(broken.contains("ADDs cannot be served"), "{broken}");
}

/// Multus reads its networks from the configuration, so it needs no API server.
#[test]
#[ignore = "needs root, iproute2, cnitool, Multus and the plugins ptp and bridge"]
fn multus_gets_an_address_in_each_network_of_a_pod() {
    only_in!(in_private_namespaces);
    let host = Host::new(5..10);
    let folder = host.folder.join("bin");
    symlink(tool("multus"), folder.join("multus")).unwrap();
    let network = |name: &str, main_plugin: &str| json!({ "cniVersion": "1.0.0", "name": name, "type": main_plugin, "ipam": { "type": "azure-vnet-ipam" } });
    let networks = [network("first", "ptp"), network("second", "bridge")];
    let multus = json!({ "type": "multus", "binDir": folder, "delegates": networks });
    let conflist = json!({ "cniVersion": "1.0.0", "name": "multus", "plugins": [multus] });
    let path = host.folder.join("net.d/multus.conflist");
    fs::write(path, conflist.to_string()).unwrap();
    let first = host.add("multus", "pod");
    let held = host.held();
    assert_eq!(held.len(), 2);
    for address in &held {
        let link = if *address == first { "eth0" } else { "net1" };
        let shown = sh(&format!("ip -n pod -o addr show dev {link}"));
        assert!(shown.contains(&format!(" {address}/24 ")), "{shown}");
    }
    host.verb("check", "multus", "pod");
    // Multus keeps libcni's cache in another folder, so only the kernel shows who has the addresses.
    sh("rm /run/azure-vnet-ipam.json /run/.azure-vnet-ipam.backup && ip netns add other");
    host.failure(host.cnitool("add", "azure-ipam", "other"));
    assert_eq!(host.held(), held);
    host.del("multus", "pod");
    assert!(host.held().is_empty());
}

/// Requests an address in another network, as Multus does for a pod.
#[test]
#[ignore = "needs root, iproute2, cnitool and the plugins ptp and bridge"]
fn pod_gets_the_address_that_it_asks_for_in_another_network() {
    only_in!(in_private_namespaces);
    let host = Host::new(5..10);
    let second = json!({ "type": "bridge", "capabilities": { "ips": true }, "ipam": { "type": "azure-vnet-ipam" } });
    let conflist = json!({ "cniVersion": "1.0.0", "name": "second", "plugins": [second] });
    fs::write(
        host.folder.join("net.d/second.conflist"),
        conflist.to_string(),
    )
    .unwrap();
    let (first, asked) = (host.add("azure-ptp", "pod"), host.subnets.ipv4(8));
    let call = |verb: &str| {
        let mut cnitool = host.command(0, verb, "second", "pod");
        let ips = json!({ "ips": [asked] });
        let asking = cnitool.env("CNI_IFNAME", "net1");
        let done = output(asking.env("CAP_ARGS", ips.to_string()));
        assert!(done.status.success(), "{verb}: {done:?}");
    };
    call("add");
    let shown = sh("ip -n pod -o addr show dev net1");
    assert!(shown.contains(&format!(" {asked}/24 ")), "{shown}");
    assert_eq!(host.held(), [first.clone(), asked.clone()]);
    call("check");
    host.verb("check", "azure-ptp", "pod");
    call("del");
    assert_eq!(host.held(), [first]);
    host.del("azure-ptp", "pod");
    assert!(host.held().is_empty());
}

/// The other reference plugins that ask for addresses, and the plugins that are chained behind one.
#[test]
#[ignore = "needs root, iproute2, cnitool, a kernel with macvlan and the like, and the reference plugins"]
fn other_main_plugins_get_addresses() {
    only_in!(in_private_namespaces);
    let host = Host::new(5..30);
    let ipam = json!({ "type": "azure-vnet-ipam" });
    for plugins in [
        json!([{ "type": "macvlan", "master": "eth0", "ipam": ipam }]),
        json!([{ "type": "vlan", "master": "eth0", "vlanId": 5, "ipam": ipam }]),
        json!([{ "type": "host-device", "device": "device", "ipam": ipam }]),
        json!([
            { "type": "ptp", "ipam": ipam },
            { "type": "tuning", "mtu": 1400, "sysctl": { "net.ipv4.conf.IFNAME.arp_filter": "1" } },
            { "type": "bandwidth", "ingressRate": 1_000_000, "ingressBurst": 1_000_000 },
        ]),
        // An interface cannot have macvlan and ipvlan links at the same time. The namespace of macvlan's pod is gone
        // by now.
        json!([{ "type": "ipvlan", "master": "eth0", "ipam": ipam }]),
    ] {
        let name = plugins[0]["type"].as_str().unwrap().to_owned();
        for plugin in plugins.as_array().unwrap() {
            let plugin = plugin["type"].as_str().unwrap();
            let _ = symlink(tool(plugin), host.folder.join("bin").join(plugin));
        }
        let conflist = json!({ "cniVersion": "1.0.0", "name": name, "plugins": plugins });
        fs::write(
            host.folder.join("net.d/other.conflist"),
            conflist.to_string(),
        )
        .unwrap();
        sh("ip link add device type dummy");
        let address = host.add(&name, &name);
        let shown = sh(&format!("ip -n {name} -o addr show dev eth0"));
        assert!(shown.contains(&format!(" {address}/")), "{name}: {shown}");
        host.verb("check", &name, &name);
        // Only the kernel shows who has the address.
        sh("rm /run/azure-vnet-ipam.json /run/.azure-vnet-ipam.backup");
        sh(&format!("ip netns add {name}-2"));
        host.failure(host.cnitool("add", "azure-ipam", &format!("{name}-2")));
        assert_eq!(host.held(), [address.as_str()], "{name}");
        host.del(&name, &name);
        assert!(host.held().is_empty(), "{name}");
        sh("ip link del device 2>/dev/null || true; rm -r /run/azure-vnet* /run/.azure-vnet*");
    }
}
