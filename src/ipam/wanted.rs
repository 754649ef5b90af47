//! The request of an ADD.

use std::time::Duration;

use super::grant::{ADDRESS_STAGE, POOL_STAGE};
use super::{Attachment, Exclusions, Family, Holder, NetNs};

/// Everything that an ADD requests.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The attachment.
    pub attachment: Attachment,
    /// `namespace/name` of the pod, for people.
    pub pod: Option<String>,
    /// The network namespace that the addresses are for.
    pub netns: Option<NetNs>,
    /// Whether the attachment can show no evidence: [`Holder::is_kept`].
    pub is_kept: bool,
    /// The address space.
    pub space: String,
    /// `ipam.ipAddress` of the network configuration.
    pub configured_address: Option<Box<str>>,
    /// The addresses, in the order of the result. All of them are allocated, or none.
    pub addresses: Vec<WantedAddress>,
    /// The cooldown of a released address.
    pub cooldown: Duration,
    /// The addresses that are never allocated. Holders of such addresses keep them.
    pub exclude: Exclusions,
}

impl Wanted {
    /// Returns the holder for an ADD with this number.
    pub(super) fn holder(&self, number: u64) -> Holder {
        Holder {
            attachment: self.attachment.clone(),
            pod: self.pod.clone(),
            netns: self.netns.clone(),
            is_kept: self.is_kept,
            number,
        }
    }
}

/// One address that an ADD requests.
#[derive(Clone, Debug)]
pub struct WantedAddress {
    /// The pools that fit.
    pub pool: PoolSelector,
    /// A particular address, as the caller writes it.
    pub address: Option<String>,
    /// Whether only that address requests IPv6, because the configuration names no family.
    pub decides_family: bool,
}

/// The pools that fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolSelector {
    /// The pool of this subnet, as the caller writes it.
    Named(String),
    /// Any pool of this family, and on this interface if one is named.
    Any {
        /// The address family.
        family: Family,
        /// The interface of the host.
        if_name: Option<String>,
    },
}

impl PoolSelector {
    /// Returns the family of the pools that fit.
    pub fn family(&self) -> Family {
        match self {
            PoolSelector::Named(subnet) => Family::of_prefix(subnet),
            PoolSelector::Any { family, .. } => *family,
        }
    }

    /// Returns the start of the original's messages from the first step of such a request.
    pub fn stage(&self) -> &'static str {
        match self {
            PoolSelector::Named(_) => ADDRESS_STAGE,
            PoolSelector::Any { .. } => POOL_STAGE,
        }
    }
}
