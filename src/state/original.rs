//! The key `IPAM`: how the original's state is read and written (contract section 5).

use std::borrow::Cow;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::address_record;
use crate::codec::{Cursor, Layout, Out, ParseError, Print, Read, go_json, object, text};
use crate::ipam::{Ipam, Pool, Record, Space, Subnet, are_in_order, by_text};

/// The contents of `IPAM`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Original {
    /// The version of the program that created the state. It never changes.
    pub version: String,
    /// When it was last written, as text.
    pub time_stamp: String,
    /// The addresses.
    pub ipam: Ipam,
}

object! { any_case lines Original {
    "Version": version,
    "TimeStamp": time_stamp,
    "AddressSpaces": ipam.spaces,
} }

object! { any_case lines Space {
    "Id": id,
    "Scope": scope,
    "Pools": pools,
} }

object! { any_case lines Pool {
    "Id": id,
    "IfName": if_name,
    "Subnet": subnet,
    "Gateway" with(read_address, print_address): gateway,
    "Addresses" with(read_records, print_records): records,
    "IsIPv6" with(Read::read, Print::print): is_ipv6,
    "Priority": priority,
    "RefCount": ref_count,
} }

object! { any_case lines Subnet {
    "IP" with(read_address, print_address): ip,
    "Mask" with(read_mask, print_mask): mask,
} }

object! { any_case read
    #[derive(Default)]
    struct RawRecord<'de> {
        "ID": id: Cow<'de, str>,
        "Addr" with(read_address): addr: Option<IpAddr>,
        "InUse": in_use: bool,
    }
}

pub(super) fn read_address(
    target: &mut Option<IpAddr>,
    json: &mut Cursor<'_>,
) -> Result<(), ParseError> {
    text(target, json, address_record::address)
}

pub(super) fn print_address(address: &Option<IpAddr>, out: &mut Out, _: Layout) {
    match address {
        Some(address) => go_json::address(out, *address),
        None => out.literal("\"\""),
    }
}

fn read_mask(target: &mut Option<Box<[u8]>>, json: &mut Cursor<'_>) -> Result<(), ParseError> {
    text(target, json, |text| match BASE64.decode(text) {
        Ok(mask) => Ok(Some(mask.into())),
        Err(e) => Err(format!("mask {text:?}: {e}")),
    })
}

fn print_mask(mask: &Option<Box<[u8]>>, out: &mut Out, layout: Layout) {
    mask.as_ref()
        .map(|mask| BASE64.encode(mask))
        .print(out, layout);
}

/// Reads the map of addresses, each under its key, and adds it to the records.
fn read_records(records: &mut Vec<Record>, json: &mut Cursor<'_>) -> Result<(), ParseError> {
    json.members(&mut |json| {
        if let Some(record) = json.attempt(address_record::parse_canonical) {
            records.push(record);
            return Ok(());
        }
        let key = address_record::address(&json.key()?)?
            .ok_or("a record without an address as its key")?;
        let mut raw = RawRecord::default();
        raw.read(json)?;
        records.push(address_record::record(key, raw.addr, &raw.id, raw.in_use));
        Ok(())
    })?;
    sort(records);
    Ok(())
}

/// Sorts records, which usually are sorted already. The last record of a repeated key counts.
fn sort(records: &mut Vec<Record>) {
    if are_in_order(records.iter().map(|record| &record.key)) {
        return;
    }
    records.reverse();
    records.sort_by(|a, b| by_text(&a.key, &b.key));
    records.dedup_by(|later, earlier| later.key == earlier.key);
}

fn print_records(records: &Vec<Record>, out: &mut Out, layout: Layout) {
    layout.enclose(out, *b"{}", |out| {
        for record in records {
            address_record::print(out, record);
            out.byte(b',');
        }
    });
}
