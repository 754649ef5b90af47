//! The part of the journal of grants that a state contains.

use crate::codec::{self, Cursor, Members, ParseError};

/// The largest plausible number. Nothing that counts in ones comes near it, so a larger one is damaged.
pub(super) const MOST_COUNTED: u64 = 1 << 53;

/// The part of the journal that a state contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The number of the last entry that the state contains.
    pub sequence: u64,
    /// The length of the file with it, in bytes.
    pub size: u64,
    /// Its length when it was last compacted.
    pub compacted: u64,
}

impl Position {
    /// Whether its numbers are plausible.
    pub fn is_plausible(&self) -> bool {
        self.sequence.max(self.size).max(self.compacted) <= MOST_COUNTED
    }
}

impl<'de> Members<'de> for Position {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            "sequence" => codec::value(json, &mut self.sequence),
            "bytes" => codec::value(json, &mut self.size),
            "compacted" => codec::value(json, &mut self.compacted),
            _ => json.skip(),
        }
    }
}
