//! The Kubernetes node as a source, where this program is built without the feature `tls`.

/// Why the node object gave no pools.
#[derive(Debug, thiserror::Error)]
#[error(
    "this executable was built without the feature `tls`, which asking the Kubernetes API needs"
)]
pub struct NodeError;
