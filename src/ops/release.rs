//! `release`: releases one address by hand, or all those of one pod.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::Serialize;

use super::cli::ReleaseArgs;
use super::held::{
    ContainerMatch, HeldAddress, ambiguous, describe_too_short, find_container, find_pod_of_holder,
    held_records, list_first, no_such_pod,
};
use super::node::{Node, capture_snapshot};
use super::outcome::{
    CommandError, CommandOutput, describe_operator, parse_address, record_operation, start_log,
};
use super::screen::Screen;
use super::state_view::StateView;
use crate::events::OperationRecord;
use crate::host::boot_now;
use crate::ipam::{Candidate, Evidence, EvidenceIndex, Held, Holder, Ipam, Reason, Verdict};
use crate::state::State;
use tracing::warn;

/// The name of an unknown holder on the command line.
const UNKNOWN: &str = "unknown";

/// The result of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseReport {
    /// The time, RFC 3339.
    pub time: String,
    /// Whether the addresses were released.
    pub released: bool,
    /// The reason of a refusal.
    pub refused: Option<String>,
    /// The held addresses that are to be released, all of one holder.
    pub holders: Vec<HeldAddress>,
    /// Evidence that the holder is alive, and evidence that could not be checked.
    pub signs_of_life: Vec<String>,
}

/// Runs the command.
pub fn run(node: &Node, args: &ReleaseArgs) -> Result<CommandOutput, CommandError> {
    let address = args.address.as_deref().map(parse_address).transpose()?;
    start_log(node.paths());
    let mut outcome = ReleaseReport {
        time: node.now.wall_time(node.now.boot),
        ..ReleaseReport::default()
    };
    outcome.refused = outcome.attempt(node, address, args)?;
    outcome.released = outcome.refused.is_none();
    if outcome.released {
        outcome.record(node);
    }
    let status = u8::from(!outcome.released);
    args.format
        .output(status, &outcome, || outcome.print(&node.screen))
}

/// Whether the typed container is the holder.
fn is_holder(container: &str, holder: &Holder) -> bool {
    match holder.container_id() {
        "" => container == UNKNOWN,
        id => id == container,
    }
}

/// The whole ID of the container that was typed, by its prefix; the text itself if no holder of the state has it.
///
/// # Errors
/// Several holders have the prefix, or it is too short.
fn complete_id(typed: &str, ipam: &Ipam) -> Result<String, CommandError> {
    let holders = held_records(ipam).map(|(_, _, _, held)| held.holder.container_id());
    match find_container(typed, holders) {
        ContainerMatch::One(id) => Ok(id),
        ContainerMatch::None => Ok(typed.to_owned()),
        ContainerMatch::TooShort => Err(CommandError(describe_too_short(typed))),
        ContainerMatch::Ambiguous(ids) => Err(ambiguous(typed, "containers begin with it", &ids)),
    }
}

/// The held record of the address; of several, the one of the container.
fn named(state: &State, address: IpAddr, container: Option<&str>) -> Result<Candidate, String> {
    // Two pools may list one address.
    let all = held_records(state.ipam()).filter(|(_, _, r, _)| r.address() == address);
    let all: Vec<_> = all.collect();
    let meant = all
        .iter()
        .find(|(_, _, _, held)| container.is_some_and(|id| is_holder(id, &held.holder)));
    if let Some((space, pool, record, held)) = meant.or(all.first()) {
        return Ok(Candidate::new(space, pool, record.key, held));
    }
    let known = state
        .ipam()
        .pools()
        .any(|(_, _, pool)| pool.records.iter().any(|r| r.address() == address));
    Err(if known {
        format!("{address} is free already")
    } else {
        format!("{address} is in none of the pools")
    })
}

/// The held records of a pod.
///
/// # Errors
/// The name stands for no pod or for several, or several sandboxes of the pod hold addresses.
fn of_pod(state: &State, name: &str) -> Result<Vec<Candidate>, CommandError> {
    let pod = find_pod_of_holder(name, state.ipam())?;
    let all = held_records(state.ipam());
    let its = all.filter(|(_, _, _, held)| held.holder.pod.as_ref() == Some(&pod));
    let found = its.map(|(space, key, record, held)| Candidate::new(space, key, record.key, held));
    let found: Vec<Candidate> = found.collect();
    let holders = found.iter().map(|candidate| &candidate.held.holder);
    let sandboxes: BTreeSet<&str> = holders.map(|holder| holder.container_id()).collect();
    if sandboxes.len() > 1 {
        let describe =
            |c: &Candidate| format!("{} --container {}", c.key, c.held.holder.container_text());
        let each: Vec<String> = found.iter().map(describe).collect();
        return Err(CommandError(format!(
            "{} sandboxes of pod {pod} hold addresses; `reclaim --pod` frees those of dead ones; to release one, type its address:\n  {}",
            sandboxes.len(),
            list_first(&each)
        )));
    }
    Ok(found)
}

/// The evidence that the holder is alive or may be. Its age is not evidence, nor that it can show none.
fn signs(address: IpAddr, held: &Held, ipam: &Ipam, evidence: &Evidence) -> Vec<String> {
    let index = EvidenceIndex::new(evidence, ipam);
    let judgement = index.judge(address, held, boot_now());
    match judgement.verdict {
        Verdict::Dead | Verdict::Suspect => Vec::new(),
        Verdict::Alive | Verdict::Undecided => {
            let is_sign = |reason: &&Reason| !matches!(reason, Reason::Young(_) | Reason::Kept);
            let signs = judgement.reasons.iter().filter(is_sign);
            signs.map(ToString::to_string).collect()
        }
    }
}

/// Frees the records under the lock, unless one of them changed.
fn release(node: &Node, candidates: &[Candidate]) -> Result<bool, CommandError> {
    let mut locked = node.lock()?;
    let loaded = node.context.open(&mut locked);
    let Some(mut state) = StateView::from_opened(node, loaded).into_writable()? else {
        return Ok(false);
    };
    let ipam = state.ipam_mut();
    if !candidates
        .iter()
        .all(|candidate| ipam.free_by_hand(candidate, boot_now()))
    {
        return Ok(false);
    }
    node.save(&mut locked, &mut state)?;
    Ok(true)
}

impl ReleaseReport {
    /// Releases the addresses, or returns the reason of the refusal. Fills the holders and the evidence.
    fn attempt(
        &mut self,
        node: &Node,
        address: Option<IpAddr>,
        args: &ReleaseArgs,
    ) -> Result<Option<String>, CommandError> {
        let refused = |why: &str| Ok(Some(why.to_owned()));
        let Some(state) = StateView::load(node).into_writable()? else {
            if let Some(pod) = &args.pod {
                return Err(no_such_pod(pod));
            }
            return refused("there is no state on this node, so nothing is held");
        };
        let typed = args.container.as_deref();
        let container = typed.map(|typed| complete_id(typed, state.ipam()));
        let container = container.transpose()?;
        let candidates = match (address, &args.pod) {
            (Some(address), _) => match named(&state, address, container.as_deref()) {
                Ok(candidate) => vec![candidate],
                Err(why) => return Ok(Some(why)),
            },
            (None, pod) => of_pod(&state, pod.as_deref().unwrap_or_default())?,
        };
        let held = |candidate| HeldAddress::from_candidate(candidate, &node.now);
        self.holders = candidates.iter().map(held).collect();
        if let (None, Some(first)) = (&args.pod, self.holders.first()) {
            let (holder_text, address_text) = (first.describe_holder(), self.addresses_text());
            let Some(container) = container else {
                return Err(CommandError(format!(
                    "--container ID is missing; {address_text} is held by {holder_text}: --container {}",
                    first.container_text()
                )));
            };
            if !is_holder(&container, &first.holder) {
                return refused(&format!(
                    "{address_text} is held by {holder_text}, not by container {}",
                    typed.unwrap_or_default()
                ));
            }
        }
        let mut scan = capture_snapshot(candidates.clone(), &node.context);
        node.note_other_network(state.ipam(), &mut scan.evidence);
        for Candidate { key, held, .. } in &candidates {
            let found = signs(address.unwrap_or(*key), held, state.ipam(), &scan.evidence);
            let is_new = |sign: &String| !self.signs_of_life.contains(sign);
            let new: Vec<String> = found.into_iter().filter(is_new).collect();
            self.signs_of_life.extend(new);
        }
        if !self.signs_of_life.is_empty() && !args.force {
            return refused(
                "its holder may be alive; if you are certain that it is dead, add --force",
            );
        }
        if release(node, &candidates)? {
            Ok(None)
        } else {
            refused("its record changed during this command; try again")
        }
    }

    /// The addresses, as part of a sentence.
    fn addresses_text(&self) -> String {
        let addresses = self.holders.iter().map(|held| held.address.to_string());
        addresses.collect::<Vec<_>>().join(" and ")
    }

    /// Writes the log line and the operation record.
    fn record(&self, node: &Node) {
        let Some(first) = self.holders.first() else {
            return;
        };
        let (addresses, operator) = (self.addresses_text(), describe_operator());
        let holder_text = first.describe_holder();
        let signs = if self.signs_of_life.is_empty() {
            "no evidence showed its holder".to_owned()
        } else {
            format!("despite: {}", self.signs_of_life.join("; "))
        };
        let verb = if self.holders.len() > 1 {
            "were"
        } else {
            "was"
        };
        warn!(target: "ipam", "{addresses} of {holder_text} {verb} released by {operator}; {signs}.");
        let record = OperationRecord {
            verb: "release".to_owned(),
            holder: first.holder.clone(),
            addresses: self.holders.iter().map(|held| held.address).collect(),
            ..OperationRecord::default()
        };
        record_operation(&node.context, record);
    }

    /// Prints the report as text.
    pub fn print(&self, screen: &Screen) -> String {
        let holder = self.holders.first().map(HeldAddress::describe_holder);
        let (addresses, holder) = (self.addresses_text(), holder.unwrap_or_default());
        let sentence = match &self.refused {
            Some(why) => format!("Not released: {why}."),
            None if self.holders.len() > 1 => format!(
                "{addresses} of {holder} are released; they are allocated again after a cooldown."
            ),
            None => format!(
                "{addresses} of {holder} is released; it is allocated again after a cooldown."
            ),
        };
        let mut text = screen.paragraph("", 0, &sentence);
        for sign in &self.signs_of_life {
            text.push_str(&screen.paragraph("  -", 4, sign));
        }
        text
    }
}
