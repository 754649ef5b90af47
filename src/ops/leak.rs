//! Which holders leaked their address. `show` and `check` use this one rule, so that they agree.

use crate::ipam::{AGAIN, Evidence, Existence, Held, Judgement, Reason, Verdict};
use crate::ops::node::Now;

/// How a held address leaked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leak {
    /// Nothing shows the holder, and a reclaim frees the address.
    Dead,
    /// Nothing shows the holder, and a second reclaim frees the address.
    MayBeDead,
    /// Nothing shows the holder, but a reclaim frees the address only when it is older.
    Young,
    /// Only a route of the host is left of the holder.
    RouteLeft,
    /// Only an entry of a list is left of the holder. The path of its network namespace leads to another one now.
    EntryLeft,
}

impl Leak {
    /// Finds out whether a held address leaked, from the judgement on its holder.
    pub fn find(
        held: &Held,
        judgement: &Judgement,
        evidence: &Evidence,
        now: &Now,
    ) -> Option<Leak> {
        let only = |wanted: fn(&Reason) -> bool| judgement.reasons.iter().all(wanted);
        let is_young = |reason: &Reason| matches!(reason, Reason::Young(_));
        match judgement.verdict {
            Verdict::Dead => Some(Leak::Dead),
            Verdict::Suspect => Some(Leak::MayBeDead),
            // A running ADD has its network namespace, but a DEL may be about to come.
            Verdict::Undecided => {
                (only(is_young) && now.since(held.since) >= AGAIN).then_some(Leak::Young)
            }
            Verdict::Alive if own_namespace_is_gone(held, evidence) => {
                let has_only_route = only(|reason| *reason == Reason::HostRoute);
                let has_only_entries = only(|reason| matches!(reason, Reason::Listed(_)));
                let route = has_only_route.then_some(Leak::RouteLeft);
                route.or(has_only_entries.then_some(Leak::EntryLeft))
            }
            Verdict::Alive => None,
        }
    }
}

/// Whether a complete scan of all network namespaces did not find that of the holder.
fn own_namespace_is_gone(held: &Held, Evidence { kernel, .. }: &Evidence) -> bool {
    let netns = held.holder.netns.as_ref();
    let known = netns.filter(|netns| netns.id.is_some());
    let is_gone = known.is_some_and(|netns| kernel.existence(netns) == Existence::None);
    is_gone && kernel.incomplete.is_none()
}

/// What could not be read, so that it is not known whether the holder leaked its address.
pub fn find_obstacle(judgement: &Judgement) -> Option<&Reason> {
    let is_obstacle =
        |reason: &&Reason| matches!(reason, Reason::Incomplete(_) | Reason::Unreadable(..));
    judgement.reasons.iter().find(is_obstacle)
}

/// Whether the holder leaked its address; `None` where that is not known.
pub fn is_leaked(
    held: &Held,
    judgement: &Judgement,
    evidence: &Evidence,
    now: &Now,
) -> Option<bool> {
    match find_obstacle(judgement) {
        Some(_) => None,
        None => Some(Leak::find(held, judgement, evidence, now).is_some()),
    }
}
