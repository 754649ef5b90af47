//! Taking an address for an attachment (contract sections 10 and 11, differences D4, D5, D8, D9, D11, D14).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::choose::OutOfReach;
use super::{
    Attachment, Claim, Family, Grant, Held, Holder, Ipam, Moment, Novelty, Pool, PoolWish, Record,
    Refusal, Request, Space, Stage, Usage, named_address,
};

impl Ipam {
    /// Gives the attachment an address: the one asked for, else the one it has in a pool that will do, else the one whose turn
    /// it is. An attachment that asks for another than it has gets that too, as from the original; its DEL frees both.
    ///
    /// # Errors
    /// A [`Refusal`]; then nothing is held that was not held before, though flags of pools ([`Pool::ref_count`]) may differ.
    pub fn take(&mut self, request: &Request<'_>, now: Moment) -> Result<Grant, Refusal> {
        let elsewhere = self.held_elsewhere(request.space);
        let generation = self.generation + 1;
        let Some(space) = self.spaces.get_mut(request.space) else {
            let stage = match request.pool {
                PoolWish::Named(_) => Stage::Address,
                PoolWish::Any { .. } => Stage::Pool,
            };
            return Err(Refusal::NoSpace {
                stage,
                space: request.space.to_owned(),
            });
        };
        let quarantine = self.quarantine.filter(|until| *until > now);
        if let Some(until) = quarantine
            && !space.holds_any(request.attachment)
        {
            return Err(Refusal::Quarantined {
                left: until.since(now),
            });
        }
        let none = BTreeSet::new();
        let out = |key: &str| OutOfReach {
            held_elsewhere: elsewhere.get(key).unwrap_or(&none),
            wired: request.wired,
            exclude: request.exclude,
        };
        let (pool_key, place) = match request.pool {
            PoolWish::Named(subnet) => {
                let key = space.pool_named(subnet).ok_or_else(|| Refusal::NoPool {
                    subnet: subnet.to_owned(),
                    known: space.pools.keys().cloned().collect(),
                })?;
                let key = key.to_owned();
                let place = space.place_in(&key, request, out(&key), now)?;
                (key, place)
            }
            PoolWish::Any { family, if_name } => {
                space.drop_idle_flags();
                let found = space.place_in_any(request, family, if_name, now, out);
                if let Err(Refusal::Exhausted { .. }) = found {
                    space.flag_exhausted(|pool| pool.suits(family, if_name));
                }
                found?
            }
        };
        let refusal = || Refusal::NoSubnet {
            pool: pool_key.clone(),
        };
        let pool = space.pools.get_mut(&pool_key).ok_or_else(refusal)?;
        let net = pool.net(&pool_key).ok_or_else(refusal)?;
        let gateway = pool.gateway;
        let record = pool.record_mut(&place).ok_or_else(refusal)?;
        // After a state was lost, nothing is given for a while but what an attachment is known to hold.
        if let Some(until) = quarantine
            && record.held().is_none()
        {
            return Err(Refusal::Quarantined {
                left: until.since(now),
            });
        }
        let address = IpNet::new(record.address(), net.prefix_len()).map_err(|_| refusal())?;
        let novelty = record.claim(request, generation, now);
        let early_del = self
            .tombstones
            .iter()
            .position(|t| t.attachment == *request.attachment);
        if let (Some(n), Usage::Held(held)) = (early_del, &mut record.usage) {
            // Its DEL came first, and nobody may ever send another.
            held.suspect = Some(now);
            self.tombstones.remove(n);
        }
        if matches!(request.pool, PoolWish::Any { .. }) && pool.ref_count == 0 {
            pool.ref_count = 1;
        }
        self.generation = generation;
        Ok(Grant {
            space: request.space.to_owned(),
            pool: pool_key,
            key: place,
            address,
            gateway,
            novelty,
            generation,
        })
    }

    /// For every pool of `space`, the addresses of its records that are in use under another record: an address has one
    /// holder, however many pools list it (difference D9). Nearly always empty.
    fn held_elsewhere(&self, space: &str) -> BTreeMap<String, BTreeSet<IpAddr>> {
        let held = |pool: &Pool| -> Vec<IpAddr> {
            pool.records
                .iter()
                .filter(|r| r.held().is_some())
                .map(Record::address)
                .collect()
        };
        let mut found = BTreeMap::new();
        for (here, key, pool) in self.pools().filter(|(here, _, _)| *here == space) {
            let mut taken = BTreeSet::new();
            if pool.records.iter().any(|r| r.address() != r.key) {
                taken.extend(held(pool));
            }
            let net = pool.net(key);
            for (there, other_key, other) in self.pools() {
                let apart = match (net, other.net(other_key)) {
                    (Some(a), Some(b)) => !a.contains(&b) && !b.contains(&a),
                    _ => false,
                };
                if !apart && (there, other_key) != (here, key) {
                    taken.extend(held(other));
                }
            }
            if !taken.is_empty() {
                found.insert(key.to_owned(), taken);
            }
        }
        found
    }
}

impl Space {
    fn holds_any(&self, attachment: &Attachment) -> bool {
        let mut pools = self.pools.values();
        pools.any(|pool| pool.place_held_by(attachment).is_some())
    }

    /// The record to take in one pool.
    fn place_in(
        &self,
        key: &str,
        request: &Request<'_>,
        out: OutOfReach<'_>,
        now: Moment,
    ) -> Result<IpAddr, Refusal> {
        let no_pool = || Refusal::NoPool {
            subnet: key.to_owned(),
            known: vec![],
        };
        let pool = self.pools.get(key).ok_or_else(no_pool)?;
        if let Some(address) = request.address {
            return pool.place_of(address, request, out, now);
        }
        let exhausted = || Refusal::Exhausted {
            pools: vec![pool.count(key, request.rest, now, &out)],
        };
        pool.place_held_by(request.attachment)
            .or_else(|| pool.place_left_by(&request.attachment.container_id, out))
            .or_else(|| pool.next_free(&out))
            .ok_or_else(exhausted)
    }

    /// The pool and the record to take when the caller names no subnet.
    fn place_in_any<'t>(
        &self,
        request: &Request<'_>,
        family: Family,
        if_name: Option<&str>,
        now: Moment,
        out: impl Fn(&str) -> OutOfReach<'t>,
    ) -> Result<(String, IpAddr), Refusal> {
        let mut fitting = self
            .pools
            .iter()
            .filter(|(_, pool)| pool.suits(family, if_name))
            .peekable();
        if fitting.peek().is_none() {
            let passed_over = self.pools.iter().map(|(key, pool)| {
                format!("{key} ({:?}, interface {:?})", pool.family(), pool.if_name)
            });
            return Err(Refusal::NoPools {
                passed_over: passed_over.collect(),
            });
        }
        if let Some(address) = request.address {
            let mut worst = None;
            for (key, pool) in fitting {
                match pool.place_of(address, request, out(key), now) {
                    Ok(place) => return Ok((key.clone(), place)),
                    Err(Refusal::AddressNotFound { .. }) => {}
                    Err(found) => worst = Some(found),
                }
            }
            return Err(worst.unwrap_or_else(|| Refusal::AddressNotFound {
                address: address.to_owned(),
            }));
        }
        let mut counts = Vec::new();
        for (key, pool) in fitting {
            if let Some(place) = pool.place_held_by(request.attachment) {
                return Ok((key.clone(), place));
            }
            counts.push(pool.count(key, request.rest, now, &out(key)));
        }
        let key = self
            .choose(|pool| pool.suits(family, if_name), &out, request.rest, now)
            .ok_or(Refusal::Exhausted { pools: counts })?;
        Ok((key.to_owned(), self.place_in(key, request, out(key), now)?))
    }
}

impl Pool {
    /// The record of the address that the caller names, if the attachment has it or may have it. A prefix length behind the
    /// address is allowed and means nothing.
    fn place_of(
        &self,
        address: &str,
        request: &Request<'_>,
        out: OutOfReach<'_>,
        now: Moment,
    ) -> Result<IpAddr, Refusal> {
        let not_found = || Refusal::AddressNotFound {
            address: address.to_owned(),
        };
        let key = named_address(address).ok_or_else(not_found)?;
        let record = self.record(&key).ok_or_else(not_found)?;
        let in_use = |holder| Refusal::AddressInUse {
            address: key,
            holder,
        };
        let address = record.address();
        match &record.usage {
            Usage::Held(held) if held.is_by(request.attachment) => Ok(key),
            Usage::Held(held) if held.container_id.is_empty() => Err(in_use(Holder::Unknown)),
            Usage::Held(held) => Err(in_use(Holder::Container(held.container_id.to_string()))),
            Usage::Free(_) if out.excludes(&address) => {
                Err(Refusal::AddressExcluded { address: key })
            }
            Usage::Free(_) if out.wired.contains(&address) => Err(in_use(Holder::TheHost)),
            Usage::Free(_) if out.contains(&address) => Err(in_use(Holder::Unknown)),
            Usage::Free(free) => match free.released.map(|at| now.since(at)) {
                Some(rested) if rested < request.rest => Err(Refusal::AddressResting {
                    address: key,
                    left: request.rest - rested,
                }),
                _ => Ok(key),
            },
        }
    }

    /// The record that the attachment holds: one claimed by it before one that merely carries its container ID.
    fn place_held_by(&self, attachment: &Attachment) -> Option<IpAddr> {
        let held = |claimed: bool| {
            self.records.iter().find(move |r| {
                r.held()
                    .is_some_and(|h| h.claim.is_some() == claimed && h.is_by(attachment))
            })
        };
        held(true).or_else(|| held(false)).map(|r| r.key)
    }

    /// A free record that an old version of the original left with this container's ID: the original gives it back.
    fn place_left_by(&self, container_id: &str, out: OutOfReach<'_>) -> Option<IpAddr> {
        let left = self.records.iter().find(|r| {
            r.free()
                .is_some_and(|f| f.left_over_id.as_deref() == Some(container_id))
                && !out.contains(&r.address())
        });
        left.map(|r| r.key)
    }
}

impl Record {
    /// Makes the attachment the holder, or renews what it holds.
    fn claim(&mut self, request: &Request<'_>, generation: u64, now: Moment) -> Novelty {
        let (novelty, unlisted) = match &self.usage {
            Usage::Held(held) => (Novelty::Renewed, held.unlisted),
            Usage::Free(free) => (Novelty::New(free.clone()), false),
        };
        self.addr = Some(self.address());
        self.usage = Usage::Held(Held {
            container_id: request.attachment.container_id.as_str().into(),
            claim: Some(Box::new(Claim {
                network: request.attachment.network.as_str().into(),
                if_name: request.attachment.if_name.as_str().into(),
                pod: request.pod.map(Into::into),
                netns: request.netns.cloned(),
                generation,
            })),
            since: now,
            suspect: None,
            unlisted,
        });
        novelty
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::{Free, Inventory, ListedPool};
    use std::time::Duration;

    static NONE: BTreeSet<IpAddr> = BTreeSet::new();
    const REST: Duration = Duration::from_secs(30);
    const SECOND: u64 = 1_000_000_000;
    const NOW: Moment = Moment(1000 * SECOND);

    /// A state with these pools, each a subnet, its priority and its addresses.
    fn state(pools: &[(&str, i64, &[&str])]) -> Ipam {
        let listed = pools.iter().map(|(subnet, priority, addresses)| {
            let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
            let if_name = format!("eth{priority}");
            ListedPool::new(subnet.parse().unwrap(), if_name, *priority, addresses)
        });
        let mut ipam = Ipam::default();
        ipam.merge(&Inventory {
            pools: listed.collect(),
        });
        ipam
    }

    fn attachment(container_id: &str, if_name: &str) -> Attachment {
        Attachment {
            network: "azure".into(),
            container_id: container_id.into(),
            if_name: if_name.into(),
        }
    }

    fn any(if_name: Option<&str>) -> PoolWish<'_> {
        PoolWish::Any {
            family: Family::V4,
            if_name,
        }
    }

    fn take(
        ipam: &mut Ipam,
        id: &str,
        pool: PoolWish<'_>,
        address: Option<&str>,
    ) -> Result<String, Refusal> {
        let attachment = attachment(id, "eth0");
        let request = Request {
            attachment: &attachment,
            space: "local",
            pool,
            address,
            pod: None,
            netns: None,
            rest: REST,
            wired: &NONE,
            exclude: &[],
        };
        let grant = ipam.take(&request, NOW)?;
        assert_eq!(ipam.check(), []);
        Ok(grant.address.to_string())
    }

    fn usage<'a>(ipam: &'a mut Ipam, pool: &str, address: &str) -> &'a mut Usage {
        let pool = ipam
            .spaces
            .get_mut("local")
            .unwrap()
            .pools
            .get_mut(pool)
            .unwrap();
        &mut pool.record_mut(&address.parse().unwrap()).unwrap().usage
    }

    fn ref_counts(ipam: &Ipam) -> Vec<i64> {
        ipam.pools().map(|(_, _, p)| p.ref_count).collect()
    }

    const ONE: &str = "10.1.0.0/16";
    const TWO: &str = "10.2.0.0/16";

    #[test]
    fn never_used_addresses_go_first_then_the_longest_released() {
        let mut ipam = state(&[(ONE, 0, &["10.1.0.9", "10.1.0.10", "10.1.0.5", "10.1.0.6"])]);
        let released = |seconds: u64| {
            Usage::Free(Free {
                released: Some(Moment(seconds * SECOND)),
                ..Free::default()
            })
        };
        *usage(&mut ipam, ONE, "10.1.0.5") = released(999);
        *usage(&mut ipam, ONE, "10.1.0.6") = released(100);
        let order: Vec<_> = ["a", "b", "c", "d"]
            .map(|id| take(&mut ipam, id, PoolWish::Named(ONE), None).unwrap())
            .into();
        assert_eq!(
            order,
            ["10.1.0.9/16", "10.1.0.10/16", "10.1.0.6/16", "10.1.0.5/16"]
        );
        assert_eq!(
            take(&mut ipam, "e", PoolWish::Named(ONE), None)
                .unwrap_err()
                .to_string(),
            "Failed to allocate address: No available addresses in 10.1.0.0/16: 4 held, 0 free"
        );
    }

    #[test]
    fn a_repeated_request_gets_the_same_address_and_renews_the_claim() {
        let mut ipam = state(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"])]);
        for pool in [
            PoolWish::Named(ONE),
            any(None),
            PoolWish::Named("10.1.0.77/16"),
        ] {
            assert_eq!(take(&mut ipam, "a", pool, None).unwrap(), "10.1.0.5/16");
        }
        assert_eq!(ipam.generation, 3);
        let attachment = attachment("a", "net1");
        let request = Request {
            attachment: &attachment,
            space: "local",
            pool: any(None),
            address: None,
            pod: None,
            netns: None,
            rest: REST,
            wired: &NONE,
            exclude: &[],
        };
        let other = ipam.take(&request, NOW).unwrap();
        assert_eq!(
            other.address.to_string(),
            "10.1.0.6/16",
            "another interface is another attachment"
        );
    }

    #[test]
    fn a_record_of_the_original_is_its_containers_whatever_the_interface() {
        let mut ipam = state(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"])]);
        *usage(&mut ipam, ONE, "10.1.0.6") = Usage::Held(Held {
            container_id: "a".into(),
            ..Held::default()
        });
        assert_eq!(
            take(&mut ipam, "a", PoolWish::Named(ONE), None).unwrap(),
            "10.1.0.6/16"
        );
        assert_eq!(
            take(&mut ipam, "b", PoolWish::Named(ONE), None).unwrap(),
            "10.1.0.5/16"
        );
    }

    #[test]
    fn left_over_ids_reserve_nothing_but_their_owner_comes_first() {
        let mut ipam = state(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"])]);
        let left = |id: &str| {
            Usage::Free(Free {
                left_over_id: Some(id.into()),
                ..Free::default()
            })
        };
        *usage(&mut ipam, ONE, "10.1.0.5") = left("x");
        *usage(&mut ipam, ONE, "10.1.0.6") = left("a");
        assert_eq!(
            take(&mut ipam, "a", PoolWish::Named(ONE), None).unwrap(),
            "10.1.0.6/16"
        );
        assert_eq!(
            take(&mut ipam, "b", PoolWish::Named(ONE), None).unwrap(),
            "10.1.0.5/16"
        );
    }

    #[test]
    fn a_particular_address_is_found_by_value() {
        let mut ipam = state(&[
            (ONE, 0, &["10.1.0.5", "10.1.0.6"]),
            ("fd00::/120", 0, &["fd00::a"]),
        ]);
        for spelling in ["10.1.0.6", " 10.1.0.6", "10.1.0.6/16", "::ffff:10.1.0.6"] {
            assert_eq!(
                take(&mut ipam, "a", any(None), Some(spelling)).unwrap(),
                "10.1.0.6/16"
            );
        }
        assert_eq!(
            take(
                &mut ipam,
                "b",
                PoolWish::Named("FD00:0::/120"),
                Some("FD00::A")
            )
            .unwrap(),
            "fd00::a/120"
        );
        let refused =
            |ipam: &mut Ipam, address| take(ipam, "c", any(None), Some(address)).unwrap_err();
        for missing in ["10.1.0.7", "banana", "10.1.000.005", "fd00::a"] {
            assert_eq!(
                refused(&mut ipam, missing),
                Refusal::AddressNotFound {
                    address: missing.into()
                }
            );
        }
        let in_use = Refusal::AddressInUse {
            address: "10.1.0.6".parse().unwrap(),
            holder: Holder::Container("a".into()),
        };
        assert_eq!(refused(&mut ipam, "10.1.0.6"), in_use);
        *usage(&mut ipam, ONE, "10.1.0.5") = Usage::Held(Held::default());
        assert!(
            matches!(refused(&mut ipam, "10.1.0.5"), Refusal::AddressInUse { .. }),
            "held by an unknown owner"
        );
    }

    #[test]
    fn without_subnet_an_unused_pool_goes_first_then_priority_then_room() {
        let pools: &[(&str, i64, &[&str])] = &[
            ("10.1.0.0/16", 0, &["10.1.0.5", "10.1.0.6", "10.1.0.7"]),
            ("10.2.0.0/16", 1, &["10.2.0.5"]),
            ("10.3.0.0/16", 1, &["10.3.0.5", "10.3.0.6"]),
        ];
        let mut ipam = state(pools);
        let order: Vec<_> = ["a", "b", "c", "d", "e", "f"]
            .map(|id| take(&mut ipam, id, any(None), None).unwrap())
            .into();
        assert_eq!(
            order,
            [
                "10.3.0.5/16",
                "10.2.0.5/16",
                "10.1.0.5/16",
                "10.3.0.6/16",
                "10.1.0.6/16",
                "10.1.0.7/16"
            ],
            "higher priority and more room, the unused rest, then all again where there is room"
        );
        assert_eq!(ref_counts(&ipam), [1, 1, 1]);
        assert_eq!(
            take(&mut state(pools), "a", any(Some("eth0")), None).unwrap(),
            "10.1.0.5/16"
        );
        let mut ipam = state(pools);
        assert!(matches!(
            take(&mut ipam, "a", any(Some("eth7")), None),
            Err(Refusal::NoPools { .. })
        ));
    }

    #[test]
    fn flags_are_kept_as_the_original_keeps_them() {
        let two: &[(&str, i64, &[&str])] = &[
            ("10.1.0.0/16", 0, &["10.1.0.5"]),
            ("10.2.0.0/16", 1, &["10.2.0.5"]),
        ];
        let mut ipam = state(two);
        let set = |ipam: &mut Ipam, pool: &str, n| {
            ipam.spaces
                .get_mut("local")
                .unwrap()
                .pools
                .get_mut(pool)
                .unwrap()
                .ref_count = n;
        };
        set(&mut ipam, "10.1.0.0/16", 3);
        set(&mut ipam, "10.2.0.0/16", -2);
        assert_eq!(
            take(&mut ipam, "a", any(None), None).unwrap(),
            "10.2.0.5/16"
        );
        assert_eq!(
            ref_counts(&ipam),
            [0, -2],
            "an idle pool loses its flag, a negative one stays"
        );
        let mut ipam = state(&[(ONE, 0, &["10.1.0.5"])]);
        take(&mut ipam, "a", PoolWish::Named(ONE), None).unwrap();
        assert_eq!(
            ref_counts(&ipam),
            [0],
            "with a subnet the flag is not looked at"
        );
        assert!(take(&mut ipam, "b", any(None), None).is_err());
        assert_eq!(
            ref_counts(&ipam),
            [1],
            "a full pool in use is flagged though nothing was given"
        );
    }

    #[test]
    fn an_address_listed_in_two_pools_has_one_holder() {
        let mut ipam = state(&[
            ("10.1.0.0/16", 0, &["10.1.0.5"]),
            ("10.1.0.0/24", 0, &["10.1.0.5"]),
        ]);
        take(&mut ipam, "a", PoolWish::Named("10.1.0.0/16"), None).unwrap();
        assert!(matches!(
            take(&mut ipam, "b", PoolWish::Named("10.1.0.0/24"), None),
            Err(Refusal::Exhausted { .. })
        ));
        let asked = take(
            &mut ipam,
            "b",
            PoolWish::Named("10.1.0.0/24"),
            Some("10.1.0.5"),
        );
        assert!(matches!(asked, Err(Refusal::AddressInUse { .. })));
    }

    #[test]
    fn two_records_of_one_address_have_one_holder() {
        let mut ipam = state(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"])]);
        let pool = ipam
            .spaces
            .get_mut("local")
            .unwrap()
            .pools
            .get_mut(ONE)
            .unwrap();
        pool.record_mut(&"10.1.0.5".parse().unwrap()).unwrap().addr = "10.1.0.6".parse().ok();
        assert_eq!(
            take(&mut ipam, "a", PoolWish::Named(ONE), None).unwrap(),
            "10.1.0.6/16"
        );
        assert!(take(&mut ipam, "b", PoolWish::Named(ONE), None).is_err());
    }

    #[test]
    fn spaces_and_pools_that_are_not_there_are_told() {
        let mut ipam = Ipam::default();
        let refusal = take(&mut ipam, "a", any(None), None).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "Failed to allocate pool: Invalid address space"
        );
        let refusal = take(&mut ipam, "a", PoolWish::Named(ONE), None).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "Failed to allocate address: Invalid address space"
        );
        let mut ipam = state(&[]);
        let refusal = take(&mut ipam, "a", any(None), None).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "Failed to allocate pool: no available address pools"
        );
        let refusal = take(&mut ipam, "a", PoolWish::Named("x"), None).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "Failed to allocate address: Pool id x not found :Invalid address pool"
        );
    }

    #[test]
    fn in_quarantine_only_what_is_held_is_given() {
        let mut ipam = state(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"]), (TWO, 1, &["10.2.0.5"])]);
        take(&mut ipam, "a", PoolWish::Named(ONE), None).unwrap();
        ipam.quarantine = Some(Moment(NOW.0 + 12 * SECOND));
        assert_eq!(
            take(&mut ipam, "a", any(None), None).unwrap(),
            "10.1.0.5/16"
        );
        assert_eq!(
            take(&mut ipam, "a", PoolWish::Named(ONE), None).unwrap(),
            "10.1.0.5/16"
        );
        for (id, pool, address) in [
            ("b", any(None), None),
            ("b", PoolWish::Named(ONE), None),
            ("b", any(None), Some("10.1.0.6")),
            // Who holds one gets no other.
            ("a", any(None), Some("10.1.0.6")),
            ("a", any(Some("eth1")), None),
            ("a", PoolWish::Named(TWO), None),
        ] {
            let refusal = take(&mut ipam, id, pool, address).unwrap_err();
            assert_eq!(
                refusal,
                Refusal::Quarantined {
                    left: Duration::from_secs(12)
                }
            );
        }
        ipam.quarantine = Some(NOW);
        assert_eq!(
            take(&mut ipam, "b", PoolWish::Named(ONE), None).unwrap(),
            "10.1.0.6/16",
            "it ends by itself"
        );
    }

    #[test]
    fn an_add_whose_del_came_first_is_served_and_suspect_at_once() {
        let mut ipam = state(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"])]);
        assert!(ipam.note_early_del(&attachment("a", "eth0"), NOW));
        assert!(
            !ipam.note_early_del(&attachment("a", "eth0"), NOW),
            "once is enough"
        );
        assert!(ipam.note_early_del(&attachment("b", "eth0"), NOW));
        assert_eq!(
            take(&mut ipam, "a", any(None), None).unwrap(),
            "10.1.0.5/16"
        );
        let Usage::Held(held) = usage(&mut ipam, ONE, "10.1.0.5").clone() else {
            panic!("held")
        };
        assert_eq!(held.suspect, Some(NOW));
        assert_eq!(ipam.tombstones.len(), 1);
        take(&mut ipam, "a", any(None), None).unwrap();
        let Usage::Held(held) = usage(&mut ipam, ONE, "10.1.0.5").clone() else {
            panic!("held")
        };
        assert_eq!(held.suspect, None, "asked for again, it is wanted");
        assert_eq!(
            take(&mut ipam, "c", any(None), None).unwrap(),
            "10.1.0.6/16"
        );
        let Usage::Held(held) = usage(&mut ipam, ONE, "10.1.0.6").clone() else {
            panic!("held")
        };
        assert_eq!(held.suspect, None);
    }

    #[test]
    fn early_dels_are_kept_for_five_minutes_and_sixty_four_at_most() {
        let mut ipam = Ipam::default();
        for n in 0..70u64 {
            assert!(ipam.note_early_del(&attachment(&format!("c{n}"), "eth0"), Moment(n)));
        }
        assert_eq!(ipam.tombstones.len(), 64);
        assert_eq!(ipam.tombstones[0].attachment.container_id, "c6");
        ipam.note_early_del(&attachment("late", "eth0"), Moment(300 * SECOND + 50));
        assert_eq!(ipam.tombstones[0].attachment.container_id, "c51");
    }

    #[test]
    fn what_the_host_has_is_passed_over_and_given_last() {
        let mut ipam = state(&[(ONE, 0, &["10.1.0.5", "10.1.0.6", "10.1.0.7"])]);
        ipam.mark_wired(&["10.1.0.5".parse().unwrap()].into());
        let order: Vec<_> = ["a", "b", "c"]
            .map(|id| take(&mut ipam, id, any(None), None).unwrap())
            .into();
        assert_eq!(order, ["10.1.0.6/16", "10.1.0.7/16", "10.1.0.5/16"]);
        let mut ipam = state(&[(ONE, 0, &["10.1.0.5"])]);
        let attachment = attachment("a", "eth0");
        let wired = ["10.1.0.5".parse().unwrap()].into();
        let request = |address| Request {
            attachment: &attachment,
            space: "local",
            pool: any(None),
            address,
            pod: None,
            netns: None,
            rest: REST,
            wired: &wired,
            exclude: &[],
        };
        let refusal = ipam.take(&request(None), NOW).unwrap_err();
        let text = "Failed to allocate address: No available addresses in 10.1.0.0/16: 0 held, 0 free, 1 wired on the host";
        assert_eq!(refusal.to_string(), text);
        assert!(matches!(
            ipam.take(&request(Some("10.1.0.5")), NOW),
            Err(Refusal::AddressInUse { .. })
        ));
    }

    #[test]
    fn a_pool_without_subnet_gives_nothing() {
        let mut ipam = state(&[]);
        let pool = Pool {
            records: vec![Record::new("10.1.0.5".parse().unwrap())],
            ..Pool::default()
        };
        ipam.spaces
            .get_mut("local")
            .unwrap()
            .pools
            .insert("nonsense".into(), pool);
        let before = ipam.clone();
        let refusal = take(&mut ipam, "a", PoolWish::Named("nonsense"), None).unwrap_err();
        assert!(
            refusal
                .to_string()
                .starts_with("Failed to parse address: invalid CIDR address"),
            "{refusal}"
        );
        assert_eq!(ipam, before);
    }
}
