//! Queries the source on behalf of one process, unless another process has done so since this one started.
//!
//! Only one process queries at a time, under a separate lock, so that a slow server does not block the lock on the state. The
//! others wait for that lock, read the stamps in it, and rarely need to query themselves.

use std::fs::File;
use std::time::{Duration, Instant};

use super::stamps::{QueryDecision, RefreshReason, Stamps};
use super::{MatchedListing, Source, SourceError};
use crate::host::{LockOutcome, Paths, boot_now, lock};
use crate::ipam::Moment;

/// The time limit for a query while the state has usable pools.
const LIMIT_WITH_POOLS: Duration = Duration::from_secs(3);
/// The time limit for a query when nothing can be allocated without an answer.
const LIMIT_WITHOUT_POOLS: Duration = Duration::from_secs(10);
/// How long answers must list no address before they are accepted.
const DOUBT_PERIOD: Duration = Duration::from_secs(60);

/// The outcome of a refresh.
#[derive(Debug)]
pub enum RefreshOutcome {
    /// An answer that is not merged yet.
    Fresh(Box<FreshAnswer>),
    /// The answer to another process, which arrived after this process started, is in the state.
    Answered,
    /// The query failed, here or in another process after this one started.
    Failed(SourceError),
    /// The source was not queried, for this reason; [`RefreshReason::Newer`] may still query it.
    Skipped(&'static str),
}

impl RefreshOutcome {
    /// The answer that is not merged yet, if there is one.
    pub fn answer(&self) -> Option<&FreshAnswer> {
        match self {
            RefreshOutcome::Fresh(answer) => Some(answer),
            _ => None,
        }
    }

    /// The reason for another refresh before an ADD is refused, if one may help.
    pub fn retry(&self) -> Option<RefreshReason> {
        match self {
            RefreshOutcome::Answered => Some(RefreshReason::Lost),
            RefreshOutcome::Skipped(_) => Some(RefreshReason::Newer),
            RefreshOutcome::Fresh(_) | RefreshOutcome::Failed(_) => None,
        }
    }
}

/// Queries one source on behalf of one process.
#[derive(Debug)]
pub struct Refresher<'a> {
    /// The paths, for the lock file.
    pub paths: &'a Paths,
    /// The source.
    pub source: &'a Source,
    /// When this process started.
    pub started: Moment,
    /// The current boot.
    pub boot_id: Option<&'a str>,
    /// `ipam.queryInterval`: how old an answer may be.
    pub interval: Option<Duration>,
}

/// An answer, and the lock for queries. No other process queries while it exists.
#[derive(Debug)]
pub struct FreshAnswer {
    /// The answer, matched to the interfaces of this host.
    pub matched: MatchedListing,
    /// How long the query took.
    pub took: Duration,
    started: Moment,
    arrived: Moment,
    stamps: Stamps,
    /// The lock file, to which the stamps are written.
    lock: Option<File>,
}

impl Refresher<'_> {
    /// Queries the source if that is necessary.
    pub fn refresh(&self, reason: RefreshReason) -> RefreshOutcome {
        let limit = match reason {
            RefreshReason::Ordinary | RefreshReason::Newer => LIMIT_WITH_POOLS,
            RefreshReason::First | RefreshReason::Lost => LIMIT_WITHOUT_POOLS,
        };
        let path = self.paths.fetch_lock();
        // The kernel grants the lock in the order of arrival, and all but the first find fresh stamps.
        let file = match lock(&path, limit) {
            Ok(LockOutcome::Held(file)) => file,
            Ok(LockOutcome::TimedOut) => {
                return RefreshOutcome::Skipped(
                    "another call held the lock for queries all the time",
                );
            }
            Err(source) => return RefreshOutcome::Failed(SourceError::Lock { path, source }),
        };
        let stamps = self.stamps(&file);
        match stamps.decide(reason, self.started, boot_now(), self.interval) {
            QueryDecision::Query => self.query(stamps, file, limit),
            QueryDecision::Answered => RefreshOutcome::Answered,
            QueryDecision::Failed => RefreshOutcome::Failed(SourceError::FailedByPeer),
            QueryDecision::Skip(why) => RefreshOutcome::Skipped(why),
        }
    }

    /// The stamps in the lock file, if they are of this boot and source.
    fn stamps(&self, file: &File) -> Stamps {
        let source = self.source.name();
        let found = Stamps::read(file).without_future(boot_now());
        if found.boot_id.as_deref() == self.boot_id && found.source == source {
            return found;
        }
        Stamps {
            boot_id: self.boot_id.map(str::to_owned),
            source,
            ..Stamps::default()
        }
    }

    fn query(&self, mut stamps: Stamps, lock: File, limit: Duration) -> RefreshOutcome {
        let (start, started) = (Instant::now(), boot_now());
        let answer = self.source.query(limit, &stamps.links, self.paths);
        let arrived = boot_now();
        match answer {
            Ok(matched) => RefreshOutcome::Fresh(Box::new(FreshAnswer {
                matched,
                took: start.elapsed(),
                started,
                arrived,
                stamps,
                lock: Some(lock),
            })),
            Err(error) => {
                stamps.failed = Some(arrived.0);
                stamps.write(&lock);
                RefreshOutcome::Failed(error)
            }
        }
    }
}

impl FreshAnswer {
    /// Creates an answer without a query, for the tests' model of a node. Doubtful answers have come since `doubtful_since`.
    #[doc(hidden)]
    pub fn in_memory(
        matched: MatchedListing,
        at: Moment,
        doubtful_since: Option<Moment>,
    ) -> FreshAnswer {
        FreshAnswer {
            matched,
            took: Duration::ZERO,
            started: at,
            arrived: at,
            stamps: Stamps {
                doubtful_since: doubtful_since.map(|at| at.0),
                ..Stamps::default()
            },
            lock: None,
        }
    }

    fn write_stamps(&self) {
        if let Some(lock) = &self.lock {
            self.stamps.write(lock);
        }
    }

    /// When the query started. The answer is not older than this.
    pub fn started(&self) -> Moment {
        self.started
    }

    /// Whether the answer would remove all addresses, or all of one source.
    pub fn is_doubtful(&self) -> bool {
        self.matched.is_doubtful()
    }

    /// Whether doubtful answers have come for long enough to be accepted.
    pub fn is_persistent(&self) -> bool {
        self.stamps
            .doubtful_since
            .is_some_and(|since| self.arrived.since(Moment(since)) >= DOUBT_PERIOD)
    }

    /// Records that the answer is in the saved state.
    pub fn confirm_merged(mut self) {
        self.stamps.answered = Some(self.arrived.0);
        self.stamps.links = self.matched.link_names();
        if !self.is_doubtful() {
            self.stamps.doubtful_since = None;
        }
        self.write_stamps();
    }

    /// Records that the answer is not accepted yet, which counts as a failed query.
    pub fn reject(mut self) {
        self.stamps.failed = Some(self.arrived.0);
        self.stamps.doubtful_since.get_or_insert(self.arrived.0);
        self.write_stamps();
    }
}
