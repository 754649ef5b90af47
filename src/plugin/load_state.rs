//! Loading the state for an ADD, which must work with any state: missing, corrupt, lost, or an old copy.

use tracing::{info, warn};

use super::context::Context;
use super::inputs::JournalReplay;
use crate::failure::Failure;
use crate::ipam::LastWords;
use crate::state::{Journal, KeyStatus, Loaded, Locked, State, StoreError, is_rebuild_owed, load};

/// The state that an ADD decides on.
pub(super) struct LoadedState {
    /// The state; an empty one if there is none that can be read.
    pub state: State,
    /// Why the state must be rebuilt, if it must.
    pub lost: Option<String>,
    /// What the journal of grants says, if the state must be rebuilt.
    pub journal: Option<JournalReplay>,
}

/// Loads the state under its lock. A corrupt file is set aside, and an old copy is brought up to date from the journal.
/// `last_generation` is that of the last grant, as far as it is known beside the state.
///
/// # Errors
/// The file cannot be read or set aside, or a newer version wrote it. `stage` is what the original's message begins with.
pub(super) fn load_state(
    locked: &mut Locked<'_>,
    last_generation: Option<u64>,
    stage: &'static str,
    context: &Context,
) -> Result<LoadedState, Failure> {
    let store = |error: StoreError| Failure::Store { stage, error };
    match locked.load(context.boot_id.as_deref()).map_err(store)? {
        Loaded::Corrupt(why) => {
            let aside = locked.set_aside(&context.files().wall_time());
            let aside = aside.map_err(store)?;
            warn!(target: "ipam", "the state could not be read ({why}) and is now {}.", aside.display());
            Ok(corrupt(why, last_generation, context))
        }
        loaded => readable(loaded, last_generation, context),
    }
}

/// Loads what [`load_state`] would, without a lock and without setting anything aside.
///
/// # Errors
/// The file cannot be read, or a newer version wrote it.
pub(super) fn preview_state(
    last_generation: Option<u64>,
    stage: &'static str,
    context: &Context,
) -> Result<LoadedState, Failure> {
    let loaded = load(context.files(), context.boot_id.as_deref());
    match loaded.map_err(|error| Failure::Store { stage, error })? {
        Loaded::Corrupt(why) => Ok(corrupt(why, last_generation, context)),
        loaded => readable(loaded, last_generation, context),
    }
}

/// What a corrupt state comes to: nothing, which is to be rebuilt.
fn corrupt(why: String, last_generation: Option<u64>, context: &Context) -> LoadedState {
    LoadedState {
        state: State::default(),
        lost: Some(why),
        journal: Some(read_journal(last_generation, context)),
    }
}

/// What a state that can be read comes to, or a missing one. An old copy is brought up to date from the journal.
///
/// # Errors
/// A newer version wrote it.
fn readable(
    loaded: Loaded,
    last_generation: Option<u64>,
    context: &Context,
) -> Result<LoadedState, Failure> {
    let mut state = match loaded {
        Loaded::Ready(state) => *state,
        Loaded::Newer { format, .. } => return Err(Failure::NewerFormat { found: format }),
        Loaded::Missing | Loaded::Corrupt(_) => State::default(),
    };
    if let KeyStatus::Unreadable(why) = &state.key_status {
        warn!(target: "ipam", "our part of the state could not be read: {why}.");
    }
    let has_own_generation = !matches!(
        state.key_status,
        KeyStatus::Absent | KeyStatus::Unreadable(_)
    );
    if !has_own_generation && !state.is_empty() {
        context.raise_generation(&mut state);
    }
    context.catch_up(&mut state);
    let lost = state.lost_reason(is_rebuild_owed(context.files()), last_generation);
    let lost = lost.map(str::to_owned);
    let journal = lost
        .is_some()
        .then(|| read_journal(last_generation, context));
    Ok(LoadedState {
        state,
        lost,
        journal,
    })
}

fn read_journal(last_generation: Option<u64>, context: &Context) -> JournalReplay {
    let journal = Journal::read(context.files(), context.boot_id.as_deref());
    let complete = journal.check_complete(context.files(), last_generation, context.now());
    if let Err(why) = &complete {
        info!(target: "ipam", "the journal is incomplete: {why}.");
    }
    JournalReplay {
        last_words: LastWords::of(&journal.entries),
        generation: journal.generation,
        is_complete: complete.is_ok(),
    }
}
