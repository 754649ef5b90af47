//! ADD: allocates an address for an attachment, or one of each family.

use std::fs;
use std::mem::ManuallyDrop;

use tracing::info;

use super::address_request::{address_requests, pool_requests};
use super::allocation::{Allocation, Step};
use super::context::Context;
use super::refresh::refresh;
use super::revoke::release_unprinted;
use super::snapshot::NodeSnapshot;
use crate::cni::{AddResult, Call};
use crate::events::OperationRecord;
use crate::failure::Failure;
use crate::host::{CookieLookup, netns, read_text};
use crate::ipam::{Grant, GrantKind};
use crate::source::{RefreshReason, Refresher, Source};
use crate::stdio;

/// Allocates the requested addresses, all of them or none, and prints the result.
///
/// # Errors
/// Nothing could be allocated, or the result could not be printed; then the addresses are released again.
pub fn add(call: &Call, context: &Context, record: &mut OperationRecord) -> Result<(), Failure> {
    let ipam = &call.conf.ipam;
    let mut netns = netns(&context.paths, &call.netns);
    let known = netns.as_ref().is_some_and(|netns| netns.id.is_some());
    let cookie = known.then(|| CookieLookup::start(&context.paths, &call.netns));
    let requested = address_requests(call).map_err(|refusal| Failure::Refused {
        refusal,
        source: None,
    })?;
    let source = Source::from_config(ipam, &context.source_overrides, &context.paths)?;
    let refresher = Refresher {
        paths: &context.paths,
        source: &source,
        started: context.started,
        boot_id: context.boot_id.as_deref(),
        interval: ipam.query_interval,
    };
    let reason = if has_state(context) {
        RefreshReason::Ordinary
    } else {
        RefreshReason::First
    };
    let outcome = refresh(&refresher, reason, record);
    if let (Some(netns), Some(cookie)) = (&mut netns, cookie) {
        netns.cookie = cookie.finish();
    }
    let mut requests = pool_requests(&requested, ipam, &call.attachment);
    for request in &mut requests {
        request.pod = call.pod.as_deref();
        request.netns = netns.as_ref();
    }
    // Never dropped: freeing a large state takes time, and the process ends soon.
    let mut allocation =
        ManuallyDrop::new(Allocation::new(call, context, requests, reason, outcome));
    let grants = loop {
        match allocation.step(record)? {
            Step::Granted(grants) => break grants,
            Step::Snapshot(candidates) => {
                allocation.set_snapshot(NodeSnapshot::capture(candidates, context))
            }
            Step::Refresh(reason) => {
                allocation.set_refresh(reason, refresh(&refresher, reason, record));
            }
        }
    };
    for grant in &grants {
        info!(target: "ipam", "{}.", describe(grant));
        record.addresses.push(grant.address.addr());
    }
    let result = AddResult::new(&grants, ipam).print(call.conf.version);
    stdio::print(&result).map_err(|error| Failure::Output {
        error,
        fate: release_unprinted(call, &grants, context),
    })
}

/// Guesses whether there is a state with pools, which decides how long the source may take. The lock is not held.
fn has_state(context: &Context) -> bool {
    /// A state with a pool is longer than this; a shorter one may have pools only where it records no loss.
    const SHORT: u64 = 512;
    let path = context.paths.state();
    match fs::metadata(&path).map_or(0, |state| state.len()) {
        0 => false,
        SHORT.. => true,
        _ => !read_text(&path).is_ok_and(|text| text.contains("\"lost\": {")),
    }
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
