//! The addresses that a call requests: of which family, from which pools, and which one.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::cni::{Call, IpamConfig};
use crate::codec::named_address;
use crate::failure::Failure;
use crate::ipam::{Attachment, Family, PoolSelector, Refusal, Request};

/// One address that a call requests.
#[derive(Debug)]
pub struct AddressRequest<'a> {
    family: Family,
    pool: PoolSelector<'a>,
    /// A particular address, as the caller writes it.
    address: Option<String>,
}

/// Returns what a call requests: one address per family, in the order of the result.
///
/// # Errors
/// The call names an address that none of its pools can have.
pub fn address_requests(call: &Call) -> Result<Vec<AddressRequest<'_>>, Failure> {
    let mut requests = requests_for_any_address(call);
    let not_found = |address: String| {
        Err(Failure::Refused {
            refusal: Refusal::AddressNotFound { address },
            source: None,
        })
    };
    let named = call.conf.ipam.ip_address.as_ref();
    // An address that only the original's key names is looked up as it is written.
    if let ([request], Some(named), 0 | 1) = (&mut *requests, named, call.requested.len()) {
        request.address = Some(named.clone());
        return Ok(requests);
    }
    if let Some(named) = named.filter(|named| named_address(named).is_none()) {
        return not_found(named.clone());
    }
    for requested in &call.requested {
        let family = Family::from_address(*requested);
        match requests.iter_mut().find(|request| request.family == family) {
            Some(request) => request.address = Some(requested.to_string()),
            None => return not_found(requested.to_string()),
        }
    }
    Ok(requests)
}

/// Returns the same requests without the particular addresses.
pub(super) fn requests_for_any_address(call: &Call) -> Vec<AddressRequest<'_>> {
    let conf = &call.conf;
    let families = families(call);
    let request = |family: &Family| {
        let subnet = conf.ipam.subnet.as_deref();
        let is_of_family =
            |subnet: &&str| families.len() == 1 || Family::of_prefix(subnet) == *family;
        let any = PoolSelector::Any {
            family: *family,
            if_name: conf.master.as_deref(),
        };
        AddressRequest {
            family: *family,
            pool: subnet.filter(is_of_family).map_or(any, PoolSelector::Named),
            address: None,
        }
    };
    families.iter().map(request).collect()
}

/// No address is known to be on the host before the kernel was asked.
static NONE: BTreeSet<IpAddr> = BTreeSet::new();

/// Turns the requests of a call into those of an attachment to the pools.
pub fn pool_requests<'a>(
    requests: &'a [AddressRequest<'_>],
    conf: &'a IpamConfig,
    attachment: &'a Attachment,
) -> Vec<Request<'a>> {
    let request = |request: &'a AddressRequest<'_>| Request {
        attachment,
        space: &conf.address_space,
        pool: request.pool,
        address: request.address.as_deref(),
        pod: None,
        netns: None,
        cooldown: conf.cooldown,
        on_host: &NONE,
        exclude: &conf.exclude,
    };
    requests.iter().map(request).collect()
}

/// Returns the families to allocate from: those of the configuration, else the subnet's, else those of the requested addresses.
fn families(call: &Call) -> Vec<Family> {
    let ipam = &call.conf.ipam;
    if !ipam.families.is_empty() {
        return ipam.families.clone();
    }
    match (&ipam.subnet, &*call.requested) {
        (_, [first, second]) if !ipam.ipv6 => {
            vec![Family::from_address(*first), Family::from_address(*second)]
        }
        (Some(subnet), _) => vec![Family::of_prefix(subnet)],
        (None, _) if ipam.ipv6 => vec![Family::V6],
        (None, [only]) => vec![Family::from_address(*only)],
        (None, _) => vec![Family::V4],
    }
}

/// Narrows "no available address pools" to the missing family where other pools would do. azure-vnet deletes the state when it
/// reads the original's words, which must therefore mean that there is no pool at all.
pub(super) fn narrow_refusal(refusal: Refusal, call: &Call) -> Refusal {
    let Refusal::NoPools {
        family,
        if_name,
        passed_over,
    } = refusal
    else {
        return refusal;
    };
    let ipam = &call.conf.ipam;
    let is_configured = ipam.ipv6 || ipam.families.contains(&family);
    let mut requested = call.requested.iter();
    match requested.find(|address| Family::from_address(**address) == family) {
        Some(address) if !is_configured && family == Family::V6 => Refusal::AddressNotFound {
            address: address.to_string(),
        },
        _ if families(call).len() > 1 && !passed_over.is_empty() => Refusal::NoPoolOfFamily {
            family,
            if_name,
            passed_over,
        },
        _ => Refusal::NoPools {
            family,
            if_name,
            passed_over,
        },
    }
}
