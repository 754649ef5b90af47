//! What `explain` is asked about, and the operations that concern it. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::cni::Verb;
use crate::codec::named_address;
use crate::events::OperationRecord;
use crate::ipam::{Entry, Evidence, Ipam, Record};
use crate::ops::container_id::{self, ContainerMatch, describe_too_short};
use crate::ops::outcome::CommandError;

/// What `explain` was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// An address.
    Address(IpAddr),
    /// A pod, as `namespace/name` or `name`, or a container.
    Name {
        /// The text as it was typed.
        name: String,
        /// The whole ID of the container that it stands for.
        container: Option<String>,
        /// Why it stands for no container, though IDs begin with it.
        hint: Option<String>,
    },
}

impl Query {
    /// Parses an address, or takes the text as the name of a pod.
    pub fn parse(text: &str) -> Query {
        match named_address(text) {
            Some(address) => Query::Address(address),
            None => Query::Name {
                name: text.to_owned(),
                container: None,
                hint: None,
            },
        }
    }

    /// Looks for the container whose ID begins with the name. A pod of that name takes precedence over several such containers.
    ///
    /// # Errors
    /// Several containers have the prefix.
    pub fn resolve(
        mut self,
        ipam: &Ipam,
        evidence: &Evidence,
        events: &[OperationRecord],
    ) -> Result<Query, CommandError> {
        let Query::Name {
            name,
            container,
            hint,
        } = &mut self
        else {
            return Ok(self);
        };
        let holders = ipam.holders().filter_map(|held| held.owner.container_id());
        let tombstones = ipam.tombstones.iter();
        let lists = evidence.lists();
        let entries = lists.iter().flat_map(|(_, list)| list.entries());
        let freed = events.iter().flat_map(|event| &event.freed);
        let ids = holders
            .chain(tombstones.map(|tombstone| tombstone.attachment.container_id.as_str()))
            .chain(entries.clone().map(|entry| entry.container_id.as_str()))
            .chain(events.iter().map(|event| event.container_id.as_str()))
            .chain(freed.clone().map(|freed| freed.container.as_str()));
        let mut pods = ipam
            .holders()
            .filter_map(|held| held.owner.pod())
            .chain(entries.filter_map(|entry| entry.pod.as_deref()))
            .chain(events.iter().filter_map(|event| event.pod.as_deref()))
            .chain(freed.filter_map(|freed| freed.pod.as_deref()));
        let is_pod = pods.any(|pod| is_pod_name(name, pod));
        match container_id::find(name, ids) {
            ContainerMatch::One(id) => *container = Some(id),
            ContainerMatch::Ambiguous(ids) if !is_pod => {
                return Err(container_id::ambiguous(name, &ids));
            }
            ContainerMatch::TooShort if !is_pod => *hint = Some(describe_too_short(name)),
            ContainerMatch::Ambiguous(_) | ContainerMatch::TooShort | ContainerMatch::None => {}
        }
        Ok(self)
    }

    /// Whether it stands for this container.
    pub fn is_container(&self, id: &str) -> bool {
        match self {
            Query::Address(_) => false,
            Query::Name { container, .. } => container.as_deref() == Some(id),
        }
    }

    fn is_pod(&self, pod: Option<&str>) -> bool {
        match (self, pod) {
            (Query::Name { name, .. }, Some(pod)) => is_pod_name(name, pod),
            _ => false,
        }
    }

    fn is_address(&self, address: IpAddr) -> bool {
        *self == Query::Address(address)
    }

    /// Whether it stands for the address of the record or for its holder.
    pub fn is_record(&self, record: &Record) -> bool {
        let owner = record.held().map(|held| &held.owner);
        self.is_address(record.address())
            || owner
                .and_then(|owner| owner.container_id())
                .is_some_and(|id| self.is_container(id))
            || self.is_pod(owner.and_then(|owner| owner.pod()))
    }

    /// Whether an entry of another program's list is about it.
    pub fn is_entry(&self, entry: &Entry) -> bool {
        entry.addresses.iter().any(|a| self.is_address(*a))
            || self.is_container(&entry.container_id)
            || self.is_pod(entry.pod.as_deref())
    }

    /// Whether the record of an operation names it.
    pub fn is_event(&self, event: &OperationRecord) -> bool {
        let is_freed = event
            .freed
            .iter()
            .any(|freed| self.is_container(&freed.container) || self.is_pod(freed.pod.as_deref()));
        match self {
            Query::Address(address) => event.touches(*address),
            Query::Name { .. } => is_freed || self.is_subject(event),
        }
    }

    /// Whether the operation was for this container or pod.
    pub fn is_subject(&self, event: &OperationRecord) -> bool {
        self.is_container(&event.container_id) || self.is_pod(event.pod.as_deref())
    }

    /// Keeps the operations that name the subject, and those of others that touched an address while the subject held it: a reclaim,
    /// a GC, a command, or an ADD that got the same address. The operations are in the order of their time.
    pub fn timeline(&self, events: Vec<OperationRecord>) -> Vec<OperationRecord> {
        let mut held: BTreeSet<IpAddr> = BTreeSet::new();
        let concerns = |event: &OperationRecord| {
            let touched = event.all_addresses();
            let is_concerned = self.is_event(event) || touched.iter().any(|a| held.contains(a));
            let is_add = event.verb == Verb::Add.as_str();
            if self.is_subject(event) && is_add {
                if event.code == 0 {
                    held.extend(&event.addresses);
                }
            } else if event.code == 0 || !is_transaction(&event.verb) {
                held.retain(|address| !touched.contains(address));
            }
            is_concerned
        };
        let mut concerns = concerns;
        events.into_iter().filter(|event| concerns(event)).collect()
    }
}

/// Whether the text names the pod, with or without its namespace.
fn is_pod_name(text: &str, pod: &str) -> bool {
    pod == text || pod.split_once('/').is_some_and(|(_, last)| last == text)
}

/// Whether an operation that failed changed nothing. A GC that kept some addresses fails, but freed those that it lists.
fn is_transaction(verb: &str) -> bool {
    verb == Verb::Add.as_str() || verb == Verb::Del.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::FreedAddress;

    fn address(n: u8) -> IpAddr {
        [10, 224, 0, n].into()
    }

    fn event(verb: &str, pod: &str, addresses: &[u8]) -> OperationRecord {
        OperationRecord {
            verb: verb.into(),
            pod: Some(pod.to_owned()).filter(|pod| !pod.is_empty()),
            addresses: addresses.iter().map(|n| address(*n)).collect(),
            ..OperationRecord::default()
        }
    }

    fn failed(event: OperationRecord) -> OperationRecord {
        OperationRecord { code: 5, ..event }
    }

    /// The positions of the operations that concern a pod.
    fn concerning(pod: &str, events: &[OperationRecord]) -> Vec<usize> {
        let numbered = events.iter().enumerate().map(|(n, event)| OperationRecord {
            microseconds: u64::try_from(n).unwrap(),
            ..event.clone()
        });
        let found = Query::parse(pod).timeline(numbered.collect());
        let numbers = found
            .iter()
            .map(|e| usize::try_from(e.microseconds).unwrap());
        numbers.collect()
    }

    #[test]
    fn operations_of_others_on_an_address_count_while_the_pod_holds_it() {
        let taken_by_add = OperationRecord {
            freed: vec![FreedAddress {
                address: Some(address(5)),
                ..FreedAddress::default()
            }],
            ..event("ADD", "x/other", &[9])
        };
        for taker in [
            event("reclaim", "", &[4, 5]),
            event("GC", "", &[5]),
            failed(event("GC", "", &[5])),
            event("release", "", &[5]),
            event("ADD", "x/other", &[5]),
            taken_by_add,
        ] {
            let events = [
                event("DEL", "x/earlier", &[5]),
                event("ADD", "x/web", &[5]),
                event("ADD", "x/other", &[6]),
                taker.clone(),
                event("ADD", "x/third", &[5]),
                event("DEL", "x/third", &[5]),
            ];
            assert_eq!(concerning("x/web", &events), [1, 3], "{taker:?}");
            assert_eq!(
                concerning("10.224.0.5", &events),
                [0, 1, 3, 4, 5],
                "{taker:?}"
            );
        }
    }

    #[test]
    fn a_failed_operation_of_another_ends_nothing() {
        let events = [
            failed(event("ADD", "x/web", &[7])),
            event("reclaim", "", &[7]),
            event("ADD", "x/web", &[5]),
            failed(event("DEL", "x/web", &[5])),
            failed(event("ADD", "x/other", &[5])),
            event("reclaim", "", &[5]),
        ];
        assert_eq!(concerning("x/web", &events), [0, 2, 3, 4, 5]);
    }

    #[test]
    fn a_reclaim_that_names_the_holder_needs_no_add_before_it() {
        let freed = |pod: &str| FreedAddress {
            address: Some(address(5)),
            container: "c1".into(),
            pod: Some(pod.into()),
        };
        let reclaim = OperationRecord {
            freed: vec![freed("x/web")],
            ..event("reclaim", "", &[])
        };
        assert_eq!(concerning("web", std::slice::from_ref(&reclaim)), [0]);
        assert_eq!(concerning("other", &[reclaim]), [0; 0]);
    }
}
