//! Making up for a state that was lost, or that may have been started from nothing: what the node shows to be in use is held.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::evidence::{Entry, Evidence, Place};
use super::{Claim, Held, Ipam, Moment, Record, Usage};

/// An address that was found in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The address.
    pub address: IpAddr,
    /// Its holder's container ID; empty when unknown.
    pub container_id: String,
}

impl Ipam {
    /// Holds every address of the pools that the kernel or a list shows to be in use, with its owner where a list knows it.
    /// One that the host itself has is nobody's, and is only marked. Holds more where less is known, never less.
    pub fn hold_evident(&mut self, evidence: &Evidence, now: Moment) -> Vec<Found> {
        let generation = self.generation + 1;
        let mut found = Vec::new();
        // An address that two pools list has one holder.
        let held = self
            .pools()
            .flat_map(|(_, _, pool)| &pool.records)
            .filter(|r| r.held().is_some());
        let mut held: BTreeSet<IpAddr> = held.map(Record::address).collect();
        for pool in self.pools_mut() {
            for record in &mut pool.records {
                let address = record.address();
                let Usage::Free(free) = &mut record.usage else {
                    continue;
                };
                if held.contains(&address) {
                    continue;
                }
                let owner = evidence.owner_of(address);
                match (owner, evidence.kernel.configured.get(&address)) {
                    (None, None) => continue,
                    (None, Some(Place::Host)) => {
                        free.wired = true;
                        continue;
                    }
                    (Some(_), _) | (None, Some(Place::Namespace(_))) => {}
                }
                let container_id = owner.map(|o| o.container_id.clone()).unwrap_or_default();
                record.usage = Usage::Held(Held {
                    container_id: container_id.as_str().into(),
                    claim: owner.and_then(|o| o.claim(generation)).map(Box::new),
                    since: now,
                    ..Held::default()
                });
                held.insert(address);
                found.push(Found {
                    address,
                    container_id,
                });
            }
        }
        if !found.is_empty() {
            self.generation = generation;
        }
        found
    }
}

impl Ipam {
    /// Takes note of the free addresses that the host has, so that others are tried first. Gives their number.
    pub fn mark_wired(&mut self, wired: &BTreeSet<IpAddr>) -> usize {
        let mut marked = 0;
        for record in self.pools_mut().flat_map(|pool| &mut pool.records) {
            let address = record.address();
            if let Usage::Free(free) = &mut record.usage {
                free.wired = wired.contains(&address);
                marked += usize::from(free.wired);
            }
        }
        marked
    }
}

impl Evidence {
    /// Who has an address, as far as the lists tell.
    fn owner_of(&self, address: IpAddr) -> Option<&Entry> {
        self.standing()
            .find(|entry| entry.addresses.contains(&address))
    }
}

impl Entry {
    /// The claim that the entry tells of, if it tells the whole identity.
    fn claim(&self, generation: u64) -> Option<Claim> {
        if self.container_id.is_empty() {
            return None;
        }
        Some(Claim {
            network: self.network.as_deref()?.into(),
            if_name: self.if_name.as_deref()?.into(),
            pod: self.pod.as_deref().map(Into::into),
            netns: self.netns.clone(),
            generation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::{Free, Inventory, ListedPool, NetNs, Witness};

    const NOW: Moment = Moment(77);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn state() -> Ipam {
        let addresses = ["10.1.0.5", "10.1.0.6", "10.1.0.7", "10.1.0.8"]
            .map(ip)
            .into();
        let mut ipam = Ipam::default();
        let pool = ListedPool::new("10.1.0.0/16".parse().unwrap(), "eth0".into(), 0, addresses);
        ipam.merge(&Inventory { pools: vec![pool] });
        ipam
    }

    fn entry(id: &str, address: &str, stands: bool) -> Entry {
        Entry {
            container_id: id.into(),
            network: Some("azure".into()),
            if_name: Some("eth0".into()),
            pod: Some("default/web-0".into()),
            netns: Some(NetNs {
                path: "/run/netns/x".into(),
                id: Some((4, 77)),
            }),
            addresses: vec![ip(address)],
            stands,
        }
    }

    fn evidence(configured: &[&str], entries: Vec<Entry>) -> Evidence {
        let mut evidence = Evidence {
            cache: Witness::Read {
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
            .filter_map(|r| Some((r.key.to_string(), r.held()?.container_id.to_string())))
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
            .claim
            .clone()
            .unwrap();
        assert_eq!(
            (&*claim.network, &*claim.if_name, claim.pod.as_deref()),
            ("azure", "eth0", Some("default/web-0"))
        );
        assert_eq!(ipam.check(), []);
        assert!(ipam.hold_evident(&look, NOW).is_empty(), "once is enough");
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
            NOW,
        );
        assert_eq!(holders(&ipam), pairs(&[("10.1.0.5", "c1")]));
    }

    #[test]
    fn with_an_incomplete_look_every_entry_counts() {
        let mut ipam = state();
        let mut look = evidence(
            &["10.1.0.7"],
            vec![
                entry("c1", "10.1.0.5", true),
                entry("c2", "10.1.0.6", false),
            ],
        );
        look.kernel.incomplete = Some("hidden".into());
        ipam.hold_evident(&look, NOW);
        assert_eq!(
            holders(&ipam),
            pairs(&[("10.1.0.5", "c1"), ("10.1.0.6", "c2"), ("10.1.0.7", "")])
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
                wired: true,
                ..Free::default()
            })
        );
        assert_eq!(ipam.mark_wired(&[ip("10.1.0.6"), ip("10.1.0.7")].into()), 2);
        let pool = ipam.pools().next().unwrap().2;
        assert!(
            !pool.record(&ip("10.1.0.5")).unwrap().free().unwrap().wired,
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
