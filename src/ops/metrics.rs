//! `metrics`: metrics in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::mem;
use std::path::Path;
use std::time::Duration;

use super::cli::OutputArgs;
use super::finding::{FindingKind, Severity};
use super::findings::check::CheckReport;
use super::node::Node;
use super::node_config::NodeConfig;
use super::outcome::{CommandError, CommandOutput};
use super::show::{self, PoolReport, ShowReport};
use super::version;
use crate::cni::Verb;
use crate::events::{DURATION_BOUNDS, Durations, Totals};

/// What the metrics are made from.
#[derive(Debug, Default)]
pub struct NodeMetrics<'a> {
    /// The pools, the state and the source.
    pub show: ShowReport,
    /// The counts of all operations.
    pub totals: Totals,
    /// The last check. Only `node-loop` checks.
    pub last_check: Option<&'a CheckReport>,
    /// Of each plugin that is watched: its name, and whether it is this executable. Only `node-loop` watches.
    pub installed: &'a [(&'static str, bool)],
}

/// Prints the metrics, or writes them to a file.
///
/// # Errors
/// Nobody but root may read the state, or the file cannot be written.
pub fn run(node: &Node, args: &OutputArgs) -> Result<CommandOutput, CommandError> {
    write(node, None, &[], args.output.as_deref())
}

/// Prints the metrics, or writes them to a file.
///
/// # Errors
/// Nobody but root may read the state, without which zeros would be a lie; or the file cannot be written.
pub fn write(
    node: &Node,
    last_check: Option<&CheckReport>,
    installed: &[(&'static str, bool)],
    output: Option<&Path>,
) -> Result<CommandOutput, CommandError> {
    /// Collectors usually do not run as root.
    const MODE: u32 = 0o644;
    let metrics = NodeMetrics {
        show: show::read(node, &NodeConfig::read(node.paths()))?,
        totals: node.history()?.totals,
        last_check,
        installed,
    };
    let text = metrics.print(node.paths().name());
    CommandOutput::to_file_or_stdout(output, text, MODE)
}

impl NodeMetrics<'_> {
    /// Prints the metrics in the order of their names. A metric without values is left out.
    pub fn print(&self, program: &str) -> String {
        let (state, totals) = (&self.show.state, &self.totals);
        let mut page = Page::new(program);
        page.begin(
            "build_info",
            "The version of the plugin, and what it was built from.",
        );
        let features = version::FEATURES.join(",");
        page.sample(
            &[
                ("version", version::VERSION),
                ("commit", version::COMMIT),
                ("target", version::TARGET),
                ("features", &features),
            ],
            &1,
        );
        page.begin(
            "executable_matches",
            "1 if the installed plugin is the executable that watches it; 0 if it is another one, or missing.",
        );
        for (name, is_ours) in self.installed {
            page.sample(&[("name", name)], &u8::from(*is_ours));
        }
        if let Some(check) = self.last_check {
            print_check(&mut page, check);
        }
        print_operations(&mut page, totals);
        if state.is_readable {
            print_pools(&mut page, &self.show.pools);
            page.value(
                "quarantine_remaining_seconds",
                "Remaining quarantine after a lost state; 0 otherwise.",
                &state.quarantine_seconds.unwrap_or(0),
            );
        }
        page.value(
            "reclaimed_addresses_total",
            "Addresses reclaimed from dead holders.",
            &totals.reclaimed,
        );
        if let Some(seconds) = self.show.source.answered_seconds {
            page.value(
                "refresh_age_seconds",
                "Age of the last answer of the source that was merged into the state.",
                &seconds,
            );
        }
        page.value(
            "refresh_failures_total",
            "Operations whose query of the source failed.",
            &totals.refresh_failures,
        );
        page.value(
            "state_readable",
            "1 if the state is readable, or not there yet; 0 if it is corrupt, unreadable or lost.",
            &u8::from(state.is_readable && state.condition != "lost"),
        );
        page.text
    }
}

/// Prints the last check: counts, and no names of pods.
fn print_check(page: &mut Page, check: &CheckReport) {
    /// Counted even where there are none, so that the first one shows as an increase.
    const ALWAYS: [(FindingKind, Severity); 3] = [
        (FindingKind::Duplicate, Severity::Error),
        (FindingKind::Leak, Severity::Warning),
        (FindingKind::Stray, Severity::Error),
    ];
    let name = |kind: FindingKind, severity: Severity| (kind.name(), severity.name());
    let mut counts = BTreeMap::from(ALWAYS.map(|(kind, severity)| (name(kind, severity), 0)));
    let findings = check.findings.iter();
    for finding in findings.filter(|f| f.severity != Severity::Ok) {
        *counts
            .entry(name(finding.kind, finding.severity))
            .or_default() += 1;
    }
    page.begin(
        "last_check_findings",
        "Findings of the last check of node-loop, by kind and severity.",
    );
    for ((kind, severity), count) in counts {
        page.sample(&[("kind", kind), ("severity", severity)], &count);
    }
    page.value(
        "last_check_status",
        "Exit status of the last check of node-loop: 0 nothing is wrong, 1 problems, 2 not everything could be examined.",
        &check.status(),
    );
    page.value(
        "last_check_timestamp_seconds",
        "Time of the last check of node-loop, in seconds since 1970.",
        &check.seconds,
    );
}

/// Prints the counts of operations. They have two labels whose values are known in advance, so that every figure is there from
/// the start, and no code has to be known to tell failures. Codes are counted apart: as a third label they would split what is
/// mostly added up, and a figure that first appears with a failure shows no increase.
fn print_operations(page: &mut Page, totals: &Totals) {
    /// The verbs that are counted from the start, in alphabetical order. STATUS is not counted: runtimes ask for it every few
    /// seconds.
    const VERBS: [Verb; 4] = [Verb::Add, Verb::Check, Verb::Del, Verb::Gc];
    page.value(
        "lock_wait_seconds_total",
        "Time that operations waited for the lock on the state.",
        &seconds(totals.lock_microseconds),
    );
    page.value(
        "lock_waits_total",
        "Operations that waited for the lock on the state, for a millisecond at least.",
        &totals.lock_waits,
    );
    print_durations(page, &totals.durations());
    let none = |verb: Verb| ["error", "ok"].map(|result| ((verb.as_str(), result), 0_u64));
    let mut sums: BTreeMap<_, _> = VERBS.into_iter().flat_map(none).collect();
    page.begin(
        "operation_errors_total",
        "Failed operations, by error code.",
    );
    for (verb, code, count) in totals.operations() {
        let result = if code == 0 { "ok" } else { "error" };
        let sum = sums.entry((verb, result)).or_default();
        *sum = sum.saturating_add(count);
        if code != 0 {
            page.sample(&[("verb", verb), ("code", &code.to_string())], &count);
        }
    }
    page.begin(
        "operations_total",
        "Operations except STATUS and VERSION, by result.",
    );
    for ((verb, result), count) in sums {
        page.sample(&[("verb", verb), ("result", result)], &count);
    }
}

fn print_durations(page: &mut Page, all: &[Durations]) {
    page.begin(
        "operation_duration_seconds",
        "Duration of ADD and DEL, also of failed ones, with the query of the source and the wait for the lock.",
    );
    for durations in all {
        let verb = ("verb", durations.verb.as_str());
        let counts = durations.cumulative();
        let bounds = DURATION_BOUNDS.map(|bound| {
            let text = seconds(bound);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        });
        let bounds = bounds.into_iter().chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(counts) {
            page.part("_bucket", &[verb, ("le", &bound)], &count);
        }
        page.part("_sum", &[verb], &seconds(durations.microseconds));
        page.part("_count", &[verb], &counts.last().copied().unwrap_or(0));
    }
}

/// Microseconds as seconds.
fn seconds(microseconds: u64) -> String {
    let duration = Duration::from_micros(microseconds);
    format!("{}.{:06}", duration.as_secs(), duration.subsec_micros())
}

fn print_pools(page: &mut Page, pools: &[PoolReport]) {
    type Figure = (&'static str, &'static str, fn(&PoolReport) -> usize);
    const FIGURES: [Figure; 6] = [
        ("pool_addresses", "All addresses of the pool.", |p| p.size),
        (
            "pool_cooldown_addresses",
            "Addresses in cooldown, allocated only when no other is free.",
            |p| p.count.cooldown,
        ),
        ("pool_free_addresses", "Addresses free to allocate.", |p| {
            p.count.free
        }),
        ("pool_held_addresses", "Held addresses.", |p| p.count.held),
        (
            "pool_suspect_addresses",
            "Held addresses whose holders are suspected to be dead.",
            |p| p.count.suspect,
        ),
        (
            "pool_unknown_owner_addresses",
            "Held addresses whose holders are not known.",
            |p| p.holders.iter().filter(|h| h.container.is_none()).count(),
        ),
    ];
    for (name, help, figure) in FIGURES {
        page.begin(name, help);
        for pool in pools {
            page.sample(&labels(pool), &figure(pool));
        }
    }
    page.begin(
        "pool_withheld_addresses",
        "Free addresses that are not allocated: the configuration excludes them, or the host has them.",
    );
    for pool in pools {
        let [space, subnet, interface] = labels(pool);
        let count = &pool.count;
        for (reason, count) in [("excluded", count.excluded), ("host", count.on_host)] {
            page.sample(&[space, subnet, interface, ("reason", reason)], &count);
        }
    }
}

/// The labels of a pool, with the space, as two spaces may have the same pool.
fn labels(pool: &PoolReport) -> [(&'static str, &str); 3] {
    [
        ("space", &pool.space),
        ("pool", &pool.count.subnet),
        ("interface", &pool.interface),
    ]
}

/// The text format of Prometheus.
#[derive(Default)]
struct Page {
    /// The text printed so far.
    text: String,
    /// The prefix of every name.
    prefix: String,
    /// The full name of the current metric.
    name: String,
    /// HELP and TYPE of the current metric, until its first sample is printed.
    heading: String,
}

impl Page {
    /// Creates an empty page. The names begin with that of the program, as one collector may read the metrics of both names, and
    /// refuses what is there twice.
    fn new(program: &str) -> Page {
        Page {
            prefix: program.replace('-', "_"),
            ..Page::default()
        }
    }

    /// Begins a metric.
    fn begin(&mut self, name: &str, help: &str) {
        let kind = match name.rsplit_once('_') {
            Some((_, "total")) => "counter",
            Some(("operation_duration", _)) => "histogram",
            _ => "gauge",
        };
        self.name = format!("{}_{name}", self.prefix);
        let name = &self.name;
        self.heading = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Prints a metric that has one value.
    fn value(&mut self, name: &str, help: &str, value: &dyn Display) {
        self.begin(name, help);
        self.sample(&[], value);
    }

    /// Prints a value of the current metric.
    fn sample(&mut self, labels: &[(&str, &str)], value: &dyn Display) {
        self.part("", labels, value);
    }

    /// Prints a value of one part of the current metric, such as a bucket of a histogram.
    fn part(&mut self, suffix: &str, labels: &[(&str, &str)], value: &dyn Display) {
        self.text += &mem::take(&mut self.heading);
        self.text += &self.name;
        self.text += suffix;
        for (n, (label, text)) in labels.iter().enumerate() {
            self.text.push(if n == 0 { '{' } else { ',' });
            self.text += label;
            self.text += "=\"";
            for c in text.chars() {
                match c {
                    '\n' => self.text += "\\n",
                    '"' | '\\' => self.text.extend(['\\', c]),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        self.text += &format!(" {value}\n");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cni::{NAME, NAME_V6};
    use crate::ipam::PoolCount;
    use crate::ops::finding::Finding;
    use crate::ops::show::SourceReport;
    use crate::ops::state_view::StateReport;

    fn pool(space: &str) -> PoolReport {
        PoolReport {
            space: space.into(),
            interface: "eth0".into(),
            gateway: None,
            size: 20,
            held_percent: 0,
            count: PoolCount {
                subnet: "10.1.0.0/16".into(),
                held: 3,
                suspect: 1,
                on_host: 2,
                excluded: 4,
                cooldown: 5,
                free: 6,
            },
            holders: Vec::new(),
        }
    }

    fn show(pools: Vec<PoolReport>) -> ShowReport {
        ShowReport {
            state: StateReport {
                is_readable: true,
                quarantine_seconds: Some(29),
                ..StateReport::default()
            },
            source: SourceReport {
                answered_seconds: Some(12),
                ..SourceReport::default()
            },
            pools,
            ..ShowReport::default()
        }
    }

    fn last_check() -> CheckReport {
        let leak = Finding::warning(FindingKind::Leak, &"", &"");
        CheckReport {
            seconds: 1_764_000_000,
            findings: vec![leak.clone(), leak, Finding::ok(FindingKind::Log, &"")],
            ..CheckReport::default()
        }
    }

    fn totals() -> Totals {
        let json = r#"{"operations": [{"verb": "ADD", "code": 0, "count": 7}, {"verb": "ADD", "code": 5, "count": 2}, {"verb": "ADD", "code": 11, "count": 1}, {"verb": "reclaim", "code": 0, "count": 1}],
            "durations": [{"verb": "DEL", "buckets": [1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4], "microseconds": 61000007}],
            "reclaimed": 8, "refreshFailures": 9, "lockWaits": 3, "lockMicroseconds": 1500000}"#;
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn all_metrics_are_printed() {
        let check = last_check();
        let metrics = NodeMetrics {
            show: show(vec![pool("local")]),
            totals: totals(),
            last_check: Some(&check),
            installed: &[(NAME, true), (NAME_V6, false)],
        };
        let text = metrics.print(NAME);
        let lines: Vec<_> = text.lines().collect();
        for line in [
            r#"executable_matches{name="azure-vnet-ipam"} 1"#,
            r#"executable_matches{name="azure-vnet-ipamv6"} 0"#,
            r#"last_check_findings{kind="duplicate",severity="error"} 0"#,
            r#"last_check_findings{kind="leak",severity="warning"} 2"#,
            "last_check_status 1",
            "last_check_timestamp_seconds 1764000000",
            "lock_wait_seconds_total 1.500000",
            "lock_waits_total 3",
            r#"operation_duration_seconds_bucket{verb="ADD",le="+Inf"} 0"#,
            r#"operation_duration_seconds_bucket{verb="DEL",le="0.0025"} 1"#,
            r#"operation_duration_seconds_bucket{verb="DEL",le="0.005"} 3"#,
            r#"operation_duration_seconds_bucket{verb="DEL",le="30"} 3"#,
            r#"operation_duration_seconds_bucket{verb="DEL",le="+Inf"} 7"#,
            r#"operation_duration_seconds_sum{verb="DEL"} 61.000007"#,
            r#"operation_duration_seconds_count{verb="DEL"} 7"#,
            r#"operation_errors_total{verb="ADD",code="11"} 1"#,
            r#"operations_total{verb="ADD",result="error"} 3"#,
            r#"operations_total{verb="ADD",result="ok"} 7"#,
            r#"operations_total{verb="GC",result="ok"} 0"#,
            r#"operations_total{verb="reclaim",result="ok"} 1"#,
            r#"pool_addresses{space="local",pool="10.1.0.0/16",interface="eth0"} 20"#,
            r#"pool_cooldown_addresses{space="local",pool="10.1.0.0/16",interface="eth0"} 5"#,
            r#"pool_withheld_addresses{space="local",pool="10.1.0.0/16",interface="eth0",reason="host"} 2"#,
            "quarantine_remaining_seconds 29",
            "reclaimed_addresses_total 8",
            "refresh_age_seconds 12",
            "refresh_failures_total 9",
            "state_readable 1",
        ] {
            let line = format!("azure_vnet_ipam_{line}");
            assert!(lines.contains(&&*line), "{line}\n{text}");
        }
        assert_eq!(text.matches("le=\"").count(), 2 * 14);
    }

    #[test]
    fn every_metric_has_one_heading_before_its_samples() {
        let check = last_check();
        let metrics = NodeMetrics {
            show: show(vec![pool("local"), pool("other")]),
            totals: totals(),
            last_check: Some(&check),
            installed: &[(NAME, true)],
        };
        let text = metrics.print(NAME_V6);
        let mut names = Vec::new();
        let mut seen = BTreeSet::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let series = line.rsplit_once(' ').unwrap().0;
            assert!(seen.insert(series), "{line}");
            if let Some(help) = line.strip_prefix("# HELP ") {
                let name = help.split(' ').next().unwrap();
                let kind = lines.next().unwrap();
                assert!(kind.starts_with(&format!("# TYPE {name} ")), "{kind}");
                assert_eq!(kind.ends_with(" counter"), name.ends_with("_total"));
                assert_eq!(kind.ends_with(" histogram"), name.contains("_duration_"));
                assert!(lines.peek().is_some_and(|l| l.starts_with(name)), "{name}");
                // A collector may read the metrics of both names of the program.
                assert!(name.starts_with("azure_vnet_ipamv6_"), "{name}");
                names.push(name);
                continue;
            }
            assert!(line.starts_with(names.last().unwrap()), "{line}");
        }
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::new(NAME);
        page.begin("x", "X.");
        page.sample(&[("a", "1\\2\"3\n4"), ("b", "")], &5);
        let line = page.text.lines().last().unwrap();
        assert_eq!(line, r#"azure_vnet_ipam_x{a="1\\2\"3\n4",b=""} 5"#);
    }
}
