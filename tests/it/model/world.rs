//! What is there on the node, what is remembered of it, and what must always be true.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use azure_vnet_ipam::ipam::{
    Entry, Evidence, Family, Held, Inventory, Kernel, ListedPool, Moment, NetNs, Place, Routes,
    Witness,
};
use azure_vnet_ipam::plugin::decide::{Look, loss};
use azure_vnet_ipam::state::{Document, Owed, Own, StateFile, is_rebuild_owed, last_use};
use serde_json::Value;

use super::events::{Answer, Blindness, Event, Loss, Who};
use super::node::{Disk, MemoryNode};

pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const SUBNET: &str = "10.0.0.0/24";
const SUBNET_V6: &str = "fd00::/120";
/// An ADD is through with its wiring within this time; the quarantine is longer.
const WIRING: u64 = 25;

/// An attachment, by the numbers of its container and of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id {
    pub container: u32,
    pub interface: u8,
}

impl Id {
    pub fn container_id(self) -> String {
        format!("pod{}", self.container)
    }

    pub fn if_name(self) -> String {
        match self.interface {
            0 => "eth0".to_owned(),
            n => format!("net{n}"),
        }
    }
}

/// An attachment that has an address, or one of each family, and lives.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub addresses: Vec<IpAddr>,
    /// When its ADD came to an end.
    pub since: u64,
    pub wired: bool,
}

/// A container that the runtime has made, or is about to.
#[derive(Clone, Debug)]
pub(super) struct Container {
    pub number: u32,
    /// Of its network namespace, once an ADD was made for it and until it is gone.
    pub inode: Option<u64>,
    pub is_gone: bool,
}

/// An ADD that has asked the source and is not through.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub id: Id,
    pub inventory: Option<Inventory>,
    pub began: Moment,
    pub look: Option<Rc<Look>>,
}

/// What does not change while a history goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Of which families every attachment gets an address.
    pub families: &'static [Family],
    /// How many addresses the source lists at most.
    pub addresses: u8,
    /// This one of the pods is the second interface of the one before it.
    pub second_interface: Option<u8>,
    /// Whether the kernel has a number of its own for network namespaces.
    pub has_cookies: bool,
    /// Whether the kernel shows the addresses of pods, and not only libcni's cache, as of a virtual machine.
    pub kernel_shows_addresses: bool,
    /// Whether time goes by with each event.
    pub is_ticking: bool,
    /// Whether nothing happens that hides a release: what was released is then held by nobody, even when the state was lost.
    pub releases_are_final: bool,
    /// Whether nothing happens that lets a state look lost again: a quarantine is then counted from when the loss was first seen.
    pub losses_are_seen_once: bool,
}

/// What is there, and what is remembered of it.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub rules: Rules,
    pub clock: u64,
    pub boot: u32,
    pub is_boot_id_readable: bool,
    /// The attachments that live.
    pub pods: BTreeMap<Id, Pod>,
    /// Which container each of the pods that events name has now.
    pub containers: BTreeMap<u8, Container>,
    /// Containers are numbered on.
    pub last_container: u32,
    pub in_flight: BTreeMap<u8, InFlight>,
    /// What libcni remembers.
    pub cache: BTreeMap<Id, Vec<IpAddr>>,
    pub listed: BTreeSet<IpAddr>,
    pub answer: Answer,
    /// Since when answers would take everything away.
    pub doubtful_since: Option<Moment>,
    pub disk: Disk,
    /// The state before it was last written.
    pub old_state: Option<Rc<[u8]>>,
    pub original_wrote_last: bool,
    /// Whether the original has ever written.
    pub has_original: bool,
    pub blind: Blindness,
    /// Makes the original's choices.
    pub dice: u64,
    /// When an ADD was first through after something was lost.
    pub loss_seen: Option<Moment>,
    /// The newest answer that is known to be merged: when the source began to be asked, and what it listed.
    pub newest_answer: Option<(Moment, BTreeSet<IpAddr>)>,
    /// The attachments that were released, and got nothing since.
    pub released: BTreeSet<Id>,
}

fn address(n: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 7 + n).into()
}

/// The addresses that the source lists when the bits of these numbers are set. There is one less of IPv6, so that an ADD may
/// find nothing when it has an IPv4 address already.
fn listed(rules: &Rules, bits: u8) -> BTreeSet<IpAddr> {
    let set = (0..rules.addresses).filter(|n| bits >> n & 1 == 1);
    let mut all: BTreeSet<IpAddr> = set.clone().map(address).collect();
    if rules.families.contains(&Family::V6) {
        let v6 = |n: u8| IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7 + u16::from(n)));
        all.extend(set.filter(|n| n + 1 < rules.addresses).map(v6));
    }
    all
}

fn lacks_our_key(text: &[u8]) -> bool {
    Document::parse(text, None, Moment(0)).is_ok_and(|d| matches!(d.own, Own::Absent))
}

impl World {
    pub fn new(rules: Rules) -> World {
        World {
            clock: 100 * SECOND,
            boot: 1,
            is_boot_id_readable: true,
            pods: BTreeMap::new(),
            containers: BTreeMap::new(),
            last_container: 0,
            in_flight: BTreeMap::new(),
            cache: BTreeMap::new(),
            listed: listed(&rules, u8::MAX),
            answer: Answer::Good,
            doubtful_since: None,
            disk: Disk::default(),
            old_state: None,
            original_wrote_last: false,
            has_original: false,
            blind: Blindness::No,
            dice: 1,
            loss_seen: None,
            newest_answer: None,
            released: BTreeSet::new(),
            rules,
        }
    }

    /// Then the original, which gives one address, does not take turns with us.
    pub fn is_dual(&self) -> bool {
        self.rules.families.len() > 1
    }

    /// The boot ID as calls read it.
    pub fn boot_id(&self) -> Option<String> {
        self.is_boot_id_readable
            .then(|| format!("boot-{}", self.boot))
    }

    pub fn now(&self) -> Moment {
        Moment(self.clock)
    }

    pub fn step(&mut self, event: &Event) {
        if self.rules.is_ticking {
            self.clock += SECOND / 10;
        }
        match event {
            Event::Add(pod, Who::TheOriginal) if !self.is_dual() => self.originals_add(*pod),
            Event::Add(pod, _) => self.add(*pod),
            Event::SlowAdd(pod, meanwhile) => self.slow_add(*pod, meanwhile),
            Event::Begin(pod) => self.begin(*pod),
            Event::GoOn(pod) => self.go_on(*pod),
            Event::LostAdd(pod) => self.lost_add(*pod),
            Event::KilledAdd(pod, kill) => self.killed_add(*pod, *kill),
            Event::RacedAdd(pod, other, step) => self.raced_add(*pod, *other, *step),
            Event::KilledRacedAdd(pod, other, step, changes) => {
                self.killed_raced_add(*pod, *other, *step, *changes);
            }
            Event::Del(pod, who) => self.del(*pod, *who, None),
            Event::KilledDel(pod, kill) => self.del(*pod, Who::We, Some(*kill)),
            Event::RacedDel(pod, other, step) => self.raced_del(*pod, *other, *step),
            Event::LateDel(pod) => self.late_del(*pod),
            Event::Vanish(pod) => self.end(*pod),
            Event::Wire(pod) => self.wire_one(*pod),
            Event::Cached(pod) => self.cached(*pod),
            Event::WireAll => self.wire(0),
            Event::Pass(seconds) => self.pass(u64::from(*seconds)),
            Event::Source(bits) => self.listed = listed(&self.rules, *bits),
            Event::Answer(answer) => self.answer = *answer,
            Event::Lose(loss) => self.lose(*loss),
            Event::Reboot { keeps_state } => self.reboot(*keeps_state),
            Event::BootIdReadable(is_readable) => self.is_boot_id_readable = *is_readable,
            // See `is_unseen_work_of_the_original`.
            Event::WipeCache | Event::Blind(Blindness::Cache) if self.only_lists_tell() => {}
            Event::Blind(blind) => self.blind = *blind,
            Event::WipeCache => self.cache.clear(),
            Event::Gc { forgets } => self.gc(*forgets),
            Event::Reclaim => self.reclaim(),
        }
        self.check();
    }

    /// The pod whose container this one is in.
    fn group(&self, pod: u8) -> u8 {
        match self.rules.second_interface {
            Some(second) if second == pod => pod - 1,
            _ => pod,
        }
    }

    fn id(&self, pod: u8, container: u32) -> Id {
        Id {
            container,
            interface: u8::from(self.group(pod) != pod),
        }
    }

    fn next_number(&mut self) -> u32 {
        self.last_container += 1;
        self.last_container
    }

    /// The attachment of a pod, for an ADD: of a new container where the last is gone. Its network namespace is there then. The kernel
    /// gives it the lowest inode that is free.
    pub fn start(&mut self, pod: u8) -> Id {
        let group = self.group(pod);
        if self.containers.get(&group).is_none_or(|c| c.is_gone) {
            let number = self.next_number();
            let container = Container {
                number,
                inode: None,
                is_gone: false,
            };
            self.containers.insert(group, container);
        }
        let used: BTreeSet<u64> = self.namespaces().map(|(_, inode)| inode).collect();
        let free = (1..).find(|inode| !used.contains(inode)).unwrap();
        let container = self.containers.get_mut(&group).unwrap();
        container.inode.get_or_insert(free);
        let number = container.number;
        self.id(pod, number)
    }

    /// The attachment of a pod, for a DEL, which may come before any ADD.
    pub fn named(&mut self, pod: u8) -> Id {
        let group = self.group(pod);
        if !self.containers.contains_key(&group) {
            let number = self.next_number();
            let container = Container {
                number,
                inode: None,
                is_gone: false,
            };
            self.containers.insert(group, container);
        }
        let number = self.containers[&group].number;
        self.id(pod, number)
    }

    /// The network namespaces that exist: the container's number, and the inode.
    fn namespaces(&self) -> impl Iterator<Item = (u32, u64)> {
        let there = self.containers.values().filter(|c| !c.is_gone);
        there.filter_map(|c| Some((c.number, c.inode?)))
    }

    /// The network namespace that an ADD is made for.
    pub fn netns(&self, id: Id) -> NetNs {
        let (number, inode) = self
            .namespaces()
            .find(|(number, _)| *number == id.container)
            .unwrap();
        NetNs {
            path: id.container_id().into(),
            id: Some((4, inode)),
            cookie: self.rules.has_cookies.then_some(u64::from(number)),
        }
    }

    /// Ends a pod's container, if it is there. Its number is still the one that a DEL names.
    pub fn end(&mut self, pod: u8) {
        let group = self.group(pod);
        let Some(container) = self.containers.get_mut(&group) else {
            return;
        };
        if container.inode.is_some() {
            container.is_gone = true;
            let number = container.number;
            self.pods.retain(|id, _| id.container != number);
            self.in_flight.retain(|_, add| add.id.container != number);
        }
    }

    /// Wires the pods whose ADD ended this many seconds ago or earlier.
    fn wire(&mut self, seconds: u64) {
        for (id, pod) in &mut self.pods {
            if !pod.wired && self.clock - pod.since >= seconds * SECOND {
                pod.wired = true;
                self.cache.insert(*id, pod.addresses.clone());
            }
        }
    }

    fn live(&mut self, pod: u8) -> Option<(Id, &mut Pod)> {
        let container = self.containers.get(&self.group(pod))?;
        let id = self.id(pod, container.number);
        self.pods.get_mut(&id).map(|pod| (id, pod))
    }

    /// The main plugin is through with a pod, and libcni has noted its result.
    pub fn wire_one(&mut self, pod: u8) {
        if let Some((id, pod)) = self.live(pod) {
            pod.wired = true;
            let addresses = pod.addresses.clone();
            self.cache.insert(id, addresses);
        }
    }

    /// libcni has noted the result of a pod whose address no kernel shows.
    fn cached(&mut self, pod: u8) {
        if let Some((id, pod)) = self.live(pod) {
            let addresses = pod.addresses.clone();
            self.cache.insert(id, addresses);
        }
    }

    pub fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds.min(40) {
            self.clock += SECOND;
            self.wire(WIRING);
        }
        self.clock += seconds.saturating_sub(40) * SECOND;
        // No call lasts that long.
        self.in_flight.clear();
    }

    fn lose(&mut self, loss: Loss) {
        self.loss_seen = None;
        self.newest_answer = None;
        let state = self.disk.text(StateFile::State).map(<[u8]>::to_vec);
        match loss {
            // Nor is it noted elsewhere that the original is giving addresses, until the kernel shows one of them.
            Loss::Deleted | Loss::Emptied | Loss::RunWiped
                if self.is_unseen_work_of_the_original() => {}
            Loss::Deleted => drop(self.disk.files.remove(&StateFile::State)),
            Loss::RunWiped => {
                self.disk.files.remove(&StateFile::State);
                self.disk.remove_lock_folder();
            }
            Loss::Emptied => {
                if state.is_some() {
                    self.disk.put(StateFile::State, b"");
                }
            }
            Loss::Damaged => {
                if let Some(text) = state {
                    self.disk.put(StateFile::State, &text[..text.len() / 2]);
                }
            }
            // What the original gave since our last call is noted nowhere but in the state (README, with the original beside us).
            Loss::RolledBack if self.original_wrote_last => {}
            // Nothing is left then that tells an old copy (README, known limitations).
            Loss::RolledBack if self.disk.text(StateFile::LastGrant).is_none() => {}
            // Before the state was rebuilt there was none.
            Loss::RolledBack
                if self.old_state.as_deref().is_none_or(<[u8]>::is_empty)
                    && self.is_unseen_work_of_the_original() => {}
            // An old copy without our key looks like the original's, and begins no quarantine.
            Loss::RolledBack if self.old_state.as_deref().is_some_and(lacks_our_key) => {}
            Loss::RolledBack => {
                let old = self.old_state.take();
                self.old_state = state.map(Into::into);
                match old {
                    Some(old) => drop(self.disk.files.insert(StateFile::State, old)),
                    None => drop(self.disk.files.remove(&StateFile::State)),
                }
            }
            // What only our key tells is which of its interfaces a container's addresses are for, until there is other evidence.
            Loss::OurKeyRemoved
                if self.pods.keys().any(|id| id.interface != 0)
                    || self.in_flight.values().any(|add| add.id.interface != 0) => {}
            // Of a state that is whole. One that was lost a moment ago and then loses our key too, within the quarantine,
            // takes the knowledge of pods that are being wired with it (README, known limitations).
            Loss::OurKeyRemoved if self.is_whole() => {
                let value = state.and_then(|text| serde_json::from_slice(&text).ok());
                if let Some(mut value) = value {
                    let value: &mut Value = &mut value;
                    value.as_object_mut().unwrap().remove("azure-vnet-ipam");
                    let text = value.to_string();
                    self.disk.put(StateFile::State, text.as_bytes());
                }
            }
            Loss::OurKeyRemoved => {}
            Loss::JournalTorn => {
                let journal = self.disk.text(StateFile::Journal).map(<[u8]>::to_vec);
                if let Some(text) = journal.filter(|text| text.len() > 10) {
                    self.disk.put(StateFile::Journal, &text[..text.len() - 10]);
                }
            }
            Loss::JournalRemoved => drop(self.disk.files.remove(&StateFile::Journal)),
            Loss::JournalEntryRemoved => self.change_journal(|journal| {
                let mut lines: Vec<&str> = journal.split_inclusive('\n').collect();
                if lines.len() > 2 {
                    lines.remove(1);
                }
                lines.concat()
            }),
            Loss::JournalEntryDamaged => {
                self.change_journal(|journal| journal.replacen("10.0.0.7", "10.0.0.9", 1));
            }
            Loss::LockFolderRemoved if self.is_old_copy() => {}
            Loss::LockFolderRemoved => self.disk.remove_lock_folder(),
        }
    }

    /// A view of the files for the plugin's own functions.
    pub fn files(&self) -> MemoryNode {
        MemoryNode::new(self.disk.clone(), self.now(), Evidence::default())
    }

    /// Whether the state is an old copy. Once the folder of the lock is gone, nothing tells (README, known limitations).
    pub fn is_old_copy(&self) -> bool {
        self.document()
            .is_some_and(|document| self.loss(&document).is_some())
    }

    fn last_use(&self) -> Option<u64> {
        last_use(&self.files(), self.boot_id().as_deref())
    }

    /// Whether only the original has given addresses in this boot, and neither the kernel shows one of them nor libcni's cache all of
    /// them.
    fn is_unseen_work_of_the_original(&self) -> bool {
        let is_listed = self.blind != Blindness::Cache
            && self.pods.keys().all(|id| self.cache.contains_key(id));
        self.last_use().is_none() && !is_listed && self.pods.values().all(|pod| !pod.wired)
    }

    /// Whether nothing but libcni's cache tells that the original has given addresses.
    fn only_lists_tell(&self) -> bool {
        self.document().is_none_or(|document| document.is_empty())
            && self.last_use().is_none()
            && self.pods.values().all(|pod| !pod.wired)
    }

    fn change_journal(&mut self, change: impl FnOnce(&str) -> String) {
        if let Some(journal) = self.disk.text(StateFile::Journal) {
            let changed = change(&String::from_utf8_lossy(journal));
            self.disk.put(StateFile::Journal, changed.as_bytes());
        }
    }

    /// The state as the plugin reads it, if there is one.
    pub fn document(&self) -> Option<Document> {
        let text = self.disk.text(StateFile::State).filter(|t| !t.is_empty())?;
        Document::parse(text, self.boot_id().as_deref(), self.now()).ok()
    }

    /// Whether the state is ours, of this boot, not an old copy, and nothing about it is still to be settled.
    pub fn is_whole(&self) -> bool {
        self.document().is_some_and(|document| {
            matches!(document.own, Own::Ours)
                && document.owed == Owed::Nothing
                && self.loss(&document).is_none()
                && document.ipam().quarantine.is_none()
        })
    }

    pub fn loss(&self, document: &Document) -> Option<String> {
        let files = self.files();
        loss(document, is_rebuild_owed(&files), self.last_use()).map(str::to_owned)
    }

    fn reboot(&mut self, keeps_state: bool) {
        for container in self.containers.values_mut() {
            container.is_gone |= container.inode.is_some();
        }
        self.pods.clear();
        self.in_flight.clear();
        self.boot += 1;
        self.clock = 10 * SECOND;
        self.doubtful_since = None;
        self.loss_seen = None;
        self.newest_answer = None;
        self.old_state = None;
        if !keeps_state {
            self.disk = Disk::default();
        }
    }

    /// What a look at the node shows now.
    pub fn evidence(&self) -> Evidence {
        let mut kernel = Kernel::default();
        for (number, inode) in self.namespaces() {
            kernel.namespaces.insert((4, inode));
            if self.rules.has_cookies {
                kernel.cookies.insert((4, inode), u64::from(number));
            }
        }
        let shows_addresses = self.rules.kernel_shows_addresses;
        for (id, pod) in self
            .pods
            .iter()
            .filter(|(_, pod)| pod.wired && shows_addresses)
        {
            let place = Place::Namespace(id.container_id());
            let places = pod.addresses.iter().map(|a| (*a, place.clone()));
            kernel.configured.extend(places);
        }
        if self.blind == Blindness::Namespaces {
            kernel.incomplete = Some("blind".into());
        }
        let entries = self.cache.iter().map(|(id, addresses)| {
            let there = self
                .namespaces()
                .find(|(number, _)| *number == id.container);
            Entry {
                container_id: id.container_id(),
                network: Some("azure".into()),
                if_name: Some(id.if_name()),
                pod: None,
                netns: Some(NetNs {
                    path: id.container_id().into(),
                    id: there.map(|(_, inode)| (4, inode)),
                    cookie: None,
                }),
                addresses: addresses.clone(),
                stands: there.is_some(),
                of_this_boot: false,
            }
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
        Evidence {
            kernel,
            cache,
            azure_vnet: Witness::Absent,
            routes,
        }
    }

    /// What the source says when it is asked now; nothing when it fails.
    pub fn inventory(&self) -> Option<Inventory> {
        let pool = |family: &Family| {
            let subnet = match family {
                Family::V4 => SUBNET,
                Family::V6 => SUBNET_V6,
            };
            let of_family = |a: &&IpAddr| Family::of(**a) == *family;
            let addresses = match self.answer {
                Answer::Good => self.listed.iter().filter(of_family).copied().collect(),
                _ => Vec::new(),
            };
            ListedPool::new(subnet.parse().unwrap(), "eth0".into(), 0, addresses)
        };
        match self.answer {
            Answer::Good | Answer::Empty => Some(Inventory {
                pools: self.rules.families.iter().map(pool).collect(),
            }),
            Answer::Unmatched => Some(Inventory::default()),
            Answer::None => None,
        }
    }

    /// The addresses that the state says are held.
    pub fn held(&self) -> BTreeSet<IpAddr> {
        let Some(document) = self.document() else {
            return BTreeSet::new();
        };
        let records = document
            .ipam()
            .pools()
            .flat_map(|(_, _, pool)| &pool.records);
        records
            .filter(|r| r.held().is_some())
            .map(|r| r.address())
            .collect()
    }

    fn check(&self) {
        let mut owners: BTreeMap<IpAddr, Id> = BTreeMap::new();
        for (id, pod) in &self.pods {
            for address in &pod.addresses {
                let other = owners.insert(*address, *id);
                assert_eq!(other, None, "{address} has two live owners");
            }
        }
        let Some(document) = self.document() else {
            return;
        };
        assert_eq!(document.ipam().check(), []);
        // A state that is whole and of this boot knows of every pod; but not of what lies in a subnet that went while the state
        // was lost. When it comes back, its addresses are new, and looked for before any is given.
        if self.is_whole() {
            let held = self.held();
            let in_a_pool = |address: &IpAddr| {
                let mut pools = document.ipam().pools();
                pools.any(|(_, key, pool)| {
                    !pool.records.is_empty() && pool.net(key).unwrap().contains(address)
                })
            };
            for (id, pod) in &self.pods {
                let mut lost = pod.addresses.iter().filter(|a| !held.contains(a));
                let lost = lost.find(|a| in_a_pool(a));
                assert_eq!(lost, None, "{id:?} lives without its address");
            }
            if self.rules.releases_are_final {
                for id in &self.released {
                    let pools = document.ipam().pools();
                    let mut records = pools.flat_map(|(_, _, pool)| &pool.records);
                    let is_theirs = |held: &Held| {
                        let claim = held.claim.as_ref();
                        *held.container_id == *id.container_id()
                            && claim.is_some_and(|claim| *claim.if_name == *id.if_name())
                    };
                    let held = records.find(|r| r.held().is_some_and(is_theirs));
                    let held = held.map(|record| record.address());
                    assert_eq!(held, None, "{id:?} was released, and holds an address");
                }
            }
        }
    }

    pub fn live_through(mut self, events: &[Event]) {
        for event in events {
            self.step(event);
        }
        self.nothing_leaks();
    }

    /// Hours later, with open eyes: everything that no live pod holds has come back.
    pub fn nothing_leaks(&mut self) {
        const NEWCOMERS: std::ops::Range<u8> = 100..140;
        self.blind = Blindness::No;
        self.answer = Answer::Good;
        self.is_boot_id_readable = true;
        self.listed = listed(&self.rules, u8::MAX);
        self.pass(60);
        // What tells the network namespace of a pod of the original from a dead one of ours with the same inode? Nothing, as long as it
        // lives, where the kernel has no other number for it, or where the original has written since another boot.
        if !self.rules.has_cookies || self.has_original {
            self.pods.clear();
        }
        // The runtime removes containers whose ADD never came to a good end.
        let live: BTreeSet<u32> = self.pods.keys().map(|id| id.container).collect();
        for container in self.containers.values_mut() {
            container.is_gone |= container.inode.is_some() && !live.contains(&container.number);
        }
        let mut newcomers = NEWCOMERS;
        for _ in 0..4 {
            self.pass(3700);
            for newcomer in newcomers.by_ref() {
                let before = self.pods.len();
                self.add(newcomer);
                if self.pods.len() == before {
                    // The runtime removes what it could not make.
                    self.end(newcomer);
                    break;
                }
            }
        }
        // One that lost its state on the way may have two addresses, which its DEL frees.
        let live: BTreeSet<String> = self.pods.keys().map(|id| id.container_id()).collect();
        let theirs: BTreeSet<IpAddr> = self
            .pods
            .values()
            .flat_map(|pod| pod.addresses.clone())
            .collect();
        let document = self.document().expect("a state after an ADD");
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
