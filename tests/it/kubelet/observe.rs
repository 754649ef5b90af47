//! Observes the node: addresses in network namespaces, running sandboxes, held addresses in the state, and pods in
//! the API server. Finds every deviation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use crate::harness::held;

/// This folder has one folder for each running container of containerd.
const TASKS: &str = "/run/containerd/io.containerd.runtime.v2.task/k8s.io";
const NAMESPACES: &str = "/run/netns";
const STATE: &str = "/run/azure-vnet-ipam.json";

/// A pod in the API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    pub name: String,
    pub address: String,
    /// Whether all its containers run, and it is not being deleted.
    pub is_running: bool,
}

impl Pod {
    pub fn from_object(object: &Value) -> Pod {
        let status = &object["status"];
        let containers = status["containerStatuses"].as_array();
        let is_ready = containers.is_some_and(|all| all.iter().all(|c| c["ready"] == true));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Pod {
            name: text(&object["metadata"]["name"]),
            address: text(&status["podIP"]),
            is_running: status["phase"] == "Running"
                && is_ready
                && object["metadata"]["deletionTimestamp"].is_null(),
        }
    }
}

/// A running sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sandbox {
    pub pod: String,
    /// The name of its network namespace.
    pub namespace: String,
    /// The addresses in its network namespace.
    pub addresses: BTreeSet<String>,
}

/// The node at one moment.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The addresses configured in each mounted network namespace.
    pub namespaces: BTreeMap<String, BTreeSet<String>>,
    /// The sandboxes by ID.
    pub sandboxes: BTreeMap<String, Sandbox>,
    /// Container ID by address. `None` when the state cannot be read.
    pub held: Option<BTreeMap<String, String>>,
    pub pods: Vec<Pod>,
}

impl Observation {
    /// Captures the node. Must be called in its mount namespace.
    pub fn capture(pods: Vec<Pod>) -> Observation {
        Observation {
            namespaces: namespaces(),
            sandboxes: sandboxes(),
            held: read_held(),
            pods,
        }
    }

    /// Finds addresses that two network namespaces or two pods have.
    pub fn duplicates(&self) -> Vec<String> {
        let mut found = Vec::new();
        let namespaces = self.namespaces.iter();
        let in_namespaces = namespaces.flat_map(|(name, all)| all.iter().map(move |a| (a, name)));
        let sandboxes = self.sandboxes.iter();
        let in_sandboxes =
            sandboxes.flat_map(|(id, sandbox)| sandbox.addresses.iter().map(move |a| (a, id)));
        let running = self.pods.iter().filter(|pod| pod.is_running);
        let in_status = running.map(|pod| (&pod.address, &pod.name));
        for (place, all) in [
            ("namespaces", in_namespaces.collect::<Vec<_>>()),
            ("sandboxes", in_sandboxes.collect()),
            ("status of the pods", in_status.collect()),
        ] {
            let mut owners = BTreeMap::<_, Vec<_>>::new();
            for (address, owner) in all {
                owners.entry(address).or_default().push(owner);
            }
            owners.retain(|_, owners| owners.len() > 1);
            let describe = |(address, owners)| format!("{address} is in the {place} {owners:?}");
            found.extend(owners.iter().map(describe));
        }
        found
    }

    /// Finds mounted network namespaces that belong to no running sandbox.
    pub fn forgotten(&self) -> Vec<String> {
        let paths: BTreeSet<_> = self.sandboxes.values().map(|s| &s.namespace).collect();
        let names = self.namespaces.keys();
        names.filter(|n| !paths.contains(n)).cloned().collect()
    }

    /// Finds addresses that the state holds, but no running sandbox and no mounted namespace has.
    pub fn lost(&self) -> Vec<String> {
        let held = self.held.iter().flatten();
        let lost = held.filter(|(address, id)| {
            let mut mounted = self.namespaces.values();
            !self.sandboxes.contains_key(*id) && !mounted.any(|all| all.contains(*address))
        });
        lost.map(|(address, id)| format!("{address} is held for {id}, which does not run"))
            .collect()
    }

    /// Finds deviations from this: exactly the wanted pods run, each with one address, and the state holds it for the
    /// pod.
    pub fn problems_of_pods(&self, wanted: &BTreeSet<String>) -> Vec<String> {
        let mut problems = self.duplicates();
        for pod in &self.pods {
            if !wanted.contains(&pod.name) {
                problems.push(format!("pod {} is not gone", pod.name));
            }
        }
        for name in wanted {
            if !self.pods.iter().any(|p| p.name == *name && p.is_running) {
                problems.push(format!("pod {name} does not run"));
            }
        }
        let mut seen = BTreeSet::new();
        for (id, sandbox) in &self.sandboxes {
            let pod = &sandbox.pod;
            if !wanted.contains(pod) {
                problems.push(format!("sandbox {id} of pod {pod} is not wanted"));
            } else if !seen.insert(pod) {
                problems.push(format!("pod {pod} has two sandboxes"));
            }
            let [address] = &sandbox.addresses.iter().collect::<Vec<_>>()[..] else {
                let addresses = &sandbox.addresses;
                problems.push(format!("sandbox {id} has the addresses {addresses:?}"));
                continue;
            };
            let holder = self.held.iter().flatten().find(|(a, _)| a == address);
            if holder.is_none_or(|(_, holder)| holder != id) {
                problems.push(format!(
                    "{address} of sandbox {id} is held for {:?}",
                    holder.map(|(_, id)| id)
                ));
            }
            if self
                .pods
                .iter()
                .any(|p| p.name == *pod && p.address != **address)
            {
                problems.push(format!("{address} is not in the status of pod {pod}"));
            }
        }
        for pod in wanted.iter().filter(|pod| !seen.contains(pod)) {
            problems.push(format!("pod {pod} has no sandbox"));
        }
        if self.held.is_none() && !wanted.is_empty() {
            problems.push("the state cannot be read".into());
        }
        problems
    }
}

/// The addresses of a network namespace without loopback addresses, from its table of local routes.
fn local_addresses(fib_trie: &str) -> BTreeSet<String> {
    let mut last = "";
    let mut found = BTreeSet::new();
    for line in fib_trie.lines() {
        match line.split_once("|-- ") {
            Some((_, address)) => last = address,
            None if line.trim() == "/32 host LOCAL" && !last.starts_with("127.") => {
                found.insert(last.to_owned());
            }
            None => (),
        }
    }
    found
}

/// Enters every mounted network namespace. Leaves out a namespace that is being created or unmounted.
fn namespaces() -> BTreeMap<String, BTreeSet<String>> {
    let enter = |path: &Path| {
        let file = File::open(path).ok()?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
        let routes = fs::read_to_string("/proc/thread-self/net/fib_trie").ok()?;
        Some(local_addresses(&routes))
    };
    // Run in a separate thread, because the thread stays in the last namespace.
    let enter_all = move || {
        let entries = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
        entries
            .filter_map(|e| Some((e.file_name().into_string().unwrap(), enter(&e.path())?)))
            .collect()
    };
    thread::spawn(enter_all).join().unwrap()
}

fn sandboxes() -> BTreeMap<String, Sandbox> {
    let read_sandbox = |folder: &Path| {
        let config = fs::read(folder.join("config.json")).ok()?;
        let config: Value = serde_json::from_slice(&config).ok()?;
        let annotation = |name: &str| {
            config["annotations"][format!("io.kubernetes.cri.{name}")]
                .as_str()
                .map(str::to_owned)
        };
        if annotation("container-type")? != "sandbox" {
            return None;
        }
        let pid = fs::read_to_string(folder.join("init.pid")).ok()?;
        let process = Path::new("/proc").join(pid.trim());
        // A killed containerd may leave the folder behind, and another process may get the same process ID.
        let groups = fs::read_to_string(process.join("cgroup")).ok()?;
        let is_own = groups.contains(folder.file_name()?.to_str()?);
        let routes = is_own.then(|| fs::read_to_string(process.join("net/fib_trie")));
        let routes = routes?.ok()?;
        let all = config["linux"]["namespaces"].as_array()?;
        let network = all.iter().find(|n| n["type"] == "network")?;
        let path = Path::new(network["path"].as_str()?);
        Some(Sandbox {
            pod: annotation("sandbox-name")?,
            namespace: path.file_name()?.to_str()?.to_owned(),
            addresses: local_addresses(&routes),
        })
    };
    let entries = fs::read_dir(TASKS).into_iter().flatten().flatten();
    entries
        .filter_map(|e| {
            Some((
                e.file_name().into_string().unwrap(),
                read_sandbox(&e.path())?,
            ))
        })
        .collect()
}

/// The user namespace of a running sandbox, such as `user:[4026531837]`.
pub fn user_namespace(sandbox: &str) -> PathBuf {
    let pid = fs::read_to_string(Path::new(TASKS).join(sandbox).join("init.pid")).unwrap();
    fs::read_link(format!("/proc/{}/ns/user", pid.trim())).unwrap()
}

pub fn own_user_namespace() -> PathBuf {
    fs::read_link("/proc/self/ns/user").unwrap()
}

/// Reads the held addresses in the state. A missing state holds none.
fn read_held() -> Option<BTreeMap<String, String>> {
    let Ok(text) = fs::read(STATE) else {
        return Some(BTreeMap::new());
    };
    let state: Value = serde_json::from_slice(&text).ok()?;
    state["IPAM"]["AddressSpaces"].as_object()?;
    Some(held(&state))
}

/// A healthy node with the pods one and two.
fn healthy() -> (Observation, BTreeSet<String>) {
    let mut seen = Observation {
        held: Some(BTreeMap::new()),
        ..Observation::default()
    };
    for (n, name) in ["one", "two"].into_iter().enumerate() {
        let (address, id) = (format!("10.0.0.{n}"), format!("id-{name}"));
        let addresses = BTreeSet::from([address.clone()]);
        let namespace = format!("cni-{name}");
        seen.namespaces.insert(namespace.clone(), addresses.clone());
        let held = seen.held.as_mut().unwrap();
        held.insert(address.clone(), id.clone());
        let sandbox = Sandbox {
            pod: name.to_owned(),
            namespace,
            addresses,
        };
        seen.sandboxes.insert(id, sandbox);
        seen.pods.push(Pod {
            name: name.to_owned(),
            address,
            is_running: true,
        });
    }
    (seen, ["one".to_owned(), "two".to_owned()].into())
}

#[test]
fn every_deviation_of_a_pod_is_found() {
    type Break = fn(&mut Observation);
    let deviations: [(&str, Break); 11] = [
        ("is in the namespaces", |seen| {
            let all = seen.namespaces["cni-one"].clone();
            seen.namespaces.get_mut("cni-two").unwrap().extend(all);
        }),
        ("is in the sandboxes", |seen| {
            let all = seen.sandboxes["id-one"].addresses.clone();
            seen.sandboxes.get_mut("id-two").unwrap().addresses = all;
        }),
        ("is in the status of the pods", |seen| {
            seen.pods[1].address = seen.pods[0].address.clone();
        }),
        ("pod three is not gone", |seen| {
            seen.pods.push(Pod {
                name: "three".into(),
                ..Pod::default()
            });
        }),
        ("pod one does not run", |seen| {
            seen.pods[0].is_running = false;
        }),
        ("pod two has no sandbox", |seen| {
            seen.sandboxes.remove("id-two");
        }),
        ("pod one has two sandboxes", |seen| {
            let second = Sandbox {
                addresses: ["10.0.0.9".to_owned()].into(),
                ..seen.sandboxes["id-one"].clone()
            };
            seen.sandboxes.insert("id-three".into(), second);
        }),
        ("of pod three is not wanted", |seen| {
            let sandbox = seen.sandboxes.get_mut("id-one").unwrap();
            sandbox.pod = "three".into();
        }),
        ("has the addresses {}", |seen| {
            seen.sandboxes.get_mut("id-one").unwrap().addresses.clear();
        }),
        ("10.0.0.0 of sandbox id-one is held for None", |seen| {
            seen.held.as_mut().unwrap().remove("10.0.0.0");
        }),
        ("the state cannot be read", |seen| seen.held = None),
    ];
    let (seen, wanted) = healthy();
    assert_eq!(seen.problems_of_pods(&wanted), [""; 0]);
    for (words, deviate) in deviations {
        let (mut seen, wanted) = healthy();
        deviate(&mut seen);
        let problems = seen.problems_of_pods(&wanted);
        let is_reported = problems.iter().any(|p| p.contains(words));
        assert!(is_reported, "{words}: {problems:#?}");
    }
}

#[test]
fn lost_addresses_and_forgotten_namespaces_are_found() {
    let (mut seen, _) = healthy();
    assert_eq!((seen.lost(), seen.forgotten()), (vec![], vec![]));
    seen.sandboxes.remove("id-one");
    assert_eq!(seen.forgotten(), ["cni-one"]);
    // The address is still in use.
    assert_eq!(seen.lost(), [""; 0]);
    seen.namespaces.remove("cni-one");
    let lost = "10.0.0.0 is held for id-one, which does not run";
    assert_eq!(seen.lost(), [lost]);
}

#[test]
fn addresses_are_read_from_the_kernels_table() {
    let table = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 198.18.0.0
        /24 link UNICAST
Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 127.0.0.1
        /32 host LOCAL
     |-- 198.18.0.7
        /32 host LOCAL
     |-- 198.18.0.255
        /32 link BROADCAST
";
    let expected = ["198.18.0.7".to_owned()].into();
    assert_eq!(local_addresses(table), expected);
}

#[test]
fn deleted_pod_does_not_count_as_running() {
    let mut object = serde_json::json!({
        "metadata": { "name": "one" },
        "status": { "phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{ "ready": true }] },
    });
    assert!(Pod::from_object(&object).is_running);
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert!(!Pod::from_object(&object).is_running);
}
