//! Decides what an ADD would come to now, as an ADD decides it, but takes no lock and changes nothing.

use std::{fs, io};

use super::add::{failure_of, original_stage};
use super::address_request::{address_requests, narrow_refusal, pool_requests};
use super::commit::require_known_format;
use super::context::{Context, NodeSnapshot};
use super::decide::{Decision, Inputs, decide};
use super::refresh::reject_implausible;
use crate::cni::Call;
use crate::events::OperationRecord;
use crate::failure::{Failure, message_with_remedy};
use crate::host::{Paths, check_room, write_refusal};
use crate::ipam::{Candidate, Evidence, Grant, Moment, Request};
use crate::source::{FreshAnswer, MatchedListing, RefreshOutcome, SourceError};
use crate::state::{LockError, State, StateFile, StoreError};

/// What all trials of one moment are decided from, beside the state.
#[derive(Debug)]
pub struct Trial<'a> {
    /// The context, as an ADD has it.
    pub context: &'a Context,
    /// What the source answers now; `None` where there is none to ask.
    pub answer: Option<Result<&'a MatchedListing, &'a SourceError>>,
    /// Since when every answer would have removed all pools.
    pub doubtful_since: Option<Moment>,
    /// What the whole node shows.
    pub evidence: &'a Evidence,
}

/// The result of a trial.
#[derive(Debug)]
pub struct TrialResult {
    /// The addresses that would be granted, or the failure.
    pub outcome: Result<Vec<Grant>, Failure>,
    /// The state that the ADD would leave, with the grants.
    pub state: Box<State>,
}

impl Trial<'_> {
    /// Decides an ADD for this call. The attachment should be one that holds nothing.
    pub fn allocate(&self, call: &Call) -> TrialResult {
        let requested = match address_requests(call) {
            Ok(requested) => requested,
            Err(failure) => return TrialResult::failed(failure),
        };
        let requests = pool_requests(&requested, &call.conf.ipam, &call.attachment);
        self.decide(&requests, Some(call))
    }

    /// Does what every ADD does to the state before it allocates: merges the answer, and reconciles with the node.
    pub fn reconcile(&self) -> TrialResult {
        self.decide(&[], None)
    }

    fn decide(&self, requests: &[Request<'_>], call: Option<&Call>) -> TrialResult {
        self.attempt(requests, call, Vec::new())
            .or_else(|candidates| self.attempt(requests, call, candidates))
            .unwrap_or_else(|_| {
                // The first attempt can lack only the records to judge, and the second one has them.
                TrialResult::failed(defect("the second attempt of a trial asks for a snapshot"))
            })
    }

    /// Decides with these records to be judged by the evidence. Returns the records that it needs instead, if it needs others.
    fn attempt(
        &self,
        requests: &[Request<'_>],
        call: Option<&Call>,
        candidates: Vec<Candidate>,
    ) -> Result<TrialResult, Vec<Candidate>> {
        let context = self.context;
        let stage = original_stage(requests);
        let mut state = match context.view() {
            Ok(state) => state,
            Err(error) => {
                let failure = Failure::from_store(stage, error);
                return Ok(TrialResult::failed(failure));
            }
        };
        if let Err(failure) = require_known_format(&state) {
            return Ok(TrialResult::failed(failure));
        }
        let now = context.now();
        let (refreshed, source) = self.refresh(&state, now);
        let snapshot = NodeSnapshot {
            evidence: self.evidence.clone(),
            candidates,
            began: now,
        };
        let inputs = Inputs {
            requests,
            inventory: refreshed.answer().map(|answer| &answer.matched.inventory),
            snapshot: Some(&snapshot),
            retry: None,
            now,
        };
        let grants = match decide(&mut state, &inputs, &*context.node, &mut Vec::new()) {
            Decision::Snapshot(candidates) => return Err(candidates),
            Decision::Granted(grants) => Ok(grants),
            Decision::Inconsistent(violations) => Err(Failure::Broken(violations)),
            Decision::Refused(refusal) => Err(Failure::Refused {
                refusal: match call {
                    Some(call) => narrow_refusal(refusal, call),
                    None => refusal,
                },
                source,
            }),
            // Without `retry`, no decision asks for a refresh.
            Decision::Refresh(_) => Err(defect("a trial asks for a refresh")),
        };
        let outcome = if state.must_save {
            check_writable(context, context.print_state(&mut state).len())
                .map_err(|error| Failure::from_store(stage, error))
                .and(grants)
        } else {
            grants
        };
        Ok(TrialResult { outcome, state })
    }

    /// What the answer comes to beside this state, and why there is none to use.
    fn refresh(&self, state: &State, now: Moment) -> (RefreshOutcome, Option<String>) {
        let matched = match self.answer {
            None => return (RefreshOutcome::Answered, None),
            Some(Ok(matched)) => matched.clone(),
            Some(Err(error)) => {
                return (RefreshOutcome::Answered, Some(message_with_remedy(error)));
            }
        };
        let answer = FreshAnswer::in_memory(matched, now, self.doubtful_since);
        let mut outcome = RefreshOutcome::Fresh(Box::new(answer));
        reject_implausible(&mut outcome, state, &mut OperationRecord::default());
        let why = failure_of(&outcome);
        (outcome, why)
    }
}

impl TrialResult {
    fn failed(failure: Failure) -> TrialResult {
        TrialResult {
            outcome: Err(failure),
            state: Box::default(),
        }
    }
}

/// Returns the failure for what cannot happen.
fn defect(what: &str) -> Failure {
    Failure::Panic(what.to_owned())
}

/// Returns why the lock could not be acquired even if nobody holds it.
pub fn lock_obstacle(paths: &Paths) -> Option<LockError> {
    let (folder, file) = (paths.lock_folder(), paths.lock_file());
    let source = if fs::metadata(&folder).is_ok_and(|meta| !meta.is_dir()) {
        io::ErrorKind::NotADirectory.into()
    } else if fs::metadata(&file).is_ok_and(|meta| !meta.is_file()) {
        io::ErrorKind::IsADirectory.into()
    } else {
        let opened = if file.exists() { &file } else { &folder };
        // A user who may not write there is not who calls the plugin.
        write_refusal(opened).filter(|e| e.kind() == io::ErrorKind::ReadOnlyFilesystem)?
    };
    Some(LockError::Io { path: file, source })
}

/// Checks that a state as long as the present one could be written now.
///
/// # Errors
/// The disk is full or read-only, or this user may not write there.
pub fn check_disk(context: &Context) -> Result<(), StoreError> {
    /// The room that a small state and its backup need, in bytes.
    const LEAST: usize = 4096;
    let length = context.files().size(StateFile::State).unwrap_or(0);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    check_writable(context, length.max(LEAST))
}

/// Checks that a state of this length, in bytes, could be written now.
///
/// # Errors
/// As [`check_disk`].
fn check_writable(context: &Context, length: usize) -> Result<(), StoreError> {
    let path = context.files().path(StateFile::State);
    // The first call makes a folder that is missing.
    let folder = path.ancestors().skip(1).find(|folder| folder.exists());
    check_room(folder.unwrap_or(&path), length).map_err(StoreError::at("cannot write", &path))
}
