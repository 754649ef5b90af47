//! Decides whether the owner of an address is alive.
//!
//! Every plugin that frees addresses by itself has freed a live one at least once, because it took absence from one list for
//! death. Here evidence can only keep a record. Evidence that exists but cannot be read keeps it too. A record without any evidence
//! is freed only when it is old, and when two snapshots at different times found none.

use std::net::IpAddr;
use std::time::Duration;

use super::evidence::{EvidenceList, Existence, Place, Routes};
use super::{EvidenceIndex, Held, Moment, Owner};

/// Younger records may belong to an ADD that has not finished.
pub const GRACE: Duration = Duration::from_secs(15 * 60);
/// Two snapshots without evidence must be at least this far apart.
pub const AGAIN: Duration = Duration::from_secs(60);
/// One snapshot without evidence is enough for records of this age.
pub const OLD: Duration = Duration::from_secs(60 * 60);

/// The verdict on the owner of a record, with its reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The outcome.
    pub verdict: Verdict,
    /// Why.
    pub reasons: Vec<Reason>,
}

/// The outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is no evidence for it, and it may be freed.
    Dead,
    /// There is evidence for it.
    Alive,
    /// There is no evidence for it, but it must not be freed yet.
    Suspect,
    /// Evidence could not be read, or the record is too young.
    Undecided,
}

/// Why.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Reason {
    /// E0: the address is configured.
    #[error("the address is configured {0}")]
    Configured(Place),
    /// E5: the namespace that the ADD was made for exists.
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
    /// The look at the kernel was not complete.
    #[error("not every network namespace could be looked into: {0}")]
    Incomplete(String),
    /// A list, or a part of it that may be about the holder, cannot be read.
    #[error("{0} cannot be read: {1}")]
    Unreadable(&'static str, String),
    /// It is younger than [`GRACE`].
    #[error("it is only {} s old", .0.as_secs())]
    Young(Duration),
    /// No snapshot found it without evidence before, or only one a moment ago.
    #[error("it must be found so again after {} s", AGAIN.as_secs())]
    FirstLook,
    /// There is no evidence for it.
    #[error("no trace of it anywhere, and it is {} s old", .0.as_secs())]
    NoEvidence(Duration),
}

impl EvidenceIndex<'_> {
    /// Judges the holder of the record of `address`. It must be one of the state that the index was made for.
    pub fn judge(&self, address: IpAddr, held: &Held, now: Moment) -> Judgement {
        let judgement = |verdict, reasons| Judgement { verdict, reasons };
        let evidence = self.evidence_for(address, held);
        if !evidence.is_empty() {
            return judgement(Verdict::Alive, evidence);
        }
        let mut vetoes = self.unreadable();
        vetoes.extend(self.doubtful(&held.owner, now));
        vetoes.extend(self.place(address).cloned().map(Reason::Configured));
        let age = now.since(held.since);
        if age < GRACE {
            vetoes.push(Reason::Young(age));
        }
        let seen_before = held.suspect.is_some_and(|at| now.since(at) >= AGAIN);
        match vetoes.is_empty() {
            false => judgement(Verdict::Undecided, vetoes),
            true if seen_before || age >= OLD => {
                judgement(Verdict::Dead, vec![Reason::NoEvidence(age)])
            }
            true => judgement(Verdict::Suspect, vec![Reason::FirstLook]),
        }
    }

    /// The evidence that the holder is alive.
    fn evidence_for(&self, address: IpAddr, held: &Held) -> Vec<Reason> {
        let place = self.place(address);
        let place = place.filter(|place| !matches!(place, Place::OfUser(_)));
        let mut found: Vec<_> = place.cloned().map(Reason::Configured).into_iter().collect();
        if let Some(claim) = held.owner.claim()
            && let Some(netns) = &claim.netns
            && match self.evidence.kernel.existence(netns) {
                Existence::Certain => true,
                Existence::Possible => !self.is_superseded(claim),
                Existence::None => false,
            }
        {
            found.push(Reason::NamespaceExists(netns.path.to_string()));
        }
        for (name, _) in self.evidence.lists() {
            let by_identity = self.listed_by_identity(&held.owner);
            let mut entries = self.listed(address).chain(by_identity);
            if entries.any(|(list, _)| *list == name) {
                found.push(Reason::Listed(name));
            }
        }
        found.extend(self.host_evidence(address, held));
        found
    }

    /// Judges the holder of a record that the runtime's list does not name, for a GC. The list is complete for the runtime's own
    /// attachments, and says nothing about what others have.
    pub(super) fn judge_stale(&self, address: IpAddr, held: &Held) -> Judgement {
        let place = self.place(address).cloned().map(Reason::Configured);
        let mut vetoes: Vec<_> = place.into_iter().collect();
        vetoes.extend(self.host_evidence(address, held));
        for (list, entry) in self.listed(address) {
            if !held.owner.is_container(&entry.container_id) {
                let container = entry.container_id.clone();
                vetoes.push(Reason::ListedForAnother(list, container));
            }
        }
        vetoes.extend(self.unreadable());
        Judgement {
            verdict: match vetoes.is_empty() {
                true => Verdict::Dead,
                false => Verdict::Undecided,
            },
            reasons: vetoes,
        }
    }

    /// The host's route to the address, and another address of the same attachment that is in use.
    fn host_evidence(&self, address: IpAddr, held: &Held) -> impl Iterator<Item = Reason> {
        let has_route = self.evidence.routes.contains(address);
        let route = has_route.then_some(Reason::HostRoute);
        let other = self.other_address(address, &held.owner);
        route.into_iter().chain(other.map(Reason::OtherAddress))
    }

    /// What could not be read, so that it may be evidence for any record.
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

    /// The parts of lists that cannot be read and may be about the owner.
    ///
    /// For an unknown owner these are the parts that changed in this boot and less than [`OLD`] ago. libcni fails the ADD whose
    /// result it cannot write, and the runtime removes that pod. So a part that stays unreadable is no running pod's; it must not
    /// keep all records of unknown owners for good.
    fn doubtful(&self, owner: &Owner, now: Moment) -> Vec<Reason> {
        let id = owner.container_id().unwrap_or_default();
        let may_be_running =
            |changed: Option<Moment>| changed.is_some_and(|at| now.since(at) < OLD);
        let vetoes = self.evidence.lists().into_iter().filter_map(|(list, _)| {
            let ((of, end), part) = self.unreadable_parts.range((list, id)..).next()?;
            let counts = *of == list
                && end.starts_with(id)
                && (!owner.is_unknown() || may_be_running(part.changed));
            counts.then(|| Reason::Unreadable(list, part.name.clone()))
        });
        vetoes.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::testing::{pool, with_pools};
    use crate::ipam::{Claim, Entry, Evidence, Ipam, Kernel, NetNs, UnreadablePart, Usage};

    const NOW: Moment = Moment(10_000 * SECOND);
    const SECOND: u64 = 1_000_000_000;

    fn address() -> IpAddr {
        "10.1.0.5".parse().unwrap()
    }

    fn ago(duration: Duration) -> Moment {
        Moment(NOW.0 - u64::try_from(duration.as_nanos()).unwrap())
    }

    /// A holder of this age, found without evidence this long ago.
    fn holder(age: Duration, suspect: Option<Duration>) -> Held {
        Held {
            owner: Owner::Attachment(Box::new(Claim {
                container_id: "c1".into(),
                network: "azure".into(),
                if_name: "eth0".into(),
                pod: None,
                netns: Some(NetNs {
                    path: "/run/netns/x".into(),
                    id: Some((4, 77)),
                    cookie: None,
                }),
                generation: 1,
            })),
            since: ago(age),
            suspect: suspect.map(ago),
            unlisted: false,
        }
    }

    fn part(name: &str, changed: Option<Moment>) -> UnreadablePart {
        UnreadablePart {
            name: name.into(),
            changed,
        }
    }

    fn set_cookie(held: &mut Held, cookie: Option<u64>) {
        if let Owner::Attachment(claim) = &mut held.owner {
            claim.netns.as_mut().unwrap().cookie = cookie;
        }
    }

    /// A complete look that shows others, but nothing of the holder.
    fn nothing() -> Evidence {
        let other = |entry: &str| Entry {
            container_id: entry.into(),
            network: Some("azure".into()),
            if_name: Some("eth0".into()),
            addresses: vec!["10.1.0.99".parse().unwrap()],
            is_live: true,
            ..Entry::default()
        };
        Evidence {
            kernel: Kernel {
                incomplete: None,
                configured: [(
                    "10.1.0.99".parse().unwrap(),
                    Place::Namespace("/run/netns/o".into()),
                )]
                .into(),
                namespaces: [(4, 78)].into(),
                ..Kernel::default()
            },
            cache: EvidenceList::Read {
                entries: vec![other("o")],
                doubtful: vec![part("azure-o-eth0", Some(NOW))],
            },
            azure_vnet: EvidenceList::Read {
                entries: vec![other("o")],
                doubtful: vec![],
            },
            routes: Routes::Read(["10.1.0.99".parse().unwrap()].into()),
        }
    }

    fn judge(address: IpAddr, held: &Held, (ipam, evidence): (&Ipam, &Evidence)) -> Judgement {
        let index = EvidenceIndex::new(evidence, ipam);
        index.judge(address, held, NOW)
    }

    fn verdict(held: &Held, evidence: &Evidence) -> Verdict {
        judge(address(), held, (&Ipam::default(), evidence)).verdict
    }

    const LONG_AGO: Duration = Duration::from_secs(2 * 60 * 60);

    /// Each change to a look that finds nothing must turn the verdict on an old record.
    fn turned(change: impl FnOnce(&mut Evidence)) -> Judgement {
        let held = holder(LONG_AGO, Some(AGAIN));
        assert_eq!(verdict(&held, &nothing()), Verdict::Dead);
        let mut evidence = nothing();
        change(&mut evidence);
        judge(address(), &held, (&Ipam::default(), &evidence))
    }

    fn entry(change: impl FnOnce(&mut Entry)) -> Entry {
        let mut entry = Entry {
            container_id: "c1".into(),
            network: Some("azure".into()),
            if_name: Some("eth0".into()),
            is_live: true,
            ..Entry::default()
        };
        change(&mut entry);
        entry
    }

    fn read(entry: Entry) -> EvidenceList {
        EvidenceList::Read {
            entries: vec![entry],
            doubtful: vec![],
        }
    }

    #[test]
    fn e0_an_address_that_is_configured_anywhere_is_alive() {
        for place in [Place::Host, Place::Namespace("/proc/7/ns/net".into())] {
            let judged = turned(|e| drop(e.kernel.configured.insert(address(), place.clone())));
            assert_eq!(
                judged,
                Judgement {
                    verdict: Verdict::Alive,
                    reasons: vec![Reason::Configured(place)]
                }
            );
        }
    }

    #[test]
    fn e0_a_namespace_that_any_user_can_make_holds_back_but_is_no_evidence() {
        let place = Place::OfUser("/proc/7/ns/net".into());
        let judged = turned(|e| drop(e.kernel.configured.insert(address(), place.clone())));
        assert_eq!(
            judged,
            Judgement {
                verdict: Verdict::Undecided,
                reasons: vec![Reason::Configured(place)]
            }
        );
    }

    #[test]
    fn e0_a_look_that_was_not_complete_frees_nothing() {
        let judged = turned(|e| e.kernel.incomplete = Some("hidden".into()));
        assert_eq!(judged.verdict, Verdict::Undecided);
    }

    #[test]
    fn e1_e2_an_entry_is_evidence_by_address_or_identity_while_the_namespace_exists() {
        let by_address = || {
            entry(|e| {
                e.container_id = "else".into();
                e.addresses = vec![address()];
            })
        };
        for live in [
            entry(|_| {}),
            by_address(),
            entry(|e| e.network = None),
            entry(|e| e.if_name = None),
        ] {
            assert_eq!(
                turned(|e| e.cache = read(live.clone())).verdict,
                Verdict::Alive,
                "{live:?}"
            );
            assert_eq!(
                turned(|e| e.azure_vnet = read(live.clone())).verdict,
                Verdict::Alive,
                "{live:?}"
            );
        }
        for silent in [
            entry(|e| e.is_live = false),
            Entry {
                is_live: false,
                ..by_address()
            },
            entry(|e| e.container_id = "c2".into()),
            entry(|e| e.if_name = Some("net1".into())),
            entry(|e| e.network = Some("other".into())),
        ] {
            assert_eq!(
                turned(|e| e.cache = read(silent.clone())).verdict,
                Verdict::Dead,
                "{silent:?}"
            );
        }
    }

    #[test]
    fn e1_e2_a_list_that_is_there_but_cannot_be_read_vetoes_and_one_that_is_not_there_does_not() {
        for broken in [
            EvidenceList::Unreadable("x".into()),
            EvidenceList::Read {
                entries: vec![],
                doubtful: vec![part("azure-c1-eth0", None)],
            },
        ] {
            assert_eq!(
                turned(|e| e.cache = broken.clone()).verdict,
                Verdict::Undecided,
                "{broken:?}"
            );
            assert_eq!(
                turned(|e| e.azure_vnet = broken.clone()).verdict,
                Verdict::Undecided,
                "{broken:?}"
            );
        }
        let judged = turned(|e| {
            e.cache = EvidenceList::Absent;
            e.azure_vnet = EvidenceList::Absent;
        });
        assert_eq!(judged.verdict, Verdict::Dead);
    }

    #[test]
    fn unreadable_part_may_be_about_unknown_owner_for_an_hour_in_its_boot() {
        let held = Held {
            owner: Owner::Unknown,
            ..holder(LONG_AGO, Some(AGAIN))
        };
        for (changed, expected) in [
            (Some(NOW), Verdict::Undecided),
            (Some(Moment(NOW.0 + SECOND)), Verdict::Undecided),
            (Some(Moment(ago(OLD).0 + SECOND)), Verdict::Undecided),
            (Some(ago(OLD)), Verdict::Dead),
            (None, Verdict::Dead),
        ] {
            let mut evidence = nothing();
            evidence.cache = EvidenceList::Read {
                entries: vec![],
                doubtful: vec![part("azure-o-eth0", None), part("azure-c1-eth0", changed)],
            };
            assert_eq!(verdict(&held, &evidence), expected, "{changed:?}");
            // The owner in its name is known, so that the part may always be about it.
            let known = holder(LONG_AGO, Some(AGAIN));
            assert_eq!(
                verdict(&known, &evidence),
                Verdict::Undecided,
                "{changed:?}"
            );
        }
    }

    #[test]
    fn entry_without_container_is_no_evidence_for_unknown_owner() {
        let held = Held {
            owner: Owner::Unknown,
            ..holder(LONG_AGO, Some(AGAIN))
        };
        let mut evidence = nothing();
        evidence.cache = read(entry(|e| e.container_id = "".into()));
        assert_eq!(verdict(&held, &evidence), Verdict::Dead);
    }

    #[test]
    fn e3_a_host_route_to_the_address_is_evidence_and_routes_must_be_readable() {
        assert_eq!(
            turned(|e| e.routes = Routes::Read([address()].into())).verdict,
            Verdict::Alive
        );
        assert_eq!(
            turned(|e| e.routes = Routes::Unreadable("x".into())).verdict,
            Verdict::Undecided
        );
    }

    #[test]
    fn e5_the_namespace_of_the_add_is_evidence() {
        assert_eq!(
            turned(|e| e.kernel.namespaces.extend([(4, 77)])).verdict,
            Verdict::Alive
        );
        assert_eq!(
            turned(|e| e.kernel.namespaces.extend([(5, 77)])).verdict,
            Verdict::Dead,
            "another device"
        );
    }

    #[test]
    fn e5_a_namespace_of_the_same_inode_may_be_another() {
        let mut held = holder(LONG_AGO, Some(AGAIN));
        let path = held.owner.netns().unwrap().path.clone();
        set_cookie(&mut held, Some(9));
        let with = |held: &Held, cookie: Option<u64>, moved: bool| {
            let mut evidence = nothing();
            evidence.kernel.namespaces.insert((4, 77));
            evidence.kernel.cookies.extend(cookie.map(|c| ((4, 77), c)));
            evidence
                .kernel
                .moved_paths
                .extend(moved.then(|| (path.clone(), (4, 77))));
            verdict(held, &evidence)
        };
        assert_eq!(with(&held, Some(9), true), Verdict::Alive, "the very one");
        assert_eq!(with(&held, Some(8), false), Verdict::Dead, "another number");
        // Where one of both numbers is not known, it may be the same, unless its path leads moved now.
        let mut old = held.clone();
        set_cookie(&mut old, None);
        for (held, cookie) in [(&held, None), (&old, Some(8)), (&old, None)] {
            assert_eq!(with(held, cookie, false), Verdict::Alive);
            assert_eq!(with(held, cookie, true), Verdict::Dead);
        }
    }

    #[test]
    fn e5_a_namespace_that_another_container_came_into_later_is_another() {
        let held = holder(LONG_AGO, Some(AGAIN));
        let mut evidence = nothing();
        evidence.kernel.namespaces.insert((4, 77));
        for (container, generation, expected) in [
            ("c2", 2, Verdict::Dead),
            ("c2", 1, Verdict::Alive),
            ("c1", 2, Verdict::Alive),
        ] {
            let mut other = held.clone();
            if let Owner::Attachment(claim) = &mut other.owner {
                claim.container_id = container.into();
                claim.generation = generation;
            }
            let mut ipam = with_pools(&[("10.1.0.0/16", 0, &["10.1.0.5", "10.1.0.6"])]);
            for (key, held) in [("10.1.0.5", held.clone()), ("10.1.0.6", other)] {
                let record = pool(&mut ipam, "10.1.0.0/16").record_mut(&key.parse().unwrap());
                record.unwrap().usage = Usage::Held(held);
            }
            let judgement = judge(address(), &held, (&ipam, &evidence));
            assert_eq!(judgement.verdict, expected, "{container} {generation}");
        }
    }

    #[test]
    fn a_record_must_be_older_than_the_grace() {
        let second = Duration::from_secs(1);
        assert_eq!(
            verdict(&holder(GRACE - second, Some(AGAIN)), &nothing()),
            Verdict::Undecided
        );
        assert_eq!(
            verdict(&holder(GRACE, Some(AGAIN)), &nothing()),
            Verdict::Dead
        );
    }

    #[test]
    fn two_looks_a_minute_apart_or_an_hour_of_age() {
        let second = Duration::from_secs(1);
        assert_eq!(
            verdict(&holder(OLD - second, None), &nothing()),
            Verdict::Suspect
        );
        assert_eq!(
            verdict(&holder(OLD - second, Some(AGAIN - second)), &nothing()),
            Verdict::Suspect
        );
        assert_eq!(
            verdict(&holder(OLD - second, Some(AGAIN)), &nothing()),
            Verdict::Dead
        );
        assert_eq!(verdict(&holder(OLD, None), &nothing()), Verdict::Dead);
    }
}
