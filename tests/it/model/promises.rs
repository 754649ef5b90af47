//! The invariants of the node. Some hold always, others at the end of a history.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use azure_vnet_ipam::ipam::Held;

use super::events::{Answer, Blindness, Event};
use super::world::{Id, World, listed};

impl World {
    pub(super) fn check(&mut self) {
        let is_whole = self.is_whole();
        self.truth.may_refuse &= !is_whole;
        // "A boot ID that cannot be read is unknown, never another boot". So files of another boot may look newer
        // now, and files that are written without a boot ID may look newer later.
        self.truth.was_unreadable |= !self.is_boot_id_readable;
        self.truth.may_refuse |= self.truth.was_unreadable;
        let mut holders: BTreeMap<IpAddr, Id> = BTreeMap::new();
        for (id, pod) in &self.pods {
            for address in &pod.addresses {
                let other = holders.insert(*address, *id);
                assert_eq!(other, None, "{address} has two live holders");
            }
        }
        let Some(state) = self.state() else {
            return;
        };
        assert_eq!(state.ipam().check(), []);
        // A complete state of this boot has the addresses of every pod. Addresses that were not listed since a loss
        // of the state are an exception. They are new when they are listed again, and the node is scanned before any
        // of them is allocated.
        if is_whole {
            let held = self.held();
            let in_a_pool = |address: &IpAddr| {
                let mut pools = state.ipam().pools();
                pools.any(|(_, _, pool)| pool.record(address).is_some())
            };
            for (id, pod) in &self.pods {
                let mut lost = pod.addresses.iter().filter(|a| !held.contains(a));
                let lost = lost.find(|a| in_a_pool(a));
                assert_eq!(lost, None, "{id:?} lives without its address");
            }
            let all = self
                .released
                .iter()
                .filter(|_| self.rules.releases_are_final);
            for id in all.chain(&self.truth.released) {
                let pools = state.ipam().pools();
                let mut records = pools.flat_map(|(_, _, pool)| &pool.records);
                let is_theirs = |held: &Held| {
                    held.holder.is_container(&id.container_id())
                        && held.holder.attachment.if_name == id.if_name()
                };
                let held = records.find(|r| r.held().is_some_and(is_theirs));
                let held = held.map(|record| record.address());
                assert_eq!(held, None, "{id:?} was released, and holds an address");
            }
        }
    }

    pub(super) fn live_through(mut self, events: &[Event]) {
        for event in events {
            self.step(event);
        }
        self.nothing_leaks();
    }

    /// Checks that hours later, after a complete scan, every address without a live pod is free.
    pub(super) fn nothing_leaks(&mut self) {
        const NEWCOMERS: std::ops::Range<u8> = 100..140;
        self.blind = Blindness::No;
        self.answer = Answer::Good;
        self.is_boot_id_readable = true;
        self.listed = listed(&self.rules, u8::MAX);
        self.advance_time(60);
        self.end_teardowns(u64::MAX);
        // A pod of the original may look like a dead pod of ours with the same inode while it lives. This happens
        // when the kernel has no cookie for the network namespace, or the original has written since another boot.
        if !self.rules.has_cookies || self.has_original {
            self.pods.clear();
        }
        // The runtime removes containers whose ADD failed.
        let live: BTreeSet<u32> = self.pods.keys().map(|id| id.container).collect();
        for container in self.containers.values_mut() {
            container.is_gone |= container.inode.is_some() && !live.contains(&container.number);
        }
        let mut newcomers = NEWCOMERS;
        for _ in 0..4 {
            self.advance_time(3700);
            for newcomer in newcomers.by_ref() {
                let before = self.pods.len();
                self.add(newcomer);
                if self.pods.len() == before {
                    // The runtime removes containers that it could not create.
                    self.end(newcomer);
                    break;
                }
            }
        }
        // After a lost state, an attachment may have two addresses. Its DEL frees both.
        let live: BTreeSet<String> = self.pods.keys().map(|id| id.container_id()).collect();
        let theirs: BTreeSet<IpAddr> = self
            .pods
            .values()
            .flat_map(|pod| pod.addresses.clone())
            .collect();
        let state = self.state().expect("a state after an ADD");
        let records = state
            .ipam()
            .pools()
            .flat_map(|(_, _, pool)| &pool.records)
            .filter(|r| self.listed.contains(&r.address()))
            // Without an IPv6 counterpart, an IPv4 address cannot be used.
            .filter(|r| r.held().is_some() || !self.is_dual() || r.address().is_ipv6());
        for record in records {
            let holder = record
                .held()
                .map(|held| held.holder.container_id().to_owned());
            assert!(
                theirs.contains(&record.address())
                    || holder.as_ref().is_some_and(|h| live.contains(h)),
                "{} is of no use to anybody: {holder:?}",
                record.address()
            );
        }
    }
}
