//! The kinds of sources, and how each is queried. To add one, give [`Source`] a variant; the compiler shows the rest.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net};

use super::fetch::get;
use super::kubernetes::KubernetesNode;
use super::matching::{MacWildcard, MatchedListing, covers_listing, match_links};
use super::{SourceError, interfaces_file, wire};
use crate::cni::{Backend, CallError, IpamConfig, QueryUrl};
use crate::host::{Paths, ReadOutcome, io_reason, links, links_named, read_bounded};
use crate::ipam::{Family, Inventory, ListedPool};

/// Where the wire server lists the node's interfaces.
pub const WIRE_SERVER: &str =
    "http://168.63.129.16/machine/plugins?comp=nmagent&type=getinterfaceinfov1";

/// Larger files than this are refused.
const FILE_LIMIT: usize = 4 << 20;

/// Where pools come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The wire server, or a server that replaces it, at this URL.
    Wire(String),
    /// A saved answer of the wire server.
    SavedAnswer(PathBuf),
    /// The file of Azure Stack, `interfaces.json`.
    InterfacesFile(PathBuf),
    /// The node object of the Kubernetes API.
    Node(KubernetesNode),
    /// One source for each family: IPv4, then IPv6.
    ByFamily(Box<(Source, Source)>),
    /// No source: one pool without addresses.
    Null,
}

/// Environment variables that take precedence over the network configuration.
#[derive(Clone, Debug, Default)]
pub struct SourceOverrides {
    /// AZURE_VNET_IPAM_QUERY_URL.
    pub query_url: Option<String>,
    /// AZURE_VNET_IPAM_KUBECONFIG.
    pub kubeconfig: Option<String>,
}

impl SourceOverrides {
    /// Reads the environment. Empty variables count as unset.
    pub fn from_env() -> SourceOverrides {
        let read = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        SourceOverrides {
            query_url: read("AZURE_VNET_IPAM_QUERY_URL"),
            kubeconfig: read("AZURE_VNET_IPAM_KUBECONFIG"),
        }
    }
}

impl Source {
    /// Returns the source that `conf` selects. `overrides` take precedence.
    ///
    /// # Errors
    /// AZURE_VNET_IPAM_QUERY_URL is not a URL.
    pub fn from_config(
        conf: &IpamConfig,
        overrides: &SourceOverrides,
        paths: &Paths,
    ) -> Result<Source, CallError> {
        let url = overrides.query_url.as_deref().map(QueryUrl::parse);
        let url = url.transpose()?.or_else(|| conf.query_url.clone());
        let kubeconfig = overrides.kubeconfig.as_ref().or(conf.kubeconfig.as_ref());
        let source = |backend| match backend {
            Backend::Azure => match url.clone() {
                None => Source::Wire(WIRE_SERVER.to_owned()),
                Some(QueryUrl::Http(url)) => Source::Wire(url),
                Some(QueryUrl::File(path)) => Source::SavedAnswer(path),
            },
            Backend::Mas | Backend::FileIpam => Source::InterfacesFile(paths.interfaces_file()),
            Backend::Ipv6NodeIpam => Source::Node(KubernetesNode {
                kubeconfig: kubeconfig
                    .map_or_else(|| paths.kubeconfig(), |path| paths.under_root(path)),
                node: conf.node_name.clone(),
            }),
            Backend::Null => Source::Null,
        };
        let first = source(conf.backend);
        Ok(match conf.ipv6_backend {
            Some(other) if other != conf.backend => {
                Source::ByFamily(Box::new((first, source(other))))
            }
            _ => first,
        })
    }

    /// Whether it is Azure's own wire server.
    pub fn is_wire_server(&self) -> bool {
        matches!(self, Source::Wire(url) if url == WIRE_SERVER)
    }

    /// Returns the source that `error` is from, which matters for [`Source::ByFamily`].
    pub fn failed_part(&self, error: &SourceError) -> &Source {
        let Source::ByFamily(both) = self else {
            return self;
        };
        let is_second = match (error, &both.1) {
            (SourceError::Fetch(url, _), Source::Wire(second)) => url == second,
            (SourceError::File(path, _), Source::InterfacesFile(second)) => path == second,
            (SourceError::Answer(name, _), second) => *name == second.name(),
            (SourceError::Node(..), Source::Node(_)) => true,
            _ => false,
        };
        if is_second { &both.1 } else { &both.0 }
    }

    /// Returns a name that identifies the source, for messages and for the stamps of queries.
    pub fn name(&self) -> String {
        match self {
            Source::Wire(_) if self.is_wire_server() => "wire server".to_owned(),
            Source::Wire(url) => url.clone(),
            Source::SavedAnswer(path) => format!("file:{}", path.display()),
            Source::InterfacesFile(path) => path.display().to_string(),
            Source::Node(node) => node.name(),
            Source::ByFamily(both) => format!("{}; for IPv6 {}", both.0.name(), both.1.name()),
            Source::Null => "null".to_owned(),
        }
    }

    /// Queries the source, and matches the answer to the interfaces of this host.
    ///
    /// # Errors
    /// There is no valid answer within `limit`.
    pub fn query(&self, limit: Duration, paths: &Paths) -> Result<MatchedListing, SourceError> {
        self.query_with_links(&[], limit, paths)
    }

    /// Queries the source as [`Source::query`] does, but tries the interfaces named `known_links`
    /// first: all interfaces are listed only if these do not match the answer.
    pub(super) fn query_with_links(
        &self,
        known_links: &[String],
        limit: Duration,
        paths: &Paths,
    ) -> Result<MatchedListing, SourceError> {
        let refused = |why| SourceError::Answer(self.name(), why);
        let read = |answer: &mut dyn Read| wire::read(answer).map_err(refused);
        let without_interface = |pool| MatchedListing {
            inventory: Inventory { pools: vec![pool] },
            ..MatchedListing::default()
        };
        let (listing, wildcard) = match self {
            Source::Wire(url) => {
                let fetched = get(url, limit, read);
                let listing = fetched.map_err(|why| SourceError::Fetch(url.clone(), why))?;
                (listing?, MacWildcard::FirstInterface)
            }
            Source::SavedAnswer(path) => {
                (read(&mut &*read_file(path)?)?, MacWildcard::FirstInterface)
            }
            Source::InterfacesFile(path) => {
                let parsed = interfaces_file::parse(&read_file(path)?);
                let listing = parsed.map_err(|e| SourceError::File(path.clone(), e.to_string()))?;
                (listing, MacWildcard::None)
            }
            Source::Node(node) => {
                let pool = node.query(limit, paths);
                let pool = pool.map_err(|why| SourceError::Node(node.name(), why))?;
                return Ok(without_interface(pool));
            }
            Source::ByFamily(both) => return query_both(both, known_links, limit, paths),
            Source::Null => {
                let all = IpNet::V4(Ipv4Net::default());
                let pool = ListedPool::new(all, String::new(), 0, vec![]);
                return Ok(without_interface(pool));
            }
        };
        listing.check_size().map_err(refused)?;
        // An error here either repeats below, or does not matter.
        let known = links_named(paths, known_links).unwrap_or_default();
        if covers_listing(&listing, &known) {
            return Ok(match_links(listing, &known, wildcard));
        }
        let all = links(paths).map_err(SourceError::Links)?;
        Ok(match_links(listing, &all, wildcard))
    }
}

/// Reads a file that holds an answer.
fn read_file(path: &Path) -> Result<Vec<u8>, SourceError> {
    let why = match read_bounded(path, FILE_LIMIT) {
        Ok(ReadOutcome::Read(bytes)) => return Ok(bytes),
        Ok(ReadOutcome::Missing) => "it does not exist".to_owned(),
        Ok(ReadOutcome::TooLarge) => format!("it is larger than {FILE_LIMIT} bytes"),
        Err(e) => io_reason(&e),
    };
    Err(SourceError::File(path.to_owned(), why))
}

/// Queries both sources, the second in the remaining time. If one fails, both fail: an unlisted family would count as removed.
fn query_both(
    (v4, v6): &(Source, Source),
    known_links: &[String],
    limit: Duration,
    paths: &Paths,
) -> Result<MatchedListing, SourceError> {
    /// Reserved for the second source; a healthy one answers within this time.
    const RESERVED: Duration = Duration::from_secs(1);
    let start = Instant::now();
    let first = v4.query_with_links(known_links, limit.saturating_sub(RESERVED), paths)?;
    let second = v6.query_with_links(known_links, limit.saturating_sub(start.elapsed()), paths)?;
    let restrict = |source: &Source, answer: MatchedListing, family| {
        let mut matched = answer.restrict_to(family);
        // The null source never lists addresses.
        matched.is_partial = matched.is_doubtful() && !matches!(source, Source::Null);
        matched
    };
    Ok(restrict(v4, first, Family::V4).combine(restrict(v6, second, Family::V6)))
}
