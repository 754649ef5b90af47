//! Why a source gave no pools. The remedies are in `failure::remedy`.

use std::path::PathBuf;

use super::fetch::FetchError;
use super::kubernetes::NodeError;
use super::wire::WireError;
use crate::host::io_reason;

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
