//! What is there on the node, and what is remembered of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use azure_vnet_ipam::ipam::{Family, Inventory, Moment, NetNs};
use azure_vnet_ipam::plugin::NodeSnapshot;

use super::events::{Answer, Blindness, Event, Who};
use super::node::Disk;

pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const SUBNET: &str = "10.0.0.0/24";
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
    pub look: Option<Rc<NodeSnapshot>>,
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
pub(super) fn listed(rules: &Rules, bits: u8) -> BTreeSet<IpAddr> {
    let set = (0..rules.addresses).filter(|n| bits >> n & 1 == 1);
    let mut all: BTreeSet<IpAddr> = set.clone().map(address).collect();
    if rules.families.contains(&Family::V6) {
        let v6 = |n: u8| IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7 + u16::from(n)));
        all.extend(set.filter(|n| n + 1 < rules.addresses).map(v6));
    }
    all
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
            Event::RacedAdd(pod, other, step) => self.raced_add(*pod, *other, *step, None),
            Event::KilledRacedAdd(pod, other, step, changes) => {
                self.raced_add(*pod, *other, *step, Some(*changes));
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

    /// Makes a new container, which has no network namespace yet.
    fn make_container(&mut self, group: u8) {
        self.last_container += 1;
        let container = Container {
            number: self.last_container,
            inode: None,
            is_gone: false,
        };
        self.containers.insert(group, container);
    }

    /// The attachment of a pod, for an ADD: of a new container where the last is gone. Its network namespace is there then. The kernel
    /// gives it the lowest inode that is free.
    pub fn start(&mut self, pod: u8) -> Id {
        let group = self.group(pod);
        if self.containers.get(&group).is_none_or(|c| c.is_gone) {
            self.make_container(group);
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
            self.make_container(group);
        }
        let number = self.containers[&group].number;
        self.id(pod, number)
    }

    /// The network namespaces that exist: the container's number, and the inode.
    pub fn namespaces(&self) -> impl Iterator<Item = (u32, u64)> {
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
}
