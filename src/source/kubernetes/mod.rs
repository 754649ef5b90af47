//! The node's range of IPv6 addresses, read from its node object in the Kubernetes API (contract section 18).

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod credentials;
#[cfg(feature = "tls")]
mod error;
#[cfg(feature = "tls")]
pub mod kubeconfig;
#[cfg(feature = "tls")]
pub mod object;
#[cfg(feature = "tls")]
mod query;
#[cfg(feature = "tls")]
mod raw_kubeconfig;
#[cfg(feature = "tls")]
mod request;
#[cfg(feature = "tls")]
mod tls;

use std::path::PathBuf;

#[cfg(not(feature = "tls"))]
pub use absent::NodeError;
#[cfg(feature = "tls")]
pub use error::NodeError;

/// The node object of the Kubernetes API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesNode {
    /// The path of the kubeconfig.
    pub kubeconfig: PathBuf,
    /// The node's name, if it differs from the host's.
    pub node: Option<String>,
}

impl KubernetesNode {
    /// Returns a name that identifies the source.
    pub fn name(&self) -> String {
        let space = if self.node.is_some() { " " } else { "" };
        let node = self.node.as_deref().unwrap_or_default();
        format!(
            "Kubernetes node{space}{node}, by {}",
            self.kubeconfig.display()
        )
    }
}

#[cfg(not(feature = "tls"))]
impl KubernetesNode {
    /// Always fails, as this build has no TLS.
    ///
    /// # Errors
    /// Always.
    pub fn query(
        &self,
        _: std::time::Duration,
        _: &crate::host::Paths,
    ) -> Result<crate::ipam::Inventory, NodeError> {
        Err(NodeError)
    }
}
