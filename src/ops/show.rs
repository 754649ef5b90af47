//! `show`: the pools, their usage and their held addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::Serialize;

use super::cli::ShowArgs;
use super::held::{HeldAddress, common_network, find_pods, records_by_address};
use super::node::{Node, Now};
use super::node_config::NodeConfig;
use super::outcome::{CommandError, CommandOutput};
use super::screen::{Screen, Tint, format_age, pluralize, replace_control};
use super::state_view::{StateReport, StateView};
use crate::ipam::{Ipam, Pool, PoolCount, Record};
use crate::source::{Attempts, last_attempts};
use crate::state::Refreshed;

/// Runs the command.
pub fn run(node: &Node, args: &ShowArgs) -> Result<CommandOutput, CommandError> {
    let config = NodeConfig::read(node.paths());
    let mut show = read(node, &config)?;
    if let Some(pool) = &args.pool {
        show.narrow(pool)?;
    }
    if args.suspect || args.pod.is_some() {
        show.filter(args.pod.as_deref(), args.suspect);
    }
    let screen = args.format.screen(node.screen);
    let print = || show.print(&screen, node.paths().name());
    args.format.output(0, &show, print)
}

/// Reads what `show` prints.
///
/// # Errors
/// The state cannot be read.
pub fn read(node: &Node, config: &NodeConfig) -> Result<ShowReport, CommandError> {
    let StateView { state, report, .. } = StateView::read(node)?;
    let ipam = state.ipam();
    let attempts = last_attempts(node.paths(), node.context.boot_id.as_deref());
    let (conf, taken) = (&config.conf, node.taken(ipam));
    let counts = ipam.counts(&taken, conf.cooldown, &conf.exclude, node.now.boot);
    let source = SourceReport::new(attempts, state.document.refreshed.as_ref(), &node.now);
    Ok(ShowReport::new(ipam, counts, report, source, &node.now))
}

/// The report of `show`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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
    /// Whether only some of the holders are listed.
    #[serde(skip)]
    pub is_filtered: bool,
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

/// A pool and its held addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolReport {
    /// The address space.
    pub space: String,
    /// The interface of the host.
    pub interface: String,
    /// The gateway.
    pub gateway: Option<IpAddr>,
    /// The number of addresses.
    pub size: usize,
    /// The held part of all addresses: 0 only for none, and 100 only for all of them.
    pub held_percent: usize,
    /// The subnet, and how its addresses are used.
    #[serde(flatten)]
    pub count: PoolCount,
    /// The held addresses, in their order.
    pub holders: Vec<HeldAddress>,
}

impl PoolReport {
    fn new(space: &str, pool: &Pool, count: PoolCount, now: &Now) -> PoolReport {
        let records = records_by_address(pool).into_iter();
        let held = |r: &Record| Some(HeldAddress::new(&count.subnet, r.address(), r.held()?, now));
        let holders = records.filter_map(held).collect();
        PoolReport {
            space: space.to_owned(),
            interface: pool.if_name.clone(),
            gateway: pool.gateway,
            size: pool.records.len(),
            held_percent: percent(count.held, pool.records.len()),
            count,
            holders,
        }
    }

    fn print(&self, screen: &Screen) -> String {
        let mut heading = replace_control(&self.count.subnet);
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
        text.push_str(&self.bar(screen));
        text.push_str(&screen.paragraph("", 2, &self.counts()));
        if !self.holders.is_empty() {
            text.push('\n');
            let table = HeldAddress::table(self.holders.iter(), note);
            text.push_str(&screen.table(table, 2).join("\n"));
            text.push('\n');
        }
        text
    }

    /// The counts of each use, in words.
    fn counts(&self) -> String {
        let count = &self.count;
        let mut parts = vec![format!("{} held", count.held)];
        for (count, kind) in [
            (count.suspect, "of them suspect"),
            (count.held_elsewhere, "held in another pool"),
            (count.cooldown, "in cooldown"),
            (count.withheld, "withheld"),
            (count.on_host, "on the host"),
            (count.excluded, "excluded"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {kind}"));
            }
        }
        let size = pluralize(self.size, "address", "addresses");
        parts.push(format!("{} free, of {size}", count.free));
        parts.join(", ")
    }

    /// The bar and the percentage of held addresses. Each use has its own character, so the bar is readable without colours.
    fn bar(&self, screen: &Screen) -> String {
        /// The maximum width.
        const WIDEST: usize = 64;
        /// The columns beside the bar: the indentation, the brackets and the percentage.
        const BESIDE: usize = "  []  100%".len();
        let width = screen.width.unwrap_or(usize::MAX);
        let width = width.saturating_sub(BESIDE).min(WIDEST);
        let count = &self.count;
        let parts = [
            (count.held.saturating_sub(count.suspect), '#', Tint::Good),
            (count.suspect, '!', Tint::Bad),
            (count.cooldown, '~', Tint::Doubtful),
            (
                count.on_host + count.excluded + count.withheld + count.held_elsewhere,
                'x',
                Tint::Doubtful,
            ),
            (count.free, '.', Tint::Faint),
        ];
        let cells = shares(&parts.map(|(count, _, _)| count), width);
        let mut bar = String::new();
        for ((_, sign, tint), cells) in parts.into_iter().zip(cells) {
            bar.push_str(&screen.tint(tint, &sign.to_string().repeat(cells)));
        }
        format!("  [{bar}]  {}%\n", self.held_percent)
    }
}

impl ShowReport {
    /// Makes the report.
    pub fn new(
        ipam: &Ipam,
        counts: Vec<(String, PoolCount)>,
        state: StateReport,
        source: SourceReport,
        now: &Now,
    ) -> ShowReport {
        let pools = ipam.pools().zip(counts);
        let mut pools: Vec<PoolReport> = pools
            .map(|((space, _, pool), (_, count))| PoolReport::new(space, pool, count, now))
            .collect();
        // Another pool may list what the source took from this one.
        let listed = ipam.listed_addresses();
        for held in pools.iter_mut().flat_map(|pool| &mut pool.holders) {
            if listed.contains(&held.address) {
                held.unlisted_seconds = None;
            }
        }
        // The state has them in the order of their texts.
        fn place(pool: &PoolReport) -> (&str, Option<IpNet>, &str) {
            let subnet = &pool.count.subnet;
            (&pool.space, subnet.parse().ok(), subnet)
        }
        pools.sort_unstable_by(|a, b| place(a).cmp(&place(b)));
        ShowReport {
            time: now.wall_time(now.boot),
            state,
            source,
            pools,
            is_filtered: false,
        }
    }

    /// Removes all pools but one.
    pub fn narrow(&mut self, wanted: &str) -> Result<(), CommandError> {
        let known = self.pools.iter().map(|pool| pool.count.subnet.clone());
        let known: Vec<String> = known.collect();
        self.pools.retain(|pool| pool.count.subnet == wanted);
        let reason = match (&*known, self.state.sentences()) {
            _ if !self.pools.is_empty() => return Ok(()),
            ([], Some(sentence)) => sentence,
            ([], None) => format!("pool {wanted} not found; there are no pools yet"),
            (known, _) => {
                let known = known.join(", ");
                format!("pool {wanted} not found; the pools are {known}")
            }
        };
        Err(CommandError(reason))
    }

    /// Keeps only the holders that are pods of this name, or suspect where `suspect` is set.
    pub fn filter(&mut self, pod: Option<&str>, suspect: bool) {
        self.is_filtered = true;
        let known = self.pools.iter().flat_map(|pool| &pool.holders);
        let known = known.filter_map(|holder| holder.by.pod.as_deref());
        let pods = pod.map(|wanted| find_pods(wanted, known));
        for pool in &mut self.pools {
            pool.holders.retain(|holder| {
                let is_in = |pods: &BTreeSet<String>| {
                    holder.by.pod.as_ref().is_some_and(|pod| pods.contains(pod))
                };
                (!suspect || holder.suspect_seconds.is_some()) && pods.as_ref().is_none_or(is_in)
            });
        }
    }

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

/// The whole percentage of a part: 0 only for nothing, and 100 only for all.
fn percent(part: usize, all: usize) -> usize {
    match (part, all) {
        (0, _) | (_, 0) => 0,
        (part, all) if part >= all => 100,
        (part, all) => (part.saturating_mul(100) / all).clamp(1, 99),
    }
}

impl SourceReport {
    /// Makes it from the last attempts, and from the last answer that is in the state.
    pub fn new(attempts: Attempts, refreshed: Option<&Refreshed>, now: &Now) -> SourceReport {
        let answered = refreshed.map(|refreshed| refreshed.at);
        let ago = |moment| now.since(moment).as_secs();
        let failed = attempts.failed.filter(|at| answered < Some(*at));
        SourceReport {
            name: Some(attempts.source).filter(|name| !name.is_empty()),
            answered_seconds: answered.map(ago),
            failed_seconds: failed.map(ago),
        }
    }

    fn sentence(&self, program: &str) -> String {
        let ago = |seconds| format_age(Duration::from_secs(seconds));
        let name = self.name.as_deref().unwrap_or("the source");
        let mut sentence = match (self.answered_seconds, &self.name) {
            (Some(seconds), _) => format!("Source: {name}, answered {} ago.", ago(seconds)),
            (None, Some(_)) => format!("Source: {name}, none of its answers is in the state."),
            (None, None) => "Source: not queried since the node started.".to_owned(),
        };
        if let Some(seconds) = self.failed_seconds {
            sentence.push_str(&format!(
                " The last query failed {} ago; `{program} check` shows why.",
                ago(seconds)
            ));
        }
        sentence
    }
}

/// The note on an unusual holder.
fn note(holder: &HeldAddress) -> &'static str {
    match holder {
        HeldAddress {
            suspect_seconds: Some(_),
            ..
        } => "suspect",
        HeldAddress {
            unlisted_seconds: Some(_),
            ..
        } => "unlisted",
        held if held.by.is_kept => "kept",
        _ => "",
    }
}

/// Divides the cells by size; each count above zero gets at least one.
fn shares(counts: &[usize], cells: usize) -> Vec<usize> {
    let total: usize = counts.iter().sum();
    if total == 0 {
        return vec![0; counts.len()];
    }
    let least = |count: &usize| (count * cells / total).max(usize::from(*count > 0));
    let mut shares: Vec<usize> = counts.iter().map(least).collect();
    // Rounding errors go to the largest part.
    let given: usize = shares.iter().sum();
    let largest = shares
        .iter_mut()
        .zip(counts)
        .max_by_key(|(_, count)| **count);
    if let Some((share, _)) = largest {
        *share = (*share + cells).saturating_sub(given);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_whole_and_never_hide_the_last_address() {
        for (part, all, expected) in [
            (0, 0, 0),
            (0, 253, 0),
            (1, 65_000, 1),
            (127, 254, 50),
            (252, 253, 99),
            (253, 253, 100),
        ] {
            assert_eq!(percent(part, all), expected, "{part} of {all}");
        }
    }

    #[test]
    fn every_count_above_zero_gets_a_cell() {
        assert_eq!(shares(&[250, 1, 0, 0, 2], 60), [58, 1, 0, 0, 1]);
        assert_eq!(shares(&[0, 0, 0, 0, 253], 60), [0, 0, 0, 0, 60]);
        assert_eq!(shares(&[0, 0, 0], 60), [0, 0, 0]);
        for counts in [[1, 2, 3, 4, 5], [65_000, 1, 1, 1, 1], [1, 1, 1, 1, 1]] {
            assert_eq!(shares(&counts, 64).iter().sum::<usize>(), 64);
        }
    }
}
