//! Parses and validates the key `ipam` of the network configuration, and the file of defaults for it.

use serde_json::value::RawValue;

use super::error::{CallError, Key, describe_found};
use super::ipam_keys::{IPAM_KEYS, IpamKey, QUERY_INTERVAL, Scope};
use super::{Backend, IpamConfig, NAME_V6, Verb};
use crate::codec::{self, Cursor, Members, ParseError, Read};

/// The key `ipam` itself.
const IPAM: Key = Key::new(
    "ipam",
    "an object, for example {\"type\": \"azure-vnet-ipam\"}",
);

/// Defaults for the members of `ipam`: the valid part of `/etc/azure-vnet-ipam.json`.
#[derive(Clone, Debug, Default)]
pub struct Defaults(RawIpamConfig);

/// The members of `ipam` before validation, in the order of the document.
#[derive(Clone, Debug, Default)]
pub(super) struct RawIpamConfig {
    members: Vec<(&'static IpamKey, Box<RawValue>)>,
    unknown: Vec<String>,
}

impl<'de> Members<'de> for RawIpamConfig {
    fn member(&mut self, name: &str, json: &mut Cursor<'de>) -> Result<bool, ParseError> {
        let Some(row) = IpamKey::find(name) else {
            self.unknown.push(name.to_owned());
            return Ok(false);
        };
        let mut value: Option<Box<RawValue>> = None;
        value.read(json)?;
        if let Some(value) = value {
            self.members.retain(|(earlier, _)| earlier.key != row.key);
            self.members.push((row, value));
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
        for name in raw_config.unknown.drain(..) {
            let names = default_names();
            problems.push(format!("unknown key {name:?}; the keys are {names}"));
        }
        raw_config.members.retain(|(row, value)| {
            let problem = default_problem(row, value);
            let is_valid = problem.is_none();
            problems.extend(problem);
            is_valid
        });
        (Defaults(raw_config), problems)
    }
}

/// Lists the keys that can be defaults for all pods.
fn default_names() -> String {
    let rows = IPAM_KEYS.iter().filter(|row| row.scope == Scope::Node);
    let names: Vec<_> = rows.map(IpamKey::name).collect();
    names.join(", ")
}

/// Returns why a member cannot be a default for all pods. The original has no such messages, so
/// they need not begin with its words.
fn default_problem(row: &IpamKey, value: &RawValue) -> Option<String> {
    if row.scope != Scope::Node {
        let name = row.name();
        return Some(format!("{name} belongs in a network configuration"));
    }
    let key = row.key;
    let mut alone = IpamConfig::default();
    let error = match row.parse_into(&mut alone, value) {
        Err(CallError::WrongType(_, found)) => CallError::Invalid(key, found),
        Err(CallError::QueryUrl(url)) => CallError::Invalid(key, format!("found {url:?}")),
        Err(CallError::UnknownEnvironment(_, name)) => {
            let names = Backend::ALL.map(Backend::name).join(", ");
            let path = key.path;
            return Some(format!("{path} must be one of {names}: found {name:?}"));
        }
        Err(other) => other,
        Ok(()) if key == QUERY_INTERVAL && alone.query_interval.is_none() => {
            CallError::Invalid(key, describe_found(value))
        }
        Ok(()) => return None,
    };
    Some(error.to_string())
}

impl RawIpamConfig {
    /// Reads the key `ipam` on top of the defaults.
    pub fn read(raw: Option<&RawValue>, defaults: &Defaults) -> Result<RawIpamConfig, CallError> {
        let mut raw_config = defaults.0.clone();
        if let Some(raw) = raw {
            codec::document(raw.get(), |json| Read::read(&mut raw_config, json))
                .map_err(|error| CallError::WrongType(IPAM, error.to_string()))?;
        }
        Ok(raw_config)
    }

    /// Validates the members for a call of `verb` to the plugin named `program`. If the verb does not
    /// allocate, only members that it needs are read, and invalid ones count as missing: a release
    /// does not depend on them (promise P4).
    pub fn validate(&self, verb: Verb, program: &str) -> Result<IpamConfig, CallError> {
        let lenient = !verb.allocates();
        let mut conf = IpamConfig {
            ipv6: program == NAME_V6,
            ..IpamConfig::default()
        };
        for row in &IPAM_KEYS {
            if lenient && row.scope != Scope::EveryVerb {
                continue;
            }
            let mut members = self.members.iter();
            let Some((_, value)) = members.find(|(member, _)| member.key == row.key) else {
                continue;
            };
            match row.parse_into(&mut conf, value) {
                Err(_) if lenient => {}
                outcome => outcome?,
            }
        }
        Ok(conf)
    }

    /// Returns why `queryInterval` is ignored, if it is set and invalid. The original uses its default then.
    pub fn ignored_interval(&self, conf: &IpamConfig) -> Option<CallError> {
        let mut members = self.members.iter();
        let (row, value) = members.find(|(row, _)| row.key == QUERY_INTERVAL)?;
        let is_ignored = conf.query_interval.is_none() && value.get() != "\"\"";
        is_ignored.then(|| CallError::Invalid(row.key, describe_found(value)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cni::{NAME, QueryUrl, WhenFull, ipam_keys};
    use crate::ipam::Exclusions;

    fn validate(ipam: &str, defaults: &Defaults, verb: Verb) -> Result<IpamConfig, CallError> {
        let raw = RawValue::from_string(ipam.to_owned()).unwrap();
        RawIpamConfig::read(Some(&raw), defaults)?.validate(verb, NAME)
    }

    fn alone(ipam: &str) -> Result<IpamConfig, CallError> {
        validate(ipam, &Defaults::default(), Verb::Add)
    }

    #[test]
    fn keys_that_the_original_lacks_are_read() {
        let conf = alone(
            r#"{"exclude":["10.1.0.9","10.2.3.4/16","fd00::/8"],"COOLDOWN":5,
                "statusWhenFull":"error","environment":"ipv6NodeIpam",
                "KubeConfig":"/k","nodeName":"n1"}"#,
        )
        .unwrap();
        let nets = ["10.1.0.9/32", "10.2.0.0/16", "fd00::/8"];
        let excluded = Exclusions::new(nets.map(|net| net.parse().unwrap()).into());
        assert_eq!(conf.exclude, excluded);
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
                 queryUrl, kubeconfig, nodeName, exclude, keep, cooldown, statusWhenFull, routes, dns",
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
            assert_eq!(conf.exclude, Exclusions::default());
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
    const WRONG: [(&str, &[&str]); 17] = [
        ("type", &["7"]),
        ("addressSpace", &["{}"]),
        ("subnet", &["7"]),
        ("ipAddress", &["[\"10.1.0.5\"]"]),
        ("environment", &["7", "\"moon\""]),
        ("ipv6Environment", &["[]", "\"moon\""]),
        ("families", &["\"ipv4\"", "[\"ipv5\"]", "[]"]),
        ("queryInterval", &["10"]),
        ("queryUrl", &["7", "\"https://h\""]),
        ("kubeconfig", &["true"]),
        ("nodeName", &["7"]),
        ("exclude", &["\"10.1.0.9\"", "[7]", "[\"x\"]"]),
        ("keep", &["\"agent\"", "[7]", "[\"\"]", "[\"*agent\"]"]),
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
                    CallError::UnknownEnvironment(..) | CallError::QueryUrl(_) => None,
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
                let not_for_all_pods = ["type", "families", "addressSpace", "subnet", "ipAddress"];
                if not_for_all_pods.contains(&key) {
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
}
