//! The routes and rules of this host that the packets of running pods meet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::host_network::{HostNetwork, Way, removal};
use crate::host::{KernelRoute, Link, Paths, RouteKind, forwarding_route, outside, read_text};
use crate::ipam::Kernel;
use crate::ops::finding::{Finding, FindingKind};

/// How the host routes the packets of a pod.
#[derive(Debug)]
pub struct PodRoutes {
    /// The indices of the links that lead to its network namespace.
    pub links: BTreeSet<u32>,
    /// What happens to packets of the host for the pod; `None` where the kernel does not answer.
    pub to_pod: Option<Way>,
    /// What happens to packets of the pod for other networks.
    pub from_pod: FromPod,
}

/// What happens to packets of a pod for other networks, if the host routes them.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum FromPod {
    /// The host does not route them, or the kernel does not answer.
    #[default]
    Unknown,
    /// Forwarding is switched off by this file below /proc/sys.
    NotForwarded(String),
    /// A route or rule discards them, although packets of the host itself leave.
    Discarded,
    /// They take this route.
    Route(KernelRoute),
}

/// The routes of pods, by network namespace (device and inode) and address.
pub type RoutesOfPods = BTreeMap<((u64, u64), IpAddr), PodRoutes>;

/// Asks the kernel for the routes of all addresses in namespaces that links of the host lead to. Sends nothing.
pub fn read_routes_of_pods(paths: &Paths, kernel: &Kernel, host: &HostNetwork) -> RoutesOfPods {
    let mut links: BTreeMap<(u64, u64), Vec<&Link>> = BTreeMap::new();
    for link in &host.links {
        if let Some(id) = link.peer_namespace.and_then(|n| kernel.numbers.get(&n)) {
            links.entry(*id).or_default().push(link);
        }
    }
    let mut found = RoutesOfPods::new();
    for (id, links) in links {
        let addresses = kernel.addresses_by_namespace.get(&id);
        for address in addresses.into_iter().flatten() {
            let to_pod = host.way_to(*address);
            let leads_by = |link: &Link| matches!(&to_pod, Some(Way::Route(route)) if route.link == Some(link.index));
            let from_pod = match &*links {
                // Packets from a bridge are not routed. Those from an address that is elsewhere, the kernel takes for forged ones.
                [link] if link.master.is_none() && leads_by(link) => {
                    ask_from_pod(paths, *address, link, host)
                }
                _ => FromPod::Unknown,
            };
            let routes = PodRoutes {
                links: links.iter().map(|link| link.index).collect(),
                to_pod,
                from_pod,
            };
            found.insert((id, *address), routes);
        }
    }
    found
}

/// Asks what happens to packets of a pod behind this link.
fn ask_from_pod(paths: &Paths, address: IpAddr, link: &Link, host: &HostNetwork) -> FromPod {
    let switches = match address {
        IpAddr::V4(_) => vec![
            "net/ipv4/ip_forward".to_owned(),
            format!("net/ipv4/conf/{}/forwarding", link.name),
        ],
        IpAddr::V6(_) => vec!["net/ipv6/conf/all/forwarding".to_owned()],
    };
    let is_off = |switch: &String| {
        let file = paths.under_root(&format!("/proc/sys/{switch}"));
        read_text(&file).is_ok_and(|text| text.trim() == "0")
    };
    if let Some(switch) = switches.into_iter().find(is_off) {
        return FromPod::NotForwarded(switch);
    }
    let to = outside(address);
    match forwarding_route(address, link.index, to) {
        Ok(Some(route)) => FromPod::Route(route),
        Ok(None) => {
            let own = host.way_to(to).and_then(Way::route);
            let leaves = own.is_some_and(|route| route.kind == RouteKind::Unicast);
            if leaves {
                FromPod::Discarded
            } else {
                FromPod::Unknown
            }
        }
        Err(_) => FromPod::Unknown,
    }
}

/// The main plugins that connect a pod with the host by a link, so that packets for the pod take the routes of the host.
const WITH_LINKS: [&str; 5] = ["azure-vnet", "bridge", "calico", "cilium-cni", "ptp"];
/// Those of them that set no rules, so that a rule for their pods is not their own.
const WITHOUT_RULES: [&str; 3] = ["azure-vnet", "bridge", "ptp"];
/// The main plugin that sets a route to each pod.
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
    /// The links, routes and addresses of the host.
    pub host: &'a HostNetwork,
}

/// The finding for a pod whose packets the host discards, does not forward, or routes elsewhere.
pub fn examine(pod: PodPlace<'_>, routes: &PodRoutes) -> Option<Finding> {
    if !WITH_LINKS.contains(&pod.plugin) {
        return None;
    }
    let finding = to_pod(pod, routes).or_else(|| from_pod(pod, &routes.from_pod))?;
    Some(finding.about(pod.address))
}

/// The finding if packets for a pod do not get there.
fn to_pod(pod: PodPlace<'_>, routes: &PodRoutes) -> Option<Finding> {
    const DISCARDED: &str = "held, but a rule of the host discards packets for the pod";
    const RULE_ELSEWHERE: &str = "held, but a rule of the host leads packets for the pod elsewhere";
    const ROUTE_ELSEWHERE: &str =
        "held, but a route of the host leads packets for the pod elsewhere";
    let host = pod.host;
    let links = host.links.iter();
    let links: Vec<&Link> = links.filter(|l| routes.links.contains(&l.index)).collect();
    // The link of ptp has no master: the main plugin of a pod on a bridge was another one. Of several links, nothing says which is the one of
    // this address.
    let own_link = match &*links {
        [link] if link.master.is_none() => Some(*link),
        _ => None,
    };
    let route = match routes.to_pod.as_ref()? {
        Way::Discarded if has_route(pod) => return Some(warning(DISCARDED, RULE)),
        Way::Discarded => return missing_route(pod, own_link),
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
    let is_wrong = (pod.plugin == PTP && own_link.is_some()) || is_of_other_pod();
    if route.is_to_one_address() && is_wrong {
        let mut commands = vec![removal(&shown)];
        commands.extend(
            own_link
                .map(|link| set_route(pod.address, link))
                .into_iter()
                .flatten(),
        );
        let finding = warning(ROUTE_ELSEWHERE, "find out what set the route; correct it:");
        let evidence = vec![format!("the host uses the route `{shown}`")];
        return Some(finding.with_evidence(evidence).with_commands(commands));
    }
    missing_route(pod, own_link)
}

/// Whether the main table has a route to the pod, so that only a rule keeps packets from it.
fn has_route(pod: PodPlace<'_>) -> bool {
    let mut routes = pod.host.kernel_routes.iter();
    routes.any(|route| {
        route.table == KernelRoute::MAIN_TABLE && route.destination.contains(&pod.address)
    })
}

/// The finding for a pod of ptp without a route.
fn missing_route(pod: PodPlace<'_>, own_link: Option<&Link>) -> Option<Finding> {
    const CAUSE: &str = "held, but the host has no route to the pod, which the plugin ptp sets";
    const REMEDY: &str = "find out what removed it, such as a restart of systemd-networkd without `ManageForeignRoutes=no`; set it again:";
    let link = own_link.filter(|_| pod.plugin == PTP)?;
    Some(warning(CAUSE, REMEDY).with_commands(set_route(pod.address, link)))
}

/// The commands that set the route to a pod behind this link.
fn set_route(address: IpAddr, link: &Link) -> Vec<String> {
    let name = &link.name;
    let up = (!link.is_up).then(|| format!("sudo ip link set dev {name} up"));
    let set = format!("sudo ip route replace {address} dev {name}");
    up.into_iter().chain([set]).collect()
}

/// The finding if packets of a pod do not leave by the network interface of its pool.
fn from_pod(pod: PodPlace<'_>, way: &FromPod) -> Option<Finding> {
    match way {
        FromPod::Unknown => None,
        FromPod::NotForwarded(switch) => {
            const CAUSE: &str = "held, but the host does not forward packets from the pod";
            const REMEDY: &str = "find out what switched it off (`grep -r forward /etc/sysctl.*`), and switch it on:";
            let evidence = vec![format!("/proc/sys/{switch} is 0")];
            let command = format!("echo 1 | sudo tee /proc/sys/{switch}");
            let finding = warning(CAUSE, REMEDY).with_evidence(evidence);
            Some(finding.with_commands([command]))
        }
        FromPod::Discarded => {
            const CAUSE: &str = "held, but a rule of the host discards packets from the pod";
            Some(warning(CAUSE, RULE))
        }
        FromPod::Route(route) => {
            const CAUSE: &str = "held, but a rule of the host leads packets from the pod away from its network interface";
            let own = pod.host.link(pod.if_name)?;
            let is_elsewhere = route.table != KernelRoute::MAIN_TABLE
                && route.link.is_some()
                && ![Some(own.index), own.master].contains(&route.link);
            if !is_elsewhere || !WITHOUT_RULES.contains(&pod.plugin) {
                return None;
            }
            let shown = pod.host.describe_route(route);
            let evidence = vec![format!("a rule leads to the route `{shown}`")];
            Some(warning(CAUSE, RULE).with_evidence(evidence))
        }
    }
}

fn warning(cause: &'static str, remedy: &str) -> Finding {
    Finding {
        cause,
        ..Finding::warning(FindingKind::Unrouted, &cause, &remedy)
    }
}
