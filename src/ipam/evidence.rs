//! Evidence of live attachments, as values. `src/evidence` gathers it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use super::NetNs;

/// All evidence of one snapshot of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// E0 and E5: the kernel itself.
    pub kernel: Kernel,
    /// E1: libcni's cache of results.
    pub cache: EvidenceList,
    /// E2: the state of the main plugin azure-vnet.
    pub azure_vnet: EvidenceList,
    /// E3: routes to single addresses on the host.
    pub routes: Routes,
}

/// The addresses that the kernel has configured in the network namespaces of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kernel {
    /// Why not every namespace could be read, if so. No owner counts as dead then.
    pub incomplete: Option<String>,
    /// Every address configured somewhere, and where.
    pub configured: BTreeMap<IpAddr, Place>,
    /// Further places of addresses that more than one namespace has; those of loopback and of single links aside.
    pub also: Vec<(IpAddr, Place)>,
    /// Device and inode of every network namespace.
    pub namespaces: BTreeSet<(u64, u64)>,
    /// The kernel's numbers of those, by device and inode, as far as it tells them.
    pub cookies: BTreeMap<(u64, u64), u64>,
    /// The addresses configured in each of those, but for those of loopback and of single links.
    pub inside: BTreeMap<(u64, u64), BTreeSet<IpAddr>>,
    /// Those that links of the host lead to, by the number that the host knows each by.
    pub numbers: BTreeMap<u32, (u64, u64)>,
    /// The host's own, where it is known.
    pub host: Option<(u64, u64)>,
    /// Those that belong to other user namespaces and that nothing mounts.
    pub of_users: BTreeSet<(u64, u64)>,
    /// Paths of claims, with device and inode as they were when their ADD came, that lead to another namespace now.
    pub elsewhere: BTreeSet<(Box<str>, (u64, u64))>,
}

/// Whether a network namespace exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existence {
    /// It does.
    Certain,
    /// One of its device and inode does, and the kernel does not tell whether it is the same.
    Possible,
    /// It does not.
    None,
}

impl Kernel {
    /// Whether the network namespace exists. Device and inode prove nothing, as the next namespace may have them.
    pub fn existence(&self, netns: &NetNs) -> Existence {
        let Some(id) = netns.id.filter(|id| self.namespaces.contains(id)) else {
            return Existence::None;
        };
        match (netns.cookie, self.cookies.get(&id)) {
            (Some(then), Some(now)) if then == *now => Existence::Certain,
            (Some(_), Some(_)) => Existence::None,
            _ if self.incomplete.is_none()
                && self.elsewhere.contains(&(netns.path.clone(), id)) =>
            {
                Existence::None
            }
            _ => Existence::Possible,
        }
    }

    /// Whether the namespace may be that of an attachment with these addresses, as far as its own tell: it has one of them, or none
    /// at all, like that of a virtual machine. For what may lead to a successor's: a link's name, a process ID.
    pub fn may_be_of(&self, id: (u64, u64), addresses: &[IpAddr]) -> bool {
        let fits =
            |own: &BTreeSet<IpAddr>| own.is_empty() || addresses.iter().any(|a| own.contains(a));
        self.is_of_a_pod(id) && self.inside.get(&id).is_none_or(fits)
    }

    /// Whether the namespace exists, and is neither the host's own nor one that any user can make.
    pub fn is_of_a_pod(&self, id: (u64, u64)) -> bool {
        let is_known = self.namespaces.contains(&id);
        is_known && self.host != Some(id) && !self.of_users.contains(&id)
    }

    /// All places where the address is configured.
    pub fn places(&self, address: IpAddr) -> impl Iterator<Item = &Place> {
        let also = self.also.iter().filter(move |(a, _)| *a == address);
        let first = self.configured.get(&address).into_iter();
        first.chain(also.map(|(_, place)| place))
    }
}

/// Where an address is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the host itself.
    Host,
    /// In another network namespace, which this path leads to.
    Namespace(String),
    /// In a network namespace that this path leads to, that belongs to another user namespace and that nothing mounts. Any user can
    /// make one: it holds a reclaim back, but reserves nothing.
    OfUser(String),
}

impl Place {
    /// The place with the higher precedence is kept for an address that is in two.
    pub fn precedence(&self) -> u8 {
        match self {
            Place::OfUser(_) => 0,
            Place::Host => 1,
            Place::Namespace(_) => 2,
        }
    }
}

impl Place {
    /// Whether the path leads to this network namespace. /var/run is a link to /run.
    pub fn is_path(&self, path: &str) -> bool {
        let plain = |path: &str| match path.strip_prefix("/var/run/") {
            Some(rest) => format!("/run/{rest}"),
            None => path.to_owned(),
        };
        match self {
            Place::Host => false,
            Place::Namespace(own) | Place::OfUser(own) => plain(own) == plain(path),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host => f.write_str("on the host"),
            Place::Namespace(path) => write!(f, "in {path}"),
            Place::OfUser(path) => write!(f, "in {path}, which a user made"),
        }
    }
}

/// A list that somebody else keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum EvidenceList {
    /// There is none on this node.
    #[default]
    Absent,
    /// It was read.
    Read {
        /// What it says.
        entries: Vec<Entry>,
        /// Names of parts that are empty, half-written or otherwise not to be understood. They may speak for whom their name
        /// speaks of.
        doubtful: Vec<String>,
    },
    /// It is there but cannot be read: it might speak for anybody.
    Unreadable(String),
}

/// What a list says of one attachment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// The container.
    pub container_id: String,
    /// The network, where the list tells.
    pub network: Option<String>,
    /// The interface within the container, where the list tells.
    pub if_name: Option<String>,
    /// `namespace/name` of the pod, for people.
    pub pod: Option<String>,
    /// Its network namespace, where the list tells.
    pub netns: Option<NetNs>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether its namespace still exists. An entry whose has gone says nothing.
    pub is_live: bool,
    /// Of one that tells no namespace, whether it was written since the machine started.
    pub of_this_boot: bool,
}

/// Routes of the host to single addresses.
#[derive(Clone, Debug, PartialEq)]
pub enum Routes {
    /// Where they lead.
    Read(BTreeSet<IpAddr>),
    /// They cannot be read.
    Unreadable(String),
}

impl Default for Routes {
    fn default() -> Self {
        Routes::Read(BTreeSet::new())
    }
}

impl Evidence {
    /// Both lists, with the names that messages call them.
    pub fn lists(&self) -> [(&'static str, &EvidenceList); 2] {
        [
            ("the CNI cache", &self.cache),
            ("azure-vnet's state", &self.azure_vnet),
        ]
    }

    /// Whether the address may be in use: the kernel, azure-vnet or a route shows it, or could not be read.
    pub fn shows(&self, address: IpAddr) -> bool {
        let azure_vnet = match &self.azure_vnet {
            EvidenceList::Absent => false,
            EvidenceList::Read { entries, .. } => entries
                .iter()
                .any(|e| e.is_live && e.addresses.contains(&address)),
            EvidenceList::Unreadable(_) => true,
        };
        let routes = match &self.routes {
            Routes::Read(routes) => routes.contains(&address),
            Routes::Unreadable(_) => true,
        };
        self.kernel.incomplete.is_some()
            || self.kernel.configured.contains_key(&address)
            || azure_vnet
            || routes
    }

    /// The live entries of both lists. All of them where not every namespace could be read.
    pub fn live_entries(&self) -> impl Iterator<Item = &Entry> {
        let all = self.kernel.incomplete.is_some();
        let entries = self
            .lists()
            .into_iter()
            .flat_map(|(_, witness)| witness.entries());
        entries.filter(move |entry| entry.is_live || all)
    }
}

impl EvidenceList {
    /// What it says.
    pub fn entries(&self) -> &[Entry] {
        match self {
            EvidenceList::Read { entries, .. } => entries,
            EvidenceList::Absent | EvidenceList::Unreadable(_) => &[],
        }
    }
}
