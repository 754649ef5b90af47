//! `metrics`: metrics in the text format of Prometheus.

use std::fmt::Display;
use std::mem;
use std::time::Duration;

use super::build_info;
use super::cli::OutputArgs;
use super::node::Node;
use super::node_config::NodeConfig;
use super::outcome::{CommandError, CommandOutput};
use super::state_view::StateView;
use crate::cni::Verb;
use crate::events::Totals;
use crate::ipam::{Ipam, Moment, PoolCount};
use crate::source::last_attempts;

/// The mode of the file: collectors usually do not run as root.
const MODE: u32 = 0o644;

/// In alphabetical order: the verbs whose figures are there before anything was counted, so that the first failure shows as
/// an increase. STATUS is not counted: runtimes ask for it every few seconds.
const VERBS: [Verb; 4] = [Verb::Add, Verb::Check, Verb::Del, Verb::Gc];

/// The values that the metrics are made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeMetrics {
    /// The values of the state; `None` when it cannot be read.
    pub state: Option<StateMetrics>,
    /// The counts of all operations.
    pub totals: Totals,
    /// How long ago the source's last answer was merged, when one was in this boot.
    pub answer_age: Option<Duration>,
}

/// The values of the state. A missing state has no pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateMetrics {
    /// The pools.
    pub pools: Vec<PoolMetrics>,
    /// The rest of the quarantine; zero outside of one.
    pub quarantine: Duration,
}

/// The values of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolMetrics {
    /// The address space.
    pub space: String,
    /// The interface of the host; empty when unknown.
    pub interface: String,
    /// The subnet, and the number of addresses in each use.
    pub count: PoolCount,
}

/// Prints the metrics, or writes them to a file.
///
/// # Errors
/// Nobody but root may read the state, or the file cannot be written.
pub fn run(node: &Node, args: &OutputArgs) -> Result<CommandOutput, CommandError> {
    let text = print(&NodeMetrics::collect(node)?, node.paths().name());
    CommandOutput::to_file_or_stdout(args.output.as_deref(), text, MODE)
}

impl NodeMetrics {
    /// Collects the values of the node.
    ///
    /// # Errors
    /// Nobody but root may read the state. Then the operations cannot be read either, and zeros would be a lie.
    fn collect(node: &Node) -> Result<NodeMetrics, CommandError> {
        let (paths, boot_id) = (node.paths(), node.context.boot_id.as_deref());
        let view = StateView::read(node)?;
        let state = view.report.condition.is_readable().then(|| {
            let conf = NodeConfig::read(paths).conf;
            let ipam = view.ipam();
            let counts = ipam.counts(conf.cooldown, &conf.exclude, node.now.boot);
            StateMetrics::new(ipam, counts, node.now.boot)
        });
        let answered = last_attempts(paths, boot_id).answered;
        Ok(NodeMetrics {
            state,
            totals: node.history()?.totals,
            answer_age: answered.map(|at| node.now.since(at)),
        })
    }
}

impl StateMetrics {
    fn new(ipam: &Ipam, counts: Vec<(String, PoolCount)>, now: Moment) -> StateMetrics {
        let pools = counts.into_iter().map(|(space, count)| {
            let pool = ipam.spaces.get(&space);
            let pool = pool.and_then(|space| space.pools.get(&count.subnet));
            PoolMetrics {
                interface: pool.map(|pool| pool.if_name.clone()).unwrap_or_default(),
                space,
                count,
            }
        });
        StateMetrics {
            pools: pools.collect(),
            quarantine: ipam.quarantine.map_or(Duration::ZERO, |u| u.since(now)),
        }
    }
}

/// The figures, by name and labels. Their names begin with that of the program, as one collector may read the figures of both
/// names, and refuses what is there twice.
pub fn print(metrics: &NodeMetrics, program: &str) -> String {
    let mut page = Page {
        prefix: program.replace('-', "_"),
        ..Page::default()
    };
    page.gauge(
        "build_info",
        "The version of the plugin, and what it was built from.",
    );
    let features = build_info::FEATURES.join(",");
    page.sample(
        &[
            ("version", build_info::VERSION),
            ("commit", build_info::COMMIT),
            ("target", build_info::TARGET),
            ("features", &features),
        ],
        &1,
    );
    operations(&mut page, &metrics.totals);
    if let Some(state) = &metrics.state {
        pools(&mut page, &state.pools);
        page.gauge(
            "quarantine_remaining_seconds",
            "Remaining quarantine after a lost state; 0 otherwise.",
        );
        page.sample(&[], &seconds(state.quarantine));
    }
    page.counter(
        "reclaimed_addresses_total",
        "Addresses reclaimed from dead holders.",
    );
    page.sample(&[], &metrics.totals.reclaimed);
    if let Some(age) = metrics.answer_age {
        page.gauge(
            "refresh_age_seconds",
            "Age of the last answer of the source that was merged into the state.",
        );
        page.sample(&[], &seconds(age));
    }
    page.counter(
        "refresh_failures_total",
        "Operations whose query of the source failed.",
    );
    page.sample(&[], &metrics.totals.refresh_failures);
    page.gauge(
        "state_readable",
        "1 if the state is readable or missing, 0 if it is corrupt or unreadable.",
    );
    page.sample(&[], &u8::from(metrics.state.is_some()));
    page.text
}

/// Operations have two labels whose values are known in advance, so that every figure is there from the start, and no code
/// has to be known to tell failures. Codes are counted apart: as a third label they would split what is mostly added up, and
/// a figure that first appears with a failure shows no increase.
fn operations(page: &mut Page, totals: &Totals) {
    let mut sums = Vec::new();
    for verb in VERBS {
        sums.extend(["error", "ok"].map(|result| ((verb.as_str(), result), 0_u64)));
    }
    page.counter(
        "operation_errors_total",
        "Failed operations, by error code.",
    );
    for (verb, code, count) in totals.operations() {
        let result = if code == 0 { "ok" } else { "error" };
        let of = (verb, result);
        let place = sums.partition_point(|(known, _)| *known < of);
        match sums.get_mut(place) {
            Some((known, sum)) if *known == of => *sum = sum.saturating_add(count),
            _ => sums.insert(place, (of, count)),
        }
        if code != 0 {
            page.sample(&[("verb", verb), ("code", &code.to_string())], &count);
        }
    }
    page.counter(
        "operations_total",
        "Operations except STATUS and VERSION, by result.",
    );
    for ((verb, result), count) in sums {
        page.sample(&[("verb", verb), ("result", result)], &count);
    }
}

fn pools(page: &mut Page, pools: &[PoolMetrics]) {
    type Figure = (&'static str, &'static str, fn(&PoolCount) -> usize);
    const FIGURES: [Figure; 5] = [
        ("pool_addresses", "All addresses of the pool.", |c| {
            c.held + c.free + c.resting + c.on_host + c.excluded
        }),
        ("pool_free_addresses", "Addresses free to allocate.", |c| {
            c.free
        }),
        ("pool_held_addresses", "Held addresses.", |c| c.held),
        (
            "pool_resting_addresses",
            "Addresses in cooldown, allocated only when no other is free.",
            |c| c.resting,
        ),
        (
            "pool_suspect_addresses",
            "Held addresses whose holders are suspected to be dead.",
            |c| c.suspect,
        ),
    ];
    for (name, help, figure) in FIGURES {
        page.gauge(name, help);
        for pool in pools {
            page.sample(&pool.labels(), &figure(&pool.count));
        }
    }
    page.gauge(
        "pool_withheld_addresses",
        "Free addresses that are not allocated: the configuration excludes them, or the host has them.",
    );
    for pool in pools {
        let count = &pool.count;
        for (reason, count) in [("excluded", count.excluded), ("host", count.on_host)] {
            let [space, subnet, interface] = pool.labels();
            page.sample(&[space, subnet, interface, ("reason", reason)], &count);
        }
    }
}

impl PoolMetrics {
    /// The labels, with the space, as two spaces may have the same pool.
    fn labels(&self) -> [(&'static str, &str); 3] {
        [
            ("space", &self.space),
            ("pool", &self.count.subnet),
            ("interface", &self.interface),
        ]
    }
}

/// The text printed so far.
#[derive(Default)]
struct Page {
    text: String,
    /// The prefix of every name.
    prefix: String,
    /// The full name of the current metric.
    name: String,
    /// HELP and TYPE of the current metric, until its first sample is printed.
    heading: String,
}

impl Page {
    fn gauge(&mut self, name: &str, help: &str) {
        self.head("gauge", name, help);
    }

    fn counter(&mut self, name: &str, help: &str) {
        self.head("counter", name, help);
    }

    fn head(&mut self, kind: &str, name: &str, help: &str) {
        self.name = format!("{}_{name}", self.prefix);
        let name = &self.name;
        self.heading = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: &dyn Display) {
        self.text += &mem::take(&mut self.heading);
        self.text += &self.name;
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

/// Seconds with three decimals.
fn seconds(duration: Duration) -> String {
    format!("{}.{:03}", duration.as_secs(), duration.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::{NAME, NAME_V6};

    #[test]
    fn the_metrics_of_both_program_names_differ() {
        let of = |name| {
            let text = print(&NodeMetrics::default(), name);
            let samples = text.lines().filter(|line| !line.starts_with('#'));
            let names = samples.filter_map(|line| Some(line.split_once([' ', '{'])?.0.to_owned()));
            names.collect::<Vec<_>>()
        };
        let (first, second) = (of(NAME), of(NAME_V6));
        assert!(!first.is_empty() && first.len() == second.len());
        assert!(second.iter().all(|n| n.starts_with("azure_vnet_ipamv6_")));
        assert!(!first.iter().any(|name| second.contains(name)));
    }

    fn totals(json: &str) -> Totals {
        serde_json::from_str(json).unwrap()
    }

    fn pool(space: &str, subnet: &str) -> PoolMetrics {
        PoolMetrics {
            space: space.into(),
            interface: "eth0".into(),
            count: PoolCount {
                subnet: subnet.into(),
                held: 3,
                suspect: 1,
                on_host: 2,
                excluded: 4,
                resting: 5,
                free: 6,
            },
        }
    }

    #[test]
    fn all_metrics_are_printed() {
        let metrics = NodeMetrics {
            state: Some(StateMetrics {
                pools: vec![pool("local", "10.1.0.0/16")],
                quarantine: Duration::from_millis(29_001),
            }),
            totals: totals(
                r#"{"operations": [{"verb": "ADD", "code": 0, "count": 7}, {"verb": "ADD", "code": 5, "count": 2}, {"verb": "ADD", "code": 11, "count": 1}], "reclaimed": 8, "refreshFailures": 9}"#,
            ),
            answer_age: Some(Duration::from_millis(12_345)),
        };
        let text = print(&metrics, NAME);
        let values: Vec<_> = text.lines().filter(|l| !l.starts_with('#')).collect();
        let of_pool = r#"{space="local",pool="10.1.0.0/16",interface="eth0""#;
        let version = build_info::VERSION;
        let expected = [
            format!(
                r#"build_info{{version="{version}",commit="{}",target="{}",features="{}"}} 1"#,
                build_info::COMMIT,
                build_info::TARGET,
                build_info::FEATURES.join(",")
            ),
            r#"operation_errors_total{verb="ADD",code="5"} 2"#.into(),
            r#"operation_errors_total{verb="ADD",code="11"} 1"#.into(),
            r#"operations_total{verb="ADD",result="error"} 3"#.into(),
            r#"operations_total{verb="ADD",result="ok"} 7"#.into(),
            r#"operations_total{verb="CHECK",result="error"} 0"#.into(),
            r#"operations_total{verb="CHECK",result="ok"} 0"#.into(),
            r#"operations_total{verb="DEL",result="error"} 0"#.into(),
            r#"operations_total{verb="DEL",result="ok"} 0"#.into(),
            r#"operations_total{verb="GC",result="error"} 0"#.into(),
            r#"operations_total{verb="GC",result="ok"} 0"#.into(),
            format!("pool_addresses{of_pool}}} 20"),
            format!("pool_free_addresses{of_pool}}} 6"),
            format!("pool_held_addresses{of_pool}}} 3"),
            format!("pool_resting_addresses{of_pool}}} 5"),
            format!("pool_suspect_addresses{of_pool}}} 1"),
            format!(r#"pool_withheld_addresses{of_pool},reason="excluded"}} 4"#),
            format!(r#"pool_withheld_addresses{of_pool},reason="host"}} 2"#),
            "quarantine_remaining_seconds 29.001".into(),
            "reclaimed_addresses_total 8".into(),
            "refresh_age_seconds 12.345".into(),
            "refresh_failures_total 9".into(),
            "state_readable 1".into(),
        ];
        let expected: Vec<_> = expected
            .iter()
            .map(|line| format!("azure_vnet_ipam_{line}"))
            .collect();
        assert_eq!(values, expected);
    }

    #[test]
    fn every_metric_has_one_heading_before_its_samples() {
        let local = pool("local", "10.1.0.0/16");
        let state = StateMetrics {
            pools: vec![local, pool("other", "10.1.0.0/16")],
            quarantine: Duration::ZERO,
        };
        let full = NodeMetrics {
            state: Some(state),
            totals: totals(r#"{"operations": [{"verb": "release", "code": 2, "count": 1}]}"#),
            answer_age: Some(Duration::ZERO),
        };
        let empty = NodeMetrics {
            state: Some(StateMetrics::default()),
            ..NodeMetrics::default()
        };
        for metrics in [full, empty, NodeMetrics::default()] {
            let text = print(&metrics, NAME);
            let mut names = Vec::new();
            let mut samples = Vec::new();
            let mut lines = text.lines().peekable();
            while let Some(line) = lines.next() {
                if let Some(help) = line.strip_prefix("# HELP ") {
                    let name = help.split(' ').next().unwrap();
                    let kind = lines.next().unwrap();
                    assert!(kind.starts_with(&format!("# TYPE {name} ")), "{kind}");
                    assert_eq!(kind.ends_with(" counter"), name.ends_with("_total"));
                    assert!(lines.peek().is_some_and(|l| l.starts_with(name)), "{name}");
                    names.push(name);
                    continue;
                }
                let (series, value) = line.rsplit_once(' ').unwrap();
                assert_eq!(series.split('{').next(), names.last().copied());
                assert!(value.parse::<f64>().is_ok(), "{line}");
                samples.push(series);
            }
            assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
            let all = samples.len();
            samples.sort_unstable();
            samples.dedup();
            assert_eq!(samples.len(), all, "{text}");
        }
    }

    #[test]
    fn unknown_values_are_left_out() {
        let text = print(&NodeMetrics::default(), NAME);
        assert!(text.contains("azure_vnet_ipam_state_readable 0\n"));
        for name in ["pool_", "quarantine", "refresh_age", "operation_errors"] {
            assert!(!text.contains(name), "{name}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = Page {
            prefix: "azure_vnet_ipam".into(),
            ..Page::default()
        };
        page.gauge("x", "X.");
        page.sample(&[("a", "1\\2\"3\n4"), ("b", "")], &5);
        let line = page.text.lines().last().unwrap();
        assert_eq!(line, r#"azure_vnet_ipam_x{a="1\\2\"3\n4",b=""} 5"#);
    }
}
