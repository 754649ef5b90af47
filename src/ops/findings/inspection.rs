//! The data that a diagnosis is made from.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::executables::Executables;
use super::lock::{Holder, holder};
use crate::host::{HostAddress, host_addresses, links};
use crate::ipam::Evidence;
use crate::ops::node::Node;
use crate::ops::node_config::NodeConfig;
use crate::ops::outcome::CommandError;
use crate::ops::progress;
use crate::ops::state_view::StateView;
use crate::plugin::{Trial, note_moved_namespaces};
use crate::source::{MatchedListing, Source, SourceError, last_attempts};

/// The data that findings are made from.
#[derive(Debug)]
pub struct Inspection {
    /// All configuration.
    pub config: NodeConfig,
    /// The state.
    pub state: StateView,
    /// The source and its answer, or why the source is unknown.
    pub source: Result<(Source, SourceAnswer), CommandError>,
    /// The evidence of the node.
    pub evidence: Evidence,
    /// The addresses of the host itself.
    pub host: HostAddresses,
    /// The executables that the runtime calls.
    pub executables: Executables,
    /// The holder of the lock.
    pub lock_holder: Option<Holder>,
}

/// The addresses of the host itself, as a command that removes them names them: `10.224.0.5/16 dev eth0`.
pub type HostAddresses = BTreeMap<IpAddr, String>;

/// The answer of a source.
#[derive(Debug)]
pub struct SourceAnswer {
    /// The answer, matched with the interfaces of this node.
    pub matched: Result<MatchedListing, SourceError>,
    /// The duration of the query.
    pub took: Duration,
}

impl Inspection {
    /// Collects the data. Takes no lock and changes nothing.
    pub fn gather(node: &Node) -> Inspection {
        let config = NodeConfig::read(node.paths());
        let executables = Executables::look(node.paths(), &config);
        let source = node.source(&config).map(|source| {
            let (matched, took) = node.query_source(&source);
            (source, SourceAnswer { matched, took })
        });
        let mut evidence = progress::capture_snapshot(Vec::new(), &node.context).evidence;
        // Read last, so that it includes what changed meanwhile.
        let state = StateView::load(node);
        note_moved_namespaces(state.ipam().holders(), &mut evidence, node.paths());
        Inspection {
            state,
            source,
            evidence,
            host: read_host_addresses(node),
            executables,
            lock_holder: holder(node),
            config,
        }
    }

    /// The trial of an ADD at this moment. An unknown source counts as one that does not answer.
    pub fn trial<'a>(&'a self, node: &'a Node) -> Trial<'a> {
        let attempts = last_attempts(node.paths(), node.context.boot_id.as_deref());
        let answer = self.source.as_ref().ok().map(|(_, answer)| answer);
        Trial {
            context: &node.context,
            answer: answer.map(|answer| answer.matched.as_ref()),
            doubtful_since: attempts.doubtful_since,
            evidence: &self.evidence,
        }
    }

    /// The answer of the source, if there is one.
    pub fn matched(&self) -> Option<&MatchedListing> {
        self.source.as_ref().ok()?.1.matched.as_ref().ok()
    }
}

/// Reads the addresses of the host; none where the kernel does not answer, or the node is not this one.
fn read_host_addresses(node: &Node) -> HostAddresses {
    let addresses = host_addresses(node.paths()).unwrap_or_default();
    let links = links(node.paths()).unwrap_or_default();
    let name = |found: &HostAddress| {
        let link = links.iter().find(|link| link.index == found.link)?;
        let HostAddress {
            address,
            prefix_len,
            ..
        } = found;
        Some((
            *address,
            format!("{address}/{prefix_len} dev {}", link.name),
        ))
    };
    addresses.iter().filter_map(name).collect()
}
