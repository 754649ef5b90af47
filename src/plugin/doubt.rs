//! What there is to doubt about a state, and how a look at the node settles it.

use super::decide::{Event, Journaled, NodeSnapshot};
use crate::ipam::Moment;
use crate::state::{Document, Loss, PendingWork, QUARANTINE};

/// Why a state cannot be believed as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconcileReason {
    /// It was lost.
    Lost(Loss),
    /// It may have been started from nothing.
    NeverLooked,
    /// It is of another boot.
    NewBoot,
    /// It was lost a while ago, and those who were under way then are through.
    QuarantineOver(Moment),
    /// The source lists so many addresses that are new to it, and that somebody may have had before.
    NewAddresses(usize),
}

impl ReconcileReason {
    /// What there is to doubt about a state that was read, or that is about to be rebuilt because it was `lost`.
    pub(super) fn about(
        document: &Document,
        lost: Option<Loss>,
        new: usize,
        now: Moment,
    ) -> Option<ReconcileReason> {
        let quarantine = document.ipam().quarantine.filter(|until| *until <= now);
        match (lost, &document.owed, quarantine) {
            (Some(loss), _, _) => Some(ReconcileReason::Lost(loss)),
            (None, PendingWork::Rebuild(loss), _) => Some(ReconcileReason::Lost(loss.clone())),
            (None, PendingWork::NewBoot(_), _) => Some(ReconcileReason::NewBoot),
            (None, PendingWork::Snapshot, _) => Some(ReconcileReason::NeverLooked),
            (None, PendingWork::Nothing, Some(until)) => {
                Some(ReconcileReason::QuarantineOver(until))
            }
            (None, PendingWork::Nothing, None) if new > 0 => {
                Some(ReconcileReason::NewAddresses(new))
            }
            (None, PendingWork::Nothing, None) => None,
        }
    }

    /// Whether `look` can settle it: one that began before the end of a quarantine says nothing about its end.
    pub(super) fn is_settled_by(&self, look: &NodeSnapshot) -> bool {
        !matches!(self, ReconcileReason::QuarantineOver(until) if look.began < *until)
    }

    /// Brings the state in line with what the look showed.
    pub(super) fn settle(
        self,
        look: &NodeSnapshot,
        journal: Option<&Journaled>,
        document: &mut Document,
        now: Moment,
        events: &mut Vec<Event>,
    ) {
        let ipam = document.ipam_mut();
        if self == ReconcileReason::NewBoot {
            events.push(Event::Freed(ipam.new_boot(&look.evidence, now)));
        }
        if matches!(self, ReconcileReason::Lost(_)) {
            ipam.doubt_owners(&look.evidence);
        }
        let found = ipam.hold_evident(&look.evidence, now);
        if self == ReconcileReason::NeverLooked {
            ipam.adopt_claims(&look.evidence);
        }
        match &self {
            ReconcileReason::Lost(loss) => {
                let is_complete = journal.is_some_and(|journal| journal.is_complete);
                if let Some(journal) = journal {
                    let held = ipam.hold_journaled(&journal.holdings, is_complete);
                    ipam.generation = ipam.generation.max(journal.generation);
                    events.push(Event::Journaled(held, is_complete));
                }
                let until = loss.seen.after(QUARANTINE);
                ipam.quarantine = (!is_complete).then_some(until);
            }
            ReconcileReason::QuarantineOver(_) => ipam.quarantine = None,
            ReconcileReason::NeverLooked
            | ReconcileReason::NewBoot
            | ReconcileReason::NewAddresses(_) => {}
        }
        events.push(Event::Settled(self, found));
        document.owed = PendingWork::Nothing;
    }
}
