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

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(args: &str, conf: &str, ip_address: Option<&str>) -> Result<Vec<String>, CallError> {
        let environment = Environment {
            args: args.into(),
            ..Environment::default()
        };
        let ipam = IpamConfig {
            ip_address: ip_address.map(str::to_owned),
            ..IpamConfig::default()
        };
        let found = collect_requested(
            &environment,
            &RawNetworkConfig::read(conf.as_bytes())?,
            &ipam,
        )?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn each_place_counts_with_and_without_prefix_length() {
        let none: [&str; 0] = [];
        assert_eq!(asked("", "{}", None).unwrap(), none);
        for (args, conf, ip_address) in [
            ("IP=10.1.0.5", "{}", None),
            ("IgnoreUnknown=1;IP=10.1.0.5/16", "{}", None),
            ("", r#"{"args":{"cni":{"ips":["10.1.0.5/24"]}}}"#, None),
            (
                "",
                r#"{"runtimeConfig":{"ips":["10.1.0.5"],"dns":{}}}"#,
                None,
            ),
            ("", "{}", Some("10.1.0.5")),
            (
                "IP=10.1.0.5",
                r#"{"runtimeConfig":{"ips":["10.1.0.5/16"]}}"#,
                Some("10.1.0.5"),
            ),
        ] {
            assert_eq!(
                asked(args, conf, ip_address).unwrap(),
                ["10.1.0.5"],
                "{args} {conf}"
            );
        }
        let both = r#"{"runtimeConfig":{"ips":["10.1.0.5","fd00::5/64"]}}"#;
        assert_eq!(asked("", both, None).unwrap(), ["10.1.0.5", "fd00::5"]);
        for nothing in [
            r#"{"args":{"cni":{"ips":null}}}"#,
            r#"{"args":{"labels":[]},"runtimeConfig":{}}"#,
        ] {
            assert_eq!(asked("", nothing, None).unwrap(), none, "{nothing}");
        }
    }

    #[test]
    fn invalid_requests_are_refused() {
        for (args, conf) in [
            ("IP=banana", "{}"),
            (
                "",
                r#"{"runtimeConfig":{"ips":["10.1.0.5","10.1.0.5/16"]}}"#,
            ),
            ("", r#"{"args":{"cni":{"ips":["10.1.0.5","10.1.0.6"]}}}"#),
            ("IP=10.1.0.5", r#"{"args":{"cni":{"ips":["10.1.0.6"]}}}"#),
            ("IP=;IP=zzz", "{}"),
            ("IP=10.1.0.5;IP=10.1.0.6", "{}"),
            (
                "",
                r#"{"Args":{"CNI":{"IPS":["zzz"]}},"RuntimeConfig":{"IPs":[]}}"#,
            ),
        ] {
            let found = asked(args, conf, None);
            assert!(
                matches!(found, Err(CallError::Requested { .. })),
                "{args} {conf}: {found:?}"
            );
        }
        for conf in [
            r#"{"runtimeConfig":{"ips":"10.1.0.5"}}"#,
            r#"{"args":{"cni":{"ips":[5]}}}"#,
        ] {
            assert!(
                matches!(asked("", conf, None), Err(CallError::Invalid { .. })),
                "{conf}"
            );
        }
    }
}
