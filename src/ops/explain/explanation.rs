//! The explanation as a value. Pure.

use std::net::IpAddr;

use serde::Serialize;

use super::address::{AddressExplanation, AddressUse};
use crate::cni::IpamConfig;
use crate::codec::named_address;
use crate::events::OperationRecord;
use crate::ipam::{Entry, Evidence, Ipam, Record};
use crate::ops::lease::matches_container_id;
use crate::ops::node::Now;
use crate::ops::screen::format_age;
use crate::ops::state_view::StateReport;

/// What `explain` was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// An address.
    Address(IpAddr),
    /// A container, by a prefix of its ID, or a pod, as `namespace/name` or `name`.
    Name(String),
}

/// Everything that is known about the query.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The query as it was typed.
    pub subject: String,
    /// The time, RFC 3339.
    pub time: String,
    /// The health of the state.
    pub state: Option<StateReport>,
    /// The addresses.
    pub addresses: Vec<AddressExplanation>,
    /// Entries in the lists of other programs.
    pub entries: Vec<String>,
    /// DELs that found nothing to release; their ADD may still come.
    pub early_dels: Vec<String>,
    /// The last operations, the newest last.
    pub events: Vec<OperationRecord>,
}

impl Query {
    /// Parses an address, or takes the text as a name.
    pub fn parse(text: &str) -> Query {
        match named_address(text) {
            Some(address) => Query::Address(address),
            None => Query::Name(text.to_owned()),
        }
    }

    fn is_container(&self, id: &str) -> bool {
        /// The minimum length of a container ID prefix.
        const LEAST: usize = 4;
        match self {
            Query::Address(_) => false,
            Query::Name(name) => !id.is_empty() && matches_container_id(name, id, LEAST),
        }
    }

    fn is_pod(&self, pod: Option<&str>) -> bool {
        match (self, pod) {
            (Query::Name(name), Some(pod)) => {
                pod == name || pod.split_once('/').is_some_and(|(_, last)| last == name)
            }
            _ => false,
        }
    }

    fn is_address(&self, address: IpAddr) -> bool {
        *self == Query::Address(address)
    }

    fn is_record(&self, record: &Record) -> bool {
        let held = record.held();
        let pod = held.and_then(|held| held.owner.pod());
        self.is_address(record.address())
            || held
                .and_then(|held| held.owner.container_id())
                .is_some_and(|id| self.is_container(id))
            || self.is_pod(pod)
    }

    fn is_entry(&self, entry: &Entry) -> bool {
        entry.addresses.iter().any(|a| self.is_address(*a))
            || self.is_container(&entry.container_id)
            || self.is_pod(entry.pod.as_deref())
    }

    fn is_event(&self, event: &OperationRecord) -> bool {
        event.addresses.iter().any(|a| self.is_address(*a))
            || self.is_container(&event.container_id)
            || self.is_pod(event.pod.as_deref())
    }
}

impl Explanation {
    /// Collects everything that is known about `subject`. The next steps name the commands of `program`.
    pub fn new(
        subject: &Query,
        ipam: &Ipam,
        evidence: &Evidence,
        events: Vec<OperationRecord>,
        conf: &IpamConfig,
        now: &Now,
        program: &str,
    ) -> Explanation {
        /// Older ones are in `show --events`.
        const EVENTS: usize = 8;
        let mut explanation = Explanation {
            subject: match subject {
                Query::Address(address) => address.to_string(),
                Query::Name(name) => name.clone(),
            },
            time: now.wall_time(now.boot),
            ..Explanation::default()
        };
        for (_, key, pool) in ipam.pools() {
            for record in pool.records.iter().filter(|r| subject.is_record(r)) {
                let address = AddressExplanation::new(
                    (ipam, key, pool),
                    record,
                    evidence,
                    conf,
                    now,
                    program,
                );
                explanation.addresses.push(address);
            }
        }
        if let Query::Address(address) = subject
            && explanation.addresses.is_empty()
        {
            explanation
                .addresses
                .push(AddressExplanation::unlisted(*address, ipam, evidence));
        }
        for (name, witness) in evidence.lists() {
            // Live entries are printed with their address.
            let told_before = |entry: &&Entry| {
                let mut addresses = explanation.addresses.iter();
                entry.is_live && addresses.any(|a| entry.addresses.contains(&a.address))
            };
            let entries = witness.entries().iter().filter(|e| subject.is_entry(e));
            let entries: Vec<&Entry> = entries.filter(|e| !told_before(e)).collect();
            explanation
                .entries
                .extend(entries.into_iter().map(|entry| describe_entry(name, entry)));
        }
        for tombstone in &ipam.tombstones {
            let attachment = &tombstone.attachment;
            if subject.is_container(&attachment.container_id) {
                explanation.early_dels.push(format!(
                    "{} ago, for interface {} on network {}",
                    format_age(now.since(tombstone.at)),
                    attachment.if_name,
                    attachment.network
                ));
            }
        }
        explanation.events = events.into_iter().filter(|e| subject.is_event(e)).collect();
        let surplus = explanation.events.len().saturating_sub(EVENTS);
        explanation.events.drain(..surplus);
        explanation
    }

    /// Whether anything is known.
    pub fn is_known(&self) -> bool {
        let placed = self
            .addresses
            .iter()
            .any(|a| a.usage != AddressUse::Elsewhere || !a.shown.is_empty());
        placed || !self.entries.is_empty() || !self.early_dels.is_empty() || !self.events.is_empty()
    }
}

/// Describes an entry of another program's list.
fn describe_entry(list: &str, entry: &Entry) -> String {
    let addresses: Vec<String> = entry.addresses.iter().map(ToString::to_string).collect();
    let pod = entry.pod.as_deref().map(|pod| format!(", pod {pod}"));
    let status = match entry.is_live {
        true => "its network namespace or link exists",
        false => "its network namespace is gone",
    };
    format!(
        "{list}: container {}{}, {}; {status}",
        entry.container_id,
        pod.unwrap_or_default(),
        addresses.join(", ")
    )
}
