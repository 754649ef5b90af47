//! The plugin's own code on the model's node in memory.

use std::collections::BTreeMap;
use std::net::IpAddr;

use azure_vnet_ipam::failure::Failure;
use azure_vnet_ipam::ipam::UnreadablePart;
use azure_vnet_ipam::state::StateFile;

use super::run::{CacheEntry, CallError, Driver};
use super::{File, History, Pod, Scan};
use crate::model::{Answer, Blindness, Container, Fault, Id, InFlight, NODE, User, World};

impl File {
    fn in_memory(self) -> StateFile {
        match self {
            File::State => StateFile::State,
            File::Backup => StateFile::Backup,
            File::Lock | File::LockFolder => unreachable!("it is no file of the state"),
        }
    }
}

pub(super) struct Memory {
    world: World,
    /// The ADDs that have scanned the node.
    scanned: BTreeMap<Pod, InFlight>,
    /// The worlds in which ADDs have stopped.
    stopped: BTreeMap<Pod, World>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            world: World::new(NODE),
            scanned: BTreeMap::new(),
            stopped: BTreeMap::new(),
        }
    }
}

fn id(pod: Pod) -> Id {
    Id {
        container: pod as u32 + 1,
        interface: 0,
        user: User::Pod(pod as u8),
    }
}

fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

fn checked<T>(result: Result<T, Failure>) -> Result<T, CallError> {
    result.map_err(|failure| {
        let error = failure.to_cni("azure-vnet-ipam");
        CallError {
            code: error.code as i64,
            msg: error.msg,
        }
    })
}

impl Driver for Memory {
    fn reset(&mut self, scan: Scan) {
        *self = Memory::default();
        if scan == Scan::Incomplete {
            self.world.blind = Blindness::Namespaces;
        }
    }

    fn can_run(&self, _: &History) -> bool {
        true
    }

    fn add(
        &mut self,
        pod: Pod,
        named: Option<&str>,
        fault: Option<Fault>,
    ) -> Result<String, CallError> {
        self.world.clock += 100_000_000;
        let scanned = self.scanned.remove(&pod);
        let add = scanned.unwrap_or_else(|| self.world.unchecked_start_add(id(pod), named));
        let before = self.stopped.remove(&pod);
        let address = checked(self.world.unchecked_add(add, before, fault))?;
        Ok(address.to_string())
    }

    fn scan(&mut self, pod: Pod) {
        let mut add = self.world.unchecked_start_add(id(pod), None);
        self.world.unchecked_scan(&mut add);
        self.scanned.insert(pod, add);
    }

    fn stop(&mut self, pod: Pod) {
        self.stopped.insert(pod, self.world.clone());
        self.world.disk.remove_lock_folder();
    }

    fn del(
        &mut self,
        pod: Pod,
        named: Option<&str>,
        fault: Option<Fault>,
    ) -> Result<(), CallError> {
        self.world.clock += 100_000_000;
        checked(self.world.unchecked_del(id(pod), named, fault))
    }

    fn del_other(&mut self, pod: Pod) -> Result<(), CallError> {
        self.world.clock += 100_000_000;
        let other = Id {
            interface: 1,
            ..id(pod)
        };
        checked(self.world.unchecked_del(other, None, None))
    }

    fn gc(&mut self, valid: &[Pod]) -> Result<(), CallError> {
        checked(self.world.unchecked_gc(valid.iter().map(|pod| id(*pod))))
    }

    fn container_id(&self, pod: Pod) -> String {
        id(pod).container_id()
    }

    fn boot_id(&self) -> String {
        self.world.boot_id().unwrap_or_default()
    }

    fn read(&self, file: File) -> Option<Vec<u8>> {
        let disk = &self.world.disk;
        match file {
            File::Lock => Some(disk.lock.to_vec()),
            file => disk.text(file.in_memory()).map(<[u8]>::to_vec),
        }
    }

    fn write(&mut self, file: File, text: Option<&[u8]>) {
        let disk = &mut self.world.disk;
        match (file, text) {
            (File::LockFolder, _) => disk.remove_lock_folder(),
            (File::Lock, Some(text)) => disk.lock = text.into(),
            (File::Lock, None) => {
                disk.lock = std::rc::Rc::default();
                disk.removed_locks += 1;
            }
            (file, Some(text)) => disk.put(file.in_memory(), text),
            (file, None) => drop(disk.files.remove(&file.in_memory())),
        }
    }

    /// The node in memory replaces a file in one step, without a temporary file.
    fn leftovers(&self) -> Vec<String> {
        Vec::new()
    }

    fn start(&mut self, pod: Pod) {
        let number = id(pod).container;
        let container = Container {
            number,
            inode: Some(100 + u64::from(number)),
            is_gone: false,
        };
        self.world.containers.entry(pod as u8).or_insert(container);
    }

    fn show(&mut self, pod: Pod, address: &str) {
        let configured = &mut self.world.strangers.configured;
        configured.insert(id(pod), vec![ip(address)]);
    }

    fn cache(&mut self, pod: Pod, entry: CacheEntry<'_>) {
        let (id, now) = (id(pod), self.world.now());
        let strangers = &mut self.world.strangers;
        match entry {
            CacheEntry::Address(address) => {
                self.world.cache.insert(id, vec![ip(address)]);
            }
            CacheEntry::WithoutNamespace(address) => {
                self.world.cache.insert(id, vec![ip(address)]);
                strangers.without_namespace.insert(id);
            }
            CacheEntry::Empty => strangers.undecodable.push(UnreadablePart {
                name: format!("azure-{}-{}", id.container_id(), id.if_name()),
                changed: Some(now),
            }),
        }
    }

    fn set_endpoints(&mut self, endpoints: &BTreeMap<Pod, &'static str>) {
        let endpoints = endpoints.iter();
        let endpoints = endpoints.map(|(pod, address)| (id(*pod), vec![ip(address)]));
        self.world.strangers.endpoints = endpoints.collect();
    }

    fn end(&mut self, pod: Pod) {
        if let Some(container) = self.world.containers.get_mut(&(pod as u8)) {
            container.is_gone = true;
        }
        self.world.strangers.configured.remove(&id(pod));
        self.world.cache.remove(&id(pod));
    }

    fn wait(&mut self, seconds: u64) {
        self.world.clock += seconds * 1_000_000_000;
    }

    fn reboot(&mut self) {
        for container in self.world.containers.values_mut() {
            container.is_gone = true;
        }
        self.world.strangers.configured.clear();
        self.world.cache.clear();
        self.world.boot += 1;
        self.world.clock = 10_000_000_000;
    }

    fn set_boot_id_readable(&mut self, is_readable: bool) {
        self.world.is_boot_id_readable = is_readable;
    }

    fn set_source(&mut self, listed: &[&str], subnets: &'static [&'static str], answer: Answer) {
        self.world.listed = listed.iter().map(|address| ip(address)).collect();
        self.world.subnets = subnets;
        self.world.answer = answer;
    }
}
