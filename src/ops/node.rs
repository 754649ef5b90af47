//! The node that a command is about.

use std::time::Duration;

use super::node_config::NodeConfig;
use super::outcome::CommandError;
use super::screen::Screen;
use crate::events::History;
use crate::host::{Paths, boot_now, wall_second};
use crate::ipam::Moment;
use crate::plugin::Context;
use crate::source::{Matched, Source, SourceError};
use crate::state::{Document, LockError, Locked, WAIT};

/// What every command starts from.
#[derive(Debug)]
pub struct Node {
    /// Paths, boot and the like, as a call has them.
    pub context: Context,
    /// What stdout is.
    pub screen: Screen,
    /// Now.
    pub now: Now,
}

/// Now, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// On the boot clock.
    pub boot: Moment,
    /// On the wall clock: seconds since 1970.
    pub wall: i64,
}

impl Now {
    /// Now.
    pub fn read() -> Now {
        Now {
            boot: boot_now(),
            wall: wall_second(),
        }
    }

    /// How long ago something was.
    pub fn since(&self, moment: Moment) -> Duration {
        self.boot.since(moment)
    }

    /// When it was on the wall clock, in UTC: `2026-11-20T21:09:39Z`.
    pub fn wall_time(&self, moment: Moment) -> String {
        let ago = i64::try_from(self.since(moment).as_secs()).unwrap_or(i64::MAX);
        crate::host::utc(self.wall.saturating_sub(ago))
    }
}

impl Node {
    /// The node that this process runs on.
    pub fn here(paths: &Paths, started: Moment) -> Node {
        Node {
            context: Context::new(paths, started),
            screen: Screen::for_stdout(),
            now: Now::read(),
        }
    }

    /// Where things are.
    pub fn paths(&self) -> &Paths {
        &self.context.paths
    }

    /// The last operations.
    ///
    /// # Errors
    /// This user may not read them.
    pub fn history(&self) -> Result<History, CommandError> {
        let path = self.paths().events();
        History::read(self.paths())
            .map_err(|e| CommandError::from_io(&path.display().to_string(), &e))
    }

    /// The right to write the state.
    ///
    /// # Errors
    /// Others hold it for long, or the system refuses.
    pub fn lock(&self) -> Result<Locked<'_>, CommandError> {
        let locked = Locked::acquire(self.paths(), WAIT);
        locked.map_err(|error| match error {
            LockError::Busy { ref holder, .. } => {
                CommandError(format!("{error}: {holder} holds it"))
            }
            LockError::Io { path, source } => {
                CommandError::from_io(&format!("cannot lock {}", path.display()), &source)
            }
        })
    }

    /// Replaces the state.
    ///
    /// # Errors
    /// The system refuses, or the lock was lost, so that another call may have written over it.
    pub fn save(
        &self,
        locked: &mut Locked<'_>,
        document: &mut Document,
    ) -> Result<(), CommandError> {
        self.context.save(locked, document)?;
        if locked.is_current() {
            return Ok(());
        }
        let path = self.paths().lock_file();
        Err(CommandError(format!(
            "{} was removed meanwhile, so that another call may have written over the state; try again",
            path.display()
        )))
    }

    /// The source that this node's pools come from.
    ///
    /// # Errors
    /// AZURE_VNET_IPAM_QUERY_URL is not a URL.
    pub fn source(&self, config: &NodeConfig) -> Result<Source, CommandError> {
        let source = Source::of(&config.conf, &self.context.source_overrides, self.paths());
        source.map_err(|e| CommandError(e.to_string()))
    }

    /// Asks the source, without leaving a trace for other calls, and tells how long it took.
    pub fn query_source(&self, source: &Source) -> (Result<Matched, SourceError>, Duration) {
        /// As long as an ADD waits where there are pools.
        const LIMIT: Duration = Duration::from_secs(3);
        let began = boot_now();
        let answer = source.ask(LIMIT, &[], self.paths());
        (answer, boot_now().since(began))
    }
}
