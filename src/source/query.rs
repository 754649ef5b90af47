//! Defines the kinds of sources, and queries them. To add a kind, add a variant to [`Source`]. The
//! compiler then reports what else is needed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net};

use super::fetch::get;
use super::kubernetes::KubernetesNode;
use super::listing::Listing;
use super::matching::{MacWildcard, MatchedListing, covers_listing, match_links};
use super::{SourceError, interfaces_file, wire};
use crate::cni::{Backend, CallError, IpamConfig, QueryUrl, ServerUrl, WIRE_SERVER};
use crate::host::{Paths, ReadOutcome, io_reason, links, links_named, read_bounded};
use crate::ipam::{Family, Inventory, ListedPool};

/// Larger files than this are refused.
const FILE_LIMIT: usize = 4 << 20;

/// A source of pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The wire server, or a server that replaces it, at this URL.
    Wire(ServerUrl),
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
        let query_url = match &overrides.query_url {
            Some(text) => Some(QueryUrl::parse(text)?),
            None => conf.query_url.clone(),
        };
        let kubeconfig = overrides.kubeconfig.as_ref().or(conf.kubeconfig.as_ref());
        let to_source = |backend| match backend {
            Backend::Azure => match query_url.clone() {
                None => Source::wire_server(),
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
        let main = to_source(conf.backend);
        match conf.ipv6_backend {
            Some(other) if other != conf.backend => {
                Ok(Source::ByFamily(Box::new((main, to_source(other)))))
            }
            _ => Ok(main),
        }
    }

    /// Returns Azure's own wire server.
    pub fn wire_server() -> Source {
        Source::Wire(ServerUrl::new(WIRE_SERVER))
    }

    /// Returns whether it is Azure's own wire server.
    pub fn is_wire_server(&self) -> bool {
        matches!(self, Source::Wire(url) if url.whole() == WIRE_SERVER)
    }

    /// Returns the source that failed with `error`. For [`Source::ByFamily`] it is one of the two.
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

    /// Returns a name that identifies the source, for messages and for the recorded attempts.
    pub fn name(&self) -> String {
        match self {
            Source::Wire(_) if self.is_wire_server() => "wire server".to_owned(),
            Source::Wire(url) => url.to_string(),
            Source::SavedAnswer(path) => format!("file:{}", path.display()),
            Source::InterfacesFile(path) => path.display().to_string(),
            Source::Node(node) => node.name(),
            Source::ByFamily(both) => format!("{}; for IPv6 {}", both.0.name(), both.1.name()),
            Source::Null => "null".to_owned(),
        }
    }

    /// Returns the key of the network configuration, or the variable, that selects this source; `None` for the default source.
    pub fn chosen_by(&self) -> Option<&'static str> {
        match self {
            Source::Wire(_) if self.is_wire_server() => None,
            Source::Wire(_) | Source::SavedAnswer(_) => {
                Some("ipam.queryUrl or AZURE_VNET_IPAM_QUERY_URL")
            }
            Source::InterfacesFile(_) | Source::Null => {
                Some("ipam.environment or ipam.ipv6Environment")
            }
            // The remedies of their errors name the keys.
            Source::Node(_) | Source::ByFamily(_) => None,
        }
    }

    /// Queries the source, and matches the answer to the interfaces of this host.
    ///
    /// # Errors
    /// There is no valid answer within `limit`.
    pub fn query(&self, limit: Duration, paths: &Paths) -> Result<MatchedListing, SourceError> {
        self.query_with_links(&[], limit, paths)
    }

    /// Queries the source as [`Source::query`] does, but first tries the interfaces that
    /// `known_links` names. All interfaces are listed only if these do not match the answer.
    pub fn query_with_links(
        &self,
        known_links: &[String],
        limit: Duration,
        paths: &Paths,
    ) -> Result<MatchedListing, SourceError> {
        let refused = |why| SourceError::Answer(self.name(), why);
        let (listing, wildcard) = match self {
            Source::Wire(url) => {
                let listing = get(url.whole(), limit, |body| wire::read(body))
                    .map_err(|why| SourceError::Fetch(url.clone(), why))?
                    .map_err(refused)?;
                (listing, MacWildcard::FirstInterface)
            }
            Source::SavedAnswer(path) => {
                let answer = read_file(path)?;
                let listing = wire::read(&*answer).map_err(refused)?;
                (listing, MacWildcard::FirstInterface)
            }
            Source::InterfacesFile(path) => {
                let listing = interfaces_file::parse(&read_file(path)?)
                    .map_err(|why| SourceError::File(path.clone(), why))?;
                (listing, MacWildcard::None)
            }
            Source::Node(node) => {
                let pool = node
                    .query(limit, paths)
                    .map_err(|why| SourceError::Node(node.name(), why))?;
                return Ok(without_interface(pool));
            }
            Source::ByFamily(both) => return query_both(both, known_links, limit, paths),
            Source::Null => {
                let all = IpNet::V4(Ipv4Net::default());
                let pool = ListedPool::new(all, String::new(), 0, Vec::new());
                return Ok(without_interface(pool));
            }
        };
        listing.check_size().map_err(refused)?;
        match_to_host(listing, wildcard, known_links, paths)
    }
}

/// Creates an answer with one pool that belongs to no interface.
fn without_interface(pool: ListedPool) -> MatchedListing {
    MatchedListing {
        inventory: Inventory { pools: vec![pool] },
        ..MatchedListing::default()
    }
}

/// Matches a listing to the interfaces that `known_links` names, or to all interfaces of the host.
fn match_to_host(
    listing: Listing,
    wildcard: MacWildcard,
    known_links: &[String],
    paths: &Paths,
) -> Result<MatchedListing, SourceError> {
    // After an error, all interfaces are listed. If the error persists, that reports it.
    let known = links_named(paths, known_links).unwrap_or_default();
    if covers_listing(&listing, &known) {
        return Ok(match_links(listing, &known, wildcard));
    }
    let all = links(paths).map_err(SourceError::Links)?;
    Ok(match_links(listing, &all, wildcard))
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

/// Queries both sources, the second one in the remaining time. If one fails, the query fails: the
/// addresses of the missing family would count as removed.
fn query_both(
    (v4, v6): &(Source, Source),
    known_links: &[String],
    limit: Duration,
    paths: &Paths,
) -> Result<MatchedListing, SourceError> {
    /// The time that is reserved for the second source. A healthy one answers within it.
    const RESERVED: Duration = Duration::from_secs(1);
    let start = Instant::now();
    let v4_limit = limit.saturating_sub(RESERVED);
    let v4_answer = v4.query_with_links(known_links, v4_limit, paths)?;
    let v6_limit = limit.saturating_sub(start.elapsed());
    let v6_answer = v6.query_with_links(known_links, v6_limit, paths)?;
    let v4_pools = restrict_to_family(v4_answer, v4, Family::V4);
    let v6_pools = restrict_to_family(v6_answer, v6, Family::V6);
    Ok(v4_pools.combine(v6_pools))
}

/// Keeps the pools of the family that `source` is for. The answer is partial if none of them has an
/// address.
fn restrict_to_family(answer: MatchedListing, source: &Source, family: Family) -> MatchedListing {
    let mut restricted = answer.restrict_to(family);
    // The null source never lists addresses.
    restricted.is_partial = restricted.is_doubtful() && !matches!(source, Source::Null);
    restricted
}
