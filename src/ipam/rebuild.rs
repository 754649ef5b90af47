//! Rebuilds a state that was lost, or that the original may have started from nothing. Addresses that the node shows in use become held.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::evidence::Evidence;
use super::evidence_index::{AddressUser, EvidenceIndex};
use super::{Attachment, Held, Holder, Ipam, Moment, Record, Usage};

impl Ipam {
    /// Makes every free address held that the kernel or a list shows in use by a pod. Its holder is the one that the lists agree on, if
    /// they do. Returns the addresses and their holders.
    ///
    /// An address of the host itself is only marked. A released address stays free while only the network namespace of its former holder
    /// has it.
    ///
    /// An entry of this boot that names no namespace counts for an address that was not released since the boot. After a loss it counts for
    /// every address, because nothing else may show a pod that is hidden from the kernel scan.
    pub fn hold_evident(
        &mut self,
        evidence: &Evidence,
        now: Moment,
        is_after_a_loss: bool,
    ) -> Vec<(IpAddr, Box<Holder>)> {
        let generation = self.generation + 1;
        // An address that two pools list has one holder.
        let mut held = self.held_addresses();
        let index = EvidenceIndex::new(evidence, self);
        let mut found = Vec::new();
        for (address, usage) in self.usages_mut() {
            let Usage::Free(free) = usage else { continue };
            let all_of_this_boot = is_after_a_loss || free.released.is_none();
            match index.user_of(address, all_of_this_boot) {
                AddressUser::None => {}
                AddressUser::Host => free.on_host = true,
                AddressUser::Pod if index.is_left_over(address, free, now, is_after_a_loss) => {}
                AddressUser::Pod => {
                    if held.insert(address) {
                        let holder = index.holder(address, generation);
                        *usage = Usage::Held(Held {
                            holder: holder.clone(),
                            since: now,
                            ..Held::default()
                        });
                        found.push((address, holder));
                    }
                }
            }
        }
        if !found.is_empty() {
            self.generation = generation;
        }
        found
    }

    /// Replaces the holders that the node does not confirm by those that the lists agree on. The addresses stay held. The new holders count
    /// as first seen now.
    ///
    /// In an old copy of the state the holder of an address may be gone. Its late DEL would then release an address that another pod has by
    /// now.
    pub fn confirm_holders(&mut self, evidence: &Evidence, now: Moment) {
        self.replace_holders(evidence, now, |index, address, held| {
            !index.confirms(address, held)
        });
    }

    /// Replaces the holders that a scan contradicts. `began` is the start of the scan. The state may be an old copy, although nothing
    /// proves that.
    pub fn replace_outdated_holders(
        &mut self,
        evidence: &Evidence,
        began: Moment,
        now: Moment,
        of_another_boot: bool,
    ) {
        self.replace_holders(evidence, now, |index, address, held| {
            index.is_outdated(address, held, began, of_another_boot)
        });
    }

    fn replace_holders(
        &mut self,
        evidence: &Evidence,
        now: Moment,
        is_wrong: impl Fn(&EvidenceIndex<'_>, IpAddr, &Held) -> bool,
    ) {
        let index = EvidenceIndex::new(evidence, self);
        let generation = self.generation;
        for (address, held) in self.holders_mut() {
            if is_wrong(&index, address, held) {
                let mut holder = index.holder(address, generation);
                // An entry may name no namespace. A record of the same container then has it.
                if holder.container_id() == held.holder.container_id()
                    && holder.has_interface()
                    && holder.netns.is_none()
                {
                    holder.netns = held.holder.netns.take();
                }
                held.holder = holder;
                (held.since, held.suspect) = (now, None);
            }
        }
    }

    /// Returns the addresses of the pools that the kernel or a list shows in use by pods, when no state is left.
    pub fn used_by_pods(&self, evidence: &Evidence) -> Vec<IpAddr> {
        let index = EvidenceIndex::new(evidence, self);
        self.records()
            .map(Record::address)
            .filter(|address| index.user_of(*address, true) == AddressUser::Pod)
            .collect()
    }

    /// Returns whether the attachment's container holds an address for an unknown interface.
    pub fn lacks_interface(&self, attachment: &Attachment) -> bool {
        self.holders().any(|held| {
            !held.holder.has_interface() && held.holder.is_container(&attachment.container_id)
        })
    }

    /// Completes the holders of the original's records, which name only the container, if its entries for the address agree. Returns
    /// whether it completed any.
    pub fn complete_holders(&mut self, evidence: &Evidence) -> bool {
        let generation = self.generation;
        let index = EvidenceIndex::new(evidence, self);
        let mut is_any_completed = false;
        for (address, held) in self.holders_mut() {
            if !held.holder.has_interface()
                && !held.holder.is_unknown()
                && index.user_of(address, false) == AddressUser::Pod
                && let Some(holder) =
                    index.attachment_at(address, held.holder.container_id(), generation)
            {
                held.holder = holder;
                is_any_completed = true;
            }
        }
        is_any_completed
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
    use crate::ipam::testing::{attached, hold, holders, ip, listed, record, shows, with_pools};
    use crate::ipam::{Entry, EvidenceList, Free, Inventory, NetNs, Place};

    const NOW: Moment = Moment(77);

    fn state() -> Ipam {
        with_pools(&[("10.1.0.0/16", 0, &["10.1.0.5", "10.1.0.6", "10.1.0.7"])])
    }

    fn entry(id: &str, address: &str, inode: u64) -> Entry {
        Entry {
            holder: Holder {
                netns: Some(NetNs {
                    path: "/run/netns/x".into(),
                    id: Some((4, inode)),
                    cookie: None,
                }),
                ..attached(id, 0)
            },
            addresses: vec![ip(address)],
            is_live: true,
            ..Entry::default()
        }
    }

    fn with_entries(entries: Vec<Entry>) -> Evidence {
        Evidence {
            cache: EvidenceList::Read {
                entries,
                doubtful: vec![],
            },
            ..Evidence::default()
        }
    }

    #[test]
    fn released_address_stays_free_only_while_last_namespace_has_it() {
        let at = |seconds: u64| Moment(1_000_000_000 * seconds);
        let id = |ino, cookie| NetNs {
            path: "/run/netns/x".into(),
            id: Some((4, ino)),
            cookie,
        };
        let own = || Some(id(77, None));
        let shown = || {
            let mut evidence = shows(&["10.1.0.5"]);
            let namespaces = &mut evidence.kernel.addresses_by_namespace;
            namespaces.insert((4, 77), [ip("10.1.0.5")].into());
            evidence.kernel.cookies.insert((4, 77), 9);
            evidence
        };
        let listed_in = |inode| with_entries(vec![entry("c2", "10.1.0.5", inode)]);
        // An entry as libcni before version 1.2 writes it. It counts after an incomplete scan.
        let without_namespace = |container: &str| {
            let mut scan = with_entries(vec![Entry {
                holder: attached(container, 0),
                is_live: false,
                of_this_boot: true,
                ..entry(container, "10.1.0.5", 0)
            }]);
            scan.kernel.incomplete = Some("hidden".to_owned());
            scan
        };
        let gone = |path: &str| {
            let mut scan = listed_in(77);
            if let EvidenceList::Read { entries, .. } = &mut scan.cache {
                entries[0].holder.netns = Some(NetNs {
                    path: path.into(),
                    id: None,
                    cookie: None,
                });
            }
            scan
        };
        let elsewhere = || with_entries(vec![entry("c1", "10.1.0.5", 78)]);
        // The scan found an earlier namespace with its inode.
        let listed_later = |cookie| {
            let mut scan = listed_in(77);
            scan.kernel.cookies.insert((4, 77), 7);
            if let EvidenceList::Read { entries, .. } = &mut scan.cache {
                entries[0].holder.netns.as_mut().unwrap().cookie = Some(cookie);
            }
            scan
        };
        let numbered = || Some(id(77, Some(8)));
        for (name, last, age, scan, is_held) in [
            ("its own", own(), 29, shown(), false),
            ("by number", Some(id(77, Some(9))), 29, shown(), false),
            (
                "by number, long ago",
                Some(id(77, Some(9))),
                99,
                shown(),
                false,
            ),
            ("reused", numbered(), 29, shown(), true),
            ("long ago", own(), 30, shown(), true),
            ("unknown", None, 1, shown(), true),
            ("another", Some(id(78, None)), 1, shown(), true),
            ("anywhere", own(), 1, shows(&["10.1.0.5"]), true),
            ("listed there", own(), 1, listed_in(77), false),
            ("listed elsewhere", own(), 1, listed_in(78), true),
            ("listed later", numbered(), 1, listed_later(8), false),
            ("its successor's", numbered(), 1, listed_later(9), true),
            ("its container elsewhere", own(), 1, elsewhere(), true),
            (
                "listed there, and gone",
                own(),
                1,
                gone("/run/netns/x"),
                false,
            ),
            (
                "listed elsewhere, and gone",
                own(),
                1,
                gone("/run/netns/y"),
                true,
            ),
            (
                "listed without a namespace",
                own(),
                1,
                without_namespace("c1"),
                true,
            ),
        ] {
            let mut ipam = state();
            record(&mut ipam, "10.1.0.5").usage = Usage::Free(Free {
                released: Some(at(100)),
                last_netns: last,
                ..Free::default()
            });
            ipam.hold_evident(&scan, at(100 + age), false);
            assert_eq!(!holders(&ipam).is_empty(), is_held, "{name}");
        }
    }

    #[test]
    fn address_of_the_other_name_is_held_too() {
        // The other state may hold it only because of a rebuild.
        let mut scan = with_entries(vec![entry("c1", "10.1.0.5", 77)]);
        let other = &mut scan.other_name.holders;
        other.insert(ip("10.1.0.5"), attached("c1", 0));
        let mut ipam = state();
        ipam.hold_evident(&scan, NOW, true);
        assert_eq!(holders(&ipam), "10.1.0.5=c1");
    }

    #[test]
    fn old_copy_keeps_held_addresses_but_only_confirmed_holders() {
        let mut ipam = state();
        let all = [("10.1.0.5", "c1"), ("10.1.0.6", "c2"), ("10.1.0.7", "c3")];
        let entries = all.map(|(address, id)| entry(id, address, 77)).into();
        ipam.hold_evident(&with_entries(entries), NOW, false);
        let confirmed = vec![entry("c9", "10.1.0.5", 77), entry("c2", "10.1.0.6", 77)];
        ipam.confirm_holders(&with_entries(confirmed), NOW);
        assert_eq!(holders(&ipam), "10.1.0.5=c9 10.1.0.6=c2 10.1.0.7=");
        // Another of its interfaces may have the address by now.
        let mut other_interface = entry("c2", "10.1.0.6", 77);
        other_interface.holder.attachment.if_name = "net1".into();
        ipam.confirm_holders(&with_entries(vec![other_interface]), NOW);
        let holder = &record(&mut ipam, "10.1.0.6").held().unwrap().holder;
        assert_eq!(holder.attachment.if_name, "net1");
        // An entry of the same container without a namespace does not change the namespace of the record.
        let without_namespace = Entry {
            holder: attached("c2", 0),
            ..entry("c2", "10.1.0.6", 77)
        };
        let mut scan = with_entries(vec![without_namespace]);
        let netns = holder.netns.clone();
        assert!(netns.is_some());
        ipam.confirm_holders(&scan, NOW);
        let holder = &record(&mut ipam, "10.1.0.6").held().unwrap().holder;
        assert_eq!(holder.attachment.if_name, "eth0");
        assert_eq!(holder.netns, netns);
        // Its namespace may have outlasted its DEL.
        scan = Evidence::default();
        scan.kernel.namespaces.insert((4, 77));
        ipam.confirm_holders(&scan, NOW);
        assert_eq!(holders(&ipam), "10.1.0.5= 10.1.0.6= 10.1.0.7=");
    }

    #[test]
    fn address_on_host_is_marked_and_stays_free() {
        let mut ipam = state();
        let mut scan = Evidence::default();
        scan.kernel.configured.insert(ip("10.1.0.5"), Place::Host);
        assert!(ipam.hold_evident(&scan, NOW, false).is_empty());
        let is_marked = |ipam: &mut Ipam| record(ipam, "10.1.0.5").free().unwrap().on_host;
        assert!(is_marked(&mut ipam));
        let others = [ip("10.1.0.6"), ip("10.1.0.7")].into();
        assert_eq!(ipam.mark_on_host(&others), 2);
        assert!(!is_marked(&mut ipam), "marks follow the host");
    }

    #[test]
    fn address_in_two_pools_is_held_in_one() {
        let mut ipam = state();
        let pools = ["10.1.0.0/24", "10.1.0.0/16"].map(|net| listed(net, &["10.1.0.5"]));
        let inventory = Inventory {
            pools: pools.into(),
        };
        ipam.merge(&inventory, NOW);
        ipam.hold_evident(&shows(&["10.1.0.5"]), NOW, false);
        assert_eq!(holders(&ipam), "10.1.0.5=");
    }

    #[test]
    fn quarantine_keeps_holder_without_evidence_unless_pod_has_its_address() {
        for (evidence, expected) in [
            (Evidence::default(), "10.1.0.5=agent"),
            (shows(&["10.1.0.5"]), "10.1.0.5="),
        ] {
            let mut ipam = with_pools(&[("10.1.0.0/16", 0, &["10.1.0.5"])]);
            let agent = Holder {
                is_kept: true,
                ..attached("agent", 1)
            };
            hold(&mut ipam, "10.1.0.5", agent, NOW);
            ipam.generation = 1;
            ipam.confirm_holders(&evidence, NOW);
            assert_eq!(holders(&ipam), expected);
        }
    }
}
