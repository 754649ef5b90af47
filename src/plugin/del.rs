//! DEL: the addresses of an attachment come back. Needs no source, no pool and no state (promise P4).

use std::mem::{self, ManuallyDrop};

use tracing::{debug, info, warn};

use super::context::Context;
use crate::cni::Call;
use crate::events::OperationRecord;
use crate::evidence::Progress;
use crate::failure::Failure;
use crate::host::io_reason;
use crate::ipam::{Freed, Hint, Moment};
use crate::state::{self, KeyStatus, Loaded, LockError, Locked, State, load};

/// What the original's messages begin with.
const STAGE: &str = "Failed to release address";

/// Releases what the attachment holds.
pub fn del(call: &Call, context: &Context, record: &mut OperationRecord) -> Result<(), Failure> {
    // To take the state apart would keep the lock for longer, and the process ends anyway.
    release_all(
        call,
        context,
        &mut ManuallyDrop::new(State::default()),
        record,
    )
}

/// The same; `state` is the state that it was released from, for the caller to drop.
pub fn release_all(
    call: &Call,
    context: &Context,
    state: &mut State,
    record: &mut OperationRecord,
) -> Result<(), Failure> {
    let mut lost = Vec::new();
    context.until_it_counts(|| attempt(call, context, state, &mut lost, record))
}

/// Releases it. Tells whether that counts: not when the lock was lost, as then it may be held again in the state that another call
/// has written. What was released then is added to `lost`.
fn attempt(
    call: &Call,
    context: &Context,
    state: &mut State,
    lost: &mut Vec<Freed>,
    record: &mut OperationRecord,
) -> Result<bool, Failure> {
    let mut locked = match context.lock() {
        Ok(locked) => locked,
        Err(error @ LockError::Io { .. }) => {
            return without_lock(call, context, error).map(|()| true);
        }
        Err(error @ LockError::Busy { .. }) => return Err(error.into()),
    };
    let Some(read_now) = read(&mut locked, context)? else {
        note_release(call, context);
        return Ok(true);
    };
    *state = read_now;
    let ownerless = state.ipam().is_ownerless(hint(call));
    let mut freed = release(call, state, context.now());
    if freed.is_empty() && ownerless {
        // Nobody knows whose they are, so the node is asked first, and not under the lock.
        drop(locked);
        let evidence = context.node.evidence(&[], &Progress::default());
        locked = context.lock()?;
        let Some(again) = read(&mut locked, context)? else {
            return Ok(true);
        };
        *state = again;
        freed = state.ipam_mut().release_ownerless(
            &call.attachment,
            hint(call),
            &evidence,
            context.now(),
        );
    }
    if freed.is_empty() && !lost.is_empty() {
        log_released(mem::take(lost), record);
        return Ok(true);
    }
    if freed.is_empty() {
        info!(target: "ipam", "nothing is held.");
        if state.is_empty() {
            note_release(call, context);
        }
        remember(call, context, &mut locked, state);
        return Ok(true);
    }
    if !context.save_decision(&mut locked, state, STAGE)? {
        *lost = freed;
        return Ok(false);
    }
    log_released(freed, record);
    Ok(true)
}

/// Tells log and events what was released.
fn log_released(freed: Vec<Freed>, record: &mut OperationRecord) {
    for Freed {
        pool,
        address,
        dropped,
    } in freed
    {
        record.addresses.push(address);
        let fate = if dropped {
            "released, and gone from"
        } else {
            "released to"
        };
        info!(target: "ipam", "{address} {fate} pool {pool}.");
    }
}

/// What the state does not know, the journal may. A DEL never fails for it: what it holds for longer harms nobody.
fn note_release(call: &Call, context: &Context) {
    let (boot_id, attachment) = (context.boot_id.as_deref(), &call.attachment);
    if let Err(e) = state::note_release(context.files(), boot_id, attachment, context.now()) {
        debug!(target: "ipam", "the release is in no journal: {}.", io_reason(&e));
    }
}

/// The state, if there is one that can be read.
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

/// Takes note of a DEL that may have come before its ADD. If that cannot be kept, nothing is lost but the note.
fn remember(call: &Call, context: &Context, locked: &mut Locked<'_>, state: &mut State) {
    let ours = !matches!(state.own, KeyStatus::Newer { .. }) && !state.is_empty();
    if ours
        && state
            .ipam_mut()
            .note_early_del(&call.attachment, context.now())
    {
        let _ = context.save(locked, state);
    }
}

/// A lock that cannot be made (a read-only file system) is in the way only of an attachment that holds something.
fn without_lock(call: &Call, context: &Context, error: LockError) -> Result<(), Failure> {
    let holds_nothing = match load(context.files(), context.boot_id.as_deref()) {
        Ok(Loaded::Missing) => true,
        Ok(loaded) => loaded
            .into_document()
            .is_some_and(|mut state| release(call, &mut state, context.now()).is_empty()),
        Err(_) => false,
    };
    if holds_nothing {
        Ok(())
    } else {
        Err(error.into())
    }
}
