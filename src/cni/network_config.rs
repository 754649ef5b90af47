//! Parses the network configuration on stdin (contract section 2). The members are first read in
//! their own spelling, and then validated.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::value::RawValue;
use tracing::level_filters::LevelFilter;

use super::error::{CallError, Key, describe_found};
use super::raw_ipam_config::RawIpamConfig;
use super::{CniVersion, Defaults, IpamConfig, Verb};
use crate::codec::{self, Cursor, Members, ParseError, Read, is, named_address, object};

/// The members that this plugin uses, before validation. Other members are ignored, even those of
/// an unexpected type (difference D15).
#[derive(Debug, Default)]
pub struct RawNetworkConfig {
    cni_version: Option<Box<RawValue>>,
    name: Option<Box<RawValue>>,
    master: Option<Box<RawValue>>,
    log_level: Option<Box<RawValue>>,
    log_target: Option<Box<RawValue>>,
    ipam: Option<Box<RawValue>>,
    args: Option<Box<RawValue>>,
    runtime_config: Option<Box<RawValue>>,
    prev_result: Option<Box<RawValue>>,
    /// Both lists of attachments of a GC. Each may be `null`.
    attachments: Vec<Box<RawValue>>,
}

/// The validated network configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkConfig {
    /// The version of the result.
    pub version: CniVersion,
    /// The interface that an ADD without subnet takes its pools from.
    pub master: Option<String>,
    /// The level of the log, if it is a known one.
    pub log_level: Option<LevelFilter>,
    /// Whether the log goes to syslog.
    pub syslog: bool,
    /// The values that are ignored, and why. As in the original, they are not errors.
    pub ignored: Vec<CallError>,
    /// The key `ipam`.
    pub ipam: IpamConfig,
}

/// The container IDs and interface names of attachments.
pub type Attachments = BTreeSet<(String, String)>;

/// The keys of a network configuration that this plugin uses.
pub const NETWORK_CONFIG_KEYS: &[&str] = <RawNetworkConfig as Members<'static>>::NAMES;

object! { any_case read RawNetworkConfig {
    "cniVersion": cni_version,
    "name": name,
    "master": master,
    "logLevel": log_level,
    "logTarget": log_target,
    "ipam": ipam,
    "args": args,
    "runtimeConfig": runtime_config,
    "prevResult": prev_result,
    "cni.dev/valid-attachments" with(push_raw): attachments,
    "cni.dev/attachments" with(push_raw): attachments,
} }

// The keys that errors name, besides those of `ipam`.
const MASTER: Key = Key::new("master", "a string, for example \"eth0\"");
const LOG_LEVEL: Key = Key::new(
    "logLevel",
    "one of trace, debug, info, warn, error and off, for example \"info\"",
);
const LOG_TARGET: Key = Key::new("logTarget", "file or syslog, for example \"syslog\"");
const ARGS_IPS: Key = Key::new("args.cni.ips", IPS_FORM);
const RUNTIME_CONFIG_IPS: Key = Key::new("runtimeConfig.ips", IPS_FORM);
const IPS_FORM: &str = "a list of addresses, for example [\"10.224.0.9\"]";
const PREV_RESULT: Key = Key::new(
    "prevResult",
    "the result of an ADD, for example {\"ips\": [{\"address\": \"10.224.0.9/16\"}]}",
);
const VALID_ATTACHMENTS: Key = Key::new(
    "cni.dev/valid-attachments",
    "a list of objects, for example [{\"containerID\": \"3f2a91c04d7e\", \"ifname\": \"eth0\"}]",
);

/// Reads a value that may also be `null`.
fn push_raw(target: &mut Vec<Box<RawValue>>, json: &mut Cursor<'_>) -> Result<(), ParseError> {
    target.push(json.raw()?);
    Ok(())
}

impl RawNetworkConfig {
    /// Reads stdin.
    ///
    /// # Errors
    /// It is not a JSON object.
    pub fn read(stdin: &[u8]) -> Result<Self, CallError> {
        codec::parse(stdin).map_err(|error| {
            if error.is_eof() {
                // The original's message. Callers often see it, because it also means an empty
                // stdin.
                CallError::NotJson("unexpected end of JSON input".to_owned())
            } else {
                CallError::NotJson(error.to_string())
            }
        })
    }

    /// Returns the network's name; empty when it is missing.
    pub(super) fn name(&self) -> Result<String, CallError> {
        let name = parse_string(self.name.as_deref())
            .map_err(|_| CallError::NotJson("name must be a string".to_owned()))?;
        Ok(name.unwrap_or_default())
    }

    /// Returns the `cniVersion` that answers must have; `None` if it is missing or invalid.
    pub fn requested_version(&self) -> Option<String> {
        self.cni_version().ok()?
    }

    /// Returns `cniVersion`; `None` if it is absent, `null` or empty.
    pub(super) fn cni_version(&self) -> Result<Option<String>, CallError> {
        let version =
            parse_string(self.cni_version.as_deref()).map_err(|_| CallError::VersionType)?;
        Ok(version.filter(|v| !v.is_empty()))
    }

    /// Returns whether the log goes to syslog (`logTarget`). An unknown target means the file.
    pub fn wants_syslog(&self) -> bool {
        self.log_target.as_deref().and_then(parse_log_target) == Some(LogTarget::Syslog)
    }

    /// Validates the configuration for a call of `verb` to the plugin named `program`. If the verb
    /// does not allocate, members of the wrong type count as missing: a release does not depend on
    /// them (promise P4).
    pub(super) fn validate(
        &self,
        version: CniVersion,
        verb: Verb,
        defaults: &Defaults,
        program: &str,
    ) -> Result<NetworkConfig, CallError> {
        let lenient = !verb.allocates();
        let raw_config = match RawIpamConfig::read(self.ipam.as_deref(), defaults) {
            Err(_) if lenient => RawIpamConfig::default(),
            other => other?,
        };
        let master = self.master.as_deref();
        let master = match master.map_or(Ok(None), |raw| MASTER.parse_text(raw)) {
            Err(_) if lenient => None,
            other => other?,
        };
        let ipam = raw_config.validate(verb, program)?;
        let mut ignored = self.ignored_log_settings();
        if !lenient {
            ignored.extend(raw_config.ignored_interval(&ipam));
        }
        Ok(NetworkConfig {
            version,
            master,
            log_level: self.log_level.as_deref().and_then(parse_log_level),
            syslog: self.wants_syslog(),
            ignored,
            ipam,
        })
    }

    /// Returns the settings of the log that have unknown values. An empty text means the default.
    fn ignored_log_settings(&self) -> Vec<CallError> {
        let (level, target) = (self.log_level.as_deref(), self.log_target.as_deref());
        let unknown_level = level.filter(|raw| parse_log_level(raw).is_none());
        let unknown_target = target.filter(|raw| parse_log_target(raw).is_none());
        let unknown = [(LOG_LEVEL, unknown_level), (LOG_TARGET, unknown_target)];
        unknown
            .into_iter()
            .filter_map(|(key, raw)| Some((key, raw.filter(|raw| raw.get() != "\"\"")?)))
            .map(|(key, raw)| CallError::Invalid(key, describe_found(raw)))
            .collect()
    }

    /// Returns the addresses requested in `args.cni.ips` and `runtimeConfig.ips`, each list with
    /// its name.
    pub(super) fn ips(&self) -> Result<[(&'static str, Vec<String>); 2], CallError> {
        let member = |object: Option<&RawValue>, key| parse_member(object?, key).ok()?;
        let list = |raw: Option<Box<RawValue>>, key: Key| match raw {
            Some(raw) => Ok((key.path, key.parse(&raw)?)),
            None => Ok((key.path, Vec::new())),
        };
        let cni_args = member(self.args.as_deref(), "cni");
        let in_args = member(cni_args.as_deref(), "ips");
        let in_runtime_config = member(self.runtime_config.as_deref(), "ips");
        Ok([
            list(in_args, ARGS_IPS)?,
            list(in_runtime_config, RUNTIME_CONFIG_IPS)?,
        ])
    }

    /// Returns the addresses of `prevResult` in any version; `None` when there is no `prevResult`.
    pub(super) fn prev_addresses(&self) -> Result<Option<Vec<IpAddr>>, CallError> {
        let invalid = |found| CallError::Invalid(PREV_RESULT, found);
        let member = |object: &RawValue, key| {
            parse_member(object, key).map_err(|error| invalid(error.to_string()))
        };
        let Some(result) = self.prev_result.as_deref() else {
            return Ok(None);
        };
        let mut members = Vec::new();
        if let Some(ips) = member(result, "ips")? {
            let items: Vec<Box<RawValue>> = PREV_RESULT.parse(&ips)?;
            for item in items {
                members.push(member(&item, "address")?);
            }
        }
        for family in ["ip4", "ip6"] {
            if let Some(item) = member(result, family)? {
                members.push(member(&item, "ip")?);
            }
        }
        let mut addresses = Vec::new();
        for found in members {
            let raw = found.ok_or_else(|| invalid("an item without an address".to_owned()))?;
            let text: String = PREV_RESULT.parse(&raw)?;
            let address = named_address(&text).ok_or_else(|| invalid(format!("{text:?}")))?;
            addresses.push(address);
        }
        Ok(Some(addresses))
    }

    /// Returns the valid attachments of a GC, from both lists. A runtime without attachments may
    /// send `null`.
    pub(super) fn valid_attachments(&self) -> Result<Attachments, CallError> {
        if self.attachments.is_empty() {
            return Err(CallError::NoAttachments);
        }
        let invalid = |found| CallError::Invalid(VALID_ATTACHMENTS, found);
        let name = |object: &RawValue, key: &str| -> Result<String, CallError> {
            let raw = parse_member(object, key)
                .map_err(|error| invalid(error.to_string()))?
                .ok_or_else(|| invalid(format!("no {key}")))?;
            VALID_ATTACHMENTS.parse(&raw)
        };
        let mut valid = Attachments::new();
        for list in &self.attachments {
            let listed: Option<Vec<Box<RawValue>>> = VALID_ATTACHMENTS.parse(list)?;
            for attachment in listed.into_iter().flatten() {
                valid.insert((
                    name(&attachment, "containerID")?,
                    name(&attachment, "ifname")?,
                ));
            }
        }
        Ok(valid)
    }
}

/// Parses a level of the log, with the names that the original knows.
fn parse_log_level(raw: &RawValue) -> Option<LevelFilter> {
    let name: String = serde_json::from_str(raw.get()).ok()?;
    match &*name.to_ascii_lowercase() {
        "trace" => Some(LevelFilter::TRACE),
        "debug" => Some(LevelFilter::DEBUG),
        "info" => Some(LevelFilter::INFO),
        "warn" | "warning" => Some(LevelFilter::WARN),
        "error" | "fatal" | "panic" => Some(LevelFilter::ERROR),
        "off" | "none" => Some(LevelFilter::OFF),
        _ => None,
    }
}

/// Where the log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogTarget {
    File,
    Syslog,
}

/// Parses a target of the log.
fn parse_log_target(raw: &RawValue) -> Option<LogTarget> {
    let name: String = serde_json::from_str(raw.get()).ok()?;
    match &*name.to_ascii_lowercase() {
        "file" => Some(LogTarget::File),
        "syslog" => Some(LogTarget::Syslog),
        _ => None,
    }
}

/// Parses a string; `None` when the member is missing.
fn parse_string(raw: Option<&RawValue>) -> Result<Option<String>, serde_json::Error> {
    raw.map(|raw| serde_json::from_str(raw.get())).transpose()
}

/// Parses one member of an object; `null` counts as missing.
fn parse_member(raw: &RawValue, key: &str) -> Result<Option<Box<RawValue>>, codec::Error> {
    let mut found = None;
    codec::document(raw.get(), |json| {
        json.object(&mut |name, json| {
            if is(name, key) {
                found.read(json)
            } else {
                json.skip()
            }
        })
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::NAME;
    use crate::cni::error::tests::assert_example_is_json;

    #[test]
    fn every_form_has_an_example_that_is_json() {
        for key in [
            MASTER,
            LOG_LEVEL,
            LOG_TARGET,
            ARGS_IPS,
            RUNTIME_CONFIG_IPS,
            PREV_RESULT,
            VALID_ATTACHMENTS,
        ] {
            assert_example_is_json(key);
        }
    }

    fn raw_config(json: &str) -> RawNetworkConfig {
        RawNetworkConfig::read(json.as_bytes()).unwrap()
    }

    #[test]
    fn members_of_the_wrong_type_fail_an_add_but_not_a_del() {
        for json in [
            r#"{"name":"a","ipam":[]}"#,
            r#"{"name":"a","ipam":"x"}"#,
            r#"{"name":"a","master":{}}"#,
        ] {
            let validate = |verb| {
                raw_config(json).validate(CniVersion::V030, verb, &Defaults::default(), NAME)
            };
            let wrong = validate(Verb::Add);
            assert!(matches!(wrong, Err(CallError::WrongType(..))), "{json}");
            assert!(validate(Verb::Del).is_ok(), "{json}");
        }
    }

    #[test]
    fn ignored_values_are_reported_without_an_error() {
        for (json, expected) in [
            (
                r#"{"logLevel":"WARNING","logTarget":"Syslog","ipam":{"queryInterval":"5"}}"#,
                vec![],
            ),
            (r#"{"logLevel":"","ipam":{"queryInterval":""}}"#, vec![]),
            (
                r#"{"logLevel":"verbose","ipam":{"queryInterval":"5m"}}"#,
                vec![
                    "logLevel must be one of trace, debug, info, warn, error and off, for example \"info\": found \"verbose\"",
                    "ipam.queryInterval must be a string of whole seconds above zero, for example \"10\": found \"5m\"",
                ],
            ),
            (
                r#"{"logTarget":"journald"}"#,
                vec![
                    "logTarget must be file or syslog, for example \"syslog\": found \"journald\"",
                ],
            ),
            (
                r#"{"logLevel":7}"#,
                vec![
                    "logLevel must be one of trace, debug, info, warn, error and off, for example \"info\": found 7",
                ],
            ),
        ] {
            let conf = raw_config(json)
                .validate(CniVersion::V100, Verb::Add, &Defaults::default(), NAME)
                .unwrap();
            let ignored: Vec<_> = conf.ignored.iter().map(ToString::to_string).collect();
            assert_eq!(ignored, expected, "{json}");
        }
    }

    #[test]
    fn a_previous_result_is_read_in_every_form() {
        for (json, expected) in [
            (
                r#"{"ips":[{"version":"4","address":"10.1.0.5/16"}]}"#,
                Some("10.1.0.5"),
            ),
            (
                r#"{"cniVersion":"1.1.0",
                    "ips":[{"address":"10.1.0.5/16"},{"address":"fd00::5/64"}]}"#,
                Some("10.1.0.5 fd00::5"),
            ),
            (r#"{"ip4":{"ip":"10.1.0.5/16"},"dns":{}}"#, Some("10.1.0.5")),
            (
                r#"{"IPs":[{"Address":"10.1.0.5/16"}],"ip6":null}"#,
                Some("10.1.0.5"),
            ),
            ("{}", Some("")),
            ("7", None),
            ("[]", None),
            (r#"{"ips":[{"address":"x"}]}"#, None),
            (r#"{"ips":{}}"#, None),
            (r#"{"ips":[{}]}"#, None),
        ] {
            let config = raw_config(&format!(r#"{{"prevResult":{json}}}"#));
            let found = config.prev_addresses().ok().map(|addresses| {
                let texts: Vec<_> = addresses.unwrap().iter().map(ToString::to_string).collect();
                texts.join(" ")
            });
            assert_eq!(found.as_deref(), expected, "{json}");
        }
        for none in ["{}", r#"{"prevResult":null}"#] {
            assert_eq!(raw_config(none).prev_addresses(), Ok(None));
        }
    }

    #[test]
    fn valid_attachments_are_those_of_both_keys() {
        let both = raw_config(
            r#"{"cni.dev/attachments":[{"containerID":"c1","ifname":"eth0"}],
                "cni.dev/valid-attachments":[
                    {"containerID":"c2","ifname":"eth0"},
                    {"containerID":"c1","ifname":"eth0"}
                ]}"#,
        );
        let pair = |id: &str| (id.to_owned(), "eth0".to_owned());
        let expected = [pair("c1"), pair("c2")].into();
        assert_eq!(both.valid_attachments(), Ok(expected));
        let no_name = raw_config(r#"{"cni.dev/attachments":[{"containerID":"c1"}]}"#);
        let found = no_name.valid_attachments();
        assert!(matches!(found, Err(CallError::Invalid(..))));
    }
}
