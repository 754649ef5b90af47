//! The request for a node object, and the pool that its IPv6 range makes.

use std::io::Read;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv6Net};
use rustls::CertificateError;
use serde::Deserialize;
use ureq::Agent;
use ureq::unversioned::transport::{Connector, TcpConnector};

use super::error::{NodeError, bounded};
use super::kubeconfig::Access;
use crate::host::{Paths, Timestamp, io_reason, read_text};
use crate::ipam::ListedPool;
use crate::source::fetch::{TimedResolver, config};
use crate::source::listing::parse_prefix;

/// Larger answers than this are refused. A node with all its images takes a few dozen KiB.
const BODY_LIMIT: u64 = 4 << 20;

/// The used part of a node object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeObject {
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(rename = "podCIDRs")]
    ranges: Option<Vec<String>>,
}

/// Returns the node's name: the `configured` one, or the host's in lower case.
///
/// # Errors
/// The host's name cannot be read, or the name is not valid.
pub fn node_name(configured: Option<&str>, paths: &Paths) -> Result<String, NodeError> {
    let name = match configured {
        Some(name) => name.to_owned(),
        None => {
            let own = read_text(&paths.host_name()).map_err(|e| {
                let why = io_reason(&e);
                NodeError::Node(format!("the name of this host cannot be read: {why}"))
            })?;
            own.trim().to_lowercase()
        }
    };
    match is_subdomain(&name) {
        true => Ok(name),
        false => {
            let name = bounded(&name);
            Err(NodeError::Node(format!(
                "{name:?} is not a valid node name"
            )))
        }
    }
}

/// Whether a name is a DNS subdomain (RFC 1123), as names of nodes are.
fn is_subdomain(name: &str) -> bool {
    const LONGEST: usize = 253;
    let is_known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(is_known)
    };
    name.len() <= LONGEST && name.split('.').all(is_label)
}

/// Requests a node object. `limit` is the time limit of the whole query, for messages.
///
/// # Errors
/// The server cannot be reached or trusted, refuses, or is too slow, or the answer is not a node object.
pub fn get_node(
    access: Access,
    node: &str,
    limit: Duration,
    deadline: Instant,
) -> Result<NodeObject, NodeError> {
    let Access { server, tls, token } = access;
    let left = deadline.saturating_duration_since(Instant::now());
    // The longest line has the token.
    let (config, names) = (config(left, 4096), TimedResolver);
    let tcp = TcpConnector::default();
    let agent = match tls {
        None => Agent::with_parts(config, tcp, names),
        Some(tls) => Agent::with_parts(config, Connector::<()>::chain(tcp, tls), names),
    };
    let request = agent.get(format!("{server}/api/v1/nodes/{node}"));
    let mut request = request.header("Accept", "application/json");
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let failed = |error| describe(error, &server, limit);
    let mut response = request.call().map_err(failed)?;
    let mut body = Vec::new();
    let mut reader = response.body_mut().with_config().limit(BODY_LIMIT).reader();
    let read = reader.read_to_end(&mut body);
    let status = response.status().as_u16();
    if status == 200 {
        read.map_err(|e| failed(e.into()))?;
        return parse(&body)
            .map_err(|e| NodeError::Node(format!("the answer of {server} is not a node: {e}")));
    }
    // A partial body is enough.
    let reason = parse_refusal(&body);
    let message = format!("{server} answered with status {status}: {reason}");
    Err(match status {
        401 | 403 => NodeError::Refused(message),
        404 => NodeError::Node(message),
        _ => NodeError::Unreachable(message),
    })
}

/// Converts the error of a request without an answer.
fn describe(error: ureq::Error, server: &str, limit: Duration) -> NodeError {
    let why = match error {
        ureq::Error::Timeout(_) => format!("it did not answer within {} s", limit.as_secs()),
        ureq::Error::BodyExceedsLimit(most) => format!("its answer is larger than {most} bytes"),
        ureq::Error::Io(e) => match e.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(tls) => return describe_tls(tls, server),
            None => io_reason(&e),
        },
        other => bounded(&other.to_string()),
    };
    NodeError::Unreachable(format!("{server} cannot be reached: {why}"))
}

fn describe_tls(error: &rustls::Error, server: &str) -> NodeError {
    let untrusted = |why| NodeError::Untrusted(format!("the certificate of {server} {why}"));
    match error {
        rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
            not_after, ..
        }) => {
            let seconds = i64::try_from(not_after.as_secs()).unwrap_or(i64::MAX);
            let time = Timestamp::from_seconds(seconds).format(0);
            untrusted(format!("expired at {time}"))
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            untrusted("is not of the kubeconfig's certificate-authority".to_owned())
        }
        rustls::Error::InvalidCertificate(e) => NodeError::Untrusted(format!(
            "{server} is not trusted: {}",
            bounded(&e.to_string())
        )),
        rustls::Error::AlertReceived(alert) => NodeError::Refused(format!(
            "{server} refuses the TLS connection with the alert {alert:?}"
        )),
        other => NodeError::Unreachable(format!(
            "the TLS handshake with {server} failed: {}",
            bounded(&other.to_string())
        )),
    }
}

/// Parses a node object. Keys are case-sensitive, as in Kubernetes.
///
/// # Errors
/// It is not JSON, or something in it has the wrong type.
pub fn parse(json: &[u8]) -> Result<NodeObject, serde_json::Error> {
    serde_json::from_slice(json)
}

/// Parses the answer to a refused request: the message of its `Status` object, or the beginning of the body.
pub fn parse_refusal(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Status {
        message: String,
    }
    match serde_json::from_slice(body) {
        Ok(Status { message }) => bounded(&message),
        Err(_) => bounded(&String::from_utf8_lossy(body)),
    }
}

impl NodeObject {
    /// Creates the pool of `node`: the first /120 of its first IPv6 range, without its first two addresses.
    ///
    /// # Errors
    /// It is another object, or has no such range.
    pub fn pool(&self, node: &str) -> Result<ListedPool, NodeError> {
        let (kind, name) = (&self.kind, &self.metadata.name);
        if kind != "Node" || name != node {
            let (kind, name) = (bounded(kind), bounded(name));
            return Err(NodeError::Node(format!(
                "the answer is of kind {kind:?} and name {name:?}, not the node {node:?}"
            )));
        }
        let ranges = self.spec.ranges.as_deref().unwrap_or_default();
        let no_range = || {
            let ranges = bounded(&ranges.join(", "));
            NodeError::Node(format!(
                "node {node:?} has no IPv6 range with addresses for pods; its ranges are [{ranges}]"
            ))
        };
        let parsed = ranges.iter().filter_map(|range| parse_prefix(range));
        let mut ipv6 = parsed.filter_map(|range| match range {
            IpNet::V6(range) => Some(range),
            IpNet::V4(_) => None,
        });
        let pool = first_block(ipv6.next().ok_or_else(no_range)?);
        match pool.addresses.is_empty() {
            true => Err(no_range()),
            false => Ok(pool),
        }
    }
}

/// Returns the first /120 of a range, or all of a smaller one.
fn first_block(range: Ipv6Net) -> ListedPool {
    const LENGTH: u8 = 120;
    /// The addresses of the network and the gateway, which are never allocated.
    const RESERVED: u128 = 2;
    let (network, length) = (range.network(), range.prefix_len().max(LENGTH));
    let block = Ipv6Net::new(network, length).unwrap_or(range);
    let (first, last) = (u128::from(network), u128::from(block.broadcast()));
    let given = first.checked_add(RESERVED).map(|start| start..=last);
    let addresses = given.into_iter().flatten();
    let addresses = addresses.map(|a| IpAddr::V6(Ipv6Addr::from(a)));
    ListedPool::new(block.into(), String::new(), 0, addresses.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ranges: &str) -> NodeObject {
        let json = format!(
            r#"{{"kind":"Node","apiVersion":"v1","metadata":{{"name":"n1","labels":{{"spec":"x"}}}},
                "spec":{{"podCIDR":"10.244.3.0/24","podCIDRs":{ranges},"providerID":"azure://x"}},
                "status":{{"spec":{{"podCIDRs":["x"]}}}}}}"#
        );
        parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn the_first_block_of_the_first_ipv6_range_is_the_pool() {
        let several = r#"["10.244.3.0/24", "fd00:3::/64", "fd00:4::/64"]"#;
        for (ranges, expected) in [
            (several, "fd00:3::/120 fd00:3::2 fd00:3::ff 254"),
            (
                r#"["fd00:3::1200/120"]"#,
                "fd00:3::1200/120 fd00:3::1202 fd00:3::12ff 254",
            ),
            (
                r#"["fd00:3::77/64"]"#,
                "fd00:3::/120 fd00:3::2 fd00:3::ff 254",
            ),
            (
                r#"["fd00:3::10/124"]"#,
                "fd00:3::10/124 fd00:3::12 fd00:3::1f 14",
            ),
            (
                r#"["fd00:3::4/126"]"#,
                "fd00:3::4/126 fd00:3::6 fd00:3::7 2",
            ),
            (r#"["::/0"]"#, "::/120 ::2 ::ff 254"),
        ] {
            let pool = node(ranges).pool("n1").unwrap();
            let all = &pool.addresses;
            let [first, .., last] = &all[..] else {
                panic!("{ranges}")
            };
            let found = format!("{} {first} {last} {}", pool.subnet, all.len());
            assert_eq!(found, expected, "{ranges}");
            assert!(all.iter().all(|a| pool.subnet.contains(a)));
        }
    }

    #[test]
    fn a_node_without_a_usable_range_is_refused() {
        for (ranges, listed) in [
            ("null", "[]"),
            (r#"["10.1.0.0/24", "fd00::"]"#, "[10.1.0.0/24, fd00::]"),
            (r#"["fd00::/127"]"#, "[fd00::/127]"),
        ] {
            let error = node(ranges).pool("n1").unwrap_err().to_string();
            let words = "node \"n1\" has no IPv6 range with addresses for pods; its ranges are ";
            assert_eq!(error, format!("{words}{listed}"));
        }
        let most = node(r#"["ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"]"#);
        assert!(most.pool("n1").is_err());
        for bad in ["", "null", r#"{"spec":{"podCIDRs":[7]}}"#] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn refusals_are_told_in_the_servers_words_as_far_as_these_go() {
        assert_eq!(parse_refusal(b"\x1b[31m<html>\r\n"), "[31m<html>");
        assert_eq!(parse_refusal(&[b'x'; 5000]).len(), 323);
        assert_eq!(parse_refusal(b""), "");
    }

    #[test]
    fn node_names_are_dns_subdomains() {
        let name = "aks-nodepool1-12345678-vmss000000";
        for good in ["a", name, "n1.example.com", "1"] {
            assert!(is_subdomain(good), "{good}");
        }
        let long = "a".repeat(254);
        for bad in [
            "", ".", "a.", "A", "a_b", "-a", "a-", "a/../b", "a%20b", "ä", "a b", &long,
        ] {
            assert!(!is_subdomain(bad), "{bad}");
        }
    }
}
