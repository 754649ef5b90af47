//! Where pools come from: the wire server, the file of Azure Stack, or the Kubernetes node object.
//!
//! Each source is queried, its answer parsed into a [`Listing`], and that matched to the interfaces of the host.

mod fetch;
mod interfaces_file;
mod kubernetes;
mod listing;
mod matching;
mod query;
mod refresh;
mod wire;

use std::path::{Path, PathBuf};

use crate::host::io_reason;

pub use fetch::FetchError;
pub use kubernetes::{KubernetesNode, NodeError};
pub use listing::{Listing, parse_address, parse_prefix};
pub use matching::{MacWildcard, MatchedListing, match_links};
pub use query::{Source, SourceOverrides, WIRE_SERVER};
pub use refresh::{Attempts, FreshAnswer, RefreshOutcome, RefreshReason, Refresher};
pub use refresh::{last_attempts, time_limit};
pub use wire::WireError;

#[doc(hidden)]
pub mod parse {
    //! The parsers, for fuzzing and for tests from outside.
    pub use super::interfaces_file::parse as interfaces_file;
    #[cfg(feature = "tls")]
    pub use super::kubernetes::api::{parse as node, parse_refusal};
    #[cfg(feature = "tls")]
    pub use super::kubernetes::kubeconfig::parse as kubeconfig;
    pub use super::wire::parse as wire;
}

/// Why a source gave no pools.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The server did not answer with status 200.
    #[error("{url}: {source}")]
    Fetch {
        /// The URL of the request.
        url: String,
        /// What went wrong.
        source: FetchError,
    },
    /// The answer of the wire server is malformed.
    #[error("{name}: {source}")]
    Wire {
        /// The name of the source.
        name: String,
        /// Why it cannot be used.
        source: WireError,
    },
    /// The answer lists too much.
    #[error("{name}: {why}")]
    TooMany {
        /// The name of the source.
        name: String,
        /// What it lists too many of.
        why: String,
    },
    /// The file cannot be read, or is malformed.
    #[error("{}: {why}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The Kubernetes API gave no usable node object.
    #[error("{name}: {error}")]
    Node {
        /// The name of the source.
        name: String,
        /// What went wrong.
        error: NodeError,
    },
    /// The network interfaces of this host cannot be listed.
    #[error("cannot list the network interfaces of this host: {}", io_reason(.0))]
    Links(std::io::Error),
    /// The query of another process failed after this process started.
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
    /// The lock for queries cannot be taken.
    #[error("{}: {}", path.display(), io_reason(source))]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
}

impl SourceError {
    /// Returns the file without which the source gives nothing: one that is missing, or cannot be read or used.
    pub fn file(&self) -> Option<&Path> {
        match self {
            SourceError::File { path, .. }
            | SourceError::Node {
                error: NodeError::Missing { path, .. },
                ..
            } => Some(path),
            _ => None,
        }
    }
}
