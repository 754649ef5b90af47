//! Queries the sources of the pools: the wire server, the file of Azure Stack, or the Kubernetes node
//! object.
//!
//! The answer of a source is parsed into a [`Listing`]. That is then matched to the interfaces of the
//! host.

mod fetch;
mod interfaces_file;
mod kubernetes;
mod listing;
mod matching;
mod query;
mod turn;
mod wire;

use std::path::{Path, PathBuf};

use crate::cni::ServerUrl;
use crate::host::io_reason;

pub use fetch::FetchError;
pub use kubernetes::{KubernetesNode, NodeError};
pub use listing::{AnswerError, ListedInterface, Listing, Unusable, parse_address, parse_prefix};
pub use matching::{MacWildcard, MatchedListing, PrimaryAddress, match_links};
pub use query::{Source, SourceOverrides};
pub use turn::{Attempts, AttemptsFile, FreshAnswer, Turn, last_attempts, time_limit};

#[doc(hidden)]
pub mod parse {
    //! The parsers, for fuzzing and for integration tests.
    pub use super::interfaces_file::parse as interfaces_file;
    #[cfg(feature = "tls")]
    pub use super::kubernetes::api::{parse as node, parse_refusal};
    #[cfg(feature = "tls")]
    pub use super::kubernetes::kubeconfig::parse as kubeconfig;
    pub use super::wire::parse as wire;
}

/// Why the query of a source failed.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The server at this URL did not answer with status 200.
    #[error("{0}: {1}")]
    Fetch(ServerUrl, FetchError),
    /// The answer of the source with this name cannot be used.
    #[error("{0}: {1}")]
    Answer(String, AnswerError),
    /// The file at this path cannot be read or locked, or is malformed.
    #[error("{path}: {1}", path = .0.display())]
    File(PathBuf, String),
    /// The source with this name got no usable node object from the Kubernetes API.
    #[error("{0}: {1}")]
    Node(String, NodeError),
    /// The network interfaces of this host cannot be listed.
    #[error("cannot list the network interfaces of this host: {}", io_reason(.0))]
    Links(std::io::Error),
    /// The query of another call failed after this call started.
    #[error("a query by another call has just failed")]
    FailedByPeer,
    /// Other calls had the turn to query until the timeout.
    #[error("timed out waiting for the queries of other calls")]
    Busy,
    /// The answer would remove all pools. It is accepted only after such answers have come for a
    /// while.
    #[error(
        "the source lists {subnets} subnets with no address for pods, \
         and {interfaces} interfaces that this node does not have"
    )]
    Implausible {
        /// Subnets without addresses.
        subnets: usize,
        /// Interfaces that this node does not have.
        interfaces: usize,
    },
}

impl SourceError {
    /// Returns the file that the source needs, if it is missing or cannot be read or used.
    pub fn file(&self) -> Option<&Path> {
        match self {
            SourceError::File(path, _) | SourceError::Node(_, NodeError::Missing { path, .. }) => {
                Some(path)
            }
            _ => None,
        }
    }
}
