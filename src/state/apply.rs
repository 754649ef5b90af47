//! Applies the facts of our own key to the original's records.

use std::time::Duration;

use super::original::Original;
use super::ours::{Facts, InOrder, Ours, PoolFacts, QUARANTINE, RawHolder, RawNetNs};
use crate::ipam::{Free, Held, Ipam, Moment, NetNs, Usage};

/// How long the record of a released address is kept while the source does not list it.
const OMITTED_IS_KEPT: Duration = Duration::from_secs(600);

/// How far the moments in our key can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trust {
    /// They are from the present boot.
    pub same_boot: bool,
    /// The original has written since.
    pub overtaken: bool,
    /// Now. It replaces moments that cannot be trusted.
    pub now: Moment,
}

impl Trust {
    /// Returns a moment of this boot, at most now. Returns `None` for a moment of another boot.
    fn clock(self, moment: Option<u64>) -> Option<Moment> {
        let moment = moment.filter(|_| self.same_boot)?;
        Some(Moment(moment.min(self.now.0)))
    }

    /// Returns a moment as [`Trust::clock`] does, unless the original may have changed the record since.
    fn unless_overwritten(self, moment: Option<u64>) -> Option<Moment> {
        self.clock(moment).filter(|_| !self.overtaken)
    }
}

impl Ours<'_, PoolFacts<'_>> {
    /// Adds the facts that reading has not put into the records.
    ///
    /// An entry whose container ID differs from its record's is ignored. An entry of a holder whose record is free means that the original
    /// released the address. The release counts as now.
    ///
    /// Returns whether there is such an entry although the original has not written since. The file was then edited or damaged.
    pub fn apply(self, original: &mut Original, trust: Trust) -> bool {
        let ipam = &mut original.ipam;
        if trust.same_boot {
            // A generation of another boot may be ahead of this boot's clock. A state that is recreated in this boot would then seem older
            // than a copy of this state.
            ipam.generation = self.generation;
            // A later end is invalid. Such a quarantine ends with the next scan of the node.
            let latest = trust.now.after(QUARANTINE);
            let quarantine = self.quarantine_until.map(Moment);
            ipam.quarantine =
                quarantine.map(|until| if until > latest { Moment(0) } else { until });
            ipam.tombstones = self.tombstones;
            for tombstone in &mut ipam.tombstones {
                tombstone.at = tombstone.at.min(trust.now);
            }
            for omitted in &self.omitted {
                let mut free = Free::default();
                omitted.facts.apply_to_free(&mut free, trust);
                if let Some(address) = omitted.address
                    && let Some(at) = free.released
                    && trust.now.since(at) < OMITTED_IS_KEPT
                {
                    ipam.omitted.insert(address, free);
                }
            }
        }
        let mut is_edited = false;
        let generation = ipam.generation;
        for (space, pool, facts) in &self.pools.facts {
            let space = ipam.spaces.get_mut(space);
            let Some(pool) = space.and_then(|space| space.pools.get_mut(pool)) else {
                continue;
            };
            let mut records = InOrder::new(&mut pool.records);
            for (address, facts) in facts {
                let Some(record) = records.find(address) else {
                    continue;
                };
                match &mut record.usage {
                    Usage::Held(held) => facts.apply_to_held(held, trust, generation),
                    Usage::Free(free) => {
                        facts.apply_to_free(free, trust);
                        is_edited |= facts.holder.id.is_some() && !trust.overtaken;
                    }
                }
            }
        }
        is_edited
    }
}

/// Replaces the moments of all records after reading, before [`Ours::apply`]. A holder counts as first seen now. A release counts only as
/// far as our key can be trusted.
pub(super) fn judge_moments(ipam: &mut Ipam, now: Moment, trust: Option<Trust>) {
    for record in ipam.pools_mut().flat_map(|pool| &mut pool.records) {
        match (&mut record.usage, trust) {
            (Usage::Held(held), _) => held.since = now,
            (Usage::Free(free), Some(trust)) => {
                free.released = trust.clock(free.released.map(|at| at.0));
                forget_unreleased(free);
            }
            (Usage::Free(free), None) => (free.released, free.last_netns) = (None, None),
        }
    }
}

impl Facts<'_> {
    fn apply_to_held(&self, held: &mut Held, trust: Trust, generation: u64) {
        let RawHolder {
            id,
            network,
            if_name,
            pod,
            netns,
            is_kept,
        } = &self.holder;
        if id.as_deref().unwrap_or_default() != held.holder.container_id() {
            return;
        }
        held.unlisted = self
            .unlisted_since
            .map(|at| trust.clock(Some(at)).unwrap_or(trust.now));
        if let Some(since) = trust.unless_overwritten(self.since) {
            held.since = since;
        }
        held.suspect = trust.unless_overwritten(self.suspect);
        let holder = &mut *held.holder;
        if let Some(network) = network
            && let Some(if_name) = if_name
            && !holder.is_unknown()
        {
            holder.attachment.network = (**network).into();
            holder.attachment.if_name = (**if_name).into();
            holder.pod = pod.as_deref().map(str::to_owned);
            holder.netns = netns.as_ref().map(|raw| raw.to_netns(trust.same_boot));
            holder.is_kept = *is_kept;
            holder.number = self.generation.unwrap_or(0).min(generation);
        }
    }

    fn apply_to_free(&self, free: &mut Free, trust: Trust) {
        free.on_host = self.on_host;
        let was_held = self.holder.id.is_some();
        free.released = if was_held {
            Some(trust.now)
        } else {
            trust.clock(self.released)
        };
        // An address that the original released may belong to a running pod. When a second ADD of a container fails, azure-vnet releases
        // the address of the first.
        let netns = self.holder.netns.as_ref().filter(|_| !was_held);
        free.last_netns = netns.map(|raw| raw.to_netns(trust.same_boot));
        forget_unreleased(free);
    }
}

/// Forgets the last namespace if the moment of the release is not known.
fn forget_unreleased(free: &mut Free) {
    if free.released.is_none() {
        free.last_netns = None;
    }
}

impl RawNetNs<'_> {
    /// Returns the namespace, without its cookie in another boot. A cookie is unique only within a boot.
    pub fn to_netns(&self, is_same_boot: bool) -> NetNs {
        NetNs {
            path: (&*self.path).into(),
            id: self.dev.zip(self.ino),
            cookie: self.cookie.filter(|_| is_same_boot),
        }
    }
}
