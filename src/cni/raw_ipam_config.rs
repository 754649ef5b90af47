//! Parses and validates the key `ipam` of the network configuration, and the file of defaults for it.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::value::RawValue;

use super::error::{
    CallError, describe_found, ipam_key, ipam_keys, ipam_path, parse_string, parse_value,
};
use super::{Backend, IpamConfig, NAME_V6, QueryUrl, Verb, WhenFull, overrides};
use crate::codec::{self, Cursor, Members, ParseError, Read};
use crate::ipam::Family;

/// The keys that cannot be defaults for all pods.
const NOT_FOR_ALL_PODS: [&str; 5] = ["type", "families", "addressSpace", "subnet", "ipAddress"];

/// Lists the keys that can be defaults for all pods.
fn default_keys() -> String {
    let keys = ipam_keys().filter(|key| !NOT_FOR_ALL_PODS.contains(key));
    keys.collect::<Vec<_>>().join(", ")
}

/// Defaults for the members of `ipam`: the valid part of `/etc/azure-vnet-ipam.json`.
#[derive(Clone, Debug, Default)]
pub struct Defaults(RawIpamConfig);

/// The members of `ipam` as they are spelled, with their paths.
#[derive(Clone, Debug, Default)]
pub(super) struct RawIpamConfig {
    members: Vec<(&'static str, Box<RawValue>)>,
    unknown: Vec<String>,
}

impl<'de> Members<'de> for RawIpamConfig {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<bool, ParseError> {
        let Some(path) = ipam_path(key) else {
            self.unknown.push(key.to_owned());
            return Ok(false);
        };
        let mut found: Option<Box<RawValue>> = None;
        found.read(json)?;
        if let Some(found) = found {
            self.members.retain(|(earlier, _)| *earlier != path);
            self.members.push((path, found));
        }
        Ok(true)
    }
}

impl Defaults {
    /// Parses the file. Returns the valid members, and a message for each of the others.
    pub fn read(json: &[u8]) -> (Defaults, Vec<String>) {
        let mut raw_config: RawIpamConfig = match codec::parse(json) {
            Ok(raw_config) => raw_config,
            Err(e) => {
                let wrong = format!(
                    "it is not a JSON object, for example {{\"exclude\": [\"10.224.0.128/25\"], \"cooldown\": 60}}: {e}"
                );
                return (Defaults::default(), vec![wrong]);
            }
        };
        let unknown = raw_config.unknown.drain(..);
        let unknown =
            unknown.map(|k| format!("unknown key {k:?}; the keys are {}", default_keys()));
        let mut wrong: Vec<String> = unknown.collect();
        raw_config.members.retain(|member| match fault(member) {
            None => true,
            Some(fault) => {
                wrong.push(fault);
                false
            }
        });
        (Defaults(raw_config), wrong)
    }
}

/// Returns why a member cannot be a default for all pods. No message of the original's has to be kept here.
fn fault(member: &(&'static str, Box<RawValue>)) -> Option<String> {
    let (path, raw) = member;
    if let Some(key) = ipam_key(path).filter(|key| NOT_FOR_ALL_PODS.contains(key)) {
        return Some(format!("{key} belongs in a network configuration"));
    }
    let alone = RawIpamConfig {
        members: vec![member.clone()],
        unknown: vec![],
    };
    let error = match alone.validate(Verb::Add) {
        Err(CallError::WrongType(path, found)) => CallError::Invalid(path, found),
        Err(CallError::QueryUrl(url)) => CallError::Invalid(path, format!("found {url:?}")),
        Err(CallError::UnknownEnvironment(name)) => {
            let names = Backend::ALL.map(Backend::name).join(", ");
            return Some(format!("{path} must be one of {names}: found {name:?}"));
        }
        Err(other) => other,
        Ok(conf) if *path == "ipam.queryInterval" && conf.query_interval.is_none() => {
            CallError::Invalid(path, describe_found(raw))
        }
        Ok(_) => return None,
    };
    Some(error.to_string())
}

impl RawIpamConfig {
    /// Reads the key `ipam` on top of the defaults.
    pub fn read(raw: Option<&RawValue>, defaults: &Defaults) -> Result<RawIpamConfig, CallError> {
        let own = raw
            .map(|raw| codec::parse(raw.get().as_bytes()))
            .transpose();
        let own = own.map_err(|e| CallError::WrongType("ipam", e.to_string()))?;
        let mut raw_config: RawIpamConfig = own.unwrap_or_default();
        let inherited = defaults.0.members.iter();
        let inherited = inherited.filter(|(path, _)| raw_config.raw(path).is_none());
        let inherited: Vec<_> = inherited.cloned().collect();
        raw_config.members.extend(inherited);
        Ok(raw_config)
    }

    fn raw(&self, path: &str) -> Option<&RawValue> {
        let found = self.members.iter().find(|(known, _)| *known == path);
        found.map(|(_, raw)| &**raw)
    }

    /// Validates the members for a call of `verb`. For a verb that does not allocate, invalid members count as missing, and those
    /// that it does not need are not read: a release depends on none of them (promise P4).
    pub fn validate(&self, verb: Verb) -> Result<IpamConfig, CallError> {
        let lenient = !verb.allocates();
        let text = |path: &'static str| match parse_string(self.raw(path), path) {
            Err(_) if lenient => Ok(None),
            other => other.map(|text| text.filter(|text| !text.is_empty())),
        };
        let mut conf = IpamConfig {
            ipv6: text("ipam.type")?.is_some_and(|t| t == NAME_V6),
            address_space: text("ipam.addressSpace")?.unwrap_or_else(|| "local".to_owned()),
            subnet: text("ipam.subnet")?,
            ip_address: text("ipam.ipAddress")?,
            ..IpamConfig::default()
        };
        if !lenient {
            self.validate_allocation(&mut conf)?;
        }
        Ok(conf)
    }

    /// Validates what only verbs that allocate look at.
    #[inline(never)]
    fn validate_allocation(&self, conf: &mut IpamConfig) -> Result<(), CallError> {
        let text = |path: &'static str| {
            let text = parse_string(self.raw(path), path)?;
            Ok(text.filter(|text| !text.is_empty()))
        };
        if let Some(name) = text("ipam.environment")? {
            conf.backend = Backend::parse(&name)?;
        }
        // That source has IPv6 pools only.
        conf.ipv6 |= conf.backend == Backend::Ipv6NodeIpam;
        let ipv6 = text("ipam.ipv6Environment")?;
        conf.ipv6_backend = ipv6.map(|name| Backend::parse(&name)).transpose()?;
        if let Some(raw) = self.raw("ipam.families") {
            conf.families = parse_families(raw, conf.subnet.as_deref())?;
        }
        conf.query_interval = text("ipam.queryInterval")?.and_then(|s| parse_interval(&s));
        conf.query_url = text("ipam.queryUrl")?
            .map(|url| QueryUrl::parse(&url))
            .transpose()?;
        conf.kubeconfig = text("ipam.kubeconfig")?;
        conf.node_name = text("ipam.nodeName")?;
        if let Some(raw) = self.raw("ipam.exclude") {
            let texts: Vec<String> = parse_value(raw, "ipam.exclude")?;
            let nets: Result<_, _> = texts.iter().map(|text| parse_prefix(text)).collect();
            conf.exclude = nets?;
        }
        if let Some(raw) = self.raw("ipam.cooldown") {
            conf.cooldown = parse_cooldown(raw)?;
        }
        conf.when_full = match text("ipam.statusWhenFull")?.as_deref() {
            None | Some("ready") => WhenFull::Ready,
            Some("error") => WhenFull::Error,
            Some(other) => {
                let found = format!("found {other:?}");
                return Err(CallError::Invalid("ipam.statusWhenFull", found));
            }
        };
        conf.routes = self.raw("ipam.routes").map(overrides::routes).transpose()?;
        conf.dns = self.raw("ipam.dns").map(overrides::dns).transpose()?;
        Ok(())
    }
}

/// Parses a list of families: each at most once, that of `subnet` among them.
fn parse_families(raw: &RawValue, subnet: Option<&str>) -> Result<Vec<Family>, CallError> {
    const KEY: &str = "ipam.families";
    let names: Vec<String> = parse_value(raw, KEY)?;
    let mut families = Vec::new();
    for text in &names {
        let family = match text {
            t if t.eq_ignore_ascii_case("ipv4") => Some(Family::V4),
            t if t.eq_ignore_ascii_case("ipv6") => Some(Family::V6),
            _ => None,
        };
        families.extend(family.filter(|family| !families.contains(family)));
    }
    let has = |subnet| families.contains(&Family::of_prefix(subnet));
    match families.len() == names.len() && !names.is_empty() && subnet.is_none_or(has) {
        true => Ok(families),
        false => Err(CallError::Invalid(KEY, describe_found(raw))),
    }
}

/// Parses an address, or a prefix whose host bits are ignored.
fn parse_prefix(text: &str) -> Result<IpNet, CallError> {
    let net = text.parse::<IpNet>().map(|net| net.trunc());
    net.or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| {
            let found = format!("{text:?} is not an address or a prefix");
            CallError::Invalid("ipam.exclude", found)
        })
}

/// Parses whole seconds, as a number or, like `queryInterval`, as a string.
fn parse_cooldown(raw: &RawValue) -> Result<Duration, CallError> {
    let digits = raw.get().trim_matches('"');
    let seconds = digits.parse::<u32>();
    let wrong = |_| CallError::Invalid("ipam.cooldown", describe_found(raw));
    Ok(Duration::from_secs(seconds.map_err(wrong)?.into()))
}

/// Parses decimal seconds; `None` where the original also falls back to its default (contract section 6).
fn parse_interval(text: &str) -> Option<Duration> {
    text.parse::<u64>()
        .ok()
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn validate(ipam: &str, defaults: &Defaults, verb: Verb) -> Result<IpamConfig, CallError> {
        let raw = RawValue::from_string(ipam.to_owned()).unwrap();
        RawIpamConfig::read(Some(&raw), defaults)?.validate(verb)
    }

    fn alone(ipam: &str) -> Result<IpamConfig, CallError> {
        validate(ipam, &Defaults::default(), Verb::Add)
    }

    #[test]
    fn our_own_keys_are_read() {
        let conf = alone(
            r#"{"exclude":["10.1.0.9","10.2.3.4/16","fd00::/8"],"COOLDOWN":5,"statusWhenFull":"error",
                "environment":"ipv6NodeIpam","KubeConfig":"/k","nodeName":"n1"}"#,
        )
        .unwrap();
        let nets: Vec<_> = conf.exclude.iter().map(ToString::to_string).collect();
        assert_eq!(nets, ["10.1.0.9/32", "10.2.0.0/16", "fd00::/8"]);
        assert_eq!(conf.cooldown, Duration::from_secs(5));
        assert_eq!(conf.when_full, WhenFull::Error);
        assert_eq!((conf.backend, conf.ipv6), (Backend::Ipv6NodeIpam, true));
        let keys = (conf.kubeconfig.as_deref(), conf.node_name.as_deref());
        assert_eq!(keys, (Some("/k"), Some("n1")));
        assert_eq!(alone("{}").unwrap(), IpamConfig::default());
        let text = alone(r#"{"Cooldown":"6"}"#).unwrap();
        assert_eq!(text.cooldown, Duration::from_secs(6));
    }

    #[test]
    fn netconf_overrides_defaults_and_invalid_defaults_are_skipped() {
        let file = br#"{"cooldown":5,"exclude":["10.1.0.9","x"],"environment":"mas","Rest":1,"queryUrl":"file:/a",
            "nodeName":"n1","kubeconfig":"/k","subnet":"x","queryInterval":"abc"}"#;
        let (defaults, wrong) = Defaults::read(file);
        assert_eq!(
            wrong,
            [
                "unknown key \"Rest\"; the keys are environment, ipv6Environment, queryInterval, queryUrl, kubeconfig, nodeName, exclude, cooldown, statusWhenFull, routes, dns",
                "ipam.exclude must be a list, for example [\"10.224.0.128/25\"]: \"x\" is not an address or a prefix",
                "subnet belongs in a network configuration",
                "ipam.queryInterval must be a string of whole seconds above zero, for example \"10\": found \"abc\""
            ]
        );
        for (ipam, seconds) in [
            ("{}", 5),
            (r#"{"COOLDOWN":6}"#, 6),
            (r#"{"cooldown":0}"#, 0),
        ] {
            let conf = validate(ipam, &defaults, Verb::Add).unwrap();
            assert_eq!(conf.cooldown, Duration::from_secs(seconds), "{ipam}");
            assert_eq!(conf.backend, Backend::Mas);
            assert_eq!(conf.query_url, Some(QueryUrl::File("/a".into())));
            assert_eq!(conf.exclude, []);
        }
        let own = r#"{"nodeName":"n2","kubeconfig":""}"#;
        let conf = validate(own, &defaults, Verb::Add).unwrap();
        assert_eq!(
            (conf.node_name.as_deref(), conf.kubeconfig),
            (Some("n2"), None)
        );
        for bad in ["", "[]", "{", "7"] {
            let (defaults, wrong) = Defaults::read(bad.as_bytes());
            assert_eq!(wrong.len(), 1, "{bad}");
            let conf = validate("{}", &defaults, Verb::Add).unwrap();
            assert_eq!(conf, IpamConfig::default());
        }
        assert_eq!(Defaults::read(b"{}").1, [""; 0]);
    }

    /// A value of the wrong type and, where every string is not right, one of the wrong form: for each key of `ipam`.
    const WRONG: [(&str, &[&str]); 16] = [
        ("type", &["7"]),
        ("environment", &["7", "\"moon\""]),
        ("ipv6Environment", &["[]", "\"moon\""]),
        ("families", &["\"ipv4\"", "[\"ipv5\"]", "[]"]),
        ("addressSpace", &["{}"]),
        ("subnet", &["7"]),
        ("ipAddress", &["[\"10.1.0.5\"]"]),
        ("queryInterval", &["10"]),
        ("queryUrl", &["7", "\"https://h\""]),
        ("kubeconfig", &["true"]),
        ("nodeName", &["7"]),
        ("exclude", &["\"10.1.0.9\"", "[7]", "[\"x\"]"]),
        ("cooldown", &["-1", "\"soon\"", "1.5", "{}"]),
        ("statusWhenFull", &["7", "\"maybe\""]),
        ("routes", &["{}", "[7]", "[{}]", "[{\"dst\":\"x\"}]"]),
        ("dns", &["[]", "{\"search\":\"x\"}"]),
    ];

    #[test]
    fn every_error_names_the_key_and_its_form_with_an_example() {
        assert!(ipam_keys().eq(WRONG.map(|(key, _)| key)));
        for (key, values) in WRONG {
            let start = format!("ipam.{key} must be ");
            for value in values {
                let json = format!("{{\"{key}\":{value}}}");
                assert!(validate(&json, &Defaults::default(), Verb::Del).is_ok());
                let message = match alone(&json).unwrap_err() {
                    // Words of the original; the form is in the details.
                    CallError::UnknownEnvironment(_) | CallError::QueryUrl(_) => None,
                    error => Some(error.to_string()),
                };
                if let Some(message) = message {
                    let wrong_type = "Failed to parse network configuration: ";
                    let text = message.strip_prefix(wrong_type).unwrap_or(&message);
                    assert!(text.starts_with(&start), "{message}");
                    assert!(text.contains(", for example "), "{message}");
                }
                let (_, wrong) = Defaults::read(json.as_bytes());
                let text = &wrong[0];
                if NOT_FOR_ALL_PODS.contains(&key) {
                    assert_eq!(*text, format!("{key} belongs in a network configuration"));
                } else {
                    assert!(text.starts_with(&start), "{text}");
                    let forms = [", for example ", "one of azure, "];
                    assert!(forms.iter().any(|form| text.contains(form)), "{text}");
                }
            }
        }
    }

    #[test]
    fn long_values_are_quoted_from_their_beginning() {
        let long = format!("{{\"exclude\":\"{}\"}}", "\u{20ac}".repeat(999));
        let message = alone(&long).unwrap_err().to_string();
        assert!(message.ends_with("\u{20ac}..."), "{message}");
        assert!(message.chars().count() < 160, "{message}");
    }

    #[test]
    fn intervals_are_whole_seconds_above_zero() {
        assert_eq!(parse_interval("20"), Some(Duration::from_secs(20)));
        for none in ["", "0", "10s", "-1", "1.5", "99999999999999999999"] {
            assert_eq!(parse_interval(none), None, "{none}");
        }
    }
}
