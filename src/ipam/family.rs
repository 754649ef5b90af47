//! Address families.

use std::fmt;
use std::net::IpAddr;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub fn from_address(address: IpAddr) -> Family {
        if address.is_ipv6() {
            Family::V6
        } else {
            Family::V4
        }
    }

    /// The family of a prefix, judged by its text; the prefix itself may be invalid.
    pub fn of_prefix(text: &str) -> Family {
        if text.contains(':') {
            Family::V6
        } else {
            Family::V4
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}
