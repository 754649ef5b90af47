//! The links, routes and addresses of the host itself: which addresses can be removed without harm, and what configured them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use crate::host::{
    KernelRoute, Link, Paths, Route, RouteKind, discarding_kind, host_addresses, host_has, links,
    matching_route, read_text, routes,
};
use crate::ipam::{Ipam, Record};

/// The links, routes and addresses of the host, in the kernel's order, and the files that may configure them.
#[derive(Debug, Default)]
pub struct HostNetwork {
    /// The addresses.
    pub entries: Vec<HostEntry>,
    /// The addresses that the host sends from by its default routes, and the gateways of these.
    pub needed: Vec<IpAddr>,
    /// The addresses of pools, which are to leave the host.
    pub of_pools: BTreeSet<IpAddr>,
    /// The names of the links on which the other IPv4 addresses of a subnet stay when the first one is removed (`promote_secondaries`).
    pub promoting: BTreeSet<String>,
    /// The names of the network interfaces that the pools are on.
    pub interfaces: BTreeSet<String>,
    /// The routes to single addresses of others.
    pub routes: Vec<HostRoute>,
    /// All routes of the kernel.
    pub kernel_routes: Vec<KernelRoute>,
    /// The route that the kernel uses to the wire server, also if that discards the packets.
    pub to_wire_server: Option<KernelRoute>,
    /// The links.
    pub links: Vec<Link>,
    /// The files that configure links.
    pub files: Vec<NetworkFile>,
}

/// An address of the host.
#[derive(Clone, Debug)]
pub struct HostEntry {
    /// The address with its prefix.
    pub net: IpNet,
    /// The address of the other end of a point-to-point link.
    pub peer: Option<IpAddr>,
    /// The name of its link.
    pub link: String,
    /// Whether it goes with another address of its subnet, which the link got earlier.
    pub is_secondary: bool,
}

impl HostEntry {
    /// The command that removes it, and only it.
    pub fn removal(&self) -> String {
        let HostEntry { net, link, .. } = self;
        match self.peer {
            Some(peer) => {
                let (own, length) = (net.addr(), net.prefix_len());
                format!("sudo ip address del {own} peer {peer}/{length} dev {link}")
            }
            None => format!("sudo ip address del {net} dev {link}"),
        }
    }
}

/// A route of the host to the address of another one.
#[derive(Clone, Debug)]
pub struct HostRoute {
    /// The address.
    pub destination: IpAddr,
    /// The command that deletes it.
    pub removal: String,
    /// Whether the kernel uses it: a rule leads to its table.
    pub is_used: bool,
}

/// What the kernel does with packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// They take this route, which may discard them.
    Route(KernelRoute),
    /// A rule discards them, or no route matches.
    Discarded,
}

impl Way {
    /// The route that they take.
    pub fn route(self) -> Option<KernelRoute> {
        match self {
            Way::Route(route) => Some(route),
            Way::Discarded => None,
        }
    }
}

/// A file of the node that configures links.
#[derive(Debug)]
pub struct NetworkFile {
    /// Its path.
    pub path: PathBuf,
    /// Its content.
    pub text: String,
}

/// What puts an address on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Configurer {
    /// cloud-init, which wrote this file.
    CloudInit(PathBuf),
    /// cloud-netconfig of SLES, as this file lets it.
    CloudNetconfig(PathBuf),
    /// This file, which somebody wrote.
    File(PathBuf),
    /// kube-proxy in ipvs mode: a Service has the address.
    KubeProxy,
    /// The address is on the loopback link: somebody put it there on purpose.
    Loopback,
    /// Something that is not to be undone: the host needs the address ([`HostNetwork::is_own`]).
    Own,
    /// None of the known ones.
    Unknown,
}

impl HostNetwork {
    /// Reads them; none where the kernel does not answer, or the node is not this one.
    pub fn read(paths: &Paths, ipam: &Ipam) -> HostNetwork {
        let addresses = host_addresses(paths).unwrap_or_default();
        let links = links(paths).unwrap_or_default();
        let mut entries = Vec::new();
        for found in addresses {
            let link = links.iter().find(|link| link.index == found.link);
            if let Some(link) = link
                && let Ok(net) = IpNet::new(found.address, found.prefix_len)
            {
                entries.push(HostEntry {
                    net,
                    peer: found.peer,
                    link: link.name.clone(),
                    is_secondary: found.is_secondary,
                });
            }
        }
        let anywhere = [IpAddr::from([0; 4]), IpAddr::from([0; 16])];
        let outside = anywhere
            .into_iter()
            .filter_map(|to| Route::to_the_outside(to).ok()?);
        let own: BTreeSet<IpAddr> = entries.iter().map(|entry| entry.net.addr()).collect();
        let host_route = |route: &KernelRoute| HostRoute {
            destination: route.destination.addr(),
            removal: removal(&describe_route(route, &links)),
            is_used: route.table == KernelRoute::MAIN_TABLE
                || host_has(paths, route.destination.addr()).unwrap_or(true),
        };
        let kernel_routes = routes(paths).unwrap_or_default();
        let routes = kernel_routes
            .iter()
            .filter(|route| route.is_to_one_address() && !own.contains(&route.destination.addr()))
            .map(host_route)
            .collect();
        // Below a root, the kernel's routes are not those of the node.
        let to_wire_server = if entries.is_empty() {
            None
        } else {
            way_to(WIRE_SERVER, &kernel_routes).and_then(Way::route)
        };
        let promotes = |link: &&Link| {
            let mut names = ["all", &link.name].into_iter();
            let name = |name: &str| format!("net/ipv4/conf/{name}/promote_secondaries");
            names.any(|link| sysctl(paths, &name(link)).is_some_and(|value| value != 0))
        };
        let promoting = links.iter().filter(promotes);
        HostNetwork {
            promoting: promoting.map(|link| link.name.clone()).collect(),
            needed: outside
                .flat_map(|route| [route.source, route.gateway])
                .flatten()
                .collect(),
            of_pools: ipam.records().map(Record::address).collect(),
            interfaces: ipam
                .pools()
                .map(|(_, _, pool)| pool.if_name.clone())
                .collect(),
            routes,
            to_wire_server,
            kernel_routes,
            files: read_files(paths),
            entries,
            links,
        }
    }

    /// The commands that delete the routes to an address.
    pub fn removals(&self, address: IpAddr) -> Vec<String> {
        let routes = self.routes_to(address);
        routes.map(|route| route.removal.clone()).collect()
    }

    /// Whether the kernel uses a route to the address; `true` if none is known.
    pub fn uses_route_to(&self, address: IpAddr) -> bool {
        let mut routes = self.routes_to(address);
        routes.clone().next().is_none() || routes.any(|route| route.is_used)
    }

    fn routes_to(&self, address: IpAddr) -> impl Iterator<Item = &HostRoute> + Clone {
        let routes = self.routes.iter();
        routes.filter(move |route| route.destination == address)
    }

    /// The entry of an address. Of several links, the last one counts.
    pub fn find(&self, address: IpAddr) -> Option<&HostEntry> {
        let mut entries = self.entries.iter();
        entries.rfind(|entry| entry.net.addr() == address)
    }

    /// The addresses of the host itself that other hosts may send to, of one family.
    pub fn own_addresses(&self, is_ipv4: bool) -> impl Iterator<Item = &HostEntry> {
        let is_global = move |entry: &&HostEntry| match entry.net.addr() {
            IpAddr::V4(v4) => is_ipv4 && !v4.is_loopback() && !v4.is_link_local(),
            IpAddr::V6(v6) => !is_ipv4 && !v6.is_loopback() && !v6.is_unicast_link_local(),
        };
        self.entries.iter().filter(is_global)
    }

    /// The link with this name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// Whether the other end of the link is in another network namespace, and no pool is on it.
    pub fn leads_to_pod(&self, link: &Link) -> bool {
        link.peer_namespace.is_some() && !self.interfaces.contains(&link.name)
    }

    /// The link that this one is a port of, such as a bridge or a bond. It has the addresses of both.
    pub fn master_of(&self, link: &Link) -> Option<&Link> {
        let master = link.master?;
        self.links.iter().find(|link| link.index == master)
    }

    /// A route in the words of ip-route(8), as its commands take it.
    pub fn describe_route(&self, route: &KernelRoute) -> String {
        describe_route(route, &self.links)
    }

    /// What the kernel does with packets of this host to an address; `None` if it does not answer. Sends nothing.
    pub fn way_to(&self, address: IpAddr) -> Option<Way> {
        way_to(address, &self.kernel_routes)
    }

    /// The default routes of one family in all tables.
    fn all_default_routes(&self, is_ipv4: bool) -> impl Iterator<Item = &KernelRoute> {
        let is_default = move |route: &&KernelRoute| {
            route.destination.addr().is_ipv4() == is_ipv4 && route.destination.prefix_len() == 0
        };
        self.kernel_routes.iter().filter(is_default)
    }

    /// The default routes of IPv4 in the main table.
    pub fn default_routes(&self) -> impl Iterator<Item = &KernelRoute> {
        let routes = self.all_default_routes(true);
        routes.filter(|route| route.table == KernelRoute::MAIN_TABLE)
    }

    /// Another table with a default route of this family, to which rules may lead.
    pub fn other_default_table(&self, is_ipv4: bool) -> Option<u32> {
        let mut routes = self.all_default_routes(is_ipv4);
        let is_other = |route: &&KernelRoute| {
            route.table != KernelRoute::MAIN_TABLE && route.kind == RouteKind::Unicast
        };
        routes.find(is_other).map(|route| route.table)
    }

    /// Whether IPv4 packets to other networks have a route: the kernel uses one, or the one of the main table with the lowest metric leads
    /// to a gateway.
    pub fn has_default_route(&self) -> bool {
        let best = self
            .default_routes()
            .min_by_key(|route| route.metric.unwrap_or(0));
        self.needed.iter().any(IpAddr::is_ipv4)
            || best.is_some_and(|route| route.kind == RouteKind::Unicast)
    }

    /// Whether no other route to the same destination in the same table has a lower metric.
    pub fn is_preferred(&self, route: &KernelRoute) -> bool {
        let is_better = |other: &KernelRoute| {
            (other.destination, other.table) == (route.destination, route.table)
                && other.metric.unwrap_or(0) < route.metric.unwrap_or(0)
        };
        !self.kernel_routes.iter().any(is_better)
    }

    /// The addresses of IPv4 by which packets may leave the host: of subnets, on links that are up.
    pub fn entries_to_other_hosts(&self) -> Vec<&HostEntry> {
        let is_up = |link: &Link| link.is_up && !link.loopback && !self.leads_to_pod(link);
        let leads_out = |entry: &&HostEntry| {
            let is_subnet =
                entry.net.prefix_len() < 31 && entry.net.hosts().next() != Some(entry.net.addr());
            matches!(entry.net.addr(), IpAddr::V4(address) if !address.is_link_local())
                && is_subnet
                && self.link(&entry.link).is_some_and(is_up)
        };
        self.entries.iter().filter(leads_out).collect()
    }

    /// Whether the host has no default route of IPv4, although a link is up and has an address.
    pub fn lacks_default_route(&self) -> bool {
        !self.has_default_route() && !self.entries_to_other_hosts().is_empty()
    }

    /// The routes of one family in the main table that the kernel uses to networks which have no route of their own: those to both halves
    /// of all addresses, as VPNs set them, or the one to all global addresses of IPv6, or else the default route with the lowest metric.
    pub fn most_general_routes(&self, is_ipv4: bool) -> Vec<&KernelRoute> {
        let best = |destination: &str| {
            let net: IpNet = destination.parse().ok()?;
            let is_to = |route: &&KernelRoute| {
                route.table == KernelRoute::MAIN_TABLE && route.destination == net
            };
            let routes = self.kernel_routes.iter().filter(is_to);
            routes.min_by_key(|route| route.metric.unwrap_or(0))
        };
        let [lower, upper, global, all] = if is_ipv4 {
            ["0.0.0.0/1", "128.0.0.0/1", "", "0.0.0.0/0"]
        } else {
            ["::/1", "8000::/1", "2000::/3", "::/0"]
        };
        match (best(lower), best(upper)) {
            (Some(lower), Some(upper)) => vec![lower, upper],
            _ => best(global).or_else(|| best(all)).into_iter().collect(),
        }
    }

    /// The command that removes an address which is not to be on this host at all; `None` if other addresses or routes would go with it.
    pub fn removal_of_address(&self, entry: &HostEntry) -> Option<String> {
        let is_harmless = !self.takes_others_along(entry)
            && !self.is_needed(entry)
            && !self.takes_routes_along(entry);
        is_harmless.then(|| entry.removal())
    }

    /// Whether the kernel removes routes with this address, as it does with the last IPv4 address of a link.
    fn takes_routes_along(&self, entry: &HostEntry) -> bool {
        let link = self.link(&entry.link).map(|link| link.index);
        let is_taken = |route: &KernelRoute| {
            let is_other = route.destination.trunc() != entry.net.trunc();
            let is_ipv4 = entry.net.addr().is_ipv4() && route.destination.addr().is_ipv4();
            is_other && is_ipv4 && route.kind == RouteKind::Unicast && route.link == link
        };
        link.is_some() && self.is_last(entry) && self.kernel_routes.iter().any(is_taken)
    }

    /// The command that removes an address which connects a second link to a subnet, or is its gateway; `None` if other addresses or routes
    /// would go with it.
    pub fn removal_of_second_address(&self, entry: &HostEntry) -> Option<String> {
        let link = self.link(&entry.link)?.index;
        let is_of_default = self.default_routes().any(|route| route.link == Some(link));
        let is_harmless =
            !is_of_default && !self.takes_others_along(entry) && !self.takes_routes_along(entry);
        is_harmless.then(|| entry.removal())
    }

    /// Whether the address can be removed without taking other addresses or the default route along.
    pub fn may_be_removed(&self, entry: &HostEntry) -> bool {
        ![LOOPBACK, KUBE_PROXY].contains(&&*entry.link)
            && !self.is_own(entry)
            && !self.takes_others_along(entry)
    }

    /// Whether the kernel removes other addresses of the subnet with this one.
    fn takes_others_along(&self, entry: &HostEntry) -> bool {
        let is_of_subnet = |other: &HostEntry| other.net.trunc() == entry.net.trunc();
        let is_first = entry.net.addr().is_ipv4() && !entry.is_secondary;
        is_first && !self.promoting.contains(&entry.link) && self.others(entry).any(is_of_subnet)
    }

    /// Whether the host needs the address: its default route sends from it or reaches its gateway by it, or the link has no other one of
    /// the family. An address of a pool is no other one, as it is to be removed as well.
    fn is_own(&self, entry: &HostEntry) -> bool {
        self.is_needed(entry) || self.is_alone(entry)
    }

    /// Whether the address connects the link to a subnet, and the link has no other address of the family that stays.
    fn is_alone(&self, entry: &HostEntry) -> bool {
        entry.net.prefix_len() < entry.net.max_prefix_len() && self.is_last(entry)
    }

    /// Whether the link has no other address of the family that stays.
    fn is_last(&self, entry: &HostEntry) -> bool {
        let address = entry.net.addr();
        let stays = |other: &HostEntry| {
            let found = other.net.addr();
            found.is_ipv4() == address.is_ipv4()
                && !is_link_local(found)
                && !self.of_pools.contains(&found)
        };
        !entry.is_secondary && !self.others(entry).any(stays)
    }

    /// Whether the default route sends from the address, or reaches its gateway by it.
    fn is_needed(&self, entry: &HostEntry) -> bool {
        let address = entry.net.addr();
        let is_of_subnet = |other: &HostEntry| other.net.trunc() == entry.net.trunc();
        let connects = !self.others(entry).any(is_of_subnet);
        let is_needed =
            |needed: &IpAddr| *needed == address || (connects && entry.net.contains(needed));
        self.needed.iter().any(is_needed)
    }

    /// The other addresses of the same link.
    fn others(&self, entry: &HostEntry) -> impl Iterator<Item = &HostEntry> {
        let (net, link) = (entry.net, entry.link.clone());
        let entries = self.entries.iter();
        entries.filter(move |other| other.link == link && other.net != net)
    }

    /// What configured an address. cloud-init and cloud-netconfig can be configured to leave only the host's own ones, so they are named for
    /// those as well.
    pub fn configurer(&self, entry: &HostEntry) -> Configurer {
        match &*entry.link {
            LOOPBACK => return Configurer::Loopback,
            KUBE_PROXY => return Configurer::KubeProxy,
            _ => {}
        }
        match self.find_configurer(entry) {
            Configurer::File(_) | Configurer::Unknown if self.is_own(entry) => Configurer::Own,
            found => found,
        }
    }

    /// Looks through the files.
    fn find_configurer(&self, entry: &HostEntry) -> Configurer {
        let address = entry.net.addr().to_string();
        let names_it = |file: &&NetworkFile| has_word(&file.text, &address);
        if let Some(file) = self.files.iter().find(names_it) {
            let path = file.path.clone();
            return if file.text.contains("cloud-init") || path.ends_with("50-cloud-init.yaml") {
                Configurer::CloudInit(path)
            } else {
                Configurer::File(path)
            };
        }
        // It puts addresses on links without writing them into a file.
        let own_file = format!("ifcfg-{}", entry.link);
        let lets_it = |file: &&NetworkFile| {
            let mut lines = file.text.lines().map(str::trim);
            file.path.ends_with(&own_file)
                && lines.any(|line| {
                    let value = line.strip_prefix("CLOUD_NETCONFIG_MANAGE=");
                    value.is_some_and(|value| value.trim_matches(['"', '\'']) == "yes")
                })
        };
        match self.files.iter().find(lets_it) {
            Some(file) => Configurer::CloudNetconfig(file.path.clone()),
            None => Configurer::Unknown,
        }
    }
}

/// The address of the wire server on every node.
pub const WIRE_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16));

/// What the kernel does with packets to an address; `None` if it does not answer.
fn way_to(address: IpAddr, all: &[KernelRoute]) -> Option<Way> {
    let route = match discarding_kind(address) {
        Some(kind) => find_discarding(address, kind, all).cloned(),
        None => matching_route(address).ok()?,
    };
    Some(route.map_or(Way::Discarded, Way::Route))
}

/// Whether IPv6 is switched off on a link. `default` stands for the links that are created from now on.
pub fn lacks_ipv6(paths: &Paths, link: &str) -> bool {
    sysctl(paths, &format!("net/ipv6/conf/{link}/disable_ipv6")) == Some(1)
}

/// The number in a file below /proc/sys; `None` where it cannot be read.
pub fn sysctl(paths: &Paths, name: &str) -> Option<u32> {
    let text = read_text(&paths.under_root(&format!("/proc/sys/{name}"))).ok()?;
    text.trim().parse().ok()
}

/// The route of this type that discards packets to an address. In its table no route is more specific.
fn find_discarding(address: IpAddr, kind: RouteKind, all: &[KernelRoute]) -> Option<&KernelRoute> {
    let mut tables: BTreeMap<u32, &KernelRoute> = BTreeMap::new();
    let order = |route: &KernelRoute| (Reverse(route.destination.prefix_len()), route.metric);
    for route in all {
        if !route.destination.contains(&address) {
            continue;
        }
        let best = tables.entry(route.table).or_insert(route);
        if order(route) < order(best) {
            *best = route;
        }
    }
    // The rules of most hosts lead to these tables alone.
    let mut in_order = [KernelRoute::LOCAL_TABLE, KernelRoute::MAIN_TABLE]
        .iter()
        .filter_map(|table| tables.get(table))
        .chain(tables.values())
        .copied();
    in_order.find(|route| route.kind == kind)
}

/// The command that deletes a route, which is given in the words of ip-route(8).
pub fn removal(route: &str) -> String {
    format!("sudo ip route del {route}")
}

/// A route in the words of ip-route(8). What it names distinguishes the route from others.
fn describe_route(route: &KernelRoute, links: &[Link]) -> String {
    let mut words = String::new();
    if route.kind != RouteKind::Unicast {
        words.push_str(&format!("{} ", route.kind));
    }
    words.push_str(&route.destination.to_string());
    let name = |index: u32| links.iter().find(|link| link.index == index);
    if let Some(link) = route.link.and_then(name) {
        words.push_str(&format!(" dev {}", link.name));
    }
    if let Some(metric) = route.metric {
        words.push_str(&format!(" metric {metric}"));
    }
    if route.table != KernelRoute::MAIN_TABLE {
        words.push_str(&format!(" table {}", route.table));
    }
    for link in route.links.iter().copied().filter_map(name) {
        words.push_str(&format!(" nexthop dev {}", link.name));
    }
    words
}

const LOOPBACK: &str = "lo";
/// The link to which kube-proxy in ipvs mode adds the addresses of Services.
const KUBE_PROXY: &str = "kube-ipvs0";

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Whether the text has the address, and not only a longer one that contains it.
fn has_word(text: &str, address: &str) -> bool {
    let is_part = |c: char| c.is_ascii_hexdigit() || matches!(c, '.' | ':');
    text.match_indices(address).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text
            .get(at + address.len()..)
            .and_then(|text| text.chars().next());
        // In YAML a colon may stand before an address, and in neither place a digit.
        !before.is_some_and(|c| is_part(c) && c != ':') && !after.is_some_and(is_part)
    })
}

/// Reads the files that configure links on Ubuntu, SLES and RHEL.
fn read_files(paths: &Paths) -> Vec<NetworkFile> {
    let mut files = Vec::new();
    for (folder, prefix, extension) in [
        ("/etc/netplan", "", ".yaml"),
        ("/etc/sysconfig/network", "ifcfg-", ""),
        ("/etc/sysconfig/network-scripts", "ifcfg-", ""),
    ] {
        let Ok(entries) = fs::read_dir(paths.under_root(folder)) else {
            continue;
        };
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        found.sort_unstable();
        for path in found {
            let name = path.file_name().and_then(|name| name.to_str());
            let is_meant = name.is_some_and(|n| n.starts_with(prefix) && n.ends_with(extension));
            if is_meant && let Ok(text) = read_text(&path) {
                let path = Path::new(folder).join(name.unwrap_or_default());
                files.push(NetworkFile { path, text });
            }
        }
    }
    files
}

impl Configurer {
    /// What to do so that the addresses do not come back, without full stop.
    pub fn remedy(&self) -> String {
        match self {
            Configurer::CloudInit(path) => format!(
                "cloud-init configured it, in {}, which it writes at each start of the node: for the Azure datasource set `apply_network_config_for_secondary_ips: false` (before cloud-init 23.4 `apply_network_config: false`)",
                path.display()
            ),
            Configurer::CloudNetconfig(path) => format!(
                "cloud-netconfig configures it every minute: set CLOUD_NETCONFIG_MANAGE='no' in {}",
                path.display()
            ),
            Configurer::File(path) => {
                format!("{} configures it: remove it there", path.display())
            }
            Configurer::KubeProxy => {
                "kube-proxy put it there, because a Service has it: give the Service an address that is in no pool"
                    .to_owned()
            }
            Configurer::Loopback => {
                "if it is meant to be there, put it into ipam.exclude, and recreate the pod that has it, if any; if not, remove it"
                    .to_owned()
            }
            Configurer::Own => {
                "if it is the host's own address, recreate the pod that has it, if any, and have it listed as primary or put it into ipam.exclude; if it is not, correct what configures the link"
                    .to_owned()
            }
            Configurer::Unknown => {
                "if it is meant to be there, such as a virtual IP, put it into ipam.exclude, and recreate the pod that has it, if any; if not, find out what configured it, so that it does not come back".to_owned()
            }
        }
    }

    /// The commands that keep it from doing so.
    pub fn commands(&self) -> Vec<String> {
        match self {
            Configurer::CloudInit(_) => vec![
                "echo 'datasource: {Azure: {apply_network_config_for_secondary_ips: false}}' | sudo tee /etc/cloud/cloud.cfg.d/91-azure-secondary-ips.cfg".to_owned(),
            ],
            Configurer::CloudNetconfig(path) => vec![format!(
                "sudo sed -i \"s/^CLOUD_NETCONFIG_MANAGE=.*/CLOUD_NETCONFIG_MANAGE='no'/\" {}",
                path.display()
            )],
            Configurer::File(_)
            | Configurer::KubeProxy
            | Configurer::Loopback
            | Configurer::Own
            | Configurer::Unknown => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(net: &str, link: &str, is_secondary: bool) -> HostEntry {
        HostEntry {
            net: net.parse().unwrap(),
            peer: None,
            link: link.to_owned(),
            is_secondary,
        }
    }

    #[test]
    fn only_what_takes_nothing_along_is_removed() {
        let host = HostNetwork {
            entries: vec![
                entry("127.0.0.1/8", "lo", false),
                entry("10.1.0.9/32", "lo", false),
                entry("10.1.0.5/16", "eth0", false),
                entry("10.1.0.6/16", "eth0", true),
                entry("10.1.0.4/16", "eth0", true),
                entry("10.2.0.5/16", "eth0", false),
                entry("10.3.0.5/16", "eth1", false),
                entry("fd00::5/64", "eth1", false),
                entry("fd00::6/64", "eth1", false),
                entry("fd01::6/64", "eth2", false),
                entry("fe80::1/64", "eth2", false),
                // Both are of pools, and nothing else is on the link.
                entry("10.7.0.5/16", "eth3", false),
                entry("10.7.0.6/17", "eth3", false),
                // It connects the link with the gateway.
                entry("10.9.0.5/16", "eth4", false),
                entry("10.10.0.5/16", "eth4", false),
            ],
            needed: ["10.1.0.4", "10.1.0.1", "10.9.0.1"]
                .map(|a| a.parse().unwrap())
                .into(),
            of_pools: ["10.7.0.5", "10.7.0.6"].map(|a| a.parse().unwrap()).into(),
            ..HostNetwork::default()
        };
        let removable: Vec<_> = host
            .entries
            .iter()
            .filter(|entry| !is_link_local(entry.net.addr()) && host.may_be_removed(entry))
            .map(|entry| entry.net.addr().to_string())
            .collect();
        assert_eq!(
            removable,
            ["10.1.0.6", "10.2.0.5", "fd00::5", "fd00::6", "10.10.0.5"]
        );
        let own: Vec<_> = host
            .entries
            .iter()
            .filter(|entry| !is_link_local(entry.net.addr()) && host.is_own(entry))
            .map(|entry| entry.net.addr().to_string())
            .collect();
        assert_eq!(
            own,
            [
                "10.1.0.4", "10.3.0.5", "fd01::6", "10.7.0.5", "10.7.0.6", "10.9.0.5"
            ]
        );
    }

    #[test]
    fn the_last_address_of_a_link_with_routes_stays() {
        let route = KernelRoute {
            destination: "10.50.0.0/16".parse().unwrap(),
            kind: RouteKind::Unicast,
            table: KernelRoute::MAIN_TABLE,
            link: Some(2),
            links: Vec::new(),
            metric: None,
        };
        let link = Link {
            index: 2,
            name: "eth1".to_owned(),
            ..Link::default()
        };
        let mut host = HostNetwork {
            entries: vec![entry("168.63.129.16/32", "eth1", false)],
            links: vec![link],
            kernel_routes: vec![route],
            ..HostNetwork::default()
        };
        let address = host.entries[0].clone();
        assert_eq!(host.removal_of_address(&address), None);
        host.entries.push(entry("10.1.0.4/16", "eth1", false));
        let command = "sudo ip address del 168.63.129.16/32 dev eth1".to_owned();
        assert_eq!(host.removal_of_address(&address), Some(command));
    }

    #[test]
    fn the_command_that_deletes_a_route_names_what_tells_it_from_others() {
        let links = [Link {
            index: 2,
            name: "eth0".to_owned(),
            ..Link::default()
        }];
        let plain = KernelRoute {
            destination: "10.1.0.5/32".parse().unwrap(),
            kind: RouteKind::Unicast,
            table: KernelRoute::MAIN_TABLE,
            link: Some(2),
            links: Vec::new(),
            metric: None,
        };
        let other = KernelRoute {
            destination: "fd00::5/128".parse().unwrap(),
            kind: RouteKind::Local,
            table: 1000,
            link: None,
            links: Vec::new(),
            metric: Some(1024),
        };
        assert_eq!(
            removal(&describe_route(&plain, &links)),
            "sudo ip route del 10.1.0.5/32 dev eth0"
        );
        assert_eq!(
            removal(&describe_route(&other, &links)),
            "sudo ip route del local fd00::5/128 metric 1024 table 1000"
        );
    }

    #[test]
    fn the_file_that_names_an_address_configured_it() {
        let file = |path: &str, text: &str| NetworkFile {
            path: path.into(),
            text: text.to_owned(),
        };
        let host = HostNetwork {
            entries: ["eth0", "eth1", "eth2"]
                .map(|link| entry("10.1.0.4/16", link, false))
                .into(),
            files: vec![
                file(
                    "/etc/netplan/50-cloud-init.yaml",
                    "addresses: [10.1.0.55/16, \"10.1.0.6/16\"]",
                ),
                file("/etc/netplan/60-own.yaml", "addresses:\n- 10.1.0.7/16\n"),
                file(
                    "/etc/sysconfig/network/ifcfg-eth1",
                    "CLOUD_NETCONFIG_MANAGE='yes'\n",
                ),
                file(
                    "/etc/sysconfig/network/ifcfg-eth2",
                    "CLOUD_NETCONFIG_MANAGE='no'\n",
                ),
            ],
            ..HostNetwork::default()
        };
        for (net, link, expected) in [
            (
                "10.1.0.6/16",
                "eth0",
                Configurer::CloudInit("/etc/netplan/50-cloud-init.yaml".into()),
            ),
            (
                "10.1.0.7/16",
                "eth0",
                Configurer::File("/etc/netplan/60-own.yaml".into()),
            ),
            ("10.1.0.5/16", "eth0", Configurer::Unknown),
            (
                "10.1.0.5/16",
                "eth1",
                Configurer::CloudNetconfig("/etc/sysconfig/network/ifcfg-eth1".into()),
            ),
            ("10.1.0.5/16", "eth2", Configurer::Unknown),
            ("10.1.0.6/32", "lo", Configurer::Loopback),
        ] {
            assert_eq!(
                host.configurer(&entry(net, link, false)),
                expected,
                "{net} {link}"
            );
        }
        let only = entry("10.1.0.7/16", "eth3", false);
        assert_eq!(host.configurer(&only), Configurer::Own);
    }
}
