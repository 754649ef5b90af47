//! An ADD between what it asks for and what it gives: decided on the state under its lock, until that counts.

use std::mem;

use tracing::{info, warn};

use super::action::{Action, log_actions};
use super::address_request::narrow_refusal;
use super::context::Context;
use super::decide::{Decision, decide};
use super::inputs::{Inputs, JournalReplay};
use super::refresh::reject_implausible;
use super::revoke::revoke_saved;
use super::snapshot::NodeSnapshot;
use crate::cni::Call;
use crate::events::OperationRecord;
use crate::failure::{Failure, message_with_remedy};
use crate::ipam::{Candidate, Grant, GrantKind, PoolSelector, Refusal, Request, holdings};
use crate::source::{RefreshOutcome, RefreshReason};
use crate::state::{
    Journal, KeyStatus, Loaded, LockError, Locked, MOST_ROUNDS, State, StateFile, StoreError,
    is_rebuild_owed, last_grant, note_boot, note_use,
};

/// An ADD under way. What it needs of the outside, its caller gets for it between two steps, while nobody is kept from the state.
#[derive(Debug)]
pub struct Allocation<'a> {
    call: &'a Call,
    context: &'a Context,
    /// What is asked for, an address each.
    requests: Vec<Request<'a>>,
    /// Why the pools were last refreshed.
    reason: RefreshReason,
    /// What that refresh came to.
    outcome: RefreshOutcome,
    /// Why to refresh again before the request is refused, if that may help.
    retry: Option<RefreshReason>,
    look: Option<NodeSnapshot>,
    /// The state as it was last decided on.
    state: State,
    /// Given by earlier steps of this very call, whose state another call has replaced meanwhile.
    lost_grants: Vec<Grant>,
    /// So often the lock was lost.
    rounds: usize,
}

/// What comes next.
#[derive(Debug)]
pub enum Step {
    /// These addresses are given, and the state is saved.
    Granted(Vec<Grant>),
    /// The node must be looked at; these records are to be judged.
    Snapshot(Vec<Candidate>),
    /// The pools must be refreshed before the request is refused.
    Refresh(RefreshReason),
}

/// What came of looking for an address in the pools as they are.
enum Attempt {
    Granted(Vec<Grant>),
    /// The node must be looked at, which is not done under the lock; these records are to be judged.
    NeedsSnapshot(Vec<Candidate>),
    /// The lock file was removed while it was held, so that somebody else may have decided on the same state. These addresses
    /// were given, unless that state has won.
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
            look: None,
            state: State::default(),
            lost_grants: Vec::new(),
            rounds: 0,
        }
    }

    /// Takes in the outcome of another refresh.
    pub fn refreshed(&mut self, reason: RefreshReason, outcome: RefreshOutcome) {
        self.reason = reason;
        self.retry = outcome.retry();
        self.outcome = outcome;
    }

    /// Takes in a look at the node.
    pub fn looked(&mut self, mut look: NodeSnapshot) {
        look.note_own_namespace(&self.requests);
        self.look = Some(look);
    }

    /// Tries to allocate.
    ///
    /// # Errors
    /// Nothing can be given; the state cannot be read, locked or replaced.
    pub fn step(&mut self, record: &mut OperationRecord) -> Result<Step, Failure> {
        let context = self.context;
        loop {
            match self.attempt(record)? {
                Attempt::Granted(grants) => return Ok(Step::Granted(self.with_lost(grants))),
                Attempt::NeedsSnapshot(candidates) => return Ok(Step::Snapshot(candidates)),
                Attempt::LockLost(_) if self.rounds == MOST_ROUNDS || context.has_timed_out() => {
                    return Err(LockError::removed(&context.paths).into());
                }
                Attempt::LockLost(grants) => {
                    self.rounds += 1;
                    self.lost_grants.extend(grants);
                    // The answer may be merged into the state that has lost.
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

    /// What an earlier step of this very call gave counts as new, so that it is taken back with the rest if the result reaches nobody.
    fn with_lost(&self, mut grants: Vec<Grant>) -> Vec<Grant> {
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

    /// One try with the pools as they are, under the lock, after the new answer, if there is one, was merged into them.
    fn attempt(&mut self, record: &mut OperationRecord) -> Result<Attempt, Failure> {
        let (call, context) = (self.call, self.context);
        let (requests, look) = (&self.requests, self.look.as_ref());
        let store = |error| Failure::Store {
            stage: stage(requests),
            error,
        };
        let mut locked = context.lock()?;
        let last_grant = last_grant(context.files(), context.boot_id.as_deref());
        let last = last_grant.map(|last| last.generation);
        let (state, lost, journal) = match read(&mut locked, requests, last, context) {
            Err(Failure::Store { error, .. }) if error.lock_was_lost => {
                return Ok(Attempt::LockLost(Vec::new()));
            }
            read => read?,
        };
        // Kept until the call is over: to take it apart takes a tenth of the time that the lock is held.
        self.state = state;
        let state = &mut self.state;
        let was_lost = lost.is_some();
        reject_implausible(&mut self.outcome, state, record);
        // One that was asked for later is in the state already (its lock file may have been removed meanwhile). A moment that lies
        // ahead is of another boot.
        let now = context.now();
        let refreshed = state.refreshed.filter(|at| *at <= now);
        let answer = self.outcome.answer();
        if answer.is_some_and(|answer| refreshed.is_some_and(|at| answer.started() < at)) {
            info!(target: "ipam", "a newer answer of the source is in the state already.");
            self.outcome = RefreshOutcome::Answered;
            self.retry = Some(RefreshReason::Lost);
        }
        // What somebody else's answer said may no longer be there.
        let retry = self
            .retry
            .filter(|need| *need != RefreshReason::Lost || state.is_empty());
        let answer = self.outcome.answer();
        let given = Inputs {
            requests,
            inventory: answer.map(|answer| &answer.matched.inventory),
            lost,
            last_generation: last.unwrap_or(0),
            snapshot: look,
            may_ask_again: retry.is_some(),
            journal: journal.as_ref(),
            now: context.now(),
        };
        if let Some(answer) = answer {
            state.refreshed = Some(answer.started());
        }
        let mut actions = Vec::new();
        let (taken, changed) = match decide(state, &given, &*context.node, &mut actions) {
            Decision::NeedsSnapshot(candidates) => return Ok(Attempt::NeedsSnapshot(candidates)),
            Decision::Inconsistent(wrong) => return Err(Failure::Broken(wrong)),
            Decision::Decided { grants, changed } => (grants, changed),
        };
        log_actions(&actions);
        let dead = actions.iter().map(Action::count_dead).sum();
        if changed && let Err(error) = context.save(&mut locked, state) {
            if error.lock_was_lost {
                return Ok(Attempt::LockLost(Vec::new()));
            }
            if error.is_in_place {
                revoke_saved(&taken, call, state, &mut locked, context);
            }
            return Err(store(error));
        }
        record.count_reclaimed(dead);
        if answer.is_some()
            && let RefreshOutcome::Fresh(answer) =
                mem::replace(&mut self.outcome, RefreshOutcome::Answered)
        {
            answer.confirm_merged();
        }
        if was_lost && !state.is_empty() {
            context.files().remove(StateFile::RebuildMark);
        }
        // Before anybody can be told of the address.
        if let Ok(grants) = &taken
            && let Some(newest) = grants.last()
        {
            let boot_id = context.boot_id.as_deref();
            // That of another boot would tell, once everything else is gone, that nothing was given in this one.
            let is_noted = last_grant.is_some_and(|last| last.is_of_this_boot)
                && context.files().exists(StateFile::BootMarker);
            let noted = match is_noted {
                true => Ok(()),
                false => note_boot(context.files(), boot_id),
            };
            let noted = noted.and_then(|()| note_use(context.files(), boot_id, newest.generation));
            // Somebody else who has loaded the state before it was replaced may yet replace it.
            if !locked.is_current() {
                return Ok(Attempt::LockLost(grants.clone()));
            }
            if let Err(error) = noted {
                revoke_saved(&taken, call, state, &mut locked, context);
                return Err(store(error));
            }
        }
        Ok(match taken {
            Ok(grants) => Attempt::Granted(grants),
            Err(refusal) => Attempt::Refused { refusal, retry },
        })
    }
}

/// The state to work on, and why it has to be rebuilt, if it has, with what the journal knows then.
fn read(
    locked: &mut Locked<'_>,
    requests: &[Request<'_>],
    last: Option<u64>,
    context: &Context,
) -> Result<(State, Option<String>, Option<JournalReplay>), Failure> {
    let journaled = || {
        let journal = Journal::read(context.files(), context.boot_id.as_deref());
        let complete = journal.check_complete(context.files(), last, context.now());
        if let Err(why) = &complete {
            info!(target: "ipam", "the journal does not tell everything: {why}.");
        }
        JournalReplay {
            holdings: holdings(&journal.entries),
            generation: journal.generation,
            is_complete: complete.is_ok(),
        }
    };
    let store = |error: StoreError| Failure::Store {
        stage: stage(requests),
        error,
    };
    let mut state = match locked.load(context.boot_id.as_deref()).map_err(store)? {
        Loaded::Ready(state) => *state,
        Loaded::Newer { format, .. } => return Err(Failure::NewerFormat { found: format }),
        Loaded::Missing => State::default(),
        Loaded::Corrupt(why) => {
            let aside = locked
                .set_aside(&context.files().wall_time())
                .map_err(store)?;
            warn!(target: "ipam", "the state could not be read ({why}) and is now {}.", aside.display());
            return Ok((State::default(), Some(why), Some(journaled())));
        }
    };
    if let KeyStatus::Unreadable(why) = &state.key_status {
        warn!(target: "ipam", "our part of the state could not be read: {why}.");
    }
    if matches!(
        state.key_status,
        KeyStatus::Absent | KeyStatus::Unreadable(_)
    ) && !state.is_empty()
    {
        context.raise_generation(&mut state);
    }
    context.catch_up(&mut state);
    let lost = state.lost_reason(is_rebuild_owed(context.files()), last);
    let lost = lost.map(str::to_owned);
    let journal = lost.is_some().then(journaled);
    Ok((state, lost, journal))
}

/// What the original's messages begin with when the state cannot be written: without a subnet it saves first when it has
/// chosen a pool.
fn stage(requests: &[Request<'_>]) -> &'static str {
    match requests.first().map(|request| request.pool) {
        Some(PoolSelector::Named(_)) => "Failed to allocate address",
        Some(PoolSelector::Any { .. }) | None => "Failed to allocate pool",
    }
}
