//! The node's own range of IPv6 addresses, which the Kubernetes API has in its node object (contract section 18).

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod ask;
#[cfg(feature = "tls")]
mod credentials;
#[cfg(feature = "tls")]
mod error;
#[cfg(feature = "tls")]
pub mod kubeconfig;
#[cfg(feature = "tls")]
pub mod object;
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
    /// Where the kubeconfig is that leads to the API.
    pub kubeconfig: PathBuf,
    /// The node's name, where it is not the host's.
    pub node: Option<String>,
}

impl KubernetesNode {
    /// What tells it from other sources.
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
    /// Asks nobody.
    ///
    /// # Errors
    /// Always.
    pub fn ask(
        &self,
        _: std::time::Duration,
        _: &crate::host::Paths,
    ) -> Result<crate::ipam::Inventory, NodeError> {
        Err(NodeError)
    }
}
