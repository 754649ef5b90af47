//! Parses the values of members of a network configuration.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::CallError;
use crate::ipam::Family;

/// Parses a string; `None` when the member is missing.
pub(super) fn parse_string(
    raw: Option<&RawValue>,
    key: &'static str,
) -> Result<Option<String>, CallError> {
    let Some(raw) = raw else { return Ok(None) };
    let wrong = |_| CallError::WrongType {
        key,
        found: describe_found(raw),
    };
    serde_json::from_str(raw.get()).map(Some).map_err(wrong)
}

/// Parses the value of a key that the original does not have.
pub(super) fn parse_value<T: DeserializeOwned>(
    raw: &RawValue,
    key: &'static str,
) -> Result<T, CallError> {
    serde_json::from_str(raw.get()).map_err(|_| CallError::Invalid {
        key,
        found: describe_found(raw),
    })
}

/// Quotes the beginning of a value for an error.
pub(super) fn describe_found(raw: &RawValue) -> String {
    const MOST: usize = 80;
    let text = raw.get();
    match text.chars().nth(MOST) {
        None => format!("found {text}"),
        Some(_) => format!("found {}...", text.chars().take(MOST).collect::<String>()),
    }
}

/// Parses a list of families: each at most once, that of `subnet` among them.
pub(super) fn parse_families(
    raw: &RawValue,
    subnet: Option<&str>,
) -> Result<Vec<Family>, CallError> {
    const KEY: &str = "ipam.families";
    let names: Vec<String> = parse_value(raw, KEY)?;
    let mut families = Vec::new();
    for text in &names {
        let family = match text {
            t if t.eq_ignore_ascii_case("ipv4") => Some(Family::V4),
            t if t.eq_ignore_ascii_case("ipv6") => Some(Family::V6),
            _ => None,
        };
        families.extend(family.filter(|family| !families.contains(family)));
    }
    let has = |subnet| families.contains(&Family::of_prefix(subnet));
    match families.len() == names.len() && !names.is_empty() && subnet.is_none_or(has) {
        true => Ok(families),
        false => Err(CallError::Invalid {
            key: KEY,
            found: describe_found(raw),
        }),
    }
}

/// Parses an address, or a prefix whose host bits are ignored.
pub(super) fn parse_prefix(text: &str) -> Result<IpNet, CallError> {
    let net = text.parse::<IpNet>().map(|net| net.trunc());
    net.or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| CallError::Invalid {
            key: "ipam.exclude",
            found: format!("{text:?} is not an address or a prefix"),
        })
}

/// Parses whole seconds, as a number or, like `queryInterval`, as a string.
pub(super) fn parse_cooldown(raw: &RawValue) -> Result<Duration, CallError> {
    let digits = raw.get().trim_matches('"');
    let seconds = digits.parse::<u32>().map_err(|_| CallError::Invalid {
        key: "ipam.cooldown",
        found: describe_found(raw),
    })?;
    Ok(Duration::from_secs(seconds.into()))
}

/// Parses decimal seconds; `None` where the original also falls back to its default (contract section 6).
pub(super) fn parse_interval(text: &str) -> Option<Duration> {
    text.parse::<u64>()
        .ok()
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs)
}
