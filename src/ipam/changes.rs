//! The changes of a call to the owners of addresses, as the journal of grants keeps them.

use std::net::IpAddr;

use super::Held;

/// What happened to a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// An ADD got the address.
    Granted,
    /// A repeated ADD got it again.
    Renewed,
    /// A look at the node found it in use.
    Found,
    /// A DEL released it.
    Released,
    /// It was taken back from an ADD whose result reached nobody.
    GivenBack,
    /// Its holder was found dead, or an operator released it.
    Reclaimed,
    /// A GC freed it.
    Collected,
}

impl ChangeKind {
    /// Whether somebody holds the address after it.
    pub fn is_held_after(self) -> bool {
        matches!(
            self,
            ChangeKind::Granted | ChangeKind::Renewed | ChangeKind::Found
        )
    }
}

/// One address that changed hands, with the holder that it came to or went from.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// To which address.
    pub address: IpAddr,
    /// Whose it is, or was.
    pub held: Held,
}

/// The changes of a call so far, in their order. They are no part of what a state says: two states with different ones are equal.
#[derive(Clone, Debug, Default)]
pub struct Changes(pub Vec<Change>);

impl PartialEq for Changes {
    fn eq(&self, _: &Changes) -> bool {
        true
    }
}

impl Changes {
    /// Notes a change.
    pub fn note(&mut self, kind: ChangeKind, address: IpAddr, held: Held) {
        self.0.push(Change {
            kind,
            address,
            held,
        });
    }

    /// Notes that a grant was taken back. One of this very call never happened then.
    pub fn note_given_back(&mut self, address: IpAddr, held: Held) {
        let is_its_grant = |change: &Change| {
            change.kind == ChangeKind::Granted && change.address == address && change.held == held
        };
        match self.0.iter().rposition(is_its_grant) {
            Some(grant) => drop(self.0.remove(grant)),
            None => self.note(ChangeKind::GivenBack, address, held),
        }
    }
}
