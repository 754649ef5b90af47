//! The addresses that an ADD requests.

use std::net::IpAddr;

use crate::cni::Call;
use crate::codec::named_address;
use crate::ipam::{Family, NetNs, PoolSelector, Refusal, Wanted, WantedAddress};

impl Wanted {
    /// Collects what a call requests for this network namespace: one address of each family.
    ///
    /// # Errors
    /// The call names an address that none of its pools can have.
    pub fn from_call(call: &Call, netns: Option<NetNs>) -> Result<Wanted, Refusal> {
        let mut wanted = Wanted::for_any_address(call);
        wanted.netns = netns;
        let named = call.conf.ipam.ip_address.as_deref();
        // An address that only the original's key names is looked up in the spelling of the configuration.
        if let ([only], Some(named), 0 | 1) = (&mut *wanted.addresses, named, call.requested.len())
        {
            only.address = Some(named.to_owned());
            return Ok(wanted);
        }
        let not_found = |address| Err(Refusal::AddressNotFound { address });
        if let Some(named) = named.filter(|named| named_address(named).is_none()) {
            return not_found(named.to_owned());
        }
        for requested in &call.requested {
            let family = Family::from_address(*requested);
            let mut addresses = wanted.addresses.iter_mut();
            match addresses.find(|wanted| wanted.pool.family() == family) {
                Some(wanted) => wanted.address = Some(requested.to_string()),
                None => return not_found(requested.to_string()),
            }
        }
        Ok(wanted)
    }

    /// Collects what a call requests, but without a particular address and without a network namespace.
    pub(super) fn for_any_address(call: &Call) -> Wanted {
        let ipam = &call.conf.ipam;
        let families = families(call);
        let mut addresses = Vec::new();
        for family in &families {
            // A subnet of another family does not apply: azure-vnet may pass the IPv4 subnet on to the IPv6 plugin (difference D23).
            let subnet = ipam.subnet.as_ref();
            let pool = match subnet.filter(|subnet| Family::of_prefix(subnet) == *family) {
                Some(subnet) => PoolSelector::Named(subnet.clone()),
                None => PoolSelector::Any {
                    family: *family,
                    if_name: call.conf.master.clone(),
                },
            };
            let is_configured = ipam.ipv6 || ipam.families.contains(family);
            addresses.push(WantedAddress {
                pool,
                address: None,
                decides_family: *family == Family::V6 && !is_configured,
            });
        }
        Wanted {
            attachment: call.attachment.clone(),
            pod: call.pod.clone(),
            netns: None,
            is_kept: call.is_kept,
            space: ipam.address_space.clone(),
            configured_address: ipam.ip_address.clone(),
            addresses,
            cooldown: ipam.cooldown,
            exclude: ipam.exclude.clone(),
        }
    }
}

/// Returns the families to allocate from: those of the configuration, else those of two requested addresses, else that of the subnet,
/// else that of one requested address, else IPv4.
fn families(call: &Call) -> Vec<Family> {
    let ipam = &call.conf.ipam;
    if !ipam.families.is_empty() {
        return ipam.families.clone();
    }
    if ipam.ipv6 {
        return vec![Family::V6];
    }
    let family = |address: &IpAddr| Family::from_address(*address);
    match (&ipam.subnet, &*call.requested) {
        (_, [first, second]) => vec![family(first), family(second)],
        (Some(subnet), _) => vec![Family::of_prefix(subnet)],
        (None, [only]) => vec![family(only)],
        (None, _) => vec![Family::V4],
    }
}
