//! What `explain` is asked about. Pure.

use std::net::IpAddr;

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
}

/// Whether the text names the pod, with or without its namespace.
fn is_pod_name(text: &str, pod: &str) -> bool {
    pod == text || pod.split_once('/').is_some_and(|(_, last)| last == text)
}
