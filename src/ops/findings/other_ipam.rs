//! Other IPAM plugins that allocate addresses of our pools.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;

use super::finding::{Finding, FindingKind};
use super::pools::KnownPool;
use super::texts::join_first;
use super::visibility::Visibility;
use crate::codec::{named_address, read_address};
use crate::host::{Paths, io_reason};
use crate::ops::node_config::NodeConfig;
use crate::ops::screen::pluralize;
use crate::ops::tree::Tree;
use crate::source::parse_prefix;

const KIND: FindingKind = FindingKind::Owner;

/// The folder of host-local: a folder for each network, a file for each address.
const HOST_LOCAL: &str = "/var/lib/cni/networks";

/// Examines them.
pub fn examine(
    paths: &Paths,
    config: &NodeConfig,
    pools: &[KnownPool],
    visibility: &mut Visibility,
) -> Vec<Finding> {
    let mut lines = configured(config, paths.name(), pools);
    let folder = paths.under_root(HOST_LOCAL);
    let shown = folder.display().to_string();
    match networks(&folder) {
        Ok(networks) => {
            let found = networks
                .iter()
                .filter_map(|(path, addresses)| given(path, addresses, pools));
            lines.extend(found);
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) if visibility.hides(&shown, &io_reason(&e)) => {}
        Err(e) => lines.push(Finding::warning(
            KIND,
            &format_args!("{shown}: {}", io_reason(&e)),
            &"check it by hand for addresses of our pools",
        )),
    }
    if lines.is_empty() && !pools.is_empty() {
        let text = "no other IPAM plugin allocates addresses of our pools";
        lines.push(Finding::ok(KIND, &text));
    }
    lines
}

/// Plugins whose `ipam` names subnets that overlap our pools.
fn configured(config: &NodeConfig, name: &str, pools: &[KnownPool]) -> Vec<Finding> {
    let mut lines = Vec::new();
    for file in &config.files {
        let plugins = file.conflist.iter().flat_map(|list| &list.plugins);
        for plugin in plugins.filter(|plugin| !plugin.uses_ipam(name)) {
            let Some(ipam) = plugin.netconf.get("ipam") else {
                continue;
            };
            let mut theirs = Vec::new();
            subnets(ipam, &mut theirs);
            let clash = theirs.iter().find_map(|net| {
                let pool = pools.iter().find(|pool| pool.overlaps(net))?;
                Some((net, pool.subnet))
            });
            let Some((net, subnet)) = clash else {
                continue;
            };
            let (path, kind) = (file.path.display(), plugin.ipam_kind.as_deref());
            let kind = kind.unwrap_or("unknown");
            let text = format_args!(
                "{path}: the IPAM plugin {kind} allocates from {net}, which overlaps our {subnet}"
            );
            let remedy = format_args!(
                "give it another subnet, or remove {path}: two pods with one address break both"
            );
            lines.push(Finding::error(KIND, &text, &remedy));
        }
    }
    lines
}

/// Collects every prefix that a plugin allocates from: `subnet`, `ranges`, `range` and the like.
fn subnets(value: &Tree, found: &mut Vec<IpNet>) {
    match value {
        Tree::Text(text) => found.extend(parse_prefix(text)),
        Tree::List(items) => items.iter().for_each(|item| subnets(item, found)),
        Tree::Object(members) => {
            for (key, value) in members {
                match (&**key, value) {
                    // These are not allocated from.
                    ("routes" | "exclude" | "gateway" | "dns", _) => {}
                    // The prefix length of a single address is that of its network.
                    ("address", Tree::Text(text)) => {
                        found.extend(named_address(text).map(IpNet::from));
                    }
                    (_, value) => subnets(value, found),
                }
            }
        }
        Tree::Other(_) => {}
    }
}

/// The folders of host-local with their allocated addresses.
fn networks(folder: &Path) -> io::Result<Vec<(String, Vec<IpAddr>)>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort_by(Ord::cmp);
    let mut found = Vec::new();
    for path in paths.iter().filter(|path| path.is_dir()) {
        let mut addresses = Vec::new();
        for file in fs::read_dir(path)? {
            let address = file?.file_name().to_str().and_then(read_address);
            addresses.extend(address.map(|address| address.to_canonical()));
        }
        found.push((path.display().to_string(), addresses));
    }
    Ok(found)
}

/// The addresses of our pools that host-local has allocated for one network.
fn given(folder: &str, addresses: &[IpAddr], pools: &[KnownPool]) -> Option<Finding> {
    let of = |address: &&IpAddr| pools.iter().find(|pool| pool.subnet.contains(*address));
    let inside: Vec<&IpAddr> = addresses.iter().filter(|a| of(a).is_some()).collect();
    if inside.is_empty() {
        return None;
    }
    let is_ours = |address: &&&IpAddr| of(address).is_some_and(|p| p.addresses.contains(**address));
    let ours = inside.iter().filter(is_ours).count();
    let text = format_args!(
        "host-local has allocated {} of our subnets in {folder}, {ours} of them in our pools: {}",
        pluralize(inside.len(), "address", "addresses"),
        join_first(inside.iter().map(ToString::to_string))
    );
    let remedy = format_args!(
        "give its network another subnet; if no pod uses it any more, remove the folder: rm -r {folder}"
    );
    Some(match ours {
        0 => Finding::warning(KIND, &text, &remedy),
        _ => Finding::error(KIND, &text, &remedy),
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;
    use crate::ops::node_config::{ConfFile, parse};

    fn pools() -> Vec<KnownPool> {
        vec![KnownPool {
            subnet: "10.224.0.0/16".parse().unwrap(),
            if_name: "eth0".into(),
            addresses: ["10.224.0.5".parse().unwrap()].into(),
        }]
    }

    fn clash(ipam: &str) -> Vec<Finding> {
        let text = format!(r#"{{"name":"x","type":"bridge","ipam":{ipam}}}"#);
        let config = NodeConfig {
            files: vec![ConfFile {
                path: "/x.conf".into(),
                conflist: parse(text.as_bytes()),
            }],
            ..NodeConfig::default()
        };
        configured(&config, "azure-vnet-ipam", &pools())
    }

    #[test]
    fn subnets_are_found_wherever_a_plugin_names_them() {
        for ipam in [
            r#"{"type":"host-local","subnet":"10.224.4.0/24"}"#,
            r#"{"type":"host-local","ranges":[[{"subnet":"10.9.0.0/16"}],[{"subnet":"10.0.0.0/8"}]]}"#,
            r#"{"type":"whereabouts","range":"10.224.0.0/17"}"#,
            r#"{"type":"static","addresses":[{"address":"10.224.0.9/24"}]}"#,
        ] {
            let lines = clash(ipam);
            assert_eq!(lines.len(), 1, "{ipam}");
            assert_eq!(lines[0].severity, Severity::Error);
            assert!(lines[0].text.contains("our 10.224.0.0/16"), "{lines:?}");
        }
        for ipam in [
            r#"{"type":"host-local","subnet":"10.225.0.0/16","routes":[{"dst":"0.0.0.0/0"}]}"#,
            r#"{"type":"static","addresses":[{"address":"10.9.0.1/4"}]}"#,
            r#"{"type":"azure-vnet-ipam","subnet":"10.224.0.0/16"}"#,
            r#"{"type":"dhcp"}"#,
            "7",
        ] {
            assert_eq!(clash(ipam), [], "{ipam}");
        }
    }

    #[test]
    fn addresses_of_host_local_in_our_pools_are_wrong() {
        let given = |addresses: &[&str]| {
            let addresses: Vec<_> = addresses.iter().map(|a| a.parse().unwrap()).collect();
            given("/var/lib/cni/networks/x", &addresses, &pools())
        };
        let line = given(&["10.224.0.5", "10.224.0.77", "10.9.0.1"]).unwrap();
        assert_eq!(line.severity, Severity::Error);
        assert!(line.text.contains("2 addresses"), "{line:?}");
        assert!(line.text.contains("1 of them in our pools"), "{line:?}");
        let remedy = line.remedy;
        assert!(remedy.contains("rm -r /var/lib/cni/networks/x"), "{remedy}");
        assert_eq!(given(&["10.224.0.77"]).unwrap().severity, Severity::Warning);
        assert_eq!(given(&["10.9.0.1"]), None);
    }
}
