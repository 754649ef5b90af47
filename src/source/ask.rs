//! The sources themselves.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};

use super::fetch::{FetchError, get};
use super::listing::Listing;
use super::matching::{Matched, Style, match_links, suffice};
use super::wire::WireError;
use super::{interfaces_file, wire};
use crate::cni::{Backend, IpamConf, QueryUrl};
use crate::host::{Bounded, Paths, links, links_named, read_bounded, words};
use crate::ipam::{Inventory, ListedPool};

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
    /// Nowhere.
    Null,
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
    /// The file.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The interfaces of this host.
    #[error("cannot list the network interfaces of this host: {}", words(.0))]
    Links(std::io::Error),
    /// Another process asked a moment ago, and got nothing.
    #[error("another call asked a moment ago, and got no usable answer")]
    OthersFailed,
    /// The lock under which sources are asked.
    #[error("{}: {}", path.display(), words(source))]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
}

impl Source {
    /// The source that a configuration names. `instead`, from the environment, goes before the configuration's own URL.
    pub fn of(conf: &IpamConf, instead: Option<QueryUrl>, paths: &Paths) -> Source {
        match conf.backend {
            Backend::Azure => match instead.or_else(|| conf.query_url.clone()) {
                None => Source::Wire(WIRE_SERVER.to_owned()),
                Some(QueryUrl::Http(url)) => Source::Wire(url),
                Some(QueryUrl::File(path)) => Source::SavedAnswer(path),
            },
            Backend::Mas | Backend::FileIpam => Source::InterfacesFile(paths.interfaces_file()),
            Backend::Null => Source::Null,
        }
    }

    /// Whether it is Azure's own wire server, not one that answers in its place.
    pub fn is_wire_server(&self) -> bool {
        matches!(self, Source::Wire(url) if url == WIRE_SERVER)
    }

    /// What tells it from other sources, for people and in the stamps of attempts.
    pub fn name(&self) -> String {
        match self {
            Source::Wire(_) if self.is_wire_server() => "wire server".to_owned(),
            Source::Wire(url) => url.clone(),
            Source::SavedAnswer(path) => format!("file:{}", path.display()),
            Source::InterfacesFile(path) => path.display().to_string(),
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
            Source::SavedAnswer(path) => {
                let cannot = |e: std::io::Error| SourceError::File {
                    path: path.clone(),
                    why: words(&e),
                };
                let limit = u64::try_from(FILE_LIMIT).unwrap_or(u64::MAX);
                let file = File::open(path).map_err(cannot)?.take(limit);
                (wire(wire::read(file))?, Style::Wire)
            }
            Source::InterfacesFile(path) => {
                let cannot = |why: String| SourceError::File {
                    path: path.clone(),
                    why,
                };
                let bytes = match read_bounded(path, FILE_LIMIT).map_err(|e| cannot(words(&e)))? {
                    Bounded::Read(bytes) => bytes,
                    Bounded::Missing => return Err(cannot("it does not exist".to_owned())),
                    Bounded::TooLarge => {
                        return Err(cannot(format!("it is larger than {FILE_LIMIT} bytes")));
                    }
                };
                let listing = interfaces_file::parse(&bytes).map_err(|e| cannot(e.to_string()))?;
                (listing, Style::File)
            }
            Source::Null => {
                let all = IpNet::V4(Ipv4Net::default());
                let pools = vec![ListedPool::new(all, String::new(), 0, vec![])];
                return Ok(Matched {
                    inventory: Inventory { pools },
                    ..Matched::default()
                });
            }
        };
        // What goes wrong with these goes wrong with all of them too, or does not matter.
        let named = links_named(paths, known).unwrap_or_default();
        let links = match suffice(&listing, &named) {
            true => named,
            false => links(paths).map_err(SourceError::Links)?,
        };
        Ok(match_links(listing, &links, style))
    }
}
