//! Counts over all operations since the node started.

use serde::Serialize;

use super::Event;
use crate::codec::{self, Cursor, Members, ParseError};

/// What all operations came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// How often which operation came to what.
    operations: Vec<Count>,
    /// Addresses taken back from dead holders.
    pub reclaimed: u64,
    /// How many queries of the source failed.
    pub refresh_failures: u64,
}

/// How often an operation came to something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Count {
    verb: String,
    /// The code of the error; 0 for a success.
    code: u32,
    count: u64,
}

impl<'de> Members<'de> for Totals {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            "operations" => codec::list(json, &mut self.operations),
            "reclaimed" => codec::value(json, &mut self.reclaimed),
            "refreshFailures" => codec::value(json, &mut self.refresh_failures),
            _ => json.skip(),
        }
    }
}

impl<'de> Members<'de> for Count {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            "verb" => codec::value(json, &mut self.verb),
            "code" => codec::value(json, &mut self.code),
            "count" => codec::value(json, &mut self.count),
            _ => json.skip(),
        }
    }
}

impl Totals {
    /// With every operation and code once, whatever stood in the file.
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

    /// Adds these.
    pub(super) fn count(&mut self, events: &[Event]) {
        for event in events {
            self.add(&event.verb, event.code, 1);
            self.reclaimed = self.reclaimed.saturating_add(event.reclaimed);
            let failed = u64::from(event.refresh_failed);
            self.refresh_failures = self.refresh_failures.saturating_add(failed);
        }
    }

    /// Verb, code (0 for a success) and how often, in the order in which they were first seen.
    pub fn operations(&self) -> impl Iterator<Item = (&str, u32, u64)> {
        let counts = self.operations.iter();
        counts.map(|count| (count.verb.as_str(), count.code, count.count))
    }
}
