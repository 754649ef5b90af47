//! The view that calls have of the node: its state, the evidence, and the source's answer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use azure_vnet_ipam::ipam::{
    Attachment, Entry, Evidence, EvidenceList, Family, Holder, Inventory, Ipam, Kernel, ListedPool,
    NetNs, Place, Routes, UnreadablePart,
};
use azure_vnet_ipam::state::{Condition, Document, State, StateFile, view};
use ipnet::IpNet;

use super::events::{Answer, Blindness};
use super::losses::is_lost_on_disk;
use super::node::MemoryNode;
use super::world::{Id, World};

const SUBNET_V6: &str = "fd00::/120";

/// What the node shows beyond the live attachments: addresses that were released but are still configured, and
/// addresses that another program allocated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strangers {
    /// Addresses that the kernel shows in the network namespaces of these containers.
    pub configured: BTreeMap<Id, Vec<IpAddr>>,
    /// The endpoints in azure-vnet's state.
    pub endpoints: BTreeMap<Id, Vec<IpAddr>>,
    /// The entries of libcni's cache that name no network namespace.
    pub without_namespace: BTreeSet<Id>,
    /// The files of libcni's cache that cannot be decoded.
    pub undecodable: Vec<UnreadablePart>,
}

impl World {
    /// A view of the files for the plugin's own functions.
    pub(super) fn files(&self) -> MemoryNode {
        MemoryNode::new(self.disk.clone(), self.now(), Evidence::default())
    }

    /// The state file, if it exists and can be parsed.
    pub(super) fn state(&self) -> Option<Box<Document>> {
        let text = self.disk.text(StateFile::State).filter(|t| !t.is_empty())?;
        Document::parse(text, self.boot_id().as_deref(), self.now()).ok()
    }

    /// The state as the plugin opens it, with backup and record.
    pub(super) fn view(&self) -> State {
        view(&self.files(), self.boot_id().as_deref()).unwrap()
    }

    /// Whether the state is ours, of this boot, not an old copy, and needs no reconciliation.
    pub(super) fn is_whole(&self) -> bool {
        let state = self.view();
        matches!(state.condition, Condition::Ready)
            && state.document.origin.is_ours()
            && !is_lost_on_disk(&state)
            && state.ipam().quarantine.is_none()
    }

    /// The evidence that a scan of the node shows now.
    pub(super) fn evidence(&self) -> Evidence {
        let mut kernel = Kernel::default();
        for (number, inode) in self.namespaces() {
            kernel.namespaces.insert((4, inode));
            if self.rules.has_cookies {
                kernel.cookies.insert((4, inode), u64::from(number));
            }
        }
        let shows_addresses = self.rules.kernel_shows_addresses;
        let shown = self.pods.iter().filter(|_| shows_addresses);
        let shown = shown.filter(|(_, pod)| pod.configured);
        let shown = shown.map(|(id, pod)| (id, &pod.addresses));
        for (id, addresses) in shown.chain(&self.strangers.configured) {
            let there = self.namespaces().find(|(n, _)| *n == id.container);
            let Some((_, inode)) = there else { continue };
            let place = Place::Namespace(id.container_id());
            let places = addresses.iter().map(|a| (*a, place.clone()));
            kernel.configured.extend(places);
            let inside = kernel.addresses_by_namespace.entry((4, inode));
            inside.or_default().extend(addresses);
        }
        if self.blind == Blindness::Namespaces {
            kernel.incomplete = Some("blind".into());
        }
        let entry = |id: &Id, addresses: &[IpAddr], has_namespace: bool| {
            let mut namespaces = self.namespaces().filter(|_| has_namespace);
            let there = namespaces.find(|(number, _)| *number == id.container);
            Entry {
                holder: Holder {
                    attachment: Attachment {
                        network: "azure".into(),
                        container_id: id.container_id(),
                        if_name: id.if_name().into(),
                    },
                    netns: has_namespace.then(|| NetNs {
                        path: id.container_id().into(),
                        id: there.map(|(_, inode)| (4, inode)),
                        cookie: None,
                    }),
                    ..Holder::default()
                },
                addresses: addresses.to_vec(),
                is_live: there.is_some(),
                of_this_boot: !has_namespace,
                ..Entry::default()
            }
        };
        let strangers = &self.strangers;
        let cached = self.cache.iter();
        let cached =
            cached.map(|(id, all)| entry(id, all, !strangers.without_namespace.contains(id)));
        let endpoints = strangers.endpoints.iter();
        let cache = match self.blind {
            Blindness::Cache => EvidenceList::Unreadable("blind".into()),
            _ => EvidenceList::Read {
                entries: cached.collect(),
                doubtful: strangers.undecodable.clone(),
            },
        };
        let azure_vnet = if strangers.endpoints.is_empty() {
            EvidenceList::Absent
        } else {
            EvidenceList::Read {
                entries: endpoints.map(|(id, all)| entry(id, all, true)).collect(),
                doubtful: vec![],
            }
        };
        let routes = match self.blind {
            Blindness::Routes => Routes::Unreadable("blind".into()),
            _ => Routes::default(),
        };
        Evidence {
            kernel,
            cache,
            azure_vnet,
            routes,
            ..Evidence::default()
        }
    }

    /// The source's answer now, or `None` when it fails.
    pub(super) fn inventory(&self) -> Option<Inventory> {
        let pool = |subnet: &str| {
            let subnet: IpNet = subnet.parse().unwrap();
            let is_inside = |a: &&IpAddr| subnet.contains(*a);
            let addresses = match self.answer {
                Answer::Good => self.listed.iter().filter(is_inside).copied().collect(),
                _ => Vec::new(),
            };
            ListedPool::new(subnet, "eth0".into(), 0, addresses)
        };
        let (first, others) = self.subnets.split_first().unwrap();
        let subnet = |family: &Family| match family {
            Family::V4 => first,
            Family::V6 => SUBNET_V6,
        };
        let families = self.rules.families.iter();
        let mut pools: Vec<_> = families.map(|family| pool(subnet(family))).collect();
        let mut others: Vec<_> = others.iter().map(|subnet| pool(subnet)).collect();
        others.retain(|other| !other.addresses.is_empty());
        // The source can also omit a subnet without addresses.
        if !others.is_empty() && pools.iter().all(|p| p.addresses.is_empty()) {
            pools.clear();
        }
        pools.append(&mut others);
        match self.answer {
            Answer::Good | Answer::Empty => Some(Inventory { pools }),
            Answer::Unmatched => Some(Inventory::default()),
            Answer::None => None,
        }
    }

    /// The addresses that the state records as held.
    pub(super) fn held(&self) -> BTreeSet<IpAddr> {
        self.state()
            .map(|document| held_in(document.ipam()))
            .unwrap_or_default()
    }

    /// The addresses that the plugin finds held. If the state is an old copy, they are those of the backup that
    /// replaces it.
    pub(super) fn found_held(&self) -> BTreeSet<IpAddr> {
        held_in(self.view().ipam())
    }
}

fn held_in(ipam: &Ipam) -> BTreeSet<IpAddr> {
    let records = ipam.pools().flat_map(|(_, _, pool)| &pool.records);
    records
        .filter(|r| r.held().is_some())
        .map(|r| r.address())
        .collect()
}
