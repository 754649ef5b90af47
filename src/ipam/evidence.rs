//! Evidence of live attachments, as values. `src/evidence` collects it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use super::{Holder, Moment, NetNs};

/// All evidence of one scan of the node.
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
    /// What the state of the other name of this program holds. Only commands read it.
    pub other_name: OtherName,
}

/// What the state of the other name of this program holds. Both names get the same subnets from the source, and each has a state of its
/// own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtherName {
    /// The other name.
    pub name: &'static str,
    /// The holders by address.
    pub holders: BTreeMap<IpAddr, Holder>,
}

/// The addresses that the kernel has configured in the network namespaces of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kernel {
    /// Why some namespaces could not be read; `None` after a complete scan. After an incomplete scan no holder counts as dead.
    pub incomplete: Option<String>,
    /// Every configured address, with its place.
    pub configured: BTreeMap<IpAddr, Place>,
    /// Further places of addresses that more than one namespace has. Loopback and link-local addresses are left out.
    pub more_places: Vec<(IpAddr, Place)>,
    /// Device and inode of every network namespace.
    pub namespaces: BTreeSet<(u64, u64)>,
    /// The kernel's cookies of the namespaces, where it has them.
    pub cookies: BTreeMap<(u64, u64), u64>,
    /// The addresses configured in each namespace. Loopback and link-local addresses are left out.
    pub addresses_by_namespace: BTreeMap<(u64, u64), BTreeSet<IpAddr>>,
    /// The namespaces that links of the host lead to, by the host's number (netnsid) for each.
    pub numbers: BTreeMap<u32, (u64, u64)>,
    /// The host's own namespace, where it is known.
    pub host: Option<(u64, u64)>,
    /// The namespaces that belong to other user namespaces and are not mounted.
    pub user_namespaces: BTreeSet<(u64, u64)>,
    /// Paths of holders that now lead to another namespace, each with device and inode at the time of its ADD.
    pub moved_paths: BTreeSet<(Box<str>, (u64, u64))>,
}

/// Whether a network namespace exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existence {
    /// It exists.
    Certain,
    /// A namespace with its device and inode exists, but it may be another one.
    Possible,
    /// It does not exist.
    None,
}

impl Kernel {
    /// Returns whether the network namespace exists. Device and inode alone prove nothing, because a later namespace may have the same.
    pub fn existence(&self, netns: &NetNs) -> Existence {
        let Some(id) = netns.id.filter(|id| self.namespaces.contains(id)) else {
            return Existence::None;
        };
        match (netns.cookie, self.cookies.get(&id)) {
            (Some(then), Some(now)) if then == *now => Existence::Certain,
            (Some(_), Some(_)) => Existence::None,
            _ if self.incomplete.is_none()
                && self.moved_paths.contains(&(netns.path.clone(), id)) =>
            {
                Existence::None
            }
            _ => Existence::Possible,
        }
    }

    /// Returns the addresses configured in a network namespace, without loopback and link-local ones; `None` if it does not exist or was
    /// not read.
    pub fn addresses_in(&self, netns: &NetNs) -> Option<&BTreeSet<IpAddr>> {
        let id = netns
            .id
            .filter(|_| self.existence(netns) != Existence::None)?;
        self.addresses_by_namespace.get(&id)
    }

    /// Returns whether files on this device are network namespaces, as on the device of the host's own one. If that is unknown, every
    /// device counts.
    pub fn is_of_namespaces(&self, device: u64) -> bool {
        self.host.is_none_or(|(nsfs, _)| device == nsfs)
    }

    /// Returns whether the namespace may belong to an attachment with these addresses. It must have one of them, or no address at all, as
    /// with a virtual machine. A link's name or a process ID may lead to the namespace of a successor, which has another address.
    pub fn may_be_of(&self, id: (u64, u64), addresses: &[IpAddr]) -> bool {
        let fits =
            |own: &BTreeSet<IpAddr>| own.is_empty() || addresses.iter().any(|a| own.contains(a));
        self.is_of_a_pod(id) && self.addresses_by_namespace.get(&id).is_none_or(fits)
    }

    /// Returns whether the namespace exists, and is neither the host's own nor one that any user can create.
    pub fn is_of_a_pod(&self, id: (u64, u64)) -> bool {
        let is_known = self.namespaces.contains(&id);
        is_known && self.host != Some(id) && !self.user_namespaces.contains(&id)
    }

    /// Returns all places where the address is configured.
    pub fn places(&self, address: IpAddr) -> impl Iterator<Item = &Place> {
        let more = self.more_places.iter().filter(move |(a, _)| *a == address);
        let first = self.configured.get(&address).into_iter();
        first.chain(more.map(|(_, place)| place))
    }
}

/// Where an address is configured. If an address is in two places, the first in the order of the variants counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In another network namespace, at this path.
    Namespace(String),
    /// On the host itself.
    Host,
    /// In a network namespace at this path that belongs to another user namespace and is not mounted. Any user can create one. It prevents
    /// a reclaim, but reserves no address.
    OfUser(String),
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

/// The name of azure-vnet's list.
pub(super) const AZURE_VNET: &str = "azure-vnet's state";

/// A list that another program keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum EvidenceList {
    /// There is none on this node.
    #[default]
    Absent,
    /// It was read.
    Read {
        /// Its entries.
        entries: Vec<Entry>,
        /// Its parts that are empty, half-written or not understood. A part may be evidence for the container in its name.
        doubtful: Vec<UnreadablePart>,
    },
    /// It exists but cannot be read, for this reason. It may be evidence for any record.
    Unreadable(String),
}

/// A part of a list that cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub struct UnreadablePart {
    /// Its name.
    pub name: String,
    /// When it was last changed; `None` if that was in an earlier boot.
    pub changed: Option<Moment>,
}

/// The entry of a list for one attachment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// The holder of its addresses, as far as the list names it.
    pub holder: Holder,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The path of its file; empty if the whole list is one file.
    pub file: String,
    /// Whether its namespace still exists, or cannot be examined. Otherwise the entry is no evidence.
    pub is_live: bool,
    /// Whether an entry without a namespace was written since the machine started.
    pub of_this_boot: bool,
    /// Whether an incomplete scan may have missed its pod, although its path leads to no namespace. The folder of the path has no network
    /// namespace at all, as in another mount namespace, or the host has the link of the entry. Such an entry names no holder, because
    /// another pod may have the address by now.
    pub may_be_hidden: bool,
}

impl Entry {
    /// Returns whether it is live, names a network namespace that the scan may have missed, or names none and was written in this boot.
    pub(super) fn may_be_live(&self) -> bool {
        self.is_live
            || match &self.holder.netns {
                Some(netns) => netns.id.is_some(),
                None => self.of_this_boot,
            }
    }

    /// Returns whether it names no network namespace, and was written in this boot.
    pub(super) fn names_no_namespace(&self) -> bool {
        self.holder.netns.is_none() && self.of_this_boot
    }

    /// Returns whether it shows its addresses in use. After an incomplete scan it need not be live.
    pub(super) fn counts(&self, is_complete: bool) -> bool {
        self.is_live || !is_complete && (self.may_be_live() || self.may_be_hidden)
    }
}

/// Routes of the host to single addresses.
#[derive(Clone, Debug, PartialEq)]
pub enum Routes {
    /// Their destinations.
    Read(BTreeSet<IpAddr>),
    /// They cannot be read, for this reason.
    Unreadable(String),
}

impl Routes {
    /// Returns whether a route is known to lead to the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        matches!(self, Routes::Read(routes) if routes.contains(&address))
    }
}

impl Default for Routes {
    fn default() -> Self {
        Routes::Read(BTreeSet::new())
    }
}

impl Evidence {
    /// Returns both lists, with their names for messages.
    pub fn lists(&self) -> [(&'static str, &EvidenceList); 2] {
        [
            ("the CNI cache", &self.cache),
            (AZURE_VNET, &self.azure_vnet),
        ]
    }

    /// Returns whether a complete scan did not find the address in the network namespace of a live entry. A DEL that could not remove its
    /// entry of libcni's cache leaves one like that. It can also belong to a pod that hands its address on, for example to a virtual
    /// machine.
    pub fn is_unconfirmed(&self, entry: &Entry, address: IpAddr) -> bool {
        let netns = entry.holder.netns.as_ref();
        let inside = netns.and_then(|netns| self.kernel.addresses_in(netns));
        self.kernel.incomplete.is_none() && inside.is_some_and(|all| !all.contains(&address))
    }
}

impl EvidenceList {
    /// Returns its entries.
    pub fn entries(&self) -> &[Entry] {
        match self {
            EvidenceList::Read { entries, .. } => entries,
            EvidenceList::Absent | EvidenceList::Unreadable(_) => &[],
        }
    }
}
