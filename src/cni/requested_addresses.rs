//! Collects the addresses that the caller requests, by the conventions of the CNI project: CNI_ARGS `IP`, `args.cni.ips` and the capability
//! `ips` (`runtimeConfig.ips`), beside this plugin's own `ipam.ipAddress`.

use std::net::IpAddr;

use super::CallError;
use super::network_config::RawNetworkConfig;
use super::{Environment, IpamConfig};
use crate::codec::named_address;
use crate::ipam::Family;

/// Collects the requested addresses, at most one of each family. The same address may be requested in several places.
///
/// # Errors
/// One is not an address, a list names one twice, or there are two of a family.
pub(super) fn collect_requested(
    environment: &Environment,
    raw_config: &RawNetworkConfig,
    ipam: &IpamConfig,
) -> Result<Vec<IpAddr>, CallError> {
    let in_args: Vec<String> = environment.args("IP").map(str::to_owned).collect();
    let mut all: Vec<IpAddr> = Vec::new();
    // An invalid `ipam.ipAddress` is not an error here: as in the original, it is found in no pool later.
    all.extend(ipam.ip_address.as_deref().and_then(named_address));
    let lists = [("CNI_ARGS IP", in_args)]
        .into_iter()
        .chain(raw_config.ips()?);
    for (place, texts) in lists {
        let mut here = Vec::new();
        for text in texts {
            let wrong = |why: &'static str| CallError::Requested {
                address: text.clone(),
                place,
                why,
            };
            let address = named_address(&text).ok_or_else(|| wrong("it is not an address"))?;
            if here.contains(&address) {
                return Err(wrong("it is there twice"));
            }
            here.push(address);
            if all.contains(&address) {
                continue;
            }
            if all
                .iter()
                .any(|a| Family::from_address(*a) == Family::from_address(address))
            {
                return Err(wrong("another of its family is asked for too"));
            }
            all.push(address);
        }
    }
    Ok(all)
}
