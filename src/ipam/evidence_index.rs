//! Finds the user and the holder of an address in the evidence. With a wrong holder, a DEL would release an address that another pod has.
//! An address without a holder may never be released.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::evidence::{
    AZURE_VNET, Entry, Evidence, EvidenceList, Existence, Place, UnreadablePart,
};
use super::predecessors::NewestAdds;
use super::{Attachment, Free, Held, Holder, Ipam, Moment, NetNs, Wanted};

/// Who uses an address.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AddressUser {
    /// No user.
    None,
    /// The host itself.
    Host,
    /// A pod, or another user with a network namespace of its own.
    Pod,
}

/// The evidence of one scan, indexed so that thousands of records are not compared with thousands of entries.
pub struct EvidenceIndex<'a> {
    pub(super) evidence: &'a Evidence,
    /// The entries of both lists by address, live or not.
    by_address: BTreeMap<IpAddr, Vec<ListedEntry<'a>>>,
    /// The live entries, by container.
    by_container: BTreeMap<&'a str, Vec<ListedEntry<'a>>>,
    /// The parts of each list that cannot be read, by the texts after each hyphen in their names. A container ID follows one of the
    /// hyphens. The part that changed last is also found by the empty text.
    pub(super) unreadable_parts: BTreeMap<(&'static str, &'a str), &'a UnreadablePart>,
    /// The addresses of each attachment that are configured, or that the host has a route to.
    in_use: BTreeMap<Attachment, Vec<IpAddr>>,
    /// The number and the container of the newest holder with each network namespace, by device and inode.
    newest_holders: BTreeMap<(u64, u64), (u64, String)>,
    /// The newest ADD for each interface of a pod.
    newest_adds: NewestAdds,
}

/// An entry, with the name of its list.
pub(super) type ListedEntry<'a> = (&'static str, &'a Entry);

impl<'a> EvidenceIndex<'a> {
    /// Indexes the entries of both lists and the holders of a state.
    ///
    /// Evidence for one address of an attachment counts for all its addresses. One address of a dual-stack pod may be configured later or
    /// removed earlier than the other.
    pub fn new(evidence: &'a Evidence, ipam: &Ipam) -> EvidenceIndex<'a> {
        let mut index = EvidenceIndex {
            evidence,
            by_address: BTreeMap::new(),
            by_container: BTreeMap::new(),
            unreadable_parts: BTreeMap::new(),
            in_use: BTreeMap::new(),
            newest_holders: BTreeMap::new(),
            newest_adds: NewestAdds::new(ipam),
        };
        for (name, list) in evidence.lists() {
            let EvidenceList::Read { entries, doubtful } = list else {
                continue;
            };
            for part in doubtful {
                let hyphens = part.name.match_indices('-');
                let ends = hyphens.filter_map(|(at, _)| part.name.get(at + 1..));
                let ends = ends.map(|end| ((name, end), part));
                index.unreadable_parts.extend(ends);
            }
            let newest = doubtful.iter().max_by_key(|part| part.changed);
            let newest = newest.map(|part| ((name, ""), part));
            index.unreadable_parts.extend(newest);
            for entry in entries {
                for address in &entry.addresses {
                    let of_address = index.by_address.entry(*address).or_default();
                    of_address.push((name, entry));
                }
                if entry.is_live {
                    let of_container = index
                        .by_container
                        .entry(entry.holder.container_id())
                        .or_default();
                    of_container.push((name, entry));
                }
            }
        }
        for (record, held) in ipam.pools().flat_map(|(_, _, pool)| pool.held()) {
            let (address, holder) = (record.address(), &*held.holder);
            if let Some(netns) = &holder.netns
                && let Some(id) = netns.id
            {
                // The namespace with this cookie cannot be a successor's, so no other holder counts as newer.
                let number = match evidence.kernel.existence(netns) {
                    Existence::Certain => u64::MAX,
                    Existence::Possible | Existence::None => holder.number,
                };
                let newest = index.newest_holders.entry(id).or_default();
                if newest.1.is_empty() || newest.0 < number {
                    *newest = (number, holder.container_id().to_owned());
                }
            }
            if holder.has_interface() && index.kernel_has(address) {
                let of_attachment = index.in_use.entry(holder.attachment.clone());
                of_attachment.or_default().push(address);
            }
        }
        index
    }

    /// Counts the ADD that is being decided as the newest of its pod.
    pub(super) fn with_add(mut self, adding: Option<&Wanted>) -> EvidenceIndex<'a> {
        self.newest_adds = self.newest_adds.with(adding);
        self
    }

    /// Returns whether the runtime has replaced the sandbox of the holder by a newer one of the same pod.
    pub fn is_replaced(&self, holder: &Holder) -> bool {
        self.newest_adds.have_replaced(holder)
    }

    /// Returns where the address is configured.
    pub(super) fn place(&self, address: IpAddr) -> Option<&'a Place> {
        self.evidence.kernel.configured.get(&address)
    }

    /// Returns whether the address is configured, or the host has a route to it.
    fn kernel_has(&self, address: IpAddr) -> bool {
        self.place(address).is_some() || self.evidence.routes.contains(address)
    }

    /// Returns the live entries that have the address.
    pub(super) fn listed(&self, address: IpAddr) -> impl Iterator<Item = &ListedEntry<'a>> {
        self.naming(address)
            .iter()
            .filter(|(_, entry)| entry.is_live)
    }

    /// Returns whether a live entry has the address.
    pub fn is_listed(&self, address: IpAddr) -> bool {
        self.listed(address).next().is_some()
    }

    /// Returns whether the lists show the address in use. An unconfirmed entry of libcni's cache does so only together with a route of the
    /// host.
    pub fn is_listed_reliably(&self, address: IpAddr) -> bool {
        let has_route = self.evidence.routes.contains(address);
        self.listed(address).any(|(list, entry)| {
            has_route || *list == AZURE_VNET || !self.evidence.is_unconfirmed(entry, address)
        })
    }

    /// Returns whether the address is in use by a holder in the state of the other name of this program, or at most by that holder.
    ///
    /// This is for diagnosis only. After a loss of both states, each rebuild holds the addresses of both names. A rebuild that trusted the
    /// other state could therefore free addresses of this name.
    pub fn belongs_to_other_name(&self, address: IpAddr) -> bool {
        let Some(holder) = self.evidence.other_name.holders.get(&address) else {
            return false;
        };
        let kernel = &self.evidence.kernel;
        let is_complete = kernel.incomplete.is_none();
        let netns = holder.netns.as_ref();
        let inside = netns.and_then(|netns| kernel.addresses_in(netns));
        let mut entries = self.naming(address).iter();
        let is_named = entries.any(|(_, entry)| {
            entry.counts(is_complete) && holder.is_container(entry.holder.container_id())
        });
        holder.is_unknown()
            || is_named
            || inside.is_some_and(|all| all.contains(&address))
            || self.place(address).is_none() && !self.is_listed(address)
    }

    /// Returns the live entries that name the holder.
    pub(super) fn listed_by_identity<'b>(
        &'b self,
        holder: &'b Holder,
    ) -> impl Iterator<Item = &'b ListedEntry<'a>> {
        let of_container = self.by_container.get(holder.container_id());
        let of_container = of_container.into_iter().flatten();
        of_container.filter(|(_, entry)| entry.holder.agrees_with(holder))
    }

    /// Returns whether a later container has a network namespace with the device and inode of the holder's. The holder's is gone then,
    /// because containers do not share a namespace.
    pub(super) fn is_superseded(&self, holder: &Holder) -> bool {
        let id = holder.netns.as_ref().and_then(|netns| netns.id);
        let newest = id.and_then(|id| self.newest_holders.get(&id));
        newest.is_some_and(|(number, container)| {
            *number > holder.number && container != holder.container_id()
        })
    }

    /// Returns another address of the attachment that is configured, or that the host has a route to.
    pub(super) fn other_address(&self, address: IpAddr, holder: &Holder) -> Option<IpAddr> {
        let addresses = self.in_use.get(&holder.attachment)?;
        addresses.iter().copied().find(|other| *other != address)
    }

    /// Returns the entries that name an address, live or not.
    fn naming(&self, address: IpAddr) -> &[ListedEntry<'a>] {
        self.by_address.get(&address).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the lists still name the holder for the address. Its namespace proves nothing, because its teardown may have failed
    /// after its DEL. A holder that can show no evidence is confirmed unless a pod has the address.
    pub(super) fn confirms(&self, address: IpAddr, held: &Held) -> bool {
        let kernel = &self.evidence.kernel;
        if held.holder.is_kept && self.user_of(address, true) != AddressUser::Pod {
            return true;
        }
        // After a complete scan, only an entry with an existing namespace confirms a holder.
        let confirms = |entry: &&Entry| entry.is_live || kernel.incomplete.is_some();
        let entries = self.holder_entries(address);
        let names_holder = |entry: &&Entry| entry.holder.agrees_with(&held.holder);
        !entries.is_empty()
            && entries
                .iter()
                .all(|entry| confirms(entry) && names_holder(entry))
    }

    /// Returns whether a pod other than the recorded holder has the address, and no entry names that holder for it.
    ///
    /// For a state of this boot, the holder's network namespace must also be gone, and its ADD must be older than the scan. For a state of
    /// another boot, entries must name the other pod.
    pub(super) fn is_outdated(
        &self,
        address: IpAddr,
        held: &Held,
        began: Moment,
        of_another_boot: bool,
    ) -> bool {
        let kernel = &self.evidence.kernel;
        let entries = self.holder_entries(address);
        let is_gone =
            |netns: &NetNs| netns.id.is_some() && kernel.existence(netns) == Existence::None;
        // A number is the boot clock in microseconds.
        let is_newer = held.holder.number > began.0 / 1000;
        let has_gone = if of_another_boot {
            !entries.is_empty()
        } else {
            !is_newer && held.holder.netns.as_ref().is_some_and(is_gone)
        };
        let names_holder = |entry: &&Entry| held.holder.is_container(entry.holder.container_id());
        has_gone
            && kernel.incomplete.is_none()
            && self.user_of(address, true) == AddressUser::Pod
            && !entries.iter().any(names_holder)
    }

    /// Returns the holder of an address, if all entries that name one agree. Otherwise the holder is unknown.
    pub(super) fn holder(&self, address: IpAddr, number: u64) -> Box<Holder> {
        let Some(container_id) = container_of(&self.holder_entries(address)) else {
            return Box::default();
        };
        self.attachment_at(address, container_id, number)
            .unwrap_or_else(|| Box::new(Holder::from_container_id(container_id)))
    }

    /// Returns the attachment of this container that has an address, if one of its entries names the interface and the others agree. The
    /// entries of other containers do not count, because the teardown of an earlier holder may still be running.
    pub(super) fn attachment_at(
        &self,
        address: IpAddr,
        container_id: &str,
        number: u64,
    ) -> Option<Box<Holder>> {
        let mut entries = self.holder_entries(address);
        entries.retain(|entry| entry.holder.container_id() == container_id);
        let named = entries
            .iter()
            .map(|entry| &entry.holder)
            .filter(|holder| holder.has_interface());
        let found = named.max_by_key(|holder| {
            (
                !holder.attachment.network.is_empty(),
                holder.netns.is_some(),
            )
        })?;
        let agrees = |entry: &&Entry| entry.holder.agrees_with(found);
        entries.iter().all(agrees).then(|| {
            Box::new(Holder {
                number,
                ..found.clone()
            })
        })
    }

    /// Returns who uses an address according to the kernel and the lists. With `all_of_this_boot`, entries of this boot without a namespace
    /// count too. libcni before version 1.2 writes such entries.
    pub(super) fn user_of(&self, address: IpAddr, all_of_this_boot: bool) -> AddressUser {
        let is_complete = self.evidence.kernel.incomplete.is_none();
        let mut entries = self.naming(address).iter();
        let is_listed = entries.any(|(_, entry)| {
            entry.counts(is_complete) || all_of_this_boot && entry.names_no_namespace()
        });
        match (is_listed, self.place(address)) {
            (false, None | Some(Place::OfUser(_))) => AddressUser::None,
            (false, Some(Place::Host)) => AddressUser::Host,
            (true, _) | (false, Some(Place::Namespace(_))) => AddressUser::Pod,
        }
    }

    /// Returns whether only the network namespace of the last holder has a released address, and no entry names the address for another
    /// namespace. The teardown is then still running, or it has failed.
    pub fn is_left_over(
        &self,
        address: IpAddr,
        free: &Free,
        now: Moment,
        is_after_a_loss: bool,
    ) -> bool {
        let Some((at, last)) = free.released.zip(free.last_netns.as_ref()) else {
            return false;
        };
        let kernel = &self.evidence.kernel;
        let is_complete = kernel.incomplete.is_none();
        let is_last = |id, cookie| last.is_still(id, cookie, now.since(at));
        let namespaces = kernel.addresses_by_namespace.iter();
        let mut having = namespaces.filter(|(_, addresses)| addresses.contains(&address));
        let is_configured = having.clone().next().is_some();
        let mut entries = self.naming(address).iter();
        having.all(|(id, _)| is_last(*id, kernel.cookies.get(id).copied()))
            // `addresses_by_namespace` lacks loopback and link-local addresses.
            && (is_configured || kernel.places(address).next().is_none())
            && entries.all(|(_, entry)| {
                let netns = entry.holder.netns.as_ref();
                let counts = entry.counts(is_complete)
                    || is_after_a_loss && entry.names_no_namespace();
                // The path of the namespace may have been removed during the scan.
                let is_last_holders = |n: &NetNs| {
                    n.id.map_or(n.path == last.path, |id| is_last(id, n.cookie))
                };
                !counts || netns.is_some_and(is_last_holders)
            })
    }

    /// Returns whether a DEL of the container may release the address of an unknown holder. No evidence may show it in use, except an entry
    /// of the cache for this container. After an incomplete scan, the lists must name this container and no other.
    pub(super) fn may_release_orphaned(&self, address: IpAddr, container_id: &str) -> bool {
        if self.evidence.kernel.incomplete.is_some() {
            return self.holder(address, 0).is_container(container_id);
        }
        let keeps = |(list, entry): &ListedEntry<'_>| {
            *list == AZURE_VNET || entry.holder.container_id() != container_id
        };
        !self.kernel_has(address)
            && !self.listed(address).any(keeps)
            && self.unreadable().is_empty()
    }

    /// Returns the entries that name the holder of an address. After a complete scan these are the live entries or, if there are none, the
    /// entries without a namespace. After an incomplete scan these are all entries that may be live.
    fn holder_entries(&self, address: IpAddr) -> Vec<&'a Entry> {
        let is_complete = self.evidence.kernel.incomplete.is_none();
        let entries = self.naming(address).iter().map(|(_, entry)| *entry);
        let mut entries: Vec<&Entry> = entries
            .filter(|entry| !entry.holder.is_unknown() && entry.may_be_live())
            .collect();
        if is_complete {
            let is_any_live = entries.iter().any(|entry| entry.is_live);
            entries.retain(|entry| {
                if is_any_live {
                    entry.is_live
                } else {
                    entry.holder.netns.is_none()
                }
            });
        }
        entries
    }
}

/// Returns the container that all entries name; `None` if they differ or there are none.
fn container_of<'a>(entries: &[&'a Entry]) -> Option<&'a str> {
    let first = entries.first()?;
    let container_id = first.holder.container_id();
    let is_same = |other: &&Entry| other.holder.container_id() == container_id;
    entries.iter().all(is_same).then_some(container_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::testing::{attached, forget_interfaces, hold, holders, ip, shows, with_pools};
    use crate::ipam::{EvidenceList, Moment, NetNs, Reason, Routes, Verdict};

    const V4: &str = "10.1.0.5";
    const V6: &str = "fd00::5";

    /// What an entry says about its namespace.
    #[derive(Clone, Copy, Debug)]
    enum Netns {
        Exists,
        MayExist,
        Gone,
        /// The namespace is not named, in an entry of this boot.
        NotNamed,
        /// The namespace is not named, in an entry of an older boot.
        Old,
    }

    fn entry((container_id, netns): &(&str, Netns)) -> Entry {
        let id = matches!(netns, Netns::Exists | Netns::MayExist).then_some((4, 77));
        let path = !matches!(netns, Netns::NotNamed | Netns::Old);
        Entry {
            holder: Holder {
                netns: path.then(|| NetNs {
                    path: "/run/netns/x".into(),
                    id,
                    cookie: None,
                }),
                ..attached(container_id, 0)
            },
            addresses: vec![ip(V4)],
            is_live: matches!(netns, Netns::Exists),
            of_this_boot: matches!(netns, Netns::NotNamed),
            ..Entry::default()
        }
    }

    fn evidence(is_complete: bool, entries: &[(&str, Netns)]) -> Evidence {
        let mut evidence = shows(&[V4]);
        evidence.cache = EvidenceList::Read {
            entries: entries.iter().map(entry).collect(),
            doubtful: vec![],
        };
        evidence.kernel.incomplete = (!is_complete).then(|| "hidden".to_owned());
        evidence
    }

    fn found(evidence: &Evidence) -> Holder {
        *EvidenceIndex::new(evidence, &Ipam::default()).holder(ip(V4), 7)
    }

    /// Asserts the holder after a complete scan and after an incomplete one.
    #[track_caller]
    fn assert_holders(entries: &[(&str, Netns)], complete: &str, incomplete: &str) {
        for (is_complete, expected) in [(true, complete), (false, incomplete)] {
            let holder = found(&evidence(is_complete, entries));
            assert_eq!(holder.container_id(), expected);
        }
    }

    #[test]
    fn holder_is_only_container_that_valid_entries_name() {
        use Netns::{Exists, Gone, MayExist, NotNamed, Old};
        let (one, two) = ("c1", "c2");
        assert_holders(&[(one, Exists)], one, one);
        assert_holders(&[(one, MayExist)], "", one);
        assert_holders(&[(one, Gone)], "", "");
        assert_holders(&[(one, NotNamed)], one, one);
        assert_holders(&[(one, Old)], "", "");
        assert_holders(&[(one, NotNamed), (one, Exists)], one, one);
        assert_holders(&[(one, NotNamed), (one, MayExist)], one, one);
        assert_holders(&[(one, Gone), (two, Exists)], two, two);
        assert_holders(&[(one, NotNamed), (two, NotNamed)], "", "");
        assert_holders(&[(one, Exists), (two, Exists)], "", "");
        // A live entry counts before one that only may be live.
        assert_holders(&[(one, NotNamed), (two, Exists)], two, "");
        assert_holders(&[("", NotNamed), (two, Exists)], two, two);
    }

    #[test]
    fn holder_is_outdated_only_if_node_shows_another_pod() {
        let began = Moment(1_000_000);
        let holder = |id, number| Held {
            holder: Box::new(Holder {
                netns: Some(NetNs {
                    path: "/run/netns/a".into(),
                    id,
                    cookie: None,
                }),
                ..attached("a", number)
            }),
            ..Held::default()
        };
        let gone = || holder(Some((4, 5)), 1000);
        let (shown, hidden) = (evidence(true, &[]), evidence(false, &[]));
        let mut exists = evidence(true, &[]);
        exists.kernel.namespaces.insert((4, 5));
        let b = [("b", Netns::Exists)];
        let (by_b, by_a) = (
            evidence(true, &b),
            evidence(true, &[("a", Netns::NotNamed)]),
        );
        for (name, evidence, held, of_another_boot, expected) in [
            ("its namespace is gone", &shown, gone(), false, true),
            ("and a list names another", &by_b, gone(), false, true),
            ("its namespace exists", &exists, gone(), false, false),
            (
                "an unknown namespace",
                &shown,
                holder(None, 1000),
                false,
                false,
            ),
            ("an incomplete scan", &hidden, gone(), false, false),
            ("no pod has it", &Evidence::default(), gone(), false, false),
            ("a list names it", &by_a, gone(), false, false),
            (
                "an ADD after the scan",
                &shown,
                holder(Some((4, 5)), 1001),
                false,
                false,
            ),
            ("of another boot", &shown, gone(), true, false),
            ("of another boot, and named", &by_b, gone(), true, true),
            (
                "only a container",
                &shown,
                Held {
                    holder: Holder::from_container_id("a").into(),
                    ..Held::default()
                },
                false,
                false,
            ),
        ] {
            let index = EvidenceIndex::new(evidence, &Ipam::default());
            let found = index.is_outdated(ip(V4), &held, began, of_another_boot);
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn entry_shows_user_while_its_pod_may_be_alive() {
        use Netns::{Exists, Gone, MayExist, NotNamed, Old};
        for (netns, may_be_hidden, complete, incomplete) in [
            (Exists, false, true, true),
            (MayExist, false, false, true),
            (Gone, false, false, false),
            (Gone, true, false, true),
            (NotNamed, false, false, true),
            (Old, false, false, false),
        ] {
            for (is_complete, expected) in [(true, complete), (false, incomplete)] {
                let mut evidence = evidence(is_complete, &[("c1", netns)]);
                evidence.kernel.configured.clear();
                if let EvidenceList::Read { entries, .. } = &mut evidence.cache {
                    entries[0].may_be_hidden = may_be_hidden;
                }
                let user = EvidenceIndex::new(&evidence, &Ipam::default()).user_of(ip(V4), false);
                assert_eq!(
                    user == AddressUser::Pod,
                    expected,
                    "{netns:?} {is_complete}"
                );
            }
        }
    }

    #[test]
    fn entries_with_different_networks_show_only_container() {
        let mut evidence = evidence(true, &[("c1", Netns::Exists), ("c1", Netns::Exists)]);
        assert_eq!(found(&evidence).number, 7);
        if let EvidenceList::Read { entries, .. } = &mut evidence.cache {
            let last = entries.last_mut().unwrap();
            last.holder.attachment.network = "other".into();
        }
        assert_eq!(found(&evidence), Holder::from_container_id("c1"));
    }

    #[test]
    fn entry_without_network_agrees_with_every_network() {
        let without_network = |without: &[usize]| {
            let mut evidence = evidence(true, &[("c1", Netns::Exists), ("c1", Netns::Exists)]);
            if let EvidenceList::Read { entries, .. } = &mut evidence.cache {
                for n in without {
                    entries[*n].holder.attachment.network = "".into();
                }
            }
            found(&evidence)
        };
        let networks = [&[0][..], &[1], &[0, 1]].map(|n| without_network(n).attachment.network);
        assert_eq!(networks, ["azure", "azure", ""]);
        let named = evidence(true, &[("c1", Netns::Exists)]);
        assert!(
            named.cache.entries()[0]
                .holder
                .agrees_with(&without_network(&[0, 1]))
        );
    }

    #[test]
    fn entry_without_namespace_confirms_holder_only_after_incomplete_scan() {
        for (is_complete, entries, container_id, expected) in [
            (true, &[("c1", Netns::Exists)][..], "c1", true),
            (true, &[("c1", Netns::NotNamed)], "c1", false),
            (false, &[("c1", Netns::NotNamed)], "c1", true),
            (false, &[("c1", Netns::Old)], "c1", false),
            (true, &[("c2", Netns::Exists)], "c1", false),
            (true, &[], "", false),
        ] {
            let held = Held {
                holder: Holder::from_container_id(container_id).into(),
                ..Held::default()
            };
            let evidence = evidence(is_complete, entries);
            let index = EvidenceIndex::new(&evidence, &Ipam::default()).confirms(ip(V4), &held);
            assert_eq!(index, expected);
        }
    }

    const NOW: Moment = Moment(100_000_000_000_000);

    /// Two pods of both families, long ago.
    fn two_pods() -> Ipam {
        let mut ipam = with_pools(&[
            ("10.1.0.0/16", 0, &[V4, "10.1.0.6"]),
            ("fd00::/120", 0, &[V6, "fd00::6"]),
        ]);
        ipam.generation = 1;
        for (address, id) in [
            (V4, "c1"),
            (V6, "c1"),
            ("10.1.0.6", "c2"),
            ("fd00::6", "c2"),
        ] {
            hold(&mut ipam, address, attached(id, 1), Moment(0));
        }
        ipam
    }

    #[test]
    fn evidence_for_one_address_of_pod_counts_for_other() {
        for (shown, is_route) in [(V4, false), (V6, false), (V6, true)] {
            let evidence = if is_route {
                Evidence {
                    routes: Routes::Read([ip(shown)].into()),
                    ..Evidence::default()
                }
            } else {
                shows(&[shown])
            };
            let mut ipam = two_pods();
            let candidates = ipam.candidates(|_, _, _| true, None, NOW);
            let judged = ipam.reclaim(candidates.clone(), &evidence, None, NOW);
            let judgements = judged.iter().map(|j| &j.judgement);
            let alive = judgements.filter(|j| j.verdict == Verdict::Alive);
            let reasons: Vec<_> = alive.flat_map(|j| &j.reasons).collect();
            assert_eq!(reasons.len(), 2, "{shown} {is_route}");
            assert!(reasons.contains(&&Reason::OtherAddress(ip(shown))));
            assert_eq!(holders(&ipam), "10.1.0.5=c1 fd00::5=c1");
            // A GC that does not name the pod releases neither address.
            let mut ipam = two_pods();
            ipam.collect(candidates, &evidence, NOW);
            assert_eq!(holders(&ipam), "10.1.0.5=c1 fd00::5=c1");
            // After a reboot only the kernel is evidence.
            let mut ipam = two_pods();
            ipam.new_boot(&evidence, NOW);
            assert_eq!(holders(&ipam).is_empty(), is_route);
        }
        // A record of the original has no attachment.
        let mut ipam = two_pods();
        forget_interfaces(&mut ipam);
        let candidates = ipam.candidates(|_, _, _| true, None, NOW);
        ipam.reclaim(candidates, &shows(&[V4]), None, NOW);
        assert_eq!(holders(&ipam), "10.1.0.5=c1");
    }
}
