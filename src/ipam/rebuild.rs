//! Rebuilds a state that was lost, or that the original may have started from nothing: holds what the node shows to be in use.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use super::evidence::{Evidence, Place};
use super::evidence_index::{AddressUser, EvidenceIndex};
use super::{Attachment, ChangeKind, Held, Ipam, Moment, Owner, Pool, Record, Usage, by_text};

/// How long the node may go on showing a released address: its DEL comes before the main plugin and the runtime take the pod's network
/// namespace down.
const TEARDOWN: Duration = Duration::from_secs(30);

/// Whether the releases in the state can be relied on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Releases {
    /// Yes.
    AreKnown,
    /// The state is an old copy: a released address may have been granted since.
    MayBeOutdated,
}

/// An address that evidence shows in use.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The address.
    pub address: IpAddr,
    /// Whose it is.
    pub owner: Owner,
}

impl Ipam {
    /// Holds every address of the pools' subnets that the kernel or a list shows to be in use, with its owner where a list
    /// knows it, and whether the source lists it or not. One that the host itself has is nobody's, and is only marked. One that was
    /// just released rests, as no other DEL would come for it. Holds more where less is known, never less.
    pub fn hold_evident(
        &mut self,
        evidence: &Evidence,
        releases: Releases,
        now: Moment,
    ) -> Vec<Found> {
        let generation = self.generation + 1;
        // An address that two pools list has one holder.
        let held = self
            .pools()
            .flat_map(|(_, _, pool)| &pool.records)
            .filter(|r| r.held().is_some());
        let mut held: BTreeSet<_> = held.map(Record::address).collect();
        let index = EvidenceIndex::new(evidence);
        let evident = index.addresses();
        let mut found = Vec::new();
        for (key, pool) in self.spaces.values_mut().flat_map(|s| &mut s.pools) {
            found.extend(pool.hold_listed((&index, releases), generation, now, &mut held));
            found.extend(pool.hold_unlisted(key, (&index, &evident), generation, now, &mut held));
        }
        if !found.is_empty() {
            self.generation = generation;
        }
        for found in &found {
            let mut records = self.spaces.values().flat_map(|s| s.pools.values());
            let record = records.find_map(|pool| pool.record(&found.address)?.held());
            if let Some(held) = record {
                self.changes
                    .note(ChangeKind::Found, found.address, held.clone());
            }
        }
        found
    }
}

impl Pool {
    /// Holds those of its records that are in use.
    fn hold_listed(
        &mut self,
        (index, releases): (&EvidenceIndex<'_>, Releases),
        generation: u64,
        now: Moment,
        held: &mut BTreeSet<IpAddr>,
    ) -> Vec<Found> {
        let mut found = Vec::new();
        for record in &mut self.records {
            let address = record.address();
            let Usage::Free(free) = &mut record.usage else {
                continue;
            };
            let was_just_released = releases == Releases::AreKnown
                && free.released.is_some_and(|at| now.since(at) < TEARDOWN);
            match index.user_of(address) {
                AddressUser::None => {}
                AddressUser::Host => free.on_host = true,
                AddressUser::Pod if was_just_released => {}
                AddressUser::Pod => {
                    if held.insert(address) {
                        let owner = index.owner(address, generation);
                        found.push(record.hold(owner, now, false));
                    }
                }
            }
        }
        found
    }

    /// Holds the `evident` addresses of its subnet of which it has no record.
    fn hold_unlisted(
        &mut self,
        key: &str,
        (index, evident): (&EvidenceIndex<'_>, &BTreeSet<IpAddr>),
        generation: u64,
        now: Moment,
        held: &mut BTreeSet<IpAddr>,
    ) -> Vec<Found> {
        let mut found = Vec::new();
        let Some(net) = self.net(key) else {
            return found;
        };
        let mut records = Vec::new();
        for address in evident.range(net.network()..=net.broadcast()) {
            if index.user_of(*address) != AddressUser::Pod {
                continue;
            }
            if self.record(address).is_none() && held.insert(*address) {
                let mut record = Record::new(*address);
                let owner = index.owner(*address, generation);
                found.push(record.hold(owner, now, true));
                records.push(record);
            }
        }
        if !records.is_empty() {
            self.records.extend(records);
            self.records.sort_by(|a, b| by_text(&a.key, &b.key));
        }
        found
    }
}

impl Record {
    /// Makes a holder of whom evidence tells.
    fn hold(&mut self, owner: Owner, now: Moment, unlisted: bool) -> Found {
        self.usage = Usage::Held(Held {
            owner: owner.clone(),
            since: now,
            suspect: None,
            unlisted,
        });
        Found {
            address: self.address(),
            owner,
        }
    }
}

impl Ipam {
    /// Forgets the owners that the node does not confirm. In an old copy of the state an address may stand for somebody who
    /// has gone, and whose late DEL would free what another has by now. It stays held all the same.
    pub fn forget_unconfirmed_owners(&mut self, evidence: &Evidence) {
        let index = EvidenceIndex::new(evidence);
        let records = self.pools_mut().flat_map(|pool| &mut pool.records);
        for record in records {
            let address = record.address();
            if let Usage::Held(held) = &mut record.usage
                && !index.confirms(address, held)
            {
                held.owner = Owner::Unknown;
            }
        }
    }

    /// Whether somebody has an address of the pools' subnets: it is configured in a network namespace other than the host's, or
    /// an entry of a list that may stand names it. A subnet of all addresses tells nothing.
    pub fn is_in_use(&self, evidence: &Evidence) -> bool {
        let configured = &evidence.kernel.configured;
        let in_a_pod = |(_, place): &(_, &Place)| matches!(place, Place::Namespace(_));
        let configured = configured
            .iter()
            .filter(in_a_pod)
            .map(|(address, _)| address);
        let listed = evidence.live_entries().filter(|entry| entry.may_be_live());
        let mut elsewhere = configured.chain(listed.flat_map(|entry| &entry.addresses));
        let is_of = |address: &IpAddr, key: &str, pool: &Pool| {
            pool.record(address).is_some()
                || pool
                    .net(key)
                    .is_some_and(|net| net.prefix_len() > 0 && net.contains(address))
        };
        elsewhere.any(|address| self.pools().any(|(_, key, pool)| is_of(address, key, pool)))
    }

    /// Whether the attachment's container holds an address of which the state does not tell the interface.
    pub fn is_claimless(&self, attachment: &Attachment) -> bool {
        self.holders().any(
            |held| matches!(&held.owner, Owner::Container(id) if **id == *attachment.container_id),
        )
    }

    /// Gives the records of the original, which tell only the container, the rest of their holders' identity, where every entry
    /// that names the address tells the same. Tells whether there was any.
    pub fn adopt_claims(&mut self, evidence: &Evidence) -> bool {
        let generation = self.generation;
        let index = EvidenceIndex::new(evidence);
        let mut adopted = false;
        for record in self.pools_mut().flat_map(|pool| &mut pool.records) {
            let address = record.address();
            let Usage::Held(held) = &mut record.usage else {
                continue;
            };
            let Owner::Container(id) = &held.owner else {
                continue;
            };
            if index.user_of(address) == AddressUser::Pod
                && let Owner::Attachment(claim) = index.owner(address, generation)
                && claim.container_id == *id
            {
                held.owner = Owner::Attachment(claim);
                adopted = true;
            }
        }
        adopted
    }

    /// Takes note of the free addresses that the host has, so that others are tried first. Gives their number.
    pub fn mark_on_host(&mut self, on_host: &BTreeSet<IpAddr>) -> usize {
        let mut marked = 0;
        for record in self.pools_mut().flat_map(|pool| &mut pool.records) {
            let address = record.address();
            if let Usage::Free(free) = &mut record.usage {
                free.on_host = on_host.contains(&address);
                marked += usize::from(free.on_host);
            }
        }
        marked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::testing::with_pools;
    use crate::ipam::{Entry, EvidenceList, Free, Inventory, ListedPool, NetNs};

    const NOW: Moment = Moment(77);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn state() -> Ipam {
        with_pools(&[(
            "10.1.0.0/16",
            0,
            &["10.1.0.5", "10.1.0.6", "10.1.0.7", "10.1.0.8"],
        )])
    }

    fn entry(id: &str, address: &str, is_live: bool) -> Entry {
        Entry {
            container_id: id.into(),
            network: Some("azure".into()),
            if_name: Some("eth0".into()),
            pod: Some("default/web-0".into()),
            netns: Some(NetNs {
                path: "/run/netns/x".into(),
                id: Some((4, 77)),
                cookie: None,
            }),
            addresses: vec![ip(address)],
            is_live,
            of_this_boot: false,
        }
    }

    fn evidence(configured: &[&str], entries: Vec<Entry>) -> Evidence {
        let mut evidence = Evidence {
            cache: EvidenceList::Read {
                entries,
                doubtful: vec![],
            },
            ..Evidence::default()
        };
        for address in configured {
            evidence
                .kernel
                .configured
                .insert(ip(address), Place::Namespace("/run/netns/x".into()));
        }
        evidence
    }

    fn holders(ipam: &Ipam) -> Vec<(String, String)> {
        let records = ipam.pools().flat_map(|(_, _, p)| &p.records);
        records
            .filter_map(|r| {
                let id = r.held()?.owner.container_id().unwrap_or_default();
                Some((r.key.to_string(), id.to_owned()))
            })
            .collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect()
    }

    #[test]
    fn what_the_kernel_shows_is_held_with_its_owner_or_without() {
        let mut ipam = state();
        let look = evidence(
            &["10.1.0.5", "10.1.0.6", "10.9.9.9"],
            vec![
                entry("c1", "10.1.0.5", false),
                entry("c2", "10.1.0.6", true),
            ],
        );
        assert_eq!(ipam.hold_evident(&look, Releases::AreKnown, NOW).len(), 2);
        assert_eq!(
            holders(&ipam),
            pairs(&[("10.1.0.5", ""), ("10.1.0.6", "c2")]),
            "an entry without namespace says nothing"
        );
        let pool = ipam.pools().next().unwrap().2;
        let claim = pool
            .record(&ip("10.1.0.6"))
            .unwrap()
            .held()
            .unwrap()
            .owner
            .claim()
            .unwrap();
        assert_eq!(
            (&*claim.network, &*claim.if_name, claim.pod.as_deref()),
            ("azure", "eth0", Some("default/web-0"))
        );
        assert_eq!(ipam.check(), []);
        assert!(
            ipam.hold_evident(&look, Releases::AreKnown, NOW).is_empty(),
            "once is enough"
        );
    }

    #[test]
    fn entries_that_still_speak_are_held_though_the_kernel_does_not_show_them() {
        let mut ipam = state();
        ipam.hold_evident(
            &evidence(
                &[],
                vec![
                    entry("c1", "10.1.0.5", true),
                    entry("c2", "10.1.0.6", false),
                ],
            ),
            Releases::AreKnown,
            NOW,
        );
        assert_eq!(holders(&ipam), pairs(&[("10.1.0.5", "c1")]));
    }

    #[test]
    fn addresses_that_the_source_does_not_list_are_held_too() {
        let mut ipam = state();
        let look = evidence(
            &["10.1.0.10", "10.2.0.1"],
            vec![entry("c1", "10.1.0.99", true)],
        );
        ipam.hold_evident(&look, Releases::AreKnown, NOW);
        assert_eq!(
            holders(&ipam),
            pairs(&[("10.1.0.10", ""), ("10.1.0.99", "c1")])
        );
        assert_eq!(ipam.check(), []);
        let pool = ipam.pools().next().unwrap().2;
        assert!(
            pool.record(&ip("10.1.0.99"))
                .unwrap()
                .held()
                .unwrap()
                .unlisted,
            "and go with their release"
        );
    }

    #[test]
    fn with_an_incomplete_look_every_entry_counts() {
        let mut ipam = state();
        let mut gone = entry("c2", "10.1.0.6", false);
        gone.netns.as_mut().unwrap().id = None;
        let mut look = evidence(&["10.1.0.7"], vec![entry("c1", "10.1.0.5", true), gone]);
        look.kernel.incomplete = Some("hidden".into());
        ipam.hold_evident(&look, Releases::AreKnown, NOW);
        assert_eq!(
            holders(&ipam),
            pairs(&[("10.1.0.5", "c1"), ("10.1.0.6", ""), ("10.1.0.7", "")]),
            "but an entry whose namespace is gone tells no owner"
        );
    }

    #[test]
    fn an_old_copy_keeps_what_is_held_but_only_the_owners_that_the_node_confirms() {
        let mut ipam = state();
        let all = [("10.1.0.5", "c1"), ("10.1.0.6", "c2"), ("10.1.0.7", "c3")];
        let entries = all.map(|(address, id)| entry(id, address, true)).into();
        ipam.hold_evident(&evidence(&[], entries), Releases::AreKnown, NOW);
        let mut gone = entry("c1", "10.1.0.5", true);
        gone.container_id = "another".into();
        let mut look = evidence(&[], vec![gone, entry("c2", "10.1.0.6", true)]);
        ipam.forget_unconfirmed_owners(&look);
        let expected = [("10.1.0.5", ""), ("10.1.0.6", "c2"), ("10.1.0.7", "")];
        assert_eq!(holders(&ipam), pairs(&expected));
        // Its namespace exists: by the kernel's number, as another may have the same inode.
        for (cookie, expected) in [(Some(9), "c1"), (Some(8), ""), (None, "")] {
            let mut ipam = state();
            let mut own = entry("c1", "10.1.0.5", true);
            own.netns.as_mut().unwrap().cookie = Some(9);
            ipam.hold_evident(&evidence(&[], vec![own]), Releases::AreKnown, NOW);
            look = evidence(&[], vec![]);
            look.kernel.namespaces.insert((4, 77));
            look.kernel
                .cookies
                .extend(cookie.map(|cookie| ((4, 77), cookie)));
            ipam.forget_unconfirmed_owners(&look);
            assert_eq!(
                holders(&ipam),
                pairs(&[("10.1.0.5", expected)]),
                "{cookie:?}"
            );
        }
    }

    #[test]
    fn of_two_owners_that_lists_tell_neither_is_believed() {
        let mut ipam = state();
        let entries = vec![
            entry("c1", "10.1.0.5", true),
            entry("c2", "10.1.0.5", true),
            entry("c3", "10.1.0.6", true),
            entry("c3", "10.1.0.6", true),
        ];
        ipam.hold_evident(&evidence(&[], entries), Releases::AreKnown, NOW);
        assert_eq!(
            holders(&ipam),
            pairs(&[("10.1.0.5", ""), ("10.1.0.6", "c3")])
        );
    }

    #[test]
    fn what_the_host_itself_has_is_marked_but_nobodys() {
        let mut ipam = state();
        let mut look = evidence(&[], vec![]);
        look.kernel.configured.insert(ip("10.1.0.5"), Place::Host);
        assert!(ipam.hold_evident(&look, Releases::AreKnown, NOW).is_empty());
        let pool = ipam.pools().next().unwrap().2;
        assert_eq!(
            pool.record(&ip("10.1.0.5")).unwrap().free(),
            Some(&Free {
                on_host: true,
                ..Free::default()
            })
        );
        assert_eq!(
            ipam.mark_on_host(&[ip("10.1.0.6"), ip("10.1.0.7")].into()),
            2
        );
        let pool = ipam.pools().next().unwrap().2;
        assert!(
            !pool
                .record(&ip("10.1.0.5"))
                .unwrap()
                .free()
                .unwrap()
                .on_host,
            "marks follow the host"
        );
    }

    #[test]
    fn an_address_in_two_pools_is_held_in_one() {
        let mut ipam = state();
        let narrow = ListedPool::new(
            "10.1.0.0/24".parse().unwrap(),
            "eth0".into(),
            0,
            vec![ip("10.1.0.5")],
        );
        let wide = ListedPool::new(
            "10.1.0.0/16".parse().unwrap(),
            "eth0".into(),
            0,
            vec![ip("10.1.0.5")],
        );
        ipam.merge(&Inventory {
            pools: vec![narrow, wide],
        });
        assert_eq!(
            ipam.hold_evident(&evidence(&["10.1.0.5"], vec![]), Releases::AreKnown, NOW)
                .len(),
            1
        );
        assert_eq!(ipam.check(), []);
    }
}
