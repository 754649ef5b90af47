//! The values of `show`.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;

use crate::ipam::{Ipam, PoolCount};
use crate::ops::lease::{Lease, matches_pod, records_by_address};
use crate::ops::node::Now;
use crate::ops::outcome::CommandError;
use crate::ops::state_view::StateReport;
use crate::source::Attempts;

/// The report of `show`.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// The held part of all addresses: 0 only for none, and 100 only for all of them.
    pub held_percent: usize,
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
        let mut pools: Vec<PoolReport> = pools
            .map(|((space, subnet, pool), (_, count))| PoolReport {
                space: space.to_owned(),
                subnet: subnet.to_owned(),
                interface: pool.if_name.clone(),
                gateway: pool.gateway,
                size: pool.records.len(),
                held: count.held,
                held_percent: percent(count.held, pool.records.len()),
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
            })
            .collect();
        // The state has them in the order of their texts.
        pools.sort_by_cached_key(|pool| {
            let net = pool.subnet.parse::<IpNet>().ok();
            (pool.space.clone(), net, pool.subnet.clone())
        });
        ShowReport {
            time: now.wall_time(now.boot),
            state,
            source: SourceReport::new(attempts, now),
            pools,
            is_filtered: false,
        }
    }

    /// Removes all pools but one.
    pub fn narrow(&mut self, wanted: &str) -> Result<(), CommandError> {
        let known: Vec<String> = self.pools.iter().map(|pool| pool.subnet.clone()).collect();
        self.pools.retain(|pool| pool.subnet == wanted);
        if let (true, Some(sentence)) = (known.is_empty(), self.state.sentences()) {
            return Err(CommandError(sentence));
        }
        if self.pools.is_empty() {
            return Err(CommandError(match known.is_empty() {
                true => format!("pool {wanted} not found; there are no pools yet"),
                false => format!(
                    "pool {wanted} not found; the pools are {}",
                    known.join(", ")
                ),
            }));
        }
        Ok(())
    }
}

impl ShowReport {
    /// Removes the holders but for those of pods with this name or prefix, and for suspect ones where `suspect` is set.
    pub fn filter(&mut self, pod: Option<&str>, suspect: bool) {
        self.is_filtered = true;
        for pool in &mut self.pools {
            pool.holders.retain(|holder| {
                let own = holder.pod.as_deref();
                (!suspect || holder.suspect_seconds.is_some())
                    && pod.is_none_or(|wanted| own.is_some_and(|own| matches_pod(wanted, own)))
            });
        }
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
    /// Makes it from the last queries.
    pub fn new(attempts: Attempts, now: &Now) -> SourceReport {
        let ago = |moment| now.since(moment).as_secs();
        let failed = attempts.failed.filter(|at| attempts.answered < Some(*at));
        SourceReport {
            name: Some(attempts.source).filter(|name| !name.is_empty()),
            answered_seconds: attempts.answered.map(ago),
            failed_seconds: failed.map(ago),
        }
    }
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
}
