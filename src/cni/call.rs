//! Parses one CNI call from environment and stdin, with the checks in the original's order (contract section 1).

use std::net::IpAddr;

use super::network_config::{Attachments, RawNetworkConfig};
use super::requested_addresses::collect_requested;
use super::{CallError, CniVersion, Defaults, Environment, NetworkConfig, Verb};
use crate::ipam::Attachment;

/// A valid call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The verb.
    pub verb: Verb,
    /// The attachment; GC and STATUS have only its network.
    pub attachment: Attachment,
    /// CNI_NETNS; empty when it is not set.
    pub netns: String,
    /// `namespace/name` of the pod, for messages.
    pub pod: Option<String>,
    /// ADD: the requested addresses, at most one of each family.
    pub requested: Vec<IpAddr>,
    /// CHECK and DEL: the addresses of `prevResult`, where there is one.
    pub previous: Option<Vec<IpAddr>>,
    /// GC: the attachments that are valid.
    pub valid: Attachments,
    /// The network configuration.
    pub conf: NetworkConfig,
}

impl Call {
    /// Reads `cniVersion` from the input of a VERSION call; `None` if it has none.
    pub fn read_version_request(stdin: &[u8]) -> Option<String> {
        RawNetworkConfig::read(stdin).ok()?.cni_version().ok()?
    }

    /// Parses and checks a call, in the original's order.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse(
        environment: &Environment,
        stdin: &[u8],
        defaults: &Defaults,
    ) -> Result<Call, CallError> {
        let raw_config = RawNetworkConfig::read(stdin)?;
        let name = raw_config.name()?;
        match name.as_str() {
            "" => return Err(CallError::NoName),
            bad if !is_identifier(bad) => return Err(CallError::BadName(name)),
            long if long.len() > MAX_LENGTH => return Err(CallError::TooLongName("network name")),
            _ => {}
        }
        let verb = environment.verb();
        let of_the_node = matches!(verb, Some(Verb::Gc | Verb::Status));
        if !of_the_node {
            match environment.container_id.as_str() {
                "" => return Err(CallError::NoContainerId),
                bad if !is_identifier(bad) => {
                    return Err(CallError::BadContainerId(bad.to_owned()));
                }
                long if long.len() > MAX_LENGTH => {
                    return Err(CallError::TooLongName("containerID"));
                }
                _ => {}
            }
            check_if_name(&environment.if_name)?;
        }
        let verb = verb.ok_or_else(|| CallError::UnknownCommand(environment.command.clone()))?;
        let version = version(raw_config.cni_version()?, verb)?;
        if verb == Verb::Add {
            let unknown = environment.unknown_args();
            if !unknown.is_empty() {
                return Err(CallError::UnknownArgs(unknown));
            }
        }
        let conf = raw_config.validate(name.clone(), version, verb, defaults)?;
        Ok(Call {
            verb,
            requested: match verb {
                Verb::Add => collect_requested(environment, &raw_config, &conf.ipam)?,
                _ => Vec::new(),
            },
            previous: match verb {
                Verb::Check => raw_config.prev_addresses()?,
                // Only a hint for a DEL, so an invalid one is ignored.
                Verb::Del => raw_config.prev_addresses().unwrap_or_default(),
                _ => None,
            },
            valid: match verb {
                Verb::Gc => raw_config.valid_attachments()?,
                _ => Attachments::new(),
            },
            attachment: Attachment {
                network: name,
                container_id: environment.container_id.clone(),
                if_name: environment.if_name.clone(),
            },
            netns: environment.netns.clone(),
            pod: environment.pod(),
            conf,
        })
    }
}

/// The most bytes of a network name or container ID, as every record repeats them.
const MAX_LENGTH: usize = 1024;

/// Chooses the version of the answer. Without `cniVersion` the original checks for 0.1.0 and answers in the form of 0.2.0.
fn version(requested: Option<String>, verb: Verb) -> Result<CniVersion, CallError> {
    let since = verb.since();
    let Some(requested) = requested else {
        return match since {
            Some(_) => Err(CallError::TooOldFor(verb)),
            None => Ok(CniVersion::V020),
        };
    };
    match CniVersion::parse(&requested) {
        Some(version) if since.is_some_and(|since| version < since) => {
            Err(CallError::TooOldFor(verb))
        }
        Some(version) => Ok(version),
        None if since.is_some() && !is_number(requested.split('.').next()) => {
            Err(CallError::NoVersion(requested))
        }
        None => Err(CallError::Incompatible(requested)),
    }
}

fn is_number(text: Option<&str>) -> bool {
    text.is_some_and(|t| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns whether a text is a network name or container ID as the specification allows it.
fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// Checks that the kernel allows the name of an interface.
fn check_if_name(name: &str) -> Result<(), CallError> {
    const MAX_LENGTH: usize = 15;
    match name {
        "" => Err(CallError::NoIfName),
        long if long.len() > MAX_LENGTH => Err(CallError::IfNameTooLong),
        "." | ".." => Err(CallError::IfNameDots),
        bad if bad.contains(|c: char| c == '/' || c == ':' || c.is_whitespace()) => {
            Err(CallError::BadIfName)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(command: &str) -> Environment {
        Environment {
            command: command.into(),
            container_id: "c1".into(),
            netns: "/run/netns/x".into(),
            if_name: "eth0".into(),
            args: String::new(),
        }
    }

    fn parse(environment: &Environment, stdin: &str) -> Result<Call, CallError> {
        environment.check_required()?;
        Call::parse(environment, stdin.as_bytes(), &Defaults::default())
    }

    const CONF: &str = r#"{"cniVersion":"0.4.0","name":"azure"}"#;

    #[test]
    fn missing_variables_are_listed_in_order() {
        let bare = |command: &str| Environment {
            command: command.into(),
            ..Environment::default()
        };
        for (command, missing) in [
            (
                "ADD",
                "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME] missing",
            ),
            (
                "DEL",
                "required env variables [CNI_CONTAINERID,CNI_IFNAME] missing",
            ),
        ] {
            assert_eq!(
                bare(command).check_required().unwrap_err().to_string(),
                missing
            );
        }
        assert_eq!(bare("VERSION").check_required(), Ok(()));
        assert_eq!(bare("NONE").check_required(), Ok(()));
    }

    #[test]
    fn first_failed_check_is_reported() {
        let bad = Environment {
            container_id: "a/b".into(),
            if_name: "a/b".into(),
            ..environment("NONE")
        };
        let steps: [(&str, &Environment, CallError); 5] = [
            (r#"{"cniVersion":3}"#, &bad, CallError::NoName),
            (
                r#"{"cniVersion":3,"name":"-"}"#,
                &bad,
                CallError::BadName("-".into()),
            ),
            (
                r#"{"cniVersion":3,"name":"a"}"#,
                &bad,
                CallError::BadContainerId("a/b".into()),
            ),
            (
                r#"{"cniVersion":3,"name":"a"}"#,
                &environment("NONE"),
                CallError::UnknownCommand("NONE".into()),
            ),
            (
                r#"{"cniVersion":3,"name":"a"}"#,
                &environment("ADD"),
                CallError::VersionType,
            ),
        ];
        for (stdin, environment, error) in steps {
            assert_eq!(parse(environment, stdin), Err(error));
        }
    }

    #[test]
    fn commands_are_in_capitals() {
        for command in ["add", " ADD", "GET", "UPDATE"] {
            assert_eq!(
                parse(&environment(command), CONF),
                Err(CallError::UnknownCommand(command.into()))
            );
        }
    }

    #[test]
    fn gc_and_status_need_no_container_and_version_1_1_0() {
        let bare = |command: &str| Environment {
            command: command.into(),
            ..Environment::default()
        };
        let conf = |version: &str| {
            format!(r#"{{"cniVersion":"{version}","name":"azure","cni.dev/attachments":[]}}"#)
        };
        for command in ["GC", "STATUS"] {
            assert!(parse(&bare(command), &conf("1.1.0")).is_ok(), "{command}");
            let verb = Verb::parse(command).unwrap();
            for older in ["0.1.0", "0.4.0", "1.0.0"] {
                for environment in [bare(command), environment(command)] {
                    let parsed = parse(&environment, &conf(older));
                    assert_eq!(parsed, Err(CallError::TooOldFor(verb)), "{older}");
                }
            }
            let parsed = parse(&bare(command), r#"{"name":"azure"}"#);
            assert_eq!(parsed, Err(CallError::TooOldFor(verb)));
            for (version, error) in [
                ("x", CallError::NoVersion("x".into())),
                ("9.9.9", CallError::Incompatible("9.9.9".into())),
            ] {
                assert_eq!(parse(&bare(command), &conf(version)), Err(error));
            }
        }
        let parsed = parse(
            &environment("CHECK"),
            r#"{"cniVersion":"0.3.1","name":"azure"}"#,
        );
        assert_eq!(parsed, Err(CallError::TooOldFor(Verb::Check)));
        assert_eq!(
            parse(&bare("GC"), r#"{"cniVersion":"1.1.0","name":"azure"}"#),
            Err(CallError::NoAttachments)
        );
    }

    #[test]
    fn unknown_args_stop_an_add_and_nothing_else() {
        for (command, stops) in [("ADD", true), ("DEL", false), ("CHECK", false)] {
            let odd = Environment {
                args: "FOO=bar".into(),
                ..environment(command)
            };
            assert_eq!(parse(&odd, CONF).is_err(), stops, "{command}");
        }
    }

    #[test]
    fn versions_are_exact() {
        let with = |version: &str| format!(r#"{{"cniVersion":"{version}","name":"azure"}}"#);
        for version in CniVersion::ALL {
            assert_eq!(
                parse(&environment("ADD"), &with(version.as_str()))
                    .unwrap()
                    .conf
                    .version,
                version
            );
        }
        for bad in ["0.3", "9", "abc", "1.2.0"] {
            assert_eq!(
                parse(&environment("DEL"), &with(bad)),
                Err(CallError::Incompatible(bad.into()))
            );
        }
        for none in [
            r#"{"name":"a"}"#,
            r#"{"name":"a","cniVersion":null}"#,
            r#"{"name":"a","cniVersion":""}"#,
        ] {
            assert_eq!(
                parse(&environment("ADD"), none).unwrap().conf.version,
                CniVersion::V020
            );
        }
    }

    #[test]
    fn interface_names_are_what_the_kernel_allows() {
        for (name, error) in [
            ("a/b", CallError::BadIfName),
            ("a:b", CallError::BadIfName),
            ("a\u{a0}b", CallError::BadIfName),
            ("..", CallError::IfNameDots),
            ("abcdefghijklmnop", CallError::IfNameTooLong),
            ("äääääääää", CallError::IfNameTooLong),
            ("", CallError::NoIfName),
        ] {
            assert_eq!(check_if_name(name), Err(error), "{name}");
        }
        assert_eq!(check_if_name("abcdefghijklmno"), Ok(()));
    }

    #[test]
    fn identifiers_are_what_the_specification_allows() {
        for good in ["a", "0", "a_b.c-d", "Z9"] {
            assert!(is_identifier(good), "{good}");
        }
        for bad in ["", "-a", ".a", "_a", "a b", "a\n", "ä", "a:b"] {
            assert!(!is_identifier(bad), "{bad}");
        }
    }
}
