//! Reading the state for a decision, and committing what was decided.

use std::time::Duration;

use tracing::warn;

use super::context::Context;
use crate::failure::Failure;
use crate::host::io_reason;
use crate::ipam::Moment;
use crate::state::{self, Files, LockError, Locked, State, StateFile, StoreError};

/// The version in a new state, in the original's form.
const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// The most that a call takes, not counting the source. It bounds all waits for the lock together.
const LONGEST: Duration = Duration::from_secs(60);

/// Whether a saved change counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commit {
    /// It does.
    Done,
    /// The lock file was removed while the lock was held. Another call may have decided on the same state, so this one decides
    /// again.
    LockLost,
}

impl Context {
    /// The files of the state.
    pub(crate) fn files(&self) -> &dyn Files {
        &*self.node
    }

    /// Now.
    pub(crate) fn now(&self) -> Moment {
        self.node.now()
    }

    /// Acquires the lock on the state. All waits of one call together end after [`LONGEST`].
    ///
    /// # Errors
    /// Another call holds it for too long, or it cannot be made.
    pub(super) fn lock(&self) -> Result<Locked<'_>, LockError> {
        let began = self.now();
        let left = LONGEST.saturating_sub(began.since(self.started));
        let locked = Locked::acquire(self.files(), state::WAIT.min(left));
        self.note_lock_wait(self.now().since(began));
        locked
    }

    /// Replaces the state under its lock, and appends to the journal of grants.
    ///
    /// # Errors
    /// The state cannot be written, or the lock is lost. A journal that cannot be written is logged; the next save rewrites it.
    pub fn save(&self, locked: &mut Locked<'_>, state: &mut State) -> Result<(), StoreError> {
        // A state without our key has no generation of its own that could be behind.
        let is_owed = matches!(state.pending, state::PendingWork::Rebuild(_));
        if matches!(
            state.key_status,
            state::KeyStatus::Absent | state::KeyStatus::Unreadable(_)
        ) && !is_owed
        {
            self.raise_generation(state);
        }
        let time = self.files().wall_time();
        let stamp = self.stamp(&time);
        let plan = state::prepare_update(state, self.files(), self.boot_id.as_deref(), self.now());
        locked.save(state, stamp)?;
        // Without the lock, a journal of a newer holder must not be replaced.
        if plan.is_replacement() && !locked.is_current() {
            return Ok(());
        }
        if let Err(e) = state::write_update(plan, self.files()) {
            let path = self.files().path(StateFile::Journal);
            warn!(target: "ipam", "{} could not be written: {}.", path.display(), io_reason(&e));
        }
        Ok(())
    }

    fn stamp<'a>(&'a self, time: &'a str) -> state::WriteStamp<'a> {
        state::WriteStamp {
            version: VERSION,
            time,
            boot_id: self.boot_id.as_deref(),
        }
    }

    /// Returns the text of a state that is not to be written.
    pub(super) fn print_state(&self, state: &mut State) -> Vec<u8> {
        state.print(self.stamp(&self.files().wall_time()))
    }

    /// Raises the generation of a state without our key to that of the last grant. Otherwise the journal and the note of the last
    /// grant would seem newer than the state.
    pub(super) fn raise_generation(&self, state: &mut State) {
        let boot_id = self.boot_id.as_deref();
        let noted = state::last_granted_generation(self.files(), boot_id).unwrap_or(0);
        let journaled = state::Journal::read(self.files(), boot_id).generation;
        let ipam = state.ipam_mut();
        ipam.generation = ipam.generation.max(noted).max(journaled);
    }

    /// Saves a decision, and checks that the lock is still held afterwards.
    ///
    /// # Errors
    /// The state cannot be written. `stage` is what the original's message begins with.
    pub(super) fn commit(
        &self,
        locked: &mut Locked<'_>,
        state: &mut State,
        stage: &'static str,
    ) -> Result<Commit, Failure> {
        let is_lost = match self.save(locked, state) {
            Ok(()) => !locked.is_current(),
            Err(error) if error.lock_was_lost => true,
            Err(error) => return Err(Failure::Store { stage, error }),
        };
        if is_lost {
            warn!(target: "ipam", "the lock file was removed while it was held; this call decides again.");
            return Ok(Commit::LockLost);
        }
        Ok(Commit::Done)
    }

    /// Repeats `attempt` as long as it loses the lock.
    ///
    /// # Errors
    /// Those of `attempt`; or the lock was lost too often.
    pub(super) fn retry_lost_lock(
        &self,
        mut attempt: impl FnMut() -> Result<Commit, Failure>,
    ) -> Result<(), Failure> {
        for _ in 0..state::MOST_ROUNDS {
            if attempt()? == Commit::Done {
                return Ok(());
            }
            if self.has_timed_out() {
                break;
            }
        }
        Err(state::LockError::removed(&self.paths).into())
    }

    /// Whether the call has taken so long that it is not decided again.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.now().since(self.started) > LONGEST
    }

    /// Why the state must be rebuilt, if it must.
    pub(crate) fn lost_reason(&self, state: &State) -> Option<String> {
        let files = self.files();
        let last = state::last_granted_generation(files, self.boot_id.as_deref());
        let why = state.lost_reason(state::is_rebuild_owed(files), last);
        why.map(str::to_owned)
    }

    /// Replays the journal over an old copy of the state, if the journal has everything that came after it.
    pub(crate) fn catch_up(&self, state: &mut State) {
        let missed = state::Journal::catch_up(self.files(), self.boot_id.as_deref(), state);
        if missed > 0 {
            warn!(target: "ipam", "the state is an old copy; {missed} entries of the journal bring it up to date.");
        }
    }
}
