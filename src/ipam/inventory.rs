//! The listing of a source for this node, matched to its interfaces.

use std::net::IpAddr;

use ipnet::IpNet;

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
    /// The addresses in any order; repetitions count once.
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

impl Inventory {
    /// The number of listed addresses.
    pub fn addresses(&self) -> usize {
        self.pools.iter().map(|p| p.addresses.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_is_the_network_with_its_lowest_bit_set() {
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
