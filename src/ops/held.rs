//! A held address, as every command reports it.

use std::collections::BTreeSet;
use std::iter;
use std::net::IpAddr;

use serde::Serialize;

use super::node::Now;
use super::outcome::CommandError;
use super::screen::{first_few, format_age, pluralize};
use crate::ipam::{
    Attachment, Candidate, Entry, Evidence, EvidenceList, Held, Holder, Ipam, Kernel, NetNs, Place,
    Pool, Record, Routes,
};

/// The length of a shortened container ID, as runtimes print it.
const SHORT: usize = 12;

/// A held address and its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldAddress {
    /// The address.
    pub address: IpAddr,
    /// The subnet of its pool.
    pub pool: String,
    /// Who holds it.
    #[serde(flatten)]
    pub holder: Holder,
    /// The time of the allocation, RFC 3339.
    pub since: String,
    /// The age in seconds.
    pub age_seconds: u64,
    /// Whether `since` is the time at which this plugin first saw a record of the original.
    pub first_seen: bool,
    /// Seconds since the holder was first found dead, while a second scan is due.
    pub suspect_seconds: Option<u64>,
    /// Seconds since the source no longer lists the address; `None` while it does.
    pub unlisted_seconds: Option<u64>,
    /// Whether the holder leaked the address; `None` where that was not judged. Only `show` judges it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaked: Option<bool>,
}

impl HeldAddress {
    /// Makes it from a record.
    pub fn new(pool: &str, address: IpAddr, held: &Held, now: &Now) -> HeldAddress {
        HeldAddress {
            address,
            pool: pool.to_owned(),
            holder: Holder::clone(&held.holder),
            since: now.wall_time(held.since),
            age_seconds: now.since(held.since).as_secs(),
            first_seen: !held.holder.has_interface(),
            suspect_seconds: held.suspect.map(|at| now.since(at).as_secs()),
            unlisted_seconds: held.unlisted.map(|at| now.since(at).as_secs()),
            leaked: None,
        }
    }

    /// The address of a record that was judged.
    pub fn from_candidate(candidate: &Candidate, now: &Now) -> HeldAddress {
        HeldAddress::new(&candidate.pool, candidate.key, &candidate.held, now)
    }

    /// The first characters of the container ID, or `unknown`.
    pub fn container_text(&self) -> String {
        shorten_container_id(self.holder.container_text())
    }

    /// Network and interface, or `-`.
    pub fn network_text(&self) -> String {
        match &self.holder.attachment {
            Attachment {
                network, if_name, ..
            } if !network.is_empty() => format!("{network}/{if_name}"),
            _ => "-".to_owned(),
        }
    }

    /// The age; it begins with `>` where the allocation is older than the first sight of it.
    fn age_text(&self) -> String {
        let age = format_age(std::time::Duration::from_secs(self.age_seconds));
        if self.first_seen {
            format!(">{age}")
        } else {
            age
        }
    }

    /// Makes the rows of a table of held addresses with the columns ADDRESS, POD, CONTAINER, NETWORK and SINCE, and NOTE if there are notes.
    /// NETWORK is left out where [`common_network`] finds one.
    pub fn table<'a>(
        held: impl Iterator<Item = &'a HeldAddress> + Clone,
        note: fn(&HeldAddress) -> &'static str,
    ) -> Vec<Vec<String>> {
        let with_network = common_network(held.clone()).is_none();
        let with_notes = held.clone().any(|held| !note(held).is_empty());
        let row = |cells: [String; 6]| {
            let are_shown = [true, true, true, with_network, true, with_notes];
            let shown = cells.into_iter().zip(are_shown).filter(|(_, is)| *is);
            shown.map(|(cell, _)| cell).collect()
        };
        let headings = ["ADDRESS", "POD", "CONTAINER", "NETWORK", "SINCE", "NOTE"];
        let rows = held.map(|held| {
            [
                held.address.to_string(),
                held.holder.pod.clone().unwrap_or_else(|| "-".to_owned()),
                held.container_text(),
                held.network_text(),
                held.age_text(),
                note(held).to_owned(),
            ]
        });
        let all = iter::once(headings.map(str::to_owned)).chain(rows);
        all.map(row).collect()
    }

    /// Names the pod and the container, as part of a sentence.
    pub fn describe_holder(&self) -> String {
        describe_holder(&self.holder)
    }
}

/// Names the pod and the container of a holder, as part of a sentence.
pub fn describe_holder(holder: &Holder) -> String {
    let container = shorten_container_id(holder.container_id());
    match &holder.pod {
        _ if holder.is_unknown() => "an unknown holder".to_owned(),
        Some(pod) => format!("pod {pod} (container {container})"),
        None => format!("container {container}"),
    }
}

/// The network and interface of all held addresses, if they have the same. Records of the original do not count, as they name
/// none.
pub fn common_network<'a>(held: impl Iterator<Item = &'a HeldAddress>) -> Option<String> {
    let mut known = held.filter(|held| !held.holder.attachment.network.is_empty());
    let first = known.next()?.network_text();
    known
        .all(|held| held.network_text() == first)
        .then_some(first)
}

/// The first characters of a container ID.
pub fn shorten_container_id(id: &str) -> String {
    id.chars().take(SHORT).collect()
}

/// Whether the text names the pod, with or without its namespace.
pub fn is_pod_name(text: &str, pod: &str) -> bool {
    pod == text || pod.split_once('/').is_some_and(|(_, name)| name == text)
}

/// Finds the pods of this name, with or without namespace; where there is none, those whose `namespace/name` contains the text.
pub fn find_pods<'a>(text: &str, known: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let pods = known.filter(|pod| pod.contains(text)).map(str::to_owned);
    let mut pods: BTreeSet<String> = pods.collect();
    if pods.iter().any(|pod| is_pod_name(text, pod)) {
        pods.retain(|pod| is_pod_name(text, pod));
    }
    pods
}

/// The error for a pod that holds no address.
pub fn no_such_pod(name: &str) -> CommandError {
    CommandError(format!("no pod {name:?} holds an address"))
}

/// Finds the pod of this name among the holders, with or without namespace. A part of a name is not enough for a command that frees addresses.
///
/// # Errors
/// No pod has the name, several have it, or it is only a part of a name.
pub fn find_pod_of_holder(name: &str, ipam: &Ipam) -> Result<String, CommandError> {
    let known = ipam.holders().filter_map(|held| held.holder.pod.as_deref());
    let pods: Vec<String> = find_pods(name, known).into_iter().collect();
    match &*pods {
        [] => Err(no_such_pod(name)),
        [pod] if is_pod_name(name, pod) => Ok(pod.clone()),
        [pod, ..] if is_pod_name(name, pod) => Err(ambiguous(name, "pods have this name", &pods)),
        pods => Err(CommandError(format!(
            "no pod has the name {name:?}; type the whole name:\n  {}",
            list_first(pods)
        ))),
    }
}

/// Every held record with its space and pool, ordered by pool and address.
pub fn held_records(ipam: &Ipam) -> impl Iterator<Item = (&str, &str, &Record, &Held)> {
    ipam.pools().flat_map(|(space, key, pool)| {
        let records = records_by_address(pool).into_iter();
        records.filter_map(move |record| Some((space, key, record, record.held()?)))
    })
}

/// The records of a pool, ordered by the value of the address.
pub fn records_by_address(pool: &Pool) -> Vec<&Record> {
    let mut records: Vec<&Record> = pool.records.iter().collect();
    records.sort_unstable_by_key(|record| record.address());
    records
}

/// The minimum length of a prefix.
pub const MIN_PREFIX: usize = 4;

/// What a typed container ID stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerMatch {
    /// The container with this ID.
    One(String),
    /// The prefix is too short to stand for a container, though IDs begin with it.
    TooShort,
    /// Several containers have IDs with this prefix.
    Ambiguous(Vec<String>),
    /// No known container.
    None,
}

/// Finds the container that `typed` stands for among the known ones. A whole ID of any length matches.
pub fn find_container<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> ContainerMatch {
    let known = known.into_iter().filter(|id| !id.is_empty());
    let found: BTreeSet<&str> = known.filter(|id| id.starts_with(typed)).collect();
    if typed.is_empty() || found.is_empty() {
        return ContainerMatch::None;
    }
    if found.contains(typed) {
        return ContainerMatch::One(typed.to_owned());
    }
    if typed.len() < MIN_PREFIX {
        return ContainerMatch::TooShort;
    }
    let found: Vec<String> = found.into_iter().map(str::to_owned).collect();
    match <[String; 1]>::try_from(found) {
        Ok([only]) => ContainerMatch::One(only),
        Err(several) => ContainerMatch::Ambiguous(several),
    }
}

/// What to do about a prefix that is too short, without full stop.
pub fn describe_too_short(typed: &str) -> String {
    format!(
        "{typed:?} is too short for a container ID: type at least its first {MIN_PREFIX} characters"
    )
}

/// The error of a text that matches several candidates. `what` says how they match, such as "containers begin with it".
pub fn ambiguous(typed: &str, what: &str, candidates: &[String]) -> CommandError {
    CommandError(format!(
        "{typed:?} is ambiguous: {} {what}; type more characters of one of these:\n  {}",
        candidates.len(),
        list_first(candidates)
    ))
}

/// The first candidates, a line for each.
pub fn list_first(candidates: &[String]) -> String {
    /// More would scroll the sentence before them away.
    const MOST: usize = 8;
    let shown = first_few(candidates.iter().cloned(), MOST, |n| {
        format!("and {n} more")
    });
    shown.join("\n  ")
}

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
    // One that was not found may still be there.
    let gone = match kernel.incomplete {
        None => "is gone",
        Some(_) => "was not found",
    };
    match &held.holder.netns {
        Some(netns) if netns.id.is_some() => {
            found.push(format!("its own network namespace, {}, {gone}", netns.path));
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
                found.push(if stale {
                    format!("{name} lists it, but the network namespace {gone}")
                } else {
                    format!("{name} does not list it")
                });
            }
        }
    }
    if matches!(&evidence.routes, Routes::Read(routes) if !routes.contains(&address)) {
        found.push("no route of the host leads to it".to_owned());
    }
    found
}

/// Whether a network namespace exists and does not have the address.
pub fn lacks(kernel: &Kernel, netns: &NetNs, address: IpAddr) -> bool {
    let own = kernel.addresses_in(netns);
    own.is_some_and(|own| !own.contains(&address))
}

/// Describes the network namespace of a holder that lacks the address.
pub fn describe_lack(netns: &NetNs) -> String {
    let path = &netns.path;
    format!("not configured in {path}, its own network namespace")
}

/// Finds the entry of another program's list whose network namespace this place is.
pub fn entry_of_place<'a>(place: &Place, evidence: &'a Evidence) -> Option<&'a Entry> {
    let lists = evidence.lists();
    let mut entries = lists.into_iter().flat_map(|(_, list)| list.entries());
    entries.find(|entry| {
        let netns = entry.holder.netns.as_ref();
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

/// Describes where the address is in use on this node: namespaces, live entries of lists, host routes, and the state of the other name of
/// this program.
pub fn describe_uses(address: IpAddr, evidence: &Evidence) -> Vec<String> {
    let places = evidence.kernel.places(address);
    let mut found: Vec<String> = places.map(|place| format!("configured {place}")).collect();
    for (name, list) in evidence.lists() {
        let entries = list.entries().iter();
        for entry in entries.filter(|e| e.is_live && e.addresses.contains(&address)) {
            found.push(format!("{name}: {}", describe_holder(&entry.holder)));
        }
    }
    if evidence.routes.contains(address) {
        found.push("a route of the host leads to it".to_owned());
    }
    let other = &evidence.other_name;
    if let Some(holder) = other.holders.get(&address) {
        let holder = describe_holder(holder);
        found.push(format!("held in the state of {} by {holder}", other.name));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["3f2a91c04d7e", "3f2a91ff0000", "abcdef", "abcdef01", ""];

    #[test]
    fn prefix_of_four_characters_names_the_only_container_that_has_it() {
        for (typed, expected) in [
            ("3f2a91c0", ContainerMatch::One("3f2a91c04d7e".into())),
            ("3f2a91c04d7e", ContainerMatch::One("3f2a91c04d7e".into())),
            // A whole ID takes precedence over a longer one that begins with it.
            ("abcdef", ContainerMatch::One("abcdef".into())),
            ("abcdef0", ContainerMatch::One("abcdef01".into())),
            (
                "3f2a",
                ContainerMatch::Ambiguous(vec!["3f2a91c04d7e".into(), "3f2a91ff0000".into()]),
            ),
            ("3f2", ContainerMatch::TooShort),
            ("xyz", ContainerMatch::None),
            ("91c04d7e", ContainerMatch::None),
            ("", ContainerMatch::None),
        ] {
            assert_eq!(find_container(typed, KNOWN), expected, "{typed}");
        }
        assert_eq!(
            find_container("c1", ["c1"]),
            ContainerMatch::One("c1".into())
        );
        // The same container in several places counts once.
        assert_eq!(
            find_container("abcd", ["abcdef", "abcdef"]),
            ContainerMatch::One("abcdef".into())
        );
    }
}
