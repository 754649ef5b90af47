//! `node-loop`: writes the metrics, watches the installation and checks the node until it is stopped. Allocation does not depend
//! on it.
//!
//! Each round takes a new snapshot of the node and keeps only the last check, so that the memory stays bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cli::NodeLoopArgs;
use super::findings::check::CheckReport;
use super::findings::inspection::Inspection;
use super::install::Installation;
use super::metrics;
use super::node::Node;
use super::outcome::CommandError;
use crate::host::{Paths, boot_now, exit_on_termination_signals, sleep_until};
use crate::ipam::Moment;
use crate::stdio;

/// Runs rounds until a signal ends the process.
pub fn run(paths: &Paths, args: &NodeLoopArgs) -> ! {
    exit_on_termination_signals();
    let mut node_loop = NodeLoop::new(paths, args);
    let interval = Duration::from_secs(args.interval);
    loop {
        let began = boot_now();
        node_loop.run_round();
        sleep_until(began.after(interval));
    }
}

/// What is kept from one round to the next.
struct NodeLoop<'a> {
    paths: &'a Paths,
    args: &'a NodeLoopArgs,
    installations: Vec<Installation>,
    /// When the last check began.
    checked_at: Option<Moment>,
    last_check: Option<CheckReport>,
    reported: Reported,
}

impl<'a> NodeLoop<'a> {
    fn new(paths: &'a Paths, args: &'a NodeLoopArgs) -> NodeLoop<'a> {
        let node = Node::here(paths, boot_now());
        let mut names: Vec<_> = args.names.iter().map(|name| name.as_str()).collect();
        if names.is_empty() {
            names.push(paths.name());
        }
        names.sort_unstable();
        names.dedup();
        let installation = |name| Installation::new(&node, args.dir.as_deref(), name);
        NodeLoop {
            paths,
            args,
            installations: names.into_iter().map(installation).collect(),
            checked_at: None,
            last_check: None,
            reported: Reported::new(paths.name()),
        }
    }

    fn run_round(&mut self) {
        let began = boot_now();
        let installed = self.watch_installations(&Node::here(self.paths, began));
        // A check can take seconds, for which the other values do not wait.
        self.write_metrics(&installed);
        let interval = Duration::from_secs(self.args.check_interval);
        if self.checked_at.is_none_or(|at| began >= at.after(interval)) {
            self.checked_at = Some(began);
            self.check(&Node::here(self.paths, began));
            self.write_metrics(&installed);
        }
    }

    /// Returns the name of each plugin that is watched, and whether it is this executable.
    fn watch_installations(&mut self, node: &Node) -> Vec<(&'static str, bool)> {
        let text = |found| match found {
            Ok(problem) => problem,
            Err(CommandError(reason)) => Some(reason),
        };
        let mut installed = Vec::new();
        for plugin in &self.installations {
            let found = plugin.replaced_by(node);
            let is_replaced = matches!(found, Ok(Some(_)));
            let mut problem = text(found);
            self.reported.step(plugin.name, &problem);
            if is_replaced && self.args.reinstall {
                // What was put right is worth a line each time, so that it is one failure that changed and one that ended.
                let refused = text(plugin.reinstall(node));
                problem = refused.map(|why| format!("not installed again: {why}"));
                self.reported.step(plugin.name, &problem);
            }
            installed.push((plugin.name, problem.is_none()));
        }
        installed
    }

    fn check(&mut self, node: &Node) {
        self.last_check = Some(CheckReport::new(node, &Inspection::gather(node)));
    }

    fn write_metrics(&mut self, installed: &[(&'static str, bool)]) {
        let node = Node::here(self.paths, boot_now());
        let (check, output) = (self.last_check.as_ref(), Some(&*self.args.output));
        let written = metrics::write(&node, check, installed, output);
        self.reported.step("metrics", &written.err().map(|e| e.0));
    }
}

/// The problem that was reported last of each step, so that one that stays is reported once.
struct Reported {
    program: &'static str,
    problems: BTreeMap<&'static str, String>,
}

impl Reported {
    fn new(program: &'static str) -> Reported {
        Reported {
            program,
            problems: BTreeMap::new(),
        }
    }

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
        let mut reported = Reported::new(NAME);
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
