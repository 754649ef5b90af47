//! A record of a pool, the shape that a state repeats a hundred or sixty thousand times: read and written in one piece where it
//! is laid out as the original and we lay it out (contract section 5). Any other layout is left to the reader of everything.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::codec::{Cursor, Out, ParseError, go_json, read_address};
use crate::ipam::{Free, Held, Holder, Moment, Record, Usage};

// What stands between the values of a record, which lies seven deep.
const KEY: &str = "\n\t\t\t\t\t\t\t\"";
const ID: &str = "\": {\n\t\t\t\t\t\t\t\t\"ID\": ";
const ADDR: &str = ",\n\t\t\t\t\t\t\t\t\"Addr\": \"";
const IN_USE: &str = "\",\n\t\t\t\t\t\t\t\t\"InUse\": true\n\t\t\t\t\t\t\t}";
const NOT_IN_USE: &str = "\",\n\t\t\t\t\t\t\t\t\"InUse\": false\n\t\t\t\t\t\t\t}";
/// The text of nearly every free record, from the key to the address.
const NO_ID: &str = "\": {\n\t\t\t\t\t\t\t\t\"ID\": \"\",\n\t\t\t\t\t\t\t\t\"Addr\": \"";

/// Reads key and record in the usual layout; `None` for any other.
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
    // Nearly every record repeats its key.
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
            // Not from a default, which would allocate a holder, too.
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

/// Appends key and record, on a line of their own.
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
    // In two, as the lengths are known then.
    if in_use {
        out.literal(IN_USE);
    } else {
        out.literal(NOT_IN_USE);
    }
}

/// An address; empty text means none.
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
    fn what_is_laid_out_as_usual_is_read_and_anything_else_is_not() {
        let address: IpAddr = "10.1.0.5".parse().unwrap();
        let v6: IpAddr = "fd00:1:2:3:4:5:6:7".parse().unwrap();
        for usual_one in [
            record(v6, Some(v6), "", false),
            record(v6, "fd00::2".parse().ok(), "c1", true),
            record("fd00::".parse().unwrap(), Some(address), "", false),
            record(address, Some(address), "", false),
            record(address, Some(address), "", true),
            record(address, Some(address), "c\"1", true),
            record(address, "10.1.0.6".parse().ok(), "left", false),
        ] {
            let text = printed(&usual_one);
            let mut cursor = Cursor::new(&text);
            assert_eq!(parse_canonical(&mut cursor), Some(usual_one), "{text}");
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
        for unusual_one in [
            record(address, None, "c1", true),
            record("::ffff:1.2.3.4".parse().unwrap(), Some(address), "", false),
        ] {
            assert_eq!(
                parse_canonical(&mut Cursor::new(&printed(&unusual_one))),
                None
            );
        }
    }
}
