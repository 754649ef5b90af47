//! Reading the state for a decision, and committing what was decided.

use std::time::Duration;

use tracing::warn;

use super::context::Context;
use crate::failure::Failure;
use crate::host::io_reason;
use crate::ipam::Moment;
use crate::state::{self, Files, LockError, Locked, State, StateFile, StoreError};

/// The version that a new state names, in the original's form.
const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// No call that waits for others lasts for longer than this, beside what the source takes.
const LONGEST: Duration = Duration::from_secs(60);

impl Context {
    /// The files that the state and what belongs to it are in.
    pub(crate) fn files(&self) -> &dyn Files {
        &*self.node
    }

    /// Now.
    pub(crate) fn now(&self) -> Moment {
        self.node.now()
    }

    /// Waits for the lock on the state, in all for no longer than a call may last.
    pub(super) fn lock(&self) -> Result<Locked<'_>, LockError> {
        let left = LONGEST.saturating_sub(self.now().since(self.started));
        Locked::acquire(self.files(), state::WAIT.min(left))
    }

    /// Replaces the state under its lock.
    pub fn save(&self, locked: &mut Locked<'_>, state: &mut State) -> Result<(), StoreError> {
        // Without our key a state is not behind the last address that was given: it says nothing of it.
        let is_owed = matches!(state.owed, state::PendingWork::Rebuild(_));
        if matches!(
            state.own,
            state::KeyStatus::Absent | state::KeyStatus::Unreadable(_)
        ) && !is_owed
        {
            self.count_on(state);
        }
        let time = self.files().wall_time();
        let stamp = state::WriteStamp {
            version: VERSION,
            time: &time,
            boot_id: self.boot_id.as_deref(),
        };
        let plan = state::plan(state, self.files(), self.boot_id.as_deref(), self.now());
        locked.save(state, stamp)?;
        // That of a call which holds a newer lock must not be replaced.
        if plan.is_replacement() && !locked.is_current() {
            return Ok(());
        }
        // What it lacks then is written with the next state.
        if let Err(e) = state::carry_out(plan, self.files()) {
            let path = self.files().path(StateFile::Journal);
            warn!(target: "ipam", "{} could not be written: {}.", path.display(), io_reason(&e));
        }
        Ok(())
    }

    /// Lets a state without our key count grants on from the last one that is noted elsewhere: the journal and the note of the last
    /// grant would seem to know more otherwise.
    pub(super) fn count_on(&self, state: &mut State) {
        let boot_id = self.boot_id.as_deref();
        let noted = state::last_granted_generation(self.files(), boot_id).unwrap_or(0);
        let journaled = state::Journal::read(self.files(), boot_id).generation;
        let ipam = state.ipam_mut();
        ipam.generation = ipam.generation.max(noted).max(journaled);
    }

    /// Saves what was decided. Tells whether that counts: not when the lock was lost, as then another call may have written, or may
    /// yet write, what it decided on the same state.
    pub(super) fn save_decision(
        &self,
        locked: &mut Locked<'_>,
        state: &mut State,
        stage: &'static str,
    ) -> Result<bool, Failure> {
        let is_lost = match self.save(locked, state) {
            Ok(()) => !locked.is_current(),
            Err(error) if error.lock_was_lost => true,
            Err(error) => return Err(Failure::Store { stage, error }),
        };
        if is_lost {
            warn!(target: "ipam", "the lock file was removed while it was held; this call decides again.");
        }
        Ok(!is_lost)
    }

    /// Calls `attempt` until it tells that it counts.
    pub(super) fn until_it_counts(
        &self,
        mut attempt: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        for _ in 0..state::MOST_ROUNDS {
            if attempt()? {
                return Ok(());
            }
            if self.is_late() {
                break;
            }
        }
        Err(state::LockError::removed(&self.paths).into())
    }

    /// Whether the call has lasted for longer than anything that it waits for may take: it is not decided again then.
    pub(crate) fn is_late(&self) -> bool {
        self.now().since(self.started) > LONGEST
    }

    /// Why the state has to be rebuilt, if it has.
    pub(crate) fn lost_reason(&self, state: &State) -> Option<String> {
        let files = self.files();
        let last = state::last_granted_generation(files, self.boot_id.as_deref());
        let why = state.lost_reason(state::is_rebuild_owed(files), last);
        why.map(str::to_owned)
    }

    /// Brings an old copy of the state up to date from the journal, where that tells all that came after it.
    pub(crate) fn catch_up(&self, state: &mut State) {
        let missed = state::Journal::catch_up(self.files(), self.boot_id.as_deref(), state);
        if missed > 0 {
            warn!(target: "ipam", "the state is an old copy; {missed} entries of the journal bring it up to date.");
        }
    }
}
