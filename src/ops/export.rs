//! `export`: one document with everything that a support case needs.

use std::net::IpAddr;
use std::path::Path;

use serde::Serialize;
use serde_json::value::RawValue;

use super::cli::OutputArgs;
use super::findings::check::CheckReport;
use super::findings::inspection::Inspection;
use super::node::Node;
use super::node_config::NodeConfig;
use super::outcome::{CommandError, CommandOutput, json};
use super::show::SourceReport;
use super::state_view::StateReport;
use super::tree::Tree;
use crate::cni::CniVersion;
use crate::events::{History, OperationRecord, Totals};
use crate::host::{ReadOutcome, read_bounded, read_no_link, read_text};
use crate::ipam::{Evidence, EvidenceList, Ipam, Routes};
use crate::source::{WIRE_SERVER, last_attempts};
use crate::state::FORMAT;

/// The mode of the file: readable by its owner only.
const MODE: u32 = 0o600;

/// The document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExportReport {
    /// The time, RFC 3339.
    time: String,
    versions: Versions,
    boot_id: Option<String>,
    /// The state file as it is; as text where it is not JSON, and `null` where it is not there.
    state: Option<Box<RawValue>>,
    condition: StateReport,
    source: SourceReport,
    check: CheckReport,
    evidence: EvidenceReport,
    configuration: Vec<ConfReport>,
    events: Vec<OperationRecord>,
    totals: Totals,
    /// The last lines of the log.
    log: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    program: &'static str,
    state_format: u64,
    cni: Vec<&'static str>,
    /// The kernel's version.
    kernel: String,
}

/// The evidence about addresses of the pools.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EvidenceReport {
    /// Why the scan was not complete, if it was not.
    incomplete: Option<String>,
    network_namespaces: usize,
    /// The configured addresses and their places.
    configured: Vec<Configured>,
    /// Addresses that the host has a route to.
    routes: Vec<IpAddr>,
    lists: Vec<EvidenceListReport>,
}

#[derive(Serialize)]
struct Configured {
    address: IpAddr,
    places: Vec<String>,
}

/// A list of another program: the CNI result cache or azure-vnet's state.
#[derive(Serialize)]
struct EvidenceListReport {
    name: &'static str,
    /// Why it cannot be read, if it cannot.
    unreadable: Option<String>,
    entries: usize,
    /// Those of them whose network namespace or link exists.
    standing: usize,
    /// Parts that cannot be parsed.
    doubtful: Vec<String>,
}

/// A file in /etc/cni/net.d.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfReport {
    file: String,
    error: Option<String>,
    name: Option<String>,
    cni_version: Option<String>,
    plugins: Vec<PluginReport>,
}

/// A plugin of a configuration, without what does not concern this plugin.
#[derive(Serialize)]
struct PluginReport {
    #[serde(rename = "type")]
    kind: String,
    /// The `ipam` of a plugin that uses this one; only the type for others.
    ipam: Option<Tree>,
}

/// Runs the command.
pub fn run(node: &Node, args: &OutputArgs) -> Result<CommandOutput, CommandError> {
    let inspection = Inspection::gather(node);
    inspection.state.require_permission()?;
    let attempts = last_attempts(node.paths(), node.context.boot_id.as_deref());
    let History { records, totals } = node.history()?;
    let export = ExportReport {
        time: node.now.wall_time(node.now.boot),
        versions: Versions {
            program: env!("CARGO_PKG_VERSION"),
            state_format: FORMAT,
            cni: CniVersion::texts().to_vec(),
            kernel: read_text(Path::new("/proc/version"))
                .map_or_else(|_| String::new(), |text| text.trim().to_owned()),
        },
        boot_id: node.context.boot_id.clone(),
        state: state(node),
        source: SourceReport::new(attempts, &node.now),
        check: CheckReport::new(node, &inspection),
        evidence: EvidenceReport::new(inspection.state.ipam(), &inspection.evidence),
        configuration: configuration(&inspection.config, node.paths().name()),
        condition: inspection.state.report,
        events: records,
        totals,
        log: log(node),
    };
    let text = without_credentials(&json(&export)?);
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
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(LINES)..);
    let last = last.unwrap_or_default().iter();
    last.map(|line| (*line).to_owned()).collect()
}

impl EvidenceReport {
    fn new(ipam: &Ipam, evidence: &Evidence) -> EvidenceReport {
        let nets: Vec<_> = ipam
            .pools()
            .filter_map(|(_, key, pool)| pool.net(key))
            .collect();
        let ours = |address: &&IpAddr| nets.iter().any(|net| net.contains(*address));
        let kernel = &evidence.kernel;
        let places = |address: &IpAddr| Configured {
            address: *address,
            places: kernel.places(*address).map(ToString::to_string).collect(),
        };
        let configured = kernel.configured.keys().filter(ours);
        EvidenceReport {
            incomplete: kernel.incomplete.clone(),
            network_namespaces: kernel.namespaces.len(),
            configured: configured.map(places).collect(),
            routes: match &evidence.routes {
                Routes::Read(routes) => routes.iter().filter(ours).copied().collect(),
                Routes::Unreadable(_) => Vec::new(),
            },
            lists: evidence
                .lists()
                .into_iter()
                .filter_map(|(name, list)| EvidenceListReport::new(name, list))
                .collect(),
        }
    }
}

impl EvidenceListReport {
    fn new(name: &'static str, list: &EvidenceList) -> Option<EvidenceListReport> {
        let mut report = EvidenceListReport {
            name,
            unreadable: None,
            entries: list.entries().len(),
            standing: list.entries().iter().filter(|e| e.is_live).count(),
            doubtful: Vec::new(),
        };
        match list {
            EvidenceList::Absent => return None,
            EvidenceList::Read { doubtful, .. } => {
                report.doubtful = doubtful.iter().map(|part| part.name.clone()).collect();
            }
            EvidenceList::Unreadable(why) => report.unreadable = Some(why.clone()),
        }
        Some(report)
    }
}

/// The network configurations, reduced to what concerns this plugin, as other parts may contain credentials.
fn configuration(config: &NodeConfig, name: &str) -> Vec<ConfReport> {
    let shown = |file: &super::node_config::ConfFile| {
        let list = file.conflist.as_ref().ok();
        let plugins = list.into_iter().flat_map(|list| &list.plugins);
        ConfReport {
            file: file.path.display().to_string(),
            error: file.conflist.as_ref().err().cloned(),
            name: list.and_then(|list| list.name.clone()),
            cni_version: list.and_then(|list| list.cni_version.clone()),
            plugins: plugins
                .map(|plugin| PluginReport {
                    kind: plugin.kind.clone(),
                    ipam: match plugin.uses_ipam(name) {
                        true => plugin.netconf.get("ipam").map(known_keys),
                        false => plugin
                            .ipam_kind
                            .clone()
                            .map(|kind| Tree::Object(vec![("type".to_owned(), Tree::Text(kind))])),
                    },
                })
                .collect(),
        }
    };
    config.files.iter().map(shown).collect()
}

/// The keys that this plugin reads, without credentials in URLs.
fn known_keys(ipam: &Tree) -> Tree {
    let Tree::Object(members) = ipam else {
        return Tree::default();
    };
    let known = members.iter();
    let known = known.filter(|(key, _)| crate::cni::is_ipam_key(key));
    Tree::Object(known.cloned().collect())
}

/// Removes user names, passwords and queries from URLs. The query of the wire server is not a secret and stays.
fn without_credentials(text: &str) -> String {
    let ends =
        |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | '`' | ')' | ',' | ';');
    let mut replace_control = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        let (url, following) = after.split_at(after.find(ends).unwrap_or(after.len()));
        let (url, query) = url.split_once('?').unwrap_or((url, ""));
        let (authority, path) = url.split_at(url.find('/').unwrap_or(url.len()));
        replace_control.push_str(before);
        replace_control.push_str("://");
        match authority.rsplit_once('@') {
            Some((_, host)) => replace_control.push_str(&format!("***@{host}")),
            None => replace_control.push_str(authority),
        }
        replace_control.push_str(path);
        let wires = WIRE_SERVER.split_once('?').map(|(_, query)| query);
        if Some(query.trim_end_matches([':', '.'])) == wires {
            replace_control.push_str(&format!("?{query}"));
        } else if !query.is_empty() {
            replace_control.push_str("?***");
        }
        rest = following;
    }
    replace_control.push_str(rest);
    replace_control
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_left_out_of_urls() {
        for (text, replace_control) in [
            ("http://user:secret@host/x?a=b", "http://***@host/x?***"),
            (
                "curl 'http://168.63.129.16/machine/plugins?comp=nmagent&type=getinterfaceinfov1'.",
                "curl 'http://168.63.129.16/machine/plugins?comp=nmagent&type=getinterfaceinfov1'.",
            ),
            ("http://h/x?sig=s3cret: timeout", "http://h/x?*** timeout"),
            ("http://host/x@y", "http://host/x@y"),
            (
                "a http://t:k@h b http://h:1/ c",
                "a http://***@h b http://h:1/ c",
            ),
            ("no url @ all", "no url @ all"),
            ("http://a@b@c", "http://***@c"),
        ] {
            assert_eq!(without_credentials(text), replace_control);
        }
    }

    #[test]
    fn a_configuration_is_reduced_to_what_concerns_us() {
        let json = br#"{"cniVersion": "1.0.0", "name": "n", "plugins": [
            {"type": "calico", "token": "hush", "ipam": {"type": "calico-ipam", "token": "hush"}},
            {"type": "bridge", "ipam": {"type": "azure-vnet-ipam", "token": "hush",
                "queryUrl": "http://u:hush@h/"}}]}"#;
        let config = NodeConfig {
            files: vec![super::super::node_config::ConfFile {
                path: "/etc/cni/net.d/10.conflist".into(),
                conflist: super::super::node_config::parse(json),
            }],
            ..NodeConfig::default()
        };
        let shown = configuration(&config, "azure-vnet-ipam");
        let text = without_credentials(&serde_json::to_string(&shown).unwrap());
        assert!(!text.contains("hush"), "{text}");
        assert!(
            text.contains("calico-ipam") && text.contains("http://***@h/"),
            "{text}"
        );
    }
}
