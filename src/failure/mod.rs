//! Maps every failure to the CNI error that the caller gets: code, message, and what to do.

mod details;
mod remedy;

use std::io;

pub use remedy::{
    ENVIRONMENT_REMEDY, Remedy, SUDO_REMEDY, message_with_remedy, needs_root, source_remedy,
};

use details::join_first;
pub use details::{Audience, exhausted};

use crate::cni::{CallError, CniError, Code, LOCAL_SPACE};
use crate::host::io_reason;
use crate::ipam::{CheckFailure, Judged, Refusal, Violation};
use crate::log::shorten;
use crate::state::{FORMAT, LockError, SaveOutcome, StoreError};

/// Why a call failed.
#[derive(Debug)]
pub enum Failure {
    /// The call is invalid.
    Call(CallError),
    /// The state cannot be locked.
    Lock(LockError),
    /// The state file cannot be read or written.
    Store {
        /// The beginning of the message, as in the original.
        stage: &'static str,
        /// What went wrong.
        error: StoreError,
    },
    /// No address can be allocated.
    Refused {
        /// The reason.
        refusal: Refusal,
        /// What is wrong with the list of addresses, if anything.
        source: Option<String>,
        /// `ipam.ipAddress` of the network configuration.
        configured_address: Option<Box<str>>,
    },
    /// A newer version of this program wrote the state.
    NewerFormat {
        /// Its format version.
        found: u64,
    },
    /// The new state would be inconsistent.
    Broken(Vec<Violation>),
    /// CHECK: the attachment does not hold the expected address.
    CheckFailure(CheckFailure),
    /// CHECK: the state may lack the address, for this reason.
    StateGone(String),
    /// CHECK: the state cannot be read now.
    NotNow(StoreError),
    /// GC: some stale addresses could not be released.
    NotAllFreed {
        /// How many were released.
        freed: usize,
        /// Those that were not, and why.
        kept: Vec<Judged>,
    },
    /// STATUS: ADDs cannot be served, for this reason.
    NotReady(String),
    /// The result could not be written to stdout.
    Output {
        /// The error of the system.
        error: io::Error,
        /// What happened to the address.
        fate: Fate,
    },
    /// A defect of this program.
    Panic(String),
}

/// What happened to an address whose result could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is free again.
    Released,
    /// The attachment still holds it, as before the call.
    HeldBefore,
    /// It could not be released; the DEL releases it.
    StillHeld,
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
    /// Returns the failure for an error of the state's files. The original's message begins with
    /// `stage`.
    pub fn from_store(stage: &'static str, error: StoreError) -> Failure {
        if error.lock_was_lost() {
            Failure::Lock(LockError::Removed { path: error.path })
        } else if error.outcome == SaveOutcome::NotDecided {
            Failure::NotNow(error)
        } else {
            Failure::Store { stage, error }
        }
    }

    /// Converts the failure to the error object for the caller. Remedies name `program`.
    pub fn to_cni(&self, program: &str) -> CniError {
        self.describe(&Audience::caller(program))
    }

    /// Describes what to do about the failure, for `check`. It names the file with the network configuration.
    pub fn remedy(&self, program: &str, file: &str) -> String {
        let CniError { details, .. } = self.describe(&Audience::check(program, Some(file)));
        match self {
            Failure::Call(_) if !details.contains(file) => format!("correct {file}: {details}"),
            _ => details,
        }
    }

    fn describe(&self, audience: &Audience<'_>) -> CniError {
        let program = audience.program;
        let (code, msg, details) = match self {
            Failure::Call(error) => {
                let (code, details) = details::call_error(error, audience);
                (code, error.to_string(), details)
            }
            Failure::Lock(error) => lock_error(error, audience),
            Failure::Store { stage, error } => {
                let path = error.path.display();
                let changed = if error.is_in_place() {
                    "the new state is in place, but a power cut might take it back"
                } else {
                    "nothing was changed"
                };
                let details = format!(
                    "{path} must be readable and its folder writable, with room for a new copy; {changed}{}",
                    audience.check_hint("examines both")
                );
                (Code::Io, format!("{stage}: {error}"), details)
            }
            Failure::Refused {
                refusal,
                source,
                configured_address,
            } => {
                let configured = configured_address.as_deref();
                let (code, mut details) = details::refusal(refusal, configured, audience);
                if let Some(trouble) = source {
                    // Without pools, the source is the cause of the refusal, and comes first.
                    let is_cause = match refusal {
                        Refusal::NoSpace { space, .. } => space == LOCAL_SPACE,
                        Refusal::NoPools { passed_over, .. } => passed_over.is_empty(),
                        _ => false,
                    };
                    details = if is_cause {
                        format!("{trouble}; {details}")
                    } else {
                        format!("{details}; {trouble}")
                    };
                }
                (code, refusal.to_string(), details)
            }
            Failure::NewerFormat { found } => (
                Code::Plugin,
                format!(
                    "the state is of format {found}, and this version of the plugin knows up to {FORMAT}"
                ),
                "a newer version of the plugin wrote it: install that again; releases still work"
                    .to_owned(),
            ),
            Failure::Broken(violations) => {
                let all: Vec<String> = violations.iter().take(4).map(ToString::to_string).collect();
                let details = format!(
                    "{}; nothing was changed; include the output of `{program} export` in the bug report",
                    all.join("; ")
                );
                let msg = "Failed to allocate address: the state contradicts itself".to_owned();
                (Code::Plugin, msg, details)
            }
            Failure::CheckFailure(failure) => {
                let code = if matches!(failure, CheckFailure::Nothing) {
                    Code::UnknownContainer
                } else {
                    Code::Plugin
                };
                let details = if let CheckFailure::Others { holder, .. } = failure {
                    format!("container {holder} holds it")
                } else {
                    "recreate the pod to get an address".to_owned()
                };
                (code, format!("Check failed: {failure}"), details)
            }
            Failure::StateGone(why) => (
                Code::TryAgain,
                format!("Check failed: the state may lack addresses: {why}"),
                "the next ADD rebuilds it, with every address that the node shows in use"
                    .to_owned(),
            ),
            Failure::NotNow(error) => (
                Code::TryAgain,
                format!("the state cannot be read now: {error}"),
                "the call may be repeated".to_owned(),
            ),
            Failure::NotAllFreed { freed, kept } => {
                let reasons: Vec<String> = kept.iter().map(reason_to_keep).collect();
                let msg = format!("{} stale addresses are kept, {freed} are freed", kept.len());
                (Code::Plugin, msg, join_first(&reasons))
            }
            Failure::NotReady(why) => (
                Code::NotAvailable,
                format!("ADDs cannot be served: {why}"),
                format!("`{program} check` says why, and what to do"),
            ),
            Failure::Output { error, fate } => {
                let msg = format!("cannot write the result to stdout: {}", io_reason(error));
                let details = match fate {
                    Fate::Released => "the address is free again",
                    Fate::HeldBefore => "the attachment holds what it held before",
                    Fate::StillHeld => {
                        "the address could not be released, and is held until the DEL"
                    }
                };
                (Code::Io, msg, details.to_owned())
            }
            Failure::Panic(what) => {
                let version = env!("CARGO_PKG_VERSION");
                let details = format!(
                    "{what}; this is a defect of azure-vnet-ipam {version}; include the output of `{program} export` in the bug report"
                );
                (Code::Plugin, "internal error".to_owned(), details)
            }
        };
        CniError {
            code,
            msg: shorten(msg),
            details: shorten(details),
        }
    }
}

/// Returns the code, message and details for a lock that was not acquired, or was lost.
fn lock_error(error: &LockError, audience: &Audience<'_>) -> (Code, String, String) {
    match error {
        LockError::Busy { path, holder, .. } => {
            let details = format!(
                "the lock is on {}; the call may be repeated{}",
                path.display(),
                audience.check_hint("says whether that takes too long")
            );
            let msg = format!("{error}: {holder} holds it");
            (Code::TryAgain, msg, details)
        }
        LockError::Io { path, .. } => {
            let details = format!(
                "{} must be a file in a folder that can be written; the plugin makes both when they are missing",
                path.display()
            );
            (Code::Io, error.to_string(), details)
        }
        LockError::Removed { .. } => {
            let details = "another call may have changed the same state, so the result of this one is void; the call may be repeated";
            (Code::TryAgain, error.to_string(), details.to_owned())
        }
    }
}

/// Returns why GC keeps a stale address.
fn reason_to_keep(kept: &Judged) -> String {
    let candidate = &kept.candidate;
    let container = candidate.held.holder.container_id();
    let reasons: Vec<String> = kept
        .judgement
        .reasons
        .iter()
        .map(ToString::to_string)
        .collect();
    format!(
        "{} of container {container}: {}",
        candidate.key,
        reasons.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::NAME;

    #[test]
    fn defects_are_internal_errors() {
        let panic = Failure::Panic("here".into()).to_cni(NAME);
        assert_eq!(
            (panic.code, panic.msg.as_str()),
            (Code::Plugin, "internal error")
        );
        assert!(panic.details.contains("here"), "{panic:?}");
        let violation = Violation::Order {
            pool: "10.1.0.0/16".into(),
            address: "10.1.0.5".parse().unwrap(),
        };
        let broken = Failure::Broken(vec![violation]).to_cni(NAME);
        assert_eq!(
            (broken.code, broken.msg.as_str()),
            (
                Code::Plugin,
                "Failed to allocate address: the state contradicts itself"
            )
        );
        assert!(broken.details.contains("10.1.0.5"), "{broken:?}");
    }

    #[test]
    fn refusals_name_a_command() {
        use crate::ipam::{InUseBy, PoolCount};
        let address = "10.1.0.5".parse().unwrap();
        let count = |held, suspect, on_host, excluded| Refusal::Exhausted {
            pools: vec![PoolCount {
                held,
                suspect,
                on_host,
                excluded,
                ..PoolCount::default()
            }],
            retried: None,
            listed: Vec::new(),
        };
        let left = std::time::Duration::from_secs(7);
        let subnet = || "10.1.0.0/16".to_owned();
        let space = "local".to_owned();
        let stage = "Failed to allocate address";
        let refusals = [
            Refusal::NoSpace { stage, space },
            Refusal::NoPools {
                family: crate::ipam::Family::V4,
                if_name: None,
                passed_over: Vec::new(),
            },
            Refusal::NoPool {
                subnet: subnet(),
                known: vec![subnet()],
            },
            Refusal::AddressNotFound {
                address: "x".into(),
            },
            Refusal::AddressInUse {
                address,
                in_use_by: InUseBy::Unknown,
            },
            Refusal::AddressInCooldown { address, left },
            Refusal::AddressExcluded { address },
            count(0, 0, 0, 0),
            count(9, 0, 0, 0),
            count(9, 1, 0, 0),
            count(9, 0, 1, 0),
            count(9, 0, 0, 1),
            Refusal::Quarantined { left },
            Refusal::NoSubnet { pool: subnet() },
        ];
        for refusal in refusals {
            let failure = Failure::Refused {
                refusal,
                source: None,
                configured_address: None,
            };
            let error = failure.to_cni(NAME);
            assert!(error.details.contains("`azure-vnet-ipam "), "{error:?}");
            assert!(!error.msg.contains('`'), "{error:?}");
        }
    }
}
