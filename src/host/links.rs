//! Lists the network interfaces of the host.

use std::fs;
use std::io;
use std::path::Path;

use super::Paths;
use super::files::read_text;
use super::netlink::{self, Netlink, attribute, attributes, u16_at, u32_at};

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The kernel's number for it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its hardware address in lower-case hex without separators; empty when it has none.
    pub mac: String,
    /// Whether it is the loopback interface.
    pub loopback: bool,
    /// Whether another interface uses it (IFF_SLAVE), like the virtual function of accelerated
    /// networking. A port of a bridge does not count.
    pub enslaved: bool,
    /// Whether it is switched on (IFF_UP), with or without a cable.
    pub is_up: bool,
    /// The index of the link that it is a port of, such as a bridge.
    pub master: Option<u32>,
    /// The number (netnsid) of the network namespace of its other end, if that is another namespace.
    pub peer_namespace: Option<u32>,
    /// The permanent hardware address of the device, in the form of `mac`; empty if it has none.
    pub permanent_mac: String,
}

const IFF_UP: u32 = 0x1;
const IFF_LOOPBACK: u32 = 0x8;
const IFF_SLAVE: u32 = 0x800;

/// Lists all interfaces in the order of their index: those of the caller's network namespace, or
/// those in the folder `sys/class/net` below the root.
///
/// # Errors
/// The kernel does not answer, or the folder cannot be read.
pub fn links(paths: &Paths) -> io::Result<Vec<Link>> {
    let mut links = match paths.links() {
        Some(folder) => from_folder(&folder)?,
        None => from_kernel()?,
    };
    sort(&mut links);
    Ok(links)
}

fn sort(links: &mut [Link]) {
    links.sort_unstable_by(|a, b| (a.index, &a.name).cmp(&(b.index, &b.name)));
}

/// Lists the interfaces of these names that exist, in the order of their index. Unlike [`links`],
/// its cost does not grow with the number of other interfaces.
///
/// # Errors
/// As [`links`].
pub fn links_named(paths: &Paths, names: &[String]) -> io::Result<Vec<Link>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    if paths.links().is_some() {
        let mut all = links(paths)?;
        all.retain(|link| names.contains(&link.name));
        return Ok(all);
    }
    let netlink = Netlink::open()?;
    let mut found = Vec::new();
    for name in names {
        let mut request = link_request();
        request.extend(attribute(IFLA_IFNAME, &[name.as_bytes(), &[0]].concat()));
        let answer = netlink.ask(netlink::GET_LINK, &request)?;
        found.extend(answer.as_deref().and_then(parse_link));
    }
    sort(&mut found);
    Ok(found)
}

const INTERFACE_MESSAGE: usize = 16;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_LINK_NETNSID: u16 = 37;
/// Since Linux 5.6.
const IFLA_PERM_ADDRESS: u16 = 54;

fn from_kernel() -> io::Result<Vec<Link>> {
    Netlink::open()?.dump(netlink::GET_LINK, &link_request(), parse_link)
}

fn link_request() -> Vec<u8> {
    /// Leaves out the counters, which are most of the answer.
    const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
    let mut request = vec![0u8; INTERFACE_MESSAGE];
    let mask = RTEXT_FILTER_SKIP_STATS.to_ne_bytes();
    request.extend(attribute(IFLA_EXT_MASK, &mask));
    request
}

/// Parses the interface in a message.
fn parse_link(message: &[u8]) -> Option<Link> {
    const ARPHRD_LOOPBACK: u16 = 772;
    let device_type = u16_at(message, 2)?;
    let flags = u32_at(message, 8)?;
    let loopback = device_type == ARPHRD_LOOPBACK || flags & IFF_LOOPBACK != 0;
    let mut link = Link {
        index: u32_at(message, 4)?,
        loopback,
        enslaved: flags & IFF_SLAVE != 0,
        is_up: flags & IFF_UP != 0,
        ..Link::default()
    };
    for (kind, value) in attributes(message.get(INTERFACE_MESSAGE..)?) {
        match kind {
            // The kernel reports six zeros for the loopback interface; the original, no address.
            IFLA_ADDRESS if !loopback => link.mac = hex(value),
            IFLA_PERM_ADDRESS => link.permanent_mac = hex(value),
            IFLA_MASTER => link.master = u32_at(value, 0),
            IFLA_IFNAME => {
                let without_nul = value.strip_suffix(&[0]).unwrap_or(value);
                link.name = String::from_utf8_lossy(without_nul).into_owned();
            }
            IFLA_LINK_NETNSID => {
                link.peer_namespace = u32_at(value, 0).filter(|id| *id != u32::MAX);
            }
            _ => {}
        }
    }
    Some(link)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_folder(folder: &Path) -> io::Result<Vec<Link>> {
    let mut links = Vec::new();
    for entry in fs::read_dir(folder)? {
        let link_folder = entry?.path();
        let attribute_text = |attribute: &str| {
            let text = read_text(&link_folder.join(attribute)).unwrap_or_default();
            text.trim().to_owned()
        };
        let name = link_folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let flags_text = attribute_text("flags");
        let flags = u32::from_str_radix(flags_text.trim_start_matches("0x"), 16).unwrap_or(0);
        let loopback = flags & IFF_LOOPBACK != 0 || name == "lo";
        let mac = if loopback {
            String::new()
        } else {
            attribute_text("address").replace(':', "").to_lowercase()
        };
        links.push(Link {
            index: attribute_text("ifindex").parse().unwrap_or(u32::MAX),
            mac,
            loopback,
            enslaved: flags & IFF_SLAVE != 0,
            // Tests use the folder. Their links are up.
            is_up: true,
            name,
            ..Link::default()
        });
    }
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_lists_the_loopback_interface_first() {
        let links = from_kernel().unwrap();
        let lo = links.iter().find(|l| l.name == "lo").unwrap();
        assert!(lo.loopback && lo.mac.is_empty() && lo.index == 1);
        let names = ["lo".to_owned(), "no-such-link".to_owned()];
        let named = links_named(&Paths::new(None, "azure-vnet-ipam"), &names).unwrap();
        assert_eq!(named, std::slice::from_ref(lo));
        for other in links.iter().filter(|l| !l.loopback) {
            assert!(
                other.mac.len().is_multiple_of(2)
                    && other.mac.chars().all(|c| c.is_ascii_hexdigit()),
                "{other:?}"
            );
        }
    }

    #[test]
    fn folder_below_the_root_replaces_the_kernel() {
        let root = std::env::temp_dir().join(format!("links-{}", std::process::id()));
        for (name, index, flags, address) in [
            ("eth1", "3", "0x1803", "7C:1E:52:F9:F3:C5"),
            ("lo", "1", "0x9", "00:00:00:00:00:00"),
            ("eth0", "2", "0x1003", "7c:1e:52:f9:f3:c4"),
        ] {
            let folder = root.join("sys/class/net").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("ifindex"), format!("{index}\n")).unwrap();
            fs::write(folder.join("flags"), format!("{flags}\n")).unwrap();
            fs::write(folder.join("address"), format!("{address}\n")).unwrap();
        }
        let found = links(&Paths::new(Some(root.clone()), "azure-vnet-ipam")).unwrap();
        fs::remove_dir_all(root).unwrap();
        let facts: Vec<_> = found
            .iter()
            .map(|l| (l.name.as_str(), l.mac.as_str(), l.loopback, l.enslaved))
            .collect();
        assert_eq!(
            facts,
            [
                ("lo", "", true, false),
                ("eth0", "7c1e52f9f3c4", false, false),
                ("eth1", "7c1e52f9f3c5", false, true)
            ]
        );
    }
}
