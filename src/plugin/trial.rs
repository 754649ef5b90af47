//! Tries an ADD: decides it as an ADD would be decided now, but takes no lock and changes nothing.

use std::time::Duration;

use super::add::original_stage;
use super::context::Context;
use super::decide::{Decision, decide};
use super::known::{Known, Need, Scan};
use crate::cni::Call;
use crate::failure::Failure;
use crate::ipam::{Evidence, Grant, Moment, Wanted};
use crate::source::{Attempts, FreshAnswer, MatchedListing, Source, Turn};
use crate::state::{State, StateFile, StoreError, check_save};

/// The input of trials at one moment, besides the state.
#[derive(Debug)]
pub struct Trial<'a> {
    /// The context, as for an ADD.
    pub context: &'a Context,
    /// The source; `None` if it is unknown.
    pub source: Option<&'a Source>,
    /// The answer of the source, or why there is none.
    pub answer: Result<&'a MatchedListing, String>,
    /// The recorded failures and doubts of earlier queries.
    pub attempts: Attempts,
    /// What a scan of the whole node showed.
    pub evidence: &'a Evidence,
}

/// An ADD needs at most three scans: to reconcile the state, to end a quarantine, and to judge records.
const MOST_SCANS: u32 = 3;

/// The result of a trial.
#[derive(Debug)]
pub struct TrialResult {
    /// The addresses that would be granted, or the failure.
    pub outcome: Result<Vec<Grant>, Failure>,
    /// The state that the ADD would leave, with the grants.
    pub state: State,
}

impl Trial<'_> {
    /// Decides an ADD for this call. The attachment should hold nothing.
    pub fn allocate(&self, call: &Call) -> TrialResult {
        match Wanted::from_call(call, None) {
            Ok(wanted) => self.decide(&wanted, call.conf.ipam.query_interval),
            Err(refusal) => TrialResult::failed(Failure::Refused {
                refusal,
                source: None,
                configured_address: call.conf.ipam.ip_address.clone(),
            }),
        }
    }

    /// Does what every ADD does to the state before it allocates: merges the answer, and reconciles with the node.
    pub fn reconcile(&self) -> TrialResult {
        self.decide(&Wanted::default(), None)
    }

    fn decide(&self, wanted: &Wanted, interval: Option<Duration>) -> TrialResult {
        let context = self.context;
        let stage = original_stage(wanted);
        let mut known = self.known(interval);
        let mut scans = 0;
        loop {
            let mut state = match context.view() {
                Ok(state) => state,
                Err(error) => return TrialResult::failed(Failure::from_store(stage, error)),
            };
            let now = context.now();
            let Decision { granted, .. } =
                match decide(&mut state, wanted, &known, now, &*context.node) {
                    Ok(decision) => decision,
                    Err(Need::Answer(_) | Need::NewerAnswer(_)) if known.answer.is_none() => {
                        known.answer = Some(self.answer(now));
                        continue;
                    }
                    Err(Need::Scan(candidates)) if scans < MOST_SCANS => {
                        scans += 1;
                        known.scan = Some(Scan {
                            evidence: self.evidence.clone(),
                            candidates,
                            began: now,
                        });
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

    /// Returns what an ADD knows when it has the turn to query the source.
    fn known(&self, interval: Option<Duration>) -> Known<'_> {
        let now = self.context.now();
        let name = self.source.map_or_else(String::new, Source::name);
        let boot_id = self.context.boot_id.as_deref();
        Known {
            source: self.source,
            interval,
            started: now,
            turn: Some(Turn::of_trial(self.attempts.clone(), &name, boot_id, now)),
            ..Known::default()
        }
    }

    /// Returns the answer of the source as an ADD gets it.
    fn answer(&self, now: Moment) -> Result<FreshAnswer, String> {
        let matched = self.answer.as_ref().map_err(String::clone)?;
        let doubtful_since = self.attempts.doubtful_since;
        Ok(FreshAnswer::new(
            (*matched).clone(),
            now,
            now,
            doubtful_since,
        ))
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

/// Checks that a state as long as the present one could be written now.
///
/// # Errors
/// The disk is full or read-only, or this user may not write there.
pub fn check_disk(context: &Context) -> Result<(), StoreError> {
    /// The space that a small state and its backup need, in bytes.
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
    check_save(&context.files().path(StateFile::State), length)
}
