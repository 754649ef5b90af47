//! The codes and the `details` of errors: what to do about each, and names that do not belong in
//! the message.

use crate::cni::{Backend, CallError, CniVersion, Code};
use crate::ipam::{AGAIN, InUseBy, PoolCount, Refusal, RetriedPod};

/// The code and the details of an invalid call.
pub(super) fn call_error(error: &CallError) -> (Code, String) {
    use Code::{Decoding, InvalidEnvironment, InvalidNetworkConfig};
    let (code, details) = match error {
        CallError::MissingVariables(_) => (
            InvalidEnvironment,
            "a container runtime sets them for every call",
        ),
        CallError::NoContainerId => (Code::UnknownContainer, "CNI_CONTAINERID is empty"),
        // The details are the name itself, like those of the original.
        CallError::BadContainerId(name) => (InvalidEnvironment, name.as_str()),
        CallError::BadName(name) => (InvalidNetworkConfig, name.as_str()),
        CallError::TooLongName("containerID") => (InvalidEnvironment, NAME_LIMIT),
        CallError::TooLongName(_) => (InvalidNetworkConfig, NAME_LIMIT),
        CallError::NoIfName
        | CallError::IfNameTooLong
        | CallError::IfNameDots
        | CallError::BadIfName => (
            InvalidEnvironment,
            "CNI_IFNAME must be a name that the kernel allows, of 15 bytes at most",
        ),
        CallError::UnknownCommand(_) => (
            InvalidEnvironment,
            "CNI_COMMAND may be ADD, DEL, CHECK, GC, STATUS and VERSION",
        ),
        CallError::UnknownArgs(_) => (
            InvalidEnvironment,
            "the runtime may set IgnoreUnknown=1 in CNI_ARGS",
        ),
        CallError::Unreadable(_) => (Code::Io, "stdin must hold the network configuration"),
        CallError::NotJson(_) | CallError::TooLong(_) => (
            Decoding,
            "stdin must hold the network configuration as one JSON object with a name",
        ),
        CallError::NoName => (
            InvalidNetworkConfig,
            "the network configuration needs a name",
        ),
        CallError::Requested { .. } => (
            InvalidNetworkConfig,
            "at most one address of each family may be asked for, with or without prefix length, for example 10.224.0.9",
        ),
        CallError::NoAttachments => (
            InvalidNetworkConfig,
            "a GC must list the valid attachments; nothing was freed",
        ),
        CallError::QueryUrl(_) => (
            InvalidNetworkConfig,
            "it must begin with http:// or file:, for example \"file:///etc/interfaces.xml\"",
        ),
        CallError::Invalid(key, _) => (InvalidNetworkConfig, who_sets(key.path)),
        CallError::WrongType(key, _) => (Code::Plugin, who_sets(key.path)),
        CallError::UnknownEnvironment(name) => {
            let [all_but_last @ .., last] = Backend::ALL.map(Backend::name);
            let others = all_but_last.join(", ");
            let details = format!(
                "ipam.environment is {name:?}; it may be {others} or {last}, for example \"azure\""
            );
            return (Code::Plugin, details);
        }
        CallError::VersionType | CallError::NoVersion(_) => {
            let supported = supported_versions();
            return (Decoding, format!("cniVersion may be one of {supported}"));
        }
        CallError::Incompatible(version) => {
            let supported = supported_versions();
            let details = format!("config is {version:?}, plugin supports [{supported}]");
            return (Code::IncompatibleVersion, details);
        }
        CallError::TooOldFor(verb) => {
            let since = verb.since().unwrap_or(CniVersion::NEWEST);
            let details = format!(
                "{} came with version {since} of the specification",
                verb.as_str()
            );
            return (Code::IncompatibleVersion, details);
        }
    };
    (code, details.to_owned())
}

fn supported_versions() -> String {
    CniVersion::texts().map(|v| format!("{v:?}")).join(" ")
}

/// The details of a name that is too long.
const NAME_LIMIT: &str = "names of networks and containers may have 1024 bytes";

/// Returns where the value of a key comes from.
fn who_sets(path: &str) -> &'static str {
    if path.starts_with("ipam") || path == "master" {
        "correct it in the network configuration"
    } else {
        "a container runtime sets it"
    }
}

/// The code and the details of a refused allocation.
pub(super) fn refusal(refusal: &Refusal, program: &str) -> (Code, String) {
    let code = match refusal {
        Refusal::Quarantined { .. } => Code::TryAgain,
        _ => Code::Plugin,
    };
    let details = match refusal {
        Refusal::NoSpace { space, .. } => format!(
            "address space {space:?} is not in the state, and no source has filled it; `{program} check` looks for the reason"
        ),
        Refusal::NoPools { passed_over, .. } if passed_over.is_empty() => format!(
            "the source lists no subnet for any interface of this node: is a secondary address assigned to its network interface, and does the hardware address match? `{program} check` compares them"
        ),
        Refusal::NoPools {
            family,
            if_name,
            passed_over,
        }
        | Refusal::NoPoolOfFamily {
            family,
            if_name,
            passed_over,
        } => {
            let pools = join_first(passed_over);
            let place = match if_name {
                Some(name) => format!("master is {name:?}, where no pool"),
                None => "no pool".to_owned(),
            };
            format!("{place} has {family} addresses; the pools are {pools}")
        }
        Refusal::NoPool { known, .. } => {
            let pools = join_first(known);
            format!("the pools are [{pools}]; `{program} show` tells how full each is")
        }
        Refusal::AddressNotFound { address } => {
            format!("{address:?} is in none of the pools that will do; `{program} show` lists them")
        }
        Refusal::AddressInUse { address, in_use_by } => {
            let who = match in_use_by {
                InUseBy::Container(id) => format!("container {id} holds it"),
                InUseBy::LastSandbox => {
                    "the sandbox of its last pod was released, and still has it".to_owned()
                }
                InUseBy::TheHost => "the host itself has it, or a route to it".to_owned(),
                InUseBy::Unknown => "its holder is not known".to_owned(),
            };
            format!("{who}; `{program} show {address}` tells all about it")
        }
        Refusal::AddressInCooldown { .. } => format!(
            "its last pod may still be on its way out; ask again then, for another address, or set ipam.cooldown to 0; `{program} show` with the address tells when it was released"
        ),
        Refusal::AddressExcluded { .. } => format!(
            "ipam.exclude, in the network configuration or in /etc/azure-vnet-ipam.json, covers it; `{program} explain` with the address tells more"
        ),
        Refusal::Exhausted { pools, retried } => exhausted(pools, retried.as_ref(), program),
        Refusal::Quarantined { .. } => format!(
            "pods that are just being configured may still take an address; the call may be repeated, and `{program} show` tells how long it takes"
        ),
        Refusal::NoSubnet { .. } => format!(
            "the state of this pool is incomplete, and the source does not list it; `{program} check` compares them"
        ),
    };
    (code, details)
}

/// Returns what to do when no address is free. The advice depends on what keeps the addresses.
pub fn exhausted(pools: &[PoolCount], retried: Option<&RetriedPod>, program: &str) -> String {
    let advice = what_keeps(pools, program);
    match retried {
        Some(RetriedPod { pod, held }) => format!(
            "{held} of them for pod {pod}, whose sandbox is tried again and again: find out why it fails, and end the sandboxes that the runtime keeps (`crictl pods`, `crictl rmp -f`); {advice}"
        ),
        None => advice,
    }
}

fn what_keeps(pools: &[PoolCount], program: &str) -> String {
    let sum = |count: fn(&PoolCount) -> usize| pools.iter().map(count).sum::<usize>();
    if sum(|p| p.held + p.held_elsewhere + p.free) == 0
        && sum(|p| p.cooldown + p.excluded + p.on_host + p.withheld) == 0
    {
        format!(
            "the network interface has no secondary addresses in this subnet; assign some to it in Azure; `{program} check` tells what the source lists"
        )
    } else if sum(|p| p.on_host) > 0 {
        format!(
            "addresses that the host has, or has a route to, are not given; was this interface's list of addresses configured on the host itself (cloud-init)? Remove them there; `{program} check` names them"
        )
    } else if sum(|p| p.withheld) > 0 {
        format!(
            "sandboxes that were released still have addresses, as the runtime could not remove them: `{program} check` names them and how to end them; `{program} show` shows who holds the others"
        )
    } else if sum(|p| p.excluded) > 0 {
        format!(
            "ipam.exclude, in the network configuration or in /etc/azure-vnet-ipam.json, keeps addresses back: correct it there; `{program} show` tells who holds the others"
        )
    } else if sum(|p| p.suspect) > 0 {
        let again = AGAIN.as_secs();
        format!(
            "some holders show no sign of life; they are freed when an ADD finds them so again, {again} s later at the earliest, or by `{program} reclaim --yes`"
        )
    } else {
        format!(
            "every address is held: `{program} show` tells by whom, and leaked ones are findings of `{program} check`; delete pods, or assign more secondary addresses to the network interface in Azure"
        )
    }
}

/// Joins the first few items of a list.
pub(super) fn join_first(all: &[String]) -> String {
    const MOST: usize = 8;
    let shown = all.get(..MOST).unwrap_or(all).join(", ");
    match all.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
