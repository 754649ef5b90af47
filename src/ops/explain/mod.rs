//! `explain`: everything that is known about one address, container or pod.

mod address;
pub mod query;

use serde::Serialize;

use address::{AddressExplanation, describe_list};
use query::Query;

use super::cli::ExplainArgs;
use super::events::print_events;
use super::node::{Node, Now};
use super::node_config::NodeConfig;
use super::outcome::{CommandError, CommandOutput, json};
use super::progress;
use super::screen::{Screen, Tint, format_age};
use super::state_view::{StateReport, StateView};
use crate::cni::IpamConfig;
use crate::events::OperationRecord;
use crate::ipam::{Entry, Evidence, Ipam};
use crate::plugin::note_moved_namespaces;

/// Runs the command.
pub fn run(node: &Node, args: &ExplainArgs) -> Result<CommandOutput, CommandError> {
    let state = StateView::read(node)?;
    let config = NodeConfig::read(node.paths());
    let mut evidence = progress::capture_snapshot(Vec::new(), &node.context).evidence;
    note_moved_namespaces(state.ipam().holders(), &mut evidence, node.paths());
    let events = node.history()?.records;
    let subject = Query::parse(&args.subject).resolve(state.ipam(), &evidence, &events)?;
    let mut explanation = Explanation::new(
        &subject,
        state.ipam(),
        &evidence,
        events,
        &config.conf,
        &node.now,
        node.paths().name(),
    );
    explanation.set_state(state.report);
    Ok(CommandOutput {
        status: u8::from(!explanation.is_known()),
        text: match args.format.is_json() {
            true => json(&explanation)?,
            false => explanation.print(&node.screen.bounded()),
        },
    })
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
    /// The last operations that concern it, the newest last.
    pub events: Vec<OperationRecord>,
    /// Why it is not known who holds what, if it is not.
    pub unknown: Option<&'static str>,
    /// What to type instead, if nothing is known.
    #[serde(skip)]
    pub hint: Option<String>,
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
        /// Older ones are in `events`.
        const EVENTS: usize = 8;
        let mut explanation = Explanation {
            subject: match subject {
                Query::Address(address) => address.to_string(),
                Query::Name { name, .. } => name.clone(),
            },
            hint: match subject {
                Query::Address(_) => None,
                Query::Name { hint, .. } => hint.clone(),
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
        for (name, list) in evidence.lists() {
            // Live entries are printed with their address.
            let told_before = |entry: &&Entry| {
                let mut addresses = explanation.addresses.iter();
                entry.is_live && addresses.any(|a| entry.addresses.contains(&a.address))
            };
            let entries = list.entries().iter().filter(|e| subject.is_entry(e));
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
        explanation.events = subject.timeline(events);
        let surplus = explanation.events.len().saturating_sub(EVENTS);
        explanation.events.drain(..surplus);
        explanation
    }

    /// Adds the health of the state. Where records are missing, an address that no record holds may be held by anybody.
    pub fn set_state(&mut self, state: StateReport) {
        self.unknown = state.describe_missing_records();
        if let Some(why) = self.unknown {
            let addresses = self.addresses.iter_mut();
            addresses.for_each(|address| address.mark_unknown(why));
        }
        self.state = Some(state);
    }

    /// Prints the report as text.
    pub fn print(&self, screen: &Screen) -> String {
        let mut text = String::new();
        if let Some(sentence) = self.state.as_ref().and_then(|state| state.sentences()) {
            text.push_str(&screen.paragraph("", 0, &sentence));
            text.push('\n');
        }
        if !self.is_known() {
            let subject = &self.subject;
            let mut sentence = match self.unknown {
                Some(why) => format!("Who or what {subject} is cannot be told: {why}."),
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
