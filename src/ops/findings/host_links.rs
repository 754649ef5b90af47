//! The links and routes of this host: what keeps its packets, and those of pods, from Azure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::host_network::{HostEntry, HostNetwork, WIRE_SERVER, lacks_ipv6, removal};
use super::inspection::Inspection;
use crate::failure::Remedy;
use crate::host::{KernelRoute, Link, Paths, RouteKind};
use crate::ipam::{Record, Usage};
use crate::ops::conf_file::Plugin;
use crate::ops::finding::{Finding, FindingKind, Severity};
use crate::ops::node::Node;
use crate::ops::screen::join_first;
use crate::source::{MatchedListing, PrimaryAddress};

/// Examines the links and routes.
pub fn examine(node: &Node, inspection: &Inspection) -> Vec<Finding> {
    let mut found = links_down(node, inspection);
    found.extend(missing_primaries(node.paths(), inspection));
    // What took the default route away has the command that restores it.
    let restores = |finding: &Finding| finding.commands.iter().any(|c| c.contains(RESTORE));
    if !found.iter().any(restores) {
        found.extend(missing_default_route(inspection));
    }
    found.extend(behind_two_links(node.paths(), inspection));
    found.extend(diverting_routes(inspection));
    for is_ipv4 in [true, false] {
        found.extend(diverted_default_route(node.paths(), inspection, is_ipv4));
    }
    found
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
        let remedy = "find out what switched it off, and switch it on. Then check with `ip route` that the service that configures the network (systemd-networkd, NetworkManager) has set its routes again:";
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

/// Addresses that the source lists for the node itself, and that no link of it has: azure-vnet moves them to a bridge.
fn missing_primaries(paths: &Paths, inspection: &Inspection) -> Vec<Finding> {
    let host = &inspection.host;
    let Some(matched) = inspection.matched() else {
        return without_address(inspection);
    };
    // A list below a root replaces the links, and no address is known.
    if host.entries.is_empty() {
        return Vec::new();
    }
    // A link without IPv6 takes no address of it.
    let can_have = |primary: &&PrimaryAddress| {
        let link = &primary.link;
        let is_without_ipv6 = || lacks_ipv6(paths, link) || has_lost_ipv6(paths, host, link);
        primary.net.addr().is_ipv4() || !is_without_ipv6()
    };
    let finding = |primary: &PrimaryAddress| match host.find(primary.net.addr()) {
        Some(entry) => on_another_link(primary, entry, paths, inspection),
        None if may_be_for_pods(primary, matched, inspection) => Some(wrongly_primary(primary)),
        None => Some(missing_primary(primary, matched, inspection)),
    };
    let primaries = matched.primary.iter().filter(can_have);
    primaries.filter_map(finding).collect()
}

/// An address of the node itself that is on another link than the source says. A bridge or bond has the address of its ports.
fn on_another_link(
    primary: &PrimaryAddress,
    entry: &HostEntry,
    paths: &Paths,
    inspection: &Inspection,
) -> Option<Finding> {
    let host = &inspection.host;
    let own = host.link(&primary.link)?;
    let is_carried = |link: &Link| {
        let mut entries = host.entries.iter();
        entries.any(|entry| entry.link == link.name && entry.net.addr() == primary.net.addr())
    };
    let mut carrying = std::iter::successors(Some(own), |link| host.master_of(link));
    if carrying.any(is_carried) {
        return None;
    }
    let mut stored = inspection.state.ipam().pools();
    let is_interface = paths.device_of_link(&entry.link).exists()
        || stored.any(|(_, _, pool)| pool.if_name == entry.link);
    let remedy = if is_interface {
        "the hardware addresses of the two may be exchanged, or the wrong one may be configured: compare `ip -brief link` with the network interfaces in Azure, and have the service that configures the network set the address on the right one".to_owned()
    } else if own.master.is_some() {
        // Switches such as Open vSwitch have the address on a link of their own.
        return None;
    } else {
        format!(
            "find out what moved it: packets reach Azure by {}, so have the service that configures the network set the address there again, or make {} a port of {} if that is a bridge",
            primary.link, primary.link, entry.link
        )
    };
    let text = format_args!(
        "the source lists it as the address of {}, and {} has it",
        primary.link, entry.link
    );
    let finding = Finding::warning(FindingKind::Interface, &text, &remedy);
    Some(finding.about(primary.net.addr()))
}

/// The finding for a host where IPv6 is switched off, although new pods get these addresses.
pub fn missing_ipv6(paths: &Paths, inspection: &Inspection, new: &[IpNet]) -> Option<Finding> {
    new.iter().find(|net| net.addr().is_ipv6())?;
    let matched = inspection.matched().into_iter();
    let pools = matched.flat_map(|matched| &matched.inventory.pools);
    let interfaces: BTreeSet<&str> = pools
        .filter(|pool| pool.subnet.addr().is_ipv6())
        .map(|pool| &*pool.if_name)
        .collect();
    let mut names = interfaces.iter();
    if let Some(link) = names.find(|link| has_lost_ipv6(paths, &inspection.host, link)) {
        return Some(lost_ipv6(link));
    }
    let links: BTreeSet<&str> = interfaces
        .into_iter()
        .chain(["default"])
        .filter(|link| lacks_ipv6(paths, link))
        .collect();
    if links.is_empty() {
        return None;
    }
    let settings: Vec<String> = links
        .iter()
        .map(|link| format!("net.ipv6.conf.{link}.disable_ipv6"))
        .collect();
    let text = format!(
        "IPv6 is switched off by {}, and new pods get IPv6 addresses",
        settings.join(", ")
    );
    let effects = links.iter().map(|link| match *link {
        "default" => "the main plugins ptp and bridge (with isGateway) set up no pod, as the host's end of its link takes no IPv6 address".to_owned(),
        link => format!("no IPv6 packet of a pod leaves the node by {link}"),
    });
    let remedy = "leave IPv6 out of the network configuration; or find out what switched it off (`grep -r disable_ipv6 /etc/sysctl.*`), switch it on, and have the service that configures the network set addresses and routes of IPv6 again:";
    let commands = links
        .iter()
        .map(|link| format!("echo 0 | sudo tee /proc/sys/net/ipv6/conf/{link}/disable_ipv6"));
    let finding = Finding::error(FindingKind::Interface, &text, &remedy).about("IPv6");
    Some(
        finding
            .with_evidence(effects.collect())
            .with_commands(commands),
    )
}

/// Whether the kernel has ended IPv6 on a link, as it does if its MTU becomes too small (RFC 8200, section 5).
fn has_lost_ipv6(paths: &Paths, host: &HostNetwork, link: &str) -> bool {
    let conf = paths.under_root("/proc/sys/net/ipv6/conf");
    host.link(link).is_some() && conf.exists() && !conf.join(link).exists()
}

fn lost_ipv6(link: &str) -> Finding {
    let text = format_args!(
        "the kernel has ended IPv6 on {link}, as it does if the MTU is below 1280, and new pods get IPv6 addresses"
    );
    let remedy = "find out what changed the MTU, and set it again. Then have the service that configures the network set the addresses and routes of IPv6 again, which are gone (systemd-networkd, NetworkManager, or a restart of the node):";
    let finding = Finding::error(FindingKind::Interface, &text, &remedy).about(link);
    finding.with_commands([format!("sudo ip link set dev {link} mtu 1500")])
}

/// Whether an address that is listed for the node itself may be one of a pod: a pod had it, a namespace has it, or its subnet has several.
fn may_be_for_pods(
    primary: &PrimaryAddress,
    matched: &MatchedListing,
    inspection: &Inspection,
) -> bool {
    let address = primary.net.addr();
    let mut records = inspection.state.ipam().records();
    let of_subnet = matched
        .primary
        .iter()
        .filter(|other| other.net.trunc() == primary.net.trunc());
    let was_held = |record: &Record| match &record.usage {
        Usage::Held(_) => true,
        Usage::Free(free) => free.released.is_some(),
    };
    records.any(|record| record.address() == address && was_held(record))
        || inspection.evidence.kernel.places(address).next().is_some()
        || of_subnet.count() > 1
}

fn wrongly_primary(primary: &PrimaryAddress) -> Finding {
    let cause = "listed as an address of the node itself, and so not for pods, though pods had it or the subnet has several such addresses";
    let remedy = "a network interface has one primary IP configuration in a subnet: compare the source with the network interface in Azure";
    let finding = Finding::warning(FindingKind::Interface, &cause, &remedy);
    Finding {
        cause,
        ..finding.about(primary.net.addr())
    }
}

fn missing_primary(
    primary: &PrimaryAddress,
    matched: &MatchedListing,
    inspection: &Inspection,
) -> Finding {
    let PrimaryAddress { net, link, .. } = primary;
    let host = &inspection.host;
    let own = host.link(link);
    let device = own.and_then(|own| host.master_of(own)).or(own);
    let mut text = format!(
        "no link of this node has {}, which is the node's own address on {link}",
        net.addr()
    );
    let mut remedy = "see whether it is the primary address in Azure; if so, have the service that configures the network set it again".to_owned();
    let mut commands = Vec::new();
    // Many nodes leave IPv6, and further network interfaces, unconfigured.
    let severity = if primary.is_of_primary_link && net.addr().is_ipv4() {
        Severity::Error
    } else {
        Severity::Note
    };
    if let Some(other) = device.and_then(|device| unlisted_address(host, device, matched)) {
        text.push_str(&format!(
            "; {} has {}, which the source does not list",
            other.link, other.net
        ));
        remedy = "compare both with the network interface in Azure: if its address was changed there, restart the node; if the host's address is right, the source describes another node".to_owned();
    } else if severity == Severity::Note {
        remedy = format!("no action needed, unless {link} is to be configured with it");
    } else if let Some(device) = device {
        remedy.push_str("; until then:");
        commands.push(format!("sudo ip address add {net} dev {}", device.name));
        commands.extend(restore_default_route(inspection, *net, &device.name));
    }
    let finding = Finding::new(severity, FindingKind::Interface, &text, &remedy);
    finding.about(net.addr()).with_commands(commands)
}

/// An IPv4 address of the link that the source does not list. Such a node got another address in Azure, or its source describes another node.
fn unlisted_address<'a>(
    host: &'a HostNetwork,
    link: &Link,
    matched: &MatchedListing,
) -> Option<&'a HostEntry> {
    let pools = &matched.inventory.pools;
    host.entries.iter().find(|entry| {
        let address = entry.net.addr();
        let is_global = matches!(address, IpAddr::V4(address) if !address.is_link_local());
        let is_subnet = entry.net.prefix_len() < entry.net.max_prefix_len();
        let is_listed = pools.iter().any(|pool| pool.addresses.contains(&address))
            || matched.primary.iter().any(|own| own.net.addr() == address);
        entry.link == link.name && is_global && is_subnet && !is_listed
    })
}

/// Interfaces that are gone, and those in whose subnets the host has no address, while no source names it: without the address, the source is not reached.
fn without_address(inspection: &Inspection) -> Vec<Finding> {
    let host = &inspection.host;
    let mut subnets: BTreeMap<&str, Vec<(IpNet, Option<IpAddr>)>> = BTreeMap::new();
    for (_, key, pool) in inspection.state.ipam().pools() {
        let net = pool.net(key).filter(|net| net.addr().is_ipv4());
        let is_of_main_link = !pool.if_name.is_empty() && pool.priority == 0;
        if let Some(net) = net.filter(|_| is_of_main_link) {
            let of_link = subnets.entry(&pool.if_name).or_default();
            of_link.push((net, pool.gateway));
        }
    }
    // The address of the gateway, which main plugins give the host, is not the host's own.
    let has_address = |subnets: &[(IpNet, Option<IpAddr>)]| {
        let entries = host.entries.iter();
        let mut addresses = entries.map(|entry| entry.net.addr());
        addresses.any(|own| {
            let is_own = |(net, gateway): &(IpNet, Option<IpAddr>)| {
                net.contains(&own) && Some(own) != *gateway
            };
            subnets.iter().any(is_own)
        })
    };
    let mut found = Vec::new();
    for (link, subnets) in subnets {
        if !host.links.is_empty() && host.link(link).is_none() {
            found.push(gone(host, link));
            continue;
        }
        // A list below a root replaces the links, and no address is known.
        if host.entries.is_empty() || has_address(&subnets) {
            continue;
        }
        let names: Vec<String> = subnets.iter().map(|(net, _)| net.to_string()).collect();
        let text = format_args!(
            "no link of this node has an address of {}, so its own address on {link} is missing",
            names.join(", ")
        );
        let remedy = format_args!(
            "without it nothing reaches Azure: look it up at the network interface in Azure, and have the service that configures the network set it again (`networkctl renew {link}`, `nmcli device reapply {link}`, or a restart of the node)"
        );
        found.push(Finding::error(FindingKind::Interface, &text, &remedy).about(link));
    }
    found
}

/// The finding for an interface that the pools in the state are on, and that the host does not have.
fn gone(host: &HostNetwork, link: &str) -> Finding {
    let others = host
        .links
        .iter()
        .filter(|link| link.peer_namespace.is_none());
    let text = format_args!(
        "{link}, which the pools in the state are on, does not exist; this host has {}",
        join_first(others.map(|link| link.name.clone()))
    );
    let remedy = "without it nothing reaches Azure: find out what removed or renamed it (`journalctl -k`), or which program moved it into a network namespace; attach it again, or restart the node";
    Finding::error(FindingKind::Interface, &text, &remedy).about(link)
}

/// How the command begins that sets a default route.
const RESTORE: &str = "sudo ip route add default";

/// The command that sets the default route of a host that has none, if a pool names the gateway in this subnet of the link. The route of
/// the service that configures the network wins over it, as its metric is lower.
fn restore_default_route(inspection: &Inspection, net: IpNet, link: &str) -> Option<String> {
    let host = &inspection.host;
    if host.has_default_route() || host.other_default_table(true).is_some() || !net.addr().is_ipv4()
    {
        return None;
    }
    let index = host.link(link)?.index;
    let is_link = |if_name: &str| {
        let own = host.link(if_name);
        own.is_some_and(|own| own.index == index || own.master == Some(index))
    };
    let is_gateway = |gateway: &IpAddr| net.contains(gateway) && *gateway != net.addr();
    let gateway = subnets(inspection)
        .into_values()
        .filter(|pool| pool.is_of_primary_link && is_link(pool.link))
        .map(|pool| pool.gateway)
        .find(is_gateway)?;
    Some(format!(
        "ip -4 route show default | grep -qw dev || {RESTORE} via {gateway} dev {link} metric 4096"
    ))
}

/// The finding for a host that has no default route of IPv4, although a link is up and has an address.
pub fn missing_default_route(inspection: &Inspection) -> Option<Finding> {
    let host = &inspection.host;
    if !host.lacks_default_route() {
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
    if let Some(table) = host.other_default_table(true) {
        let text =
            format!("the main table has no default route of IPv4, and table {table} has one");
        return Some(finding(
            &text,
            "no action needed if rules (`ip rule`) lead all packets there; if not, have the service that configures the network set the default route again",
        ));
    }
    let discarding: Vec<&KernelRoute> = host
        .default_routes()
        .filter(|route| route.kind != RouteKind::Unicast)
        .collect();
    let is_hidden = host
        .default_routes()
        .any(|route| route.kind == RouteKind::Unicast);
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
        .map(|route| removal(&host.describe_route(route)))
        .collect();
    if !is_hidden {
        let restore = |entry: &HostEntry| restore_default_route(inspection, entry.net, &entry.link);
        let entries = host.entries_to_other_hosts().into_iter();
        let restoring: BTreeSet<String> = entries.filter_map(restore).collect();
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

/// Describes the address or route of this host that may keep requests from the wire server, and what to do if it certainly does.
pub fn way_to_wire_server(host: &HostNetwork) -> Option<(String, Option<Remedy>)> {
    let route = host.to_wire_server.as_ref()?;
    let shown = host.describe_route(route);
    let own: Vec<&HostEntry> = host
        .entries
        .iter()
        .filter(|entry| entry.net.addr() == WIRE_SERVER)
        .collect();
    let (why, commands) = match (route.kind, &*own) {
        // This is a matter of the default route.
        _ if route.destination.prefix_len() == 0 => return None,
        (RouteKind::Local, [_, ..]) => {
            let links: Vec<&str> = own.iter().map(|entry| &*entry.link).collect();
            let removals: Option<Vec<String>> = own
                .iter()
                .map(|entry| host.removal_of_address(entry))
                .collect();
            let why = format!(
                "this host itself has the address {WIRE_SERVER}, on {}",
                links.join(", ")
            );
            (why, removals.unwrap_or_default())
        }
        (RouteKind::Local, []) => (
            format!("the route `{shown}` makes {WIRE_SERVER} an address of this host"),
            vec![removal(&shown)],
        ),
        // It may be the right one: Azure's DHCP sets one, too.
        (RouteKind::Unicast, _) => {
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
            vec![removal(&shown)],
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

/// What the pools of an interface say of a subnet.
struct PoolSubnet<'a> {
    gateway: IpAddr,
    /// The name of the network interface.
    link: &'a str,
    /// Whether that is the primary network interface in Azure.
    is_of_primary_link: bool,
    /// Whether there are addresses for pods.
    has_addresses: bool,
}

/// The subnets of pools on network interfaces. A range of the node is on none.
fn subnets(inspection: &Inspection) -> BTreeMap<IpNet, PoolSubnet<'_>> {
    let pools = inspection.state.ipam().pools();
    let stored = pools.filter_map(|(_, key, pool)| {
        let (net, gateway) = (pool.net(key)?, pool.gateway?);
        Some((
            net,
            gateway,
            &*pool.if_name,
            pool.priority,
            !pool.records.is_empty(),
        ))
    });
    let matched = inspection.matched().into_iter();
    let listed_pools = matched.flat_map(|matched| &matched.inventory.pools);
    let listed = listed_pools.map(|pool| {
        let has_addresses = !pool.addresses.is_empty();
        (
            pool.subnet,
            pool.gateway,
            &*pool.if_name,
            pool.priority,
            has_addresses,
        )
    });
    let mut found: BTreeMap<IpNet, PoolSubnet<'_>> = BTreeMap::new();
    for (net, gateway, link, priority, has_addresses) in stored.chain(listed) {
        if link.is_empty() {
            continue;
        }
        let had_addresses = found.get(&net).is_some_and(|pool| pool.has_addresses);
        let subnet = PoolSubnet {
            gateway,
            link,
            is_of_primary_link: priority == 0,
            has_addresses: has_addresses || had_addresses,
        };
        found.insert(net, subnet);
    }
    found
}

/// Whether a route leads by a link, or by the bridge or bond that it is a port of.
fn leads_by(route: &KernelRoute, link: &Link) -> bool {
    let by = |index: u32| index == link.index || Some(index) == link.master;
    route.link.is_some_and(by)
}

/// Routes that lead a part of a pool's subnet to another link than that of the pool, such as those of a VPN, or keep packets on the host.
fn diverting_routes(inspection: &Inspection) -> Vec<Finding> {
    let host = &inspection.host;
    let is_part = |route: &&KernelRoute| {
        let is_asked = match route.kind {
            RouteKind::Local => route.table == KernelRoute::LOCAL_TABLE,
            _ => route.table == KernelRoute::MAIN_TABLE,
        };
        is_asked
            && !route.is_to_one_address()
            // Where a route by several links leads is not known.
            && (route.kind != RouteKind::Unicast || route.link.is_some())
            && host.is_preferred(route)
    };
    let mut found = Vec::new();
    for (subnet, PoolSubnet { link: own, .. }) in subnets(inspection) {
        let Some(link) = host.link(own) else {
            continue;
        };
        // A route to the whole subnet wins over that of the own link by its metric.
        let wins = |route: &KernelRoute| {
            let mut routes = host.kernel_routes.iter();
            routes.any(|other| {
                (other.destination, other.table) == (route.destination, route.table)
                    && leads_by(other, link)
                    && other.metric.unwrap_or(0) > route.metric.unwrap_or(0)
            })
        };
        let is_inside = |route: &&KernelRoute| {
            let is_smaller = route.destination.prefix_len() > subnet.prefix_len();
            let is_taken = is_smaller || (route.destination == subnet && wins(route));
            is_taken && subnet.contains(&route.destination) && !leads_by(route, link)
        };
        let routes = host.kernel_routes.iter().filter(is_part);
        for route in routes.filter(is_inside) {
            let what = if route.destination == subnet {
                "the subnet"
            } else {
                "a part of the subnet"
            };
            let does = match route.kind {
                RouteKind::Unicast => {
                    format!("leads packets for {what} {subnet} of the pods away from {own}")
                }
                RouteKind::Local => {
                    format!("makes {what} {subnet} of the pods addresses of this host")
                }
                _ => format!("discards packets for {what} {subnet} of the pods"),
            };
            let text = format_args!("the route `{}` {does}", host.describe_route(route));
            let remedy = "unless that is intended, have what sets it, such as a VPN, or Calico for its blocks of addresses (`proto 80`), leave out the subnet";
            let finding = Finding::warning(FindingKind::Interface, &text, &remedy);
            found.push(finding.about(route.destination));
        }
    }
    found
}

/// The finding for packets to other networks that leave the host by another link than those of pods should: by the default route of
/// another network interface, or by a VPN. Routes of one family in the main table count.
fn diverted_default_route(
    paths: &Paths,
    inspection: &Inspection,
    is_ipv4: bool,
) -> Option<Finding> {
    let host = &inspection.host;
    // A list below a root replaces the links. Rules may lead to another table.
    if host.entries.is_empty() || host.other_default_table(is_ipv4).is_some() {
        return None;
    }
    let mut ours = inspection.config.ours(paths.name());
    if !ours.any(|(_, plugin)| routes_through_host(plugin)) {
        return None;
    }
    let mut records = inspection.state.ipam().records();
    let is_held_ipv6 = |record: &Record| record.address().is_ipv6() && record.held().is_some();
    if !is_ipv4 && !records.any(is_held_ipv6) {
        return None;
    }
    let mut own = links_of_pods(inspection, is_ipv4);
    // The port of a bridge that has the addresses gets no answers.
    let indices: BTreeSet<u32> = own.iter().map(|link| link.index).collect();
    own.retain(|link| link.master.is_none_or(|master| !indices.contains(&master)));
    let first = own.first()?;
    let is_own = |index: u32| {
        let mut links = own.iter();
        links.any(|link| index == link.index || Some(index) == link.master)
    };
    let leads_elsewhere = |route: &&KernelRoute| {
        let mut links = route.all_links();
        route.kind == RouteKind::Unicast && links.any(|index| !is_own(index))
    };
    let general = host.most_general_routes(is_ipv4);
    let elsewhere: Vec<&KernelRoute> = general.iter().copied().filter(leads_elsewhere).collect();
    if elsewhere.is_empty() {
        return None;
    }
    let shown: Vec<String> = elsewhere
        .iter()
        .map(|route| format!("`{}`", host.describe_route(route)))
        .collect();
    let some = if elsewhere.iter().any(|route| !route.links.is_empty()) {
        "some "
    } else {
        ""
    };
    let family = if is_ipv4 { "" } else { "IPv6 " };
    let text = format!(
        "{some}{family}packets of pods to other networks leave the node by {}, and not by {}, which their addresses are on",
        shown.join(" and "),
        first.name
    );
    let is_default = |route: &KernelRoute| route.destination.prefix_len() == 0;
    let mut remedy =
        "unless that is intended, have what sets the route, such as a VPN, leave it out".to_owned();
    let is_port = |link: &&Link| {
        let mut routes = elsewhere.iter();
        link.master == Some(first.index) && routes.any(|route| route.link == Some(link.index))
    };
    if let Some(port) = host.links.iter().find(is_port) {
        remedy = format!(
            "{} is a port of {}, so no answers arrive there: have the service that configures the network set the route on {}, and delete this one",
            port.name, first.name, first.name
        );
    } else if general.into_iter().all(is_default) {
        remedy.push_str(&format!(
            ", or set it with a higher metric than the default route of {}",
            first.name
        ));
    }
    let subject = if is_ipv4 {
        "default route"
    } else {
        "default route of IPv6"
    };
    Some(Finding::warning(FindingKind::Interface, &text, &remedy).about(subject))
}

/// Whether pods of this main plugin send all packets through the routes of the host. Those of others are on the link of the subnet.
fn routes_through_host(plugin: &Plugin) -> bool {
    match plugin.kind() {
        "calico" | "cilium-cni" | "ptp" => true,
        "azure-vnet" => {
            let mode = plugin.netconf.text_at("mode");
            mode.is_some_and(|mode| mode.starts_with("transparent"))
        }
        _ => false,
    }
}

/// The links that are up and by which packets of pods should leave: the network interfaces with addresses for them, and a bridge to which
/// azure-vnet moved the address of the node.
fn links_of_pods(inspection: &Inspection, is_ipv4: bool) -> Vec<&Link> {
    let host = &inspection.host;
    let mut pools = subnets(inspection);
    pools.retain(|net, pool| pool.has_addresses && net.addr().is_ipv4() == is_ipv4);
    let is_named = |link: &Link| pools.values().any(|pool| pool.link == link.name);
    // A second network interface in the subnet of the first one has addresses of its own.
    let is_second = |link: &Link| {
        let mut primary = inspection.matched().into_iter().flat_map(|m| &m.primary);
        primary.any(|primary| primary.link == link.name)
    };
    let has_address = |link: &Link| {
        let mut entries = host.entries.iter().filter(|entry| entry.link == link.name);
        entries.any(|entry| pools.contains_key(&entry.net.trunc())) && !is_second(link)
    };
    let links = host.links.iter().filter(|link| link.is_up);
    links
        .filter(|link| is_named(link) || has_address(link))
        .collect()
}

const GATEWAY: &str = "this host has the address of the gateway of the virtual network, so packets of pods for Azure end here";
const GATEWAY_ON_ANOTHER_LINK: &str = "another link of this host has the address of the gateway of the virtual network, and takes packets for its subnet";
const TWO_LINKS: &str =
    "two links of this host lead to the subnet, but one of them does not lead to Azure";

/// Addresses of the host that keep packets for Azure on it, each with why: a pool's gateway, and those that connect a second link to a pool's
/// subnet. An address with a full-length prefix, as the plugin ptp gives the host, is neither.
pub fn connecting_addresses<'a>(
    paths: &Paths,
    inspection: &'a Inspection,
) -> Vec<(&'a HostEntry, &'static str)> {
    let entries = inspection.host.entries.iter();
    let configured: Vec<&HostEntry> = entries
        .filter(|entry| entry.net.prefix_len() < entry.net.max_prefix_len())
        .collect();
    let is_listed = |entry: &HostEntry| {
        let matched = inspection.matched().into_iter();
        let mut primary = matched.flat_map(|matched| &matched.primary);
        primary.any(|own| own.link == entry.link && own.net.addr() == entry.net.addr())
    };
    let ours = inspection.config.ours(paths.name());
    let ours: Vec<&Plugin> = ours.map(|(_, plugin)| plugin).collect();
    let are_routed = !ours.is_empty() && ours.iter().all(|plugin| routes_through_host(plugin));
    let is_connected = |entry: &HostEntry| {
        let link = inspection.host.link(&entry.link).map(|link| link.index);
        let mut routes = inspection.host.kernel_routes.iter();
        routes.any(|route| route.destination == entry.net.trunc() && route.link == link)
    };
    let mut found = Vec::new();
    // A range of the node is on no interface in particular, and its gateway may be here.
    for (subnet, pool) in subnets(inspection) {
        let connected = configured
            .iter()
            .filter(|entry| entry.net.trunc() == subnet);
        let mut links = connected.map(|entry| &*entry.link);
        let first = links
            .clone()
            .find(|link| *link == pool.link)
            .or(links.next());
        for entry in &configured {
            // Azure may have attached two network interfaces to one subnet.
            let is_second = || {
                Some(&*entry.link) != first
                    && !paths.device_of_link(&entry.link).exists()
                    && !is_listed(entry)
            };
            let is_gateway = entry.net.addr() == pool.gateway;
            match (is_gateway, are_routed) {
                (true, false) => found.push((*entry, GATEWAY)),
                // The host answers pods that ask for their gateway anyway.
                (true, true) if is_connected(entry) => {
                    found.push((*entry, GATEWAY_ON_ANOTHER_LINK));
                }
                (false, _) if entry.net.trunc() == subnet && is_second() => {
                    found.push((*entry, TWO_LINKS));
                }
                _ => {}
            }
        }
    }
    found
}

/// The findings for such addresses.
fn behind_two_links(paths: &Paths, inspection: &Inspection) -> Vec<Finding> {
    const IN_USE: &str = "usually the main plugin is or was bridge, with isGateway: replace it with ptp, as the README shows, and recreate the pods one after another, which ends their connections; the address can be removed when no pod is left on the link. If another program, such as Docker, has this network, give it another subnet there";
    const LEFT_OVER: &str = "usually the main plugin was bridge, with isGateway; nothing is left on the link: find out what configured the address, such as Docker, and remove it:";
    const NEEDED: &str = "find out what configured it; other addresses or routes would go with it, so give the link another address before you remove it";
    let host = &inspection.host;
    let finding = |(entry, cause): (&HostEntry, &'static str)| {
        let index = host.link(&entry.link).map(|link| link.index);
        let has_ports = host
            .links
            .iter()
            .any(|link| index.is_some() && link.master == index);
        let command = host.removal_of_second_address(entry).filter(|_| !has_ports);
        let remedy = match &command {
            Some(_) => LEFT_OVER,
            None if has_ports => IN_USE,
            None => NEEDED,
        };
        let finding = Finding::error(FindingKind::Interface, &cause, &remedy).about(entry.net);
        Finding {
            cause,
            ..finding
                .with_evidence(vec![format!("it is on {}", entry.link)])
                .with_commands(command)
        }
    };
    let found = connecting_addresses(paths, inspection);
    found.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with eth0, its default route, and this route to the wire server.
    fn host(kind: RouteKind, destination: &str, link: Option<u32>) -> HostNetwork {
        let route = |kind, destination: &str, link| KernelRoute {
            destination: destination.parse().unwrap(),
            kind,
            table: KernelRoute::MAIN_TABLE,
            link,
            links: Vec::new(),
            metric: None,
        };
        let named = |index, name: &str| Link {
            index,
            name: name.to_owned(),
            ..Link::default()
        };
        HostNetwork {
            links: vec![named(2, "eth0"), named(3, "azbr0")],
            kernel_routes: vec![route(RouteKind::Unicast, "0.0.0.0/0", Some(2))],
            to_wire_server: Some(route(kind, destination, link)),
            ..HostNetwork::default()
        }
    }

    #[test]
    fn only_what_certainly_stops_requests_is_to_be_removed() {
        use RouteKind::{Blackhole, Local, Unicast};
        const ONE: &str = "168.63.129.16/32";
        for (kind, destination, link, expected) in [
            (Unicast, "0.0.0.0/0", Some(2), None),
            (Unicast, ONE, Some(2), None),
            // Azure's DHCP sets a route of its own.
            (Unicast, ONE, Some(3), Some(None)),
            (Local, ONE, None, Some(Some("local 168.63.129.16/32"))),
            (
                Blackhole,
                ONE,
                None,
                Some(Some("blackhole 168.63.129.16/32")),
            ),
            (
                Blackhole,
                "168.0.0.0/8",
                None,
                Some(Some("blackhole 168.0.0.0/8")),
            ),
            // The default route is a finding of its own.
            (Blackhole, "0.0.0.0/0", None, None),
        ] {
            let found = way_to_wire_server(&host(kind, destination, link));
            let commands = found.map(|(_, remedy)| remedy.map(|remedy| remedy.commands));
            let removals = expected.map(|route| route.map(|route| vec![removal(route)]));
            assert_eq!(commands, removals, "{kind} {destination}");
        }
    }

    #[test]
    fn a_default_route_that_discards_packets_is_none() {
        let mut host = host(RouteKind::Unicast, "0.0.0.0/0", Some(2));
        assert!(host.has_default_route());
        host.kernel_routes[0].metric = Some(100);
        let discarding = KernelRoute {
            kind: RouteKind::Blackhole,
            links: Vec::new(),
            metric: None,
            ..host.kernel_routes[0].clone()
        };
        host.kernel_routes.push(discarding);
        assert!(!host.has_default_route());
        host.kernel_routes[1].table = 1000;
        assert!(host.has_default_route());
        assert_eq!(host.other_default_table(true), None);
    }
}
