//! The original, as it reads and writes the file that both share (contract sections 5, 9-12, 16).

use std::net::IpAddr;

use serde_json::Value;

use super::*;

impl World {
    /// The original reads the whole file and believes it; a state that it cannot read stops it.
    pub(super) fn originals_state(&self) -> Option<Value> {
        serde_json::from_slice(self.state.as_ref()?)
            .ok()
            .filter(|v: &Value| v["IPAM"].is_object())
    }

    /// Whether what the original would believe is the truth: it starts from nothing on a lost state, and knows of no boots,
    /// quarantines and old copies (contract section 16).
    pub(super) fn original_can_be_trusted(&mut self) -> bool {
        let Some(value) = self.originals_state() else {
            return false;
        };
        let last = self
            .last_use
            .filter(|(boot, _)| *boot == self.boot)
            .map(|(_, generation)| generation);
        let document = self.read();
        let known = self.held();
        loss(&document, self.rebuild_owed, last).is_none()
            && document.ipam().quarantine.is_none()
            && value["IPAM"]["AddressSpaces"]["local"].is_object()
            && self
                .pods
                .values()
                .all(|pod| pod.addresses.iter().all(|a| known.contains(a)))
    }

    pub(super) fn originals_write(&mut self, mut value: Value) {
        self.original_wrote_last = true;
        value["IPAM"]["TimeStamp"] = format!("original-{}", self.clock).into();
        self.old_state.clone_from(&self.state);
        self.state = Some(serde_json::to_vec_pretty(&value).unwrap());
    }

    /// The original's ADD with subnet: its own record by container ID, else any free one (contract section 11).
    pub(super) fn originals_add(&mut self, pod: u8) {
        if !self.original_can_be_trusted() {
            return;
        }
        let pod = self.container(pod);
        let mut value = self.originals_state().unwrap();
        self.originals_merge(&mut value);
        let pool = &mut value["IPAM"]["AddressSpaces"]["local"]["Pools"][SUBNET];
        let Some(records) = pool["Addresses"].as_object_mut() else {
            return;
        };
        let own = records
            .iter()
            .find(|(_, r)| r["ID"] == id(pod))
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
            records[&key]["ID"] = id(pod).into();
            records[&key]["InUse"] = true.into();
            let address: IpAddr = key.parse().unwrap();
            for (other, theirs) in &self.pods {
                assert!(
                    *other == pod || !theirs.addresses.contains(&address),
                    "the records told the original that {address} of pod {other} is free"
                );
            }
            let (since, wired) = (
                self.clock,
                self.pods
                    .get(&pod)
                    .is_some_and(|p| p.wired && p.addresses == [address]),
            );
            self.pods.insert(
                pod,
                Pod {
                    addresses: vec![address],
                    since,
                    wired,
                },
            );
        }
        self.originals_write(value);
    }

    pub(super) fn originals_merge(&self, value: &mut Value) {
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

    pub(super) fn originals_del(&mut self, pod: u32) {
        let Some(mut value) = self.originals_state() else {
            return;
        };
        let pool = &mut value["IPAM"]["AddressSpaces"]["local"]["Pools"][SUBNET];
        let Some(records) = pool["Addresses"].as_object_mut() else {
            return;
        };
        if let Some(record) = records
            .values_mut()
            .find(|r| r["ID"] == id(pod) && r["InUse"] == true)
        {
            record["ID"] = "".into();
            record["InUse"] = false.into();
        }
        self.originals_write(value);
    }
}
