//! The one table from everything that can go wrong to the error a caller gets: code, words, what to do.

use std::io;

use crate::cni::{CallError, CniError, CniVersion, Code};
use crate::host::words;
use crate::ipam::{AGAIN, Refusal, Violation};
use crate::state::{FORMAT, LockError, StoreError};

/// Why a call failed.
#[derive(Debug)]
pub enum Failure {
    /// The call itself is wrong.
    Call(CallError),
    /// The lock on the state.
    Lock(LockError),
    /// The state file. The stage is what the original would have begun its message with.
    Store {
        /// What was being done for the caller.
        stage: &'static str,
        /// What went wrong.
        error: StoreError,
    },
    /// No address can be given.
    Refused {
        /// Why.
        refusal: Refusal,
        /// What the source had to say for itself, where its data are not fresh.
        source: Option<String>,
    },
    /// A newer version of this program wrote the state.
    NewerFormat {
        /// Its format version.
        found: u64,
    },
    /// The state would become wrong.
    Broken(Vec<Violation>),
    /// The result could not be handed over.
    Output {
        /// What the system says.
        error: io::Error,
        /// Whether the address was given back.
        given_back: bool,
    },
    /// A defect of this program.
    Panic(String),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Failure::Call(error)
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Failure::Lock(error)
    }
}

impl Failure {
    /// The error object for the caller.
    pub fn to_cni(&self) -> CniError {
        let (code, msg, details) = match self {
            Failure::Call(error) => (code_of(error), error.to_string(), call_details(error)),
            Failure::Lock(error @ LockError::Busy { path, holder, .. }) => {
                let details = format!(
                    "{holder} holds {}; the call may be repeated",
                    path.display()
                );
                (
                    Code::TryAgain,
                    format!("{error}: {holder} holds it"),
                    details,
                )
            }
            Failure::Lock(error @ LockError::Io { path, .. }) => {
                let details = format!(
                    "{} must be a file in a folder that can be written; the plugin makes both when they are missing",
                    path.display()
                );
                (Code::Io, error.to_string(), details)
            }
            Failure::Store { stage, error } => {
                let details = format!(
                    "{} must be readable and its folder writable, with room for a new copy; nothing was changed",
                    error.path.display()
                );
                (Code::Io, format!("{stage}: {error}"), details)
            }
            Failure::Refused { refusal, source } => {
                let mut details = refusal_details(refusal);
                if let Some(source) = source {
                    let stop = if details.is_empty() { "" } else { ". " };
                    details =
                        format!("{details}{stop}The list of addresses is not fresh: {source}");
                }
                (code_of_refusal(refusal), refusal.to_string(), details)
            }
            Failure::NewerFormat { found } => {
                let msg = format!(
                    "the state is of format {found}, and this version of the plugin knows up to {FORMAT}"
                );
                let details = "A newer version of the plugin wrote it; install that version again. Releases still work".to_owned();
                (Code::Plugin, msg, details)
            }
            Failure::Broken(violations) => {
                let all: Vec<String> = violations.iter().take(4).map(ToString::to_string).collect();
                let msg = "Failed to allocate address: the state contradicts itself".to_owned();
                (
                    Code::Plugin,
                    msg,
                    format!("{}; nothing was changed", all.join("; ")),
                )
            }
            Failure::Output { error, given_back } => {
                let fate = if *given_back {
                    "the address was given back"
                } else {
                    "nothing was taken"
                };
                (
                    Code::Io,
                    format!("cannot write the result to stdout: {}", words(error)),
                    fate.to_owned(),
                )
            }
            Failure::Panic(what) => {
                let details = format!(
                    "{what}; this is a defect of azure-vnet-ipam {}",
                    env!("CARGO_PKG_VERSION")
                );
                (Code::Plugin, "internal error".to_owned(), details)
            }
        };
        CniError { code, msg, details }
    }
}

fn code_of(error: &CallError) -> Code {
    match error {
        CallError::MissingVariables(_)
        | CallError::BadContainerId(_)
        | CallError::NoIfName
        | CallError::IfNameTooLong
        | CallError::IfNameDots
        | CallError::BadIfName
        | CallError::UnknownCommand(_)
        | CallError::NotYet(_) => Code::InvalidEnvironment,
        CallError::NoContainerId => Code::UnknownContainer,
        CallError::Unreadable(_) => Code::Io,
        CallError::NotJson(_)
        | CallError::TooLong(_)
        | CallError::VersionType
        | CallError::NoVersion(_) => Code::Decoding,
        CallError::NoName | CallError::BadName(_) | CallError::QueryUrl(_) => {
            Code::InvalidNetworkConfig
        }
        CallError::Incompatible(_) | CallError::TooOldForCheck => Code::IncompatibleVersion,
        CallError::WrongType { .. } | CallError::UnknownEnvironment(_) => Code::Plugin,
    }
}

fn code_of_refusal(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::Quarantined { .. } => Code::TryAgain,
        Refusal::NoSpace { .. }
        | Refusal::NoPools { .. }
        | Refusal::NoPool { .. }
        | Refusal::AddressNotFound { .. }
        | Refusal::AddressInUse { .. }
        | Refusal::Exhausted { .. }
        | Refusal::NoSubnet { .. } => Code::Plugin,
    }
}

fn call_details(error: &CallError) -> String {
    let supported = || CniVersion::texts().map(|v| format!("{v:?}")).join(" ");
    match error {
        CallError::MissingVariables(_) => "a container runtime sets them for every call".to_owned(),
        CallError::NotJson(_) | CallError::TooLong(_) => {
            "stdin must hold the network configuration as one JSON object with a name".to_owned()
        }
        CallError::Unreadable(_) => "stdin must hold the network configuration".to_owned(),
        CallError::NoName => "the network configuration needs a name".to_owned(),
        // As the original: the name itself.
        CallError::BadName(name) | CallError::BadContainerId(name) => name.clone(),
        CallError::NoContainerId => "CNI_CONTAINERID is empty".to_owned(),
        CallError::NoIfName => "CNI_IFNAME is empty".to_owned(),
        CallError::IfNameTooLong => "interface name should be less than 16 characters".to_owned(),
        CallError::IfNameDots | CallError::BadIfName => {
            "CNI_IFNAME must be a name that the kernel allows".to_owned()
        }
        CallError::UnknownCommand(_) | CallError::NotYet(_) => {
            "CNI_COMMAND may be ADD, DEL or VERSION".to_owned()
        }
        CallError::VersionType | CallError::NoVersion(_) => {
            format!("cniVersion may be one of {}", supported())
        }
        CallError::Incompatible(said) => {
            format!("config is {said:?}, plugin supports [{}]", supported())
        }
        CallError::TooOldForCheck => {
            "CHECK came with version 0.4.0 of the specification".to_owned()
        }
        CallError::WrongType { key, must_be, .. } => {
            format!("in the network configuration, {key} must be {must_be}")
        }
        CallError::UnknownEnvironment(said) => {
            format!("ipam.environment is {said:?}; it may be azure, mas, fileIpam or null")
        }
        CallError::QueryUrl(_) => "it must begin with http:// or file:".to_owned(),
    }
}

fn refusal_details(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NoSpace { space, .. } => {
            format!("address space {space:?} is not in the state, and no source has filled it")
        }
        Refusal::NoPools { passed_over } if passed_over.is_empty() => {
            "the source lists no subnet for any interface of this node: is a secondary address assigned to its network interface, and does the hardware address match?".to_owned()
        }
        Refusal::NoPools { passed_over } => {
            format!("none of these is of the wanted family and on the wanted interface: {}", some(passed_over))
        }
        Refusal::NoPool { known, .. } if known.is_empty() => "the state has no pools".to_owned(),
        Refusal::NoPool { known, .. } => format!("the pools are {}", some(known)),
        Refusal::AddressNotFound { address } => format!("{address:?} is in none of the pools that will do"),
        Refusal::AddressInUse { holder, .. } if holder.is_empty() => "its holder is not known".to_owned(),
        Refusal::AddressInUse { holder, .. } => format!("container {holder} holds it"),
        Refusal::Exhausted { pools } if pools.iter().all(|p| p.held + p.free + p.resting == 0) => {
            "the network interface has no secondary addresses in this subnet; assign some to it in Azure".to_owned()
        }
        Refusal::Exhausted { pools } if pools.iter().any(|p| p.wired > 0) => {
            "addresses that the host has, or has a route to, are not given; was this interface's list of addresses configured on the host itself (cloud-init)? Remove them there".to_owned()
        }
        Refusal::Exhausted { pools } if pools.iter().any(|p| p.suspect > 0) => {
            format!(
                "some holders show no sign of life; they are freed when an ADD finds them so again, {} s later at the earliest",
                AGAIN.as_secs()
            )
        }
        Refusal::Exhausted { .. } => {
            "every address is held; delete pods, or assign more secondary addresses to the network interface in Azure".to_owned()
        }
        Refusal::Quarantined { .. } => {
            "pods that were being wired when the state was lost may still take an address; the call may be repeated".to_owned()
        }
        Refusal::NoSubnet { .. } => "the state of this pool is incomplete, and the source does not list it".to_owned(),
    }
}

/// The first few of a list.
fn some(all: &[String]) -> String {
    const MOST: usize = 8;
    let shown = all
        .iter()
        .take(MOST)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match all.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
