//! `reclaim`: frees the addresses of dead holders, by the rules of an ADD that finds a pool empty.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::Serialize;

use super::cli::ReclaimArgs;
use super::held::{HeldAddress, find_pod_of_holder, held_records, no_such_pod};
use super::node::{Node, Now, capture_snapshot};
use super::outcome::{CommandError, CommandOutput, record_operation, start_log};
use super::screen::{Screen, Tint, pluralize};
use super::state_view::StateView;
use crate::events::OperationRecord;
use crate::host::boot_now;
use crate::ipam::{AGAIN, GRACE, Held, Ipam, Judged, Record, Verdict};
use crate::log;
use crate::plugin::decide::reclaim;
use crate::plugin::{Action, Scan, log_actions};
use crate::state::State;

/// The result of a reclaim, or of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimReport {
    /// The time, RFC 3339.
    pub time: String,
    /// Whether it was done; `false` for a dry run.
    pub done: bool,
    /// The addresses that were or would be freed.
    pub freed: Vec<JudgedHolder>,
    /// Addresses held before the node was restarted, freed without a judgement each.
    pub freed_of_another_boot: Vec<IpAddr>,
    /// Holders that keep their address: suspect or undecided ones.
    pub kept: Vec<JudgedHolder>,
    /// The number of live holders.
    pub alive: usize,
    /// The number of addresses younger than 15 minutes, which are not judged.
    pub young: usize,
}

/// A held address and the reasons of its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JudgedHolder {
    /// Who.
    pub holder: HeldAddress,
    /// The reasons.
    pub reasons: Vec<String>,
    /// How many seconds from now a second check may free it, if it looks dead.
    #[serde(skip)]
    pub second_check: Option<u64>,
}

/// Runs the command.
pub fn run(node: &Node, args: &ReclaimArgs) -> Result<CommandOutput, CommandError> {
    let done = args.yes;
    if done {
        start_log(node.paths());
    }
    let Some(mut state) = StateView::load(node).into_writable()? else {
        if let Some(pod) = &args.pod {
            return Err(no_such_pod(pod));
        }
        let nothing = ReclaimReport::from_decisions(&[], done, 0, &node.now);
        let text = "there is no state on this node, so nothing is held\n";
        return args.format.output(0, &nothing, || text.to_owned());
    };
    let pod = find_pod(args, state.ipam())?;
    let is_asked = |held: &Held| pod.is_none() || held.holder.pod == pod;
    let mut candidates = state.ipam().candidates(|_, _, _| true, None, boot_now());
    candidates.retain(|candidate| is_asked(&candidate.held));
    let judged: BTreeSet<IpAddr> = candidates.iter().map(|candidate| candidate.key).collect();
    let mut scan = capture_snapshot(candidates, &node.context);
    node.note_other_network(state.ipam(), &mut scan.evidence);
    let mut events = Vec::new();
    if done {
        (state, events) = free(node, &scan)?;
    } else {
        reclaim(&mut state, &scan, boot_now(), &mut events);
    }
    if let Some(until) = state.ipam().quarantine {
        let seconds = until.since(boot_now()).as_millis().div_ceil(1000);
        return Err(CommandError(format!(
            "the state is being rebuilt; nothing is freed for {seconds} s more, because any address may belong to a pod that is starting"
        )));
    }
    let is_young = |(_, _, record, held): &(&str, &str, &Record, &Held)| {
        is_asked(held) && node.now.since(held.since) < GRACE && !judged.contains(&record.key)
    };
    let young = held_records(state.ipam()).filter(is_young).count();
    let found = ReclaimReport::from_decisions(&events, done, young, &node.now);
    if done {
        let judged = found.freed.iter().map(|judged| judged.holder.address);
        let of_another_boot = found.freed_of_another_boot.iter().copied();
        record_freed(judged.chain(of_another_boot).collect(), &events, node);
    }
    let of_pod = args.pod.iter().map(|pod| format!(" --pod {pod}"));
    let command = format!(
        "{} reclaim --yes{}",
        node.program_as_root(),
        of_pod.collect::<String>()
    );
    let print = || found.print(&node.screen, &command);
    args.format.output(0, &found, print)
}

/// Frees the candidates of a scan that are dead, and marks those that may be.
fn free(node: &Node, scan: &Scan) -> Result<(State, Vec<Action>), CommandError> {
    let mut locked = node.lock()?;
    let loaded = node.context.open(&mut locked);
    let Some(mut state) = StateView::from_opened(node, loaded).into_writable()? else {
        return Err(CommandError(
            "the state was removed during this command".to_owned(),
        ));
    };
    let mut actions = Vec::new();
    reclaim(&mut state, scan, boot_now(), &mut actions);
    node.save(&mut locked, &mut state)?;
    log_actions(&actions);
    Ok((state, actions))
}

/// Does what `reclaim --yes` does, for `node-loop`. The state is locked and saved only if a holder seems to be dead, and only what was
/// freed is recorded.
///
/// # Errors
/// The state cannot be read, locked or saved.
pub fn reclaim_dead(node: &Node) -> Result<(), CommandError> {
    let Some(mut state) = StateView::load(node).into_writable()? else {
        return Ok(());
    };
    let candidates = state.ipam().candidates(|_, _, _| true, None, boot_now());
    if candidates.is_empty() || state.ipam().quarantine.is_some() {
        return Ok(());
    }
    let mut scan = Scan::at_node(candidates, &node.context);
    node.note_other_network(state.ipam(), &mut scan.evidence);
    let mut expected = Vec::new();
    reclaim(&mut state, &scan, boot_now(), &mut expected);
    let seems_dead =
        |judged: &Judged| matches!(judged.judgement.verdict, Verdict::Dead | Verdict::Suspect);
    let is_any =
        |action: &Action| matches!(action, Action::Judged(all) if all.iter().any(seems_dead));
    if !expected.iter().any(is_any) {
        return Ok(());
    }
    start_log(node.paths());
    // Of trial runs since the last round.
    log::discard();
    let (_, actions) = free(node, &scan)?;
    let freed = actions.iter().flat_map(Action::freed);
    let addresses: Vec<IpAddr> = freed.filter_map(|freed| freed.address).collect();
    if !addresses.is_empty() {
        record_freed(addresses, &actions, node);
    }
    Ok(())
}

/// Adds what was freed to the list of operations.
fn record_freed(addresses: Vec<IpAddr>, actions: &[Action], node: &Node) {
    let mut record = OperationRecord {
        verb: "reclaim".to_owned(),
        addresses,
        ..OperationRecord::default()
    };
    record.add_reclaimed(actions.iter().flat_map(Action::freed).collect());
    record_operation(&node.context, record);
}

/// The pod whose holders are judged; `None` for all holders.
///
/// # Errors
/// No pod of the name holds an address, or several do.
fn find_pod(args: &ReclaimArgs, ipam: &Ipam) -> Result<Option<String>, CommandError> {
    let name = args.pod.as_deref();
    name.map(|name| find_pod_of_holder(name, ipam)).transpose()
}

impl ReclaimReport {
    /// Makes the report from what was decided.
    pub fn from_decisions(events: &[Action], done: bool, young: usize, now: &Now) -> ReclaimReport {
        let mut found = ReclaimReport {
            time: now.wall_time(now.boot),
            done,
            young,
            ..ReclaimReport::default()
        };
        for event in events {
            match event {
                Action::FreedAfterReboot(addresses) => {
                    found.freed_of_another_boot.extend(addresses)
                }
                Action::Judged(judged) => judged.iter().for_each(|j| found.add(j, now)),
                Action::Merged(_)
                | Action::Rejected(_)
                | Action::Overtaken
                | Action::Reconciled(..)
                | Action::Withheld(_)
                | Action::SkippedOnHost { .. } => {}
            }
        }
        // The state has the records in the order of their texts.
        found.freed_of_another_boot.sort_unstable();
        for held in [&mut found.freed, &mut found.kept] {
            held.sort_unstable_by_key(|judged| judged.holder.address);
        }
        found
    }

    fn add(&mut self, judged: &Judged, now: &Now) {
        let reasons = judged.judgement.reasons.iter();
        let looks_dead = judged.judgement.verdict == Verdict::Suspect;
        let judged_holder = || {
            let holder = HeldAddress::from_candidate(&judged.candidate, now);
            let since = holder.suspect_seconds.unwrap_or(0);
            JudgedHolder {
                reasons: reasons.map(ToString::to_string).collect(),
                second_check: looks_dead.then(|| AGAIN.as_secs().saturating_sub(since)),
                holder,
            }
        };
        match judged.judgement.verdict {
            Verdict::Dead => self.freed.push(judged_holder()),
            Verdict::Alive => self.alive += 1,
            Verdict::Suspect | Verdict::Undecided => self.kept.push(judged_holder()),
        }
    }

    /// Prints the report as text. `command` frees what a dry run lists.
    pub fn print(&self, screen: &Screen, command: &str) -> String {
        let mut text = String::new();
        let count = self.freed.len() + self.freed_of_another_boot.len();
        let addresses = pluralize(count, "address", "addresses");
        let heading = match (self.done, count) {
            (true, 0) => "Nothing was freed.".to_owned(),
            (false, 0) => "Nothing would be freed.".to_owned(),
            (true, _) => format!("Freed {addresses}:"),
            (false, _) => format!("{addresses} would be freed:"),
        };
        text.push_str(&screen.tint(Tint::Strong, &heading));
        text.push('\n');
        text.push_str(&list(&self.freed, screen));
        for address in &self.freed_of_another_boot {
            text.push_str(&format!(
                "  {address}  held before the node was restarted\n"
            ));
        }
        if !self.kept.is_empty() {
            let heading = format!("Kept {}:", pluralize(self.kept.len(), "holder", "holders"));
            text.push_str(&format!("\n{}\n", screen.tint(Tint::Strong, &heading)));
            text.push_str(&list(&self.kept, screen));
        }
        let minutes = GRACE.as_secs() / 60;
        text.push_str(&format!(
            "\n{} alive, {} younger than {minutes} minutes and not judged.\n",
            self.alive, self.young
        ));
        let wait = self.kept.iter().filter_map(|judged| judged.second_check);
        let again = AGAIN.as_secs();
        let next = match (self.done, count, wait.max()) {
            (false, 0, None) | (true, _, None) => return text,
            (false, _, None) => format!("Nothing was changed; `{command}` frees them."),
            (false, 0, Some(_)) => format!(
                "Nothing was changed. Two runs of `{command}`, at least {again} s apart, free the holders that need a second check."
            ),
            (false, _, Some(_)) => format!(
                "Nothing was changed; `{command}` frees them. Two runs of it, at least {again} s apart, free the holders that need a second check."
            ),
            (true, _, Some(left)) => format!(
                "Another run of `{command}` in {left} s or later frees the holders that need a second check."
            ),
        };
        text + &screen.paragraph("", 0, &next)
    }
}

fn list(all: &[JudgedHolder], screen: &Screen) -> String {
    if all.is_empty() {
        return String::new();
    }
    let table = HeldAddress::table(all.iter().map(|judged| &judged.holder), |_| "");
    let mut lines = screen.table(table, 2);
    for (line, judged) in lines.iter_mut().skip(1).zip(all) {
        let reasons = screen.paragraph("", 6, &judged.reasons.join("; "));
        *line += &format!("\n{}", reasons.trim_end());
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::{Candidate, Held, Holder, Judgement, Moment, Reason};
    use crate::ops::tests::assert_json_fixture;

    #[test]
    fn the_report_keeps_its_json_shape() {
        let judged = |address: &str, verdict, reason| Judged {
            candidate: Candidate {
                space: "local".to_owned(),
                pool: "10.224.0.0/16".to_owned(),
                key: address.parse().unwrap(),
                held: Held {
                    holder: Holder::from_container_id("c1").into(),
                    ..Held::default()
                },
            },
            judgement: Judgement {
                verdict,
                reasons: vec![reason],
            },
        };
        let now = Now {
            boot: Moment(7_200_000_000_000),
            wall: 1_795_259_376,
        };
        let gone = Reason::NoEvidence(now.since(Moment(0)));
        let events = [
            Action::FreedAfterReboot(vec!["10.224.0.9".parse().unwrap()]),
            Action::Judged(vec![
                judged("10.224.0.5", Verdict::Dead, gone),
                judged("10.224.0.6", Verdict::Suspect, Reason::NeedsSecondCheck),
                judged("10.224.0.7", Verdict::Alive, Reason::HostRoute),
            ]),
        ];
        assert_json_fixture(
            "reclaim-freed",
            &ReclaimReport::from_decisions(&events, true, 3, &now),
        );
    }
}
