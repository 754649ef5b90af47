//! ADD: allocates an address for an attachment, or one of each family.

use std::mem;

use tracing::info;

use super::address_request::{address_requests, narrow_refusal, pool_requests};
use super::commit::{require_known_format, take_back};
use super::context::{Context, NodeSnapshot};
use super::decide::{Decision, Inputs, decide};
use super::refresh::{refresh, reject_implausible};
use super::report::{Action, log_actions};
use crate::cni::{Call, print_result};
use crate::events::OperationRecord;
use crate::failure::{Failure, message_with_remedy};
use crate::host::{CookieLookup, netns};
use crate::ipam::{Grant, GrantKind, POOL_STAGE, Refusal, Request};
use crate::source::{RefreshOutcome, RefreshReason, Refresher, Source};
use crate::state::{State, StateFile};
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
    let requested = address_requests(call)?;
    let source = Source::from_config(ipam, &context.source_overrides, &context.paths)?;
    let mut refresher = Refresher {
        paths: &context.paths,
        source: &source,
        started: context.started,
        boot_id: context.boot_id.as_deref(),
        interval: ipam.query_interval,
    };
    let reason = if has_pools(context) {
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
    let mut add = Add::new(call, context, requests, reason, outcome);
    let grants = loop {
        match add.attempt(record)? {
            Decision::Granted(grants) => break grants,
            Decision::Refused(refusal) => return Err(add.refused(refusal)),
            Decision::Inconsistent(violations) => return Err(Failure::Broken(violations)),
            Decision::Snapshot(candidates) => {
                add.set_snapshot(NodeSnapshot::capture(candidates, context));
            }
            Decision::Refresh(reason) => {
                if reason == RefreshReason::First {
                    // A failure within the short limit says nothing about the longer one.
                    refresher.started = context.now();
                }
                add.set_refresh(reason, refresh(&refresher, reason, record));
            }
        }
    };
    for grant in &grants {
        info!(target: "ipam", "{}.", describe(grant));
        record.addresses.push(grant.address.addr());
    }
    let result = print_result(&grants, ipam, call.conf.version);
    stdio::print(&result).map_err(|error| Failure::Output {
        error,
        fate: take_back(call, &grants, context),
    })
}

/// Guesses whether there are pools, in the state or in the backup, which decides how long the source may take. The lock is not held.
fn has_pools(context: &Context) -> bool {
    /// A file with a pool is longer than this.
    const SHORT: u64 = 512;
    let mut files = [StateFile::State, StateFile::Backup].into_iter();
    files.any(|file| context.files().size(file) > Some(SHORT))
}

/// An ADD in progress. It takes the lock for one attempt at a time. What it needs from outside is fetched in between, without the lock.
#[derive(Debug)]
pub struct Add<'a> {
    call: &'a Call,
    context: &'a Context,
    requests: Vec<Request<'a>>,
    /// Why the pools were last refreshed.
    reason: RefreshReason,
    /// The outcome of that refresh.
    outcome: RefreshOutcome,
    /// The newest look at the node.
    snapshot: Option<NodeSnapshot>,
}

impl<'a> Add<'a> {
    /// Starts an ADD after a first refresh for this `reason`.
    pub fn new(
        call: &'a Call,
        context: &'a Context,
        requests: Vec<Request<'a>>,
        reason: RefreshReason,
        outcome: RefreshOutcome,
    ) -> Self {
        Add {
            call,
            context,
            requests,
            reason,
            outcome,
            snapshot: None,
        }
    }

    /// Sets the outcome of another refresh.
    pub fn set_refresh(&mut self, reason: RefreshReason, outcome: RefreshOutcome) {
        self.reason = reason;
        self.outcome = outcome;
    }

    /// Sets a newer look at the node.
    pub fn set_snapshot(&mut self, mut snapshot: NodeSnapshot) {
        snapshot.note_own_namespace(&self.requests);
        self.snapshot = Some(snapshot);
    }

    /// Makes one attempt under the lock: reads the state, merges a new answer, decides, and saves unless something is needed first.
    ///
    /// # Errors
    /// The state cannot be locked, read or replaced; then nothing is granted.
    pub fn attempt(&mut self, record: &mut OperationRecord) -> Result<Decision, Failure> {
        let context = self.context;
        let stage = original_stage(&self.requests);
        let mut locked = context.lock()?;
        let mut state = context
            .open(&mut locked)
            .map_err(|error| Failure::from_store(stage, error))?;
        require_known_format(&state)?;
        reject_implausible(&mut self.outcome, &state, record);
        self.drop_older_answer(&state);
        let answer = self.outcome.answer();
        if let Some(answer) = answer {
            state.refreshed = Some(answer.started);
        }
        let inputs = Inputs {
            requests: &self.requests,
            inventory: answer.map(|answer| &answer.matched.inventory),
            snapshot: self.snapshot.as_ref(),
            retry: self.outcome.retry(self.reason),
            now: context.now(),
        };
        let mut actions = Vec::new();
        let decision = decide(&mut state, &inputs, &*context.node, &mut actions);
        let grants: &[Grant] = match &decision {
            Decision::Granted(grants) => grants,
            Decision::Refused(_) => &[],
            _ => return Ok(decision),
        };
        log_actions(&actions);
        if state.must_save
            && let Err(error) = context.commit(&mut locked, &mut state)
        {
            drop(locked);
            if error.is_in_place() {
                take_back(self.call, grants, context);
            }
            return Err(Failure::from_store(stage, error));
        }
        // Nobody waits for the lock while the rest is done, and the state is freed.
        drop(locked);
        record.add_reclaimed(actions.iter().flat_map(Action::freed).collect());
        if self.outcome.answer().is_some()
            && let RefreshOutcome::Fresh(answer) =
                mem::replace(&mut self.outcome, RefreshOutcome::Answered)
        {
            answer.confirm_merged();
        }
        Ok(decision)
    }

    /// Drops an answer when the state has one that was asked for later. This happens when the fetch lock was removed meanwhile.
    fn drop_older_answer(&mut self, state: &State) {
        // A moment in the future is of another boot.
        let now = self.context.now();
        let refreshed = state.refreshed.filter(|at| *at <= now);
        let answer = self.outcome.answer();
        if answer.is_some_and(|answer| refreshed.is_some_and(|at| answer.started < at)) {
            info!(target: "ipam", "a newer answer of the source is in the state already.");
            self.outcome = RefreshOutcome::Answered;
        }
    }

    /// The failure for a refusal.
    pub fn refused(&self, refusal: Refusal) -> Failure {
        Failure::Refused {
            refusal: narrow_refusal(refusal, self.call),
            source: failure_of(&self.outcome),
        }
    }
}

/// Why the source gave no answer, if it failed.
pub(super) fn failure_of(outcome: &RefreshOutcome) -> Option<String> {
    match outcome {
        RefreshOutcome::Failed(error) => Some(message_with_remedy(error)),
        _ => None,
    }
}

/// The words that the original's message begins with when the state cannot be written. Without a subnet, it saves for the first time
/// when it has chosen a pool.
pub(super) fn original_stage(requests: &[Request<'_>]) -> &'static str {
    requests
        .first()
        .map_or(POOL_STAGE, |request| request.pool.stage())
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
