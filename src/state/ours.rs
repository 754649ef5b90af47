//! Our own key beside `IPAM`: what the original has no place for. It keeps the key untouched when it writes, so everything
//! here may be older than what stands under `IPAM`, which is the authority on who holds what.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use super::original::Original;
use crate::anycase::{self, Cursor, Members, Wrong};
use crate::ipam::{
    Attachment, Claim, Free, Held, Moment, NetNs, Record, Tombstone, Usage, by_text, leading_v4,
    read_address,
};

/// The key.
pub(super) const KEY: &str = "azure-vnet-ipam";

/// The version of what stands under the key. A state of a newer one is not touched, but for releases.
///
/// Format 1 knew no suspects, tombstones, quarantine and marks; what it has means the same, so it is read as it is and written
/// as the newest.
pub const FORMAT: u64 = 2;

/// What stands before an address.
pub(super) const ENTRY: &str = "\n\t\t\t\t\t\"";

/// What stands between the address and the moment where that is all there is.
pub(super) const RELEASED: &str = "\": {\"released\": ";

/// So many records are looked through for the next one before they are searched.
const NEAR: usize = 4;

/// The oldest format that is read.
const OLDEST: u64 = 1;

/// What stands under the key.
#[derive(Debug, Default)]
pub(super) struct Ours<'de> {
    pub format: u64,
    /// The boot that the moments belong to.
    pub boot_id: Option<String>,
    /// `IPAM.TimeStamp` as we last wrote it: another one there means that the original has written since.
    pub time_stamp: String,
    pub generation: u64,
    /// A look at what the node has in use is still owed, as the state may have been started from nothing.
    pub look_owed: bool,
    quarantine_until: Option<u64>,
    tombstones: Vec<SaidTombstone>,
    spaces: BTreeMap<String, SpaceFacts<'de>>,
}

#[derive(Debug, Default)]
struct SaidTombstone {
    attachment: Attachment,
    at: u64,
}

/// Of a space, by pool.
#[derive(Debug, Default)]
struct SpaceFacts<'de>(BTreeMap<String, PoolFacts<'de>>);

/// Of a pool, by address.
#[derive(Debug, Default)]
struct PoolFacts<'de> {
    /// All that is known of a free address is mostly when it was released.
    released: Vec<(IpAddr, u64)>,
    /// Of the others.
    facts: Vec<(IpAddr, Facts<'de>)>,
}

/// Of an address.
#[derive(Debug, Default)]
struct Facts<'de> {
    /// The container ID of the holder; nothing for a free address.
    id: Option<Cow<'de, str>>,
    network: Option<Cow<'de, str>>,
    if_name: Option<Cow<'de, str>>,
    pod: Option<Cow<'de, str>>,
    netns: Option<SaidNetNs<'de>>,
    since: Option<u64>,
    generation: u64,
    unlisted: bool,
    suspect: Option<u64>,
    /// When a free address was released.
    released: Option<u64>,
    wired: bool,
}

#[derive(Debug, Default)]
struct SaidNetNs<'de> {
    path: Cow<'de, str>,
    dev: Option<u64>,
    ino: Option<u64>,
}

impl<'de> Members<'de> for Ours<'de> {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), Wrong> {
        match key {
            "format" => anycase::value(json, &mut self.format),
            "bootId" => anycase::value(json, &mut self.boot_id),
            "timeStamp" => anycase::value(json, &mut self.time_stamp),
            "generation" if self.is_known() => anycase::value(json, &mut self.generation),
            // What a newer version keeps under these names need not look like ours.
            _ if !self.is_known() => json.skip(),
            "lookOwed" => anycase::value(json, &mut self.look_owed),
            "quarantineUntil" => anycase::value(json, &mut self.quarantine_until),
            "tombstones" => anycase::list(json, &mut self.tombstones),
            "records" => anycase::entries(json, &mut self.spaces),
            _ => json.skip(),
        }
    }
}

impl<'de> Members<'de> for SaidTombstone {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), Wrong> {
        match key {
            "network" => anycase::value(json, &mut self.attachment.network),
            "id" => anycase::value(json, &mut self.attachment.container_id),
            "ifName" => anycase::value(json, &mut self.attachment.if_name),
            "at" => anycase::value(json, &mut self.at),
            _ => json.skip(),
        }
    }
}

impl<'de> Members<'de> for SpaceFacts<'de> {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), Wrong> {
        self.0.insert(key.to_owned(), PoolFacts::read(json)?);
        Ok(())
    }
}

impl<'de> PoolFacts<'de> {
    fn read(json: &mut Cursor<'de>) -> Result<Self, Wrong> {
        let (mut released, mut facts) = (Vec::new(), Vec::new());
        json.object_of(
            |json| {
                released.push(only_released(json)?);
                Some(())
            },
            |key, json| {
                let address = read_address(key).ok_or_else(|| format!("{key:?} is no address"))?;
                // They are large, and so are filled in their place.
                facts.push((address, Facts::default()));
                match facts.last_mut() {
                    Some((_, found)) => anycase::object(json, found),
                    None => json.skip(),
                }
            },
            |()| (),
        )?;
        Ok(PoolFacts { released, facts })
    }
}

/// Reads an entry that tells nothing but when an address was released, if it is laid out as usual, and of IPv4.
fn only_released(json: &mut Cursor<'_>) -> Option<(IpAddr, u64)> {
    json.literal(ENTRY).then_some(())?;
    let address = json.leading(leading_v4)?;
    json.literal(RELEASED).then_some(())?;
    let at = json.unsigned().ok()?;
    json.literal("}").then_some((address.into(), at))
}

impl<'de> Members<'de> for Facts<'de> {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), Wrong> {
        match key {
            "id" => anycase::value(json, &mut self.id),
            "network" => anycase::value(json, &mut self.network),
            "ifName" => anycase::value(json, &mut self.if_name),
            "pod" => anycase::value(json, &mut self.pod),
            "netns" => anycase::object(json, self.netns.get_or_insert_default()),
            "since" => anycase::value(json, &mut self.since),
            "generation" => anycase::value(json, &mut self.generation),
            "unlisted" => anycase::value(json, &mut self.unlisted),
            "suspect" => anycase::value(json, &mut self.suspect),
            "released" => anycase::value(json, &mut self.released),
            "wired" => anycase::value(json, &mut self.wired),
            _ => json.skip(),
        }
    }
}

impl<'de> Members<'de> for SaidNetNs<'de> {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), Wrong> {
        match key {
            "path" => anycase::value(json, &mut self.path),
            "dev" => anycase::value(json, &mut self.dev),
            "ino" => anycase::value(json, &mut self.ino),
            _ => json.skip(),
        }
    }
}

/// How far the moments in our key can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trust {
    /// They are of the present boot.
    pub same_boot: bool,
    /// The original has written since.
    pub overtaken: bool,
    /// Now, which stands in where a moment is needed and none is to be trusted.
    pub now: Moment,
}

impl Trust {
    /// A moment that means something, as the clock has not started anew.
    fn clock(self, moment: Option<u64>) -> Option<Moment> {
        moment.filter(|_| self.same_boot).map(Moment)
    }

    /// A moment from which a record has been the same.
    fn unbroken(self, moment: Option<u64>) -> Option<Moment> {
        self.clock(moment).filter(|_| !self.overtaken)
    }
}

impl Ours<'_> {
    /// Whether the format is one that is read; the format comes first in the text.
    pub fn is_known(&self) -> bool {
        (OLDEST..=FORMAT).contains(&self.format)
    }

    /// Adds the facts to the records that they fit. An entry whose container ID no longer fits its record is void; one that
    /// says held over a record that is free means that the original released it, and counts as released now.
    pub fn join(self, original: &mut Original, trust: Trust) {
        let ipam = &mut original.ipam;
        ipam.generation = self.generation;
        ipam.quarantine = trust.clock(self.quarantine_until);
        if trust.same_boot {
            let tombstones = self.tombstones.into_iter();
            ipam.tombstones = tombstones
                .map(|t| Tombstone {
                    attachment: t.attachment,
                    at: Moment(t.at),
                })
                .collect();
        }
        let mut names = Names::default();
        for (space, pools) in self.spaces {
            let Some(space) = ipam.spaces.get_mut(&space) else {
                continue;
            };
            for (pool, facts) in pools.0 {
                let Some(pool) = space.pools.get_mut(&pool) else {
                    continue;
                };
                let mut records = InOrder::of(&mut pool.records);
                for (address, at) in facts.released {
                    if let Some(record) = records.find(&address)
                        && let Usage::Free(free) = &mut record.usage
                    {
                        free.released = trust.clock(Some(at));
                    }
                }
                let mut records = InOrder::of(&mut pool.records);
                for (address, facts) in facts.facts {
                    let Some(record) = records.find(&address) else {
                        continue;
                    };
                    match &mut record.usage {
                        Usage::Held(held) => {
                            facts.join_held(held, trust, self.generation, &mut names)
                        }
                        Usage::Free(free) => facts.join_free(free, trust),
                    }
                }
            }
        }
    }
}

/// Looks up records, where those that are looked for come in order too.
struct InOrder<'a> {
    records: &'a mut [Record],
    /// Those before this were passed.
    next: usize,
}

impl<'a> InOrder<'a> {
    fn of(records: &'a mut [Record]) -> Self {
        InOrder { records, next: 0 }
    }

    fn find(&mut self, key: &IpAddr) -> Option<&mut Record> {
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

/// The names that the last claim had. Those of the next are mostly the same, and need not be kept twice.
#[derive(Default)]
struct Names {
    network: Option<Rc<str>>,
    if_name: Option<Rc<str>>,
}

fn shared(last: &mut Option<Rc<str>>, name: &str) -> Rc<str> {
    match last {
        Some(last) if **last == *name => Rc::clone(last),
        _ => Rc::clone(last.insert(name.into())),
    }
}

impl Facts<'_> {
    fn join_held(self, held: &mut Held, trust: Trust, generation: u64, names: &mut Names) {
        if self.id.as_deref().unwrap_or_default() != &*held.container_id {
            return;
        }
        held.unlisted = self.unlisted;
        if let Some(since) = trust.unbroken(self.since) {
            held.since = since;
        }
        held.suspect = trust.unbroken(self.suspect);
        let (Some(network), Some(if_name)) = (self.network, self.if_name) else {
            return;
        };
        if held.container_id.is_empty() {
            return;
        }
        let netns = self.netns.map(|n| NetNs {
            path: n.path.into(),
            id: n.dev.zip(n.ino),
        });
        let generation = self.generation.min(generation);
        held.claim = Some(Box::new(Claim {
            network: shared(&mut names.network, &network),
            if_name: shared(&mut names.if_name, &if_name),
            pod: self.pod.map(Into::into),
            netns,
            generation,
        }));
    }

    fn join_free(self, free: &mut Free, trust: Trust) {
        free.wired = self.wired;
        free.released = match self.id {
            Some(_) => Some(trust.now),
            None => trust.clock(self.released),
        };
    }
}
