//! The links of this host and the addresses on them: what keeps its packets, and those of pods, from Azure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::host_network::{HostEntry, HostNetwork, lacks_ipv6};
use super::host_routes::{restore_default_route, routes_through_host, subnets};
use super::inspection::Inspection;
use super::source::is_listed;
use crate::host::{Link, Paths};
use crate::ipam::{Pool, Record, Usage};
use crate::ops::conf_file::Plugin;
use crate::ops::finding::{Finding, FindingKind, Severity};
use crate::ops::node::Node;
use crate::ops::screen::join_first;
use crate::source::{MatchedListing, PrimaryAddress};

/// Examines the links, and the addresses on them.
pub fn examine(node: &Node, inspection: &Inspection) -> Vec<Finding> {
    let mut found = links_down(node, inspection);
    found.extend(missing_links(inspection));
    found.extend(missing_primaries(node.paths(), inspection));
    found.extend(behind_two_links(node.paths(), inspection));
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

/// Interfaces in whose subnets the host has no address, while no source names it: without the address, the source is not reached.
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
        // A list below a root replaces the links, and no address is known.
        if host.entries.is_empty() || host.link(link).is_none() || has_address(&subnets) {
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

/// Interfaces of pools with pods that are gone, such as one that was detached in Azure, and the primary one while the source does not
/// answer. What the source lists for an interface that is not on the host is another finding.
fn missing_links(inspection: &Inspection) -> Vec<Finding> {
    let host = &inspection.host;
    // A list below a root replaces the links.
    if host.links.is_empty() {
        return Vec::new();
    }
    let is_missing = |key: &str, pool: &Pool| {
        let is_needed = match inspection.matched() {
            Some(matched) => pool.in_use() && !is_listed(matched, key, pool),
            None => pool.in_use() || pool.priority == 0,
        };
        is_needed && !pool.if_name.is_empty() && host.link(&pool.if_name).is_none()
    };
    let mut missing = BTreeSet::new();
    for (_, key, pool) in inspection.state.ipam().pools() {
        if is_missing(key, pool) {
            missing.insert(&*pool.if_name);
        }
    }
    missing.into_iter().map(|link| gone(host, link)).collect()
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
    let remedy = "no packet leaves the node by it: find out what removed or renamed it (`journalctl -k`), which program moved it into a network namespace, or whether it was detached in Azure; attach it again, or restart the node";
    Finding::error(FindingKind::Interface, &text, &remedy).about(link)
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
