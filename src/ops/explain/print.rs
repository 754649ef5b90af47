//! The explanation as text.

use super::address::{AddressExplanation, AddressUse};
use super::explanation::Explanation;
use super::sharing::OtherUser;
use crate::ops::events::print_events;
use crate::ops::screen::{Screen, Tint, format_time};

const INDENT: usize = 14;

impl Explanation {
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
        text.push_str(&list("elsewhere", &self.entries, screen));
        text.push_str(&list("early DELs", &self.early_dels, screen));
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
}

impl AddressExplanation {
    fn print(&self, screen: &Screen) -> String {
        let usage = match self.usage {
            AddressUse::Held => "held",
            AddressUse::Resting => "resting",
            AddressUse::Free => "free",
            AddressUse::Wired => "free, but on the host",
            AddressUse::Excluded => "excluded",
            AddressUse::Unlisted => "not listed for this node",
            AddressUse::Elsewhere => "in none of the pools",
            AddressUse::Unknown => "unknown whether a pod holds it",
        };
        let address = screen.tint(Tint::Strong, &self.address.to_string());
        let mut text = format!("{address}  {usage}\n");
        let mut fact = |name: &str, fact: &str| {
            if !fact.is_empty() {
                text.push_str(&screen.paragraph(&format!("  {name}"), INDENT, fact));
            }
        };
        fact("pool", self.pool.as_deref().unwrap_or_default());
        if let Some(holder) = &self.holder {
            let since = match holder.first_seen {
                true => "first seen",
                false => "since",
            };
            fact("pod", holder.pod.as_deref().unwrap_or_default());
            fact(
                "container",
                holder.container.as_deref().unwrap_or("unknown"),
            );
            let network = holder.network.as_deref().unwrap_or_default();
            let interface = holder.interface.as_deref().unwrap_or_default();
            if !network.is_empty() {
                fact("network", &format!("{network}, interface {interface}"));
            }
            fact("netns", holder.netns.as_deref().unwrap_or_default());
            fact(
                since,
                &format!(
                    "{}, {} ago",
                    format_time(&holder.since),
                    format_age(holder.age_seconds)
                ),
            );
        }
        if let Some(verdict) = self.verdict {
            fact("verdict", verdict);
        }
        text.push_str(&list("why", &self.reasons, screen));
        text.push_str(&list("in use", &self.shown, screen));
        let others: Vec<String> = self.also_used_by.iter().map(OtherUser::describe).collect();
        text.push_str(&list("conflict", &others, screen));
        text.push_str(&list("checked", &self.missing, screen));
        text.push_str(&list("now", &self.next, screen));
        text
    }
}

fn format_age(seconds: u64) -> String {
    crate::ops::screen::format_age(std::time::Duration::from_secs(seconds))
}

/// A name, and beside it one line per item.
fn list(name: &str, lines: &[String], screen: &Screen) -> String {
    let mut text = String::new();
    for (n, line) in lines.iter().enumerate() {
        let head = if n == 0 {
            format!("  {name}")
        } else {
            String::new()
        };
        text.push_str(&screen.paragraph(&head, INDENT, line));
    }
    text
}
