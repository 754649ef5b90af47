//! The node object of the Kubernetes API, and the pool that its IPv6 range makes (contract section 18).

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv6Net};

use super::error::{NodeError, bounded, list_names};
use crate::codec::{self, object};
use crate::ipam::ListedPool;
use crate::source::listing::parse_prefix;

/// The used part of a node object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeObject {
    /// Its kind, if present.
    pub kind: Option<String>,
    /// Its name, if present.
    pub name: Option<String>,
    /// `spec.podCIDRs`, or `spec.podCIDR` if that list is empty.
    pub ranges: Vec<String>,
}

object! { exact read
    #[derive(Default)]
    struct Metadata {
        "name": name: Option<String>,
    }
}

object! { exact read
    #[derive(Default)]
    struct Spec {
        "podCIDRs" with(codec::compound): ranges: Vec<String>,
        "podCIDR": range: Option<String>,
    }
}

object! { exact read
    /// A `Status` object, the answer of the API to a refused request.
    #[derive(Default)]
    struct RawStatus {
        "message": message: String,
    }
}

object! { exact read
    /// The node object as spelled.
    #[derive(Default)]
    struct RawNode {
        "kind": kind: Option<String>,
        "metadata": metadata: Metadata,
        "spec": spec: Spec,
    }
}

/// Parses a node object. Keys are case-sensitive, as in Kubernetes.
///
/// # Errors
/// It is not JSON, or something in it has the wrong type.
pub fn parse(json: &[u8]) -> Result<NodeObject, codec::Error> {
    let mut raw = RawNode::default();
    codec::read(json, &mut raw)?;
    let Spec { mut ranges, range } = raw.spec;
    if ranges.is_empty() {
        ranges.extend(range.filter(|range| !range.is_empty()));
    }
    Ok(NodeObject {
        kind: raw.kind,
        name: raw.metadata.name,
        ranges,
    })
}

/// Parses the answer to a refused request: the message of its `Status`, or the beginning of the body.
pub fn parse_refusal(body: &[u8]) -> String {
    let mut status = RawStatus::default();
    match codec::read(body, &mut status) {
        Ok(()) => bounded(&status.message),
        Err(_) => bounded(&String::from_utf8_lossy(body)),
    }
}

impl NodeObject {
    /// Creates the pool of `node`: the first /120 of its first IPv6 range, without its first two addresses.
    ///
    /// # Errors
    /// It is another node, or has no such range.
    pub fn pool(&self, node: &str, server: &str) -> Result<ListedPool, NodeError> {
        let bad = |why: String| NodeError::BadAnswer {
            server: server.to_owned(),
            why,
        };
        if let Some(kind) = self.kind.as_ref().filter(|kind| *kind != "Node") {
            return Err(bad(format!("its kind is {:?}", bounded(kind))));
        }
        if let Some(name) = self.name.as_ref().filter(|name| *name != node) {
            let name = bounded(name);
            return Err(bad(format!("its name is {name:?}, not {node:?}")));
        }
        let no_range = |why: String| NodeError::NoRange {
            node: node.to_owned(),
            why,
        };
        for text in &self.ranges {
            let range = parse_prefix(text).ok_or_else(|| {
                let text = bounded(text);
                no_range(format!("has the range {text:?}, which is not a prefix"))
            })?;
            let IpNet::V6(range) = range else { continue };
            let pool = first_block(range);
            if pool.addresses.is_empty() {
                return Err(no_range(format!(
                    "has the range {range}, which has no address for pods, as its first two are never given"
                )));
            }
            return Ok(pool);
        }
        let ranges = list_names(&self.ranges);
        Err(no_range(format!("has no IPv6 range for pods; {ranges}")))
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

    fn node(ranges: &[&str]) -> NodeObject {
        NodeObject {
            ranges: ranges.iter().map(|range| (*range).to_owned()).collect(),
            ..NodeObject::default()
        }
    }

    fn pool(ranges: &[&str]) -> Result<ListedPool, String> {
        let pool = node(ranges).pool("n1", "https://api");
        pool.map_err(|e| e.to_string())
    }

    #[test]
    fn the_list_of_ranges_goes_before_the_single_one() {
        let read = |json: &str| parse(json.as_bytes()).unwrap();
        let both = read(
            r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","labels":{"spec":"x"}},
                "spec":{"podCIDR":"10.244.3.0/24","podCIDRs":["10.244.3.0/24","fd00:3::/64"],"providerID":"azure://x"},
                "status":{"spec":{"podCIDRs":["x"]}}}"#,
        );
        assert_eq!(
            (both.kind.as_deref(), both.name.as_deref()),
            (Some("Node"), Some("n1"))
        );
        assert_eq!(both.ranges, ["10.244.3.0/24", "fd00:3::/64"]);
        let single = r#"{"spec":{"podCIDR":"fd00:3::/64"}}"#;
        assert_eq!(read(single).ranges, ["fd00:3::/64"]);
        for none in [
            "{}",
            "null",
            r#"{"spec":null}"#,
            r#"{"spec":{"podCIDRs":null}}"#,
            r#"{"spec":{"podCIDRs":[],"podCIDR":""}}"#,
            r#"{"SPEC":{"podCIDRs":["fd00::/64"]}}"#,
        ] {
            assert_eq!(read(none).ranges, [""; 0], "{none}");
        }
        for bad in [
            "",
            "[]",
            "<html>",
            r#"{"spec":[]}"#,
            r#"{"spec":{"podCIDRs":[7]}}"#,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_first_block_of_the_first_ipv6_range_is_the_pool() {
        for (ranges, subnet, first, last, count) in [
            (
                vec!["10.244.3.0/24", "fd00:3::/64", "fd00:4::/64"],
                "fd00:3::/120",
                "fd00:3::2",
                "fd00:3::ff",
                254,
            ),
            (
                vec!["fd00:3::1200/120"],
                "fd00:3::1200/120",
                "fd00:3::1202",
                "fd00:3::12ff",
                254,
            ),
            (
                vec!["fd00:3::77/64"],
                "fd00:3::/120",
                "fd00:3::2",
                "fd00:3::ff",
                254,
            ),
            (
                vec!["fd00:3::10/124"],
                "fd00:3::10/124",
                "fd00:3::12",
                "fd00:3::1f",
                14,
            ),
            (
                vec!["fd00:3::4/126"],
                "fd00:3::4/126",
                "fd00:3::6",
                "fd00:3::7",
                2,
            ),
            (vec!["::/0"], "::/120", "::2", "::ff", 254),
        ] {
            let pool = pool(&ranges).unwrap();
            assert_eq!(pool.subnet, subnet.parse::<IpNet>().unwrap());
            let ends = (pool.addresses.first(), pool.addresses.last());
            let wanted = (first.parse().unwrap(), last.parse().unwrap());
            assert_eq!(ends, (Some(&wanted.0), Some(&wanted.1)), "{ranges:?}");
            assert_eq!(
                (pool.addresses.len(), pool.if_name.as_str(), pool.priority),
                (count, "", 0)
            );
            assert!(pool.addresses.iter().all(|a| pool.subnet.contains(a)));
        }
    }

    #[test]
    fn a_node_without_such_a_range_is_told_with_what_it_has() {
        for (ranges, io_reason) in [
            (
                vec![],
                "node \"n1\" has no IPv6 range for pods; it has none",
            ),
            (
                vec!["10.1.0.0/24"],
                "node \"n1\" has no IPv6 range for pods; it has 10.1.0.0/24",
            ),
            (
                vec!["10.1.0.0/24", "fd00::"],
                "node \"n1\" has the range \"fd00::\", which is not a prefix",
            ),
            (
                vec!["fd00::/127"],
                "node \"n1\" has the range fd00::/127, which has no address for pods, as its first two are never given",
            ),
            (
                vec!["ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"],
                "node \"n1\" has the range ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128, which has no address for pods, as its first two are never given",
            ),
        ] {
            assert_eq!(pool(&ranges).unwrap_err(), io_reason);
        }
    }

    #[test]
    fn another_object_is_no_answer() {
        let said = |kind: Option<&str>, name: Option<&str>| NodeObject {
            kind: kind.map(str::to_owned),
            name: name.map(str::to_owned),
            ranges: vec!["fd00::/64".to_owned()],
        };
        let pool = |kind, name| said(kind, name).pool("n1", "https://api");
        assert!(pool(Some("Node"), Some("n1")).is_ok() && pool(None, None).is_ok());
        assert_eq!(
            pool(None, Some("n2")).unwrap_err().to_string(),
            "the answer of https://api is not a node: its name is \"n2\", not \"n1\""
        );
        assert!(pool(Some("Pod"), Some("n1")).is_err());
    }

    #[test]
    fn refusals_are_told_in_the_servers_words_as_far_as_these_go() {
        let status = br#"{"kind":"Status","status":"Failure","message":"nodes \"n1\" not found","code":404}"#;
        assert_eq!(parse_refusal(status), "nodes \"n1\" not found");
        assert_eq!(parse_refusal(b"\x1b[31m<html>\r\n"), "[31m<html>");
        assert_eq!(parse_refusal(&[b'x'; 5000]).len(), 323);
        assert_eq!(parse_refusal(b""), "");
    }
}
