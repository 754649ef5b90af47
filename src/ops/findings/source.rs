//! The source of the pools, the interfaces that it lists, and the pools of the state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::slice;

use super::host_network::HostNetwork;
use super::host_routes::way_to_wire_server;
use super::inspection::{Inspection, SourceAnswer};
use super::kubelet;
use crate::failure::{Audience, ENVIRONMENT_REMEDY, Remedy, exhausted, needs_root, source_remedy};
use crate::host::{Link, io_reason, links, metadata_below};
use crate::ipam::{EvidenceIndex, Ipam, Place, Pool, PoolCount, Record, RetriedPod, Verdict};
use crate::log::Milliseconds;
use crate::ops::finding::{Finding, FindingKind, Severity, Visibility};
use crate::ops::node::Node;
use crate::ops::screen::{join_first, pluralize};
use crate::source::{FetchError, ListedInterface, MatchedListing, Source, SourceError};

/// Examines the source, the interfaces and the pools.
pub fn examine(node: &Node, inspection: &Inspection, visibility: &mut Visibility) -> Vec<Finding> {
    let mut found = match &inspection.source {
        Err(why) => vec![Finding::error(
            FindingKind::Source,
            why,
            &ENVIRONMENT_REMEDY,
        )],
        Ok(answer) => match (&answer.source, &answer.matched) {
            (Source::Null, _) => {
                let text = "ipam.environment is null: there are no pools but those in the state";
                vec![Finding::ok(FindingKind::Source, &text)]
            }
            (_, Ok(matched)) => answered(node, inspection, answer, matched),
            (source, Err(error)) => {
                let hidden = error.file().filter(|file| is_not_mounted(node, file));
                visibility.not_mounted = hidden.map(|file| file.display().to_string());
                // What this container does not see is no fault of the source.
                if hidden.is_some() {
                    Vec::new()
                } else {
                    let unreached = Unreached {
                        host: &inspection.host,
                        is_root: visibility.is_root,
                    };
                    let effect =
                        effect_on_pods(inspection.state.ipam(), inspection.config.conf.ipv6);
                    vec![unreached.finding(source, error, effect)]
                }
            }
        },
    };
    found.extend(pools(node, inspection));
    found
}

/// Whether a file exists on the node, and not in the container of this process.
fn is_not_mounted(node: &Node, file: &Path) -> bool {
    let root = node.paths().process(1).join("root");
    node.is_in_container() && !file.exists() && metadata_below(&root, file).is_ok()
}

fn answered(
    node: &Node,
    inspection: &Inspection,
    answer: &SourceAnswer,
    matched: &MatchedListing,
) -> Vec<Finding> {
    let carrying = matched.link_names();
    let text = format_args!(
        "{} answered in {}: {}, {} for pods, {} the host's",
        answer.source.name(),
        Milliseconds(answer.took),
        pluralize(
            carrying.len() + matched.unmatched.len(),
            "interface",
            "interfaces"
        ),
        pluralize(matched.inventory.addresses(), "address", "addresses"),
        matched.primary.len()
    );
    let mut found = vec![Finding::ok(FindingKind::Source, &text)];
    if let Some(first) = &matched.unusable.first {
        let count = matched.unusable.count;
        let mut text = format!("the source lists {first}");
        if count > 1 {
            text.push_str(&format!(
                "; {count} of the listed addresses and subnets cannot be used"
            ));
        }
        let remedy = "correct what the source lists, or assign the addresses to the first of two network interfaces in one subnet; its other addresses are allocated to pods";
        let severity = if matched.inventory.addresses() == 0 {
            Severity::Error
        } else {
            Severity::Warning
        };
        found.push(Finding::new(severity, FindingKind::Source, &text, &remedy));
    }
    for pool in &matched.inventory.pools {
        // A range of the node is on no interface in particular.
        let source = match &*pool.if_name {
            "" => "the node",
            if_name => if_name,
        };
        let count = pluralize(pool.addresses.len(), "address", "addresses");
        let text = format_args!("{source} has {} with {count} for pods", pool.subnet);
        found.push(Finding::ok(FindingKind::Interface, &text));
    }
    if !matched.unmatched.is_empty() {
        let moved = moved_into_namespaces(inspection, matched);
        found.extend(moved.unwrap_or_else(|| vec![unmatched(node, inspection, matched)]));
    }
    // The addresses of a missing interface are unknown.
    let is_matched = matched.unmatched.is_empty() || !carrying.is_empty();
    if is_matched && matched.inventory.addresses() == 0 && matched.unusable.count == 0 {
        let text = "the source lists no address for pods; ADDs use the stored addresses only for the first minute of that, and Azure may not deliver to these";
        let remedy = "assign secondary IP configurations to the node's network interface in Azure";
        found.push(Finding::error(FindingKind::Interface, &text, &remedy));
    }
    found
}

/// What happens to new pods while the source does not answer. `ipv6` is the family of their addresses.
fn effect_on_pods(ipam: &Ipam, ipv6: bool) -> &'static str {
    let is_used = |key: &str, pool: &Pool| {
        let net = pool.net(key);
        net.is_some_and(|net| net.addr().is_ipv6() == ipv6)
    };
    let used = ipam.pools().filter(|(_, key, pool)| is_used(key, pool));
    let used: Vec<&Pool> = used.map(|(_, _, pool)| pool).collect();
    let mut records = used.iter().flat_map(|pool| &pool.records);
    match (used.is_empty(), records.any(|r| r.free().is_some())) {
        (false, true) => "until it answers, pods get the free addresses of the stored pools",
        (false, false) => {
            "until it answers, no new pod gets an address: the stored pools have no free one"
        }
        (true, _) => "until it answers, no new pod gets an address: there are no stored pools",
    }
}

/// What is known of the host when a source failed.
struct Unreached<'a> {
    host: &'a HostNetwork,
    is_root: bool,
}

impl Unreached<'_> {
    /// The finding for the source.
    fn finding(&self, asked: &Source, error: &SourceError, effect: &str) -> Finding {
        let source = asked.failed_part(error);
        let mut remedy = source_remedy(source, error, self.is_root);
        if let Some(key) = source.chosen_by() {
            remedy.text = format!(
                "if {key} names the wrong source, correct it; otherwise {}",
                remedy.text
            );
        }
        let mut evidence = vec![effect.to_owned()];
        let is_connected = match error {
            SourceError::Fetch(_, why) => {
                matches!(why, FetchError::Status(_) | FetchError::SlowAnswer(_))
            }
            _ => true,
        };
        let mut is_explained = false;
        if !is_connected && source.is_wire_server() {
            if let Some((why, removal)) = way_to_wire_server(self.host) {
                evidence.push(why);
                is_explained = removal.is_some();
                remedy = removal.unwrap_or(remedy);
            } else if self.host.lacks_default_route()
                && matches!(error, SourceError::Fetch(_, FetchError::NoRoute(_)))
            {
                remedy = Remedy {
                    text: "this host has no default route of IPv4; restore it first, as another finding says".to_owned(),
                    commands: Vec::new(),
                };
            }
        }
        let finding = if needs_root(source, error, self.is_root) && !is_explained {
            Finding::note(FindingKind::Source, error, &remedy.text)
        } else {
            Finding::error(FindingKind::Source, error, &remedy.text)
        };
        finding
            .about(source.name())
            .with_commands(remedy.commands)
            .with_evidence(evidence)
    }
}

/// Listed interfaces that are not on the host because they were moved into network namespaces, which have their addresses now. `None` if
/// another one is missing, too.
fn moved_into_namespaces(
    inspection: &Inspection,
    matched: &MatchedListing,
) -> Option<Vec<Finding>> {
    let (kernel, held) = (&inspection.evidence.kernel, &inspection.held_before);
    let finding = |interface: &ListedInterface| {
        let mut own = interface.subnets.iter().flat_map(|subnet| &subnet.primary);
        let (address, path) = own.find_map(|own| match kernel.places(*own).next() {
            Some(Place::Namespace(path)) => Some((own, path)),
            _ => None,
        })?;
        let mac = format_mac(&interface.mac);
        let text = format_args!(
            "the network interface {mac} is not on the host: the network namespace {path} has its address {address}"
        );
        let for_pods = interface
            .subnets
            .iter()
            .flat_map(|subnet| &subnet.addresses);
        let (severity, remedy) = if for_pods.clone().any(|address| held.contains(address)) {
            let remedy = "pods hold addresses of this interface, and packets for them arrive in that namespace: move the interface back; or, as a last resort, delete these pods: recreated, they get addresses of another interface";
            (Severity::Warning, remedy)
        } else {
            let remedy = "no action needed if that is intended, as with the main plugin host-device; new pods get no address of this interface";
            (Severity::Note, remedy)
        };
        Some(Finding::new(severity, FindingKind::Interface, &text, &remedy).about(mac))
    };
    // With no other interface, the pools have moved away as a whole.
    let is_any_left = !matched.link_names().is_empty();
    let moved = || matched.unmatched.iter().map(finding).collect();
    is_any_left.then(moved).flatten()
}

/// Listed interfaces that this node does not have.
fn unmatched(node: &Node, inspection: &Inspection, matched: &MatchedListing) -> Finding {
    let interfaces = &*matched.unmatched;
    let listed = join_first(interfaces.iter().map(|listed| format_mac(&listed.mac)));
    let mut command = None;
    let own_addresses: BTreeSet<IpAddr> = interfaces
        .iter()
        .flat_map(|interface| &interface.subnets)
        .flat_map(|subnet| subnet.primary.iter().copied())
        .collect();
    let host = &inspection.host;
    let is_of_this_node = |link: &Link| {
        let mut entries = host.entries.iter();
        entries.any(|entry| entry.link == link.name && own_addresses.contains(&entry.net.addr()))
    };
    let own = match links(node.paths()) {
        Ok(mut links) => {
            // The host's ends of pod links are many, and never the listed interface.
            links.retain(|link| !link.mac.is_empty() && !host.leads_to_pod(link));
            // The pools tell which of several it was; without pools, the operator must choose.
            let stored = inspection.state.ipam().pools();
            let stored: BTreeSet<&str> = stored.map(|(_, _, pool)| &*pool.if_name).collect();
            let was_it = |link: &&Link| stored.contains(&*link.name) || links.len() == 1;
            let candidates: Vec<&Link> = links.iter().filter(was_it).collect();
            // A device that was made with another address is not the one that Azure means. Where that is unknown, pods may be using the
            // present address.
            let is_in_use = inspection.state.ipam().holders().next().is_some();
            let was_changed = |link: &Link| match &*link.permanent_mac {
                "" => is_of_this_node(link) && !is_in_use,
                permanent => format_mac(permanent) == listed,
            };
            if let ([_], [only], []) = (interfaces, &*candidates, &*matched.link_names())
                && was_changed(only)
                && !listed.starts_with('"')
            {
                let link = &only.name;
                command = Some(format!("sudo ip link set dev {link} address {listed}"));
            }
            let shown = |link: &Link| format!("{} {}", link.name, format_mac(&link.mac));
            if links.is_empty() {
                "it has none".to_owned()
            } else {
                format!("it has {}", join_first(links.iter().map(shown)))
            }
        }
        Err(error) => format!("its interfaces cannot be listed: {}", io_reason(&error)),
    };
    let text =
        format_args!("the source lists {listed}, which no interface of this node has; {own}");
    let is_of_another_node = !host.entries.is_empty()
        && matched.link_names().is_empty()
        && !own_addresses.is_empty()
        && own_addresses.iter().all(|own| host.find(*own).is_none());
    let by_hand = match command {
        Some(_) => "; where the address was changed by hand:",
        None if is_of_another_node => {
            ". This host has none of their own addresses either, so the source may describe another node"
        }
        None => "",
    };
    let remedy = format_args!(
        "no pod gets an address of this interface until Azure and the node agree: attach the interface, or restart the node{by_hand}"
    );
    Finding::error(FindingKind::Interface, &text, &remedy).with_commands(command)
}

/// Formats a hardware address as `ip link` does; anything else is quoted.
fn format_mac(mac: &str) -> String {
    let digits: String = mac.chars().filter(|c| !":-.".contains(*c)).collect();
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if digits.is_empty() || !is_hex || !digits.len().is_multiple_of(2) {
        return format!("{mac:?}");
    }
    let pairs = digits.as_bytes().chunks(2);
    let pairs = pairs.map(|pair| String::from_utf8_lossy(pair).to_ascii_lowercase());
    pairs.collect::<Vec<_>>().join(":")
}

/// The pools: their usage as the next ADD finds it, and whether the source still lists them.
fn pools(node: &Node, inspection: &Inspection) -> Vec<Finding> {
    let conf = &inspection.config.conf;
    let mut ipam = inspection
        .state
        .present_ipam(node, &inspection.evidence, |to| {
            inspection.host.uses_route_to(to)
        });
    let is_whole = |matched: &&MatchedListing| {
        matched.unmatched.is_empty() && matched.inventory.addresses() > 0
    };
    // Of a lost state, it is not known what is held.
    let has_records = inspection.state.report.missing_records.is_none();
    if let Some(matched) = inspection.matched().filter(is_whole)
        && has_records
    {
        ipam.merge(&matched.inventory, node.now.boot);
    }
    let taken = node.taken(&ipam);
    let counts = ipam.counts(&taken, conf.cooldown, &conf.exclude, node.now.boot);
    let mut found = Vec::new();
    let mut usable_by_family: BTreeMap<bool, usize> = BTreeMap::new();
    let is_gone = |key: &str, pool: &Pool| {
        let matched = inspection.matched();
        matched.is_some_and(|matched| !is_listed(matched, key, pool))
    };
    let is_any_gone = ipam.pools().any(|(_, key, pool)| is_gone(key, pool));
    let index = EvidenceIndex::new(&inspection.evidence, &ipam);
    let may_be_dead = |record: &&Record| {
        let held = record.held();
        held.is_some_and(|held| {
            let judgement = index.judge(record.address(), held, node.now.boot);
            judgement.verdict == Verdict::Suspect
        })
    };
    for ((_, key, pool), (_, mut count)) in ipam.pools().zip(counts.pools) {
        if inspection
            .matched()
            .is_some_and(|matched| is_of_missing_interface(matched, key, pool))
        {
            let text = format_args!(
                "{key}: {} held; its network interface is not on the host",
                count.held
            );
            found.push(Finding::ok(FindingKind::Pool, &text));
            continue;
        }
        // An ADD that finds the pool exhausted marks them.
        count.suspect = pool.records.iter().filter(may_be_dead).count();
        if is_gone(key, pool) {
            found.push(no_longer_listed(key, pool, inspection.matched()));
            continue;
        }
        let retried = pool.retried_pod();
        found.push(usage(key, &count, retried.as_ref(), &node.program));
        let mut usable = count.held + count.free + count.cooldown + count.withheld;
        // What a pool holds that is not listed any more counts where it is listed.
        if is_any_gone {
            usable += count.held_elsewhere;
        }
        *usable_by_family.entry(pool.is_ipv6).or_default() += usable;
    }
    // A pod needs an address of each family.
    let fewest = usable_by_family.into_values().filter(|n| *n > 0).min();
    found.extend(too_few(fewest, kubelet::max_pods(node.paths())));
    found
}

/// Notes that kubelet allows more pods than there are addresses for pods.
fn too_few(addresses: Option<usize>, max_pods: Option<usize>) -> Option<Finding> {
    let (addresses, max_pods) = addresses.zip(max_pods)?;
    if max_pods <= addresses {
        return None;
    }
    let text = format_args!(
        "kubelet allows {max_pods} pods on this node, and the pools have {addresses} addresses: pods beyond them, other than those in the host's network, get no address"
    );
    let remedy = "assign more secondary addresses to the network interface in Azure, or set kubelet's --max-pods to what the pools can serve";
    Some(Finding::note(FindingKind::Pool, &text, &remedy))
}

/// Whether the source lists the pool. One that lists all addresses has no pools of its own, and of an interface that the node lacks the
/// pools are unknown.
pub fn is_listed(matched: &MatchedListing, key: &str, pool: &Pool) -> bool {
    let mut listed = matched.inventory.pools.iter().map(|listed| listed.subnet);
    !matched.unmatched.is_empty()
        || listed.any(|net| net.prefix_len() == 0 || Some(net) == pool.net(key))
}

/// Whether the source lists the pool only for an interface that the host does not have.
fn is_of_missing_interface(matched: &MatchedListing, key: &str, pool: &Pool) -> bool {
    let net = pool.net(key);
    let mut listed = matched.inventory.pools.iter();
    let mut missing = matched
        .unmatched
        .iter()
        .flat_map(|missing| &missing.subnets);
    missing.any(|subnet| subnet.prefix == net) && !listed.any(|pool| Some(pool.subnet) == net)
}

/// The note for a subnet that the source no longer lists, while pods have addresses of it. One that was enlarged has another name.
fn no_longer_listed(subnet: &str, pool: &Pool, matched: Option<&MatchedListing>) -> Finding {
    let held = pool.records.iter().filter(|record| record.held().is_some());
    let held: Vec<IpAddr> = held.map(Record::address).collect();
    let listed = matched.into_iter().flat_map(|m| &m.inventory.pools);
    let mut new = listed.filter(|new| held.iter().all(|held| new.addresses.contains(held)));
    let (now, remedy) = match new.next() {
        Some(new) => (
            format!("the source lists them in {}", new.subnet),
            "no action needed if that is intended: they are free there when they are released; if not, check the network interface in Azure",
        ),
        None => (
            "the source no longer lists it".to_owned(),
            "no action needed if that is intended: its addresses are removed when they are released; if not, check the network interface in Azure",
        ),
    };
    let text = format_args!("{subnet}: {} held; {now}", held.len());
    Finding::note(FindingKind::Pool, &text, &remedy).about(subnet)
}

fn usage(subnet: &str, count: &PoolCount, retried: Option<&RetriedPod>, program: &str) -> Finding {
    const KIND: FindingKind = FindingKind::Pool;
    // Many nodes have network interfaces that are not for pods.
    let has_none = PoolCount {
        subnet: count.subnet.clone(),
        ..PoolCount::default()
    };
    if *count == has_none {
        let text = format_args!("{subnet}: no addresses for pods");
        return Finding::ok(KIND, &text);
    }
    let mut text = format!("{subnet}: {} held, {} free", count.held, count.free);
    for (count, what) in [
        (count.held_elsewhere, "held in another pool"),
        (count.cooldown, "in cooldown"),
        (count.withheld, "withheld"),
        (count.excluded, "excluded"),
        (count.on_host, "on the host"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    if count.free + count.cooldown > 0 {
        return Finding::ok(KIND, &text);
    }
    text.push_str("; no address is left");
    let remedy = exhausted(
        slice::from_ref(count),
        retried,
        &Audience::check(program, None),
    );
    Finding::warning(KIND, &text, &remedy).about(subnet)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cni::ServerUrl;
    use crate::ipam::Moment;
    use crate::ops::finding::Severity;
    use crate::ops::findings::tests::listed;

    #[test]
    fn hardware_addresses_are_shown_as_ip_link_does() {
        for (mac, shown) in [
            ("7C1E52F9F3C4", "7c:1e:52:f9:f3:c4"),
            ("7c-1e-52-f9-f3-c4", "7c:1e:52:f9:f3:c4"),
            ("*", "\"*\""),
            ("abc", "\"abc\""),
        ] {
            assert_eq!(format_mac(mac), shown);
        }
    }

    #[test]
    fn every_trouble_of_the_server_has_its_own_remedy() {
        let url = ServerUrl::new("http://168.63.129.16/x");
        let failures = [
            FetchError::Status(403),
            FetchError::Status(302),
            FetchError::Status(500),
            FetchError::Status(404),
            FetchError::TimedOut(Duration::from_secs(3)),
            FetchError::SlowAnswer(Duration::from_secs(3)),
            FetchError::Refused,
            FetchError::NoRoute("x".to_owned()),
            FetchError::NoLocalPort,
            FetchError::Transport("x".to_owned()),
        ];
        let mut remedies = BTreeSet::new();
        for source in failures {
            // An answer proves that the route works.
            let is_answered = matches!(source, FetchError::Status(_));
            let error = SourceError::Fetch(url.clone(), source);
            let unreached = Unreached {
                host: &HostNetwork::default(),
                is_root: true,
            };
            let found = unreached.finding(&Source::Wire(url.clone()), &error, "");
            assert!(
                !is_answered || !found.commands[0].contains("ip route"),
                "{found:?}"
            );
            assert!(remedies.insert(found.remedy), "two have one remedy");
        }
    }

    #[test]
    fn the_stored_pools_are_promised_only_where_there_are_some() {
        assert!(effect_on_pods(&Ipam::default(), false).contains("no stored pools"));
        let mut ipam = Ipam::default();
        ipam.merge(&listed("10.1.0.0/16", &["10.1.0.5"]).inventory, Moment(1));
        assert!(effect_on_pods(&ipam, false).contains("pods get the free addresses"));
        assert!(effect_on_pods(&ipam, true).contains("no stored pools"));
    }

    #[test]
    fn more_pods_than_addresses_are_noted() {
        for (addresses, max_pods, is_noted) in [
            (Some(28), Some(30), true),
            (Some(28), Some(28), false),
            (Some(28), None, false),
            (None, Some(30), false),
        ] {
            let note = too_few(addresses, max_pods);
            assert_eq!(note.is_some(), is_noted, "{addresses:?} {max_pods:?}");
        }
    }

    #[test]
    fn addresses_that_cannot_be_allocated_are_not_free() {
        let count = PoolCount {
            held: 1,
            free: 1,
            cooldown: 2,
            on_host: 3,
            excluded: 4,
            ..PoolCount::default()
        };
        let text = usage("x", &count, None, "azure-vnet-ipam").text;
        assert_eq!(
            text,
            "x: 1 held, 1 free, 2 in cooldown, 4 excluded, 3 on the host"
        );
        let in_cooldown = PoolCount { free: 0, ..count };
        let in_cooldown = usage("x", &in_cooldown, None, "azure-vnet-ipam");
        assert_eq!(
            in_cooldown.severity,
            Severity::Ok,
            "an address in cooldown is allocated when nothing else is free"
        );
    }

    #[test]
    fn a_pool_is_listed_by_its_subnet_or_by_that_of_all_addresses() {
        let old = listed("10.1.0.0/16", &["10.1.0.5"]);
        let mut ipam = Ipam::default();
        ipam.merge(&old.inventory, Moment(1));
        let (_, key, pool) = ipam.pools().next().unwrap();
        assert!(is_listed(&old, key, pool));
        assert!(is_listed(&listed("0.0.0.0/0", &[]), key, pool));
        assert!(!is_listed(&listed("10.2.0.0/16", &["10.2.0.5"]), key, pool));
    }
}
