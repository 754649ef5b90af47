//! Looking at the node: which attachments its kernel and its lists show.

use tracing::info;

use super::context::Context;
use crate::evidence::Progress;
use crate::ipam::{Candidate, Evidence, Moment, Request};
use crate::log::Milliseconds;

/// What a look at the node showed.
#[derive(Clone, Debug, Default)]
pub struct NodeSnapshot {
    /// What it showed.
    pub evidence: Evidence,
    /// The records to judge by it, as they were before it began. What it does not show of them cannot be newer.
    pub candidates: Vec<Candidate>,
    /// When it began.
    pub began: Moment,
}

impl NodeSnapshot {
    /// Looks at the node now.
    pub fn capture(candidates: Vec<Candidate>, context: &Context) -> NodeSnapshot {
        NodeSnapshot::capture_with_progress(candidates, context, &Progress::default())
    }

    /// Looks at the node now, and reports on the way how far it has come.
    pub(crate) fn capture_with_progress(
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

    /// Marks the network namespaces of dead containers whose inode this ADD's own namespace has now. Where the kernel gives
    /// namespaces no number of their own, nothing else tells them apart.
    pub(super) fn note_own_namespace(&mut self, requests: &[Request<'_>]) {
        for request in requests {
            let Some(own) = request.netns else { continue };
            for held in self.candidates.iter().map(|candidate| &candidate.held) {
                if !held.owner.is_container(&request.attachment.container_id)
                    && let Some(then) = held.owner.netns()
                    && let Some(id) = then.id.filter(|id| Some(*id) == own.id)
                    && then.path != own.path
                {
                    let elsewhere = (then.path.clone(), id);
                    self.evidence.kernel.moved_paths.insert(elsewhere);
                }
            }
        }
    }
}
