//! E2: the state of the main plugin azure-vnet (contract section 19). Its endpoints may be orphans, so one counts only while
//! its network namespace or its link on the host exists.

use std::net::IpAddr;

use crate::anycase::{self, Cursor, Members, Wrong, is};
use crate::host::{Bounded, Link, Paths, links, netns, read_bounded, words};
use crate::ipam::{Entry, Kernel, Witness, read_address};

/// Larger files are not read.
const LIMIT: usize = 16 << 20;

/// Reads the file.
pub fn read(paths: &Paths, kernel: &Kernel) -> Witness {
    let path = paths.azure_vnet();
    let unreadable = |why: String| Witness::Unreadable(format!("{}: {why}", path.display()));
    let bytes = match read_bounded(&path, LIMIT) {
        Ok(Bounded::Read(bytes)) => bytes,
        Ok(Bounded::Missing) => return Witness::Absent,
        Ok(Bounded::TooLarge) => return unreadable(format!("it is larger than {LIMIT} bytes")),
        Err(e) => return unreadable(words(&e)),
    };
    // As the original reads its own state: nothing in the file means nothing known.
    if bytes.is_empty() {
        return Witness::Read {
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
        Err(e) => return unreadable(format!("the interfaces of the host: {}", words(&e))),
    };
    let entries = endpoints
        .into_iter()
        .map(|endpoint| endpoint.entry(paths, kernel, &links));
    Witness::Read {
        entries: entries.collect(),
        doubtful: Vec::new(),
    }
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
pub fn parse(json: &[u8]) -> Result<Vec<Endpoint>, anycase::Error> {
    let mut said = Top::default();
    anycase::read(json, &mut said)?;
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
    fn entry(self, paths: &Paths, kernel: &Kernel, links: &[Link]) -> Entry {
        let said = |text: String| Some(text).filter(|t| !t.is_empty());
        let host_link = links
            .iter()
            .any(|link| !self.host_link.is_empty() && link.name == self.host_link);
        let netns = netns(paths, &self.netns);
        let namespace = netns
            .as_ref()
            .and_then(|n| n.id)
            .is_some_and(|id| kernel.namespaces.contains(&id));
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
            netns,
            addresses: self.addresses,
            stands: namespace || host_link,
        }
    }
}

#[derive(Default)]
struct Top {
    network: NetworkManager,
}

impl<'de> Members<'de> for Top {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), Wrong> {
        match key {
            "Network" => anycase::object(json, &mut self.network),
            _ => json.skip(),
        }
    }
}

#[derive(Default)]
struct NetworkManager {
    interfaces: Vec<(String, Interface)>,
}

impl<'de> Members<'de> for NetworkManager {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), Wrong> {
        match key {
            k if is(k, "ExternalInterfaces") => anycase::entries(json, &mut self.interfaces),
            _ => json.skip(),
        }
    }
}

#[derive(Default)]
struct Interface {
    networks: Vec<(String, Network)>,
}

impl<'de> Members<'de> for Interface {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), Wrong> {
        match key {
            k if is(k, "Networks") => anycase::entries(json, &mut self.networks),
            _ => json.skip(),
        }
    }
}

#[derive(Default)]
struct Network {
    endpoints: Vec<(String, Endpoint)>,
}

impl<'de> Members<'de> for Network {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), Wrong> {
        match key {
            k if is(k, "Endpoints") => anycase::entries(json, &mut self.endpoints),
            _ => json.skip(),
        }
    }
}

impl<'de> Members<'de> for Endpoint {
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), Wrong> {
        match key {
            k if is(k, "ContainerID") => anycase::value(json, &mut self.container_id),
            k if is(k, "PODName") => anycase::value(json, &mut self.pod),
            k if is(k, "PODNameSpace") => anycase::value(json, &mut self.pod_namespace),
            k if is(k, "NetworkNameSpace") => anycase::value(json, &mut self.netns),
            k if is(k, "HostIfName") => anycase::value(json, &mut self.host_link),
            k if is(k, "IPAddresses") => {
                let mut addresses: Vec<Address> = Vec::new();
                anycase::list(json, &mut addresses)?;
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
    fn member(&mut self, key: &str, json: &mut Cursor<'de>) -> Result<(), Wrong> {
        match key {
            k if is(k, "IP") => anycase::text(json, &mut self.ip, |text| {
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

    #[test]
    fn an_endpoint_stands_while_its_namespace_or_link_exists() {
        let root = std::env::temp_dir().join(format!("azure-vnet-{}", std::process::id()));
        let paths = Paths::new(Some(root.clone()), "azure-vnet-ipam");
        let entry = |kernel: &Kernel, links: &[Link]| {
            parse(STATE.as_bytes())
                .unwrap()
                .remove(0)
                .entry(&paths, kernel, links)
        };
        let bare = entry(&Kernel::default(), &[]);
        assert!(!bare.stands);
        assert_eq!(
            (bare.if_name.as_deref(), bare.pod.as_deref()),
            (Some("eth0"), Some("default/web-0"))
        );
        let link = |name: &str| Link {
            name: name.into(),
            ..Link::default()
        };
        assert!(!entry(&Kernel::default(), &[link("azv0123456789a2")]).stands);
        assert!(entry(&Kernel::default(), &[link("azv0123456789a")]).stands);
        std::fs::create_dir_all(root.join("var/run/netns")).unwrap();
        std::fs::write(root.join("var/run/netns/x"), "").unwrap();
        let id = stat(root.join("var/run/netns/x"))
            .map(|s| (s.st_dev, s.st_ino))
            .unwrap();
        assert!(
            !entry(&Kernel::default(), &[]).stands,
            "a file is not a namespace"
        );
        assert!(
            entry(
                &Kernel {
                    namespaces: [id].into(),
                    ..Kernel::default()
                },
                &[]
            )
            .stands
        );
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
