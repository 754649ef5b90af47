//! Defines the record of one operation.

use std::net::IpAddr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::codec::read_address;
use crate::host::alters_terminal;
use crate::ipam::{Attachment, Holder};

/// One operation: a CNI call, or a command that changed the state. A call fills it on the way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperationRecord {
    /// When it ended: RFC 3339, with the local offset.
    pub time: String,
    /// ADD, DEL, CHECK, GC, or the name of the command.
    pub verb: String,
    /// Whom it was for.
    #[serde(flatten)]
    pub holder: Holder,
    /// The addresses that were allocated or released.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "valid_addresses"
    )]
    pub addresses: Vec<IpAddr>,
    /// The error code; 0 for success.
    pub code: u32,
    /// The error message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub msg: String,
    /// How long it took.
    pub microseconds: u64,
    /// How much of that it waited for the lock on the state.
    #[serde(skip_serializing_if = "is_default")]
    pub lock_microseconds: u64,
    /// How many addresses were reclaimed from dead holders.
    #[serde(skip_serializing_if = "is_default")]
    pub reclaimed: u64,
    /// The addresses that a reclaim, a GC or a command took from other holders than the container
    /// of this record.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub freed: Vec<FreedAddress>,
    /// Whether a query of the source failed.
    #[serde(skip_serializing_if = "is_default")]
    pub refresh_failed: bool,
    /// The operator who typed the command; `None` for a CNI call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// An address that was taken from its holder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FreedAddress {
    /// The address; `None` where another program wrote something else.
    #[serde(deserialize_with = "valid_address")]
    pub address: Option<IpAddr>,
    /// Its former holder: the container and the pod, as a GC may free 256 addresses at once.
    #[serde(flatten)]
    pub holder: Holder,
}

impl FreedAddress {
    /// Describes an address that its holder loses.
    pub fn new(address: IpAddr, holder: &Holder) -> FreedAddress {
        FreedAddress {
            address: Some(address),
            holder: Holder {
                pod: holder.pod.clone(),
                ..Holder::from_container_id(holder.container_id())
            },
        }
    }

    fn truncated(self) -> FreedAddress {
        FreedAddress {
            holder: truncate_holder(self.holder),
            ..self
        }
    }
}

/// The most bytes of a name.
const NAME: usize = 64;
/// The most bytes of a pod's name and of a message.
const SENTENCE: usize = 128;
/// The most addresses in [`OperationRecord::addresses`].
const ADDRESSES: usize = 4;
/// The most addresses in [`OperationRecord::freed`]. A node has 250 pods at most.
pub(super) const MOST_FREED: usize = 256;

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The addresses of a list of strings, without those that are not addresses.
fn valid_addresses<'de, D: Deserializer<'de>>(json: D) -> Result<Vec<IpAddr>, D::Error> {
    let texts = Vec::<String>::deserialize(json)?;
    Ok(texts.iter().filter_map(|text| read_address(text)).collect())
}

/// An address, or `None` for anything else.
fn valid_address<'de, D: Deserializer<'de>>(json: D) -> Result<Option<IpAddr>, D::Error> {
    Ok(read_address(&String::deserialize(json)?))
}

impl OperationRecord {
    /// Whether it allocated, released or freed the address.
    pub fn touches(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
            || self
                .freed
                .iter()
                .any(|freed| freed.address == Some(address))
    }

    /// Every address that it allocated, released or freed, each once, in the order of the record.
    pub fn all_addresses(&self) -> Vec<IpAddr> {
        let mut all = self.addresses.clone();
        for address in self.freed.iter().filter_map(|freed| freed.address) {
            if !all.contains(&address) {
                all.push(address);
            }
        }
        all
    }

    /// Adds addresses that were reclaimed from dead holders.
    pub fn add_reclaimed(&mut self, freed: Vec<FreedAddress>) {
        let count = u64::try_from(freed.len()).unwrap_or(u64::MAX);
        self.reclaimed = self.reclaimed.saturating_add(count);
        self.freed.extend(freed);
        self.freed.sort_unstable_by_key(|entry| entry.address);
    }

    /// The record with texts and lists of bounded length, so that a full file holds enough records.
    pub(super) fn truncated(mut self) -> OperationRecord {
        self.addresses.truncate(ADDRESSES);
        self.freed.truncate(MOST_FREED);
        OperationRecord {
            verb: truncate(self.verb, NAME),
            holder: truncate_holder(self.holder),
            msg: truncate(self.msg, SENTENCE),
            by: self.by.map(|by| truncate(by, NAME)),
            freed: self
                .freed
                .into_iter()
                .map(FreedAddress::truncated)
                .collect(),
            ..self
        }
    }
}

/// The attachment and the pod, of bounded length. A path of a network namespace is left out, as it soon does not exist.
fn truncate_holder(holder: Holder) -> Holder {
    let attachment = holder.attachment;
    Holder {
        attachment: Attachment {
            network: truncate(attachment.network.into(), NAME).into(),
            container_id: truncate(attachment.container_id, NAME),
            if_name: truncate(attachment.if_name.into(), NAME).into(),
        },
        pod: holder.pod.map(|pod| truncate(pod, SENTENCE)),
        ..Holder::default()
    }
}

/// Returns at most `max` bytes of a text. Replaces the characters that JSON escapes, and those that
/// alter what a terminal shows.
fn truncate(text: String, max: usize) -> String {
    let is_plain = |b: u8| matches!(b, b' '..=b'~') && !matches!(b, b'"' | b'\\');
    if text.len() <= max && text.bytes().all(is_plain) {
        return text;
    }
    let mut short = String::with_capacity(text.len().min(max));
    for c in text.chars() {
        if short.len() + c.len_utf8() > max {
            break;
        }
        short.push(match c {
            '"' | '\\' => '\'',
            _ if alters_terminal(c) => ' ',
            _ => c,
        });
    }
    short
}
