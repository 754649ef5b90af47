//! The table of the keys of `ipam`. The row of a key says what its value must be, where it may stand,
//! and how it is parsed.
//!
//! The keys are rows and not fields, because they are also used one by one. The first invalid key in
//! the original's order is reported, and each default is checked without the others.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::value::RawValue;

use super::error::{CallError, Key, describe_found};
use super::{Backend, IpamConfig, KeepPattern, NAME_V6, QueryUrl, WhenFull, overrides};
use crate::codec::is;
use crate::ipam::{Exclusions, Family};

/// A key of `ipam` that this plugin uses.
#[derive(Debug)]
pub(super) struct IpamKey {
    /// The key as errors name it.
    pub key: Key,
    /// Where it may stand, and for which verbs it is read.
    pub scope: Scope,
    /// Parses its value into the configuration.
    parse: fn(&mut IpamConfig, Key, &RawValue) -> Result<(), CallError>,
}

/// Where a key may stand, and for which verbs it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// In a network configuration; read for every verb.
    EveryVerb,
    /// In a network configuration; read for verbs that allocate.
    Allocation,
    /// In a network configuration, or in the file of defaults for all pods; read for verbs that
    /// allocate.
    Node,
}

/// The key `ipam.queryInterval`. In a network configuration, its invalid texts are ignored (contract
/// section 6).
pub(super) const QUERY_INTERVAL: Key = Key::new(
    "ipam.queryInterval",
    "a string of whole seconds above zero, for example \"10\"",
);

/// The keys of `ipam`, in the order in which they are validated.
pub(super) static IPAM_KEYS: [IpamKey; 17] = [
    IpamKey {
        key: Key::new("ipam.type", "a string, for example \"azure-vnet-ipam\""),
        scope: Scope::EveryVerb,
        parse: |conf, key, raw| {
            conf.ipv6 |= key.parse_text(raw)?.as_deref() == Some(NAME_V6);
            Ok(())
        },
    },
    IpamKey {
        key: Key::new("ipam.addressSpace", "a string, for example \"local\""),
        scope: Scope::EveryVerb,
        parse: |conf, key, raw| {
            if let Some(address_space) = key.parse_text(raw)? {
                conf.address_space = address_space;
            }
            Ok(())
        },
    },
    IpamKey {
        key: Key::new("ipam.subnet", "a string, for example \"10.224.0.0/16\""),
        scope: Scope::EveryVerb,
        parse: |conf, key, raw| key.parse_text(raw).map(|text| conf.subnet = text),
    },
    IpamKey {
        key: Key::new("ipam.ipAddress", "a string, for example \"10.224.0.9\""),
        scope: Scope::EveryVerb,
        parse: |conf, key, raw| {
            conf.ip_address = key.parse_text(raw)?.map(String::into_boxed_str);
            Ok(())
        },
    },
    IpamKey {
        key: Key::new("ipam.environment", "a string, for example \"azure\""),
        scope: Scope::Node,
        parse: |conf, key, raw| {
            if let Some(name) = key.parse_text(raw)? {
                conf.backend = Backend::parse(key, &name)?;
            }
            // That source has IPv6 pools only.
            conf.ipv6 |= conf.backend == Backend::Ipv6NodeIpam;
            Ok(())
        },
    },
    IpamKey {
        key: Key::new(
            "ipam.ipv6Environment",
            "a string, for example \"ipv6NodeIpam\"",
        ),
        scope: Scope::Node,
        parse: |conf, key, raw| {
            if let Some(name) = key.parse_text(raw)? {
                conf.ipv6_backend = Some(Backend::parse(key, &name)?);
            }
            Ok(())
        },
    },
    IpamKey {
        key: Key::new(
            "ipam.families",
            "a list of \"ipv4\" and \"ipv6\", each once at most, with the family of \
             ipam.subnet, for example [\"ipv4\", \"ipv6\"]",
        ),
        scope: Scope::Allocation,
        parse: |conf, key, raw| {
            conf.families = parse_families(key, raw, conf)?;
            Ok(())
        },
    },
    IpamKey {
        key: QUERY_INTERVAL,
        scope: Scope::Node,
        parse: |conf, key, raw| {
            if let Some(seconds) = key.parse_text(raw)? {
                conf.query_interval = parse_interval(&seconds);
            }
            Ok(())
        },
    },
    IpamKey {
        key: Key::new(
            "ipam.queryUrl",
            "a string that begins with http:// or file:, \
             for example \"file:///etc/interfaces.xml\"",
        ),
        scope: Scope::Node,
        parse: |conf, key, raw| {
            if let Some(url) = key.parse_text(raw)? {
                conf.query_url = Some(QueryUrl::parse(&url)?);
            }
            Ok(())
        },
    },
    IpamKey {
        key: Key::new(
            "ipam.kubeconfig",
            "a string, for example \"/var/lib/kubelet/kubeconfig\"",
        ),
        scope: Scope::Node,
        parse: |conf, key, raw| key.parse_text(raw).map(|text| conf.kubeconfig = text),
    },
    IpamKey {
        key: Key::new("ipam.nodeName", "a string, for example \"aks-nodepool1-0\""),
        scope: Scope::Node,
        parse: |conf, key, raw| key.parse_text(raw).map(|text| conf.node_name = text),
    },
    IpamKey {
        key: Key::new("ipam.exclude", "a list, for example [\"10.224.0.128/25\"]"),
        scope: Scope::Node,
        parse: |conf, key, raw| parse_exclude(key, raw).map(|subnets| conf.exclude = subnets),
    },
    IpamKey {
        key: Key::new(
            "ipam.keep",
            "a list of container IDs, which may end in *, for example [\"cilium-ingress-*\"]",
        ),
        scope: Scope::Node,
        parse: |conf, key, raw| parse_keep(key, raw).map(|patterns| conf.keep = patterns),
    },
    IpamKey {
        key: Key::new("ipam.cooldown", "whole seconds, for example 30"),
        scope: Scope::Node,
        parse: |conf, key, raw| parse_cooldown(key, raw).map(|time| conf.cooldown = time),
    },
    IpamKey {
        key: Key::new(
            "ipam.statusWhenFull",
            "\"ready\" or \"error\", for example \"ready\"",
        ),
        scope: Scope::Node,
        parse: |conf, key, raw| parse_when_full(key, raw).map(|answer| conf.when_full = answer),
    },
    IpamKey {
        key: Key::new(
            "ipam.routes",
            "a list of objects with dst and, if wanted, gw, \
             for example [{\"dst\": \"10.0.0.0/8\", \"gw\": \"10.224.0.1\"}]",
        ),
        scope: Scope::Node,
        parse: |conf, key, raw| {
            overrides::routes(key, raw).map(|routes| conf.routes = Some(routes))
        },
    },
    IpamKey {
        key: Key::new(
            "ipam.dns",
            "an object with nameservers, domain, search and options, \
             for example {\"nameservers\": [\"10.0.0.10\"]}",
        ),
        scope: Scope::Node,
        parse: |conf, key, raw| overrides::dns(key, raw).map(|dns| conf.dns = Some(dns)),
    },
];

impl IpamKey {
    /// Finds a key by its name in any case; `None` if this plugin does not use it.
    pub fn find(name: &str) -> Option<&'static IpamKey> {
        IPAM_KEYS.iter().find(|row| is(name, row.name()))
    }

    /// Returns the name of the key within `ipam`.
    pub fn name(&self) -> &'static str {
        let path = self.key.path;
        path.strip_prefix("ipam.").unwrap_or(path)
    }

    /// Parses a value of the key into `conf`. An error leaves `conf` as it is.
    pub fn parse_into(&self, conf: &mut IpamConfig, raw: &RawValue) -> Result<(), CallError> {
        (self.parse)(conf, self.key, raw)
    }
}

/// Iterates over the names of the keys of `ipam` that this plugin uses. Others are ignored, even
/// those of an unexpected type (difference D15).
pub fn ipam_keys() -> impl Iterator<Item = &'static str> {
    IPAM_KEYS.iter().map(IpamKey::name)
}

/// Returns whether this plugin uses a key of `ipam`.
pub fn is_ipam_key(name: &str) -> bool {
    IpamKey::find(name).is_some()
}

/// Parses a list of families. Each may occur once, and the family of the subnet must be one of them. If the call allocates from IPv6
/// pools, only IPv6 may occur, and an IPv4 subnet does not apply.
fn parse_families(key: Key, raw: &RawValue, conf: &IpamConfig) -> Result<Vec<Family>, CallError> {
    let invalid = || CallError::Invalid(key, describe_found(raw));
    let names: Vec<String> = key.parse(raw)?;
    let mut families = Vec::new();
    for name in names {
        let family = if name.eq_ignore_ascii_case("ipv4") {
            Family::V4
        } else if name.eq_ignore_ascii_case("ipv6") {
            Family::V6
        } else {
            return Err(invalid());
        };
        if families.contains(&family) {
            return Err(invalid());
        }
        families.push(family);
    }
    let lists_family = |subnet: &String| families.contains(&Family::of_prefix(subnet));
    let is_valid = if conf.ipv6 {
        families == [Family::V6]
    } else {
        !families.is_empty() && conf.subnet.as_ref().is_none_or(lists_family)
    };
    if is_valid {
        Ok(families)
    } else {
        Err(invalid())
    }
}

/// Parses decimal seconds. Returns `None` for other texts, for which the original uses its default
/// (contract section 6).
fn parse_interval(text: &str) -> Option<Duration> {
    text.parse::<u64>()
        .ok()
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs)
}

/// Parses a list of addresses and prefixes.
fn parse_exclude(key: Key, raw: &RawValue) -> Result<Exclusions, CallError> {
    let texts: Vec<String> = key.parse(raw)?;
    let invalid = |text| CallError::Invalid(key, format!("{text:?} is not an address or a prefix"));
    let subnets: Result<Vec<IpNet>, CallError> = texts
        .iter()
        .map(|text| parse_prefix(text).ok_or_else(|| invalid(text)))
        .collect();
    subnets.map(Exclusions::new)
}

/// Parses a list of container IDs and of their beginnings.
fn parse_keep(key: Key, raw: &RawValue) -> Result<Vec<KeepPattern>, CallError> {
    let texts: Vec<String> = key.parse(raw)?;
    let is_pattern = |text: &String| {
        let beginning = text.strip_suffix('*').unwrap_or(text);
        !text.is_empty() && !beginning.contains('*')
    };
    match texts.iter().find(|text| !is_pattern(text)) {
        Some(text) => {
            let why = format!("{text:?} is not a container ID, with or without a * at its end");
            Err(CallError::Invalid(key, why))
        }
        None => Ok(texts.into_iter().map(KeepPattern).collect()),
    }
}

/// Parses an address or a prefix. Ignores the host bits of a prefix.
fn parse_prefix(text: &str) -> Option<IpNet> {
    if let Ok(prefix) = text.parse::<IpNet>() {
        return Some(prefix.trunc());
    }
    text.parse::<IpAddr>().ok().map(IpNet::from)
}

/// Parses whole seconds, as a number or, like `queryInterval`, as a string.
fn parse_cooldown(key: Key, raw: &RawValue) -> Result<Duration, CallError> {
    let digits = raw.get().trim_matches('"');
    let seconds: u32 = digits
        .parse()
        .map_err(|_| CallError::Invalid(key, describe_found(raw)))?;
    Ok(Duration::from_secs(seconds.into()))
}

/// Parses what STATUS reports when no address is free.
fn parse_when_full(key: Key, raw: &RawValue) -> Result<WhenFull, CallError> {
    match key.parse_text(raw)?.as_deref() {
        None | Some("ready") => Ok(WhenFull::Ready),
        Some("error") => Ok(WhenFull::Error),
        Some(other) => Err(CallError::Invalid(key, format!("found {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::error::tests::assert_example_is_json;

    #[test]
    fn every_form_has_an_example_that_is_json() {
        for row in &IPAM_KEYS {
            assert_example_is_json(row.key);
        }
    }

    #[test]
    fn intervals_are_whole_seconds_above_zero() {
        assert_eq!(parse_interval("20"), Some(Duration::from_secs(20)));
        for none in ["", "0", "10s", "-1", "1.5", "99999999999999999999"] {
            assert_eq!(parse_interval(none), None, "{none}");
        }
    }
}
