//! Finds the user and the owner of an address in the evidence. A wrong owner's DEL would free an address that another pod has, and
//! an address without an owner may never come back.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::evidence::{Entry, Evidence, Existence, Place};
use super::{Claim, Held, Owner};

/// Who uses an address.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AddressUser {
    /// Nobody.
    None,
    /// The host itself.
    Host,
    /// A pod, or whoever else has a network namespace of its own.
    Pod,
}

/// Evidence by address, so that thousands of records are not compared with thousands of entries.
pub(super) struct EvidenceIndex<'a> {
    evidence: &'a Evidence,
    entries: BTreeMap<IpAddr, Vec<&'a Entry>>,
}

impl<'a> EvidenceIndex<'a> {
    /// Sorts the entries of both lists by address.
    pub fn new(evidence: &'a Evidence) -> EvidenceIndex<'a> {
        let mut entries: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (_, witness) in evidence.lists() {
            for entry in witness.entries() {
                for address in &entry.addresses {
                    entries.entry(*address).or_default().push(entry);
                }
            }
        }
        EvidenceIndex { evidence, entries }
    }

    /// Every address that the kernel or an entry that stands names.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        let configured = self.evidence.kernel.configured.keys().copied();
        let standing = self.evidence.live_entries();
        configured
            .chain(standing.flat_map(|entry| entry.addresses.iter().copied()))
            .collect()
    }

    /// The entries that name an address, whether they stand or not.
    fn naming(&self, address: IpAddr) -> &[&'a Entry] {
        self.entries.get(&address).map_or(&[], Vec::as_slice)
    }

    /// Whether the holder is still the owner: its very namespace exists, or the lists name it for the address.
    pub fn confirms(&self, address: IpAddr, held: &Held) -> bool {
        let lives = held
            .owner
            .netns()
            .is_some_and(|netns| self.evidence.kernel.existence(netns) == Existence::Certain);
        // What is only not contradicted by the kernel is not confirmed by it.
        let may_be_told =
            |entry: &&Entry| entry.is_live || self.evidence.kernel.incomplete.is_some();
        let is_listed = || {
            let entries = self.owner_entries(address);
            entries.iter().all(may_be_told)
                && container_of(&entries).is_some_and(|id| held.owner.is_container(id))
        };
        lives || is_listed()
    }

    /// The owner of an address, as far as the entries name one and agree.
    pub fn owner(&self, address: IpAddr, generation: u64) -> Owner {
        let entries = self.owner_entries(address);
        let Some(container_id) = container_of(&entries) else {
            return Owner::Unknown;
        };
        match self.claim(&entries, generation) {
            Some(claim) => Owner::Attachment(Box::new(claim)),
            None => Owner::Container(container_id.into()),
        }
    }

    /// The claim that entries of one container tell, if any has the whole identity and the others agree.
    fn claim(&self, entries: &[&Entry], generation: u64) -> Option<Claim> {
        let claims = entries.iter().filter_map(|entry| entry.claim(generation));
        let mut claim = claims.max_by_key(|claim| claim.netns.is_some())?;
        if let Some(netns) = &mut claim.netns
            && let Some(id) = netns.id
        {
            // The path was followed in this very look.
            let cookie = self.evidence.kernel.cookies.get(&id).copied();
            netns.cookie = cookie.or(netns.cookie);
        }
        let agree = entries.iter().all(|entry| entry.agrees_with(&claim));
        agree.then_some(claim)
    }

    /// Who uses an address, as far as the kernel and the lists tell.
    pub fn user_of(&self, address: IpAddr) -> AddressUser {
        // With an incomplete look at the kernel, all of them say something.
        let all = self.evidence.kernel.incomplete.is_some();
        let is_listed = self
            .naming(address)
            .iter()
            .any(|entry| entry.is_live || all);
        match (is_listed, self.evidence.kernel.configured.get(&address)) {
            (false, None | Some(Place::OfUser(_))) => AddressUser::None,
            (false, Some(Place::Host)) => AddressUser::Host,
            (true, _) | (false, Some(Place::Namespace(_))) => AddressUser::Pod,
        }
    }

    /// The container that has the address, when all entries by which that is known name the same one.
    pub fn container_of(&self, address: IpAddr) -> Option<&'a str> {
        container_of(&self.owner_entries(address))
    }

    /// The entries by which the owner of an address is known: those that stand, where the kernel was looked at in full; otherwise, or
    /// where none does, those that may stand.
    fn owner_entries(&self, address: IpAddr) -> Vec<&'a Entry> {
        let is_complete = self.evidence.kernel.incomplete.is_none();
        let entries = self.naming(address).iter().copied();
        let entries = entries.filter(|entry| !entry.container_id.is_empty());
        let those = |fits: fn(&Entry) -> bool| -> Vec<&'a Entry> {
            entries.clone().filter(|entry| fits(entry)).collect()
        };
        let standing = those(|entry| entry.is_live);
        if is_complete && !standing.is_empty() {
            return standing;
        }
        those(match is_complete {
            // A namespace that is not there was not missed.
            true => |entry| entry.netns.is_none() && entry.may_be_live(),
            false => Entry::may_be_live,
        })
    }
}

/// The container that all of them name, if there are any.
fn container_of<'a>(entries: &[&'a Entry]) -> Option<&'a str> {
    let (first, others) = entries.split_first()?;
    let is_same = |other: &&Entry| other.container_id == first.container_id;
    others
        .iter()
        .all(is_same)
        .then_some(first.container_id.as_str())
}

impl Entry {
    /// Whether it stands, leads to a network namespace that the look may have missed, or names none and was written in this boot.
    pub(super) fn may_be_live(&self) -> bool {
        self.is_live
            || match &self.netns {
                Some(netns) => netns.id.is_some(),
                None => self.of_this_boot,
            }
    }

    /// Whether it tells of no other attachment of the container.
    fn agrees_with(&self, claim: &Claim) -> bool {
        let agrees =
            |told: &Option<String>, claimed: &str| told.as_deref().is_none_or(|t| t == claimed);
        agrees(&self.network, &claim.network) && agrees(&self.if_name, &claim.if_name)
    }

    /// The claim that the entry tells of, if it tells the whole identity.
    fn claim(&self, generation: u64) -> Option<Claim> {
        Some(Claim {
            container_id: self.container_id.as_str().into(),
            network: self.network.as_deref()?.into(),
            if_name: self.if_name.as_deref()?.into(),
            pod: self.pod.as_deref().map(Into::into),
            netns: self.netns.clone(),
            generation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::{EvidenceList, NetNs};

    fn address() -> IpAddr {
        "10.1.0.5".parse().unwrap()
    }

    /// What an entry tells of its namespace.
    #[derive(Clone, Copy)]
    enum Netns {
        Exists,
        MayExist,
        Gone,
        Untold { of_this_boot: bool },
    }

    fn entry((container_id, netns): &(&str, Netns)) -> Entry {
        let id = match netns {
            Netns::Exists | Netns::MayExist => Some((4, 77)),
            Netns::Gone | Netns::Untold { .. } => None,
        };
        let path = !matches!(netns, Netns::Untold { .. });
        Entry {
            container_id: (*container_id).into(),
            network: Some("azure".into()),
            if_name: Some("eth0".into()),
            netns: path.then(|| NetNs {
                path: "/run/netns/x".into(),
                id,
                cookie: None,
            }),
            addresses: vec![address()],
            is_live: matches!(netns, Netns::Exists),
            of_this_boot: matches!(netns, Netns::Untold { of_this_boot: true }),
            ..Entry::default()
        }
    }

    fn evidence(is_complete: bool, entries: &[(&str, Netns)]) -> Evidence {
        let mut evidence = Evidence {
            cache: EvidenceList::Read {
                entries: entries.iter().map(entry).collect(),
                doubtful: vec![],
            },
            ..Evidence::default()
        };
        evidence.kernel.incomplete = (!is_complete).then(|| "hidden".to_owned());
        let place = Place::Namespace("/run/netns/x".into());
        evidence.kernel.configured.insert(address(), place);
        evidence
    }

    const UNTOLD: Netns = Netns::Untold { of_this_boot: true };
    const OLD: Netns = Netns::Untold {
        of_this_boot: false,
    };

    /// The owner in a complete look and in an incomplete one.
    #[track_caller]
    fn assert_owners(entries: &[(&str, Netns)], complete: &str, incomplete: &str) {
        let owner = |is_complete| {
            let evidence = evidence(is_complete, entries);
            EvidenceIndex::new(&evidence)
                .container_of(address())
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(
            (owner(true).as_str(), owner(false).as_str()),
            (complete, incomplete)
        );
    }

    #[test]
    fn the_owner_is_the_one_container_that_entries_name_which_may_stand() {
        let (one, two) = ("c1", "c2");
        assert_owners(&[(one, Netns::Exists)], one, one);
        assert_owners(&[(one, Netns::MayExist)], "", one);
        assert_owners(&[(one, Netns::Gone)], "", "");
        assert_owners(&[(one, UNTOLD)], one, one);
        assert_owners(&[(one, OLD)], "", "");
        assert_owners(&[(one, UNTOLD), (one, Netns::Exists)], one, one);
        assert_owners(&[(one, UNTOLD), (one, Netns::MayExist)], one, one);
        assert_owners(&[(one, Netns::Gone), (two, Netns::Exists)], two, two);
        assert_owners(&[(one, UNTOLD), (two, UNTOLD)], "", "");
        assert_owners(&[(one, Netns::Exists), (two, Netns::Exists)], "", "");
        // What was found to stand is believed before what only may.
        assert_owners(&[(one, UNTOLD), (two, Netns::Exists)], two, "");
        assert_owners(&[("", UNTOLD), (two, Netns::Exists)], two, two);
    }

    #[test]
    fn entries_that_tell_different_networks_make_no_claim() {
        let mut evidence = evidence(true, &[("c1", Netns::Exists), ("c1", Netns::Exists)]);
        let owner = EvidenceIndex::new(&evidence).owner(address(), 7);
        let claim = owner.claim().unwrap();
        assert_eq!((&*claim.network, claim.generation), ("azure", 7));
        if let EvidenceList::Read { entries, .. } = &mut evidence.cache {
            entries.last_mut().unwrap().network = Some("other".into());
        }
        let container = Owner::from_container_id("c1");
        assert_eq!(EvidenceIndex::new(&evidence).owner(address(), 7), container);
    }

    #[test]
    fn a_holder_is_not_confirmed_by_an_entry_without_namespace_unless_the_look_is_incomplete() {
        let held = Held {
            owner: Owner::from_container_id("c1"),
            ..Held::default()
        };
        for (is_complete, netns, expected) in [
            (true, Netns::Exists, true),
            (true, UNTOLD, false),
            (false, UNTOLD, true),
            (false, OLD, false),
        ] {
            let evidence = evidence(is_complete, &[("c1", netns)]);
            assert_eq!(
                EvidenceIndex::new(&evidence).confirms(address(), &held),
                expected
            );
        }
        let of_another = evidence(true, &[("c2", Netns::Exists)]);
        assert!(!EvidenceIndex::new(&of_another).confirms(address(), &held));
        let of_nobody = evidence(true, &[]);
        assert!(!EvidenceIndex::new(&of_nobody).confirms(address(), &Held::default()));
    }
}
