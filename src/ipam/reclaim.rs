//! Releases addresses that no live attachment holds: when a pool is exhausted, after a reboot, and at a GC (SPEC.md "GC: Clean up any stale
//! resources"). For a GC the runtime names the valid attachments.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::liveness::{GRACE, Judgement, Verdict};
use super::predecessors::NewestAdds;
use super::{Evidence, EvidenceIndex, Held, Holder, Ipam, Moment, Pool, Record, Usage, Wanted};

/// Younger records may belong to an ADD of another runtime that has not finished.
const GC_GRACE: Duration = Duration::from_secs(60);

/// What a GC finds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stale {
    /// The records of attachments that are not valid.
    pub candidates: Vec<Candidate>,
    /// The number of further such records that are too young.
    pub young: usize,
    /// The number of records without a network or a holder. They may belong to any network.
    pub unknown: usize,
}

/// A held record, as it was before the evidence was collected. Evidence says nothing about later changes, so a record that has changed
/// since is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The space.
    pub space: String,
    /// The key of the pool.
    pub pool: String,
    /// The key of the record.
    pub key: IpAddr,
    /// The holder.
    pub held: Held,
}

/// A candidate with the judgement on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The candidate.
    pub candidate: Candidate,
    /// The judgement on its holder.
    pub judgement: Judgement,
}

impl Candidate {
    /// Copies a held record with its place.
    pub fn new(space: &str, pool: &str, key: IpAddr, held: &Held) -> Candidate {
        Candidate {
            space: space.to_owned(),
            pool: pool.to_owned(),
            key,
            held: held.clone(),
        }
    }

    /// Returns the place of its record: space, pool and key.
    fn place(&self) -> (&str, &str, IpAddr) {
        (&self.space, &self.pool, self.key)
    }
}

impl Ipam {
    /// Returns the records to judge: those that are old enough, and those of replaced sandboxes. `select` picks among them by space, pool
    /// and key. `adding` is the ADD that is being decided, if there is one.
    pub fn candidates(
        &self,
        select: impl Fn(&str, &Pool, IpAddr) -> bool,
        adding: Option<&Wanted>,
        now: Moment,
    ) -> Vec<Candidate> {
        let newest_adds = NewestAdds::new(self).with(adding);
        let mut found = Vec::new();
        for (space, key, pool) in self.pools() {
            for (record, held) in pool.held() {
                let is_old = now.since(held.since) >= GRACE;
                let may_be_dead = is_old || newest_adds.have_replaced(&held.holder);
                if may_be_dead && select(space, pool, record.key) {
                    found.push(Candidate::new(space, key, record.key, held));
                }
            }
        }
        found
    }

    /// Releases the addresses of dead candidates, and marks those that may be dead as suspects. The cooldown of the released addresses
    /// begins.
    pub fn reclaim(
        &mut self,
        candidates: Vec<Candidate>,
        evidence: &Evidence,
        adding: Option<&Wanted>,
        now: Moment,
    ) -> Vec<Judged> {
        let index = EvidenceIndex::new(evidence, self).with_add(adding);
        self.free_dead(candidates, now, |address, held| {
            let judgement = index.judge(address, held, now);
            match judgement.verdict {
                Verdict::Alive => held.suspect = None,
                Verdict::Suspect => held.suspect = held.suspect.or(Some(now)),
                Verdict::Undecided | Verdict::Dead => {}
            }
            judgement
        })
    }

    /// Judges the candidates that did not change, and releases the addresses of dead ones.
    fn free_dead(
        &mut self,
        candidates: Vec<Candidate>,
        now: Moment,
        judge: impl Fn(IpAddr, &mut Held) -> Judgement,
    ) -> Vec<Judged> {
        let judged = candidates.into_iter().filter_map(|candidate| {
            // A holder that changed since is not judged.
            let (address, held) = self
                .holder_of(&candidate)
                .filter(|(_, held)| held.since == candidate.held.since)?;
            let judgement = judge(address, held);
            Some(Judged {
                candidate,
                judgement,
            })
        });
        let judged: Vec<_> = judged.collect();
        let dead = judged
            .iter()
            .filter(|judged| judged.judgement.verdict == Verdict::Dead)
            .map(|judged| judged.candidate.place());
        let dead: BTreeSet<_> = dead.collect();
        self.release_where(|(s, p), record, _| dead.contains(&(s, p, record.key)), now);
        judged
    }

    /// Clears the mark of every suspect for which the scan has evidence, even if it is not a candidate. Marks from after the scan `began`
    /// stay. Returns whether it cleared any.
    pub fn clear_suspects(&mut self, evidence: &Evidence, began: Moment, now: Moment) -> bool {
        let is_marked = |held: &Held| held.suspect.is_some_and(|at| at <= began);
        if !self.holders().any(is_marked) {
            return false;
        }
        let index = EvidenceIndex::new(evidence, self);
        let mut is_cleared = false;
        for (address, held) in self.holders_mut().filter(|(_, held)| is_marked(held)) {
            if index.judge(address, held, now).verdict == Verdict::Alive {
                held.suspect = None;
                is_cleared = true;
            }
        }
        is_cleared
    }

    /// Releases the address without evidence, if the same ADD still holds it. Returns whether it did.
    ///
    /// Its moment is not compared, because it is unknown for records of the original and of another boot. The address is not withheld,
    /// because the operator decides.
    pub fn free_by_hand(&mut self, candidate: &Candidate, now: Moment) -> bool {
        let is_same = self.holder_of(candidate).is_some();
        if is_same {
            let is_its = |(space, pool): (&str, &str), record: &Record, _: &Held| {
                candidate.place() == (space, pool, record.key)
            };
            self.release_where(is_its, now);
            if let Some(record) = self.record_at(candidate.place())
                && let Some(free) = record.free_mut()
            {
                free.last_netns = None;
            }
        }
        is_same
    }

    /// Returns the address of the candidate's record and its holder, if the same ADD still holds it.
    fn holder_of(&mut self, candidate: &Candidate) -> Option<(IpAddr, &mut Held)> {
        let record = self.record_at(candidate.place())?;
        let address = record.address();
        match &mut record.usage {
            Usage::Held(held) if held.holder.is_of_same_add(&candidate.held.holder) => {
                Some((address, held))
            }
            _ => None,
        }
    }

    /// Releases every address that the kernel does not show, because no holder survives a reboot. Resets all moments. After an incomplete
    /// scan, all records are kept as first seen now. Returns the released addresses.
    pub fn new_boot(&mut self, evidence: &Evidence, now: Moment) -> Vec<IpAddr> {
        let kernel = &evidence.kernel;
        let kernel_alone = Evidence {
            kernel: kernel.clone(),
            ..Evidence::default()
        };
        let index = EvidenceIndex::new(&kernel_alone, self);
        let is_gone = |_: (&str, &str), record: &Record, held: &Held| {
            let address = record.address();
            kernel.incomplete.is_none()
                && index.place(address).is_none()
                && index.other_address(address, &held.holder).is_none()
        };
        let freed = self.release_where(is_gone, now);
        for (_, usage) in self.usages_mut() {
            match usage {
                Usage::Free(free) => (free.released, free.last_netns) = (None, None),
                Usage::Held(held) => {
                    (held.since, held.suspect) = (now, None);
                    held.unlisted = held.unlisted.map(|_| now);
                }
            }
        }
        self.quarantine = None;
        self.tombstones.clear();
        self.omitted.clear();
        freed.into_iter().map(|freed| freed.address).collect()
    }

    /// Returns the records of `network` with attachments that are not `valid`. `valid` has container IDs and interface names.
    ///
    /// A record of the original names only the container. It counts as one of `network` if the records name this network and no other. A
    /// record of an attachment without a known network counts as one of another network.
    pub fn stale(&self, network: &str, valid: &BTreeSet<(String, String)>, now: Moment) -> Stale {
        let networks: BTreeSet<&str> = self
            .holders()
            .filter(|held| held.holder.has_interface())
            .map(|held| &*held.holder.attachment.network)
            .collect();
        let is_only_network = networks.iter().eq([&network]);
        // If the interface is not known, any valid interface of the container counts.
        let is_valid = |holder: &Holder| {
            let attachment = &holder.attachment;
            let key = (
                attachment.container_id.clone(),
                attachment.if_name.to_string(),
            );
            let mut from = valid.range(key..);
            from.next().is_some_and(|(container_id, if_name)| {
                holder.is_container(container_id)
                    && (!holder.has_interface() || *if_name == attachment.if_name)
            })
        };
        let mut stale = Stale::default();
        for (space, key, pool) in self.pools() {
            for (record, held) in pool.held() {
                let has_interface = held.holder.has_interface();
                let is_of_another_network =
                    has_interface && held.holder.attachment.network != network;
                // The runtime's list names only sandboxes.
                if is_of_another_network || held.holder.is_kept || is_valid(&held.holder) {
                    continue;
                }
                if held.holder.is_unknown() || !has_interface && !is_only_network {
                    stale.unknown += 1;
                    continue;
                }
                if now.since(held.since) < GC_GRACE {
                    stale.young += 1;
                    continue;
                }
                let candidate = Candidate::new(space, key, record.key, held);
                stale.candidates.push(candidate);
            }
        }
        stale
    }

    /// Releases the addresses of the candidates that did not change, unless the kernel shows the address or a list names it for another
    /// container. The cooldown of the released addresses begins.
    pub fn collect(
        &mut self,
        candidates: Vec<Candidate>,
        evidence: &Evidence,
        now: Moment,
    ) -> Vec<Judged> {
        let index = EvidenceIndex::new(evidence, self);
        self.free_dead(candidates, now, |address, held| {
            index.judge_stale(address, held)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::testing::{attached, hold, holders, ip, record, shows, with_pools};
    use crate::ipam::{EvidenceList, Free, Tombstone};

    const SECOND: u64 = 1_000_000_000;
    const HOUR: u64 = 3600 * SECOND;
    const NOW: Moment = Moment(10 * HOUR);

    /// Returns a state with three addresses. `c1` has held one for two hours, `c2` one for twenty minutes.
    fn state() -> Ipam {
        let mut ipam = with_pools(&[("10.1.0.0/16", 0, &["10.1.0.5", "10.1.0.6", "10.1.0.7"])]);
        hold(&mut ipam, "10.1.0.5", attached("c1", 1), Moment(8 * HOUR));
        let since = Moment(NOW.0 - 1200 * SECOND);
        hold(&mut ipam, "10.1.0.6", attached("c2", 2), since);
        ipam.generation = 9;
        ipam
    }

    fn candidates(ipam: &Ipam, now: Moment) -> Vec<Candidate> {
        ipam.candidates(|_, _, _| true, None, now)
    }

    /// Reclaims by a scan that shows nothing. Returns the verdicts.
    fn reclaim(ipam: &mut Ipam, now: Moment) -> Vec<Verdict> {
        let judged = ipam.reclaim(candidates(ipam, now), &Evidence::default(), None, now);
        judged.iter().map(|j| j.judgement.verdict).collect()
    }

    #[test]
    fn scan_clears_mark_of_holder_that_it_shows_but_no_later_mark() {
        let began = Moment(NOW.0 - SECOND);
        let evidence = shows(&["10.1.0.5", "10.1.0.7"]);
        let mut ipam = state();
        hold(&mut ipam, "10.1.0.7", attached("c3", 2), NOW);
        assert!(!ipam.clear_suspects(&evidence, began, NOW), "no marks");
        for (address, suspect) in [("10.1.0.5", began), ("10.1.0.6", began), ("10.1.0.7", NOW)] {
            if let Usage::Held(held) = &mut record(&mut ipam, address).usage {
                held.suspect = Some(suspect);
            }
        }
        assert!(ipam.clear_suspects(&evidence, began, NOW));
        assert!(!ipam.clear_suspects(&evidence, began, NOW), "once");
        let marks: Vec<_> = ipam.holders().map(|held| held.suspect).collect();
        assert_eq!(marks, [None, Some(began), Some(NOW)]);
    }

    #[test]
    fn old_records_are_reclaimed_at_once_and_younger_after_second_scan() {
        use Verdict::{Dead, Suspect};
        let mut ipam = state();
        let recently = Moment(NOW.0 - 10 * SECOND);
        hold(&mut ipam, "10.1.0.7", attached("c3", 3), recently);
        // The youngest is not judged.
        assert_eq!(reclaim(&mut ipam, NOW), [Dead, Suspect]);
        assert_eq!(holders(&ipam), "10.1.0.6=c2 10.1.0.7=c3");
        let released = record(&mut ipam, "10.1.0.5").free().unwrap().released;
        assert_eq!(released, Some(NOW), "it is in cooldown first");
        let mut seen_between = ipam.clone();
        let [later, latest] = [61, 122].map(|after| Moment(NOW.0 + after * SECOND));
        assert_eq!(reclaim(&mut ipam, later), [Dead]);
        assert_eq!(holders(&ipam), "10.1.0.7=c3");
        // Evidence clears the mark.
        let judged = candidates(&seen_between, later);
        seen_between.reclaim(judged, &shows(&["10.1.0.6"]), None, later);
        assert_eq!(reclaim(&mut seen_between, latest)[0], Suspect);
    }

    #[test]
    fn record_that_changed_since_scan_began_is_kept() {
        let long_ago = Moment(8 * HOUR);
        for (name, change) in [
            ("released", None),
            ("renewed", Some((attached("c1", 3), NOW))),
            ("another's", Some((attached("c9", 1), long_ago))),
            ("allocated again", Some((attached("c1", 9), long_ago))),
        ] {
            let mut ipam = state();
            let candidates = candidates(&ipam, NOW);
            match change {
                Some((holder, since)) => hold(&mut ipam, "10.1.0.5", holder, since),
                None => record(&mut ipam, "10.1.0.5").usage = Usage::Free(Free::default()),
            }
            let before = record(&mut ipam, "10.1.0.5").clone();
            // Neither by hand nor automatically.
            assert!(!ipam.free_by_hand(&candidates[0], NOW), "{name}");
            ipam.reclaim(candidates, &Evidence::default(), None, NOW);
            assert_eq!(*record(&mut ipam, "10.1.0.5"), before, "{name}");
        }
        let mut ipam = state();
        let candidates = candidates(&ipam, NOW);
        assert!(ipam.free_by_hand(&candidates[0], NOW));
        let released = record(&mut ipam, "10.1.0.5").free().unwrap().released;
        assert_eq!(released, Some(NOW), "it is in cooldown");
    }

    #[test]
    fn new_boot_releases_addresses_that_kernel_does_not_show_and_resets_moments() {
        let mut ipam = state();
        ipam.quarantine = Some(Moment(1));
        ipam.tombstones = vec![Tombstone {
            attachment: crate::ipam::testing::attachment("x", "eth0"),
            at: Moment(1),
        }];
        record(&mut ipam, "10.1.0.7").usage = Usage::Free(Free {
            released: Some(Moment(9 * HOUR)),
            ..Free::default()
        });
        let evidence = Evidence {
            cache: EvidenceList::Unreadable("of before".into()),
            ..shows(&["10.1.0.6"])
        };
        let start = Moment(5 * SECOND);
        assert_eq!(ipam.new_boot(&evidence, start), [ip("10.1.0.5")]);
        assert_eq!(holders(&ipam), "10.1.0.6=c2");
        let since = record(&mut ipam, "10.1.0.6").held().unwrap().since;
        assert_eq!(since, start);
        let free = record(&mut ipam, "10.1.0.7").free().cloned();
        assert_eq!(free, Some(Free::default()));
        assert_eq!((ipam.quarantine, ipam.tombstones.len()), (None, 0));
    }
}

#[cfg(test)]
mod gc_tests {
    use super::*;
    use crate::ipam::testing::{attached, attached_to, hold, holders, record, shows, with_pools};
    use crate::ipam::{EvidenceList, Held, Reason, Record, Routes, UnreadablePart, Usage, by_text};
    use std::net::IpAddr;

    const SECOND: u64 = 1_000_000_000;
    const NOW: Moment = Moment(1000 * SECOND);

    fn ago(seconds: u64) -> Moment {
        Moment(NOW.0 - seconds * SECOND)
    }

    fn empty() -> Ipam {
        with_pools(&[("10.1.0.0/16", 0, &["10.1.0.5", "10.1.0.6", "10.1.0.7"])])
    }

    /// Returns the stale addresses while these attachments are valid, and the numbers of young records and of those from an unknown
    /// network.
    fn stale(ipam: &Ipam, valid: &[(&str, &str)]) -> (String, usize, usize) {
        let pairs = valid
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        let stale = ipam.stale("azure", &pairs.collect(), NOW);
        let keys = stale.candidates.iter().map(|c| c.key.to_string());
        (
            keys.collect::<Vec<_>>().join(" "),
            stale.young,
            stale.unknown,
        )
    }

    #[test]
    fn stale_are_only_old_enough_records_of_network_without_valid_attachment() {
        let mut ipam = empty();
        hold(&mut ipam, "10.1.0.5", attached("c1", 0), ago(60));
        hold(&mut ipam, "10.1.0.6", attached("c2", 0), ago(59));
        let other = attached_to("other", "c3", 0);
        hold(&mut ipam, "10.1.0.7", other, ago(600));
        for (valid, expected) in [
            (&[][..], "10.1.0.5"),
            (&[("c1", "eth0")], ""),
            (&[("c1", "net1")], "10.1.0.5"),
            (&[("c9", "eth0")], "10.1.0.5"),
        ] {
            let found = stale(&ipam, valid);
            assert_eq!(found, (expected.to_owned(), 1, 0), "{valid:?}");
        }
    }

    #[test]
    fn records_of_unknown_network_are_kept_unless_only_this_one_exists() {
        let mut ipam = empty();
        let old = Holder::from_container_id("old");
        hold(&mut ipam, "10.1.0.5", old, ago(600));
        hold(&mut ipam, "10.1.0.6", Holder::default(), ago(600));
        let none = |unknown| (String::new(), 0, unknown);
        assert_eq!(stale(&ipam, &[]), none(2), "no record names a network");
        hold(&mut ipam, "10.1.0.7", attached("c1", 0), ago(600));
        let c1 = ("c1", "eth0");
        assert_eq!(stale(&ipam, &[c1]), ("10.1.0.5".to_owned(), 0, 1));
        // The container alone counts.
        assert_eq!(stale(&ipam, &[c1, ("old", "anything")]), none(1));
        let other = attached_to("other", "c2", 0);
        hold(&mut ipam, "10.1.0.7", other, ago(600));
        assert_eq!(stale(&ipam, &[]), none(2));
    }

    #[test]
    fn gc_keeps_records_that_are_shown_or_unreadable_or_changed() {
        let mut ipam = empty();
        for (address, id) in [("10.1.0.5", "c1"), ("10.1.0.6", "c2"), ("10.1.0.7", "c3")] {
            hold(&mut ipam, address, attached(id, 0), ago(600));
        }
        let candidates = ipam.stale("azure", &BTreeSet::new(), NOW).candidates;
        hold(&mut ipam, "10.1.0.7", attached("c3", 0), NOW);
        let mut incomplete = Evidence::default();
        incomplete.kernel.incomplete = Some("hidden".into());
        let no_routes = Evidence {
            routes: Routes::Unreadable("x".into()),
            ..Evidence::default()
        };
        let all = "10.1.0.5=c1 10.1.0.6=c2 10.1.0.7=c3";
        let shown = shows(&["10.1.0.5"]);
        for (evidence, reasons, held) in [
            (&incomplete, [1, 1], all),
            (&no_routes, [1, 1], all),
            (&shown, [1, 0], "10.1.0.5=c1 10.1.0.7=c3"),
        ] {
            let collected = ipam.collect(candidates.clone(), evidence, NOW);
            let found: Vec<_> = collected
                .iter()
                .map(|c| c.judgement.reasons.len())
                .collect();
            assert_eq!(found, reasons, "{evidence:?}");
            assert_eq!(holders(&ipam), held, "{evidence:?}");
        }
        let released = record(&mut ipam, "10.1.0.6").free().unwrap().released;
        assert_eq!(released, Some(NOW), "it is in cooldown");
        let route = Evidence {
            routes: Routes::Read(["10.1.0.5".parse().unwrap()].into()),
            ..Evidence::default()
        };
        let collected = ipam.collect(candidates, &route, NOW);
        let [only] = &collected[..] else {
            panic!("a free or changed record was judged: {collected:?}")
        };
        assert_eq!(only.judgement.reasons, [Reason::HostRoute]);
    }

    /// Returns the processor time of this thread.
    fn processor_time() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(time).unwrap()
    }

    /// Returns the processor time of a GC and a reclaim of `n` records each. The records are the original's, and the source no longer lists
    /// them. There are `n` valid attachments and `n` unreadable files.
    fn collection_time(n: u32) -> Duration {
        let address = |i: u32| IpAddr::from((0x0a01_0000 + i).to_be_bytes());
        let mut ipam = empty();
        let pool = ipam.pools_mut().next().unwrap();
        pool.records = (0..2 * n)
            .map(|i| {
                let mut record = Record::new(address(i));
                record.usage = Usage::Held(Held {
                    holder: Holder::from_container_id(&format!("{i:064}")).into(),
                    unlisted: Some(NOW),
                    ..Held::default()
                });
                record
            })
            .collect();
        pool.records.sort_by(|a, b| by_text(&a.key, &b.key));
        let attachment = |i: u32| (format!("{i:064}"), "eth0".to_owned());
        let valid: BTreeSet<_> = (3 * n..4 * n).map(attachment).collect();
        let part = |i: u32| UnreadablePart {
            name: format!("azure-{:064}-eth0", 3 * n + i),
            changed: None,
        };
        let evidence = Evidence {
            cache: EvidenceList::Read {
                entries: vec![],
                doubtful: (0..n).map(part).collect(),
            },
            ..Evidence::default()
        };
        hold(&mut ipam, "10.1.0.5", attached("c1", 0), ago(600));
        let began = processor_time();
        let mut candidates = ipam.stale("azure", &valid, NOW).candidates;
        let others = candidates.split_off(usize::try_from(n).unwrap());
        ipam.collect(candidates, &evidence, NOW);
        ipam.reclaim(others, &evidence, None, Moment(NOW.0 + 7200 * SECOND));
        let took = processor_time() - began;
        assert_eq!(ipam.holders().count(), 0);
        took
    }

    #[test]
    fn work_grows_linearly_with_records_and_valid_attachments() {
        const TIMES: u32 = 16;
        let fastest = |n| (0..3).map(|_| collection_time(n)).min().unwrap();
        let (few, many) = (fastest(500), fastest(500 * TIMES));
        assert!(many < few * TIMES * 4, "{few:?}, then {many:?}");
    }
}
