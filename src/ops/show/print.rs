//! Prints the report of `show` as text.

use super::bar;
use super::report::{PoolReport, ShowReport, SourceReport};
use crate::ops::lease::{Lease, common_network};
use crate::ops::screen::{Screen, Tint, format_age, pluralize, replace_control};

impl ShowReport {
    /// Prints the report as text, which names the commands of `program`.
    pub fn print(&self, screen: &Screen, program: &str) -> String {
        let mut text = String::new();
        if let Some(sentence) = self.state.sentences() {
            text.push_str(&screen.paragraph("", 0, &sentence));
            text.push('\n');
        }
        let is_shown = |pool: &&PoolReport| !self.is_filtered || !pool.holders.is_empty();
        for pool in self.pools.iter().filter(is_shown) {
            text.push_str(&pool.print(screen));
            text.push('\n');
        }
        if !self.pools.iter().any(|pool| is_shown(&pool)) && self.is_filtered {
            text.push_str("No holder matches.\n\n");
        }
        text.push_str(&screen.paragraph("", 0, &self.source.sentence(program)));
        text
    }
}

impl SourceReport {
    fn sentence(&self, program: &str) -> String {
        let ago = |seconds| format_age(std::time::Duration::from_secs(seconds));
        let name = self.name.as_deref().unwrap_or("the source");
        let mut sentence = match (self.answered_seconds, &self.name) {
            (Some(seconds), _) => format!("Source: {name}, answered {} ago.", ago(seconds)),
            (None, Some(_)) => format!("Source: {name}, no answer yet since the node started."),
            (None, None) => "Source: not queried since the node started.".to_owned(),
        };
        if let Some(seconds) = self.failed_seconds {
            sentence.push_str(&format!(
                " The last query failed {} ago; `{program} doctor` shows why.",
                ago(seconds)
            ));
        }
        sentence
    }
}

impl PoolReport {
    fn print(&self, screen: &Screen) -> String {
        let mut heading = replace_control(&self.subnet);
        if !self.interface.is_empty() {
            heading.push_str(&format!(" on {}", replace_control(&self.interface)));
        }
        if let Some(gateway) = self.gateway {
            heading.push_str(&format!(", gateway {gateway}"));
        }
        if let Some(network) = common_network(self.holders.iter()) {
            heading.push_str(&format!(", pods on {}", replace_control(&network)));
        }
        let heading = screen.paragraph("", 0, &heading);
        let mut text = screen.tint(Tint::Strong, heading.trim_end());
        text.push('\n');
        text.push_str(&bar::print(self, screen));
        text.push_str(&screen.paragraph("", 2, &self.counts()));
        if !self.holders.is_empty() {
            text.push('\n');
            let notes = self.holders.iter().map(note).collect();
            let table = Lease::table(self.holders.iter(), notes);
            text.push_str(&table.print(screen, 2));
        }
        text
    }

    /// The counts of each use, in words.
    fn counts(&self) -> String {
        let mut parts = vec![format!("{} held", self.held)];
        let kinds = [
            (self.suspect, " of them suspect"),
            (self.resting, " resting"),
            (self.wired, " on the host"),
            (self.excluded, " excluded"),
        ];
        for (count, kind) in kinds.into_iter().filter(|(count, _)| *count > 0) {
            parts.push(format!("{count}{kind}"));
        }
        parts.push(format!(
            "{} free, of {}",
            self.free,
            pluralize(self.size, "address", "addresses")
        ));
        parts.join(", ")
    }
}

/// The note on an unusual lease.
fn note(holder: &Lease) -> String {
    match (holder.suspect_seconds, holder.listed) {
        (Some(_), _) => "suspect".to_owned(),
        (None, false) => "unlisted".to_owned(),
        (None, true) => String::new(),
    }
}
