//! A simulation of the caller azure-vnet (contract section 19): what it sends, how it reads answers, and how it reacts to
//! errors. It runs everywhere; `genuine_azure_vnet.rs` confirms it with azure-vnet itself, where that could be built.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use crate::harness::{MAC, Node, Outcome, Reply, SUBNET, WireServer, xml};

/// The main plugin, with its own state in `/var/run/azure-vnet.json`.
struct AzureVnet {
    node: Node,
    wire: WireServer,
    /// Address by container ID, of the endpoints in its state; `None` while it has no network.
    endpoints: Option<BTreeMap<String, String>>,
    /// How many pods were given an address so far.
    lives: usize,
}

/// The result of an ADD, as the runtime sees it.
type Heard = Result<String, String>;

impl AzureVnet {
    fn on(last: impl IntoIterator<Item = u16>) -> AzureVnet {
        let (node, wire) = Node::with_wire("azurevnet", Reply::Xml(xml(last)));
        AzureVnet {
            node,
            wire,
            endpoints: None,
            lives: 0,
        }
    }

    /// The configuration as azure-vnet prints it again: without unknown keys and without empty ones.
    fn stdin(subnet: Option<&str>, address: Option<&str>) -> String {
        let mut ipam = json!({ "type": "azure-vnet-ipam" });
        for (key, value) in [("subnet", subnet), ("ipAddress", address)] {
            if let Some(value) = value {
                ipam[key] = value.into();
            }
        }
        json!({
            "cniVersion": "0.3.0", "name": "azure", "type": "azure-vnet", "mode": "bridge",
            "ipsToRouteViaHost": ["169.254.20.10"], "ipam": ipam, "dns": {}, "runtimeConfig": { "dns": {} },
            "windowsSettings": {},
        })
        .to_string()
    }

    fn delegate(
        &self,
        command: &str,
        pod: &str,
        subnet: Option<&str>,
        address: Option<&str>,
    ) -> Outcome {
        self.node
            .call(command, pod)
            .env("CNI_NETNS", &Self::netns(pod))
            .env(
                "CNI_ARGS",
                &format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}"),
            )
            .stdin(Self::stdin(subnet, address))
            .run()
    }

    fn netns(pod: &str) -> String {
        format!("/var/run/netns/cni-{pod}")
    }

    /// The message that azure-vnet makes from the output of a failed call.
    fn message(outcome: &Outcome) -> String {
        match serde_json::from_str::<Value>(&outcome.stdout) {
            Ok(error) => error["msg"].as_str().unwrap().to_owned(),
            Err(_) => panic!("it would log \"netplugin failed\" and know nothing: {outcome:?}"),
        }
    }

    /// Runs an ADD. With a failure set, a later step of azure-vnet fails.
    fn add(&mut self, pod: &str, later_step_fails: bool) -> Heard {
        let subnet = self.endpoints.as_ref().map(|_| SUBNET);
        let mut outcome = self.delegate("ADD", pod, subnet, None);
        if outcome.exit != Some(0) && Self::message(&outcome).contains("no available address pools")
        {
            if self.endpoints.is_none() {
                let _ = fs::remove_file(self.node.state_path());
            }
            outcome = self.delegate("ADD", pod, subnet, None);
        }
        if outcome.exit != Some(0) {
            return Err(Self::message(&outcome));
        }
        let address = outcome.address();
        assert_eq!(outcome.json()["ips"][0]["version"], "4");
        if later_step_fails {
            let release = self.delegate("DEL", pod, Some(SUBNET), Some(&address));
            release.assert_no_output();
            return Err("a later step failed".to_owned());
        }
        self.node.put(&Self::netns(pod), "");
        self.lives += 1;
        self.endpoints
            .get_or_insert_default()
            .insert(pod.to_owned(), address.clone());
        self.save();
        Ok(address)
    }

    /// Runs an ADD for a container that has an endpoint already: azure-vnet calls the plugin first, finds the endpoint then, and
    /// takes back the address.
    fn add_again(&self, pod: &str) {
        let add = self.delegate("ADD", pod, Some(SUBNET), None);
        let release = self.delegate("DEL", pod, Some(SUBNET), Some(&add.address()));
        release.assert_no_output();
    }

    /// Runs a DEL: removes and saves the endpoint first, then releases the address.
    fn del(&mut self, pod: &str) -> Result<(), String> {
        let Some(endpoints) = &mut self.endpoints else {
            return Ok(());
        };
        let address = endpoints.remove(pod);
        let _ = fs::remove_file(self.node.path(&Self::netns(pod)));
        self.save();
        let outcome = self.delegate("DEL", pod, Some(SUBNET), address.as_deref());
        if outcome.exit == Some(0) {
            Ok(())
        } else {
            Err(Self::message(&outcome))
        }
    }

    fn save(&self) {
        let endpoints: serde_json::Map<_, _> = self
            .endpoints
            .iter()
            .flatten()
            .map(|(pod, address)| {
                let id = format!("{}-eth0", pod.get(..8).unwrap_or_default());
                let endpoint = json!({
                    "Id": id, "IfName": format!("{pod}2"), "HostIfName": pod, "ContainerID": pod,
                    "IPAddresses": [{ "IP": address, "Mask": "//8AAA==" }],
                    "NetworkNameSpace": Self::netns(pod), "PODName": pod, "PODNameSpace": "default",
                });
                (id, endpoint)
            })
            .collect();
        let network = json!({ "Id": "azure", "Mode": "bridge", "Endpoints": endpoints });
        let interface = json!({ "Name": "eth0", "Networks": { "azure": network } });
        let state = json!({ "Network": { "Version": "v1.4.59", "ExternalInterfaces": { "eth0": interface } } });
        self.node.put("/var/run/azure-vnet.json", state.to_string());
    }

    /// Removes azure-vnet's state, as Cilium's agent does.
    fn forget_endpoints(&mut self) -> BTreeMap<String, String> {
        fs::remove_file(self.node.path("/var/run/azure-vnet.json")).unwrap();
        self.endpoints.take().unwrap_or_default()
    }

    fn live_pods(&self) -> BTreeMap<String, String> {
        self.endpoints.clone().unwrap_or_default()
    }

    /// Checks that every pod has its own address and that the plugin has recorded it.
    fn assert_consistent(&self) {
        let live = self.live_pods();
        let addresses: BTreeSet<_> = live.values().collect();
        assert_eq!(addresses.len(), live.len(), "{live:?}");
        let held = self.node.held();
        for (pod, address) in &live {
            assert_eq!(held.get(address), Some(pod), "{held:?}");
        }
    }
}

fn pod(n: usize) -> String {
    format!("{n:08}c1c1c1c1")
}

#[test]
fn thirty_pods_live_under_azure_vnet_with_failures() {
    // The answer does not list the node's interface yet.
    let mut caller = AzureVnet::on(5..17);
    caller
        .wire
        .set(Reply::Xml(xml(5..17).replace(MAC, "7C1E52000000")));
    let refused = caller.add(&pod(1), false).unwrap_err();
    assert!(refused.contains("no available address pools"), "{refused}");
    assert_eq!(
        caller.wire.count(),
        2,
        "it asks again after its own recovery"
    );
    // The answer lists it. Pods are added until the pool is full; one of them meets a failure of azure-vnet itself.
    caller.wire.set(Reply::Xml(xml(5..17)));
    for n in 1..=12 {
        if n == 4 {
            caller.add(&pod(n), true).unwrap_err();
            caller.assert_consistent();
        }
        caller.add(&pod(n), false).unwrap();
        caller.assert_consistent();
    }
    let full = caller.add(&pod(13), false).unwrap_err();
    assert!(
        full.contains("No available addresses") && !full.contains("no available address pools"),
        "words at which azure-vnet deletes the state must not stand here: {full}"
    );
    assert_eq!(caller.live_pods().len(), 12);
    // Pods come and go without a wire server.
    caller.wire.set(Reply::Status(500, String::new()));
    for n in 1..=6 {
        caller.del(&pod(n)).unwrap();
        // The runtime repeats the DEL; azure-vnet has no endpoint any more.
        caller.del(&pod(n)).unwrap();
        caller.add(&pod(12 + n), false).unwrap();
        caller.assert_consistent();
    }
    assert_eq!(caller.live_pods().len(), 12);
    // State and journal are damaged: the addresses of endpoints stay held, and new pods wait for the quarantine.
    fs::write(caller.node.state_path(), "{ half").unwrap();
    caller.node.remove_journal();
    caller.wire.set(Reply::Xml(xml(5..25)));
    let wait = caller.add(&pod(19), false).unwrap_err();
    assert!(wait.contains("the state was lost"), "{wait}");
    caller.assert_consistent();
    caller.node.advance_clock(31);
    for n in 19..=24 {
        caller.add(&pod(n), false).unwrap();
        caller.assert_consistent();
    }
    // azure-vnet loses its state: its next ADD names no subnet, and takes no address of a running pod.
    let running = caller.forget_endpoints();
    caller.del(&pod(20)).unwrap();
    for n in 25..=26 {
        let address = caller.add(&pod(n), false).unwrap();
        assert!(running.values().all(|theirs| *theirs != address));
        caller.assert_consistent();
    }
    // The runtime deletes the forgotten pods. azure-vnet passes on their container IDs.
    for pod in running.keys() {
        caller.del(pod).unwrap();
        caller.assert_consistent();
    }
    // The pool still works. Addresses that the source no longer lists stay with their holders.
    caller.wire.set(Reply::Xml(xml(20..30)));
    for n in 27..=30 {
        caller.add(&pod(n), false).unwrap();
        caller.assert_consistent();
    }
    assert_eq!(caller.lives, 30);
    for pod in caller.live_pods().into_keys() {
        caller.del(&pod).unwrap();
        caller.assert_consistent();
    }
    assert!(caller.node.held().is_empty());
}

#[test]
fn second_add_of_a_running_pod_keeps_its_address() {
    let mut caller = AzureVnet::on(5..7);
    let (one, two) = (pod(1), pod(2));
    for pod in [&one, &two] {
        let address = caller.add(pod, false).unwrap();
        let link = format!("/sys/class/net/{pod}");
        caller.node.put(&format!("{link}/ifindex"), "9\n");
        caller
            .node
            .put(&format!("{link}/address"), "aa:aa:aa:aa:aa:aa\n");
        caller.add_again(pod);
        assert_eq!(caller.node.held()[&address], *pod);
    }
    caller.assert_consistent();
    // A DEL of the pod is one: azure-vnet v1.4.59 has forgotten the endpoint by then.
    caller.del(&one).unwrap();
    caller.assert_consistent();
    assert_eq!(caller.node.held().len(), 1);
    // Newer versions have removed only the link by then.
    let link = caller.node.path(&format!("/sys/class/net/{two}"));
    fs::remove_dir_all(link).unwrap();
    caller.add_again(&two);
    assert!(caller.node.held().is_empty());
}
