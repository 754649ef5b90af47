//! `check`: the health of this node as one list of findings, the worst first.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use rustix::process::geteuid;
use serde::Serialize;

use super::inspection::Inspection;
use super::prediction::{Prediction, explain_failures, predict};
use super::{configuration, executables, host_links, host_routes, records, source, storage};
use crate::cni::CniVersion;
use crate::ipam::{EvidenceList, Ipam, Kernel, Record, Routes};
use crate::ops::cli::CheckArgs;
use crate::ops::finding::{self, Finding, FindingKind, Severity, Visibility, have_one_cause};
use crate::ops::held::held_records;
use crate::ops::node::{Node, Now};
use crate::ops::outcome::{CommandError, CommandOutput};
use crate::ops::screen::{Screen, Tint, first_few, format_age, join_first, pluralize};
use crate::source::MatchedListing;
use crate::state::FORMAT;

/// The report of `check`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckReport {
    /// The time, RFC 3339.
    pub time: String,
    /// The time in seconds since 1970.
    #[serde(skip)]
    pub seconds: i64,
    /// The first line of the screen.
    pub summary: String,
    /// The findings, the worst first. Those that are as they should be come last, if they were asked for.
    pub findings: Vec<Finding>,
    /// What could not be checked.
    pub not_seen: Vec<String>,
    /// The number of holders that were compared with the node.
    pub compared: usize,
    /// What an ADD of each network configuration would come to.
    pub adds: Vec<Prediction>,
}

/// Runs the command.
///
/// # Errors
/// The report cannot be printed as JSON.
pub fn run(node: &Node, args: &CheckArgs) -> Result<CommandOutput, CommandError> {
    let inspection = Inspection::gather(node);
    let mut report = CheckReport::new(node, &inspection);
    if let Some(least) = args.severity {
        report.findings.retain(|finding| finding.severity <= least);
        report.sum_up();
    }
    let status = report.status(args.severity.unwrap_or(Severity::Warning));
    if args.quiet {
        let text = String::new();
        return Ok(CommandOutput { text, status });
    }
    if !args.all {
        report.findings.retain(|f| f.severity != Severity::Ok);
    }
    let print = || report.print(&node.screen, &node.program, args.all);
    args.format.output(status, &report, print)
}

impl CheckReport {
    /// Judges what was found on the node.
    pub fn new(node: &Node, inspection: &Inspection) -> CheckReport {
        let (paths, ipam) = (node.paths(), inspection.state.ipam());
        if !inspection.config.is_in_use(paths) {
            return CheckReport {
                time: node.now.wall_time(node.now.boot),
                seconds: node.now.wall,
                summary: format!("Nothing is wrong; {} is not in use.", paths.name()),
                ..CheckReport::default()
            };
        }
        let mut visibility = Visibility::of_process();
        let mut findings = examine(node, inspection, &mut visibility);
        let trial = inspection.trial(node);
        let next = trial.reconcile();
        let healed = match &next.outcome {
            Ok(_) => next.state.ipam(),
            // The next ADD would leave the state as it is.
            Err(_) => ipam,
        };
        if !inspection.is_in_other_network {
            findings.extend(records_now_and_next(node, inspection, healed));
        }
        let adds = predict(node, inspection, &trial, &visibility);
        let new: Vec<IpNet> = adds.iter().flat_map(|add| add.addresses.clone()).collect();
        findings.extend(host_links::missing_ipv6(paths, inspection, &new));
        findings.extend(host_routes::diverted_new_pods(paths, inspection, &new));
        findings.extend(explain_failures(&adds, &findings));
        remove_needless_sudo(&mut findings);
        let not_seen = not_seen(node, inspection, &visibility);
        let mut report = CheckReport::of_findings(findings, not_seen, ipam, adds, &node.now);
        if inspection.is_in_other_network {
            report.compared = 0;
        }
        report
    }

    /// Sorts and counts the findings.
    pub fn of_findings(
        findings: Vec<Finding>,
        not_seen: Vec<String>,
        ipam: &Ipam,
        adds: Vec<Prediction>,
        now: &Now,
    ) -> CheckReport {
        let mut report = CheckReport {
            time: now.wall_time(now.boot),
            seconds: now.wall,
            summary: String::new(),
            findings,
            not_seen,
            compared: held_records(ipam).count(),
            adds,
        };
        report.sum_up();
        report
    }

    fn sum_up(&mut self) {
        finding::sort(&mut self.findings);
        self.summary = summarize(&self.findings, self.not_seen.is_empty(), &self.adds);
    }

    /// The exit status: 0 nothing, 1 findings at least as bad as `least`, 2 it could not look everywhere and found nothing.
    pub fn status(&self, least: Severity) -> u8 {
        let has_problem = self
            .findings
            .iter()
            .any(|finding| finding.severity <= least);
        match (has_problem, self.not_seen.is_empty()) {
            (true, _) => 1,
            (false, false) => 2,
            (false, true) => 0,
        }
    }

    /// Prints the report as text. Commands begin with `program`. With `all`, nothing is left out.
    pub fn print(&self, screen: &Screen, program: &str, all: bool) -> String {
        let worst = self.findings.first().map_or(Severity::Ok, |f| f.severity);
        let tint = match worst {
            Severity::Note => Tint::Good,
            worst => worst.tint(),
        };
        let summary = screen.paragraph("", 0, &self.summary);
        let mut text = format!("{}\n", screen.tint(tint, summary.trim_end()));
        let in_order = self.findings.partition_point(|f| f.severity < Severity::Ok);
        let (problems, in_order) = self.findings.split_at(in_order);
        // A screen has 60 lines.
        let (detail, most_lines) = if all {
            (Detail::All, usize::MAX)
        } else {
            (Detail::Usual, 52)
        };
        let (mut lines, mut left_out) = (0, 0);
        for group in problems.chunk_by(have_one_cause) {
            let mut printed = print_group(group, screen, program, detail);
            if lines + printed.lines().count() >= most_lines {
                printed = print_group(group, screen, program, Detail::Brief);
            }
            lines += printed.lines().count() + 1;
            if lines <= most_lines {
                text.push_str(&format!("\n{printed}"));
            } else {
                left_out += group.len();
            }
        }
        if left_out > 0 {
            let more = pluralize(left_out, "more finding", "more findings");
            let more = format!("And {more}: `{program} check --all` prints all.");
            text.push_str(&format!("\n{}", screen.paragraph("", 0, &more)));
        }
        text.push('\n');
        for finding in in_order {
            text.push_str(&print_head(finding, &finding.text, screen));
        }
        if !in_order.is_empty() {
            text.push('\n');
        }
        for why in &self.not_seen {
            text.push_str(&screen.paragraph("", 0, &format!("Not checked: {why}.")));
        }
        let holders = pluralize(self.compared, "holder", "holders");
        text.push_str(&format!("{holders} compared with the node.\n"));
        text
    }
}

/// Removes `sudo` from all commands if this is root, who needs none, and may not have it.
fn remove_needless_sudo(findings: &mut [Finding]) {
    if geteuid().is_root() {
        let commands = findings.iter_mut().flat_map(|f| &mut f.commands);
        commands.for_each(|command| *command = command.replace("sudo ", ""));
    }
}

/// Prints severity and kind of a finding, and a text beside them.
fn print_head(finding: &Finding, text: &str, screen: &Screen) -> String {
    /// The column of the text.
    const HEAD: usize = 20;
    let severity = finding.severity.name();
    let head = format!("{severity:9}{} ", finding.kind.name());
    let plain = screen.paragraph(&head, HEAD, text);
    // Colours are added last, as their codes take no columns.
    let rest = plain.strip_prefix(severity).unwrap_or_default();
    screen.tint(finding.severity.tint(), severity) + rest
}

/// How much of a group is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Brief,
    Usual,
    All,
}

/// Prints findings of one cause: each of them, the evidence that they have in common, and what to do.
fn print_group(group: &[Finding], screen: &Screen, program: &str, detail: Detail) -> String {
    const INDENT: usize = 4;
    let Some((first, others)) = group.split_first() else {
        return String::new();
    };
    let (most_members, most_evidence, most_commands) = match detail {
        Detail::Brief => (0, 0, 28),
        Detail::Usual => (4, 6, 28),
        Detail::All => (usize::MAX, usize::MAX, usize::MAX),
    };
    let (subject, description) = if others.is_empty() {
        (first.subject.clone(), &*first.text)
    } else {
        (pluralize(group.len(), "address", "addresses"), first.cause)
    };
    let mut text = print_head(first, &subject, screen);
    text.push_str(&screen.paragraph("", INDENT, description));
    let is_shared = |line: &String| group.iter().all(|f| f.evidence.contains(line));
    let mut evidence = Vec::new();
    if !others.is_empty() && detail != Detail::Brief {
        let members = group.iter().map(|f| describe_member(f, is_shared));
        let more = |n| format!("and {n} more: `{program} check --all` prints all");
        evidence = first_few(members, most_members, more);
    }
    let shared = first
        .evidence
        .iter()
        .filter(|line| is_shared(line))
        .cloned();
    evidence.extend(shared.take(most_evidence));
    for line in evidence {
        text.push_str(&screen.paragraph("    -", INDENT + 2, &line));
    }
    if !first.remedy.is_empty() {
        text.push_str(&screen.paragraph("    ->", INDENT + 3, &first.remedy));
    }
    let more = |n| format!("# and {n} more: {program} check --all");
    for command in first_few(commands(group), most_commands, more) {
        text.push_str(&format!("{:indent$}{command}\n", "", indent = INDENT + 3));
    }
    text
}

/// One finding of a group, in a line. `is_shared` says which evidence all of them have.
fn describe_member(finding: &Finding, is_shared: impl Fn(&String) -> bool) -> String {
    match &finding.holder {
        Some(held) => {
            let age = format_age(Duration::from_secs(held.age_seconds));
            format!("{}: {}, {age}", finding.subject, held.describe_holder())
        }
        None => match finding.evidence.iter().find(|line| !is_shared(line)) {
            Some(evidence) => format!("{}: {evidence}", finding.subject),
            None => finding.subject.clone(),
        },
    }
}

/// The commands of all findings, each once. What several findings end with, such as a reclaim, must run after all that is before it.
fn commands(group: &[Finding]) -> Vec<String> {
    let mut later = BTreeSet::new();
    let backwards = group.iter().rev().flat_map(|f| f.commands.iter().rev());
    let mut commands: Vec<String> = backwards.filter(|c| later.insert(*c)).cloned().collect();
    commands.reverse();
    commands
}

/// The health in one line: how many problems of which kind, and whether new pods get addresses.
fn summarize(findings: &[Finding], is_all_seen: bool, adds: &[Prediction]) -> String {
    let problems: Vec<&Finding> = findings.iter().filter(|f| f.is_problem()).collect();
    let mut kinds: Vec<FindingKind> = problems.iter().map(|f| f.kind).collect();
    // The findings are in the order of their severity, so that a kind may come again.
    let mut seen = BTreeSet::new();
    kinds.retain(|kind| seen.insert(*kind));
    let count = |kind: FindingKind| problems.iter().filter(|f| f.kind == kind).count();
    let counts: Vec<String> = kinds.iter().map(|kind| kind.count(count(*kind))).collect();
    let problems = match (counts.is_empty(), is_all_seen) {
        (true, true) => "Nothing is wrong".to_owned(),
        (true, false) => "Nothing wrong was found in what could be checked".to_owned(),
        (false, _) => counts.join(", "),
    };
    format!("{problems}; {}.", describe_adds(adds))
}

/// Whether new pods get addresses.
fn describe_adds(adds: &[Prediction]) -> String {
    let other: Vec<&Prediction> = adds
        .iter()
        .filter(|add| add.succeeds != Some(true))
        .collect();
    // What fails for certain comes first.
    let failing = other.iter().find(|add| add.succeeds.is_some());
    let Some(first) = failing.or(other.first()) else {
        return if adds.is_empty() {
            "no network configuration uses this plugin".to_owned()
        } else {
            "new pods get addresses".to_owned()
        };
    };
    let mut which = "new pods".to_owned();
    if other.len() < adds.len() {
        let networks: BTreeSet<&str> = other.iter().map(|add| &*add.network).collect();
        let networks: Vec<&str> = networks.into_iter().collect();
        which.push_str(&format!(" of network {}", networks.join(", ")));
    }
    match (&first.unknown, first.waits) {
        (Some(unknown), _) => format!("whether {which} get addresses {unknown}"),
        (None, true) => format!("{which} get no address yet"),
        (None, false) => format!("{which} get no address"),
    }
}

/// Examines everything but the records.
fn examine(node: &Node, inspection: &Inspection, visibility: &mut Visibility) -> Vec<Finding> {
    let mut found = vec![version(node)];
    found.extend(storage::examine(node, inspection, visibility));
    if !inspection.is_in_other_network {
        found.extend(source::examine(node, inspection, visibility));
        let of_links = host_links::examine(node, inspection);
        found.extend(host_routes::examine(node.paths(), inspection, &of_links));
        found.extend(of_links);
    }
    found.extend(configuration::examine(node, inspection, visibility));
    found.extend(executables::examine(&inspection.executables));
    found.extend(namespaces(&inspection.evidence.kernel, visibility));
    found
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

/// How many network namespaces were looked into, if that was all of them.
fn namespaces(kernel: &Kernel, visibility: &mut Visibility) -> Option<Finding> {
    if kernel.incomplete.is_some() {
        // For root, the report says why, with everything else that could not be seen.
        visibility.hides("network namespaces of pods", "permission denied");
        return None;
    }
    let count = kernel.namespaces.len();
    let text = format_args!("{count} network namespaces were examined");
    Some(Finding::ok(FindingKind::Host, &text))
}

/// The findings about records. What the next ADD puts right is only a note. `healed` is what that ADD would leave.
fn records_now_and_next(node: &Node, inspection: &Inspection, healed: &Ipam) -> Vec<Finding> {
    let ours = inspection.config.ours(node.paths().name());
    let networks = ours.map(|(_, plugin)| (plugin.network().to_owned(), plugin));
    let (before, now) = (&inspection.held_before, inspection.state.ipam());
    let connecting = host_links::connecting_addresses(node.paths(), inspection);
    let matched = inspection.matched();
    let view = records::NodeView {
        evidence: &inspection.evidence,
        host: &inspection.host,
        routes_of_pods: &inspection.routes_of_pods,
        withheld: &node.taken(inspection.state.ipam()).withheld,
        exclude: &inspection.config.conf.exclude,
        last_holders: &inspection.last_holders,
        networks: &networks.collect(),
        of_missing_interfaces: &matched
            .map(MatchedListing::addresses_of_missing_interfaces)
            .unwrap_or_default(),
        connecting: &connecting
            .iter()
            .map(|(entry, _)| entry.net.addr())
            .collect(),
        now: &node.now,
        program: &node.program,
        state: node.paths().state(),
        lock: node.paths().lock_file(),
    };
    let next = records::findings((before, healed), &view);
    if is_same(now, healed) {
        return next;
    }
    let present = records::findings((before, now), &view);
    now_and_next(present, next, &orphaned_subjects(now, healed))
}

/// Joins the findings about the present state and about the one that the next ADD leaves. `orphaned` are the addresses of which that ADD
/// does not keep the holder.
fn now_and_next(
    now: Vec<Finding>,
    next: Vec<Finding>,
    orphaned: &BTreeSet<String>,
) -> Vec<Finding> {
    let key = |finding: &Finding| (finding.kind, finding.subject.clone());
    let present: BTreeSet<_> = now.iter().map(key).collect();
    let staying: BTreeSet<_> = next.iter().map(key).collect();
    let is_orphaned = |finding: &Finding| orphaned.contains(&finding.subject);
    let healing = now
        .into_iter()
        .filter(|finding| !staying.contains(&key(finding)))
        .map(|finding| {
            let is_orphaned = is_orphaned(&finding);
            healed_by_next_add(finding, is_orphaned)
        });
    let is_leaked =
        |finding: &Finding| present.contains(&(FindingKind::Leak, finding.subject.clone()));
    let coming = next.into_iter().filter_map(|finding| {
        if finding.kind != FindingKind::UnknownHolder || !is_orphaned(&finding) {
            return Some(finding);
        }
        // Its holder is known until that ADD. A leak says what comes.
        (!is_leaked(&finding)).then(|| orphaned_by_next_add(finding))
    });
    coming.chain(healing).collect()
}

/// What is said of a finding that is not about the state which the next ADD leaves.
fn healed_by_next_add(finding: Finding, is_orphaned: bool) -> Finding {
    const HEALED: &str = "the next ADD puts this right, without harm to any pod";
    const ORPHANED_LEAK: &str = "the next ADD keeps it held for an unknown holder, as an old copy of the state may name a wrong one";
    let (cause, remedy) = match (finding.kind, is_orphaned) {
        // That ADD holds the address, and the entry stays left over.
        (FindingKind::Cache, _) => return finding,
        (FindingKind::Leak, true) => (
            ORPHANED_LEAK,
            "no action needed: `check` reports it as leaked again after that ADD, and reclaim frees it about 15 minutes later",
        ),
        _ => (HEALED, "no action needed"),
    };
    Finding {
        severity: Severity::Note,
        cause,
        text: cause.to_owned(),
        remedy: remedy.to_owned(),
        commands: Vec::new(),
        ..finding
    }
}

/// What is said of an address of which the next ADD does not keep the holder.
fn orphaned_by_next_add(finding: Finding) -> Finding {
    const ORPHANED: &str =
        "the next ADD holds it for an unknown holder: it is in use, or in an old copy of the state";
    Finding {
        cause: ORPHANED,
        text: ORPHANED.to_owned(),
        ..finding
    }
}

/// The addresses that the next ADD holds for an unknown holder, and that the present state does not.
fn orphaned_subjects(now: &Ipam, healed: &Ipam) -> BTreeSet<String> {
    let unknown = |ipam: &Ipam| -> BTreeSet<String> {
        let held = held_records(ipam).filter(|(_, _, _, held)| held.holder.is_unknown());
        held.map(|(_, _, record, _)| record.address().to_string())
            .collect()
    };
    &unknown(healed) - &unknown(now)
}

/// Whether two states hold the same for the same containers, and have the same free addresses.
fn is_same(one: &Ipam, other: &Ipam) -> bool {
    let containers = |ipam: &Ipam| -> BTreeSet<(IpAddr, Option<String>)> {
        let records = ipam.pools().flat_map(|(_, _, pool)| &pool.records);
        let container = |record: &Record| {
            let held = record.held()?;
            Some(held.holder.container_id().to_owned())
        };
        records.map(|r| (r.address(), container(r))).collect()
    };
    containers(one) == containers(other)
}

/// What could not be checked. For a user other than root, one entry says what is hidden.
fn not_seen(node: &Node, inspection: &Inspection, visibility: &Visibility) -> Vec<String> {
    let (evidence, is_elsewhere) = (&inspection.evidence, inspection.is_in_other_network);
    let mut all = Vec::new();
    if is_elsewhere {
        let plugin = node.paths().plugin_folder().join(node.paths().name());
        all.push(format!(
            "the network of the node and the holders of addresses (this process is in another network namespace than the node); on the node: `nsenter -t 1 -m -n {} check`",
            plugin.display()
        ));
    } else if let (true, Some(why)) = (visibility.is_root, &evidence.kernel.incomplete) {
        all.push(format!(
            "some network namespaces ({why}); run it as root on the node itself, not in a container"
        ));
    }
    for (name, list) in evidence.lists() {
        match list {
            EvidenceList::Unreadable(why) => all.push(format!("{name} ({why})")),
            EvidenceList::Read { doubtful, .. } => {
                // Others are damaged, which is a finding.
                let half_written = doubtful
                    .iter()
                    .filter(|part| storage::may_be_half_written(part, node));
                let parts = join_first(half_written.map(|part| part.name.clone()));
                if !parts.is_empty() {
                    all.push(format!("parts of {name} ({parts})"));
                }
            }
            EvidenceList::Absent => {}
        }
    }
    if let (false, Routes::Unreadable(why)) = (is_elsewhere, &evidence.routes) {
        all.push(format!("the routes of the host ({why})"));
    }
    let not_mounted = visibility.not_mounted.iter();
    all.extend(not_mounted.map(|path| format!("{path}, which this container does not mount")));
    let hidden = visibility.hidden();
    all.extend(hidden.map(|what| format!("{what} (run it with sudo)")));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Screen = Screen {
        width: Some(60),
        colours: false,
    };

    fn leak(address: &str, evidence: &[&str], commands: &[&str]) -> Finding {
        Finding {
            cause: "dead",
            ..Finding::warning(FindingKind::Leak, &"", &"free it")
                .about(address)
                .with_evidence(evidence.iter().map(|e| (*e).to_owned()).collect())
                .with_commands(commands.iter().map(|c| (*c).to_owned()))
        }
    }

    fn unrouted(address: &str, evidence: &str) -> Finding {
        Finding {
            kind: FindingKind::Unrouted,
            ..leak(address, &[evidence], &[])
        }
    }

    #[test]
    fn findings_of_one_cause_are_one_group() {
        let alone = Finding::error(FindingKind::Disk, &"", &"");
        let findings = [
            alone.clone(),
            alone,
            leak("10.1.0.5", &["gone", "of 5"], &["reclaim"]),
            leak("10.1.0.6", &["gone", "of 6"], &["reclaim"]),
            // What is to be done differs.
            Finding {
                remedy: "wait".to_owned(),
                ..leak("10.1.0.7", &["gone"], &[])
            },
            // The routes differ that packets take.
            unrouted("10.1.0.8", "by tun0"),
            unrouted("10.1.0.9", "by tun1"),
        ];
        let groups: Vec<_> = findings.chunk_by(have_one_cause).collect();
        assert_eq!(
            groups.iter().map(|g| g.len()).collect::<Vec<_>>(),
            [1, 1, 2, 1, 1, 1]
        );
        let coloured = Screen {
            colours: true,
            ..NARROW
        };
        let text = print_group(groups[0], &coloured, "", Detail::Usual);
        assert!(text.starts_with("\x1b[31merror\x1b[0m    disk\n"), "{text}");
        let text = print_group(groups[2], &NARROW, "", Detail::Usual);
        assert!(text.contains(
            "2 addresses\n    dead\n    - 10.1.0.5: of 5\n    - 10.1.0.6: of 6\n    - gone\n    -> "
        ));
    }

    #[test]
    fn the_verdict_names_networks_where_only_some_fail() {
        let add = |network: &str, succeeds| Prediction {
            network: network.to_owned(),
            succeeds: Some(succeeds),
            ..Prediction::default()
        };
        let adds = [add("b", false), add("a", true)];
        assert_eq!(describe_adds(&adds), "new pods of network b get no address");
    }

    #[test]
    fn commands_are_in_the_order_in_which_they_must_run() {
        let routes = [
            leak("", &[], &["route del 5", "reclaim"]),
            leak("", &[], &["route del 6", "reclaim"]),
        ];
        assert_eq!(commands(&routes), ["route del 5", "route del 6", "reclaim"]);
        let strays = [
            leak("", &[], &["truncate", "mv"]),
            leak("", &[], &["truncate", "mv"]),
        ];
        assert_eq!(commands(&strays), ["truncate", "mv"]);
        let many: Vec<_> = (0..60)
            .map(|n| leak("", &[], &[&format!("del {n}")]))
            .collect();
        let text = print_group(&many, &NARROW, "ipam", Detail::Usual);
        assert!(
            text.ends_with("   del 27\n       # and 32 more: ipam check --all\n"),
            "{text}"
        );
    }
}
