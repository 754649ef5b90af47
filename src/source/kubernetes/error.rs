//! The errors of the Kubernetes API as a source.

use std::path::PathBuf;

/// Why there is no pool from the node object. There is one variant for each remedy.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The kubeconfig is missing, malformed, or needs something that is not supported.
    #[error("the kubeconfig {0}")]
    Kubeconfig(String),
    /// A certificate, key or token is missing, malformed, or does not fit the others.
    #[error("the {0}")]
    Credentials(String),
    /// One of these files does not exist.
    #[error("{error}")]
    Missing {
        /// The path of the file.
        path: PathBuf,
        /// The error to report: one of the kubeconfig or of credentials.
        error: Box<NodeError>,
    },
    /// The server cannot be reached, does not speak TLS, or is in trouble.
    #[error("{0}")]
    Unreachable(String),
    /// The server's certificate is not valid.
    #[error("{0}")]
    Untrusted(String),
    /// The server refuses the credentials.
    #[error("{0}")]
    Refused(String),
    /// The node has an invalid name, does not exist, or has no IPv6 range for a pool.
    #[error("{0}")]
    Node(String),
    /// This build cannot query the Kubernetes API.
    #[error(
        "this executable was built without the feature `tls`, which queries of the Kubernetes API need"
    )]
    NoTls,
}

impl NodeError {
    /// Returns what to do about the error, as the end of a sentence.
    pub fn remedy(&self) -> &'static str {
        match self {
            NodeError::Missing { error, .. } => error.remedy(),
            NodeError::Kubeconfig(_) => {
                "correct it, or set ipam.kubeconfig to that of the kubelet, which `ps -o args= -C \
                 kubelet` names and only root may read; `kubectl config view --minify --kubeconfig \
                 FILE` must show a cluster with a server https://HOST:PORT and \
                 certificate-authority, and a user with client-certificate and client-key, token \
                 or tokenFile"
            }
            NodeError::Credentials(_) => {
                "put the file back, or correct it: certificates and a private key without password \
                 in PEM, where one file may hold both, or a token on one line; `openssl x509 \
                 -noout -pubkey` of client-certificate and `openssl pkey -pubout` of client-key \
                 print the same"
            }
            NodeError::Unreachable(_) => {
                "`curl -m 10 -k SERVER/readyz` must answer from this node: is the kubeconfig's server \
                 right and up, can `getent hosts` find it, and does a firewall let this node reach \
                 it?"
            }
            NodeError::Untrusted(_) => {
                "the server or tls-server-name in the kubeconfig must be one of the certificate's \
                 names, and certificate-authority that of this very cluster; `kubeadm certs \
                 check-expiration` on the control plane shows what is expired; `date` must be \
                 right on this node"
            }
            NodeError::Refused(_) => {
                "the client-certificate or token may be expired, revoked, or of another cluster: \
                 restart the kubelet to get new ones, and see `journalctl -u kubelet`; a \
                 kubelet may read its own node only, so ipam.nodeName must be what its user has \
                 behind system:node:"
            }
            NodeError::Node(_) => {
                "`kubectl get node NAME -o jsonpath='{.spec.podCIDRs}'` must show an IPv6 prefix, \
                 /120 or shorter: where the node has another name than the host, set \
                 ipam.nodeName; where it has no such range, the cluster must give its nodes one \
                 (--node-cidr-mask-size-ipv6 of the kube-controller-manager), which only new node \
                 objects get"
            }
            NodeError::NoTls => "install the default build, which has this feature",
        }
    }
}

/// Limits the length of a text from outside, and puts it on one line.
#[cfg(feature = "tls")]
pub(super) fn bounded(reason: &str) -> String {
    /// The maximum number of characters.
    const MOST: usize = 320;
    let mut text: String = reason
        .chars()
        .take(MOST)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if reason.chars().nth(MOST).is_some() {
        text.push_str("...");
    }
    text.trim().to_owned()
}
