//! The codes and the `details` of errors. The details say what to do, and have the names that do not
//! belong in the message.

use crate::cni::{Backend, CallError, CniVersion, Code, LOCAL_SPACE};
use crate::codec::named_address;
use crate::ipam::{AGAIN, Family, GRACE, InUseBy, PoolCount, Refusal, RetriedPod};

/// The reader of the details of an error.
#[derive(Clone, Copy, Debug)]
pub struct Audience<'a> {
    /// The name of this program in commands.
    pub(super) program: &'a str,
    /// Whether `check` shows them. Its own output needs no hint to run it.
    is_check: bool,
    /// The file with the network configuration, if it is known.
    file: Option<&'a str>,
}

impl<'a> Audience<'a> {
    /// The caller of the plugin, and the readers of its events and its log.
    pub fn caller(program: &'a str) -> Audience<'a> {
        Audience {
            program,
            is_check: false,
            file: None,
        }
    }

    /// The operator who runs `check`. `file` has the network configuration, if the error is about one.
    pub fn check(program: &'a str, file: Option<&'a str>) -> Audience<'a> {
        Audience {
            program,
            is_check: true,
            file,
        }
    }

    /// Names the network configuration.
    fn configuration(&self) -> &'a str {
        self.file.unwrap_or("the network configuration")
    }

    /// Returns a hint at what `check` does about the error, to append to other text.
    pub(super) fn check_hint(&self, does: &str) -> String {
        if self.is_check {
            String::new()
        } else {
            format!("; `{} check` {does}", self.program)
        }
    }
}

/// Returns the code and the details of an invalid call.
pub(super) fn call_error(error: &CallError, audience: &Audience<'_>) -> (Code, String) {
    use Code::{Decoding, InvalidEnvironment, InvalidNetworkConfig};
    let (code, details) = match error {
        CallError::MissingVariables(verb, names) => {
            let details = format!("{} must be set for {}", names.join(" and "), verb.as_str());
            return (InvalidEnvironment, details);
        }
        CallError::NoContainerId => (Code::UnknownContainer, "CNI_CONTAINERID is empty"),
        // As in the original, the details are the name itself.
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
            "at most one address of each family may be requested, with or without prefix length, for example 10.224.0.9",
        ),
        CallError::NoAttachments => (
            InvalidNetworkConfig,
            "a GC must list the valid attachments; nothing was freed",
        ),
        CallError::QueryUrl(_) => (
            InvalidNetworkConfig,
            "ipam.queryUrl, or AZURE_VNET_IPAM_QUERY_URL where that is set, must begin with http:// or file:, for example \"file:///etc/interfaces.xml\"",
        ),
        CallError::Invalid(key, _) => {
            return (InvalidNetworkConfig, describe_setter(key.path, audience));
        }
        CallError::WrongType(key, _) => return (Code::Plugin, describe_setter(key.path, audience)),
        CallError::UnknownEnvironment(key, name) => {
            let [all_but_last @ .., last] = Backend::ALL.map(Backend::name);
            let (key, others) = (key.path, all_but_last.join(", "));
            let details = format!(
                "{key} is {name:?}; it may be {others} or {last}, for example \"azure\": correct it in {}",
                audience.configuration()
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
        CallError::TooOldFor(verb, found) => {
            let since = verb.since().unwrap_or(CniVersion::NEWEST);
            let requested = found.map_or("none".to_owned(), |version| version.to_string());
            let details = format!(
                "{} requires cniVersion {since} or later; found {requested}",
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
const NAME_LIMIT: &str = "the name of a network or container may have at most 1024 bytes";

/// Says who sets a key.
fn describe_setter(path: &str, audience: &Audience<'_>) -> String {
    if path.starts_with("ipam") || path == "master" {
        format!("correct {path} in {}", audience.configuration())
    } else {
        "the container runtime sets this key".to_owned()
    }
}

/// Returns the code and the details of a refused allocation. `configured` is `ipam.ipAddress` of the call.
pub(super) fn refusal(
    refusal: &Refusal,
    configured: Option<&str>,
    audience: &Audience<'_>,
) -> (Code, String) {
    let code = match refusal {
        Refusal::Quarantined { .. } => Code::TryAgain,
        _ => Code::Plugin,
    };
    let (program, configuration) = (audience.program, audience.configuration());
    let about_key = |address: &str| describe_requester(address, configured, configuration);
    let details = match refusal {
        Refusal::NoSpace { space, .. } if space != LOCAL_SPACE => format!(
            "ipam.addressSpace is {space:?}, but sources fill only {LOCAL_SPACE:?}: remove ipam.addressSpace from {configuration}{}",
            audience.check_hint("names the file")
        ),
        Refusal::NoSpace { space, .. } => format!(
            "address space {space:?} is not in the state, and no source has filled it{}",
            audience.check_hint("finds the reason")
        ),
        Refusal::NoPools { passed_over, .. } if passed_over.is_empty() => format!(
            "the source lists no subnet for any interface of this node: secondary addresses must be assigned to its network interface, and the hardware address must match{}",
            audience.check_hint("compares them")
        ),
        Refusal::NoPools {
            family,
            if_name: Some(name),
            passed_over,
        }
        | Refusal::NoPoolOfFamily {
            family,
            if_name: Some(name),
            passed_over,
        } => format!(
            "master is {name:?}, and no pool on it has {family} addresses; the pools are {}: correct master in {configuration}",
            join_first(passed_over)
        ),
        Refusal::NoPools {
            family,
            if_name: None,
            passed_over,
        } => format!(
            "no pool has {family} addresses; the pools are {}: {}",
            join_first(passed_over),
            describe_family_keys(*family, configuration)
        ),
        Refusal::NoPoolOfFamily {
            family,
            if_name: None,
            passed_over,
        } => format!(
            "the pools are {}: {}",
            join_first(passed_over),
            describe_family_keys(*family, configuration)
        ),
        Refusal::NoPool { subnet, known } => format!(
            "ipam.subnet is {subnet:?}, and the pools are [{}]: correct ipam.subnet in {configuration} ({AZURE_VNET}); `{program} show` says how full each pool is",
            join_first(known)
        ),
        Refusal::AddressNotFound { address } => format!(
            "{address:?} is in no pool that fits; `{program} show` lists them{}",
            about_key(address)
        ),
        Refusal::AddressInUse { address, in_use_by } => {
            let who = match in_use_by {
                InUseBy::Container(id) => format!("container {id} holds it"),
                InUseBy::LastSandbox => {
                    "the sandbox of its last pod was released, and still has it".to_owned()
                }
                InUseBy::TheHost => "the host itself has it, or a route to it".to_owned(),
                InUseBy::Unknown => "its holder is not known".to_owned(),
            };
            let about_key = about_key(&address.to_string());
            format!("{who}; `{program} show {address}` shows its history{about_key}")
        }
        Refusal::AddressInCooldown { address, .. } => format!(
            "the teardown of its last pod may not be complete: retry later, request another address, or set ipam.cooldown to 0; `{program} show` with the address says when it was released{}",
            about_key(&address.to_string())
        ),
        Refusal::AddressExcluded { address } => format!(
            "ipam.exclude, in {configuration} or in /etc/azure-vnet-ipam.json, covers it; `{program} show` with the address says more{}",
            about_key(&address.to_string())
        ),
        Refusal::Exhausted { pools, listed, .. } if !listed.is_empty() => {
            let named: Vec<&str> = pools.iter().map(|pool| &*pool.subnet).collect();
            format!(
                "the source no longer lists {}, which ipam.subnet names; it lists {}: correct ipam.subnet in {configuration} ({AZURE_VNET}){}",
                named.join(", "),
                join_first(listed),
                audience.check_hint("names the file")
            )
        }
        Refusal::Exhausted { pools, retried, .. } => exhausted(pools, retried.as_ref(), audience),
        Refusal::Quarantined { .. } => format!(
            "pods that are being configured may already use an address; the call may be repeated, and `{program} show` says how long it takes"
        ),
        Refusal::NoSubnet { .. } => format!(
            "the state of this pool is incomplete, and the source does not list it{}",
            audience.check_hint("compares them")
        ),
    };
    (code, details)
}

/// Says who sets `ipam.subnet` if the network configuration lacks it (contract section 19).
const AZURE_VNET: &str = "the main plugin azure-vnet fills it in from its own state";

/// Says that the network configuration requests the address. Empty if it does not.
fn describe_requester(address: &str, configured: Option<&str>, configuration: &str) -> String {
    let is_configured = configured.is_some_and(|configured| {
        configured == address
            || named_address(configured).is_some_and(|named| named.to_string() == address)
    });
    if is_configured {
        format!(
            "; every pod requests it, because ipam.ipAddress names it: remove ipam.ipAddress from {configuration}"
        )
    } else {
        String::new()
    }
}

/// Says which keys request a family.
fn describe_family_keys(family: Family, configuration: &str) -> String {
    format!(
        "correct the key that requests {family} in {configuration} (ipam.families, ipam.type, ipam.environment, ipam.ipv6Environment), or assign addresses of that family"
    )
}

/// Returns what to do when no address is free. The advice depends on why the addresses are not free.
pub fn exhausted(
    pools: &[PoolCount],
    retried: Option<&RetriedPod>,
    audience: &Audience<'_>,
) -> String {
    let advice = advise_when_full(pools, audience);
    match retried {
        Some(RetriedPod { pod, held }) => format!(
            "pod {pod} holds {held} of them, because its sandboxes fail again and again: find out why, and remove the sandboxes that the runtime keeps (`crictl pods`, `crictl rmp`); {advice}"
        ),
        None => advice,
    }
}

/// Says why no address is free, and what to do about each reason.
fn advise_when_full(pools: &[PoolCount], audience: &Audience<'_>) -> String {
    let (program, configuration) = (audience.program, audience.configuration());
    let sum = |count: fn(&PoolCount) -> usize| pools.iter().map(count).sum::<usize>();
    let mut subnets = pools.iter().map(|pool| &*pool.subnet);
    if subnets.any(|subnet| subnet == SUBNET_OF_NULL_SOURCE) {
        return format!(
            "ipam.environment is \"null\", a source that lists no addresses: correct ipam.environment in {configuration}{}",
            audience.check_hint("names the file")
        );
    }
    if sum(|p| p.held + p.held_elsewhere + p.free) == 0
        && sum(|p| p.cooldown + p.excluded + p.on_host + p.withheld) == 0
    {
        return format!(
            "the network interface has no secondary addresses in this subnet; assign some to it in Azure{}",
            audience.check_hint("says what the source lists")
        );
    }
    let mut advice = Vec::new();
    if sum(|p| p.suspect) > 0 {
        let again = AGAIN.as_secs();
        advice.push(format!(
            "some holders show no sign of life; an ADD at least {again} s later frees their addresses if they still show none, and so does `{program} reclaim --yes`"
        ));
    }
    if sum(|p| p.on_host) > 0 {
        advice.push(format!(
            "addresses that the host has, or has a route to, are not allocated: remove them from the host, where cloud-init often configures them{}",
            audience.check_hint("names them")
        ));
    }
    if sum(|p| p.withheld) > 0 {
        advice.push(format!(
            "released sandboxes still have addresses, because the runtime could not remove them{}; `{program} show` says who holds the others",
            audience.check_hint("names them and how to remove them")
        ));
    }
    if sum(|p| p.excluded) > 0 {
        advice.push(format!(
            "ipam.exclude, in {configuration} or in /etc/azure-vnet-ipam.json, excludes addresses: correct it there; `{program} show` says who holds the others"
        ));
    }
    if advice.is_empty() {
        let minutes = GRACE.as_secs() / 60;
        advice.push(format!(
            "every address is held: `{program} show` says by whom; `{program} reclaim` lists leaked ones, {minutes} min after their ADD at the earliest; assign more secondary addresses to the network interface in Azure, or delete pods whose addresses the source lists"
        ));
    }
    advice.join("; also, ")
}

/// The subnet of the pool without addresses that `ipam.environment: "null"` creates.
const SUBNET_OF_NULL_SOURCE: &str = "0.0.0.0/0";

/// Joins the first few items of a list.
pub(super) fn join_first(all: &[String]) -> String {
    const MOST: usize = 8;
    let shown = all.get(..MOST).unwrap_or(all).join(", ");
    match all.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
