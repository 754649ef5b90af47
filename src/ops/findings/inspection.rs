//! The data that a diagnosis is made from.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::thread::sleep;
use std::time::Duration;

use super::executables::Executables;
use super::host_network::HostNetwork;
use super::pod_routes::{RoutesOfPods, read_routes_of_pods};
use crate::cni::{CallError, NAME, Verb};
use crate::failure::message_with_remedy;
use crate::host::{boot_now, read_text};
use crate::ipam::{Evidence, Holder, Moment};
use crate::ops::held::held_records;
use crate::ops::node::Node;
use crate::ops::node_config::NodeConfig;
use crate::ops::state_view::StateView;
use crate::plugin::Trial;
use crate::source::{MatchedListing, Source, SourceError, last_attempts, time_limit};
use crate::state::{LockHolder, WAIT, holder_now};

/// The data that findings are made from.
#[derive(Debug)]
pub struct Inspection {
    /// All configuration.
    pub config: NodeConfig,
    /// The addresses that were held before anything else was read. What is released during the scan would seem to be in use.
    pub held_before: BTreeSet<IpAddr>,
    /// The state.
    pub state: StateView,
    /// The source and its answer, or why the source is unknown.
    pub source: Result<SourceAnswer, CallError>,
    /// The evidence of the node.
    pub evidence: Evidence,
    /// Whether this process is in another network namespace than the node.
    pub is_in_other_network: bool,
    /// The addresses of the host itself.
    pub host: HostNetwork,
    /// How the host routes the packets of pods.
    pub routes_of_pods: RoutesOfPods,
    /// Who released each address last, as far as the list of operations goes back.
    pub last_holders: BTreeMap<IpAddr, Holder>,
    /// The executables that the runtime calls.
    pub executables: Executables,
    /// The holder of the lock.
    pub lock_holder: Option<LockingProcess>,
}

/// A source and its answer.
#[derive(Debug)]
pub struct SourceAnswer {
    /// The source.
    pub source: Source,
    /// The answer, matched with the interfaces of this node.
    pub matched: Result<MatchedListing, SourceError>,
    /// The duration of the query.
    pub took: Duration,
}

impl Inspection {
    /// Collects the data. Takes no lock and changes nothing.
    pub fn gather(node: &Node) -> Inspection {
        let state = StateView::load(node);
        let limit = time_limit(state.ipam().pools().next().is_some());
        let before = held_records(state.ipam())
            .map(|(_, _, record, _)| record.address())
            .collect();
        let config = NodeConfig::read(node.paths());
        let executables = Executables::probe(node, &config);
        let overrides = &node.context.source_overrides;
        let source = Source::from_config(&config.conf, overrides, node.paths());
        let source = source.map(|source| {
            let began = boot_now();
            let matched = source.query(limit, node.paths());
            let took = boot_now().since(began);
            SourceAnswer {
                source,
                matched,
                took,
            }
        });
        let (state, evidence) = StateView::load_with_evidence(node);
        let host = HostNetwork::read(node.paths(), state.ipam());
        let answer = source.as_ref().ok();
        let listed = answer.and_then(|answer| Some(&answer.matched.as_ref().ok()?.inventory));
        Inspection {
            held_before: before,
            last_holders: read_last_holders(node),
            is_in_other_network: node.is_in_other_network(state.ipam(), &evidence.kernel),
            routes_of_pods: read_routes_of_pods(
                node.paths(),
                &evidence.kernel,
                &host,
                (state.ipam(), listed),
            ),
            host,
            state,
            source,
            evidence,
            executables,
            lock_holder: holder(node),
            config,
        }
    }

    /// The trial of an ADD at this moment. An unknown source counts as one that does not answer.
    pub fn trial<'a>(&'a self, node: &'a Node) -> Trial<'a> {
        let attempts = last_attempts(node.paths(), node.context.boot_id.as_deref());
        let answer = match &self.source {
            Ok(answer) => {
                let describe = |error| message_with_remedy(Some(&answer.source), error);
                answer.matched.as_ref().map_err(describe)
            }
            Err(error) => Err(error.to_string()),
        };
        Trial {
            context: &node.context,
            answer,
            source: self.source.as_ref().ok().map(|answer| &answer.source),
            attempts,
            evidence: &self.evidence,
        }
    }

    /// The answer of the source, if there is one.
    pub fn matched(&self) -> Option<&MatchedListing> {
        self.source.as_ref().ok()?.matched.as_ref().ok()
    }
}

/// Reads who released each address last; nobody where this user may not read the list of operations.
fn read_last_holders(node: &Node) -> BTreeMap<IpAddr, Holder> {
    let mut last = BTreeMap::new();
    for record in node.history().unwrap_or_default().records {
        if record.verb == Verb::Del.as_str() {
            for address in &record.addresses {
                last.insert(*address, record.holder.clone());
            }
        }
    }
    last
}

/// A process that holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockingProcess {
    /// Its ID and name.
    pub process: LockHolder,
    /// Its age, as /proc has it; `None` where it has ended, and a child may have the lock, or belongs to another PID namespace.
    pub age: Option<Duration>,
    /// Whether it was stopped, by a signal or a debugger.
    pub is_stopped: bool,
}

/// The present holder of the lock, if there is one. One that cannot be seen must hold it for a second: a call is faster.
fn holder(node: &Node) -> Option<LockingProcess> {
    let paths = node.paths();
    let process = holder_now(paths)?;
    let stat = read_text(&paths.process(process.pid).join("stat"));
    let known = stat.ok().and_then(|stat| parse_stat(&stat, node.now.boot));
    if known.is_none() {
        sleep(Duration::from_secs(1));
        holder_now(paths).filter(|later| *later == process)?;
    }
    Some(LockingProcess {
        process,
        age: known.map(|(age, _)| age),
        is_stopped: known.is_some_and(|(_, is_stopped)| is_stopped),
    })
}

impl LockingProcess {
    /// Whether the next call would wait for the lock until it times out.
    pub fn is_stuck(&self) -> bool {
        self.is_stopped || self.age.is_none_or(|age| age > WAIT)
    }

    /// Whether it is no call of a plugin: nobody knows when it lets go.
    pub fn is_foreign(&self) -> bool {
        // Of both plugins, as the kernel cuts a name behind 15 characters.
        let is_call = self.process.name.as_deref().is_none_or(|name| name == NAME);
        !is_call && self.age.is_some()
    }
}

/// The age of a process and whether it is stopped, from its line in /proc/PID/stat.
fn parse_stat(stat: &str, now: Moment) -> Option<(Duration, bool)> {
    /// The kernel counts in hundredths of a second on every machine.
    const TICK: u64 = 10_000_000;
    /// The index of the start time after the name, which ends with the last parenthesis.
    const STARTED: usize = 19;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let started: u64 = fields.get(STARTED)?.parse().ok()?;
    Some((
        now.since(Moment(started.saturating_mul(TICK))),
        matches!(*fields.first()?, "T" | "t"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_of_a_process_is_read_behind_its_name() {
        let stat = "7 (a) b (c) T 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 1500 11 12";
        let now = Moment(20_000_000_000);
        let age = Duration::from_secs(5);
        assert_eq!(parse_stat(stat, now), Some((age, true)));
        let running = stat.replace(" T ", " S ");
        assert_eq!(parse_stat(&running, now), Some((age, false)));
        for odd in ["", "7 (a) S 1", "7 a"] {
            assert_eq!(parse_stat(odd, now), None, "{odd}");
        }
    }
}
