//! The real executable on a node in a folder, with or without the kernel's network namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use ipnet::Ipv4Net;
use serde_json::json;

use super::run::{CacheEntry, CallError, Driver};
use super::{File, History, Pod, Scan};
use crate::harness::{MAC, Node, Outcome, Reply, SUBNET, conf, sh, sh_with, xml, xml_of};
use crate::leaks::azure_vnet_state;
use crate::model::{Answer, Fault};
use crate::namespaces::Pods;
use crate::verbs::call_without_container;

impl File {
    fn path(self) -> &'static str {
        match self {
            File::State => "/var/run/azure-vnet-ipam.json",
            File::Backup => "/var/run/.azure-vnet-ipam.backup",
            File::Lock => "/var/run/azure-vnet/azure-vnet-ipam.lock",
            File::LockFolder => "/var/run/azure-vnet",
        }
    }
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

pub(super) struct Processes {
    /// The node. In a folder, nothing is mounted.
    pods: Pods,
    has_kernel: bool,
    /// Whether only rows with faults are run, or only rows without faults.
    has_faults: bool,
    /// The pods that have a network namespace, and, in `shown`, those of them with an address.
    started: BTreeSet<Pod>,
    shown: BTreeSet<Pod>,
    boot: u32,
}

impl Processes {
    /// A node in a folder, without the kernel's network namespaces.
    pub fn in_folder(has_faults: bool) -> Processes {
        let (node, wire) = Node::with_wire("histories", Reply::Xml(String::new()));
        Processes {
            has_faults,
            ..Processes::new(Pods { node, wire }, false)
        }
    }

    /// A node in private namespaces.
    pub fn in_namespaces(pods: Pods) -> Processes {
        pods.node.put("/boot-id", "");
        let paths = ["/boot-id", BOOT_ID].map(|path| pods.node.path(path));
        sh_with("mount --bind \"$1\" \"$2\"", &[&paths[0], &paths[1]]);
        Processes::new(pods, true)
    }

    fn new(pods: Pods, has_kernel: bool) -> Processes {
        Processes {
            pods,
            has_kernel,
            has_faults: false,
            started: BTreeSet::new(),
            shown: BTreeSet::new(),
            boot: 1,
        }
    }

    fn path(&self, file: File) -> PathBuf {
        self.pods.node.path(file.path())
    }

    fn put_boot_id(&self, text: &str) {
        let path = if self.has_kernel { "/boot-id" } else { BOOT_ID };
        self.pods.node.put(path, text);
    }

    /// Runs a call during which the file system refuses an operation.
    fn call(&self, verb: &str, pod: Pod, ipam: serde_json::Value, fault: Option<Fault>) -> Outcome {
        let call = self.pods.call(verb, &self.container_id(pod));
        let call = call.stdin(conf("1.0.0", ipam));
        let new = |file| PathBuf::from(format!("{}.new", self.path(file).display()));
        const WRITES: &str = "write,pwrite64,writev";
        let (paths, calls) = match fault {
            None => return call.run(),
            Some(Fault::NoSpaceForBackup) => (vec![new(File::Backup)], WRITES),
            Some(Fault::OnlyStateIsWritten) => {
                (vec![new(File::Backup), self.path(File::Lock)], WRITES)
            }
            Some(Fault::BackupNotReadable) => (vec![self.path(File::Backup)], "open,openat"),
            Some(Fault::NoInode) => (vec![new(File::State), new(File::Backup)], "open,openat"),
            Some(Fault::NoRecord) => (vec![self.path(File::Lock)], "pwrite64"),
            Some(Fault::RecordNotReadable) => (vec![self.path(File::Lock)], "pread64"),
            Some(Fault::StateIsRemovedAtLook) => {
                unreachable!("no row that this driver runs has it")
            }
        };
        let paths = paths
            .into_iter()
            .flat_map(|path| ["-P".into(), path.into_os_string()]);
        let expression = format!("inject={calls}:error=ENOSPC");
        let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &expression];
        let strace = strace.map(OsString::from).into_iter();
        call.under(strace.chain(paths)).run()
    }
}

/// The `ipam` object of a call, with the requested address if there is one.
fn ipam_naming(address: Option<&str>) -> serde_json::Value {
    let named = address.map(|address| json!({ "subnet": SUBNET, "ipAddress": address }));
    named.unwrap_or(json!({}))
}

fn checked(outcome: &Outcome) -> Result<(), CallError> {
    match outcome.exit {
        Some(0) => Ok(()),
        _ => {
            let (code, msg) = outcome.error();
            Err(CallError { code, msg })
        }
    }
}

impl Driver for Processes {
    fn reset(&mut self, _: Scan) {
        for pod in std::mem::take(&mut self.started) {
            self.end(pod);
        }
        let node = &self.pods.node;
        for entry in fs::read_dir(node.path("/var/run")).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.ends_with("netns") {
            } else if path.is_dir() {
                fs::remove_dir_all(path).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        }
        let _ = fs::remove_dir_all(node.path("/var/lib"));
        node.set_clock(0);
        self.boot = 1;
        self.set_boot_id_readable(true);
    }

    /// Without the namespaces, the kernel shows no address, and every scan is incomplete.
    fn can_run(&self, history: &History) -> bool {
        let can_scan = match (history.scan, self.has_kernel) {
            (Scan::Any, false) => !history.shows_addresses(),
            (Scan::Any | Scan::Complete, true) | (Scan::Incomplete, false) => true,
            (Scan::Complete, false) | (Scan::Incomplete, true) => false,
        };
        can_scan && self.has_faults == history.has_faults() && !history.is_interleaved()
    }

    fn add(
        &mut self,
        pod: Pod,
        named: Option<&str>,
        fault: Option<Fault>,
    ) -> Result<String, CallError> {
        let outcome = self.call("ADD", pod, ipam_naming(named), fault);
        checked(&outcome).map(|()| outcome.address())
    }

    fn scan(&mut self, _: Pod) {
        unreachable!("it runs no such row")
    }

    fn stop(&mut self, _: Pod) {
        unreachable!("it runs no such row")
    }

    fn del(
        &mut self,
        pod: Pod,
        named: Option<&str>,
        fault: Option<Fault>,
    ) -> Result<(), CallError> {
        let outcome = self.call("DEL", pod, ipam_naming(named), fault);
        checked(&outcome)?;
        outcome.assert_no_output();
        Ok(())
    }

    fn del_other(&mut self, pod: Pod) -> Result<(), CallError> {
        let call = self.pods.call("DEL", &self.container_id(pod));
        let call = call.env("CNI_IFNAME", "net1");
        checked(&call.stdin(conf("1.0.0", json!({}))).run())
    }

    fn gc(&mut self, valid: &[Pod]) -> Result<(), CallError> {
        let valid = valid.iter().map(|pod| self.container_id(*pod));
        let valid: Vec<_> = valid
            .map(|id| json!({ "containerID": id, "ifname": "eth0" }))
            .collect();
        let valid = json!({ "cni.dev/valid-attachments": valid });
        let outcome = call_without_container(&self.pods.node, "GC", valid).run();
        checked(&outcome).or_else(|error| {
            if error.msg.contains("are kept") {
                Ok(())
            } else {
                Err(error)
            }
        })
    }

    fn container_id(&self, pod: Pod) -> String {
        format!("{pod:?}").to_lowercase()
    }

    fn boot_id(&self) -> String {
        format!("8f3c5c52-0000-4000-8000-{:012}", self.boot)
    }

    fn read(&self, file: File) -> Option<Vec<u8>> {
        fs::read(self.path(file)).ok()
    }

    fn write(&mut self, file: File, text: Option<&[u8]>) {
        let path = self.path(file);
        match text {
            Some(text) => self.pods.node.put(file.path(), text),
            None if file == File::LockFolder => fs::remove_dir_all(path).unwrap(),
            None => drop(fs::remove_file(path)),
        }
    }

    fn leftovers(&self) -> Vec<String> {
        let folders = ["/var/run", File::LockFolder.path()].map(|path| self.pods.node.path(path));
        let entries = folders.into_iter().flat_map(|f| fs::read_dir(f).unwrap());
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".new")).collect()
    }

    fn start(&mut self, pod: Pod) {
        if self.started.insert(pod) {
            let id = self.container_id(pod);
            if self.has_kernel {
                sh(&format!("ip netns add {id}"));
            } else {
                self.pods.node.put(&format!("/var/run/netns/{id}"), "");
            }
        }
    }

    fn show(&mut self, pod: Pod, address: &str) {
        self.pods
            .configure_address(&self.container_id(pod), address);
        self.shown.insert(pod);
    }

    fn cache(&mut self, pod: Pod, entry: CacheEntry<'_>) {
        let (node, id) = (&self.pods.node, self.container_id(pod));
        let path = format!("/var/lib/cni/results/azure-{id}-eth0");
        match entry {
            CacheEntry::Address(address) => self.pods.write_cache_entry(&id, address),
            CacheEntry::WithoutNamespace(address) => {
                crate::leaks::cache_without_namespace(node, &id, address);
            }
            CacheEntry::Empty => node.put(&path, ""),
        }
    }

    fn set_endpoints(&mut self, endpoints: &BTreeMap<Pod, &'static str>) {
        let ids: Vec<_> = endpoints
            .keys()
            .map(|pod| self.container_id(*pod))
            .collect();
        let endpoints = ids.iter().zip(endpoints.values());
        let endpoints: Vec<_> = endpoints.map(|(id, a)| (&**id, *a, "no-link")).collect();
        let path = "/var/run/azure-vnet.json";
        if endpoints.is_empty() {
            let _ = fs::remove_file(self.pods.node.path(path));
        } else {
            self.pods.node.put(path, azure_vnet_state(&endpoints));
        }
    }

    fn end(&mut self, pod: Pod) {
        let id = self.container_id(pod);
        self.started.remove(&pod);
        let cached = format!("/var/lib/cni/results/azure-{id}-eth0");
        let _ = fs::remove_file(self.pods.node.path(&cached));
        let namespace = self.pods.node.path(&format!("/var/run/netns/{id}"));
        if self.shown.remove(&pod) {
            self.pods.remove_without_del(&id);
        } else if self.has_kernel && namespace.exists() {
            sh(&format!("ip netns del {id}"));
        } else {
            let _ = fs::remove_file(namespace);
        }
    }

    fn wait(&mut self, seconds: u64) {
        self.pods.node.advance_clock(seconds);
    }

    fn reboot(&mut self) {
        for pod in std::mem::take(&mut self.started) {
            self.end(pod);
        }
        self.boot += 1;
        self.set_boot_id_readable(true);
    }

    fn set_boot_id_readable(&mut self, is_readable: bool) {
        let text = if is_readable {
            self.boot_id() + "\n"
        } else {
            String::new()
        };
        self.put_boot_id(&text);
    }

    /// Removes the stamps of earlier fetches, so that the next ADD queries the source again.
    fn set_source(&mut self, listed: &[&str], subnets: &'static [&'static str], answer: Answer) {
        let _ = fs::remove_file(self.pods.node.fetch_lock_path());
        let wire = &mut self.pods.wire;
        let element = |subnet: &&str| {
            let subnet: Ipv4Net = subnet.parse().unwrap();
            let addresses = listed.iter().map(|address| address.parse().unwrap());
            let inside = addresses.filter(|address: &Ipv4Addr| subnet.contains(address));
            xml_of(subnet, inside.map(|address| u16::from(address.octets()[3])))
        };
        let mut text = element(&subnets[0]);
        for subnet in &subnets[1..] {
            let other = element(subnet);
            let (from, to) = (other.find("<IPSubnet"), other.find("</Interface>"));
            let other = &other[from.unwrap()..to.unwrap()];
            if other.contains(r#"IsPrimary="false""#) {
                text = text.replacen("</Interface>", &format!("{other}</Interface>"), 1);
            }
        }
        let text = match answer {
            Answer::None => return wire.stop(),
            Answer::Good => text,
            Answer::Empty => xml([]),
            Answer::Unmatched => text.replace(MAC, "001122334455"),
        };
        wire.start();
        wire.set(Reply::Xml(text));
    }
}
