//! Who else uses an address that has a holder. Pure.

use std::net::IpAddr;

use serde::Serialize;

use crate::ipam::{Entry, Evidence, Held, Place};
use crate::ops::describe_evidence::{entry_of_place, is_path};
use crate::ops::lease::shorten_container_id;

/// Another user of an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherUser {
    /// `namespace/name` of the pod, if a list of another program has it.
    pub pod: Option<String>,
    /// The container ID, likewise.
    pub container: Option<String>,
    /// Where the address is configured: `in PATH` or `on the host`; `None` where only a list has it.
    pub place: Option<String>,
}

/// Finds every user of the address but its holder. Returns none if the holder is unknown, as any of them may be the holder.
pub fn other_users(address: IpAddr, held: &Held, evidence: &Evidence) -> Vec<OtherUser> {
    let Some(holder) = held.owner.container_id() else {
        return Vec::new();
    };
    let mut others: Vec<OtherUser> = Vec::new();
    let mut unidentified = Vec::new();
    let mut is_holder_seen = false;
    for place in evidence.kernel.places(address) {
        match entry_of_place(place, evidence) {
            Some(entry) if entry.container_id == holder => is_holder_seen = true,
            Some(entry) => others.push(OtherUser::new(entry, Some(place))),
            None if is_own_place(place, held) => is_holder_seen = true,
            None => unidentified.push(place),
        }
    }
    // The holder's namespace may be known by another path than that of its ADD.
    let own = held.owner.netns().and_then(|netns| netns.id);
    let is_inside = |id| {
        evidence
            .kernel
            .addresses_by_namespace
            .get(&id)
            .is_some_and(|all| all.contains(&address))
    };
    if !is_holder_seen && own.is_some_and(is_inside) && !unidentified.is_empty() {
        unidentified.remove(0);
    }
    others.extend(unidentified.into_iter().map(|place| OtherUser {
        pod: None,
        container: None,
        place: Some(place.to_string()),
    }));
    let lists = evidence.lists();
    let entries = lists.iter().flat_map(|(_, list)| list.entries());
    for entry in entries.filter(|entry| entry.is_live && entry.addresses.contains(&address)) {
        let is_known = |other: &OtherUser| other.container.as_ref() == Some(&entry.container_id);
        if entry.container_id != holder && !others.iter().any(is_known) {
            others.push(OtherUser::new(entry, None));
        }
    }
    others
}

fn is_own_place(place: &Place, held: &Held) -> bool {
    let netns = held.owner.netns();
    netns.is_some_and(|netns| is_path(place, &netns.path))
}

impl OtherUser {
    fn new(entry: &Entry, place: Option<&Place>) -> OtherUser {
        OtherUser {
            pod: entry.pod.clone(),
            container: Some(entry.container_id.clone()).filter(|id| !id.is_empty()),
            place: place.map(ToString::to_string),
        }
    }

    /// Names it in a sentence.
    pub fn describe(&self) -> String {
        let container = self.container.as_deref().map(shorten_container_id);
        let who = match (&self.pod, container) {
            (Some(pod), Some(id)) => format!("pod {pod} (container {id})"),
            (Some(pod), None) => format!("pod {pod}"),
            (None, Some(id)) => format!("container {id}"),
            (None, None) => "an unknown pod or program".to_owned(),
        };
        match &self.place {
            Some(place) => format!("{who} has it too, {place}"),
            None => format!("{who} has it too, by the list of its runtime"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::{Claim, EvidenceList, NetNs, Owner};

    const ADDRESS: &str = "10.224.0.5";

    fn netns(name: &str, id: u64) -> NetNs {
        NetNs {
            path: format!("/var/run/netns/{name}").into(),
            id: Some((4, id)),
            cookie: None,
        }
    }

    fn entry(name: &str, id: u64, addresses: &[&str]) -> Entry {
        Entry {
            container_id: format!("{name}-container"),
            pod: Some(format!("default/{name}")),
            netns: Some(netns(name, id)),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            is_live: true,
            ..Entry::default()
        }
    }

    /// `web-1` holds the address, and these network namespaces have it.
    fn others(places: &[&str], entries: Vec<Entry>, own_id: u64) -> Vec<String> {
        let address: IpAddr = ADDRESS.parse().unwrap();
        let held = Held {
            owner: Owner::Attachment(Box::new(Claim {
                container_id: "web-1-container".into(),
                network: "azure".into(),
                if_name: "eth0".into(),
                pod: None,
                netns: Some(netns("web-1", own_id)),
                generation: 1,
            })),
            ..Held::default()
        };
        let mut evidence = Evidence {
            cache: EvidenceList::Read {
                entries,
                doubtful: Vec::new(),
            },
            ..Evidence::default()
        };
        let mut places = places.iter().map(|path| match *path {
            "host" => Place::Host,
            path => Place::Namespace(path.to_owned()),
        });
        let kernel = &mut evidence.kernel;
        kernel
            .addresses_by_namespace
            .insert((4, 1), [address].into());
        kernel
            .configured
            .extend(places.next().map(|p| (address, p)));
        kernel.more_places.extend(places.map(|p| (address, p)));
        let found = other_users(address, &held, &evidence);
        found.iter().map(OtherUser::describe).collect()
    }

    #[test]
    fn a_second_pod_is_named_by_the_list_that_knows_its_namespace() {
        let pods = || {
            vec![
                entry("web-1", 1, &[ADDRESS]),
                entry("web-2", 2, &["10.9.9.9"]),
            ]
        };
        let places = ["/run/netns/web-1", "/run/netns/web-2"];
        assert_eq!(
            others(&places, pods(), 1),
            ["pod default/web-2 (container web-2-contai) has it too, in /run/netns/web-2"]
        );
        // Nobody knows the second namespace.
        assert_eq!(
            others(&places, pods()[..1].to_vec(), 1),
            ["an unknown pod or program has it too, in /run/netns/web-2"]
        );
        assert_eq!(others(&places[..1], pods(), 1), [""; 0]);
        assert_eq!(others(&places[..1], Vec::new(), 1), [""; 0]);
        assert_eq!(
            others(&["/run/netns/web-1", "host"], pods(), 1),
            ["an unknown pod or program has it too, on the host"]
        );
    }

    #[test]
    fn the_holder_is_no_other_where_its_namespace_has_another_path() {
        assert_eq!(others(&["/proc/7/ns/net"], Vec::new(), 1), [""; 0]);
        // The namespace of the holder does not have the address.
        assert_eq!(
            others(&["/proc/7/ns/net"], Vec::new(), 9),
            ["an unknown pod or program has it too, in /proc/7/ns/net"]
        );
    }

    #[test]
    fn a_second_pod_may_be_known_by_a_list_alone() {
        let entries = vec![entry("web-1", 1, &[ADDRESS]), entry("web-2", 2, &[ADDRESS])];
        assert_eq!(
            others(&["/run/netns/web-1"], entries, 1),
            ["pod default/web-2 (container web-2-contai) has it too, by the list of its runtime"]
        );
    }
}
