//! Where pools come from: the wire server, the file of Azure Stack, or the Kubernetes node object.
//!
//! Each source is queried, its answer parsed into a [`Listing`], and that matched to the interfaces of the host.

mod error;
mod fetch;
mod interfaces_file;
mod kubernetes;
mod listing;
mod matching;
mod query;
mod refresh;
mod wire;

pub use error::SourceError;
pub use fetch::FetchError;
pub use kubernetes::{KubernetesNode, NodeError};
pub use listing::{Listing, parse_address, parse_prefix};
pub use matching::{MacWildcard, MatchedListing, match_links};
pub use query::{Source, SourceOverrides, WIRE_SERVER};
pub use refresh::{Attempts, FreshAnswer, RefreshOutcome, RefreshReason, Refresher, last_attempts};
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
