//! Revoking the grants of an ADD whose result nobody received.

use tracing::warn;

use super::context::Context;
use crate::cni::Call;
use crate::failure::Fate;
use crate::ipam::{Grant, GrantKind, Refusal};
use crate::state::{Loaded, Locked, State};

/// Revokes grants that are saved but must not be handed out, as far as the disk allows.
pub(super) fn revoke_saved(
    taken: &Result<Vec<Grant>, Refusal>,
    call: &Call,
    state: &mut State,
    locked: &mut Locked<'_>,
    context: &Context,
) {
    if let Ok(grants) = taken
        && state.ipam_mut().revoke_all(&call.attachment, grants)
    {
        let _ = context.save(locked, state);
    }
}

/// Releases the addresses of a result that could not be printed: only those that this call newly allocated, and only if the state
/// still says so.
pub fn release_unprinted(call: &Call, grants: &[Grant], context: &Context) -> Fate {
    let is_renewed = |grant: &Grant| grant.kind == GrantKind::Renewed;
    if grants.iter().all(is_renewed) {
        return Fate::HeldBefore;
    }
    let Ok(mut locked) = context.lock() else {
        return Fate::StillHeld;
    };
    let loaded = locked.load(context.boot_id.as_deref());
    let Some(mut state) = loaded.ok().and_then(Loaded::into_state) else {
        return Fate::StillHeld;
    };
    if state.ipam_mut().revoke_all(&call.attachment, grants)
        && context.save(&mut locked, &mut state).is_err()
    {
        return Fate::StillHeld;
    }
    for grant in grants.iter().filter(|grant| !is_renewed(grant)) {
        warn!(target: "ipam", "{} was released, because the result could not be printed.", grant.address);
    }
    Fate::Released
}
