//! Our own key beside `IPAM`, for what the original does not store. The original does not change the key when it writes. So its facts may
//! be older than the records under `IPAM`. Those records decide who holds an address.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::address_record;
use super::lock::MOST_COUNTED;
use super::original::{print_address, read_address};
use crate::codec::{
    self, Cursor, Layout, Out, ParseError, Print, Read, go_json, object, print_map,
};
use crate::ipam::{
    Attachment, Free, Held, Holder, Ipam, Moment, NetNs, Record, Space, Tombstone, Usage, by_text,
};

/// The key.
pub(super) const KEY: &str = "azure-vnet-ipam";

/// The format version of our key. Only releases are written to a state with a newer one. A state with an older one is compared with the
/// node.
pub const FORMAT: u64 = 4;

/// The value of `pending` for a state of another boot that was not compared with the node yet.
pub(super) const NEW_BOOT: &str = "newBoot";

/// The text before an address.
pub(super) const ENTRY: &str = "\n\t\t\t\t\t\"";

/// The text between an address and the moment of its release, in an entry that has only the release.
pub(super) const RELEASED: &str = "\": {\"released\": ";
/// The text between that moment and the path of the last holder's network namespace.
const NETNS: &str = ", \"netns\": {\"path\": ";
/// The texts before the numbers of that namespace.
const DEV: &str = ", \"dev\": ";
const INO: &str = ", \"ino\": ";
const COOKIE: &str = ", \"cookie\": ";

object! { exact lines
    /// The value of our key. `P` is the type of the pools: [`PoolFacts`] for reading, [`PoolRecords`] for printing.
    ///
    /// [`PoolRecords`]: super::ours::PoolRecords
    #[derive(Debug, Default)]
    pub(super) struct Ours<'de, P> {
        "format": format: u64,
        /// The boot that the moments belong to.
        "bootId" with(Read::read, Print::print): boot_id: Option<Cow<'de, str>>,
        /// `IPAM.TimeStamp` as this program last wrote it. Another value means that the original has written since.
        "timeStamp": time_stamp: Cow<'de, str>,
        "generation": generation: u64,
        /// What must be done before the state can be relied on: `reconcile` or `newBoot`.
        "pending": pending: Option<Cow<'de, str>>,
        /// The loss of a state that could not be rebuilt yet.
        "lost": loss: Option<Loss>,
        /// When the answer that was merged last arrived.
        "refreshed": refreshed: Option<u64>,
        /// The source of that answer.
        "source": source: Option<Cow<'de, str>>,
        "quarantineUntil": quarantine_until: Option<u64>,
        "tombstones": tombstones: Vec<Tombstone>,
        "omitted": omitted: Vec<RawOmitted<'de>>,
        /// The facts about addresses, by space and pool.
        "records": pools: P,
    }
}

/// The loss of a state that no backup could restore.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loss {
    /// How it is known.
    pub why: String,
    /// When it was first seen. Every ADD that ran then has ended [`QUARANTINE`] later.
    pub seen: Moment,
    /// Whether nothing shows that there ever was a state. The node and the source can then prove that there was none.
    pub may_be_fresh: bool,
}

object! { exact line Loss {
    "why": why,
    "seen": seen.0,
} }

/// How long after a loss an ADD may still configure an address that no record has.
pub const QUARANTINE: Duration = Duration::from_secs(30);

object! { exact line Tombstone {
    "network": attachment.network,
    "id": attachment.container_id,
    "ifName": attachment.if_name,
    "at": at.0,
} }

object! { exact line
    /// A released address that the source does not list at present.
    #[derive(Debug, Default)]
    pub(super) struct RawOmitted<'de> {
        "address" with(read_address, print_address): address: Option<IpAddr>,
        ..facts: Facts<'de>
    }
}

/// The entries of a pool.
type AddressFacts<'de> = Vec<(IpAddr, Facts<'de>)>;

/// The pools as they are read.
#[derive(Debug, Default)]
pub(super) struct PoolFacts<'de> {
    /// The addresses. The most common entry has only the release of a free address and its last namespace. It is put into its record at
    /// once. [`judge_moments`](super::apply::judge_moments) checks it later.
    pub ipam: Ipam,
    /// The other entries, by space and pool.
    pub facts: Vec<(String, String, AddressFacts<'de>)>,
}

object! { exact line
    /// The facts about an address.
    #[derive(Debug, Default)]
    pub(super) struct Facts<'de> {
        ..holder: RawHolder<'de>,
        "generation": generation: Option<u64>,
        "since": since: Option<u64>,
        "suspect": suspect: Option<u64>,
        "unlistedSince": unlisted_since: Option<u64>,
        /// When a free address was released. `netns` is then that of its last holder.
        "released": released: Option<u64>,
        "onHost": on_host: bool,
    }
}

object! { exact line
    /// A holder, without its number.
    #[derive(Debug, Default)]
    pub(super) struct RawHolder<'de> {
        /// The container ID; empty if the holder is unknown.
        "id": id: Option<Cow<'de, str>>,
        "network": network: Option<Cow<'de, str>>,
        "ifName": if_name: Option<Cow<'de, str>>,
        "pod": pod: Option<Cow<'de, str>>,
        "netns": netns: Option<RawNetNs<'de>>,
        "kept": is_kept: bool,
    }
}

object! { exact line
    #[derive(Debug, Default)]
    pub(super) struct RawNetNs<'de> {
        "path": path: Cow<'de, str>,
        "dev": dev: Option<u64>,
        "ino": ino: Option<u64>,
        "cookie": cookie: Option<u64>,
    }
}

impl<P> Ours<'_, P> {
    /// Checks the format version and the number of the save.
    ///
    /// # Errors
    /// No version of this program wrote such a key.
    pub fn check(&self) -> Result<(), ParseError> {
        if self.format != FORMAT {
            return Err(format!("format {} is unknown", self.format));
        }
        if self.generation > MOST_COUNTED {
            return Err(format!("generation {} is implausible", self.generation));
        }
        Ok(())
    }
}

impl<'de> Read<'de> for PoolFacts<'de> {
    fn read(&mut self, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        json.object(&mut |space_name, json| {
            let mut space = self.ipam.spaces.get_mut(space_name);
            json.object(&mut |name, json| {
                let pool = space.as_mut().and_then(|space| space.pools.get_mut(name));
                let records = pool.map(|pool| &mut *pool.records).unwrap_or_default();
                let facts = read_pool(records, json)?;
                self.facts
                    .push((space_name.to_owned(), name.to_owned(), facts));
                Ok(())
            })
        })
    }
}

/// Reads the entries of a pool. Returns those that have more than a release.
fn read_pool<'de>(
    records: &mut [Record],
    json: &mut Cursor<'de>,
) -> Result<AddressFacts<'de>, ParseError> {
    let mut records = InOrder::new(records);
    let mut facts = Vec::new();
    json.members(&mut |json| {
        if let Some((address, at, last_netns)) = json.attempt(only_released) {
            if let Some(record) = records.find(&address)
                && let Usage::Free(free) = &mut record.usage
            {
                free.released = Some(Moment(at));
                free.last_netns = last_netns;
            }
            return Ok(());
        }
        let key = json.key()?;
        let address =
            codec::read_address(&key).ok_or_else(|| format!("{key:?} is not an address"))?;
        let mut found = Facts::default();
        found.read(json)?;
        facts.push((address, found));
        Ok(())
    })?;
    Ok(facts)
}

/// How many records are compared one by one before a binary search.
const NEAR: usize = 4;

/// Finds records by keys that come in order.
pub(super) struct InOrder<'a> {
    records: &'a mut [Record],
    /// The position after the last record found.
    next: usize,
}

impl<'a> InOrder<'a> {
    pub fn new(records: &'a mut [Record]) -> Self {
        InOrder { records, next: 0 }
    }

    pub fn find(&mut self, key: &IpAddr) -> Option<&mut Record> {
        let rest = self.records.get(self.next..)?;
        let place = match rest.iter().take(NEAR).position(|r| r.key == *key) {
            Some(further) => self.next + further,
            None => self
                .records
                .binary_search_by(|r| by_text(&r.key, key))
                .ok()?,
        };
        self.next = place + 1;
        self.records.get_mut(place)
    }
}

/// Reads an entry that has only a release, in the usual layout. Returns `None` for any other entry.
fn only_released(json: &mut Cursor<'_>) -> Option<(IpAddr, u64, Option<NetNs>)> {
    json.literal(ENTRY).then_some(())?;
    let address = address_record::leading(json)?;
    json.literal(RELEASED).then_some(())?;
    let at = json.unsigned().ok()?;
    let mut last_netns = None;
    if json.literal(NETNS) {
        last_netns = Some(usual_netns(json)?.to_netns(true));
    }
    json.literal("}").then_some((address, at, last_netns))
}

/// Reads a network namespace in the usual layout, from its path on. Reading it member by member took a sixth of the instructions of an ADD,
/// if all addresses were released in the last 30 s.
fn usual_netns<'de>(json: &mut Cursor<'de>) -> Option<RawNetNs<'de>> {
    let path = json.string().ok()?;
    let mut number = |name| json.literal(name).then(|| json.unsigned().ok()).flatten();
    let netns = RawNetNs {
        path,
        dev: number(DEV),
        ino: number(INO),
        cookie: number(COOKIE),
    };
    json.literal("}").then_some(netns)
}

/// Appends a network namespace as [`usual_netns`] reads it.
fn print_usual_netns(out: &mut Out, netns: &NetNs) {
    go_json::string(out, &netns.path);
    let RawNetNs {
        dev, ino, cookie, ..
    } = raw_netns(netns);
    for (name, number) in [(DEV, dev), (INO, ino), (COOKIE, cookie)] {
        if let Some(number) = number {
            out.literal(name);
            go_json::number(out, number);
        }
    }
    out.byte(b'}');
}

/// The records of all pools. Those without facts are not printed.
pub(super) struct PoolRecords<'a>(pub &'a BTreeMap<String, Space>);

impl Print for PoolRecords<'_> {
    fn print(&self, out: &mut Out, layout: Layout) {
        print_map(self.0, out, layout, |space, out, layout| {
            print_map(&space.pools, out, layout, |pool, out, layout| {
                layout.enclose(out, *b"{}", |out| {
                    for record in &pool.records {
                        print_entry(out, record);
                    }
                });
            });
        });
    }
}

fn print_entry(out: &mut Out, record: &Record) {
    let key = |out: &mut Out| {
        out.literal(ENTRY);
        go_json::bare_address(out, record.key);
    };
    let facts = match &record.usage {
        Usage::Free(Free {
            released: None,
            on_host: false,
            ..
        }) => return,
        // The most common entry.
        Usage::Free(Free {
            released: Some(at),
            last_netns,
            on_host: false,
            ..
        }) => {
            key(out);
            out.literal(RELEASED);
            go_json::number(out, at.0);
            if let Some(netns) = last_netns {
                out.literal(NETNS);
                print_usual_netns(out, netns);
            }
            return out.literal("},");
        }
        Usage::Free(free) => free_facts(free),
        Usage::Held(held) => held_facts(held),
    };
    key(out);
    out.literal("\": ");
    facts.print(out, Layout::Line);
    out.byte(b',');
}

pub(super) fn free_facts(free: &Free) -> Facts<'_> {
    Facts {
        holder: RawHolder {
            netns: free.last_netns.as_ref().map(raw_netns),
            ..RawHolder::default()
        },
        released: free.released.map(|at| at.0),
        on_host: free.on_host,
        ..Facts::default()
    }
}

fn held_facts(held: &Held) -> Facts<'_> {
    Facts {
        holder: raw_holder(&held.holder),
        generation: held.holder.has_interface().then_some(held.holder.number),
        since: Some(held.since.0),
        suspect: held.suspect.map(|at| at.0),
        unlisted_since: held.unlisted.map(|at| at.0),
        ..Facts::default()
    }
}

fn raw_holder(holder: &Holder) -> RawHolder<'_> {
    let Attachment {
        network,
        container_id,
        if_name,
    } = &holder.attachment;
    let has_interface = holder.has_interface();
    RawHolder {
        id: Some(container_id.into()),
        network: has_interface.then(|| network.as_str().into()),
        if_name: has_interface.then(|| if_name.as_str().into()),
        pod: holder.pod.as_deref().map(Cow::Borrowed),
        netns: holder.netns.as_ref().map(raw_netns),
        is_kept: holder.is_kept,
    }
}

fn raw_netns(netns: &NetNs) -> RawNetNs<'_> {
    RawNetNs {
        path: Cow::Borrowed(&netns.path),
        dev: netns.id.map(|(dev, _)| dev),
        ino: netns.id.map(|(_, ino)| ino),
        cookie: netns.cookie,
    }
}
