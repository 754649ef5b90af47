//! Reading the state for a decision, and committing what was decided.

use std::time::Duration;

use tracing::warn;

use super::context::Context;
use crate::cni::Call;
use crate::failure::{Failure, Fate};
use crate::ipam::{Grant, GrantKind, Moment};
use crate::state::{self, Condition, Files, LockError, Locked, State, StoreError, WriteStamp};

/// The version in a new state, in the original's form.
const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// The most that a call takes, not counting the source. It bounds all waits for the lock together.
const LONGEST: Duration = Duration::from_secs(60);

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

    /// Reads the state under its lock.
    ///
    /// # Errors
    /// The system does not let it be read.
    pub fn open(&self, locked: &mut Locked<'_>) -> Result<Box<State>, StoreError> {
        locked.open(self.boot_id.as_deref())
    }

    /// Reads the state without its lock.
    ///
    /// # Errors
    /// The system does not let it be read.
    pub fn view(&self) -> Result<Box<State>, StoreError> {
        state::view(self.files(), self.boot_id.as_deref())
    }

    /// Replaces the state under its lock, with all that stands beside it.
    ///
    /// # Errors
    /// As [`Locked::commit`].
    pub fn commit(&self, locked: &mut Locked<'_>, state: &mut State) -> Result<(), StoreError> {
        state
            .ipam_mut()
            .forget_gone_namespaces(self.now(), |netns| self.node.is_gone(netns));
        let time = self.files().wall_time();
        locked.commit(state, self.stamp(&time))
    }

    /// Returns the text of a state that is not to be written.
    pub(super) fn print_state(&self, state: &mut State) -> Vec<u8> {
        state.print(self.stamp(&self.files().wall_time()))
    }

    fn stamp<'a>(&'a self, time: &'a str) -> WriteStamp<'a> {
        WriteStamp {
            version: VERSION,
            time,
            boot_id: self.boot_id.as_deref(),
        }
    }
}

/// Takes back the grants of an ADD that fails after they were saved: only what this call newly allocated, and only if the state still
/// says so.
pub fn take_back(call: &Call, grants: &[Grant], context: &Context) -> Fate {
    let is_renewed = |grant: &Grant| grant.kind == GrantKind::Renewed;
    if grants.iter().all(is_renewed) {
        return Fate::HeldBefore;
    }
    let Ok(mut locked) = context.lock() else {
        return Fate::StillHeld;
    };
    let Ok(mut state) = context.open(&mut locked) else {
        return Fate::StillHeld;
    };
    if state.ipam_mut().revoke_all(&call.attachment, grants)
        && (state.condition.lost().is_some() || context.commit(&mut locked, &mut state).is_err())
    {
        return Fate::StillHeld;
    }
    for grant in grants.iter().filter(|grant| !is_renewed(grant)) {
        warn!(target: "ipam", "{} is released again, because the call failed.", grant.address);
    }
    Fate::Released
}

/// The error of a newer format, where the state is of one.
///
/// # Errors
/// It is.
pub(super) fn require_known_format(state: &State) -> Result<(), Failure> {
    match state.condition {
        Condition::Newer { format } => Err(Failure::NewerFormat { found: format }),
        _ => Ok(()),
    }
}
