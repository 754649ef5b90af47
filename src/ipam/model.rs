//! The address spaces of the state, their pools and subnets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::net::IpAddr;

use ipnet::IpNet;

use super::{Free, Held, Moment, Record, Tombstone, Usage, by_text};

/// Everything the state says about addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ipam {
    /// Address spaces by name; the sources fill `local` only.
    pub spaces: BTreeMap<String, Space>,
    /// The number of the last save: the boot clock in microseconds, raised above every number that was seen. Each holder has the number of
    /// its ADD. It shows whether the address was allocated again.
    pub generation: u64,
    /// The end of the quarantine after a lost state. Until then an ADD gets only an address that it holds. Another ADD may still configure
    /// an address that no record has.
    pub quarantine: Option<Moment>,
    /// The DELs of attachments without an address. Their ADDs may still come.
    pub tombstones: Vec<Tombstone>,
    /// The released addresses that the source does not list at present. It may list them again.
    pub omitted: BTreeMap<IpAddr, Free>,
}

/// An address space.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Space {
    /// The name again; kept as found.
    pub id: String,
    /// 0 local, 1 global; kept as found.
    pub scope: i64,
    /// Pools by subnet text, as the state spells it.
    pub pools: BTreeMap<String, Pool>,
}

/// The addresses of one subnet on one interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// The subnet text again; kept as found.
    pub id: String,
    /// The interface of the host that carries the subnet; empty when unknown.
    pub if_name: String,
    /// The subnet, as the state has it.
    pub subnet: Subnet,
    /// The gateway that results name.
    pub gateway: Option<IpAddr>,
    /// The addresses, sorted by [`by_text`] of their keys, each key once.
    pub records: Vec<Record>,
    /// Whether this is an IPv6 pool.
    pub is_ipv6: bool,
    /// 0 for the primary interface, 1 for others; the higher one is preferred.
    pub priority: i64,
    /// The original's flag: above 0 once the whole pool was requested. It restricts nothing here (difference D4) but is kept as the
    /// original would keep it (contract section 10).
    pub ref_count: i64,
}

/// A subnet as the original stores it: any part may be missing, and the mask may be anything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subnet {
    /// The network address.
    pub ip: Option<IpAddr>,
    /// The bytes of the mask, 4 or 16 of them.
    pub mask: Option<Box<[u8]>>,
}

impl Ipam {
    /// Returns the pools of all spaces, mutably.
    pub fn pools_mut(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.spaces.values_mut().flat_map(|s| s.pools.values_mut())
    }

    /// Returns the pools of all spaces, with the names of space and pool.
    pub fn pools(&self) -> impl Iterator<Item = (&str, &str, &Pool)> {
        self.spaces.iter().flat_map(|(space, s)| {
            s.pools
                .iter()
                .map(move |(pool, p)| (space.as_str(), pool.as_str(), p))
        })
    }

    /// Returns the records of all pools.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.pools().flat_map(|(_, _, pool)| &pool.records)
    }

    /// Returns the holders of all addresses.
    pub fn holders(&self) -> impl Iterator<Item = &Held> {
        self.records().filter_map(Record::held)
    }

    /// Returns the record at this place: space, pool and key.
    pub(super) fn record_at(
        &mut self,
        (space, pool, key): (&str, &str, IpAddr),
    ) -> Option<&mut Record> {
        let space = self.spaces.get_mut(space)?;
        space.pools.get_mut(pool)?.record_mut(&key)
    }

    /// Returns the addresses that are in use. Each has one holder, however many pools list it (difference D21).
    pub(super) fn held_addresses(&self) -> BTreeSet<IpAddr> {
        self.pools()
            .flat_map(|(_, _, pool)| pool.held_addresses())
            .collect()
    }

    /// Returns the addresses that the source lists, in any pool.
    pub fn listed_addresses(&self) -> BTreeSet<IpAddr> {
        let is_listed = |record: &&Record| record.held().is_none_or(|held| held.unlisted.is_none());
        self.records()
            .filter(is_listed)
            .map(Record::address)
            .collect()
    }

    /// Records the last release of every address in all its free records. Several pools can list the same address. An address that the
    /// source omitted can be listed again.
    pub fn share_releases(&mut self) {
        let mut releases = mem::take(&mut self.omitted);
        if self.pools().count() > 1 {
            for record in self.records() {
                if let Some(free) = record.free().filter(|free| free.released.is_some()) {
                    let last = releases
                        .entry(record.address())
                        .or_insert_with(|| free.clone());
                    if last.released < free.released {
                        *last = free.clone();
                    }
                }
            }
        }
        if releases.is_empty() {
            return;
        }
        let mut listed = BTreeSet::new();
        for (address, usage) in self.usages_mut() {
            let Some(last) = releases.get(&address) else {
                continue;
            };
            listed.insert(address);
            if let Usage::Free(free) = usage
                && free.released < last.released
            {
                free.released = last.released;
                free.last_netns.clone_from(&last.last_netns);
            }
        }
        releases.retain(|address, _| !listed.contains(address));
        self.omitted = releases;
    }

    /// Returns the use of every address, mutably, with the address.
    pub(super) fn usages_mut(&mut self) -> impl Iterator<Item = (IpAddr, &mut Usage)> {
        let records = self.pools_mut().flat_map(|pool| &mut pool.records);
        records.map(|record| (record.address(), &mut record.usage))
    }

    /// Returns the holders of all addresses, mutably, with the addresses.
    pub(super) fn holders_mut(&mut self) -> impl Iterator<Item = (IpAddr, &mut Held)> {
        self.usages_mut()
            .filter_map(|(address, usage)| match usage {
                Usage::Held(held) => Some((address, held)),
                Usage::Free(_) => None,
            })
    }
}

impl Space {
    /// Finds the key of the pool that `subnet` names, by its text or else by its value (difference D9).
    pub fn pool_named(&self, subnet: &str) -> Option<&str> {
        if let Some((key, _)) = self.pools.get_key_value(subnet) {
            return Some(key);
        }
        let by_value = |text: &str| text.trim().parse::<IpNet>().map(|net| net.trunc()).ok();
        let net = Some(by_value(subnet)?);
        let mut keys = self.pools.keys().map(String::as_str);
        keys.find(|key| by_value(key) == net)
    }
}

impl Pool {
    /// Returns the family of its addresses.
    pub fn family(&self) -> Family {
        if self.is_ipv6 { Family::V6 } else { Family::V4 }
    }

    /// Returns the stored subnet, or the subnet in the pool's key if the stored one is incomplete.
    pub fn net(&self, key: &str) -> Option<IpNet> {
        self.subnet.net().or_else(|| key.parse().ok())
    }

    /// Returns the record stored under `key`.
    pub fn record(&self, key: &IpAddr) -> Option<&Record> {
        self.records.get(self.place(key).ok()?)
    }

    /// Returns the record stored under `key`, mutably.
    pub fn record_mut(&mut self, key: &IpAddr) -> Option<&mut Record> {
        let place = self.place(key).ok()?;
        self.records.get_mut(place)
    }

    /// Returns the index of the record that is stored under `key`, or the index where it would be inserted.
    pub(super) fn place(&self, key: &IpAddr) -> Result<usize, usize> {
        self.records.binary_search_by(|r| by_text(&r.key, key))
    }

    /// Returns the held records, with their holders.
    pub(super) fn held(&self) -> impl Iterator<Item = (&Record, &Held)> {
        let records = self.records.iter();
        records.filter_map(|record| Some((record, record.held()?)))
    }

    /// Returns the addresses that are in use.
    pub(super) fn held_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.held().map(|(record, _)| record.address())
    }

    /// Returns whether the source lists the subnet, as far as the records show. A subnet that is no longer listed keeps only its held
    /// records.
    pub fn is_listed(&self) -> bool {
        let is_unlisted =
            |record: &Record| record.held().is_some_and(|held| held.unlisted.is_some());
        self.records.is_empty() || !self.records.iter().all(is_unlisted)
    }

    /// Returns whether any of its addresses is in use.
    pub fn in_use(&self) -> bool {
        self.held().next().is_some()
    }
}

impl Subnet {
    /// Creates the stored form of a subnet.
    pub fn from_net(net: IpNet) -> Self {
        let mask: Box<[u8]> = match net.netmask() {
            IpAddr::V4(mask) => mask.octets().into(),
            IpAddr::V6(mask) => mask.octets().into(),
        };
        Subnet {
            ip: Some(net.network()),
            mask: Some(mask),
        }
    }

    /// Returns the subnet; `None` if a part is missing or the mask is not a prefix. Of a 16-byte mask of an IPv4 network, the last four
    /// bytes count, as in the original.
    pub fn net(&self) -> Option<IpNet> {
        let (ip, mask) = (self.ip?, self.mask.as_deref()?);
        let mask: IpAddr = match (ip, mask.len()) {
            (IpAddr::V4(_), 4 | 16) => (*mask.last_chunk::<4>()?).into(),
            (IpAddr::V6(_), 16) => (*mask.last_chunk::<16>()?).into(),
            _ => return None,
        };
        IpNet::with_netmask(ip, mask).ok()
    }
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the family of an address.
    pub fn from_address(address: IpAddr) -> Family {
        if address.is_ipv6() {
            Family::V6
        } else {
            Family::V4
        }
    }

    /// Returns the family of a prefix by its text. The prefix may be invalid.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnet_is_equal_after_conversion_to_ip_and_mask() {
        for text in [
            "10.224.0.0/16",
            "0.0.0.0/0",
            "10.1.1.128/25",
            "10.1.2.3/32",
            "fd00::/120",
            "::/0",
        ] {
            let net: IpNet = text.parse().unwrap();
            assert_eq!(Subnet::from_net(net).net(), Some(net), "{text}");
        }
    }

    #[test]
    fn mask_that_is_no_prefix_is_no_subnet() {
        let with = |ip: &str, mask: &[u8]| {
            Subnet {
                ip: Some(ip.parse().unwrap()),
                mask: Some(mask.into()),
            }
            .net()
        };
        assert_eq!(with("10.0.0.0", &[255, 0, 255, 0]), None);
        assert_eq!(with("10.0.0.0", &[0xfd, 0, 0, 0]), None);
        assert_eq!(with("10.0.0.0", &[255, 255]), None);
        assert_eq!(with("fd00::", &[255, 255, 255, 0]), None);
        assert_eq!(with("10.0.0.0", &[0xff; 16]), "10.0.0.0/32".parse().ok());
        assert_eq!(Subnet::default().net(), None);
    }
}
