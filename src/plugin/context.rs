//! The context that the steps of a call share. Also reads the file of defaults for `ipam`.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::node::Node;
use crate::cni::{Defaults, NAME};
use crate::host::{Paths, ReadOutcome, boot_id, io_reason, read_bounded};
use crate::ipam::Moment;
use crate::source::SourceOverrides;
use crate::state::{self, Files, LockError, Locked, State, StoreError, WriteStamp};

/// The version in a new state, in the original's form.
const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// The longest that a call takes, without its queries of the source. It bounds all waits for the lock together.
const LONGEST: Duration = Duration::from_secs(60);

/// The context of a call.
#[derive(Debug)]
pub struct Context {
    /// The path of every file.
    pub paths: Paths,
    /// When the process started.
    pub started: Moment,
    /// The ID of the current boot. Moments are valid only within it.
    pub boot_id: Option<String>,
    /// Settings of the source in the environment. They override the network configuration.
    pub source_overrides: SourceOverrides,
    /// The node that the call works on.
    pub node: Rc<dyn Node>,
    /// How long the call has waited for the lock on the state, in microseconds.
    lock_wait: Cell<u64>,
}

impl Context {
    /// Creates the context of a call on this machine.
    pub fn new(paths: &Paths, started: Moment) -> Context {
        Context {
            paths: paths.clone(),
            source_overrides: SourceOverrides::from_env(),
            ..Context::on(Rc::new(paths.clone()), started, boot_id(paths))
        }
    }

    /// Creates the context of a call on a simulated node, for tests.
    #[doc(hidden)]
    pub fn on(node: Rc<dyn Node>, started: Moment, boot_id: Option<String>) -> Context {
        Context {
            paths: Paths::new(Some(PathBuf::from("/nonexistent")), NAME),
            started,
            boot_id,
            source_overrides: SourceOverrides::default(),
            node,
            lock_wait: Cell::new(0),
        }
    }

    /// How long the call has waited for the lock on the state, in microseconds.
    pub fn lock_wait(&self) -> u64 {
        self.lock_wait.get()
    }

    /// The files of the state.
    pub(crate) fn files(&self) -> &dyn Files {
        &*self.node
    }

    /// The current time.
    pub(crate) fn now(&self) -> Moment {
        self.node.now()
    }

    /// Acquires the lock on the state. All waits of one call together end after [`LONGEST`].
    ///
    /// # Errors
    /// Another call holds it for too long, or the file of the lock cannot be created or locked.
    pub(super) fn lock(&self) -> Result<Locked<'_>, LockError> {
        let began = self.now();
        let left = LONGEST.saturating_sub(began.since(self.started));
        let locked = Locked::acquire(self.files(), state::WAIT.min(left));
        self.note_lock_wait(self.now().since(began));
        locked
    }

    /// Adds to the time that the call has waited for the lock on the state.
    fn note_lock_wait(&self, waited: Duration) {
        /// A shorter time is no wait: a free lock is acquired within microseconds.
        const LEAST: Duration = Duration::from_millis(1);
        if waited >= LEAST {
            let waited = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
            self.lock_wait
                .set(self.lock_wait.get().saturating_add(waited));
        }
    }

    /// Reads the state under its lock.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(&self, locked: &mut Locked<'_>) -> Result<State, StoreError> {
        locked.open(self.boot_id.as_deref(), None)
    }

    /// Reads the state without its lock.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn view(&self) -> Result<State, StoreError> {
        state::view(self.files(), self.boot_id.as_deref())
    }

    /// Replaces the state and its backup under the lock.
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

    /// Returns the text that a commit of this state would write.
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

/// Reads the file of defaults for `ipam`. The keys cannot be in azure-vnet's configuration, because azure-vnet drops keys that it does
/// not know. Returns the valid members and a message for each invalid one. Invalid members are ignored, so that no pod fails because of
/// them.
pub(crate) fn read_settings(path: &Path) -> (Defaults, Vec<String>) {
    /// Larger files are not read.
    const LIMIT: usize = 256 << 10;
    let none = |why| (Defaults::default(), vec![why]);
    match read_bounded(path, LIMIT) {
        Ok(ReadOutcome::Read(bytes)) => Defaults::read(&bytes),
        Ok(ReadOutcome::Missing) => Default::default(),
        Ok(ReadOutcome::TooLarge) => none(format!("it is larger than {LIMIT} bytes")),
        Err(e) => none(io_reason(&e)),
    }
}
