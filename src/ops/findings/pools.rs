//! The pools of the state: their usage, and whether the source still lists them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::finding::{Finding, FindingKind};
use crate::cni::IpamConfig;
use crate::ipam::{Ipam, Moment, PoolCount};
use crate::source::MatchedListing;

const KIND: FindingKind = FindingKind::Pool;

/// A subnet that this plugin allocates from, known from the state or the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPool {
    /// The subnet.
    pub subnet: IpNet,
    /// The interface of the host that carries it; empty when unknown.
    pub if_name: String,
    /// Its addresses.
    pub addresses: BTreeSet<IpAddr>,
}

impl KnownPool {
    /// Whether two subnets have an address in common.
    pub fn overlaps(&self, other: &IpNet) -> bool {
        self.subnet.contains(other) || other.contains(&self.subnet)
    }
}

/// All pools of the state and of the source, each subnet once. The subnet of all addresses, which stands for no pools, is left
/// out.
pub fn known_pools(ipam: &Ipam, matched: Option<&MatchedListing>) -> Vec<KnownPool> {
    let mut all = Vec::new();
    for (_, key, pool) in ipam.pools() {
        if let Some(subnet) = pool.net(key) {
            let addresses = pool.records.iter().map(|record| record.address());
            add(&mut all, subnet, &pool.if_name, addresses);
        }
    }
    for pool in matched.iter().flat_map(|m| &m.inventory.pools) {
        let addresses = pool.addresses.iter().copied();
        add(&mut all, pool.subnet, &pool.if_name, addresses);
    }
    all
}

fn add(
    all: &mut Vec<KnownPool>,
    subnet: IpNet,
    if_name: &str,
    addresses: impl Iterator<Item = IpAddr>,
) {
    if subnet.prefix_len() == 0 {
        return;
    }
    let place = match all.iter().position(|pool| pool.subnet == subnet) {
        Some(place) => place,
        None => {
            all.push(KnownPool {
                subnet,
                if_name: if_name.to_owned(),
                addresses: BTreeSet::new(),
            });
            all.len() - 1
        }
    };
    if let Some(pool) = all.get_mut(place) {
        pool.addresses.extend(addresses);
    }
}

/// Examines each pool of the state; `matched` is the answer of the source, if there is one.
pub fn examine(
    ipam: &Ipam,
    matched: Option<&MatchedListing>,
    conf: &IpamConfig,
    now: Moment,
    program: &str,
) -> Vec<Finding> {
    let listed: Option<Vec<IpNet>> =
        matched.map(|m| m.inventory.pools.iter().map(|pool| pool.subnet).collect());
    let mut lines = Vec::new();
    let counts = ipam.counts(conf.cooldown, &conf.exclude, now);
    for ((_, key, pool), (_, count)) in ipam.pools().zip(counts) {
        // A source that lists all addresses has no pools of its own.
        let is_gone = listed.as_ref().is_some_and(|listed| {
            let has = |net: &IpNet| net.prefix_len() == 0 || Some(*net) == pool.net(key);
            !listed.iter().any(has)
        });
        lines.push(line(key, &count, is_gone, program));
    }
    lines
}

fn line(subnet: &str, count: &PoolCount, is_gone: bool, program: &str) -> Finding {
    let mut text = format!("{subnet}: {} held, {} free", count.held, count.free);
    for (count, what) in [
        (count.resting, "resting"),
        (count.excluded, "excluded"),
        (count.on_host, "on the host"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    if is_gone {
        text.push_str("; the source no longer lists it");
        let remedy = "no action needed if that is intended: its addresses are removed as they are released; if not, look at the network interface in Azure";
        return Finding::note(KIND, &text, &remedy).about(subnet);
    }
    if count.free + count.resting == 0 && count.on_host > 0 {
        text.push_str("; no address is left");
        let remedy = "addresses that the host has are not given to pods: remove them from the host, as below";
        return Finding::warning(KIND, &text, &remedy).about(subnet);
    }
    if count.free + count.resting == 0 {
        text.push_str("; no address is left");
        let remedy = format_args!(
            "where every holder lives, the node has as many pods as it has addresses: assign more secondary IP configurations to it in Azure; this shows the holders:"
        );
        let finding = Finding::warning(KIND, &text, &remedy).about(subnet);
        return finding.with_commands([format!("sudo {program} show {subnet}")]);
    }
    Finding::ok(KIND, &text)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;
    use crate::ipam::{Inventory, ListedPool};

    fn listed(subnet: &str, addresses: &[&str]) -> MatchedListing {
        let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
        let pool = ListedPool::new(subnet.parse().unwrap(), "eth0".into(), 0, addresses);
        MatchedListing {
            inventory: Inventory { pools: vec![pool] },
            ..MatchedListing::default()
        }
    }

    fn stored(matched: &MatchedListing) -> Ipam {
        let mut ipam = Ipam::default();
        ipam.merge(&matched.inventory);
        ipam
    }

    #[test]
    fn pools_of_state_and_source_are_one() {
        let matched = listed("10.1.0.0/16", &["10.1.0.5", "10.1.0.6"]);
        let ipam = stored(&listed("10.1.0.0/16", &["10.1.0.6", "10.1.0.7"]));
        let all = known_pools(&ipam, Some(&matched));
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].addresses.len(), 3);
        assert!(all[0].overlaps(&"10.1.3.0/24".parse().unwrap()));
        assert!(all[0].overlaps(&"10.0.0.0/8".parse().unwrap()));
        assert!(!all[0].overlaps(&"10.2.0.0/16".parse().unwrap()));
        assert_eq!(
            known_pools(&Ipam::default(), Some(&listed("0.0.0.0/0", &[]))),
            []
        );
    }

    #[test]
    fn addresses_that_cannot_be_allocated_are_not_free() {
        let count = PoolCount {
            held: 1,
            free: 1,
            resting: 2,
            on_host: 3,
            excluded: 4,
            ..PoolCount::default()
        };
        let text = line("x", &count, false, "azure-vnet-ipam").text;
        assert_eq!(
            text,
            "x: 1 held, 1 free, 2 resting, 4 excluded, 3 on the host"
        );
        let rests = line(
            "x",
            &PoolCount {
                free: 0,
                ..count.clone()
            },
            false,
            "azure-vnet-ipam",
        );
        assert_eq!(
            rests.severity,
            Severity::Ok,
            "an address in cooldown is allocated when nothing else is free"
        );
        let full = PoolCount {
            free: 0,
            resting: 0,
            ..count
        };
        let full = line("x", &full, false, "azure-vnet-ipam");
        assert_eq!(full.severity, Severity::Warning);
        assert!(full.text.ends_with("no address is left"));
    }

    #[test]
    fn an_unlisted_pool_is_reported() {
        let old = listed("10.1.0.0/16", &["10.1.0.5"]);
        let ipam = stored(&old);
        let status = |matched: Option<&MatchedListing>| {
            examine(
                &ipam,
                matched,
                &IpamConfig::default(),
                Moment(0),
                "azure-vnet-ipam",
            )[0]
            .severity
        };
        assert_eq!(status(Some(&old)), Severity::Ok);
        assert_eq!(status(None), Severity::Ok, "the source did not answer");
        assert_eq!(status(Some(&listed("0.0.0.0/0", &[]))), Severity::Ok);
        let other = listed("10.2.0.0/16", &["10.2.0.5"]);
        assert_eq!(status(Some(&other)), Severity::Note);
    }
}
