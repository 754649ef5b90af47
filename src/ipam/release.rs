//! Releases addresses (contract section 12, differences D7 and D8). It needs no evidence and never fails: an address that is not
//! held counts as released.

use std::mem;
use std::net::IpAddr;
use std::time::Duration;

use super::evidence_index::EvidenceIndex;
use super::{
    Attachment, Evidence, Freed, Grant, GrantKind, Held, Ipam, Moment, Record, Tombstone, Usage,
};
use crate::codec::named_address;

/// What a DEL names beside the attachment. Any of it may be missing or wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hint<'a> {
    /// The address space.
    pub space: Option<&'a str>,
    /// The subnet, as the caller spells it.
    pub subnet: Option<&'a str>,
    /// The address, as the caller spells it.
    pub address: Option<&'a str>,
    /// The addresses in `prevResult`. They find records of unknown owner, and do not narrow the release.
    pub previous: &'a [IpAddr],
}

impl Hint<'_> {
    /// The address, by value.
    pub fn key(&self) -> Option<IpAddr> {
        named_address(self.address?)
    }

    /// All addresses that it names.
    fn keys(self) -> impl Iterator<Item = IpAddr> {
        self.key().into_iter().chain(self.previous.iter().copied())
    }
}

impl Ipam {
    /// Releases every address of the attachment.
    ///
    /// A record of the original names only the container, and is released by the original's rules: only in the pool and only the
    /// address that the hint names. Without such a hint every record of the container is released.
    pub fn release(&mut self, attachment: &Attachment, hint: Hint<'_>, now: Moment) -> Vec<Freed> {
        let named = hint.space.zip(hint.subnet).and_then(|(name, subnet)| {
            let pool = self.spaces.get(name)?.pool_named(subnet)?;
            Some((name, pool.to_owned()))
        });
        let address = hint.address.map(|_| hint.key());
        let goes = |names: (&str, &str), record: &Record, held: &Held| {
            let is_meant = || {
                let mut named = named.iter().map(|(space, pool)| (*space, &**pool));
                named.all(|named| named == names)
                    && address.is_none_or(|address| address == Some(record.key))
            };
            held.owner.is_attachment(attachment) && (held.owner.claim().is_some() || is_meant())
        };
        self.release_where(goes, now)
    }

    /// Remembers a DEL that found nothing, in case its ADD comes later. Returns whether it was not remembered before.
    pub fn note_early_del(&mut self, attachment: &Attachment, now: Moment) -> bool {
        const KEPT: Duration = Duration::from_secs(300);
        const MOST: usize = 64;
        self.tombstones.retain(|t| now.since(t.at) < KEPT);
        if self.tombstones.iter().any(|t| t.attachment == *attachment) {
            return false;
        }
        let surplus = (self.tombstones.len() + 1).saturating_sub(MOST);
        self.tombstones.drain(..surplus);
        self.tombstones.push(Tombstone {
            attachment: attachment.clone(),
            at: now,
        });
        true
    }

    /// Undoes `grant`, if the record did not change since. Returns whether it did.
    pub fn revoke(&mut self, attachment: &Attachment, grant: &Grant) -> bool {
        let GrantKind::New(before) = &grant.kind else {
            return false;
        };
        let place = (&*grant.space, &*grant.pool, grant.key);
        let Some(record) = self.record_at(place) else {
            return false;
        };
        let is_same = record.held().is_some_and(|held| {
            let owner = &held.owner;
            owner.is_attachment(attachment) && owner.generation() == Some(grant.generation)
        });
        if !is_same {
            return false;
        }
        let address = record.address();
        let before = Usage::Free(before.clone());
        let mut is_listed = true;
        if let Usage::Held(held) = mem::replace(&mut record.usage, before) {
            is_listed = !held.unlisted;
            if !self.changes.undo_hold(address, &held) {
                self.changes.release(address, &held, held.since);
            }
        }
        let space = self.spaces.get_mut(&grant.space);
        let pool = space.and_then(|space| space.pools.get_mut(&grant.pool));
        if let Some(pool) = pool.filter(|_| !is_listed) {
            pool.records.retain(|record| record.key != grant.key);
        }
        true
    }

    /// Undoes all `grants` of one attachment, as [`Ipam::revoke`] does. Returns whether it undid any.
    pub fn revoke_all(&mut self, attachment: &Attachment, grants: &[Grant]) -> bool {
        let revoked = grants.iter().filter(|grant| self.revoke(attachment, grant));
        revoked.count() > 0
    }

    /// Whether the hint names an address that is held by an unknown owner.
    pub fn is_ownerless(&self, hint: Hint<'_>) -> bool {
        hint.keys().any(|key| {
            let records = self.pools().filter_map(|(_, _, pool)| pool.record(&key));
            records
                .filter_map(Record::held)
                .any(|held| held.owner.is_unknown())
        })
    }

    /// Releases the addresses that the hint names and that have no known owner, unless evidence shows them in use.
    pub fn release_ownerless(
        &mut self,
        attachment: &Attachment,
        hint: Hint<'_>,
        evidence: &Evidence,
        now: Moment,
    ) -> Vec<Freed> {
        let index = EvidenceIndex::new(evidence, self);
        let freed = hint.keys().flat_map(|key| {
            let goes = |_: (&str, &str), record: &Record, held: &Held| {
                record.key == key
                    && held.owner.is_unknown()
                    && index.may_release_ownerless(record.address(), &attachment.container_id)
            };
            self.release_where(goes, now)
        });
        freed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::testing::{forget_claim, with_pools};
    use crate::ipam::{
        Entry, EvidenceList, Family, Free, Inventory, ListedPool, Owner, PoolSelector, Request,
    };
    use std::collections::BTreeSet;
    use std::time::Duration;

    const NOW: Moment = Moment(77);

    fn state(pools: &[(&str, &[&str])]) -> Ipam {
        let pools: Vec<_> = pools
            .iter()
            .map(|(subnet, all)| (*subnet, 0, *all))
            .collect();
        with_pools(&pools)
    }

    fn attachment(container_id: &str, if_name: &str) -> Attachment {
        Attachment {
            network: "azure".into(),
            container_id: container_id.into(),
            if_name: if_name.into(),
        }
    }

    fn take(ipam: &mut Ipam, attachment: &Attachment, pool: &str, address: &str) -> Grant {
        let request = Request {
            attachment,
            space: "local",
            pool: if pool.is_empty() {
                PoolSelector::Any {
                    family: Family::V4,
                    if_name: None,
                }
            } else {
                PoolSelector::Named(pool)
            },
            address: Some(address),
            pod: None,
            netns: None,
            cooldown: Duration::ZERO,
            on_host: &BTreeSet::new(),
            exclude: &[],
        };
        ipam.allocate(&request, Moment(1)).unwrap()
    }

    /// Makes a record one of the original's, which tells nothing but the container.
    fn unclaim(ipam: &mut Ipam) {
        for pool in ipam.spaces.get_mut("local").unwrap().pools.values_mut() {
            for record in &mut pool.records {
                if let Usage::Held(held) = &mut record.usage {
                    forget_claim(&mut held.owner);
                }
            }
        }
    }

    fn freed(
        ipam: &mut Ipam,
        attachment: &Attachment,
        subnet: Option<&str>,
        address: Option<&str>,
    ) -> Vec<String> {
        let hint = Hint {
            space: Some("local"),
            subnet,
            address,
            previous: &[],
        };
        let freed = ipam.release(attachment, hint, NOW);
        assert_eq!(ipam.check(), []);
        freed.iter().map(|f| f.address.to_string()).collect()
    }

    const POOLS: &[(&str, &[&str])] = &[
        ("10.1.0.0/16", &["10.1.0.5", "10.1.0.6"]),
        ("10.2.0.0/16", &["10.2.0.5"]),
    ];

    fn holding() -> (Ipam, Attachment, Attachment) {
        let mut ipam = state(POOLS);
        let (eth0, net1) = (attachment("a", "eth0"), attachment("a", "net1"));
        take(&mut ipam, &eth0, "10.1.0.0/16", "10.1.0.5");
        take(&mut ipam, &eth0, "10.2.0.0/16", "10.2.0.5");
        take(&mut ipam, &net1, "10.1.0.0/16", "10.1.0.6");
        (ipam, eth0, net1)
    }

    /// Makes the source list one address of one pool, and nothing else.
    fn list_only(ipam: &mut Ipam, address: &str) {
        let listed = vec![address.parse().unwrap()];
        let subnet = "10.1.0.0/16".parse().unwrap();
        let pool = ListedPool::new(subnet, "eth0".into(), 0, listed);
        ipam.merge(&Inventory { pools: vec![pool] });
    }

    #[test]
    fn every_address_of_the_attachment_goes_and_no_other() {
        for (subnet, address) in [
            (None, None),
            (Some("10.1.0.0/16"), Some("10.1.0.5")),
            (Some("x"), Some("y")),
            (Some("10.2.0.0/16"), None),
        ] {
            let (mut ipam, eth0, net1) = holding();
            assert_eq!(
                freed(&mut ipam, &eth0, subnet, address),
                ["10.1.0.5", "10.2.0.5"],
                "{subnet:?} {address:?}"
            );
            assert_eq!(
                freed(&mut ipam, &eth0, subnet, address),
                [""; 0],
                "a second time does nothing"
            );
            assert_eq!(freed(&mut ipam, &net1, None, None), ["10.1.0.6"]);
        }
        let (mut ipam, ..) = holding();
        let before = ipam.clone();
        assert_eq!(
            freed(
                &mut ipam,
                &attachment("b", "eth0"),
                Some("10.1.0.0/16"),
                Some("10.1.0.5")
            ),
            [""; 0]
        );
        assert_eq!(ipam, before);
    }

    #[test]
    fn records_of_the_original_go_by_its_rules() {
        let cases: [(Option<&str>, Option<&str>, &[&str]); 7] = [
            (None, None, &["10.1.0.5", "10.1.0.6", "10.2.0.5"]),
            (Some("10.1.0.0/16"), None, &["10.1.0.5", "10.1.0.6"]),
            (Some("10.1.0.9/16"), Some("::ffff:10.1.0.6"), &["10.1.0.6"]),
            (Some("10.1.0.0/16"), Some("10.2.0.5"), &[]),
            (Some("10.1.0.0/16"), Some("banana"), &[]),
            (
                Some("10.9.0.0/16"),
                None,
                &["10.1.0.5", "10.1.0.6", "10.2.0.5"],
            ),
            (Some("10.9.0.0/16"), Some("10.2.0.5"), &["10.2.0.5"]),
        ];
        for (subnet, address, expected) in cases {
            let (mut ipam, eth0, _) = holding();
            unclaim(&mut ipam);
            assert_eq!(
                freed(&mut ipam, &eth0, subnet, address),
                expected,
                "{subnet:?} {address:?}"
            );
        }
    }

    #[test]
    fn a_released_address_remembers_when_and_one_that_is_listed_no_more_goes() {
        let (mut ipam, eth0, _) = holding();
        list_only(&mut ipam, "10.1.0.6");
        let freed = ipam.release(&eth0, Hint::default(), NOW);
        assert!(freed.iter().all(|f| f.held.unlisted), "{freed:?}");
        assert_eq!(
            ipam.pools()
                .map(|(_, _, p)| p.records.len())
                .collect::<Vec<_>>(),
            [1, 0]
        );
        let (mut ipam, eth0, _) = holding();
        assert!(
            ipam.release(&eth0, Hint::default(), NOW)
                .iter()
                .all(|f| !f.held.unlisted)
        );
        let pool = &ipam.spaces["local"].pools["10.1.0.0/16"];
        let record = pool.record(&"10.1.0.5".parse().unwrap()).unwrap();
        assert_eq!(
            record.free(),
            Some(&Free {
                released: Some(NOW),
                ..Free::default()
            })
        );
    }

    #[test]
    fn a_grant_is_revoked_only_while_it_is_that_grant() {
        let mut ipam = state(POOLS);
        let a = attachment("a", "eth0");
        let grant = take(&mut ipam, &a, "", "10.1.0.5");
        let renewed = take(&mut ipam, &a, "", "10.1.0.5");
        let before = ipam.clone();
        assert!(!ipam.revoke(&a, &grant), "it was renewed since");
        assert!(!ipam.revoke(&a, &renewed), "a renewal took nothing");
        assert_eq!(ipam, before);
        let fresh = take(&mut ipam, &attachment("b", "eth0"), "", "10.1.0.6");
        assert!(!ipam.revoke(&a, &fresh), "another's");
        assert!(ipam.revoke(&attachment("b", "eth0"), &fresh));
        let pool = &ipam.spaces["local"].pools["10.1.0.0/16"];
        assert_eq!(
            pool.record(&fresh.key).unwrap().free(),
            Some(&Free::default()),
            "as if it had never been given"
        );
        assert_eq!(ipam.check(), []);
    }

    #[test]
    fn a_revoked_grant_that_is_no_longer_listed_leaves_the_pool() {
        let mut ipam = state(POOLS);
        let a = attachment("a", "eth0");
        let grant = take(&mut ipam, &a, "", "10.1.0.5");
        list_only(&mut ipam, "10.1.0.6");
        assert!(ipam.revoke(&a, &grant));
        let pool = &ipam.spaces["local"].pools["10.1.0.0/16"];
        assert_eq!(pool.record(&grant.key), None);
    }

    #[test]
    fn ownerless_address_stays_held_while_cache_entry_names_another_container() {
        let entry = |container_id: &str, is_live| Entry {
            container_id: container_id.into(),
            addresses: vec!["10.1.0.5".parse().unwrap()],
            is_live,
            ..Entry::default()
        };
        for (entries, is_released) in [
            (vec![], true),
            (vec![entry("a", true)], true),
            (vec![entry("b", false)], true),
            (vec![entry("b", true)], false),
            (vec![entry("a", true), entry("b", true)], false),
        ] {
            let mut ipam = state(POOLS);
            take(&mut ipam, &attachment("x", "eth0"), "", "10.1.0.5");
            for pool in ipam.pools_mut() {
                for record in &mut pool.records {
                    if let Usage::Held(held) = &mut record.usage {
                        held.owner = Owner::Unknown;
                    }
                }
            }
            let message = format!("{entries:?}");
            let evidence = Evidence {
                cache: EvidenceList::Read {
                    entries,
                    doubtful: vec![],
                },
                ..Evidence::default()
            };
            let hint = Hint {
                previous: &["10.1.0.5".parse().unwrap()],
                ..Hint::default()
            };
            let a = attachment("a", "eth0");
            let freed = ipam.release_ownerless(&a, hint, &evidence, NOW);
            assert_eq!(!freed.is_empty(), is_released, "{message}");
        }
    }
}
