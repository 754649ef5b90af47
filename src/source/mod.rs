//! Where pools come from: the wire server, the file of Azure Stack, the Kubernetes node, or nowhere. Asking is kept apart from reading the
//! answer, and both from matching it to the interfaces of the host.

mod ask;
mod fetch;
mod freshness;
mod interfaces_file;
mod kubernetes;
mod listing;
mod matching;
mod wire;

pub use ask::{Source, SourceError, SourceOverrides, WIRE_SERVER};
pub use freshness::{
    Attempts, FreshAnswer, RefreshOutcome, RefreshReason, Refresher, Stamps, last_attempts,
};
pub use kubernetes::{KubernetesNode, NodeError};
pub use listing::{Listing, parse_address, parse_prefix};
pub use matching::{Matched, Style, match_links};
pub use wire::WireError;

#[doc(hidden)]
pub mod parse {
    //! The parsers, for fuzzing and for tests from outside.
    pub use super::interfaces_file::parse as interfaces_file;
    #[cfg(feature = "tls")]
    pub use super::kubernetes::kubeconfig::parse as kubeconfig;
    #[cfg(feature = "tls")]
    pub use super::kubernetes::object::{parse as node, refusal};
    pub use super::wire::parse as wire;
}
