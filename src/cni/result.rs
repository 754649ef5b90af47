//! Prints the result of ADD in the form of each version (SPEC.md, "Success", abbreviated as IPAM plugins give it; contract
//! section 13) the error object, and the answer to VERSION.

use std::mem;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Serialize;

use super::{CniVersion, Dns, IpamConfig, Route};
use crate::ipam::{Family, Grant};

/// Azure's name server, which the original gives to every pod.
const NAME_SERVER: &str = "168.63.129.16";

#[derive(Serialize)]
struct IpJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    address: IpNet,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
}

/// The form of 0.1.0 and 0.2.0: one address a family.
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

/// Prints the result of an ADD that hands over these grants, with the routes and name servers of `conf` where it names any: as the
/// original does, indented by four spaces, without a trailing newline.
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
        let (v6, v4) = mem::take(&mut result.routes)
            .into_iter()
            .partition(|route| route.dst.addr().is_ipv6());
        result.ip4 = legacy_ip(grants, Family::V4, v4);
        result.ip6 = legacy_ip(grants, Family::V6, v6);
    } else {
        let ips = grants.iter().map(|grant| IpJson {
            version: (version < CniVersion::V100).then_some(match grant.address {
                IpNet::V4(_) => "4",
                IpNet::V6(_) => "6",
            }),
            address: grant.address,
            gateway: grant.gateway,
        });
        result.ips = ips.collect();
    }
    to_pretty_json(&result)
}

/// Returns the first address of a family, with its routes.
fn legacy_ip(grants: &[Grant], family: Family, routes: Vec<Route>) -> Option<LegacyIpJson> {
    let is_of_family = |grant: &&Grant| Family::from_address(grant.address.addr()) == family;
    let grant = grants.iter().find(is_of_family)?;
    Some(LegacyIpJson {
        ip: grant.address,
        gateway: grant.gateway,
        routes,
    })
}

/// Returns the routes of the configuration, or the default route of every address in its own family (difference D16: the original
/// routes 0.0.0.0/0 for IPv6 too).
fn routes(grants: &[Grant], conf: &IpamConfig, version: CniVersion) -> Vec<Route> {
    match &conf.routes {
        Some(routes) if version < CniVersion::V110 => routes.iter().map(Route::plain).collect(),
        Some(routes) => routes.clone(),
        None => {
            let default_route = |grant: &Grant| {
                let any = match grant.address {
                    IpNet::V4(_) => IpNet::from(Ipv4Net::default()),
                    IpNet::V6(_) => IpNet::from(Ipv6Net::default()),
                };
                Route::to(any, grant.gateway)
            };
            grants.iter().map(default_route).collect()
        }
    }
}

/// Prints the answer to VERSION: one line with its newline, as the original prints it.
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

/// Error codes: 1 to 99 are the specification's, 100 and up the plugin's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Incompatible CNI version.
    IncompatibleVersion = 1,
    /// Container unknown or does not exist.
    UnknownContainer = 3,
    /// Invalid necessary environment variables, an unknown verb among them.
    InvalidEnvironment = 4,
    /// I/O failure.
    Io = 5,
    /// Content that cannot be decoded.
    Decoding = 6,
    /// Invalid network configuration.
    InvalidNetworkConfig = 7,
    /// Try again later.
    TryAgain = 11,
    /// The plugin is not available: it cannot serve ADDs.
    NotAvailable = 50,
    /// The plugin's own: no address can be given, as the original coded everything.
    Plugin = 100,
}

/// What a failed call prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniError {
    /// The kind of failure.
    pub code: Code,
    /// One sentence that begins with the original's words where it had some; counts, but no names of pods or containers.
    pub msg: String,
    /// The remedy, and names of pods or containers; may be empty.
    pub details: String,
}

impl CniError {
    /// Prints the object as the original does: indented by four spaces, without a trailing newline. `cni_version` is the caller's,
    /// or the newest when that is not known.
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
    // Neither the values, which have string keys only, nor a Vec can fail.
    let _ = value.serialize(&mut serializer);
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::GrantKind;

    /// The recorded cases compare what the text says; other programs may compare the text.
    #[test]
    fn the_text_is_that_of_the_original_to_the_byte() {
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
    fn an_error_is_one_object_and_leaves_empty_details_out() {
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
