//! ADD: allocates an address for an attachment, or one of each family.

use tracing::{debug, info, warn};

use super::context::Context;
use super::decide::{Decision, decide};
use super::known::Known;
use super::report::{Action, log_actions};
use super::transaction::{TransactionError, transact};
use crate::cni::Call;
use crate::events::OperationRecord;
use crate::failure::{Failure, Fate};
use crate::ipam::{Attachment, Grant, GrantKind, POOL_STAGE, Wanted};
use crate::source::Source;
use crate::state::StoreError;

/// Allocates the requested addresses, all of them or none.
///
/// # Errors
/// Nothing is allocated.
pub fn add(
    call: &Call,
    context: &Context,
    record: &mut OperationRecord,
) -> Result<Vec<Grant>, Failure> {
    let conf = &call.conf.ipam;
    let netns = context.node.netns(&call.netns);
    let mut wanted = Wanted::from_call(call, netns).map_err(|refusal| Failure::Refused {
        refusal,
        source: None,
        configured_address: call.conf.ipam.ip_address.clone(),
    })?;
    wanted.is_kept |= wanted
        .netns
        .as_ref()
        .is_some_and(|netns| context.node.is_host_netns(netns));
    let source = Source::from_config(conf, &context.source_overrides, &context.paths)?;
    let mut known = Known::of_source(&source, conf.query_interval, context);
    allocate(&wanted, &mut known, context, record)
}

/// Allocates the wanted addresses. Starts from what the call already knows.
///
/// # Errors
/// Nothing is allocated.
pub fn allocate(
    wanted: &Wanted,
    known: &mut Known<'_>,
    context: &Context,
    record: &mut OperationRecord,
) -> Result<Vec<Grant>, Failure> {
    let decided = transact(context, known, Some(wanted), |state, known, now| {
        decide(state, wanted, known, now, &*context.node)
    });
    let (decision, unsaved) = match decided {
        Ok(decision) => (decision, None),
        Err(TransactionError::Commit(error, decision)) => (decision, Some(error)),
        Err(error) => {
            record.refresh_failed = known.has_failed;
            return Err(error.into_failure(original_stage(wanted)));
        }
    };
    let Decision { granted, actions } = decision;
    if known.answer.is_none() {
        debug!(target: "ipam", "the source is not queried: its last answer or failure is recent enough.");
    }
    log_actions(&actions);
    record.refresh_failed = known.has_failed || actions.iter().any(Action::is_rejection);
    if unsaved.as_ref().is_none_or(StoreError::is_in_place) {
        record.add_reclaimed(actions.iter().flat_map(Action::freed).collect());
    }
    if let Some(error) = unsaved {
        if error.is_in_place() {
            let grants = granted.as_deref().unwrap_or_default();
            take_back(&wanted.attachment, grants, context);
        }
        return Err(Failure::from_store(original_stage(wanted), error));
    }
    let grants = granted?;
    for grant in &grants {
        info!(target: "ipam", "{}.", describe(grant));
        record.addresses.push(grant.address.addr());
    }
    Ok(grants)
}

/// Releases the new grants of an ADD that fails after they were saved. Addresses that the attachment held before stay held. A grant is
/// left alone if the state has changed since.
pub fn take_back(attachment: &Attachment, grants: &[Grant], context: &Context) -> Fate {
    let is_new = |grant: &&Grant| grant.kind != GrantKind::Renewed;
    if !grants.iter().any(|grant| is_new(&grant)) {
        return Fate::HeldBefore;
    }
    let is_released = transact(context, &mut Known::default(), None, |state, _, _| {
        let is_changed = state.ipam_mut().revoke_all(attachment, grants);
        // A lost state is left for the next ADD to rebuild.
        let is_lost = state.condition.lost().is_some();
        state.must_save = is_changed && !is_lost;
        Ok(!is_changed || !is_lost)
    });
    if !is_released.unwrap_or(false) {
        return Fate::StillHeld;
    }
    for grant in grants.iter().filter(is_new) {
        warn!(target: "ipam", "{} is released again, because the call failed.", grant.address);
    }
    Fate::Released
}

/// Returns the words that the original's message begins with when the state cannot be written. Without a subnet, the original first
/// saves when it has chosen a pool.
pub(super) fn original_stage(wanted: &Wanted) -> &'static str {
    let first = wanted.addresses.first();
    first.map_or(POOL_STAGE, |address| address.pool.stage())
}

fn describe(grant: &Grant) -> String {
    let how = match grant.kind {
        GrantKind::New(_) => "allocated from",
        GrantKind::Renewed => "already held in",
    };
    format!(
        "{} {how} pool {}, generation {}",
        grant.address, grant.pool, grant.generation
    )
}
