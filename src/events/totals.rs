//! Counts over all operations since the node started.

use serde::{Deserialize, Serialize};

use super::operation::OperationRecord;

/// The upper bounds of the buckets of durations, in microseconds. A file may be older than this
/// program, so a change of the bounds needs another key for the counts.
pub const DURATION_BOUNDS: [u64; 13] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000, 30_000_000,
];

/// The operations whose durations are counted, because a pod waits for them.
const TIMED: [&str; 2] = ["ADD", "DEL"];

/// The counts of all operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Totals {
    /// How often each operation ended with each code, in the order of first appearance.
    pub operations: Vec<Count>,
    /// How long ADDs and DELs took.
    durations: Vec<Durations>,
    /// Addresses reclaimed from dead holders.
    pub reclaimed: u64,
    /// How many queries of the source failed.
    pub refresh_failures: u64,
    /// How many operations waited for the lock on the state.
    pub lock_waits: u64,
    /// How long they waited together, in microseconds.
    pub lock_microseconds: u64,
}

/// How often an operation ended with a code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Count {
    /// The operation.
    pub verb: String,
    /// The error code; 0 for success.
    pub code: u32,
    /// How often.
    pub count: u64,
}

/// How long one kind of operation took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Durations {
    /// The operation.
    pub verb: String,
    /// How many took longer than the previous bound, and no longer than the bound of the same
    /// number in [`DURATION_BOUNDS`]. The last count is of those that took longer than every bound.
    buckets: Vec<u64>,
    /// All durations together, in microseconds.
    pub microseconds: u64,
}

impl Durations {
    fn add(&mut self, more: &Durations) {
        self.buckets.resize(DURATION_BOUNDS.len() + 1, 0);
        for (count, added) in self.buckets.iter_mut().zip(&more.buckets) {
            *count = count.saturating_add(*added);
        }
        self.microseconds = self.microseconds.saturating_add(more.microseconds);
    }

    /// Returns how many took at most as long as each bound. The last count is of all.
    pub fn cumulative(&self) -> [u64; DURATION_BOUNDS.len() + 1] {
        let mut sum: u64 = 0;
        std::array::from_fn(|n| {
            sum = sum.saturating_add(self.buckets.get(n).copied().unwrap_or(0));
            sum
        })
    }

    /// The durations of one operation.
    fn one(record: &OperationRecord) -> Durations {
        let bucket = DURATION_BOUNDS.partition_point(|bound| *bound < record.microseconds);
        Durations {
            verb: record.verb.clone(),
            buckets: (0..=DURATION_BOUNDS.len())
                .map(|n| u64::from(n == bucket))
                .collect(),
            microseconds: record.microseconds,
        }
    }
}

impl Totals {
    /// Adds up repeated rows, so that each operation and code is there once. A file that another
    /// program wrote may repeat them.
    pub(super) fn merged(self) -> Totals {
        let mut merged = Totals {
            operations: Vec::new(),
            durations: Vec::new(),
            ..self
        };
        for Count { verb, code, count } in self.operations {
            merged.add(&verb, code, count);
        }
        for durations in &self.durations {
            merged.add_durations(durations);
        }
        merged
    }

    fn add(&mut self, verb: &str, code: u32, more: u64) {
        let same_operation = self
            .operations
            .iter_mut()
            .find(|known| known.verb == verb && known.code == code);
        match same_operation {
            Some(known) => known.count = known.count.saturating_add(more),
            None => self.operations.push(Count {
                verb: verb.to_owned(),
                code,
                count: more,
            }),
        }
    }

    fn add_durations(&mut self, more: &Durations) {
        if !TIMED.contains(&more.verb.as_str()) {
            return;
        }
        let same_verb = self
            .durations
            .iter_mut()
            .find(|known| known.verb == more.verb);
        match same_verb {
            Some(known) => known.add(more),
            None => self.durations.push(more.clone()),
        }
    }

    /// Counts these operations.
    pub(super) fn count(&mut self, records: &[OperationRecord]) {
        for record in records {
            self.add(&record.verb, record.code, 1);
            self.add_durations(&Durations::one(record));
            self.reclaimed = self.reclaimed.saturating_add(record.reclaimed);
            let failed = u64::from(record.refresh_failed);
            self.refresh_failures = self.refresh_failures.saturating_add(failed);
            let waited = u64::from(record.lock_microseconds > 0);
            self.lock_waits = self.lock_waits.saturating_add(waited);
            self.lock_microseconds = self
                .lock_microseconds
                .saturating_add(record.lock_microseconds);
        }
    }

    /// Returns how long ADDs and DELs took. The counts are zeros before the first one.
    pub fn durations(&self) -> [Durations; TIMED.len()] {
        TIMED.map(|verb| {
            self.durations
                .iter()
                .find(|known| known.verb == verb)
                .cloned()
                .unwrap_or_else(|| Durations {
                    verb: verb.to_owned(),
                    ..Durations::default()
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(verb: &str, microseconds: u64) -> OperationRecord {
        OperationRecord {
            verb: verb.into(),
            microseconds,
            ..OperationRecord::default()
        }
    }

    #[test]
    fn durations_are_counted_up_to_and_with_each_bound() {
        let mut totals = Totals::default();
        totals.count(&[
            took("ADD", 0),
            took("ADD", 1_000),
            took("ADD", 1_001),
            took("ADD", 30_000_001),
            took("GC", 7),
        ]);
        let [add, del] = totals.durations();
        let counts = add.cumulative();
        assert_eq!((counts[0], counts[1], counts[12], counts[13]), (2, 3, 3, 4));
        assert_eq!(add.microseconds, 30_002_002);
        assert_eq!((del.verb.as_str(), del.cumulative()), ("DEL", [0; 14]));
    }

    #[test]
    fn durations_of_a_file_with_other_buckets_never_go_back() {
        let text = r#"{"durations":[{"verb":"ADD","buckets":[1,2],"microseconds":5},{"verb":"x","buckets":[1]},
            {"verb":"ADD","buckets":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"microseconds":18446744073709551615}]}"#;
        let mut totals = serde_json::from_str::<Totals>(text).unwrap().merged();
        let [add, _] = totals.durations();
        assert_eq!((add.cumulative()[0], add.cumulative()[13]), (2, 17));
        assert_eq!(add.microseconds, u64::MAX);
        totals.count(&[took("ADD", 1)]);
        assert_eq!(totals.durations()[0].cumulative()[13], 18);
        assert_eq!(totals.durations().len(), 2);
    }

    #[test]
    fn waits_for_the_lock_are_counted_and_added_up() {
        let mut totals = Totals::default();
        let waited = |lock_microseconds| OperationRecord {
            lock_microseconds,
            ..took("ADD", 9)
        };
        totals.count(&[waited(0), waited(1500), waited(2500)]);
        assert_eq!((totals.lock_waits, totals.lock_microseconds), (2, 4000));
    }
}
