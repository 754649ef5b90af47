//! Parses one CNI call from the environment and stdin. The checks have the original's order
//! (contract section 1).

use std::net::IpAddr;

use super::network_config::{Attachments, RawNetworkConfig};
use super::{CallError, CniVersion, Defaults, Environment, IpamConfig, NetworkConfig, Verb};
use crate::codec::named_address;
use crate::ipam::{Attachment, Family};

/// A valid call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The verb.
    pub verb: Verb,
    /// The attachment. For GC and STATUS, only its network is set.
    pub attachment: Attachment,
    /// CNI_NETNS; empty when it is not set.
    pub netns: String,
    /// `namespace/name` of the pod, for messages.
    pub pod: Option<String>,
    /// ADD: whether no evidence on the node can show that the attachment is alive. That is so for an agent that requests an address for
    /// itself, and for containers that `ipam.keep` names.
    pub is_kept: bool,
    /// ADD: the requested addresses, at most one of each family.
    pub requested: Vec<IpAddr>,
    /// CHECK and DEL: the addresses of `prevResult`, if the call has one.
    pub previous: Option<Vec<IpAddr>>,
    /// GC: the attachments that are valid.
    pub valid: Attachments,
    /// The network configuration.
    pub conf: NetworkConfig,
}

impl Call {
    /// Parses and checks a call, in the original's order. `program` is the name under which the
    /// plugin was called.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse(
        environment: &Environment,
        raw_config: &RawNetworkConfig,
        defaults: &Defaults,
        program: &str,
    ) -> Result<Call, CallError> {
        let network = raw_config.name()?;
        check_network_name(&network)?;
        let known_verb = environment.verb();
        let has_attachment = !matches!(known_verb, Some(Verb::Gc | Verb::Status));
        if has_attachment {
            check_container_id(&environment.container_id)?;
            check_if_name(&environment.if_name)?;
        }
        let verb =
            known_verb.ok_or_else(|| CallError::UnknownCommand(environment.command.clone()))?;
        let version = choose_version(raw_config.cni_version()?, verb)?;
        if verb == Verb::Add {
            let unknown = environment.unknown_args();
            if !unknown.is_empty() {
                return Err(CallError::UnknownArgs(unknown));
            }
        }
        let conf = raw_config.validate(version, verb, defaults, program)?;
        let requested = match verb {
            Verb::Add => collect_requested(environment, raw_config, &conf.ipam)?,
            _ => Vec::new(),
        };
        let previous = match verb {
            Verb::Check => raw_config.prev_addresses()?,
            // For a DEL it is only a hint, so an invalid one is ignored.
            Verb::Del => raw_config.prev_addresses().unwrap_or_default(),
            _ => None,
        };
        let mut keep = conf.ipam.keep.iter();
        let is_kept = environment.is_from_agent()
            || keep.any(|pattern| pattern.matches(&environment.container_id));
        let valid = match verb {
            Verb::Gc => raw_config.valid_attachments()?,
            _ => Attachments::new(),
        };
        Ok(Call {
            verb,
            is_kept,
            requested,
            previous,
            valid,
            attachment: Attachment {
                network: network.into(),
                container_id: environment.container_id.clone(),
                if_name: (&environment.if_name).into(),
            },
            netns: environment.netns.clone(),
            pod: environment.pod(),
            conf,
        })
    }
}

/// The maximum length of a network name or container ID. It is limited because every record repeats them.
const MAX_LENGTH: usize = 1024;

/// Chooses the version of the result. Without `cniVersion`, the original checks for 0.1.0 and
/// prints the result of 0.2.0.
fn choose_version(requested: Option<String>, verb: Verb) -> Result<CniVersion, CallError> {
    let oldest = verb.since();
    let Some(text) = requested else {
        return match oldest {
            Some(_) => Err(CallError::TooOldFor(verb, None)),
            None => Ok(CniVersion::V020),
        };
    };
    match CniVersion::parse(&text) {
        Some(version) if oldest.is_some_and(|oldest| version < oldest) => {
            Err(CallError::TooOldFor(verb, Some(version)))
        }
        Some(version) => Ok(version),
        None if oldest.is_some() && !is_number(text.split('.').next()) => {
            Err(CallError::NoVersion(text))
        }
        None => Err(CallError::Incompatible(text)),
    }
}

fn is_number(text: Option<&str>) -> bool {
    text.is_some_and(|t| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit()))
}

/// Checks the name of the network.
fn check_network_name(name: &str) -> Result<(), CallError> {
    if name.is_empty() {
        return Err(CallError::NoName);
    }
    if !is_identifier(name) {
        return Err(CallError::BadName(name.to_owned()));
    }
    if name.len() > MAX_LENGTH {
        return Err(CallError::TooLongName("network name"));
    }
    Ok(())
}

/// Checks CNI_CONTAINERID.
fn check_container_id(id: &str) -> Result<(), CallError> {
    if id.is_empty() {
        return Err(CallError::NoContainerId);
    }
    if !is_identifier(id) {
        return Err(CallError::BadContainerId(id.to_owned()));
    }
    if id.len() > MAX_LENGTH {
        return Err(CallError::TooLongName("containerID"));
    }
    Ok(())
}

/// Returns whether the specification allows a text as a network name or container ID.
fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// Checks that the kernel allows the name of an interface.
fn check_if_name(name: &str) -> Result<(), CallError> {
    const MAX_IF_NAME_LENGTH: usize = 15;
    if name.is_empty() {
        return Err(CallError::NoIfName);
    }
    if name.len() > MAX_IF_NAME_LENGTH {
        return Err(CallError::IfNameTooLong);
    }
    if name == "." || name == ".." {
        return Err(CallError::IfNameDots);
    }
    if name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace()) {
        return Err(CallError::BadIfName);
    }
    Ok(())
}

/// Collects the requested addresses, at most one of each family. Several places may request the
/// same address.
///
/// # Errors
/// A text is not an address, a list has an address twice, or two addresses have the same family.
fn collect_requested(
    environment: &Environment,
    raw_config: &RawNetworkConfig,
    ipam: &IpamConfig,
) -> Result<Vec<IpAddr>, CallError> {
    let in_args: Vec<String> = environment.args("IP").map(str::to_owned).collect();
    let mut all: Vec<IpAddr> = Vec::new();
    // An invalid `ipam.ipAddress` is not an error here. As in the original, it is refused later, because no pool has it.
    all.extend(ipam.ip_address.as_deref().and_then(named_address));
    let lists = [("CNI_ARGS IP", in_args)]
        .into_iter()
        .chain(raw_config.ips()?);
    for (place, texts) in lists {
        let mut here = Vec::new();
        for text in texts {
            let wrong = |why: &'static str| CallError::Requested {
                address: text.clone(),
                place,
                why,
            };
            let address = named_address(&text).ok_or_else(|| wrong("it is not an address"))?;
            if here.contains(&address) {
                return Err(wrong("it is there twice"));
            }
            here.push(address);
            if all.contains(&address) {
                continue;
            }
            let family = Family::from_address(address);
            if all.iter().any(|a| Family::from_address(*a) == family) {
                return Err(wrong("another address of its family is requested too"));
            }
            all.push(address);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::NAME;

    #[test]
    fn first_failed_check_is_reported() {
        let any = r#"{"cniVersion":3,"name":"a"}"#;
        for (stdin, command, container_id, expected) in [
            (r#"{"cniVersion":3}"#, "NONE", "a/b", CallError::NoName),
            (
                r#"{"cniVersion":3,"name":"-"}"#,
                "NONE",
                "a/b",
                CallError::BadName("-".into()),
            ),
            (any, "NONE", "a/b", CallError::BadContainerId("a/b".into())),
            (any, "NONE", "c1", CallError::UnknownCommand("NONE".into())),
            (any, "ADD", "c1", CallError::VersionType),
        ] {
            let environment = Environment {
                command: command.into(),
                container_id: container_id.into(),
                netns: "/run/netns/x".into(),
                if_name: "eth0".into(),
                args: String::new(),
            };
            let raw_config = RawNetworkConfig::read(stdin.as_bytes()).unwrap();
            let parsed = Call::parse(&environment, &raw_config, &Defaults::default(), NAME);
            assert_eq!(parsed, Err(expected), "{stdin} {command}");
        }
    }

    #[test]
    fn versions_are_exact_and_new_enough_for_the_verb() {
        use CallError::{Incompatible, NoVersion, TooOldFor};
        use Verb::{Add, Check, Del, Gc, Status};
        for (verb, requested, expected) in [
            (Add, None, Ok(CniVersion::V020)),
            (Del, Some("0.3"), Err(Incompatible("0.3".into()))),
            (Del, Some("x"), Err(Incompatible("x".into()))),
            (
                Check,
                Some("0.3.1"),
                Err(TooOldFor(Check, Some(CniVersion::V031))),
            ),
            (Check, Some("0.4.0"), Ok(CniVersion::V040)),
            (Gc, None, Err(TooOldFor(Gc, None))),
            (
                Gc,
                Some("1.0.0"),
                Err(TooOldFor(Gc, Some(CniVersion::V100))),
            ),
            (Gc, Some("x"), Err(NoVersion("x".into()))),
            (Gc, Some("9.9.9"), Err(Incompatible("9.9.9".into()))),
            (
                Status,
                Some("0.1.0"),
                Err(TooOldFor(Status, Some(CniVersion::V010))),
            ),
            (Status, Some("1.1.0"), Ok(CniVersion::V110)),
        ] {
            let found = choose_version(requested.map(str::to_owned), verb);
            assert_eq!(found, expected, "{verb:?} {requested:?}");
        }
    }
}
