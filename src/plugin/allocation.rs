//! An ADD between its request and its result: it is decided under the lock on the state, and repeated until the decision counts.

use std::mem;

use tracing::info;

use super::action::{Action, log_actions};
use super::address_request::narrow_refusal;
use super::context::Context;
use super::decide::{Decision, decide};
use super::inputs::Inputs;
use super::load_state::{LoadedState, load_state};
use super::refresh::reject_implausible;
use super::revoke::revoke_saved;
use super::snapshot::NodeSnapshot;
use crate::cni::Call;
use crate::events::OperationRecord;
use crate::failure::{Failure, message_with_remedy};
use crate::ipam::{Candidate, Grant, GrantKind, PoolSelector, Refusal, Request};
use crate::source::{RefreshOutcome, RefreshReason};
use crate::state::{
    LastGrant, LockError, Locked, MOST_ROUNDS, State, StateFile, StoreError, last_grant, note_boot,
    note_use,
};

/// An ADD in progress. Its caller gets what it needs from outside between two steps, so the lock is not held meanwhile.
#[derive(Debug)]
pub struct Allocation<'a> {
    call: &'a Call,
    context: &'a Context,
    /// The requested addresses.
    requests: Vec<Request<'a>>,
    /// Why the pools were last refreshed.
    reason: RefreshReason,
    /// The outcome of that refresh.
    outcome: RefreshOutcome,
    /// Why to refresh again before the request is refused, if that may help.
    retry: Option<RefreshReason>,
    /// The newest look at the node.
    snapshot: Option<NodeSnapshot>,
    /// The state of the last decision. Kept until the call is over, as freeing it takes a tenth of the time that the lock is held.
    state: State,
    /// The grants of attempts that lost the lock.
    lost_grants: Vec<Grant>,
    /// How often the lock was lost.
    rounds: usize,
}

/// What comes next.
#[derive(Debug)]
pub enum Step {
    /// The ADD is done: these addresses are granted, and the state is saved.
    Granted(Vec<Grant>),
    /// A snapshot of the node is needed, with these records to be judged.
    Snapshot(Vec<Candidate>),
    /// The pools must be refreshed before the request is refused.
    Refresh(RefreshReason),
}

/// What one attempt under the lock comes to.
enum Attempt {
    Granted(Vec<Grant>),
    /// A snapshot of the node is needed, which is not taken under the lock.
    NeedsSnapshot(Vec<Candidate>),
    /// The lock file was removed while the lock was held, so another call may have decided on the same state. These grants count
    /// only if that call did not save over them.
    LockLost(Vec<Grant>),
    Refused {
        refusal: Refusal,
        retry: Option<RefreshReason>,
    },
}

impl<'a> Allocation<'a> {
    /// Starts an allocation after a first refresh for this `reason`.
    pub fn new(
        call: &'a Call,
        context: &'a Context,
        requests: Vec<Request<'a>>,
        reason: RefreshReason,
        outcome: RefreshOutcome,
    ) -> Self {
        Allocation {
            retry: outcome.retry(),
            call,
            context,
            requests,
            reason,
            outcome,
            snapshot: None,
            state: State::default(),
            lost_grants: Vec::new(),
            rounds: 0,
        }
    }

    /// Sets the outcome of another refresh.
    pub fn set_refresh(&mut self, reason: RefreshReason, outcome: RefreshOutcome) {
        self.reason = reason;
        self.retry = outcome.retry();
        self.outcome = outcome;
    }

    /// Sets a newer snapshot of the node.
    pub fn set_snapshot(&mut self, mut snapshot: NodeSnapshot) {
        snapshot.note_own_namespace(&self.requests);
        self.snapshot = Some(snapshot);
    }

    /// Tries to allocate.
    ///
    /// # Errors
    /// No address can be granted; or the state cannot be locked, read or replaced.
    pub fn step(&mut self, record: &mut OperationRecord) -> Result<Step, Failure> {
        let context = self.context;
        loop {
            match self.attempt(record)? {
                Attempt::Granted(grants) => return Ok(Step::Granted(self.mark_new(grants))),
                Attempt::NeedsSnapshot(candidates) => return Ok(Step::Snapshot(candidates)),
                Attempt::LockLost(_) if self.rounds == MOST_ROUNDS || context.has_timed_out() => {
                    return Err(LockError::removed(&context.paths).into());
                }
                Attempt::LockLost(grants) => {
                    self.rounds += 1;
                    self.lost_grants.extend(grants);
                    // The answer may be merged into the state that was saved over.
                    self.retry.get_or_insert(RefreshReason::Lost);
                }
                Attempt::Refused {
                    retry: Some(retry), ..
                } if retry != self.reason => return Ok(Step::Refresh(retry)),
                Attempt::Refused { refusal, .. } => {
                    return Err(Failure::Refused {
                        refusal: narrow_refusal(refusal, self.call),
                        source: match &self.outcome {
                            RefreshOutcome::Failed(error) => Some(message_with_remedy(error)),
                            _ => None,
                        },
                    });
                }
            }
        }
    }

    /// Marks the grants of earlier attempts of this call as new, so that they are released too if the result cannot be printed.
    fn mark_new(&self, mut grants: Vec<Grant>) -> Vec<Grant> {
        for grant in &mut grants {
            let same = |earlier: &&Grant| {
                earlier.address == grant.address && earlier.kind != GrantKind::Renewed
            };
            if grant.kind == GrantKind::Renewed
                && let Some(earlier) = self.lost_grants.iter().find(same)
            {
                grant.kind = earlier.kind.clone();
            }
        }
        grants
    }

    /// Makes one attempt under the lock: merges a new answer, decides, saves.
    fn attempt(&mut self, record: &mut OperationRecord) -> Result<Attempt, Failure> {
        let (call, context) = (self.call, self.context);
        let stage = original_stage(&self.requests);
        let store = |error| Failure::Store { stage, error };
        let mut locked = context.lock()?;
        let last_grant = last_grant(context.files(), context.boot_id.as_deref());
        let last_generation = last_grant.map(|last| last.generation);
        let loaded = match load_state(&mut locked, last_generation, stage, context) {
            Err(Failure::Store { error, .. }) if error.lock_was_lost => {
                return Ok(Attempt::LockLost(Vec::new()));
            }
            loaded => loaded?,
        };
        let LoadedState {
            state,
            lost,
            journal,
        } = loaded;
        self.state = state;
        let was_lost = lost.is_some();
        reject_implausible(&mut self.outcome, &self.state, record);
        self.drop_older_answer();
        let state = &mut self.state;
        // An answer that another call fetched may have been lost with its state.
        let is_useful = |reason: &RefreshReason| *reason != RefreshReason::Lost || state.is_empty();
        let retry = self.retry.filter(is_useful);
        let answer = self.outcome.answer();
        if let Some(answer) = answer {
            state.refreshed = Some(answer.started());
        }
        let inputs = Inputs {
            requests: &self.requests,
            inventory: answer.map(|answer| &answer.matched.inventory),
            lost,
            last_generation: last_generation.unwrap_or(0),
            snapshot: self.snapshot.as_ref(),
            may_ask_again: retry.is_some(),
            journal: journal.as_ref(),
            now: context.now(),
        };
        let mut actions = Vec::new();
        let (grants, changed) = match decide(state, &inputs, &*context.node, &mut actions) {
            Decision::NeedsSnapshot(candidates) => return Ok(Attempt::NeedsSnapshot(candidates)),
            Decision::Inconsistent(violations) => return Err(Failure::Broken(violations)),
            Decision::Decided { grants, changed } => (grants, changed),
        };
        log_actions(&actions);
        if changed && let Err(error) = context.save(&mut locked, state) {
            if error.lock_was_lost {
                return Ok(Attempt::LockLost(Vec::new()));
            }
            if error.is_in_place {
                revoke_saved(&grants, call, state, &mut locked, context);
            }
            return Err(store(error));
        }
        record.add_reclaimed(actions.iter().flat_map(Action::freed).collect());
        if self.outcome.answer().is_some()
            && let RefreshOutcome::Fresh(answer) =
                mem::replace(&mut self.outcome, RefreshOutcome::Answered)
        {
            answer.confirm_merged();
        }
        if was_lost && !self.state.is_empty() {
            context.files().remove(StateFile::RebuildMark);
        }
        let grants = match grants {
            Ok(grants) => grants,
            Err(refusal) => return Ok(Attempt::Refused { refusal, retry }),
        };
        // Noted before anybody can learn the address.
        let noted = note_grants(&grants, last_grant, context);
        // Another call that loaded the state before it was replaced may still replace it.
        if !locked.is_current() {
            return Ok(Attempt::LockLost(grants));
        }
        match noted {
            Ok(()) => Ok(Attempt::Granted(grants)),
            Err(error) => {
                self.revoke(grants, &mut locked);
                Err(store(error))
            }
        }
    }

    /// Drops an answer when the state has one that was asked for later. This happens when the lock file was removed meanwhile.
    fn drop_older_answer(&mut self) {
        // A moment in the future is of another boot.
        let now = self.context.now();
        let refreshed = self.state.refreshed.filter(|at| *at <= now);
        let answer = self.outcome.answer();
        if answer.is_some_and(|answer| refreshed.is_some_and(|at| answer.started() < at)) {
            info!(target: "ipam", "a newer answer of the source is in the state already.");
            self.outcome = RefreshOutcome::Answered;
            self.retry = Some(RefreshReason::Lost);
        }
    }

    fn revoke(&mut self, grants: Vec<Grant>, locked: &mut Locked<'_>) {
        revoke_saved(
            &Ok(grants),
            self.call,
            &mut self.state,
            locked,
            self.context,
        );
    }
}

/// Notes beside the state that addresses were granted in this boot, and the newest generation.
///
/// # Errors
/// A note cannot be written.
fn note_grants(
    grants: &[Grant],
    last_grant: Option<LastGrant>,
    context: &Context,
) -> Result<(), StoreError> {
    let Some(newest) = grants.last() else {
        return Ok(());
    };
    let boot_id = context.boot_id.as_deref();
    // A marker of another boot would say, if everything else were lost, that nothing was granted in this one.
    let is_noted = last_grant.is_some_and(|last| last.is_of_this_boot)
        && context.files().exists(StateFile::BootMarker);
    if !is_noted {
        note_boot(context.files(), boot_id)?;
    }
    note_use(context.files(), boot_id, newest.generation)
}

/// The words that the original's message begins with when the state cannot be written. Without a subnet, it saves for the first time
/// when it has chosen a pool.
pub(super) fn original_stage(requests: &[Request<'_>]) -> &'static str {
    match requests.first().map(|request| request.pool) {
        Some(PoolSelector::Named(_)) => "Failed to allocate address",
        Some(PoolSelector::Any { .. }) | None => "Failed to allocate pool",
    }
}
