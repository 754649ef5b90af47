//! Our own key beside `IPAM`, for what the original does not store. The original keeps the key as it is when it writes, so its facts
//! may be older than the records under `IPAM`, which are the authority on who holds what.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use super::position::{MOST_COUNTED, Position};
use super::record;
use crate::codec::{self, Cursor, Members, ParseError, read_address};
use crate::ipam::Attachment;

/// The key.
pub(super) const KEY: &str = "azure-vnet-ipam";

/// The format version of our key. Of a newer one only releases are written.
///
/// Format 1 has no suspects, tombstones, quarantine and marks. Its other facts mean the same, so it is read as it is and written as
/// the newest.
pub const FORMAT: u64 = 2;

/// What stands before an address.
pub(super) const ENTRY: &str = "\n\t\t\t\t\t\"";

/// What stands between the address and the moment where that is all there is.
pub(super) const RELEASED: &str = "\": {\"released\": ";

/// The oldest format that is read.
const OLDEST: u64 = 1;

/// What stands under the key.
#[derive(Debug, Default)]
pub(super) struct Ours<'de> {
    pub format: u64,
    /// The boot that the moments belong to.
    pub boot_id: Option<String>,
    /// `IPAM.TimeStamp` as this program last wrote it. Another value means that the original has written since.
    pub time_stamp: String,
    pub generation: u64,
    /// Whether the state must still be compared with the node, as it may have been started from nothing.
    pub look_owed: bool,
    pub quarantine_until: Option<u64>,
    /// The loss of a state that could not be rebuilt yet.
    pub loss: Option<RawLoss>,
    /// When the query began whose answer was merged last.
    pub refreshed: Option<u64>,
    /// The part of the journal of grants that the state contains.
    pub journal: Option<Position>,
    pub tombstones: Vec<RawTombstone>,
    pub spaces: BTreeMap<String, SpaceFacts<'de>>,
}

#[derive(Debug, Default)]
pub(super) struct RawLoss {
    pub why: String,
    pub seen: u64,
}

#[derive(Debug, Default)]
pub(super) struct RawTombstone {
    pub attachment: Attachment,
    pub at: u64,
}

/// Of a space, by pool.
#[derive(Debug, Default)]
pub(super) struct SpaceFacts<'de>(pub BTreeMap<String, PoolFacts<'de>>);

/// Of a pool, by address.
#[derive(Debug, Default)]
pub(super) struct PoolFacts<'de> {
    /// Free addresses with nothing but the moment of their release: the most common entry.
    pub released: Vec<(IpAddr, u64)>,
    /// Of the others.
    pub facts: Vec<(IpAddr, Facts<'de>)>,
}

/// Of an address.
#[derive(Debug, Default)]
pub(super) struct Facts<'de> {
    /// The container ID of the holder; nothing for a free address.
    pub id: Option<Cow<'de, str>>,
    pub network: Option<Cow<'de, str>>,
    pub if_name: Option<Cow<'de, str>>,
    pub pod: Option<Cow<'de, str>>,
    pub netns: Option<RawNetNs<'de>>,
    pub since: Option<u64>,
    pub generation: u64,
    pub unlisted: bool,
    pub suspect: Option<u64>,
    /// When a free address was released.
    pub released: Option<u64>,
    pub wired: bool,
}

#[derive(Debug, Default)]
pub(super) struct RawNetNs<'de> {
    pub path: Cow<'de, str>,
    pub dev: Option<u64>,
    pub ino: Option<u64>,
    pub cookie: Option<u64>,
}

impl Ours<'_> {
    /// Whether the format is one that is read; the format comes first in the text.
    pub fn is_known(&self) -> bool {
        (OLDEST..=FORMAT).contains(&self.format)
    }

    /// Checks what can be checked without the records.
    ///
    /// # Errors
    /// What no program of ours has written.
    pub fn check(&self) -> Result<(), ParseError> {
        if !self.is_known() {
            return Err(format!("format {} never was", self.format));
        }
        if self.generation > MOST_COUNTED {
            return Err(format!("generation {} never was", self.generation));
        }
        Ok(())
    }
}

impl<'de> Members<'de> for Ours<'de> {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            "format" => codec::value(json, &mut self.format),
            "bootId" => codec::value(json, &mut self.boot_id),
            "timeStamp" => codec::value(json, &mut self.time_stamp),
            "generation" if self.is_known() => codec::value(json, &mut self.generation),
            // A newer version may store something else under these names.
            _ if !self.is_known() => json.skip(),
            "lookOwed" => codec::value(json, &mut self.look_owed),
            "quarantineUntil" => codec::value(json, &mut self.quarantine_until),
            "lost" => codec::object(json, self.loss.get_or_insert_default()),
            "refreshed" => codec::value(json, &mut self.refreshed),
            "journal" => codec::object(json, self.journal.get_or_insert_default()),
            "tombstones" => codec::list(json, &mut self.tombstones),
            "records" => codec::entries(json, &mut self.spaces),
            _ => json.skip(),
        }
    }
}

impl<'de> Members<'de> for RawLoss {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            "why" => codec::value(json, &mut self.why),
            "seen" => codec::value(json, &mut self.seen),
            _ => json.skip(),
        }
    }
}

impl<'de> Members<'de> for RawTombstone {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            "network" => codec::value(json, &mut self.attachment.network),
            "id" => codec::value(json, &mut self.attachment.container_id),
            "ifName" => codec::value(json, &mut self.attachment.if_name),
            "at" => codec::value(json, &mut self.at),
            _ => json.skip(),
        }
    }
}

impl<'de> Members<'de> for SpaceFacts<'de> {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        self.0.insert(key.to_owned(), PoolFacts::read(json)?);
        Ok(())
    }
}

impl<'de> PoolFacts<'de> {
    fn read(json: &mut Cursor<'de>) -> Result<Self, ParseError> {
        let (mut released, mut facts) = (Vec::new(), Vec::new());
        json.object_with_fast_path(
            |json| {
                released.push(only_released(json)?);
                Some(())
            },
            |key, json| {
                let address =
                    read_address(key).ok_or_else(|| format!("{key:?} is not an address"))?;
                // They are large, and so are filled in their place.
                facts.push((address, Facts::default()));
                match facts.last_mut() {
                    Some((_, found)) => codec::object(json, found),
                    None => json.skip(),
                }
            },
            |()| (),
        )?;
        Ok(PoolFacts { released, facts })
    }
}

/// Reads an entry that tells nothing but when an address was released, if it is laid out as usual.
fn only_released(json: &mut Cursor<'_>) -> Option<(IpAddr, u64)> {
    json.literal(ENTRY).then_some(())?;
    let address = record::leading(json)?;
    json.literal(RELEASED).then_some(())?;
    let at = json.unsigned().ok()?;
    json.literal("}").then_some((address, at))
}

impl<'de> Members<'de> for Facts<'de> {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            "id" => codec::value(json, &mut self.id),
            "network" => codec::value(json, &mut self.network),
            "ifName" => codec::value(json, &mut self.if_name),
            "pod" => codec::value(json, &mut self.pod),
            "netns" => codec::object(json, self.netns.get_or_insert_default()),
            "since" => codec::value(json, &mut self.since),
            "generation" => codec::value(json, &mut self.generation),
            "unlisted" => codec::value(json, &mut self.unlisted),
            "suspect" => codec::value(json, &mut self.suspect),
            "released" => codec::value(json, &mut self.released),
            "wired" => codec::value(json, &mut self.wired),
            _ => json.skip(),
        }
    }
}

impl<'de> Members<'de> for RawNetNs<'de> {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            "path" => codec::value(json, &mut self.path),
            "dev" => codec::value(json, &mut self.dev),
            "ino" => codec::value(json, &mut self.ino),
            "cookie" => codec::value(json, &mut self.cookie),
            _ => json.skip(),
        }
    }
}
