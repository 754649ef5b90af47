//! Shared helpers for the tests of the domain.

use std::net::IpAddr;
use std::time::Duration;

use super::{
    Attachment, Evidence, Exclusions, Family, Grant, Held, Holder, Inventory, Ipam, ListedPool,
    Moment, Place, Pool, PoolSelector, Record, Refusal, Taken, Usage, Wanted, WantedAddress,
};

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns a pool as a source lists it.
pub fn listed(subnet: &str, addresses: &[&str]) -> ListedPool {
    let addresses = addresses.iter().map(|a| ip(a)).collect();
    ListedPool::new(subnet.parse().unwrap(), "eth0".into(), 0, addresses)
}

/// Returns a state with these pools. Each is a subnet, its priority and its addresses. The name of its interface is `eth` and the priority.
pub fn with_pools(pools: &[(&str, i64, &[&str])]) -> Ipam {
    let pools = pools
        .iter()
        .map(|(subnet, priority, addresses)| ListedPool {
            if_name: format!("eth{priority}"),
            priority: *priority,
            ..listed(subnet, addresses)
        });
    let mut ipam = Ipam::default();
    let inventory = Inventory {
        pools: pools.collect(),
    };
    ipam.merge(&inventory, Moment(1));
    ipam
}

/// Returns one of its pools, mutably.
pub fn pool<'a>(ipam: &'a mut Ipam, subnet: &str) -> &'a mut Pool {
    let local = ipam.spaces.get_mut("local").unwrap();
    local.pools.get_mut(subnet).unwrap()
}

/// Returns the record of an address in the first pool that has one, mutably.
pub fn record<'a>(ipam: &'a mut Ipam, address: &str) -> &'a mut Record {
    let mut records = ipam.pools_mut().flat_map(|pool| &mut pool.records);
    records.find(|record| record.key == ip(address)).unwrap()
}

/// Makes an address held by this holder.
pub fn hold(ipam: &mut Ipam, address: &str, holder: Holder, since: Moment) {
    record(ipam, address).usage = Usage::Held(Held {
        holder: holder.into(),
        since,
        ..Held::default()
    });
}

/// Returns the held addresses as `ADDRESS=CONTAINER ...`. Checks the invariants.
pub fn holders(ipam: &Ipam) -> String {
    assert_eq!(ipam.check(), []);
    let records = ipam.pools().flat_map(|(_, _, pool)| &pool.records);
    let held = records.filter_map(|record| {
        let container_id = record.held()?.holder.container_id();
        Some(format!("{}={container_id}", record.key))
    });
    held.collect::<Vec<_>>().join(" ")
}

pub fn attachment(container_id: &str, if_name: &str) -> Attachment {
    Attachment {
        network: "azure".into(),
        container_id: container_id.into(),
        if_name: if_name.into(),
    }
}

/// Returns the request of an ADD of this container's `eth0`: any IPv4 address, with 30 s of cooldown.
pub fn wanted(container_id: &str) -> Wanted {
    Wanted {
        attachment: attachment(container_id, "eth0"),
        pod: None,
        netns: None,
        is_kept: false,
        space: "local".to_owned(),
        configured_address: None,
        addresses: vec![WantedAddress {
            pool: PoolSelector::Any {
                family: Family::V4,
                if_name: None,
            },
            address: None,
            decides_family: false,
        }],
        cooldown: Duration::from_secs(30),
        exclude: Exclusions::default(),
    }
}

/// Returns the same request for this pool, and for a particular address.
pub fn wanted_of(container_id: &str, pool: PoolSelector, address: Option<&str>) -> Wanted {
    Wanted {
        addresses: vec![WantedAddress {
            pool,
            address: address.map(str::to_owned),
            decides_family: false,
        }],
        ..wanted(container_id)
    }
}

/// Allocates the only address that is wanted, on a host without such addresses.
pub fn allocate(ipam: &mut Ipam, wanted: &Wanted, now: Moment) -> Result<Grant, Refusal> {
    ipam.allocate(wanted, &wanted.addresses[0], &Taken::default(), now)
}

/// Returns this container's `eth0` in the network `azure` as a holder, from an ADD of this generation.
pub fn attached(container_id: &str, generation: u64) -> Holder {
    attached_to("azure", container_id, generation)
}

/// Returns the same for another network.
pub fn attached_to(network: &str, container_id: &str, generation: u64) -> Holder {
    let attachment = Attachment {
        network: network.into(),
        ..attachment(container_id, "eth0")
    };
    Holder {
        attachment,
        number: generation,
        ..Holder::default()
    }
}

/// Reduces every holder to its container ID, as the original writes it.
pub fn forget_interfaces(ipam: &mut Ipam) {
    for record in ipam.pools_mut().flat_map(|pool| &mut pool.records) {
        if let Usage::Held(held) = &mut record.usage {
            *held.holder = Holder::from_container_id(held.holder.container_id());
        }
    }
}

/// Returns a complete scan that shows these addresses in a network namespace.
pub fn shows(addresses: &[&str]) -> Evidence {
    let mut evidence = Evidence::default();
    for address in addresses {
        let place = Place::Namespace("/run/netns/x".into());
        evidence.kernel.configured.insert(ip(address), place);
    }
    evidence
}
