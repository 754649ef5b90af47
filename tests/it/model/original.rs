//! A model of the original, which reads and writes the shared state file (contract sections 5, 9-12, 16).

use std::net::IpAddr;

use serde_json::Value;

use azure_vnet_ipam::ipam::Held;
use azure_vnet_ipam::state::StateFile;

use super::world::{Id, Pod, SUBNET, World};

impl World {
    /// The original trusts the whole file. A state that it cannot read stops it.
    fn originals_state(&self) -> Option<Value> {
        serde_json::from_slice(self.disk.text(StateFile::State)?)
            .ok()
            .filter(|v: &Value| v["IPAM"].is_object())
    }

    /// Whether the original's view is correct: it starts from an empty state after a loss, and does not know boots,
    /// quarantines or old copies (contract section 16).
    fn original_can_be_trusted(&self) -> bool {
        let (Some(value), Some(state)) = (self.originals_state(), self.state()) else {
            return false;
        };
        let known = self.held();
        self.loss(&state).is_none()
            && state.ipam().quarantine.is_none()
            && value["IPAM"]["AddressSpaces"]["local"].is_object()
            && self
                .pods
                .values()
                .all(|pod| pod.addresses.iter().all(|a| known.contains(a)))
    }

    /// The original replaces our process ID and mark with its own process ID.
    fn originals_write(&mut self, mut value: Value) {
        self.original_wrote_last = true;
        self.has_original = true;
        // The original has merged the source's answer.
        self.newest_answer = None;
        value["IPAM"]["TimeStamp"] = format!("original-{}", self.clock).into();
        self.old_state = self.disk.files.get(&StateFile::State).cloned();
        let text = serde_json::to_vec_pretty(&value).unwrap();
        self.disk.put(StateFile::State, &text);
        self.disk.lock = (*b"4711").into();
    }

    /// The original's ADD with subnet: its own record by container ID, else any free one (contract section 11).
    pub(super) fn originals_add(&mut self, pod: u8) {
        if !self.original_can_be_trusted() {
            return;
        }
        let id = self.start(pod);
        // The original knows one interface per container, and calls of a container are sequential.
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
        // The original would take the address of an interface that it does not know, whose ADD was killed.
        let state = self.state().unwrap_or_default();
        let mut records = state.ipam().pools().flat_map(|(_, _, pool)| &pool.records);
        let is_of_another = |held: &Held| {
            held.owner.claim().is_some_and(|claim| {
                *claim.container_id == *id.container_id() && *claim.if_name != *id.if_name()
            })
        };
        if records.any(|record| record.held().is_some_and(is_of_another)) {
            return;
        }
        let mut value = self.originals_state().unwrap();
        self.originals_merge(&mut value);
        let pool = &mut value["IPAM"]["AddressSpaces"]["local"]["Pools"][SUBNET];
        let Some(records) = pool["Addresses"].as_object_mut() else {
            return;
        };
        let own = records
            .iter()
            .find(|(_, r)| r["ID"] == id.container_id())
            .map(|(a, _)| a.clone());
        let free: Vec<String> = records
            .iter()
            .filter(|(_, r)| r["InUse"] == false && r["ID"] == "")
            .map(|(a, _)| a.clone())
            .collect();
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let pick = own.or_else(|| {
            free.get((self.dice >> 33) as usize % free.len().max(1))
                .cloned()
        });
        if let Some(key) = pick {
            records[&key]["ID"] = id.container_id().into();
            records[&key]["InUse"] = true.into();
            let address: IpAddr = key.parse().unwrap();
            for (other, theirs) in &self.pods {
                assert!(
                    *other == id || !theirs.addresses.contains(&address),
                    "the records told the original that {address} of {other:?} is free"
                );
            }
            let (since, wired) = (
                self.clock,
                self.pods
                    .get(&id)
                    .is_some_and(|p| p.wired && p.addresses == [address]),
            );
            self.pods.insert(
                id,
                Pod {
                    addresses: vec![address],
                    since,
                    wired,
                },
            );
        }
        self.originals_write(value);
    }

    fn originals_merge(&self, value: &mut Value) {
        let pool = &mut value["IPAM"]["AddressSpaces"]["local"]["Pools"][SUBNET];
        let Some(records) = pool["Addresses"].as_object_mut() else {
            return;
        };
        records.retain(|a, r| {
            r["InUse"] == true || self.listed.contains(&a.parse::<IpAddr>().unwrap())
        });
        for listed in &self.listed {
            let new = serde_json::json!({ "ID": "", "Addr": listed, "InUse": false });
            records.entry(listed.to_string()).or_insert(new);
        }
    }

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
        let pool = &mut value["IPAM"]["AddressSpaces"]["local"]["Pools"][SUBNET];
        let Some(records) = pool["Addresses"].as_object_mut() else {
            return;
        };
        if let Some(record) = records
            .values_mut()
            .find(|r| r["ID"] == id.container_id() && r["InUse"] == true)
        {
            record["ID"] = "".into();
            record["InUse"] = false.into();
        }
        self.originals_write(value);
    }
}
