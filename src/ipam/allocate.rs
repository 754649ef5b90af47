//! Allocates an address for an attachment (contract sections 10 and 11, differences D4, D5, D8, D9, D11, D14, D21).

use std::mem;

use ipnet::IpNet;

use super::choose::{Limits, Taken};
use super::{
    Grant, GrantKind, Held, Ipam, Moment, PoolSelector, Refusal, Usage, Wanted, WantedAddress,
};

impl Ipam {
    /// Allocates an address for the attachment: the requested one, else the one that it holds in a pool that fits, else the next free one.
    ///
    /// `wanted` is one of the addresses of `add`. `taken` are those that this call found in use. An attachment that requests another
    /// address than it holds gets both, as with the original. Its DEL releases both.
    ///
    /// # Errors
    /// A [`Refusal`]. Then no further address is held, but flags of pools ([`Pool::ref_count`]) may have changed.
    pub fn allocate(
        &mut self,
        add: &Wanted,
        wanted: &WantedAddress,
        taken: &Taken,
        now: Moment,
    ) -> Result<Grant, Refusal> {
        let held = self.held_addresses();
        let generation = self.generation + 1;
        let Some(space) = self.spaces.get_mut(&add.space) else {
            return Err(Refusal::NoSpace {
                stage: wanted.pool.stage(),
                space: add.space.clone(),
            });
        };
        let quarantine = self.quarantine.filter(|until| *until > now);
        let quarantined = |until: Moment| Refusal::Quarantined {
            left: until.since(now),
        };
        if let Some(until) = quarantine
            && !space.holds_any(&add.attachment)
        {
            return Err(quarantined(until));
        }
        if let PoolSelector::Any { .. } = wanted.pool {
            space.clear_unused_ref_counts();
        }
        let limits = Limits {
            held: &held,
            taken,
            exclude: &add.exclude,
            cooldown: add.cooldown,
            now,
        };
        let found = space.find(add, wanted, &limits);
        if let (PoolSelector::Any { family, if_name }, Err(Refusal::Exhausted { .. })) =
            (&wanted.pool, &found)
        {
            space.flag_exhausted(|pool| pool.suits(*family, if_name.as_deref()));
        }
        let (pool_key, place) = found?;
        let refusal = || Refusal::NoSubnet {
            pool: pool_key.clone(),
        };
        let pool = space.pools.get_mut(&pool_key).ok_or_else(refusal)?;
        let net = pool.net(&pool_key).ok_or_else(refusal)?;
        let gateway = pool.gateway;
        let record = pool.record_mut(&place).ok_or_else(refusal)?;
        // In a quarantine, an attachment gets only an address that it is known to hold.
        if let Some(until) = quarantine
            && record.held().is_none()
        {
            return Err(quarantined(until));
        }
        let address = IpNet::new(record.address(), net.prefix_len()).map_err(|_| refusal())?;
        let mut tombstones = self.tombstones.iter();
        let early_del = tombstones.position(|t| t.attachment == add.attachment);
        let held = Held {
            holder: Box::new(add.holder(generation)),
            since: now,
            // Its DEL came first, and another one may never come.
            suspect: early_del.map(|n| self.tombstones.remove(n)).and(Some(now)),
            unlisted: record.held().and_then(|held| held.unlisted),
        };
        record.addr = Some(address.addr());
        let kind = match mem::replace(&mut record.usage, Usage::Held(held)) {
            Usage::Held(_) => GrantKind::Renewed,
            Usage::Free(free) => GrantKind::New(free),
        };
        if matches!(wanted.pool, PoolSelector::Any { .. }) && pool.ref_count == 0 {
            pool.ref_count = 1;
        }
        self.generation = generation;
        Ok(Grant {
            space: add.space.clone(),
            pool: pool_key,
            key: place,
            address,
            gateway,
            kind,
            generation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::testing::{allocate, attachment, pool, record, wanted_of, with_pools};
    use crate::ipam::{Family, Free, Held, Holder, Pool, Record};

    const SECOND: u64 = 1_000_000_000;
    const NOW: Moment = Moment(1000 * SECOND);

    fn any(if_name: Option<&str>) -> PoolSelector {
        PoolSelector::Any {
            family: Family::V4,
            if_name: if_name.map(str::to_owned),
        }
    }

    fn named(subnet: &str) -> PoolSelector {
        PoolSelector::Named(subnet.to_owned())
    }

    /// Returns the address that a container gets, or the kind of the refusal.
    fn take(ipam: &mut Ipam, id: &str, pool: PoolSelector, address: Option<&str>) -> String {
        let taken = allocate(ipam, &wanted_of(id, pool, address), NOW);
        assert_eq!(ipam.check(), []);
        match taken {
            Ok(grant) => grant.address.addr().to_string(),
            Err(refusal) => {
                let text = format!("{refusal:?}");
                text.split(' ').next().unwrap().to_owned()
            }
        }
    }

    fn take_all<const N: usize>(ipam: &mut Ipam, ids: [&str; N]) -> [String; N] {
        ids.map(|id| take(ipam, id, any(None), None))
    }

    fn ref_counts(ipam: &Ipam) -> Vec<i64> {
        ipam.pools().map(|(_, _, p)| p.ref_count).collect()
    }

    const ONE: &str = "10.1.0.0/16";

    #[test]
    fn never_used_addresses_come_first_then_longest_released() {
        let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.9", "10.1.0.10", "10.1.0.5", "10.1.0.6"])]);
        for (address, seconds) in [("10.1.0.5", 999), ("10.1.0.6", 100)] {
            record(&mut ipam, address).usage = Usage::Free(Free {
                released: Some(Moment(seconds * SECOND)),
                ..Free::default()
            });
        }
        let order = take_all(&mut ipam, ["a", "b", "c", "d"]);
        assert_eq!(order, ["10.1.0.9", "10.1.0.10", "10.1.0.6", "10.1.0.5"]);
    }

    #[test]
    fn container_gets_its_earlier_address_first() {
        let held = Usage::Held(Held {
            holder: Holder::from_container_id("a").into(),
            ..Held::default()
        });
        let left = |id: &str| {
            Usage::Free(Free {
                left_over_id: Some(id.into()),
                ..Free::default()
            })
        };
        for (name, first, second) in [
            ("of the original", Usage::Free(Free::default()), held),
            ("left over", left("x"), left("a")),
        ] {
            let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"])]);
            record(&mut ipam, "10.1.0.5").usage = first;
            record(&mut ipam, "10.1.0.6").usage = second;
            let order = take_all(&mut ipam, ["a", "b"]);
            assert_eq!(order, ["10.1.0.6", "10.1.0.5"], "{name}");
        }
    }

    #[test]
    fn without_subnet_unused_pool_comes_first_then_priority_then_room() {
        let mut ipam = with_pools(&[
            (ONE, 0, &["10.1.0.5", "10.1.0.6", "10.1.0.7"]),
            ("10.2.0.0/16", 1, &["10.2.0.5"]),
            ("10.3.0.0/16", 1, &["10.3.0.5", "10.3.0.6"]),
        ]);
        let mut with_interface = ipam.clone();
        let order = take_all(&mut ipam, ["a", "b", "c", "d", "e", "f"]).join(" ");
        let expected = "10.3.0.5 10.2.0.5 10.1.0.5 10.3.0.6 10.1.0.6 10.1.0.7";
        assert_eq!(order, expected);
        assert_eq!(ref_counts(&ipam), [1, 1, 1]);
        for (if_name, expected) in [("eth0", "10.1.0.5"), ("eth7", "NoPools")] {
            let taken = take(&mut with_interface, "a", any(Some(if_name)), None);
            assert_eq!(taken, expected);
        }
        // A pool with all its addresses in cooldown comes last, even if it is unused and has a higher priority.
        let all: &[&str] = &["10.1.0.5", "10.1.0.6"];
        let mut ipam = with_pools(&[(ONE, 0, all), ("10.2.0.0/16", 1, &["10.2.0.5"])]);
        assert_eq!(take(&mut ipam, "x", any(Some("eth0")), None), "10.1.0.5");
        record(&mut ipam, "10.2.0.5").usage = Usage::Free(Free {
            released: Some(Moment(999 * SECOND)),
            ..Free::default()
        });
        assert_eq!(take_all(&mut ipam, ["a", "b"]), ["10.1.0.6", "10.2.0.5"]);
    }

    #[test]
    fn flags_equal_those_of_original() {
        let two = "10.2.0.0/16";
        let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5"]), (two, 1, &["10.2.0.5"])]);
        pool(&mut ipam, ONE).ref_count = 3;
        pool(&mut ipam, two).ref_count = -2;
        assert_eq!(take(&mut ipam, "a", any(None), None), "10.2.0.5");
        // The flag of an idle pool is cleared. A negative flag stays.
        assert_eq!(ref_counts(&ipam), [0, -2]);
        let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5"])]);
        take(&mut ipam, "a", named(ONE), None);
        // With a subnet the flag is ignored.
        assert_eq!(ref_counts(&ipam), [0]);
        assert_eq!(take(&mut ipam, "b", any(None), None), "Exhausted");
        // A full pool in use is flagged although nothing was allocated.
        assert_eq!(ref_counts(&ipam), [1]);
    }

    #[test]
    fn address_in_two_records_has_one_holder() {
        let narrow = "10.1.0.0/24";
        let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5"]), (narrow, 0, &["10.1.0.5"])]);
        take(&mut ipam, "a", named(ONE), None);
        for (address, expected) in [(None, "Exhausted"), (Some("10.1.0.5"), "AddressInUse")] {
            let taken = take(&mut ipam, "b", named(narrow), address);
            assert_eq!(taken, expected);
        }
        let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"])]);
        record(&mut ipam, "10.1.0.5").addr = "10.1.0.6".parse().ok();
        let taken = take_all(&mut ipam, ["a", "b"]);
        assert_eq!(taken, ["10.1.0.6", "Exhausted"]);
    }

    #[test]
    fn repeated_add_keeps_address_that_resized_subnet_left_in_another_pool() {
        let wide = "10.0.0.0/15";
        let mut ipam = with_pools(&[
            (ONE, 0, &["10.1.0.5"]),
            (wide, 0, &["10.1.0.5", "10.1.0.6"]),
        ]);
        for (id, pool, address, expected) in [
            ("a", ONE, None, "10.1.0.5"),
            ("a", wide, None, "10.1.0.5"),
            ("a", wide, Some("10.1.0.5"), "10.1.0.5"),
            ("b", wide, Some("10.1.0.5"), "AddressInUse"),
            ("b", wide, None, "10.1.0.6"),
        ] {
            let taken = take(&mut ipam, id, named(pool), address);
            assert_eq!(taken, expected, "{id} {pool} {address:?}");
        }
    }

    #[test]
    fn early_dels_are_kept_for_five_minutes_and_at_most_64() {
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
    fn addresses_on_host_are_allocated_last() {
        let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5", "10.1.0.6", "10.1.0.7"])]);
        ipam.mark_on_host(&["10.1.0.5".parse().unwrap()].into());
        let order = take_all(&mut ipam, ["a", "b", "c"]);
        assert_eq!(order, ["10.1.0.6", "10.1.0.7", "10.1.0.5"]);
        // An address in its cooldown comes after those.
        let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"])]);
        ipam.mark_on_host(&["10.1.0.5".parse().unwrap()].into());
        record(&mut ipam, "10.1.0.6").usage = Usage::Free(Free {
            released: Some(Moment(999 * SECOND)),
            ..Free::default()
        });
        assert_eq!(take_all(&mut ipam, ["a", "b"]), ["10.1.0.5", "10.1.0.6"]);
        let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5"])]);
        let on_host = Taken {
            on_host: ["10.1.0.5".parse().unwrap()].into(),
            ..Taken::default()
        };
        let mut refuse = |address| {
            let add = wanted_of("a", any(None), address);
            ipam.allocate(&add, &add.addresses[0], &on_host, NOW)
                .unwrap_err()
        };
        let refusal = refuse(None).to_string();
        assert!(refusal.ends_with(": 0 held, 0 free, 1 on the host"));
        assert!(matches!(
            refuse(Some("10.1.0.5")),
            Refusal::AddressInUse { .. }
        ));
    }

    #[test]
    fn pool_without_subnet_refuses_add() {
        let mut ipam = with_pools(&[]);
        let pool = Pool {
            records: vec![Record::new("10.1.0.5".parse().unwrap())],
            ..Pool::default()
        };
        let local = ipam.spaces.get_mut("local").unwrap();
        local.pools.insert("nonsense".into(), pool);
        let before = ipam.clone();
        let taken = take(&mut ipam, "a", named("nonsense"), None);
        assert_eq!(taken, "NoSubnet");
        assert_eq!(ipam, before);
    }
}
