//! The codes of invalid calls and of refusals.

use crate::cni::{CallError, Code};
use crate::ipam::Refusal;

/// The code of an invalid call.
pub fn call_error_code(error: &CallError) -> Code {
    match error {
        CallError::MissingVariables(_)
        | CallError::BadContainerId(_)
        | CallError::NoIfName
        | CallError::IfNameTooLong
        | CallError::IfNameDots
        | CallError::BadIfName
        | CallError::UnknownCommand(_)
        | CallError::UnknownArgs(_) => Code::InvalidEnvironment,
        CallError::NoContainerId => Code::UnknownContainer,
        CallError::Unreadable(_) => Code::Io,
        CallError::NotJson(_)
        | CallError::TooLong(_)
        | CallError::VersionType
        | CallError::NoVersion(_) => Code::Decoding,
        CallError::TooLongName("containerID") => Code::InvalidEnvironment,
        CallError::NoName
        | CallError::TooLongName(_)
        | CallError::BadName(_)
        | CallError::Invalid { .. }
        | CallError::Requested { .. }
        | CallError::NoAttachments
        | CallError::QueryUrl(_) => Code::InvalidNetworkConfig,
        CallError::Incompatible(_) | CallError::TooOldFor(_) => Code::IncompatibleVersion,
        CallError::WrongType { .. } | CallError::UnknownEnvironment(_) => Code::Plugin,
    }
}

/// The code of a refused allocation.
pub fn refusal_code(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::Quarantined { .. } => Code::TryAgain,
        Refusal::NoSpace { .. }
        | Refusal::NoPools { .. }
        | Refusal::NoPoolOfFamily { .. }
        | Refusal::NoPool { .. }
        | Refusal::AddressNotFound { .. }
        | Refusal::AddressInUse { .. }
        | Refusal::AddressResting { .. }
        | Refusal::AddressExcluded { .. }
        | Refusal::Exhausted { .. }
        | Refusal::NoSubnet { .. } => Code::Plugin,
    }
}
