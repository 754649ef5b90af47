//! Decides what an ADD would come to now, as an ADD decides it, but takes no lock and changes nothing.

use std::{fs, io};

use super::add::original_stage;
use super::context::Context;
use super::decide::{Decision, decide};
use super::known::{Known, Look, Need};
use crate::cni::Call;
use crate::failure::Failure;
use crate::host::{Paths, check_room, write_refusal};
use crate::ipam::{Candidate, Evidence, Grant, Moment, Wanted};
use crate::source::{FreshAnswer, MatchedListing};
use crate::state::{LockError, State, StateFile, StoreError};

/// What all trials of one moment are decided from, beside the state.
#[derive(Debug)]
pub struct Trial<'a> {
    /// The context, as an ADD has it.
    pub context: &'a Context,
    /// What the source answers now, or why it does not.
    pub answer: Result<&'a MatchedListing, String>,
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
    pub state: State,
}

impl Trial<'_> {
    /// Decides an ADD for this call. The attachment should be one that holds nothing.
    pub fn allocate(&self, call: &Call) -> TrialResult {
        match Wanted::from_call(call, None) {
            Ok(wanted) => self.decide(&wanted),
            Err(refusal) => TrialResult::failed(Failure::Refused {
                refusal,
                source: None,
            }),
        }
    }

    /// Does what every ADD does to the state before it allocates: merges the answer, and reconciles with the node.
    pub fn reconcile(&self) -> TrialResult {
        self.decide(&Wanted::default())
    }

    fn decide(&self, wanted: &Wanted) -> TrialResult {
        let context = self.context;
        let stage = original_stage(wanted);
        let mut candidates = Vec::new();
        loop {
            let mut state = match context.view() {
                Ok(state) => state,
                Err(error) => return TrialResult::failed(Failure::from_store(stage, error)),
            };
            let now = context.now();
            let has_judged = !candidates.is_empty();
            let known = self.known(candidates, now);
            let Decision { granted, .. } =
                match decide(&mut state, wanted, &known, now, &*context.node) {
                    Ok(decision) => decision,
                    // The look lacks only the records to judge.
                    Err(Need::Look(needed)) if !has_judged && !needed.is_empty() => {
                        candidates = needed;
                        continue;
                    }
                    Err(need) => {
                        let defect = format!("a trial needs {need:?}");
                        return TrialResult::failed(Failure::Panic(defect));
                    }
                };
            let outcome = if state.must_save {
                check_writable(context, context.print_state(&mut state).len())
                    .map_err(|error| Failure::from_store(stage, error))
                    .and(granted)
            } else {
                granted
            };
            return TrialResult { outcome, state };
        }
    }

    /// What an ADD would know after it had asked the source and looked at the node.
    fn known(&self, candidates: Vec<Candidate>, now: Moment) -> Known<'static> {
        let answer = match &self.answer {
            Ok(matched) => {
                let matched = (*matched).clone();
                Ok(FreshAnswer::new(matched, now, now, self.doubtful_since))
            }
            Err(why) => Err(why.clone()),
        };
        Known {
            answer: Some(answer),
            look: Some(Look {
                evidence: self.evidence.clone(),
                candidates,
                began: now,
            }),
            ..Known::default()
        }
    }
}

impl TrialResult {
    fn failed(failure: Failure) -> TrialResult {
        TrialResult {
            outcome: Err(failure),
            state: State::default(),
        }
    }
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
