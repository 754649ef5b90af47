//! DEL: releases the addresses of an attachment. It needs no source, no pool and no state (promise P4).

use tracing::info;

use super::context::Context;
use crate::cni::Call;
use crate::events::OperationRecord;
use crate::evidence::Progress;
use crate::failure::Failure;
use crate::host::netns;
use crate::ipam::{Freed, Hint, Moment};
use crate::state::{Condition, LockError, State};

/// The words that the original's message begins with.
const STAGE: &str = "Failed to release address";

/// Releases all addresses of the attachment, unless azure-vnet takes back a second ADD of a running pod.
///
/// # Errors
/// The release cannot be saved, or the lock cannot be had and the attachment holds something.
pub fn del(call: &Call, context: &Context, record: &mut OperationRecord) -> Result<(), Failure> {
    if let Some(address) = hint(call).key()
        && context
            .node
            .is_connected(&call.attachment.container_id, address)
    {
        info!(target: "ipam", "{address} stays held: azure-vnet took back a second ADD of this container, whose endpoint is up.");
        return Ok(());
    }
    let store = |error| Failure::from_store(STAGE, error);
    let mut evidence = None;
    loop {
        let mut locked = match context.lock() {
            Ok(locked) => locked,
            Err(error @ LockError::Io { .. }) => return without_lock(call, context, error),
            Err(error) => return Err(error.into()),
        };
        let mut state = context.open(&mut locked).map_err(store)?;
        let mut freed = release(call, &mut state, context.now());
        if state.ipam().is_ownerless(hint(call)) {
            let Some(evidence) = &evidence else {
                // The owner is unknown, so the kernel is asked first, without holding the lock.
                drop(locked);
                evidence = Some(context.node.evidence(&[], &Progress::default()));
                continue;
            };
            let (attachment, now) = (&call.attachment, context.now());
            let ipam = state.ipam_mut();
            freed.extend(ipam.release_ownerless(attachment, hint(call), evidence, now));
        }
        if freed.is_empty() {
            info!(target: "ipam", "nothing is held.");
            let is_noted = note_early_del(call, context, &mut state);
            // Whoever saved the state was killed before the backup had it. A loss of the state would bring its holders back.
            if state.must_save {
                context.commit(&mut locked, &mut state).map_err(store)?;
            } else if is_noted {
                // Nothing depends on the note.
                let _ = context.commit(&mut locked, &mut state);
            }
            return Ok(());
        }
        // The original's records name no network namespace. It is the one of this DEL, which is torn down next.
        if freed.iter().any(|freed| freed.held.owner.netns().is_none())
            && let Some(netns) = netns(&context.paths, &call.netns)
        {
            state.ipam_mut().note_last_netns(&freed, &netns);
        }
        context.commit(&mut locked, &mut state).map_err(store)?;
        // Nobody waits for the lock while the rest is done, and the state is freed.
        drop(locked);
        log_released(freed, record);
        return Ok(());
    }
}

/// Logs and records the released addresses.
fn log_released(freed: Vec<Freed>, record: &mut OperationRecord) {
    for Freed {
        pool,
        address,
        held,
    } in freed
    {
        record.addresses.push(address);
        let fate = if held.unlisted {
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

/// Notes that this DEL may have come before its ADD. Returns whether that is new. A state that is lost is left to the next ADD.
fn note_early_del(call: &Call, context: &Context, state: &mut State) -> bool {
    !state.is_newer()
        && !state.is_empty()
        && state.condition.lost().is_none()
        && state
            .ipam_mut()
            .note_early_del(&call.attachment, context.now())
}

/// Succeeds without the lock, which a read-only file system does not allow, if the attachment certainly holds nothing.
fn without_lock(call: &Call, context: &Context, error: LockError) -> Result<(), Failure> {
    let holds_nothing = |mut state: Box<State>| {
        let is_certain = match &state.condition {
            Condition::Lost(loss) => loss.may_be_fresh,
            // What only the state says is not safe yet.
            _ => !state.must_save || state.restored.is_some(),
        };
        is_certain
            && !state.ipam().is_ownerless(hint(call))
            && release(call, &mut state, context.now()).is_empty()
    };
    if context.view().is_ok_and(holds_nothing) {
        Ok(())
    } else {
        Err(error.into())
    }
}
