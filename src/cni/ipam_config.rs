//! The validated key `ipam` of the network configuration.

use std::path::PathBuf;
use std::time::Duration;

use super::error::Key;
use super::{CallError, Dns, Route, ServerUrl};
use crate::ipam::{Exclusions, Family};

/// The plugin's name in `ipam.type` and in the names of its files.
pub const NAME: &str = "azure-vnet-ipam";

/// The name of the IPv6 plugin, which has files of its own (contract section 18).
pub const NAME_V6: &str = "azure-vnet-ipamv6";

/// The address space that sources fill, and the default of `ipam.addressSpace`.
pub const LOCAL_SPACE: &str = "local";

/// The default cooldown of a released address.
const COOLDOWN: Duration = Duration::from_secs(30);

/// The validated key `ipam`.
#[derive(Clone, Debug, PartialEq)]
pub struct IpamConfig {
    /// Where pools come from.
    pub backend: Backend,
    /// Where IPv6 pools come from; `None` for the same source.
    pub ipv6_backend: Option<Backend>,
    /// Whether the call allocates from IPv6 pools. That is so for the IPv6 plugin, and for a source
    /// that has no other pools.
    pub ipv6: bool,
    /// The families of the pod's addresses, one address each, in the order of the result. Empty
    /// when the key is missing.
    pub families: Vec<Family>,
    /// The address space; `local` by default.
    pub address_space: String,
    /// The subnet of the pool, in the caller's spelling.
    pub subnet: Option<String>,
    /// A requested address, in the caller's spelling.
    pub ip_address: Option<Box<str>>,
    /// The maximum age of the source's data.
    pub query_interval: Option<Duration>,
    /// The URL to query instead of the wire server.
    pub query_url: Option<QueryUrl>,
    /// The path of the kubeconfig for the Kubernetes API.
    pub kubeconfig: Option<String>,
    /// The node's name in the Kubernetes API, if it differs from the host's.
    pub node_name: Option<String>,
    /// Addresses that are never allocated.
    pub exclude: Exclusions,
    /// The containers that keep their addresses until a DEL or an operator releases them. By default that is the ingress of Cilium.
    pub keep: Vec<KeepPattern>,
    /// How long a released address stays unallocated while other addresses are free.
    pub cooldown: Duration,
    /// What STATUS reports when no address is free.
    pub when_full: WhenFull,
    /// The routes of the result, instead of the default route.
    pub routes: Option<Vec<Route>>,
    /// The name servers of the result, instead of Azure's.
    pub dns: Option<Dns>,
}

/// `ipam.environment`: where pools come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The wire server.
    Azure,
    /// `/etc/kubernetes/interfaces.json`, for Azure Stack.
    Mas,
    /// The other name of the same source.
    FileIpam,
    /// The IPv6 range in the node object of the Kubernetes API.
    Ipv6NodeIpam,
    /// One pool without addresses.
    Null,
}

/// `ipam.statusWhenFull`: what STATUS reports when no address is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The plugin is ready. A full pool is normal on a node that runs its maximum number of pods.
    #[default]
    Ready,
    /// The plugin is not ready. The specification demands this.
    Error,
}

impl Default for IpamConfig {
    fn default() -> Self {
        IpamConfig {
            backend: Backend::Azure,
            ipv6_backend: None,
            ipv6: false,
            families: Vec::new(),
            address_space: LOCAL_SPACE.to_owned(),
            subnet: None,
            ip_address: None,
            query_interval: None,
            query_url: None,
            kubeconfig: None,
            node_name: None,
            exclude: Exclusions::default(),
            keep: vec![KeepPattern("cilium-ingress-*".to_owned())],
            cooldown: COOLDOWN,
            when_full: WhenFull::Ready,
            routes: None,
            dns: None,
        }
    }
}

impl Backend {
    /// All sources.
    pub const ALL: [Backend; 5] = [
        Backend::Azure,
        Backend::Mas,
        Backend::FileIpam,
        Backend::Ipv6NodeIpam,
        Backend::Null,
    ];

    pub(super) fn parse(key: Key, name: &str) -> Result<Backend, CallError> {
        Backend::ALL
            .into_iter()
            .find(|backend| backend.name() == name)
            .ok_or_else(|| CallError::UnknownEnvironment(key, name.to_owned()))
    }

    /// Returns the name in the network configuration.
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

/// A pattern of `ipam.keep`: a container ID, or the beginning of one followed by `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepPattern(pub(super) String);

impl KeepPattern {
    /// Returns whether the container ID matches.
    pub fn matches(&self, container_id: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => container_id.starts_with(beginning),
            None => container_id == self.0,
        }
    }
}

/// What to query instead of the wire server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryUrl {
    /// An `http:` URL.
    Http(ServerUrl),
    /// A saved answer.
    File(PathBuf),
}

impl QueryUrl {
    /// Parses `http://...`, `file:///PATH` or `file:PATH`.
    ///
    /// # Errors
    /// The URL has another scheme, or nothing after it. There is no `https:`, because the wire
    /// server speaks plain HTTP.
    pub fn parse(url: &str) -> Result<QueryUrl, CallError> {
        let strip_scheme = |scheme: &str| {
            let (start, rest) = url.split_at_checked(scheme.len())?;
            start.eq_ignore_ascii_case(scheme).then_some(rest)
        };
        if strip_scheme("http://").is_some_and(|rest| !rest.is_empty()) {
            return Ok(QueryUrl::Http(ServerUrl::new(url)));
        }
        let path = strip_scheme("file://localhost")
            .or_else(|| strip_scheme("file://"))
            .or_else(|| strip_scheme("file:"));
        match path {
            Some(path) if !path.is_empty() => Ok(QueryUrl::File(path.into())),
            _ => Err(CallError::QueryUrl(ServerUrl::new(url).to_string())),
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
            ("http://h/x", QueryUrl::Http(ServerUrl::new("http://h/x"))),
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
