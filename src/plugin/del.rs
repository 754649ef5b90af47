//! DEL: releases the addresses of an attachment. It needs no source, no pool and no state (promise P4).

use tracing::info;

use super::context::Context;
use super::known::{Known, Need};
use super::transaction::{TransactionError, transact};
use crate::cni::Call;
use crate::events::OperationRecord;
use crate::failure::Failure;
use crate::ipam::{Freed, Hint, Moment};
use crate::state::{Condition, LockError, State};

/// The words that the original's message begins with.
const STAGE: &str = "Failed to release address";

/// Releases all addresses of the attachment. Nothing is released when azure-vnet takes back a second ADD of a running pod.
///
/// # Errors
/// The release cannot be saved, or the lock cannot be acquired and the attachment holds an address.
pub fn del(call: &Call, context: &Context, record: &mut OperationRecord) -> Result<(), Failure> {
    if let Some(address) = hint(call).key()
        && context
            .node
            .is_connected(&call.attachment.container_id, address)
    {
        info!(target: "ipam", "{address} stays held: azure-vnet undid a second ADD of this container, and its endpoint is up.");
        return Ok(());
    }
    let mut known = Known::default();
    let released = transact(context, &mut known, None, |state, known, now| {
        decide(state, call, known, now, context)
    });
    match released {
        Ok(released) => log_released(released.freed, record),
        // Only the note of an early DEL could not be saved. Nothing depends on it.
        Err(TransactionError::Commit(_, released)) if !released.must_be_saved => {}
        Err(TransactionError::Lock(error @ LockError::Io { .. })) => {
            return without_lock(call, context, error);
        }
        Err(error) => return Err(error.into_failure(STAGE)),
    }
    Ok(())
}

/// The outcome of a DEL.
#[derive(Debug)]
struct Released {
    freed: Vec<Freed>,
    /// Whether the DEL fails if the state cannot be saved.
    must_be_saved: bool,
}

/// Decides what a DEL releases. Two kinds of records need a scan of the node first: those without a known holder, and those that name the
/// container but no interface.
fn decide(
    state: &mut State,
    call: &Call,
    known: &Known<'_>,
    now: Moment,
    context: &Context,
) -> Result<Released, Need> {
    if !state.is_newer() && state.ipam().lacks_interface(&call.attachment) {
        let evidence = &known.scan()?.evidence;
        state.ipam_mut().complete_holders(evidence);
    }
    let mut freed = release(call, state, now);
    if state.ipam().is_orphaned(hint(call)) {
        let scan = known.scan()?;
        let ipam = state.ipam_mut();
        freed.extend(ipam.release_orphaned(&call.attachment, hint(call), &scan.evidence, now));
    }
    // The original's records name no network namespace. The namespace of this DEL, which is torn down next, takes its place.
    if freed.iter().any(|freed| freed.held.holder.netns.is_none())
        && let Some(netns) = context.node.netns(&call.netns)
    {
        state.ipam_mut().note_last_netns(&freed, &netns);
    }
    // A call may have been killed after it saved the state and before it saved the backup. Until the state is saved again, its loss would
    // bring released holders back.
    let must_be_saved = state.must_save || !freed.is_empty();
    let is_noted = freed.is_empty() && note_early_del(call, state, now);
    state.must_save = must_be_saved || is_noted;
    Ok(Released {
        freed,
        must_be_saved,
    })
}

/// Logs and records the released addresses.
fn log_released(freed: Vec<Freed>, record: &mut OperationRecord) {
    if freed.is_empty() {
        info!(target: "ipam", "nothing is held.");
    }
    for Freed {
        pool,
        address,
        held,
    } in freed
    {
        record.addresses.push(address);
        let fate = if held.unlisted.is_some() {
            "released and removed from"
        } else {
            "released to"
        };
        info!(target: "ipam", "{address} {fate} pool {pool}.");
    }
}

fn hint(call: &Call) -> Hint<'_> {
    let ipam = &call.conf.ipam;
    Hint {
        space: Some(&ipam.address_space),
        subnet: ipam.subnet.as_deref(),
        address: ipam.ip_address.as_deref(),
        previous: call.previous.as_deref().unwrap_or_default(),
    }
}

fn release(call: &Call, state: &mut State, now: Moment) -> Vec<Freed> {
    state.ipam_mut().release(&call.attachment, hint(call), now)
}

/// Records that this DEL may have come before its ADD. Returns whether that changed the state. A lost state is left for the next ADD to
/// rebuild.
fn note_early_del(call: &Call, state: &mut State, now: Moment) -> bool {
    !state.is_newer()
        && !state.is_empty()
        && state.condition.lost().is_none()
        && state.ipam_mut().note_early_del(&call.attachment, now)
}

/// Succeeds without the lock if the attachment certainly holds nothing. A read-only file system, for example, allows no lock.
fn without_lock(call: &Call, context: &Context, error: LockError) -> Result<(), Failure> {
    let holds_nothing = |mut state: State| {
        let is_certain = match &state.condition {
            Condition::Lost(loss) => loss.may_be_fresh,
            // A state that is ahead of its backup is not certain until it is saved again.
            _ => !state.must_save || state.restored.is_some(),
        };
        is_certain
            && !state.ipam().is_orphaned(hint(call))
            && release(call, &mut state, context.now()).is_empty()
    };
    if context.view().is_ok_and(holds_nothing) {
        Ok(())
    } else {
        Err(error.into())
    }
}
