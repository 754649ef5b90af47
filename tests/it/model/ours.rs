//! Our own ADD and DEL, as the plugin decides them on the text of the state, and what must be true of what they give.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use azure_vnet_ipam::ipam::{
    Attachment, Family, Grant, Hint, Inventory, NetNs, Novelty, PoolWish, Refusal, Request,
};
use azure_vnet_ipam::plugin::decide::{Decision, Given, Look, decide, loss};
use azure_vnet_ipam::state::{Document, Stamp};

use super::events::{Event, Who};
use super::{Bare, Pod, World, attachment, id};

impl World {
    /// The state as the plugin reads it: nothing for one that is not there, and a debt for one that cannot be read.
    pub(super) fn read(&mut self) -> Document {
        let Some(text) = &self.state else {
            return Document::default();
        };
        if text.is_empty() {
            return Document::default();
        }
        match Document::parse(text, Some(&self.boot_id()), self.now()) {
            Ok(document) => document,
            Err(_) => {
                self.state = None;
                self.rebuild_owed = true;
                Document::default()
            }
        }
    }

    pub(super) fn write(&mut self, document: &mut Document) {
        self.original_wrote_last = false;
        let time = format!("t{}", self.clock);
        let boot_id = self.boot_id();
        self.old_state.clone_from(&self.state);
        self.state = Some(document.print(Stamp {
            version: "v0",
            time: &time,
            boot_id: Some(&boot_id),
        }));
    }

    /// An ADD of ours. `meanwhile` happens between its look and its decision.
    pub(super) fn add(&mut self, pod: u8, mut meanwhile: Option<&Event>, result_is_lost: bool) {
        let pod = self.container(pod);
        let attachment = attachment(pod);
        let netns = NetNs {
            path: id(pod).into(),
            id: Some((4, u64::from(pod))),
            cookie: Some(u64::from(pod)),
        };
        let inventory = self.inventory();
        let mut look: Option<Look> = None;
        let outcome = 'tries: {
            for _ in 0..6 {
                let mut document = self.read();
                let last = self
                    .last_use
                    .filter(|(boot, _)| *boot == self.boot)
                    .map(|(_, generation)| generation);
                let doubtful = inventory.addresses() == 0 && !document.is_empty();
                let none = BTreeSet::new();
                let request = |family: &Family| Request {
                    attachment: &attachment,
                    space: "local",
                    pool: PoolWish::Any {
                        family: *family,
                        if_name: None,
                    },
                    address: None,
                    pod: None,
                    netns: Some(&netns),
                    rest: Duration::from_secs(30),
                    wired: &none,
                    exclude: &[],
                };
                let requests: Vec<Request> = self.families.iter().map(request).collect();
                let given = Given {
                    requests: &requests,
                    news: (!doubtful).then_some(&inventory),
                    lost: loss(&document, self.rebuild_owed, last).map(str::to_owned),
                    last_generation: last.unwrap_or(0),
                    look: look.as_ref(),
                    may_ask_again: false,
                    journal: None,
                    now: self.now(),
                };
                let was_lost = given.lost.is_some();
                match decide(&mut document, &given, &Bare, &mut Vec::new()) {
                    Decision::LookFirst(candidates) => {
                        look = Some(self.look(candidates));
                        if let Some(event) = meanwhile.take() {
                            self.step(event);
                        }
                    }
                    Decision::Broken(wrong) => panic!("{wrong:?}"),
                    Decision::Done { taken, changed } => {
                        if changed {
                            self.write(&mut document);
                        }
                        if was_lost && !document.is_empty() {
                            self.rebuild_owed = false;
                        }
                        break 'tries taken;
                    }
                }
            }
            panic!("it goes on looking");
        };
        match outcome {
            Ok(grants) if result_is_lost => self.give_back(&attachment, &grants),
            Ok(grants) => self.granted(pod, &grants),
            Err(refusal) => self.refused(&refusal, &inventory),
        }
    }

    fn granted(&mut self, pod: u32, grants: &[Grant]) {
        let addresses: Vec<IpAddr> = grants.iter().map(|g| g.address.addr()).collect();
        assert_eq!(addresses.len(), self.families.len());
        for (other, theirs) in &self.pods {
            let both = theirs.addresses.iter().find(|a| addresses.contains(a));
            assert!(
                *other == pod || both.is_none(),
                "{both:?} of pod {other} is given to pod {pod}"
            );
        }
        self.last_use = grants.last().map(|last| (self.boot, last.generation));
        // A repeated ADD gets what it has, as long as the state knows.
        let is_new = |grant: &Grant| matches!(grant.novelty, Novelty::New(_));
        let wired = self.pods.get(&pod).is_some_and(|mine| mine.wired);
        let pod_now = Pod {
            addresses,
            since: self.clock,
            wired: wired && !grants.iter().any(is_new),
        };
        self.pods.insert(pod, pod_now);
    }

    fn give_back(&mut self, attachment: &Attachment, grants: &[Grant]) {
        let mut document = self.read();
        if document.ipam_mut().revoke_all(attachment, grants) {
            self.write(&mut document);
        }
        self.last_use = grants.last().map(|last| (self.boot, last.generation));
    }

    /// `inventory` is what this ADD was told: another listing may have come since.
    fn refused(&mut self, refusal: &Refusal, inventory: &Inventory) {
        match refusal {
            Refusal::Exhausted { pools } => {
                let document = self.read();
                let is_meant = |key: &str| pools.iter().any(|pool| pool.subnet == key);
                let meant = document.ipam().pools().filter(|(_, key, _)| is_meant(key));
                let mut records = meant.flat_map(|(_, _, pool)| &pool.records);
                assert!(records.all(|r| r.held().is_some()), "something is free");
            }
            // A pool that is listed without addresses goes with its last one.
            Refusal::NoPools { family, .. } => {
                let listed = inventory.pools.iter().flat_map(|pool| &pool.addresses);
                let of_family = listed.filter(|a| Family::of(**a) == *family);
                assert!(self.is_dual() && of_family.count() == 0);
            }
            Refusal::Quarantined { left } => assert!(*left <= Duration::from_secs(30)),
            other => panic!("{other}"),
        }
    }

    pub(super) fn del(&mut self, pod: u8, who: Who) {
        // The main plugin unwires first.
        let pod = match self.end(pod) {
            Some(pod) => pod,
            None => self.container(pod),
        };
        if who == Who::TheOriginal {
            self.originals_del(pod);
        } else if self.state.is_some() {
            let now = self.now();
            let mut document = self.read();
            let freed = document
                .ipam_mut()
                .release(&attachment(pod), Hint::default(), now);
            let early = freed.is_empty() && !document.is_empty();
            if !freed.is_empty()
                || (early && document.ipam_mut().note_early_del(&attachment(pod), now))
            {
                self.write(&mut document);
            }
        }
        self.cache.remove(&pod);
    }
}
