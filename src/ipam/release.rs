//! Releases addresses (contract section 12, differences D7 and D8). It needs no evidence and never fails: an address that is not
//! held counts as released.

use std::collections::BTreeSet;
use std::mem;
use std::net::IpAddr;
use std::time::Duration;

use super::evidence_index::EvidenceIndex;
use super::{
    Attachment, Evidence, Free, Grant, GrantKind, Held, Ipam, Moment, NetNs, Record, Tombstone,
    Usage,
};
use crate::codec::named_address;

/// What a DEL names beside the attachment. Any part may be missing or wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hint<'a> {
    /// The address space.
    pub space: Option<&'a str>,
    /// The subnet, as the caller spells it.
    pub subnet: Option<&'a str>,
    /// The address, as the caller spells it.
    pub address: Option<&'a str>,
    /// The addresses in `prevResult`. They find records of unknown holders, and do not restrict the release.
    pub previous: &'a [IpAddr],
}

impl Hint<'_> {
    /// Returns the address, parsed.
    pub fn key(&self) -> Option<IpAddr> {
        named_address(self.address?)
    }

    /// Returns all addresses that it names.
    fn keys(self) -> impl Iterator<Item = IpAddr> {
        self.key().into_iter().chain(self.previous.iter().copied())
    }
}

impl Ipam {
    /// Releases every address of the attachment.
    ///
    /// A record of the original names only the container. It is released by the original's rules: only in the pool and only with the
    /// address that the hint names. Without such a hint every record of the container is released.
    pub fn release(&mut self, attachment: &Attachment, hint: Hint<'_>, now: Moment) -> Vec<Freed> {
        // The addresses of the named pool. A pool that a resized subnet left behind may hold them, too.
        let named = hint.space.zip(hint.subnet).and_then(|(name, subnet)| {
            let space = self.spaces.get(name)?;
            let pool = space.pools.get(space.pool_named(subnet)?)?;
            let keys: BTreeSet<IpAddr> = pool.records.iter().map(|record| record.key).collect();
            Some((name, keys))
        });
        let address = hint.address.map(|_| hint.key());
        let is_released = |(space, _): (&str, &str), record: &Record, held: &Held| {
            let is_meant = || {
                named
                    .iter()
                    .all(|(name, keys)| *name == space && keys.contains(&record.key))
                    && address.is_none_or(|address| address == Some(record.key))
            };
            held.holder.is_attachment(attachment) && (held.holder.has_interface() || is_meant())
        };
        self.release_where(is_released, now)
    }

    /// Remembers a DEL that found nothing, in case its ADD comes later. Returns false if it was remembered before.
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
            held.holder.is_attachment(attachment) && held.holder.number == grant.generation
        });
        if !is_same {
            return false;
        }
        let is_listed = record.held().is_some_and(|held| held.unlisted.is_none());
        record.usage = Usage::Free(before.clone());
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

    /// Returns whether the hint names an address that is held by an unknown holder.
    pub fn is_orphaned(&self, hint: Hint<'_>) -> bool {
        hint.keys().any(|key| {
            let records = self.pools().filter_map(|(_, _, pool)| pool.record(&key));
            records
                .filter_map(Record::held)
                .any(|held| held.holder.is_unknown())
        })
    }

    /// Releases the addresses that the hint names and that have no known holder, unless evidence shows them in use.
    pub fn release_orphaned(
        &mut self,
        attachment: &Attachment,
        hint: Hint<'_>,
        evidence: &Evidence,
        now: Moment,
    ) -> Vec<Freed> {
        let index = EvidenceIndex::new(evidence, self);
        let freed = hint.keys().flat_map(|key| {
            let is_released = |_: (&str, &str), record: &Record, held: &Held| {
                record.key == key
                    && held.holder.is_unknown()
                    && index.may_release_orphaned(record.address(), &attachment.container_id)
            };
            self.release_where(is_released, now)
        });
        freed.collect()
    }
}

/// A released address.
#[derive(Clone, Debug, PartialEq)]
pub struct Freed {
    /// The key of its pool.
    pub pool: String,
    /// The address.
    pub address: IpAddr,
    /// Its former holder. If the source no longer lists the address, its record was removed from the pool.
    pub held: Held,
}

impl Ipam {
    /// Releases every held address that `select` picks by the names of space and pool, the record and its holder.
    pub(super) fn release_where(
        &mut self,
        select: impl Fn((&str, &str), &Record, &Held) -> bool,
        now: Moment,
    ) -> Vec<Freed> {
        let mut freed = Vec::new();
        for (space_name, space) in &mut self.spaces {
            for (pool_name, pool) in &mut space.pools {
                pool.records.retain_mut(|record| {
                    let names = (space_name.as_str(), pool_name.as_str());
                    let held = record.held().filter(|held| select(names, record, held));
                    let Some(held) = held else { return true };
                    let free = Free {
                        released: Some(now),
                        last_netns: held.holder.netns.clone(),
                        ..Free::default()
                    };
                    let stays = held.unlisted.is_none();
                    if !stays {
                        self.omitted.insert(record.address(), free.clone());
                    }
                    let before = mem::replace(&mut record.usage, Usage::Free(free));
                    if let Usage::Held(held) = before {
                        freed.push(Freed {
                            pool: pool_name.clone(),
                            address: record.address(),
                            held,
                        });
                    }
                    stays
                });
            }
        }
        self.share_releases();
        freed
    }

    /// Returns the released addresses that the network namespace of the last holder still has. `still_has` decides by the namespace, the
    /// address and the time since the release.
    pub fn withheld(
        &self,
        still_has: impl Fn(&NetNs, IpAddr, Duration) -> bool,
        now: Moment,
    ) -> BTreeSet<IpAddr> {
        let is_withheld = |record: &&Record| {
            let free = record.free();
            free.is_some_and(|free| free.last_holder_still_has(record.address(), now, &still_has))
        };
        self.records()
            .filter(is_withheld)
            .map(Record::address)
            .collect()
    }

    /// Forgets the last namespaces of released addresses if they are gone. Each is kept for a while, because a scan in progress may have
    /// seen it.
    pub fn forget_gone_namespaces(&mut self, now: Moment, is_gone: impl Fn(&NetNs) -> bool) {
        const KEPT: Duration = Duration::from_secs(30);
        let in_pools = self
            .pools_mut()
            .flat_map(|pool| &mut pool.records)
            .filter_map(Record::free_mut);
        for free in in_pools {
            if let Some((at, netns)) = free.released.zip(free.last_netns.as_ref())
                && now.since(at) >= KEPT
                && is_gone(netns)
            {
                free.last_netns = None;
            }
        }
    }

    /// Records the network namespace of a DEL for the released addresses without one.
    pub fn note_last_netns(&mut self, freed: &[Freed], netns: &NetNs) {
        let is_freed = |address| freed.iter().any(|freed| freed.address == address);
        let note = |free: &mut Free| {
            free.last_netns.get_or_insert_with(|| netns.clone());
        };
        for (address, usage) in self.usages_mut() {
            if let Usage::Free(free) = usage
                && is_freed(address)
            {
                note(free);
            }
        }
        for (address, free) in &mut self.omitted {
            if is_freed(*address) {
                note(free);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::testing::{
        allocate, attachment, forget_interfaces, holders, ip, listed, pool as pool_of, record,
        wanted_of, with_pools,
    };
    use crate::ipam::{Free, Holder, Inventory, PoolSelector, Wanted};

    const NOW: Moment = Moment(77);
    const ONE: &str = "10.1.0.0/16";
    const TWO: &str = "10.2.0.0/16";

    fn state() -> Ipam {
        with_pools(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"]), (TWO, 0, &["10.2.0.5"])])
    }

    fn take(ipam: &mut Ipam, attachment: &Attachment, pool: &str, address: &str) -> Grant {
        let pool = PoolSelector::Named(pool.to_owned());
        let wanted = Wanted {
            attachment: attachment.clone(),
            ..wanted_of("", pool, Some(address))
        };
        allocate(ipam, &wanted, Moment(1)).unwrap()
    }

    #[test]
    fn records_of_original_are_released_by_its_rules() {
        const ALL: &[&str] = &["10.1.0.5", "10.1.0.6", "10.2.0.5"];
        let rows: [(Option<&str>, Option<&str>, &[&str]); 7] = [
            (None, None, ALL),
            (Some(ONE), None, &ALL[..2]),
            (Some("10.1.0.9/16"), Some("::ffff:10.1.0.6"), &ALL[1..2]),
            (Some(ONE), Some("10.2.0.5"), &[]),
            (Some(ONE), Some("banana"), &[]),
            (Some("10.9.0.0/16"), None, ALL),
            (Some("10.9.0.0/16"), Some("10.2.0.5"), &ALL[2..]),
        ];
        for (subnet, address, expected) in rows {
            let mut ipam = state();
            let (eth0, net1) = (attachment("a", "eth0"), attachment("a", "net1"));
            take(&mut ipam, &eth0, ONE, "10.1.0.5");
            take(&mut ipam, &eth0, TWO, "10.2.0.5");
            take(&mut ipam, &net1, ONE, "10.1.0.6");
            forget_interfaces(&mut ipam);
            let hint = Hint {
                space: Some("local"),
                subnet,
                address,
                previous: &[],
            };
            let freed = ipam.release(&eth0, hint, NOW);
            let freed: Vec<_> = freed.iter().map(|f| f.address.to_string()).collect();
            assert_eq!(freed, expected, "{subnet:?} {address:?}");
            assert_eq!(ipam.check(), []);
        }
    }

    #[test]
    fn address_that_two_pools_list_is_released_in_both() {
        let (wide, narrow) = ("10.0.0.0/15", ONE);
        for lists in [&[wide, narrow][..], &[wide]] {
            let mut ipam = with_pools(&[(narrow, 0, &["10.1.0.5"])]);
            let a = attachment("a", "eth0");
            take(&mut ipam, &a, narrow, "10.1.0.5");
            let pools = lists.iter().map(|subnet| listed(subnet, &["10.1.0.5"]));
            let inventory = Inventory {
                pools: pools.collect(),
            };
            ipam.merge(&inventory, NOW);
            ipam.release(&a, Hint::default(), NOW);
            let released = ipam.records().map(|record| record.free().unwrap().released);
            assert_eq!(released.collect::<Vec<_>>(), vec![Some(NOW); lists.len()]);
        }
    }

    #[test]
    fn last_namespace_is_forgotten_when_gone_but_not_at_once() {
        const SECOND: u64 = 1_000_000_000;
        for (seconds, is_gone, is_kept) in [(29, true, true), (30, true, false), (99, false, true)]
        {
            let mut ipam = state();
            record(&mut ipam, "10.1.0.5").usage = Usage::Free(Free {
                released: Some(Moment(SECOND)),
                last_netns: Some(NetNs {
                    path: "/run/netns/one".into(),
                    id: None,
                    cookie: None,
                }),
                ..Free::default()
            });
            ipam.forget_gone_namespaces(Moment(SECOND * (1 + seconds)), |_| is_gone);
            let free = record(&mut ipam, "10.1.0.5").free().unwrap();
            assert_eq!(free.last_netns.is_some(), is_kept, "{seconds} {is_gone}");
        }
    }

    #[test]
    fn address_of_two_containers_is_released_for_one() {
        let both: &[&str] = &["10.1.0.5"];
        let mut ipam = with_pools(&[("10.0.0.0/15", 0, both), (ONE, 0, both)]);
        for (pool, id) in [("10.0.0.0/15", "a"), (ONE, "b")] {
            let record = pool_of(&mut ipam, pool).record_mut(&ip("10.1.0.5"));
            record.unwrap().usage = Usage::Held(Held {
                holder: Holder::from_container_id(id).into(),
                ..Held::default()
            });
        }
        assert_eq!(ipam.check().len(), 1, "a conflict");
        ipam.release(&attachment("a", "eth0"), Hint::default(), NOW);
        assert_eq!(holders(&ipam), "10.1.0.5=b");
        assert_eq!(ipam.check(), []);
    }

    #[test]
    fn grant_is_revoked_only_if_record_is_unchanged() {
        let mut ipam = state();
        let (a, b) = (attachment("a", "eth0"), attachment("b", "eth0"));
        let grant = take(&mut ipam, &a, ONE, "10.1.0.5");
        let renewed = take(&mut ipam, &a, ONE, "10.1.0.5");
        let before = ipam.clone();
        assert!(!ipam.revoke(&a, &grant), "it was renewed since");
        assert!(!ipam.revoke(&a, &renewed), "a renewal took nothing");
        assert_eq!(ipam, before);
        let fresh = take(&mut ipam, &b, ONE, "10.1.0.6");
        assert!(!ipam.revoke(&a, &fresh), "another's");
        assert!(ipam.revoke(&b, &fresh));
        let free = record(&mut ipam, "10.1.0.6").free().cloned();
        assert_eq!(free, Some(Free::default()), "as if never allocated");
        let unlisted = take(&mut ipam, &b, ONE, "10.1.0.6");
        let inventory = Inventory {
            pools: vec![listed(ONE, &["10.1.0.5"])],
        };
        ipam.merge(&inventory, NOW);
        assert!(ipam.revoke(&b, &unlisted));
        assert_eq!(ipam.spaces["local"].pools[ONE].records.len(), 1);
        assert_eq!(ipam.check(), []);
    }
}
