//! The turn to query the source. One call at a time has it. A slow source is thus queried once for all waiting calls, and no older answer
//! follows a newer one. The file that is locked for it records earlier attempts.

use std::fmt;
use std::fs::File;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{MatchedListing, SourceError};
use crate::host::{
    LockOutcome, Paths, ReadOutcome, boot_now, io_reason, lock, overwrite, read_bounded, read_up_to,
};
use crate::ipam::Moment;

/// The maximum length of the attempts in the file, in bytes.
const ATTEMPTS_LIMIT: usize = 4096;
/// The usual length of the attempts in the file, in bytes.
const ATTEMPTS_LENGTH: usize = 256;
/// How long all answers must be without addresses before one is accepted.
const DOUBT_PERIOD: Duration = Duration::from_secs(60);

/// Returns the time limit for a query, and for the wait for the turn. Without pools it is longer, because nothing can be allocated before
/// an answer.
pub const fn time_limit(has_pools: bool) -> Duration {
    Duration::from_secs(if has_pools { 3 } else { 10 })
}

/// The recorded outcomes of earlier queries of a source. They are valid only for this boot and this source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Attempts {
    /// The ID of the boot that the moments are from.
    pub boot_id: Option<String>,
    /// The name of the source; empty if none was queried.
    pub source: String,
    /// When the last query failed, or its answer was not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Moment>,
    /// When the first of the latest answers came that would each remove all pools; `None` if the last answer would not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubtful_since: Option<Moment>,
    /// The interfaces of the host that the last answer matched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
}

/// An answer that is not in the state yet.
#[derive(Clone, Debug)]
pub struct FreshAnswer {
    /// What it lists, matched to the interfaces of this host.
    pub matched: MatchedListing,
    /// When the query began. The answer is not older than this.
    pub began: Moment,
    /// When the answer arrived.
    pub arrived: Moment,
    /// When the first of the latest answers came that would each remove all pools; `None` if this one would not.
    pub doubtful_since: Option<Moment>,
}

impl FreshAnswer {
    /// Creates an answer. `doubtful_since` is from the recorded attempts.
    pub fn new(
        matched: MatchedListing,
        began: Moment,
        arrived: Moment,
        doubtful_since: Option<Moment>,
    ) -> FreshAnswer {
        let is_doubtful = matched.is_doubtful();
        FreshAnswer {
            matched,
            began,
            arrived,
            doubtful_since: is_doubtful.then(|| doubtful_since.unwrap_or(arrived)),
        }
    }

    /// Returns whether the answer is rejected for now: it would remove all pools, and the first such answer is too recent (difference D6).
    pub fn is_implausible(&self) -> bool {
        self.doubtful_since
            .is_some_and(|since| self.arrived.since(since) < DOUBT_PERIOD)
    }
}

/// The turn to query the source. No other ADD queries it while this value exists.
#[derive(Debug)]
pub struct Turn {
    attempts: Attempts,
    /// The attempts as they are in the file.
    written: Attempts,
    file: Box<dyn AttemptsFile>,
}

/// The file that stores the attempts.
pub trait AttemptsFile: fmt::Debug {
    /// Replaces the attempts. Errors are ignored: after one, the next call only queries again.
    fn write(&self, attempts: &Attempts);
}

impl AttemptsFile for File {
    fn write(&self, attempts: &Attempts) {
        if let Ok(text) = serde_json::to_vec(attempts) {
            let _ = overwrite(self, &text);
        }
    }
}

/// The attempts of a trial, which are not stored.
#[derive(Debug)]
struct NoFile;

impl AttemptsFile for NoFile {
    fn write(&self, _: &Attempts) {}
}

impl Turn {
    /// Creates the turn of a trial, which writes nothing.
    pub fn of_trial(found: Attempts, source: &str, boot_id: Option<&str>, now: Moment) -> Turn {
        Turn::new(found, source, boot_id, now, Box::new(NoFile))
    }

    /// Creates the turn from the attempts in the file. Attempts of another boot or source are ignored. So are moments in the future, which
    /// no call of this boot can have written.
    pub fn new(
        found: Attempts,
        source: &str,
        boot_id: Option<&str>,
        now: Moment,
        file: Box<dyn AttemptsFile>,
    ) -> Turn {
        let written = found.clone();
        let is_valid = found.source == source && found.boot_id.as_deref() == boot_id;
        let attempts = if is_valid {
            found.without_future(now)
        } else {
            Attempts {
                boot_id: boot_id.map(str::to_owned),
                source: source.to_owned(),
                ..Attempts::default()
            }
        };
        Turn {
            attempts,
            written,
            file,
        }
    }

    /// Waits for the turn. Calls get it in the order of their arrival. `None` if other calls had it until the timeout.
    ///
    /// # Errors
    /// The file cannot be created or locked.
    pub fn wait(
        paths: &Paths,
        source: &str,
        boot_id: Option<&str>,
        limit: Duration,
    ) -> Result<Option<Turn>, SourceError> {
        let path = paths.fetch_lock();
        let file = match lock(&path, limit) {
            Ok(LockOutcome::Held(file)) => file,
            Ok(LockOutcome::TimedOut) => return Ok(None),
            Err(e) => return Err(SourceError::File(path, io_reason(&e))),
        };
        let text = read_up_to(&file, ATTEMPTS_LENGTH, ATTEMPTS_LIMIT).unwrap_or_default();
        let found = Attempts::parse(&text);
        Ok(Some(Turn::new(
            found,
            source,
            boot_id,
            boot_now(),
            Box::new(file),
        )))
    }

    /// Returns when the last query failed.
    pub fn failed(&self) -> Option<Moment> {
        self.attempts.failed
    }

    /// Returns the interfaces of the host that the last answer matched.
    pub fn links(&self) -> &[String] {
        &self.attempts.links
    }

    /// Records the outcome of a query, and returns its answer.
    ///
    /// # Errors
    /// The query failed.
    pub fn note(
        &mut self,
        queried: Result<MatchedListing, SourceError>,
        began: Moment,
        arrived: Moment,
    ) -> Result<FreshAnswer, SourceError> {
        let doubtful_since = self.attempts.doubtful_since;
        let answer =
            queried.map(|matched| FreshAnswer::new(matched, began, arrived, doubtful_since));
        match &answer {
            Ok(answer) => {
                self.attempts.doubtful_since = answer.doubtful_since;
                if answer.is_implausible() {
                    self.attempts.failed = Some(arrived);
                } else {
                    self.attempts.links = answer.matched.link_names();
                }
            }
            Err(_) => self.attempts.failed = Some(arrived),
        }
        if self.attempts != self.written {
            self.file.write(&self.attempts);
            self.written.clone_from(&self.attempts);
        }
        answer
    }
}

impl Attempts {
    fn without_future(mut self, now: Moment) -> Attempts {
        let is_future = |at: &mut Moment| *at > now;
        self.failed.take_if(is_future);
        self.doubtful_since.take_if(is_future);
        self
    }

    /// Parses the first JSON value of the file. The end of a longer text may follow it, because the file is overwritten in place. A
    /// malformed value counts as no attempts.
    fn parse(text: &[u8]) -> Attempts {
        let mut json = serde_json::Deserializer::from_slice(text);
        Attempts::deserialize(&mut json).unwrap_or_default()
    }
}

/// Reads the attempts of this boot, for reports, without waiting for the lock. An unreadable file counts as no attempts.
pub fn last_attempts(paths: &Paths, boot_id: Option<&str>) -> Attempts {
    let found = match read_bounded(&paths.fetch_lock(), ATTEMPTS_LIMIT) {
        Ok(ReadOutcome::Read(text)) => Attempts::parse(&text),
        _ => Attempts::default(),
    };
    if found.boot_id.as_deref() == boot_id {
        found
    } else {
        Attempts::default()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::NAME;
    use crate::ipam::Inventory;
    use crate::ipam::testing::listed;

    const SECOND: u64 = 1_000_000_000;
    const NOW: Moment = Moment(1000 * SECOND);
    const BOOT: Option<&str> = Some("b");

    fn after(seconds: u64) -> Moment {
        NOW.after(Duration::from_secs(seconds))
    }

    fn good() -> Result<MatchedListing, SourceError> {
        Ok(MatchedListing {
            inventory: Inventory {
                pools: vec![listed("10.0.0.0/24", &["10.0.0.5"])],
            },
            ..MatchedListing::default()
        })
    }

    fn failing() -> Result<MatchedListing, SourceError> {
        Err(SourceError::Links(std::io::ErrorKind::Other.into()))
    }

    /// Records the attempts that are written.
    #[derive(Clone, Debug, Default)]
    struct Written(Rc<RefCell<Vec<Attempts>>>);

    impl AttemptsFile for Written {
        fn write(&self, attempts: &Attempts) {
            self.0.borrow_mut().push(attempts.clone());
        }
    }

    fn turn(found: Attempts, written: &Written) -> Turn {
        Turn::new(found, "s", BOOT, NOW, Box::new(written.clone()))
    }

    #[test]
    fn attempts_are_written_only_when_they_change() {
        let written = Written::default();
        let mut turn = turn(Attempts::default(), &written);
        let counts = [good(), good(), failing(), good()].map(|queried| {
            let _ = turn.note(queried, NOW, NOW);
            written.0.borrow().len()
        });
        assert_eq!(counts, [1, 1, 2, 2]);
        let last = written.0.borrow().last().cloned();
        let expected = Attempts {
            boot_id: BOOT.map(str::to_owned),
            source: "s".to_owned(),
            failed: Some(NOW),
            links: vec!["eth0".to_owned()],
            ..Attempts::default()
        };
        assert_eq!(last, Some(expected));
    }

    #[test]
    fn answer_without_interfaces_is_written_once() {
        let written = Written::default();
        let mut turn = turn(Attempts::default(), &written);
        for _ in 0..2 {
            let mut pool = listed("fd00::/120", &["fd00::5"]);
            pool.if_name.clear();
            let matched = MatchedListing {
                inventory: Inventory { pools: vec![pool] },
                ..MatchedListing::default()
            };
            turn.note(Ok(matched), NOW, NOW).unwrap();
        }
        assert_eq!(written.0.borrow().len(), 1);
        assert_eq!(written.0.borrow()[0].source, "s");
    }

    #[test]
    fn answers_without_addresses_are_accepted_after_a_minute() {
        let mut turn = turn(Attempts::default(), &Written::default());
        for (seconds, queried, is_implausible) in [
            (0, Ok(MatchedListing::default()), true),
            (59, Ok(MatchedListing::default()), true),
            (60, Ok(MatchedListing::default()), false),
            (61, good(), false),
            (62, Ok(MatchedListing::default()), true),
        ] {
            let at = after(seconds);
            let answer = turn.note(queried, at, at).unwrap();
            assert_eq!(answer.is_implausible(), is_implausible, "{seconds}");
            // An implausible answer counts as a failure for the calls that wait.
            assert_eq!(turn.failed() == Some(at), is_implausible, "{seconds}");
        }
    }

    #[test]
    fn attempts_of_another_boot_or_source_or_in_the_future_are_ignored() {
        let found = |boot_id: Option<&str>, source: &str, failed| Attempts {
            boot_id: boot_id.map(str::to_owned),
            source: source.to_owned(),
            failed: Some(failed),
            ..Attempts::default()
        };
        for (found, expected) in [
            (found(BOOT, "s", NOW), Some(NOW)),
            (found(Some("c"), "s", NOW), None),
            (found(None, "s", NOW), None),
            (found(BOOT, "t", NOW), None),
            (found(BOOT, "s", after(1)), None),
        ] {
            let failed = turn(found.clone(), &Written::default()).failed();
            assert_eq!(failed, expected, "{found:?}");
        }
    }

    #[test]
    fn end_of_a_longer_text_and_members_of_former_versions_are_ignored() {
        let expected = Attempts {
            source: "s".to_owned(),
            failed: Some(NOW),
            ..Attempts::default()
        };
        let whole = serde_json::to_string(&expected).unwrap();
        let former = whole.replacen('{', r#"{"answered":7,"digest":7,"#, 1);
        for text in [whole.clone(), whole.clone() + "gth0\"]}", former] {
            assert_eq!(Attempts::parse(text.as_bytes()), expected);
        }
        let cut = whole.strip_suffix('}').unwrap();
        assert_eq!(Attempts::parse(cut.as_bytes()), Attempts::default());
    }

    #[test]
    fn reports_read_the_attempts_of_this_boot() {
        let root = std::env::temp_dir().join(format!("attempts-{}", std::process::id()));
        let paths = Paths::new(Some(root.clone()), NAME);
        assert_eq!(last_attempts(&paths, BOOT), Attempts::default());
        let mut turn = Turn::wait(&paths, "s", BOOT, Duration::ZERO)
            .unwrap()
            .unwrap();
        let busy = Turn::wait(&paths, "s", BOOT, Duration::ZERO);
        assert!(busy.is_ok_and(|turn| turn.is_none()));
        turn.note(good(), NOW, NOW).unwrap();
        assert_eq!(last_attempts(&paths, BOOT).source, "s");
        for other in [Some("c"), None] {
            assert_eq!(last_attempts(&paths, other), Attempts::default());
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}
