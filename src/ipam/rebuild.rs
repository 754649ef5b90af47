//! Rebuilds a state that was lost, or that the original may have started from nothing: holds what the node shows to be in use.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::evidence::Evidence;
use super::evidence_index::{AddressUser, EvidenceIndex};
use super::{Attachment, Held, Ipam, Moment, Owner, Usage};

impl Ipam {
    /// Holds every free address that the kernel or a list shows in use by a pod, with its owner where the lists agree on one. What the
    /// host itself has is only marked. A released address stays free while only the network namespace of its former holder has it.
    /// Returns the addresses and their owners.
    pub fn hold_evident(&mut self, evidence: &Evidence, now: Moment) -> Vec<(IpAddr, Owner)> {
        let generation = self.generation + 1;
        // An address that two pools list has one holder.
        let mut held = self.held_addresses();
        let index = EvidenceIndex::new(evidence, self);
        let mut found = Vec::new();
        for (address, usage) in self.usages_mut() {
            let Usage::Free(free) = usage else { continue };
            match index.user_of(address) {
                AddressUser::None => {}
                AddressUser::Host => free.on_host = true,
                AddressUser::Pod if index.is_torn_down(address, free, now) => {}
                AddressUser::Pod => {
                    if held.insert(address) {
                        let owner = index.owner(address, generation);
                        *usage = Usage::Held(Held {
                            owner: owner.clone(),
                            since: now,
                            ..Held::default()
                        });
                        found.push((address, owner));
                    }
                }
            }
        }
        if !found.is_empty() {
            self.generation = generation;
        }
        self.changes.are_beyond_list = true;
        found
    }

    /// Replaces the owners that the node does not confirm by those that the lists agree on. In an old copy of the state an address may
    /// stand for somebody who has gone, and whose late DEL would free what another has by now. It stays held all the same.
    pub fn confirm_owners(&mut self, evidence: &Evidence) {
        let index = EvidenceIndex::new(evidence, self);
        let generation = self.generation;
        for (address, held) in self.holders_mut() {
            if !index.confirms(address, held) {
                held.owner = index.owner(address, generation);
            }
        }
        self.changes.are_beyond_list = true;
    }

    /// Whether the kernel or a list shows that a pod uses an address that the pools have.
    pub fn is_in_use(&self, evidence: &Evidence) -> bool {
        let index = EvidenceIndex::new(evidence, self);
        let mut records = self.records();
        records.any(|record| index.user_of(record.address()) == AddressUser::Pod)
    }

    /// Whether the attachment's container holds an address whose interface is not known.
    pub fn is_claimless(&self, attachment: &Attachment) -> bool {
        self.holders().any(
            |held| matches!(&held.owner, Owner::Container(id) if **id == *attachment.container_id),
        )
    }

    /// Completes the owners of the original's records, which have only the container, where its entries for the address agree.
    /// Returns whether there was any.
    pub fn adopt_claims(&mut self, evidence: &Evidence) -> bool {
        let generation = self.generation;
        let index = EvidenceIndex::new(evidence, self);
        let mut adopted = false;
        for (address, held) in self.holders_mut() {
            if let Owner::Container(id) = &held.owner
                && index.user_of(address) == AddressUser::Pod
                && let Some(claim) = index.claim_of(address, id, generation)
            {
                held.owner = Owner::Attachment(Box::new(claim));
                adopted = true;
            }
        }
        self.changes.are_beyond_list |= adopted;
        adopted
    }

    /// Marks the free addresses that the host has, so that others are tried first. Returns their number.
    pub fn mark_on_host(&mut self, on_host: &BTreeSet<IpAddr>) -> usize {
        let mut marked = 0;
        for (address, usage) in self.usages_mut() {
            if let Usage::Free(free) = usage {
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
    use crate::ipam::{Entry, EvidenceList, Free, Inventory, ListedPool, NetNs, NetNsId, Place};

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
        assert_eq!(ipam.hold_evident(&look, NOW).len(), 2);
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
        assert!(ipam.hold_evident(&look, NOW).is_empty(), "once is enough");
    }

    #[test]
    fn what_no_pool_lists_is_not_held() {
        let mut ipam = state();
        let look = evidence(&["10.1.0.10"], vec![entry("c1", "10.1.0.99", true)]);
        assert!(ipam.hold_evident(&look, NOW).is_empty());
        assert!(!ipam.is_in_use(&look));
        assert!(ipam.is_in_use(&evidence(&["10.1.0.5"], vec![])));
    }

    #[test]
    fn a_released_address_is_free_only_in_the_namespace_that_released_it() {
        let at = |seconds: u64| Moment(1_000_000_000 * seconds);
        let id = |ino, cookie| NetNsId {
            id: (4, ino),
            cookie,
        };
        let own = Some(id(77, None));
        let other = entry("c2", "10.1.0.5", true);
        let mut moved = other.clone();
        moved.netns.as_mut().unwrap().id = Some((4, 78));
        let shown = || {
            let mut evidence = evidence(&["10.1.0.5"], vec![]);
            let namespaces = &mut evidence.kernel.addresses_by_namespace;
            namespaces.insert((4, 77), [ip("10.1.0.5")].into());
            evidence.kernel.cookies.insert((4, 77), 9);
            evidence
        };
        let on_loopback = evidence(&["10.1.0.5"], vec![]);
        for (name, released_in, age, look, is_held) in [
            ("its own", own, 29, shown(), false),
            ("by number", Some(id(77, Some(9))), 29, shown(), false),
            ("reused", Some(id(77, Some(8))), 29, shown(), true),
            ("long ago", own, 30, shown(), true),
            ("unknown", None, 1, shown(), true),
            ("another", Some(id(78, None)), 1, shown(), true),
            ("anywhere", own, 1, on_loopback, true),
            ("listed there", own, 1, evidence(&[], vec![other]), false),
            ("listed elsewhere", own, 1, evidence(&[], vec![moved]), true),
        ] {
            let mut ipam = state();
            let free = Free {
                released: Some(at(100)),
                released_in,
                ..Free::default()
            };
            let pool = ipam.pools_mut().next().unwrap();
            pool.record_mut(&ip("10.1.0.5")).unwrap().usage = Usage::Free(free);
            ipam.hold_evident(&look, at(100 + age));
            assert_eq!(!holders(&ipam).is_empty(), is_held, "{name}");
        }
    }

    #[test]
    fn with_an_incomplete_look_every_entry_counts() {
        let mut ipam = state();
        let mut gone = entry("c2", "10.1.0.6", false);
        gone.netns.as_mut().unwrap().id = None;
        let mut look = evidence(&["10.1.0.7"], vec![entry("c1", "10.1.0.5", true), gone]);
        look.kernel.incomplete = Some("hidden".into());
        ipam.hold_evident(&look, NOW);
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
        ipam.hold_evident(&evidence(&[], entries), NOW);
        let mut gone = entry("c1", "10.1.0.5", true);
        gone.container_id = "another".into();
        let mut look = evidence(&[], vec![gone, entry("c2", "10.1.0.6", true)]);
        ipam.confirm_owners(&look);
        let expected = [
            ("10.1.0.5", "another"),
            ("10.1.0.6", "c2"),
            ("10.1.0.7", ""),
        ];
        assert_eq!(holders(&ipam), pairs(&expected));
        // Its namespace may have outlasted its DEL.
        look = evidence(&[], vec![]);
        look.kernel.namespaces.insert((4, 77));
        ipam.confirm_owners(&look);
        assert_eq!(holders(&ipam), pairs(&expected.map(|(a, _)| (a, ""))));
    }

    #[test]
    fn live_entries_are_held_and_of_two_owners_neither_is_believed() {
        let mut ipam = state();
        let entries = vec![
            entry("c1", "10.1.0.5", true),
            entry("c2", "10.1.0.5", true),
            entry("c3", "10.1.0.6", true),
            entry("c3", "10.1.0.6", true),
            entry("c4", "10.1.0.7", false),
        ];
        ipam.hold_evident(&evidence(&[], entries), NOW);
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
        assert!(ipam.hold_evident(&look, NOW).is_empty());
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
            ipam.hold_evident(&evidence(&["10.1.0.5"], vec![]), NOW)
                .len(),
            1
        );
        assert_eq!(ipam.check(), []);
    }
}
