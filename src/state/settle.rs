//! Decides in one place, for every verb and command, what a state is worth by its files.

use super::journal::Journal;
use super::lock::{LockText, is_same_boot};
use super::{Condition, Loss, State};
use crate::ipam::Moment;

/// What stands in the place of the state.
pub(super) enum StateText {
    Missing,
    /// It is no state, for this reason.
    Corrupt(String),
    Parsed(Box<State>),
}

/// Decides what the files say, where the state and the journal are not in step: whether the state is believed, restored from the journal,
/// or lost.
///
/// The journal proves that it is complete by a record of this boot that names one of its saves, as long as no state lies there that
/// another program wrote last.
pub(super) fn settle(
    text: StateText,
    lock: &LockText,
    journal: Option<Journal>,
    boot_id: Option<&str>,
    now: Moment,
) -> Box<State> {
    let record = lock.record_of(boot_id);
    let journaled_boot = journal.as_ref().and_then(|j| j.boot_id.as_deref());
    // Where this call cannot read the boot ID, the record and the journal still tell the boot of the last save.
    let boots = [
        boot_id,
        record.and_then(|record| record.boot_id.as_deref()),
        journaled_boot,
    ];
    // Nothing is journaled while the boot ID cannot be read.
    let is_unjournaled = boot_id.is_none() || record.is_some_and(|record| record.boot_id.is_none());
    let record = record.map(|record| record.generation);
    let has_chain = journal
        .as_ref()
        .is_some_and(|journal| journal.last().is_some());
    let newest = record.max(journal.as_ref().and_then(|journal| journal.newest));
    // During a loss, DELs append to the journal. Any other save begins a new one.
    let newest_save = record.max(journal.as_ref().and_then(Journal::first));
    let (found, corrupt) = match text {
        StateText::Parsed(state) => (Some(state), None),
        StateText::Missing => (None, None),
        StateText::Corrupt(why) => (None, Some(why)),
    };
    let why = loss(found.as_deref(), corrupt.as_deref(), newest, boots);
    let is_foreign = found.as_ref().is_some_and(|state| state.other_wrote_last);
    let proof = lock.proof(boot_id).filter(|_| !is_foreign);
    let is_complete =
        proof.is_some_and(|proof| journal.as_ref().is_some_and(|journal| journal.has(proof)));
    let may_be_fresh =
        corrupt.is_none() && journal.is_none() && record.is_none() && *lock != LockText::Other;
    let mut state = match (why, journal) {
        (None, journal) => {
            let mut state = found.unwrap_or_default();
            match &mut state.condition {
                Condition::Lost(loss) => {
                    (loss.journaled, loss.loose) =
                        journal.map(Journal::into_holds).unwrap_or_default();
                }
                // A save leaves a journal, and a record. Where one of them is missing, this may be an old copy.
                condition @ Condition::Ready
                    if state.saved.is_some()
                        && !is_unjournaled
                        && (!has_chain || *lock == LockText::None) =>
                {
                    *condition = Condition::Reconcile;
                }
                _ => {}
            }
            state
        }
        (Some(why), Some(journal)) if is_complete => {
            let mut state = journal.into_state().unwrap_or_default();
            state.restored = Some(why);
            state.must_save = true;
            state
        }
        (Some(why), journal) => {
            // Whatever else stands in a file without pools is kept.
            let mut state = found.unwrap_or_default();
            let seen = match &state.condition {
                // Otherwise it is a copy of a state of an earlier loss.
                Condition::Lost(loss) if newest_save <= state.saved => loss.seen,
                _ => now,
            };
            let (journaled, loose) = journal.map(Journal::into_holds).unwrap_or_default();
            state.condition = Condition::Lost(Loss {
                why,
                seen,
                journaled,
                loose,
                may_be_fresh,
            });
            // So that the quarantine begins now, whatever else happens.
            state.must_save = true;
            state
        }
    };
    state.seen = newest.unwrap_or(0);
    state.corrupt = corrupt;
    state
}

/// Why the state lacks grants, if it does: it is missing, it cannot be read, or it is behind `newest`, the newest save of this boot that
/// the record or the journal knows, or of another boot than these.
fn loss(
    found: Option<&State>,
    corrupt: Option<&str>,
    newest: Option<u64>,
    boots: [Option<&str>; 3],
) -> Option<String> {
    if let Some(why) = corrupt {
        return Some(why.to_owned());
    }
    let is_newer = |state: &State| matches!(state.condition, Condition::Newer { .. });
    let says_nothing = |state: &State| state.saved.is_none() && state.is_empty();
    if found.is_some_and(is_newer) {
        return None;
    }
    let Some(state) = found.filter(|state| !says_nothing(state)) else {
        return Some(match newest {
            Some(_) => "it is gone, though addresses were given since the node started".to_owned(),
            None => "it is not there".to_owned(),
        });
    };
    let newest = newest?;
    match state.saved {
        None => Some("the journal knows grants that it cannot have".to_owned()),
        Some(_)
            if boots
                .iter()
                .any(|boot| !is_same_boot(state.boot_id.as_deref(), *boot)) =>
        {
            Some("it is a copy of an earlier boot".to_owned())
        }
        Some(saved) if saved < newest => {
            Some("it is older than the last address that was given".to_owned())
        }
        Some(_) => None,
    }
}
