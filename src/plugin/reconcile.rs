//! Comparing a state with the node, when the state alone cannot be relied on.

use super::action::{Action, ReconcileReason};
use super::inputs::JournalReplay;
use super::snapshot::NodeSnapshot;
use crate::ipam::{Moment, Releases};
use crate::state::{Loss, PendingWork, QUARANTINE, State};

impl ReconcileReason {
    /// Finds out why a state must be compared with the node, if it must. `lost` says that it is to be rebuilt, `new` how many
    /// addresses the source lists for the first time.
    pub(super) fn find(
        state: &State,
        lost: Option<Loss>,
        new: usize,
        now: Moment,
    ) -> Option<ReconcileReason> {
        let quarantine = state.ipam().quarantine.filter(|until| *until <= now);
        match (lost, &state.pending, quarantine) {
            (Some(loss), _, _) => Some(ReconcileReason::Lost(loss)),
            (None, PendingWork::Rebuild(loss), _) => Some(ReconcileReason::Lost(loss.clone())),
            (None, PendingWork::NewBoot(_), _) => Some(ReconcileReason::NewBoot),
            (None, PendingWork::Reconcile, _) => Some(ReconcileReason::NeverReconciled),
            (None, PendingWork::Nothing, Some(until)) => {
                Some(ReconcileReason::QuarantineOver(until))
            }
            (None, PendingWork::Nothing, None) if new > 0 => {
                Some(ReconcileReason::NewAddresses(new))
            }
            (None, PendingWork::Nothing, None) => None,
        }
    }

    /// Whether `snapshot` is recent enough: one that began during a quarantine cannot end it.
    pub(super) fn accepts(&self, snapshot: &NodeSnapshot) -> bool {
        !matches!(self, ReconcileReason::QuarantineOver(until) if snapshot.began < *until)
    }

    /// Brings the state in line with the snapshot, and with the journal where the state was lost.
    pub(super) fn reconcile(
        self,
        snapshot: &NodeSnapshot,
        journal: Option<&JournalReplay>,
        state: &mut State,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let evidence = &snapshot.evidence;
        let ipam = state.ipam_mut();
        let is_lost = matches!(self, ReconcileReason::Lost(_));
        let is_complete = journal.is_some_and(|journal| journal.is_complete);
        if self == ReconcileReason::NewBoot {
            actions.push(Action::FreedAfterReboot(ipam.new_boot(evidence, now)));
        }
        if is_lost {
            ipam.forget_unconfirmed_owners(evidence);
        }
        if let Some(journal) = journal.filter(|_| is_lost && is_complete) {
            ipam.note_releases(&journal.last_words.released);
        }
        // An old copy may have an address as released that was granted since. Only a complete journal tells.
        let releases = match is_lost && !is_complete {
            true => Releases::MayBeOutdated,
            false => Releases::AreKnown,
        };
        let found = ipam.hold_evident(evidence, releases, now);
        if self == ReconcileReason::NeverReconciled {
            ipam.adopt_claims(evidence);
        }
        match &self {
            ReconcileReason::Lost(loss) => {
                if let Some(journal) = journal {
                    let held = ipam.hold_journaled(&journal.last_words.held, is_complete);
                    ipam.generation = ipam.generation.max(journal.generation);
                    actions.push(Action::Replayed { held, is_complete });
                }
                let until = loss.seen.after(QUARANTINE);
                ipam.quarantine = (!is_complete).then_some(until);
            }
            ReconcileReason::QuarantineOver(_) => ipam.quarantine = None,
            ReconcileReason::NeverReconciled
            | ReconcileReason::NewBoot
            | ReconcileReason::NewAddresses(_) => {}
        }
        actions.push(Action::Reconciled(self, found));
        state.pending = PendingWork::Nothing;
    }
}
