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
        CallError::Invalid { key, must_be, .. } => format!("{key} must be {must_be}"),
        CallError::Requested { .. } => {
            "at most one address of each family may be asked for, with or without prefix length"
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
        CallError::WrongType { key, must_be, .. } => {
            format!("in the network configuration, {key} must be {must_be}")
        }
        CallError::UnknownEnvironment(name) => {
            let [others @ .., last] = Backend::ALL.map(Backend::name);
            let others = others.join(", ");
            format!("ipam.environment is {name:?}; it may be {others} or {last}")
        }
        CallError::QueryUrl(_) => "it must begin with http:// or file:".to_owned(),
    }
}

pub(super) fn refusal_details(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NoSpace { space, .. } => {
            format!("address space {space:?} is not in the state, and no source has filled it; `azure-vnet-ipam doctor` looks for the reason")
        }
        Refusal::NoPools { passed_over, .. } if passed_over.is_empty() => {
            "the source lists no subnet for any interface of this node: is a secondary address assigned to its network interface, and does the hardware address match? `azure-vnet-ipam doctor` compares them".to_owned()
        }
        Refusal::NoPools { passed_over, .. } | Refusal::NoPoolOfFamily { passed_over, .. } => {
            format!("none of these is of the wanted family and on the wanted interface: {}", join_first(passed_over))
        }
        Refusal::NoPool { known, .. } if known.is_empty() => "the state has no pools; `azure-vnet-ipam doctor` looks for the reason".to_owned(),
        Refusal::NoPool { known, .. } => {
            format!("the pools are {}; `azure-vnet-ipam show` tells how full each is", join_first(known))
        }
        Refusal::AddressNotFound { address } => format!("{address:?} is in none of the pools that will do; `azure-vnet-ipam show` lists them"),
        Refusal::AddressInUse { address, holder } => {
            let holder = match holder {
                Holder::Container(id) => format!("container {id} holds it"),
                Holder::TheHost => "the host itself has it, or a route to it".to_owned(),
                Holder::Unknown => "its holder is not known".to_owned(),
            };
            format!("{holder}; `azure-vnet-ipam explain {address}` tells all about it")
        }
        Refusal::AddressResting { .. } => {
            "its last pod may still be on its way out; ask again then, for another address, or set ipam.rest to 0; `azure-vnet-ipam explain` with the address tells when it was released".to_owned()
        }
        Refusal::AddressExcluded { .. } => "ipam.exclude, in the network configuration or in /etc/azure-vnet-ipam.json, covers it; `azure-vnet-ipam check-settings` reads the latter".to_owned(),
        Refusal::Exhausted { pools } if pools.iter().all(|p| p.held + p.free + p.resting + p.excluded + p.on_host == 0) => {
            "the network interface has no secondary addresses in this subnet; assign some to it in Azure; `azure-vnet-ipam doctor` tells what the source lists".to_owned()
        }
        Refusal::Exhausted { pools } if pools.iter().any(|p| p.on_host > 0) => {
            "addresses that the host has, or has a route to, are not given; was this interface's list of addresses configured on the host itself (cloud-init)? Remove them there; `azure-vnet-ipam doctor` names them".to_owned()
        }
        Refusal::Exhausted { pools } if pools.iter().any(|p| p.excluded > 0) => {
            "ipam.exclude, in the network configuration or in /etc/azure-vnet-ipam.json, keeps addresses back; all others are held: `azure-vnet-ipam show` tells by whom".to_owned()
        }
        Refusal::Exhausted { pools } if pools.iter().any(|p| p.suspect > 0) => {
            format!(
                "some holders show no sign of life; they are freed when an ADD finds them so again, {} s later at the earliest, or by `azure-vnet-ipam reclaim --yes`",
                AGAIN.as_secs()
            )
        }
        Refusal::Exhausted { .. } => {
            "every address is held: `azure-vnet-ipam show` tells by whom, and `azure-vnet-ipam check` whether any is leaked; delete pods, or assign more secondary addresses to the network interface in Azure".to_owned()
        }
        Refusal::Quarantined { .. } => {
            "pods that were being wired when the state was lost may still take an address; the call may be repeated, and `azure-vnet-ipam show` tells how long it takes".to_owned()
        }
        Refusal::NoSubnet { .. } => "the state of this pool is incomplete, and the source does not list it; `azure-vnet-ipam doctor` compares them".to_owned(),
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
