//! The values of `show`.

use std::net::IpAddr;

use serde::Serialize;

use crate::ipam::{Ipam, PoolCount};
use crate::ops::lease::{Lease, records_by_address};
use crate::ops::node::Now;
use crate::ops::outcome::CommandError;
use crate::ops::state_view::StateReport;
use crate::source::Attempts;

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
}
