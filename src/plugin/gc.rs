//! GC: frees the addresses of attachments that the runtime no longer knows (SPEC.md, "GC: Clean up any stale resources").

use tracing::{info, warn};

use super::commit::require_known_format;
use super::context::{Context, NodeSnapshot};
use super::report::freed_address;
use crate::cni::Call;
use crate::events::OperationRecord;
use crate::failure::Failure;
use crate::ipam::{Candidate, Judged, Verdict};
use crate::state::StoreError;

/// The words that its messages begin with.
const STAGE: &str = "Failed to collect stale addresses";

/// Frees the addresses of this network's attachments that are not among the valid ones. Asks the kernel first, and not under
/// the lock: a running pod keeps its address even if the runtime omits it.
pub fn gc(call: &Call, context: &Context, record: &mut OperationRecord) -> Result<(), Failure> {
    let state = context.view().map_err(store)?;
    require_known_format(&state)?;
    let network = &call.attachment.network;
    let stale = state.ipam().stale(network, &call.valid, context.now());
    info!(
        target: "ipam",
        "network {network} has {} valid attachments, and {} stale addresses; {} more are too young, {} name no network.",
        call.valid.len(),
        stale.candidates.len(),
        stale.young,
        stale.unknown
    );
    let snapshot = match stale.candidates.is_empty() {
        true if !state.must_save && !state.has_unsaved_moments() => return Ok(()),
        true => NodeSnapshot::default(),
        false => NodeSnapshot::capture(stale.candidates, context),
    };
    collect(&snapshot, context, record)
}

/// Frees the candidates that nothing vetoes.
fn collect(
    snapshot: &NodeSnapshot,
    context: &Context,
    record: &mut OperationRecord,
) -> Result<(), Failure> {
    let mut locked = context.lock()?;
    let mut state = context.open(&mut locked).map_err(store)?;
    require_known_format(&state)?;
    if let Some(loss) = state.condition.lost() {
        warn!(target: "ipam", "the state is lost ({}); nothing is freed before the next ADD rebuilds it.", loss.why);
        return Ok(());
    }
    let candidates = snapshot.candidates.clone();
    let ipam = state.ipam_mut();
    let collected = ipam.collect(candidates, &snapshot.evidence, context.now());
    let is_cleared = ipam.clear_suspects(&snapshot.evidence, snapshot.began, context.now());
    let is_dead = |judged: &Judged| judged.judgement.verdict == Verdict::Dead;
    let (freed, kept): (Vec<_>, Vec<_>) = collected.into_iter().partition(is_dead);
    let is_changed =
        !freed.is_empty() || is_cleared || state.must_save || state.has_unsaved_moments();
    if is_changed {
        context.commit(&mut locked, &mut state).map_err(store)?;
    }
    let of = |candidate: &Candidate| {
        let owner = &candidate.held.owner;
        (
            candidate.key,
            owner.container_id().unwrap_or_default().to_owned(),
        )
    };
    for Judged { candidate, .. } in &freed {
        let (address, container) = of(candidate);
        record.addresses.push(address);
        record.freed.push(freed_address(candidate));
        warn!(target: "ipam", "{address} of container {container} is free: the runtime no longer knows it.");
    }
    record.addresses.sort_unstable();
    record.freed.sort_unstable_by_key(|freed| freed.address);
    for Judged {
        candidate,
        judgement,
    } in &kept
    {
        let (address, container) = of(candidate);
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

fn store(error: StoreError) -> Failure {
    Failure::from_store(STAGE, error)
}
