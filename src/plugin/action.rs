//! What an ADD did on its way to a decision, and its lines in the log.

use std::net::IpAddr;

use tracing::{info, warn};

use crate::events::FreedAddress;
use crate::ipam::{Candidate, Judged, Merged, Owner, Verdict};
use crate::state::{Condition, Loss};

/// A change of the state beside the grants themselves.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// An answer of the source was merged.
    Merged(Merged),
    /// The state of this condition was compared with the node, which uses these addresses. A state that is ready was in quarantine.
    Reconciled(Condition, Vec<(IpAddr, Owner)>),
    /// So many addresses are held because an incomplete journal names them.
    Replayed(usize),
    /// These addresses of an earlier boot were freed.
    FreedAfterReboot(Vec<IpAddr>),
    /// These holders were judged.
    Judged(Vec<Judged>),
    /// A free address was skipped, because the host has it or a route to it.
    SkippedOnHost {
        /// The address that would have been next.
        address: IpAddr,
        /// How many such addresses there are.
        count: usize,
    },
}

impl Action {
    /// The addresses that were taken from dead holders.
    pub fn freed(&self) -> Vec<FreedAddress> {
        let Action::Judged(judged) = self else {
            return Vec::new();
        };
        let dead = judged.iter();
        let dead = dead.filter(|judged| judged.judgement.verdict == Verdict::Dead);
        dead.map(|judged| freed_address(&judged.candidate))
            .collect()
    }
}

/// Describes an address that is taken from its holder, for the list of operations.
pub(super) fn freed_address(candidate: &Candidate) -> FreedAddress {
    FreedAddress::new(candidate.key, &candidate.held.owner)
}

/// Writes the actions to the log.
pub(crate) fn log_actions(actions: &[Action]) {
    for action in actions {
        match action {
            Action::Merged(merged) => {
                let (added, removed, unlisted) = (merged.added, merged.removed, merged.unlisted);
                info!(target: "ipam", "merged: {added} addresses new, {removed} gone, {unlisted} in use but not listed.");
            }
            Action::Reconciled(condition, found) => log_reconciled(condition, found),
            Action::Replayed(held) => {
                info!(target: "ipam", "the journal, which is not complete, holds {held} more addresses.");
            }
            Action::FreedAfterReboot(freed) => {
                info!(target: "ipam", "the node was restarted: freed {} addresses of the earlier boot.", freed.len());
            }
            Action::Judged(judged) => log_verdicts(judged),
            Action::SkippedOnHost { address, count } => {
                warn!(target: "ipam", "{address} is free, but the host has it or a route to it; {count} such addresses are skipped.");
            }
        }
    }
}

fn log_reconciled(condition: &Condition, found: &[(IpAddr, Owner)]) {
    match condition {
        Condition::Lost(Loss { why, .. }) => {
            warn!(target: "ipam", "the state was lost ({why}) and is rebuilt.");
        }
        Condition::Reconcile => info!(target: "ipam", "the state is compared with the node."),
        Condition::Ready => info!(target: "ipam", "the quarantine is over."),
        Condition::NewBoot | Condition::Fresh | Condition::Newer { .. } => {}
    }
    for (address, owner) in found {
        let owner = owner.container_id().unwrap_or("an unknown owner");
        info!(target: "ipam", "{address} is in use on this node and is held for {owner}.");
    }
}

fn count(judged: &[Judged], verdict: Verdict) -> usize {
    let matching = judged.iter().filter(|j| j.judgement.verdict == verdict);
    matching.count()
}

fn log_verdicts(judged: &[Judged]) {
    info!(
        target: "ipam",
        "judged {} holders: {} dead, {} suspect, {} undecided, {} alive.",
        judged.len(),
        count(judged, Verdict::Dead),
        count(judged, Verdict::Suspect),
        count(judged, Verdict::Undecided),
        count(judged, Verdict::Alive)
    );
    for Judged {
        candidate,
        judgement,
    } in judged
    {
        let reasons: Vec<String> = judgement.reasons.iter().map(ToString::to_string).collect();
        let (address, held, reasons) = (candidate.key, &candidate.held, reasons.join("; "));
        let owner = held.owner.container_id().unwrap_or("unknown");
        let pod = held.owner.pod().unwrap_or("-");
        match judgement.verdict {
            Verdict::Dead => {
                warn!(target: "ipam", "{address} is reclaimed from container {owner}, pod {pod}: {reasons}.");
            }
            Verdict::Suspect | Verdict::Undecided => {
                info!(target: "ipam", "{address} of container {owner}, pod {pod}, is left alone: {reasons}.");
            }
            Verdict::Alive => {}
        }
    }
}
