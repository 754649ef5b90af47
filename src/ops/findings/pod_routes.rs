//! The routes and rules of this host that the packets of running pods meet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::host_network::{HostNetwork, Way, lacks_ipv6, removal};
use crate::host::{KernelRoute, Link, Paths, RouteKind, forwarding_route, outside, read_text};
use crate::ipam::{Ipam, Kernel, Record};
use crate::ops::finding::{Finding, FindingKind};

/// How the host routes the packets of a pod.
#[derive(Debug)]
pub struct PodRoutes {
    /// The indices of the links that lead to its network namespace.
    links: BTreeSet<u32>,
    /// Whether IPv6 is switched off on one of them.
    lacks_ipv6: bool,
    /// What happens to packets of the host for the pod; `None` where the kernel does not answer.
    to_pod: Option<Way>,
    /// What the host forwards; `None` if it does not route the packets of the pod.
    forwarded: Option<Forwarded>,
}

/// What happens to packets that the host forwards.
#[derive(Debug)]
struct Forwarded {
    /// The file below /proc/sys that switches forwarding off.
    switched_off: Option<String>,
    /// Packets of the pod for other networks.
    to_outside: Forwarding,
    /// Packets from other networks that come by the interface of the pod's pool.
    from_outside: Forwarding,
    /// Packets of the pod for another pod on this node, and the index of that one's link.
    to_other_pod: Option<(Forwarding, u32)>,
}

/// What the kernel does with packets that it forwards.
#[derive(Debug, PartialEq, Eq)]
enum Forwarding {
    /// It does not answer, or takes the address for a forged one.
    Unknown,
    /// A route or rule discards them, or none leads on.
    Discarded,
    /// They take this route.
    Route(KernelRoute),
}

impl Forwarding {
    /// Asks the kernel about packets that come by a link.
    fn ask(from: IpAddr, link: &Link, to: IpAddr) -> Forwarding {
        match forwarding_route(from, link.index, to) {
            // A link that is switched off receives nothing.
            _ if !link.is_up => Forwarding::Unknown,
            Ok(Some(route)) => Forwarding::Route(route),
            Ok(None) => Forwarding::Discarded,
            Err(_) => Forwarding::Unknown,
        }
    }
}

/// The routes of pods, by network namespace (device and inode) and address.
pub type RoutesOfPods = BTreeMap<((u64, u64), IpAddr), PodRoutes>;

/// Asks the kernel for the routes of all addresses in namespaces that links of the host lead to. Sends nothing.
pub fn read_routes_of_pods(
    paths: &Paths,
    kernel: &Kernel,
    host: &HostNetwork,
    ipam: &Ipam,
) -> RoutesOfPods {
    let mut links: BTreeMap<(u64, u64), Vec<&Link>> = BTreeMap::new();
    for link in &host.links {
        if let Some(id) = link.peer_namespace.and_then(|n| kernel.numbers.get(&n)) {
            links.entry(*id).or_default().push(link);
        }
    }
    let addresses_in = |id| kernel.addresses_by_namespace.get(id).into_iter().flatten();
    // The addresses of pods that the host routes, each with its link. Packets from a bridge are not routed.
    let of_pools: BTreeSet<IpAddr> = ipam.records().map(Record::address).collect();
    let is_led = |address: IpAddr, link: &Link| {
        let way = host.way_to(address).and_then(Way::route);
        way.is_some_and(|route| route.link == Some(link.index))
    };
    let routed = links.iter().filter_map(|(id, links)| match &**links {
        [link] if link.master.is_none() => Some((id, *link)),
        _ => None,
    });
    let routed: Vec<(IpAddr, &Link)> = routed
        .flat_map(|(id, link)| addresses_in(id).map(move |address| (*address, link)))
        .filter(|(address, link)| of_pools.contains(address) && is_led(*address, link))
        .collect();
    let mut found = RoutesOfPods::new();
    for (id, links) in &links {
        for address in addresses_in(id) {
            let own = routed.iter().find(|(other, _)| other == address);
            let forwarded = own.map(|(_, link)| {
                let interface = pool_interface(*address, ipam, host);
                // Packets for pods of another network interface may take the way through Azure.
                let mut others = routed.iter().filter(|(other, at)| {
                    other.is_ipv4() == address.is_ipv4()
                        && at.index != link.index
                        && pool_interface(*other, ipam, host) == interface
                });
                forwarded(paths, (*address, link), interface, others.next())
            });
            let is_without_ipv6 = |link: &&Link| lacks_ipv6(paths, &link.name);
            let routes = PodRoutes {
                links: links.iter().map(|link| link.index).collect(),
                lacks_ipv6: links.iter().any(is_without_ipv6),
                to_pod: host.way_to(*address),
                forwarded,
            };
            found.insert((*id, *address), routes);
        }
    }
    found
}

/// The link by which packets for an address of a pool come: its interface, or what that is a port of.
fn pool_interface<'a>(address: IpAddr, ipam: &Ipam, host: &'a HostNetwork) -> Option<&'a Link> {
    let mut pools = ipam.pools().map(|(_, _, pool)| pool);
    let pool = pools.find(|pool| pool.records.iter().any(|r| r.address() == address))?;
    let link = host.link(&pool.if_name)?;
    Some(host.master_of(link).unwrap_or(link))
}

/// Asks what the host forwards of the packets of a pod behind this link.
fn forwarded(
    paths: &Paths,
    (address, link): (IpAddr, &Link),
    interface: Option<&Link>,
    other: Option<&(IpAddr, &Link)>,
) -> Forwarded {
    let switches = match address {
        IpAddr::V4(_) => {
            let links = [Some(link), interface].into_iter().flatten();
            let of_links = links.map(|link| format!("net/ipv4/conf/{}/forwarding", link.name));
            ["net/ipv4/ip_forward".to_owned()]
                .into_iter()
                .chain(of_links)
                .collect()
        }
        IpAddr::V6(_) => vec!["net/ipv6/conf/all/forwarding".to_owned()],
    };
    let is_off = |switch: &String| {
        let file = paths.under_root(&format!("/proc/sys/{switch}"));
        read_text(&file).is_ok_and(|text| text.trim() == "0")
    };
    let outside = outside(address);
    let from_outside = interface.map(|interface| Forwarding::ask(outside, interface, address));
    Forwarded {
        switched_off: switches.into_iter().find(is_off),
        to_outside: Forwarding::ask(address, link, outside),
        from_outside: from_outside.unwrap_or(Forwarding::Unknown),
        to_other_pod: other.map(|(other, at)| (Forwarding::ask(address, link, *other), at.index)),
    }
}

/// The main plugins that connect a pod with the host by a link, so that packets for the pod take the routes of the host.
const WITH_LINKS: [&str; 5] = ["azure-vnet", "bridge", "calico", "cilium-cni", "ptp"];
/// Those of them that leave all packets of a pod to the routes of the host, set a route to each pod, and no rules.
const ROUTED: [&str; 2] = ["azure-vnet", PTP];
/// The one of them that gives the host's end of the link the address of the pod's gateway.
const PTP: &str = "ptp";

/// What to do about a rule.
const RULE: &str = "find the rule (`ip rule`) and what set it, such as a VPN: unless that is intended, have it leave out the addresses of pods";

/// Where a pod is on this host.
#[derive(Clone, Copy, Debug)]
pub struct PodPlace<'a> {
    /// Its address.
    pub address: IpAddr,
    /// The type of its main plugin.
    pub plugin: &'a str,
    /// The network interface of its pool.
    pub if_name: &'a str,
    /// The gateway of its pool.
    pub gateway: Option<IpAddr>,
    /// The network interfaces of all pools.
    pub interfaces: &'a BTreeSet<&'a str>,
    /// The links, routes and addresses of the host.
    pub host: &'a HostNetwork,
}

/// The finding for a pod whose packets the host discards, does not forward, or routes elsewhere.
pub fn examine(pod: PodPlace<'_>, routes: &PodRoutes) -> Option<Finding> {
    if !WITH_LINKS.contains(&pod.plugin) {
        return None;
    }
    let links = pod.host.links.iter();
    let links: Vec<&Link> = links.filter(|l| routes.links.contains(&l.index)).collect();
    let finding = link(pod, routes, &links)
        .or_else(|| to_pod(pod, routes, &links))
        .or_else(|| forwarding(pod, routes.forwarded.as_ref()?, &links))?;
    Some(finding.about(pod.address))
}

/// The link of a pod whose packets the host routes. Of several links, nothing says which is the one of the address. A port of a bridge
/// belongs to another main plugin.
fn own_link<'a>(pod: PodPlace<'_>, links: &[&'a Link]) -> Option<&'a Link> {
    match links {
        [link] if link.master.is_none() && ROUTED.contains(&pod.plugin) => Some(link),
        _ => None,
    }
}

/// The finding if the host's end of the link to the pod is not as the main plugin set it up.
fn link(pod: PodPlace<'_>, routes: &PodRoutes, links: &[&Link]) -> Option<Finding> {
    const OFF: &str = "held, but the host's end of the link to the pod is switched off";
    const WITHOUT_IPV6: &str = "held, but IPv6 is switched off on the link to the pod";
    const NO_GATEWAY: &str = "held, but the host's end of the link to the pod lacks the address of the gateway, which the plugin ptp sets";
    const REMEDY: &str = "find out what changed it, and set it up again:";
    let own = own_link(pod, links);
    if let [link] = links
        && !link.is_up
    {
        let commands = match own {
            Some(link) => repair(pod, routes, link),
            None => vec![switch_on(link)],
        };
        return Some(warning(OFF, REMEDY).with_commands(commands));
    }
    let link = own?;
    if pod.address.is_ipv6() && routes.lacks_ipv6 {
        return Some(warning(WITHOUT_IPV6, REMEDY).with_commands(repair(pod, routes, link)));
    }
    lacks_gateway(pod, link)
        .then(|| warning(NO_GATEWAY, REMEDY).with_commands(repair(pod, routes, link)))
}

/// Whether the host's end of a link of ptp has no address of the pod's family.
fn lacks_gateway(pod: PodPlace<'_>, link: &Link) -> bool {
    let mut entries = pod.host.entries.iter();
    let is_gateway = |net: &ipnet::IpNet| {
        net.addr().is_ipv4() == pod.address.is_ipv4() && net.prefix_len() == net.max_prefix_len()
    };
    let has_gateway = pod.gateway.is_some();
    pod.plugin == PTP
        && has_gateway
        && !entries.any(|entry| entry.link == link.name && is_gateway(&entry.net))
}

/// The commands that set up the host's end of the link to a pod as its main plugin does.
fn repair(pod: PodPlace<'_>, routes: &PodRoutes, link: &Link) -> Vec<String> {
    let name = &link.name;
    let is_ipv6 = pod.address.is_ipv6();
    let mut commands = Vec::new();
    if is_ipv6 && routes.lacks_ipv6 {
        commands.push(format!(
            "echo 0 | sudo tee /proc/sys/net/ipv6/conf/{name}/disable_ipv6"
        ));
    }
    if !link.is_up {
        commands.push(switch_on(link));
    }
    if let Some(gateway) = pod.gateway.filter(|_| lacks_gateway(pod, link)) {
        let (length, end) = if is_ipv6 { (128, " nodad") } else { (32, "") };
        commands.push(format!(
            "sudo ip address add {gateway}/{length} dev {name}{end}"
        ));
    }
    commands.push(format!("sudo ip route replace {} dev {name}", pod.address));
    commands
}

fn switch_on(link: &Link) -> String {
    format!("sudo ip link set dev {} up", link.name)
}

/// The finding if packets of the host for a pod do not get there.
fn to_pod(pod: PodPlace<'_>, routes: &PodRoutes, links: &[&Link]) -> Option<Finding> {
    const DISCARDED: &str = "held, but a rule of the host discards packets for the pod";
    const RULE_ELSEWHERE: &str = "held, but a rule of the host leads packets for the pod elsewhere";
    const ROUTE_ELSEWHERE: &str =
        "held, but a route of the host leads packets for the pod elsewhere";
    let host = pod.host;
    let own = own_link(pod, links);
    let route = match routes.to_pod.as_ref()? {
        Way::Discarded if has_route(pod) => return Some(warning(DISCARDED, RULE)),
        Way::Discarded => return Some(missing_route(pod, routes, own?)),
        Way::Route(route) => route,
    };
    // A pod behind a port of a bridge is reached by the bridge.
    let leads_there = |link: &&Link| {
        let mut on_the_way = std::iter::successors(Some(*link), |link| host.master_of(link));
        on_the_way.any(|link| route.link == Some(link.index))
    };
    // The host's own address is another finding. Where a route by several links leads is not known.
    let is_judged = match route.kind {
        RouteKind::Local => false,
        RouteKind::Unicast => route.link.is_some(),
        RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => true,
    };
    if !is_judged || links.iter().any(leads_there) {
        return None;
    }
    let shown = host.describe_route(route);
    if route.table != KernelRoute::MAIN_TABLE {
        let evidence = vec![format!("a rule leads to the route `{shown}`")];
        return Some(warning(RULE_ELSEWHERE, RULE).with_evidence(evidence));
    }
    let is_of_other_pod = || {
        let mut links = host.links.iter();
        links.any(|link| Some(link.index) == route.link && link.peer_namespace.is_some())
    };
    if route.is_to_one_address() && (own.is_some() || is_of_other_pod()) {
        let mut commands = vec![removal(&shown)];
        let set = own.map(|link| repair(pod, routes, link));
        commands.extend(set.into_iter().flatten());
        let finding = warning(ROUTE_ELSEWHERE, "find out what set the route; correct it:");
        let evidence = vec![format!("the host uses the route `{shown}`")];
        return Some(finding.with_evidence(evidence).with_commands(commands));
    }
    Some(missing_route(pod, routes, own?))
}

/// Whether the main table has a route to the pod, so that only a rule keeps packets from it.
fn has_route(pod: PodPlace<'_>) -> bool {
    let mut routes = pod.host.kernel_routes.iter();
    routes.any(|route| {
        route.table == KernelRoute::MAIN_TABLE && route.destination.contains(&pod.address)
    })
}

/// The finding for a pod to which its main plugin had set a route.
fn missing_route(pod: PodPlace<'_>, routes: &PodRoutes, link: &Link) -> Finding {
    const CAUSE: &str = "held, but the host has no route to the pod, which its main plugin sets";
    const REMEDY: &str = "find out what removed it, such as a restart of systemd-networkd without `ManageForeignRoutes=no`; set it again:";
    warning(CAUSE, REMEDY).with_commands(repair(pod, routes, link))
}

/// The finding if the host does not forward packets of a pod as it should.
fn forwarding(pod: PodPlace<'_>, forwarded: &Forwarded, links: &[&Link]) -> Option<Finding> {
    const OFF: &str = "held, but the host does not forward packets of the pod";
    const OFF_REMEDY: &str =
        "find out what switched it off (`grep -r forward /etc/sysctl.*`), and switch it on:";
    let link = own_link(pod, links)?;
    if let Some(switch) = &forwarded.switched_off {
        let finding = warning(OFF, OFF_REMEDY);
        let evidence = vec![format!("/proc/sys/{switch} is 0")];
        let command = format!("echo 1 | sudo tee /proc/sys/{switch}");
        return Some(finding.with_evidence(evidence).with_commands([command]));
    }
    to_outside(pod, &forwarded.to_outside)
        .or_else(|| {
            const DISCARDED: &str =
                "held, but a rule of the host discards packets from other networks for the pod";
            const ELSEWHERE: &str = "held, but a rule of the host leads packets from other networks for the pod elsewhere";
            by_rule(pod, &forwarded.from_outside, link.index, [DISCARDED, ELSEWHERE])
        })
        .or_else(|| {
            const DISCARDED: &str = "held, but a rule of the host discards packets from the pod for other pods on this node";
            const ELSEWHERE: &str = "held, but a rule of the host leads packets from the pod for other pods on this node elsewhere";
            let (way, other) = forwarded.to_other_pod.as_ref()?;
            by_rule(pod, way, *other, [DISCARDED, ELSEWHERE])
        })
}

/// The finding for packets that packets of the host itself would follow to this link, so that only a rule keeps them from it.
fn by_rule(
    pod: PodPlace<'_>,
    way: &Forwarding,
    link: u32,
    [discarded, elsewhere]: [&'static str; 2],
) -> Option<Finding> {
    match way {
        Forwarding::Discarded => Some(warning(discarded, RULE)),
        Forwarding::Route(route) if route.link.is_some_and(|other| other != link) => {
            let shown = pod.host.describe_route(route);
            let evidence = vec![format!("a rule leads to the route `{shown}`")];
            Some(warning(elsewhere, RULE).with_evidence(evidence))
        }
        Forwarding::Route(_) | Forwarding::Unknown => None,
    }
}

/// The finding if packets of a pod for other networks do not leave by the network interface of its pool.
fn to_outside(pod: PodPlace<'_>, way: &Forwarding) -> Option<Finding> {
    const DISCARDED: &str = "held, but a rule of the host discards packets from the pod";
    const NO_ROUTE: &str = "held, but the host has no route of IPv6 to other networks";
    const BY_RULE: &str =
        "held, but a rule of the host leads packets from the pod away from its network interface";
    const BY_OTHER: &str =
        "held, but packets from the pod leave by the network interface of another pool";
    let host = pod.host;
    let own = host.link(pod.if_name)?;
    let route = match way {
        Forwarding::Unknown => return None,
        Forwarding::Discarded => {
            let of_host = host.way_to(outside(pod.address)).and_then(Way::route);
            let leaves = of_host.is_some_and(|route| route.kind == RouteKind::Unicast);
            return match (leaves, pod.address) {
                (true, _) => Some(warning(DISCARDED, RULE)),
                // That is a finding of its own.
                (false, IpAddr::V4(_)) => None,
                (false, IpAddr::V6(_)) => {
                    let remedy = format!(
                        "have the service that configures the network set the default route; where routers announce it, a host that forwards needs `net.ipv6.conf.{}.accept_ra=2`",
                        pod.if_name
                    );
                    Some(warning(NO_ROUTE, &remedy))
                }
            };
        }
        Forwarding::Route(route) => route,
    };
    let by = host
        .links
        .iter()
        .find(|link| Some(link.index) == route.link)?;
    if by.index == own.index || Some(by.index) == own.master {
        return None;
    }
    let shown = host.describe_route(route);
    if route.table != KernelRoute::MAIN_TABLE {
        let evidence = vec![format!("a rule leads to the route `{shown}`")];
        return Some(warning(BY_RULE, RULE).with_evidence(evidence));
    }
    // Other links are a finding about the host.
    let remedy = format!(
        "Azure drops packets from the address of another network interface, unless IP forwarding is enabled: have a rule (`ip rule`) lead packets from these addresses to a table whose default route leaves by {}",
        pod.if_name
    );
    let evidence = vec![format!("the host uses the route `{shown}`")];
    pod.interfaces
        .contains(&*by.name)
        .then(|| warning(BY_OTHER, &remedy).with_evidence(evidence))
}

fn warning(cause: &'static str, remedy: &str) -> Finding {
    Finding {
        cause,
        ..Finding::warning(FindingKind::Unrouted, &cause, &remedy)
    }
}
