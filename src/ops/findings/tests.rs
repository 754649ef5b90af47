//! The findings of a node that is made of values.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::check::CheckReport;
use super::host_network::HostNetwork;
use crate::ipam::{
    Attachment, Entry, Evidence, EvidenceList, Free, Held, Holder, Inventory, Ipam, Kernel,
    ListedPool, NetNs, Place, Routes, Usage,
};
use crate::ops::finding::{Finding, FindingKind, Severity};
use crate::ops::screen::Screen;
use crate::ops::show::SourceReport;
use crate::ops::tests::{ago, answered, assert_json_fixture, find, fine, report, show};
use crate::source::MatchedListing;

const README: &str = include_str!("../../../README.md");
const SUBNET: &str = "10.224.0.0/16";
const EIGHTY: Screen = Screen {
    width: Some(80),
    colours: false,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The answer of a source that lists one pool.
pub fn listed(subnet: &str, addresses: &[&str]) -> MatchedListing {
    let addresses = addresses.iter().map(|a| ip(a)).collect();
    let pool = ListedPool::new(subnet.parse().unwrap(), "eth0".into(), 0, addresses);
    MatchedListing {
        inventory: Inventory { pools: vec![pool] },
        ..MatchedListing::default()
    }
}

/// The namespace of a pod that is alive, and of one that is gone.
const ALIVE: (u64, u64) = (4, 4_026_532_500);
const GONE: (u64, u64) = (4, 4_026_532_700);

fn attachment(container: &str) -> Attachment {
    Attachment {
        network: "azure".into(),
        container_id: container.into(),
        if_name: "eth0".into(),
    }
}

fn pod(container: &str, pod: &str, netns: (u64, u64), age: u64) -> Held {
    Held {
        holder: Box::new(Holder {
            attachment: attachment(container),
            pod: Some(pod.into()),
            netns: Some(NetNs {
                path: format!("/run/netns/cni-{container:.4}").into(),
                id: Some(netns),
                cookie: None,
            }),
            is_kept: false,
            number: 1,
        }),
        since: ago(age),
        ..Held::default()
    }
}

/// A pool of 28 addresses with four holders: one alive, one dead, one suspect, one that the original wrote.
fn ipam() -> Ipam {
    let addresses: Vec<_> = (5..33).map(|n| format!("10.224.0.{n}")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let mut ipam = Ipam::default();
    ipam.merge(&listed(SUBNET, &addresses).inventory, ago(90_000));
    let pool = ipam.pools_mut().next().unwrap();
    let suspect = Held {
        suspect: Some(ago(20)),
        ..pod("c81d0f6a2b9e", "shop/checkout-59d8", GONE, 1_930)
    };
    let original = Held {
        holder: Holder::from_container_id("77aa01b2c3d4").into(),
        since: ago(93_600),
        ..Held::default()
    };
    let holders = [
        (
            "10.224.0.5",
            pod("0a1b2c3d4e5f", "default/web-1", ALIVE, 11_520),
        ),
        (
            "10.224.0.6",
            pod("3f2a91c04d7e", "batch/report-28392", GONE, 180_000),
        ),
        ("10.224.0.7", suspect),
        ("10.224.0.8", original),
    ];
    for (address, holder) in holders {
        pool.record_mut(&ip(address)).unwrap().usage = Usage::Held(holder);
    }
    let in_cooldown = Free {
        released: Some(ago(8)),
        ..Free::default()
    };
    pool.record_mut(&ip("10.224.0.9")).unwrap().usage = Usage::Free(in_cooldown);
    ipam
}

/// Complete evidence that shows two of the four, and a pod with a free address.
fn evidence() -> Evidence {
    let place = |name: &str| Place::Namespace(format!("/run/netns/{name}"));
    let entry = |container: &str, address: &str, is_live| Entry {
        holder: Holder::from(attachment(container)),
        addresses: vec![ip(address)],
        is_live,
        ..Entry::default()
    };
    Evidence {
        kernel: Kernel {
            configured: [
                (ip("10.224.0.4"), Place::Host),
                (ip("10.224.0.5"), place("cni-0a1b")),
                (ip("10.224.0.8"), place("cni-77aa")),
                (ip("10.224.0.30"), place("cni-5e5e")),
            ]
            .into(),
            namespaces: [ALIVE, (4, 4_026_532_501), (4, 4_026_532_502)].into(),
            ..Kernel::default()
        },
        cache: EvidenceList::Read {
            entries: vec![
                entry("0a1b2c3d4e5f", "10.224.0.5", true),
                entry("3f2a91c04d7e", "10.224.0.6", false),
            ],
            doubtful: Vec::new(),
        },
        azure_vnet: EvidenceList::Absent,
        routes: Routes::Read([ip("10.224.0.5")].into()),
        ..Evidence::default()
    }
}

fn found(ipam: &Ipam) -> Vec<Finding> {
    find(ipam, &evidence(), &HostNetwork::default(), &BTreeMap::new())
}

fn checked(wanted: impl Fn(&Finding) -> bool) -> CheckReport {
    let ipam = ipam();
    let mut findings = found(&ipam);
    findings.retain(wanted);
    report(findings, &ipam)
}

/// The fenced block below a mark of the README, without the line that was typed.
fn shown(mark: &str) -> &'static str {
    let (_, after) = README.split_once(mark).unwrap();
    let block = after.split("```").nth(1).unwrap();
    block.splitn(3, '\n').nth(2).unwrap()
}

#[test]
fn findings_about_records_keep_their_json_shape() {
    assert_json_fixture("check-leaks", &checked(|_| true));
}

#[test]
fn an_unknown_holder_comes_with_what_uses_the_address() {
    let mut ipam = ipam();
    let pool = ipam.pools_mut().next().unwrap();
    pool.record_mut(&ip("10.224.0.30")).unwrap().usage = Usage::Held(Held::default());
    let found = found(&ipam);
    let mut unknown = found
        .iter()
        .filter(|f| f.kind == FindingKind::UnknownHolder);
    let evidence = &unknown.next().unwrap().evidence;
    assert!(evidence.concat().contains("cni-5e5e"), "{evidence:?}");
}

#[test]
fn a_sandbox_that_holds_something_else_is_not_to_be_ended() {
    for (container, expected) in [
        ("released", "sudo crictl rmp released"),
        // It holds another address.
        ("77aa01b2c3d4", "sudo crictl pods"),
        // The cache lists it with another address.
        ("3f2a91c04d7e", "sudo crictl pods"),
        ("", "sudo crictl pods"),
    ] {
        let last = Holder::from_container_id(container);
        let released = [(ip("10.224.0.9"), last)].into();
        let found = find(&ipam(), &evidence(), &HostNetwork::default(), &released);
        let withheld: Vec<&Finding> = found
            .iter()
            .filter(|finding| finding.kind == FindingKind::Withheld)
            .collect();
        assert_eq!(withheld.len(), 1);
        assert_eq!(withheld[0].commands, [expected], "{container}");
    }
}

#[test]
fn an_entry_whose_namespace_lacks_the_address_is_only_a_note() {
    // 10.224.0.10 is free, and another pod holds 10.224.0.5.
    let kinds = |change: fn(&mut Evidence)| {
        let mut evidence = evidence();
        let netns = NetNs {
            path: "/run/netns/cni-abcd".into(),
            id: Some((4, 4_026_532_501)),
            cookie: None,
        };
        let left_over = Entry {
            holder: Holder {
                netns: Some(netns),
                ..Holder::from(attachment("abcd"))
            },
            addresses: vec![ip("10.224.0.10"), ip("10.224.0.5")],
            file: "/var/lib/cni/results/azure-abcd-eth0".to_owned(),
            is_live: true,
            ..Entry::default()
        };
        if let EvidenceList::Read { entries, .. } = &mut evidence.cache {
            entries.push(left_over);
        }
        let inside = &mut evidence.kernel.addresses_by_namespace;
        inside.insert((4, 4_026_532_501), [].into());
        change(&mut evidence);
        let found = find(
            &ipam(),
            &evidence,
            &HostNetwork::default(),
            &BTreeMap::new(),
        );
        let about = |finding: &&Finding| {
            let kinds = [
                FindingKind::Stray,
                FindingKind::Duplicate,
                FindingKind::Cache,
            ];
            ["10.224.0.10", "10.224.0.5"].contains(&&*finding.subject)
                && kinds.contains(&finding.kind)
        };
        let found: Vec<Finding> = found.iter().filter(about).cloned().collect();
        for note in found.iter().filter(|f| f.kind == FindingKind::Cache) {
            assert_eq!(note.severity, Severity::Note);
            assert!(note.commands.is_empty(), "{note:?}");
            let evidence = note.evidence.concat();
            assert!(evidence.contains("results/azure-abcd-eth0"), "{note:?}");
        }
        found.iter().map(|f| f.kind).collect::<Vec<_>>()
    };
    use FindingKind::{Cache, Duplicate, Stray};
    assert_eq!(kinds(|_| {}), [Cache, Cache]);
    // The namespace that has the address may have been missed.
    let hidden = kinds(|e| e.kernel.incomplete = Some("hidden".to_owned()));
    assert_eq!(hidden, [Duplicate, Stray]);
    let unread = kinds(|e| e.kernel.addresses_by_namespace.clear());
    assert_eq!(unread, [Duplicate, Stray]);
    let routed = kinds(|e| e.routes = Routes::Read([ip("10.224.0.10")].into()));
    assert_eq!(routed, [Cache, Stray]);
}

#[test]
fn what_the_other_name_holds_is_not_stray() {
    let is_stray = |holder: Option<Holder>| {
        let mut evidence = evidence();
        let stray = ip("10.224.0.30");
        let holders = holder.map(|holder| (stray, holder));
        evidence.other_name.holders = holders.into_iter().collect();
        let inside = &mut evidence.kernel.addresses_by_namespace;
        inside.insert(ALIVE, [stray].into());
        let found = find(
            &ipam(),
            &evidence,
            &HostNetwork::default(),
            &BTreeMap::new(),
        );
        found.iter().any(|f| f.kind == FindingKind::Stray)
    };
    assert!(is_stray(None));
    assert!(!is_stray(Some(
        *pod("six", "default/six", ALIVE, 60).holder
    )));
    // Its holder is gone, and another pod has the address.
    assert!(is_stray(Some(*pod("six", "default/six", GONE, 60).holder)));
}

#[test]
fn replaced_sandboxes_are_counted_by_container() {
    let mut ipam = ipam();
    let mut hold = |address: &str, container: &str, number: u64| {
        let netns = (ALIVE.0, ALIVE.1 + number - 1);
        let mut held = pod(container, "default/retried", netns, 60);
        held.holder.number = number;
        let pool = ipam.pools_mut().next().unwrap();
        pool.record_mut(&ip(address)).unwrap().usage = Usage::Held(held);
        found(&ipam)
            .iter()
            .filter(|finding| finding.kind == FindingKind::Replaced)
            .count()
    };
    assert_eq!(hold("10.224.0.10", "first", 1), 0);
    assert_eq!(hold("10.224.0.11", "first", 1), 0);
    // A pod of both families has two addresses, and its last sandbox may be on its way out.
    assert_eq!(hold("10.224.0.12", "second", 2), 0);
    assert_eq!(hold("10.224.0.13", "third", 3), 3);
}

#[test]
fn the_screen_of_check_is_the_one_in_the_readme() {
    let text =
        checked(|finding| finding.subject == "10.224.0.6").print(&EIGHTY, "azure-vnet-ipam", false);
    assert_eq!(text, shown("<!-- printed by check -->"), "{text}");
}

#[test]
fn the_screen_of_show_is_the_one_in_the_readme() {
    let ipam = ipam();
    let source = SourceReport {
        answered_seconds: Some(42),
        ..answered()
    };
    let mut evidence = evidence();
    let place = Place::Namespace("/run/netns/cni-c81d".to_owned());
    evidence.kernel.configured.insert(ip("10.224.0.7"), place);
    let text = show(&ipam, &evidence, fine(), source).print(&EIGHTY, "azure-vnet-ipam");
    assert_eq!(text, shown("<!-- printed by show -->"), "{text}");
}
