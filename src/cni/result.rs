//! Prints the result of ADD, the error object, and the answer to VERSION.
//!
//! The result has the form of the caller's version (SPEC.md, "Success", in the abbreviated form of
//! IPAM plugins; contract section 13).

use std::mem;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Serialize;

use super::{CniVersion, Dns, IpamConfig, Route};
use crate::ipam::{Family, Grant};

/// Azure's name server. The original returns it for every pod.
const NAME_SERVER: &str = "168.63.129.16";

#[derive(Serialize)]
struct IpJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    address: IpNet,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
}

/// The address of a family in the form of 0.1.0 and 0.2.0.
#[derive(Serialize)]
struct LegacyIpJson {
    ip: IpNet,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    routes: Vec<Route>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultJson {
    cni_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip4: Option<LegacyIpJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip6: Option<LegacyIpJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<IpJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
    dns: Dns,
}

/// Prints the result of an ADD that allocated these grants. If `conf` has routes or name servers,
/// they replace the default ones. As in the original, the text is indented by four spaces and has no
/// trailing newline.
pub fn print_result(grants: &[Grant], conf: &IpamConfig, version: CniVersion) -> String {
    let azure = || Dns {
        nameservers: vec![NAME_SERVER.to_owned()],
        ..Dns::default()
    };
    let mut result = ResultJson {
        cni_version: version.as_str(),
        ip4: None,
        ip6: None,
        ips: Vec::new(),
        routes: routes(grants, conf, version),
        dns: conf.dns.clone().unwrap_or_else(azure),
    };
    if version <= CniVersion::V020 {
        let (v6_routes, v4_routes) = mem::take(&mut result.routes)
            .into_iter()
            .partition(|route| route.dst.addr().is_ipv6());
        result.ip4 = legacy_ip(grants, Family::V4, v4_routes);
        result.ip6 = legacy_ip(grants, Family::V6, v6_routes);
    } else {
        result.ips = grants.iter().map(|grant| ip(grant, version)).collect();
    }
    to_pretty_json(&result)
}

/// Returns an address in the form of 0.3.0 and later. Its family is printed before 1.0.0 only.
fn ip(grant: &Grant, version: CniVersion) -> IpJson {
    let family = match grant.address {
        IpNet::V4(_) => "4",
        IpNet::V6(_) => "6",
    };
    IpJson {
        version: (version < CniVersion::V100).then_some(family),
        address: grant.address,
        gateway: grant.gateway,
    }
}

/// Returns the first address of a family, with its routes.
fn legacy_ip(grants: &[Grant], family: Family, routes: Vec<Route>) -> Option<LegacyIpJson> {
    let grant = grants
        .iter()
        .find(|grant| Family::from_address(grant.address.addr()) == family)?;
    Some(LegacyIpJson {
        ip: grant.address,
        gateway: grant.gateway,
        routes,
    })
}

/// Returns the routes of the configuration, or the default route of each address. A default route
/// has the family of its address (difference D16: the original routes 0.0.0.0/0 for IPv6 too).
fn routes(grants: &[Grant], conf: &IpamConfig, version: CniVersion) -> Vec<Route> {
    match &conf.routes {
        Some(routes) if version < CniVersion::V110 => routes.iter().map(Route::plain).collect(),
        Some(routes) => routes.clone(),
        None => grants.iter().map(default_route).collect(),
    }
}

/// Returns the default route of an address.
fn default_route(grant: &Grant) -> Route {
    let any = match grant.address {
        IpNet::V4(_) => IpNet::from(Ipv4Net::default()),
        IpNet::V6(_) => IpNet::from(Ipv6Net::default()),
    };
    Route::to(any, grant.gateway)
}

/// Prints the answer to VERSION. As in the original, it is one line with a newline.
pub fn print_versions(cni_version: &str) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Versions<'a> {
        cni_version: &'a str,
        supported_versions: [&'static str; 7],
    }
    let answer = Versions {
        cni_version,
        supported_versions: CniVersion::texts(),
    };
    serde_json::to_string(&answer)
        .map(|line| line + "\n")
        .unwrap_or_default()
}

/// The code of an error. The specification defines 1 to 99, the plugin 100 and above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Incompatible CNI version.
    IncompatibleVersion = 1,
    /// Container unknown or does not exist.
    UnknownContainer = 3,
    /// A necessary environment variable is invalid, for example the verb is unknown.
    InvalidEnvironment = 4,
    /// I/O failure.
    Io = 5,
    /// The content cannot be decoded.
    Decoding = 6,
    /// Invalid network configuration.
    InvalidNetworkConfig = 7,
    /// Try again later.
    TryAgain = 11,
    /// The plugin is not available. It cannot serve ADDs.
    NotAvailable = 50,
    /// No address can be allocated. The original uses this code for every error.
    Plugin = 100,
}

/// The error object that a failed call prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniError {
    /// The kind of failure.
    pub code: Code,
    /// One sentence. If the original has a message for this failure, it begins with the same words.
    /// It may have counts, but no names of pods or containers.
    pub msg: String,
    /// The remedy, and names of pods or containers. It may be empty.
    pub details: String,
}

impl CniError {
    /// Prints the object. As in the original, it is indented by four spaces and has no trailing
    /// newline. `cni_version` is the caller's, or the newest if that is unknown.
    pub fn print(&self, cni_version: &str) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct ErrorJson<'a> {
            cni_version: &'a str,
            code: u8,
            msg: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            details: &'a str,
        }
        let object = ErrorJson {
            cni_version,
            code: self.code as u8,
            msg: &self.msg,
            details: &self.details,
        };
        to_pretty_json(&object)
    }
}

/// Prints JSON indented by four spaces, without a trailing newline.
pub(super) fn to_pretty_json(value: &impl Serialize) -> String {
    let mut out = Vec::with_capacity(512);
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    // This cannot fail: the values have only string keys, and writing to a `Vec` does not fail.
    let _ = value.serialize(&mut serializer);
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::GrantKind;

    /// The recorded cases compare parsed results, but other programs may compare the text.
    #[test]
    fn text_equals_that_of_the_original() {
        let grant = Grant {
            space: "local".into(),
            pool: "10.224.0.0/16".into(),
            key: "10.224.0.5".parse().unwrap(),
            address: "10.224.0.5/16".parse().unwrap(),
            gateway: "10.224.0.1".parse().ok(),
            kind: GrantKind::Renewed,
            generation: 1,
        };
        let text = r#"{
    "cniVersion": "0.3.0",
    "ips": [
        {
            "version": "4",
            "address": "10.224.0.5/16",
            "gateway": "10.224.0.1"
        }
    ],
    "routes": [
        {
            "dst": "0.0.0.0/0",
            "gw": "10.224.0.1"
        }
    ],
    "dns": {
        "nameservers": [
            "168.63.129.16"
        ]
    }
}"#;
        let printed = print_result(&[grant], &IpamConfig::default(), CniVersion::V030);
        assert_eq!(printed, text);
    }

    #[test]
    fn error_is_one_object_without_empty_details() {
        let mut error = CniError {
            code: Code::TryAgain,
            msg: "a \"b\"".into(),
            details: String::new(),
        };
        let bare =
            "{\n    \"cniVersion\": \"0.4.0\",\n    \"code\": 11,\n    \"msg\": \"a \\\"b\\\"\"\n}";
        assert_eq!(error.print("0.4.0"), bare);
        error.details = "c".into();
        assert!(
            error
                .print("1.1.0")
                .ends_with(",\n    \"details\": \"c\"\n}")
        );
    }
}
