//! Our own key beside `IPAM`: what the original has no place for. It keeps the key untouched when it writes, so everything
//! here may be older than what stands under `IPAM`, which is the authority on who holds what.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;

use serde::de::{Error, MapAccess};

use super::go_json;
use super::original::Original;
use crate::anycase::{self, Members};
use crate::ipam::{Claim, Free, Held, Moment, NetNs, Pool, Usage};

/// The key.
pub(super) const KEY: &str = "azure-vnet-ipam";

/// The version of what stands under the key. A state of a newer one is not touched, but for releases.
pub const FORMAT: u64 = 1;

/// What stands under the key.
#[derive(Debug, Default)]
pub(super) struct Ours {
    pub format: u64,
    /// The boot that the moments belong to.
    pub boot_id: Option<String>,
    /// `IPAM.TimeStamp` as we last wrote it: another one there means that the original has written since.
    pub time_stamp: String,
    pub generation: u64,
    spaces: BTreeMap<String, SpaceFacts>,
}

/// Of a space, by pool.
#[derive(Debug, Default)]
struct SpaceFacts(BTreeMap<String, PoolFacts>);

/// Of a pool, by address.
#[derive(Debug, Default)]
struct PoolFacts(Vec<(IpAddr, Facts)>);

/// Of an address.
#[derive(Debug, Default)]
struct Facts {
    /// The container ID of the holder; nothing for a free address.
    id: Option<Box<str>>,
    network: Option<Box<str>>,
    if_name: Option<Box<str>>,
    pod: Option<Box<str>>,
    netns: Option<SaidNetNs>,
    since: Option<u64>,
    generation: u64,
    unlisted: bool,
    /// When a free address was released.
    released: Option<u64>,
}

#[derive(Debug, Default)]
struct SaidNetNs {
    path: Box<str>,
    dev: Option<u64>,
    ino: Option<u64>,
}

impl Members for Ours {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "format" => anycase::value(map, &mut self.format),
            "bootId" => anycase::value(map, &mut self.boot_id),
            "timeStamp" => anycase::value(map, &mut self.time_stamp),
            "generation" => anycase::value(map, &mut self.generation),
            // What a newer version keeps here need not look like ours.
            "records" if self.format == FORMAT => anycase::entries(map, &mut self.spaces),
            _ => anycase::skip(map),
        }
    }
}

impl Members for SpaceFacts {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let mut pool = PoolFacts::default();
        anycase::object(map, &mut pool)?;
        self.0.insert(key.to_owned(), pool);
        Ok(())
    }
}

impl Members for PoolFacts {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let address = key.parse().map_err(A::Error::custom)?;
        let mut facts = Facts::default();
        anycase::object(map, &mut facts)?;
        self.0.push((address, facts));
        Ok(())
    }
}

impl Members for Facts {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let some = |text: &str| Ok(Some(text.into()));
        match key {
            "id" => anycase::text(map, &mut self.id, some),
            "network" => anycase::text(map, &mut self.network, some),
            "ifName" => anycase::text(map, &mut self.if_name, some),
            "pod" => anycase::text(map, &mut self.pod, some),
            "netns" => anycase::object(map, self.netns.get_or_insert_default()),
            "since" => anycase::value(map, &mut self.since),
            "generation" => anycase::value(map, &mut self.generation),
            "unlisted" => anycase::value(map, &mut self.unlisted),
            "released" => anycase::value(map, &mut self.released),
            _ => anycase::skip(map),
        }
    }
}

impl Members for SaidNetNs {
    fn member<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "path" => anycase::text(map, &mut self.path, |text| Ok(text.into())),
            "dev" => anycase::value(map, &mut self.dev),
            "ino" => anycase::value(map, &mut self.ino),
            _ => anycase::skip(map),
        }
    }
}

/// How far the moments in our key can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trust {
    /// They are of the present boot.
    pub same_boot: bool,
    /// Now, which stands in where a moment is needed and none is to be trusted.
    pub now: Moment,
}

impl Ours {
    /// Adds the facts to the records that they fit. An entry whose container ID no longer fits its record is void; one that
    /// says held over a record that is free means that the original released it, and counts as released now.
    pub fn join(self, original: &mut Original, trust: Trust) {
        original.ipam.generation = self.generation;
        for (space, pools) in self.spaces {
            let Some(space) = original.ipam.spaces.get_mut(&space) else {
                continue;
            };
            for (pool, facts) in pools.0 {
                let Some(pool) = space.pools.get_mut(&pool) else {
                    continue;
                };
                for (address, facts) in facts.0 {
                    let Some(record) = pool.record_mut(&address) else {
                        continue;
                    };
                    match &mut record.usage {
                        Usage::Held(held) => facts.join_held(held, trust, self.generation),
                        Usage::Free(free) => facts.join_free(free, trust),
                    }
                }
            }
        }
    }
}

impl Facts {
    fn join_held(self, held: &mut Held, trust: Trust, generation: u64) {
        if self.id.as_deref().unwrap_or_default() != &*held.container_id {
            return;
        }
        held.unlisted = self.unlisted;
        let (Some(network), Some(if_name)) = (self.network, self.if_name) else {
            return;
        };
        if held.container_id.is_empty() {
            return;
        }
        let since = self
            .since
            .filter(|_| trust.same_boot)
            .map_or(trust.now, Moment);
        let netns = self.netns.map(|n| NetNs {
            path: n.path,
            id: n.dev.zip(n.ino),
        });
        let generation = self.generation.min(generation);
        held.claim = Some(Box::new(Claim {
            network,
            if_name,
            pod: self.pod,
            netns,
            since,
            generation,
        }));
    }

    fn join_free(self, free: &mut Free, trust: Trust) {
        free.released = match self.id {
            Some(_) => Some(trust.now),
            None => self.released.filter(|_| trust.same_boot).map(Moment),
        };
    }
}

/// Appends our key's object, two tabs deep: an entry a line.
pub(super) fn print(out: &mut Vec<u8>, original: &Original, boot_id: Option<&str>) {
    // A Vec takes whatever is written to it.
    let _ = write!(out, "{{\n\t\t\"format\": {FORMAT},\n\t\t\"bootId\": ");
    match boot_id {
        Some(id) => go_json::string(out, id),
        None => out.extend(b"null"),
    }
    out.extend(b",\n\t\t\"timeStamp\": ");
    go_json::string(out, &original.time_stamp);
    let _ = write!(
        out,
        ",\n\t\t\"generation\": {},\n\t\t\"records\": ",
        original.ipam.generation
    );
    let mut spaces = Object::open(out, 2);
    for (name, space) in &original.ipam.spaces {
        spaces.name(out, name);
        let mut pools = Object::open(out, 3);
        for (name, pool) in &space.pools {
            pools.name(out, name);
            print_pool(out, pool);
        }
        pools.close(out);
    }
    spaces.close(out);
    out.extend(b"\n\t}");
}

fn print_pool(out: &mut Vec<u8>, pool: &Pool) {
    let mut object = Object::open(out, 4);
    for record in &pool.records {
        match &record.usage {
            Usage::Free(Free {
                released: Some(at), ..
            }) => {
                object.begin(out);
                let _ = write!(out, "\"{}\": {{\"released\": {}}}", record.key, at.0);
            }
            Usage::Held(held) if held.claim.is_some() || held.unlisted => {
                object.begin(out);
                let _ = write!(out, "\"{}\": ", record.key);
                print_held(out, held);
            }
            Usage::Free(_) | Usage::Held(_) => {}
        }
    }
    object.close(out);
}

fn print_held(out: &mut Vec<u8>, held: &Held) {
    out.extend(b"{\"id\": ");
    go_json::string(out, &held.container_id);
    if let Some(claim) = &held.claim {
        for (name, text) in [
            ("network", Some(&claim.network)),
            ("ifName", Some(&claim.if_name)),
            ("pod", claim.pod.as_ref()),
        ] {
            if let Some(text) = text {
                let _ = write!(out, ", \"{name}\": ");
                go_json::string(out, text);
            }
        }
        if let Some(netns) = &claim.netns {
            out.extend(b", \"netns\": {\"path\": ");
            go_json::string(out, &netns.path);
            if let Some((dev, ino)) = netns.id {
                let _ = write!(out, ", \"dev\": {dev}, \"ino\": {ino}");
            }
            out.push(b'}');
        }
        let _ = write!(
            out,
            ", \"since\": {}, \"generation\": {}",
            claim.since.0, claim.generation
        );
    }
    if held.unlisted {
        out.extend(b", \"unlisted\": true");
    }
    out.push(b'}');
}

/// An object with one member a line.
struct Object {
    depth: usize,
    empty: bool,
}

impl Object {
    fn open(out: &mut Vec<u8>, depth: usize) -> Object {
        out.push(b'{');
        Object { depth, empty: true }
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if !self.empty {
            out.push(b',');
        }
        self.empty = false;
        go_json::line(out, self.depth + 1);
    }

    fn name(&mut self, out: &mut Vec<u8>, name: &str) {
        self.begin(out);
        go_json::string(out, name);
        out.extend(b": ");
    }

    fn close(self, out: &mut Vec<u8>) {
        if !self.empty {
            go_json::line(out, self.depth);
        }
        out.push(b'}');
    }
}
