//! Frees addresses that no live attachment holds: when a pool runs dry, and after a reboot.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::liveness::{GRACE, Judgement, Verdict};
use super::{Evidence, EvidenceIndex, Held, Ipam, Moment, Pool, Record, Usage};

/// A held record, as it was before the evidence was gathered. Evidence says nothing about later changes, so a record that differs
/// from this is left alone.
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

/// What became of a candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The candidate.
    pub candidate: Candidate,
    /// The judgement on its holder.
    pub judgement: Judgement,
}

impl Candidate {
    /// Copies what identifies a held record.
    pub fn new(space: &str, pool: &str, key: IpAddr, held: &Held) -> Candidate {
        Candidate {
            space: space.to_owned(),
            pool: pool.to_owned(),
            key,
            held: held.clone(),
        }
    }

    /// Where its record is: space, pool and key.
    fn place(&self) -> (&str, &str, IpAddr) {
        (&self.space, &self.pool, self.key)
    }
}

impl Ipam {
    /// The records that are old enough to be judged, in the pools that `wanted` (space, key, pool) selects.
    pub fn candidates(
        &self,
        wanted: impl Fn(&str, &str, &Pool) -> bool,
        now: Moment,
    ) -> Vec<Candidate> {
        let mut found = Vec::new();
        for (space, key, pool) in self.pools().filter(|(s, k, p)| wanted(s, k, p)) {
            let old = pool
                .held()
                .filter(|(_, held)| now.since(held.since) >= GRACE);
            found.extend(old.map(|(record, held)| Candidate::new(space, key, record.key, held)));
        }
        found
    }

    /// Frees the candidates that are dead, and marks those that may be as suspects. Freed addresses cool down first.
    pub fn reclaim(
        &mut self,
        candidates: Vec<Candidate>,
        evidence: &Evidence,
        now: Moment,
    ) -> Vec<Judged> {
        self.free_dead(candidates, evidence, now, |index, address, held| {
            let judgement = index.judge(address, held, now);
            match judgement.verdict {
                Verdict::Alive => held.suspect = None,
                Verdict::Suspect => held.suspect = held.suspect.or(Some(now)),
                Verdict::Undecided | Verdict::Dead => {}
            }
            judgement
        })
    }

    /// Judges the candidates that did not change, and frees the dead ones.
    pub(super) fn free_dead(
        &mut self,
        candidates: Vec<Candidate>,
        evidence: &Evidence,
        now: Moment,
        judge: impl Fn(&EvidenceIndex<'_>, IpAddr, &mut Held) -> Judgement,
    ) -> Vec<Judged> {
        let index = EvidenceIndex::new(evidence, self);
        let judged = candidates.into_iter().filter_map(|candidate| {
            // Nothing about the holder may have changed.
            let (address, held) = self
                .holder_of(&candidate)
                .filter(|(_, held)| held.since == candidate.held.since)?;
            let judgement = judge(&index, address, held);
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

    /// Clears the mark of every suspect for which the snapshot has evidence, also of those that are no candidates. Marks that were made
    /// after the snapshot `began` stay. Returns whether it cleared any.
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

    /// Frees the record without looking at evidence, if the same ADD still holds it. Returns whether it did. The start of the lease is not
    /// compared: it is unknown for records of the original and of another boot.
    pub fn free_by_hand(&mut self, candidate: &Candidate, now: Moment) -> bool {
        let is_same = self.holder_of(candidate).is_some();
        if is_same {
            let is_its = |(space, pool): (&str, &str), record: &Record, _: &Held| {
                candidate.place() == (space, pool, record.key)
            };
            self.release_where(is_its, now);
        }
        is_same
    }

    /// The address of the candidate's record and its holder, if that is still of the same ADD.
    fn holder_of(&mut self, candidate: &Candidate) -> Option<(IpAddr, &mut Held)> {
        let record = self.record_at(candidate.place())?;
        let address = record.address();
        match &mut record.usage {
            Usage::Held(held) if held.owner.is_of_same_add(&candidate.held.owner) => {
                Some((address, held))
            }
            _ => None,
        }
    }

    /// Frees every address that the kernel does not show, as no holder survives a reboot, and forgets all moments. After an incomplete
    /// look all records are kept as if first seen now. Returns the addresses that were freed.
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
                && index.other_address(address, &held.owner).is_none()
        };
        let freed = self.free_where(is_gone, None);
        for (_, usage) in self.usages_mut() {
            match usage {
                Usage::Free(free) => (free.released, free.released_in) = (None, None),
                Usage::Held(held) => (held.since, held.suspect) = (now, None),
            }
        }
        self.quarantine = None;
        self.tombstones.clear();
        self.dropped.clear();
        self.changes.are_beyond_list = true;
        freed.into_iter().map(|freed| freed.address).collect()
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

    /// Three addresses; `c1` and `c2` hold two of them since two hours and since twenty minutes.
    fn state() -> Ipam {
        let mut ipam = with_pools(&[("10.1.0.0/16", 0, &["10.1.0.5", "10.1.0.6", "10.1.0.7"])]);
        hold(&mut ipam, "10.1.0.5", attached("c1", 1), Moment(8 * HOUR));
        let since = Moment(NOW.0 - 1200 * SECOND);
        hold(&mut ipam, "10.1.0.6", attached("c2", 2), since);
        ipam.generation = 9;
        ipam
    }

    fn candidates(ipam: &Ipam, now: Moment) -> Vec<Candidate> {
        ipam.candidates(|_, _, _| true, now)
    }

    /// What a look that shows nothing comes to.
    fn reclaim(ipam: &mut Ipam, now: Moment) -> Vec<Verdict> {
        let judged = ipam.reclaim(candidates(ipam, now), &Evidence::default(), now);
        judged.iter().map(|j| j.judgement.verdict).collect()
    }

    #[test]
    fn a_mark_goes_when_a_look_sees_its_holder_but_not_one_that_came_meanwhile() {
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
    fn the_old_go_at_once_and_the_younger_when_found_so_again() {
        use Verdict::{Dead, Suspect};
        let mut ipam = state();
        let recently = Moment(NOW.0 - 10 * SECOND);
        hold(&mut ipam, "10.1.0.7", attached("c3", 3), recently);
        // The youngest is not even judged.
        assert_eq!(reclaim(&mut ipam, NOW), [Dead, Suspect]);
        assert_eq!(holders(&ipam), "10.1.0.6=c2 10.1.0.7=c3");
        let released = record(&mut ipam, "10.1.0.5").free().unwrap().released;
        assert_eq!(released, Some(NOW), "it is in cooldown first");
        let mut seen_between = ipam.clone();
        let [later, latest] = [61, 122].map(|after| Moment(NOW.0 + after * SECOND));
        assert_eq!(reclaim(&mut ipam, later), [Dead]);
        assert_eq!(holders(&ipam), "10.1.0.7=c3");
        // Evidence clears the suspicion.
        let judged = candidates(&seen_between, later);
        seen_between.reclaim(judged, &shows(&["10.1.0.6"]), later);
        assert_eq!(reclaim(&mut seen_between, latest)[0], Suspect);
    }

    #[test]
    fn what_changed_since_the_look_began_is_left_alone() {
        let long_ago = Moment(8 * HOUR);
        for (name, change) in [
            ("released", None),
            ("renewed", Some((attached("c1", 3), NOW))),
            ("another's", Some((attached("c9", 1), long_ago))),
            ("given again", Some((attached("c1", 9), long_ago))),
        ] {
            let mut ipam = state();
            let candidates = candidates(&ipam, NOW);
            match change {
                Some((owner, since)) => hold(&mut ipam, "10.1.0.5", owner, since),
                None => record(&mut ipam, "10.1.0.5").usage = Usage::Free(Free::default()),
            }
            let before = record(&mut ipam, "10.1.0.5").clone();
            // By hand, nor by itself.
            assert!(!ipam.free_by_hand(&candidates[0], NOW), "{name}");
            ipam.reclaim(candidates, &Evidence::default(), NOW);
            assert_eq!(*record(&mut ipam, "10.1.0.5"), before, "{name}");
        }
        let mut ipam = state();
        let candidates = candidates(&ipam, NOW);
        assert!(ipam.free_by_hand(&candidates[0], NOW));
        let released = record(&mut ipam, "10.1.0.5").free().unwrap().released;
        assert_eq!(released, Some(NOW), "it is in cooldown");
    }

    #[test]
    fn a_new_boot_frees_what_the_kernel_does_not_show_and_forgets_all_moments() {
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
