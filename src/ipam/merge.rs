//! The listing of a source for this node, and how it is merged into the address space `local` (contract section 9, differences D6, D9 and D21).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::mem;
use std::net::IpAddr;

use ipnet::IpNet;

use super::order::sort_by_text;
use super::{Free, Ipam, Moment, Pool, Record, Space, Subnet, Usage, by_text};

/// The space that sources fill, whatever space a call requests.
const LOCAL: &str = "local";

/// The counts of a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// New pools.
    pub pools_added: usize,
    /// Removed pools: unused, and no longer listed.
    pub pools_removed: usize,
    /// New addresses.
    pub added: usize,
    /// Removed addresses: free, and no longer listed.
    pub removed: usize,
    /// Held addresses that are no longer listed. They stay until their release.
    pub unlisted: usize,
    /// Whether the state changed.
    pub changed: bool,
}

impl Ipam {
    /// Merges `inventory` into the space `local`. A held address is never removed (promise P6).
    pub fn merge(&mut self, inventory: &Inventory, now: Moment) -> Merged {
        let mut report = Merged::default();
        let local = self.spaces.entry(LOCAL.to_owned()).or_insert_with(|| {
            report.changed = true;
            Space {
                id: LOCAL.to_owned(),
                ..Space::default()
            }
        });
        let mut listed: Vec<Option<&ListedPool>> = inventory.pools.iter().map(Some).collect();
        local.pools.retain(|key, pool| {
            let net = key.parse().ok().or_else(|| pool.subnet.net());
            let as_listed = listed
                .iter_mut()
                .find(|l| l.is_some_and(|l| Some(l.subnet.trunc()) == net))
                .and_then(Option::take);
            if let Some(as_listed) = as_listed {
                report.changed |= pool.follow(as_listed);
            }
            let addresses = as_listed.map_or(&[][..], |l| &l.addresses);
            pool.update(addresses, &mut self.omitted, &mut report, now);
            // A listed subnet is a pool, with or without addresses (difference D22).
            let stays = as_listed.is_some() || !pool.records.is_empty() || pool.ref_count > 0;
            report.pools_removed += usize::from(!stays);
            stays
        });
        for new in listed.into_iter().flatten() {
            let mut pool = Pool {
                id: new.subnet.trunc().to_string(),
                ..Pool::default()
            };
            pool.follow(new);
            pool.update(&new.addresses, &mut self.omitted, &mut report, now);
            local.pools.insert(pool.id.clone(), pool);
            report.pools_added += 1;
        }
        self.share_releases();
        report.changed |=
            report.pools_added + report.pools_removed + report.added + report.removed > 0;
        report
    }
}

impl Pool {
    /// Takes over interface, priority and gateway, and a subnet that the state lacks. Returns whether anything changed.
    fn follow(&mut self, listed: &ListedPool) -> bool {
        let had_subnet = self.subnet.net().is_some();
        let is_same = self.if_name == listed.if_name
            && self.priority == listed.priority
            && self.gateway == Some(listed.gateway)
            && had_subnet;
        self.if_name.clone_from(&listed.if_name);
        self.priority = listed.priority;
        self.gateway = Some(listed.gateway);
        if !had_subnet {
            self.subnet = Subnet::from_net(listed.subnet.trunc());
            self.is_ipv6 = listed.subnet.addr().is_ipv6();
        }
        !is_same
    }

    /// Adds free records for new addresses, and removes free records that are not listed. Marks held records that are not listed. The
    /// releases of removed records are kept in `omitted`.
    fn update(
        &mut self,
        listed: &[IpAddr],
        omitted: &mut BTreeMap<IpAddr, Free>,
        report: &mut Merged,
        now: Moment,
    ) {
        let mut listed = listed.to_vec();
        if !listed.is_sorted_by(|a, b| by_text(a, b).is_lt()) {
            sort_by_text(&mut listed);
        }
        // An address that differs from its key was never listed.
        let is_repaired = self.records.iter().all(Record::has_address_of_key);
        if is_repaired && self.records.iter().map(|record| &record.key).eq(&listed) {
            for record in &mut self.records {
                if let Usage::Held(held) = &mut record.usage {
                    report.changed |= held.unlisted.take().is_some();
                }
            }
            return;
        }
        // The listed addresses that a holder has under another key.
        let listed_elsewhere: Vec<IpAddr> = self
            .held()
            .filter(|(record, _)| !record.has_address_of_key())
            .map(|(record, _)| record.address())
            .filter(|address| listed.contains(address))
            .collect();
        let mut listed = listed.into_iter().peekable();
        let old = mem::take(&mut self.records);
        self.records.reserve_exact(old.len().max(listed.len()));
        for mut record in old {
            let address = record.address();
            while let Some(new) = listed.next_if(|l| by_text(l, &record.key).is_lt()) {
                self.records.push(Record::new(new));
                report.added += 1;
            }
            let is_key_listed = listed
                .next_if(|l| by_text(l, &record.key) == Ordering::Equal)
                .is_some();
            let is_listed = if record.free().is_some() || record.has_address_of_key() {
                is_key_listed
            } else {
                listed_elsewhere.contains(&address)
            };
            match &mut record.usage {
                Usage::Free(free) if !is_listed => {
                    report.removed += 1;
                    if free.released.is_some() {
                        omitted.insert(address, mem::take(free));
                    }
                    continue;
                }
                Usage::Free(_) => {
                    report.changed |= address != record.key;
                    record.addr = Some(record.key);
                }
                Usage::Held(held) => {
                    report.unlisted += usize::from(!is_listed);
                    report.changed |= held.unlisted.is_some() == is_listed;
                    held.unlisted = if is_listed {
                        None
                    } else {
                        held.unlisted.or(Some(now))
                    };
                }
            }
            self.records.push(record);
        }
        report.added += listed.len();
        self.records.extend(listed.map(Record::new));
    }
}

/// The pools that a source lists, each subnet once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// In the order of the source.
    pub pools: Vec<ListedPool>,
}

/// One subnet with the addresses that pods may have.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedPool {
    /// The subnet, without host bits.
    pub subnet: IpNet,
    /// The interface of the host that carries it.
    pub if_name: String,
    /// 0 for the primary interface, 1 for others.
    pub priority: i64,
    /// The gateway of the subnet.
    pub gateway: IpAddr,
    /// The addresses, in any order. Repetitions count once.
    pub addresses: Vec<IpAddr>,
}

impl ListedPool {
    /// Creates a pool with the gateway that the original derives: the network address with its lowest bit set, for a /31 and a /32
    /// as well (contract section 7).
    pub fn new(subnet: IpNet, if_name: String, priority: i64, addresses: Vec<IpAddr>) -> Self {
        let gateway = match subnet.network() {
            IpAddr::V4(network) => IpAddr::from((u32::from(network) | 1).to_be_bytes()),
            IpAddr::V6(network) => IpAddr::from((u128::from(network) | 1).to_be_bytes()),
        };
        ListedPool {
            subnet,
            if_name,
            priority,
            gateway,
            addresses,
        }
    }
}

/// The addresses of a subnet that no pod may have: the network itself, the broadcast address, and the gateway. Subnets of one or two
/// addresses reserve none. In IPv6 the network itself is the anycast address of the routers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reserved {
    network: Option<IpAddr>,
    broadcast: Option<IpAddr>,
    gateway: Option<IpAddr>,
}

impl Reserved {
    /// Creates the reserved addresses of a subnet.
    pub fn new(subnet: &IpNet, gateway: Option<IpAddr>) -> Reserved {
        if subnet.max_prefix_len() - subnet.prefix_len() < 2 {
            return Reserved::default();
        }
        let broadcast = subnet.broadcast();
        Reserved {
            network: Some(subnet.network()),
            broadcast: Some(broadcast).filter(IpAddr::is_ipv4),
            gateway,
        }
    }

    /// Returns the role of a reserved address; `None` for any other address.
    pub fn name(&self, address: IpAddr) -> Option<&'static str> {
        let is = |reserved: Option<IpAddr>| reserved == Some(address);
        if is(self.network) {
            Some("the network address of")
        } else if is(self.broadcast) {
            Some("the broadcast address of")
        } else {
            is(self.gateway).then_some("the gateway of")
        }
    }
}

impl Inventory {
    /// Returns the number of listed addresses.
    pub fn addresses(&self) -> usize {
        self.pools.iter().map(|p| p.addresses.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::testing::{attached, hold, listed, pool, record};

    const NOW: Moment = Moment(7);

    fn merge(ipam: &mut Ipam, pools: &[(&str, &[&str])]) -> Merged {
        let pools = pools
            .iter()
            .map(|(subnet, addresses)| listed(subnet, addresses));
        let inventory = Inventory {
            pools: pools.collect(),
        };
        ipam.merge(&inventory, NOW)
    }

    fn addresses(ipam: &Ipam, pool: &str) -> Vec<String> {
        let records = &ipam.spaces["local"].pools[pool].records;
        records.iter().map(|r| r.key.to_string()).collect()
    }

    #[test]
    fn first_answer_fills_the_space() {
        let (v4, v6) = ("10.224.0.0/16", "fd00::/120");
        let mut ipam = Ipam::default();
        let answer = [
            (v4, &["10.224.0.9", "10.224.0.10", "10.224.0.9"][..]),
            (v6, &["fd00::a", "fd00::2"]),
        ];
        let merged = merge(&mut ipam, &answer);
        assert_eq!((merged.pools_added, merged.added), (2, 4));
        assert!(merged.changed);
        assert_eq!(addresses(&ipam, v4), ["10.224.0.10", "10.224.0.9"]);
        assert_eq!(addresses(&ipam, v6), ["fd00::2", "fd00::a"]);
        assert!(ipam.spaces["local"].pools[v6].is_ipv6);
        assert_eq!(merge(&mut ipam, &answer), Merged::default());
        let mut empty = Ipam::default();
        assert!(merge(&mut empty, &[]).changed);
        assert!(empty.spaces["local"].pools.is_empty());
    }

    #[test]
    fn unlisted_pool_is_removed_when_empty_and_not_flagged() {
        let mut ipam = Ipam::default();
        merge(
            &mut ipam,
            &[
                ("10.1.0.0/16", &["10.1.0.5"]),
                ("10.2.0.0/16", &["10.2.0.5"]),
            ],
        );
        pool(&mut ipam, "10.2.0.0/16").ref_count = 1;
        let merged = merge(&mut ipam, &[("10.3.0.0/16", &["10.3.0.5"])]);
        assert_eq!((merged.pools_removed, merged.pools_added), (1, 1));
        let keys: Vec<_> = ipam.spaces["local"].pools.keys().cloned().collect();
        assert_eq!(keys, ["10.2.0.0/16", "10.3.0.0/16"]);
    }

    #[test]
    fn listed_pool_without_addresses_stays() {
        let mut ipam = Ipam::default();
        let merged = merge(&mut ipam, &[("10.1.0.0/16", &[])]);
        assert_eq!(merged.pools_added, 1);
        assert_eq!(merge(&mut ipam, &[("10.1.0.0/16", &[])]), Merged::default());
        assert!(addresses(&ipam, "10.1.0.0/16").is_empty());
        assert_eq!(merge(&mut ipam, &[]).pools_removed, 1);
    }

    #[test]
    fn held_address_is_unlisted_from_first_answer_that_omits_it() {
        let subnet = "10.1.0.0/16";
        let mut ipam = Ipam::default();
        merge(&mut ipam, &[(subnet, &["10.1.0.5"])]);
        hold(&mut ipam, "10.1.0.5", attached("c1", 1), NOW);
        let unlisted = |ipam: &mut Ipam| record(ipam, "10.1.0.5").held().unwrap().unlisted;
        let answer = |addresses: &[&str]| Inventory {
            pools: vec![listed(subnet, addresses)],
        };
        for (addresses, now, expected) in [
            (&["10.1.0.5"][..], 8, None),
            (&[], 9, Some(Moment(9))),
            (&["10.1.0.6"], 10, Some(Moment(9))),
            (&["10.1.0.5"], 11, None),
        ] {
            let merged = ipam.merge(&answer(addresses), Moment(now));
            assert_eq!(unlisted(&mut ipam), expected);
            assert_eq!(merged.unlisted, usize::from(expected.is_some()));
        }
    }

    #[test]
    fn pool_is_found_by_value_and_follows_source() {
        let mut ipam = Ipam::default();
        let local = ipam.spaces.entry("local".into()).or_default();
        local.pools.insert("10.1.0.0/16".into(), Pool::default());
        let moved = ListedPool {
            if_name: "eth1".into(),
            priority: 1,
            ..listed("10.1.0.9/16", &["10.1.0.5"])
        };
        let merged = ipam.merge(&Inventory { pools: vec![moved] }, NOW);
        assert_eq!((merged.pools_added, merged.added), (0, 1));
        let pool = pool(&mut ipam, "10.1.0.0/16");
        assert_eq!(pool.subnet.net(), "10.1.0.0/16".parse().ok());
        assert_eq!((pool.if_name.as_str(), pool.priority), ("eth1", 1));
    }

    #[test]
    fn free_record_gets_listed_address() {
        let subnet = "10.1.0.0/16";
        let mut ipam = Ipam::default();
        let answer = [(subnet, &["10.1.0.5", "10.1.0.6", "10.1.0.7"][..])];
        merge(&mut ipam, &answer);
        hold(&mut ipam, "10.1.0.6", attached("c1", 1), NOW);
        for address in ["10.1.0.5", "10.1.0.6"] {
            record(&mut ipam, address).addr = "10.1.0.77".parse().ok();
        }
        let merged = merge(&mut ipam, &answer);
        assert_eq!((merged.changed, merged.unlisted), (true, 1));
        let addresses: Vec<_> = ipam.records().map(|r| r.address().to_string()).collect();
        assert_eq!(addresses, ["10.1.0.5", "10.1.0.77", "10.1.0.7"]);
        assert_eq!(merge(&mut ipam, &answer).added, 0);
    }

    #[test]
    fn network_broadcast_and_gateway_are_reserved() {
        for (subnet, address, expected) in [
            ("10.1.0.0/16", "10.1.0.0", Some("the network address of")),
            ("10.1.0.0/16", "10.1.0.1", Some("the gateway of")),
            ("10.1.0.0/16", "10.1.0.2", None),
            (
                "10.1.0.0/16",
                "10.1.255.255",
                Some("the broadcast address of"),
            ),
            ("10.1.0.0/30", "10.1.0.3", Some("the broadcast address of")),
            ("10.1.0.0/31", "10.1.0.0", None),
            ("10.1.0.0/31", "10.1.0.1", None),
            ("10.1.0.0/32", "10.1.0.0", None),
            ("fd00::/120", "fd00::", Some("the network address of")),
            ("fd00::/120", "fd00::1", Some("the gateway of")),
            ("fd00::/120", "fd00::ff", None),
            ("fd00::/127", "fd00::1", None),
            ("fd00::/128", "fd00::", None),
        ] {
            let pool = listed(subnet, &[]);
            let reserved = Reserved::new(&pool.subnet, Some(pool.gateway));
            let found = reserved.name(address.parse().unwrap());
            assert_eq!(found, expected, "{subnet} {address}");
        }
    }

    #[test]
    fn gateway_is_network_with_lowest_bit_set() {
        for (subnet, gateway) in [
            ("10.224.0.0/16", "10.224.0.1"),
            ("10.1.1.128/25", "10.1.1.129"),
            ("10.1.3.6/31", "10.1.3.7"),
            ("10.1.4.6/32", "10.1.4.7"),
            ("fd00:1:2::/120", "fd00:1:2::1"),
        ] {
            let pool = ListedPool::new(subnet.parse().unwrap(), "eth0".into(), 0, vec![]);
            assert_eq!(pool.gateway, gateway.parse::<IpAddr>().unwrap(), "{subnet}");
        }
    }
}
