//! Matches listed interfaces to the interfaces of the host (contract sections 7 and 8, difference D13).

use std::net::IpAddr;

use super::listing::{ListedInterface, Listing};
use crate::host::Link;
use crate::ipam::{Family, Inventory, ListedPool};

/// What the hardware address `*` means.
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
    /// Hardware addresses that no interface of the host has.
    pub unmatched: Vec<String>,
    /// The number of addresses of the host itself, which are never allocated.
    pub primary: usize,
    /// The number of unusable addresses and prefixes: malformed, outside their subnet, or in a subnet that is listed twice.
    pub skipped: usize,
    /// Whether one of the sources by family lists no address for pods.
    pub is_partial: bool,
}

impl MatchedListing {
    /// Whether it would remove all addresses of a source: no interface matches, or no address is for pods.
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

    /// Keeps only the pools of one family.
    pub fn restrict_to(mut self, family: Family) -> MatchedListing {
        let pools = &mut self.inventory.pools;
        pools.retain(|pool| Family::from_address(pool.subnet.addr()) == family);
        self
    }

    /// Combines the answers of two sources.
    pub fn combine(mut self, other: MatchedListing) -> MatchedListing {
        self.inventory.pools.extend(other.inventory.pools);
        self.unmatched.extend(other.unmatched);
        self.primary += other.primary;
        self.skipped += other.skipped;
        self.is_partial |= other.is_partial;
        self
    }
}

/// Matches a listing to the interfaces of the host. If a subnet is listed twice, the first one is used.
pub fn match_links(listing: Listing, links: &[Link], wildcard: MacWildcard) -> MatchedListing {
    let mut matched = MatchedListing::default();
    for interface in listing.interfaces {
        let Some(link) = find_link(&interface, links, wildcard) else {
            matched.unmatched.push(interface.mac);
            continue;
        };
        let priority = if interface.primary { 0 } else { 1 };
        for subnet in interface.subnets {
            matched.primary += subnet.primary;
            matched.skipped += subnet.malformed;
            let known = |prefix| {
                matched
                    .inventory
                    .pools
                    .iter()
                    .any(|pool| pool.subnet == prefix)
            };
            let Some(prefix) = subnet.prefix.filter(|prefix| !known(*prefix)) else {
                matched.skipped += 1 + subnet.addresses.len();
                continue;
            };
            let listed = subnet.addresses.len();
            let inside: Vec<IpAddr> = subnet
                .addresses
                .into_iter()
                .filter(|a| prefix.contains(a))
                .collect();
            matched.skipped += listed - inside.len();
            matched.inventory.pools.push(ListedPool::new(
                prefix,
                link.name.clone(),
                priority,
                inside,
            ));
        }
    }
    matched
}

/// Whether `links`, the interfaces that matched the last listing, match every interface of this listing too. Then the others need
/// not be listed.
pub fn covers_listing(listing: &Listing, links: &[Link]) -> bool {
    // `*` means the first of all interfaces, which `links` may not include.
    let find = |interface| find_link(interface, links, MacWildcard::None);
    let mut found = listing.interfaces.iter().map(find);
    found.all(|link| link.is_some_and(|link| !link.enslaved))
}

/// Finds the first interface, by index, with the listed hardware address. With accelerated networking two interfaces share one;
/// the one that is not enslaved is used.
fn find_link<'a>(
    interface: &ListedInterface,
    links: &'a [Link],
    wildcard: MacWildcard,
) -> Option<&'a Link> {
    if interface.mac == "*" && wildcard == MacWildcard::FirstInterface {
        return links.iter().find(|link| !link.loopback);
    }
    let mac = normalize_mac(&interface.mac);
    let mut twins = links
        .iter()
        .filter(|link| !mac.is_empty() && link.mac == mac);
    let first = twins.next()?;
    Some(if first.enslaved {
        twins.find(|link| !link.enslaved).unwrap_or(first)
    } else {
        first
    })
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
    use crate::source::listing::ListedSubnet;

    fn link(index: u32, name: &str, mac: &str) -> Link {
        Link {
            index,
            name: name.into(),
            mac: mac.into(),
            loopback: name == "lo",
            ..Link::default()
        }
    }

    fn host() -> Vec<Link> {
        vec![
            link(1, "lo", ""),
            link(2, "eth0", "7c1e52f9f3c4"),
            link(3, "eth1", "7c1e52f9f3c5"),
        ]
    }

    fn interface(mac: &str, prefixes: &[&str]) -> ListedInterface {
        let subnets = prefixes.iter().map(|prefix| ListedSubnet {
            prefix: prefix.parse().ok(),
            addresses: vec!["10.0.0.5".parse().unwrap()],
            primary: 1,
            malformed: 0,
        });
        ListedInterface {
            mac: mac.into(),
            primary: true,
            subnets: subnets.collect(),
        }
    }

    fn name_for(mac: &str, links: &[Link], wildcard: MacWildcard) -> Option<String> {
        find_link(&interface(mac, &[]), links, wildcard).map(|l| l.name.clone())
    }

    #[test]
    fn macs_match_without_case_and_separators() {
        for mac in [
            "7C1E52F9F3C4",
            "7c1e52f9f3c4",
            "7C:1e:52:F9:F3:C4",
            "7c-1e-52-f9-f3-c4",
            "7c1e.52f9.f3c4",
        ] {
            assert_eq!(
                name_for(mac, &host(), MacWildcard::FirstInterface).as_deref(),
                Some("eth0"),
                "{mac}"
            );
        }
        for mac in ["", " 7C1E52F9F3C4 ", "001122334455", ":", "**"] {
            assert_eq!(
                name_for(mac, &host(), MacWildcard::FirstInterface),
                None,
                "{mac}"
            );
        }
    }

    #[test]
    fn a_star_is_the_first_interface_that_is_not_loopback() {
        assert_eq!(
            name_for("*", &host(), MacWildcard::FirstInterface).as_deref(),
            Some("eth0")
        );
        assert_eq!(
            name_for("*", &host()[..1], MacWildcard::FirstInterface),
            None
        );
        assert_eq!(name_for("*", &host(), MacWildcard::None), None);
    }

    #[test]
    fn of_twins_the_one_that_is_not_enslaved_wins() {
        let mut links = vec![
            link(2, "vf0", "7c1e52f9f3c4"),
            link(3, "eth0", "7c1e52f9f3c4"),
        ];
        assert_eq!(
            name_for("7C1E52F9F3C4", &links, MacWildcard::FirstInterface).as_deref(),
            Some("vf0")
        );
        links[0].enslaved = true;
        assert_eq!(
            name_for("7C1E52F9F3C4", &links, MacWildcard::FirstInterface).as_deref(),
            Some("eth0")
        );
        links[1].enslaved = true;
        assert_eq!(
            name_for("7C1E52F9F3C4", &links, MacWildcard::FirstInterface).as_deref(),
            Some("vf0")
        );
    }

    #[test]
    fn known_links_do_only_where_each_listed_interface_is_one_of_them() {
        let one = |mac: &str| Listing {
            interfaces: vec![interface(mac, &["10.0.0.0/16"])],
        };
        let known = [link(2, "eth0", "7c1e52f9f3c4")];
        assert!(covers_listing(&one("7C1E52F9F3C4"), &known));
        assert!(!covers_listing(&one("7C1E52F9F3C4"), &[]));
        for other in ["7C1E52F9F3C5", "*", ""] {
            assert!(!covers_listing(&one(other), &known), "{other}");
        }
        let mut both = one("7C1E52F9F3C4");
        both.interfaces.push(interface("7C1E52F9F3C5", &[]));
        assert!(!covers_listing(&both, &known));
        let enslaved = Link {
            enslaved: true,
            ..link(2, "vf0", "7c1e52f9f3c4")
        };
        assert!(!covers_listing(&one("7C1E52F9F3C4"), &[enslaved]));
        let matched = match_links(one("7C1E52F9F3C4"), &known, MacWildcard::FirstInterface);
        assert_eq!(matched.link_names(), ["eth0"]);
    }

    #[test]
    fn a_subnet_listed_twice_counts_once_and_strangers_are_left_out() {
        let listing = Listing {
            interfaces: vec![
                interface("001122334455", &["10.9.0.0/16"]),
                interface(
                    "7C1E52F9F3C4",
                    &["10.0.0.0/16", "10.0.0.0/16", "nonsense", "10.1.0.0/16"],
                ),
            ],
        };
        let matched = match_links(listing, &host(), MacWildcard::FirstInterface);
        assert_eq!(matched.unmatched, ["001122334455"]);
        let pools: Vec<_> = matched
            .inventory
            .pools
            .iter()
            .map(|p| (p.subnet.to_string(), p.addresses.len()))
            .collect();
        assert_eq!(
            pools,
            [("10.0.0.0/16".to_owned(), 1), ("10.1.0.0/16".to_owned(), 0)]
        );
        assert_eq!((matched.primary, matched.skipped), (4, 2 + 2 + 1));
    }
}
