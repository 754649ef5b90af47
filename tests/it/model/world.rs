//! The world: what exists on the node, and what its files contain.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use azure_vnet_ipam::ipam::{Family, Moment, NetNs};
use azure_vnet_ipam::plugin::Scan;
use azure_vnet_ipam::source::FreshAnswer;

use super::events::{Answer, Blindness, Event, Who};
use super::losses::Truth;
use super::node::Disk;
use super::seen::Strangers;
pub(crate) use crate::harness::SUBNET;

pub(super) const SECOND: u64 = 1_000_000_000;
/// The remainder of every moment when it is divided by a tenth of a second. It distinguishes moments from
/// generations, which use the same clock.
pub(super) const MARK: u64 = 7;
/// The main plugin configures a pod within this time. The quarantine is longer.
const CONFIGURATION_TIME: u64 = 25;

/// A slow teardown takes this many seconds. It outlasts the cooldown of 30 s.
const TEARDOWN: u64 = 35;
/// A sandbox that cannot be removed stays longer than any history.
const STUCK: u64 = 1_000_000;

/// An attachment: the numbers of its container and its interface, and its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    pub container: u32,
    pub interface: u8,
    pub user: User,
}

/// The user of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum User {
    /// The pod of this number.
    Pod(u8),
    /// An agent, which has an address and no sandbox.
    Agent,
}

impl Id {
    pub fn container_id(self) -> String {
        format!("pod{}", self.container)
    }

    /// CNI_ARGS.
    pub fn args(self) -> String {
        let id = self.container_id();
        match self.user {
            User::Pod(pod) => format!(
                "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME={pod};K8S_POD_INFRA_CONTAINER_ID={id}"
            ),
            User::Agent => {
                format!("IgnoreUnknown=true;K8S_POD_NAME={id};K8S_POD_NAMESPACE=kube-system")
            }
        }
    }

    pub fn if_name(self) -> String {
        match self.interface {
            0 => "eth0".to_owned(),
            n => format!("net{n}"),
        }
    }
}

/// A live attachment with its addresses.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub addresses: Vec<IpAddr>,
    /// When its ADD ended.
    pub since: u64,
    pub configured: bool,
}

/// A container that the runtime created or is about to create.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub number: u32,
    /// The inode of its network namespace, from its first ADD until it is gone.
    pub inode: Option<u64>,
    pub is_gone: bool,
}

/// An ADD in progress.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub id: Id,
    pub began: Moment,
    /// The source's answer to the ADD, if there is one.
    pub answer: Option<FreshAnswer>,
    /// Whether the ADD has received the answer.
    pub has_asked: bool,
    pub scan: Option<Rc<Scan>>,
    /// The address that the ADD requests, if it requests a particular one.
    pub named: Option<String>,
}

/// The rules of a history, which do not change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The families of the addresses of every attachment.
    pub families: &'static [Family],
    /// The maximum number of addresses that the source lists.
    pub addresses: u8,
    /// The pod that is the second interface of the pod before it.
    pub second_interface: Option<u8>,
    /// The pod that is an agent: its network namespace exists only during its ADD.
    pub agent: Option<u8>,
    /// Whether the kernel has cookies for network namespaces.
    pub has_cookies: bool,
    /// Whether the kernel shows the addresses of pods. For a virtual machine, only libcni's cache shows them.
    pub kernel_shows_addresses: bool,
    /// Whether time passes with each event.
    pub is_ticking: bool,
    /// Whether no event hides a release. A released address is then free, even after a lost state.
    pub releases_are_final: bool,
    /// Whether no event makes a state look lost again. A quarantine then starts when the loss is first seen.
    pub losses_are_seen_once: bool,
    /// Whether copies of files are put back.
    pub has_copies: bool,
}

/// The state of the world.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub rules: Rules,
    pub clock: u64,
    pub boot: u32,
    pub is_boot_id_readable: bool,
    /// The live attachments.
    pub pods: BTreeMap<Id, Pod>,
    /// The current container of each pod.
    pub containers: BTreeMap<u8, Container>,
    /// The number of the next container.
    pub last_container: u32,
    pub in_flight: BTreeMap<u8, InFlight>,
    /// The containers that are still being torn down after their DEL, and when that ends.
    pub leaving: Vec<(u64, Container)>,
    /// The addresses that such containers still have and that the plugin must not allocate.
    pub withheld: BTreeMap<IpAddr, Id>,
    /// libcni's cache.
    pub cache: BTreeMap<Id, Vec<IpAddr>>,
    pub strangers: Strangers,
    pub listed: BTreeSet<IpAddr>,
    /// The IPv4 subnets in which the source lists the addresses. The first is always listed, the others while they
    /// have addresses.
    pub subnets: &'static [&'static str],
    pub answer: Answer,
    /// When answers began to be implausible.
    pub doubtful_since: Option<Moment>,
    pub disk: Disk,
    /// The state before the last write.
    pub old_state: Option<Rc<[u8]>>,
    /// The files before the last write, and a kept copy.
    pub last_copy: Option<Disk>,
    pub kept: Option<Disk>,
    /// What the program must be able to know after losses.
    pub truth: Truth,
    pub original_wrote_last: bool,
    /// Whether the original has ever written.
    pub has_original: bool,
    pub blind: Blindness,
    /// The source of the original's random choices.
    pub random: u64,
    /// When the first ADD succeeded after a loss.
    pub loss_seen: Option<Moment>,
    /// The newest merged answer: when its fetch started, and what it listed.
    pub newest_answer: Option<(Moment, BTreeSet<IpAddr>)>,
    /// The attachments that were released and have no new address.
    pub released: BTreeSet<Id>,
}

/// The subnets of the addresses that sources list.
pub(crate) const SUBNETS: &[&str] = &[SUBNET, "10.225.0.0/16"];

/// An address of the second subnet.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 225, 0, 5));

fn address(n: u8) -> IpAddr {
    Ipv4Addr::new(10, 224, 0, 5 + n).into()
}

/// The addresses that the source lists when the bits of these numbers are set. There is one IPv6 address less, so
/// that an ADD may find none after it has an IPv4 address.
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
            clock: 100 * SECOND + MARK,
            boot: 1,
            is_boot_id_readable: true,
            pods: BTreeMap::new(),
            containers: BTreeMap::new(),
            last_container: 0,
            in_flight: BTreeMap::new(),
            cache: BTreeMap::new(),
            strangers: Strangers::default(),
            listed: listed(&rules, u8::MAX),
            subnets: SUBNETS,
            answer: Answer::Good,
            doubtful_since: None,
            disk: Disk::default(),
            old_state: None,
            last_copy: None,
            kept: None,
            truth: Truth::default(),
            leaving: Vec::new(),
            withheld: BTreeMap::new(),
            original_wrote_last: false,
            has_original: false,
            blind: Blindness::No,
            random: 1,
            loss_seen: None,
            newest_answer: None,
            released: BTreeSet::new(),
            rules,
        }
    }

    /// Whether attachments get addresses of both families. The original allocates only one address, so it does not
    /// take part then.
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
        if !event.keeps_state_as_it_is() {
            self.withheld.clear();
        }
        match event {
            Event::Add(pod, Who::TheOriginal) if !self.is_dual() => self.originals_add(*pod),
            Event::Add(pod, _) => self.add(*pod),
            Event::SlowAdd(pod, event) => self.slow_add(*pod, event),
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
            Event::Configure(pod) => self.configure(*pod),
            Event::Cached(pod) => self.cached(*pod),
            Event::ConfigureAll => self.configure_older(0),
            Event::Wait(seconds) => self.advance_time(u64::from(*seconds)),
            Event::Keep => self.kept = Some(self.disk.clone()),
            Event::Change(files, fate) => self.change(*files, *fate),
            Event::OriginalsVersion => self.originals_version(),
            Event::OriginalStartsEmpty(pod) if !self.is_dual() => self.original_starts_empty(*pod),
            Event::OriginalStartsEmpty(_) => {}
            Event::FaultyAdd(pod, fault) => self.faulty_add(*pod, *fault),
            Event::FaultyDel(pod, fault) => self.faulty_del(*pod, *fault),
            Event::SlowDel(pod) => self.slow_del(*pod, TEARDOWN),
            Event::StuckDel(pod) => self.slow_del(*pod, STUCK),
            Event::Retry(pod) => self.retry(*pod),
            Event::SourceElsewhere => self.listed = [ELSEWHERE].into(),
            Event::Source(bits) => self.listed = listed(&self.rules, *bits),
            Event::Answer(answer) => self.answer = *answer,
            Event::Lose(loss) => self.lose(*loss),
            Event::Reboot { keeps_state } => self.reboot(*keeps_state),
            Event::BootIdReadable(is_readable) => {
                self.is_boot_id_readable = *is_readable;
                self.is_boot_id_readable |= self.is_believed_without_boot_id();
            }
            // "everything removed while an ADD is not configured yet"
            Event::WipeCache | Event::Blind(Blindness::Cache)
                if self.only_lists_show_addresses() => {}
            Event::Blind(blind) => self.blind = *blind,
            Event::WipeCache => self.cache.clear(),
            Event::Gc { forgets } => self.gc(*forgets),
            Event::Reclaim => self.reclaim(),
        }
        self.check();
    }

    /// The pod that owns the container of this pod.
    fn group(&self, pod: u8) -> u8 {
        match self.rules.second_interface {
            Some(second) if second == pod => pod - 1,
            _ => pod,
        }
    }

    fn id(&self, pod: u8, container: u32) -> Id {
        let group = self.group(pod);
        Id {
            container,
            interface: u8::from(group != pod),
            user: if self.rules.agent == Some(pod) {
                User::Agent
            } else {
                User::Pod(group)
            },
        }
    }

    /// Creates a container without network namespace.
    fn make_container(&mut self, group: u8) {
        self.last_container += 1;
        let container = Container {
            number: self.last_container,
            inode: None,
            is_gone: false,
        };
        self.containers.insert(group, container);
    }

    /// The attachment of a pod for an ADD. If the last container is gone, there is a new one. Its network namespace
    /// exists, and has the lowest free inode.
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

    /// The attachment of a pod for a DEL, which may precede any ADD.
    pub fn named(&mut self, pod: u8) -> Id {
        let group = self.group(pod);
        if !self.containers.contains_key(&group) {
            self.make_container(group);
        }
        let number = self.containers[&group].number;
        self.id(pod, number)
    }

    /// The existing network namespaces: number of the container, and inode.
    pub fn namespaces(&self) -> impl Iterator<Item = (u32, u64)> {
        let leaving = self.leaving.iter().map(|(_, container)| container);
        let there = self.containers.values().chain(leaving);
        let there = there.filter(|c| !c.is_gone);
        there.filter_map(|c| Some((c.number, c.inode?)))
    }

    /// The network namespace of an ADD.
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

    /// The runtime replaces a pod's sandbox by a new one at the next ADD, and the old one keeps running.
    fn retry(&mut self, pod: u8) {
        let group = self.group(pod);
        if let Some(container) = self.containers.remove(&group) {
            // This number belongs to no pod.
            let place = 200 + u8::try_from(container.number % 50).unwrap();
            self.containers.insert(place, container);
        }
    }

    /// Ends the network namespace of an agent's ADD.
    pub fn end_agents_namespace(&mut self) {
        if let Some(agent) = self.rules.agent
            && let Some(container) = self.containers.get_mut(&agent)
        {
            container.inode = None;
        }
    }

    /// Ends a pod's container, if it exists. A later DEL still names its number.
    pub fn end(&mut self, pod: u8) {
        let group = self.group(pod);
        let is_agent = self.rules.agent == Some(pod);
        let Some(container) = self.containers.get_mut(&group) else {
            return;
        };
        if container.inode.is_some() || is_agent {
            container.is_gone = !is_agent;
            let number = container.number;
            self.pods.retain(|id, _| id.container != number);
            self.in_flight.retain(|_, add| add.id.container != number);
        }
    }

    /// Configures the pods whose ADD ended at least this many seconds ago.
    fn configure_older(&mut self, seconds: u64) {
        for (id, pod) in &mut self.pods {
            let is_sandbox = id.user != User::Agent;
            if is_sandbox && !pod.configured && self.clock - pod.since >= seconds * SECOND {
                pod.configured = true;
                self.cache.insert(*id, pod.addresses.clone());
            }
        }
    }

    fn live(&mut self, pod: u8) -> Option<(Id, &mut Pod)> {
        let container = self.containers.get(&self.group(pod))?;
        let id = self.id(pod, container.number);
        self.pods.get_mut(&id).map(|pod| (id, pod))
    }

    /// Configures a pod: the link has its address, and libcni's cache has its result.
    pub fn configure(&mut self, pod: u8) {
        if let Some((id, pod)) = self.live(pod) {
            pod.configured = true;
            let addresses = pod.addresses.clone();
            self.cache.insert(id, addresses);
        }
    }

    /// Caches the result of a pod whose address the kernel does not show.
    fn cached(&mut self, pod: u8) {
        if let Some((id, pod)) = self.live(pod) {
            let addresses = pod.addresses.clone();
            self.cache.insert(id, addresses);
        }
    }

    /// Advances the clock and configures pods whose ADD has ended.
    pub fn advance_time(&mut self, seconds: u64) {
        for _ in 0..seconds.min(40) {
            self.clock += SECOND;
            self.configure_older(CONFIGURATION_TIME);
            self.end_teardowns(self.clock);
        }
        self.clock += seconds.saturating_sub(40) * SECOND;
        // No call takes that long.
        self.in_flight.clear();
    }

    /// Keeps a container's namespace and its configuration for this many seconds.
    pub fn start_teardown(&mut self, pod: u8, seconds: u64) {
        let group = self.group(pod);
        let Some(container) = self.containers.get(&group) else {
            return;
        };
        if container.is_gone || container.inode.is_none() {
            return;
        }
        let container = container.clone();
        let number = container.number;
        let is_theirs = |id: &Id| id.container == number;
        let theirs = self.pods.iter().filter(|(id, pod)| {
            is_theirs(id) && pod.configured && self.rules.kernel_shows_addresses
        });
        let theirs = theirs.map(|(id, pod)| (*id, pod.addresses.clone()));
        self.strangers.configured.extend(theirs);
        self.end(pod);
        self.leaving
            .push((self.clock + seconds * SECOND, container));
    }

    /// Completes the teardowns that end at this moment or before.
    pub fn end_teardowns(&mut self, until: u64) {
        let ended = self.leaving.extract_if(.., |(end, _)| *end <= until);
        for (_, container) in ended {
            let is_theirs = |id: &Id| id.container == container.number;
            self.withheld.retain(|_, id| !is_theirs(id));
            self.strangers.configured.retain(|id, _| !is_theirs(id));
            self.cache.retain(|id, _| !is_theirs(id));
        }
    }

    fn reboot(&mut self, keeps_state: bool) {
        self.end_teardowns(u64::MAX);
        for container in self.containers.values_mut() {
            container.is_gone |= container.inode.is_some();
        }
        self.pods.clear();
        self.in_flight.clear();
        self.boot += 1;
        self.clock = 10 * SECOND + MARK;
        self.doubtful_since = None;
        self.loss_seen = None;
        self.newest_answer = None;
        self.old_state = None;
        if !keeps_state {
            self.disk = Disk::default();
        }
        self.truth.reboot(&self.disk);
    }
}
