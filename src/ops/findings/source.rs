//! The source of the pools, the interfaces of the node that its answer is about, and the pools of the state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::slice;

use ipnet::IpNet;

use super::host_addresses::{HostAddresses, HostEntry};
use super::inspection::{Inspection, SourceAnswer};
use super::kubelet;
use crate::failure::{Audience, ENVIRONMENT_REMEDY, Remedy, exhausted, needs_root, source_remedy};
use crate::host::{KernelRoute, Link, Paths, io_reason, links};
use crate::ipam::{Ipam, Pool, PoolCount, RetriedPod};
use crate::log::Milliseconds;
use crate::ops::finding::{Finding, FindingKind, Severity, Visibility};
use crate::ops::node::Node;
use crate::ops::screen::{join_first, pluralize};
use crate::source::{FetchError, MatchedListing, PrimaryAddress, Source, SourceError};

/// Examines them.
pub fn examine(node: &Node, inspection: &Inspection, visibility: &mut Visibility) -> Vec<Finding> {
    let without_default = missing_default_route(inspection);
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
                let file = error.file();
                let file = file.filter(|file| is_not_mounted(node, file));
                visibility.not_mounted = file.map(|file| file.display().to_string());
                let unreached = Unreached {
                    host: &inspection.host,
                    lacks_default_route: without_default.is_some(),
                    is_root: visibility.is_root,
                };
                let effect = effect_on_pods(inspection.state.ipam(), inspection.config.conf.ipv6);
                vec![unreached.finding(source, error, effect)]
            }
        },
    };
    let mut of_links = links_down(node, inspection);
    of_links.extend(missing_primaries(inspection));
    // What took the route away restores it, too.
    let restores = |finding: &Finding| finding.commands.iter().any(|c| c.contains(RESTORE));
    if !of_links.iter().any(restores) {
        found.extend(without_default);
    }
    found.extend(of_links);
    found.extend(pools(node, inspection));
    found.extend(behind_two_links(node.paths(), inspection));
    found
}

/// Whether a file exists on the node, and not in the container of this process.
fn is_not_mounted(node: &Node, file: &Path) -> bool {
    let root = node.paths().process(1).join("root");
    let on_node = file.strip_prefix("/").unwrap_or(file);
    node.is_in_container() && !file.exists() && root.join(on_node).exists()
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
        let remedy = "correct what the source lists; its other addresses are allocated to pods";
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
        found.push(unmatched(node, inspection, matched));
    }
    // The addresses of a missing interface are unknown.
    let is_matched = matched.unmatched.is_empty() || !carrying.is_empty();
    if is_matched && matched.inventory.addresses() == 0 && matched.unusable.count == 0 {
        let text = "the source lists no address for pods";
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
        (true, _) => "until it answers, no pod gets an address: there are no stored pools",
    }
}

/// What is known of the host when a source failed.
struct Unreached<'a> {
    host: &'a HostAddresses,
    /// Whether another finding reports that the default route is missing.
    lacks_default_route: bool,
    is_root: bool,
}

impl Unreached<'_> {
    /// The finding for the source.
    fn finding(&self, asked: &Source, error: &SourceError, effect: &str) -> Finding {
        let source = asked.failed_part(error);
        let mut remedy = source_remedy(source, error, self.is_root);
        if let Some(key) = source.chosen_by() {
            remedy.text = format!(
                "{key} names this source: is that right? If it is, {}",
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
            } else if self.lacks_default_route
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

/// Describes the address or route of this host that may keep requests from the wire server, and what to do if it certainly does.
fn way_to_wire_server(host: &HostAddresses) -> Option<(String, Option<Remedy>)> {
    const WIRE_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16));
    if host.entries.is_empty() {
        return None;
    }
    let route = host.route_to(WIRE_SERVER)?;
    let removal = host.removal_of(&route);
    let shown = removal.trim_start_matches("sudo ip route del ");
    let own: Vec<&HostEntry> = host
        .entries
        .iter()
        .filter(|entry| entry.net.addr() == WIRE_SERVER)
        .collect();
    let (why, commands) = match (route.kind, &*own) {
        // This is a matter of the default route.
        _ if route.destination.prefix_len() == 0 => return None,
        (KernelRoute::LOCAL, [_, ..]) => {
            let links: Vec<&str> = own.iter().map(|entry| &*entry.link).collect();
            let removals: Option<Vec<String>> = own
                .iter()
                .map(|entry| host.removal_of_address(entry))
                .collect();
            let links = links.join(", ");
            let why = format!("this host itself has the address {WIRE_SERVER}, on {links}");
            (why, removals.unwrap_or_default())
        }
        (KernelRoute::LOCAL, []) => (
            format!("the route `{shown}` makes {WIRE_SERVER} an address of this host"),
            vec![removal],
        ),
        // It may be the right one: Azure's DHCP sets one, too.
        (KernelRoute::UNICAST, _) => {
            let mut defaults = host.default_routes();
            let leads_elsewhere =
                host.has_default_route() && !defaults.any(|default| default.link == route.link);
            let why = format!(
                "the route `{shown}` leads to {WIRE_SERVER}, by another link than the default route"
            );
            return leads_elsewhere.then_some((why, None));
        }
        _ => (
            format!("the route `{shown}` discards packets to {WIRE_SERVER}"),
            vec![removal],
        ),
    };
    let text = if commands.is_empty() {
        "no request leaves the host: remove the address; its link loses other addresses or routes by that, so set them again"
    } else {
        "no request leaves the host: find out what put this there, and remove it:"
    };
    let remedy = Remedy {
        text: text.to_owned(),
        commands,
    };
    Some((why, Some(remedy)))
}

/// Listed interfaces that this node does not have.
fn unmatched(node: &Node, inspection: &Inspection, matched: &MatchedListing) -> Finding {
    let macs = &*matched.unmatched;
    let listed = join_first(macs.iter().map(|mac| format_mac(mac)));
    let mut command = None;
    let own = match links(node.paths()) {
        Ok(mut links) => {
            // The host's ends of pod links are many, and never the listed interface.
            links.retain(|link| !link.mac.is_empty() && link.peer_namespace.is_none());
            // The pools tell which of several it was; without pools, the operator must choose.
            let stored = inspection.state.ipam().pools();
            let stored: BTreeSet<&str> = stored.map(|(_, _, pool)| &*pool.if_name).collect();
            let was_it = |link: &&Link| stored.contains(&*link.name) || links.len() == 1;
            let candidates: Vec<&Link> = links.iter().filter(was_it).collect();
            // A device that was made with another address is not the one that Azure means.
            let may_have_been = |link: &Link| {
                link.permanent_mac.is_empty() || format_mac(&link.permanent_mac) == listed
            };
            if let ([_], [only], []) = (macs, &*candidates, &*matched.link_names())
                && may_have_been(only)
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
    let by_hand = match command {
        Some(_) => "; where the address was changed by hand:",
        None => "",
    };
    let remedy = format_args!(
        "no pod gets an address of it until Azure and the node agree: attach the interface, or restart the node{by_hand}"
    );
    Finding::error(FindingKind::Interface, &text, &remedy).with_commands(command)
}

/// Links that are switched off, of those that the pools are on or that the network configurations name.
fn links_down(node: &Node, inspection: &Inspection) -> Vec<Finding> {
    let host = &inspection.host;
    let stored = inspection.state.ipam().pools();
    let mut of_pools: BTreeSet<&str> = stored.map(|(_, _, pool)| &*pool.if_name).collect();
    if let Some(matched) = inspection.matched() {
        of_pools.extend(matched.inventory.pools.iter().map(|pool| &*pool.if_name));
    }
    let ours = inspection.config.ours(node.paths().name());
    let masters = ours.filter_map(|(_, plugin)| plugin.netconf.text_at("master"));
    let wanted: BTreeSet<&str> = of_pools.iter().copied().chain(masters).collect();
    let mut found = Vec::new();
    for link in host.links.iter().filter(|link| !link.is_up) {
        let name = &*link.name;
        if !wanted.contains(name) {
            continue;
        }
        let text =
            format_args!("{name} is switched off, so no packet of a pod leaves the node by it");
        let remedy = "find out what switched it off; switch it on. The kernel dropped its routes: the service that configures the network (systemd-networkd, NetworkManager) sets them again, which `ip route` must show";
        let mut commands = vec![format!("sudo ip link set dev {name} up")];
        let mut entries = host.entries.iter().filter(|entry| entry.link == name);
        let restore = entries.find_map(|entry| restore_default_route(inspection, entry.net, name));
        // The service needs some seconds.
        commands.extend(restore.map(|command| format!("sleep 5; {command}")));
        let severity = if of_pools.contains(name) {
            Severity::Error
        } else {
            Severity::Warning
        };
        let finding = Finding::new(severity, FindingKind::Interface, &text, &remedy);
        found.push(finding.about(name).with_commands(commands));
    }
    found
}

/// How the command begins that sets a default route.
const RESTORE: &str = "sudo ip route add default";

/// The command that sets the default route of a host that has none, if a pool names the gateway in this subnet of the link. The route of
/// the service that configures the network wins over it, as its metric is lower.
fn restore_default_route(inspection: &Inspection, net: IpNet, link: &str) -> Option<String> {
    let host = &inspection.host;
    if host.has_default_route() || host.other_default_table().is_some() || !net.addr().is_ipv4() {
        return None;
    }
    let index = host.links.iter().find(|found| found.name == link)?.index;
    let is_link = |if_name: &str| {
        let own = host.links.iter().find(|found| found.name == if_name);
        own.is_some_and(|own| own.index == index || own.master == Some(index))
    };
    let listed = inspection
        .matched()
        .into_iter()
        .flat_map(|matched| &matched.inventory.pools)
        .map(|pool| (pool.priority, &*pool.if_name, Some(pool.gateway)));
    let stored = inspection
        .state
        .ipam()
        .pools()
        .map(|(_, _, pool)| (pool.priority, &*pool.if_name, pool.gateway));
    let gateway = listed
        .chain(stored)
        .find_map(|(priority, if_name, gateway)| {
            let is_gateway = |gateway: &IpAddr| net.contains(gateway) && *gateway != net.addr();
            gateway.filter(|gateway| priority == 0 && is_link(if_name) && is_gateway(gateway))
        })?;
    Some(format!(
        "ip -4 route show default | grep -qw dev || {RESTORE} via {gateway} dev {link} metric 4096"
    ))
}

/// The finding for a host that has no default route of IPv4, although a link is up and has an address.
fn missing_default_route(inspection: &Inspection) -> Option<Finding> {
    let host = &inspection.host;
    let is_up = |link: &Link| link.is_up && !link.loopback && link.peer_namespace.is_none();
    let leads_out = |entry: &&HostEntry| {
        let is_subnet =
            entry.net.prefix_len() < 31 && entry.net.hosts().next() != Some(entry.net.addr());
        let mut links = host.links.iter();
        matches!(entry.net.addr(), IpAddr::V4(address) if !address.is_link_local())
            && is_subnet
            && links.any(|link| link.name == entry.link && is_up(link))
    };
    let entries: Vec<_> = host.entries.iter().filter(leads_out).collect();
    if host.has_default_route() || entries.is_empty() {
        return None;
    }
    let has_answered = matches!(&inspection.source, Ok(answer) if answer.matched.is_ok());
    let severity = if has_answered {
        Severity::Warning
    } else {
        Severity::Error
    };
    let finding =
        |text: &str, remedy: &str| Finding::new(severity, FindingKind::Interface, &text, &remedy);
    if let Some(table) = host.other_default_table() {
        let text =
            format!("the main table has no default route of IPv4, and table {table} has one");
        return Some(finding(
            &text,
            "no action needed if rules (`ip rule`) lead all packets there; if not, have the service that configures the network set the default route again",
        ));
    }
    let discarding: Vec<&KernelRoute> = host
        .default_routes()
        .filter(|route| route.kind != KernelRoute::UNICAST)
        .collect();
    let is_hidden = host
        .default_routes()
        .any(|route| route.kind == KernelRoute::UNICAST);
    let text = match &*discarding {
        [first, ..] => format!(
            "the default route of IPv4 discards packets ({}): only networks with a route of their own are reached",
            first.kind
        ),
        [] => {
            "there is no default route of IPv4: only networks with a route of their own are reached"
                .to_owned()
        }
    };
    let mut commands: Vec<String> = discarding
        .iter()
        .map(|route| host.removal_of(route))
        .collect();
    if !is_hidden {
        let restore =
            |entry: &&HostEntry| restore_default_route(inspection, entry.net, &entry.link);
        let restoring: BTreeSet<String> = entries.iter().filter_map(restore).collect();
        if restoring.len() != 1 {
            return Some(finding(
                &text,
                "have the service that configures the network set the default route again; its gateway is the first address of the subnet in Azure",
            ));
        }
        commands.extend(restoring);
    }
    let remedy = "find out what changed it, and have the service that configures the network set it again; until then:";
    Some(finding(&text, remedy).with_commands(commands))
}

/// Addresses that the source lists for the node itself, and that no link of it has: azure-vnet moves them to a bridge.
fn missing_primaries(inspection: &Inspection) -> Vec<Finding> {
    let host = &inspection.host;
    let Some(matched) = inspection.matched() else {
        return without_address(inspection);
    };
    let mut found = Vec::new();
    for primary in &matched.primary {
        let PrimaryAddress { net, link, .. } = primary;
        // A list below a root replaces the links, and no address is known.
        if host.entries.is_empty() || host.find(net.addr()).is_some() {
            continue;
        }
        let text = format_args!(
            "no link of this node has {}, its own address on {link}",
            net.addr()
        );
        let own = host.links.iter().find(|found| found.name == *link);
        let device = match own.and_then(|own| own.master) {
            Some(master) => host.links.iter().find(|link| link.index == master),
            None => own,
        };
        let remedy = "find out what removed it, and have the service that configures the network set it again; until then:";
        let mut commands = Vec::new();
        if let Some(device) = device {
            commands.push(format!("sudo ip address add {net} dev {}", device.name));
            commands.extend(restore_default_route(inspection, *net, &device.name));
        }
        // Many nodes leave IPv6, and further network interfaces, unconfigured.
        let severity = if primary.is_of_primary_link && net.addr().is_ipv4() {
            Severity::Error
        } else {
            Severity::Note
        };
        let finding = Finding::new(severity, FindingKind::Interface, &text, &remedy);
        found.push(finding.about(net.addr()).with_commands(commands));
    }
    found
}

/// Interfaces in whose subnets the host has no address, while no source names it: without the address, the source is not reached.
fn without_address(inspection: &Inspection) -> Vec<Finding> {
    let host = &inspection.host;
    let mut subnets: BTreeMap<&str, Vec<IpNet>> = BTreeMap::new();
    for (_, key, pool) in inspection.state.ipam().pools() {
        let net = pool.net(key).filter(|net| net.addr().is_ipv4());
        let is_of_main_link = !pool.if_name.is_empty() && pool.priority == 0;
        if let Some(net) = net.filter(|_| is_of_main_link) {
            subnets.entry(&pool.if_name).or_default().push(net);
        }
    }
    let has_address = |subnets: &[IpNet]| {
        let mut entries = host.entries.iter();
        entries.any(|entry| subnets.iter().any(|net| net.contains(&entry.net.addr())))
    };
    let mut found = Vec::new();
    for (link, subnets) in subnets {
        if host.entries.is_empty() || has_address(&subnets) {
            continue;
        }
        let names: Vec<String> = subnets.iter().map(ToString::to_string).collect();
        let text = format_args!(
            "no link of this node has an address of {}, so its own address on {link} is missing",
            names.join(", ")
        );
        let remedy = format_args!(
            "without it nothing reaches Azure, and Azure does not tell the node which one it is: see the network interface in Azure, and have the service that configures the network set it again (`networkctl renew {link}`, `nmcli device reapply {link}`, or a restart of the node)"
        );
        found.push(Finding::error(FindingKind::Interface, &text, &remedy).about(link));
    }
    found
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

/// The pools of the state: their usage, and whether the source still lists them.
fn pools(node: &Node, inspection: &Inspection) -> Vec<Finding> {
    let conf = &inspection.config.conf;
    let ipam = inspection
        .state
        .present_ipam(node, &inspection.evidence, |to| {
            inspection.host.uses_route_to(to)
        });
    let taken = node.taken(&ipam);
    let counts = ipam.counts(&taken, conf.cooldown, &conf.exclude, node.now.boot);
    let mut found = Vec::new();
    let mut usable_by_family: BTreeMap<bool, usize> = BTreeMap::new();
    let is_gone = |key: &str, pool: &Pool| {
        let matched = inspection.matched();
        matched.is_some_and(|matched| !lists(matched, key, pool))
    };
    let is_any_gone = ipam.pools().any(|(_, key, pool)| is_gone(key, pool));
    for ((_, key, pool), (_, count)) in ipam.pools().zip(counts.pools) {
        let retried = pool.retried_pod();
        let is_gone = is_gone(key, pool);
        found.push(usage(key, &count, retried.as_ref(), is_gone, &node.program));
        if !is_gone {
            let mut usable = count.held + count.free + count.cooldown + count.withheld;
            // What a pool holds that is not listed any more counts where it is listed.
            if is_any_gone {
                usable += count.held_elsewhere;
            }
            *usable_by_family.entry(pool.is_ipv6).or_default() += usable;
        }
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
fn lists(matched: &MatchedListing, key: &str, pool: &Pool) -> bool {
    let mut listed = matched.inventory.pools.iter().map(|listed| listed.subnet);
    !matched.unmatched.is_empty()
        || listed.any(|net| net.prefix_len() == 0 || Some(net) == pool.net(key))
}

/// Addresses of the host that keep packets for Azure on it: a pool's gateway, and those that connect a second link to a pool's subnet.
/// An address with a full-length prefix, as the plugin ptp gives the host, is neither.
fn behind_two_links(paths: &Paths, inspection: &Inspection) -> Vec<Finding> {
    const GATEWAY: &str =
        "the gateway of the virtual network is on this host, so pods do not reach Azure through it";
    const TWO_LINKS: &str =
        "two links of this host lead to the subnet, and one of them not to Azure";
    const IN_USE: &str = "usually the main plugin is bridge, with isGateway: replace it with ptp, as the README shows, and recreate the pods one after another, which ends their connections; the address can be removed when no pod is left on the link";
    const LEFT_OVER: &str = "usually the main plugin was bridge, with isGateway; no pod is left on the link, so remove the address:";
    let stored = inspection.state.ipam().pools();
    let stored = stored.filter_map(|(_, key, pool)| {
        let net = pool.net(key)?;
        Some((net, (pool.gateway?, &*pool.if_name)))
    });
    let listed = inspection.matched().into_iter();
    let listed = listed.flat_map(|matched| &matched.inventory.pools);
    let listed = listed.map(|pool| (pool.subnet, (pool.gateway, &*pool.if_name)));
    let pools: BTreeMap<IpNet, (IpAddr, &str)> = stored.chain(listed).collect();
    let is_prefix = |net: &IpNet| net.prefix_len() < net.max_prefix_len();
    let links = &inspection.host.links;
    let has_ports = |name: &String| {
        let bridge = links.iter().find(|link| link.name == *name);
        bridge.is_some_and(|bridge| links.iter().any(|link| link.master == Some(bridge.index)))
    };
    let configured: Vec<_> = inspection
        .host
        .entries
        .iter()
        .map(|entry| (&entry.net, &entry.link))
        .filter(|(net, _)| is_prefix(net))
        .collect();
    let mut found = Vec::new();
    // A range of the node is on no interface in particular, and its gateway may be here.
    for (subnet, (gateway, own)) in pools.into_iter().filter(|pool| !pool.1.1.is_empty()) {
        let connected = configured.iter().filter(|(net, _)| net.trunc() == subnet);
        let mut links = connected.map(|(_, link)| *link);
        let first = links.clone().find(|link| *link == own).or(links.next());
        for (net, link) in configured.iter().copied() {
            // Azure may have attached two network interfaces to one subnet.
            let is_second = || Some(link) != first && !paths.device_of_link(link).exists();
            let cause = if net.addr() == gateway {
                GATEWAY
            } else if net.trunc() == subnet && is_second() {
                TWO_LINKS
            } else {
                continue;
            };
            let (remedy, command) = if has_ports(link) {
                (IN_USE, None)
            } else {
                let command = format!("sudo ip address del {net} dev {link}");
                (LEFT_OVER, Some(command))
            };
            let finding = Finding::error(FindingKind::Interface, &cause, &remedy).about(net);
            found.push(Finding {
                cause,
                ..finding.with_commands(command)
            });
        }
    }
    found
}

fn usage(
    subnet: &str,
    count: &PoolCount,
    retried: Option<&RetriedPod>,
    is_gone: bool,
    program: &str,
) -> Finding {
    const KIND: FindingKind = FindingKind::Pool;
    if is_gone {
        let text = format_args!(
            "{subnet}: {} held; the source no longer lists it",
            count.held
        );
        let remedy = "no action needed if that is intended: its addresses are removed when they are released; if not, check the network interface in Azure";
        return Finding::note(KIND, &text, &remedy).about(subnet);
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
            FetchError::Transport("x".to_owned()),
        ];
        let mut remedies = BTreeSet::new();
        for source in failures {
            // An answer proves that the route works.
            let is_answered = matches!(source, FetchError::Status(_));
            let error = SourceError::Fetch(url.clone(), source);
            let unreached = Unreached {
                host: &HostAddresses::default(),
                lacks_default_route: false,
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
        let text = usage("x", &count, None, false, "azure-vnet-ipam").text;
        assert_eq!(
            text,
            "x: 1 held, 1 free, 2 in cooldown, 4 excluded, 3 on the host"
        );
        let in_cooldown = PoolCount { free: 0, ..count };
        let in_cooldown = usage("x", &in_cooldown, None, false, "azure-vnet-ipam");
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
        assert!(lists(&old, key, pool));
        assert!(lists(&listed("0.0.0.0/0", &[]), key, pool));
        assert!(!lists(&listed("10.2.0.0/16", &["10.2.0.5"]), key, pool));
    }
}
