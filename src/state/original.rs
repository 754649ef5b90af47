//! The key `IPAM`: how the original's state is read and written (contract section 5).

use std::borrow::Cow;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::go_json;
use super::out::Out;
use super::record::{self, address};
use crate::codec::{self, Cursor, Members, ParseError, is};
use crate::ipam::{Ipam, Pool, Record, Space, Subnet, are_in_order, by_text};

/// The contents of `IPAM`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Original {
    /// The version of the program that made the state; kept for ever.
    pub version: String,
    /// When it was last written, as text.
    pub time_stamp: String,
    /// The addresses.
    pub ipam: Ipam,
}

impl<'de> Members<'de> for Original {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            k if is(k, "Version") => codec::value(json, &mut self.version),
            k if is(k, "TimeStamp") => codec::value(json, &mut self.time_stamp),
            k if is(k, "AddressSpaces") => codec::entries(json, &mut self.ipam.spaces),
            _ => json.skip(),
        }
    }
}

impl<'de> Members<'de> for Space {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            k if is(k, "Id") => codec::value(json, &mut self.id),
            k if is(k, "Scope") => codec::value(json, &mut self.scope),
            k if is(k, "Pools") => codec::entries(json, &mut self.pools),
            _ => json.skip(),
        }
    }
}

impl<'de> Members<'de> for Pool {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            k if is(k, "Id") => codec::value(json, &mut self.id),
            k if is(k, "IfName") => codec::value(json, &mut self.if_name),
            k if is(k, "Subnet") => codec::object(json, &mut self.subnet),
            k if is(k, "Gateway") => codec::text(json, &mut self.gateway, address),
            k if is(k, "Addresses") => records(json, &mut self.records),
            k if is(k, "IsIPv6") => codec::value(json, &mut self.is_ipv6),
            k if is(k, "Priority") => codec::value(json, &mut self.priority),
            k if is(k, "RefCount") => codec::value(json, &mut self.ref_count),
            _ => json.skip(),
        }
    }
}

impl<'de> Members<'de> for Subnet {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            k if is(k, "IP") => codec::text(json, &mut self.ip, address),
            k if is(k, "Mask") => codec::text(json, &mut self.mask, |text| {
                BASE64
                    .decode(text)
                    .map(|mask| Some(mask.into()))
                    .map_err(|e| format!("mask {text:?}: {e}"))
            }),
            _ => json.skip(),
        }
    }
}

/// Reads the map of addresses, each under its key, on top of what is there.
fn records(json: &mut Cursor<'_>, records: &mut Vec<Record>) -> Result<(), ParseError> {
    // A record takes about 100 bytes.
    const USUAL_LENGTH: usize = 100;
    if records.is_empty() {
        records.reserve(json.left() / USUAL_LENGTH);
    }
    json.object_with_fast_path(
        record::parse_canonical,
        |key, json| {
            let key = address(key)?.ok_or("a record without an address as its key")?;
            let mut raw = RawRecord::default();
            codec::object(json, &mut raw)?;
            Ok(record::record(key, raw.addr, &raw.id, raw.in_use))
        },
        |record| records.push(record),
    )?;
    sort(records);
    Ok(())
}

#[derive(Default)]
struct RawRecord<'de> {
    id: Cow<'de, str>,
    addr: Option<IpAddr>,
    in_use: bool,
}

impl<'de> Members<'de> for RawRecord<'de> {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            k if is(k, "ID") => codec::value(json, &mut self.id),
            k if is(k, "Addr") => codec::text(json, &mut self.addr, address),
            k if is(k, "InUse") => codec::value(json, &mut self.in_use),
            _ => json.skip(),
        }
    }
}

/// Sorts records, which mostly are sorted. Of a repeated key the last counts.
fn sort(records: &mut Vec<Record>) {
    if are_in_order(records.iter().map(|record| &record.key)) {
        return;
    }
    records.reverse();
    records.sort_by(|a, b| by_text(&a.key, &b.key));
    records.dedup_by(|later, earlier| later.key == earlier.key);
}

impl Original {
    /// Appends the object, two tabs deep.
    pub fn print(&self, out: &mut Out) {
        const DEPTH: usize = 2;
        out.byte(b'{');
        text(out, DEPTH, "Version", &self.version);
        out.byte(b',');
        text(out, DEPTH, "TimeStamp", &self.time_stamp);
        out.byte(b',');
        name(out, DEPTH, "AddressSpaces");
        print_map(out, DEPTH, &self.ipam.spaces, |out, key, space| {
            key_string(out, key);
            print_space(out, DEPTH + 2, space);
        });
        go_json::line(out, DEPTH - 1);
        out.byte(b'}');
    }
}

fn print_space(out: &mut Out, depth: usize, space: &Space) {
    out.byte(b'{');
    text(out, depth, "Id", &space.id);
    out.byte(b',');
    number(out, depth, "Scope", space.scope);
    out.byte(b',');
    name(out, depth, "Pools");
    print_map(out, depth, &space.pools, |out, key, pool| {
        key_string(out, key);
        print_pool(out, depth + 2, pool);
    });
    go_json::line(out, depth - 1);
    out.byte(b'}');
}

fn print_pool(out: &mut Out, depth: usize, pool: &Pool) {
    out.byte(b'{');
    text(out, depth, "Id", &pool.id);
    out.byte(b',');
    text(out, depth, "IfName", &pool.if_name);
    out.byte(b',');
    name(out, depth, "Subnet");
    out.byte(b'{');
    ip(out, depth + 1, "IP", pool.subnet.ip);
    out.byte(b',');
    name(out, depth + 1, "Mask");
    match &pool.subnet.mask {
        Some(mask) => go_json::string(out, &BASE64.encode(mask)),
        None => out.literal("null"),
    }
    go_json::line(out, depth);
    out.literal("},");
    ip(out, depth, "Gateway", pool.gateway);
    out.byte(b',');
    name(out, depth, "Addresses");
    out.byte(b'{');
    for (n, record) in pool.records.iter().enumerate() {
        if n > 0 {
            out.byte(b',');
        }
        record::print(out, record);
    }
    if !pool.records.is_empty() {
        go_json::line(out, depth);
    }
    out.byte(b'}');
    out.byte(b',');
    name(out, depth, "IsIPv6");
    out.literal(if pool.is_ipv6 { "true," } else { "false," });
    number(out, depth, "Priority", pool.priority);
    out.byte(b',');
    number(out, depth, "RefCount", pool.ref_count);
    go_json::line(out, depth - 1);
    out.byte(b'}');
}

/// Appends an object with one member a line, `depth` being that of the object's own name.
fn print_map<K, V>(
    out: &mut Out,
    depth: usize,
    entries: impl IntoIterator<Item = (K, V)>,
    mut print: impl FnMut(&mut Out, K, V),
) {
    out.byte(b'{');
    let mut first = true;
    for (key, value) in entries {
        if !first {
            out.byte(b',');
        }
        first = false;
        go_json::line(out, depth + 1);
        print(out, key, value);
    }
    if !first {
        go_json::line(out, depth);
    }
    out.byte(b'}');
}

fn key_string(out: &mut Out, key: &str) {
    go_json::string(out, key);
    out.literal(": ");
}

fn name(out: &mut Out, depth: usize, name: &str) {
    go_json::line(out, depth);
    key_string(out, name);
}

fn text(out: &mut Out, depth: usize, key: &str, value: &str) {
    name(out, depth, key);
    go_json::string(out, value);
}

fn number(out: &mut Out, depth: usize, key: &str, value: i64) {
    name(out, depth, key);
    if value < 0 {
        out.byte(b'-');
    }
    go_json::number(out, value.unsigned_abs());
}

fn ip(out: &mut Out, depth: usize, key: &str, value: Option<IpAddr>) {
    name(out, depth, key);
    match value {
        Some(address) => go_json::address(out, address),
        None => out.literal("\"\""),
    }
}
