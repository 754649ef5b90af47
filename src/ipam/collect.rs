//! Frees the addresses of attachments that the runtime no longer knows (GC, SPEC.md "GC: Clean up any stale resources").

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Candidate, Evidence, Ipam, Judged, Moment, Owner};

/// Younger records may belong to an ADD that another runtime has under way.
const GRACE: Duration = Duration::from_secs(60);

/// What a GC finds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stale {
    /// The records whose attachments are not valid.
    pub candidates: Vec<Candidate>,
    /// How many more there are that are too young.
    pub young: usize,
    /// How many records have no network or no owner, so that they may belong to any network.
    pub unknown: usize,
}

impl Ipam {
    /// The records of `network` whose attachments, as container ID and interface name, are not among the `valid`.
    ///
    /// A record of the original names only the container. It counts as one of `network` if records name this network and no other.
    pub fn stale(&self, network: &str, valid: &BTreeSet<(String, String)>, now: Moment) -> Stale {
        let claims = self.holders().filter_map(|held| held.owner.claim());
        let networks: BTreeSet<_> = claims.map(|claim| &*claim.network).collect();
        let alone = networks.iter().eq([&network]);
        let is_valid = |owner: &Owner| match owner {
            Owner::Unknown => false,
            Owner::Container(id) => {
                let mut valid = valid.range((id.to_string(), String::new())..);
                valid.next().is_some_and(|(valid, _)| *valid == **id)
            }
            Owner::Attachment(claim) => {
                valid.contains(&(claim.container_id.to_string(), claim.if_name.to_string()))
            }
        };
        let mut stale = Stale::default();
        for (space, key, pool) in self.pools() {
            for (record, held) in pool.held() {
                let claim = held.owner.claim();
                let of_another = claim.is_some_and(|claim| *claim.network != *network);
                if of_another || is_valid(&held.owner) {
                    continue;
                }
                if held.owner.is_unknown() || claim.is_none() && !alone {
                    stale.unknown += 1;
                    continue;
                }
                if now.since(held.since) < GRACE {
                    stale.young += 1;
                    continue;
                }
                let candidate = Candidate::new(space, key, record.key, held);
                stale.candidates.push(candidate);
            }
        }
        stale
    }

    /// Frees the candidates that did not change, unless the kernel shows their addresses or a list names them for another container.
    /// Freed addresses cool down first.
    pub fn collect(
        &mut self,
        candidates: Vec<Candidate>,
        evidence: &Evidence,
        now: Moment,
    ) -> Vec<Judged> {
        self.free_dead(candidates, evidence, now, |index, address, held| {
            index.judge_stale(address, held)
        })
    }
}

#[cfg(test)]
mod tests {
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

    /// What is stale while these attachments are valid: the addresses, and how many are young, or of an unknown network.
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
    fn only_old_enough_records_of_the_network_whose_attachment_is_not_valid_are_stale() {
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
    fn records_of_unknown_network_are_kept_unless_there_is_only_this_one() {
        let mut ipam = empty();
        let old = Owner::from_container_id("old");
        hold(&mut ipam, "10.1.0.5", old, ago(600));
        hold(&mut ipam, "10.1.0.6", Owner::Unknown, ago(600));
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
    fn what_is_shown_or_could_not_be_looked_at_or_changed_since_is_kept() {
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
        for (look, reasons, held) in [
            (&incomplete, [1, 1], all),
            (&no_routes, [1, 1], all),
            (&shown, [1, 0], "10.1.0.5=c1 10.1.0.7=c3"),
        ] {
            let collected = ipam.collect(candidates.clone(), look, NOW);
            let found: Vec<_> = collected
                .iter()
                .map(|c| c.judgement.reasons.len())
                .collect();
            assert_eq!(found, reasons, "{look:?}");
            assert_eq!(holders(&ipam), held, "{look:?}");
        }
        let released = record(&mut ipam, "10.1.0.6").free().unwrap().released;
        assert_eq!(released, Some(NOW), "it is in cooldown");
        let route = Evidence {
            routes: Routes::Read(["10.1.0.5".parse().unwrap()].into()),
            ..Evidence::default()
        };
        let collected = ipam.collect(candidates, &route, NOW);
        let [only] = &collected[..] else {
            panic!("what is free, or changed, is no matter any more: {collected:?}")
        };
        assert_eq!(only.judgement.reasons, [Reason::HostRoute]);
    }

    /// The processor time of this thread.
    fn processor_time() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(time).unwrap()
    }

    /// The processor time of a GC of `n` records of the original that the source no longer lists, and of as many reclaimed ones, with
    /// `n` valid attachments, standing entries and unreadable files.
    fn collection_time(n: u32) -> Duration {
        let address = |i: u32| IpAddr::from((0x0a01_0000 + i).to_be_bytes());
        let mut ipam = empty();
        let pool = ipam.pools_mut().next().unwrap();
        pool.records = (0..2 * n)
            .map(|i| {
                let mut record = Record::new(address(i));
                record.usage = Usage::Held(Held {
                    owner: Owner::from_container_id(&format!("{i:064}")),
                    unlisted: true,
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
        ipam.reclaim(others, &evidence, Moment(NOW.0 + 7200 * SECOND));
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
