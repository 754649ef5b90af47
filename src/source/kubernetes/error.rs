//! Why the node object gave no pools. What happened is here, what to do about it in `remedy`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::host::utc;

/// Why the node object gave no pools.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The kubeconfig is not there.
    #[error("the kubeconfig {} does not exist", .0.display())]
    NoKubeconfig(PathBuf),
    /// A file cannot be read.
    #[error("the {what} {} cannot be read: {why}", path.display())]
    Unreadable {
        /// Which key of the kubeconfig names it; `kubeconfig` for that itself.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What the system says.
        why: String,
        /// Whether it is a matter of permissions.
        denied: bool,
    },
    /// The kubeconfig is not a YAML object.
    #[error("the kubeconfig is not a YAML object: {0}")]
    NotYaml(String),
    /// The kubeconfig does not say which context counts.
    #[error("the kubeconfig has no current-context")]
    NoCurrentContext,
    /// A name leads nowhere.
    #[error("the kubeconfig has no {kind} {name:?}; {}", has(known))]
    Unknown {
        /// `context`, `cluster` or `user`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The names that it has.
        known: Vec<String>,
    },
    /// A cluster without server.
    #[error("cluster {0:?} of the kubeconfig has no server")]
    NoServer(String),
    /// A server that is not a URL.
    #[error("the server {0:?} of the kubeconfig is not a URL like https://HOST:PORT")]
    BadServer(String),
    /// A cluster whose server is not to be checked.
    #[error(
        "cluster {0:?} of the kubeconfig says insecure-skip-tls-verify, which is not done: whoever answers could name any addresses"
    )]
    SkipsVerification(String),
    /// A cluster without certificates to check the server by.
    #[error(
        "cluster {0:?} of the kubeconfig has no certificate-authority, by which the server could be known"
    )]
    NoAuthority(String),
    /// A name that no certificate can have.
    #[error("the tls-server-name {0:?} of the kubeconfig is not a host name")]
    BadServerName(String),
    /// Credentials would be sent over plain HTTP.
    #[error(
        "{server} uses plain HTTP, and the credentials of user {user:?} are never sent over it"
    )]
    InClear {
        /// The server.
        server: String,
        /// The user.
        user: String,
    },
    /// Credentials of a kind that is not supported.
    #[error("user {user:?} of the kubeconfig has {}, which is not supported", means.key())]
    Unsupported {
        /// The user.
        user: String,
        /// What it has.
        means: Means,
    },
    /// A certificate, key or token without its like.
    #[error("the {what} {place} {why}")]
    Malformed {
        /// Which key of the kubeconfig it is of.
        what: &'static str,
        /// Where it is.
        place: String,
        /// What is wrong with it, as the end of a sentence.
        why: &'static str,
    },
    /// A certificate without key, or the other way about.
    #[error("user {user:?} of the kubeconfig has a {has} without a {lacks}")]
    Half {
        /// The user.
        user: String,
        /// What it has.
        has: &'static str,
        /// What it lacks.
        lacks: &'static str,
    },
    /// Certificate and key do not belong together.
    #[error("the client-key {key} does not belong to the client-certificate {certificate}")]
    KeyMismatch {
        /// Where the key is.
        key: String,
        /// Where the certificate is.
        certificate: String,
    },
    /// The client certificate is too old.
    #[error("the client-certificate {place} expired at {}", utc(*at))]
    ClientExpired {
        /// Where it is.
        place: String,
        /// When, in seconds since 1970.
        at: i64,
    },
    /// The node has no usable name.
    #[error("{0:?} is not a valid node name")]
    BadName(String),
    /// The host's name is not known.
    #[error("the name of this host cannot be read: {0}")]
    NoHostName(String),
    /// The server's name leads to no address.
    #[error("{server} cannot be found: {why}")]
    NoSuchHost {
        /// The server.
        server: String,
        /// What the resolver says.
        why: String,
    },
    /// The server cannot be reached, or breaks off.
    #[error("{server} cannot be asked: {why}")]
    Unreachable {
        /// The server.
        server: String,
        /// What the system says.
        why: String,
    },
    /// It took too long.
    #[error("{server} did not answer within {} s", limit.as_secs())]
    TimedOut {
        /// The server.
        server: String,
        /// How long it had.
        limit: Duration,
    },
    /// The server speaks something else.
    #[error("{0} does not speak TLS")]
    NotTls(String),
    /// The TLS handshake failed.
    #[error("the TLS handshake with {server} failed: {why}")]
    Handshake {
        /// The server.
        server: String,
        /// Why.
        why: String,
    },
    /// The server's certificate is not good.
    #[error("the certificate of {server} {fault}")]
    ServerCertificate {
        /// The server.
        server: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// The server does not accept the client certificate.
    #[error("{server} refuses the client certificate: {why}")]
    ClientRefused {
        /// The server.
        server: String,
        /// Its alert.
        why: String,
    },
    /// The server answers with something else than the node.
    #[error("{server} answered with status {status}{}", colon(reason))]
    Status {
        /// The server.
        server: String,
        /// Of HTTP.
        status: u16,
        /// The node that was asked for.
        node: String,
        /// What it says.
        reason: String,
    },
    /// The answer is not a node.
    #[error("the answer of {server} is not a node: {why}")]
    BadAnswer {
        /// The server.
        server: String,
        /// Why not.
        why: String,
    },
    /// The node has no IPv6 range.
    #[error("node {node:?} has no IPv6 range for pods; {}", has(ranges))]
    NoIpv6 {
        /// The node.
        node: String,
        /// Its ranges.
        ranges: Vec<String>,
    },
    /// A range of the node is none.
    #[error("node {node:?} has the range {range:?}, which is not a prefix")]
    BadRange {
        /// The node.
        node: String,
        /// As it is spelled.
        range: String,
    },
    /// The node's range is too small.
    #[error(
        "the range {range} of node {node:?} has no address for pods, as its first two are never given"
    )]
    SmallRange {
        /// The node.
        node: String,
        /// The range.
        range: String,
    },
}

/// Credentials that are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Another program.
    Exec,
    /// A cloud's own way.
    AuthProvider,
    /// Basic authentication.
    Password,
}

/// What is wrong with a server's certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is too old. Seconds since 1970.
    #[error("expired at {}", utc(*.0))]
    Expired(i64),
    /// It is too young. Seconds since 1970.
    #[error("is not valid before {}", utc(*.0))]
    NotYet(i64),
    /// It has other names.
    #[error("is not for {expected}; {}", has(names))]
    Name {
        /// The name it should have.
        expected: String,
        /// Those that it has.
        names: Vec<String>,
    },
    /// Nobody vouches for it.
    #[error("is not of the certificate-authority {0}")]
    Authority(String),
    /// Something else.
    #[error("is not good: {0}")]
    Other(String),
}

impl Means {
    /// The key of the kubeconfig.
    pub fn key(self) -> &'static str {
        match self {
            Means::Exec => "exec",
            Means::AuthProvider => "auth-provider",
            Means::Password => "username and password",
        }
    }
}

/// What a server says, as far as it is of any use, on one line.
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

fn has(all: &[String]) -> String {
    /// Names.
    const MOST: usize = 8;
    let shown: Vec<_> = all.iter().take(MOST).map(|name| bounded(name)).collect();
    match all.len().saturating_sub(MOST) {
        _ if all.is_empty() => "it has none".to_owned(),
        0 => format!("it has {}", shown.join(", ")),
        more => format!("it has {} and {more} more", shown.join(", ")),
    }
}

/// A path for people to copy.
pub fn shown(path: &Path) -> String {
    path.display().to_string()
}
