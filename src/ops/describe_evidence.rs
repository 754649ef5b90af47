//! Describes in words where the node shows an address in use, and where it does not.

use std::net::IpAddr;

use super::lease::shorten_container_id;
use super::screen::pluralize;
use crate::ipam::{Entry, Evidence, EvidenceList, Held, Place, Routes};

/// Describes the evidence that does not show the address. Only for a holder that is not alive.
pub fn describe_missing(address: IpAddr, held: &Held, evidence: &Evidence) -> Vec<String> {
    let kernel = &evidence.kernel;
    let mut found = vec![match kernel.incomplete {
        None => format!(
            "{} of this node, none of which has {address}",
            pluralize(
                kernel.namespaces.len(),
                "network namespace",
                "network namespaces"
            )
        ),
        Some(_) => format!("{address} is in no network namespace that could be scanned"),
    }];
    let netns = held.owner.netns();
    match netns {
        Some(netns) if netns.id.is_some() => {
            found.push(format!(
                "its own network namespace, {}, is gone",
                netns.path
            ));
        }
        Some(netns) => found.push(format!(
            "its own network namespace, {}, could not be identified at the time of its ADD",
            netns.path
        )),
        None => {}
    }
    for (name, list) in evidence.lists() {
        match list {
            EvidenceList::Absent => {}
            EvidenceList::Unreadable(why) => found.push(format!("{name} cannot be read: {why}")),
            EvidenceList::Read { entries, .. } => {
                let stale = entries.iter().any(|e| e.addresses.contains(&address));
                found.push(match stale {
                    true => format!("{name} lists it, but the network namespace is gone"),
                    false => format!("{name} does not list it"),
                });
            }
        }
    }
    if matches!(&evidence.routes, Routes::Read(routes) if !routes.contains(&address)) {
        found.push("no route of the host leads to it".to_owned());
    }
    found
}

/// Finds the entry of another program's list whose network namespace this place is.
pub fn entry_of_place<'a>(place: &Place, evidence: &'a Evidence) -> Option<&'a Entry> {
    let lists = evidence.lists();
    let mut entries = lists.into_iter().flat_map(|(_, list)| list.entries());
    entries.find(|entry| {
        let netns = entry.netns.as_ref();
        entry.is_live && netns.is_some_and(|netns| is_path(place, &netns.path))
    })
}

/// Whether the path leads to the network namespace of this place. /var/run is a link to /run.
pub fn is_path(place: &Place, path: &str) -> bool {
    let plain = |path: &str| match path.strip_prefix("/var/run/") {
        Some(rest) => format!("/run/{rest}"),
        None => path.to_owned(),
    };
    match place {
        Place::Host => false,
        Place::Namespace(own) | Place::OfUser(own) => plain(own) == plain(path),
    }
}

/// Describes where the address is in use on this node: namespaces, live entries of lists, and host routes.
pub fn describe_uses(address: IpAddr, evidence: &Evidence) -> Vec<String> {
    let places = evidence.kernel.places(address);
    let mut found: Vec<String> = places.map(|place| format!("configured {place}")).collect();
    for (name, list) in evidence.lists() {
        let entries = list.entries().iter();
        for entry in entries.filter(|e| e.is_live && e.addresses.contains(&address)) {
            let pod = entry.pod.as_deref().map(|pod| format!(", pod {pod}"));
            found.push(format!(
                "{name}: container {}{}",
                shorten_container_id(&entry.container_id),
                pod.unwrap_or_default()
            ));
        }
    }
    if evidence.routes.contains(address) {
        found.push("a route of the host leads to it".to_owned());
    }
    found
}
