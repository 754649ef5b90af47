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
    order.sort_by_key(|(_, net)| net.map(|net| (net.network(), net.prefix_len())));
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

    /// Whether two subnets have no address in common.
    fn are_apart(a: Option<IpNet>, b: Option<IpNet>) -> bool {
        a.zip(b)
            .is_some_and(|(a, b)| !a.contains(&b) && !b.contains(&a))
    }

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
        let found = overlapping(&nets);
        for (a, net) in nets.iter().enumerate() {
            let others = nets.iter().enumerate();
            let expected: Vec<usize> = others
                .filter(|(b, other)| *b != a && !are_apart(*net, **other))
                .map(|(b, _)| b)
                .collect();
            let mut all = found.get(&a).cloned().unwrap_or_default();
            all.sort_by(Ord::cmp);
            assert_eq!(all, expected, "{}", texts[a]);
        }
    }
    use crate::ipam::testing::attached;
    use crate::ipam::{Held, Owner, Pool, Record, Space, Usage};

    fn held(key: &str, addr: &str, id: &str, generation: Option<u64>) -> Record {
        let owner = match generation {
            Some(generation) => attached(id, generation),
            None => Owner::from_container_id(id),
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

    fn violations(pools: Vec<Vec<Record>>) -> Vec<String> {
        let mut space = Space::default();
        for (n, records) in pools.into_iter().enumerate() {
            space.pools.insert(
                format!("p{n}"),
                Pool {
                    records,
                    ..Pool::default()
                },
            );
        }
        let ipam = Ipam {
            spaces: [("local".to_owned(), space)].into(),
            generation: 7,
            ..Ipam::default()
        };
        ipam.check().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_invariant_is_told_when_broken() {
        assert_eq!(
            violations(vec![vec![
                held("10.0.0.1", "", "a", Some(7)),
                held("10.0.0.2", "", "", None)
            ]]),
            [""; 0]
        );
        assert_eq!(
            violations(vec![
                vec![held("10.0.0.1", "", "a", None)],
                vec![held("10.0.0.2", "10.0.0.1", "b", None)]
            ]),
            ["10.0.0.1 is held twice: in pool p0 and in pool p1"]
        );
        assert_eq!(
            violations(vec![vec![
                held("10.0.0.9", "", "a", None),
                held("10.0.0.10", "", "b", None)
            ]]),
            ["the records of pool p0 are not in order at 10.0.0.10"]
        );
        assert_eq!(
            violations(vec![vec![held("10.0.0.1", "", "a", Some(8))]]),
            ["10.0.0.1 in pool p0 was claimed in generation 8, past the present one"]
        );
    }

    #[test]
    fn what_is_there_twice_is_found_however_it_came_there() {
        // The keys of the pools are their subnets.
        let twice = |one: (&str, Record), other: (&str, Record)| {
            let mut space = Space::default();
            for (key, record) in [one, other] {
                let pool: &mut Pool = space.pools.entry(key.to_owned()).or_default();
                pool.records.push(record);
            }
            let ipam = Ipam {
                spaces: [("local".to_owned(), space)].into(),
                ..Ipam::default()
            };
            ipam.check().len()
        };
        let record = |key: &str, addr: &str| held(key, addr, "a", None);
        let (wide, narrow, far) = ("10.0.0.0/16", "10.0.1.0/24", "10.9.0.0/24");
        let at = "10.0.1.5";
        assert_eq!(
            twice((wide, record(at, "")), (narrow, record(at, ""))),
            1,
            "in both"
        );
        assert_eq!(
            twice((narrow, record(at, "")), (far, record(at, ""))),
            1,
            "outside"
        );
        let other = record("10.9.0.5", at);
        assert_eq!(
            twice((narrow, record(at, "")), (far, other)),
            1,
            "by another key"
        );
        let same = record("10.0.1.6", at);
        assert_eq!(
            twice((narrow, record(at, "")), (narrow, same)),
            1,
            "in one pool"
        );
        assert_eq!(
            twice((narrow, record(at, "")), (narrow, record(at, ""))),
            2,
            "one key"
        );
        assert_eq!(
            twice((narrow, record(at, "")), (far, record("10.9.0.5", ""))),
            0
        );
        assert_eq!(
            twice((wide, record("10.0.0.5", "")), (narrow, record(at, ""))),
            0
        );
    }
}
