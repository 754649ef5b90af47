//! CHECK and STATUS, which change nothing.
//!
//! CHECK compares the attachment's addresses with the result of its ADD (SPEC.md, "CHECK: Check container's networking is as
//! expected"). A runtime may take a failure for permanent and kill the pod. So CHECK waits for no lock, and transient problems, such as
//! a state that is being rebuilt, return code 11.
//!
//! STATUS reports whether ADDs can be served (SPEC.md, "STATUS: Check plugin status"). Runtimes repeat it every few seconds. So it takes
//! no lock, reads one file, and queries the source only when there are no pools. It tries an ADD on what it read and saves nothing.

use std::time::Duration;

use rustix::process::geteuid;

use super::context::Context;
use super::decide::{allocate, candidates};
use super::known::Scan;
use super::trial::check_disk;
use crate::cni::{Call, WhenFull};
use crate::failure::{Failure, message_with_remedy};
use crate::ipam::{Inventory, Ipam, Refusal, Wanted, WantedAddress};
use crate::source::Source;
use crate::state::{Condition, State, lock_obstacle};

/// The longest that the source may take.
const LIMIT: Duration = Duration::from_secs(3);

/// Succeeds when ADDs can be served.
///
/// # Errors
/// Code 50 with the reason.
pub fn status(call: &Call, context: &Context) -> Result<(), Failure> {
    check_disk(context).map_err(|e| Failure::NotReady(e.to_string()))?;
    if let Some(obstacle) = lock_obstacle(&context.paths, geteuid().is_root()) {
        let error = obstacle.into_error(&context.paths);
        return Err(Failure::NotReady(error.to_string()));
    }
    let state = context
        .view()
        .map_err(|e| Failure::NotReady(e.to_string()))?;
    require_known_format(&state)
        .map_err(|newer| Failure::NotReady(newer.to_cni(context.paths.name()).msg))?;
    let mut ipam = state.ipam().clone();
    if ipam.pools().next().is_none() {
        ipam.merge(&ask(call, context)?, context.now());
    }
    // A quarantine ends within seconds. It does not make the node unready.
    ipam.quarantine = None;
    let mut wanted = Wanted::for_any_address(call);
    // No container has this ID, so it holds nothing.
    "/".clone_into(&mut wanted.attachment.container_id);
    let when_full = call.conf.ipam.when_full;
    // Each address is tried alone: a full family must not hide that the other has no pool.
    for address in &wanted.addresses {
        match try_add(&mut ipam, &wanted, address, when_full, context) {
            Ok(()) => {}
            // A full pool is normal on a node that runs its maximum number of pods.
            Err(Refusal::Exhausted { pools, listed, .. })
                if when_full == WhenFull::Ready
                    && listed.is_empty()
                    && pools.iter().any(|p| p.held > 0) => {}
            Err(refusal) => return Err(Failure::NotReady(refusal.to_string())),
        }
    }
    Ok(())
}

/// Tries to allocate an address. With `statusWhenFull: "error"`, it also tries a reclaim when the pools are full.
fn try_add(
    ipam: &mut Ipam,
    wanted: &Wanted,
    address: &WantedAddress,
    when_full: WhenFull,
    context: &Context,
) -> Result<(), Refusal> {
    let now = context.now();
    let allocate =
        |ipam: &mut Ipam| allocate(ipam, wanted, address, now, &*context.node, &mut Vec::new());
    match allocate(ipam) {
        Err(Refusal::Exhausted { .. }) if when_full == WhenFull::Error => {}
        other => return other.map(drop),
    }
    let scan = Scan::at_node(candidates(ipam, wanted, now), context);
    ipam.reclaim(scan.candidates, &scan.evidence, Some(wanted), now);
    allocate(ipam).map(drop)
}

/// Requires a state whose format this version knows.
///
/// # Errors
/// A newer version wrote the state.
fn require_known_format(state: &State) -> Result<(), Failure> {
    match state.condition {
        Condition::Newer { format } => Err(Failure::NewerFormat { found: format }),
        _ => Ok(()),
    }
}

/// Queries the source for its pools.
fn ask(call: &Call, context: &Context) -> Result<Inventory, Failure> {
    let source = Source::from_config(&call.conf.ipam, &context.source_overrides, &context.paths)?;
    let answer = source.query(LIMIT, &context.paths);
    let matched = answer.map_err(|e| {
        Failure::NotReady(format!(
            "there are no pools, and no source: {}",
            message_with_remedy(Some(&source), &e)
        ))
    })?;
    Ok(matched.inventory)
}

/// Compares the state with `prevResult`.
///
/// # Errors
/// The attachment does not hold an address of `prevResult`, or the state cannot answer.
pub fn check(call: &Call, context: &Context) -> Result<(), Failure> {
    let state = context.view().map_err(Failure::NotNow)?;
    require_known_format(&state)?;
    if let Some(loss) = state.condition.lost() {
        return Err(Failure::StateGone(loss.why.clone()));
    }
    if state.is_empty() {
        return Err(Failure::StateGone("it is empty".to_owned()));
    }
    let expected = call.previous.as_deref();
    let checked = state.ipam().check_attachment(&call.attachment, expected);
    // Before the state is reconciled with the node, and during a quarantine, it may lack addresses of running pods.
    let may_lack_addresses =
        state.condition == Condition::Reconcile || state.ipam().quarantine.is_some();
    checked.map_err(|failure| match failure {
        failure if may_lack_addresses => Failure::StateGone(failure.to_string()),
        failure => Failure::CheckFailure(failure),
    })
}
