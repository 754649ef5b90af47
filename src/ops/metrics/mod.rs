//! `metrics`: metrics in the text format of Prometheus.

mod health;
mod operations;
mod page;
mod pools;

use std::path::Path;
use std::time::Duration;

pub use health::LastCheck;
use page::{Page, seconds};
use pools::PoolMetrics;

use super::build_info;
use super::cli::OutputArgs;
use super::node::Node;
use super::node_config::NodeConfig;
use super::outcome::{CommandError, CommandOutput};
use super::state_view::StateView;
use crate::events::Totals;
use crate::ipam::{Ipam, Moment, Pool, PoolCount, Record};
use crate::source::last_attempts;
use crate::state::Condition;

/// The mode of the file: collectors usually do not run as root.
const MODE: u32 = 0o644;

/// The values that the metrics are made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeMetrics {
    /// The values of the state; `None` when it cannot be read.
    pub state: Option<StateMetrics>,
    /// Whether records are missing: the state is gone, or old, though addresses were granted since the node started.
    pub is_lost: bool,
    /// The counts of all operations.
    pub totals: Totals,
    /// How long ago the source's last answer was merged, when one was in this boot.
    pub answer_age: Option<Duration>,
    /// The last check. Only `node-loop` checks.
    pub last_check: Option<LastCheck>,
    /// Of each plugin that is watched: its name, and whether it is this executable. Only `node-loop` watches.
    pub installed: Vec<(&'static str, bool)>,
}

/// The values of the state. A missing state has no pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateMetrics {
    /// The pools.
    pub pools: Vec<PoolMetrics>,
    /// The rest of the quarantine; zero outside of one.
    pub quarantine: Duration,
}

/// Prints the metrics, or writes them to a file.
///
/// # Errors
/// Nobody but root may read the state, or the file cannot be written.
pub fn run(node: &Node, args: &OutputArgs) -> Result<CommandOutput, CommandError> {
    let metrics = NodeMetrics::collect(node)?;
    write(node, &metrics, args.output.as_deref())
}

/// Prints the metrics, or writes them to a file.
///
/// # Errors
/// The file cannot be written.
pub fn write(
    node: &Node,
    metrics: &NodeMetrics,
    output: Option<&Path>,
) -> Result<CommandOutput, CommandError> {
    let text = print(metrics, node.paths().name());
    CommandOutput::to_file_or_stdout(output, text, MODE)
}

impl NodeMetrics {
    /// Collects the values of the node.
    ///
    /// # Errors
    /// Nobody but root may read the state. Then the operations cannot be read either, and zeros would be a lie.
    pub fn collect(node: &Node) -> Result<NodeMetrics, CommandError> {
        let (paths, boot_id) = (node.paths(), node.context.boot_id.as_deref());
        let view = StateView::read(node)?;
        let state = view.report.is_readable().then(|| {
            let conf = NodeConfig::read(paths).conf;
            let ipam = view.ipam();
            let counts = ipam.counts(conf.cooldown, &conf.exclude, node.now.boot);
            StateMetrics::new(ipam, counts, node.now.boot)
        });
        let answered = last_attempts(paths, boot_id).answered;
        Ok(NodeMetrics {
            state,
            is_lost: matches!(view.report.condition, Some(Condition::Lost(_))),
            totals: node.history()?.totals,
            answer_age: answered.map(|at| node.now.since(at)),
            last_check: None,
            installed: Vec::new(),
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
                unknown_owners: pool.map_or(0, count_unknown_owners),
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

fn count_unknown_owners(pool: &Pool) -> usize {
    let held = pool.records.iter().filter_map(Record::held);
    held.filter(|held| held.owner.is_unknown()).count()
}

/// Prints the metrics in the order of their names: one section after the other, each of which prints nothing where it has no
/// values.
pub fn print(metrics: &NodeMetrics, program: &str) -> String {
    let mut page = Page::new(program);
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
    health::print(&mut page, &metrics.installed, metrics.last_check.as_ref());
    operations::print(&mut page, &metrics.totals);
    if let Some(state) = &metrics.state {
        pools::print(&mut page, &state.pools);
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
        "1 if the state is readable, or not there yet; 0 if it is corrupt, unreadable or lost.",
    );
    let is_readable = metrics.state.is_some() && !metrics.is_lost;
    page.sample(&[], &u8::from(is_readable));
    page.text
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

    fn last_check() -> LastCheck {
        LastCheck {
            time: 1_764_000_000,
            status: 1,
            findings: [(("duplicate", "error"), 0), (("leak", "warning"), 3)].into(),
        }
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
                cooldown: 5,
                free: 6,
            },
            unknown_owners: 7,
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
                r#"{"operations": [{"verb": "ADD", "code": 0, "count": 7}, {"verb": "ADD", "code": 5, "count": 2}, {"verb": "ADD", "code": 11, "count": 1}], "reclaimed": 8, "refreshFailures": 9, "lockWaits": 3, "lockMicroseconds": 1500000}"#,
            ),
            answer_age: Some(Duration::from_millis(12_345)),
            is_lost: false,
            last_check: Some(last_check()),
            installed: vec![(NAME, true), (NAME_V6, false)],
        };
        let text = print(&metrics, NAME);
        // The test of the histogram has its own lines.
        let is_wanted =
            |line: &&str| !line.starts_with('#') && !line.contains("_duration_seconds_");
        let values: Vec<_> = text.lines().filter(is_wanted).collect();
        let of_pool = r#"{space="local",pool="10.1.0.0/16",interface="eth0""#;
        let version = build_info::VERSION;
        let expected = [
            format!(
                r#"build_info{{version="{version}",commit="{}",target="{}",features="{}"}} 1"#,
                build_info::COMMIT,
                build_info::TARGET,
                build_info::FEATURES.join(",")
            ),
            r#"executable_matches{name="azure-vnet-ipam"} 1"#.into(),
            r#"executable_matches{name="azure-vnet-ipamv6"} 0"#.into(),
            r#"last_check_findings{kind="duplicate",severity="error"} 0"#.into(),
            r#"last_check_findings{kind="leak",severity="warning"} 3"#.into(),
            "last_check_status 1".into(),
            "last_check_timestamp_seconds 1764000000".into(),
            "lock_wait_seconds_total 1.500000".into(),
            "lock_waits_total 3".into(),
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
            format!("pool_cooldown_addresses{of_pool}}} 5"),
            format!("pool_suspect_addresses{of_pool}}} 1"),
            format!("pool_unknown_owner_addresses{of_pool}}} 7"),
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
            is_lost: true,
            last_check: Some(last_check()),
            installed: vec![(NAME, true)],
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
                let name = series.split('{').next().unwrap();
                let parts = ["_bucket", "_sum", "_count"];
                let whole = parts.iter().find_map(|part| name.strip_suffix(part));
                assert_eq!(Some(whole.unwrap_or(name)), names.last().copied());
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
    fn lost_state_is_not_readable() {
        let readable = |state: Option<StateMetrics>, is_lost| {
            let metrics = NodeMetrics {
                state,
                is_lost,
                ..NodeMetrics::default()
            };
            print(&metrics, NAME).ends_with("state_readable 1\n")
        };
        assert!(readable(Some(StateMetrics::default()), false));
        assert!(!readable(Some(StateMetrics::default()), true));
        assert!(!readable(None, false));
    }

    #[test]
    fn unknown_values_are_left_out() {
        let text = print(&NodeMetrics::default(), NAME);
        assert!(text.contains("azure_vnet_ipam_state_readable 0\n"));
        for name in [
            "pool_",
            "quarantine",
            "refresh_age",
            "operation_errors",
            "last_check",
            "executable",
        ] {
            assert!(!text.contains(name), "{name}");
        }
    }
}
