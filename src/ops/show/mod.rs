//! `show`: the pools, their usage and their leases.

mod bar;
mod operations;

pub use operations::print as print_events;

use std::net::IpAddr;

use serde::Serialize;

use super::cli::ShowArgs;
use super::lease::{Lease, records_by_address};
use super::node::{Node, Now};
use super::node_config::NodeConfig;
use super::outcome::{CommandError, CommandOutput, json};
use super::screen::{Screen, Table, Tint, format_age, pluralize, replace_control};
use super::state_view::{StateReport, StateView};
use crate::ipam::{Ipam, PoolCount};
use crate::source::{Attempts, last_attempts};

/// The report of `show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShowReport {
    /// The time, RFC 3339.
    pub time: String,
    /// The state file.
    pub state: StateReport,
    /// The last queries of the source.
    pub source: SourceReport,
    /// The pools, by space and subnet.
    pub pools: Vec<PoolReport>,
}

/// The last queries of the source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceReport {
    /// The source that was queried last; `None` before the first query.
    pub name: Option<String>,
    /// Seconds since the last usable answer.
    pub answered_seconds: Option<u64>,
    /// Seconds since the last failure, if it came after the last answer.
    pub failed_seconds: Option<u64>,
}

/// A pool and its leases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolReport {
    /// The address space.
    pub space: String,
    /// The subnet.
    pub subnet: String,
    /// The interface of the host.
    pub interface: String,
    /// The gateway.
    pub gateway: Option<IpAddr>,
    /// The number of addresses.
    pub size: usize,
    /// Held addresses.
    pub held: usize,
    /// Held addresses whose holder is suspected to be dead.
    pub suspect: usize,
    /// Released recently, in cooldown.
    pub resting: usize,
    /// Free, but the host has them or a route to them.
    pub wired: usize,
    /// Free, but excluded by the configuration.
    pub excluded: usize,
    /// Free to allocate.
    pub free: usize,
    /// The leases, by address.
    pub holders: Vec<Lease>,
}

/// Runs the command.
pub fn run(node: &Node, args: &ShowArgs) -> Result<CommandOutput, CommandError> {
    if args.events {
        let events = node.history()?.records;
        return Ok(CommandOutput::success(match args.json {
            true => json(&events)?,
            false => print_events(&events, &node.screen),
        }));
    }
    let config = NodeConfig::read(node.paths());
    let mut show = read(node, &config)?;
    if let Some(pool) = &args.pool {
        show.narrow(pool)?;
    }
    Ok(CommandOutput::success(match args.json {
        true => json(&show)?,
        false => show.print(&node.screen),
    }))
}

/// Reads what `show` prints.
///
/// # Errors
/// The state cannot be read.
pub fn read(node: &Node, config: &NodeConfig) -> Result<ShowReport, CommandError> {
    let StateView {
        document, report, ..
    } = StateView::read(node)?;
    let ipam = document.ipam();
    let attempts = last_attempts(node.paths(), node.context.boot_id.as_deref());
    let counts = ipam.counts(config.conf.cooldown, &config.conf.exclude, node.now.boot);
    Ok(ShowReport::new(ipam, counts, report, attempts, &node.now))
}

impl ShowReport {
    /// Makes the report.
    pub fn new(
        ipam: &Ipam,
        counts: Vec<(String, PoolCount)>,
        state: StateReport,
        attempts: Attempts,
        now: &Now,
    ) -> ShowReport {
        let pools = ipam.pools().zip(counts);
        let pools = pools.map(|((space, subnet, pool), (_, count))| PoolReport {
            space: space.to_owned(),
            subnet: subnet.to_owned(),
            interface: pool.if_name.clone(),
            gateway: pool.gateway,
            size: pool.records.len(),
            held: count.held,
            suspect: count.suspect,
            resting: count.resting,
            wired: count.on_host,
            excluded: count.excluded,
            free: count.free,
            holders: records_by_address(pool)
                .into_iter()
                .filter_map(|record| {
                    Some(Lease::new(subnet, record.address(), record.held()?, now))
                })
                .collect(),
        });
        ShowReport {
            time: now.wall_time(now.boot),
            state,
            source: SourceReport::new(attempts, now),
            pools: pools.collect(),
        }
    }

    /// Removes all pools but one.
    fn narrow(&mut self, wanted: &str) -> Result<(), CommandError> {
        let known: Vec<String> = self.pools.iter().map(|pool| pool.subnet.clone()).collect();
        self.pools.retain(|pool| pool.subnet == wanted);
        if let (true, Some(sentence)) = (known.is_empty(), self.state.sentences()) {
            return Err(CommandError(sentence));
        }
        if self.pools.is_empty() {
            return Err(CommandError(match known.is_empty() {
                true => format!("there is no pool {wanted}; there are none yet"),
                false => format!(
                    "there is no pool {wanted}; the pools are {}",
                    known.join(", ")
                ),
            }));
        }
        Ok(())
    }

    /// Prints the report as text.
    pub fn print(&self, screen: &Screen) -> String {
        let mut text = String::new();
        if let Some(sentence) = self.state.sentences() {
            text.push_str(&screen.paragraph("", 0, &sentence));
            text.push('\n');
        }
        for pool in &self.pools {
            text.push_str(&pool.print(screen));
            text.push('\n');
        }
        text.push_str(&screen.paragraph("", 0, &self.source.sentence()));
        text
    }
}

impl SourceReport {
    /// Makes it from the stamps of the last queries.
    pub fn new(attempts: Attempts, now: &Now) -> SourceReport {
        let ago = |moment| now.since(moment).as_secs();
        let failed = attempts.failed.filter(|at| attempts.answered < Some(*at));
        SourceReport {
            name: Some(attempts.source).filter(|name| !name.is_empty()),
            answered_seconds: attempts.answered.map(ago),
            failed_seconds: failed.map(ago),
        }
    }

    fn sentence(&self) -> String {
        let ago = |seconds| format_age(std::time::Duration::from_secs(seconds));
        let name = self.name.as_deref().unwrap_or("the source");
        let mut sentence = match (self.answered_seconds, &self.name) {
            (Some(seconds), _) => format!("Source: {name}, answered {} ago.", ago(seconds)),
            (None, Some(_)) => format!("Source: {name}, no answer yet since the node started."),
            (None, None) => "Source: not queried since the node started.".to_owned(),
        };
        if let Some(seconds) = self.failed_seconds {
            sentence.push_str(&format!(
                " The last query failed {} ago; `azure-vnet-ipam doctor` shows why.",
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
        let heading = screen.paragraph("", 0, &heading);
        let mut text = screen.tint(Tint::Strong, heading.trim_end());
        text.push('\n');
        text.push_str(&bar::print(self, screen));
        text.push_str(&screen.paragraph("", 2, &self.counts()));
        if !self.holders.is_empty() {
            text.push('\n');
            text.push_str(&self.table().print(screen, 2));
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

    fn table(&self) -> Table {
        let notes: Vec<String> = self.holders.iter().map(note).collect();
        let noted = notes.iter().any(|note| !note.is_empty());
        let mut headings = vec!["ADDRESS", "POD", "CONTAINER", "NETWORK", "SINCE"];
        if noted {
            headings.push("NOTE");
        }
        let mut table = Table::new(&headings, &[1, 3]);
        for (holder, note) in self.holders.iter().zip(notes) {
            let mut cells = holder.cells();
            if noted {
                cells.push(note);
            }
            table.row(cells);
        }
        table
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
