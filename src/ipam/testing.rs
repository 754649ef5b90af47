//! What the tests of the core begin with.

use super::{Inventory, Ipam, ListedPool, Pool};

/// A state with these pools, each a subnet, its priority and its addresses; the interface is `eth` and the priority.
pub fn with_pools(pools: &[(&str, i64, &[&str])]) -> Ipam {
    let listed = pools.iter().map(|(subnet, priority, addresses)| {
        let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
        let if_name = format!("eth{priority}");
        ListedPool::new(subnet.parse().unwrap(), if_name, *priority, addresses)
    });
    let mut ipam = Ipam::default();
    ipam.merge(&Inventory {
        pools: listed.collect(),
    });
    ipam
}

/// One of its pools, to be changed.
pub fn pool<'a>(ipam: &'a mut Ipam, subnet: &str) -> &'a mut Pool {
    let local = ipam.spaces.get_mut("local").unwrap();
    local.pools.get_mut(subnet).unwrap()
}
