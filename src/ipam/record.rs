//! The records of a pool: an address, and who holds it.

use std::net::IpAddr;
use std::time::Duration;

use super::{Attachment, Owner};

/// A point on the boot clock (CLOCK_BOOTTIME): nanoseconds since the machine started, sleep included. It means nothing
/// under another boot ID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// How long ago `earlier` was; nothing when it lies ahead.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// So much later.
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
    /// The address that is handed out; `None` when the state leaves it out, then the key is.
    pub addr: Option<IpAddr>,
    /// Who has it.
    pub usage: Usage,
}

/// Who has an address.
#[derive(Clone, Debug, PartialEq)]
pub enum Usage {
    /// Nobody.
    Free(Free),
    /// An attachment, or somebody unknown.
    Held(Held),
}

/// What is known of a free address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Free {
    /// A container ID that old versions of the original left behind; reserves nothing (difference D11).
    pub left_over_id: Option<Box<str>>,
    /// When it was last released, if that was since this boot.
    pub released: Option<Moment>,
    /// The host itself, or a route of the host, had it when it was last looked at: somebody else's (difference D19).
    pub on_host: bool,
}

/// What is known of an address in use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    /// Whose it is.
    pub owner: Owner,
    /// When the attachment last asked for it, or when it was first seen where nobody knows that.
    pub since: Moment,
    /// When it was first found without any sign of life.
    pub suspect: Option<Moment>,
    /// The source no longer lists the address: it goes with its release.
    pub unlisted: bool,
}

/// A DEL that found nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Tombstone {
    /// For whom it was.
    pub attachment: Attachment,
    /// When it came.
    pub at: Moment,
}

impl Record {
    /// A free record under its own address.
    pub fn new(address: IpAddr) -> Self {
        Record {
            key: address,
            addr: Some(address),
            usage: Usage::Free(Free::default()),
        }
    }

    /// The address that a holder has.
    pub fn address(&self) -> IpAddr {
        self.addr.unwrap_or(self.key)
    }

    /// What is known of the holder, when there is one.
    pub fn held(&self) -> Option<&Held> {
        match &self.usage {
            Usage::Held(held) => Some(held),
            Usage::Free(_) => None,
        }
    }

    /// What is known of the free address, when it is free.
    pub fn free(&self) -> Option<&Free> {
        match &self.usage {
            Usage::Free(free) => Some(free),
            Usage::Held(_) => None,
        }
    }
}
