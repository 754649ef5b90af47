//! What an ADD decides, once everything is read: values in, values out, no IO and no clock, so that whole histories can be
//! tried against a model.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::doubt::ReconcileReason;
use crate::ipam::{
    Candidate, Evidence, Found, Grant, GrantKind, Held, Inventory, Ipam, Judged, Merged, Moment,
    Pool, PoolSelector, Refusal, Request, Verdict, Violation,
};
use crate::state::{Document, KeyStatus, Loss, PendingWork};

/// A look at the node.
#[derive(Clone, Debug, Default)]
pub struct NodeSnapshot {
    /// What it showed.
    pub evidence: Evidence,
    /// The records to be judged by it, as they were before it began: what it does not show of them is no news of later.
    pub candidates: Vec<Candidate>,
    /// When it began.
    pub began: Moment,
}

/// What happened on the way, for the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An answer of the source was merged.
    Merged(Merged),
    /// A doubt was settled, and these addresses found in use.
    Settled(ReconcileReason, Vec<Found>),
    /// So many more addresses are held by what the journal of grants says, and whether that is all.
    Journaled(usize, bool),
    /// After a reboot these addresses were freed.
    Freed(Vec<IpAddr>),
    /// These holders were judged.
    Judged(Vec<Judged>),
    /// This free address is the host's, and so are these many others.
    Wired(IpAddr, usize),
}

impl Event {
    /// How many holders turned out to be dead.
    pub fn dead(&self) -> usize {
        match self {
            Event::Judged(judged) => {
                let verdicts = judged.iter().map(|j| j.judgement.verdict);
                verdicts.filter(|v| *v == Verdict::Dead).count()
            }
            _ => 0,
        }
    }
}

/// What an ADD is decided from, beside the state.
pub struct Given<'a> {
    /// What is asked for, an address each: all of it is given, or nothing.
    pub requests: &'a [Request<'a>],
    /// An answer of the source that is not in the state yet.
    pub news: Option<&'a Inventory>,
    /// Why the state has to be rebuilt, if it has: it is not there, or is an old copy.
    pub lost: Option<String>,
    /// The generation of the last address that was given, as far as is known beside the state.
    pub last_generation: u64,
    /// A look at the node, if there was one.
    pub look: Option<&'a NodeSnapshot>,
    /// Whether the source may still be asked before it is said that there is nothing.
    pub may_ask_again: bool,
    /// What the journal of grants says, where the state was lost.
    pub journal: Option<&'a Journaled>,
    /// Now.
    pub now: Moment,
}

/// What the journal of grants says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Journaled {
    /// What was granted and not given back, as far as it knows.
    pub holdings: BTreeMap<IpAddr, Held>,
    /// The highest generation that it knows of.
    pub generation: u64,
    /// Whether nothing else can have been granted: then there is nothing to wait for.
    pub is_complete: bool,
}

/// What the host has, asked one address at a time and as a whole.
pub trait Host: std::fmt::Debug {
    /// Whether the host has the address, or a route to it alone.
    fn has(&self, address: IpAddr) -> bool;
    /// All such addresses.
    fn all(&self) -> BTreeSet<IpAddr>;
}

/// The outcome.
#[derive(Debug)]
pub enum Decision {
    /// The node must be looked at first; these records are to be judged by it. The state is not to be saved.
    LookFirst(Vec<Candidate>),
    /// The state as it is now is to be saved, if it changed.
    Done {
        /// What each of the requests gave, or why there is nothing.
        taken: Result<Vec<Grant>, Refusal>,
        /// Whether the state changed.
        changed: bool,
    },
    /// The state would become wrong; it is not to be saved.
    Broken(Vec<Violation>),
}

/// Why a state that was read, or not there to be read, has to be rebuilt, if it has. `last` is the generation of the last
/// address that was given in this boot. A node on which none was given is fresh, and starts at once if the kernel agrees.
pub fn loss(document: &Document, rebuild_owed: bool, last: Option<u64>) -> Option<&str> {
    if let PendingWork::Rebuild(loss) = &document.owed {
        return Some(&loss.why);
    }
    match &document.own {
        KeyStatus::Absent if document.is_empty() && rebuild_owed => Some("it could not be read"),
        KeyStatus::Absent if document.is_empty() && last.is_some() => {
            Some("it is gone, though addresses were given since the node started")
        }
        KeyStatus::Ours | KeyStatus::OriginalWroteLast
            if last.is_some_and(|last| document.ipam().generation < last) =>
        {
            Some("it is older than the last address that was given")
        }
        KeyStatus::Absent
        | KeyStatus::Ours
        | KeyStatus::OriginalWroteLast
        | KeyStatus::Unreadable(_)
        | KeyStatus::Newer { .. } => None,
    }
}

/// Decides an ADD.
pub fn decide(
    document: &mut Document,
    given: &Given<'_>,
    host: &dyn Host,
    events: &mut Vec<Event>,
) -> Decision {
    let (requests, now) = (given.requests, given.now);
    let mut changed = false;
    let ipam = document.ipam_mut();
    let known_generation = ipam.generation;
    ipam.generation = ipam.generation.max(given.last_generation);
    let mut lost = match &document.owed {
        PendingWork::Rebuild(loss) => Some(loss.clone()),
        _ => given.lost.clone().map(|why| Loss { why, seen: now }),
    };
    let fresh = document.is_empty() && lost.is_none();
    let mut new = 0;
    if let Some(news) = given.news {
        let merged = document.ipam_mut().merge(news);
        new = if fresh { 0 } else { merged.added };
        events.push(Event::Merged(merged));
        changed = true;
    }
    // On a fresh node nobody can have an address yet, unless it was the original that gave it.
    if fresh && !document.is_empty() {
        let Some(look) = given.look else {
            return Decision::LookFirst(Vec::new());
        };
        lost = document.ipam().is_in_use(&look.evidence).then(|| Loss {
            why: "it is not there, though pods have addresses of its pools".to_owned(),
            seen: now,
        });
    }
    // A state without pools says nothing yet that could be wrong; but what is owed stays owed.
    if document.is_empty() {
        if let Some(loss) = lost {
            let owed = PendingWork::Rebuild(loss);
            changed |= document.owed != owed;
            document.owed = owed;
            // Version 0.1.0, which does not know what is owed, sees by this that the state is no fresh one.
            document.ipam_mut().generation = known_generation;
        }
    } else {
        let mut doubt = ReconcileReason::about(document, lost, new, now);
        // After a loss that was seen long ago, the end of the quarantine is still to be settled.
        while let Some(found) = doubt.take() {
            let Some(look) = given.look.filter(|look| found.is_settled_by(look)) else {
                return Decision::LookFirst(Vec::new());
            };
            found.settle(look, given.journal, document, now, events);
            changed = true;
            doubt = ReconcileReason::about(document, None, 0, now);
        }
        // A record that tells only the container may be another interface's.
        if requests
            .iter()
            .any(|request| document.ipam().is_claimless(request.attachment))
        {
            let Some(look) = given.look else {
                return Decision::LookFirst(Vec::new());
            };
            changed |= document.ipam_mut().adopt_claims(&look.evidence);
        }
    }
    let before = (flags(document.ipam()), document.ipam().check());
    let mut taken = take_all(document.ipam_mut(), requests, now, host, events);
    if matches!(taken, Err(Refusal::Exhausted { .. })) && !given.may_ask_again {
        if let Some(look) = given.look.filter(|look| !look.candidates.is_empty()) {
            let judged = document
                .ipam_mut()
                .reclaim(look.candidates.clone(), &look.evidence, now);
            changed |= !judged.is_empty();
            events.push(Event::Judged(judged));
            taken = take_all(document.ipam_mut(), requests, now, host, events);
        } else {
            let candidates = candidates(document.ipam(), requests, now);
            if !candidates.is_empty() {
                return Decision::LookFirst(candidates);
            }
        }
    }
    if let Some(look) = given.look {
        let ipam = document.ipam_mut();
        changed |= ipam.clear_suspects(&look.evidence, look.began, now);
    }
    // What came with the state is not for this call to judge, but nothing may become wrong by it.
    let wrong: Vec<_> = document
        .ipam()
        .check()
        .into_iter()
        .filter(|v| !before.1.contains(v))
        .collect();
    if !wrong.is_empty() {
        return Decision::Broken(wrong);
    }
    changed |=
        taken.is_ok() || before.0 != flags(document.ipam()) || document.has_unsaved_moments();
    Decision::Done { taken, changed }
}

/// Frees the candidates of a look that are dead, on an operator's wish. What there is to doubt about the state is settled
/// first, as an ADD would.
pub fn reclaim(document: &mut Document, look: &NodeSnapshot, now: Moment, events: &mut Vec<Event>) {
    let doubt =
        ReconcileReason::about(document, None, 0, now).filter(|doubt| doubt.is_settled_by(look));
    if let Some(doubt) = doubt {
        doubt.settle(look, None, document, now, events);
    }
    let (candidates, ipam) = (look.candidates.clone(), document.ipam_mut());
    let judged = ipam.reclaim(candidates, &look.evidence, now);
    ipam.clear_suspects(&look.evidence, look.began, now);
    events.push(Event::Judged(judged));
}

/// Takes an address for each request, or none at all.
pub(super) fn take_all(
    ipam: &mut Ipam,
    requests: &[Request<'_>],
    now: Moment,
    host: &dyn Host,
    events: &mut Vec<Event>,
) -> Result<Vec<Grant>, Refusal> {
    let mut grants = Vec::new();
    for request in requests {
        match take(ipam, request, now, host, events) {
            Ok(grant) => grants.push(grant),
            Err(refusal) => {
                ipam.revoke_all(request.attachment, &grants);
                return Err(refusal);
            }
        }
    }
    Ok(grants)
}

/// Takes an address that the host does not have: one that it has, or has a route to, is somebody else's, whatever the pools
/// say (difference D19).
fn take(
    ipam: &mut Ipam,
    request: &Request<'_>,
    now: Moment,
    host: &dyn Host,
    events: &mut Vec<Event>,
) -> Result<Grant, Refusal> {
    let mut wired = BTreeSet::new();
    loop {
        let grant = ipam.take(
            &Request {
                wired: &wired,
                ..request.clone()
            },
            now,
        )?;
        let address = grant.address.addr();
        if matches!(grant.novelty, GrantKind::Renewed) || !host.has(address) {
            return Ok(grant);
        }
        ipam.revoke(request.attachment, &grant);
        // Where there is one there are often many: cloud-init configures all of an interface's addresses on the host.
        wired.insert(address);
        wired.extend(host.all());
        events.push(Event::Wired(address, ipam.mark_on_host(&wired)));
    }
}

/// The records that may be judged when the pools that would do have nothing to give.
pub(super) fn candidates(ipam: &Ipam, requests: &[Request<'_>], now: Moment) -> Vec<Candidate> {
    let wanted = |space: &str, key: &str, pool: &Pool| {
        requests.iter().any(|request| {
            let named = |subnet| ipam.spaces.get(space).and_then(|s| s.pool_named(subnet));
            space == request.space
                && match request.pool {
                    PoolSelector::Named(subnet) => named(subnet) == Some(key),
                    PoolSelector::Any { family, if_name } => pool.suits(family, if_name),
                }
        })
    };
    ipam.candidates(wanted, now)
}

/// The pools' flags of having been handed out whole, the only thing that a refused request may change by itself.
fn flags(ipam: &Ipam) -> Vec<i64> {
    ipam.pools().map(|(_, _, pool)| pool.ref_count).collect()
}
