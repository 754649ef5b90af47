//! The changes of a call to the owners of addresses, as the journal of grants keeps them.

use std::net::IpAddr;

use super::Held;

/// What happened to the holder of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// An ADD got the address.
    Granted,
    /// A repeated ADD renewed it.
    Renewed,
    /// A look at the node found it in use.
    Found,
    /// A DEL released it.
    Released,
    /// The grant was revoked, because the ADD's result could not be printed.
    GivenBack,
    /// Its holder was found dead, or an operator released it.
    Reclaimed,
    /// A GC freed it.
    Collected,
}

impl ChangeKind {
    /// Whether the address is held after it.
    pub fn is_held_after(self) -> bool {
        matches!(
            self,
            ChangeKind::Granted | ChangeKind::Renewed | ChangeKind::Found
        )
    }
}

/// A change of one address, with the holder that got or lost it.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The address.
    pub address: IpAddr,
    /// The owner that got or lost it.
    pub held: Held,
}

/// The changes of a call so far, in their order. They are not part of the state: states with different ones are equal.
#[derive(Clone, Debug, Default)]
pub struct Changes(pub Vec<Change>);

impl PartialEq for Changes {
    fn eq(&self, _: &Changes) -> bool {
        true
    }
}

impl Changes {
    /// Adds a change.
    pub fn note(&mut self, kind: ChangeKind, address: IpAddr, held: Held) {
        self.0.push(Change {
            kind,
            address,
            held,
        });
    }

    /// Adds that a grant was revoked. If it is of this call, both are left out.
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
