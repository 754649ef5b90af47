//! The data that `doctor`, `check` and `export` collect from the node.

use std::time::Duration;

use crate::ipam::Evidence;
use crate::ops::node::Node;
use crate::ops::node_config::NodeConfig;
use crate::ops::outcome::CommandError;
use crate::ops::progress;
use crate::ops::state_view::StateView;
use crate::plugin::note_moved_namespaces;
use crate::source::{MatchedListing, Source, SourceError};

/// The data that diagnostics and findings are made from.
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
}

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
            config,
        }
    }

    /// The answer of the source, if there is one.
    pub fn matched(&self) -> Option<&MatchedListing> {
        self.source.as_ref().ok()?.1.matched.as_ref().ok()
    }
}
