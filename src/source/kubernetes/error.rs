//! Why the node object gave no pools. The remedies are in `failure::remedy`.

use std::path::PathBuf;

/// Why the node object gave no pools: one variant for each thing that an operator can do about it.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The kubeconfig does not exist.
    #[error("the kubeconfig {} does not exist", .0.display())]
    NoKubeconfig(PathBuf),
    /// A file cannot be read.
    #[error("the {what} {} cannot be read: {why}", path.display())]
    Unreadable {
        /// The key of the kubeconfig that names it; `kubeconfig` for that itself.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The reason.
        why: String,
        /// Whether permissions are the reason.
        denied: bool,
    },
    /// The kubeconfig is malformed, or its current context leads nowhere.
    #[error("the kubeconfig {0}")]
    BadKubeconfig(String),
    /// The kubeconfig gives nothing to verify the server with.
    #[error("cluster {cluster:?} of the kubeconfig {why}")]
    Unverifiable {
        /// The cluster.
        cluster: String,
        /// The reason, as the end of a sentence.
        why: &'static str,
    },
    /// The user has credentials of a kind that is not supported.
    #[error("user {user:?} of the kubeconfig has {key}, which is not supported")]
    Unsupported {
        /// The user.
        user: String,
        /// The key of the kubeconfig.
        key: &'static str,
    },
    /// A certificate, key or token is malformed, missing, or does not fit the others.
    #[error("the {what} {why}")]
    BadCredentials {
        /// Its key in the kubeconfig.
        what: &'static str,
        /// The place and the reason, as the end of a sentence.
        why: String,
    },
    /// The name of the node is not known or not valid.
    #[error("{0}")]
    NoNodeName(String),
    /// The server cannot be reached, breaks off, or is too slow.
    #[error("{server} cannot be reached: {why}")]
    Unreachable {
        /// The server.
        server: String,
        /// The reason.
        why: String,
    },
    /// The TLS handshake failed, for another reason than a certificate.
    #[error("the TLS handshake with {server} failed: {why}")]
    Handshake {
        /// The server.
        server: String,
        /// The reason.
        why: String,
    },
    /// The server's certificate is expired or not valid yet.
    #[error("the certificate of {server} {why}")]
    ServerExpired {
        /// The server.
        server: String,
        /// The reason, as the end of a sentence.
        why: String,
    },
    /// The server's certificate is for another name or of another authority.
    #[error("the certificate of {server} {why}")]
    ServerUntrusted {
        /// The server.
        server: String,
        /// The reason, as the end of a sentence.
        why: String,
    },
    /// The server does not accept the client certificate.
    #[error("{server} refuses the client certificate: {why}")]
    ClientRefused {
        /// The server.
        server: String,
        /// Its TLS alert.
        why: String,
    },
    /// The server answered with another status than 200.
    #[error("{server} answered with status {status}{}", colon(reason))]
    Status {
        /// The server.
        server: String,
        /// The HTTP status.
        status: u16,
        /// The node in the request.
        node: String,
        /// The server's reason; may be empty.
        reason: String,
    },
    /// The answer is not the node object.
    #[error("the answer of {server} is not a node: {why}")]
    BadAnswer {
        /// The server.
        server: String,
        /// The reason.
        why: String,
    },
    /// The node has no IPv6 range that a pool can be made of.
    #[error("node {node:?} {why}")]
    NoRange {
        /// The node.
        node: String,
        /// The reason, as the end of a sentence.
        why: String,
    },
}

impl NodeError {
    /// Examples of each variant with capital letters for what varies, from which the table in the documentation is made.
    #[doc(hidden)]
    pub fn examples() -> Vec<NodeError> {
        let (server, node) = (|| "SERVER".to_owned(), || "NODE".to_owned());
        let (why, path) = (|| "REASON".to_owned(), || PathBuf::from("PATH"));
        let unreadable = |what, denied| NodeError::Unreadable {
            what,
            path: path(),
            why: why(),
            denied,
        };
        let credentials = |what, why: &str| NodeError::BadCredentials {
            what,
            why: why.to_owned(),
        };
        let status = |status| NodeError::Status {
            server: server(),
            status,
            node: node(),
            reason: why(),
        };
        vec![
            NodeError::NoKubeconfig("FILE".into()),
            unreadable("kubeconfig", true),
            unreadable("kubeconfig", false),
            unreadable("client-certificate", false),
            NodeError::BadKubeconfig("has no current-context".to_owned()),
            NodeError::Unverifiable {
                cluster: "CLUSTER".to_owned(),
                why: "has no certificate-authority",
            },
            NodeError::Unsupported {
                user: "USER".to_owned(),
                key: "exec",
            },
            credentials("certificate-authority", "PATH holds no certificate"),
            credentials("client-key", "PATH holds no private key"),
            credentials("tokenFile", "PATH is empty"),
            NodeError::NoNodeName("\"NAME\" is not a valid node name".to_owned()),
            NodeError::Unreachable {
                server: server(),
                why: why(),
            },
            NodeError::Handshake {
                server: server(),
                why: why(),
            },
            NodeError::ServerExpired {
                server: server(),
                why: "expired at TIME".to_owned(),
            },
            NodeError::ServerUntrusted {
                server: server(),
                why: "is not for NAME".to_owned(),
            },
            NodeError::ClientRefused {
                server: server(),
                why: why(),
            },
            status(401),
            status(403),
            status(404),
            status(503),
            NodeError::BadAnswer {
                server: server(),
                why: why(),
            },
            NodeError::NoRange {
                node: node(),
                why: "has no IPv6 range for pods".to_owned(),
            },
        ]
    }
}

/// Cuts what a server says to a useful length, on one line.
pub fn bounded(reason: &str) -> String {
    /// Characters.
    const MOST: usize = 320;
    let plain = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut text: String = plain.take(MOST).collect();
    if reason.chars().nth(MOST).is_some() {
        text.push_str("...");
    }
    text.trim().to_owned()
}

fn colon(reason: &str) -> String {
    match reason {
        "" => String::new(),
        reason => format!(": {reason}"),
    }
}

/// Says which names there are, the first few of many.
pub fn list_names(all: &[String]) -> String {
    /// Names.
    const MOST: usize = 8;
    let shown: Vec<_> = all.iter().take(MOST).map(|name| bounded(name)).collect();
    match all.len().saturating_sub(MOST) {
        _ if all.is_empty() => "it has none".to_owned(),
        0 => format!("it has {}", shown.join(", ")),
        more => format!("it has {} and {more} more", shown.join(", ")),
    }
}
