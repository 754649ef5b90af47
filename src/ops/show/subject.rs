//! `show SUBJECT`: everything that is known about one address, container or pod.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::Serialize;

pub use super::address::Facts;
use super::address::{AddressReport, describe_list};
use crate::cni::Verb;
use crate::codec::named_address;
use crate::events::OperationRecord;
use crate::ipam::{Entry, Evidence, EvidenceIndex, Held, Holder, Ipam, Record};
use crate::ops::events::print_events;
use crate::ops::findings::host_network::HostNetwork;
use crate::ops::held::{
    ContainerMatch, ambiguous, describe_too_short, find_container, find_pods, is_pod_name,
};
use crate::ops::node::Node;
use crate::ops::node_config::NodeConfig;
use crate::ops::outcome::{CommandError, CommandOutput, OutputFormat};
use crate::ops::screen::{Screen, Tint, format_age};
use crate::ops::state_view::{StateReport, StateView};

/// Shows what is known about a subject.
///
/// # Errors
/// This user may not read the state or the list of operations, or the text stands for several subjects.
pub fn run(
    node: &Node,
    text: &str,
    format: OutputFormat,
    (state, evidence): (&StateView, &Evidence),
) -> Result<CommandOutput, CommandError> {
    let events = node.history()?.records;
    let subject = Subject::parse(text).resolve(state.ipam(), evidence, &events)?;
    let freed_after_reboot = state.freed_after_reboot(evidence, &node.now);
    let host = HostNetwork::read(node.paths(), state.ipam());
    let ipam = state.present_ipam(node, evidence, |to| host.uses_route_to(to));
    let facts = Facts {
        ipam: &ipam,
        evidence,
        conf: &NodeConfig::read(node.paths()).conf,
        now: &node.now,
        program: &node.program_as_root(),
        host: &host,
        withheld: &node.taken(state.ipam()).withheld,
        freed_after_reboot: freed_after_reboot.as_ref(),
    };
    let report = SubjectReport::new(&subject, &facts, events, state.report.clone());
    let status = u8::from(!report.is_known());
    let print = || report.print(&node.screen.bounded());
    format.output(status, &report, print)
}

/// Everything that is known about a subject.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubjectReport {
    /// The subject as it was typed.
    pub subject: String,
    /// The time, RFC 3339.
    pub time: String,
    /// The health of the state.
    pub state: StateReport,
    /// The addresses.
    pub addresses: Vec<AddressReport>,
    /// Entries in the lists of other programs.
    pub entries: Vec<String>,
    /// DELs that found nothing to release; their ADD may still come.
    pub early_dels: Vec<String>,
    /// The last operations that concern it, the newest last.
    pub events: Vec<OperationRecord>,
    /// Why it is not known who holds what, if it is not.
    pub unknown: Option<&'static str>,
    /// What to type instead, if nothing is known.
    #[serde(skip)]
    pub hint: Option<String>,
}

impl SubjectReport {
    /// Collects everything that is known about `subject`. Where records are missing, an address that no record holds may be held by
    /// anybody.
    pub fn new(
        subject: &Subject,
        facts: &Facts<'_>,
        events: Vec<OperationRecord>,
        state: StateReport,
    ) -> SubjectReport {
        /// Older ones are in `events`.
        const EVENTS: usize = 8;
        let (ipam, now) = (facts.ipam, facts.now);
        let mut report = SubjectReport {
            subject: subject.text.clone(),
            hint: subject.hint.clone(),
            time: now.wall_time(now.boot),
            unknown: state.missing_records,
            state,
            ..SubjectReport::default()
        };
        for (_, key, pool) in ipam.pools() {
            let records = pool.records.iter().filter(|r| subject.is_record(r));
            let addresses = records.map(|r| AddressReport::new(facts, (key, pool), r));
            report.addresses.extend(addresses);
        }
        if let (Some(address), []) = (subject.address, &*report.addresses) {
            let unlisted = AddressReport::unlisted(address, facts);
            report.addresses.push(unlisted);
        }
        if let Some(why) = report.unknown {
            let addresses = report.addresses.iter_mut();
            addresses.for_each(|address| address.mark_unknown(why));
        }
        let index = EvidenceIndex::new(facts.evidence, ipam);
        for (name, list) in facts.evidence.lists() {
            // Live entries are printed with their address.
            let is_printed = |entry: &Entry| {
                let mut addresses = report.addresses.iter();
                entry.is_live && addresses.any(|a| entry.addresses.contains(&a.address))
            };
            for entry in list.entries() {
                if subject.is_entry(entry) && !is_printed(entry) {
                    let described = describe_entry(name, entry, &index, ipam);
                    report.entries.push(described);
                }
            }
        }
        for tombstone in &ipam.tombstones {
            let attachment = &tombstone.attachment;
            if subject.container.as_ref() == Some(&attachment.container_id) {
                report.early_dels.push(format!(
                    "{} ago, for interface {} on network {}",
                    format_age(now.since(tombstone.at)),
                    attachment.if_name,
                    attachment.network
                ));
            }
        }
        report.events = subject.timeline(events);
        let surplus = report.events.len().saturating_sub(EVENTS);
        report.events.drain(..surplus);
        report
    }

    /// Prints the report as text.
    pub fn print(&self, screen: &Screen) -> String {
        let mut text = String::new();
        if let Some(sentence) = self.state.sentences() {
            text.push_str(&screen.paragraph("", 0, &sentence));
            text.push('\n');
        }
        if !self.is_known() {
            let subject = &self.subject;
            let mut sentence = match self.unknown {
                Some(why) => format!("It is not known what {subject} is: {why}."),
                None => format!("Nothing is known about {subject}."),
            };
            if let Some(hint) = &self.hint {
                sentence.push_str(&format!(" {hint}."));
            }
            text.push_str(&screen.paragraph("", 0, &sentence));
            return text;
        }
        for address in &self.addresses {
            text.push_str(&address.print(screen));
            text.push('\n');
        }
        if self.addresses.is_empty() {
            let heading = match self.unknown {
                Some(why) => format!("Unknown whether {} holds an address: {why}.", self.subject),
                None => format!("{} holds no address.", self.subject),
            };
            let heading = screen.paragraph("", 0, &heading);
            text.push_str(&screen.tint(Tint::Strong, heading.trim_end()));
            text.push_str("\n\n");
        }
        let before = text.len();
        text.push_str(&describe_list("elsewhere", &self.entries, screen));
        text.push_str(&describe_list("early DELs", &self.early_dels, screen));
        if text.len() > before {
            text.push('\n');
        }
        if !self.events.is_empty() {
            text.push_str(&screen.tint(Tint::Strong, "Last operations"));
            text.push('\n');
            text.push_str(&print_events(&self.events, &screen.bounded()));
        }
        text.trim_end().to_owned() + "\n"
    }

    /// Whether anything is known.
    pub fn is_known(&self) -> bool {
        let placed = self
            .addresses
            .iter()
            .any(|a| a.is_placed() || !a.shown.is_empty());
        placed || !self.entries.is_empty() || !self.early_dels.is_empty() || !self.events.is_empty()
    }
}

/// Describes an entry of another program's list. The network namespace of a holder may exist without the path that the entry names.
fn describe_entry(list: &str, entry: &Entry, index: &EvidenceIndex<'_>, ipam: &Ipam) -> String {
    let addresses: Vec<String> = entry.addresses.iter().map(ToString::to_string).collect();
    let Holder {
        attachment, pod, ..
    } = &entry.holder;
    let pod_text = pod.as_ref().map(|pod| format!(", pod {pod}"));
    let has_namespace =
        |held: &Held| entry.holder.agrees_with(&held.holder) && index.has_namespace(&held.holder);
    let status = if entry.is_live {
        "its network namespace or link exists"
    } else if ipam.holders().any(has_namespace) {
        "its network namespace exists, but its path does not lead there any more"
    } else {
        "its network namespace was not found"
    };
    format!(
        "{list}: container {}{}, {}; {status}",
        attachment.container_id,
        pod_text.unwrap_or_default(),
        addresses.join(", ")
    )
}

/// What `show` was asked about: an address, a container, or a pod as `namespace/name` or `name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The text as it was typed; an address as it is printed.
    text: String,
    /// The address, if it is one.
    address: Option<IpAddr>,
    /// The whole ID of the container that it stands for.
    container: Option<String>,
    /// The pod that it stands for, where it is only a part of its name.
    pod: Option<String>,
    /// Why it stands for no container, though IDs begin with it.
    hint: Option<String>,
}

impl Subject {
    /// Parses an address, or takes the text as the name of a pod.
    pub fn parse(text: &str) -> Subject {
        let address = named_address(text);
        Subject {
            text: address.map_or_else(|| text.to_owned(), |address| address.to_string()),
            address,
            container: None,
            pod: None,
            hint: None,
        }
    }

    /// Looks for the container whose ID begins with the name, and for the pod whose name contains it. A pod takes precedence over several
    /// such containers.
    ///
    /// # Errors
    /// It stands for several containers, or for several pods of none of which it is the name.
    fn resolve(
        mut self,
        ipam: &Ipam,
        evidence: &Evidence,
        events: &[OperationRecord],
    ) -> Result<Subject, CommandError> {
        if self.address.is_some() {
            return Ok(self);
        }
        let name = &self.text;
        let lists = evidence.lists();
        let entries = lists.iter().flat_map(|(_, list)| list.entries());
        let freed = events.iter().flat_map(|event| &event.freed);
        let known: Vec<&Holder> = ipam
            .holders()
            .map(|held| &*held.holder)
            .chain(entries.map(|entry| &entry.holder))
            .chain(events.iter().map(|event| &event.holder))
            .chain(freed.map(|freed| &freed.holder))
            .collect();
        let pods = find_pods(
            name,
            known.iter().filter_map(|holder| holder.pod.as_deref()),
        );
        let pods: Vec<String> = pods.into_iter().collect();
        let ids_of_early_dels = ipam
            .tombstones
            .iter()
            .map(|tombstone| &*tombstone.attachment.container_id);
        let ids = known
            .iter()
            .map(|holder| holder.container_id())
            .chain(ids_of_early_dels);
        match (find_container(name, ids), &*pods) {
            (ContainerMatch::One(id), _) => self.container = Some(id),
            (_, [pod]) => self.pod = Some(pod.clone()),
            (_, [pod, ..]) if !is_pod_name(name, pod) => {
                return Err(ambiguous(name, "pods have it in their names", &pods));
            }
            (ContainerMatch::Ambiguous(ids), []) => {
                return Err(ambiguous(name, "containers begin with it", &ids));
            }
            (ContainerMatch::TooShort, []) => self.hint = Some(describe_too_short(name)),
            (_, _) => {}
        }
        Ok(self)
    }

    /// Whether it stands for this holder's container or pod.
    fn is_holder(&self, holder: &Holder) -> bool {
        let name = self.pod.as_ref().unwrap_or(&self.text);
        let is_pod = |pod: &String| self.address.is_none() && is_pod_name(name, pod);
        self.container.as_deref() == Some(holder.container_id())
            || holder.pod.as_ref().is_some_and(is_pod)
    }

    /// Whether it stands for the address of the record or for its holder.
    fn is_record(&self, record: &Record) -> bool {
        let is_holder = |held: &Held| self.is_holder(&held.holder);
        self.address == Some(record.address()) || record.held().is_some_and(is_holder)
    }

    /// Whether an entry of another program's list is about it.
    fn is_entry(&self, entry: &Entry) -> bool {
        entry.addresses.iter().any(|a| self.address == Some(*a)) || self.is_holder(&entry.holder)
    }

    /// Whether the record of an operation names it.
    fn is_event(&self, event: &OperationRecord) -> bool {
        let mut freed = event.freed.iter();
        self.address.is_some_and(|address| event.touches(address))
            || self.is_subject(event)
            || freed.any(|freed| self.is_holder(&freed.holder))
    }

    /// Whether the operation was for this container or pod.
    fn is_subject(&self, event: &OperationRecord) -> bool {
        self.is_holder(&event.holder)
    }

    /// Keeps the operations that name the subject, and those of others that touched an address while the subject held it: a reclaim,
    /// a GC, a command, or an ADD that got the same address. The operations are in the order of their time.
    fn timeline(&self, events: Vec<OperationRecord>) -> Vec<OperationRecord> {
        let mut held: BTreeSet<IpAddr> = BTreeSet::new();
        let mut concerns = |event: &OperationRecord| {
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
        events.into_iter().filter(|event| concerns(event)).collect()
    }
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
            holder: Holder {
                pod: Some(pod.to_owned()).filter(|pod| !pod.is_empty()),
                ..Holder::default()
            },
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
        let found = Subject::parse(pod).timeline(numbered.collect());
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
            holder: Holder {
                pod: Some(pod.into()),
                ..Holder::from_container_id("c1")
            },
        };
        let reclaim = OperationRecord {
            freed: vec![freed("x/web")],
            ..event("reclaim", "", &[])
        };
        assert_eq!(concerning("web", std::slice::from_ref(&reclaim)), [0]);
        assert_eq!(concerning("other", &[reclaim]), [0; 0]);
    }
}
