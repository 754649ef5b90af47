//! Queries the Kubernetes API: from the kubeconfig to the pool.

use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use ureq::http::Uri;

use super::KubernetesNode;
use super::credentials::{AUTHORITY, Files};
use super::error::{NodeError, bounded};
use super::kubeconfig::{self, Cluster, bad_server};
use super::object;
use super::request::Request;
use crate::host::{Paths, host_name, io_reason};
use crate::ipam::Inventory;

impl KubernetesNode {
    /// Gets the node object, and makes a pool of its IPv6 range.
    ///
    /// # Errors
    /// There is no valid answer within `limit`.
    pub fn query(&self, limit: Duration, paths: &Paths) -> Result<Inventory, NodeError> {
        let deadline = Instant::now() + limit;
        let node = self.node_name(paths)?;
        let files = Files {
            kubeconfig: &self.kubeconfig,
            paths,
        };
        let kubeconfig = kubeconfig::parse(&files.kubeconfig()?)?;
        let (cluster, user) = (&kubeconfig.cluster, &kubeconfig.user);
        if cluster.is_plain() && user.has_credentials() {
            return Err(NodeError::BadKubeconfig(format!(
                "would send the credentials of user {:?} to {}, which uses plain HTTP",
                user.name, cluster.server
            )));
        }
        let tls = match cluster.is_plain() {
            true => None,
            false => Some((files.tls(cluster, user)?, server_name(cluster)?)),
        };
        let authority = cluster.authority.as_ref();
        let request = Request {
            server: &cluster.server,
            node: &node,
            tls,
            authority: authority.map_or(String::new(), |m| files.place(AUTHORITY, m)),
            token: files.token(user)?,
            limit,
            deadline,
        };
        let body = request.send()?;
        let object = object::parse(&body).map_err(|e| NodeError::BadAnswer {
            server: cluster.server.clone(),
            why: bounded(&e.to_string()),
        })?;
        Ok(Inventory {
            pools: vec![object.pool(&node, &cluster.server)?],
        })
    }

    /// Returns the node's name: the configured one, or the host's in lower case.
    fn node_name(&self, paths: &Paths) -> Result<String, NodeError> {
        let name = match &self.node {
            Some(name) => name.clone(),
            None => {
                let name = host_name(paths).map_err(|e| {
                    let why = io_reason(&e);
                    NodeError::NoNodeName(format!("the name of this host cannot be read: {why}"))
                })?;
                name.to_lowercase()
            }
        };
        match is_subdomain(&name) {
            true => Ok(name),
            false => Err(NodeError::NoNodeName(format!(
                "{:?} is not a valid node name",
                bounded(&name)
            ))),
        }
    }
}

/// Returns the name that the certificate of the server must be valid for.
fn server_name(cluster: &Cluster) -> Result<ServerName<'static>, NodeError> {
    if let Some(name) = &cluster.tls_server_name {
        return ServerName::try_from(name.clone()).map_err(|_| {
            NodeError::BadKubeconfig(format!(
                "has the tls-server-name {name:?}, which is not a host name"
            ))
        });
    }
    let bad = || bad_server(&cluster.server);
    let uri: Uri = cluster.server.parse().map_err(|_| bad())?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    ServerName::try_from(host.to_owned()).map_err(|_| bad())
}

/// Whether a name is a valid node name: a DNS subdomain (RFC 1123).
fn is_subdomain(name: &str) -> bool {
    const LONGEST: usize = 253;
    let is_end = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let ends = (bytes.first(), bytes.last());
        matches!(ends, (Some(first), Some(last)) if is_end(first) && is_end(last))
            && bytes.iter().all(|b| is_end(b) || *b == b'-')
    };
    name.len() <= LONGEST && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_names_are_dns_subdomains() {
        for good in [
            "a",
            "aks-nodepool1-12345678-vmss000000",
            "n1.example.com",
            "1",
        ] {
            assert!(is_subdomain(good), "{good}");
        }
        let long = "a".repeat(254);
        for bad in [
            "", ".", "a.", "A", "a_b", "-a", "a-", "a/../b", "a%20b", "ä", "a b", &long,
        ] {
            assert!(!is_subdomain(bad), "{bad}");
        }
    }

    #[test]
    fn certificate_name_is_tls_server_name_or_host() {
        for (server, tls_server_name, name) in [
            ("https://10.0.0.1:443", None, Some("10.0.0.1")),
            (
                "https://[fd00::1]:6443/k8s/clusters/c1",
                None,
                Some("fd00::1"),
            ),
            ("https://api.example:6443", None, Some("api.example")),
            ("https://10.0.0.1", Some("kubernetes"), Some("kubernetes")),
            ("https://10.0.0.1", Some("a b"), None),
            ("https://a_b!", None, None),
        ] {
            let cluster = Cluster {
                name: "c".into(),
                server: server.into(),
                authority: None,
                tls_server_name: tls_server_name.map(str::to_owned),
            };
            let found = server_name(&cluster).ok();
            assert_eq!(
                found.map(|n| n.to_str().into_owned()).as_deref(),
                name,
                "{server}"
            );
        }
    }
}
