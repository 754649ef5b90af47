//! What the tests of the core begin with.

use super::{Attachment, Claim, Inventory, Ipam, ListedPool, Owner, Pool};

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

/// The attachment of this container's `eth0` to the network `azure`, as an ADD of this generation made it the owner.
pub fn attached(container_id: &str, generation: u64) -> Owner {
    attached_to("azure", container_id, generation)
}

/// The same for another network.
pub fn attached_to(network: &str, container_id: &str, generation: u64) -> Owner {
    let attachment = Attachment {
        network: network.into(),
        container_id: container_id.into(),
        if_name: "eth0".into(),
    };
    Owner::Attachment(Box::new(Claim::new(&attachment, generation)))
}

/// Makes the owner one that the original wrote, which has only the container's ID.
pub fn forget_claim(owner: &mut Owner) {
    *owner = Owner::from_container_id(owner.container_id().unwrap_or_default());
}
