//! Loading the state for an ADD, which must work with any state: missing, corrupt, lost, or an old copy.

use tracing::{info, warn};

use super::context::Context;
use super::inputs::JournalReplay;
use crate::failure::Failure;
use crate::ipam::holdings;
use crate::state::{Journal, KeyStatus, Loaded, Locked, State, StoreError, is_rebuild_owed};

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
    let mut state = match locked.load(context.boot_id.as_deref()).map_err(store)? {
        Loaded::Ready(state) => *state,
        Loaded::Newer { format, .. } => return Err(Failure::NewerFormat { found: format }),
        Loaded::Missing => State::default(),
        Loaded::Corrupt(why) => {
            let aside = locked.set_aside(&context.files().wall_time());
            let aside = aside.map_err(store)?;
            warn!(target: "ipam", "the state could not be read ({why}) and is now {}.", aside.display());
            return Ok(LoadedState {
                state: State::default(),
                lost: Some(why),
                journal: Some(read_journal(last_generation, context)),
            });
        }
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
        holdings: holdings(&journal.entries),
        generation: journal.generation,
        is_complete: complete.is_ok(),
    }
}
