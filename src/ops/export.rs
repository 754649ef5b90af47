//! `export`: one document with everything that a support case needs.

use std::net::IpAddr;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json, to_value};

use super::cli::OutputArgs;
use super::conf_file::Plugin;
use super::findings::check::CheckReport;
use super::findings::inspection::Inspection;
use super::node::Node;
use super::node_config::NodeConfig;
use super::outcome::{self, CommandError, CommandOutput};
use super::show::SourceReport;
use super::state_view::StateReport;
use super::tree::Tree;
use crate::cni::{CniVersion, without_secrets};
use crate::events::{History, OperationRecord, Totals};
use crate::host::{ReadOutcome, read_bounded, read_no_link, read_text};
use crate::ipam::{Evidence, EvidenceList, Ipam, Routes};
use crate::source::last_attempts;
use crate::state::FORMAT;

/// The mode of the file: readable by its owner only.
const MODE: u32 = 0o600;

/// The document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExportReport {
    /// The time, RFC 3339.
    time: String,
    versions: Value,
    boot_id: Option<String>,
    /// The state file as it is; as text where it is not JSON, and `null` where it is not there.
    state: Option<Box<RawValue>>,
    condition: StateReport,
    source: SourceReport,
    check: CheckReport,
    /// The evidence about addresses of the pools.
    evidence: Value,
    /// The files in /etc/cni/net.d.
    configuration: Vec<Value>,
    events: Vec<OperationRecord>,
    totals: Totals,
    /// The last lines of the log.
    log: Vec<String>,
}

/// Runs the command.
pub fn run(node: &Node, args: &OutputArgs) -> Result<CommandOutput, CommandError> {
    let inspection = Inspection::gather(node);
    inspection.state.require_permission()?;
    let attempts = last_attempts(node.paths(), node.context.boot_id.as_deref());
    let History {
        records, totals, ..
    } = node.history()?;
    let export = ExportReport {
        time: node.now.wall_time(node.now.boot),
        versions: json!({
            "program": env!("CARGO_PKG_VERSION"),
            "stateFormat": FORMAT,
            "cni": CniVersion::texts(),
            "kernel": read_text(&node.paths().kernel_version()).unwrap_or_default().trim(),
        }),
        boot_id: node.context.boot_id.clone(),
        state: state(node),
        source: SourceReport::new(
            attempts,
            inspection.state.state.document.refreshed.as_ref(),
            &node.now,
        ),
        check: CheckReport::new(node, &inspection),
        evidence: describe_evidence(inspection.state.ipam(), &inspection.evidence),
        configuration: configuration(&inspection.config, node.paths().name()),
        condition: inspection.state.report,
        events: records,
        totals,
        log: log(node),
    };
    let text = without_secrets(&outcome::json(&export)?);
    CommandOutput::to_file_or_stdout(args.output.as_deref(), text, MODE)
}

/// The state file as JSON, or as a string if it is not JSON.
fn state(node: &Node) -> Option<Box<RawValue>> {
    /// The length limit of a corrupt file.
    const LIMIT: usize = 64 << 10;
    const WHOLE: usize = 64 << 20;
    let Ok(ReadOutcome::Read(bytes)) = read_bounded(&node.paths().state(), WHOLE) else {
        return None;
    };
    let text = String::from_utf8_lossy(&bytes);
    if let Ok(raw) = RawValue::from_string(text.trim().to_owned()) {
        return Some(raw);
    }
    let some: String = text.chars().take(LIMIT).collect();
    RawValue::from_string(serde_json::to_string(&some).ok()?).ok()
}

/// The last lines of the log.
fn log(node: &Node) -> Vec<String> {
    const LINES: usize = 200;
    const LIMIT: usize = 8 << 20;
    let Ok(ReadOutcome::Read(bytes)) = read_no_link(&node.paths().log(), LIMIT) else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&bytes);
    let earlier = text.lines().count().saturating_sub(LINES);
    text.lines().skip(earlier).map(str::to_owned).collect()
}

/// The evidence about addresses of the pools.
fn describe_evidence(ipam: &Ipam, evidence: &Evidence) -> Value {
    let nets = ipam.pools().filter_map(|(_, key, pool)| pool.net(key));
    let nets: Vec<_> = nets.collect();
    let is_ours = |address: &&IpAddr| nets.iter().any(|net| net.contains(*address));
    let kernel = &evidence.kernel;
    let configured = kernel.configured.keys().filter(is_ours).map(|address| {
        let places: Vec<_> = kernel.places(*address).map(ToString::to_string).collect();
        json!({ "address": address, "places": places })
    });
    let routes: Vec<&IpAddr> = match &evidence.routes {
        Routes::Read(routes) => routes.iter().filter(is_ours).collect(),
        Routes::Unreadable(_) => Vec::new(),
    };
    let lists = evidence.lists();
    let lists = lists.iter().filter_map(|(name, list)| {
        let (unreadable, doubtful): (_, Vec<&str>) = match list {
            EvidenceList::Absent => return None,
            EvidenceList::Unreadable(why) => (Some(why), Vec::new()),
            EvidenceList::Read { doubtful, .. } => {
                (None, doubtful.iter().map(|part| &*part.name).collect())
            }
        };
        let entries = list.entries();
        Some(json!({
            "name": name,
            "unreadable": unreadable,
            "entries": entries.len(),
            "live": entries.iter().filter(|e| e.is_live).count(),
            "doubtful": doubtful,
        }))
    });
    json!({
        "incomplete": kernel.incomplete,
        "networkNamespaces": kernel.namespaces.len(),
        "configured": configured.collect::<Vec<_>>(),
        "routes": routes,
        "lists": lists.collect::<Vec<_>>(),
    })
}

/// The network configurations, reduced to what concerns this plugin, as other parts may contain credentials.
fn configuration(config: &NodeConfig, name: &str) -> Vec<Value> {
    let plugin = |plugin: &Plugin| {
        let ipam = plugin.netconf.get("ipam");
        let printed = if plugin.uses_ipam(name) {
            // A number may be too large for a value.
            ipam.and_then(|ipam| to_value(known_keys(ipam)).ok())
        } else {
            plugin.ipam_kind().map(|kind| json!({ "type": kind }))
        };
        json!({ "type": plugin.kind(), "ipam": printed })
    };
    let files = config.files.iter().map(|file| {
        json!({
            "file": file.path.display().to_string(),
            "error": file.error,
            "name": file.name,
            "cniVersion": file.cni_version,
            "plugins": file.plugins.iter().map(plugin).collect::<Vec<_>>(),
        })
    });
    files.collect()
}

/// The keys that this plugin reads, without credentials in URLs.
fn known_keys(ipam: &Tree) -> Tree {
    let known = ipam
        .members()
        .filter(|(key, _)| crate::cni::is_ipam_key(key))
        .map(|(key, value)| (key.clone(), value.clone()));
    Tree::Object(known.collect())
}
