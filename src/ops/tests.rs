//! Every screen at 80 columns, with no, few and many pods, and when something is wrong, against `tests/fixtures/screens`.
//! `ACCEPT=1 cargo test --lib screens` writes those that changed on purpose.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;

use super::conf_file::Plugin;
use super::events::print_events;
use super::finding::{Finding, FindingKind};
use super::findings::check::CheckReport;
use super::findings::host_network::{HostEntry, HostNetwork, HostRoute};
use super::findings::pod_routes::RoutesOfPods;
use super::findings::prediction::Prediction;
use super::findings::records::{self, NodeView};
use super::node::Now;
use super::reclaim::ReclaimReport;
use super::screen::Screen;
use super::show::subject::{Facts, Subject, SubjectReport};
use super::show::{ShowReport, SourceReport, Totals};
use super::state_view::StateReport;
use super::tree::Tree;
use crate::cni::{IpamConfig, NAME};
use crate::events::OperationRecord;
use crate::ipam::{
    Attachment, Entry, Evidence, EvidenceList, Exclusions, Free, Held, Holder, Ipam, Kernel,
    Moment, NetNs, Place, Pool, Record, Routes, Space, Subnet, Taken, Usage,
};
use crate::plugin;
use crate::state::{Condition, Loss, State};

const SECOND: u64 = 1_000_000_000;

const PLAIN: Screen = Screen {
    width: None,
    colours: false,
};

/// Twenty days after the node started.
const NOW: Now = Now {
    boot: Moment(20 * 86_400 * SECOND),
    wall: 1_795_208_979,
};

pub fn ago(seconds: u64) -> Moment {
    Moment(NOW.boot.0 - seconds * SECOND)
}

fn address(n: usize) -> IpAddr {
    let n = u32::try_from(n).unwrap();
    IpAddr::from((0x0ae0_0005 + n).to_be_bytes())
}

fn container(n: usize) -> String {
    let digits = (n as u128 + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    format!("{digits:032x}{digits:032x}")
}

fn pod(n: usize) -> String {
    const NAMES: [&str; 5] = [
        "default/web-7db6d8ff4d-x2x5z",
        "kube-system/coredns-5d78c9869d-8kqzp",
        "shop/checkout-worker-with-a-long-name-6f9d7c5b8-abcde",
        "default/job-1",
        "monitoring/node-exporter-l9s2v",
    ];
    format!("{}{n}", NAMES[n % NAMES.len()])
}

fn netns(n: usize) -> NetNs {
    NetNs {
        path: format!("/var/run/netns/cni-{n:08x}").into(),
        id: Some((4, 4_026_532_000 + n as u64)),
        cookie: None,
    }
}

/// The holder of address `n`.
fn holder(n: usize) -> Holder {
    Holder {
        attachment: Attachment {
            network: "azure".into(),
            container_id: container(n),
            if_name: "eth0".into(),
        },
        pod: Some(pod(n)),
        netns: Some(netns(n)),
        is_kept: false,
        number: n as u64 + 1,
    }
}

/// The same, of some age.
fn held(n: usize) -> Held {
    const AGES: [u64; 6] = [4, 61, 720, 11_520, 95_000, 1_500_000];
    Held {
        holder: holder(n).into(),
        since: ago(AGES[n % AGES.len()] + n as u64),
        suspect: None,
        unlisted: None,
    }
}

/// A pool of 253 addresses of which this number is held.
fn node(pods: usize) -> Ipam {
    let net: ipnet::IpNet = "10.224.0.0/16".parse().unwrap();
    let mut records: Vec<Record> = (0..253).map(|n| Record::new(address(n))).collect();
    for (n, record) in records.iter_mut().enumerate().take(pods) {
        record.usage = Usage::Held(held(n));
    }
    records.sort_by_key(|record| record.key.to_string());
    let pool = Pool {
        id: net.to_string(),
        if_name: "eth0".into(),
        subnet: Subnet::from_net(net),
        gateway: Some("10.224.0.1".parse().unwrap()),
        records,
        ..Pool::default()
    };
    let space = Space {
        pools: [(net.to_string(), pool)].into(),
        ..Space::default()
    };
    Ipam {
        spaces: [("local".to_owned(), space)].into(),
        generation: pods as u64,
        ..Ipam::default()
    }
}

fn record(ipam: &mut Ipam, n: usize) -> &mut Record {
    ipam.pools_mut()
        .next()
        .unwrap()
        .record_mut(&address(n))
        .unwrap()
}

fn held_mut(ipam: &mut Ipam, n: usize) -> &mut Held {
    match &mut record(ipam, n).usage {
        Usage::Held(held) => held,
        Usage::Free(_) => panic!("{n} is free"),
    }
}

/// The evidence of a node on which every pod but `gone` runs.
fn evidence_of_pods(pods: usize, gone: &[usize]) -> Evidence {
    let mut evidence = Evidence::default();
    let kernel = &mut evidence.kernel;
    kernel.namespaces.insert((4, 4_026_531_840));
    let mut entries = Vec::new();
    for n in (0..pods).filter(|n| !gone.contains(n)) {
        let place = Place::Namespace(netns(n).path.to_string());
        kernel.configured.insert(address(n), place);
        kernel.namespaces.extend(netns(n).id);
        entries.push(Entry {
            holder: holder(n),
            addresses: vec![address(n)],
            is_live: true,
            ..Entry::default()
        });
    }
    evidence.cache = EvidenceList::Read {
        entries,
        doubtful: Vec::new(),
    };
    evidence
}

/// The entries of libcni's cache.
fn entries(evidence: &mut Evidence) -> &mut Vec<Entry> {
    match &mut evidence.cache {
        EvidenceList::Read { entries, .. } => entries,
        _ => panic!("it was read"),
    }
}

/// Thirty pods with every problem that addresses can have.
fn troubled() -> (Ipam, Evidence) {
    let mut ipam = node(30);
    let mut evidence = evidence_of_pods(30, &[3, 4, 5, 6, 7]);
    // 3 and 4 are dead, 5 was found so once, 6 is young, and of 7 only a route is left.
    held_mut(&mut ipam, 3).since = ago(7300);
    held_mut(&mut ipam, 4).since = ago(86_400);
    let suspect = held_mut(&mut ipam, 5);
    suspect.since = ago(1800);
    suspect.suspect = Some(ago(20));
    held_mut(&mut ipam, 6).since = ago(300);
    evidence.routes = Routes::Read([address(7), address(41)].into());
    // The holder of 8 is not known, and the original wrote 9.
    *held_mut(&mut ipam, 8).holder = Holder::default();
    *held_mut(&mut ipam, 9).holder = Holder::from_container_id(&container(9));
    held_mut(&mut ipam, 10).unlisted = Some(ago(3_900));
    // 11 is in two namespaces.
    let Kernel {
        configured,
        more_places,
        ..
    } = &mut evidence.kernel;
    more_places.push((address(11), Place::Namespace("/var/run/netns/other".into())));
    // Free, but a pod, the host, or a route of it has them; and one that is not listed.
    configured.insert(address(40), Place::Namespace("/var/run/netns/stray".into()));
    configured.insert(address(42), Place::Host);
    configured.insert(
        address(300),
        Place::Namespace("/var/run/netns/unlisted".into()),
    );
    // Free: in cooldown, some time after it, and passed over.
    for (n, released, on_host) in [
        (50, Some(5), false),
        (51, Some(900), false),
        (52, None, true),
    ] {
        record(&mut ipam, n).usage = Usage::Free(Free {
            released: released.map(ago),
            on_host,
            ..Free::default()
        });
    }
    (ipam, evidence)
}

/// The report on a state with pools that was changed so.
fn state(change: impl Fn(&mut State)) -> StateReport {
    let mut state = State::default();
    *state.ipam_mut() = node(1);
    change(&mut state);
    StateReport::new("/var/run/azure-vnet-ipam.json".into(), &state, NOW.boot)
}

pub fn fine() -> StateReport {
    state(|_| {})
}

fn lost(why: &str) -> Condition {
    Condition::Lost(Loss {
        why: why.to_owned(),
        ..Loss::default()
    })
}

fn corrupt() -> StateReport {
    let why = "a value is missing at line 1 column 1";
    state(|state| {
        state.condition = lost(why);
        state.corrupt = Some(why.to_owned());
    })
}

pub fn show(
    ipam: &Ipam,
    evidence: &Evidence,
    state: StateReport,
    source: SourceReport,
) -> ShowReport {
    let counts = ipam.counts(
        &Taken::default(),
        Duration::from_secs(30),
        &Default::default(),
        NOW.boot,
    );
    let mut report = ShowReport::new(ipam, counts, state, source, &NOW);
    report.judge(ipam, evidence, &NOW);
    report
}

pub fn answered() -> SourceReport {
    SourceReport {
        name: Some("wire server".into()),
        answered_seconds: Some(12),
        failed_seconds: None,
    }
}

fn checked(ipam: &Ipam, evidence: &Evidence, more: Vec<Finding>) -> CheckReport {
    let on_host = |n: usize| HostEntry {
        net: IpNet::new(address(n), 16).unwrap(),
        peer: None,
        link: "eth0".to_owned(),
        is_secondary: true,
    };
    let configured = &evidence.kernel.configured;
    let is_on_host = |entry: &HostEntry| configured.get(&entry.net.addr()) == Some(&Place::Host);
    let host_route = |destination| HostRoute {
        destination,
        removal: format!("sudo ip route del {destination}/32 dev eth0"),
        is_used: true,
    };
    let routes = (0..60)
        .map(address)
        .filter(|address| evidence.routes.contains(*address))
        .map(host_route);
    let host = HostNetwork {
        routes: routes.collect(),
        entries: (0..60).map(on_host).filter(is_on_host).collect(),
        ..HostNetwork::default()
    };
    let mut findings = find(ipam, evidence, &host, &BTreeMap::new());
    findings.extend(more);
    report(findings, ipam)
}

/// The findings about records, where these holders released the addresses that are withheld.
pub fn find(
    ipam: &Ipam,
    evidence: &Evidence,
    host: &HostNetwork,
    withheld: &BTreeMap<IpAddr, Holder>,
) -> Vec<Finding> {
    let plugin = Plugin {
        netconf: Tree::Object(BTreeMap::new()),
        folder: None,
    };
    let view = NodeView {
        evidence,
        host,
        routes_of_pods: &RoutesOfPods::new(),
        withheld: &withheld.keys().copied().collect(),
        exclude: &Exclusions::default(),
        last_holders: withheld,
        networks: &BTreeMap::from([("azure".to_owned(), &plugin)]),
        of_missing_interfaces: &BTreeSet::new(),
        connecting: &BTreeSet::new(),
        now: &NOW,
        program: NAME,
        state: "/var/run/azure-vnet-ipam.json".into(),
        lock: "/var/run/azure-vnet/azure-vnet-ipam.lock".into(),
    };
    records::findings((&BTreeSet::new(), ipam), &view)
}

/// The report of a node with these findings, on which an ADD succeeds.
pub fn report(findings: Vec<Finding>, ipam: &Ipam) -> CheckReport {
    CheckReport::of_findings(findings, Vec::new(), ipam, vec![succeeding_add()], &NOW)
}

fn succeeding_add() -> Prediction {
    Prediction {
        succeeds: Some(true),
        ..Prediction::default()
    }
}

fn subject_report(
    subject: &str,
    ipam: &Ipam,
    evidence: &Evidence,
    state: StateReport,
) -> SubjectReport {
    let facts = Facts {
        ipam,
        evidence,
        conf: &IpamConfig::default(),
        now: &NOW,
        program: "sudo azure-vnet-ipam",
        host: &HostNetwork::default(),
        withheld: &BTreeSet::new(),
        freed_after_reboot: None,
    };
    SubjectReport::new(&Subject::parse(subject), &facts, events(), state)
}

fn reclaim(done: bool) -> ReclaimReport {
    let (mut ipam, evidence) = troubled();
    let mut events = Vec::new();
    let candidates = ipam.candidates(|_, _, _| true, None, NOW.boot);
    events.push(plugin::Action::Judged(
        ipam.reclaim(candidates, &evidence, None, NOW.boot),
    ));
    ReclaimReport::from_decisions(&events, done, 6, &NOW)
}

fn without_pod(mut event: OperationRecord) -> OperationRecord {
    event.holder.pod = None;
    event
}

fn without_container(mut event: OperationRecord) -> OperationRecord {
    event.holder.attachment.container_id.clear();
    without_pod(event)
}

fn events() -> Vec<OperationRecord> {
    let event = |verb: &str, n: usize| OperationRecord {
        time: "2026-11-20T21:09:39.123Z".into(),
        verb: verb.into(),
        holder: Holder {
            netns: None,
            ..holder(n)
        },
        addresses: vec![address(n)],
        microseconds: 612,
        ..OperationRecord::default()
    };
    vec![
        event("ADD", 3),
        event("ADD", 4),
        OperationRecord {
            addresses: Vec::new(),
            code: 100,
            msg: "Failed to allocate address: No available addresses in 10.224.0.0/16: 253 held, 0 free".into(),
            microseconds: 3_004_250,
            refresh_failed: true,
            ..event("ADD", 60)
        },
        without_pod(event("DEL", 5)),
        without_container(OperationRecord {
            addresses: vec![address(3), address(4)],
            by: Some("uid 0 through sudo by uid 1000 on /dev/pts/0".into()),
            reclaimed: 2,
            ..event("reclaim", 0)
        }),
    ]
}

/// Findings of a node whose source fails and whose state was corrupt.
fn surroundings() -> Vec<Finding> {
    let finding = |kind, subject: &str, text: &str, remedy: &str| {
        Finding::error(kind, &text, &remedy).about(subject)
    };
    vec![
        finding(
            FindingKind::Source,
            "wire server",
            "http://168.63.129.16/machine/plugins?comp=nmagent&type=getinterfaceinfov1: timeout",
            "look whether routes and firewall let root reach 168.63.129.16",
        ),
        finding(
            FindingKind::SetAside,
            "/var/run/azure-vnet-ipam.json",
            "corrupt states were set aside: /var/run/azure-vnet-ipam.json.corrupt-2026-11-20T210939Z",
            "find out what corrupted them, then remove them",
        ),
    ]
}

/// Compares a report with its JSON fixture.
pub fn assert_json_fixture(name: &str, report: &impl serde::Serialize) {
    let text = serde_json::to_string_pretty(report).unwrap() + "\n";
    assert_fixture(&format!("json/{name}.json"), &text);
}

fn assert_fixture(name: &str, text: &str) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let path = fixtures.join(name);
    if std::env::var_os("ACCEPT").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "{} looks otherwise; ACCEPT=1 takes this:\n{text}",
        path.display()
    );
}

fn assert_fits(name: &str, text: &str) {
    const WIDTH: usize = 80;
    // An operation has one line of any length.
    let is_operation = |line: &&str| line.contains("  error ") || line.contains("  by ");
    for line in text.lines().filter(|line| !is_operation(line)) {
        // Paths, URLs and commands are not wrapped.
        let words = line.split_whitespace().map(str::len).max().unwrap_or(0);
        assert!(
            line.chars().count() <= WIDTH || words > WIDTH / 2,
            "{name}: {line:?} is too wide"
        );
        assert!(line.is_ascii(), "{name}: {line:?}");
        assert_eq!(line, line.trim_end(), "{name}");
    }
}

/// Compares a screen of 80 columns with its fixture. Colours only colour.
fn assert_screens(name: &str, print: impl Fn(&Screen) -> String) {
    let screen = |colours| Screen {
        width: Some(80),
        colours,
    };
    let text = print(&screen(false));
    assert_fits(name, &text);
    assert_fixture(&format!("screens/{name}.txt"), &text);
    let coloured = print(&screen(true));
    assert_eq!(without_colours(&coloured), text, "{name}");
}

fn without_colours(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut plain = parts.next().unwrap().to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').unwrap().1);
    }
    plain
}

#[test]
fn screens_of_show() {
    for pods in [0, 3, 30, 250] {
        let ipam = node(pods);
        assert_screens(&format!("show-{pods}"), |screen| {
            let evidence = evidence_of_pods(pods, &[]);
            show(&ipam, &evidence, fine(), answered()).print(screen, NAME)
        });
    }
    let (ipam, evidence) = troubled();
    assert_screens("show-troubled", |screen| {
        let failed = SourceReport {
            failed_seconds: Some(3),
            ..answered()
        };
        let quarantine = Moment(NOW.boot.0 + 17 * SECOND);
        let rebuilt = state(|state| state.ipam_mut().quarantine = Some(quarantine));
        show(&ipam, &evidence, rebuilt, failed).print(screen, NAME)
    });
}

#[test]
fn show_marks_the_leaks_that_check_finds() {
    let (ipam, evidence) = troubled();
    let blind = Evidence {
        kernel: Kernel {
            incomplete: Some("permission denied".into()),
            ..evidence.kernel.clone()
        },
        ..evidence.clone()
    };
    for (evidence, leaks) in [(evidence, 5), (blind, 0)] {
        let found = checked(&ipam, &evidence, Vec::new()).findings;
        let leaked: BTreeSet<String> = found
            .iter()
            .filter(|f| f.kind == FindingKind::Leak)
            .map(|f| f.subject.clone())
            .collect();
        let report = show(&ipam, &evidence, fine(), answered());
        let pool = &report.pools[0];
        let marked: BTreeSet<String> = pool
            .holders
            .iter()
            .filter(|h| h.leaked == Some(true))
            .map(|h| h.address.to_string())
            .collect();
        assert_eq!(marked, leaked);
        assert_eq!((pool.leaked, report.totals.leaked), (leaks, leaks));
        let text = report.print(&PLAIN, NAME);
        let is_unknown = text.contains("leaked an address is not known: not every network");
        assert_eq!(
            (pool.unjudged > 0, is_unknown),
            (leaks == 0, leaks == 0),
            "{text}"
        );
    }
}

#[test]
fn totals_count_what_two_pools_have_once() {
    let mut ipam = node(3);
    let second = {
        let space = &ipam.spaces["local"];
        let mut pool = space.pools["10.224.0.0/16"].clone();
        pool.records.retain(|record| record.address() < address(10));
        // The third pod has an address of its own in it, and one pod has no name.
        pool.record_mut(&address(5)).unwrap().usage = Usage::Held(held(2));
        pool
    };
    let space = ipam.spaces.get_mut("local").unwrap();
    space.pools.insert("10.224.0.0/24".into(), second);
    let report = show(&ipam, &evidence_of_pods(2, &[]), fine(), answered());
    let Totals {
        pods, size, leaked, ..
    } = report.totals;
    assert_eq!((pods, size, report.totals.count.held), (3, 253, 4));
    // The two addresses of the pod that is gone, one of which is in both pools.
    assert_eq!(leaked, 2);
    let text = report.print(&PLAIN, NAME);
    let expected = "All 2 pools: 4 held, 2 of them leaked, 249 free, of 253 addresses; 3 pods.\n";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn screens_of_show_without_a_state() {
    let empty = Ipam::default();
    let gone = lost("it is gone, though addresses were given since the node started");
    let with = |condition: Condition| state(|state| state.condition = condition.clone());
    for (name, state) in [
        ("fresh", with(Condition::Fresh)),
        ("lost", with(gone)),
        ("corrupt", corrupt()),
        ("newer", with(Condition::Newer { format: 4 })),
    ] {
        assert_screens(&format!("show-{name}"), |screen| {
            let source = SourceReport::default();
            show(&empty, &Evidence::default(), state.clone(), source).print(screen, NAME)
        });
    }
}

#[test]
fn screens_of_show_events() {
    assert_screens("events", |screen| print_events(&events(), screen));
    assert_screens("events-none", |screen| print_events(&[], screen));
}

#[test]
fn screens_of_check() {
    assert_screens("check-clean", |screen| {
        checked(&node(30), &evidence_of_pods(30, &[]), Vec::new()).print(screen, NAME, false)
    });
    let (ipam, evidence) = troubled();
    assert_screens("check-findings", |screen| {
        checked(&ipam, &evidence, surroundings()).print(screen, NAME, false)
    });
    let in_order = [
        Finding::ok(FindingKind::Version, &"azure-vnet-ipam 0.3.0"),
        Finding::ok(FindingKind::Lock, &"no process holds the lock"),
    ];
    assert_screens("check-all", |screen| {
        let found = [surroundings(), in_order.to_vec()].concat();
        checked(&node(3), &evidence_of_pods(3, &[]), found).print(screen, NAME, true)
    });
    assert_screens("check-blind", |screen| {
        let (ipam, add) = (node(3), succeeding_add());
        let not_seen = "some network namespaces (not every process is visible)".to_owned();
        let report = CheckReport::of_findings(Vec::new(), vec![not_seen], &ipam, vec![add], &NOW);
        report.print(screen, NAME, false)
    });
}

#[test]
fn screens_of_reclaim() {
    assert_screens("reclaim-would", |screen| {
        reclaim(false).print(screen, "sudo azure-vnet-ipam reclaim --yes")
    });
    assert_screens("reclaim-done", |screen| {
        reclaim(true).print(screen, "azure-vnet-ipam reclaim --yes")
    });
    assert_screens("reclaim-nothing", |screen| {
        ReclaimReport::default().print(screen, "azure-vnet-ipam reclaim --yes")
    });
}

#[test]
fn screens_of_subjects() {
    let (ipam, evidence) = troubled();
    let of = |n: usize| address(n).to_string();
    for (name, subject) in [
        ("alive", of(1)),
        ("dead", of(3)),
        ("suspect", of(5)),
        ("young", of(6)),
        ("orphaned", of(8)),
        ("free", of(45)),
        ("cooldown", of(50)),
        ("on-the-host", of(52)),
        ("elsewhere", "10.9.9.9".to_owned()),
        ("pod", pod(3)),
        ("nobody", "default/nobody".to_owned()),
    ] {
        assert_screens(&format!("show-{name}"), |screen| {
            subject_report(&subject, &ipam, &evidence, fine()).print(screen)
        });
    }
}

#[test]
fn screens_of_subjects_with_a_second_pod_or_without_a_state() {
    let (ipam, mut evidence) = troubled();
    // The pod in the namespace that has address 11 as well.
    entries(&mut evidence).push(Entry {
        holder: Holder {
            pod: Some("default/web-2".into()),
            netns: Some(NetNs {
                path: "/run/netns/other".into(),
                ..netns(99)
            }),
            ..Holder::from_container_id(&container(99))
        },
        addresses: vec![address(99)],
        is_live: true,
        ..Entry::default()
    });
    assert_screens("show-duplicate", |screen| {
        subject_report(&address(11).to_string(), &ipam, &evidence, fine()).print(screen)
    });
    let corrupt = corrupt();
    for (name, subject) in [
        ("address", address(3).to_string()),
        ("pod", pod(3)),
        ("nobody", "default/nobody".to_owned()),
    ] {
        assert_screens(&format!("show-corrupt-{name}"), |screen| {
            let state = corrupt.clone();
            subject_report(&subject, &Ipam::default(), &evidence, state).print(screen)
        });
    }
}

#[test]
fn containers_of_the_same_address_and_foreign_addresses_are_found() {
    let mut evidence = evidence_of_pods(3, &[]);
    let entries = entries(&mut evidence);
    entries[1].holder.attachment.container_id = "another".into();
    let from = |network: &str, address: &str| Entry {
        holder: Holder::from(Attachment {
            network: network.into(),
            container_id: "x".into(),
            if_name: "eth0".into(),
        }),
        addresses: vec![address.parse().unwrap()],
        ..entries[0].clone()
    };
    let strangers = [from("azure", "192.168.7.7"), from("other", "192.168.8.8")];
    entries.extend(strangers);
    let found = checked(&node(3), &evidence, Vec::new()).findings;
    let found: Vec<_> = found.iter().map(|f| (f.kind, f.subject.clone())).collect();
    let expected = [
        (FindingKind::Duplicate, address(1).to_string()),
        (FindingKind::Foreign, "192.168.7.7".to_owned()),
    ];
    assert_eq!(found, expected);
}
