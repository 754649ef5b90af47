//! The record of an address.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Attachment, Holder, NetNs};

/// A point on the boot clock (CLOCK_BOOTTIME): nanoseconds since the machine started, sleep included. It means nothing
/// under another boot ID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Moment(pub u64);

impl Moment {
    /// Returns the time since `earlier`; zero when that is in the future.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the moment that is later by `duration`.
    pub fn after(self, duration: Duration) -> Moment {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_add(nanoseconds))
    }
}

/// Formats a duration: `42s`, `12m`, `3h12m`, `4d2h`.
pub fn format_age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, _, _) => format!("{hours}h{}m", minutes % 60),
        (_, _, _) => format!("{days}d{}h", hours % 24),
    }
}

/// One address of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The key of the record. Callers name the address by it.
    pub key: IpAddr,
    /// The address to allocate. `None` if the state omits it; then it is the key.
    pub addr: Option<IpAddr>,
    /// Whether it is free or held.
    pub usage: Usage,
}

/// The use of an address.
#[derive(Clone, Debug, PartialEq)]
pub enum Usage {
    /// Free.
    Free(Free),
    /// Held, by an attachment or by an unknown holder.
    Held(Held),
}

/// The facts about a free address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Free {
    /// A container ID that old versions of the original left behind. It reserves nothing (difference D11).
    pub left_over_id: Option<Box<str>>,
    /// When it was last released, if that was in this boot.
    pub released: Option<Moment>,
    /// The network namespace of its last holder, if it is known. The main plugin and the runtime remove it after the DEL, or fail to.
    pub last_netns: Option<NetNs>,
    /// Whether the host or one of its routes had it at the last scan (difference D19).
    pub on_host: bool,
}

impl Free {
    /// Returns whether the network namespace of the last holder still has the address. `still_has` decides by the namespace, the address
    /// and the time since the release.
    pub fn last_holder_still_has(
        &self,
        address: IpAddr,
        now: Moment,
        still_has: impl Fn(&NetNs, IpAddr, Duration) -> bool,
    ) -> bool {
        let last = self.released.zip(self.last_netns.as_ref());
        last.is_some_and(|(at, netns)| still_has(netns, address, now.since(at)))
    }
}

/// The facts about a held address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Its holder. It is boxed, because most records of a large state are free.
    pub holder: Box<Holder>,
    /// When its last ADD came. If that is unknown: when the record was first seen.
    pub since: Moment,
    /// When it was first found without evidence of its holder.
    pub suspect: Option<Moment>,
    /// Since when the source no longer lists the address. A release then removes the record.
    pub unlisted: Option<Moment>,
}

/// A DEL that found nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tombstone {
    /// The attachment.
    pub attachment: Attachment,
    /// When the DEL came.
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

    /// Returns the address.
    pub fn address(&self) -> IpAddr {
        self.addr.unwrap_or(self.key)
    }

    /// Returns whether the address equals the key. Only such an address was listed by a source.
    pub fn has_address_of_key(&self) -> bool {
        self.address() == self.key
    }

    /// Returns the facts about the holder, if it is held.
    pub fn held(&self) -> Option<&Held> {
        match &self.usage {
            Usage::Held(held) => Some(held),
            Usage::Free(_) => None,
        }
    }

    /// Returns the facts about the free address, mutably, if it is free.
    pub fn free_mut(&mut self) -> Option<&mut Free> {
        match &mut self.usage {
            Usage::Free(free) => Some(free),
            Usage::Held(_) => None,
        }
    }

    /// Returns the facts about the free address, if it is free.
    pub fn free(&self) -> Option<&Free> {
        match &self.usage {
            Usage::Free(free) => Some(free),
            Usage::Held(_) => None,
        }
    }
}
