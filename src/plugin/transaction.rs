//! The loop of every call that may change the state: lock it, read it, decide, save. If the decision needs something first, the loop
//! unlocks the state, gets what is needed, and starts again.

use super::context::Context;
use super::known::{Known, Need};
use crate::failure::Failure;
use crate::ipam::{Moment, Wanted};
use crate::state::{LockError, State, StoreError};

/// Why a transaction failed.
#[derive(Debug)]
pub enum TransactionError<T> {
    /// The state cannot be locked.
    Lock(LockError),
    /// The state cannot be read.
    Open(StoreError),
    /// The decision cannot be saved.
    Commit(StoreError, T),
}

/// Runs a transaction. `decide` gets the state, what the call knows, and the time. Its changes of the state are saved only if it also
/// sets [`State::must_save`].
///
/// # Errors
/// The state cannot be locked, read or replaced.
pub fn transact<T>(
    context: &Context,
    known: &mut Known<'_>,
    wanted: Option<&Wanted>,
    mut decide: impl FnMut(&mut State, &Known<'_>, Moment) -> Result<T, Need>,
) -> Result<T, TransactionError<T>> {
    loop {
        let mut locked = context.lock().map_err(TransactionError::Lock)?;
        let mut state = locked
            .open(context.boot_id.as_deref(), known.state.take())
            .map_err(TransactionError::Open)?;
        match decide(&mut state, known, context.now()) {
            Ok(done) => {
                if state.must_save
                    && let Err(error) = context.commit(&mut locked, &mut state)
                {
                    return Err(TransactionError::Commit(error, done));
                }
                // Dropping the state takes time. Other calls need not wait for that.
                drop(locked);
                known.turn = None;
                return Ok(done);
            }
            Err(need) => {
                drop(locked);
                if let Need::Answer(_) = need {
                    known.state = Some(state);
                }
                known.get(need, wanted, context);
            }
        }
    }
}

impl<T> TransactionError<T> {
    /// Returns the failure for the caller. The original's message begins with `stage`.
    pub fn into_failure(self, stage: &'static str) -> Failure {
        match self {
            TransactionError::Lock(error) => error.into(),
            TransactionError::Open(error) | TransactionError::Commit(error, _) => {
                Failure::from_store(stage, error)
            }
        }
    }
}
