//! `node-loop`: writes the metrics, watches the installation and checks the node until it is stopped. Allocation does not depend
//! on it.
//!
//! Each round takes a new snapshot of the node and keeps only the last check, so that the memory stays bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::cli::NodeLoopArgs;
use super::findings::check::CheckReport;
use super::findings::inspection::Inspection;
use super::install::Installation;
use super::metrics::{self, NodeMetrics};
use super::node::Node;
use super::node_config::NodeConfig;
use super::outcome::{CommandError, CommandOutput};
use super::reclaim;
use crate::host::{Paths, boot_now, exit_on_termination_signals, sleep_until, wall_now};
use crate::ipam::Moment;
use crate::stdio;

/// Runs rounds until a signal ends the process, or reports whether another loop does.
///
/// # Errors
/// The file of the other loop cannot be read.
pub fn run(paths: &Paths, args: &NodeLoopArgs) -> Result<CommandOutput, CommandError> {
    if args.is_alive {
        return is_alive(args);
    }
    exit_on_termination_signals();
    let mut node_loop = NodeLoop::new(paths, args);
    let interval = Duration::from_secs(args.interval);
    loop {
        let began = boot_now();
        node_loop.run_round();
        sleep_until(began.after(interval));
    }
}

/// Tells whether a loop has written its file within the last 10 intervals. After the clock was set, the next round answers.
fn is_alive(args: &NodeLoopArgs) -> Result<CommandOutput, CommandError> {
    let shown = args.output.display().to_string();
    let written = fs::metadata(&args.output).map_err(|e| CommandError::from_io(&shown, &e))?;
    let age = written.mtime().abs_diff(wall_now().seconds);
    let (text, status) = if age < 10 * args.interval {
        ("the loop is alive\n".to_owned(), 0)
    } else {
        let found = format!("{shown} was written {age} s ago, more than 10 intervals\n");
        (found, 1)
    };
    Ok(CommandOutput { text, status })
}

/// What is kept from one round to the next.
struct NodeLoop<'a> {
    args: &'a NodeLoopArgs,
    plugins: Vec<Watched>,
    /// When the last check began.
    checked_at: Option<Moment>,
    reported: Reported,
}

/// What is kept of a plugin.
struct Watched {
    paths: Paths,
    /// Whether the installed plugin is this executable; `None` while the node does not use it.
    matches: Option<bool>,
    last_check: Option<CheckReport>,
}

impl Watched {
    fn metrics(&self) -> Result<NodeMetrics<'_>, CommandError> {
        Ok(NodeMetrics {
            last_check: self.last_check.as_ref(),
            executable_matches: self.matches,
            ..NodeMetrics::read(&Node::here(&self.paths, boot_now()))?
        })
    }
}

impl<'a> NodeLoop<'a> {
    fn new(paths: &Paths, args: &'a NodeLoopArgs) -> NodeLoop<'a> {
        let mut names: BTreeSet<_> = args.names.iter().map(|name| name.as_str()).collect();
        if names.is_empty() {
            names.insert(paths.name());
        }
        let watched = |name| Watched {
            paths: paths.of_plugin(name),
            matches: None,
            last_check: None,
        };
        NodeLoop {
            args,
            plugins: names.into_iter().map(watched).collect(),
            checked_at: None,
            reported: Reported {
                program: paths.name(),
                problems: BTreeMap::new(),
            },
        }
    }

    fn run_round(&mut self) {
        let began = boot_now();
        self.watch_installations();
        // A check can take seconds, for which the other values do not wait.
        self.write_metrics();
        let interval = Duration::from_secs(self.args.check_interval);
        if self.checked_at.is_none_or(|at| began >= at.after(interval)) {
            self.checked_at = Some(began);
            let mut problem = None;
            for plugin in &mut self.plugins {
                let node = Node::here(&plugin.paths, boot_now());
                if self.args.reclaim && plugin.matches.is_some() {
                    problem = problem.or(reclaim::reclaim_dead(&node).err().map(|e| e.0));
                }
                let check = |_| CheckReport::new(&node, &Inspection::gather(&node));
                plugin.last_check = plugin.matches.map(check);
            }
            self.reported.step("reclaim", &problem);
            self.write_metrics();
        }
    }

    /// Compares the installed plugins with this executable.
    fn watch_installations(&mut self) {
        let text = |found| match found {
            Ok(problem) => problem,
            Err(CommandError(reason)) => Some(reason),
        };
        for plugin in &mut self.plugins {
            let (node, name) = (Node::here(&plugin.paths, boot_now()), plugin.paths.name());
            plugin.matches = None;
            if !NodeConfig::read(&plugin.paths).is_in_use(&plugin.paths) {
                continue;
            }
            let installation = Installation::new(&plugin.paths);
            let found = installation.replaced_by(&node);
            let is_replaced = matches!(found, Ok(Some(_)));
            let mut problem = text(found);
            self.reported.step(name, &problem);
            if is_replaced && self.args.reinstall {
                // What was put right is worth a line each time, so that it is one failure that changed and one that ended.
                let refused = text(installation.reinstall(&node));
                problem = refused.map(|why| format!("not installed again: {why}"));
                self.reported.step(name, &problem);
            }
            plugin.matches = Some(problem.is_none());
        }
    }

    fn write_metrics(&mut self) {
        let used = self.plugins.iter().filter(|p| p.matches.is_some());
        let metrics: Result<Vec<_>, CommandError> = used.map(Watched::metrics).collect();
        let output = Some(&*self.args.output);
        let written = metrics.and_then(|all| {
            CommandOutput::to_file_or_stdout(output, metrics::print(&all), metrics::MODE)
        });
        self.reported.step("metrics", &written.err().map(|e| e.0));
    }
}

/// The problem that was reported last of each step, so that one that stays is reported once.
struct Reported {
    program: &'static str,
    problems: BTreeMap<&'static str, String>,
}

impl Reported {
    /// Reports the problem of a step on stderr if it changed or ended.
    fn step(&mut self, step: &'static str, problem: &Option<String>) {
        if let Some(line) = self.change(step, problem) {
            stdio::eprint(&format!("{} node-loop: {step}: {line}\n", self.program));
        }
    }

    /// Notes the problem of a step. Returns what to report.
    fn change(&mut self, step: &'static str, problem: &Option<String>) -> Option<String> {
        let known = self.problems.get(step);
        match problem {
            None => self.problems.remove(step).map(|_| "works again".to_owned()),
            Some(problem) if known == Some(problem) => None,
            Some(problem) => {
                self.problems.insert(step, problem.clone());
                Some(problem.clone())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::NAME;

    #[test]
    fn problem_is_reported_once_until_it_changes_or_ends() {
        let mut reported = Reported {
            program: NAME,
            problems: BTreeMap::new(),
        };
        let mut change = |problem: &str| {
            let problem = Some(problem.to_owned()).filter(|problem| !problem.is_empty());
            reported.change("metrics", &problem).unwrap_or_default()
        };
        let problems = ["", "full", "full", "read-only", "read-only", "", "", "full"];
        let lines = problems.map(&mut change);
        let expected = ["", "full", "", "read-only", "", "works again", "", "full"];
        assert_eq!(lines, expected);
    }
}
