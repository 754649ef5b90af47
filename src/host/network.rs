//! Reads addresses, routes, and network namespaces from the kernel.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Paths;
use super::files::open;
use super::netlink::{self, Netlink, attribute, attributes, u32_at};
use super::netns::{
    host_namespace_id, in_namespace, is_namespace, is_of_another_user_namespace, namespace_cookie,
    namespace_id, netns_cookie,
};
use crate::ipam::NetNs;

const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const ROUTE_MESSAGE: usize = 12;

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// The address.
    pub address: IpAddr,
    /// The length of its prefix.
    pub prefix_len: u8,
    /// The address of the other end of a point-to-point link, whose prefix it is then.
    pub peer: Option<IpAddr>,
    /// The kernel's number of the interface.
    pub link: u32,
    /// Whether it is removed together with another address of its subnet, which was there before.
    pub is_secondary: bool,
}

/// Lists the addresses of the host, with their interfaces. The list is empty when a list below a
/// root replaces the kernel's interfaces.
///
/// # Errors
/// The kernel does not answer.
pub fn host_addresses(paths: &Paths) -> io::Result<Vec<HostAddress>> {
    if !paths.is_this_host() {
        return Ok(Vec::new());
    }
    addresses(&Netlink::open()?)
}

/// Lists the addresses configured in the network namespace of the socket.
fn addresses(netlink: &Netlink) -> io::Result<Vec<HostAddress>> {
    let all_families = [AF_UNSPEC, 0, 0, 0, 0, 0, 0, 0];
    netlink.dump(netlink::GET_ADDRESS, &all_families, parse_address)
}

/// Returns whether the network namespace of a holder, which released an address `ago`, still has it, or cannot be examined. Returns
/// false where nothing or another namespace is at its path, and for the host's own namespace.
pub fn namespace_has(paths: &Paths, last: &NetNs, address: IpAddr, ago: Duration) -> bool {
    let id = match namespace_id(paths, &last.path) {
        Ok(Some(id)) => id,
        Ok(None) => return false,
        Err(_) => return last.id.is_some(),
    };
    let is_namespace = || open(&paths.under_root(&last.path)).map_or(true, |f| is_namespace(&f));
    let cookie = netns_cookie(paths, &last.path);
    // The kernel has such a number, so what prevents reading it is as good as a namespace that cannot be entered.
    let is_unknown = last.cookie.is_some() && cookie.is_none() && last.id == Some(id);
    let is_there = (is_unknown || last.is_still(id, cookie, ago))
        && is_namespace()
        && host_namespace_id(paths) != Some(id);
    let has_address = || {
        let found = addresses(&Netlink::open()?)?;
        Ok(found.iter().any(|found| found.address == address))
    };
    is_there && in_namespace(paths, &last.path, has_address).unwrap_or(true)
}

/// Parses an address message.
fn parse_address(message: &[u8]) -> Option<HostAddress> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const IFA_F_SECONDARY: u8 = 1;
    const FLAGS: usize = 2;
    const INDEX: usize = 4;
    const LENGTH: usize = 8;
    // On a point-to-point link, IFA_ADDRESS is the address of the other end.
    let mut local = None;
    let mut address = None;
    for (kind, value) in attributes(message.get(LENGTH..)?) {
        match kind {
            IFA_LOCAL => local = ip(value),
            IFA_ADDRESS => address = ip(value),
            _ => {}
        }
    }
    let peer = address.filter(|peer| local.is_some_and(|own| own != *peer));
    let address = local.or(address)?;
    let flags = *message.get(FLAGS)?;
    Some(HostAddress {
        address,
        peer,
        prefix_len: *message.get(1)?,
        link: u32_at(message, INDEX)?,
        is_secondary: address.is_ipv4() && flags & IFA_F_SECONDARY != 0,
    })
}

/// Lists the host's own addresses, and the addresses to which it has a route to that address alone
/// (/32, /128), in any table. The list is empty when a list below a root replaces the kernel's interfaces.
///
/// # Errors
/// The kernel does not answer.
pub fn host_routes(paths: &Paths) -> io::Result<BTreeSet<IpAddr>> {
    let routes = routes(paths)?.into_iter();
    let single = routes.filter(KernelRoute::is_to_one_address);
    Ok(single.map(|route| route.destination.addr()).collect())
}

/// A route of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRoute {
    /// Where it leads.
    pub destination: IpNet,
    /// Its type.
    pub kind: RouteKind,
    /// The number of its table.
    pub table: u32,
    /// The kernel's number of the link; `None` if it names none, or several.
    pub link: Option<u32>,
    /// The links, if it names several: packets take one of them by their addresses.
    pub links: Vec<u32>,
    /// Its metric, if it has one.
    pub metric: Option<u32>,
}

/// The type of a route, as ip-route(8) names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// To other hosts.
    Unicast,
    /// The addresses are the host's own.
    Local,
    /// Packets are discarded silently.
    Blackhole,
    /// Packets are discarded: the host is unreachable.
    Unreachable,
    /// Packets are discarded: communication is prohibited.
    Prohibit,
}

impl RouteKind {
    /// The kind of a route message's type (rtnetlink(7)); `None` for others, such as broadcast.
    fn from_type(kind: u8) -> Option<RouteKind> {
        Some(match kind {
            1 => RouteKind::Unicast,
            2 => RouteKind::Local,
            6 => RouteKind::Blackhole,
            7 => RouteKind::Unreachable,
            8 => RouteKind::Prohibit,
            _ => return None,
        })
    }
}

impl fmt::Display for RouteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RouteKind::Unicast => "unicast",
            RouteKind::Local => "local",
            RouteKind::Blackhole => "blackhole",
            RouteKind::Unreachable => "unreachable",
            RouteKind::Prohibit => "prohibit",
        })
    }
}

impl KernelRoute {
    /// The number of the table that commands show and change if they name none.
    pub const MAIN_TABLE: u32 = 254;
    /// The number of the table that the kernel asks first.
    pub const LOCAL_TABLE: u32 = 255;

    /// Whether it leads to a single address of another host or of this host.
    pub fn is_to_one_address(&self) -> bool {
        let is_single = self.destination.prefix_len() == self.destination.max_prefix_len();
        is_single && matches!(self.kind, RouteKind::Unicast | RouteKind::Local)
    }

    /// The links that it names, one or several.
    pub fn all_links(&self) -> impl Iterator<Item = u32> {
        self.link.iter().chain(&self.links).copied()
    }

    /// Parses a route message; `None` for other types, such as broadcast.
    fn parse(message: &[u8]) -> Option<KernelRoute> {
        const RTA_PRIORITY: u16 = 6;
        const RTA_MULTIPATH: u16 = 9;
        const RTA_TABLE: u16 = 15;
        const TABLE: usize = 4;
        const TYPE: usize = 7;
        let kind = RouteKind::from_type(*message.get(TYPE)?)?;
        let mut destination = match *message.first()? {
            AF_INET => IpAddr::from([0; 4]),
            _ => IpAddr::from([0; 16]),
        };
        let mut route = KernelRoute {
            destination: destination.into(),
            kind,
            table: u32::from(*message.get(TABLE)?),
            link: None,
            links: Vec::new(),
            metric: None,
        };
        for (kind, value) in attributes(message.get(ROUTE_MESSAGE..)?) {
            match kind {
                RTA_DST => destination = ip(value)?,
                // The number in the header has one byte.
                RTA_TABLE => route.table = u32_at(value, 0)?,
                RTA_OIF => route.link = u32_at(value, 0),
                RTA_PRIORITY => route.metric = u32_at(value, 0),
                RTA_MULTIPATH => route.links = next_hops(value),
                _ => {}
            }
        }
        route.destination = IpNet::new(destination, *message.get(1)?).ok()?;
        Some(route)
    }
}

/// The links of the next hops of a route (`rtnexthop` in rtnetlink(7)).
fn next_hops(mut hops: &[u8]) -> Vec<u32> {
    const LINK: usize = 4;
    let mut found = Vec::new();
    while let (Some(length), Some(link)) = (hops.first_chunk(), u32_at(hops, LINK)) {
        found.push(link);
        let length = usize::from(u16::from_ne_bytes(*length)).max(2 * LINK);
        // Each begins at a multiple of 4 bytes.
        hops = hops.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// Lists the routes of the host in all tables. The list is empty when a list below a root replaces the kernel's interfaces.
///
/// # Errors
/// The kernel does not answer.
pub fn routes(paths: &Paths) -> io::Result<Vec<KernelRoute>> {
    const ROUTE_FLAGS: usize = 8;
    const RTM_F_CLONED: u32 = 0x200;
    let mut all = Vec::new();
    if !paths.is_this_host() {
        return Ok(all);
    }
    let netlink = Netlink::open()?;
    for family in [AF_INET, AF_INET6] {
        let mut request = [0u8; ROUTE_MESSAGE];
        request[0] = family;
        // Exceptions, as for a path with a smaller MTU, are no routes.
        let parse = |message: &[u8]| {
            let is_exception = u32_at(message, ROUTE_FLAGS)? & RTM_F_CLONED != 0;
            KernelRoute::parse(message).filter(|_| !is_exception)
        };
        all.extend(netlink.dump(netlink::GET_ROUTE, &request, parse)?);
    }
    Ok(all)
}

/// Returns the route that the kernel uses to an address, as it is in its table; `None` if it has none, or a `blackhole` or `unreachable`
/// one.
///
/// # Errors
/// The kernel does not answer, or a route or rule of type `prohibit` applies.
pub fn matching_route(address: IpAddr) -> io::Result<Option<KernelRoute>> {
    let answer = ask_route(address, MATCHING_ENTRY)?;
    Ok(answer.and_then(|message| KernelRoute::parse(&message)))
}

/// Returns the route that the kernel uses to an address for packets from one of its own; `None` if it has none, or a `blackhole` or
/// `unreachable` one.
///
/// # Errors
/// The kernel does not answer, `from` is not its own, or a route or rule of type `prohibit` applies.
pub fn matching_route_from(from: IpAddr, to: IpAddr) -> io::Result<Option<KernelRoute>> {
    let request = route_request(to, MATCHING_ENTRY, Some(from), None);
    let answer = Netlink::open()?.ask(netlink::GET_ROUTE, &request)?;
    Ok(answer.and_then(|message| KernelRoute::parse(&message)))
}

/// Returns the type of the route or rule that discards packets to an address; `None` if none does. Sends nothing.
pub fn discarding_kind(address: IpAddr) -> Option<RouteKind> {
    let anywhere = match address {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(_) => IpAddr::from([0; 16]),
    };
    let socket = UdpSocket::bind((anywhere, 0)).ok()?;
    match socket.connect((address, 80)).err()?.raw_os_error()? {
        libc::EINVAL => Some(RouteKind::Blackhole),
        libc::EHOSTUNREACH => Some(RouteKind::Unreachable),
        libc::EACCES => Some(RouteKind::Prohibit),
        _ => None,
    }
}

/// Returns whether the host itself has the address, or a route to this address alone. Such an
/// address is one of [`host_routes`], but the cost of this call does not grow with their number.
///
/// # Errors
/// The kernel does not answer.
pub fn host_has(paths: &Paths, address: IpAddr) -> io::Result<bool> {
    if !paths.is_this_host() {
        return Ok(false);
    }
    let route = matching_route(address)?;
    Ok(route.is_some_and(|route| route.is_to_one_address()))
}

/// Returns the route by which the kernel forwards a packet that comes from an address by a link; `None` if it discards the packet, because
/// a route or rule says so, or none leads on. Sends nothing.
///
/// # Errors
/// The kernel does not answer, the link is gone, or the kernel takes the address for a forged one. Since Linux 6.13 that has the same error
/// as a route or rule of type `blackhole`.
pub fn forwarding_route(from: IpAddr, link: u32, to: IpAddr) -> io::Result<Option<KernelRoute>> {
    let request = route_request(to, MATCHING_ENTRY, Some(from), Some(link));
    let answer = Netlink::open()?.request(netlink::GET_ROUTE, &request);
    match answer.as_ref().map_err(io::Error::raw_os_error) {
        Err(Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES)) => Ok(None),
        _ => answer.map(|message| KernelRoute::parse(&message)),
    }
}

/// Returns an address of the same family as `like` in another network. It is reserved for documentation.
pub fn outside(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::from([192, 0, 2, 1]),
        IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1]),
    }
}

/// Requests the entry of the table (RTM_F_FIB_MATCH) and the number of the table (RTM_F_LOOKUP_TABLE) instead of the resolved route.
const MATCHING_ENTRY: u32 = 0x2000 | 0x1000;

/// Asks for the route to an address from the network namespace of the caller; `None` if it has none.
fn ask_route(to: IpAddr, flags: u32) -> io::Result<Option<Vec<u8>>> {
    let request = route_request(to, flags, None, None);
    Netlink::open()?.ask(netlink::GET_ROUTE, &request)
}

/// The request for the route of a packet: of one that comes by a link, or else of one of this host.
fn route_request(to: IpAddr, flags: u32, from: Option<IpAddr>, by: Option<u32>) -> Vec<u8> {
    const RTA_SRC: u16 = 2;
    const RTA_IIF: u16 = 3;
    let (family, bytes) = address_bytes(to);
    let bits = u8::try_from(bytes.len() * 8).unwrap_or(u8::MAX);
    let from_bits = if from.is_some() { bits } else { 0 };
    let mut request = vec![family, bits, from_bits, 0, 0, 0, 0, 0];
    request.extend(flags.to_ne_bytes());
    request.extend(attribute(RTA_DST, &bytes));
    if let Some(from) = from {
        request.extend(attribute(RTA_SRC, &address_bytes(from).1));
    }
    if let Some(link) = by {
        request.extend(attribute(RTA_IIF, &link.to_ne_bytes()));
    }
    request
}

/// The kernel's number for the family of an address, and the address.
fn address_bytes(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AF_INET6, v6.octets().to_vec()),
    }
}

/// The route that the kernel would use to an address.
pub struct Route {
    /// The gateway, unless the link leads there directly.
    pub gateway: Option<IpAddr>,
    /// The address that it sends from.
    pub source: Option<IpAddr>,
}

impl Route {
    /// Returns the route from the calling thread's namespace to an outside address of the same
    /// family as `like`, if it has one.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn to_the_outside(like: IpAddr) -> io::Result<Option<Route>> {
        const RTA_GATEWAY: u16 = 5;
        const RTA_PREFSRC: u16 = 7;
        let Some(message) = ask_route(outside(like), 0)? else {
            return Ok(None);
        };
        let mut route = Route {
            gateway: None,
            source: None,
        };
        for (kind, value) in attributes(message.get(ROUTE_MESSAGE..).unwrap_or_default()) {
            match kind {
                RTA_GATEWAY => route.gateway = ip(value),
                RTA_PREFSRC => route.source = ip(value),
                _ => {}
            }
        }
        Ok(Some(route))
    }
}

/// Enters network namespaces one after another, and lists their addresses.
pub struct NetnsScanner {
    /// A socket in the namespace that the scanner comes from.
    home: Netlink,
    /// Device and inode of the scanner's user namespace, where they are known.
    users: Option<(u64, u64)>,
}

/// The contents of a network namespace.
pub struct NamespaceContents {
    /// The number (netnsid) by which the host knows it. A link names its other end by this number.
    pub number: Option<u32>,
    /// The kernel's cookie of it, unique within a boot; `None` where the kernel does not report it.
    pub cookie: Option<u64>,
    /// The addresses configured in it.
    pub addresses: BTreeSet<IpAddr>,
    /// Whether it belongs to another user namespace than the scanner's. Any user may create one.
    pub is_of_other_users: bool,
}

impl NetnsScanner {
    /// Opens a socket in the namespace of the caller.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(paths: &Paths) -> io::Result<NetnsScanner> {
        Ok(NetnsScanner {
            home: Netlink::open()?,
            users: namespace_id(paths, "/proc/self/ns/user").ok().flatten(),
        })
    }

    /// Enters the network namespace that `file` is, and lists its contents. The calling thread
    /// stays there, so it should do nothing else.
    ///
    /// # Errors
    /// It is not a network namespace, it may not be entered, or the kernel does not answer.
    pub fn scan(&self, file: &File) -> io::Result<NamespaceContents> {
        const NETNSA_FD: u16 = 3;
        let mut request = vec![0u8; GENERIC_MESSAGE];
        request.extend(attribute(NETNSA_FD, &file.as_raw_fd().to_ne_bytes()));
        let answer = self
            .home
            .ask(netlink::GET_NAMESPACE_ID, &request)?
            .unwrap_or_default();
        // Must be known before this thread moves: the number depends on the namespace that asks.
        let number = namespace_number(&answer);
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        let inside = Netlink::open()?;
        Ok(NamespaceContents {
            number,
            cookie: inside.namespace_cookie(),
            addresses: addresses(&inside)?.iter().map(|a| a.address).collect(),
            is_of_other_users: self
                .users
                .is_some_and(|own| is_of_another_user_namespace(file, own)),
        })
    }

    /// Lists the numbers of all namespaces that the host knows. It knows a namespace, for example,
    /// after a link was moved there.
    ///
    /// # Errors
    /// The kernel does not list them.
    pub fn numbers(&self) -> io::Result<BTreeSet<u32>> {
        let request = [0; GENERIC_MESSAGE];
        let numbers = self
            .home
            .dump(netlink::GET_NAMESPACE_ID, &request, namespace_number)?;
        Ok(numbers.into_iter().collect())
    }

    /// Returns whether the kernel still lets the namespace of this number be used.
    pub fn is_live(&self, number: u32) -> bool {
        let mut request = vec![0u8; GENERIC_MESSAGE];
        request.extend(attribute(NETNSA_NSID, &number.to_ne_bytes()));
        matches!(
            self.home.ask(netlink::GET_NAMESPACE_ID, &request),
            Ok(Some(_))
        )
    }

    /// Returns whether `path` leads to a namespace with another cookie. An inode alone does not
    /// show that, because inodes are reused. False where the kernel does not report cookies.
    pub fn is_another(path: &Path, cookie: Option<u64>) -> bool {
        let Some(expected) = cookie else {
            return false;
        };
        open(path)
            .ok()
            .and_then(|file| namespace_cookie(&file))
            .is_some_and(|found| found != expected)
    }
}

const NETNSA_NSID: u16 = 1;
const GENERIC_MESSAGE: usize = 4;

/// Parses the number of a namespace in a message; `None` where it has none.
fn namespace_number(message: &[u8]) -> Option<u32> {
    let (_, value) =
        attributes(message.get(GENERIC_MESSAGE..)?).find(|(kind, _)| *kind == NETNSA_NSID)?;
    u32_at(value, 0).filter(|number| *number != u32::MAX)
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(v4));
    }
    let v6 = <[u8; 16]>::try_from(bytes).ok()?;
    Some(IpAddr::from(v6).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_address_is_configured_and_the_hosts_own() {
        let lo: IpAddr = "127.0.0.1".parse().unwrap();
        let paths = Paths::new(None, "azure-vnet-ipam");
        let configured = host_addresses(&paths).unwrap();
        assert!(configured.iter().any(|found| found.address == lo));
        assert!(host_routes(&paths).unwrap().contains(&lo));
        assert!(host_has(&paths, lo).unwrap());
        for other in ["198.51.100.7", "2001:db8::7"] {
            assert!(!host_has(&paths, other.parse().unwrap()).unwrap());
        }
    }

    #[test]
    fn a_namespace_that_cannot_be_examined_may_have_the_address() {
        let paths = Paths::new(None, "azure-vnet-ipam");
        let own = namespace_id(&paths, "/proc/self/ns/net").unwrap();
        let file = namespace_id(&paths, "/dev/null").unwrap();
        let too_long = "x".repeat(5000);
        for (path, id, expected) in [
            (&*too_long, Some((4, 77)), true),
            // It never was a namespace.
            (&too_long, None, false),
            ("/nowhere", Some((4, 77)), false),
            ("/dev/null", file, false),
            ("/proc/self/ns/net", own, false),
        ] {
            let last = NetNs {
                path: path.into(),
                id,
                cookie: None,
            };
            let lo = "127.0.0.1".parse().unwrap();
            let found = namespace_has(&paths, &last, lo, Duration::ZERO);
            assert_eq!(found, expected, "{path:.30} {id:?}");
        }
    }

    #[test]
    fn file_that_is_not_a_namespace_is_an_error() {
        let scanner = NetnsScanner::new(&Paths::new(None, "azure-vnet-ipam")).unwrap();
        assert!(scanner.scan(&File::open("/dev/null").unwrap()).is_err());
    }
}
