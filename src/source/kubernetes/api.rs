//! Requests a node object, and creates a pool from its IPv6 range.

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

/// The members of a node object that are used.
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
        None => host_name(paths)?,
    };
    if !is_subdomain(&name) {
        let quoted = bounded(&name);
        return Err(NodeError::Node(format!(
            "{quoted:?} is not a valid node name"
        )));
    }
    Ok(name)
}

/// Reads the name of the host, in lower case.
fn host_name(paths: &Paths) -> Result<String, NodeError> {
    match read_text(&paths.host_name()) {
        Ok(text) => Ok(text.trim().to_lowercase()),
        Err(error) => Err(NodeError::Node(format!(
            "the name of this host cannot be read: {}",
            io_reason(&error)
        ))),
    }
}

/// Returns whether a name is a DNS subdomain (RFC 1123), as names of nodes are.
fn is_subdomain(name: &str) -> bool {
    const LONGEST: usize = 253;
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(is_allowed)
    };
    name.len() <= LONGEST && name.split('.').all(is_label)
}

/// Requests a node object. `limit` is the time limit of the whole query, for messages.
///
/// # Errors
/// The server cannot be reached, is not trusted, refuses the request or is too slow. Or its answer is
/// not a node object.
pub fn get_node(
    access: Access,
    node: &str,
    limit: Duration,
    deadline: Instant,
) -> Result<NodeObject, NodeError> {
    /// The line with the token is the longest one.
    const LONGEST_LINE: usize = 4096;
    let Access { server, tls, token } = access;
    let remaining = deadline.saturating_duration_since(Instant::now());
    let settings = config(remaining, LONGEST_LINE);
    let tcp = TcpConnector::default();
    let agent = match tls {
        None => Agent::with_parts(settings, tcp, TimedResolver),
        Some(tls) => {
            let connector = Connector::<()>::chain(tcp, tls);
            Agent::with_parts(settings, connector, TimedResolver)
        }
    };
    let mut request = agent
        .get(format!("{server}/api/v1/nodes/{node}"))
        .header("Accept", "application/json");
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let to_node_error = |error| describe(error, &server, limit);
    let mut response = request.call().map_err(to_node_error)?;
    let mut body = Vec::new();
    let read = response
        .body_mut()
        .with_config()
        .limit(BODY_LIMIT)
        .reader()
        .read_to_end(&mut body);
    let status = response.status().as_u16();
    if status != 200 {
        // An incomplete body may still hold the reason of a refusal, so errors of reading are
        // ignored.
        return Err(refusal(status, &body, &server));
    }
    read.map_err(|error| to_node_error(error.into()))?;
    parse(&body)
        .map_err(|why| NodeError::Node(format!("the answer of {server} is not a node: {why}")))
}

/// Returns the error for an answer with a status other than 200.
fn refusal(status: u16, body: &[u8], server: &str) -> NodeError {
    let reason = parse_refusal(body);
    let message = format!("{server} answered with status {status}: {reason}");
    match status {
        401 | 403 => NodeError::Refused(message),
        404 => NodeError::Node(message),
        _ => NodeError::Unreachable(message),
    }
}

/// Converts the error of a request that got no complete answer.
fn describe(error: ureq::Error, server: &str, limit: Duration) -> NodeError {
    let why = match error {
        ureq::Error::Timeout(_) => format!("it did not answer within {} s", limit.as_secs()),
        ureq::Error::BodyExceedsLimit(most) => format!("its answer is larger than {most} bytes"),
        ureq::Error::Io(io) => match io.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(tls) => return describe_tls(tls, server),
            None => io_reason(&io),
        },
        other => bounded(&other.to_string()),
    };
    NodeError::Unreachable(format!("{server} cannot be reached: {why}"))
}

/// Converts an error of TLS.
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
            untrusted("was not issued by the kubeconfig's certificate-authority".to_owned())
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

/// Parses the answer to a refused request. Returns the message of its `Status` object, or the
/// beginning of the body.
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
    /// Creates the pool of `node`: the first /120 of its first IPv6 range, without its first two
    /// addresses.
    ///
    /// # Errors
    /// It is another object, or has no such range.
    pub fn pool(&self, node: &str) -> Result<ListedPool, NodeError> {
        if self.kind != "Node" || self.metadata.name != node {
            let kind = bounded(&self.kind);
            let name = bounded(&self.metadata.name);
            return Err(NodeError::Node(format!(
                "the answer has kind {kind:?} and name {name:?}; it is not the node {node:?}"
            )));
        }
        let ranges = self.spec.ranges.as_deref().unwrap_or_default();
        let first_ipv6_range = ranges.iter().find_map(|text| match parse_prefix(text) {
            Some(IpNet::V6(range)) => Some(range),
            _ => None,
        });
        match first_ipv6_range.map(first_block) {
            Some(pool) if !pool.addresses.is_empty() => Ok(pool),
            _ => {
                let listed = bounded(&ranges.join(", "));
                Err(NodeError::Node(format!(
                    "node {node:?} has no IPv6 range with addresses for pods; \
                     its ranges are [{listed}]"
                )))
            }
        }
    }
}

/// Returns the first /120 of a range, or all of a smaller one.
fn first_block(range: Ipv6Net) -> ListedPool {
    const LENGTH: u8 = 120;
    /// The addresses of the network and the gateway, which are never allocated.
    const RESERVED: u128 = 2;
    let network = range.network();
    let length = range.prefix_len().max(LENGTH);
    let block = Ipv6Net::new(network, length).unwrap_or(range);
    let last = u128::from(block.broadcast());
    let addresses = match u128::from(network).checked_add(RESERVED) {
        Some(first) => (first..=last)
            .map(|number| IpAddr::V6(Ipv6Addr::from(number)))
            .collect(),
        None => Vec::new(),
    };
    ListedPool::new(block.into(), String::new(), 0, addresses)
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
    fn pool_is_the_first_block_of_the_first_ipv6_range() {
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
    fn node_without_a_usable_range_is_refused() {
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
    fn refusals_quote_the_server_up_to_a_limit() {
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
