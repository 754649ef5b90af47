//! What calls see of the node: its state, the evidence, and the source's answer.

use std::collections::BTreeSet;
use std::net::IpAddr;

use azure_vnet_ipam::ipam::{
    Entry, Evidence, EvidenceList, Family, Inventory, Kernel, ListedPool, NetNs, Place, Routes,
};
use azure_vnet_ipam::state::{
    KeyStatus, PendingWork, State, StateFile, is_rebuild_owed, last_granted_generation,
};

use super::events::{Answer, Blindness};
use super::node::MemoryNode;
use super::world::{SUBNET, World};

const SUBNET_V6: &str = "fd00::/120";

impl World {
    /// A view of the files for the plugin's own functions.
    pub(super) fn files(&self) -> MemoryNode {
        MemoryNode::new(self.disk.clone(), self.now(), Evidence::default())
    }

    pub(super) fn last_granted_generation(&self) -> Option<u64> {
        last_granted_generation(&self.files(), self.boot_id().as_deref())
    }

    /// The state as the plugin reads it, if there is one.
    pub(super) fn state(&self) -> Option<State> {
        let text = self.disk.text(StateFile::State).filter(|t| !t.is_empty())?;
        State::parse(text, self.boot_id().as_deref(), self.now()).ok()
    }

    /// Whether the state is ours, of this boot, not an old copy, and needs no reconciliation.
    pub(super) fn is_whole(&self) -> bool {
        self.state().is_some_and(|state| {
            matches!(state.key_status, KeyStatus::Ours)
                && state.pending == PendingWork::Nothing
                && self.loss(&state).is_none()
                && state.ipam().quarantine.is_none()
        })
    }

    pub(super) fn loss(&self, state: &State) -> Option<String> {
        let files = self.files();
        let why = state.lost_reason(is_rebuild_owed(&files), self.last_granted_generation());
        why.map(str::to_owned)
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
                is_live: there.is_some(),
                of_this_boot: false,
            }
        });
        let cache = match self.blind {
            Blindness::Cache => EvidenceList::Unreadable("blind".into()),
            _ => EvidenceList::Read {
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
            azure_vnet: EvidenceList::Absent,
            routes,
        }
    }

    /// The source's answer now, or `None` when it fails.
    pub(super) fn inventory(&self) -> Option<Inventory> {
        let pool = |family: &Family| {
            let subnet = match family {
                Family::V4 => SUBNET,
                Family::V6 => SUBNET_V6,
            };
            let of_family = |a: &&IpAddr| Family::from_address(**a) == *family;
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

    /// The addresses that the state records as held.
    pub(super) fn held(&self) -> BTreeSet<IpAddr> {
        let Some(state) = self.state() else {
            return BTreeSet::new();
        };
        let records = state.ipam().pools().flat_map(|(_, _, pool)| &pool.records);
        records
            .filter(|r| r.held().is_some())
            .map(|r| r.address())
            .collect()
    }
}
