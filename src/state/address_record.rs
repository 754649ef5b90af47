//! Reads and prints a record of a pool in one piece. A state has a hundred to sixty thousand records.
//!
//! This works for the layout that the original and this program write (contract section 5). The general reader reads any other layout.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::codec::{Cursor, Out, ParseError, go_json, read_address};
use crate::ipam::{Free, Held, Holder, Moment, Record, Usage};

// The text between the values of a record. A record is indented by seven tabs.
const KEY: &str = "\n\t\t\t\t\t\t\t\"";
const ID: &str = "\": {\n\t\t\t\t\t\t\t\t\"ID\": ";
const ADDR: &str = ",\n\t\t\t\t\t\t\t\t\"Addr\": \"";
const IN_USE: &str = "\",\n\t\t\t\t\t\t\t\t\"InUse\": true\n\t\t\t\t\t\t\t}";
const NOT_IN_USE: &str = "\",\n\t\t\t\t\t\t\t\t\"InUse\": false\n\t\t\t\t\t\t\t}";
/// The text of nearly every free record, from the key to the address.
const NO_ID: &str = "\": {\n\t\t\t\t\t\t\t\t\"ID\": \"\",\n\t\t\t\t\t\t\t\t\"Addr\": \"";

/// Reads a key and its record in the usual layout. Returns `None` for any other layout.
pub(super) fn parse_canonical(json: &mut Cursor<'_>) -> Option<Record> {
    json.literal(KEY).then_some(())?;
    let before_key = *json;
    let key = leading(json)?;
    let key_text = json.since(before_key);
    let mut id = Cow::Borrowed("");
    if !json.literal(NO_ID) {
        json.literal(ID).then_some(())?;
        id = json.string().ok()?;
        json.literal(ADDR).then_some(())?;
    }
    // The address of nearly every record equals its key.
    let addr = if json.literal(key_text) {
        key
    } else {
        leading(json)?
    };
    let in_use = json.literal(IN_USE);
    let is_whole = in_use || json.literal(NOT_IN_USE);
    is_whole.then(|| record(key, Some(addr), &id, in_use))
}

/// Reads an address. An IPv4-mapped one becomes IPv4.
pub(super) fn leading(json: &mut Cursor<'_>) -> Option<IpAddr> {
    json.address().map(|address| address.to_canonical())
}

/// Creates a record from its parts.
pub(super) fn record(key: IpAddr, addr: Option<IpAddr>, id: &str, in_use: bool) -> Record {
    let usage = if in_use {
        Usage::Held(Held {
            holder: Box::new(Holder::from_container_id(id)),
            // `Held::default()` would allocate another holder on the heap.
            since: Moment::default(),
            suspect: None,
            unlisted: None,
        })
    } else {
        Usage::Free(Free {
            left_over_id: (!id.is_empty()).then(|| id.into()),
            ..Free::default()
        })
    };
    Record { key, addr, usage }
}

/// Appends a key and its record on a new line.
pub(super) fn print(out: &mut Out, record: &Record) {
    let (id, in_use) = match &record.usage {
        Usage::Held(held) => (held.holder.container_id(), true),
        Usage::Free(free) => (free.left_over_id.as_deref().unwrap_or_default(), false),
    };
    out.literal(KEY);
    let start = out.used();
    go_json::bare_address(out, record.key);
    let key_text = start..out.used();
    if id.is_empty() {
        out.literal(NO_ID);
    } else {
        out.literal(ID);
        go_json::string(out, id);
        out.literal(ADDR);
    }
    if record.addr == Some(record.key) {
        out.repeat(key_text);
    } else if let Some(address) = record.addr {
        go_json::bare_address(out, address);
    }
    // Two calls, because a literal of known length is copied faster.
    if in_use {
        out.literal(IN_USE);
    } else {
        out.literal(NOT_IN_USE);
    }
}

/// Parses an address. An empty text means no address.
pub(super) fn address(text: &str) -> Result<Option<IpAddr>, ParseError> {
    if text.is_empty() {
        return Ok(None);
    }
    let parsed = read_address(text).ok_or_else(|| format!("{text:?} is not an address"))?;
    Ok(Some(parsed.to_canonical()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(record: &Record) -> String {
        let mut out = Out::default();
        print(&mut out, record);
        String::from_utf8(out.into_bytes()).unwrap()
    }

    #[test]
    fn only_usual_layout_is_read_in_one_piece() {
        let address: IpAddr = "10.1.0.5".parse().unwrap();
        let v6: IpAddr = "fd00:1:2:3:4:5:6:7".parse().unwrap();
        for usual in [
            record(v6, Some(v6), "", false),
            record(v6, "fd00::2".parse().ok(), "c1", true),
            record("fd00::".parse().unwrap(), Some(address), "", false),
            record(address, Some(address), "", false),
            record(address, Some(address), "", true),
            record(address, Some(address), "c\"1", true),
            record(address, "10.1.0.6".parse().ok(), "left", false),
        ] {
            let text = printed(&usual);
            let mut cursor = Cursor::new(&text);
            assert_eq!(parse_canonical(&mut cursor), Some(usual), "{text}");
            assert!(cursor.is_at_end());
            for (from, to) in [
                ("\t\"Addr", "\"Addr"),
                ("\"ID\"", "\"id\""),
                ("InUse\": ", "InUse\":"),
                ("\"10.1", "\"x10.1"),
                ("\"fd00:", "\"gd00:"),
                ("\n\t", "\n"),
                ("e\n", "e,\n"),
                ("true\n", "null\n"),
            ] {
                let other = text.replacen(from, to, 1);
                assert!(
                    other == text || parse_canonical(&mut Cursor::new(&other)).is_none(),
                    "{other}"
                );
            }
        }
        for unusual in [
            record(address, None, "c1", true),
            record("::ffff:1.2.3.4".parse().unwrap(), Some(address), "", false),
        ] {
            assert_eq!(parse_canonical(&mut Cursor::new(&printed(&unusual))), None);
        }
    }
}
