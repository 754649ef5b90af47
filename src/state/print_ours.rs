//! Writing our own key: an entry a line, so that people can read it too.

use std::net::IpAddr;

use super::go_json;
use super::original::Original;
use super::ours::{ENTRY, FORMAT, RELEASED};
use super::out::Out;
use super::position::Position;
use super::trust::PendingWork;
use crate::ipam::{Claim, Free, Held, Moment, Pool, Tombstone, Usage};

/// Appends our key's object, two tabs deep: an entry a line.
pub(super) fn print_ours(
    out: &mut Out,
    original: &Original,
    boot_id: Option<&str>,
    pending: &PendingWork,
    refreshed: Option<Moment>,
    journal: Option<Position>,
) {
    let ipam = &original.ipam;
    out.literal("{\n\t\t\"format\": ");
    go_json::number(out, FORMAT);
    out.literal(",\n\t\t\"bootId\": ");
    match boot_id {
        Some(id) => go_json::string(out, id),
        None => out.literal("null"),
    }
    out.literal(",\n\t\t\"timeStamp\": ");
    go_json::string(out, &original.time_stamp);
    out.literal(",\n\t\t\"generation\": ");
    go_json::number(out, ipam.generation);
    match pending {
        PendingWork::Reconcile => out.literal(",\n\t\t\"lookOwed\": true"),
        PendingWork::Rebuild(loss) => {
            out.literal(",\n\t\t\"lost\": {\"why\": ");
            go_json::string(out, &loss.why);
            out.literal(", \"seen\": ");
            go_json::number(out, loss.seen.0);
            out.byte(b'}');
        }
        PendingWork::Nothing | PendingWork::NewBoot(_) => {}
    }
    if let Some(position) = journal {
        out.literal(",\n\t\t\"journal\": {\"sequence\": ");
        go_json::number(out, position.sequence);
        out.literal(", \"bytes\": ");
        go_json::number(out, position.size);
        out.literal(", \"compacted\": ");
        go_json::number(out, position.compacted);
        out.byte(b'}');
    }
    if let Some(at) = refreshed {
        out.literal(",\n\t\t\"refreshed\": ");
        go_json::number(out, at.0);
    }
    if let Some(until) = ipam.quarantine {
        out.literal(",\n\t\t\"quarantineUntil\": ");
        go_json::number(out, until.0);
    }
    print_tombstones(out, &ipam.tombstones);
    out.literal(",\n\t\t\"records\": ");
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
    out.literal("\n\t}");
}

fn print_tombstones(out: &mut Out, tombstones: &[Tombstone]) {
    for (n, Tombstone { attachment, at }) in tombstones.iter().enumerate() {
        out.literal(if n == 0 {
            ",\n\t\t\"tombstones\": [\n\t\t\t{\"network\": "
        } else {
            ",\n\t\t\t{\"network\": "
        });
        go_json::string(out, &attachment.network);
        out.literal(", \"id\": ");
        go_json::string(out, &attachment.container_id);
        out.literal(", \"ifName\": ");
        go_json::string(out, &attachment.if_name);
        out.literal(", \"at\": ");
        go_json::number(out, at.0);
        out.byte(b'}');
    }
    if !tombstones.is_empty() {
        out.literal("\n\t\t]");
    }
}

fn print_pool(out: &mut Out, pool: &Pool) {
    let mut object = Object::open(out, 4);
    for record in &pool.records {
        match &record.usage {
            Usage::Held(held) => {
                object.separate(out);
                out.literal(ENTRY);
                go_json::bare_address(out, record.key);
                out.literal("\": ");
                print_held(out, held);
            }
            Usage::Free(free) if free.released.is_some() || free.on_host => {
                object.separate(out);
                out.literal(ENTRY);
                print_free(out, record.key, free);
            }
            Usage::Free(_) => {}
        }
    }
    object.close(out);
}

fn print_free(out: &mut Out, key: IpAddr, free: &Free) {
    go_json::bare_address(out, key);
    match free.released {
        Some(at) => {
            out.literal(RELEASED);
            go_json::number(out, at.0);
            if free.on_host {
                out.literal(", \"wired\": true");
            }
        }
        None => out.literal("\": {\"wired\": true"),
    }
    out.byte(b'}');
}

fn print_held(out: &mut Out, held: &Held) {
    out.literal("{\"id\": ");
    go_json::string(out, held.owner.container_id().unwrap_or_default());
    if let Some(claim) = held.owner.claim() {
        print_claim(out, claim);
        out.literal(", \"generation\": ");
        go_json::number(out, claim.generation);
    }
    out.literal(", \"since\": ");
    go_json::number(out, held.since.0);
    if let Some(suspect) = held.suspect {
        out.literal(", \"suspect\": ");
        go_json::number(out, suspect.0);
    }
    if held.unlisted {
        out.literal(", \"unlisted\": true");
    }
    out.byte(b'}');
}

/// Appends the members of a claim behind others, but for its generation.
pub(super) fn print_claim(out: &mut Out, claim: &Claim) {
    let texts = [
        ("network", Some(&*claim.network)),
        ("ifName", Some(&*claim.if_name)),
        ("pod", claim.pod.as_deref()),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            out.literal(", ");
            go_json::string(out, name);
            out.literal(": ");
            go_json::string(out, text);
        }
    }
    if let Some(netns) = &claim.netns {
        out.literal(", \"netns\": {\"path\": ");
        go_json::string(out, &netns.path);
        if let Some((dev, ino)) = netns.id {
            out.literal(", \"dev\": ");
            go_json::number(out, dev);
            out.literal(", \"ino\": ");
            go_json::number(out, ino);
        }
        if let Some(cookie) = netns.cookie {
            out.literal(", \"cookie\": ");
            go_json::number(out, cookie);
        }
        out.byte(b'}');
    }
}

/// An object with one member a line.
struct Object {
    depth: usize,
    empty: bool,
}

impl Object {
    fn open(out: &mut Out, depth: usize) -> Object {
        out.byte(b'{');
        Object { depth, empty: true }
    }

    fn separate(&mut self, out: &mut Out) {
        if !self.empty {
            out.byte(b',');
        }
        self.empty = false;
    }

    fn name(&mut self, out: &mut Out, name: &str) {
        self.separate(out);
        go_json::line(out, self.depth + 1);
        go_json::string(out, name);
        out.literal(": ");
    }

    fn close(self, out: &mut Out) {
        if !self.empty {
            go_json::line(out, self.depth);
        }
        out.byte(b'}');
    }
}
