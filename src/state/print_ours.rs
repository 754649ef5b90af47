//! Writing our own key: an entry a line, so that people can read it too.

use std::net::IpAddr;

use super::go_json;
use super::original::Original;
use super::ours::{FORMAT, RELEASED};
use crate::ipam::{Free, Held, Pool, Tombstone, Usage, push_address};

/// Appends our key's object, two tabs deep: an entry a line.
pub(super) fn print_ours(
    out: &mut Vec<u8>,
    original: &Original,
    boot_id: Option<&str>,
    look_owed: bool,
) {
    let ipam = &original.ipam;
    out.extend(b"{\n\t\t\"format\": ");
    go_json::number(out, FORMAT);
    out.extend(b",\n\t\t\"bootId\": ");
    match boot_id {
        Some(id) => go_json::string(out, id),
        None => out.extend(b"null"),
    }
    out.extend(b",\n\t\t\"timeStamp\": ");
    go_json::string(out, &original.time_stamp);
    out.extend(b",\n\t\t\"generation\": ");
    go_json::number(out, ipam.generation);
    if look_owed {
        out.extend(b",\n\t\t\"lookOwed\": true");
    }
    if let Some(until) = ipam.quarantine {
        out.extend(b",\n\t\t\"quarantineUntil\": ");
        go_json::number(out, until.0);
    }
    print_tombstones(out, &ipam.tombstones);
    out.extend(b",\n\t\t\"records\": ");
    let mut spaces = Object::open(out, 2);
    for (name, space) in &ipam.spaces {
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

fn print_tombstones(out: &mut Vec<u8>, tombstones: &[Tombstone]) {
    for (n, Tombstone { attachment, at }) in tombstones.iter().enumerate() {
        out.extend(if n == 0 {
            &b",\n\t\t\"tombstones\": [\n\t\t\t{\"network\": "[..]
        } else {
            b",\n\t\t\t{\"network\": "
        });
        go_json::string(out, &attachment.network);
        out.extend(b", \"id\": ");
        go_json::string(out, &attachment.container_id);
        out.extend(b", \"ifName\": ");
        go_json::string(out, &attachment.if_name);
        out.extend(b", \"at\": ");
        go_json::number(out, at.0);
        out.push(b'}');
    }
    if !tombstones.is_empty() {
        out.extend(b"\n\t\t]");
    }
}

fn print_pool(out: &mut Vec<u8>, pool: &Pool) {
    let mut object = Object::open(out, 4);
    for record in &pool.records {
        match &record.usage {
            Usage::Held(held) => {
                object.begin(out);
                go_json::address(out, record.key);
                out.extend(b": ");
                print_held(out, held);
            }
            Usage::Free(free) if free.released.is_some() || free.wired => {
                object.begin(out);
                print_free(out, record.key, free);
            }
            Usage::Free(_) => {}
        }
    }
    object.close(out);
}

fn print_free(out: &mut Vec<u8>, key: IpAddr, free: &Free) {
    out.push(b'"');
    push_address(out, key);
    match free.released {
        Some(at) => {
            out.extend(RELEASED.as_bytes());
            go_json::number(out, at.0);
            if free.wired {
                out.extend(b", \"wired\": true");
            }
        }
        None => out.extend(b"\": {\"wired\": true"),
    }
    out.push(b'}');
}

fn print_held(out: &mut Vec<u8>, held: &Held) {
    out.extend(b"{\"id\": ");
    go_json::string(out, &held.container_id);
    if let Some(claim) = &held.claim {
        let texts = [
            ("network", Some(&*claim.network)),
            ("ifName", Some(&*claim.if_name)),
            ("pod", claim.pod.as_deref()),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                out.extend(b", ");
                go_json::string(out, name);
                out.extend(b": ");
                go_json::string(out, text);
            }
        }
        if let Some(netns) = &claim.netns {
            out.extend(b", \"netns\": {\"path\": ");
            go_json::string(out, &netns.path);
            if let Some((dev, ino)) = netns.id {
                out.extend(b", \"dev\": ");
                go_json::number(out, dev);
                out.extend(b", \"ino\": ");
                go_json::number(out, ino);
            }
            out.push(b'}');
        }
        out.extend(b", \"generation\": ");
        go_json::number(out, claim.generation);
    }
    out.extend(b", \"since\": ");
    go_json::number(out, held.since.0);
    if let Some(suspect) = held.suspect {
        out.extend(b", \"suspect\": ");
        go_json::number(out, suspect.0);
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
