//! Looking at the node, and telling the log what came of it.

use tracing::{info, warn};

use super::Context;
use super::decide::{Event, NodeSnapshot};
use super::doubt::ReconcileReason;
use crate::evidence::Progress;
use crate::host::{Paths, namespace_id};
use crate::ipam::{Candidate, Evidence, Found, Held, Judged, Request, Verdict};
use crate::log::Milliseconds;
use crate::state::Loss;

impl NodeSnapshot {
    /// Looks now.
    pub fn at(candidates: Vec<Candidate>, context: &Context) -> NodeSnapshot {
        NodeSnapshot::told(candidates, context, &Progress::default())
    }

    /// Looks now, and tells how far it has come.
    pub(crate) fn told(
        candidates: Vec<Candidate>,
        context: &Context,
        progress: &Progress,
    ) -> NodeSnapshot {
        let began = context.now();
        let evidence = context.node.evidence(&candidates, progress);
        let kernel = &evidence.kernel;
        info!(
            target: "ipam",
            "looked at the node in {}: {} network namespaces with {} addresses{}.",
            Milliseconds(context.now().since(began)),
            kernel.namespaces.len(),
            kernel.configured.len(),
            kernel.incomplete.as_ref().map_or_else(String::new, |why| format!("; not complete: {why}"))
        );
        NodeSnapshot {
            evidence,
            candidates,
            began,
        }
    }
}

impl NodeSnapshot {
    /// Takes in that the network namespace which this ADD is for is not an earlier container's any more that had the same inode. Where
    /// the kernel has no other number for it, nothing else tells.
    pub(super) fn note_own_namespace(&mut self, requests: &[Request<'_>]) {
        for request in requests {
            let Some(own) = request.netns else { continue };
            for held in self.candidates.iter().map(|candidate| &candidate.held) {
                if *held.container_id != *request.attachment.container_id
                    && let Some(then) = held.claim.as_ref().and_then(|claim| claim.netns.as_ref())
                    && let Some(id) = then.id.filter(|id| Some(*id) == own.id)
                    && then.path != own.path
                {
                    let elsewhere = (then.path.clone(), id);
                    self.evidence.kernel.elsewhere.insert(elsewhere);
                }
            }
        }
    }
}

/// Finds out which paths of claims lead to another namespace than when their ADD came. Those of processes do as soon as the process
/// has gone, which says nothing of the namespace.
pub(crate) fn follow_claims<'a>(
    held: impl Iterator<Item = &'a Held>,
    evidence: &mut Evidence,
    paths: &Paths,
) {
    for netns in held.filter_map(|held| held.claim.as_ref()?.netns.as_ref()) {
        let now = namespace_id(paths, &netns.path);
        if let Some(then) = netns.id
            && now.is_some_and(|now| now != then)
            && !netns.path.starts_with("/proc/")
        {
            evidence.kernel.elsewhere.insert((netns.path.clone(), then));
        }
    }
}

/// Tells the log what was decided on the way.
pub(crate) fn report(events: &[Event]) {
    for event in events {
        match event {
            Event::Merged(merged) => {
                let (added, removed, unlisted) = (merged.added, merged.removed, merged.unlisted);
                info!(target: "ipam", "merged: {added} addresses new, {removed} gone, {unlisted} in use but not listed.");
            }
            Event::Settled(doubt, found) => settled(doubt, found),
            Event::Journaled(held, is_complete) => {
                let all = if *is_complete {
                    "; nothing else can have been granted"
                } else {
                    ""
                };
                info!(target: "ipam", "{held} more addresses are held by what the journal says{all}.");
            }
            Event::Freed(freed) => {
                info!(target: "ipam", "the node was restarted: {} addresses of before are free.", freed.len());
            }
            Event::Judged(judged) => verdicts(judged),
            Event::Wired(address, others) => {
                warn!(target: "ipam", "{address} is free, but the host has it or a route to it; {others} such addresses are skipped.");
            }
        }
    }
}

fn settled(doubt: &ReconcileReason, found: &[Found]) {
    match doubt {
        ReconcileReason::Lost(Loss { why, .. }) => {
            warn!(target: "ipam", "the state was lost ({why}) and is rebuilt.");
        }
        ReconcileReason::NeverLooked => {
            info!(target: "ipam", "the state is taken over from the original.")
        }
        ReconcileReason::QuarantineOver(_) => info!(target: "ipam", "the quarantine is over."),
        ReconcileReason::NewBoot | ReconcileReason::NewAddresses(_) => {}
    }
    for Found {
        address,
        container_id,
    } in found
    {
        let owner = if container_id.is_empty() {
            "an unknown owner"
        } else {
            container_id
        };
        info!(target: "ipam", "{address} is in use on this node, and held for {owner}.");
    }
}

fn verdicts(judged: &[Judged]) {
    let count = |verdict| {
        judged
            .iter()
            .filter(|j| j.judgement.verdict == verdict)
            .count()
    };
    info!(
        target: "ipam",
        "judged {} holders: {} dead, {} suspect, {} undecided, {} alive.",
        judged.len(),
        count(Verdict::Dead),
        count(Verdict::Suspect),
        count(Verdict::Undecided),
        count(Verdict::Alive)
    );
    for Judged {
        candidate,
        judgement,
    } in judged
    {
        let reasons: Vec<String> = judgement.reasons.iter().map(ToString::to_string).collect();
        let (address, held, reasons) = (candidate.key, &candidate.held, reasons.join("; "));
        let owner = if held.container_id.is_empty() {
            "unknown"
        } else {
            &held.container_id
        };
        let pod = held
            .claim
            .as_ref()
            .and_then(|c| c.pod.as_deref())
            .unwrap_or("-");
        match judgement.verdict {
            Verdict::Dead => {
                warn!(target: "ipam", "{address} is taken back from container {owner}, pod {pod}: {reasons}.");
            }
            Verdict::Suspect | Verdict::Undecided => {
                info!(target: "ipam", "{address} of container {owner}, pod {pod}, is left alone: {reasons}.");
            }
            Verdict::Alive => {}
        }
    }
}
