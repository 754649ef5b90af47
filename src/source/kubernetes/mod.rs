//! Reads the node's range of IPv6 addresses from its node object in the Kubernetes API (contract
//! section 18).

#[cfg(feature = "tls")]
pub mod api;
mod error;
#[cfg(feature = "tls")]
pub mod kubeconfig;
#[cfg(feature = "tls")]
mod tls;

pub use error::NodeError;

use std::path::PathBuf;
use std::time::Duration;

use crate::host::Paths;
use crate::ipam::ListedPool;

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
        let kubeconfig = self.kubeconfig.display();
        match &self.node {
            Some(node) => format!("Kubernetes node {node}, by {kubeconfig}"),
            None => format!("Kubernetes node, by {kubeconfig}"),
        }
    }

    /// Gets the node object, and creates a pool from its IPv6 range.
    ///
    /// # Errors
    /// There is no valid answer within `limit`.
    #[cfg(feature = "tls")]
    pub fn query(&self, limit: Duration, paths: &Paths) -> Result<ListedPool, NodeError> {
        let deadline = std::time::Instant::now() + limit;
        let node = api::node_name(self.node.as_deref(), paths)?;
        let access = kubeconfig::Access::read(&self.kubeconfig, paths)?;
        api::get_node(access, &node, limit, deadline)?.pool(&node)
    }

    /// Always fails, because this build has no TLS.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "tls"))]
    pub fn query(&self, _: Duration, _: &Paths) -> Result<ListedPool, NodeError> {
        Err(NodeError::NoTls)
    }
}
