//! Evidence E2: the state of the main plugin azure-vnet (contract section 19).
//!
//! An endpoint may be orphaned. It counts only while its network namespace exists, found by its
//! path or by its link on the host.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::reader::{addresses, find_namespace, named_namespace};
use crate::codec::{self, object};
use crate::host::{
    Link, Paths, ReadOutcome, host_has, io_reason, links, links_named, read_bounded,
};
use crate::ipam::{Attachment, Entry, EvidenceList, Holder, Kernel};

/// Larger files are not read.
const LIMIT: usize = 16 << 20;

/// Reads the state file of azure-vnet.
pub fn read(paths: &Paths, kernel: &Kernel) -> EvidenceList {
    let path = paths.azure_vnet();
    let unreadable = |why: String| EvidenceList::Unreadable(format!("{}: {why}", path.display()));
    let bytes = match read_bounded(&path, LIMIT) {
        Ok(ReadOutcome::Read(bytes)) => bytes,
        Ok(ReadOutcome::Missing) => return EvidenceList::Absent,
        Ok(ReadOutcome::TooLarge) => return unreadable(format!("it is larger than {LIMIT} bytes")),
        Err(e) => return unreadable(io_reason(&e)),
    };
    // azure-vnet itself reads an empty file as an empty state.
    let json: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
    let endpoints = match parse(json) {
        Ok(endpoints) => endpoints,
        Err(e) => return unreadable(e.to_string()),
    };
    let links = match links(paths) {
        Ok(links) => links,
        Err(e) => return unreadable(format!("the interfaces of the host: {}", io_reason(&e))),
    };
    EvidenceList::Read {
        entries: to_entries(&endpoints, paths, kernel, &links),
        doubtful: Vec::new(),
    }
}

/// Returns whether azure-vnet has a connected endpoint of this container with this address. The
/// host then has the link of the endpoint. In transparent mode it also has a route to the address.
///
/// A DEL for the address of a connected endpoint does not end the pod. When azure-vnet gets a
/// second ADD for a container, the second endpoint fails, and azure-vnet releases the address of
/// the first (contract section 19).
///
/// When a pod ends, azure-vnet v1.4.59 removes the endpoint from its state before the DEL. Newer
/// versions remove it after the DEL, but they remove the link or the route before it.
pub fn is_connected(paths: &Paths, container_id: &str, address: IpAddr) -> bool {
    let Ok(ReadOutcome::Read(bytes)) = read_bounded(&paths.azure_vnet(), LIMIT) else {
        return false;
    };
    // A search is cheaper than parsing, and is enough for most calls.
    if container_id.is_empty() || !String::from_utf8_lossy(&bytes).contains(container_id) {
        return false;
    }
    let endpoints = parse(&bytes).unwrap_or_default();
    endpoints.iter().any(|endpoint| {
        endpoint.container_id == container_id
            && endpoint.addresses().contains(&address)
            && endpoint.is_up(paths, address)
    })
}

/// Converts the endpoints to entries, and determines which of them are live.
fn to_entries(
    endpoints: &[Endpoint],
    paths: &Paths,
    kernel: &Kernel,
    links: &[Link],
) -> Vec<Entry> {
    let mut entries: Vec<_> = endpoints.iter().map(Endpoint::to_entry).collect();
    for entry in &mut entries {
        entry.is_live = find_namespace(paths, kernel, entry);
    }
    let found_by_path: BTreeSet<_> = entries
        .iter()
        .filter(|entry| entry.is_live)
        .filter_map(|entry| entry.holder.netns.as_ref()?.id)
        .collect();
    for (entry, endpoint) in entries.iter_mut().zip(endpoints) {
        let Some(link) = links.iter().find(|link| link.name == endpoint.host_if_name) else {
            continue;
        };
        entry.may_be_hidden = true;
        let Some(id) = link.peer_namespace.and_then(|n| kernel.numbers.get(&n)) else {
            continue;
        };
        // azure-vnet derives the link's name from the pod's name. So a recreated pod has the link
        // name of its predecessor.
        if found_by_path.contains(id) || !kernel.may_be_of(*id, &entry.addresses) {
            continue;
        }
        entry.is_live = true;
        // The path of the namespace may have been removed already.
        if let Some(netns) = &mut entry.holder.netns
            && netns.id.is_none()
        {
            netns.id = Some(*id);
            netns.cookie = kernel.cookies.get(id).copied();
        }
    }
    entries
}

/// An endpoint of azure-vnet, with its network.
#[derive(Debug, Default)]
pub struct Endpoint {
    network: String,
    /// The mode of the network, such as `bridge`.
    mode: String,
    id: String,
    container_id: String,
    pod: String,
    pod_namespace: String,
    netns: String,
    host_if_name: String,
    nets: Vec<IpNet>,
}

object! { exact read Endpoint {
    "ContainerID": container_id,
    "PODName": pod,
    "PODNameSpace": pod_namespace,
    "NetworkNameSpace": netns,
    "HostIfName": host_if_name,
    "IPAddresses": nets,
} }

object! { exact read
    /// Go's `net.IPNet`.
    #[derive(Debug, Default)]
    struct IpNet { "IP": ip: String, }
}

object! { exact read
    #[derive(Default)]
    struct Document { "Network": network: NetworkManager, }
}

object! { exact read
    #[derive(Default)]
    struct NetworkManager { "ExternalInterfaces": interfaces: BTreeMap<String, ExternalInterface>, }
}

object! { exact read
    #[derive(Default)]
    struct ExternalInterface { "Networks": networks: BTreeMap<String, Network>, }
}

object! { exact read
    #[derive(Default)]
    struct Network {
        "Mode": mode: String,
        "Endpoints": endpoints: BTreeMap<String, Endpoint>,
    }
}

/// Parses the state of azure-vnet. Any value may be `null`.
///
/// # Errors
/// The text is not JSON, or a value has the wrong type.
pub fn parse(json: &[u8]) -> Result<Vec<Endpoint>, codec::Error> {
    let document: Document = codec::parse(json)?;
    let mut found = Vec::new();
    for interface in document.network.interfaces.into_values() {
        for (name, network) in interface.networks {
            for (id, endpoint) in network.endpoints {
                found.push(Endpoint {
                    network: name.clone(),
                    mode: network.mode.clone(),
                    id,
                    ..endpoint
                });
            }
        }
    }
    Ok(found)
}

impl Endpoint {
    /// Returns whether the host has the link of the endpoint, and in transparent mode also the
    /// route to the address.
    fn is_up(&self, paths: &Paths, address: IpAddr) -> bool {
        match self.mode.as_str() {
            "bridge" | "tunnel" => self.has_link(paths),
            // In this mode the link stays until the network namespace is removed.
            "transparent" => self.has_link(paths) && host_has(paths, address).unwrap_or(false),
            _ => false,
        }
    }

    /// Returns whether the link of the endpoint is on the host.
    fn has_link(&self, paths: &Paths) -> bool {
        if self.host_if_name.is_empty() {
            return false;
        }
        let names = std::slice::from_ref(&self.host_if_name);
        links_named(paths, names).is_ok_and(|links| !links.is_empty())
    }

    fn addresses(&self) -> Vec<IpAddr> {
        addresses(self.nets.iter().map(|net| &*net.ip))
    }

    fn to_entry(&self) -> Entry {
        // The ID of an endpoint is the first 8 characters of the container ID, a dash, and the
        // interface. The state has the interface nowhere else.
        let start = self.container_id.get(..8).unwrap_or(&self.container_id);
        let if_name = self
            .id
            .strip_prefix(start)
            .and_then(|rest| rest.strip_prefix('-'));
        Entry {
            holder: Holder {
                attachment: Attachment {
                    network: (&self.network).into(),
                    container_id: self.container_id.clone(),
                    if_name: if_name.unwrap_or_default().into(),
                },
                pod: self.pod_name(),
                netns: named_namespace(self.netns.clone()),
                ..Holder::default()
            },
            addresses: self.addresses(),
            ..Entry::default()
        }
    }

    /// Returns `namespace/name` of the pod, or its name alone where the namespace is unknown.
    fn pod_name(&self) -> Option<String> {
        match (self.pod_namespace.as_str(), self.pod.as_str()) {
            (_, "") => None,
            ("", pod) => Some(pod.to_owned()),
            (namespace, pod) => Some(format!("{namespace}/{pod}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::stat;

    const STATE: &str = r#"{"Network":{"Version":"v1.4.59","ExternalInterfaces":{"eth0":{"Name":"eth0","Networks":{"azure":{"Id":"azure","Endpoints":{"c1c1c1c1-eth0":{"Id":"c1c1c1c1-eth0","ContainerID":"c1c1c1c1c1","IfName":"azv0123456789a2","HostIfName":"azv0123456789a","IPAddresses":[{"IP":"10.224.0.5","Mask":"//8AAA=="}],"NetworkNameSpace":"/var/run/netns/x","PODName":"web-0","PODNameSpace":"default","SecondaryInterfaces":null}}}}}}}}"#;

    /// Returns the entry of the endpoint above. With `has_successor`, the state has another
    /// endpoint too.
    fn entry(paths: &Paths, kernel: &Kernel, links: &[Link], has_successor: bool) -> Entry {
        let mut endpoints = parse(STATE.as_bytes()).unwrap();
        if has_successor {
            let mut successor = parse(STATE.as_bytes()).unwrap().remove(0);
            successor.container_id = "c2".into();
            successor.netns = "/var/run/netns/y".into();
            endpoints.push(successor);
        }
        to_entries(&endpoints, paths, kernel, links).remove(0)
    }

    /// Returns the root of a node, its paths, and the device and inode of a file at the path of a
    /// network namespace.
    fn node(name: &str, netns: &str) -> (std::path::PathBuf, Paths, (u64, u64)) {
        let root = std::env::temp_dir().join(format!("azure-vnet-{name}-{}", std::process::id()));
        let folder = root.join("var/run/netns");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(netns), "").unwrap();
        let stat = stat(folder.join(netns)).unwrap();
        let paths = Paths::new(Some(root.clone()), "azure-vnet-ipam");
        (root, paths, (stat.st_dev, stat.st_ino))
    }

    #[test]
    fn interface_follows_start_of_container_id() {
        for (id, container_id, expected) in [
            ("c1c1c1c1-eth0", "c1c1c1c1c1", "eth0"),
            ("cnitool--eth0", "cnitool-0123", "eth0"),
            ("c1-net-1", "c1", "net-1"),
            ("c2c2c2c2-eth0", "c1c1c1c1c1", ""),
        ] {
            let mut endpoint = parse(STATE.as_bytes()).unwrap().remove(0);
            endpoint.id = id.into();
            endpoint.container_id = container_id.into();
            let holder = endpoint.to_entry().holder;
            assert_eq!(holder.attachment.if_name, expected, "{id}");
        }
    }

    #[test]
    fn endpoint_is_live_while_its_namespace_exists() {
        let (root, paths, id) = node("live", "x");
        let mut kernel = Kernel::default();
        let holder = entry(&paths, &kernel, &[], false).holder;
        assert_eq!(holder.attachment.if_name, "eth0");
        assert_eq!(holder.pod.as_deref(), Some("default/web-0"));
        let is_live = |kernel: &Kernel| entry(&paths, kernel, &[], false).is_live;
        assert!(!is_live(&kernel), "a file is not a namespace");
        kernel.namespaces.insert(id);
        assert!(is_live(&kernel));
        kernel.host = Some(id);
        assert!(!is_live(&kernel), "the host's namespace");
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn link_proves_endpoint_only_if_namespace_can_be_its_own() {
        let (root, paths, id) = node("link", "y");
        let link = |name: &str, peer_namespace| Link {
            name: name.into(),
            peer_namespace,
            ..Link::default()
        };
        let kernel = |own: &[&str]| Kernel {
            namespaces: [id].into(),
            numbers: [(7, id)].into(),
            addresses_by_namespace: [(id, own.iter().map(|a| a.parse().unwrap()).collect())].into(),
            ..Kernel::default()
        };
        let peer = link("azv0123456789a", Some(7));
        let is_live = |kernel: &Kernel, link: &Link, has_successor| {
            entry(&paths, kernel, std::slice::from_ref(link), has_successor).is_live
        };
        let found = entry(&paths, &kernel(&[]), std::slice::from_ref(&peer), false);
        assert!(found.is_live);
        assert_eq!(found.holder.netns.unwrap().id, Some(id));
        assert!(is_live(&kernel(&["10.224.0.5"]), &peer, false));
        assert!(!is_live(&kernel(&["10.224.0.6"]), &peer, false));
        assert!(!is_live(&kernel(&[]), &peer, true), "the successor's link");
        for (other, may_be_hidden) in [
            (link("azv0123456789a", None), true),
            (link("azv0123456789a", Some(8)), true),
            (link("azv0123456789a2", Some(7)), false),
        ] {
            let found = entry(&paths, &kernel(&[]), std::slice::from_ref(&other), false);
            assert!(!found.is_live, "{other:?}");
            assert_eq!(found.may_be_hidden, may_be_hidden, "{other:?}");
        }
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn endpoint_is_connected_until_azure_vnet_removes_its_link() {
        let (root, paths, _) = node("up", "z");
        let link = root.join("sys/class/net/azv0123456789a");
        std::fs::create_dir_all(&link).unwrap();
        let is_up = |mode: &str, container_id: &str, last: u8| {
            let with_mode = format!(r#""Id":"azure","Mode":"{mode}""#);
            let state = STATE.replace(r#""Id":"azure""#, &with_mode);
            std::fs::write(paths.azure_vnet(), state).unwrap();
            is_connected(&paths, container_id, [10, 224, 0, last].into())
        };
        for mode in ["bridge", "tunnel"] {
            assert!(is_up(mode, "c1c1c1c1c1", 5), "{mode}");
            assert!(!is_up(mode, "c1c1c1c1c1", 6), "another address");
            assert!(!is_up(mode, "c1c1c1c1", 5), "another container");
            assert!(!is_up(mode, "", 5), "no container");
        }
        // Routes are not read below another root. tests/it/genuine_azure_vnet.rs tests them.
        for mode in ["transparent", "transparent-vlan", ""] {
            assert!(!is_up(mode, "c1c1c1c1c1", 5), "{mode}");
        }
        std::fs::remove_dir(link).unwrap();
        assert!(!is_up("bridge", "c1c1c1c1c1", 5), "its link is gone");
        std::fs::write(paths.azure_vnet(), "{ c1c1c1c1c1").unwrap();
        assert!(!is_connected(&paths, "c1c1c1c1c1", [10, 224, 0, 5].into()));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn invalid_document_is_an_error_and_empty_one_has_no_endpoints() {
        for bad in [
            "",
            "[]",
            "{",
            r#"{"Network":[]}"#,
            r#"{"Network":{"ExternalInterfaces":7}}"#,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        for empty in [
            "{}",
            "null",
            r#"{"Network":null}"#,
            r#"{"Network":{"ExternalInterfaces":{"eth0":{"Networks":null}}}}"#,
        ] {
            assert!(parse(empty.as_bytes()).unwrap().is_empty(), "{empty}");
        }
    }
}
