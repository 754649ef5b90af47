//! E2: the state of the main plugin azure-vnet (contract section 19). Its endpoints may be orphans, so one counts only while
//! its network namespace exists, which its path or its link on the host leads to.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::namespace::find_namespace;
use crate::codec::{self, Cursor, Members, ParseError, is, read_address};
use crate::host::{Link, Paths, ReadOutcome, io_reason, links, read_bounded};
use crate::ipam::{Entry, EvidenceList, Kernel, NetNs};

/// Larger files are not read.
const LIMIT: usize = 16 << 20;

/// Reads the file.
pub fn read(paths: &Paths, kernel: &Kernel) -> EvidenceList {
    let path = paths.azure_vnet();
    let unreadable = |why: String| EvidenceList::Unreadable(format!("{}: {why}", path.display()));
    let bytes = match read_bounded(&path, LIMIT) {
        Ok(ReadOutcome::Read(bytes)) => bytes,
        Ok(ReadOutcome::Missing) => return EvidenceList::Absent,
        Ok(ReadOutcome::TooLarge) => return unreadable(format!("it is larger than {LIMIT} bytes")),
        Err(e) => return unreadable(io_reason(&e)),
    };
    // As the original reads its own state: nothing in the file means nothing known.
    if bytes.is_empty() {
        return EvidenceList::Read {
            entries: Vec::new(),
            doubtful: Vec::new(),
        };
    }
    let endpoints = match parse(&bytes) {
        Ok(endpoints) => endpoints,
        Err(e) => return unreadable(e.to_string()),
    };
    let links = match links(paths) {
        Ok(links) => links,
        Err(e) => return unreadable(format!("the interfaces of the host: {}", io_reason(&e))),
    };
    EvidenceList::Read {
        entries: entries(endpoints, paths, kernel, &links),
        doubtful: Vec::new(),
    }
}

/// What the endpoints say, and which of them stand.
fn entries(endpoints: Vec<Endpoint>, paths: &Paths, kernel: &Kernel, links: &[Link]) -> Vec<Entry> {
    let host_links: Vec<String> = endpoints.iter().map(|e| e.host_link.clone()).collect();
    let mut entries: Vec<_> = endpoints.into_iter().map(Endpoint::entry).collect();
    for entry in &mut entries {
        entry.is_live = find_namespace(paths, kernel, entry);
    }
    let named = entries
        .iter()
        .filter(|entry| entry.is_live)
        .filter_map(|entry| entry.netns.as_ref()?.id);
    let named: BTreeSet<_> = named.collect();
    for (entry, name) in entries.iter_mut().zip(host_links) {
        // A name is made of those of the pod, so that a pod that was created again has its predecessor's.
        let link = links.iter().find(|link| link.name == name);
        let id = link.and_then(|link| kernel.numbers.get(&link.peer_namespace?));
        entry.is_live |=
            id.is_some_and(|id| !named.contains(id) && kernel.may_be_of(*id, &entry.addresses));
    }
    entries
}

/// An endpoint of azure-vnet, with the network it is in.
#[derive(Debug, Default)]
pub struct Endpoint {
    network: String,
    id: String,
    container_id: String,
    pod: String,
    pod_namespace: String,
    netns: String,
    host_link: String,
    addresses: Vec<IpAddr>,
}

/// Reads azure-vnet's document.
///
/// # Errors
/// It is not JSON, or something in it has the wrong type.
pub fn parse(json: &[u8]) -> Result<Vec<Endpoint>, codec::Error> {
    let mut said = Top::default();
    codec::read(json, &mut said)?;
    let networks = said
        .network
        .interfaces
        .into_iter()
        .flat_map(|(_, interface)| interface.networks);
    let endpoints = networks.flat_map(|(name, network)| {
        let named = move |(id, endpoint): (String, Endpoint)| Endpoint {
            network: name.clone(),
            id,
            ..endpoint
        };
        network.endpoints.into_iter().map(named)
    });
    Ok(endpoints.collect())
}

impl Endpoint {
    fn entry(self) -> Entry {
        let said = |text: String| Some(text).filter(|t| !t.is_empty());
        // The ID of an endpoint is the start of the container's and the interface; the only place of the latter.
        let if_name = self.id.split_once('-').map(|(_, name)| name.to_owned());
        let pod = said(self.pod).map(|pod| match self.pod_namespace.as_str() {
            "" => pod,
            namespace => format!("{namespace}/{pod}"),
        });
        Entry {
            container_id: self.container_id,
            network: said(self.network),
            if_name: if_name.and_then(said),
            pod,
            netns: said(self.netns).map(|path| NetNs {
                path: path.into(),
                id: None,
                cookie: None,
            }),
            addresses: self.addresses,
            is_live: false,
            of_this_boot: false,
        }
    }
}

#[derive(Default)]
struct Top {
    network: NetworkManager,
}

impl<'de> Members<'de> for Top {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            "Network" => codec::object(json, &mut self.network),
            _ => json.skip(),
        }
    }
}

#[derive(Default)]
struct NetworkManager {
    interfaces: Vec<(String, Interface)>,
}

impl<'de> Members<'de> for NetworkManager {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            k if is(k, "ExternalInterfaces") => codec::entries(json, &mut self.interfaces),
            _ => json.skip(),
        }
    }
}

#[derive(Default)]
struct Interface {
    networks: Vec<(String, Network)>,
}

impl<'de> Members<'de> for Interface {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            k if is(k, "Networks") => codec::entries(json, &mut self.networks),
            _ => json.skip(),
        }
    }
}

#[derive(Default)]
struct Network {
    endpoints: Vec<(String, Endpoint)>,
}

impl<'de> Members<'de> for Network {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            k if is(k, "Endpoints") => codec::entries(json, &mut self.endpoints),
            _ => json.skip(),
        }
    }
}

impl<'de> Members<'de> for Endpoint {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            k if is(k, "ContainerID") => codec::value(json, &mut self.container_id),
            k if is(k, "PODName") => codec::value(json, &mut self.pod),
            k if is(k, "PODNameSpace") => codec::value(json, &mut self.pod_namespace),
            k if is(k, "NetworkNameSpace") => codec::value(json, &mut self.netns),
            k if is(k, "HostIfName") => codec::value(json, &mut self.host_link),
            k if is(k, "IPAddresses") => {
                let mut addresses: Vec<Address> = Vec::new();
                codec::list(json, &mut addresses)?;
                self.addresses = addresses.into_iter().filter_map(|a| a.ip).collect();
                Ok(())
            }
            _ => json.skip(),
        }
    }
}

#[derive(Default)]
struct Address {
    ip: Option<IpAddr>,
}

impl<'de> Members<'de> for Address {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), ParseError> {
        match key {
            k if is(k, "IP") => codec::text(json, &mut self.ip, |text| {
                Ok(read_address(text).map(|a| a.to_canonical()))
            }),
            _ => json.skip(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::stat;

    const STATE: &str = r#"{"Network":{"Version":"v1.4.59","ExternalInterfaces":{"eth0":{"Name":"eth0","Networks":{"azure":{"Id":"azure","Endpoints":{"c1c1c1c1-eth0":{"Id":"c1c1c1c1-eth0","ContainerID":"c1c1c1c1c1","IfName":"azv0123456789a2","HostIfName":"azv0123456789a","IPAddresses":[{"IP":"10.224.0.5","Mask":"//8AAA=="}],"NetworkNameSpace":"/var/run/netns/x","PODName":"web-0","PODNameSpace":"default","SecondaryInterfaces":null}}}}}}}}"#;

    #[test]
    fn endpoints_are_read_with_their_networks() {
        let [endpoint] = &parse(STATE.as_bytes()).unwrap()[..] else {
            panic!("one endpoint")
        };
        assert_eq!(
            (endpoint.network.as_str(), endpoint.container_id.as_str()),
            ("azure", "c1c1c1c1c1")
        );
        assert_eq!(
            endpoint.addresses,
            ["10.224.0.5".parse::<IpAddr>().unwrap()]
        );
    }

    /// The entry of the endpoint above, beside that of its successor where one is known.
    fn entry(paths: &Paths, kernel: &Kernel, links: &[Link], successor: bool) -> Entry {
        let mut endpoints = parse(STATE.as_bytes()).unwrap();
        if successor {
            let mut successor = parse(STATE.as_bytes()).unwrap().remove(0);
            successor.container_id = "c2".into();
            successor.netns = "/var/run/netns/y".into();
            endpoints.push(successor);
        }
        entries(endpoints, paths, kernel, links).remove(0)
    }

    #[test]
    fn an_endpoint_stands_while_its_namespace_exists() {
        let root = std::env::temp_dir().join(format!("azure-vnet-{}", std::process::id()));
        let paths = Paths::new(Some(root.clone()), "azure-vnet-ipam");
        let bare = entry(&paths, &Kernel::default(), &[], false);
        assert!(!bare.is_live);
        assert_eq!(
            (bare.if_name.as_deref(), bare.pod.as_deref()),
            (Some("eth0"), Some("default/web-0"))
        );
        std::fs::create_dir_all(root.join("var/run/netns")).unwrap();
        std::fs::write(root.join("var/run/netns/x"), "").unwrap();
        let id = stat(root.join("var/run/netns/x"))
            .map(|s| (s.st_dev, s.st_ino))
            .unwrap();
        let mut kernel = Kernel::default();
        let is_standing = |kernel: &Kernel| entry(&paths, kernel, &[], false).is_live;
        assert!(!is_standing(&kernel), "a file is not a namespace");
        kernel.namespaces.insert(id);
        assert!(is_standing(&kernel));
        kernel.host = Some(id);
        assert!(!is_standing(&kernel), "the host's is nobody's");
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_link_speaks_for_an_endpoint_only_if_its_namespace_may_be_the_endpoints() {
        let root = std::env::temp_dir().join(format!("azure-vnet-link-{}", std::process::id()));
        let paths = Paths::new(Some(root.clone()), "azure-vnet-ipam");
        std::fs::create_dir_all(root.join("var/run/netns")).unwrap();
        std::fs::write(root.join("var/run/netns/y"), "").unwrap();
        let id = stat(root.join("var/run/netns/y"))
            .map(|s| (s.st_dev, s.st_ino))
            .unwrap();
        let link = |name: &str, peer_namespace| Link {
            name: name.into(),
            peer_namespace,
            ..Link::default()
        };
        let kernel = |own: &[&str]| Kernel {
            namespaces: [id].into(),
            numbers: [(7, id)].into(),
            inside: [(id, own.iter().map(|a| a.parse().unwrap()).collect())].into(),
            ..Kernel::default()
        };
        let peer = link("azv0123456789a", Some(7));
        let is_standing = |kernel: &Kernel, link: &Link, successor| {
            entry(&paths, kernel, std::slice::from_ref(link), successor).is_live
        };
        assert!(is_standing(&kernel(&[]), &peer, false));
        assert!(is_standing(&kernel(&["10.224.0.5"]), &peer, false));
        assert!(!is_standing(&kernel(&["10.224.0.6"]), &peer, false));
        assert!(!is_standing(&kernel(&[]), &peer, true), "its successor's");
        for other in [
            link("azv0123456789a", None),
            link("azv0123456789a", Some(8)),
            link("azv0123456789a2", Some(7)),
        ] {
            assert!(!is_standing(&kernel(&[]), &other, false), "{other:?}");
        }
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn another_document_is_told_and_an_empty_one_knows_nobody() {
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
