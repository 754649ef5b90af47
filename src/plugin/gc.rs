//! GC: reclaims the addresses of attachments that the runtime no longer knows (SPEC.md, "GC: Clean up any stale resources").

use tracing::{info, warn};

use super::context::Context;
use super::known::{Known, Need};
use super::report::freed_address;
use super::transaction::transact;
use crate::cni::Call;
use crate::events::OperationRecord;
use crate::failure::Failure;
use crate::ipam::{Candidate, Judged, Moment, Verdict};
use crate::state::{Condition, State};

/// The words that the messages of GC begin with.
const STAGE: &str = "Failed to collect stale addresses";

/// Reclaims the addresses of this network's attachments that the runtime does not list as valid. The node is scanned first: a running pod
/// keeps its address even if the runtime omits it.
///
/// # Errors
/// The state cannot be locked, read or replaced, or some stale addresses stay held.
pub fn gc(call: &Call, context: &Context, record: &mut OperationRecord) -> Result<(), Failure> {
    let state = context
        .view()
        .map_err(|error| Failure::from_store(STAGE, error))?;
    let (network, now) = (&call.attachment.network, context.now());
    let stale = state.ipam().stale(network, &call.valid, now);
    info!(
        target: "ipam",
        "network {network} has {} valid attachments, and {} stale addresses; {} more are too young, {} name no network.",
        call.valid.len(),
        stale.candidates.len(),
        stale.young,
        stale.unknown
    );
    // Most calls find nothing, and need no lock.
    let has_nothing_to_save = !state.must_save && !state.document.has_unsaved_moments();
    if stale.candidates.is_empty() && has_nothing_to_save && !state.is_newer() {
        return Ok(());
    }
    let mut known = Known::default();
    let collected = transact(context, &mut known, None, |state, known, now| {
        decide(state, call, known, now)
    });
    let collected = collected.map_err(|error| error.into_failure(STAGE))??;
    let is_dead = |judged: &Judged| judged.judgement.verdict == Verdict::Dead;
    let (freed, kept): (Vec<_>, Vec<_>) = collected.into_iter().partition(is_dead);
    for Judged { candidate, .. } in &freed {
        let address = candidate.key;
        record.addresses.push(address);
        record.freed.push(freed_address(candidate));
        warn!(target: "ipam", "{address} of container {} is free: the runtime no longer knows it.", container(candidate));
    }
    record.addresses.sort_unstable();
    record.freed.sort_unstable_by_key(|freed| freed.address);
    for Judged {
        candidate,
        judgement,
    } in &kept
    {
        let (address, container) = (candidate.key, container(candidate));
        let reasons: Vec<String> = judgement.reasons.iter().map(ToString::to_string).collect();
        let reasons = reasons.join("; ");
        warn!(target: "ipam", "{address} of container {container} is kept, though the runtime no longer knows it: {reasons}.");
    }
    if kept.is_empty() {
        Ok(())
    } else {
        Err(Failure::NotAllFreed {
            freed: freed.len(),
            kept,
        })
    }
}

/// Decides which stale addresses are reclaimed: those without evidence of a live holder.
fn decide(
    state: &mut State,
    call: &Call,
    known: &Known<'_>,
    now: Moment,
) -> Result<Result<Vec<Judged>, Failure>, Need> {
    if let Condition::Newer { format } = state.condition {
        state.must_save = false;
        return Ok(Err(Failure::NewerFormat { found: format }));
    }
    if let Some(loss) = state.condition.lost() {
        warn!(target: "ipam", "the state is lost ({}); nothing is freed before the next ADD rebuilds it.", loss.why);
        state.must_save = false;
        return Ok(Ok(Vec::new()));
    }
    let mut collected = Vec::new();
    if let Some(scan) = &known.scan {
        let ipam = state.ipam_mut();
        collected = ipam.collect(scan.candidates.clone(), &scan.evidence, now);
        state.must_save |= ipam.clear_suspects(&scan.evidence, scan.began, now);
    } else {
        let network = &call.attachment.network;
        let stale = state.ipam().stale(network, &call.valid, now);
        if !stale.candidates.is_empty() {
            return Err(Need::Scan(stale.candidates));
        }
    }
    let is_freed = |judged: &Judged| judged.judgement.verdict == Verdict::Dead;
    state.must_save |= collected.iter().any(is_freed) || state.document.has_unsaved_moments();
    Ok(Ok(collected))
}

fn container(candidate: &Candidate) -> &str {
    candidate.held.holder.container_id()
}
