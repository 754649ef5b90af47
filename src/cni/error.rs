//! The errors of an invalid call, the keys that they name, and the parsers that return them.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{CniVersion, Verb, without_secrets};

/// Why a call is invalid. The messages begin with the original's words (contract section 14).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Variables that the verb needs are missing.
    #[error("required env variables [{}] missing", .1.join(","))]
    MissingVariables(Verb, Vec<&'static str>),
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
    /// The network's name or CNI_CONTAINERID is longer than any file name. libcni uses both in a file
    /// name.
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
    /// `cniVersion`, if it is set, is older than the version that added the verb.
    #[error("config version does not allow {}", .0.as_str())]
    TooOldFor(Verb, Option<CniVersion>),
    /// `cniVersion` is not a version.
    #[error("failed to convert major version part {0:?}: it is not a number")]
    NoVersion(String),
    /// A member that this plugin uses has the wrong type. The text quotes the value, or is the
    /// decoder's message.
    #[error("Failed to parse network configuration: {0}: {1}")]
    WrongType(Key, String),
    /// The value of `ipam.environment` or `ipam.ipv6Environment` is unknown. The key says which.
    #[error("Failed to parse network configuration: Invalid configuration")]
    UnknownEnvironment(Key, String),
    /// A member that the original does not have is invalid. The text quotes the value, or is the
    /// decoder's message.
    #[error("{0}: {1}")]
    Invalid(Key, String),
    /// A requested address is invalid.
    #[error("invalid requested address {address:?} in {place}: {why}")]
    Requested {
        /// The address in the caller's spelling.
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

/// A key that an error can name. It is printed as `PATH must be FORM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key with the keys of the objects around it, such as `ipam.cooldown`.
    pub path: &'static str,
    /// What its value must be, with an example.
    pub form: &'static str,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.path, self.form)
    }
}

impl Key {
    pub(super) const fn new(path: &'static str, form: &'static str) -> Key {
        Key { path, form }
    }

    /// Parses the string of a key that the original has, too. `None` when it is empty.
    pub(super) fn parse_text(self, raw: &RawValue) -> Result<Option<String>, CallError> {
        let text: String = serde_json::from_str(raw.get())
            .map_err(|_| CallError::WrongType(self, describe_found(raw)))?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// Parses the value of a key that the original does not have.
    pub(super) fn parse<T: DeserializeOwned>(self, raw: &RawValue) -> Result<T, CallError> {
        serde_json::from_str(raw.get()).map_err(|_| CallError::Invalid(self, describe_found(raw)))
    }
}

/// Quotes the beginning of a value for an error.
pub(super) fn describe_found(raw: &RawValue) -> String {
    const MAX_CHARACTERS: usize = 80;
    let text = without_secrets(raw.get());
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("found {}...", text.get(..end).unwrap_or_default()),
        None => format!("found {text}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Asserts that the form of a key ends with an example that is JSON.
    pub fn assert_example_is_json(key: Key) {
        let (_, example) = key.form.split_once(", for example ").expect(key.path);
        serde_json::from_str::<serde_json::Value>(example).expect(key.path);
    }
}
