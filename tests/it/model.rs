//! Histories of a whole node - pods that come, go and vanish, reboots, lost, damaged and rolled-back states, a source that
//! changes, lists that cannot be read, the original taking turns with us on one file - held against a model that knows who is
//! alive.
//!
//! The plugin's decisions run for real, on real state text; only the kernel, the clock and the disk are played.

mod events;
mod original;
mod ours;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use azure_vnet_ipam::ipam::{
    Attachment, Candidate, Entry, Evidence, Family, Inventory, Kernel, ListedPool, Moment, NetNs,
    Place, Routes, Witness,
};
use azure_vnet_ipam::plugin::decide::{Host, Look, loss};
use azure_vnet_ipam::state::{Document, Owed, Own};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use serde_json::Value;

use events::{Blindness, Event, Loss, Who, event};

const SECOND: u64 = 1_000_000_000;
const SUBNET: &str = "10.0.0.0/24";
const SUBNET_V6: &str = "fd00::/120";
const ADDRESSES: u8 = 6;
/// An ADD is through with its wiring within this time; the quarantine is longer.
const WIRING: u64 = 25;

/// A pod that has an address, or one of each family.
#[derive(Clone, Debug)]
struct Pod {
    addresses: Vec<IpAddr>,
    /// When its ADD came to an end.
    since: u64,
    wired: bool,
}

/// What is there, and what is remembered of it.
struct World {
    /// Of which families every pod gets an address.
    families: &'static [Family],
    clock: u64,
    boot: u32,
    /// The pods that live, by the numbers of their containers.
    pods: BTreeMap<u32, Pod>,
    /// Which container each of the pods that events name has now, and whether it has lived and is gone.
    containers: BTreeMap<u8, (u32, bool)>,
    /// What libcni remembers: of pods whose whole ADD was through.
    cache: BTreeMap<u32, Vec<IpAddr>>,
    listed: BTreeSet<IpAddr>,
    state: Option<Vec<u8>>,
    old_state: Option<Vec<u8>>,
    /// The note of the last hand-out, beside the state.
    last_use: Option<(u32, u64)>,
    rebuild_owed: bool,
    original_wrote_last: bool,
    blind: Blindness,
    /// Makes the original's choices.
    dice: u64,
}

fn address(n: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 7 + n).into()
}

/// The addresses that the source lists when the bits of these numbers are set. There is one less of IPv6, so that an ADD may
/// find nothing when it has an IPv4 address already.
fn listed(families: &[Family], bits: u8) -> BTreeSet<IpAddr> {
    let set = (0..ADDRESSES).filter(|n| bits >> n & 1 == 1);
    let mut all: BTreeSet<IpAddr> = set.clone().map(address).collect();
    if families.contains(&Family::V6) {
        let v6 = |n: u8| IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7 + u16::from(n)));
        all.extend(set.filter(|n| n + 1 < ADDRESSES).map(v6));
    }
    all
}

fn id(pod: u32) -> String {
    format!("pod{pod}")
}

fn attachment(pod: u32) -> Attachment {
    Attachment {
        network: "azure".into(),
        container_id: id(pod),
        if_name: "eth0".into(),
    }
}

fn lacks_our_key(text: &[u8]) -> bool {
    Document::parse(text, None, Moment(0)).is_ok_and(|d| matches!(d.own, Own::Absent))
}

#[derive(Debug)]
struct Bare;

impl Host for Bare {
    fn has(&self, _: IpAddr) -> bool {
        false
    }

    fn all(&self) -> BTreeSet<IpAddr> {
        BTreeSet::new()
    }
}

impl World {
    fn new(families: &'static [Family]) -> World {
        World {
            families,
            clock: 100 * SECOND,
            boot: 1,
            pods: BTreeMap::new(),
            containers: BTreeMap::new(),
            cache: BTreeMap::new(),
            listed: listed(families, u8::MAX),
            state: None,
            old_state: None,
            last_use: None,
            rebuild_owed: false,
            original_wrote_last: false,
            blind: Blindness::No,
            dice: 1,
        }
    }

    /// Then the original, which gives one address, does not take turns with us.
    fn is_dual(&self) -> bool {
        self.families.len() > 1
    }

    fn boot_id(&self) -> String {
        format!("boot-{}", self.boot)
    }

    fn now(&self) -> Moment {
        Moment(self.clock)
    }

    fn step(&mut self, event: &Event) {
        self.clock += SECOND / 10;
        match event {
            Event::Add(pod, Who::We) => self.add(*pod, None, false),
            Event::Add(pod, Who::TheOriginal) if !self.is_dual() => self.originals_add(*pod),
            Event::Add(pod, Who::TheOriginal) => self.add(*pod, None, false),
            Event::SlowAdd(pod, meanwhile) => self.add(*pod, Some(meanwhile), false),
            Event::LostAdd(pod) => self.add(*pod, None, true),
            Event::Del(pod, who) => self.del(*pod, *who),
            Event::Vanish(pod) => drop(self.end(*pod)),
            Event::WireAll => self.wire(0),
            Event::Pass(seconds) => self.pass(u64::from(*seconds)),
            Event::Source(bits) => {
                self.listed = listed(self.families, *bits);
            }
            Event::Lose(loss) => self.lose(*loss),
            Event::Reboot { keeps_state } => self.reboot(*keeps_state),
            Event::Blind(blind) => self.blind = *blind,
            Event::WipeCache => self.cache.clear(),
        }
        self.check();
    }

    /// The container of a pod, for an ADD: a new one where the last has lived and is gone.
    fn container(&mut self, pod: u8) -> u32 {
        let next = self
            .containers
            .values()
            .map(|(n, _)| n + 1)
            .max()
            .unwrap_or(1);
        let container = self.containers.entry(pod).or_insert((next, false));
        if container.1 {
            *container = (next, false);
        }
        container.0
    }

    /// Ends the life of a pod's container, if it has begun. Its number is still the one that a DEL names.
    fn end(&mut self, pod: u8) -> Option<u32> {
        let container = self.containers.get_mut(&pod)?;
        if self.pods.remove(&container.0).is_some() {
            container.1 = true;
        }
        Some(container.0)
    }

    /// Wires the pods whose ADD ended this many seconds ago or earlier.
    fn wire(&mut self, seconds: u64) {
        for (n, pod) in &mut self.pods {
            if !pod.wired && self.clock - pod.since >= seconds * SECOND {
                pod.wired = true;
                self.cache.insert(*n, pod.addresses.clone());
            }
        }
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds.min(40) {
            self.clock += SECOND;
            self.wire(WIRING);
        }
        self.clock += seconds.saturating_sub(40) * SECOND;
    }

    fn lose(&mut self, loss: Loss) {
        let text = self.state.clone();
        match loss {
            // Nor is it noted elsewhere that the original is giving addresses, until the kernel shows one of them.
            Loss::Deleted | Loss::Emptied if self.is_unseen_work_of_the_original() => {}
            Loss::Deleted => self.state = None,
            Loss::Emptied => self.state = text.map(|_| Vec::new()),
            Loss::Damaged => self.state = text.map(|t| t[..t.len() / 2].to_vec()),
            // What the original gave since our last call is noted nowhere but in the state (README, with the original beside us).
            Loss::RolledBack if self.original_wrote_last => {}
            // Before the state was rebuilt there was none.
            Loss::RolledBack
                if self.old_state.as_deref().is_none_or(<[u8]>::is_empty)
                    && self.is_unseen_work_of_the_original() => {}
            // An old copy without our key looks like the original's, and begins no quarantine.
            Loss::RolledBack if self.old_state.as_deref().is_some_and(lacks_our_key) => {}
            Loss::RolledBack => std::mem::swap(&mut self.state, &mut self.old_state),
            // Of a state that is whole. One that was lost a moment ago and then loses our key too, within the quarantine,
            // takes the knowledge of pods that are being wired with it (README, known limitations).
            Loss::OurKeyRemoved if self.is_whole() => {
                self.state = text.and_then(|t| {
                    let mut value: Value = serde_json::from_slice(&t).ok()?;
                    value.as_object_mut()?.remove("azure-vnet-ipam");
                    Some(value.to_string().into_bytes())
                });
            }
            Loss::OurKeyRemoved => {}
        }
    }

    /// Whether only the original has given addresses in this boot, and none of them can be seen yet.
    fn is_unseen_work_of_the_original(&self) -> bool {
        self.last_use.is_none_or(|(boot, _)| boot != self.boot)
            && self.pods.values().all(|pod| !pod.wired)
    }

    /// Whether the state is ours, of this boot, not an old copy, and nothing about it is still to be settled.
    fn is_whole(&self) -> bool {
        let Some(text) = self.state.as_ref().filter(|t| !t.is_empty()) else {
            return false;
        };
        let parsed = Document::parse(text, Some(&self.boot_id()), self.now());
        let last = self
            .last_use
            .filter(|(boot, _)| *boot == self.boot)
            .map(|(_, generation)| generation);
        parsed.is_ok_and(|document| {
            matches!(document.own, Own::Ours)
                && document.owed == Owed::Nothing
                && loss(&document, self.rebuild_owed, last).is_none()
                && document.ipam().quarantine.is_none()
        })
    }

    fn reboot(&mut self, keeps_state: bool) {
        for (number, gone) in self.containers.values_mut() {
            *gone |= self.pods.contains_key(number);
        }
        self.pods.clear();
        self.boot += 1;
        self.clock = 10 * SECOND;
        self.old_state = None;
        if !keeps_state {
            self.state = None;
            self.last_use = None;
            self.rebuild_owed = false;
        }
    }

    /// What a look at the node shows now.
    fn look(&self, candidates: Vec<Candidate>) -> Look {
        let namespace = |pod: u32| (4u64, u64::from(pod));
        let mut kernel = Kernel::default();
        for (n, pod) in &self.pods {
            kernel.namespaces.insert(namespace(*n));
            kernel.cookies.insert(namespace(*n), u64::from(*n));
            if pod.wired {
                let place = Place::Namespace(id(*n));
                let places = pod.addresses.iter().map(|a| (*a, place.clone()));
                kernel.configured.extend(places);
            }
        }
        if self.blind == Blindness::Namespaces {
            kernel.incomplete = Some("blind".into());
        }
        let entries = self.cache.iter().map(|(n, addresses)| Entry {
            container_id: id(*n),
            network: Some("azure".into()),
            if_name: Some("eth0".into()),
            pod: None,
            netns: Some(NetNs {
                path: id(*n).into(),
                id: self.pods.contains_key(n).then_some(namespace(*n)),
                cookie: None,
            }),
            addresses: addresses.clone(),
            stands: self.pods.contains_key(n),
            of_this_boot: false,
        });
        let cache = match self.blind {
            Blindness::Cache => Witness::Unreadable("blind".into()),
            _ => Witness::Read {
                entries: entries.collect(),
                doubtful: vec![],
            },
        };
        let routes = match self.blind {
            Blindness::Routes => Routes::Unreadable("blind".into()),
            _ => Routes::default(),
        };
        let evidence = Evidence {
            kernel,
            cache,
            azure_vnet: Witness::Absent,
            routes,
        };
        Look {
            evidence,
            candidates,
            began: self.now(),
        }
    }

    fn inventory(&self) -> Inventory {
        let pool = |family: &Family| {
            let subnet = match family {
                Family::V4 => SUBNET,
                Family::V6 => SUBNET_V6,
            };
            let of_family = |a: &&IpAddr| Family::of(**a) == *family;
            let addresses = self.listed.iter().filter(of_family).copied().collect();
            ListedPool::new(subnet.parse().unwrap(), "eth0".into(), 0, addresses)
        };
        Inventory {
            pools: self.families.iter().map(pool).collect(),
        }
    }

    /// The addresses that the state says are held.
    fn held(&mut self) -> BTreeSet<IpAddr> {
        let document = self.read();
        let records = document
            .ipam()
            .pools()
            .flat_map(|(_, _, pool)| &pool.records);
        records
            .filter(|r| r.held().is_some())
            .map(|r| r.address())
            .collect()
    }

    fn check(&mut self) {
        let mut owners: BTreeMap<IpAddr, u32> = BTreeMap::new();
        for (n, pod) in &self.pods {
            for address in &pod.addresses {
                let other = owners.insert(*address, *n);
                assert_eq!(other, None, "{address} has two live owners");
            }
        }
        // A state that is whole and of this boot knows of every pod; but not of what lies in a subnet that went while the state
        // was lost. When it comes back, its addresses are new, and looked for before any is given.
        if self.is_whole() {
            let held = self.held();
            let document = self.read();
            let in_a_pool = |address: &IpAddr| {
                let mut pools = document.ipam().pools();
                pools.any(|(_, key, pool)| {
                    !pool.records.is_empty() && pool.net(key).unwrap().contains(address)
                })
            };
            for (n, pod) in &self.pods {
                let mut lost = pod.addresses.iter().filter(|a| !held.contains(a));
                let lost = lost.find(|a| in_a_pool(a));
                assert_eq!(lost, None, "pod {n} lives without its address");
            }
        }
        if let Some(text) = self.state.as_ref().filter(|t| !t.is_empty())
            && let Ok(document) = Document::parse(text, Some(&self.boot_id()), self.now())
        {
            assert_eq!(document.ipam().check(), []);
        }
    }

    fn live_through(mut self, events: &[Event]) {
        for event in events {
            self.step(event);
        }
        self.nothing_leaks();
    }

    /// Hours later, with open eyes: everything that no live pod holds has come back.
    fn nothing_leaks(&mut self) {
        self.blind = Blindness::No;
        self.listed = listed(self.families, u8::MAX);
        self.pass(60);
        let mut newcomer = 100;
        for _ in 0..4 {
            self.pass(3700);
            while newcomer < 140 {
                let before = self.pods.len();
                self.add(newcomer, None, false);
                newcomer += 1;
                if self.pods.len() == before {
                    break;
                }
            }
        }
        // One that lost its state on the way may have two addresses, which its DEL frees.
        let live: BTreeSet<String> = self.pods.keys().map(|n| id(*n)).collect();
        let theirs: BTreeSet<IpAddr> = self
            .pods
            .values()
            .flat_map(|pod| pod.addresses.clone())
            .collect();
        let document = self.read();
        let records = document
            .ipam()
            .pools()
            .flat_map(|(_, _, pool)| &pool.records)
            .filter(|r| self.listed.contains(&r.address()))
            // Nobody can have the IPv4 address for which there is none of IPv6.
            .filter(|r| r.held().is_some() || !self.is_dual() || r.address().is_ipv6());
        for record in records {
            let holder = record.held().map(|h| h.container_id.to_string());
            assert!(
                theirs.contains(&record.address())
                    || holder.as_ref().is_some_and(|h| live.contains(h)),
                "{} is of no use to anybody: {holder:?}",
                record.address()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").map_or(3000, |n| n.parse().unwrap()),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("testdata/histories.txt"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_history_gives_an_address_twice_or_loses_one(events in prop::collection::vec(event(), 1..60)) {
        World::new(&[Family::V4]).live_through(&events);
    }

    #[test]
    fn nor_does_one_of_pods_with_two_families(events in prop::collection::vec(event(), 1..60)) {
        World::new(&[Family::V4, Family::V6]).live_through(&events);
    }
}
