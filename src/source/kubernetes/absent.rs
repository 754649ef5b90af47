//! What is left of the Kubernetes node as a source where this program is built without the feature `tls`.

use std::path::Path;

/// Why the node object gave no pools.
#[derive(Debug, thiserror::Error)]
#[error(
    "this executable was built without the feature `tls`, which asking the Kubernetes API needs"
)]
pub struct NodeError;

impl NodeError {
    /// What to do.
    pub fn remedy(&self, _: &Path) -> String {
        "install one that was built with it, as the default one is".to_owned()
    }
}
