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
    use crate::ipam::testing::{attached_to, with_pools};
    use crate::ipam::{
        EvidenceList, Held, Place, Reason, Record, Routes, UnreadablePart, Usage, by_text,
    };
    use std::net::IpAddr;

    const SECOND: u64 = 1_000_000_000;
    const NOW: Moment = Moment(1000 * SECOND);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn empty() -> Ipam {
        with_pools(&[(
            "10.1.0.0/16",
            0,
            &["10.1.0.5", "10.1.0.6", "10.1.0.7", "10.1.0.8"],
        )])
    }

    /// Makes a holder of this age in seconds; without a network one of the original's.
    fn hold(ipam: &mut Ipam, address: &str, id: &str, network: Option<&str>, age: u64) {
        for pool in ipam.pools_mut() {
            pool.record_mut(&ip(address)).unwrap().usage = Usage::Held(Held {
                owner: match network {
                    None => Owner::from_container_id(id),
                    Some(network) => attached_to(network, id, 0),
                },
                since: Moment(NOW.0 - age * SECOND),
                ..Held::default()
            });
        }
    }

    fn valid(pairs: &[(&str, &str)]) -> BTreeSet<(String, String)> {
        let pairs = pairs
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        pairs.collect()
    }

    fn keys(stale: &Stale) -> Vec<String> {
        stale.candidates.iter().map(|c| c.key.to_string()).collect()
    }

    #[test]
    fn only_old_enough_records_of_the_network_whose_attachment_is_not_valid_are_stale() {
        let mut ipam = empty();
        hold(&mut ipam, "10.1.0.5", "c1", Some("azure"), 60);
        hold(&mut ipam, "10.1.0.6", "c2", Some("azure"), 59);
        hold(&mut ipam, "10.1.0.7", "c3", Some("other"), 600);
        let found = ipam.stale("azure", &valid(&[]), NOW);
        assert_eq!(
            (keys(&found), found.young),
            (vec!["10.1.0.5".to_owned()], 1)
        );
        for (pair, stale) in [
            (("c1", "eth0"), 0),
            (("c1", "net1"), 1),
            (("c9", "eth0"), 1),
        ] {
            let found = ipam.stale("azure", &valid(&[pair]), NOW);
            assert_eq!(found.candidates.len(), stale, "{pair:?}");
        }
    }

    #[test]
    fn records_of_unknown_network_are_kept_unless_there_is_only_this_one() {
        let mut ipam = empty();
        hold(&mut ipam, "10.1.0.5", "old", None, 600);
        hold(&mut ipam, "10.1.0.6", "", None, 600);
        let found = ipam.stale("azure", &valid(&[]), NOW);
        assert_eq!(
            (keys(&found), found.unknown),
            (vec![], 2),
            "no record names a network"
        );
        hold(&mut ipam, "10.1.0.7", "c1", Some("azure"), 0);
        let found = ipam.stale("azure", &valid(&[]), NOW);
        assert_eq!(
            (keys(&found), found.unknown),
            (vec!["10.1.0.5".to_owned()], 1)
        );
        let found = ipam.stale("azure", &valid(&[("old", "anything")]), NOW);
        assert_eq!(
            (keys(&found), found.unknown),
            (vec![], 1),
            "the container alone counts"
        );
        hold(&mut ipam, "10.1.0.8", "c2", Some("other"), 0);
        let found = ipam.stale("azure", &valid(&[]), NOW);
        assert_eq!((keys(&found), found.unknown), (vec![], 2));
    }

    #[test]
    fn what_the_kernel_shows_or_what_changed_since_is_kept_and_the_rest_is_freed_to_rest() {
        let mut ipam = empty();
        for (address, id) in [
            ("10.1.0.5", "c1"),
            ("10.1.0.6", "c2"),
            ("10.1.0.7", "c3"),
            ("10.1.0.8", "c4"),
        ] {
            hold(&mut ipam, address, id, Some("azure"), 600);
        }
        let candidates = ipam.stale("azure", &valid(&[]), NOW).candidates;
        hold(&mut ipam, "10.1.0.8", "c4", Some("azure"), 0);
        let mut evidence = Evidence::default();
        let place = Place::Namespace("/run/netns/x".into());
        evidence
            .kernel
            .configured
            .insert(ip("10.1.0.5"), place.clone());
        evidence.routes = Routes::Read([ip("10.1.0.6")].into());
        let collected = ipam.collect(candidates.clone(), &evidence, NOW);
        let vetoes: Vec<_> = collected.into_iter().map(|c| c.judgement.reasons).collect();
        assert_eq!(
            vetoes,
            [
                vec![Reason::Configured(place)],
                vec![Reason::HostRoute],
                vec![]
            ]
        );
        let held: Vec<_> = ipam
            .pools()
            .flat_map(|(_, _, p)| &p.records)
            .filter(|r| r.held().is_some())
            .collect();
        assert_eq!(held.len(), 3);
        let pool = ipam.pools().next().unwrap().2;
        assert_eq!(
            pool.record(&ip("10.1.0.7"))
                .unwrap()
                .free()
                .unwrap()
                .released,
            Some(NOW)
        );
        assert_eq!(
            ipam.collect(candidates, &evidence, NOW).len(),
            2,
            "what is free is no matter any more"
        );
    }

    #[test]
    fn what_could_not_be_looked_at_vetoes() {
        for blind in [
            |e: &mut Evidence| e.kernel.incomplete = Some("hidden".into()),
            |e: &mut Evidence| e.routes = Routes::Unreadable("x".into()),
        ] {
            let mut ipam = empty();
            hold(&mut ipam, "10.1.0.5", "c1", Some("azure"), 600);
            let candidates = ipam.stale("azure", &valid(&[]), NOW).candidates;
            let mut evidence = Evidence::default();
            blind(&mut evidence);
            let collected = ipam.collect(candidates, &evidence, NOW);
            assert_eq!(
                collected
                    .iter()
                    .map(|c| c.judgement.reasons.len())
                    .collect::<Vec<_>>(),
                [1]
            );
        }
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
        hold(&mut ipam, "10.1.0.5", "c1", Some("azure"), 600);
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
