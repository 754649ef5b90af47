//! Refreshes the pools for an ADD: logs and records the outcome, and rejects implausible answers.

use std::mem;

use tracing::{debug, info, warn};

use crate::events::OperationRecord;
use crate::log::Milliseconds;
use crate::source::{FreshAnswer, RefreshOutcome, RefreshReason, Refresher, SourceError};
use crate::state::State;

/// Asks the source unless there is no need to, and logs the outcome.
pub fn refresh(
    refresher: &Refresher<'_>,
    reason: RefreshReason,
    record: &mut OperationRecord,
) -> RefreshOutcome {
    let outcome = refresher.refresh(reason);
    match &outcome {
        RefreshOutcome::Fresh(answer) => log_answer(answer),
        RefreshOutcome::Answered => {}
        RefreshOutcome::Skipped(why) => {
            debug!(target: "ipam", "the source is not asked: {why}.");
        }
        RefreshOutcome::Failed(error) => {
            warn!(target: "ipam", "Source refresh failed, err:{error}.");
            // The call that asked records its failure itself.
            if !matches!(error, SourceError::FailedByPeer) {
                record.refresh_failed = true;
            }
        }
    }
    outcome
}

/// Rejects an answer that would remove all pools, unless such answers have come for long enough (difference D6).
pub fn reject_implausible(
    outcome: &mut RefreshOutcome,
    state: &State,
    record: &mut OperationRecord,
) {
    let RefreshOutcome::Fresh(answer) = &outcome else {
        return;
    };
    let matched = &answer.matched;
    if !matched.is_doubtful() || state.is_empty() || answer.is_persistent() {
        return;
    }
    let pools = matched.inventory.pools.iter();
    let error = SourceError::Implausible {
        subnets: pools.filter(|pool| pool.addresses.is_empty()).count(),
        interfaces: matched.unmatched.len(),
    };
    warn!(target: "ipam", "Source refresh failed, err:{error}; the stored pools stay for now.");
    record.refresh_failed = true;
    if let RefreshOutcome::Fresh(answer) = mem::replace(outcome, RefreshOutcome::Failed(error)) {
        answer.reject();
    }
}

/// How many hardware addresses are logged individually; a node has fewer interfaces.
const MOST_LOGGED: usize = 64;

/// Logs what a source listed.
fn log_answer(answer: &FreshAnswer) {
    let matched = &answer.matched;
    let unmatched = &matched.unmatched;
    for mac in unmatched.iter().take(MOST_LOGGED) {
        info!(target: "ipam", "Failed to find interface with MAC address:{mac}.");
    }
    if let Some(more) = unmatched.len().checked_sub(MOST_LOGGED).filter(|n| *n > 0) {
        info!(target: "ipam", "Failed to find interface with {more} more MAC addresses.");
    }
    for pool in &matched.inventory.pools {
        let (count, subnet) = (pool.addresses.len(), pool.subnet);
        // The node's own range is on no interface.
        let if_name = match &*pool.if_name {
            "" => "-",
            name => name,
        };
        info!(target: "ipam", "got {count} addresses from interface {if_name}, subnet {subnet}.");
    }
    let took = Milliseconds(answer.took);
    let (primary, skipped) = (matched.primary, matched.skipped);
    info!(target: "ipam", "the source answered in {took}; {primary} addresses are the host's, {skipped} unusable.");
}
