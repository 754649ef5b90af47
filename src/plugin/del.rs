//! DEL: releases the addresses of an attachment. It needs no source, no pool and no state (promise P4).

use std::mem::{self, ManuallyDrop};

use tracing::{debug, info, warn};

use super::commit::Commit;
use super::context::Context;
use crate::cni::Call;
use crate::events::OperationRecord;
use crate::evidence::Progress;
use crate::failure::Failure;
use crate::host::io_reason;
use crate::ipam::{Freed, Hint, Moment};
use crate::state::{self, KeyStatus, Loaded, LockError, Locked, State, load};

/// The words that the original's message begins with.
const STAGE: &str = "Failed to release address";

/// Releases all addresses of the attachment.
///
/// # Errors
/// The release cannot be saved, or the lock cannot be had and the attachment holds something.
pub fn del(call: &Call, context: &Context, record: &mut OperationRecord) -> Result<(), Failure> {
    // Never dropped: freeing a large state takes time, and the process ends soon.
    release_all(
        call,
        context,
        &mut ManuallyDrop::new(State::default()),
        record,
    )
}

/// Releases all addresses of the attachment, but not when azure-vnet takes back a second ADD of a running pod. `state` receives the
/// state that they are released from, for the caller to drop.
pub fn release_all(
    call: &Call,
    context: &Context,
    state: &mut State,
    record: &mut OperationRecord,
) -> Result<(), Failure> {
    if let Some(address) = hint(call).key()
        && context
            .node
            .is_connected(&call.attachment.container_id, address)
    {
        info!(target: "ipam", "{address} stays held: azure-vnet took back a second ADD of this container, whose endpoint is up.");
        return Ok(());
    }
    let mut lost = Vec::new();
    context.retry_lost_lock(|| attempt(call, context, state, &mut lost, record))
}

/// Tries to release. When the lock is lost, the addresses may be held again in the state of another call; `lost` receives them.
fn attempt(
    call: &Call,
    context: &Context,
    state: &mut State,
    lost: &mut Vec<Freed>,
    record: &mut OperationRecord,
) -> Result<Commit, Failure> {
    let mut locked = match context.lock() {
        Ok(locked) => locked,
        Err(error @ LockError::Io { .. }) => {
            return without_lock(call, context, error).map(|()| Commit::Done);
        }
        Err(error @ LockError::Busy { .. }) => return Err(error.into()),
    };
    let Some(loaded) = read(&mut locked, context)? else {
        note_release(call, context);
        return Ok(Commit::Done);
    };
    *state = loaded;
    let ownerless = state.ipam().is_ownerless(hint(call));
    let mut freed = release(call, state, context.now());
    if freed.is_empty() && ownerless {
        // The owner is unknown, so the kernel is asked first, without holding the lock.
        drop(locked);
        let evidence = context.node.evidence(&[], &Progress::default());
        locked = context.lock()?;
        let Some(reloaded) = read(&mut locked, context)? else {
            return Ok(Commit::Done);
        };
        *state = reloaded;
        freed = state.ipam_mut().release_ownerless(
            &call.attachment,
            hint(call),
            &evidence,
            context.now(),
        );
    }
    if freed.is_empty() && !lost.is_empty() {
        log_released(mem::take(lost), record);
        return Ok(Commit::Done);
    }
    if freed.is_empty() {
        info!(target: "ipam", "nothing is held.");
        if state.is_empty() {
            note_release(call, context);
        }
        save_early_del(call, context, &mut locked, state);
        return Ok(Commit::Done);
    }
    if context.commit(&mut locked, state, STAGE)? == Commit::LockLost {
        *lost = freed;
        return Ok(Commit::LockLost);
    }
    log_released(freed, record);
    Ok(Commit::Done)
}

/// Logs and records the released addresses.
fn log_released(freed: Vec<Freed>, record: &mut OperationRecord) {
    for Freed {
        pool,
        address,
        dropped,
    } in freed
    {
        record.addresses.push(address);
        let fate = if dropped {
            "released and removed from"
        } else {
            "released to"
        };
        info!(target: "ipam", "{address} {fate} pool {pool}.");
    }
}

/// Writes the release to the journal, which may know an attachment that the state does not. A failure only holds the address for
/// longer, so it does not fail the DEL.
fn note_release(call: &Call, context: &Context) {
    let (boot_id, attachment) = (context.boot_id.as_deref(), &call.attachment);
    if let Err(e) = state::note_release(context.files(), boot_id, attachment, context.now()) {
        debug!(target: "ipam", "the release could not be written to the journal: {}.", io_reason(&e));
    }
}

/// Loads the state; `None` if there is none that can be read. A corrupt one is set aside.
fn read(locked: &mut Locked<'_>, context: &Context) -> Result<Option<State>, Failure> {
    match locked
        .load(context.boot_id.as_deref())
        .map_err(|error| Failure::Store {
            stage: STAGE,
            error,
        })? {
        Loaded::Ready(mut state) | Loaded::Newer { mut state, .. } => {
            context.catch_up(&mut state);
            Ok(Some(*state))
        }
        Loaded::Missing => {
            info!(target: "ipam", "there is no state, so nothing is held.");
            Ok(None)
        }
        Loaded::Corrupt(why) => {
            match locked.set_aside(&context.files().wall_time()) {
                Ok(aside) => {
                    warn!(target: "ipam", "the state could not be read ({why}) and is now {}.", aside.display())
                }
                Err(error) => {
                    warn!(target: "ipam", "the state could not be read ({why}): {error}.")
                }
            }
            Ok(None)
        }
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

/// Saves a note that this DEL may have come before its ADD. Nothing depends on the note, so a failure is ignored.
fn save_early_del(call: &Call, context: &Context, locked: &mut Locked<'_>, state: &mut State) {
    let is_writable = !matches!(state.key_status, KeyStatus::Newer { .. }) && !state.is_empty();
    if is_writable
        && state
            .ipam_mut()
            .note_early_del(&call.attachment, context.now())
    {
        let _ = context.save(locked, state);
    }
}

/// Succeeds without the lock, which a read-only file system does not allow, if the attachment holds nothing.
fn without_lock(call: &Call, context: &Context, error: LockError) -> Result<(), Failure> {
    let holds_nothing = match load(context.files(), context.boot_id.as_deref()) {
        Ok(Loaded::Missing) => true,
        Ok(loaded) => loaded
            .into_state()
            .is_some_and(|mut state| release(call, &mut state, context.now()).is_empty()),
        Err(_) => false,
    };
    if holds_nothing {
        Ok(())
    } else {
        Err(error.into())
    }
}
