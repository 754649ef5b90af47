//! Decides whether the holder of an address is alive.
//!
//! Every plugin that reclaims addresses automatically has released a live one at least once, because it took absence from one list for
//! death. Here evidence can only keep a record. Evidence that exists but cannot be read keeps it too.
//!
//! A record without any evidence is reclaimed in three cases. Two scans at different times found none, the record is old, or its sandbox
//! was replaced.

use std::net::IpAddr;
use std::time::Duration;

use super::evidence::{EvidenceList, Existence, Place, Routes};
use super::{EvidenceIndex, Held, Holder, Moment, format_age};

/// Younger records may belong to an ADD that has not finished.
pub const GRACE: Duration = Duration::from_secs(15 * 60);
/// Two scans without evidence must be at least this far apart.
pub const AGAIN: Duration = Duration::from_secs(60);
/// One scan without evidence is enough for records of this age.
pub const OLD: Duration = Duration::from_secs(60 * 60);

/// The verdict on the holder of a record, with its reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The reasons for it.
    pub reasons: Vec<Reason>,
}

/// The verdict on a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is no evidence for it, and its address may be released.
    Dead,
    /// There is evidence for it.
    Alive,
    /// There is no evidence for it, but its address must not be released yet.
    Suspect,
    /// Evidence could not be read, the record is too young, or its holder can show no evidence.
    Undecided,
}

/// A reason for a verdict.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Reason {
    /// E0: the address is configured.
    #[error("the address is configured {0}")]
    Configured(Place),
    /// E5: the namespace of the ADD exists.
    #[error("the network namespace of its ADD ({0}) exists")]
    NamespaceExists(String),
    /// E1, E2: a list has a live entry.
    #[error("{0} has it, and its network namespace or link exists")]
    Listed(&'static str),
    /// E1, E2: a list has a live entry that names the address for this other container.
    #[error("{0} names it for container {1}, which exists")]
    ListedForAnother(&'static str, String),
    /// E3: the host has a route to the address.
    #[error("the host has a route to it")]
    HostRoute,
    /// E0 or E3, for another address of the same attachment.
    #[error("{0} of the same pod is configured, or the host has a route to it")]
    OtherAddress(IpAddr),
    /// The scan of the kernel was incomplete.
    #[error("not every network namespace could be examined: {0}")]
    Incomplete(String),
    /// A list, or a part of it that may be about the holder, cannot be read.
    #[error("{0} cannot be read: {1}")]
    Unreadable(&'static str, String),
    /// The holder can show no evidence.
    #[error("its holder has no sandbox, so only its DEL or an operator frees the address")]
    Kept,
    /// It is younger than [`GRACE`].
    #[error("its ADD was only {} ago", format_age(*.0))]
    Young(Duration),
    /// No earlier scan found it without evidence, or the first one that did was less than [`AGAIN`] ago.
    #[error("it needs a second check at least {} s later", AGAIN.as_secs())]
    NeedsSecondCheck,
    /// There is no evidence for it.
    #[error("no sign of life; held for {}", format_age(*.0))]
    NoEvidence(Duration),
    /// There is no evidence for it, and the runtime has replaced it.
    #[error("no sign of life, and a newer sandbox of its pod has replaced it")]
    Replaced,
}

impl EvidenceIndex<'_> {
    /// Judges the holder of the record of `address`. The record must be from the state that the index was created for.
    pub fn judge(&self, address: IpAddr, held: &Held, now: Moment) -> Judgement {
        let judgement = |verdict, reasons| Judgement { verdict, reasons };
        let evidence = self.evidence_for(address, held);
        if !evidence.is_empty() {
            return judgement(Verdict::Alive, evidence);
        }
        if held.holder.is_kept {
            return judgement(Verdict::Undecided, vec![Reason::Kept]);
        }
        let is_replaced = self.is_replaced(&held.holder);
        let mut vetoes = self.unreadable();
        vetoes.extend(self.doubtful(&held.holder, now));
        vetoes.extend(self.place(address).cloned().map(Reason::Configured));
        let age = now.since(held.since);
        if age < GRACE && !is_replaced {
            vetoes.push(Reason::Young(age));
        }
        let seen_before = held.suspect.is_some_and(|at| now.since(at) >= AGAIN);
        match vetoes.is_empty() {
            false => judgement(Verdict::Undecided, vetoes),
            true if is_replaced => judgement(Verdict::Dead, vec![Reason::Replaced]),
            true if seen_before || age >= OLD => {
                judgement(Verdict::Dead, vec![Reason::NoEvidence(age)])
            }
            true => judgement(Verdict::Suspect, vec![Reason::NeedsSecondCheck]),
        }
    }

    /// Returns the evidence that the holder is alive.
    fn evidence_for(&self, address: IpAddr, held: &Held) -> Vec<Reason> {
        let place = self.place(address);
        let place = place.filter(|place| !matches!(place, Place::OfUser(_)));
        let mut found: Vec<_> = place.cloned().map(Reason::Configured).into_iter().collect();
        if let Some(netns) = &held.holder.netns
            && self.has_namespace(&held.holder)
        {
            found.push(Reason::NamespaceExists(netns.path.to_string()));
        }
        for (name, _) in self.evidence.lists() {
            let by_identity = self.listed_by_identity(&held.holder);
            let mut entries = self.listed(address).chain(by_identity);
            if entries.any(|(list, _)| *list == name) {
                found.push(Reason::Listed(name));
            }
        }
        found.extend(self.host_evidence(address, held));
        found
    }

    /// Whether the network namespace exists that the ADD of the holder was made for, at whatever path.
    pub fn has_namespace(&self, holder: &Holder) -> bool {
        let netns = holder.netns.as_ref();
        netns.is_some_and(|netns| match self.evidence.kernel.existence(netns) {
            Existence::Certain => true,
            Existence::Possible => !self.is_superseded(holder),
            Existence::None => false,
        })
    }

    /// Judges the holder of a record that the runtime's list does not name, for a GC. The list is complete for the runtime's own
    /// attachments, and says nothing about those of others.
    pub(super) fn judge_stale(&self, address: IpAddr, held: &Held) -> Judgement {
        let place = self.place(address).cloned().map(Reason::Configured);
        let mut vetoes: Vec<_> = place.into_iter().collect();
        vetoes.extend(self.host_evidence(address, held));
        for (list, entry) in self.listed(address) {
            let container = entry.holder.container_id();
            if !held.holder.is_container(container) {
                vetoes.push(Reason::ListedForAnother(list, container.to_owned()));
            }
        }
        vetoes.extend(self.unreadable());
        Judgement {
            verdict: if vetoes.is_empty() {
                Verdict::Dead
            } else {
                Verdict::Undecided
            },
            reasons: vetoes,
        }
    }

    /// Returns the host's route to the address, and another address of the same attachment that is in use.
    fn host_evidence(&self, address: IpAddr, held: &Held) -> impl Iterator<Item = Reason> {
        let has_route = self.evidence.routes.contains(address);
        let route = has_route.then_some(Reason::HostRoute);
        let other = self.other_address(address, &held.holder);
        route.into_iter().chain(other.map(Reason::OtherAddress))
    }

    /// Returns the sources that could not be read. They may be evidence for any record.
    pub(super) fn unreadable(&self) -> Vec<Reason> {
        let evidence = self.evidence;
        let mut vetoes = Vec::new();
        if let Some(why) = &evidence.kernel.incomplete {
            vetoes.push(Reason::Incomplete(why.clone()));
        }
        for (name, list) in evidence.lists() {
            if let EvidenceList::Unreadable(why) = list {
                vetoes.push(Reason::Unreadable(name, why.clone()));
            }
        }
        if let Routes::Unreadable(why) = &evidence.routes {
            vetoes.push(Reason::Unreadable("the routing table", why.clone()));
        }
        vetoes
    }

    /// Returns the parts of lists that cannot be read and may be about the holder.
    ///
    /// For an unknown holder these are the parts that changed in this boot and less than [`OLD`] ago. If libcni cannot write a result, it
    /// fails the ADD, and the runtime removes that pod. So a part that stays unreadable belongs to no running pod. It must not keep all
    /// records of unknown holders forever.
    fn doubtful(&self, holder: &Holder, now: Moment) -> Vec<Reason> {
        let id = holder.container_id();
        let may_be_running =
            |changed: Option<Moment>| changed.is_some_and(|at| now.since(at) < OLD);
        let vetoes = self.evidence.lists().into_iter().filter_map(|(list, _)| {
            let ((name, end), part) = self.unreadable_parts.range((list, id)..).next()?;
            let counts = *name == list
                && end.starts_with(id)
                && (!holder.is_unknown() || may_be_running(part.changed));
            counts.then(|| Reason::Unreadable(list, part.name.clone()))
        });
        vetoes.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::testing::{attached, hold, ip, with_pools};
    use crate::ipam::{Entry, Evidence, Ipam, Kernel, NetNs, UnreadablePart};

    const SECOND: Duration = Duration::from_secs(1);
    const NOW: Moment = Moment(10_000_000_000_000);
    const LONG_AGO: Duration = Duration::from_secs(2 * 60 * 60);
    const ADDRESS: &str = "10.1.0.5";

    fn ago(duration: Duration) -> Moment {
        Moment(NOW.0 - u64::try_from(duration.as_nanos()).unwrap())
    }

    /// Returns a holder of this age that was found without evidence this long ago.
    fn holder(age: Duration, suspect: Option<Duration>) -> Held {
        let netns = NetNs {
            path: "/run/netns/x".into(),
            id: Some((4, 77)),
            cookie: None,
        };
        Held {
            holder: Box::new(Holder {
                netns: Some(netns),
                ..attached("c1", 1)
            }),
            since: ago(age),
            suspect: suspect.map(ago),
            unlisted: None,
        }
    }

    fn part(name: &str, changed: Option<Moment>) -> UnreadablePart {
        UnreadablePart {
            name: name.into(),
            changed,
        }
    }

    fn entry(change: impl FnOnce(&mut Entry)) -> Entry {
        let mut entry = Entry {
            holder: attached("c1", 0),
            is_live: true,
            ..Entry::default()
        };
        change(&mut entry);
        entry
    }

    fn read(entries: Vec<Entry>, doubtful: Vec<UnreadablePart>) -> EvidenceList {
        EvidenceList::Read { entries, doubtful }
    }

    /// Returns a complete scan that shows others, but nothing of the holder.
    fn nothing() -> Evidence {
        let other = ip("10.1.0.99");
        let others = entry(|e| {
            e.holder.attachment.container_id = "o".into();
            e.addresses = vec![other];
        });
        let place = Place::Namespace("/run/netns/o".into());
        Evidence {
            kernel: Kernel {
                configured: [(other, place)].into(),
                namespaces: [(4, 78)].into(),
                ..Kernel::default()
            },
            cache: read(vec![others.clone()], vec![part("azure-o-eth0", Some(NOW))]),
            azure_vnet: read(vec![others], vec![]),
            routes: Routes::Read([other].into()),
            ..Evidence::default()
        }
    }

    fn judge(held: &Held, evidence: &Evidence) -> Judgement {
        EvidenceIndex::new(evidence, &Ipam::default()).judge(ip(ADDRESS), held, NOW)
    }

    fn verdict(held: &Held, evidence: &Evidence) -> Verdict {
        judge(held, evidence).verdict
    }

    /// Judges an old record by a scan that shows nothing of it except this change.
    fn judge_old_record_after(change: impl FnOnce(&mut Evidence)) -> Judgement {
        let mut evidence = nothing();
        change(&mut evidence);
        judge(&holder(LONG_AGO, Some(AGAIN)), &evidence)
    }

    #[test]
    fn each_kind_of_evidence_counts() {
        use Verdict::{Alive, Dead, Undecided};
        type Change = fn(&mut Evidence);
        let rows: [(&str, Change, Verdict); 11] = [
            ("nothing", |_| {}, Dead),
            (
                "an incomplete scan",
                |e| e.kernel.incomplete = Some("hidden".into()),
                Undecided,
            ),
            (
                "a route of the host",
                |e| e.routes = Routes::Read([ip(ADDRESS)].into()),
                Alive,
            ),
            (
                "no routes",
                |e| e.routes = Routes::Unreadable("x".into()),
                Undecided,
            ),
            (
                "the namespace of the ADD",
                |e| e.kernel.namespaces.extend([(4, 77)]),
                Alive,
            ),
            (
                "one of another device",
                |e| e.kernel.namespaces.extend([(5, 77)]),
                Dead,
            ),
            (
                "no cache",
                |e| e.cache = EvidenceList::Unreadable("x".into()),
                Undecided,
            ),
            (
                "no state of azure-vnet",
                |e| e.azure_vnet = EvidenceList::Unreadable("x".into()),
                Undecided,
            ),
            (
                "its part of the cache",
                |e| e.cache = read(vec![], vec![part("azure-c1-eth0", None)]),
                Undecided,
            ),
            (
                "its part of azure-vnet's state",
                |e| e.azure_vnet = read(vec![], vec![part("azure-c1-eth0", None)]),
                Undecided,
            ),
            (
                "lists that are not there",
                |e| (e.cache, e.azure_vnet) = (EvidenceList::Absent, EvidenceList::Absent),
                Dead,
            ),
        ];
        for (name, change, expected) in rows {
            assert_eq!(judge_old_record_after(change).verdict, expected, "{name}");
        }
        // A namespace that any user can create prevents a reclaim, but is no evidence.
        for (place, verdict) in [
            (Place::Host, Alive),
            (Place::Namespace("/proc/7/ns/net".into()), Alive),
            (Place::OfUser("/proc/7/ns/net".into()), Undecided),
        ] {
            let judged = judge_old_record_after(|e| {
                drop(e.kernel.configured.insert(ip(ADDRESS), place.clone()))
            });
            let reasons = vec![Reason::Configured(place)];
            assert_eq!(judged, Judgement { verdict, reasons });
        }
    }

    #[test]
    fn entry_is_evidence_by_address_or_identity_while_namespace_exists() {
        let by_address = entry(|e| {
            e.holder.attachment.container_id = "else".into();
            e.addresses = vec![ip(ADDRESS)];
        });
        let gone = Entry {
            is_live: false,
            ..by_address.clone()
        };
        for (entry, expected) in [
            (entry(|_| {}), Verdict::Alive),
            (by_address, Verdict::Alive),
            (
                entry(|e| e.holder.attachment.network = "".into()),
                Verdict::Alive,
            ),
            (
                entry(|e| e.holder.attachment.if_name = "".into()),
                Verdict::Alive,
            ),
            (entry(|e| e.is_live = false), Verdict::Dead),
            (gone, Verdict::Dead),
            (
                entry(|e| e.holder.attachment.container_id = "c2".into()),
                Verdict::Dead,
            ),
            (
                entry(|e| e.holder.attachment.if_name = "net1".into()),
                Verdict::Dead,
            ),
            (
                entry(|e| e.holder.attachment.network = "other".into()),
                Verdict::Dead,
            ),
        ] {
            let list = read(vec![entry.clone()], vec![]);
            let in_cache = judge_old_record_after(|e| e.cache = list.clone()).verdict;
            assert_eq!(in_cache, expected, "{entry:?}");
            let in_azure_vnet = judge_old_record_after(|e| e.azure_vnet = list).verdict;
            assert_eq!(in_azure_vnet, expected, "{entry:?}");
        }
    }

    #[test]
    fn unreadable_part_may_be_about_unknown_holder_for_an_hour_in_its_boot() {
        let held = Held {
            holder: Box::default(),
            ..holder(LONG_AGO, Some(AGAIN))
        };
        for (changed, expected) in [
            (Some(NOW), Verdict::Undecided),
            (Some(NOW.after(SECOND)), Verdict::Undecided),
            (Some(ago(OLD - SECOND)), Verdict::Undecided),
            (Some(ago(OLD)), Verdict::Dead),
            (None, Verdict::Dead),
        ] {
            let parts = vec![part("azure-o-eth0", None), part("azure-c1-eth0", changed)];
            let mut evidence = nothing();
            evidence.cache = read(vec![], parts);
            assert_eq!(verdict(&held, &evidence), expected, "{changed:?}");
            // A part with the ID of a known holder in its name may always be about it.
            let known = holder(LONG_AGO, Some(AGAIN));
            assert_eq!(verdict(&known, &evidence), Verdict::Undecided);
        }
        let mut evidence = nothing();
        evidence.cache = read(
            vec![entry(|e| e.holder.attachment.container_id = "".into())],
            vec![],
        );
        assert_eq!(verdict(&held, &evidence), Verdict::Dead, "no container");
    }

    #[test]
    fn namespace_with_same_inode_may_be_another() {
        let (none, moved) = (false, true);
        for (name, recorded, found, path, expected) in [
            ("the very one", Some(9), Some(9), moved, Verdict::Alive),
            ("another number", Some(9), Some(8), none, Verdict::Dead),
            // If one of both cookies is unknown, it may be the same, unless its path now leads elsewhere.
            ("none found", Some(9), None, none, Verdict::Alive),
            ("none found, moved", Some(9), None, moved, Verdict::Dead),
            ("none recorded", None, Some(8), none, Verdict::Alive),
            ("none recorded, moved", None, Some(8), moved, Verdict::Dead),
            ("none", None, None, none, Verdict::Alive),
            ("none, moved", None, None, moved, Verdict::Dead),
        ] {
            let mut held = holder(LONG_AGO, Some(AGAIN));
            held.holder.netns.as_mut().unwrap().cookie = recorded;
            let mut evidence = nothing();
            let kernel = &mut evidence.kernel;
            kernel.namespaces.insert((4, 77));
            kernel.cookies.extend(found.map(|c| ((4, 77), c)));
            if path == moved {
                kernel.moved_paths.insert(("/run/netns/x".into(), (4, 77)));
            }
            assert_eq!(verdict(&held, &evidence), expected, "{name}");
        }
    }

    #[test]
    fn namespace_of_later_container_is_another() {
        let held = holder(LONG_AGO, Some(AGAIN));
        let mut evidence = nothing();
        evidence.kernel.namespaces.insert((4, 77));
        for (container, generation, expected) in [
            ("c2", 2, Verdict::Dead),
            ("c2", 1, Verdict::Alive),
            ("c1", 2, Verdict::Alive),
        ] {
            let mut ipam = with_pools(&[("10.1.0.0/16", 0, &[ADDRESS, "10.1.0.6"])]);
            hold(&mut ipam, ADDRESS, Holder::clone(&held.holder), held.since);
            let other = Holder {
                netns: held.holder.netns.clone(),
                ..attached(container, generation)
            };
            hold(&mut ipam, "10.1.0.6", other, held.since);
            let index = EvidenceIndex::new(&evidence, &ipam);
            let found = index.judge(ip(ADDRESS), &held, NOW).verdict;
            assert_eq!(found, expected, "{container} {generation}");
        }
    }

    #[test]
    fn replaced_sandbox_is_dead_at_once_unless_evidence_shows_it() {
        use Verdict::{Alive, Dead, Undecided};
        let of_pod = |held: &Held| Holder {
            pod: Some("ns/p".to_owned()),
            ..Holder::clone(&held.holder)
        };
        let held = Held {
            holder: of_pod(&holder(SECOND, None)).into(),
            ..holder(SECOND, None)
        };
        let mut ipam = with_pools(&[("10.1.0.0/16", 0, &[ADDRESS, "10.1.0.6"])]);
        hold(&mut ipam, ADDRESS, Holder::clone(&held.holder), held.since);
        let newer = Holder {
            attachment: attached("c2", 2).attachment,
            number: 2,
            netns: None,
            ..of_pod(&held)
        };
        hold(&mut ipam, "10.1.0.6", newer, held.since);
        type Change = fn(&mut Evidence);
        let rows: [(Change, Verdict); 3] = [
            (|_| {}, Dead),
            (|e| e.kernel.namespaces.extend([(4, 77)]), Alive),
            (|e| e.kernel.incomplete = Some("hidden".into()), Undecided),
        ];
        for (change, expected) in rows {
            let mut evidence = nothing();
            change(&mut evidence);
            let judged = EvidenceIndex::new(&evidence, &ipam).judge(ip(ADDRESS), &held, NOW);
            assert_eq!(judged.verdict, expected, "{judged:?}");
        }
    }

    #[test]
    fn kept_holder_is_never_dead() {
        let mut held = holder(LONG_AGO, Some(AGAIN));
        held.holder.is_kept = true;
        let judged = judge(&held, &nothing());
        assert_eq!(judged.verdict, Verdict::Undecided);
        assert_eq!(judged.reasons, [Reason::Kept]);
    }

    #[test]
    fn two_scans_a_minute_apart_or_an_hour_of_age_are_needed_after_grace() {
        for (age, suspect, expected) in [
            (GRACE - SECOND, Some(AGAIN), Verdict::Undecided),
            (GRACE, Some(AGAIN), Verdict::Dead),
            (OLD - SECOND, None, Verdict::Suspect),
            (OLD - SECOND, Some(AGAIN - SECOND), Verdict::Suspect),
            (OLD - SECOND, Some(AGAIN), Verdict::Dead),
            (OLD, None, Verdict::Dead),
        ] {
            let found = verdict(&holder(age, suspect), &nothing());
            assert_eq!(found, expected, "{age:?} {suspect:?}");
        }
    }
}
