//! The sources themselves.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net};

use super::fetch::{FetchError, get};
use super::kubernetes::{KubernetesNode, NodeError};
use super::listing::{Listing, TooMany};
use super::matching::{Matched, Style, covers_listing, match_links};
use super::wire::WireError;
use super::{interfaces_file, wire};
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
    /// The wire server, or whatever answers in its place at this URL.
    Wire(String),
    /// An answer of the wire server in a file.
    SavedAnswer(PathBuf),
    /// The file of Azure Stack.
    InterfacesFile(PathBuf),
    /// The node object of the Kubernetes API.
    Node(KubernetesNode),
    /// The pools of each family from a source of its own: IPv4, then IPv6.
    ByFamily(Box<(Source, Source)>),
    /// Nowhere.
    Null,
}

/// What goes before the configuration's own words, as the environment has it.
#[derive(Clone, Debug, Default)]
pub struct SourceOverrides {
    /// AZURE_VNET_IPAM_QUERY_URL.
    pub query_url: Option<String>,
    /// AZURE_VNET_IPAM_KUBECONFIG.
    pub kubeconfig: Option<String>,
}

/// Why a source gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The server.
    #[error("{url}: {source}")]
    Fetch {
        /// What was asked.
        url: String,
        /// What went wrong.
        source: FetchError,
    },
    /// The answer.
    #[error("{name}: {source}")]
    Wire {
        /// Where it is from.
        name: String,
        /// What is wrong with it.
        source: WireError,
    },
    /// The answer lists too much.
    #[error("{name}: {error}")]
    TooMany {
        /// Where it is from.
        name: String,
        /// What it lists too many of.
        error: TooMany,
    },
    /// The file.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The node object.
    #[error("{}: {error}", node.name())]
    Node {
        /// Where it was to come from.
        node: KubernetesNode,
        /// What went wrong.
        error: Box<NodeError>,
    },
    /// The interfaces of this host.
    #[error("cannot list the network interfaces of this host: {}", io_reason(.0))]
    Links(std::io::Error),
    /// Another process asked a moment ago, and got nothing.
    #[error("another call asked a moment ago, and got no usable answer")]
    FailedByPeer,
    /// The answer would remove all pools, and such answers have not come for long enough.
    #[error(
        "the source lists {subnets} subnets with no address for pods, and {interfaces} interfaces that this node does not have"
    )]
    Implausible {
        /// Subnets without addresses.
        subnets: usize,
        /// Interfaces that this node does not have.
        interfaces: usize,
    },
    /// The lock under which sources are asked.
    #[error("{}: {}", path.display(), io_reason(source))]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
}

impl SourceOverrides {
    /// What the environment says.
    pub fn of_environment() -> SourceOverrides {
        let said = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        SourceOverrides {
            query_url: said("AZURE_VNET_IPAM_QUERY_URL"),
            kubeconfig: said("AZURE_VNET_IPAM_KUBECONFIG"),
        }
    }
}

impl Source {
    /// The source that a configuration names, unless it is another one `instead`.
    ///
    /// # Errors
    /// AZURE_VNET_IPAM_QUERY_URL is not a URL.
    pub fn of(
        conf: &IpamConfig,
        instead: &SourceOverrides,
        paths: &Paths,
    ) -> Result<Source, CallError> {
        let url = instead.query_url.as_deref().map(QueryUrl::parse);
        let url = url.transpose()?.or_else(|| conf.query_url.clone());
        let source = |backend| Source::named(backend, url.clone(), conf, instead, paths);
        let first = source(conf.backend);
        Ok(match conf.ipv6_backend {
            Some(other) if other != conf.backend => {
                Source::ByFamily(Box::new((first, source(other))))
            }
            _ => first,
        })
    }

    fn named(
        backend: Backend,
        url: Option<QueryUrl>,
        conf: &IpamConfig,
        instead: &SourceOverrides,
        paths: &Paths,
    ) -> Source {
        match backend {
            Backend::Azure => match url {
                None => Source::Wire(WIRE_SERVER.to_owned()),
                Some(QueryUrl::Http(url)) => Source::Wire(url),
                Some(QueryUrl::File(path)) => Source::SavedAnswer(path),
            },
            Backend::Mas | Backend::FileIpam => Source::InterfacesFile(paths.interfaces_file()),
            Backend::Ipv6NodeIpam => {
                let said = instead.kubeconfig.as_ref().or(conf.kubeconfig.as_ref());
                Source::Node(KubernetesNode {
                    kubeconfig: said
                        .map_or_else(|| paths.kubeconfig(), |path| paths.under_root(path)),
                    node: conf.node_name.clone(),
                })
            }
            Backend::Null => Source::Null,
        }
    }

    /// Whether it is Azure's own wire server, not one that answers in its place.
    pub fn is_wire_server(&self) -> bool {
        matches!(self, Source::Wire(url) if url == WIRE_SERVER)
    }

    /// Of sources by family, the one that an error is from.
    pub fn behind(&self, error: &SourceError) -> &Source {
        let Source::ByFamily(both) = self else {
            return self;
        };
        let is_of = match (error, &both.1) {
            (SourceError::Fetch { url, .. }, Source::Wire(second)) => url == second,
            (SourceError::File { path, .. }, Source::InterfacesFile(second)) => path == second,
            (SourceError::Wire { name, .. } | SourceError::TooMany { name, .. }, second) => {
                *name == second.name()
            }
            (SourceError::Node { .. }, Source::Node(_)) => true,
            _ => false,
        };
        if is_of { &both.1 } else { &both.0 }
    }

    /// What tells it from other sources, for people and in the stamps of attempts.
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

    /// Asks, and matches the answer to the interfaces of this host. Those that are `known` from the last answer are looked at
    /// first, the others only when these do not fit.
    ///
    /// # Errors
    /// There is no answer within `limit`, or it is not one.
    pub fn ask(
        &self,
        limit: Duration,
        known: &[String],
        paths: &Paths,
    ) -> Result<Matched, SourceError> {
        let wire = |listing: Result<Listing, WireError>| {
            listing.map_err(|source| SourceError::Wire {
                name: self.name(),
                source,
            })
        };
        let (listing, style) = match self {
            Source::Wire(url) => {
                let fetched = get(url, limit, |body| wire::read(body));
                let listing = fetched.map_err(|source| SourceError::Fetch {
                    url: url.clone(),
                    source,
                })?;
                (wire(listing)?, Style::Wire)
            }
            Source::SavedAnswer(path) => (wire(wire::parse(&read_file(path)?))?, Style::Wire),
            Source::InterfacesFile(path) => {
                let parsed = interfaces_file::parse(&read_file(path)?);
                let listing = parsed.map_err(|e| SourceError::File {
                    path: path.clone(),
                    why: e.to_string(),
                })?;
                (listing, Style::File)
            }
            Source::Node(node) => {
                let asked = node.ask(limit, paths);
                let inventory = asked.map_err(|error| SourceError::Node {
                    node: node.clone(),
                    error: Box::new(error),
                })?;
                return Ok(Matched {
                    inventory,
                    ..Matched::default()
                });
            }
            Source::ByFamily(both) => return ask_both(both, limit, known, paths),
            Source::Null => {
                let all = IpNet::V4(Ipv4Net::default());
                let pools = vec![ListedPool::new(all, String::new(), 0, vec![])];
                return Ok(Matched {
                    inventory: Inventory { pools },
                    ..Matched::default()
                });
            }
        };
        listing.check_size().map_err(|error| SourceError::TooMany {
            name: self.name(),
            error,
        })?;
        // What goes wrong with these goes wrong with all of them too, or does not matter.
        let named = links_named(paths, known).unwrap_or_default();
        let links = match covers_listing(&listing, &named) {
            true => named,
            false => links(paths).map_err(SourceError::Links)?,
        };
        Ok(match_links(listing, &links, style))
    }
}

/// Reads an answer from a file.
fn read_file(path: &Path) -> Result<Vec<u8>, SourceError> {
    let why = match read_bounded(path, FILE_LIMIT) {
        Ok(ReadOutcome::Read(bytes)) => return Ok(bytes),
        Ok(ReadOutcome::Missing) => "it does not exist".to_owned(),
        Ok(ReadOutcome::TooLarge) => format!("it is larger than {FILE_LIMIT} bytes"),
        Err(e) => io_reason(&e),
    };
    Err(SourceError::File {
        path: path.to_owned(),
        why,
    })
}

/// Asks both, the second in the time that the first leaves it. What one of them says does not count without the other: a family
/// that is not listed would be taken for one that has gone.
fn ask_both(
    (v4, v6): &(Source, Source),
    limit: Duration,
    known: &[String],
    paths: &Paths,
) -> Result<Matched, SourceError> {
    /// Left to the second in any case: enough for one that answers at all.
    const LEAST: Duration = Duration::from_secs(1);
    let began = Instant::now();
    let first = v4.ask(limit.saturating_sub(LEAST), known, paths)?;
    let second = v6.ask(limit.saturating_sub(began.elapsed()), known, paths)?;
    let of = |source: &Source, answer: Matched, family| {
        let mut matched = answer.only(family);
        // Of the one with no pools nothing else is expected.
        matched.is_partial = matched.is_doubtful() && !matches!(source, Source::Null);
        matched
    };
    Ok(of(v4, first, Family::V4).and(of(v6, second, Family::V6)))
}
