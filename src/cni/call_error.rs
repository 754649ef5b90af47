//! The errors of invalid calls.

use super::Verb;
use super::key_forms::form;

/// Why a call is invalid. The texts begin with the original's (contract section 14).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Variables are missing that the verb needs.
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
    /// The network's name, or CNI_CONTAINERID, is longer than any file name, and libcni makes it part of one.
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
    /// No such verb.
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
    /// `cniVersion` is older than the verb.
    #[error("config version does not allow {}", .0.as_str())]
    TooOldFor(Verb),
    /// `cniVersion` is not a version.
    #[error("failed to convert major version part {0:?}: it is not a number")]
    NoVersion(String),
    /// A member that this plugin uses has the wrong type.
    #[error(
        "Failed to parse network configuration: {key} must be {}: {found}",
        form(key)
    )]
    WrongType {
        /// Path of the member.
        key: &'static str,
        /// What was found, or the decoder's message.
        found: String,
    },
    /// `ipam.environment` is unknown.
    #[error("Failed to parse network configuration: Invalid configuration")]
    UnknownEnvironment(String),
    /// A member that the original does not have is invalid.
    #[error("{key} must be {}: {found}", form(key))]
    Invalid {
        /// Path of the member.
        key: &'static str,
        /// What was found, or the decoder's message.
        found: String,
    },
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
    /// A GC does not list the valid attachments.
    #[error("cni.dev/valid-attachments is missing")]
    NoAttachments,
    /// `ipam.queryUrl` is not a URL that can be queried.
    #[error("invalid query URL {0:?}")]
    QueryUrl(String),
}
