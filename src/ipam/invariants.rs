//! The invariants of the whole state, in one place.

use std::net::IpAddr;

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
    /// Records are out of order, or a key occurs twice.
    #[error("the records of pool {pool} are not in order at {address}")]
    Order {
        /// Subnet text of the pool.
        pool: String,
        /// The later of the two.
        address: IpAddr,
    },
    /// A holder has a higher number than the state.
    #[error("{address} in pool {pool} is held since number {number}, past the present one")]
    Generation {
        /// Subnet text of the pool.
        pool: String,
        /// The address.
        address: IpAddr,
        /// The holder's number.
        number: u64,
    },
}

impl Ipam {
    /// Returns every broken invariant. [`Ipam::merge`], [`Ipam::allocate`] and [`Ipam::release`] break
    /// none. A state from outside may have broken ones.
    pub fn check(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (_, name, pool) in self.pools() {
            for pair in pool.records.windows(2) {
                if let [a, b] = pair
                    && by_text(&a.key, &b.key).is_ge()
                {
                    found.push(Violation::Order {
                        pool: name.to_owned(),
                        address: b.key,
                    });
                }
            }
            for (record, held) in pool.held() {
                if held.holder.number > self.generation {
                    found.push(Violation::Generation {
                        pool: name.to_owned(),
                        address: record.address(),
                        number: held.holder.number,
                    });
                }
            }
        }
        let mut held: Vec<(IpAddr, &str)> = Vec::new();
        for (_, name, pool) in self.pools() {
            held.extend(pool.held_addresses().map(|address| (address, name)));
        }
        // The addresses of each pool are in order already. A stable sort is fast then.
        held.sort_by(|(a, _), (b, _)| by_text(a, b));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::testing::attached;
    use crate::ipam::{Held, Holder, Pool, Record, Space, Usage};

    /// Returns a held record with this key and address.
    fn held(key: &str, addr: &str, generation: Option<u64>) -> Record {
        let holder = match generation {
            Some(generation) => attached("a", generation),
            None => Holder::from_container_id("a"),
        };
        Record {
            key: key.parse().unwrap(),
            addr: addr.parse().ok(),
            usage: Usage::Held(Held {
                holder: holder.into(),
                ..Held::default()
            }),
        }
    }

    #[test]
    fn each_broken_invariant_is_reported() {
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
                "10.0.1.6 in pool 10.0.1.0/24 is held since number 8, past the present one",
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
            let messages: Vec<_> = ipam.check().iter().map(ToString::to_string).collect();
            assert_eq!(messages.join("; "), expected);
        }
    }
}
