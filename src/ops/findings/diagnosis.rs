//! Everything that `check`, `doctor`, `export` and `metrics` know about the health of this node: one list of findings.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::finding::{self, Finding, FindingKind, Severity};
use super::inspection::Inspection;
use super::predictions::{Prediction, explain_failures, predict};
use super::visibility::Visibility;
use super::{
    conflists, disk, executables, files, host, lock, other_ipam, pools, records, source, state,
};
use crate::cni::CniVersion;
use crate::ipam::{Evidence, EvidenceList, Ipam, Place, Routes};
use crate::ops::lease::held_records;
use crate::ops::node::Node;
use crate::ops::screen::pluralize;
use crate::ops::state_view::StateView;
use crate::state::FORMAT;

/// The health of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// The time, RFC 3339.
    pub time: String,
    /// All findings, the worst first.
    pub findings: Vec<Finding>,
    /// What could not be checked.
    pub not_seen: Vec<String>,
    /// The number of leases that were compared with the node.
    pub compared: usize,
    /// What an ADD of each network configuration would come to.
    pub adds: Vec<Prediction>,
}

impl Diagnosis {
    /// Looks at the node, the state, the configuration and the source. Takes no lock and changes nothing.
    pub fn make(node: &Node) -> Diagnosis {
        // What is released while the node is looked at would seem to be in use.
        let before = StateView::load(node);
        Diagnosis::of_inspection(node, &before, &Inspection::gather(node))
    }

    /// Makes all findings from an inspection. `before` is the state as it was before it.
    pub fn of_inspection(node: &Node, before: &StateView, inspection: &Inspection) -> Diagnosis {
        let mut visibility = Visibility::of_process();
        let mut findings = examine(node, inspection, &mut visibility);
        let trial = inspection.trial(node);
        let next = trial.reconcile();
        let healed = match &next.outcome {
            Ok(_) => next.state.ipam(),
            // The next ADD would leave the state as it is.
            Err(_) => inspection.state.ipam(),
        };
        findings.extend(records_now_and_next(node, before, inspection, healed));
        let adds = predict(node, inspection, &trial);
        findings.extend(explain_failures(&adds, &findings));
        findings.extend(visibility.finding());
        finding::sort(&mut findings);
        let mut not_seen = not_seen(&inspection.evidence, &visibility);
        not_seen.extend(
            visibility
                .hidden()
                .map(|what| format!("{what} (run it with sudo)")),
        );
        Diagnosis {
            time: node.now.wall_time(node.now.boot),
            findings,
            not_seen,
            compared: held_records(inspection.state.ipam()).count(),
            adds: adds.into_iter().map(|add| add.prediction).collect(),
        }
    }

    /// The exit status: 0 nothing or notes, 1 warnings or errors, 2 it could not look everywhere and found nothing.
    pub fn status(&self) -> u8 {
        match (
            self.findings.iter().any(Finding::is_problem),
            self.not_seen.is_empty(),
        ) {
            (true, _) => 1,
            (false, false) => 2,
            (false, true) => 0,
        }
    }

    /// The health in one line: how many problems of which kind, and whether new pods get addresses.
    pub fn summary(&self) -> String {
        let mut counts: Vec<(FindingKind, usize)> = Vec::new();
        for finding in self.findings.iter().filter(|f| f.is_problem()) {
            match counts.iter_mut().find(|(kind, _)| *kind == finding.kind) {
                Some((_, count)) => *count += 1,
                None => counts.push((finding.kind, 1)),
            }
        }
        let problems: Vec<String> = counts
            .into_iter()
            .map(|(kind, count)| pluralize(count, kind.nouns().0, kind.nouns().1))
            .collect();
        let problems = match (problems.is_empty(), self.not_seen.is_empty()) {
            (true, true) => "Nothing is wrong".to_owned(),
            (true, false) => "Nothing wrong was found in what could be checked".to_owned(),
            (false, _) => problems.join(", "),
        };
        format!("{problems}; {}.", self.describe_adds())
    }

    /// Whether new pods get addresses.
    fn describe_adds(&self) -> String {
        let failing: Vec<&Prediction> = self.adds.iter().filter(|add| !add.succeeds).collect();
        let Some(first) = failing.first() else {
            return "new pods get addresses".to_owned();
        };
        let which = match failing.len() == self.adds.len() {
            true => "new pods".to_owned(),
            false => {
                let networks: BTreeSet<_> = failing.iter().map(|add| &*add.network).collect();
                let networks: Vec<_> = networks.into_iter().collect();
                format!("new pods of network {}", networks.join(", "))
            }
        };
        match (first.waits, first.is_known) {
            (_, false) => format!("whether {which} get addresses cannot be seen without root"),
            (true, _) => format!("{which} get no address yet"),
            (false, _) => format!("{which} get no address"),
        }
    }
}

/// Examines everything but the records.
fn examine(node: &Node, inspection: &Inspection, visibility: &mut Visibility) -> Vec<Finding> {
    let paths = node.paths();
    let (config, ipam) = (&inspection.config, inspection.state.ipam());
    let known = pools::known_pools(ipam, inspection.matched());
    let mut found = vec![version(node)];
    found.extend(state::examine(node, &inspection.state, visibility));
    found.extend(disk::examine(node, visibility));
    found.extend(lock::examine(
        node,
        inspection.lock_holder.as_ref(),
        visibility,
    ));
    found.extend(files::examine(node, config, visibility));
    found.extend(source::examine(node, inspection, visibility));
    found.extend(pools::examine(
        &with_present_marks(node, inspection),
        inspection.matched(),
        &config.conf,
        node.now.boot,
        &node.program,
    ));
    found.extend(conflists::examine(paths, config, visibility));
    found.extend(executables::examine(&inspection.executables));
    found.extend(other_ipam::examine(paths, config, &known, visibility));
    found.extend(host::examine(&inspection.evidence.kernel, visibility));
    found
}

/// The addresses, with a mark at those that the host has now. The state has the marks of the last ADD.
fn with_present_marks(node: &Node, inspection: &Inspection) -> Ipam {
    let mut ipam = inspection.state.ipam().clone();
    let evidence = &inspection.evidence;
    if let (true, Routes::Read(routes)) = (node.paths().is_this_host(), &evidence.routes) {
        let configured = evidence.kernel.configured.iter();
        let on_host = configured.filter(|(_, place)| **place == Place::Host);
        let on_host = on_host
            .map(|(address, _)| *address)
            .chain(routes.iter().copied());
        ipam.mark_on_host(&on_host.collect());
    }
    ipam
}

/// The versions of the program, of CNI and of the state format.
fn version(node: &Node) -> Finding {
    let text = format_args!(
        "{} {}, for CNI {}; state format {FORMAT}",
        node.paths().name(),
        env!("CARGO_PKG_VERSION"),
        CniVersion::texts().join(", ")
    );
    Finding::ok(FindingKind::Version, &text)
}

/// The findings about records. What the next ADD puts right by itself is only a note. `healed` is what that ADD would leave.
fn records_now_and_next(
    node: &Node,
    before: &StateView,
    inspection: &Inspection,
    healed: &Ipam,
) -> Vec<Finding> {
    let ours = inspection.config.ours(node.paths().name());
    let names = ours.filter_map(|(file, _)| file.conflist.as_ref().ok()?.name.clone());
    let networks: BTreeSet<_> = names.collect();
    let now = inspection.state.ipam();
    let context = records::NodeView {
        evidence: &inspection.evidence,
        host: &inspection.host,
        networks: &networks,
        now: &node.now,
        program: &node.program,
        state: node.paths().state(),
        lock: node.paths().lock_file(),
    };
    let next = records::findings((before.ipam(), healed), &context);
    if is_same(now, healed) {
        return next;
    }
    let stays = |finding: &Finding| {
        let is_it = |f: &Finding| (f.kind, &f.subject) == (finding.kind, &finding.subject);
        next.iter().any(is_it)
    };
    let healing = records::findings((before.ipam(), now), &context);
    let healing = healing.into_iter().filter(|finding| !stays(finding));
    let healing: Vec<_> = healing.map(as_healing).collect();
    next.into_iter().chain(healing).collect()
}

/// A problem that the next ADD puts right.
fn as_healing(finding: Finding) -> Finding {
    Finding {
        severity: Severity::Note,
        cause: "the next ADD puts this right, without harm to any pod",
        remedy: "no action needed".to_owned(),
        commands: Vec::new(),
        ..finding
    }
}

/// Whether two states hold the same, and have the same free addresses.
fn is_same(one: &Ipam, other: &Ipam) -> bool {
    let addresses = |ipam: &Ipam| -> BTreeSet<(IpAddr, bool)> {
        let records = ipam.pools().flat_map(|(_, _, pool)| &pool.records);
        records.map(|r| (r.address(), r.held().is_some())).collect()
    };
    addresses(one) == addresses(other)
}

/// The evidence that could not be checked.
fn not_seen(evidence: &Evidence, visibility: &Visibility) -> Vec<String> {
    let mut all = Vec::new();
    // A user other than root is told once, with everything else that is hidden.
    if let Some(why) = evidence
        .kernel
        .incomplete
        .as_ref()
        .filter(|_| visibility.is_root)
    {
        all.push(format!("some network namespaces ({why})"));
    }
    for (name, list) in evidence.lists() {
        match list {
            EvidenceList::Unreadable(why) => all.push(format!("{name} ({why})")),
            EvidenceList::Read { doubtful, .. } if !doubtful.is_empty() => {
                let parts: Vec<_> = doubtful.iter().map(|part| &*part.name).collect();
                all.push(format!("parts of {name} ({})", parts.join(", ")));
            }
            EvidenceList::Read { .. } | EvidenceList::Absent => {}
        }
    }
    if let Routes::Unreadable(why) = &evidence.routes {
        all.push(format!("the routes of the host ({why})"));
    }
    all
}
