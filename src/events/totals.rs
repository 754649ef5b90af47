//! Counts over all operations since the node started.

use serde::{Deserialize, Serialize};

use super::record::OperationRecord;

/// The counts of all operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Totals {
    /// How often each operation ended with each code.
    operations: Vec<Count>,
    /// Addresses reclaimed from dead holders.
    pub reclaimed: u64,
    /// How many queries of the source failed.
    pub refresh_failures: u64,
}

/// How often an operation ended with a code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Count {
    verb: String,
    /// The error code; 0 for success.
    code: u32,
    count: u64,
}

impl Totals {
    /// The totals with each operation and code once, whatever the file has.
    pub(super) fn merged(self) -> Totals {
        let mut merged = Totals {
            operations: Vec::new(),
            ..self
        };
        for Count { verb, code, count } in self.operations {
            merged.add(&verb, code, count);
        }
        merged
    }

    fn add(&mut self, verb: &str, code: u32, more: u64) {
        let same = |count: &&mut Count| count.verb == verb && count.code == code;
        match self.operations.iter_mut().find(same) {
            Some(count) => count.count = count.count.saturating_add(more),
            None => self.operations.push(Count {
                verb: verb.to_owned(),
                code,
                count: more,
            }),
        }
    }

    /// Counts these operations.
    pub(super) fn count(&mut self, records: &[OperationRecord]) {
        for record in records {
            self.add(&record.verb, record.code, 1);
            self.reclaimed = self.reclaimed.saturating_add(record.reclaimed);
            let failed = u64::from(record.refresh_failed);
            self.refresh_failures = self.refresh_failures.saturating_add(failed);
        }
    }

    /// Verb, code (0 for success) and count, in the order of first appearance.
    pub fn operations(&self) -> impl Iterator<Item = (&str, u32, u64)> {
        let counts = self.operations.iter();
        counts.map(|count| (count.verb.as_str(), count.code, count.count))
    }
}
