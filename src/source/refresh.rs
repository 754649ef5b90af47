//! Queries the source on behalf of one process, unless another process has done so since this one
//! started.
//!
//! Only one process queries at a time, under a separate lock, so that a slow server does not block
//! the lock on the state. The others wait for that lock and then read in its file when the source
//! was last queried. They rarely need to query themselves.

use std::fs::File;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{MatchedListing, Source, SourceError};
use crate::host::{
    LockOutcome, Paths, ReadOutcome, boot_now, io_reason, lock, overwrite, read_bounded, read_up_to,
};
use crate::ipam::Moment;

/// The pause after a failed query, while the pools are usable.
const PAUSE: Duration = Duration::from_secs(10);
/// The maximum length of the attempts in the lock file, in bytes.
const ATTEMPTS_LIMIT: usize = 4096;
/// The usual length of the attempts in the lock file, in bytes.
const ATTEMPTS_LENGTH: usize = 256;
/// How long answers must list no address before they are accepted.
const DOUBT_PERIOD: Duration = Duration::from_secs(60);

/// Returns the time limit for a query. It is longer without usable pools, because then nothing can
/// be allocated before an answer.
pub const fn time_limit(has_pools: bool) -> Duration {
    Duration::from_secs(if has_pools { 3 } else { 10 })
}

/// Why the pools are refreshed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshReason {
    /// The state has pools; they may be out of date.
    Ordinary,
    /// The state has no pools, or seemed to have none before it was locked.
    First,
    /// The pools cannot satisfy the request, so an older answer is not enough.
    Newer,
    /// The state has no pools although a source answered: its answer is lost.
    Lost,
}

impl RefreshReason {
    /// Whether the state seems to have pools.
    fn expects_pools(self) -> bool {
        matches!(self, RefreshReason::Ordinary | RefreshReason::Newer)
    }
}

/// When a source was last queried, as recorded in the lock file for queries.
///
/// The times mean nothing after a reboot, or for another source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Attempts {
    /// The boot that the times belong to.
    pub boot_id: Option<String>,
    /// The name of the source; empty if none was queried.
    pub source: String,
    /// When the last answer that was merged into the state arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered: Option<Moment>,
    /// When the last query failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Moment>,
    /// Since when every answer would remove all pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubtful_since: Option<Moment>,
    /// The interfaces of the host that the last answer matched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
}

/// The outcome of a refresh.
#[derive(Debug)]
pub enum RefreshOutcome {
    /// An answer that is not merged yet.
    Fresh(Box<FreshAnswer>),
    /// The answer to another process, which arrived after this process started, is in the state.
    Answered,
    /// The query failed, here or in another process after this one started.
    Failed(SourceError),
    /// The source was not queried, for this reason. A refresh for [`RefreshReason::Newer`] may
    /// still query it.
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

    /// The reason for another refresh before an ADD is refused, if one may help after the last
    /// reason.
    pub fn retry(&self, last: RefreshReason) -> Option<RefreshReason> {
        let next = match self {
            RefreshOutcome::Answered => RefreshReason::Lost,
            RefreshOutcome::Skipped(_) => RefreshReason::Newer,
            // The source gets more time if there are no pools after all.
            RefreshOutcome::Failed(_) if last.expects_pools() => RefreshReason::First,
            RefreshOutcome::Fresh(_) | RefreshOutcome::Failed(_) => return None,
        };
        (next != last).then_some(next)
    }
}

/// Queries one source on behalf of one process.
#[derive(Debug)]
pub struct Refresher<'a> {
    /// The paths, for the lock file.
    pub paths: &'a Paths,
    /// The source.
    pub source: &'a Source,
    /// When this process started. What happened at the source since then counts.
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
    /// When the query started. The answer is not older than this.
    pub started: Moment,
    arrived: Moment,
    attempts: Attempts,
    /// The lock file, to which the attempts are written.
    lock: Option<File>,
}

impl Refresher<'_> {
    /// Queries the source if that is necessary.
    pub fn refresh(&self, reason: RefreshReason) -> RefreshOutcome {
        let limit = time_limit(reason.expects_pools());
        let path = self.paths.fetch_lock();
        // The kernel grants the lock in the order of arrival. Every process but the first one finds
        // recent attempts in the file.
        let file = match lock(&path, limit) {
            Ok(LockOutcome::Held(file)) => file,
            Ok(LockOutcome::TimedOut) => {
                return RefreshOutcome::Skipped(
                    "another call held the lock for queries all the time",
                );
            }
            Err(e) => return RefreshOutcome::Failed(SourceError::File(path, io_reason(&e))),
        };
        let attempts = self.attempts(&file);
        match self.decide(&attempts, reason, boot_now()) {
            Some(outcome) => outcome,
            None => self.query(attempts, file, limit),
        }
    }

    /// Reads the attempts in the lock file. Those from another boot or source count as none.
    fn attempts(&self, file: &File) -> Attempts {
        let text = read_up_to(file, ATTEMPTS_LENGTH, ATTEMPTS_LIMIT).unwrap_or_default();
        let found = Attempts::parse(&text, self.boot_id).without_future(boot_now());
        let source = self.source.name();
        if found.source == source {
            return found;
        }
        Attempts {
            boot_id: self.boot_id.map(str::to_owned),
            source,
            ..Attempts::default()
        }
    }

    /// Decides whether a refresh ends without a query. Pure.
    fn decide(
        &self,
        attempts: &Attempts,
        reason: RefreshReason,
        now: Moment,
    ) -> Option<RefreshOutcome> {
        let has_happened_since_start = |at: Option<Moment>| at > Some(self.started);
        if has_happened_since_start(attempts.answered) && reason != RefreshReason::Lost {
            return Some(RefreshOutcome::Answered);
        }
        if has_happened_since_start(attempts.failed) {
            return Some(RefreshOutcome::Failed(SourceError::FailedByPeer));
        }
        if reason != RefreshReason::Ordinary {
            return None;
        }
        if let Some(answered) = attempts.answered
            && let Some(interval) = self.interval
            && now.since(answered) <= interval
        {
            return Some(RefreshOutcome::Skipped(
                "the last answer is younger than queryInterval",
            ));
        }
        if let Some(failed) = attempts.failed
            && attempts.failed > attempts.answered
            && now.since(failed) < PAUSE
        {
            return Some(RefreshOutcome::Skipped(
                "the last attempt failed a moment ago",
            ));
        }
        None
    }

    /// Queries the source, and records a failure in the lock file.
    fn query(&self, mut attempts: Attempts, lock: File, limit: Duration) -> RefreshOutcome {
        let start = Instant::now();
        let started = boot_now();
        let answer = self
            .source
            .query_with_links(&attempts.links, limit, self.paths);
        let arrived = boot_now();
        match answer {
            Ok(matched) => RefreshOutcome::Fresh(Box::new(FreshAnswer {
                matched,
                took: start.elapsed(),
                started,
                arrived,
                attempts,
                lock: Some(lock),
            })),
            Err(error) => {
                attempts.failed = Some(arrived);
                attempts.write(&lock);
                RefreshOutcome::Failed(error)
            }
        }
    }
}

impl FreshAnswer {
    /// Creates an answer without a query, for the tests' model of a node. Doubtful answers have
    /// come since `doubtful_since`.
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
            attempts: Attempts {
                doubtful_since,
                ..Attempts::default()
            },
            lock: None,
        }
    }

    fn write_attempts(&self) {
        if let Some(lock) = &self.lock {
            self.attempts.write(lock);
        }
    }

    /// Whether doubtful answers have come for long enough to be accepted.
    pub fn is_persistent(&self) -> bool {
        self.attempts
            .doubtful_since
            .is_some_and(|since| self.arrived.since(since) >= DOUBT_PERIOD)
    }

    /// Records that the state agrees with the answer.
    pub fn confirm_merged(mut self) {
        self.attempts.answered = Some(self.arrived);
        self.attempts.links = self.matched.link_names();
        if !self.matched.is_doubtful() {
            self.attempts.doubtful_since = None;
        }
        self.write_attempts();
    }

    /// Records that the answer is not accepted yet, which counts as a failed query.
    pub fn reject(mut self) {
        self.attempts.failed = Some(self.arrived);
        self.attempts.doubtful_since.get_or_insert(self.arrived);
        self.write_attempts();
    }
}

impl Attempts {
    /// Drops times in the future, which no process of this boot can have written.
    fn without_future(mut self, now: Moment) -> Attempts {
        let is_future = |at: &mut Moment| *at > now;
        self.answered.take_if(is_future);
        self.failed.take_if(is_future);
        self.doubtful_since.take_if(is_future);
        self
    }

    /// Parses the first JSON value of a lock file. The end of a longer text may follow it, as the
    /// file is overwritten in place. Unreadable attempts, and those from another boot, count as
    /// none.
    fn parse(text: &[u8], boot_id: Option<&str>) -> Attempts {
        let mut json = serde_json::Deserializer::from_slice(text);
        match Attempts::deserialize(&mut json) {
            Ok(attempts) if attempts.boot_id.as_deref() == boot_id => attempts,
            _ => Attempts::default(),
        }
    }

    /// Writes the attempts to the lock file. A failure only makes the next process query again.
    fn write(&self, file: &File) {
        if let Ok(text) = serde_json::to_vec(self) {
            let _ = overwrite(file, &text);
        }
    }
}

/// Reads when a source was last queried, for reports. It takes no lock. An unreadable file counts
/// as no query.
pub fn last_attempts(paths: &Paths, boot_id: Option<&str>) -> Attempts {
    match read_bounded(&paths.fetch_lock(), ATTEMPTS_LIMIT) {
        Ok(ReadOutcome::Read(text)) => Attempts::parse(&text, boot_id),
        _ => Attempts::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NAME;

    const SECOND: u64 = 1_000_000_000;
    const STARTED: Moment = Moment(1000 * SECOND);
    const NOW: Moment = Moment(1001 * SECOND);
    const REASONS: [RefreshReason; 4] = [
        RefreshReason::Ordinary,
        RefreshReason::First,
        RefreshReason::Newer,
        RefreshReason::Lost,
    ];

    fn attempts(answered: Option<u64>, failed: Option<u64>) -> Attempts {
        Attempts {
            answered: answered.map(|seconds| Moment(seconds * SECOND)),
            failed: failed.map(|seconds| Moment(seconds * SECOND)),
            ..Attempts::default()
        }
    }

    /// What a refresh does at `NOW`, for each of `REASONS`.
    fn decide(attempts: &Attempts, interval: Option<u64>) -> [&'static str; 4] {
        let refresher = Refresher {
            paths: &Paths::new(None, NAME),
            source: &Source::Null,
            started: STARTED,
            boot_id: None,
            interval: interval.map(Duration::from_secs),
        };
        REASONS.map(|reason| match refresher.decide(attempts, reason, NOW) {
            None => "query",
            Some(RefreshOutcome::Answered) => "answered",
            Some(RefreshOutcome::Failed(_)) => "failed",
            Some(RefreshOutcome::Skipped(_)) => "skip",
            Some(RefreshOutcome::Fresh(_)) => "fresh",
        })
    }

    #[test]
    fn source_is_queried_unless_an_attempt_is_recent_enough() {
        let always = ["query"; 4];
        let skipped = ["skip", "query", "query", "query"];
        let after_start = Some(Moment(STARTED.0 + 1));
        let just_answered = Attempts {
            answered: after_start,
            ..Attempts::default()
        };
        // With the reason `Lost` its answer is not in the state.
        let fresh = ["answered", "answered", "answered", "query"];
        assert_eq!(decide(&just_answered, None), fresh);
        let just_failed = Attempts {
            failed: after_start,
            ..Attempts::default()
        };
        assert_eq!(decide(&just_failed, None), ["failed"; 4]);
        for (answered, failed, interval, wanted) in [
            (Some(1000), None, None, always),
            (Some(900), Some(992), None, skipped),
            // Ten seconds are over.
            (Some(900), Some(991), None, always),
            // An answer came since.
            (Some(993), Some(992), None, always),
            (Some(991), None, Some(10), skipped),
            (Some(990), None, Some(10), always),
            (None, None, Some(100), always),
        ] {
            let found = decide(&attempts(answered, failed), interval);
            assert_eq!(found, wanted, "{answered:?} {failed:?} {interval:?}");
        }
    }

    #[test]
    fn end_of_a_longer_text_is_ignored() {
        let whole = serde_json::to_string(&attempts(Some(1), Some(2))).unwrap();
        for text in [whole.clone(), whole.clone() + "gth0\"]}"] {
            assert_eq!(
                Attempts::parse(text.as_bytes(), None),
                attempts(Some(1), Some(2))
            );
        }
        let cut = whole.strip_suffix('}').unwrap();
        assert_eq!(Attempts::parse(cut.as_bytes(), None), Attempts::default());
    }

    #[test]
    fn members_of_former_versions_are_ignored() {
        let json = r#"{"bootId":null,"source":"","answered":1000000000,"digest":7}"#;
        assert_eq!(
            Attempts::parse(json.as_bytes(), None),
            attempts(Some(1), None)
        );
    }

    #[test]
    fn attempts_of_another_boot_are_ignored() {
        let root = std::env::temp_dir().join(format!("attempts-{}", std::process::id()));
        let paths = Paths::new(Some(root.clone()), NAME);
        assert_eq!(last_attempts(&paths, Some("b")), Attempts::default());
        std::fs::create_dir_all(paths.lock_folder()).unwrap();
        let file = File::create(paths.fetch_lock()).unwrap();
        let written = Attempts {
            boot_id: Some("b".into()),
            source: "s".into(),
            ..attempts(Some(1), None)
        };
        written.write(&file);
        assert_eq!(last_attempts(&paths, Some("b")), written);
        for other in [Some("c"), None] {
            assert_eq!(last_attempts(&paths, other), Attempts::default());
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}
