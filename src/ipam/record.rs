//! The record of an address, and the changes of a call to records, as the journal of grants keeps them.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Attachment, Owner, Releaser};

/// How long the node may go on showing a released address: its DEL comes before the main plugin and the runtime take the pod's network
/// namespace down.
pub const TEARDOWN: Duration = Duration::from_secs(30);

/// A point on the boot clock (CLOCK_BOOTTIME): nanoseconds since the machine started, sleep included. It means nothing
/// under another boot ID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Moment(pub u64);

impl Moment {
    /// The time since `earlier`; zero when that is in the future.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment that is later by `duration`.
    pub fn after(self, duration: Duration) -> Moment {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_add(nanoseconds))
    }
}

/// One address of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The key the record is stored under; what callers name.
    pub key: IpAddr,
    /// The address that is granted; `None` when the state leaves it out, then it is the key.
    pub addr: Option<IpAddr>,
    /// Whether it is free or held.
    pub usage: Usage,
}

/// The use of an address.
#[derive(Clone, Debug, PartialEq)]
pub enum Usage {
    /// Free.
    Free(Free),
    /// Held, by an attachment or by an unknown owner.
    Held(Held),
}

/// The facts about a free address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Free {
    /// A container ID that old versions of the original left behind; reserves nothing (difference D11).
    pub left_over_id: Option<Box<str>>,
    /// When it was last released, if that was since this boot.
    pub released: Option<Moment>,
    /// The holder that released it, where its network namespace is known. Its teardown follows the DEL. In a box, as few
    /// records have one: a record takes 96 bytes instead of 120.
    pub releaser: Option<Box<Releaser>>,
    /// The host or one of its routes had it at the last look (difference D19).
    pub on_host: bool,
}

/// The facts about a held address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Its owner.
    pub owner: Owner,
    /// When its ADD came last; where that is unknown, when the record was first seen.
    pub since: Moment,
    /// When it was first found without evidence of its owner.
    pub suspect: Option<Moment>,
    /// Whether the source no longer lists the address. Then the record is removed with its release.
    pub unlisted: bool,
}

/// An address that the source did not list when it was released, so that its record went. It may be listed again before its pod's
/// network namespace is gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Dropped {
    /// The address.
    pub address: IpAddr,
    /// When it was released.
    pub at: Moment,
    /// Its holder, where the network namespace is known.
    pub releaser: Option<Releaser>,
}

/// A DEL that found nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tombstone {
    /// The attachment.
    pub attachment: Attachment,
    /// When it came.
    pub at: Moment,
}

impl Record {
    /// Creates a free record under its own address.
    pub fn new(address: IpAddr) -> Self {
        Record {
            key: address,
            addr: Some(address),
            usage: Usage::Free(Free::default()),
        }
    }

    /// The address.
    pub fn address(&self) -> IpAddr {
        self.addr.unwrap_or(self.key)
    }

    /// The facts about the holder, if it is held.
    pub fn held(&self) -> Option<&Held> {
        match &self.usage {
            Usage::Held(held) => Some(held),
            Usage::Free(_) => None,
        }
    }

    /// The facts about the free address, if it is free.
    pub fn free(&self) -> Option<&Free> {
        match &self.usage {
            Usage::Free(free) => Some(free),
            Usage::Held(_) => None,
        }
    }
}

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

/// The changes of a call so far, in their order. The journal gets them, not the state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// What the journal appends.
    pub list: Vec<Change>,
    /// Whether more changed than the list says, so that the journal must be written anew.
    pub are_beyond_list: bool,
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
