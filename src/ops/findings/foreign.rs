//! Findings about addresses that pods have and this plugin did not allocate. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::finding::{Finding, FindingKind};
use crate::ipam::{Entry, Evidence, Ipam, Place, Pool, Record};
use crate::ops::describe_evidence::describe_uses;
use crate::ops::lease::held_records;

/// Addresses of the pool's subnet that a pod has, but the source never listed.
pub fn unlisted(key: &str, pool: &Pool, evidence: &Evidence) -> Vec<Finding> {
    let Some(net) = pool.net(key).filter(|net| net.prefix_len() > 0) else {
        return Vec::new();
    };
    let known: BTreeSet<_> = pool.records.iter().map(Record::address).collect();
    let places = evidence.kernel.configured.iter();
    let pods = places.filter(|(address, place)| {
        matches!(place, Place::Namespace(_)) && net.contains(*address) && !known.contains(address)
    });
    let remedy = "find out what gave it to the pod: another IPAM plugin, or Azure removed it from the network interface meanwhile; Azure delivers nothing to it, so the pod needs another address, which it gets when it is recreated";
    let finding = |(address, _): (&IpAddr, &Place)| {
        let text = format_args!(
            "a pod has this address of {key}, which the source does not list for this node"
        );
        let finding = Finding::warning(FindingKind::Foreign, &text, &remedy).about(address);
        finding.with_evidence(describe_uses(*address, evidence))
    };
    pods.map(finding).collect()
}

/// Pods of our networks with addresses outside of all pools.
pub fn outside_of_pools(
    ipam: &Ipam,
    evidence: &Evidence,
    networks: &BTreeSet<String>,
) -> Vec<Finding> {
    let claims = held_records(ipam).filter_map(|(_, _, _, held)| held.owner.claim());
    let networks = networks.iter().map(String::as_str);
    let named: BTreeSet<_> = claims
        .map(|claim| &*claim.network)
        .chain(networks)
        .collect();
    let nets: Vec<_> = ipam
        .pools()
        .filter_map(|(_, key, pool)| pool.net(key))
        .collect();
    if nets.is_empty() {
        return Vec::new();
    }
    let entries = evidence.cache.entries().iter().filter(|entry| {
        entry.is_live && entry.network.as_deref().is_some_and(|n| named.contains(n))
    });
    let remedy = "no action needed while the pod works; recreated, it gets an address of the pools";
    let finding = |entry: &Entry, address: &IpAddr| {
        let network = entry.network.as_deref().unwrap_or_default();
        let text =
            format!("a pod of network {network} has this address, which is in none of the pools");
        let finding = Finding::note(FindingKind::Foreign, &text, &remedy).about(address);
        finding.with_evidence(describe_uses(*address, evidence))
    };
    let outside = entries.flat_map(|entry| {
        let addresses = entry.addresses.iter();
        let family = |a: &IpAddr| nets.iter().any(|net| net.addr().is_ipv6() == a.is_ipv6());
        let outside = addresses.filter(move |a| family(a) && !nets_contain(ipam, a));
        outside.map(move |address| finding(entry, address))
    });
    outside.collect()
}

fn nets_contain(ipam: &Ipam, address: &IpAddr) -> bool {
    let mut nets = ipam.pools().filter_map(|(_, key, pool)| pool.net(key));
    nets.any(|net| net.contains(address))
}
