//! The errors of an invalid call, the form of each key that can be wrong, and the parsers that
//! return these errors.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::Verb;
use crate::codec::is;

/// Why a call is invalid. The messages begin with the original's words (contract section 14).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Variables that the verb needs are missing.
    #[error("required env variables [{}] missing", .0.join(","))]
    MissingVariables(Vec<&'static str>),
    /// stdin is not a network configuration.
    #[error("error unmarshall network config: {0}")]
    NotJson(String),
    /// stdin is larger than its limit.
    #[error("error unmarshall network config: more than {0} bytes on stdin")]
    TooLong(usize),
    /// stdin cannot be read.
    #[error("cannot read stdin: {0}")]
    Unreadable(String),
    /// The network has no name.
    #[error("missing network name")]
    NoName,
    /// The network's name has characters that are not allowed.
    #[error("invalid characters found in network name")]
    BadName(String),
    /// CNI_CONTAINERID is empty.
    #[error("missing containerID")]
    NoContainerId,
    /// CNI_CONTAINERID has characters that are not allowed.
    #[error("invalid characters in containerID")]
    BadContainerId(String),
    /// The network's name or CNI_CONTAINERID is longer than any file name. libcni makes both part
    /// of a file name.
    #[error("{0} is too long")]
    TooLongName(&'static str),
    /// CNI_IFNAME is empty.
    #[error("interface name is empty")]
    NoIfName,
    /// CNI_IFNAME is longer than the kernel allows.
    #[error("interface name is too long")]
    IfNameTooLong,
    /// CNI_IFNAME is `.` or `..`.
    #[error("interface name is . or ..")]
    IfNameDots,
    /// CNI_IFNAME has characters that are not allowed.
    #[error("interface name contains / or : or whitespace characters")]
    BadIfName,
    /// CNI_COMMAND is not a known verb.
    #[error("unknown CNI_COMMAND: {0}")]
    UnknownCommand(String),
    /// CNI_ARGS has unknown keys, and no `IgnoreUnknown`.
    #[error("unknown args in CNI_ARGS: {}", .0.join(","))]
    UnknownArgs(Vec<String>),
    /// `cniVersion` is not a string.
    #[error("decoding version from network config: cniVersion must be a string")]
    VersionType,
    /// `cniVersion` is not supported.
    #[error("incompatible CNI versions")]
    Incompatible(String),
    /// `cniVersion` is older than the version that added the verb.
    #[error("config version does not allow {}", .0.as_str())]
    TooOldFor(Verb),
    /// `cniVersion` is not a version.
    #[error("failed to convert major version part {0:?}: it is not a number")]
    NoVersion(String),
    /// A member that this plugin uses has the wrong type. The fields are its path and what was
    /// found, or the decoder's message.
    #[error("Failed to parse network configuration: {0} must be {form}: {1}", form = form(.0))]
    WrongType(&'static str, String),
    /// `ipam.environment` is unknown.
    #[error("Failed to parse network configuration: Invalid configuration")]
    UnknownEnvironment(String),
    /// A member that the original does not have is invalid. The fields are its path and what was
    /// found, or the decoder's message.
    #[error("{0} must be {form}: {1}", form = form(.0))]
    Invalid(&'static str, String),
    /// A requested address is invalid.
    #[error("invalid requested address {address:?} in {place}: {why}")]
    Requested {
        /// In the caller's spelling.
        address: String,
        /// Where it was requested.
        place: &'static str,
        /// Why it is invalid.
        why: &'static str,
    },
    /// The configuration of a GC does not list the valid attachments.
    #[error("cni.dev/valid-attachments is missing")]
    NoAttachments,
    /// `ipam.queryUrl` is not a supported URL.
    #[error("invalid query URL {0:?}")]
    QueryUrl(String),
}

/// Parses a string; `None` when the member is missing.
pub(super) fn parse_string(
    raw: Option<&RawValue>,
    key: &'static str,
) -> Result<Option<String>, CallError> {
    let Some(raw) = raw else { return Ok(None) };
    let wrong = |_| CallError::WrongType(key, describe_found(raw));
    serde_json::from_str(raw.get()).map(Some).map_err(wrong)
}

/// Parses the value of a key that the original does not have.
pub(super) fn parse_value<T: DeserializeOwned>(
    raw: &RawValue,
    key: &'static str,
) -> Result<T, CallError> {
    serde_json::from_str(raw.get()).map_err(|_| CallError::Invalid(key, describe_found(raw)))
}

/// Quotes the beginning of a value for an error.
pub(super) fn describe_found(raw: &RawValue) -> String {
    const MAX_CHARACTERS: usize = 80;
    let text = raw.get();
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("found {}...", text.get(..end).unwrap_or_default()),
        None => format!("found {text}"),
    }
}

/// Returns the form of a key as it follows `KEY must be`. A key that is not in the table is a
/// string.
pub(super) fn form(key: &str) -> &'static str {
    FORMS
        .iter()
        .find(|(known, _)| *known == key)
        .map_or("a string", |(_, form)| form)
}

/// Iterates over the keys of `ipam` that this plugin uses. Others are ignored, whatever their type
/// (difference D15).
pub fn ipam_keys() -> impl Iterator<Item = &'static str> {
    FORMS.iter().filter_map(|(path, _)| ipam_key(path))
}

/// Returns the key of `ipam` that a path leads to.
pub(super) fn ipam_key(path: &str) -> Option<&str> {
    path.strip_prefix("ipam.")
}

/// Returns the path of a key of `ipam`, in any case; `None` if this plugin does not use the key.
pub(super) fn ipam_path(key: &str) -> Option<&'static str> {
    FORMS
        .iter()
        .map(|(path, _)| *path)
        .find(|path| ipam_key(path).is_some_and(|known| is(key, known)))
}

/// Returns whether this plugin uses a key of `ipam`.
pub fn is_ipam_key(key: &str) -> bool {
    ipam_path(key).is_some()
}

/// The path of each member that can be wrong, and its form.
const FORMS: [(&str, &str); 22] = [
    ("master", "a string, for example \"eth0\""),
    (
        "ipam",
        "an object, for example {\"type\": \"azure-vnet-ipam\"}",
    ),
    ("ipam.type", "a string, for example \"azure-vnet-ipam\""),
    ("ipam.environment", "a string, for example \"azure\""),
    (
        "ipam.ipv6Environment",
        "a string, for example \"ipv6NodeIpam\"",
    ),
    (
        "ipam.families",
        "a list of \"ipv4\" and \"ipv6\", each once at most, with the family of ipam.subnet, \
         for example [\"ipv4\", \"ipv6\"]",
    ),
    ("ipam.addressSpace", "a string, for example \"local\""),
    ("ipam.subnet", "a string, for example \"10.224.0.0/16\""),
    ("ipam.ipAddress", "a string, for example \"10.224.0.9\""),
    (
        "ipam.queryInterval",
        "a string of whole seconds above zero, for example \"10\"",
    ),
    (
        "ipam.queryUrl",
        "a string that begins with http:// or file:, \
         for example \"file:///etc/interfaces.xml\"",
    ),
    (
        "ipam.kubeconfig",
        "a string, for example \"/var/lib/kubelet/kubeconfig\"",
    ),
    ("ipam.nodeName", "a string, for example \"aks-nodepool1-0\""),
    ("ipam.exclude", "a list, for example [\"10.224.0.128/25\"]"),
    ("ipam.cooldown", "whole seconds, for example 30"),
    (
        "ipam.statusWhenFull",
        "\"ready\" or \"error\", for example \"ready\"",
    ),
    (
        "ipam.routes",
        "a list of objects with dst and, if wanted, gw, \
         for example [{\"dst\": \"10.0.0.0/8\", \"gw\": \"10.224.0.1\"}]",
    ),
    (
        "ipam.dns",
        "an object with nameservers, domain, search and options, \
         for example {\"nameservers\": [\"10.0.0.10\"]}",
    ),
    ("args.cni.ips", IPS),
    ("runtimeConfig.ips", IPS),
    (
        "prevResult",
        "the result of an ADD, for example {\"ips\": [{\"address\": \"10.224.0.9/16\"}]}",
    ),
    (
        "cni.dev/valid-attachments",
        "a list of objects, \
         for example [{\"containerID\": \"3f2a91c04d7e\", \"ifname\": \"eth0\"}]",
    ),
];

const IPS: &str = "a list of addresses, for example [\"10.224.0.9\"]";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_has_an_example_that_is_json() {
        for (key, form) in FORMS {
            let (_, example) = form.split_once(", for example ").expect(key);
            serde_json::from_str::<serde_json::Value>(example).expect(key);
        }
    }
}
