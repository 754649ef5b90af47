//! What an ADD asks for, and what it may get.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use super::{Attachment, Family, Free, NetNs};

/// What an ADD asks for.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Who asks.
    pub attachment: &'a Attachment,
    /// The address space.
    pub space: &'a str,
    /// From which pool.
    pub pool: PoolSelector<'a>,
    /// A particular address, as the caller spells it.
    pub address: Option<&'a str>,
    /// `namespace/name` of the pod, for people.
    pub pod: Option<&'a str>,
    /// The network namespace the address is for.
    pub netns: Option<&'a NetNs>,
    /// How long a released address rests before it counts as free again.
    pub cooldown: Duration,
    /// Addresses that the host turned out to have, in the course of this call.
    pub on_host: &'a BTreeSet<IpAddr>,
    /// What is never handed out; who has such an address already keeps it.
    pub exclude: &'a [IpNet],
}

/// Which pools will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolSelector<'a> {
    /// The pool of this subnet, as the caller spells it.
    Named(&'a str),
    /// Any of this family, on this interface where one is given.
    Any {
        /// The address family.
        family: Family,
        /// The interface of the host.
        if_name: Option<&'a str>,
    },
}

/// An address that was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The space it is from.
    pub space: String,
    /// The key of its pool.
    pub pool: String,
    /// The key of its record.
    pub key: IpAddr,
    /// The address with the prefix length of its subnet.
    pub address: IpNet,
    /// The gateway.
    pub gateway: Option<IpAddr>,
    /// Whether the attachment had it before.
    pub kind: GrantKind,
    /// The generation of the claim.
    pub generation: u64,
}

/// Whether a grant is new.
#[derive(Clone, Debug, PartialEq)]
pub enum GrantKind {
    /// This call took it; what the record was like before, for [`crate::ipam::Ipam::revoke`].
    New(Free),
    /// The attachment held it already.
    Renewed,
}

/// The step of the original that a refusal belongs to; its messages begin with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Looking for a pool.
    Pool,
    /// Looking for an address in a pool.
    Address,
}

/// Why no address was given. The texts begin with the original's, which callers match (contract section 14).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The space is not in the state.
    #[error("{stage}: Invalid address space")]
    NoSpace {
        /// The step.
        stage: Stage,
        /// The space's name.
        space: String,
    },
    /// No pool is of the family and on the interface that are wanted.
    #[error("{}: no available address pools", Stage::Pool)]
    NoPools {
        /// The family.
        family: Family,
        /// The pools that there are, and why each will not do.
        passed_over: Vec<String>,
    },
    /// Of two families that are wanted, no pool is of this one and on the interface that is wanted.
    #[error("{}: no pool has {family} addresses", Stage::Pool)]
    NoPoolOfFamily {
        /// The family.
        family: Family,
        /// The pools that there are, and why each will not do.
        passed_over: Vec<String>,
    },
    /// The subnet asked for is not a pool.
    #[error("{}: Pool id {subnet} not found :Invalid address pool", Stage::Address)]
    NoPool {
        /// The subnet, as the caller spells it.
        subnet: String,
        /// The pools that there are.
        known: Vec<String>,
    },
    /// The address asked for is in no pool that will do.
    #[error("{}: Address not found", Stage::Address)]
    AddressNotFound {
        /// The address, as the caller spells it.
        address: String,
    },
    /// The address asked for is held.
    #[error("{}: Address already in use", Stage::Address)]
    AddressInUse {
        /// The address.
        address: IpAddr,
        /// By whom.
        holder: Holder,
    },
    /// The address asked for was released a moment ago.
    #[error("{}: Address {address} was released a moment ago, and rests for {} s more", Stage::Address, left.as_millis().div_ceil(1000))]
    AddressResting {
        /// The address.
        address: IpAddr,
        /// How long that will go on.
        left: Duration,
    },
    /// The address asked for is excluded by the configuration.
    #[error("{}: Address {address} is excluded", Stage::Address)]
    AddressExcluded {
        /// The address.
        address: IpAddr,
    },
    /// Nothing is free.
    #[error("{}: No available addresses in {}", Stage::Address, Listed(.pools))]
    Exhausted {
        /// What each pool that would do holds.
        pools: Vec<PoolCount>,
    },
    /// The state was lost, and what was free before is not known yet.
    #[error(
        "{}: the state was lost, and for {} s more only known addresses are given",
        Stage::Address, left.as_millis().div_ceil(1000)
    )]
    Quarantined {
        /// How long that will go on.
        left: Duration,
    },
    /// The pool has no usable subnet, so no result can be made of its addresses.
    #[error("Failed to parse address: invalid CIDR address: pool {pool} has no subnet")]
    NoSubnet {
        /// The pool's key.
        pool: String,
    },
}

/// Who has an address that another asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The container of this ID.
    Container(String),
    /// The host itself, or somebody the host has a route to.
    TheHost,
    /// Somebody unknown.
    Unknown,
}

/// What a pool holds and has to give.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolCount {
    /// The subnet text.
    pub subnet: String,
    /// Addresses in use.
    pub held: usize,
    /// Those of them that show no sign of life, but must not be freed yet.
    pub suspect: usize,
    /// Addresses that nobody holds but that the host has.
    pub on_host: usize,
    /// Addresses that nobody holds but that the configuration excludes.
    pub excluded: usize,
    /// Addresses released a short while ago.
    pub resting: usize,
    /// Addresses to give.
    pub free: usize,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Pool => "Failed to allocate pool",
            Stage::Address => "Failed to allocate address",
        })
    }
}

/// The counts of some pools in a sentence, with a bound on its length.
struct Listed<'a>(&'a [PoolCount]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 4;
        for (n, pool) in self.0.iter().take(MOST).enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(
                f,
                "{comma}{}: {} held, {} free",
                pool.subnet, pool.held, pool.free
            )?;
            for (count, what) in [
                (pool.resting, "resting"),
                (pool.suspect, "suspected leaks"),
                (pool.on_host, "wired on the host"),
                (pool.excluded, "excluded"),
            ] {
                if count > 0 {
                    write!(f, ", {count} {what}")?;
                }
            }
        }
        match self.0.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, ", and {more} more pools"),
        }
    }
}
