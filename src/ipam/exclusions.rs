//! The addresses that the configuration excludes.

use std::net::IpAddr;

use ipnet::IpNet;

/// Subnets that are never allocated. They are sorted and do not overlap, so that a list of any length is searched quickly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions(Vec<IpNet>);

impl Exclusions {
    /// Creates the list from subnets in any order.
    pub fn new(subnets: Vec<IpNet>) -> Exclusions {
        let mut disjoint = IpNet::aggregate(&subnets);
        disjoint.sort_unstable_by_key(IpNet::network);
        Exclusions(disjoint)
    }

    /// Returns whether a subnet contains the address.
    pub fn contain(&self, address: &IpAddr) -> bool {
        let after = self.0.partition_point(|net| net.network() <= *address);
        let last = after.checked_sub(1).and_then(|n| self.0.get(n));
        last.is_some_and(|net| net.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_in_any_order_and_with_overlaps_exclude_their_addresses() {
        let texts = [
            "fd00::/64",
            "10.1.0.0/24",
            "10.1.0.7/32",
            "10.0.0.0/31",
            "10.1.1.0/24",
            "10.9.0.1/32",
        ];
        let exclusions = Exclusions::new(texts.iter().map(|text| text.parse().unwrap()).collect());
        for (address, expected) in [
            ("9.255.255.255", false),
            ("10.0.0.1", true),
            ("10.0.0.2", false),
            ("10.1.0.0", true),
            ("10.1.1.255", true),
            ("10.1.2.0", false),
            ("10.9.0.1", true),
            ("10.9.0.2", false),
            ("fd00::1", true),
            ("fd00:0:0:1::", false),
        ] {
            assert_eq!(
                exclusions.contain(&address.parse().unwrap()),
                expected,
                "{address}"
            );
        }
        assert!(!Exclusions::default().contain(&"10.1.0.7".parse().unwrap()));
    }
}
