//! Who gets which address.

use super::*;
use crate::ipam::testing::{pool, with_pools};
use crate::ipam::{Attachment, Family, Free, Holder, Record};
use std::time::Duration;

static NONE: BTreeSet<IpAddr> = BTreeSet::new();
const COOLDOWN: Duration = Duration::from_secs(30);
const SECOND: u64 = 1_000_000_000;
const NOW: Moment = Moment(1000 * SECOND);

fn attachment(container_id: &str, if_name: &str) -> Attachment {
    Attachment {
        network: "azure".into(),
        container_id: container_id.into(),
        if_name: if_name.into(),
    }
}

fn any(if_name: Option<&str>) -> PoolSelector<'_> {
    PoolSelector::Any {
        family: Family::V4,
        if_name,
    }
}

fn take(
    ipam: &mut Ipam,
    id: &str,
    pool: PoolSelector<'_>,
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
        cooldown: COOLDOWN,
        on_host: &NONE,
        exclude: &[],
    };
    let grant = ipam.allocate(&request, NOW)?;
    assert_eq!(ipam.check(), []);
    Ok(grant.address.to_string())
}

fn usage<'a>(ipam: &'a mut Ipam, subnet: &str, address: &str) -> &'a mut Usage {
    &mut pool(ipam, subnet)
        .record_mut(&address.parse().unwrap())
        .unwrap()
        .usage
}

fn ref_counts(ipam: &Ipam) -> Vec<i64> {
    ipam.pools().map(|(_, _, p)| p.ref_count).collect()
}

const ONE: &str = "10.1.0.0/16";
const TWO: &str = "10.2.0.0/16";

#[test]
fn never_used_addresses_go_first_then_the_longest_released() {
    let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.9", "10.1.0.10", "10.1.0.5", "10.1.0.6"])]);
    let released = |seconds: u64| {
        Usage::Free(Free {
            released: Some(Moment(seconds * SECOND)),
            ..Free::default()
        })
    };
    *usage(&mut ipam, ONE, "10.1.0.5") = released(999);
    *usage(&mut ipam, ONE, "10.1.0.6") = released(100);
    let order: Vec<_> = ["a", "b", "c", "d"]
        .map(|id| take(&mut ipam, id, PoolSelector::Named(ONE), None).unwrap())
        .into();
    assert_eq!(
        order,
        ["10.1.0.9/16", "10.1.0.10/16", "10.1.0.6/16", "10.1.0.5/16"]
    );
    assert_eq!(
        take(&mut ipam, "e", PoolSelector::Named(ONE), None)
            .unwrap_err()
            .to_string(),
        "Failed to allocate address: No available addresses in 10.1.0.0/16: 4 held, 0 free"
    );
}

#[test]
fn a_repeated_request_gets_the_same_address_and_renews_the_claim() {
    let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"])]);
    for pool in [
        PoolSelector::Named(ONE),
        any(None),
        PoolSelector::Named("10.1.0.77/16"),
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
        cooldown: COOLDOWN,
        on_host: &NONE,
        exclude: &[],
    };
    let other = ipam.allocate(&request, NOW).unwrap();
    assert_eq!(
        other.address.to_string(),
        "10.1.0.6/16",
        "another interface is another attachment"
    );
}

/// Checks that `a` gets 10.1.0.6, which is marked as its own, although 10.1.0.5 comes first, and `b` the other one.
fn assert_a_gets_its_own_address(ipam: &mut Ipam) {
    for (id, address) in [("a", "10.1.0.6/16"), ("b", "10.1.0.5/16")] {
        assert_eq!(
            take(ipam, id, PoolSelector::Named(ONE), None).unwrap(),
            address
        );
    }
}

#[test]
fn a_record_of_the_original_is_its_containers_whatever_the_interface() {
    let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"])]);
    *usage(&mut ipam, ONE, "10.1.0.6") = Usage::Held(Held {
        owner: Owner::from_container_id("a"),
        ..Held::default()
    });
    assert_a_gets_its_own_address(&mut ipam);
}

#[test]
fn left_over_ids_reserve_nothing_but_their_owner_comes_first() {
    let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"])]);
    let left = |id: &str| {
        Usage::Free(Free {
            left_over_id: Some(id.into()),
            ..Free::default()
        })
    };
    *usage(&mut ipam, ONE, "10.1.0.5") = left("x");
    *usage(&mut ipam, ONE, "10.1.0.6") = left("a");
    assert_a_gets_its_own_address(&mut ipam);
}

#[test]
fn a_particular_address_is_found_by_value() {
    let mut ipam = with_pools(&[
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
            PoolSelector::Named("FD00:0::/120"),
            Some("FD00::A")
        )
        .unwrap(),
        "fd00::a/120"
    );
    let refused = |ipam: &mut Ipam, address| take(ipam, "c", any(None), Some(address)).unwrap_err();
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
    let mut ipam = with_pools(pools);
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
        take(&mut with_pools(pools), "a", any(Some("eth0")), None).unwrap(),
        "10.1.0.5/16"
    );
    let mut ipam = with_pools(pools);
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
    let mut ipam = with_pools(two);
    let set = |ipam: &mut Ipam, subnet: &str, n| pool(ipam, subnet).ref_count = n;
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
    let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5"])]);
    take(&mut ipam, "a", PoolSelector::Named(ONE), None).unwrap();
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
    let mut ipam = with_pools(&[
        ("10.1.0.0/16", 0, &["10.1.0.5"]),
        ("10.1.0.0/24", 0, &["10.1.0.5"]),
    ]);
    take(&mut ipam, "a", PoolSelector::Named("10.1.0.0/16"), None).unwrap();
    assert!(matches!(
        take(&mut ipam, "b", PoolSelector::Named("10.1.0.0/24"), None),
        Err(Refusal::Exhausted { .. })
    ));
    let asked = take(
        &mut ipam,
        "b",
        PoolSelector::Named("10.1.0.0/24"),
        Some("10.1.0.5"),
    );
    assert!(matches!(asked, Err(Refusal::AddressInUse { .. })));
}

#[test]
fn two_records_of_one_address_have_one_holder() {
    let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"])]);
    pool(&mut ipam, ONE)
        .record_mut(&"10.1.0.5".parse().unwrap())
        .unwrap()
        .addr = "10.1.0.6".parse().ok();
    assert_eq!(
        take(&mut ipam, "a", PoolSelector::Named(ONE), None).unwrap(),
        "10.1.0.6/16"
    );
    assert!(take(&mut ipam, "b", PoolSelector::Named(ONE), None).is_err());
}

#[test]
fn spaces_and_pools_that_are_not_there_are_told() {
    let mut ipam = Ipam::default();
    let refusal = take(&mut ipam, "a", any(None), None).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "Failed to allocate pool: Invalid address space"
    );
    let refusal = take(&mut ipam, "a", PoolSelector::Named(ONE), None).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "Failed to allocate address: Invalid address space"
    );
    let mut ipam = with_pools(&[]);
    let refusal = take(&mut ipam, "a", any(None), None).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "Failed to allocate pool: no available address pools"
    );
    let refusal = take(&mut ipam, "a", PoolSelector::Named("x"), None).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "Failed to allocate address: Pool id x not found :Invalid address pool"
    );
}

#[test]
fn in_quarantine_only_what_is_held_is_given() {
    let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"]), (TWO, 1, &["10.2.0.5"])]);
    take(&mut ipam, "a", PoolSelector::Named(ONE), None).unwrap();
    ipam.quarantine = Some(Moment(NOW.0 + 12 * SECOND));
    assert_eq!(
        take(&mut ipam, "a", any(None), None).unwrap(),
        "10.1.0.5/16"
    );
    assert_eq!(
        take(&mut ipam, "a", PoolSelector::Named(ONE), None).unwrap(),
        "10.1.0.5/16"
    );
    for (id, pool, address) in [
        ("b", any(None), None),
        ("b", PoolSelector::Named(ONE), None),
        ("b", any(None), Some("10.1.0.6")),
        // Who holds one gets no other.
        ("a", any(None), Some("10.1.0.6")),
        ("a", any(Some("eth1")), None),
        ("a", PoolSelector::Named(TWO), None),
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
        take(&mut ipam, "b", PoolSelector::Named(ONE), None).unwrap(),
        "10.1.0.6/16",
        "it ends by itself"
    );
}

#[test]
fn an_add_whose_del_came_first_is_served_and_suspect_at_once() {
    let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5", "10.1.0.6"])]);
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
    let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5", "10.1.0.6", "10.1.0.7"])]);
    ipam.mark_on_host(&["10.1.0.5".parse().unwrap()].into());
    let order: Vec<_> = ["a", "b", "c"]
        .map(|id| take(&mut ipam, id, any(None), None).unwrap())
        .into();
    assert_eq!(order, ["10.1.0.6/16", "10.1.0.7/16", "10.1.0.5/16"]);
    let mut ipam = with_pools(&[(ONE, 0, &["10.1.0.5"])]);
    let attachment = attachment("a", "eth0");
    let on_host = ["10.1.0.5".parse().unwrap()].into();
    let request = |address| Request {
        attachment: &attachment,
        space: "local",
        pool: any(None),
        address,
        pod: None,
        netns: None,
        cooldown: COOLDOWN,
        on_host: &on_host,
        exclude: &[],
    };
    let refusal = ipam.allocate(&request(None), NOW).unwrap_err();
    let text = "Failed to allocate address: No available addresses in 10.1.0.0/16: 0 held, 0 free, 1 on the host";
    assert_eq!(refusal.to_string(), text);
    assert!(matches!(
        ipam.allocate(&request(Some("10.1.0.5")), NOW),
        Err(Refusal::AddressInUse { .. })
    ));
}

#[test]
fn a_pool_without_subnet_gives_nothing() {
    let mut ipam = with_pools(&[]);
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
    let refusal = take(&mut ipam, "a", PoolSelector::Named("nonsense"), None).unwrap_err();
    assert!(
        refusal
            .to_string()
            .starts_with("Failed to parse address: invalid CIDR address"),
        "{refusal}"
    );
    assert_eq!(ipam, before);
}
