//! `metrics`: metrics in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Display;
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
use crate::events::{Count, DURATION_BOUNDS, Durations, Totals};

/// The mode of the file. Collectors usually do not run as root.
pub const MODE: u32 = 0o644;

/// What the metrics of one plugin are made from.
#[derive(Debug, Default)]
pub struct NodeMetrics<'a> {
    /// The name of the plugin.
    pub plugin: &'static str,
    /// The pools, the state and the source.
    pub show: ShowReport,
    /// The counts of all operations.
    pub totals: Totals,
    /// The last check. Only `node-loop` checks.
    pub last_check: Option<&'a CheckReport>,
    /// Whether the installed plugin is this executable. Only `node-loop` watches.
    pub executable_matches: Option<bool>,
}

/// Prints the metrics, or writes them to a file.
///
/// # Errors
/// Nobody but root may read the state, or the file cannot be written.
pub fn run(node: &Node, args: &OutputArgs) -> Result<CommandOutput, CommandError> {
    let text = print(&[NodeMetrics::read(node)?]);
    CommandOutput::to_file_or_stdout(args.output.as_deref(), text, MODE)
}

/// Prints the metrics of these plugins in the order of their names. A metric without values is left out.
pub fn print(plugins: &[NodeMetrics<'_>]) -> String {
    let mut page = Page::default();
    for plugin in plugins {
        page.plugin = plugin.plugin;
        plugin.print(&mut page);
    }
    let metrics = page.metrics.into_values();
    let metrics = metrics.filter(|(_, samples)| !samples.is_empty());
    metrics.flat_map(<[String; 2]>::from).collect()
}

impl NodeMetrics<'_> {
    /// Reads what does not come from a loop.
    ///
    /// # Errors
    /// Nobody but root may read the state, without which zeros would be a lie.
    pub fn read(node: &Node) -> Result<Self, CommandError> {
        Ok(NodeMetrics {
            plugin: node.paths().name(),
            show: show::read(node, &NodeConfig::read(node.paths()))?,
            totals: node.history()?.totals,
            ..NodeMetrics::default()
        })
    }

    fn print(&self, page: &mut Page) {
        let (state, totals) = (&self.show.state, &self.totals);
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
        if let Some(matches) = self.executable_matches {
            page.value(
                "executable_matches",
                "1 if the installed plugin is the executable of node-loop; 0 if it is another one, or missing.",
                &u8::from(matches),
            );
        }
        if let Some(check) = self.last_check {
            print_check(page, check);
        }
        print_operations(page, totals);
        if state.is_readable {
            print_pools(page, &self.show.pools);
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
            "1 if the state can be used, or is not there yet; 0 if neither the state nor its backup can be used.",
            &u8::from(state.is_readable && state.condition != "lost"),
        );
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
        &check.status(Severity::Warning),
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
    for Count { verb, code, count } in &totals.operations {
        let result = if *code == 0 { "ok" } else { "error" };
        let sum = sums.entry((verb.as_str(), result)).or_default();
        *sum = sum.saturating_add(*count);
        if *code != 0 {
            page.sample(&[("verb", verb), ("code", &code.to_string())], count);
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
    for pool in pools {
        // Two spaces may have the same pool.
        let labels = [
            ("space", &*pool.space),
            ("pool", &*pool.count.subnet),
            ("interface", &*pool.interface),
        ];
        // A subnet that the source no longer lists must not pass for a full one.
        if pool.is_listed {
            print_addresses_to_allocate(page, pool, labels);
        }
        print_held_addresses(page, pool, labels);
    }
}

fn print_addresses_to_allocate(page: &mut Page, pool: &PoolReport, labels: [(&str, &str); 3]) {
    let count = &pool.count;
    for (name, help, figure) in [
        ("", "All addresses of the pool.", pool.size),
        ("free_", "Addresses free to allocate.", count.free),
        (
            "cooldown_",
            "Addresses in cooldown, allocated only when no other is free.",
            count.cooldown,
        ),
    ] {
        page.begin(&format!("pool_{name}addresses"), help);
        page.sample(&labels, &figure);
    }
    page.begin(
        "pool_withheld_addresses",
        "Free addresses that are not allocated: the configuration excludes them, the host has them, or a released sandbox that could not be removed still has them.",
    );
    let [space, subnet, interface] = labels;
    for (reason, count) in [
        ("excluded", count.excluded),
        ("host", count.on_host),
        ("sandbox", count.withheld),
    ] {
        page.sample(&[space, subnet, interface, ("reason", reason)], &count);
    }
}

fn print_held_addresses(page: &mut Page, pool: &PoolReport, labels: [(&str, &str); 3]) {
    let count = &pool.count;
    let unknown = pool.holders.iter().filter(|h| h.holder.is_unknown());
    let unlisted_for = pool.holders.iter().filter_map(|h| h.unlisted_seconds);
    for (name, help, figure) in [
        ("held_", "Held addresses.", count.held),
        (
            "suspect_",
            "Held addresses whose holders the last reclaim, or an ADD that found the pool empty, marked as suspects.",
            count.suspect,
        ),
        (
            "unknown_holder_",
            "Held addresses whose holders are not known.",
            unknown.count(),
        ),
        (
            "unlisted_",
            "Held addresses that the source no longer lists, so that Azure does not deliver to their pods.",
            unlisted_for.count(),
        ),
    ] {
        page.begin(&format!("pool_{name}addresses"), help);
        page.sample(&labels, &figure);
    }
}

/// The text format of Prometheus. A collector refuses a metric that is there twice, so the samples of all plugins are together.
#[derive(Default)]
struct Page {
    /// HELP and TYPE of each metric, and its samples, by name.
    metrics: BTreeMap<String, (String, String)>,
    /// The full name of the current metric.
    name: String,
    /// The plugin whose samples are printed.
    plugin: &'static str,
}

impl Page {
    /// Begins a metric.
    fn begin(&mut self, name: &str, help: &str) {
        let kind = match name.rsplit_once('_') {
            Some((_, "total")) => "counter",
            Some(("operation_duration", _)) => "histogram",
            _ => "gauge",
        };
        self.name = format!("azure_vnet_ipam_{name}");
        let name = &self.name;
        let (heading, _) = self.metrics.entry(name.clone()).or_default();
        *heading = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
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
        let (_, samples) = self.metrics.entry(self.name.clone()).or_default();
        *samples += &format!("{}{suffix}", self.name);
        let plugin = [("plugin", self.plugin)];
        for (n, (label, text)) in plugin.iter().chain(labels).enumerate() {
            samples.push(if n == 0 { '{' } else { ',' });
            *samples += label;
            *samples += "=\"";
            for c in text.chars() {
                match c {
                    '\n' => *samples += "\\n",
                    '"' | '\\' => samples.extend(['\\', c]),
                    c => samples.push(c),
                }
            }
            samples.push('"');
        }
        *samples += &format!("}} {value}\n");
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
            is_listed: true,
            size: 20,
            held_percent: 0,
            leaked: 0,
            unjudged: 3,
            count: PoolCount {
                subnet: "10.1.0.0/16".into(),
                held: 3,
                suspect: 1,
                on_host: 2,
                excluded: 4,
                cooldown: 5,
                withheld: 7,
                held_elsewhere: 0,
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
            plugin: NAME,
            show: show(vec![pool("local")]),
            totals: totals(),
            last_check: Some(&check),
            executable_matches: Some(true),
        };
        let text = print(&[metrics]);
        let lines: Vec<_> = text.lines().collect();
        for line in [
            "executable_matches{} 1",
            r#"last_check_findings{kind="leak",severity="warning"} 2"#,
            "last_check_status{} 1",
            "last_check_timestamp_seconds{} 1764000000",
            "lock_wait_seconds_total{} 1.500000",
            r#"operation_duration_seconds_bucket{verb="DEL",le="0.005"} 3"#,
            r#"operation_duration_seconds_bucket{verb="DEL",le="30"} 3"#,
            r#"operation_duration_seconds_bucket{verb="DEL",le="+Inf"} 7"#,
            r#"operation_duration_seconds_sum{verb="DEL"} 61.000007"#,
            r#"operation_duration_seconds_count{verb="DEL"} 7"#,
            r#"operation_errors_total{verb="ADD",code="11"} 1"#,
            r#"operations_total{verb="ADD",result="error"} 3"#,
            r#"operations_total{verb="reclaim",result="ok"} 1"#,
            r#"pool_addresses{space="local",pool="10.1.0.0/16",interface="eth0"} 20"#,
            r#"pool_withheld_addresses{space="local",pool="10.1.0.0/16",interface="eth0",reason="host"} 2"#,
            "quarantine_remaining_seconds{} 29",
            "reclaimed_addresses_total{} 8",
            "state_readable{} 1",
        ] {
            let line = line.replacen('{', r#"{plugin="azure-vnet-ipam","#, 1);
            let line = format!("azure_vnet_ipam_{line}").replace(",}", "}");
            assert!(lines.contains(&&*line), "{line}\n{text}");
        }
        assert_eq!(text.matches("le=\"").count(), 2 * 14);
    }

    #[test]
    fn unlisted_pool_is_not_reported_as_full() {
        let enlarged = PoolReport {
            is_listed: false,
            ..pool("local")
        };
        let mut page = Page::default();
        print_pools(&mut page, &[enlarged]);
        let names: Vec<_> = page.metrics.into_keys().collect();
        let expected = ["held", "suspect", "unknown_holder", "unlisted"]
            .map(|name| format!("azure_vnet_ipam_pool_{name}_addresses"));
        assert_eq!(names, expected);
    }

    #[test]
    fn every_metric_has_one_heading_before_its_samples() {
        let check = last_check();
        let metrics = |plugin| NodeMetrics {
            plugin,
            show: show(vec![pool("local"), pool("other")]),
            totals: totals(),
            last_check: Some(&check),
            executable_matches: Some(false),
        };
        let text = print(&[metrics(NAME), metrics(NAME_V6)]);
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
                names.push(name);
                continue;
            }
            assert!(line.starts_with(names.last().unwrap()), "{line}");
        }
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.begin("x", "X.");
        page.sample(&[("a", "1\\2\"3\n4"), ("b", "")], &5);
        let line = &page.metrics["azure_vnet_ipam_x"].1;
        let expected = r#"azure_vnet_ipam_x{plugin="",a="1\\2\"3\n4",b=""} 5"#;
        assert_eq!(line.trim_end(), expected);
    }
}
