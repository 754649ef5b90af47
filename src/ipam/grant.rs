//! What an ADD gets: grants, or a refusal.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::Serialize;

use super::{Family, Free};

/// An allocated address.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// Its address space.
    pub space: String,
    /// The key of its pool.
    pub pool: String,
    /// The key of its record.
    pub key: IpAddr,
    /// The address with the prefix length of its subnet.
    pub address: IpNet,
    /// The gateway.
    pub gateway: Option<IpAddr>,
    /// Whether it is new or renewed.
    pub kind: GrantKind,
    /// The number of the ADD: [`Holder::number`](super::Holder::number).
    pub generation: u64,
}

/// Whether the address of a grant is newly allocated.
#[derive(Clone, Debug, PartialEq)]
pub enum GrantKind {
    /// This call allocated it. The value is the record before that, for [`crate::ipam::Ipam::revoke`].
    New(Free),
    /// The attachment held it already.
    Renewed,
}

/// The start of the original's messages from its step that finds a pool.
pub const POOL_STAGE: &str = "Failed to allocate pool";
/// The start of the original's messages from its step that finds an address in a pool.
pub(super) const ADDRESS_STAGE: &str = "Failed to allocate address";

/// Why no address was allocated. The texts begin with the original's, which callers match (contract section 14).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The space is not in the state.
    #[error("{stage}: Invalid address space")]
    NoSpace {
        /// The start of the message: [`POOL_STAGE`] or the same for an address.
        stage: &'static str,
        /// The space's name.
        space: String,
    },
    /// No pool has the family and is on the interface.
    #[error("{}: no available address pools", POOL_STAGE)]
    NoPools {
        /// The family.
        family: Family,
        /// The interface, where the call names one.
        if_name: Option<String>,
        /// The existing pools, and why each does not fit.
        passed_over: Vec<String>,
    },
    /// Two families are requested, and no pool has this one and is on the interface.
    #[error("{}: no pool has {family} addresses", POOL_STAGE)]
    NoPoolOfFamily {
        /// The family.
        family: Family,
        /// The interface, where the call names one.
        if_name: Option<String>,
        /// The existing pools, and why each does not fit.
        passed_over: Vec<String>,
    },
    /// The requested subnet is not a pool.
    #[error("{}: Pool id {subnet} not found :Invalid address pool", ADDRESS_STAGE)]
    NoPool {
        /// The subnet, as the caller writes it.
        subnet: String,
        /// The existing pools.
        known: Vec<String>,
    },
    /// The requested address is in no pool that fits.
    #[error("{}: Address not found", ADDRESS_STAGE)]
    AddressNotFound {
        /// The address, as the caller writes it.
        address: String,
    },
    /// The requested address is held.
    #[error("{}: Address already in use", ADDRESS_STAGE)]
    AddressInUse {
        /// The address.
        address: IpAddr,
        /// Who has it.
        in_use_by: InUseBy,
    },
    /// The requested address is in its cooldown.
    #[error("{}: Address {address} is in cooldown; retry in {} s", ADDRESS_STAGE, left.as_millis().div_ceil(1000))]
    AddressInCooldown {
        /// The address.
        address: IpAddr,
        /// The time left.
        left: Duration,
    },
    /// The requested address is excluded by the configuration.
    #[error("{}: Address {address} is excluded", ADDRESS_STAGE)]
    AddressExcluded {
        /// The address.
        address: IpAddr,
    },
    /// No address is free.
    #[error("{}: No available addresses in {}", ADDRESS_STAGE, describe(.pools))]
    Exhausted {
        /// The counts of each pool that fits.
        pools: Vec<PoolCount>,
        /// A pod that holds many of their addresses.
        retried: Option<RetriedPod>,
        /// The listed subnets, if the source no longer lists the one that the call names; empty otherwise.
        listed: Vec<String>,
    },
    /// The state is being rebuilt, and it is not known yet which addresses are free.
    #[error(
        "{}: the state is being rebuilt; retry in {} s", ADDRESS_STAGE, left.as_millis().div_ceil(1000)
    )]
    Quarantined {
        /// The time left.
        left: Duration,
    },
    /// The pool has no usable subnet, so no result can be made of its addresses.
    #[error("Failed to parse address: invalid CIDR address: pool {pool} has no subnet")]
    NoSubnet {
        /// The pool's key.
        pool: String,
    },
}

/// Who has an address that another attachment requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InUseBy {
    /// The container of this ID.
    Container(String),
    /// The host itself, or a destination that the host routes to.
    TheHost,
    /// The network namespace of its last holder, which has released it.
    LastSandbox,
    /// An unknown holder.
    Unknown,
}

/// A pod with many failed sandboxes that keep their addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetriedPod {
    /// `namespace/name` of the pod.
    pub pod: String,
    /// The number of addresses that its sandboxes hold.
    pub held: usize,
}

/// The counts of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolCount {
    /// The subnet text; empty for several pools together.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subnet: String,
    /// Held addresses.
    pub held: usize,
    /// Addresses of this pool that another pool holds.
    #[serde(skip_serializing_if = "is_zero")]
    pub held_elsewhere: usize,
    /// Held addresses with holders that are marked as suspects.
    #[serde(skip)]
    pub suspect: usize,
    /// Free addresses that the host has.
    pub on_host: usize,
    /// Free addresses that the configuration excludes.
    pub excluded: usize,
    /// Free addresses in their cooldown.
    pub cooldown: usize,
    /// Free addresses that the network namespace of the last holder still has.
    pub withheld: usize,
    /// Addresses that can be allocated at once.
    pub free: usize,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Describes the counts of pools in a sentence of bounded length.
fn describe(pools: &[PoolCount]) -> String {
    const MOST: usize = 4;
    let mut parts = Vec::new();
    for pool in pools.iter().take(MOST) {
        let (subnet, held, free) = (&pool.subnet, pool.held, pool.free);
        parts.push(format!("{subnet}: {held} held, {free} free"));
        for (count, what) in [
            (pool.held_elsewhere, "held in another pool"),
            (pool.cooldown, "in cooldown"),
            (pool.withheld, "withheld"),
            (pool.suspect, "suspected leaks"),
            (pool.on_host, "on the host"),
            (pool.excluded, "excluded"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
    }
    if pools.len() > MOST {
        parts.push(format!("and {} more pools", pools.len() - MOST));
    }
    parts.join(", ")
}
