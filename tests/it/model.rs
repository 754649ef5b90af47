//! Histories of a whole node - pods that come, go and vanish, reboots, lost, damaged and rolled-back states, a source that
//! changes, lists that cannot be read, the original taking turns with us on one file - held against a model that knows who is
//! alive.
//!
//! The plugin's decisions run for real, on real state text; only the kernel, the clock and the disk are played.

mod original;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use azure_vnet_ipam::ipam::{
    Attachment, Candidate, Entry, Evidence, Family, Grant, Hint, Inventory, Kernel, ListedPool,
    Moment, NetNs, Novelty, Place, PoolWish, Refusal, Request, Routes, Witness,
};
use azure_vnet_ipam::plugin::decide::{Decision, Given, Host, Look, decide, loss};
use azure_vnet_ipam::state::{Document, Owed, Own, Stamp};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use serde_json::Value;

const SECOND: u64 = 1_000_000_000;
const SUBNET: &str = "10.0.0.0/24";
const SUBNET_V6: &str = "fd00::/120";
const ADDRESSES: u8 = 6;
/// An ADD is through with its wiring within this time; the quarantine is longer.
const WIRING: u64 = 25;

#[derive(Clone, Debug)]
enum Event {
    /// An ADD of this pod, by us or by the original; a pod that has an address asks again.
    Add(u8, Who),
    /// The ADD of a pod whose result reaches nobody.
    LostAdd(u8),
    /// A DEL.
    Del(u8, Who),
    /// The pod is gone, and nobody says so.
    Vanish(u8),
    /// The main plugin is through with the pods that have an address.
    WireAll,
    /// Seconds go by.
    Pass(u16),
    /// The source lists the addresses whose bits are set.
    Source(u8),
    /// Something happens to the state file.
    Lose(Loss),
    /// Every pod dies; the state file stays or goes.
    Reboot { keeps_state: bool },
    /// What cannot be seen from now on.
    Blind(Blindness),
    /// libcni's cache is wiped.
    WipeCache,
    /// An ADD that looks, and is decided only after something else happened.
    SlowAdd(u8, Box<Event>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    We,
    TheOriginal,
}

#[derive(Clone, Copy, Debug)]
enum Loss {
    Deleted,
    Emptied,
    Damaged,
    RolledBack,
    OurKeyRemoved,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Blindness {
    No,
    Namespaces,
    Cache,
    Routes,
}

fn event() -> impl Strategy<Value = Event> {
    let pod = || 0..8u8;
    let who = || prop_oneof![5 => Just(Who::We), 1 => Just(Who::TheOriginal)];
    let quick = prop_oneof![
        8 => (pod(), who()).prop_map(|(p, w)| Event::Add(p, w)),
        1 => pod().prop_map(Event::LostAdd),
        4 => (pod(), who()).prop_map(|(p, w)| Event::Del(p, w)),
        3 => pod().prop_map(Event::Vanish),
        2 => Just(Event::WireAll),
        3 => prop_oneof![Just(5u16), Just(31), Just(65), Just(905), Just(3700)].prop_map(Event::Pass),
        1 => any::<u8>().prop_map(Event::Source),
        2 => prop_oneof![Just(Loss::Deleted), Just(Loss::Emptied), Just(Loss::Damaged), Just(Loss::RolledBack), Just(Loss::OurKeyRemoved)].prop_map(Event::Lose),
        1 => prop_oneof![2 => Just(Blindness::No), 1 => Just(Blindness::Namespaces), 1 => Just(Blindness::Cache), 1 => Just(Blindness::Routes)].prop_map(Event::Blind),
        1 => Just(Event::WipeCache),
    ];
    let quick = quick.boxed();
    prop_oneof![
        20 => quick.clone(),
        // No process lives through a reboot.
        1 => any::<bool>().prop_map(|keeps_state| Event::Reboot { keeps_state }),
        10 => (pod(), quick).prop_map(|(p, e)| Event::SlowAdd(p, Box::new(e))),
    ]
}

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
            // Before the state was made anew there was none.
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
            }),
            addresses: addresses.clone(),
            stands: self.pods.contains_key(n),
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

    /// The state as the plugin reads it: nothing for one that is not there, and a debt for one that cannot be read.
    fn read(&mut self) -> Document {
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

    fn write(&mut self, document: &mut Document) {
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
    fn add(&mut self, pod: u8, mut meanwhile: Option<&Event>, result_is_lost: bool) {
        let pod = self.container(pod);
        let attachment = attachment(pod);
        let netns = NetNs {
            path: id(pod).into(),
            id: Some((4, u64::from(pod))),
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

    fn del(&mut self, pod: u8, who: Who) {
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
