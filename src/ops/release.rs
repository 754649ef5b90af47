//! `release`: releases one address by hand.

use std::net::IpAddr;

use serde::Serialize;

use super::cli::ReleaseArgs;
use super::held::{
    ContainerMatch, HeldAddress, ambiguous, describe_too_short, find_container, held_records,
};
use super::node::{Node, capture_snapshot};
use super::outcome::{
    CommandError, CommandOutput, describe_operator, parse_address, record_operation,
};
use super::screen::Screen;
use super::state_view::StateView;
use crate::events::OperationRecord;
use crate::host::boot_now;
use crate::ipam::{Candidate, Evidence, EvidenceIndex, Held, Holder, Ipam, Reason, Verdict};
use crate::log;
use crate::state::State;
use tracing::warn;

/// The name of an unknown holder on the command line.
const UNKNOWN: &str = "unknown";

/// The result of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseReport {
    /// The time, RFC 3339.
    pub time: String,
    /// The address.
    pub address: IpAddr,
    /// Whether it was released.
    pub released: bool,
    /// The reason of a refusal.
    pub refused: Option<String>,
    /// The held address.
    pub holder: Option<HeldAddress>,
    /// Evidence that the holder is alive, and evidence that could not be checked.
    pub signs_of_life: Vec<String>,
}

/// Runs the command.
pub fn run(node: &Node, args: &ReleaseArgs) -> Result<CommandOutput, CommandError> {
    let address = parse_address(&args.address)?;
    log::start(None);
    let mut outcome = ReleaseReport {
        time: node.now.wall_time(node.now.boot),
        address,
        released: false,
        refused: None,
        holder: None,
        signs_of_life: Vec::new(),
    };
    outcome.refused = outcome.attempt(node, args.container.as_deref(), args.force)?;
    outcome.released = outcome.refused.is_none();
    if outcome.released {
        outcome.tell(node);
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

/// Frees the record under the lock, unless it changed.
fn release(node: &Node, candidate: &Candidate) -> Result<bool, CommandError> {
    let mut locked = node.lock()?;
    let loaded = node.context.open(&mut locked);
    let Some(mut state) = StateView::from_opened(node, loaded).into_writable()? else {
        return Ok(false);
    };
    if !state.ipam_mut().free_by_hand(candidate, boot_now()) {
        return Ok(false);
    }
    node.save(&mut locked, &mut state)?;
    Ok(true)
}

impl ReleaseReport {
    /// Releases the address, or returns the reason of the refusal. Fills the holder and the evidence.
    fn attempt(
        &mut self,
        node: &Node,
        typed: Option<&str>,
        force: bool,
    ) -> Result<Option<String>, CommandError> {
        let refused = |why: &str| Ok(Some(why.to_owned()));
        let address = self.address;
        let Some(state) = StateView::load(node).into_writable()? else {
            return refused("there is no state on this node, so nothing is held");
        };
        let container = typed.map(|typed| complete_id(typed, state.ipam()));
        let container = container.transpose()?;
        let candidate = match named(&state, address, container.as_deref()) {
            Ok(candidate) => candidate,
            Err(why) => return Ok(Some(why)),
        };
        let holder = HeldAddress::from_candidate(&candidate, &node.now);
        let holder_text = holder.describe_holder();
        let Some(container) = container else {
            return Err(CommandError(format!(
                "--container ID is missing; {address} is held by {holder_text}: --container {}",
                holder.container_text()
            )));
        };
        self.holder = Some(holder);
        if !is_holder(&container, &candidate.held.holder) {
            return refused(&format!(
                "{address} is held by {holder_text}, not by container {}",
                typed.unwrap_or_default()
            ));
        }
        let look = capture_snapshot(vec![candidate.clone()], &node.context);
        self.signs_of_life = signs(address, &candidate.held, state.ipam(), &look.evidence);
        if !self.signs_of_life.is_empty() && !force {
            return refused(
                "its holder may be alive; if you are certain that it is dead, add --force",
            );
        }
        if release(node, &candidate)? {
            Ok(None)
        } else {
            refused("its record changed meanwhile; try again")
        }
    }

    /// Writes the log line and the operation record.
    fn tell(&self, node: &Node) {
        let Some(holder) = &self.holder else {
            return;
        };
        let (address, operator) = (self.address, describe_operator());
        let holder_text = holder.describe_holder();
        let signs = if self.signs_of_life.is_empty() {
            "no evidence showed its holder".to_owned()
        } else {
            format!("despite: {}", self.signs_of_life.join("; "))
        };
        warn!(target: "ipam", "{address} of {holder_text} was released by {operator}; {signs}.");
        let record = OperationRecord {
            verb: "release".to_owned(),
            holder: holder.by.clone(),
            addresses: vec![address],
            ..OperationRecord::default()
        };
        record_operation(&node.context, record);
    }

    /// Prints the report as text.
    pub fn print(&self, screen: &Screen) -> String {
        let (address, holder) = (self.address, self.holder.as_ref());
        let holder = holder.map(HeldAddress::describe_holder).unwrap_or_default();
        let sentence = match &self.refused {
            None => format!(
                "{address} of {holder} is released; it is allocated again after a cooldown."
            ),
            Some(why) => format!("Not released: {why}."),
        };
        let mut text = screen.paragraph("", 0, &sentence);
        for sign in &self.signs_of_life {
            text.push_str(&screen.paragraph("  -", 4, sign));
        }
        text
    }
}
