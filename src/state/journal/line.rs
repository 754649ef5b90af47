//! The lines of the journal, one for each save.

use std::net::IpAddr;

use crate::codec::{self, BASIS, Layout, Out, Print, Read, checksum, object};
use crate::ipam::{Change, Claim, Moment, Owner};
use crate::state::lock::DIGITS;
use crate::state::original::{print_address, read_address};
use crate::state::ours::{RawOwner, raw_owner};

/// The length of the end of the base and of each line: a space, the generation, a line feed.
pub const END: usize = DIGITS + 2;

/// A save.
pub struct Line {
    /// Its generation.
    pub generation: u64,
    /// The generation before it.
    pub before: u64,
    /// What it changed.
    pub changes: Vec<Change>,
}

impl Line {
    /// Parses a line; `None` where it is torn or damaged.
    pub fn parse(line: &str) -> Option<Line> {
        let (line, _) = line.split_at_checked(line.len().checked_sub(END)?)?;
        let mut fields = line.splitn(4, ' ');
        let generation: u64 = fields.next()?.parse().ok()?;
        let before: u64 = fields.next()?.parse().ok()?;
        let checksum = u64::from_str_radix(fields.next()?, 16).ok()?;
        let json = fields.next()?;
        let is_whole = checksum == line_checksum(generation, before, json.as_bytes());
        is_whole.then_some(())?;
        let mut changes: Vec<RawChange<'_>> = Vec::new();
        codec::document(json, |json| changes.read(json)).ok()?;
        Some(Line {
            generation,
            before,
            changes: changes.into_iter().map(RawChange::into_change).collect(),
        })
    }
}

/// The line of a save.
pub fn print_line(generation: u64, before: u64, changes: &[Change]) -> Vec<u8> {
    let changes = changes.iter().filter(|change| !change.addresses.is_empty());
    let changes: Vec<RawChange<'_>> = changes.map(RawChange::from_change).collect();
    let mut out = Out::default();
    changes.print(&mut out, Layout::Line);
    let json = out.into_bytes();
    let checksum = line_checksum(generation, before, &json);
    let mut line = format!("{generation} {before} {checksum:016x} ").into_bytes();
    line.extend_from_slice(&json);
    line.extend_from_slice(print_end(generation).as_bytes());
    line
}

/// The end of the base or of a line: its generation in fixed width.
pub fn print_end(generation: u64) -> String {
    format!(" {generation:0DIGITS$}\n")
}

/// The generation that such an end names.
pub fn parse_end(end: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(end).ok()?;
    let digits = digits.strip_prefix(' ')?.strip_suffix('\n')?;
    digits.parse().ok().filter(|_| digits.len() == DIGITS)
}

fn line_checksum(generation: u64, before: u64, json: &[u8]) -> u64 {
    let numbers = checksum(BASIS, &generation.to_le_bytes());
    checksum(checksum(numbers, &before.to_le_bytes()), json)
}

object! { exact line
    /// A change as JSON.
    #[derive(Default)]
    struct RawChange<'de> {
        "at": at: u64,
        "held" with(Read::read, Print::print): is_held: bool,
        "addresses": addresses: Vec<RawGrant>,
        ..owner: RawOwner<'de>
    }
}

object! { exact line
    #[derive(Default)]
    struct RawGrant {
        "address" with(read_address, print_address): address: Option<IpAddr>,
        "generation": generation: u64,
    }
}

impl RawChange<'_> {
    fn from_change(change: &Change) -> RawChange<'_> {
        let addresses = change.addresses.iter().map(|(address, of)| RawGrant {
            address: Some(*address),
            generation: *of,
        });
        RawChange {
            at: change.at.0,
            is_held: change.is_held,
            addresses: addresses.collect(),
            owner: raw_owner(&change.owner),
        }
    }

    fn into_change(self) -> Change {
        let RawOwner {
            id,
            network,
            if_name,
            pod,
            netns,
        } = self.owner;
        let id = id.unwrap_or_default();
        let owner = match network.zip(if_name) {
            Some((network, if_name)) if !id.is_empty() => Owner::Attachment(Box::new(Claim {
                container_id: id.into(),
                network: network.into(),
                if_name: if_name.into(),
                pod: pod.map(Into::into),
                netns: netns.map(|netns| netns.to_netns(true)),
                generation: 0,
            })),
            _ => Owner::from_container_id(&id),
        };
        let addresses = self.addresses.into_iter();
        Change {
            is_held: self.is_held,
            at: Moment(self.at),
            addresses: addresses
                .filter_map(|grant| Some((grant.address?, grant.generation)))
                .collect(),
            owner,
        }
    }
}
