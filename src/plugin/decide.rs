//! Deciding an ADD: values in, values out. It does no IO and reads no clock, so that whole histories can be compared with a model.

use std::collections::BTreeSet;

use super::action::{Action, ReconcileReason};
use super::inputs::Inputs;
use super::node::Host;
use super::snapshot::NodeSnapshot;
use crate::ipam::{
    Candidate, Grant, GrantKind, Ipam, Moment, Pool, PoolSelector, Refusal, Request, Violation,
};
use crate::state::{Loss, PendingWork, State};

/// What an ADD comes to.
#[derive(Debug)]
pub enum Decision {
    /// A snapshot of the node is needed first, with these records to be judged. The state must not be saved.
    NeedsSnapshot(Vec<Candidate>),
    /// The ADD is decided.
    Decided {
        /// The grant of each request, or why there is none.
        grants: Result<Vec<Grant>, Refusal>,
        /// Whether the state changed and must be saved.
        changed: bool,
    },
    /// The state would become inconsistent. It must not be saved.
    Inconsistent(Vec<Violation>),
}

/// Decides an ADD.
pub fn decide(
    state: &mut State,
    inputs: &Inputs<'_>,
    host: &dyn Host,
    actions: &mut Vec<Action>,
) -> Decision {
    let (requests, now) = (inputs.requests, inputs.now);
    let mut changed = false;
    let ipam = state.ipam_mut();
    let known_generation = ipam.generation;
    ipam.generation = ipam.generation.max(inputs.last_generation);
    let mut lost = match &state.pending {
        PendingWork::Rebuild(loss) => Some(loss.clone()),
        _ => inputs.lost.clone().map(|why| Loss { why, seen: now }),
    };
    let fresh = state.is_empty() && lost.is_none();
    let mut new = 0;
    if let Some(inventory) = inputs.inventory {
        let merged = state.ipam_mut().merge(inventory);
        new = if fresh { 0 } else { merged.added };
        actions.push(Action::Merged(merged));
        changed = true;
    }
    // On a fresh node nobody holds an address yet, unless the original granted it.
    if fresh && !state.is_empty() {
        let Some(snapshot) = inputs.snapshot else {
            return Decision::NeedsSnapshot(Vec::new());
        };
        lost = state.ipam().is_in_use(&snapshot.evidence).then(|| Loss {
            why: "it is not there, though pods have addresses of its pools".to_owned(),
            seen: now,
        });
    }
    if state.is_empty() {
        // A state without pools holds nothing that could be wrong. A loss stays pending until there are pools to compare.
        if let Some(loss) = lost {
            let rebuild = PendingWork::Rebuild(loss);
            changed |= state.pending != rebuild;
            state.pending = rebuild;
            // Version 0.1.0 does not know pending work. By this it sees that the state is not a fresh one.
            state.ipam_mut().generation = known_generation;
        }
    } else {
        let mut reason = ReconcileReason::find(state, lost, new, now);
        // When the loss was seen long ago, the end of its quarantine follows at once.
        while let Some(found) = reason.take() {
            let Some(snapshot) = inputs.snapshot.filter(|snapshot| found.accepts(snapshot)) else {
                return Decision::NeedsSnapshot(Vec::new());
            };
            found.reconcile(snapshot, inputs.journal, state, now, actions);
            changed = true;
            reason = ReconcileReason::find(state, None, 0, now);
        }
        // A record that names only the container may belong to another of its interfaces.
        if requests
            .iter()
            .any(|request| state.ipam().is_claimless(request.attachment))
        {
            let Some(snapshot) = inputs.snapshot else {
                return Decision::NeedsSnapshot(Vec::new());
            };
            changed |= state.ipam_mut().adopt_claims(&snapshot.evidence);
        }
    }
    let before = (pool_flags(state.ipam()), state.ipam().check());
    let mut grants = allocate_all(state.ipam_mut(), requests, now, host, actions);
    if matches!(grants, Err(Refusal::Exhausted { .. })) && !inputs.may_ask_again {
        let judging = inputs.snapshot.filter(|s| !s.candidates.is_empty());
        if let Some(snapshot) = judging {
            let ipam = state.ipam_mut();
            let judged = ipam.reclaim(snapshot.candidates.clone(), &snapshot.evidence, now);
            changed |= !judged.is_empty();
            actions.push(Action::Judged(judged));
            grants = allocate_all(state.ipam_mut(), requests, now, host, actions);
        } else {
            let candidates = candidates(state.ipam(), requests, now);
            if !candidates.is_empty() {
                return Decision::NeedsSnapshot(candidates);
            }
        }
    }
    if let Some(snapshot) = inputs.snapshot {
        let ipam = state.ipam_mut();
        changed |= ipam.clear_suspects(&snapshot.evidence, snapshot.began, now);
    }
    // What was inconsistent before is not this call's business, but it must not add to it.
    let after = state.ipam().check();
    let added: Vec<_> = after
        .into_iter()
        .filter(|v| !before.1.contains(v))
        .collect();
    if !added.is_empty() {
        return Decision::Inconsistent(added);
    }
    changed |=
        grants.is_ok() || before.0 != pool_flags(state.ipam()) || state.has_unsaved_moments();
    Decision::Decided { grants, changed }
}

/// Frees the candidates of a snapshot that are dead, for an operator. A pending reconciliation comes first, as in an ADD.
pub fn reclaim(state: &mut State, snapshot: &NodeSnapshot, now: Moment, actions: &mut Vec<Action>) {
    let reason = ReconcileReason::find(state, None, 0, now);
    if let Some(reason) = reason.filter(|reason| reason.accepts(snapshot)) {
        reason.reconcile(snapshot, None, state, now, actions);
    }
    let (candidates, ipam) = (snapshot.candidates.clone(), state.ipam_mut());
    let judged = ipam.reclaim(candidates, &snapshot.evidence, now);
    ipam.clear_suspects(&snapshot.evidence, snapshot.began, now);
    actions.push(Action::Judged(judged));
}

/// Allocates an address for each request, or none at all.
pub(super) fn allocate_all(
    ipam: &mut Ipam,
    requests: &[Request<'_>],
    now: Moment,
    host: &dyn Host,
    actions: &mut Vec<Action>,
) -> Result<Vec<Grant>, Refusal> {
    let mut grants = Vec::new();
    for request in requests {
        match allocate(ipam, request, now, host, actions) {
            Ok(grant) => grants.push(grant),
            Err(refusal) => {
                ipam.revoke_all(request.attachment, &grants);
                return Err(refusal);
            }
        }
    }
    Ok(grants)
}

/// Allocates an address that the host neither has nor routes to. Such an address is somebody else's, whatever the pools say
/// (difference D19).
fn allocate(
    ipam: &mut Ipam,
    request: &Request<'_>,
    now: Moment,
    host: &dyn Host,
    actions: &mut Vec<Action>,
) -> Result<Grant, Refusal> {
    let mut on_host = BTreeSet::new();
    loop {
        let grant = ipam.allocate(
            &Request {
                on_host: &on_host,
                ..request.clone()
            },
            now,
        )?;
        let address = grant.address.addr();
        if matches!(grant.kind, GrantKind::Renewed) || !host.has(address) {
            return Ok(grant);
        }
        ipam.revoke(request.attachment, &grant);
        // Where there is one there are often many: cloud-init configures all addresses of an interface on the host.
        on_host.insert(address);
        on_host.extend(host.all());
        let count = ipam.mark_on_host(&on_host);
        actions.push(Action::SkippedOnHost { address, count });
    }
}

/// Returns the records to judge when the pools of the requests are exhausted.
pub(super) fn candidates(ipam: &Ipam, requests: &[Request<'_>], now: Moment) -> Vec<Candidate> {
    let wanted = |space: &str, key: &str, pool: &Pool| {
        requests.iter().any(|request| {
            let named = |subnet| ipam.spaces.get(space).and_then(|s| s.pool_named(subnet));
            space == request.space
                && match request.pool {
                    PoolSelector::Named(subnet) => named(subnet) == Some(key),
                    PoolSelector::Any { family, if_name } => pool.suits(family, if_name),
                }
        })
    };
    ipam.candidates(wanted, now)
}

/// Returns the pools' flags of having been handed out whole, the only thing that a refused request may change by itself.
fn pool_flags(ipam: &Ipam) -> Vec<i64> {
    ipam.pools().map(|(_, _, pool)| pool.ref_count).collect()
}

#[cfg(test)]
mod tests;
