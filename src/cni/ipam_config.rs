//! The validated key `ipam` of the network configuration.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::{CallError, Dns, Route};
use crate::ipam::Family;

/// The plugin's name in `ipam.type` and in the names of its files.
pub const NAME: &str = "azure-vnet-ipam";

/// The name of the IPv6 plugin, which has files of its own (contract section 18).
pub const NAME_V6: &str = "azure-vnet-ipamv6";

/// The default cooldown of a released address.
const COOLDOWN: Duration = Duration::from_secs(30);

/// The validated key `ipam`.
#[derive(Clone, Debug, PartialEq)]
pub struct IpamConfig {
    /// Where pools come from.
    pub backend: Backend,
    /// Where pools of IPv6 come from; `None` for the same source.
    pub ipv6_backend: Option<Backend>,
    /// Whether it allocates from IPv6 pools: under the name of the IPv6 plugin, or from a source that has no others.
    pub ipv6: bool,
    /// The families of which a pod gets an address each, in the order of the result; empty when the key is missing.
    pub families: Vec<Family>,
    /// The address space; `local` by default.
    pub address_space: String,
    /// The subnet of the pool, in the caller's spelling.
    pub subnet: Option<String>,
    /// A requested address, in the caller's spelling.
    pub ip_address: Option<String>,
    /// The maximum age of the source's data.
    pub query_interval: Option<Duration>,
    /// The URL to query instead of the wire server.
    pub query_url: Option<QueryUrl>,
    /// The path of the kubeconfig for the Kubernetes API.
    pub kubeconfig: Option<String>,
    /// The node's name in the Kubernetes API, where it is not the host's.
    pub node_name: Option<String>,
    /// Addresses that are never allocated.
    pub exclude: Vec<IpNet>,
    /// How long a released address cools down while there are others.
    pub cooldown: Duration,
    /// What STATUS reports of a node without a free address.
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
    /// One pool without addresses.
    Null,
}

/// `ipam.statusWhenFull`: what STATUS reports of a node without a free address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It is ready: at max-pods a full pool is normal.
    #[default]
    Ready,
    /// It cannot serve ADDs, as the specification has it.
    Error,
}

impl Default for IpamConfig {
    fn default() -> Self {
        IpamConfig {
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
            cooldown: COOLDOWN,
            when_full: WhenFull::Ready,
            routes: None,
            dns: None,
        }
    }
}

impl Backend {
    /// All of them.
    pub const ALL: [Backend; 5] = [
        Backend::Azure,
        Backend::Mas,
        Backend::FileIpam,
        Backend::Ipv6NodeIpam,
        Backend::Null,
    ];

    pub(super) fn parse(name: &str) -> Result<Backend, CallError> {
        let known = Backend::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| CallError::UnknownEnvironment(name.to_owned()))
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

/// What to query instead of the wire server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryUrl {
    /// An `http:` URL.
    Http(String),
    /// A saved answer.
    File(PathBuf),
}

impl QueryUrl {
    /// Parses `http://...`, `file:///PATH` or `file:PATH`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_http_or_file() {
        let file = |path: &str| QueryUrl::File(path.into());
        for (url, expected) in [
            ("http://h/x", QueryUrl::Http("http://h/x".into())),
            ("file:/a/b", file("/a/b")),
            ("file:///a/b", file("/a/b")),
            ("FILE://localhost/a/b", file("/a/b")),
            ("file:a", file("a")),
        ] {
            assert_eq!(QueryUrl::parse(url), Ok(expected));
        }
        for bad in ["", "https://h/", "ftp://h", "http://", "file:", "/a/b"] {
            assert!(QueryUrl::parse(bad).is_err(), "{bad}");
        }
    }
}
