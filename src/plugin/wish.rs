//! What a call asks for: from which pools, and which addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::cni::{Call, IpamConf};
use crate::ipam::{Attachment, Family, PoolSelector, Refusal, Request, named_address};

/// One address that a call asks for.
#[derive(Debug)]
pub struct AddressRequest<'a> {
    /// Of which family.
    family: Family,
    /// From which pools.
    pool: PoolSelector<'a>,
    /// A particular one, as the caller spells it.
    address: Option<String>,
}

/// What the call asks for, an address of each family that it wants, in the order of the result.
///
/// # Errors
/// It asks for an address that none of these pools can have.
pub fn wishes(call: &Call) -> Result<Vec<AddressRequest<'_>>, Refusal> {
    let mut wishes = open_wishes(call);
    let not_found = |address: String| Err(Refusal::AddressNotFound { address });
    let said = call.conf.ipam.ip_address.as_ref();
    // The original's key alone is looked up as it is.
    if let ([wish], Some(said), 0 | 1) = (&mut *wishes, said, call.requested.len()) {
        wish.address = Some(said.clone());
        return Ok(wishes);
    }
    if let Some(said) = said.filter(|said| named_address(said).is_none()) {
        return not_found(said.clone());
    }
    for asked in &call.requested {
        let family = Family::of(*asked);
        match wishes.iter_mut().find(|wish| wish.family == family) {
            Some(wish) => wish.address = Some(asked.to_string()),
            None => return not_found(asked.to_string()),
        }
    }
    Ok(wishes)
}

/// The same, whichever addresses it asks for.
pub(super) fn open_wishes(call: &Call) -> Vec<AddressRequest<'_>> {
    let conf = &call.conf;
    let families = families(call);
    let mut wishes = Vec::with_capacity(families.len());
    for family in &families {
        let named = conf.ipam.subnet.as_deref();
        let is_its = |subnet: &&str| families.len() == 1 || Family::of_prefix(subnet) == *family;
        let any = PoolSelector::Any {
            family: *family,
            if_name: conf.master.as_deref(),
        };
        wishes.push(AddressRequest {
            family: *family,
            pool: named.filter(is_its).map_or(any, PoolSelector::Named),
            address: None,
        });
    }
    wishes
}

/// No address is known to be the host's before the kernel was asked.
static NONE: BTreeSet<IpAddr> = BTreeSet::new();

/// These wishes of `attachment`, as the pools are asked for them.
pub fn requests<'a>(
    wishes: &'a [AddressRequest<'_>],
    conf: &'a IpamConf,
    attachment: &'a Attachment,
) -> Vec<Request<'a>> {
    let mut requests = Vec::with_capacity(wishes.len());
    for wish in wishes {
        requests.push(Request {
            attachment,
            space: &conf.address_space,
            pool: wish.pool,
            address: wish.address.as_deref(),
            pod: None,
            netns: None,
            rest: conf.rest,
            wired: &NONE,
            exclude: &conf.exclude,
        });
    }
    requests
}

/// The families of the addresses that the call wants. Unless the configuration tells, the subnet does, or else the addresses
/// that are asked for.
fn families(call: &Call) -> Vec<Family> {
    let ipam = &call.conf.ipam;
    if !ipam.families.is_empty() {
        return ipam.families.clone();
    }
    match (&ipam.subnet, &*call.requested) {
        (_, [first, second]) if !ipam.ipv6 => vec![Family::of(*first), Family::of(*second)],
        (Some(subnet), _) => vec![Family::of_prefix(subnet)],
        (None, _) if ipam.ipv6 => vec![Family::V6],
        (None, [only]) => vec![Family::of(*only)],
        (None, _) => vec![Family::V4],
    }
}

/// What the caller is told. That no pool is of a family that only the address asked for has, or of one of two, tells nothing
/// of the other pools; and at the words for that azure-vnet deletes the state.
pub(super) fn told(refusal: Refusal, call: &Call) -> Refusal {
    let Refusal::NoPools {
        family,
        passed_over,
    } = refusal
    else {
        return refusal;
    };
    let ipam = &call.conf.ipam;
    let is_said = ipam.ipv6 || ipam.families.contains(&family);
    let mut requested = call.requested.iter();
    match requested.find(|asked| Family::of(**asked) == family) {
        Some(asked) if !is_said && family == Family::V6 => Refusal::AddressNotFound {
            address: asked.to_string(),
        },
        _ if families(call).len() > 1 && !passed_over.is_empty() => Refusal::NoPoolOfFamily {
            family,
            passed_over,
        },
        _ => Refusal::NoPools {
            family,
            passed_over,
        },
    }
}
