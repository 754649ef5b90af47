//! The changes of a call to the owners of addresses, as the journal of grants keeps them.

use std::net::IpAddr;

use super::{Held, Moment, Owner};

/// A change of one holder, with all of its addresses that changed alike in one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Whether the addresses are held after it; otherwise they are free.
    pub is_held: bool,
    /// When they were granted or released.
    pub at: Moment,
    /// The addresses, each with the generation of its claim.
    pub addresses: Vec<(IpAddr, u64)>,
    /// The owner; the generation in its claim is not used.
    pub owner: Owner,
}

/// The changes of a call so far, in their order. They are not part of the state: states with different ones are equal.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// What the journal appends.
    pub list: Vec<Change>,
    /// Whether more changed than the list says, so that the journal must be written anew.
    pub are_beyond_list: bool,
}

impl PartialEq for Changes {
    fn eq(&self, _: &Changes) -> bool {
        true
    }
}

impl Changes {
    /// Adds a grant or its renewal.
    pub fn hold(&mut self, address: IpAddr, held: &Held) {
        self.push(true, held.since, address, held);
    }

    /// Adds a release.
    pub fn release(&mut self, address: IpAddr, held: &Held, at: Moment) {
        self.push(false, at, address, held);
    }

    fn push(&mut self, is_held: bool, at: Moment, address: IpAddr, held: &Held) {
        let generation = held.owner.generation().unwrap_or(0);
        if let Some(last) = self.list.last_mut()
            && (last.is_held, last.at) == (is_held, at)
            && held.owner.claim().is_some()
            && last.owner.attachment() == held.owner.attachment()
        {
            last.addresses.push((address, generation));
            return;
        }
        self.list.push(Change {
            is_held,
            at,
            addresses: vec![(address, generation)],
            owner: held.owner.clone(),
        });
    }

    /// Removes a grant of this call that was undone. Returns false where it was an earlier call's.
    pub fn undo_hold(&mut self, address: IpAddr, held: &Held) -> bool {
        let granted = (address, held.owner.generation().unwrap_or(0));
        for change in self.list.iter_mut().filter(|change| change.is_held) {
            if let Some(n) = change.addresses.iter().position(|a| *a == granted) {
                change.addresses.remove(n);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_holder_share_a_change_and_an_undone_grant_leaves_none() {
        let held = Held {
            owner: Owner::from_container_id("c1"),
            since: Moment(7),
            ..Held::default()
        };
        let [one, two] = ["10.1.0.5", "10.1.0.6"].map(|a| a.parse().unwrap());
        let mut changes = Changes::default();
        changes.hold(one, &held);
        changes.hold(two, &held);
        assert_eq!(changes.list.len(), 2, "only an attachment is one holder");
        let mut claimed = held;
        claimed.owner = crate::ipam::testing::attached("c2", 0);
        changes.list.clear();
        changes.hold(one, &claimed);
        changes.hold(two, &claimed);
        assert_eq!(changes.list.len(), 1);
        assert!(changes.undo_hold(one, &claimed));
        assert!(!changes.undo_hold(one, &claimed));
        assert_eq!(changes.list[0].addresses, [(two, 0)]);
        changes.release(two, &claimed, Moment(9));
        assert_eq!(changes.list.len(), 2);
    }
}
