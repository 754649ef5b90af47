//! Taking back what an ADD gave and nobody was told of.

use tracing::warn;

use super::Context;
use crate::cni::Call;
use crate::failure::Fate;
use crate::ipam::{Grant, GrantKind, Refusal};
use crate::state::{Document, Loaded, Locked};

/// Undoes grants that are in the state but must not be handed over, as far as the disk lets it.
pub(super) fn take_back(
    taken: &Result<Vec<Grant>, Refusal>,
    call: &Call,
    document: &mut Document,
    locked: &mut Locked<'_>,
    context: &Context,
) {
    if let Ok(grants) = taken
        && document.ipam_mut().revoke_all(&call.attachment, grants)
    {
        let _ = context.save(locked, document);
    }
}

/// Takes back what reached nobody: only what this very call took, and only if it is still so.
pub fn give_back(call: &Call, grants: &[Grant], context: &Context) -> Fate {
    let is_renewed = |grant: &Grant| grant.novelty == GrantKind::Renewed;
    if grants.iter().all(is_renewed) {
        return Fate::HeldBefore;
    }
    let Ok(mut locked) = context.lock() else {
        return Fate::StillHeld;
    };
    let Ok(Loaded::Read(mut document)) = locked.load(context.boot_id.as_deref()) else {
        return Fate::StillHeld;
    };
    if document.ipam_mut().revoke_all(&call.attachment, grants)
        && context.save(&mut locked, &mut document).is_err()
    {
        return Fate::StillHeld;
    }
    for grant in grants.iter().filter(|grant| !is_renewed(grant)) {
        warn!(target: "ipam", "{} was given back, as the result reached nobody.", grant.address);
    }
    Fate::GivenBack
}
