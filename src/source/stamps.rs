//! When a source was last queried, as recorded in the lock file for queries, and whether to query it now.
//!
//! Stamps are times of the boot clock. They mean nothing after a reboot or for another source.

use std::fs::File;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::host::{Paths, ReadOutcome, overwrite, read_bounded, read_up_to};
use crate::ipam::Moment;

/// The pause after a failed query, while the pools are usable.
const PAUSE: Duration = Duration::from_secs(10);
/// The maximum length of the stamps, in bytes.
const STAMPS_LIMIT: usize = 4096;
/// Their usual length, in bytes.
const STAMPS_LENGTH: usize = 256;

/// Why the pools are refreshed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshReason {
    /// The state has pools; they may be out of date.
    Ordinary,
    /// The state had no pools when it was looked at.
    First,
    /// The pools cannot satisfy the request, so an older answer is not enough.
    Newer,
    /// The state has no pools although a source answered: its answer is lost.
    Lost,
}

/// The last queries, as stored in the lock file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Stamps {
    /// The boot that the times belong to.
    pub boot_id: Option<String>,
    /// The name of the source.
    pub source: String,
    /// When the last answer that was merged arrived, in nanoseconds of the boot clock like the other times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered: Option<u64>,
    /// When the last query failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<u64>,
    /// Since when every answer would remove all pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubtful_since: Option<u64>,
    /// The interfaces of the host that the last answer matched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
}

/// When a source was last queried since the node booted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// The name of the source; empty if none was queried.
    pub source: String,
    /// When the last answer that was merged into the state arrived.
    pub answered: Option<Moment>,
    /// When the last query failed.
    pub failed: Option<Moment>,
    /// Since when every answer would remove all pools.
    pub doubtful_since: Option<Moment>,
}

/// Whether to query a source now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryDecision {
    /// Query it.
    Query,
    /// An answer that arrived after this process started is in the state.
    Answered,
    /// A query failed after this process started.
    Failed,
    /// Do not query it, for this reason.
    Skip(&'static str),
}

impl Stamps {
    /// Decides whether to query the source now. Pure.
    pub fn decide(
        &self,
        reason: RefreshReason,
        started: Moment,
        now: Moment,
        interval: Option<Duration>,
    ) -> QueryDecision {
        let after_start = |at: Option<u64>| at.is_some_and(|at| at > started.0);
        let age = |at: Option<u64>| at.map(|at| now.since(Moment(at)));
        if after_start(self.answered) && reason != RefreshReason::Lost {
            return QueryDecision::Answered;
        }
        if after_start(self.failed) {
            return QueryDecision::Failed;
        }
        if reason != RefreshReason::Ordinary {
            return QueryDecision::Query;
        }
        if age(self.answered).is_some_and(|age| interval.is_some_and(|interval| age <= interval)) {
            return QueryDecision::Skip("the last answer is younger than queryInterval");
        }
        if self.failed > self.answered && age(self.failed).is_some_and(|age| age < PAUSE) {
            return QueryDecision::Skip("the last attempt failed a moment ago");
        }
        QueryDecision::Query
    }

    /// Drops times in the future, which no process of this boot can have written.
    pub fn without_future(mut self, now: Moment) -> Stamps {
        for at in [
            &mut self.answered,
            &mut self.failed,
            &mut self.doubtful_since,
        ] {
            at.take_if(|at| *at > now.0);
        }
        self
    }

    /// Reads the stamps from the lock file. Unreadable stamps count as none.
    pub fn read(file: &File) -> Stamps {
        let text = read_up_to(file, STAMPS_LENGTH, STAMPS_LIMIT).unwrap_or_default();
        Stamps::parse(&text)
    }

    /// Parses the first JSON value of a file. The file is overwritten in place, so the end of a longer text may follow it.
    fn parse(text: &[u8]) -> Stamps {
        let mut json = serde_json::Deserializer::from_slice(text);
        Stamps::deserialize(&mut json).unwrap_or_default()
    }

    /// Writes the stamps to the lock file. A failure only makes the next process query again.
    pub fn write(&self, file: &File) {
        if let Ok(text) = serde_json::to_vec(self) {
            let _ = overwrite(file, &text);
        }
    }
}

/// Reads when a source was last queried, for reports. Takes no lock; an unreadable file counts as no query.
pub fn last_attempts(paths: &Paths, boot_id: Option<&str>) -> Attempts {
    let text = match read_bounded(&paths.fetch_lock(), STAMPS_LIMIT) {
        Ok(ReadOutcome::Read(text)) => text,
        _ => Vec::new(),
    };
    let stamps = Stamps::parse(&text);
    if stamps.boot_id.as_deref() != boot_id {
        return Attempts::default();
    }
    Attempts {
        source: stamps.source,
        answered: stamps.answered.map(Moment),
        failed: stamps.failed.map(Moment),
        doubtful_since: stamps.doubtful_since.map(Moment),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const STARTED: Moment = Moment(1000 * SECOND);
    const NOW: Moment = Moment(1001 * SECOND);

    fn stamps(answered: Option<u64>, failed: Option<u64>) -> Stamps {
        let at = |s: Option<u64>| s.map(|s| s * SECOND);
        Stamps {
            answered: at(answered),
            failed: at(failed),
            ..Stamps::default()
        }
    }

    fn decide(stamps: &Stamps, reason: RefreshReason) -> QueryDecision {
        stamps.decide(reason, STARTED, NOW, None)
    }

    #[test]
    fn answer_after_process_start_is_fresh_enough() {
        let fresh = Stamps {
            answered: Some(STARTED.0 + 1),
            ..Stamps::default()
        };
        for reason in [
            RefreshReason::Ordinary,
            RefreshReason::First,
            RefreshReason::Newer,
        ] {
            assert_eq!(decide(&fresh, reason), QueryDecision::Answered);
        }
        assert_eq!(
            decide(&fresh, RefreshReason::Lost),
            QueryDecision::Query,
            "its answer is lost"
        );
        assert_eq!(
            decide(&stamps(Some(1000), None), RefreshReason::Ordinary),
            QueryDecision::Query
        );
    }

    #[test]
    fn failure_after_process_start_applies_to_every_reason() {
        let failed = Stamps {
            failed: Some(STARTED.0 + 1),
            ..Stamps::default()
        };
        for reason in [
            RefreshReason::Ordinary,
            RefreshReason::First,
            RefreshReason::Newer,
            RefreshReason::Lost,
        ] {
            assert_eq!(decide(&failed, reason), QueryDecision::Failed);
        }
    }

    #[test]
    fn failure_pauses_ordinary_queries() {
        assert!(matches!(
            decide(&stamps(Some(900), Some(992)), RefreshReason::Ordinary),
            QueryDecision::Skip(_)
        ));
        assert_eq!(
            decide(&stamps(Some(900), Some(991)), RefreshReason::Ordinary),
            QueryDecision::Query,
            "ten seconds are over"
        );
        assert_eq!(
            decide(&stamps(Some(993), Some(992)), RefreshReason::Ordinary),
            QueryDecision::Query,
            "an answer came since"
        );
        for reason in [
            RefreshReason::First,
            RefreshReason::Newer,
            RefreshReason::Lost,
        ] {
            assert_eq!(
                decide(&stamps(Some(900), Some(992)), reason),
                QueryDecision::Query
            );
        }
    }

    #[test]
    fn query_interval_delays_ordinary_queries() {
        let with = |answered, seconds| {
            let interval = Some(Duration::from_secs(seconds));
            stamps(Some(answered), None).decide(RefreshReason::Ordinary, STARTED, NOW, interval)
        };
        assert!(matches!(with(991, 10), QueryDecision::Skip(_)));
        assert_eq!(with(990, 10), QueryDecision::Query);
        let interval = Some(Duration::from_secs(100));
        assert_eq!(
            stamps(Some(991), None).decide(RefreshReason::Newer, STARTED, NOW, interval),
            QueryDecision::Query
        );
        assert_eq!(
            stamps(None, None).decide(RefreshReason::Ordinary, STARTED, NOW, interval),
            QueryDecision::Query
        );
    }

    #[test]
    fn stamps_are_written_and_read_and_junk_counts_as_none() {
        let path = std::env::temp_dir().join(format!("stamps-{}", std::process::id()));
        std::fs::write(&path, "x".repeat(9000)).unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        assert_eq!(Stamps::read(&open()), Stamps::default());
        let written = Stamps {
            boot_id: Some("b".into()),
            source: "s".into(),
            ..stamps(Some(1), Some(2))
        };
        written.write(&open());
        assert_eq!(Stamps::read(&open()), written);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn end_of_a_longer_text_is_ignored() {
        let whole = serde_json::to_string(&stamps(Some(1), Some(2))).unwrap();
        for text in [whole.clone(), whole.clone() + "gth0\"]}"] {
            assert_eq!(Stamps::parse(text.as_bytes()), stamps(Some(1), Some(2)));
        }
        let cut = whole.strip_suffix('}').unwrap();
        assert_eq!(Stamps::parse(cut.as_bytes()), Stamps::default());
    }

    #[test]
    fn attempts_of_another_boot_are_ignored() {
        let root = std::env::temp_dir().join(format!("attempts-{}", std::process::id()));
        let paths = Paths::new(Some(root.clone()), "azure-vnet-ipam");
        assert_eq!(last_attempts(&paths, Some("b")), Attempts::default());
        std::fs::create_dir_all(paths.lock_folder()).unwrap();
        let file = File::create(paths.fetch_lock()).unwrap();
        let written = Stamps {
            boot_id: Some("b".into()),
            source: "s".into(),
            ..stamps(Some(1), None)
        };
        written.write(&file);
        let attempts = Attempts {
            source: "s".into(),
            answered: Some(Moment(SECOND)),
            failed: None,
            doubtful_since: None,
        };
        assert_eq!(last_attempts(&paths, Some("b")), attempts);
        for other in [Some("c"), None] {
            assert_eq!(last_attempts(&paths, other), Attempts::default());
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}
