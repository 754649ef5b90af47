//! A model of the original, which reads and writes the shared state file (contract sections 5, 9-12).

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use azure_vnet_ipam::ipam::Held;
use azure_vnet_ipam::state::StateFile;

use ipnet::IpNet;

use super::losses::is_lost_on_disk;
use super::world::{Id, Pod, SUBNET, World};

/// The text of the lock file after the original took the lock: its process ID.
pub(crate) const LOCK_TEXT: &[u8] = b"4711";

/// The state from which the original starts when there is none.
pub(crate) fn empty_state() -> Value {
    let pool = json!({
        "Id": SUBNET, "IfName": "eth0", "Subnet": { "IP": "10.224.0.0", "Mask": "//8AAA==" }, "Gateway": "10.224.0.1",
        "Addresses": {}, "IsIPv6": false, "Priority": 0, "RefCount": 1,
    });
    let space = json!({ "Id": "local", "Scope": 0, "Pools": { SUBNET: pool } });
    json!({ "IPAM": { "Version": "v1.4.59", "TimeStamp": "", "AddressSpaces": { "local": space } } })
}

/// The records of the pool, if the state has the pool.
pub(crate) fn records(state: &mut Value) -> Option<&mut Map<String, Value>> {
    let pool = &mut state["IPAM"]["AddressSpaces"]["local"]["Pools"][SUBNET];
    pool["Addresses"].as_object_mut()
}

/// Merges an answer of the source that lists these addresses.
pub(crate) fn merge<'a>(
    records: &mut Map<String, Value>,
    listed: impl Iterator<Item = &'a IpAddr> + Clone,
) {
    let is_listed = |address: &str| listed.clone().any(|a| a.to_string() == address);
    records.retain(|address, record| record["InUse"] == true || is_listed(address));
    for listed in listed.clone() {
        let new = json!({ "ID": "", "Addr": listed, "InUse": false });
        records.entry(listed.to_string()).or_insert(new);
    }
}

pub(crate) fn take(records: &mut Map<String, Value>, address: &str, container_id: &str) {
    records[address]["ID"] = container_id.into();
    records[address]["InUse"] = true.into();
}

/// Releases the address of a container, if it has one.
pub(crate) fn release(records: &mut Map<String, Value>, container_id: &str) {
    let mut records = records.values_mut();
    if let Some(record) = records.find(|r| r["ID"] == container_id && r["InUse"] == true) {
        record["ID"] = "".into();
        record["InUse"] = false.into();
    }
}

impl World {
    /// The state as the original reads it. The original trusts the whole file. If it cannot read the file, it fails.
    fn originals_state(&self) -> Option<Value> {
        serde_json::from_slice(self.disk.text(StateFile::State)?)
            .ok()
            .filter(|v: &Value| v["IPAM"].is_object())
    }

    /// Whether the original's view is correct. The original does not know boots, quarantines or old copies. Promise
    /// P1 excludes "what the original does alone, such as starting empty on a lost state".
    fn original_can_be_trusted(&self) -> bool {
        let (Some(value), Some(state)) = (self.originals_state(), self.state()) else {
            return false;
        };
        let known = self.held();
        !is_lost_on_disk(&self.view())
            && state.ipam().quarantine.is_none()
            && value["IPAM"]["AddressSpaces"]["local"].is_object()
            && self
                .pods
                .values()
                .all(|pod| pod.addresses.iter().all(|a| known.contains(a)))
    }

    /// Writes the state as the original does. The original replaces our process ID and mark with its own process ID.
    fn originals_write(&mut self, mut value: Value) {
        self.original_wrote_last = true;
        self.has_original = true;
        // The original has merged the source's answer.
        self.newest_answer = None;
        value["IPAM"]["TimeStamp"] = format!("original-{}", self.clock).into();
        self.old_state = self.disk.files.get(&StateFile::State).cloned();
        self.last_copy = Some(self.disk.clone());
        let text = serde_json::to_vec_pretty(&value).unwrap();
        self.disk.put(StateFile::State, &text);
        self.disk.lock = LOCK_TEXT.into();
        self.truth
            .original_saved(self.old_state.as_ref(), &self.disk);
    }

    /// The listed addresses of the only subnet that the original has here.
    fn listed_in_subnet(&self) -> impl Iterator<Item = &IpAddr> + Clone {
        let subnet: IpNet = SUBNET.parse().unwrap();
        self.listed.iter().filter(move |a| subnet.contains(*a))
    }

    /// The original's VERSION takes the lock. The text of the lock file becomes its process ID.
    pub(super) fn originals_version(&mut self) {
        self.begin_loss();
        self.last_copy = Some(self.disk.clone());
        let before = self.disk.clone();
        self.disk.lock = LOCK_TEXT.into();
        self.end_loss(before);
    }

    /// The original's ADD without a state. The original starts from nothing, and may allocate an address that another
    /// pod has. This program cannot prevent that ("what the original does alone, such as starting empty on a lost
    /// state"). So the model picks an address that no pod has.
    pub(super) fn original_starts_empty(&mut self, pod: u8) {
        if self
            .disk
            .text(StateFile::State)
            .is_some_and(|text| !text.is_empty())
        {
            return;
        }
        let id = self.start(pod);
        let is_sequential = |other: &Id| other.container != id.container || *other == id;
        let mut calls = self.in_flight.values().map(|add| &add.id);
        if id.interface != 0
            || calls.any(|other| other.container == id.container)
            || !self.pods.keys().all(is_sequential)
        {
            return;
        }
        self.begin_loss();
        let (before, pods) = (self.disk.clone(), self.pods.clone());
        let mut value = empty_state();
        let records = records(&mut value).unwrap();
        merge(records, self.listed_in_subnet());
        let is_taken = |address: &IpAddr| {
            self.pods
                .values()
                .any(|pod| pod.addresses.contains(address))
        };
        let free: Vec<IpAddr> = records.keys().map(|key| key.parse().unwrap()).collect();
        let pick = free.into_iter().rev().find(|address| !is_taken(address));
        if let Some(address) = pick {
            take(records, &address.to_string(), &id.container_id());
            let pod = Pod {
                addresses: vec![address],
                since: self.clock,
                configured: false,
            };
            self.pods.insert(id, pod);
        }
        let (old_state, wrote_last, truth) = (
            self.old_state.clone(),
            self.original_wrote_last,
            self.truth.clone(),
        );
        self.originals_write(value);
        self.truth.started_empty();
        if self.end_loss(before) {
            // A skipped event has no effect.
            (
                self.pods,
                self.old_state,
                self.original_wrote_last,
                self.truth,
            ) = (pods, old_state, wrote_last, truth);
        }
    }

    /// The original's ADD with a subnet. It uses its own record by container ID, else any free one (contract section
    /// 11).
    pub(super) fn originals_add(&mut self, pod: u8) {
        if !self.original_can_be_trusted() {
            return;
        }
        let id = self.start(pod);
        // Calls of a container are sequential, and "Records of the original (container ID only) match by container
        // ID" (D8).
        if self
            .in_flight
            .values()
            .any(|add| add.id.container == id.container)
        {
            return;
        }
        if id.interface != 0
            || self
                .pods
                .keys()
                .any(|other| other.container == id.container && *other != id)
        {
            return;
        }
        // For the same reason, the original would take the address of another interface after a killed ADD.
        let state = self.state().unwrap_or_default();
        let mut ours = state.ipam().pools().flat_map(|(_, _, pool)| &pool.records);
        let is_of_another = |held: &Held| {
            held.holder.has_interface()
                && held.holder.is_container(&id.container_id())
                && held.holder.attachment.if_name != id.if_name()
        };
        if ours.any(|record| record.held().is_some_and(is_of_another)) {
            return;
        }
        let mut value = self.originals_state().unwrap();
        let Some(records) = records(&mut value) else {
            return;
        };
        merge(records, self.listed_in_subnet());
        let own = records
            .iter()
            .find(|(_, r)| r["ID"] == id.container_id())
            .map(|(a, _)| a.clone());
        let free: Vec<String> = records
            .iter()
            .filter(|(_, r)| r["InUse"] == false && r["ID"] == "")
            .map(|(a, _)| a.clone())
            .collect();
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let pick = own.or_else(|| {
            free.get((self.random >> 33) as usize % free.len().max(1))
                .cloned()
        });
        if let Some(key) = pick {
            take(records, &key, &id.container_id());
            let address: IpAddr = key.parse().unwrap();
            for (other, theirs) in &self.pods {
                assert!(
                    *other == id || !theirs.addresses.contains(&address),
                    "the records show the original that {address} of {other:?} is free"
                );
            }
            let (since, configured) = (
                self.clock,
                self.pods
                    .get(&id)
                    .is_some_and(|p| p.configured && p.addresses == [address]),
            );
            self.pods.insert(
                id,
                Pod {
                    addresses: vec![address],
                    since,
                    configured,
                },
            );
        }
        self.originals_write(value);
    }

    /// The original's DEL. It releases the first record of the container, whichever interface has the address (D8).
    pub(super) fn originals_del(&mut self, id: Id) {
        if id.interface != 0
            || self.rules.second_interface.is_some()
                && self
                    .pods
                    .keys()
                    .any(|other| other.container == id.container)
        {
            return;
        }
        let Some(mut value) = self.originals_state() else {
            return;
        };
        if !self.may_lose_record() {
            return;
        }
        let Some(records) = records(&mut value) else {
            return;
        };
        release(records, &id.container_id());
        self.originals_write(value);
    }
}
