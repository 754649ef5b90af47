//! `show`: the pools, their usage and their held addresses, or everything about one address, container or pod.

mod address;
pub mod subject;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, IsTerminal, stdout};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use rustix::process::geteuid;
use serde::Serialize;

use super::cli::{Order, ShowArgs};
use super::findings::host_network::HostNetwork;
use super::held::{HeldAddress, common_network, find_pods, held_records, records_by_address};
use super::leak::{find_obstacle, is_leaked};
use super::node::{Node, Now};
use super::node_config::NodeConfig;
use super::outcome::{CommandError, CommandOutput};
use super::screen::{Screen, Tint, format_age, pluralize, replace_control};
use super::state_view::{StateReport, StateView};
use crate::codec::named_address;
use crate::host::{boot_now, sleep_until};
use crate::ipam::{Counts, Evidence, EvidenceIndex, Ipam, Pool, PoolCount, Record};
use crate::source::{Attempts, last_attempts};
use crate::state::Refreshed;
use crate::stdio;

/// Runs the command.
pub fn run(node: &Node, args: &ShowArgs) -> Result<CommandOutput, CommandError> {
    if args.watch {
        watch(node, args)
    } else {
        show(node, args)
    }
}

/// Shows it again and again until the process is interrupted, or the reader is gone.
fn watch(node: &Node, args: &ShowArgs) -> Result<CommandOutput, CommandError> {
    const INTERVAL: Duration = Duration::from_secs(2);
    /// The cursor in the first column of the first line, and nothing below it.
    const CLEAR: &str = "\x1b[H\x1b[2J";
    if args.format.is_json() {
        let reason = "--watch prints text: leave out -o json and --json";
        return Err(CommandError(reason.to_owned()));
    }
    let before = if stdout().is_terminal() { CLEAR } else { "" };
    let after = if stdout().is_terminal() { "" } else { "\n" };
    loop {
        let began = boot_now();
        let text = show(&Node::here(node.paths(), began), args)?.text;
        match stdio::print_until(&format!("{before}{text}{after}"), None) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(CommandOutput::default()),
            Err(e) => return Err(CommandError::from_io("the output cannot be printed", &e)),
            Ok(()) => sleep_until(began.after(INTERVAL)),
        }
    }
}

/// Shows it once.
fn show(node: &Node, args: &ShowArgs) -> Result<CommandOutput, CommandError> {
    // A scan would be for nothing where this user may not read the state.
    StateView::read(node)?;
    let (state, evidence) = StateView::load_with_evidence(node);
    let subject = args.subject.as_deref();
    if let Some(text) = subject.filter(|text| !is_pool(text, state.ipam())) {
        if args.limits_holders() {
            let reason = "--pod, --namespace, --leaked and --sort apply to pools: leave them out, or leave out SUBJECT";
            return Err(CommandError(reason.to_owned()));
        }
        return subject::run(node, text, args.format, (&state, &evidence));
    }
    let host = HostNetwork::read(node.paths(), state.ipam());
    let ipam = state.present_ipam(node, &evidence, |to| host.uses_route_to(to));
    let config = NodeConfig::read(node.paths());
    let mut report = ShowReport::from_state(node, &config, &state, &ipam);
    report.judge(&ipam, &evidence, &node.now);
    if !node.paths().is_this_host() {
        // A node in a folder has nothing that could be scanned.
        report.not_seen = None;
    }
    if let Some(pool) = subject {
        report.narrow(pool)?;
    }
    report.filter(args);
    let screen = args.format.screen(node.screen);
    let print = || report.print(&screen, &node.program_as_root());
    args.format.output(0, &report, print)
}

/// Whether the text names a pool: a subnet, or its first address if that is no address of a pool.
fn is_pool(text: &str, ipam: &Ipam) -> bool {
    let is_record = |address| ipam.records().any(|record| record.address() == address);
    let mut keys = ipam.pools().map(|(_, key, _)| key);
    text.parse::<IpNet>().is_ok()
        || keys.any(|key| names_pool(text, key)) && !named_address(text).is_some_and(is_record)
}

/// Whether the text is the subnet of a pool, with or without its prefix length.
fn names_pool(text: &str, subnet: &str) -> bool {
    let Ok(net) = subnet.parse::<IpNet>() else {
        return text == subnet;
    };
    text.parse() == Ok(net) || named_address(text) == Some(net.addr())
}

/// Reads the report without a scan of the node, so that it is not known which holders leaked their address.
///
/// # Errors
/// This user may not read the state.
pub fn read(node: &Node, config: &NodeConfig) -> Result<ShowReport, CommandError> {
    let state = StateView::read(node)?;
    Ok(ShowReport::from_state(node, config, &state, state.ipam()))
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
    /// All pools together.
    pub totals: Totals,
    /// Whether only some of the holders are listed.
    #[serde(skip)]
    pub is_filtered: bool,
    /// What could not be read of the node, if some holders could not be judged because of it.
    #[serde(skip)]
    pub not_seen: Option<String>,
}

/// All pools together. What several pools have counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// The number of pods that hold addresses.
    pub pods: usize,
    /// The number of addresses.
    pub size: usize,
    /// How they are used.
    #[serde(flatten)]
    pub count: PoolCount,
    /// The number of addresses that leaked.
    pub leaked: usize,
    /// The number of held addresses that may be leaked or not.
    pub unjudged: usize,
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
    /// Whether the source lists the subnet. If not, its addresses only wait for the end of their pods.
    #[serde(skip)]
    pub is_listed: bool,
    /// The number of addresses.
    pub size: usize,
    /// The held part of all addresses: 0 only for none, and 100 only for all of them.
    pub held_percent: usize,
    /// The subnet, and how its addresses are used.
    #[serde(flatten)]
    pub count: PoolCount,
    /// The number of addresses that leaked.
    pub leaked: usize,
    /// The number of held addresses that may be leaked or not.
    pub unjudged: usize,
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
            is_listed: pool.is_listed(),
            size: pool.records.len(),
            held_percent: percent(count.held, pool.records.len()),
            leaked: 0,
            unjudged: count.held,
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
        let counts = describe_counts(&self.count, self.leaked, self.size);
        text.push_str(&screen.paragraph("", 2, &counts));
        if !self.holders.is_empty() {
            text.push('\n');
            let table = HeldAddress::table(self.holders.iter(), note);
            text.push_str(&screen.table(table, 2).join("\n"));
            text.push('\n');
        }
        text
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
            (count.held.saturating_sub(self.leaked), '#', Tint::Good),
            (self.leaked, '!', Tint::Bad),
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

/// The counts of each use, in words.
fn describe_counts(count: &PoolCount, leaked: usize, size: usize) -> String {
    let mut parts = vec![format!("{} held", count.held)];
    for (count, kind) in [
        (leaked, "of them leaked"),
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
    let size = pluralize(size, "address", "addresses");
    parts.push(format!("{} free, of {size}", count.free));
    parts.join(", ")
}

impl ShowReport {
    /// Makes the report from the state that was read, with these addresses.
    fn from_state(node: &Node, config: &NodeConfig, view: &StateView, ipam: &Ipam) -> ShowReport {
        let attempts = last_attempts(node.paths(), node.context.boot_id.as_deref());
        let (conf, taken) = (&config.conf, node.taken(ipam));
        let counts = ipam.counts(&taken, conf.cooldown, &conf.exclude, node.now.boot);
        let refreshed = view.state.document.refreshed.as_ref();
        let source = SourceReport::new(attempts, refreshed, &node.now);
        ShowReport::new(ipam, counts, view.report.clone(), source, &node.now)
    }

    /// Makes the report.
    pub fn new(
        ipam: &Ipam,
        counts: Counts,
        state: StateReport,
        source: SourceReport,
        now: &Now,
    ) -> ShowReport {
        let pools = ipam.pools().zip(counts.pools);
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
        let pods: BTreeSet<String> = pools.iter().flat_map(|p| &p.holders).map(pod_key).collect();
        let totals = Totals {
            pods: pods.len(),
            size: ipam
                .records()
                .map(Record::address)
                .collect::<BTreeSet<_>>()
                .len(),
            leaked: 0,
            unjudged: counts.total.held,
            count: counts.total,
        };
        ShowReport {
            time: now.wall_time(now.boot),
            state,
            source,
            pools,
            totals,
            is_filtered: false,
            not_seen: None,
        }
    }

    /// Judges each holder as `check` does.
    pub fn judge(&mut self, ipam: &Ipam, evidence: &Evidence, now: &Now) {
        let index = EvidenceIndex::new(evidence, ipam);
        let mut leaks = BTreeMap::new();
        for (space, pool, record, held) in held_records(ipam) {
            let address = record.address();
            let judgement = index.judge(address, held, now.boot);
            if let Some(obstacle) = find_obstacle(&judgement) {
                self.not_seen.get_or_insert_with(|| obstacle.to_string());
            }
            let leaked = is_leaked(held, &judgement, evidence, now);
            leaks.insert((space, pool, address), leaked);
        }
        let count = |holders: &[HeldAddress], leaked: Option<bool>| {
            let found = holders.iter().filter(|held| held.leaked == leaked);
            found.count()
        };
        let mut leaked: BTreeSet<IpAddr> = BTreeSet::new();
        let mut unjudged: BTreeSet<IpAddr> = BTreeSet::new();
        for pool in &mut self.pools {
            for held in &mut pool.holders {
                let place = (&*pool.space, &*pool.count.subnet, held.address);
                held.leaked = leaks.get(&place).copied().flatten();
                match held.leaked {
                    Some(true) => leaked.insert(held.address),
                    Some(false) => false,
                    None => unjudged.insert(held.address),
                };
            }
            pool.leaked = count(&pool.holders, Some(true));
            pool.unjudged = count(&pool.holders, None);
        }
        (self.totals.leaked, self.totals.unjudged) = (leaked.len(), unjudged.len());
    }

    /// Removes all pools but those of a subnet.
    ///
    /// # Errors
    /// There is none.
    pub fn narrow(&mut self, wanted: &str) -> Result<(), CommandError> {
        let known = self.pools.iter().map(|pool| pool.count.subnet.clone());
        let known: Vec<String> = known.collect();
        self.pools
            .retain(|pool| names_pool(wanted, &pool.count.subnet));
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

    /// Keeps only the holders that the options ask for, in the order that they ask for.
    pub fn filter(&mut self, args: &ShowArgs) {
        self.is_filtered = args.leaked || args.pod.is_some() || args.namespace.is_some();
        let holders = self.pools.iter().flat_map(|pool| &pool.holders);
        let known = holders.filter_map(|held| held.holder.pod.as_deref());
        let pods = args.pod.as_deref().map(|wanted| find_pods(wanted, known));
        let namespace = args.namespace.as_ref().map(|name| format!("{name}/"));
        for pool in &mut self.pools {
            pool.holders.retain(|held| {
                let pod = held.holder.pod.as_deref().unwrap_or_default();
                (!args.leaked || held.leaked == Some(true))
                    && pods.as_ref().is_none_or(|pods| pods.contains(pod))
                    && namespace
                        .as_ref()
                        .is_none_or(|start| pod.starts_with(start))
            });
            if args.sort == Order::Age {
                pool.holders.sort_by_key(|held| Reverse(held.age_seconds));
            }
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
        if self.pools.len() > 1 {
            text.push_str(&self.totals.print(self.pools.len(), screen));
            text.push('\n');
        }
        text.push_str(&self.describe_unjudged(screen, program));
        text.push_str(&screen.paragraph("", 0, &self.source.sentence(program)));
        text
    }

    /// Says which holders could not be judged, and what can.
    fn describe_unjudged(&self, screen: &Screen, program: &str) -> String {
        let Some(why) = &self.not_seen else {
            return String::new();
        };
        let holders = pluralize(self.totals.unjudged, "holder", "holders");
        let sentence = if geteuid().is_root() {
            format!("`{program} check` says what to do.")
        } else {
            format!("`{program} show` judges them.")
        };
        let all = format!("Whether {holders} leaked an address is not known: {why}. {sentence}");
        screen.paragraph("", 0, &all) + "\n"
    }
}

impl Totals {
    fn print(&self, pools: usize, screen: &Screen) -> String {
        let counts = describe_counts(&self.count, self.leaked, self.size);
        let pods = pluralize(self.pods, "pod", "pods");
        let text = format!("All {pools} pools: {counts}; {pods}.");
        screen.paragraph("", 0, &text)
    }
}

/// What distinguishes a holder's pod from others.
fn pod_key(held: &HeldAddress) -> String {
    match &held.holder.pod {
        Some(pod) => pod.clone(),
        None if held.holder.is_unknown() => held.address.to_string(),
        None => held.holder.container_id().to_owned(),
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
            leaked: Some(true), ..
        } => "leaked",
        HeldAddress {
            unlisted_seconds: Some(_),
            ..
        } => "unlisted",
        held if held.holder.is_kept => "kept",
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
