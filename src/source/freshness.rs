//! When a source is asked (design: an answer that arrived after this process started is fresh enough, whoever asked).
//!
//! One process at a time asks, under a lock of its own, so that nobody who holds the state waits for a server. Whoever finds
//! the lock taken waits until the asking is over, looks at the stamps that it left in the lock file, and mostly has no need to
//! ask again. Stamps are of the boot clock, and mean nothing after a reboot or to a call with another source.

use std::fs::File;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Matched, Source, SourceError};
use crate::host::{
    LockOutcome, Paths, ReadOutcome, boot_now, lock, overwrite, read_bounded, read_up_to,
};
use crate::ipam::Moment;

/// All the time a source has when the state has pools to go on with.
const LIMIT_WITH_POOLS: Duration = Duration::from_secs(3);
/// All the time a source has when nothing can be given without it.
const LIMIT_WITHOUT: Duration = Duration::from_secs(10);
/// After a failed attempt none is made for so long, while the pools can serve.
const PAUSE: Duration = Duration::from_secs(10);
/// An answer that would take everything away must stay the same for so long before it is believed.
const DOUBT: Duration = Duration::from_secs(60);
/// The stamps take no more than this.
const STAMPS_LIMIT: usize = 4096;
/// Their usual length.
const STAMPS_LENGTH: usize = 256;

/// Why a source is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefreshReason {
    /// The state has pools; they may be out of date.
    Ordinary,
    /// The state had no pools when it was looked at.
    First,
    /// The pools cannot serve: an older answer is no reason to say so.
    Newer,
    /// The state has no pools, though a source answered: what it said is lost.
    Lost,
}

/// What became of asking.
#[derive(Debug)]
pub enum RefreshOutcome {
    /// An answer, to be merged.
    Fresh(Box<FreshAnswer>),
    /// Somebody else's answer of after the start of this process is in the state.
    Answered,
    /// The source did not answer, or another call's attempt failed after this process started.
    Failed(SourceError),
    /// Nobody was asked; a [`RefreshReason::Newer`] may still be.
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

/// What is known of the last attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Stamps {
    boot_id: Option<String>,
    source: String,
    /// When the last usable answer had arrived and was merged; nanoseconds of the boot clock, as the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    answered: Option<u64>,
    /// When the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<u64>,
    /// Since when all answers would take everything away.
    #[serde(skip_serializing_if = "Option::is_none")]
    doubtful_since: Option<u64>,
    /// The interfaces of the host that the last answer was about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<String>,
}

/// When a source was last asked, as far as that was in this boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Which source it was; empty when none was asked.
    pub source: String,
    /// When the last usable answer had arrived that was merged into the state.
    pub answered: Option<Moment>,
    /// When the last attempt failed.
    pub failed: Option<Moment>,
}

/// Asks one source on behalf of one process.
#[derive(Debug)]
pub struct Refresher<'a> {
    /// Where the lock is.
    pub paths: &'a Paths,
    /// Whom to ask.
    pub source: &'a Source,
    /// When this process started.
    pub started: Moment,
    /// The boot that moments belong to.
    pub boot_id: Option<&'a str>,
    /// How old an answer may be, when the configuration sets it.
    pub interval: Option<Duration>,
}

/// An answer, with the right to stamp it. While it lives nobody else asks.
#[derive(Debug)]
pub struct FreshAnswer {
    /// The answer in terms of this host.
    pub matched: Matched,
    /// How long it took.
    pub took: Duration,
    began: Moment,
    arrived: Moment,
    stamps: Stamps,
    /// Where the stamps are written; held until then.
    lock: Option<File>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Ask,
    Answered,
    Failed,
    Skip(&'static str),
}

impl Stamps {
    /// Whether the source is to be asked now. Pure.
    fn due(
        &self,
        need: RefreshReason,
        started: Moment,
        now: Moment,
        interval: Option<Duration>,
    ) -> Due {
        let after_start = |at: Option<u64>| at.is_some_and(|at| at > started.0);
        let age = |at: Option<u64>| at.map(|at| now.since(Moment(at)));
        if after_start(self.answered) && need != RefreshReason::Lost {
            return Due::Answered;
        }
        if after_start(self.failed) {
            return Due::Failed;
        }
        if need != RefreshReason::Ordinary {
            return Due::Ask;
        }
        if age(self.answered).is_some_and(|age| interval.is_some_and(|most| age <= most)) {
            return Due::Skip("the last answer is younger than queryInterval");
        }
        if self.failed > self.answered && age(self.failed).is_some_and(|age| age < PAUSE) {
            return Due::Skip("the last attempt failed a moment ago");
        }
        Due::Ask
    }

    /// Without what lies ahead, which no process of this boot can have written.
    fn before(mut self, now: Moment) -> Stamps {
        for at in [
            &mut self.answered,
            &mut self.failed,
            &mut self.doubtful_since,
        ] {
            at.take_if(|at| *at > now.0);
        }
        self
    }

    fn read(file: &File) -> Stamps {
        // What cannot be read says nothing about past attempts.
        let text = read_up_to(file, STAMPS_LENGTH, STAMPS_LIMIT).unwrap_or_default();
        Stamps::parse(&text)
    }

    /// The file is overwritten in place, so that the end of a longer text may still follow: only the first value counts.
    fn parse(text: &[u8]) -> Stamps {
        let mut json = serde_json::Deserializer::from_slice(text);
        Stamps::deserialize(&mut json).unwrap_or_default()
    }

    /// Writes them; a failure costs the next process an attempt and nothing else.
    fn write(&self, file: &File) {
        if let Ok(text) = serde_json::to_vec(self) {
            let _ = overwrite(file, &text);
        }
    }
}

/// Reads when a source was last asked, for people: takes no lock, and what cannot be read says nothing.
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
    }
}

impl Refresher<'_> {
    /// Asks the source unless there is no need to.
    pub fn ask(&self, need: RefreshReason) -> RefreshOutcome {
        let limit = match need {
            RefreshReason::Ordinary | RefreshReason::Newer => LIMIT_WITH_POOLS,
            RefreshReason::First | RefreshReason::Lost => LIMIT_WITHOUT,
        };
        let path = self.paths.fetch_lock();
        // The kernel serves those who wait in the order they came, and all but the first find fresh stamps.
        let file = match lock(&path, limit) {
            Ok(LockOutcome::Held(file)) => file,
            Ok(LockOutcome::TimedOut) => {
                return RefreshOutcome::Skipped("another call has been asking all the time");
            }
            Err(source) => return RefreshOutcome::Failed(SourceError::Lock { path, source }),
        };
        let stamps = self.stamps(&file);
        match self.due(&stamps, need) {
            Due::Ask => self.fetch(stamps, file, limit),
            Due::Answered => RefreshOutcome::Answered,
            Due::Failed => RefreshOutcome::Failed(SourceError::FailedByPeer),
            Due::Skip(why) => RefreshOutcome::Skipped(why),
        }
    }

    fn due(&self, stamps: &Stamps, need: RefreshReason) -> Due {
        stamps.due(need, self.started, boot_now(), self.interval)
    }

    /// The stamps in the lock file, if they are of this boot and source.
    fn stamps(&self, file: &File) -> Stamps {
        let source = self.source.name();
        let found = Stamps::read(file).before(boot_now());
        if found.boot_id.as_deref() == self.boot_id && found.source == source {
            return found;
        }
        Stamps {
            boot_id: self.boot_id.map(str::to_owned),
            source,
            ..Stamps::default()
        }
    }

    fn fetch(&self, mut stamps: Stamps, lock: File, limit: Duration) -> RefreshOutcome {
        let (start, began) = (Instant::now(), boot_now());
        let answer = self.source.ask(limit, &stamps.links, self.paths);
        let arrived = boot_now();
        match answer {
            Ok(matched) => RefreshOutcome::Fresh(Box::new(FreshAnswer {
                matched,
                took: start.elapsed(),
                began,
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
    /// An answer that no server gave, at this moment, for the tests' model of a node; answers like it have come since
    /// `doubtful_since`, if they are doubtful.
    #[doc(hidden)]
    pub fn in_memory(matched: Matched, at: Moment, doubtful_since: Option<Moment>) -> FreshAnswer {
        FreshAnswer {
            matched,
            took: Duration::ZERO,
            began: at,
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

    /// When the source began to be asked: what it says is of no earlier time.
    pub fn began(&self) -> Moment {
        self.began
    }

    /// Whether the answer would take everything away, or all of one source.
    pub fn is_doubtful(&self) -> bool {
        self.matched.is_doubtful()
    }

    /// Whether doubtful answers have come for long enough to be believed.
    pub fn is_persistent(&self) -> bool {
        self.stamps
            .doubtful_since
            .is_some_and(|since| self.arrived.since(Moment(since)) >= DOUBT)
    }

    /// The answer is in the state, and saved.
    pub fn merged(mut self) {
        self.stamps.answered = Some(self.arrived.0);
        self.stamps.links = self.matched.links();
        if !self.is_doubtful() {
            self.stamps.doubtful_since = None;
        }
        self.write_stamps();
    }

    /// The answer is not believed yet; it counts as a failed attempt.
    pub fn reject(mut self) {
        self.stamps.failed = Some(self.arrived.0);
        self.stamps.doubtful_since.get_or_insert(self.arrived.0);
        self.write_stamps();
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

    fn due(stamps: &Stamps, need: RefreshReason) -> Due {
        stamps.due(need, STARTED, NOW, None)
    }

    #[test]
    fn an_answer_of_after_the_start_is_fresh_enough() {
        let fresh = Stamps {
            answered: Some(STARTED.0 + 1),
            ..Stamps::default()
        };
        for need in [
            RefreshReason::Ordinary,
            RefreshReason::First,
            RefreshReason::Newer,
        ] {
            assert_eq!(due(&fresh, need), Due::Answered);
        }
        assert_eq!(
            due(&fresh, RefreshReason::Lost),
            Due::Ask,
            "what it said is gone"
        );
        assert_eq!(
            due(&stamps(Some(1000), None), RefreshReason::Ordinary),
            Due::Ask
        );
    }

    #[test]
    fn a_failure_of_after_the_start_counts_for_everybody() {
        let failed = Stamps {
            failed: Some(STARTED.0 + 1),
            ..Stamps::default()
        };
        for need in [
            RefreshReason::Ordinary,
            RefreshReason::First,
            RefreshReason::Newer,
            RefreshReason::Lost,
        ] {
            assert_eq!(due(&failed, need), Due::Failed);
        }
    }

    #[test]
    fn after_a_failure_there_is_a_pause_while_the_pools_can_serve() {
        assert!(matches!(
            due(&stamps(Some(900), Some(992)), RefreshReason::Ordinary),
            Due::Skip(_)
        ));
        assert_eq!(
            due(&stamps(Some(900), Some(991)), RefreshReason::Ordinary),
            Due::Ask,
            "ten seconds are over"
        );
        assert_eq!(
            due(&stamps(Some(993), Some(992)), RefreshReason::Ordinary),
            Due::Ask,
            "an answer came since"
        );
        for need in [
            RefreshReason::First,
            RefreshReason::Newer,
            RefreshReason::Lost,
        ] {
            assert_eq!(due(&stamps(Some(900), Some(992)), need), Due::Ask);
        }
    }

    #[test]
    fn an_interval_lets_answers_grow_old() {
        let with = |answered, seconds| {
            let interval = Some(Duration::from_secs(seconds));
            stamps(Some(answered), None).due(RefreshReason::Ordinary, STARTED, NOW, interval)
        };
        assert!(matches!(with(991, 10), Due::Skip(_)));
        assert_eq!(with(990, 10), Due::Ask);
        let interval = Some(Duration::from_secs(100));
        assert_eq!(
            stamps(Some(991), None).due(RefreshReason::Newer, STARTED, NOW, interval),
            Due::Ask
        );
        assert_eq!(
            stamps(None, None).due(RefreshReason::Ordinary, STARTED, NOW, interval),
            Due::Ask
        );
    }

    #[test]
    fn stamps_survive_the_file_and_junk_says_nothing() {
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
    fn the_end_of_a_longer_text_does_not_hide_the_stamps() {
        let whole = serde_json::to_string(&stamps(Some(1), Some(2))).unwrap();
        for text in [whole.clone(), whole.clone() + "gth0\"]}"] {
            assert_eq!(Stamps::parse(text.as_bytes()), stamps(Some(1), Some(2)));
        }
        let cut = whole.strip_suffix('}').unwrap();
        assert_eq!(Stamps::parse(cut.as_bytes()), Stamps::default());
    }

    #[test]
    fn attempts_of_another_boot_are_none() {
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
        };
        assert_eq!(last_attempts(&paths, Some("b")), attempts);
        for other in [Some("c"), None] {
            assert_eq!(last_attempts(&paths, other), Attempts::default());
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}
