//! Matches listed interfaces to the interfaces of the host (contract sections 7 and 8, difference
//! D13).

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::listing::{ListedInterface, ListedSubnet, Listing, Unusable};
use crate::host::Link;
use crate::ipam::{Family, Inventory, ListedPool, Reserved};

/// The meaning of the hardware address `*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MacWildcard {
    /// The first interface that is not loopback, as for the wire server.
    FirstInterface,
    /// No interface, as for the file.
    None,
}

/// A listing, matched to the interfaces of this host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MatchedListing {
    /// The pools.
    pub inventory: Inventory,
    /// Listed interfaces whose hardware addresses no interface of the host has.
    pub unmatched: Vec<ListedInterface>,
    /// The addresses of the host itself, which are never allocated.
    pub primary: Vec<PrimaryAddress>,
    /// The unusable addresses and prefixes. They are malformed, reserved, outside their subnet, or in
    /// a subnet that is listed twice.
    pub unusable: Unusable,
    /// Whether one of the two sources of [`Source::ByFamily`](super::Source::ByFamily) lists no
    /// address for pods.
    pub is_partial: bool,
}

/// An address that the source lists for the host itself.
#[derive(Clone, Debug, PartialEq)]
pub struct PrimaryAddress {
    /// The address with the prefix of its subnet.
    pub net: IpNet,
    /// The interface of the host.
    pub link: String,
    /// Whether the interface is the primary one.
    pub is_of_primary_link: bool,
}

impl MatchedListing {
    /// Returns whether it would remove all addresses of a source: no interface matches, or no address
    /// is for pods.
    pub fn is_doubtful(&self) -> bool {
        self.is_partial || self.inventory.addresses() == 0
    }

    /// Returns the names of the host interfaces that have a pool.
    pub fn link_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for pool in &self.inventory.pools {
            if !pool.if_name.is_empty() && !names.contains(&pool.if_name) {
                names.push(pool.if_name.clone());
            }
        }
        names
    }

    /// The addresses of listed interfaces that the host does not have.
    pub fn addresses_of_missing_interfaces(&self) -> BTreeSet<IpAddr> {
        let subnets = self.unmatched.iter().flat_map(|missing| &missing.subnets);
        let addresses = subnets.flat_map(|subnet| subnet.addresses.iter().chain(&subnet.primary));
        addresses.copied().collect()
    }

    /// Keeps only the pools of one family.
    pub fn restrict_to(mut self, family: Family) -> MatchedListing {
        self.inventory
            .pools
            .retain(|pool| Family::from_address(pool.subnet.addr()) == family);
        self
    }

    /// Combines the answers of two sources.
    pub fn combine(mut self, other: MatchedListing) -> MatchedListing {
        self.inventory.pools.extend(other.inventory.pools);
        self.unmatched.extend(other.unmatched);
        self.primary.extend(other.primary);
        self.unusable.add(other.unusable);
        self.is_partial |= other.is_partial;
        self
    }
}

/// Matches a listing to the interfaces of the host.
///
/// If a subnet is listed twice, the first one is used.
pub fn match_links(listing: Listing, links: &[Link], wildcard: MacWildcard) -> MatchedListing {
    let mut matched = MatchedListing::default();
    for interface in listing.interfaces {
        let Some(link) = find_link(&interface, links, wildcard) else {
            matched.unmatched.push(interface);
            continue;
        };
        for subnet in interface.subnets {
            add_subnet(&mut matched, subnet, link, interface.primary);
        }
    }
    matched
}

/// Adds a subnet of a listed interface that matches `link`.
fn add_subnet(
    matched: &mut MatchedListing,
    subnet: ListedSubnet,
    link: &Link,
    is_of_primary_link: bool,
) {
    let mut unusable = subnet.malformed;
    let mut addresses = subnet.addresses;
    let pools = &mut matched.inventory.pools;
    let Some(prefix) = subnet.prefix else {
        if unusable.first.is_none() {
            unusable.note("a subnet", " without prefix");
        }
        unusable.count += addresses.len();
        matched.unusable.add(unusable.for_link(&link.name));
        return;
    };
    let of_subnet = subnet.primary.iter().filter(|own| prefix.contains(*own));
    let primary = of_subnet.filter_map(|own| IpNet::new(*own, prefix.prefix_len()).ok());
    matched.primary.extend(primary.map(|net| PrimaryAddress {
        net,
        link: link.name.clone(),
        is_of_primary_link,
    }));
    if let Some(first) = pools.iter().find(|pool| pool.subnet == prefix) {
        let what = format_args!("the subnet {prefix}");
        let other = &first.if_name;
        if *other == link.name {
            unusable.note(what, " twice; the second one is ignored");
        } else if !addresses.is_empty() {
            // Azure lets two network interfaces be in one subnet.
            let why = format_args!(", too; only the addresses of {other} are allocated");
            unusable.note(what, why);
        }
        unusable.count += addresses.len();
        matched.unusable.add(unusable.for_link(&link.name));
        return;
    }
    let priority = if is_of_primary_link { 0 } else { 1 };
    let mut pool = ListedPool::new(prefix, link.name.clone(), priority, Vec::new());
    let reserved = Reserved::new(&prefix, Some(pool.gateway));
    addresses.retain(|address| {
        let why = if !prefix.contains(address) {
            Some("outside of its subnet")
        } else {
            reserved.name(*address)
        };
        if let Some(why) = why {
            let value = format_args!("the address {address}");
            unusable.note(value, format_args!(", which is {why} {prefix}"));
        }
        why.is_none()
    });
    pool.addresses = addresses;
    matched.unusable.add(unusable.for_link(&link.name));
    pools.push(pool);
}

/// Returns whether `links` match every listed interface. They are the interfaces that matched the
/// last listing. If they do, the other interfaces of the host need not be read.
pub fn covers_listing(listing: &Listing, links: &[Link]) -> bool {
    listing.interfaces.iter().all(|interface| {
        // `*` means the first of all interfaces, which `links` may not include.
        find_link(interface, links, MacWildcard::None).is_some_and(|link| !link.enslaved)
    })
}

/// Finds the first interface, by index, with the listed hardware address.
///
/// With accelerated networking, two interfaces share one address. The one that is not enslaved is
/// used.
fn find_link<'a>(
    interface: &ListedInterface,
    links: &'a [Link],
    wildcard: MacWildcard,
) -> Option<&'a Link> {
    if interface.mac == "*" && wildcard == MacWildcard::FirstInterface {
        return links.iter().find(|link| !link.loopback);
    }
    let mac = normalize_mac(&interface.mac);
    if mac.is_empty() {
        return None;
    }
    links
        .iter()
        .filter(|link| link.mac == mac)
        .min_by_key(|link| link.enslaved)
}

/// Converts a hardware address to the form of [`Link::mac`].
fn normalize_mac(mac: &str) -> String {
    mac.chars()
        .filter(|c| !matches!(c, ':' | '-' | '.'))
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: &str = "7c1e52f9f3c4";

    fn link(index: u32, name: &str, mac: &str) -> Link {
        Link {
            index,
            name: name.into(),
            mac: mac.into(),
            ..Link::default()
        }
    }

    fn interface(mac: &str) -> ListedInterface {
        ListedInterface {
            mac: mac.into(),
            ..ListedInterface::default()
        }
    }

    #[test]
    fn macs_match_without_case_and_separators() {
        let links = [link(2, "eth0", MAC), link(3, "eth1", "7c1e52f9f3c5")];
        let is_eth0 = |mac: &&str| {
            let found = find_link(&interface(mac), &links, MacWildcard::FirstInterface);
            found.is_some_and(|link| link.name == "eth0")
        };
        let good = [
            "7C1E52F9F3C4",
            "7C:1e:52:F9:F3:C4",
            "7c-1e-52-f9-f3-c4",
            "7c1e.52f9.f3c4",
        ];
        assert!(good.iter().all(is_eth0));
        assert!(!["", " 7C1E52F9F3C4 ", ":", "**"].iter().any(is_eth0));
    }

    #[test]
    fn wildcard_matches_the_first_interface_that_is_not_loopback() {
        let lo = Link {
            loopback: true,
            ..link(1, "lo", "")
        };
        let links = [lo, link(2, "eth0", MAC), link(3, "eth1", "7c1e52f9f3c5")];
        let find_star =
            |links, wildcard| find_link(&interface("*"), links, wildcard).map(|link| link.index);
        assert_eq!(find_star(&links, MacWildcard::FirstInterface), Some(2));
        assert_eq!(find_star(&links[..1], MacWildcard::FirstInterface), None);
        assert_eq!(find_star(&links, MacWildcard::None), None);
    }

    #[test]
    fn interface_that_is_not_enslaved_is_preferred() {
        for (enslaved, expected) in [
            ([false, false], "vf0"),
            ([true, false], "eth0"),
            ([true, true], "vf0"),
        ] {
            let mut links = [link(2, "vf0", MAC), link(3, "eth0", MAC)];
            for (link, is_enslaved) in links.iter_mut().zip(enslaved) {
                link.enslaved = is_enslaved;
            }
            let found = find_link(&interface(MAC), &links, MacWildcard::FirstInterface);
            assert_eq!(found.unwrap().name, expected);
        }
    }

    #[test]
    fn known_links_suffice_only_if_they_match_every_listed_interface() {
        let known = || vec![link(2, "eth0", MAC)];
        let enslaved = Link {
            enslaved: true,
            ..link(2, "vf0", MAC)
        };
        for (macs, links, covers) in [
            (&[MAC][..], known(), true),
            (&[MAC], vec![], false),
            (&["7C1E52F9F3C5"], known(), false),
            (&["*"], known(), false),
            (&[""], known(), false),
            (&[MAC, "7C1E52F9F3C5"], known(), false),
            (&[MAC], vec![enslaved], false),
        ] {
            let listing = Listing {
                interfaces: macs.iter().map(|mac| interface(mac)).collect(),
            };
            assert_eq!(
                covers_listing(&listing, &links),
                covers,
                "{macs:?} {links:?}"
            );
        }
    }
}
