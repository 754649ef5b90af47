//! What a call asks for: from which pools, and which address.

use crate::cni::Call;
use crate::ipam::{Family, PoolWish, Refusal};

/// From which pools the call wants its address. Without subnet the address that it asks for tells the family.
pub(super) fn wish(call: &Call) -> PoolWish<'_> {
    let (conf, ipam) = (&call.conf, &call.conf.ipam);
    let asks = |family| call.requested.iter().any(|a| Family::of(*a) == family);
    let v6 = ipam.ipv6 || asks(Family::V6) && !asks(Family::V4);
    let any = PoolWish::Any {
        family: if v6 { Family::V6 } else { Family::V4 },
        if_name: conf.master.as_deref(),
    };
    ipam.subnet.as_deref().map_or(any, PoolWish::Named)
}

/// What the caller is told. That no pool is of a family that only the address asked for has tells nothing of the pools; and at
/// the words for that azure-vnet deletes the state.
pub(super) fn told(refusal: Refusal, call: &Call) -> Refusal {
    let by_address = !call.conf.ipam.ipv6
        && matches!(
            wish(call),
            PoolWish::Any {
                family: Family::V6,
                ..
            }
        );
    match (refusal, call.requested.first()) {
        (Refusal::NoPools { .. }, Some(address)) if by_address => Refusal::AddressNotFound {
            address: address.to_string(),
        },
        (refusal, _) => refusal,
    }
}

/// The address that the call asks for. One of a family that these pools do not have is in none of them.
pub(super) fn address_asked(call: &Call, pool: PoolWish<'_>) -> Result<Option<String>, Refusal> {
    if let Some(said) = &call.conf.ipam.ip_address
        && call.requested.len() < 2
    {
        return Ok(Some(said.clone()));
    }
    let family = match pool {
        PoolWish::Named(subnet) if subnet.contains(':') => Family::V6,
        PoolWish::Named(_) => Family::V4,
        PoolWish::Any { family, .. } => family,
    };
    let other = call.requested.iter().find(|a| Family::of(**a) != family);
    if let Some(address) = other {
        return Err(Refusal::AddressNotFound {
            address: address.to_string(),
        });
    }
    Ok(call.requested.first().map(ToString::to_string))
}
