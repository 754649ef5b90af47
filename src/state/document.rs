//! The top level of the state file as it is read: `IPAM`, our own key, and the keys of others.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::original::Original;
use super::ours::{KEY, Ours, PoolFacts};
use crate::codec::{Cursor, ParseError, Read};

/// The original's key.
pub const IPAM: &str = "IPAM";

/// The top level of the file. Its keys are case-sensitive.
#[derive(Default)]
pub struct RawDocument<'de> {
    pub original: Original,
    pub ours: Option<RawOurs<'de>>,
    pub others: BTreeMap<String, Box<RawValue>>,
}

/// Our own key: its contents or why it cannot be read, and its text.
pub struct RawOurs<'de> {
    pub facts: Ours<'de, PoolFacts<'de>>,
    pub read: Result<(), ParseError>,
    pub text: &'de str,
}

impl<'de> RawDocument<'de> {
    pub fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            IPAM => {
                self.original = Original::default();
                self.original.read(json)
            }
            KEY => {
                let start = *json;
                let mut facts = Ours::default();
                let read = facts.read(json);
                if read.is_err() {
                    *json = start;
                    json.skip()?;
                    // A newer format may have other types, but its number is there.
                    let _ = Cursor::new(json.since(start)).object(&mut |key, json| match key {
                        "format" => facts.format.read(json),
                        _ => json.skip(),
                    });
                }
                self.ours = Some(RawOurs {
                    facts,
                    read,
                    text: json.since(start),
                });
                Ok(())
            }
            _ => {
                self.others.insert(key.to_owned(), json.raw()?);
                Ok(())
            }
        }
    }
}
