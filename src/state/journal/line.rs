//! A line of the journal: number, checksum, and JSON of what happened to one holder.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::ipam::{Change, ChangeKind, Claim, Held, JournalEntry, Moment, NetNs};

/// The JSON of a line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    kind: String,
    at: u64,
    generation: u64,
    #[serde(default)]
    addresses: Vec<(IpAddr, u64)>,
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    if_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    netns: Option<LineNetNs>,
}

#[derive(Serialize, Deserialize)]
struct LineNetNs {
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dev: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ino: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    fn new(entry: &JournalEntry) -> Line {
        let kind = KINDS.iter().find(|(kind, _)| *kind == entry.kind);
        let claim = entry.holder.claim.as_deref();
        let netns = claim.and_then(|claim| claim.netns.as_ref());
        Line {
            kind: kind.map_or_else(String::new, |(_, word)| (*word).to_owned()),
            at: entry.at.0,
            generation: entry.generation,
            addresses: entry.addresses.clone(),
            id: entry.holder.container_id.to_string(),
            network: claim.map(|claim| claim.network.to_string()),
            if_name: claim.map(|claim| claim.if_name.to_string()),
            pod: claim.and_then(|claim| claim.pod.as_deref().map(str::to_owned)),
            netns: netns.map(|netns| LineNetNs {
                path: netns.path.to_string(),
                dev: netns.id.map(|(dev, _)| dev),
                ino: netns.id.map(|(_, ino)| ino),
                cookie: netns.cookie,
            }),
        }
    }

    fn entry(self, sequence: u64) -> Option<JournalEntry> {
        let (kind, _) = KINDS.iter().find(|(_, word)| *word == self.kind)?;
        let netns = self.netns.map(|netns| NetNs {
            path: netns.path.into(),
            id: netns.dev.zip(netns.ino),
            cookie: netns.cookie,
        });
        let claim = self.network.zip(self.if_name).map(|(network, if_name)| {
            Box::new(Claim {
                network: network.into(),
                if_name: if_name.into(),
                pod: self.pod.map(Into::into),
                netns,
                generation: 0,
            })
        });
        Some(JournalEntry {
            sequence,
            kind: *kind,
            at: Moment(self.at),
            generation: self.generation,
            addresses: self.addresses,
            holder: Held {
                container_id: self.id.into(),
                claim,
                ..Held::default()
            },
        })
    }
}

/// FNV-1a: tells a torn or damaged line from a whole one. It is no protection against anybody who can write the file.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

pub(super) fn print_line(out: &mut String, entry: &JournalEntry) {
    let json = serde_json::to_string(&Line::new(entry)).unwrap_or_default();
    let sum = checksum(&format!("{} {json}", entry.sequence));
    *out += &format!("{} {sum:016x} {json}\n", entry.sequence);
}

pub(super) fn parse_line(line: &str) -> Option<JournalEntry> {
    let (sequence, rest) = line.split_once(' ')?;
    let (sum, json) = rest.split_once(' ')?;
    let sequence: u64 = sequence.parse().ok()?;
    let is_whole = u64::from_str_radix(sum, 16) == Ok(checksum(&format!("{sequence} {json}")));
    let line: Line = serde_json::from_str(json).ok().filter(|_| is_whole)?;
    line.entry(sequence)
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
        let of = held.claim.as_ref().map_or(0, |claim| claim.generation);
        let attachment = held.attachment();
        if let Some(last) = entries.last_mut()
            && last.kind == kind
            && attachment.is_some()
            && last.holder.attachment() == attachment
        {
            last.addresses.push((address, of));
            continue;
        }
        entries.push(JournalEntry {
            sequence: first + entries.len() as u64,
            kind,
            at: if kind.holds() { held.since } else { now },
            generation,
            addresses: vec![(address, of)],
            holder: held,
        });
    }
    entries
}
