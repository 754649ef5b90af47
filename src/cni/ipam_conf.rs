//! The key `ipam` of the network configuration, and the file of defaults for it: first what was said, then what it means.

use std::time::Duration;

use ipnet::IpNet;
use serde_json::value::RawValue;

use super::call::CallError;
use super::values::{families, interval, prefix, rest, string, typed};
use super::{Dns, QueryUrl, Route, Verb, overrides};
use crate::codec::{self, Cursor, Members, ParseError, is};
use crate::ipam::Family;

/// The plugin's name, by which `ipam.type` and its files call it.
pub const NAME: &str = "azure-vnet-ipam";

/// Its other name: with files of its own, and pools of IPv6 (contract section 18).
pub const NAME_V6: &str = "azure-vnet-ipamv6";

/// The members that mean something here, as they are spelled. Others are ignored, whatever their type (difference D15).
const KEYS: [&str; 16] = [
    "type",
    "environment",
    "ipv6Environment",
    "families",
    "addressSpace",
    "subnet",
    "ipAddress",
    "queryInterval",
    "queryUrl",
    "kubeconfig",
    "nodeName",
    "exclude",
    "rest",
    "statusWhenFull",
    "routes",
    "dns",
];

/// Whether a key of `ipam` means something here.
pub fn is_ipam_key(key: &str) -> bool {
    KEYS.into_iter().any(|known| is(key, known))
}

/// How long a released address rests, unless the configuration says otherwise.
const REST: Duration = Duration::from_secs(30);

/// What `ipam` means.
#[derive(Clone, Debug, PartialEq)]
pub struct IpamConf {
    /// Where pools come from.
    pub backend: Backend,
    /// Where pools of IPv6 come from, if not from there too.
    pub ipv6_backend: Option<Backend>,
    /// Whether it draws from IPv6 pools, as it goes by the name of the IPv6 sibling, or as the source has no others.
    pub ipv6: bool,
    /// The families of which a pod gets an address each, in the order of the result; none when nothing is said.
    pub families: Vec<Family>,
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
    /// The path of the kubeconfig that leads to the Kubernetes API.
    pub kubeconfig: Option<String>,
    /// The node's name in the Kubernetes API, where it is not the host's.
    pub node_name: Option<String>,
    /// What is never handed out.
    pub exclude: Vec<IpNet>,
    /// How long a released address is left alone while there are others.
    pub rest: Duration,
    /// What STATUS says of a node without a free address.
    pub when_full: WhenFull,
    /// The routes of the result, in place of the default route.
    pub routes: Option<Vec<Route>>,
    /// The name servers of the result, in place of Azure's.
    pub dns: Option<Dns>,
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
    /// The IPv6 range in the node object of the Kubernetes API.
    Ipv6NodeIpam,
    /// No pools but one that has no addresses.
    Null,
}

/// `ipam.statusWhenFull`: what STATUS says of a node without a free address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It is ready: at max-pods a full pool is normal.
    #[default]
    Ready,
    /// It cannot serve ADDs, as the specification has it.
    Error,
}

/// Defaults for the members of `ipam`: what `/etc/azure-vnet-ipam.json` says, as far as that is right.
#[derive(Clone, Debug, Default)]
pub struct Defaults(RawIpam);

/// What was said, each member as it is spelled.
#[derive(Clone, Debug, Default)]
pub(super) struct RawIpam {
    members: Vec<(&'static str, Box<RawValue>)>,
    unknown: Vec<String>,
}

impl<'de> Members<'de> for RawIpam {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        let Some(known) = KEYS.into_iter().find(|known| is(key, known)) else {
            self.unknown.push(key.to_owned());
            return json.skip();
        };
        let mut found = None;
        codec::raw(json, &mut found)?;
        if let Some(found) = found {
            self.members.retain(|(key, _)| *key != known);
            self.members.push((known, found));
        }
        Ok(())
    }
}

impl Defaults {
    /// Reads the file's text. What is wrong in it is told, and left out; the rest counts.
    pub fn read(json: &[u8]) -> (Defaults, Vec<String>) {
        let mut said = RawIpam::default();
        if let Err(e) = codec::read(json, &mut said) {
            return (
                Defaults::default(),
                vec![format!("it is not a JSON object: {e}")],
            );
        }
        let unknown = said.unknown.drain(..).map(|k| format!("unknown key {k:?}"));
        let mut wrong: Vec<String> = unknown.collect();
        said.members.retain(|member| match fault(member) {
            None => true,
            Some(fault) => {
                wrong.push(fault);
                false
            }
        });
        (Defaults(said), wrong)
    }
}

/// What is wrong with a member as a default for all pods.
fn fault(member: &(&'static str, Box<RawValue>)) -> Option<String> {
    let (key, raw) = member;
    if ["type", "families", "addressSpace", "subnet", "ipAddress"].contains(key) {
        return Some(format!("{key} belongs in a network configuration"));
    }
    let alone = RawIpam {
        members: vec![member.clone()],
        unknown: vec![],
    };
    match alone.meant(Verb::Add) {
        Err(e) => Some(e.to_string()),
        Ok(conf) if *key == "queryInterval" && conf.query_interval.is_none() => {
            Some(format!("invalid ipam.queryInterval: {}", raw.get()))
        }
        Ok(_) => None,
    }
}

impl RawIpam {
    /// What the key `ipam` says on top of the defaults.
    pub fn read(raw: Option<&RawValue>, defaults: &Defaults) -> Result<RawIpam, CallError> {
        let mut said = defaults.0.clone();
        if let Some(raw) = raw {
            codec::read(raw.get().as_bytes(), &mut said).map_err(|e| CallError::WrongType {
                key: "ipam",
                must_be: "an object",
                found: e.to_string(),
            })?;
        }
        Ok(said)
    }

    fn raw(&self, key: &str) -> Option<&RawValue> {
        let found = self.members.iter().find(|(known, _)| *known == key);
        found.map(|(_, raw)| &**raw)
    }

    /// What it means for a call of `verb`. For one that draws from no pool, members that are wrong count as not said, and those
    /// that it does not need are not looked at: releasing depends on none of them (promise P4).
    pub fn meant(&self, verb: Verb) -> Result<IpamConf, CallError> {
        let lenient = !verb.draws();
        let text = |key: &str, path: &'static str| match string(self.raw(key), path) {
            Err(_) if lenient => Ok(None),
            other => other.map(|text| text.filter(|text| !text.is_empty())),
        };
        let mut conf = IpamConf {
            ipv6: text("type", "ipam.type")?.is_some_and(|t| t == NAME_V6),
            address_space: text("addressSpace", "ipam.addressSpace")?
                .unwrap_or_else(|| "local".to_owned()),
            subnet: text("subnet", "ipam.subnet")?,
            ip_address: text("ipAddress", "ipam.ipAddress")?,
            ..IpamConf::default()
        };
        if lenient {
            return Ok(conf);
        }
        conf.backend = Backend::named(text("environment", "ipam.environment")?.as_deref())?;
        // There are no others in that source.
        conf.ipv6 |= conf.backend == Backend::Ipv6NodeIpam;
        let ipv6 = text("ipv6Environment", "ipam.ipv6Environment")?;
        conf.ipv6_backend = ipv6.map(|said| Backend::named(Some(&said))).transpose()?;
        if let Some(raw) = self.raw("families") {
            conf.families = families(raw, conf.subnet.as_deref())?;
        }
        conf.query_interval =
            text("queryInterval", "ipam.queryInterval")?.and_then(|s| interval(&s));
        conf.query_url = text("queryUrl", "ipam.queryUrl")?
            .map(|url| QueryUrl::parse(&url))
            .transpose()?;
        conf.kubeconfig = text("kubeconfig", "ipam.kubeconfig")?;
        conf.node_name = text("nodeName", "ipam.nodeName")?;
        if let Some(raw) = self.raw("exclude") {
            let said: Vec<String> = typed(raw, "ipam.exclude", "a list of addresses and prefixes")?;
            let nets: Result<_, _> = said.iter().map(|text| prefix(text)).collect();
            conf.exclude = nets?;
        }
        if let Some(raw) = self.raw("rest") {
            conf.rest = rest(raw)?;
        }
        conf.when_full = match text("statusWhenFull", "ipam.statusWhenFull")?.as_deref() {
            None | Some("ready") => WhenFull::Ready,
            Some("error") => WhenFull::Error,
            Some(other) => {
                return Err(CallError::Invalid {
                    key: "ipam.statusWhenFull",
                    must_be: "\"ready\" or \"error\"",
                    found: format!("{other:?}"),
                });
            }
        };
        conf.routes = self.raw("routes").map(overrides::routes).transpose()?;
        conf.dns = self.raw("dns").map(overrides::dns).transpose()?;
        Ok(conf)
    }
}

impl Default for IpamConf {
    fn default() -> Self {
        IpamConf {
            backend: Backend::Azure,
            ipv6_backend: None,
            ipv6: false,
            families: Vec::new(),
            address_space: "local".to_owned(),
            subnet: None,
            ip_address: None,
            query_interval: None,
            query_url: None,
            kubeconfig: None,
            node_name: None,
            exclude: Vec::new(),
            rest: REST,
            when_full: WhenFull::Ready,
            routes: None,
            dns: None,
        }
    }
}

impl Backend {
    fn named(environment: Option<&str>) -> Result<Backend, CallError> {
        match environment {
            None | Some("azure") => Ok(Backend::Azure),
            Some("mas") => Ok(Backend::Mas),
            Some("fileIpam") => Ok(Backend::FileIpam),
            Some("ipv6NodeIpam") => Ok(Backend::Ipv6NodeIpam),
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
            Backend::Ipv6NodeIpam => "ipv6NodeIpam",
            Backend::Null => "null",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(ipam: &str, defaults: &Defaults, verb: Verb) -> Result<IpamConf, CallError> {
        let raw = RawValue::from_string(ipam.to_owned()).unwrap();
        RawIpam::read(Some(&raw), defaults)?.meant(verb)
    }

    fn alone(ipam: &str) -> Result<IpamConf, CallError> {
        meant(ipam, &Defaults::default(), Verb::Add)
    }

    #[test]
    fn our_own_keys_are_read() {
        let conf = alone(
            r#"{"exclude":["10.1.0.9","10.2.3.4/16","fd00::/8"],"REST":5,"statusWhenFull":"error",
                "routes":[{"dst":"10.0.0.0/8","gw":"10.1.0.1","mtu":1400}],"dns":{"nameservers":["10.0.0.10"]}}"#,
        )
        .unwrap();
        let nets: Vec<_> = conf.exclude.iter().map(ToString::to_string).collect();
        assert_eq!(nets, ["10.1.0.9/32", "10.2.0.0/16", "fd00::/8"]);
        assert_eq!(
            (conf.rest, conf.when_full),
            (Duration::from_secs(5), WhenFull::Error)
        );
        assert_eq!(conf.routes.unwrap().len(), 1);
        assert!(conf.dns.is_some());
        assert_eq!(
            alone(r#"{"rest":"7"}"#).unwrap().rest,
            Duration::from_secs(7)
        );
        assert_eq!(alone("{}").unwrap(), IpamConf::default());
    }

    #[test]
    fn the_kubernetes_node_has_keys_of_its_own_and_ipv6_pools_only() {
        let said = r#"{"environment":"ipv6NodeIpam","KubeConfig":"/k","nodeName":"n1"}"#;
        let conf = alone(said).unwrap();
        assert_eq!((conf.backend, conf.ipv6), (Backend::Ipv6NodeIpam, true));
        let keys = (conf.kubeconfig.as_deref(), conf.node_name.as_deref());
        assert_eq!(keys, (Some("/k"), Some("n1")));
        assert_eq!(conf.backend.name(), "ipv6NodeIpam");
        let (defaults, wrong) = Defaults::read(said.as_bytes());
        assert_eq!(wrong, [""; 0]);
        let conf = meant(r#"{"nodeName":"n2","kubeconfig":""}"#, &defaults, Verb::Add).unwrap();
        assert_eq!(conf.node_name.as_deref(), Some("n2"));
        assert_eq!(conf.kubeconfig, None);
        assert!(!alone(r#"{"environment":"azure"}"#).unwrap().ipv6);
        for bad in [
            r#"{"environment":"ipv6nodeipam"}"#,
            r#"{"kubeconfig":7}"#,
            r#"{"nodeName":[]}"#,
        ] {
            assert!(alone(bad).is_err(), "{bad}");
            assert!(meant(bad, &Defaults::default(), Verb::Del).is_ok(), "{bad}");
        }
    }

    #[test]
    fn what_is_wrong_in_them_is_an_error_but_for_a_del() {
        for wrong in [
            r#"{"exclude":"10.1.0.9"}"#,
            r#"{"exclude":["10.1.0"]}"#,
            r#"{"exclude":[7]}"#,
            r#"{"rest":-1}"#,
            r#"{"rest":1.5}"#,
            r#"{"rest":[]}"#,
            r#"{"statusWhenFull":"maybe"}"#,
            r#"{"routes":[{"gw":"10.0.0.1"}]}"#,
            r#"{"routes":[{"dst":"10.0.0.0"}]}"#,
            r#"{"dns":["10.0.0.10"]}"#,
        ] {
            assert!(
                matches!(alone(wrong), Err(CallError::Invalid { .. })),
                "{wrong}"
            );
            assert!(
                meant(wrong, &Defaults::default(), Verb::Del).is_ok(),
                "{wrong}"
            );
        }
        let wrong = r#"{"statusWhenFull":3}"#;
        assert!(matches!(alone(wrong), Err(CallError::WrongType { .. })));
    }

    #[test]
    fn the_netconf_goes_before_the_defaults_and_what_is_wrong_in_these_is_left_out() {
        let file = br#"{"rest":5,"exclude":["10.1.0.9","x"],"environment":"mas","Restt":1,"queryUrl":"file:/a",
            "ipAddress":"10.1.0.7","subnet":"x","queryInterval":"abc"}"#;
        let (defaults, wrong) = Defaults::read(file);
        assert_eq!(
            wrong,
            [
                "unknown key \"Restt\"",
                "invalid ipam.exclude: \"x\"",
                "ipAddress belongs in a network configuration",
                "subnet belongs in a network configuration",
                "invalid ipam.queryInterval: \"abc\""
            ]
        );
        let conf = meant(r#"{"REST":6}"#, &defaults, Verb::Add).unwrap();
        assert_eq!(
            (conf.rest, conf.backend),
            (Duration::from_secs(6), Backend::Mas)
        );
        assert_eq!(
            (conf.exclude, conf.query_url),
            (vec![], Some(QueryUrl::File("/a".into())))
        );
        for bad in ["", "[]", "{", "7"] {
            let (defaults, wrong) = Defaults::read(bad.as_bytes());
            assert_eq!(wrong.len(), 1, "{bad}");
            assert_eq!(
                meant("{}", &defaults, Verb::Add).unwrap(),
                IpamConf::default()
            );
        }
        assert_eq!(Defaults::read(b"{}").1, [""; 0]);
    }

    #[test]
    fn intervals_are_whole_seconds_above_zero() {
        assert_eq!(interval("20"), Some(Duration::from_secs(20)));
        for none in ["", "0", "10s", "-1", "1.5", "99999999999999999999"] {
            assert_eq!(interval(none), None, "{none}");
        }
    }
}
