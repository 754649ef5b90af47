//! The invariants of the whole state, in one place.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::{Ipam, by_text};

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Two records in use name one address.
    #[error("{address} is held twice: in pool {first} and in pool {second}")]
    HeldTwice {
        /// The address.
        address: IpAddr,
        /// Subnet text of one pool.
        first: String,
        /// Subnet text of the other, or the same.
        second: String,
    },
    /// Records are out of order, or a key is there twice.
    #[error("the records of pool {pool} are not in order at {address}")]
    Order {
        /// Subnet text of the pool.
        pool: String,
        /// The later of the two.
        address: IpAddr,
    },
    /// A claim from the future.
    #[error("{address} in pool {pool} was claimed in generation {claimed}, past the present one")]
    Generation {
        /// Subnet text of the pool.
        pool: String,
        /// The address.
        address: IpAddr,
        /// The claim's generation.
        claimed: u64,
    },
}

impl Ipam {
    /// Returns every broken invariant. [`Ipam::merge`], [`Ipam::allocate`] and [`Ipam::release`] add none; a state from outside may
    /// have some.
    pub fn check(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let nets: Vec<_> = self.pools().map(|(_, key, pool)| pool.net(key)).collect();
        // When every pool is in order and no two overlap, no address can occur twice.
        let mut is_tidy = overlapping(&nets).is_empty();
        for ((_, name, pool), net) in self.pools().zip(nets) {
            for pair in pool.records.windows(2) {
                if let [a, b] = pair
                    && by_text(&a.key, &b.key).is_ge()
                {
                    is_tidy = false;
                    let (pool, address) = (name.to_owned(), b.key);
                    found.push(Violation::Order { pool, address });
                }
            }
            for (record, held) in pool.held() {
                let address = record.address();
                is_tidy &= address == record.key && net.is_some_and(|net| net.contains(&address));
                if let Some(claimed) = held.owner.generation().filter(|of| *of > self.generation) {
                    let pool = name.to_owned();
                    found.push(Violation::Generation {
                        pool,
                        address,
                        claimed,
                    });
                }
            }
        }
        if is_tidy {
            return found;
        }
        let held = self
            .pools()
            .flat_map(|(_, name, pool)| pool.held_addresses().map(move |address| (address, name)));
        let mut held: Vec<_> = held.collect();
        held.sort_unstable();
        for pair in held.windows(2) {
            if let [(address, first), (again, second)] = pair
                && address == again
            {
                found.push(Violation::HeldTwice {
                    address: *address,
                    first: (*first).to_owned(),
                    second: (*second).to_owned(),
                });
            }
        }
        found
    }
}

/// Returns, for each subnet, the others that it may share an address with; an unknown subnet may overlap any other. Not every pair is
/// compared: in their order, a subnet comes before those that it contains, with only other subnets that contain them in between.
pub(super) fn overlapping(nets: &[Option<IpNet>]) -> BTreeMap<usize, Vec<usize>> {
    let mut found: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let nets = nets.iter().map(|net| net.map(|net| net.trunc()));
    let mut order: Vec<(usize, Option<IpNet>)> = nets.enumerate().collect();
    order.sort_unstable_by_key(|(_, net)| net.map(|net| (net.network(), net.prefix_len())));
    // Unknown subnets come first in the order, and stay.
    let mut around: Vec<(usize, Option<IpNet>)> = Vec::new();
    for (n, net) in order {
        while let Some((_, Some(outer))) = around.last()
            && net.is_some_and(|net| !outer.contains(&net))
        {
            around.pop();
        }
        for (outer, _) in &around {
            found.entry(n).or_default().push(*outer);
            found.entry(*outer).or_default().push(n);
        }
        around.push((n, net));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::testing::attached;
    use crate::ipam::{Held, Owner, Pool, Record, Space, Usage};

    #[test]
    fn subnets_that_overlap_are_those_that_are_not_apart() {
        let texts = [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.2.0/24",
            "10.2.0.0/16",
            "10.1.2.0/24",
            "11.0.0.0/8",
            "fd00::/64",
            "fd00::/120",
            "0.0.0.0/0",
            "10.1.2.128/25",
            "x",
            "y",
            "::/0",
            "10.1.3.7/24",
        ];
        let nets: Vec<Option<IpNet>> = texts.iter().map(|text| text.parse().ok()).collect();
        // What is no subnet may overlap anything.
        let are_apart = |a: Option<IpNet>, b: Option<IpNet>| {
            a.zip(b)
                .is_some_and(|(a, b)| !a.contains(&b) && !b.contains(&a))
        };
        let found = overlapping(&nets);
        for (a, net) in nets.iter().enumerate() {
            let mut expected = Vec::from_iter(0..nets.len());
            expected.retain(|b| *b != a && !are_apart(*net, nets[*b]));
            let mut all = found.get(&a).cloned().unwrap_or_default();
            all.sort_by(Ord::cmp);
            assert_eq!(all, expected, "{}", texts[a]);
        }
    }

    /// A record that is held, with the address that it names beside its key.
    fn held(key: &str, addr: &str, generation: Option<u64>) -> Record {
        let owner = match generation {
            Some(generation) => attached("a", generation),
            None => Owner::from_container_id("a"),
        };
        Record {
            key: key.parse().unwrap(),
            addr: addr.parse().ok(),
            usage: Usage::Held(Held {
                owner,
                ..Held::default()
            }),
        }
    }

    #[test]
    fn each_invariant_is_told_when_broken() {
        let (wide, narrow, far) = ("10.0.0.0/16", "10.0.1.0/24", "10.9.0.0/24");
        let at = "10.0.1.5";
        let record = |key, addr| held(key, addr, None);
        // The keys of the pools are their subnets.
        for (pools, expected) in [
            (
                [
                    (wide, held(at, "", Some(7))),
                    (wide, record("10.0.1.6", "")),
                ],
                "",
            ),
            (
                [(wide, record("10.0.0.5", "")), (narrow, record(at, ""))],
                "",
            ),
            (
                [(far, record("10.9.0.5", "")), (narrow, record(at, ""))],
                "",
            ),
            (
                [(narrow, record(at, "")), (wide, record(at, ""))],
                "10.0.1.5 is held twice: in pool 10.0.0.0/16 and in pool 10.0.1.0/24",
            ),
            (
                [(narrow, record(at, "")), (far, record(at, ""))],
                "10.0.1.5 is held twice: in pool 10.0.1.0/24 and in pool 10.9.0.0/24",
            ),
            (
                [(narrow, record(at, "")), (far, record("10.9.0.5", at))],
                "10.0.1.5 is held twice: in pool 10.0.1.0/24 and in pool 10.9.0.0/24",
            ),
            (
                [(narrow, record(at, "")), (narrow, record("10.0.1.6", at))],
                "10.0.1.5 is held twice: in pool 10.0.1.0/24 and in pool 10.0.1.0/24",
            ),
            (
                [
                    (wide, record("10.0.0.9", "")),
                    (wide, record("10.0.0.10", "")),
                ],
                "the records of pool 10.0.0.0/16 are not in order at 10.0.0.10",
            ),
            (
                [
                    (wide, record(at, "")),
                    (narrow, held("10.0.1.6", "", Some(8))),
                ],
                "10.0.1.6 in pool 10.0.1.0/24 was claimed in generation 8, past the present one",
            ),
        ] {
            let mut space = Space::default();
            for (key, record) in pools {
                let pool: &mut Pool = space.pools.entry(key.to_owned()).or_default();
                pool.records.push(record);
            }
            let ipam = Ipam {
                spaces: [("local".to_owned(), space)].into(),
                generation: 7,
                ..Ipam::default()
            };
            let told: Vec<_> = ipam.check().iter().map(ToString::to_string).collect();
            assert_eq!(told.join("; "), expected);
        }
    }
}
