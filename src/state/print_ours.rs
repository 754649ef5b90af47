//! What is printed under our own key: an entry a line, so that people can read it too.

use std::borrow::Cow;

use super::ours::{ENTRY, Facts, RELEASED, RawNetNs, RawOwner};
use crate::codec::{Layout, Out, Print, go_json};
use crate::ipam::{Free, Held, NetNs, Owner, Record, Usage};

/// The records of a pool, as far as there is something to say about them.
pub(super) struct PoolRecords<'a>(pub &'a [Record]);

impl Print for PoolRecords<'_> {
    fn print(&self, out: &mut Out, layout: Layout) {
        layout.enclose(out, *b"{}", |out| {
            for record in self.0 {
                print_entry(out, record);
            }
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
            released_in,
            on_host: false,
            ..
        }) => {
            key(out);
            out.literal(RELEASED);
            go_json::number(out, at.0);
            if let Some(netns) = released_in {
                out.literal(", \"in\": ");
                netns.print(out, Layout::Line);
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

fn free_facts(free: &Free) -> Facts<'_> {
    Facts {
        released_in: free.released_in,
        released: free.released.map(|at| at.0),
        on_host: free.on_host,
        ..Facts::default()
    }
}

fn held_facts(held: &Held) -> Facts<'_> {
    Facts {
        owner: raw_owner(&held.owner),
        generation: held.owner.generation(),
        since: Some(held.since.0),
        suspect: held.suspect.map(|at| at.0),
        unlisted: held.unlisted,
        ..Facts::default()
    }
}

pub(super) fn raw_owner(owner: &Owner) -> RawOwner<'_> {
    let claim = owner.claim();
    RawOwner {
        id: Some(owner.container_id().unwrap_or_default().into()),
        network: claim.map(|claim| Cow::Borrowed(&*claim.network)),
        if_name: claim.map(|claim| Cow::Borrowed(&*claim.if_name)),
        pod: owner.pod().map(Cow::Borrowed),
        netns: owner.netns().map(raw_netns),
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
