//! The routes and rules of this host that the packets of running pods meet.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::host_network::{HostNetwork, Way, lacks_ipv6, removal, sysctl};
use crate::host::{
    KernelRoute, Link, Paths, RouteKind, forwarding_route, links, matching_route_from, outside,
};
use crate::ipam::{Inventory, Ipam, Kernel, Record};
use crate::ops::finding::{Finding, FindingKind, Severity, is_plain_path};

/// How the host routes the packets of a pod.
#[derive(Debug)]
pub struct PodRoutes {
    /// The indices of the links that lead to its network namespace.
    links: BTreeSet<u32>,
    /// Whether IPv6 is switched off on one of them.
    lacks_ipv6: bool,
    /// The file below /proc/sys that keeps the host from answering requests for the hardware address of the pod's gateway.
    ignores_arp: Option<String>,
    /// What happens to packets of the host for the pod; `None` where the kernel does not answer.
    to_pod: Option<Way>,
    /// The same for those that the host sends from its address on the network interface of the pool.
    from_own_address: Option<Way>,
    /// What the host forwards; `None` if it does not route the packets of the pod.
    forwarded: Option<Forwarded>,
}

/// What happens to packets that the host forwards. A way is `None` where the kernel does not answer, or takes their address for a forged one.
#[derive(Debug)]
struct Forwarded {
    /// The files below /proc/sys that switch forwarding off.
    switched_off: Vec<String>,
    /// Packets of the pod for other networks.
    to_outside: Option<Way>,
    /// Whether packets of the host itself for other networks leave it.
    host_leaves: bool,
    /// Packets from other networks that come by the interface of the pod's pool.
    from_outside: Option<Way>,
    /// Packets of the pod for another host of its subnet.
    to_subnet: Option<Way>,
    /// Packets of the pod for other hosts of the subnets of other network interfaces.
    to_other_subnets: Vec<Way>,
    /// Packets of the pod for another pod on this node, and the index of that one's link.
    to_other_pod: Option<(Way, u32)>,
}

/// Asks the kernel about packets that come by a link.
pub fn ask(host: &HostNetwork, from: IpAddr, link: &Link, to: IpAddr) -> Option<Way> {
    let lookup = |to: IpAddr| forwarding_route(from, link.index, to);
    let route = match lookup(to) {
        // A `blackhole` and a forged address are the same error. Packets from a forged address do not reach the host itself, either.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let own = host.own_addresses(from.is_ipv4()).next()?;
            lookup(own.net.addr()).ok()?;
            None
        }
        found => found.ok()?,
    };
    // A link that is switched off receives nothing.
    link.is_up.then(|| route.map_or(Way::Discarded, Way::Route))
}

/// The routes of pods, by network namespace (device and inode) and address.
pub type RoutesOfPods = BTreeMap<((u64, u64), IpAddr), PodRoutes>;

/// An address of a pool in a network namespace that links of the host lead to.
struct PodAddress<'a> {
    namespace: (u64, u64),
    address: IpAddr,
    links: &'a [&'a Link],
    /// What happens to packets of the host for it.
    way: Option<Way>,
    pool: PoolPlace<'a>,
}

/// Where a pool is on this host.
#[derive(Clone, Copy)]
struct PoolPlace<'a> {
    /// Its network interface, or what that is a port of.
    interface: Option<&'a Link>,
    /// An address of its subnet that nothing on this node has.
    neighbour: Option<IpAddr>,
}

impl PodRoutes {
    /// The index of the link by which the host routes to the pod.
    pub fn routed_link(&self) -> Option<u32> {
        self.forwarded.as_ref()?;
        self.links.first().copied()
    }
}

impl<'a> PodAddress<'a> {
    /// The link by which the host routes to the pod. To the ports of a bridge, it does not route.
    fn routed_link(&self) -> Option<&'a Link> {
        match self.links {
            [link] if link.master.is_none() => {
                let leads =
                    matches!(&self.way, Some(Way::Route(route)) if route.link == Some(link.index));
                leads.then_some(*link)
            }
            _ => None,
        }
    }
}

/// Asks the kernel for the routes of pods with addresses of pools. `listed` are the pools of the source. Sends nothing.
pub fn read_routes_of_pods(
    paths: &Paths,
    kernel: &Kernel,
    host: &HostNetwork,
    (ipam, listed): (&Ipam, Option<&Inventory>),
) -> RoutesOfPods {
    let mut by_namespace: BTreeMap<(u64, u64), Vec<&Link>> = BTreeMap::new();
    for link in &host.links {
        if let Some(id) = link.peer_namespace.and_then(|n| kernel.numbers.get(&n)) {
            by_namespace.entry(*id).or_default().push(link);
        }
    }
    let of_pools: BTreeSet<IpAddr> = ipam.records().map(Record::address).collect();
    let is_elsewhere =
        |address: &IpAddr| !of_pools.contains(address) && !kernel.configured.contains_key(address);
    let place = |if_name: &str, subnet: Option<IpNet>| {
        let link = host.link(if_name);
        PoolPlace {
            interface: link.map(|link| host.master_of(link).unwrap_or(link)),
            neighbour: subnet.and_then(last_host).filter(is_elsewhere),
        }
    };
    // By the neighbour. Most pools are both in the state and in the answer of the source.
    let mut subnets: BTreeMap<IpAddr, PoolPlace<'_>> = BTreeMap::new();
    for pool in listed.into_iter().flat_map(|listed| &listed.pools) {
        let place = place(&pool.if_name, Some(pool.subnet));
        subnets.extend(place.neighbour.map(|neighbour| (neighbour, place)));
    }
    let mut pool_of: BTreeMap<IpAddr, PoolPlace<'_>> = BTreeMap::new();
    for (_, key, pool) in ipam.pools() {
        let place = place(&pool.if_name, pool.net(key));
        let addresses = pool.records.iter().map(Record::address);
        pool_of.extend(addresses.map(|address| (address, place)));
        subnets.extend(place.neighbour.map(|neighbour| (neighbour, place)));
    }
    let mut pods = Vec::new();
    for (namespace, links) in &by_namespace {
        let addresses = kernel.addresses_by_namespace.get(namespace);
        for address in addresses.into_iter().flatten() {
            if let Some(pool) = pool_of.get(address) {
                pods.push(PodAddress {
                    namespace: *namespace,
                    address: *address,
                    links,
                    way: host.way_to(*address),
                    pool: *pool,
                });
            }
        }
    }
    let mut found = RoutesOfPods::new();
    for pod in &pods {
        let routes = PodRoutes {
            links: pod.links.iter().map(|link| link.index).collect(),
            lacks_ipv6: pod.links.iter().any(|link| lacks_ipv6(paths, &link.name)),
            ignores_arp: pod.links.iter().find_map(|link| ignores_arp(paths, link)),
            to_pod: pod.way.clone(),
            from_own_address: from_own_address(host, pod),
            forwarded: forwarded(paths, host, pod, (&pods, &subnets)),
        };
        found.insert((pod.namespace, pod.address), routes);
    }
    // A pod may have been removed during the lookups.
    let left: BTreeSet<u32> = links(paths)
        .into_iter()
        .flatten()
        .map(|link| link.index)
        .collect();
    found.retain(|_, routes| routes.links.is_subset(&left));
    found
}

/// Asks for the way to a pod from the address of the host on the network interface of its pool.
fn from_own_address(host: &HostNetwork, pod: &PodAddress<'_>) -> Option<Way> {
    let interface = pod.pool.interface?;
    let mut entries = host.own_addresses(pod.address.is_ipv4());
    let own = entries.find(|entry| entry.link == interface.name)?;
    let route = matching_route_from(own.net.addr(), pod.address).ok()?;
    route.map(Way::Route)
}

/// Asks what the host forwards of the packets of a pod.
fn forwarded(
    paths: &Paths,
    host: &HostNetwork,
    pod: &PodAddress<'_>,
    (pods, subnets): (&[PodAddress<'_>], &BTreeMap<IpAddr, PoolPlace<'_>>),
) -> Option<Forwarded> {
    let (address, link) = (pod.address, pod.routed_link()?);
    // Packets for pods of another network interface may take the way through Azure.
    let is_other = |other: &&PodAddress<'_>| {
        other.address.is_ipv4() == address.is_ipv4()
            && other.namespace != pod.namespace
            && other.pool.interface == pod.pool.interface
    };
    let mut others = pods.iter().filter(is_other);
    let other = others.find_map(|other| Some((other.address, other.routed_link()?)));
    let other_network = outside(address);
    let of_host = host.way_to(other_network).and_then(Way::route);
    let to_other_subnet = |(neighbour, place): (&IpAddr, &PoolPlace<'_>)| {
        let is_other = place.interface.is_some() && place.interface != pod.pool.interface;
        let is_asked = is_other && neighbour.is_ipv4() == address.is_ipv4();
        is_asked.then(|| ask(host, address, link, *neighbour))?
    };
    Some(Forwarded {
        switched_off: switched_off(paths, address, [Some(link), pod.pool.interface]),
        to_outside: ask(host, address, link, other_network),
        host_leaves: of_host.is_some_and(|route| route.kind == RouteKind::Unicast),
        to_other_subnets: subnets.iter().filter_map(to_other_subnet).collect(),
        to_subnet: pod
            .pool
            .neighbour
            .and_then(|neighbour| ask(host, address, link, neighbour)),
        from_outside: pod
            .pool
            .interface
            .and_then(|interface| ask(host, other_network, interface, address)),
        to_other_pod: other
            .and_then(|(other, at)| Some((ask(host, address, link, other)?, at.index))),
    })
}

/// The last address of a subnet for a host.
fn last_host(net: IpNet) -> Option<IpAddr> {
    match net {
        IpNet::V4(net) => Some(Ipv4Addr::from(u32::from(net.broadcast()).checked_sub(1)?).into()),
        IpNet::V6(net) => Some(net.broadcast().into()),
    }
}

/// The file below /proc/sys that keeps the host from answering a pod that asks for the hardware address of its gateway: the host has that
/// address without a subnet. Of the two files, the higher value counts.
fn ignores_arp(paths: &Paths, link: &Link) -> Option<String> {
    ["all", &link.name]
        .map(|name| format!("net/ipv4/conf/{name}/arp_ignore"))
        .into_iter()
        .find(|name| sysctl(paths, name).is_some_and(|value| value > 1))
}

/// The files below /proc/sys that switch off forwarding of packets that come by one of these links. `ip_forward` switches all links at
/// once; the file of a link decides, and that of `default` for new links.
fn switched_off(paths: &Paths, address: IpAddr, by: [Option<&Link>; 2]) -> Vec<String> {
    let is_off = |name: &String| sysctl(paths, name) == Some(0);
    if address.is_ipv6() {
        let of_all = "net/ipv6/conf/all/forwarding".to_owned();
        return Vec::from_iter(Some(of_all).filter(is_off));
    }
    let links = by.into_iter().flatten().map(|link| &*link.name);
    let file = |link: &str| format!("net/ipv4/conf/{link}/forwarding");
    let mut found: Vec<String> = links.map(file).filter(is_off).collect();
    let of_all = "net/ipv4/ip_forward".to_owned();
    if found.is_empty() {
        return found;
    }
    if is_off(&of_all) {
        return vec![of_all];
    }
    found.extend(Some(file("default")).filter(is_off));
    found
}

/// The main plugins that connect a pod with the host by a link, so that packets for the pod take the routes of the host.
const WITH_LINKS: [&str; 5] = [AZURE_VNET, "bridge", "calico", "cilium-cni", PTP];
/// The main plugin of AKS. In its transparent mode, it leaves all packets of a pod to the routes of the host.
const AZURE_VNET: &str = "azure-vnet";
/// The main plugin that does so, too, and gives the host's end of the link the address of the pod's gateway.
const PTP: &str = "ptp";

/// What to do about a rule.
const RULE: &str = "find out which rule is wrong or missing (`ip rule`, `ip -6 rule`), and what changed it, such as a VPN; unless that is intended, exclude the subnet of the pods there";

/// Where a pod is on this host.
#[derive(Clone, Copy, Debug)]
pub struct PodPlace<'a> {
    /// Its address.
    pub address: IpAddr,
    /// The type of its main plugin.
    pub plugin: &'a str,
    /// Whether its main plugin gives packets for other networks an address of the host.
    pub is_masqueraded: bool,
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
    let made = made_link(pod, &links);
    // A port of a bridge is not routed.
    let own = made.filter(|link| link.master.is_none());
    let finding = link(pod, routes, &links, own)
        .or_else(|| attached(pod, routes, made?))
        .or_else(|| to_pod(pod, routes, &links, own))
        .or_else(|| diverted_answers(pod, routes, own?))
        .or_else(|| forwarding(pod, routes.forwarded.as_ref()?, own?))?;
    Some(finding.about(pod.address))
}

/// The link that the main plugin made for a pod whose packets the host routes. Of several links, nothing says which is the one of the
/// address. The network may have had another main plugin when the pod was added; the links of others have names that begin otherwise.
fn made_link<'a>(pod: PodPlace<'_>, links: &[&'a Link]) -> Option<&'a Link> {
    /// How the names of the links of azure-vnet begin.
    const AZURE: &str = "azv";
    const OF_OTHERS: [&str; 3] = [AZURE, "cali", "lxc"];
    let [link] = links else {
        return None;
    };
    let is_of_plugin = match pod.plugin {
        PTP => !OF_OTHERS.iter().any(|begin| link.name.starts_with(begin)),
        AZURE_VNET => link.name.starts_with(AZURE),
        _ => false,
    };
    (is_of_plugin && is_plain_path(&link.name)).then_some(*link)
}

/// The finding if the host's end of the link to the pod was made a port of another link, although the host routes to the pod by it.
fn attached(pod: PodPlace<'_>, routes: &PodRoutes, link: &Link) -> Option<Finding> {
    const PORT: &str =
        "held, but the host's end of the link to the pod became a port of another link";
    const REMEDY: &str = "unless that is intended, find out what attached it, such as `Bridge=` of systemd-networkd, and detach it:";
    let master = pod.host.master_of(link)?;
    let is_routed =
        matches!(&routes.to_pod, Some(Way::Route(route)) if route.link == Some(link.index));
    let evidence = vec![format!("{} is a port of {}", link.name, master.name)];
    let command = format!("sudo ip link set dev {} nomaster", link.name);
    let finding = warning(PORT, REMEDY).with_evidence(evidence);
    is_routed.then(|| finding.with_commands([command]))
}

/// The finding if answers of the host do not get to the pod that asked it by its address on the network interface of the pool.
fn diverted_answers(pod: PodPlace<'_>, routes: &PodRoutes, link: &Link) -> Option<Finding> {
    const DISCARDED: &str = "held, but the rules of the host discard packets that the host sends to the pod from its own address";
    const ELSEWHERE: &str = "held, but a rule of the host leads packets elsewhere that the host sends to the pod from its own address";
    match routes.from_own_address.as_ref()? {
        // The host has the address of the pod, which is another finding.
        Way::Route(route) if route.kind == RouteKind::Local => None,
        way => diverted(way, link.index, [DISCARDED, ELSEWHERE], pod.host),
    }
}

/// The finding if the host's end of the link to the pod is not as the main plugin set it up.
fn link(
    pod: PodPlace<'_>,
    routes: &PodRoutes,
    links: &[&Link],
    own: Option<&Link>,
) -> Option<Finding> {
    const OFF: &str = "held, but the host's end of the link to the pod is switched off";
    const WITHOUT_IPV6: &str = "held, but IPv6 is switched off on the link to the pod";
    const NO_GATEWAY: &str = "held, but the host's end of the link to the pod lacks the address of the gateway, which the plugin ptp sets";
    const ARP: &str = "held, but the host does not answer the pod's ARP requests for its gateway";
    const REMEDY: &str = "find out what changed it, and set it up again:";
    if let [link] = links
        && !link.is_up
    {
        let commands = match own {
            Some(link) => repair(pod, routes, link),
            None if is_plain_path(&link.name) => vec![switch_on(link)],
            None => Vec::new(),
        };
        return Some(error(OFF, REMEDY).with_commands(commands));
    }
    let link = own?;
    if let Some(file) = routes
        .ignores_arp
        .as_ref()
        .filter(|_| pod.plugin == PTP && pod.address.is_ipv4())
    {
        let command = format!("echo 1 | sudo tee /proc/sys/{file}");
        let evidence = vec![format!("/proc/sys/{file} is more than 1")];
        return Some(
            error(ARP, "find out what set it; correct it:")
                .with_evidence(evidence)
                .with_commands([command]),
        );
    }
    let cause = if pod.address.is_ipv6() && routes.lacks_ipv6 {
        WITHOUT_IPV6
    } else if lacks_gateway(pod, link) {
        NO_GATEWAY
    } else {
        return None;
    };
    Some(error(cause, REMEDY).with_commands(repair(pod, routes, link)))
}

/// Whether the host's end of a link of ptp has no address of the pod's family.
fn lacks_gateway(pod: PodPlace<'_>, link: &Link) -> bool {
    let is_gateway = |net: &IpNet| {
        net.addr().is_ipv4() == pod.address.is_ipv4() && net.prefix_len() == net.max_prefix_len()
    };
    let mut entries = pod.host.entries.iter();
    let has_one = entries.any(|entry| entry.link == link.name && is_gateway(&entry.net));
    pod.plugin == PTP && pod.gateway.is_some() && !has_one
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
            "sudo ip address replace {gateway}/{length} dev {name}{end}"
        ));
    }
    commands.push(format!("sudo ip route replace {} dev {name}", pod.address));
    commands
}

fn switch_on(link: &Link) -> String {
    format!("sudo ip link set dev {} up", link.name)
}

/// The finding if packets of the host for a pod do not get there.
fn to_pod(
    pod: PodPlace<'_>,
    routes: &PodRoutes,
    links: &[&Link],
    own: Option<&Link>,
) -> Option<Finding> {
    const DISCARDED: &str = "held, but the rules of the host discard packets for the pod";
    const RULE_ELSEWHERE: &str = "held, but a rule of the host leads packets for the pod elsewhere";
    const ROUTE_ELSEWHERE: &str =
        "held, but a route of the host leads packets for the pod elsewhere";
    let host = pod.host;
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
    let is_in_main = route.table == KernelRoute::MAIN_TABLE;
    match route.kind {
        // The host's own address is another finding, and so are routes of the main table that discard packets.
        RouteKind::Local if host.find(pod.address).is_some() => return None,
        RouteKind::Local => return Some(kept_on_host(route, host)),
        RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit if is_in_main => {
            return None;
        }
        // Where a route by several links leads is not known.
        RouteKind::Unicast if route.link.is_none() || links.iter().any(leads_there) => return None,
        _ => {}
    }
    if !is_in_main {
        return Some(by_rule(RULE_ELSEWHERE, route, host));
    }
    let is_of_other_pod = || {
        let mut links = host.links.iter();
        links.any(|link| Some(link.index) == route.link && link.peer_namespace.is_some())
    };
    if route.is_to_one_address() && (own.is_some() || is_of_other_pod()) {
        let shown = host.describe_route(route);
        let mut commands = vec![removal(&shown)];
        let set = own.map(|link| repair(pod, routes, link));
        commands.extend(set.into_iter().flatten());
        let finding = error(ROUTE_ELSEWHERE, "find out what set the route; correct it:");
        let evidence = vec![format!("the host uses the route `{shown}`")];
        return Some(finding.with_evidence(evidence).with_commands(commands));
    }
    Some(missing_route(pod, routes, own?))
}

/// The finding for a route that makes the address of a pod one of this host, although no link has it.
fn kept_on_host(route: &KernelRoute, host: &HostNetwork) -> Finding {
    const CAUSE: &str =
        "held, but a route makes it an address of this host, so packets for the pod end there";
    let shown = host.describe_route(route);
    let finding = error(
        CAUSE,
        "find out what set the route, such as a load balancer, and remove it:",
    );
    finding.with_commands([removal(&shown)])
}

/// Whether the main table has a route to the pod, so that only rules keep packets from it.
fn has_route(pod: PodPlace<'_>) -> bool {
    let mut routes = pod.host.kernel_routes.iter();
    routes.any(|route| {
        route.table == KernelRoute::MAIN_TABLE && route.destination.contains(&pod.address)
    })
}

/// The finding for a pod to which its main plugin had set a route.
fn missing_route(pod: PodPlace<'_>, routes: &PodRoutes, link: &Link) -> Finding {
    const CAUSE: &str = "held, but the host lacks the route to the pod that its main plugin sets";
    const REMEDY: &str = "find out what removed it, such as a restart of systemd-networkd without `ManageForeignRoutes=no`; set it again:";
    error(CAUSE, REMEDY).with_commands(repair(pod, routes, link))
}

/// The finding if the host does not forward packets of a pod as it should.
fn forwarding(pod: PodPlace<'_>, forwarded: &Forwarded, link: &Link) -> Option<Finding> {
    if !forwarded.switched_off.is_empty() {
        return Some(not_forwarded(pod, &forwarded.switched_off));
    }
    let from_outside = || {
        const DISCARDED: &str =
            "held, but the rules of the host discard packets from other networks for the pod";
        const ELSEWHERE: &str =
            "held, but a rule of the host leads packets from other networks for the pod elsewhere";
        let way = forwarded.from_outside.as_ref()?;
        diverted(way, link.index, [DISCARDED, ELSEWHERE], pod.host)
    };
    let to_other_pod = || {
        const DISCARDED: &str = "held, but the rules of the host discard packets from the pod for other pods on this node";
        const ELSEWHERE: &str = "held, but a rule of the host leads packets from the pod for other pods on this node elsewhere";
        let (way, other) = forwarded.to_other_pod.as_ref()?;
        diverted(way, *other, [DISCARDED, ELSEWHERE], pod.host)
    };
    let to_subnet = || {
        const DISCARDED: &str = "held, but the rules of the host discard packets from the pod for other hosts of its subnet";
        const ELSEWHERE: &str = "held, but a rule of the host leads packets from the pod for other hosts of its subnet elsewhere";
        let own = pod.host.link(pod.if_name)?;
        let interface = own.master.unwrap_or(own.index);
        match forwarded.to_subnet.as_ref()? {
            // That is a finding about the host.
            Way::Route(route) if route.table == KernelRoute::MAIN_TABLE => None,
            Way::Discarded if !forwarded.host_leaves => None,
            way => diverted(way, interface, [DISCARDED, ELSEWHERE], pod.host),
        }
    };
    to_outside(pod, forwarded)
        .or_else(to_subnet)
        .or_else(from_outside)
        .or_else(to_other_pod)
}

/// The finding for forwarding that is switched off by files below /proc/sys.
fn not_forwarded(pod: PodPlace<'_>, switches: &[String]) -> Finding {
    const CAUSE: &str = "held, but the host does not forward packets of the pod";
    const REMEDY: &str = "find out what switched it off (for example `grep -rs forward /etc/sysctl.conf /etc/sysctl.d /run/sysctl.d /usr/lib/sysctl.d`), and switch it on";
    let finding = if pod.address.is_ipv6() {
        // The kernel removes the default route that routers announced, unless accept_ra is 2.
        let remedy = format!(
            "{REMEDY}; where routers announce the default route, first set `net.ipv6.conf.{}.accept_ra` to 2",
            pod.if_name
        );
        error(CAUSE, &remedy)
    } else {
        let switch_on = |switch: &String| format!("echo 1 | sudo tee /proc/sys/{switch}");
        error(CAUSE, &format!("{REMEDY}:")).with_commands(switches.iter().map(switch_on))
    };
    let state = |switch: &String| format!("/proc/sys/{switch} is 0");
    finding.with_evidence(switches.iter().map(state).collect())
}

/// The finding for packets that do not leave by this link. Packets of the host itself do, so only rules can be the reason.
fn diverted(
    way: &Way,
    link: u32,
    [discarded, elsewhere]: [&'static str; 2],
    host: &HostNetwork,
) -> Option<Finding> {
    match way {
        Way::Discarded => Some(warning(discarded, RULE)),
        Way::Route(route) if route.link.is_some_and(|other| other != link) => {
            Some(by_rule(elsewhere, route, host))
        }
        Way::Route(_) => None,
    }
}

/// The finding for a route that a rule leads to.
fn by_rule(cause: &'static str, route: &KernelRoute, host: &HostNetwork) -> Finding {
    let shown = host.describe_route(route);
    warning(cause, RULE).with_evidence(vec![format!("a rule leads to the route `{shown}`")])
}

/// The finding if packets of a pod for other networks do not leave by the network interface of its pool.
fn to_outside(pod: PodPlace<'_>, forwarded: &Forwarded) -> Option<Finding> {
    const DISCARDED: &str = "held, but the rules of the host discard packets from the pod";
    const BY_RULE: &str =
        "held, but a rule of the host leads packets from the pod away from its network interface";
    const ELSEWHERE: &str = "held, but packets from the pod to other networks leave by the network interface of another pool";
    let route = match forwarded.to_outside.as_ref()? {
        Way::Discarded if forwarded.host_leaves => return Some(warning(DISCARDED, RULE)),
        // That of IPv4 is a finding about the host.
        Way::Discarded => return without_default_route(pod).filter(|_| pod.address.is_ipv6()),
        Way::Route(route) => route,
    };
    match other_link(pod, route) {
        Some(_) if route.table != KernelRoute::MAIN_TABLE => {
            Some(by_rule(BY_RULE, route, pod.host))
        }
        // Other links are a finding about the host.
        Some(link) if !pod.interfaces.contains(&*link.name) => None,
        _ if pod.is_masqueraded => None,
        Some(_) => Some(by_other_interface(ELSEWHERE, pod, route)),
        None => to_other_subnets(pod, forwarded),
    }
}

/// The note if packets of a pod for the subnet of another network interface leave by that one. Many networks need no such packets.
fn to_other_subnets(pod: PodPlace<'_>, forwarded: &Forwarded) -> Option<Finding> {
    const ELSEWHERE: &str = "held, but packets from the pod to the subnet of another network interface leave by that one";
    let ways = forwarded.to_other_subnets.iter();
    let mut routes = ways.filter_map(|way| match way {
        Way::Route(route) => Some(route),
        Way::Discarded => None,
    });
    let route = routes.find(|route| {
        let link = other_link(pod, route);
        link.is_some_and(|link| pod.interfaces.contains(&*link.name))
    })?;
    Some(Finding {
        severity: Severity::Note,
        ..by_other_interface(ELSEWHERE, pod, route)
    })
}

/// The link by which packets of a pod leave, if it is not the network interface of the pod's pool.
fn other_link<'a>(pod: PodPlace<'a>, route: &KernelRoute) -> Option<&'a Link> {
    if route.kind != RouteKind::Unicast || route.is_to_one_address() {
        return None;
    }
    let own = pod.host.link(pod.if_name)?;
    let is_own = |index: &u32| *index == own.index || Some(*index) == own.master;
    let other = route.all_links().find(|index| !is_own(index))?;
    pod.host.links.iter().find(|link| link.index == other)
}

/// The finding for a pod with IPv6 on a host without default route of IPv6.
fn without_default_route(pod: PodPlace<'_>) -> Option<Finding> {
    const CAUSE: &str = "held, but the host has no default route of IPv6";
    let is_default = |route: &KernelRoute| {
        let net = route.destination;
        net.addr().is_ipv6() && net.prefix_len() == 0 && route.kind == RouteKind::Unicast
    };
    if pod.host.kernel_routes.iter().any(is_default) {
        return None;
    }
    let remedy = format!(
        "unless that is intended, have the service that configures the network set it; where the kernel takes it from announcements of routers, a host that forwards needs `net.ipv6.conf.{}.accept_ra=2`",
        pod.if_name
    );
    Some(warning(CAUSE, &remedy))
}

/// The finding for packets that leave by the network interface of another pool, with the address of the pod.
fn by_other_interface(cause: &'static str, pod: PodPlace<'_>, route: &KernelRoute) -> Finding {
    let remedy = rules_by_source(pod.address, pod.if_name);
    let shown = pod.host.describe_route(route);
    warning(cause, &remedy).with_evidence(vec![format!("the host uses the route `{shown}`")])
}

/// What to do about packets from an address that leave by another network interface than this one.
pub fn rules_by_source(address: IpAddr, if_name: &str) -> String {
    // Routes to single addresses are those to the pods on this node.
    let length = if address.is_ipv4() { 31 } else { 127 };
    format!(
        "unless IP forwarding is enabled for that network interface in Azure, or a program gives the packets its address (`ipMasq`), Azure drops them: have one rule (`ip rule`) lead packets from these addresses to the pods on this node (`lookup main suppress_prefixlength {length}`), and the next one all others to a table whose default route leaves by {if_name}, which needs its own address first"
    )
}

fn error(cause: &'static str, remedy: &str) -> Finding {
    Finding {
        severity: Severity::Error,
        ..warning(cause, remedy)
    }
}

fn warning(cause: &'static str, remedy: &str) -> Finding {
    Finding {
        cause,
        ..Finding::warning(FindingKind::Unrouted, &cause, &remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::super::host_network::HostEntry;
    use super::*;

    const POD: u32 = 5;

    fn link(index: u32, name: &str) -> Link {
        Link {
            index,
            name: name.to_owned(),
            is_up: true,
            ..Link::default()
        }
    }

    fn route(destination: &str, link: u32) -> KernelRoute {
        KernelRoute {
            destination: destination.parse().unwrap(),
            kind: RouteKind::Unicast,
            table: KernelRoute::MAIN_TABLE,
            link: Some(link),
            links: Vec::new(),
            metric: None,
        }
    }

    /// A host with a pod of ptp, which has an address of both families.
    fn host() -> HostNetwork {
        let entry = |net: &str| HostEntry {
            net: net.parse().unwrap(),
            peer: None,
            link: "veth1".to_owned(),
            is_secondary: false,
        };
        HostNetwork {
            links: vec![link(2, "eth0"), link(POD, "veth1")],
            entries: vec![entry("10.1.0.1/32"), entry("fd00::1/128")],
            kernel_routes: vec![route("0.0.0.0/0", 2), route("10.1.0.0/16", 2)],
            ..HostNetwork::default()
        }
    }

    /// What the kernel says of the pod while nothing is wrong.
    fn healthy(address: &str) -> PodRoutes {
        let by = |link| Some(Way::Route(route("::/0", link)));
        PodRoutes {
            links: [POD].into(),
            lacks_ipv6: false,
            ignores_arp: None,
            to_pod: Some(Way::Route(route(address, POD))),
            from_own_address: Some(Way::Route(route(address, POD))),
            forwarded: Some(Forwarded {
                switched_off: Vec::new(),
                to_outside: by(2),
                host_leaves: true,
                from_outside: by(POD),
                to_subnet: by(2),
                to_other_subnets: Vec::new(),
                to_other_pod: None,
            }),
        }
    }

    /// The severity, text and commands of the finding about the pod.
    fn find(
        address: &str,
        plugin: &str,
        host: &HostNetwork,
        routes: &PodRoutes,
    ) -> Option<(Severity, String, Vec<String>)> {
        let address: IpAddr = address.parse().unwrap();
        let gateway = if address.is_ipv4() {
            "10.1.0.1"
        } else {
            "fd00::1"
        };
        let pod = PodPlace {
            address,
            plugin,
            is_masqueraded: false,
            if_name: "eth0",
            gateway: gateway.parse().ok(),
            interfaces: &["eth0"].into(),
            host,
        };
        examine(pod, routes).map(|found| (found.severity, found.text, found.commands))
    }

    #[test]
    fn a_pod_whose_packets_arrive_is_no_finding() {
        for (address, net) in [("10.1.0.5", "10.1.0.5/32"), ("fd00::5", "fd00::5/128")] {
            for plugin in WITH_LINKS {
                assert_eq!(
                    find(address, plugin, &host(), &healthy(net)),
                    None,
                    "{plugin}"
                );
            }
        }
        let mut on_host = healthy("10.1.0.5/32");
        let local = KernelRoute {
            kind: RouteKind::Local,
            ..route("10.1.0.5/32", 2)
        };
        on_host.to_pod = Some(Way::Route(local));
        on_host.from_own_address = on_host.to_pod.clone();
        on_host.forwarded = None;
        let commands = find("10.1.0.5", PTP, &host(), &on_host).map(|(_, _, commands)| commands);
        assert_eq!(
            commands.unwrap(),
            ["sudo ip route del local 10.1.0.5/32 dev eth0"]
        );
        // An address of the host is another finding.
        let mut with_address = host();
        with_address.entries[0].net = "10.1.0.5/32".parse().unwrap();
        assert_eq!(find("10.1.0.5", "bridge", &with_address, &on_host), None);
        let mut unknown = healthy("10.1.0.5/32");
        unknown.to_pod = None;
        unknown.forwarded = None;
        assert_eq!(find("10.1.0.5", PTP, &host(), &unknown), None);
    }

    #[test]
    fn the_link_of_ptp_is_set_up_again_in_the_order_that_works() {
        let mut host = host();
        host.entries.clear();
        host.links[1].is_up = false;
        let mut routes = healthy("fd00::5/128");
        routes.lacks_ipv6 = true;
        let (severity, _, commands) = find("fd00::5", PTP, &host, &routes).unwrap();
        assert_eq!(severity, Severity::Error);
        assert_eq!(
            commands,
            [
                "echo 0 | sudo tee /proc/sys/net/ipv6/conf/veth1/disable_ipv6",
                "sudo ip link set dev veth1 up",
                "sudo ip address replace fd00::1/128 dev veth1 nodad",
                "sudo ip route replace fd00::5 dev veth1",
            ]
        );
        // Calico sets up its own links, and only that the link is off is certain.
        host.links[1].name = "cali1".to_owned();
        let (_, text, commands) = find("fd00::5", PTP, &host, &routes).unwrap();
        assert!(text.ends_with("is switched off"), "{text}");
        assert_eq!(commands, ["sudo ip link set dev cali1 up"]);
        host.links[1].is_up = true;
        assert_eq!(find("fd00::5", PTP, &host, &routes), None);
    }

    #[test]
    fn no_command_switches_on_forwarding_of_ipv6() {
        for (address, net, count) in [
            ("10.1.0.5", "10.1.0.5/32", 1),
            ("fd00::5", "fd00::5/128", 0),
        ] {
            let mut routes = healthy(net);
            let forwarded = routes.forwarded.as_mut().unwrap();
            forwarded.switched_off = vec!["net/x".to_owned()];
            let (severity, _, commands) = find(address, PTP, &host(), &routes).unwrap();
            assert_eq!((severity, commands.len()), (Severity::Error, count));
        }
    }

    #[test]
    fn a_missing_default_route_is_only_a_finding_about_pods_with_ipv6() {
        for (address, net, expected) in [
            ("10.1.0.5", "10.1.0.5/32", None),
            (
                "fd00::5",
                "fd00::5/128",
                Some("held, but the host has no default route of IPv6"),
            ),
        ] {
            let mut routes = healthy(net);
            let forwarded = routes.forwarded.as_mut().unwrap();
            forwarded.to_outside = Some(Way::Discarded);
            forwarded.host_leaves = false;
            let text =
                |host: &HostNetwork| find(address, PTP, host, &routes).map(|(_, text, _)| text);
            assert_eq!(text(&host()).as_deref(), expected);
            let mut with_one = host();
            with_one.kernel_routes.push(route("::/0", 2));
            assert_eq!(text(&with_one), None);
        }
    }
}
