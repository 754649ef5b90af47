//! The network configuration on stdin (contract section 2): first what was said, then what it means.

use std::path::PathBuf;
use std::time::Duration;

use serde::de::MapAccess;
use serde_json::value::RawValue;

use super::call::CallError;
use super::{CniVersion, Verb};
use crate::anycase::{self, Members, is};

/// The members this plugin uses, as they are spelled. Others are ignored, whatever their type (difference D15).
#[derive(Debug, Default)]
pub(super) struct SaidConf {
    cni_version: Option<Box<RawValue>>,
    pub name: Option<Box<RawValue>>,
    master: Option<Box<RawValue>>,
    log_level: Option<Box<RawValue>>,
    ipam: Option<Box<RawValue>>,
}

/// The members of `ipam`, likewise.
#[derive(Debug, Default)]
struct SaidIpam {
    kind: Option<Box<RawValue>>,
    environment: Option<Box<RawValue>>,
    address_space: Option<Box<RawValue>>,
    subnet: Option<Box<RawValue>>,
    ip_address: Option<Box<RawValue>>,
    query_interval: Option<Box<RawValue>>,
    query_url: Option<Box<RawValue>>,
}

/// What the network configuration means.
#[derive(Clone, Debug, PartialEq)]
pub struct NetConf {
    /// The form of the result.
    pub version: CniVersion,
    /// The network's name.
    pub name: String,
    /// ADD without subnet: the interface whose pools will do.
    pub master: Option<String>,
    /// How much to log; anything but a known level means the default.
    pub log_level: Option<String>,
    /// The key `ipam`.
    pub ipam: IpamConf,
}

/// What `ipam` means.
#[derive(Clone, Debug, PartialEq)]
pub struct IpamConf {
    /// Where pools come from.
    pub backend: Backend,
    /// Whether `ipam.type` names the IPv6 sibling, which draws from IPv6 pools.
    pub ipv6: bool,
    /// The address space; `local` unless the caller says otherwise.
    pub address_space: String,
    /// The subnet of the pool, as the caller spells it.
    pub subnet: Option<String>,
    /// A particular address, as the caller spells it.
    pub ip_address: Option<String>,
    /// How old the source's data may be.
    pub query_interval: Option<Duration>,
    /// Where to ask instead of the wire server.
    pub query_url: Option<QueryUrl>,
}

/// `ipam.environment`: where pools come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The wire server.
    Azure,
    /// `/etc/kubernetes/interfaces.json`, for Azure Stack.
    Mas,
    /// The same file by its other name.
    FileIpam,
    /// No pools but one that has no addresses.
    Null,
}

/// Where to ask instead of the wire server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryUrl {
    /// An `http:` URL.
    Http(String),
    /// A saved answer.
    File(PathBuf),
}

impl Members for SaidConf {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let target = match key {
            k if is(k, "cniVersion") => &mut self.cni_version,
            k if is(k, "name") => &mut self.name,
            k if is(k, "master") => &mut self.master,
            k if is(k, "logLevel") => &mut self.log_level,
            k if is(k, "ipam") => &mut self.ipam,
            _ => return anycase::skip(map),
        };
        anycase::raw(map, target)
    }
}

impl Members for SaidIpam {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let target = match key {
            k if is(k, "type") => &mut self.kind,
            k if is(k, "environment") => &mut self.environment,
            k if is(k, "addressSpace") => &mut self.address_space,
            k if is(k, "subnet") => &mut self.subnet,
            k if is(k, "ipAddress") => &mut self.ip_address,
            k if is(k, "queryInterval") => &mut self.query_interval,
            k if is(k, "queryUrl") => &mut self.query_url,
            _ => return anycase::skip(map),
        };
        anycase::raw(map, target)
    }
}

impl SaidConf {
    /// Reads stdin.
    pub fn read(stdin: &[u8]) -> Result<Self, CallError> {
        let mut said = SaidConf::default();
        anycase::read(stdin, &mut said).map_err(|e| {
            // The one message of the original's decoder that callers meet daily: nothing came on stdin.
            let end = e
                .is_eof()
                .then(|| "unexpected end of JSON input".to_owned());
            CallError::NotJson(end.unwrap_or_else(|| e.to_string()))
        })?;
        Ok(said)
    }

    /// The network's name, or nothing.
    pub fn name(&self) -> Result<String, CallError> {
        let wrong = |_| CallError::NotJson("name must be a string".to_owned());
        Ok(string(&self.name, "name")
            .map_err(wrong)?
            .unwrap_or_default())
    }

    /// The version text; absent, `null` and empty are the same.
    pub fn cni_version(&self) -> Result<Option<String>, CallError> {
        let wrong = |_| CallError::VersionType;
        Ok(string(&self.cni_version, "cniVersion")
            .map_err(wrong)?
            .filter(|v| !v.is_empty()))
    }

    /// What it means for a call of `verb`. For a DEL, members that have the wrong type count as not said: releasing depends
    /// on none of them (promise P4).
    pub fn meant(
        &self,
        name: String,
        version: CniVersion,
        verb: Verb,
    ) -> Result<NetConf, CallError> {
        let forgive = |error: CallError| {
            if verb == Verb::Del {
                Ok(None)
            } else {
                Err(error)
            }
        };
        let text =
            |raw: &Option<Box<RawValue>>, key: &'static str| -> Result<Option<String>, CallError> {
                Ok(string(raw, key)
                    .or_else(forgive)?
                    .filter(|text| !text.is_empty()))
            };
        let mut ipam = SaidIpam::default();
        if let Some(raw) = &self.ipam
            && let Err(e) = anycase::read(raw.get().as_bytes(), &mut ipam)
        {
            forgive(CallError::WrongType {
                key: "ipam",
                must_be: "an object",
                found: e.to_string(),
            })?;
            ipam = SaidIpam::default();
        }
        let backend = text(&ipam.environment, "ipam.environment")?;
        let query_url = text(&ipam.query_url, "ipam.queryUrl")?;
        Ok(NetConf {
            version,
            name,
            master: text(&self.master, "master")?,
            log_level: string(&self.log_level, "logLevel").unwrap_or_default(),
            ipam: IpamConf {
                backend: Backend::named(backend.as_deref()).or_else(|e| {
                    if verb == Verb::Del {
                        Ok(Backend::Azure)
                    } else {
                        Err(e)
                    }
                })?,
                ipv6: text(&ipam.kind, "ipam.type")?.is_some_and(|t| t == "azure-vnet-ipamv6"),
                address_space: text(&ipam.address_space, "ipam.addressSpace")?
                    .unwrap_or_else(|| "local".to_owned()),
                subnet: text(&ipam.subnet, "ipam.subnet")?,
                ip_address: text(&ipam.ip_address, "ipam.ipAddress")?,
                query_interval: text(&ipam.query_interval, "ipam.queryInterval")?
                    .and_then(|seconds| interval(&seconds)),
                query_url: match query_url {
                    Some(url) if verb == Verb::Add => Some(QueryUrl::parse(&url)?),
                    _ => None,
                },
            },
        })
    }
}

impl Backend {
    fn named(environment: Option<&str>) -> Result<Backend, CallError> {
        match environment {
            None | Some("azure") => Ok(Backend::Azure),
            Some("mas") => Ok(Backend::Mas),
            Some("fileIpam") => Ok(Backend::FileIpam),
            Some("null") => Ok(Backend::Null),
            Some(other) => Err(CallError::UnknownEnvironment(other.to_owned())),
        }
    }

    /// Its name in the netconf.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Azure => "azure",
            Backend::Mas => "mas",
            Backend::FileIpam => "fileIpam",
            Backend::Null => "null",
        }
    }
}

impl QueryUrl {
    /// Reads `http://...`, `file:///PATH` or `file:PATH`.
    ///
    /// # Errors
    /// Another scheme: the wire server speaks plain HTTP, so there is no TLS here.
    pub fn parse(url: &str) -> Result<QueryUrl, CallError> {
        let scheme = |name: &str| {
            url.get(..name.len())
                .filter(|s| s.eq_ignore_ascii_case(name))
                .and(url.get(name.len()..))
        };
        if scheme("http://").is_some_and(|rest| !rest.is_empty()) {
            return Ok(QueryUrl::Http(url.to_owned()));
        }
        match scheme("file://localhost")
            .or(scheme("file://"))
            .or(scheme("file:"))
        {
            Some(path) if !path.is_empty() => Ok(QueryUrl::File(path.into())),
            _ => Err(CallError::QueryUrl(url.to_owned())),
        }
    }
}

/// The string that was said, if anything was.
fn string(raw: &Option<Box<RawValue>>, key: &'static str) -> Result<Option<String>, CallError> {
    let Some(raw) = raw else { return Ok(None) };
    let wrong = |e: serde_json::Error| CallError::WrongType {
        key,
        must_be: "a string",
        found: e.to_string(),
    };
    serde_json::from_str(raw.get()).map(Some).map_err(wrong)
}

/// Decimal seconds; nothing where the original falls back to its default too (contract section 6).
fn interval(text: &str) -> Option<Duration> {
    text.parse::<u64>()
        .ok()
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(json: &str, verb: Verb) -> Result<NetConf, CallError> {
        let said = SaidConf::read(json.as_bytes())?;
        said.meant(said.name()?, CniVersion::V030, verb)
    }

    #[test]
    fn an_empty_configuration_means_the_defaults() {
        let conf = meant(r#"{"name":"azure"}"#, Verb::Add).unwrap();
        assert_eq!(conf.ipam.backend, Backend::Azure);
        assert_eq!(conf.ipam.address_space, "local");
        assert_eq!(
            (conf.ipam.subnet, conf.ipam.ip_address, conf.master),
            (None, None, None)
        );
    }

    #[test]
    fn keys_match_in_any_case_and_of_repeated_ones_the_last_counts() {
        let json = r#"{"NAME":"a","Name":"b","Ipam":{"SUBNET":"10.0.0.0/8","ipaddress":"10.0.0.1","Type":"azure-vnet-ipamv6"}}"#;
        let conf = meant(json, Verb::Add).unwrap();
        assert_eq!((conf.name.as_str(), conf.ipam.ipv6), ("b", true));
        assert_eq!(conf.ipam.subnet.as_deref(), Some("10.0.0.0/8"));
        assert_eq!(conf.ipam.ip_address.as_deref(), Some("10.0.0.1"));
    }

    #[test]
    fn wrong_types_fail_where_the_member_is_used_and_never_a_del() {
        for json in [
            r#"{"name":"a","ipam":[]}"#,
            r#"{"name":"a","ipam":"x"}"#,
            r#"{"name":"a","ipam":{"subnet":1}}"#,
            r#"{"name":"a","ipam":{"queryInterval":10}}"#,
            r#"{"name":"a","master":{}}"#,
        ] {
            assert!(
                matches!(meant(json, Verb::Add), Err(CallError::WrongType { .. })),
                "{json}"
            );
            assert!(meant(json, Verb::Del).is_ok(), "{json}");
        }
        let unused = r#"{"name":"a","dns":"x","multiTenancy":"y","AdditionalArgs":{},"logLevel":7,"ipam":{"mode":3}}"#;
        assert!(meant(unused, Verb::Add).is_ok());
    }

    #[test]
    fn an_unknown_environment_fails_an_add_only() {
        let json = r#"{"name":"a","ipam":{"environment":"Azure"}}"#;
        assert_eq!(
            meant(json, Verb::Add),
            Err(CallError::UnknownEnvironment("Azure".into()))
        );
        assert!(meant(json, Verb::Del).is_ok());
    }

    #[test]
    fn intervals_are_whole_seconds_above_zero() {
        assert_eq!(interval("20"), Some(Duration::from_secs(20)));
        for none in ["", "0", "10s", "-1", "1.5", "99999999999999999999"] {
            assert_eq!(interval(none), None, "{none}");
        }
    }

    #[test]
    fn urls_are_http_or_file() {
        assert_eq!(
            QueryUrl::parse("http://h/x").unwrap(),
            QueryUrl::Http("http://h/x".into())
        );
        for path in ["file:/a/b", "file:///a/b", "FILE://localhost/a/b"] {
            assert_eq!(
                QueryUrl::parse(path).unwrap(),
                QueryUrl::File("/a/b".into()),
                "{path}"
            );
        }
        assert_eq!(
            QueryUrl::parse("file:a").unwrap(),
            QueryUrl::File("a".into())
        );
        for bad in ["", "https://h/", "ftp://h", "http://", "file:", "/a/b"] {
            assert!(QueryUrl::parse(bad).is_err(), "{bad}");
        }
    }
}
