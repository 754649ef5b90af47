//! A line of the journal: a number, a checksum, and an entry as JSON.

use std::net::IpAddr;

use serde::Deserialize;

use crate::ipam::{Change, ChangeKind, Claim, JournalEntry, Moment, NetNs, Owner};
use crate::state::go_json;
use crate::state::out::Out;
use crate::state::position::MOST_COUNTED;
use crate::state::print_ours::print_claim;

/// The JSON of a line.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    kind: String,
    at: u64,
    generation: u64,
    #[serde(default)]
    addresses: Vec<(IpAddr, u64)>,
    id: String,
    #[serde(default)]
    network: Option<String>,
    #[serde(default)]
    if_name: Option<String>,
    #[serde(default)]
    pod: Option<String>,
    #[serde(default)]
    netns: Option<LineNetNs>,
}

#[derive(Deserialize)]
struct LineNetNs {
    path: String,
    #[serde(default)]
    dev: Option<u64>,
    #[serde(default)]
    ino: Option<u64>,
    #[serde(default)]
    cookie: Option<u64>,
}

pub(super) const KINDS: [(ChangeKind, &str); 7] = [
    (ChangeKind::Granted, "grant"),
    (ChangeKind::Renewed, "renewal"),
    (ChangeKind::Found, "found"),
    (ChangeKind::Released, "release"),
    (ChangeKind::GivenBack, "give-back"),
    (ChangeKind::Reclaimed, "reclaim"),
    (ChangeKind::Collected, "collected"),
];

impl Line {
    fn entry(self, sequence: u64) -> Option<JournalEntry> {
        let (kind, _) = KINDS.iter().find(|(_, word)| *word == self.kind)?;
        let netns = self.netns.map(|netns| NetNs {
            path: netns.path.into(),
            id: netns.dev.zip(netns.ino),
            cookie: netns.cookie,
        });
        let owner = match self.network.zip(self.if_name) {
            Some((network, if_name)) if !self.id.is_empty() => Owner::Attachment(Box::new(Claim {
                container_id: self.id.into(),
                network: network.into(),
                if_name: if_name.into(),
                pod: self.pod.map(Into::into),
                netns,
                generation: 0,
            })),
            _ => Owner::from_container_id(&self.id),
        };
        Some(JournalEntry {
            sequence,
            kind: *kind,
            at: Moment(self.at),
            generation: self.generation,
            addresses: self.addresses,
            owner,
        })
    }
}

const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues an FNV-1a checksum. It detects torn and damaged lines, and protects against nobody who can write the file.
fn checksum(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Appends the line of an entry. Without serde, because every ADD does it.
pub(super) fn print_line(out: &mut Out, entry: &JournalEntry) {
    let mut json = Out::default();
    print_json(&mut json, entry);
    let json = json.into_bytes();
    let mut summed = Out::default();
    go_json::number(&mut summed, entry.sequence);
    summed.byte(b' ');
    let sum = checksum(checksum(BASIS, &summed.into_bytes()), &json);
    go_json::number(out, entry.sequence);
    out.byte(b' ');
    out.text(&format!("{sum:016x}"));
    out.byte(b' ');
    out.text(std::str::from_utf8(&json).unwrap_or_default());
    out.byte(b'\n');
}

fn print_json(out: &mut Out, entry: &JournalEntry) {
    let kind = KINDS.iter().find(|(kind, _)| *kind == entry.kind);
    out.literal("{\"kind\":");
    go_json::string(out, kind.map_or("", |(_, word)| word));
    out.literal(",\"at\":");
    go_json::number(out, entry.at.0);
    out.literal(",\"generation\":");
    go_json::number(out, entry.generation);
    out.literal(",\"addresses\":[");
    for (n, (address, of)) in entry.addresses.iter().enumerate() {
        out.literal(if n == 0 { "[\"" } else { ",[\"" });
        go_json::bare_address(out, *address);
        out.literal("\",");
        go_json::number(out, *of);
        out.byte(b']');
    }
    out.literal("],\"id\":");
    go_json::string(out, entry.owner.container_id().unwrap_or_default());
    if let Some(claim) = entry.owner.claim() {
        print_claim(out, claim);
    }
    out.byte(b'}');
}

pub(super) fn parse_line(line: &str) -> Option<JournalEntry> {
    let (sequence, rest) = line.split_once(' ')?;
    let (sum, json) = rest.split_once(' ')?;
    let sequence: u64 = sequence.parse().ok()?;
    let is_whole = u64::from_str_radix(sum, 16)
        == Ok(checksum(BASIS, format!("{sequence} {json}").as_bytes()));
    let line: Line = serde_json::from_str(json).ok().filter(|_| is_whole)?;
    let entry = line.entry(sequence)?;
    // Implausible numbers are damage.
    let granted = entry.addresses.iter().map(|(_, of)| *of);
    let most = granted.fold(sequence.max(entry.generation), u64::max);
    (most <= MOST_COUNTED).then_some(entry)
}

/// The entries for changes of one call: neighbours of one holder and kind in one.
pub(super) fn entries(
    changes: Vec<Change>,
    first: u64,
    generation: u64,
    now: Moment,
) -> Vec<JournalEntry> {
    let mut entries: Vec<JournalEntry> = Vec::new();
    for Change {
        kind,
        address,
        held,
    } in changes
    {
        let of = held.owner.generation().unwrap_or(0);
        let attachment = held.owner.attachment();
        if let Some(last) = entries.last_mut()
            && last.kind == kind
            && attachment.is_some()
            && last.owner.attachment() == attachment
        {
            last.addresses.push((address, of));
            continue;
        }
        entries.push(JournalEntry {
            sequence: first + entries.len() as u64,
            kind,
            at: if kind.is_held_after() {
                held.since
            } else {
                now
            },
            generation,
            addresses: vec![(address, of)],
            owner: held.owner,
        });
    }
    entries
}
