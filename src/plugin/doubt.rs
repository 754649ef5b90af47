//! What there is to doubt about a state, and how a look at the node settles it.

use super::decide::{Event, Journaled, Look};
use crate::ipam::Moment;
use crate::state::{Document, Loss, Owed, QUARANTINE};

/// Why a state cannot be believed as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
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

impl Doubt {
    /// What there is to doubt about a state that was read, or that is about to be rebuilt because it was `lost`.
    pub(super) fn about(
        document: &Document,
        lost: Option<Loss>,
        new: usize,
        now: Moment,
    ) -> Option<Doubt> {
        let quarantine = document.ipam().quarantine.filter(|until| *until <= now);
        match (lost, &document.owed, quarantine) {
            (Some(loss), _, _) => Some(Doubt::Lost(loss)),
            (None, Owed::Rebuild(loss), _) => Some(Doubt::Lost(loss.clone())),
            (None, Owed::NewBoot(_), _) => Some(Doubt::NewBoot),
            (None, Owed::Look, _) => Some(Doubt::NeverLooked),
            (None, Owed::Nothing, Some(until)) => Some(Doubt::QuarantineOver(until)),
            (None, Owed::Nothing, None) if new > 0 => Some(Doubt::NewAddresses(new)),
            (None, Owed::Nothing, None) => None,
        }
    }

    /// Whether `look` can settle it: one that began before the end of a quarantine says nothing about its end.
    pub(super) fn is_settled_by(&self, look: &Look) -> bool {
        !matches!(self, Doubt::QuarantineOver(until) if look.began < *until)
    }

    /// Brings the state in line with what the look showed.
    pub(super) fn settle(
        self,
        look: &Look,
        journal: Option<&Journaled>,
        document: &mut Document,
        now: Moment,
        events: &mut Vec<Event>,
    ) {
        let ipam = document.ipam_mut();
        if self == Doubt::NewBoot {
            events.push(Event::Freed(ipam.new_boot(&look.evidence, now)));
        }
        if matches!(self, Doubt::Lost(_)) {
            ipam.doubt_owners(&look.evidence);
        }
        let found = ipam.hold_evident(&look.evidence, now);
        if self == Doubt::NeverLooked {
            ipam.adopt_claims(&look.evidence);
        }
        match &self {
            Doubt::Lost(loss) => {
                let is_complete = journal.is_some_and(|journal| journal.is_complete);
                if let Some(journal) = journal {
                    let held = ipam.hold_journaled(&journal.holdings, is_complete);
                    ipam.generation = ipam.generation.max(journal.generation);
                    events.push(Event::Journaled(held, is_complete));
                }
                let until = loss.seen.after(QUARANTINE);
                ipam.quarantine = (!is_complete).then_some(until);
            }
            Doubt::QuarantineOver(_) => ipam.quarantine = None,
            Doubt::NeverLooked | Doubt::NewBoot | Doubt::NewAddresses(_) => {}
        }
        events.push(Event::Settled(self, found));
        document.owed = Owed::Nothing;
    }
}
