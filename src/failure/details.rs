//! The `details` of an error: what to do about it, and names that do not belong in the message.

use crate::cni::{Backend, CallError, CniVersion};
use crate::ipam::{AGAIN, Holder, Refusal};

pub(super) fn call_details(error: &CallError) -> String {
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
        CallError::TooLongName(_) => {
            "names of networks and containers may have 1024 bytes".to_owned()
        }
        CallError::NoContainerId => "CNI_CONTAINERID is empty".to_owned(),
        CallError::NoIfName => "CNI_IFNAME is empty".to_owned(),
        CallError::IfNameTooLong => "interface name should be less than 16 characters".to_owned(),
        CallError::IfNameDots | CallError::BadIfName => {
            "CNI_IFNAME must be a name that the kernel allows".to_owned()
        }
        CallError::UnknownCommand(_) => {
            "CNI_COMMAND may be ADD, DEL, CHECK, GC, STATUS and VERSION".to_owned()
        }
        CallError::UnknownArgs(_) => "the runtime may set IgnoreUnknown=1 in CNI_ARGS".to_owned(),
        CallError::Invalid { key, .. } | CallError::WrongType { key, .. } => {
            match key.starts_with("ipam") || *key == "master" {
                true => format!("correct {key} in the network configuration"),
                false => "a container runtime sets it".to_owned(),
            }
        }
        CallError::Requested { .. } => {
            "at most one address of each family may be asked for, with or without prefix length, for example 10.224.0.9"
                .to_owned()
        }
        CallError::NoAttachments => {
            "a GC must list the valid attachments; nothing was freed".to_owned()
        }
        CallError::VersionType | CallError::NoVersion(_) => {
            format!("cniVersion may be one of {}", supported())
        }
        CallError::Incompatible(version) => {
            format!("config is {version:?}, plugin supports [{}]", supported())
        }
        CallError::TooOldFor(verb) => {
            let since = verb.since().unwrap_or(CniVersion::NEWEST);
            format!(
                "{} came with version {since} of the specification",
                verb.as_str()
            )
        }
        CallError::UnknownEnvironment(name) => {
            let [others @ .., last] = Backend::ALL.map(Backend::name);
            let others = others.join(", ");
            format!(
                "ipam.environment is {name:?}; it may be {others} or {last}, for example \"azure\""
            )
        }
        CallError::QueryUrl(_) => "it must begin with http:// or file:, for example \"file:///etc/interfaces.xml\"".to_owned(),
    }
}

pub(super) fn refusal_details(refusal: &Refusal, program: &str) -> String {
    match refusal {
        Refusal::NoSpace { space, .. } => {
            format!(
                "address space {space:?} is not in the state, and no source has filled it; `{program} check` looks for the reason"
            )
        }
        Refusal::NoPools { passed_over, .. } if passed_over.is_empty() => {
            format!(
                "the source lists no subnet for any interface of this node: is a secondary address assigned to its network interface, and does the hardware address match? `{program} check` compares them"
            )
        }
        Refusal::NoPools { passed_over, .. } | Refusal::NoPoolOfFamily { passed_over, .. } => {
            format!(
                "none of these is of the wanted family and on the wanted interface: {}",
                join_first(passed_over)
            )
        }
        Refusal::NoPool { known, .. } if known.is_empty() => {
            format!("the state has no pools; `{program} check` looks for the reason")
        }
        Refusal::NoPool { known, .. } => {
            format!(
                "the pools are {}; `{program} show` tells how full each is",
                join_first(known)
            )
        }
        Refusal::AddressNotFound { address } => {
            format!("{address:?} is in none of the pools that will do; `{program} show` lists them")
        }
        Refusal::AddressInUse { address, holder } => {
            let holder = match holder {
                Holder::Container(id) => format!("container {id} holds it"),
                Holder::TheHost => "the host itself has it, or a route to it".to_owned(),
                Holder::Unknown => "its holder is not known".to_owned(),
            };
            format!("{holder}; `{program} explain {address}` tells all about it")
        }
        Refusal::AddressResting { .. } => {
            format!(
                "its last pod may still be on its way out; ask again then, for another address, or set ipam.cooldown to 0; `{program} explain` with the address tells when it was released"
            )
        }
        Refusal::AddressExcluded { .. } => format!(
            "ipam.exclude, in the network configuration or in /etc/azure-vnet-ipam.json, covers it; `{program} check-settings` reads the latter"
        ),
        Refusal::Exhausted { pools }
            if pools
                .iter()
                .all(|p| p.held + p.free + p.resting + p.excluded + p.on_host == 0) =>
        {
            format!(
                "the network interface has no secondary addresses in this subnet; assign some to it in Azure; `{program} check` tells what the source lists"
            )
        }
        Refusal::Exhausted { pools } if pools.iter().any(|p| p.on_host > 0) => {
            format!(
                "addresses that the host has, or has a route to, are not given; was this interface's list of addresses configured on the host itself (cloud-init)? Remove them there; `{program} check` names them"
            )
        }
        Refusal::Exhausted { pools } if pools.iter().any(|p| p.excluded > 0) => {
            format!(
                "ipam.exclude, in the network configuration or in /etc/azure-vnet-ipam.json, keeps addresses back; all others are held: `{program} show` tells by whom"
            )
        }
        Refusal::Exhausted { pools } if pools.iter().any(|p| p.suspect > 0) => {
            format!(
                "some holders show no sign of life; they are freed when an ADD finds them so again, {} s later at the earliest, or by `{program} reclaim --yes`",
                AGAIN.as_secs()
            )
        }
        Refusal::Exhausted { .. } => {
            format!(
                "every address is held: `{program} show` tells by whom, and `{program} check` whether any is leaked; delete pods, or assign more secondary addresses to the network interface in Azure"
            )
        }
        Refusal::Quarantined { .. } => {
            format!(
                "pods that were being wired when the state was lost may still take an address; the call may be repeated, and `{program} show` tells how long it takes"
            )
        }
        Refusal::NoSubnet { .. } => format!(
            "the state of this pool is incomplete, and the source does not list it; `{program} check` compares them"
        ),
    }
}

/// Cuts a text that may quote the caller to a useful length.
pub(super) fn truncate(mut text: String) -> String {
    /// Bytes.
    const MAX: usize = 4096;
    if text.len() > MAX {
        let end = (0..=MAX).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
        text.push_str("...");
    }
    text
}

/// Joins the first few items of a list.
pub(super) fn join_first(all: &[String]) -> String {
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
