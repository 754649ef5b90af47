//! Parses and validates the key `ipam` of the network configuration, and the file of its defaults.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::value::RawValue;

use super::error::{
    CallError, describe_found, ipam_key, ipam_keys, ipam_path, parse_string, parse_value,
};
use super::{Backend, IpamConfig, NAME, NAME_V6, QueryUrl, Verb, WhenFull, overrides};
use crate::codec::{self, Cursor, Members, ParseError, Read};
use crate::ipam::Family;

/// The keys that cannot be defaults for all pods.
const NOT_FOR_ALL_PODS: [&str; 5] = ["type", "families", "addressSpace", "subnet", "ipAddress"];

/// Lists the keys that can be defaults for all pods.
fn default_keys() -> String {
    let keys: Vec<_> = ipam_keys()
        .filter(|key| !NOT_FOR_ALL_PODS.contains(key))
        .collect();
    keys.join(", ")
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
        let mut value: Option<Box<RawValue>> = None;
        value.read(json)?;
        if let Some(value) = value {
            self.members.retain(|(earlier, _)| *earlier != path);
            self.members.push((path, value));
        }
        Ok(true)
    }
}

impl Defaults {
    /// Parses the file. Returns the valid members, and a message for each invalid one.
    pub fn read(json: &[u8]) -> (Defaults, Vec<String>) {
        let mut raw_config: RawIpamConfig = match codec::parse(json) {
            Ok(raw_config) => raw_config,
            Err(e) => {
                let problem = format!(
                    "it is not a JSON object, for example \
                     {{\"exclude\": [\"10.224.0.128/25\"], \"cooldown\": 60}}: {e}"
                );
                return (Defaults::default(), vec![problem]);
            }
        };
        let mut problems = Vec::new();
        for key in raw_config.unknown.drain(..) {
            let keys = default_keys();
            problems.push(format!("unknown key {key:?}; the keys are {keys}"));
        }
        raw_config.members.retain(|member| {
            let problem = default_problem(member);
            let is_valid = problem.is_none();
            problems.extend(problem);
            is_valid
        });
        (Defaults(raw_config), problems)
    }
}

/// Returns why a member cannot be a default for all pods. The original has no such messages, so
/// they need not begin with its words.
fn default_problem(member: &(&'static str, Box<RawValue>)) -> Option<String> {
    let (path, raw) = member;
    if let Some(key) = ipam_key(path).filter(|key| NOT_FOR_ALL_PODS.contains(key)) {
        return Some(format!("{key} belongs in a network configuration"));
    }
    let alone = RawIpamConfig {
        members: vec![member.clone()],
        unknown: vec![],
    };
    let error = match alone.validate(Verb::Add, NAME) {
        Err(CallError::WrongType(wrong, found)) => CallError::Invalid(wrong, found),
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
        let mut raw_config = match raw {
            Some(raw) => codec::parse(raw.get().as_bytes())
                .map_err(|error| CallError::WrongType("ipam", error.to_string()))?,
            None => RawIpamConfig::default(),
        };
        for (path, value) in &defaults.0.members {
            if raw_config.raw(path).is_none() {
                raw_config.members.push((path, value.clone()));
            }
        }
        Ok(raw_config)
    }

    /// Returns the value of a member.
    fn raw(&self, path: &str) -> Option<&RawValue> {
        let (_, value) = self.members.iter().find(|(known, _)| *known == path)?;
        Some(value)
    }

    /// Returns the text of a member; `None` when it is missing or empty.
    fn text(&self, path: &'static str) -> Result<Option<String>, CallError> {
        let text = parse_string(self.raw(path), path)?;
        Ok(text.filter(|t| !t.is_empty()))
    }

    /// Validates the members for a call of `verb` to the plugin named `program`. For a verb that
    /// does not allocate, members that it does not need are not read, and invalid ones count as
    /// missing, because a release depends on none of them (promise P4).
    pub fn validate(&self, verb: Verb, program: &str) -> Result<IpamConfig, CallError> {
        let lenient = !verb.allocates();
        let text = |path| match self.text(path) {
            Err(_) if lenient => Ok(None),
            other => other,
        };
        let plugin_type = text("ipam.type")?;
        let mut conf = IpamConfig {
            ipv6: program == NAME_V6 || plugin_type.as_deref() == Some(NAME_V6),
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

    /// Validates the members that only verbs that allocate need.
    fn validate_allocation(&self, conf: &mut IpamConfig) -> Result<(), CallError> {
        if let Some(name) = self.text("ipam.environment")? {
            conf.backend = Backend::parse(&name)?;
        }
        // That source has IPv6 pools only.
        if conf.backend == Backend::Ipv6NodeIpam {
            conf.ipv6 = true;
        }
        if let Some(name) = self.text("ipam.ipv6Environment")? {
            conf.ipv6_backend = Some(Backend::parse(&name)?);
        }
        if let Some(raw) = self.raw("ipam.families") {
            conf.families = parse_families(raw, conf.subnet.as_deref())?;
        }
        if let Some(seconds) = self.text("ipam.queryInterval")? {
            conf.query_interval = parse_interval(&seconds);
        }
        if let Some(url) = self.text("ipam.queryUrl")? {
            conf.query_url = Some(QueryUrl::parse(&url)?);
        }
        conf.kubeconfig = self.text("ipam.kubeconfig")?;
        conf.node_name = self.text("ipam.nodeName")?;
        if let Some(raw) = self.raw("ipam.exclude") {
            let texts: Vec<String> = parse_value(raw, "ipam.exclude")?;
            for text in texts {
                conf.exclude.push(parse_prefix(&text)?);
            }
        }
        if let Some(raw) = self.raw("ipam.cooldown") {
            conf.cooldown = parse_cooldown(raw)?;
        }
        conf.when_full = match self.text("ipam.statusWhenFull")?.as_deref() {
            None | Some("ready") => WhenFull::Ready,
            Some("error") => WhenFull::Error,
            Some(other) => {
                let found = format!("found {other:?}");
                return Err(CallError::Invalid("ipam.statusWhenFull", found));
            }
        };
        if let Some(raw) = self.raw("ipam.routes") {
            conf.routes = Some(overrides::routes(raw)?);
        }
        if let Some(raw) = self.raw("ipam.dns") {
            conf.dns = Some(overrides::dns(raw)?);
        }
        Ok(())
    }
}

/// Parses a list of families. Each may occur once, and the family of `subnet` must be one of them.
fn parse_families(raw: &RawValue, subnet: Option<&str>) -> Result<Vec<Family>, CallError> {
    const KEY: &str = "ipam.families";
    let invalid = || CallError::Invalid(KEY, describe_found(raw));
    let names: Vec<String> = parse_value(raw, KEY)?;
    let mut families = Vec::new();
    for name in names {
        let family = if name.eq_ignore_ascii_case("ipv4") {
            Family::V4
        } else if name.eq_ignore_ascii_case("ipv6") {
            Family::V6
        } else {
            return Err(invalid());
        };
        if families.contains(&family) {
            return Err(invalid());
        }
        families.push(family);
    }
    let has_family_of = |subnet| families.contains(&Family::of_prefix(subnet));
    if families.is_empty() || !subnet.is_none_or(has_family_of) {
        return Err(invalid());
    }
    Ok(families)
}

/// Parses an address, or a prefix whose host bits are ignored.
fn parse_prefix(text: &str) -> Result<IpNet, CallError> {
    if let Ok(prefix) = text.parse::<IpNet>() {
        return Ok(prefix.trunc());
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(address));
    }
    let found = format!("{text:?} is not an address or a prefix");
    Err(CallError::Invalid("ipam.exclude", found))
}

/// Parses whole seconds, as a number or, like `queryInterval`, as a string.
fn parse_cooldown(raw: &RawValue) -> Result<Duration, CallError> {
    let digits = raw.get().trim_matches('"');
    let seconds: u32 = digits
        .parse()
        .map_err(|_| CallError::Invalid("ipam.cooldown", describe_found(raw)))?;
    Ok(Duration::from_secs(seconds.into()))
}

/// Parses decimal seconds. For other texts the original uses its default (contract section 6), and
/// the result is `None`.
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
        RawIpamConfig::read(Some(&raw), defaults)?.validate(verb, NAME)
    }

    fn alone(ipam: &str) -> Result<IpamConfig, CallError> {
        validate(ipam, &Defaults::default(), Verb::Add)
    }

    #[test]
    fn our_own_keys_are_read() {
        let conf = alone(
            r#"{"exclude":["10.1.0.9","10.2.3.4/16","fd00::/8"],"COOLDOWN":5,
                "statusWhenFull":"error","environment":"ipv6NodeIpam",
                "KubeConfig":"/k","nodeName":"n1"}"#,
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
        let file = br#"{"cooldown":5,"exclude":["10.1.0.9","x"],"environment":"mas","Rest":1,
            "queryUrl":"file:/a","nodeName":"n1","kubeconfig":"/k","subnet":"x",
            "queryInterval":"abc"}"#;
        let (defaults, wrong) = Defaults::read(file);
        assert_eq!(
            wrong,
            [
                "unknown key \"Rest\"; the keys are environment, ipv6Environment, queryInterval, \
                 queryUrl, kubeconfig, nodeName, exclude, cooldown, statusWhenFull, routes, dns",
                "ipam.exclude must be a list, for example [\"10.224.0.128/25\"]: \
                 \"x\" is not an address or a prefix",
                "subnet belongs in a network configuration",
                "ipam.queryInterval must be a string of whole seconds above zero, \
                 for example \"10\": found \"abc\""
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

    /// For each key of `ipam`, a value of the wrong type and, if not every string is valid, values
    /// of the wrong form.
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
                    // The message is the original's. The form is in the details.
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
