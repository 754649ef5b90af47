//! A lease, as every command reports it: an address and the attachment that holds it.

use std::net::IpAddr;

use serde::Serialize;

use super::node::Now;
use super::screen::{Table, format_age};
use crate::ipam::{Candidate, Held, Ipam, Pool, Record};

/// The length of a shortened container ID, as runtimes print it.
const SHORT: usize = 12;

/// A held address and its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The address.
    pub address: IpAddr,
    /// The subnet of its pool.
    pub pool: String,
    /// `namespace/name` of the pod, if the runtime passed it.
    pub pod: Option<String>,
    /// The container ID; `None` for an unknown owner.
    pub container: Option<String>,
    /// The network's name; `None` in a record of the original.
    pub network: Option<String>,
    /// The interface within the container; `None` in a record of the original.
    pub interface: Option<String>,
    /// The path of the network namespace that the ADD named.
    pub netns: Option<String>,
    /// The time of the allocation, RFC 3339.
    pub since: String,
    /// The age in seconds.
    pub age_seconds: u64,
    /// Whether `since` is the time at which this plugin first saw a record of the original.
    pub first_seen: bool,
    /// Seconds since the holder was first found dead, while a second look is due.
    pub suspect_seconds: Option<u64>,
    /// Whether the source still lists the address.
    pub listed: bool,
}

impl Lease {
    /// Makes it from a record.
    pub fn new(pool: &str, address: IpAddr, held: &Held, now: &Now) -> Lease {
        let claim = held.owner.claim();
        Lease {
            address,
            pool: pool.to_owned(),
            pod: claim.and_then(|c| c.pod.as_deref()).map(str::to_owned),
            container: held.owner.container_id().map(str::to_owned),
            network: claim.map(|c| c.network.to_string()),
            interface: claim.map(|c| c.if_name.to_string()),
            netns: claim
                .and_then(|c| c.netns.as_ref())
                .map(|n| n.path.to_string()),
            since: now.wall_time(held.since),
            age_seconds: now.since(held.since).as_secs(),
            first_seen: claim.is_none(),
            suspect_seconds: held.suspect.map(|at| now.since(at).as_secs()),
            listed: !held.unlisted,
        }
    }

    /// The lease of a record that was judged.
    pub fn from_candidate(candidate: &Candidate, now: &Now) -> Lease {
        Lease::new(&candidate.pool, candidate.key, &candidate.held, now)
    }

    /// The pod, or `-`.
    fn pod_text(&self) -> String {
        self.pod.clone().unwrap_or_else(|| "-".to_owned())
    }

    /// The first characters of the container ID, or `unknown`.
    pub fn container_text(&self) -> String {
        match &self.container {
            Some(id) => shorten_container_id(id),
            None => "unknown".to_owned(),
        }
    }

    /// Network and interface, or `-`.
    pub fn network_text(&self) -> String {
        match (&self.network, &self.interface) {
            (Some(network), Some(interface)) => format!("{network}/{interface}"),
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

    /// Makes a table of leases with the columns ADDRESS, POD, CONTAINER, NETWORK and SINCE, and NOTE if there are notes. NETWORK is
    /// left out where [`common_network`] finds one.
    pub fn table<'a>(leases: impl Iterator<Item = &'a Lease> + Clone, notes: Vec<String>) -> Table {
        /// An IPv4 address is not cut.
        const LEAST_ADDRESS: usize = 15;
        let with_network = common_network(leases.clone()).is_none();
        let with_notes = notes.iter().any(|note| !note.is_empty());
        let mut headings = vec!["ADDRESS", "POD", "CONTAINER", "SINCE"];
        if with_network {
            headings.insert(3, "NETWORK");
        }
        if with_notes {
            headings.push("NOTE");
        }
        // The name of the pod is cut last.
        let elastic: &[usize] = if with_network {
            &[3, 2, 0, 1]
        } else {
            &[2, 0, 1]
        };
        let table = Table::new(&headings, elastic);
        let mut table = table.with_least(0, LEAST_ADDRESS).with_ids(2);
        let notes = notes.into_iter().chain(std::iter::repeat(String::new()));
        for (lease, note) in leases.zip(notes) {
            let mut cells = vec![
                lease.address.to_string(),
                lease.pod_text(),
                lease.container_text(),
                lease.age_text(),
            ];
            if with_network {
                cells.insert(3, lease.network_text());
            }
            if with_notes {
                cells.push(note);
            }
            table.row(cells);
        }
        table
    }

    /// Names the pod and the container, as part of a sentence.
    pub fn describe_holder(&self) -> String {
        match (&self.pod, &self.container) {
            (Some(pod), Some(_)) => format!("pod {pod} (container {})", self.container_text()),
            (None, Some(_)) => format!("container {}", self.container_text()),
            (_, None) => "an unknown owner".to_owned(),
        }
    }
}

/// The network and interface that all leases have, if they have the same. Records of the original do not count, as they name
/// none.
pub fn common_network<'a>(leases: impl Iterator<Item = &'a Lease>) -> Option<String> {
    let mut known = leases.filter(|lease| lease.network.is_some());
    let first = known.next()?.network_text();
    known
        .all(|lease| lease.network_text() == first)
        .then_some(first)
}

/// The first characters of a container ID.
pub fn shorten_container_id(id: &str) -> String {
    id.chars().take(SHORT).collect()
}

/// Whether the text is the beginning of a pod's `namespace/name`, or of its name.
pub fn matches_pod(text: &str, pod: &str) -> bool {
    let name = pod.split_once('/').map_or(pod, |(_, name)| name);
    pod.starts_with(text) || name.starts_with(text)
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
    records.sort_by_key(|record| record.address());
    records
}
