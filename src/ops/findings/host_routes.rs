//! The routes of this host: what keeps its packets, and those of pods, from Azure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::host_network::{HostEntry, HostNetwork, WIRE_SERVER, Way, removal};
use super::inspection::Inspection;
use super::pod_routes::{PodRoutes, ask, rules_by_source};
use crate::failure::Remedy;
use crate::host::{KernelRoute, Link, Paths, RouteKind, outside};
use crate::ipam::{ListedPool, Record};
use crate::ops::conf_file::Plugin;
use crate::ops::finding::{Finding, FindingKind, Severity};

/// Examines the routes. What was found about links may have taken the default route away, and has the command that restores it then.
pub fn examine(paths: &Paths, inspection: &Inspection, of_links: &[Finding]) -> Vec<Finding> {
    let mut found = Vec::new();
    let restores = |finding: &Finding| finding.commands.iter().any(|c| c.contains(RESTORE));
    if !of_links.iter().any(restores) {
        found.extend(missing_default_route(inspection));
    }
    found.extend(diverting_routes(inspection));
    for is_ipv4 in [true, false] {
        found.extend(diverted_default_route(paths, inspection, is_ipv4));
    }
    found
}

/// How the command begins that sets a default route.
const RESTORE: &str = "sudo ip route add default";

/// The command that sets the default route of a host that has none, if a pool names the gateway in this subnet of the link. The route of
/// the service that configures the network wins over it, as its metric is lower.
pub fn restore_default_route(inspection: &Inspection, net: IpNet, link: &str) -> Option<String> {
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
fn missing_default_route(inspection: &Inspection) -> Option<Finding> {
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
pub struct PoolSubnet<'a> {
    pub gateway: IpAddr,
    /// The name of the network interface.
    pub link: &'a str,
    /// Whether that is the primary network interface in Azure.
    pub is_of_primary_link: bool,
    /// Whether there are addresses for pods.
    pub has_addresses: bool,
}

/// The subnets of pools on network interfaces. A range of the node is on none.
pub fn subnets(inspection: &Inspection) -> BTreeMap<IpNet, PoolSubnet<'_>> {
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
    let is_elsewhere = |link: &Link| {
        let mut routes = elsewhere.iter();
        routes.any(|route| route.link == Some(link.index))
    };
    let is_of_pod = |link: &Link| host.leads_to_pod(link) && is_elsewhere(link);
    let is_port = |link: &&Link| link.master == Some(first.index) && is_elsewhere(link);
    if host.links.iter().any(is_of_pod) {
        remedy = format!(
            "unless that is intended, set the route again with `dev {}`, and delete this one: without `dev`, a route via the gateway leads to a pod where the links to pods have the address of the gateway",
            first.name
        );
    } else if let Some(port) = host.links.iter().find(is_port) {
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

/// The warnings for subnets whose first pods would send packets to other networks by the network interface of another pool, with their own
/// addresses. The kernel is asked as if a pod that runs had the address.
pub fn diverted_new_pods(paths: &Paths, inspection: &Inspection, new: &[IpNet]) -> Vec<Finding> {
    let host = &inspection.host;
    let mut ours = inspection.config.ours(paths.name());
    if ours.all(|(_, plugin)| plugin.masquerades()) {
        return Vec::new();
    }
    let mut running = inspection.routes_of_pods.values();
    let index = running.find_map(PodRoutes::routed_link);
    let link_of_pod = host.links.iter().find(|link| Some(link.index) == index);
    let (Some(from), Some(matched)) = (link_of_pod, inspection.matched()) else {
        return Vec::new();
    };
    let has_pods = |if_name: &str| {
        let mut stored = inspection.state.ipam().pools();
        stored.any(|(_, _, pool)| pool.if_name == if_name && pool.in_use())
    };
    let finding = |pool: &ListedPool| {
        let mut addresses = new.iter().map(IpNet::addr);
        let address = addresses.find(|address| pool.addresses.contains(address))?;
        let own = host.link(&pool.if_name)?;
        if has_pods(&own.name) {
            return None;
        }
        let Way::Route(route) = ask(host, address, from, outside(address))? else {
            return None;
        };
        let mut links = host.links.iter();
        let by = links.find(|link| Some(link.index) == route.link)?;
        let mut listed = matched.inventory.pools.iter();
        let is_of_pool = listed.any(|pool| pool.if_name == by.name);
        if leads_by(&route, own) || !is_of_pool {
            return None;
        }
        let text = format_args!(
            "new pods get addresses of {}, and packets from them to other networks leave by {}",
            own.name, by.name
        );
        let remedy = rules_by_source(address, &own.name);
        Some(Finding::warning(FindingKind::Interface, &text, &remedy).about(pool.subnet))
    };
    let pools = matched.inventory.pools.iter();
    pools.filter_map(finding).collect()
}

/// Whether pods of this main plugin send all packets through the routes of the host. Those of others are on the link of the subnet.
pub fn routes_through_host(plugin: &Plugin) -> bool {
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
