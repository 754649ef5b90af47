//! A record of a pool, the shape that a state repeats a hundred or sixty thousand times: read and written in one piece where it
//! is laid out as the original and we lay it out (contract section 5). Any other layout is left to the reader of everything.

use std::net::IpAddr;

use super::go_json;
use crate::anycase::{Cursor, Wrong};
use crate::ipam::{Free, Held, Record, Usage, leading_v4, push_address, read_address};

// What stands between the values of a record, which lies eight deep.
const ID: &str = ": {\n\t\t\t\t\t\t\t\t\"ID\": ";
const ADDR: &str = ",\n\t\t\t\t\t\t\t\t\"Addr\": ";
const IN_USE: &str = ",\n\t\t\t\t\t\t\t\t\"InUse\": ";
const END: &str = "\n\t\t\t\t\t\t\t}";

/// Reads key and record, if they are laid out as usual.
pub(super) fn usual(json: &mut Cursor<'_>) -> Option<Record> {
    let key = usual_address(json)??;
    json.literal(ID).then_some(())?;
    let id = json.string().ok()?;
    json.literal(ADDR).then_some(())?;
    let addr = usual_address(json)?;
    json.literal(IN_USE).then_some(())?;
    let in_use = json.boolean().ok()?;
    json.literal(END)
        .then(|| record(key, addr, (*id).into(), in_use))
}

fn usual_address(json: &mut Cursor<'_>) -> Option<Option<IpAddr>> {
    let mut v4 = *json;
    if v4.literal("\"")
        && let Some(found) = v4.leading(leading_v4)
        && v4.literal("\"")
    {
        *json = v4;
        return Some(Some(found.into()));
    }
    address(&json.string().ok()?).ok()
}

/// A record of what a state says of it.
pub(super) fn record(key: IpAddr, addr: Option<IpAddr>, id: Box<str>, in_use: bool) -> Record {
    let usage = if in_use {
        Usage::Held(Held {
            container_id: id,
            ..Held::default()
        })
    } else {
        Usage::Free(Free {
            left_over_id: Some(id).filter(|id| !id.is_empty()),
            ..Free::default()
        })
    };
    Record { key, addr, usage }
}

/// Appends key and record.
pub(super) fn print(out: &mut Vec<u8>, record: &Record) {
    let (id, in_use) = match &record.usage {
        Usage::Held(held) => (&*held.container_id, true),
        Usage::Free(free) => (free.left_over_id.as_deref().unwrap_or_default(), false),
    };
    go_json::address(out, record.key);
    out.extend_from_slice(ID.as_bytes());
    go_json::string(out, id);
    out.extend_from_slice(ADDR.as_bytes());
    out.push(b'"');
    if let Some(address) = record.addr {
        push_address(out, address);
    }
    out.push(b'"');
    out.extend_from_slice(IN_USE.as_bytes());
    out.extend_from_slice(if in_use { b"true" } else { b"false" });
    out.extend_from_slice(END.as_bytes());
}

/// An address; empty text means none.
pub(super) fn address(text: &str) -> Result<Option<IpAddr>, Wrong> {
    if text.is_empty() {
        return Ok(None);
    }
    let parsed = read_address(text).ok_or_else(|| format!("{text:?} is no address"))?;
    Ok(Some(parsed.to_canonical()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_laid_out_as_usual_is_read_and_anything_else_is_not() {
        let address: IpAddr = "10.1.0.5".parse().unwrap();
        for usual_one in [
            record(address, Some(address), "".into(), false),
            record(address, None, "c\"1".into(), true),
            record(address, "10.1.0.6".parse().ok(), "left".into(), false),
            record("fd00::1".parse().unwrap(), None, "c2".into(), true),
        ] {
            let mut out = Vec::new();
            print(&mut out, &usual_one);
            let text = String::from_utf8(out).unwrap();
            let mut cursor = Cursor::new(&text);
            assert_eq!(usual(&mut cursor), Some(usual_one), "{text}");
            assert!(cursor.is_at_end());
            for (from, to) in [
                ("\t\"Addr", "\"Addr"),
                ("\"ID\"", "\"id\""),
                ("InUse\": ", "InUse\":"),
                ("\"10.1", "\"x10.1"),
                ("\"fd00", "\"x"),
                ("se\n", "se,\n"),
                ("true\n", "null\n"),
            ] {
                let other = text.replacen(from, to, 1);
                assert!(
                    other == text || usual(&mut Cursor::new(&other)).is_none(),
                    "{other}"
                );
            }
        }
    }
}
