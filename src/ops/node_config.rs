//! The configuration of this plugin on the node: the settings file, and the network configurations that name it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipnet::IpNet;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::cli::CheckSettingsArgs;
use super::outcome::{CommandError, CommandOutput};
use crate::cni::{Call, CallError, Defaults, Environment, IpamConfig, NAME, NAME_V6};
use crate::codec::{Cursor, ParseError, document, is};
use crate::host::{Paths, ReadOutcome, io_reason, read_bounded};
use crate::plugin::read_settings;
use crate::stdio;

/// The size limit of a configuration file.
const LIMIT: usize = 1 << 20;

/// The settings and all network configurations.
#[derive(Debug, Default)]
pub struct NodeConfig {
    /// The network configurations in /etc/cni/net.d, by file name, which is the order of the runtimes.
    pub files: Vec<ConfFile>,
    /// Why the folder cannot be read, if it cannot.
    pub unreadable: Option<String>,
    /// The errors in /etc/azure-vnet-ipam.json.
    pub wrong_settings: Vec<String>,
    /// The defaults of /etc/azure-vnet-ipam.json.
    pub defaults: Defaults,
    /// The `ipam` of the first valid network configuration that names this plugin, or the defaults.
    pub conf: IpamConfig,
}

/// A file in /etc/cni/net.d.
#[derive(Debug)]
pub struct ConfFile {
    /// The path.
    pub path: PathBuf,
    /// The parsed configuration, or why it cannot be parsed.
    pub conflist: Result<Conflist, String>,
}

/// A network configuration: a list of plugins, of which a `.conf` has one.
#[derive(Debug, Default)]
pub struct Conflist {
    /// The network's name, if it is a string.
    pub name: Option<String>,
    /// The CNI version, if it is a string.
    pub cni_version: Option<String>,
    /// The plugins in their order.
    pub plugins: Vec<Plugin>,
}

/// One plugin of a list.
#[derive(Debug, Default)]
pub struct Plugin {
    /// Its `type`.
    pub kind: String,
    /// The `type` of its `ipam`.
    pub ipam_kind: Option<String>,
    /// The configuration as a runtime passes it, with `name` and `cniVersion` of the list.
    pub netconf: Tree,
}

impl NodeConfig {
    /// Reads all configuration of the node.
    pub fn read(paths: &Paths) -> NodeConfig {
        let (defaults, wrong_settings) = read_settings(&paths.settings());
        let (files, unreadable) = match conf_files(&paths.conf_folder()) {
            Ok(files) => (files, None),
            Err(e) if e.kind() == io::ErrorKind::NotFound => (Vec::new(), None),
            Err(e) => (Vec::new(), Some(io_reason(&e))),
        };
        let mut config = NodeConfig {
            files,
            unreadable,
            wrong_settings,
            defaults,
            conf: IpamConfig::default(),
        };
        if paths.name() == NAME_V6 {
            for file in &mut config.files {
                if let Ok(list) = &mut file.conflist {
                    list.plugins.iter_mut().for_each(Plugin::apply_ipv6_call);
                }
            }
        }
        let names_us = config.ours(paths.name());
        let conf = names_us.filter_map(|(_, plugin)| plugin.parse_call(&config.defaults).ok());
        let conf = conf.map(|call| call.conf.ipam).next();
        // Without a network configuration, the settings file alone counts.
        let alone = || {
            let plugin = without_conflist(paths.name())?;
            Some(plugin.parse_call(&config.defaults).ok()?.conf.ipam)
        };
        if let Some(conf) = conf.or_else(alone) {
            config.conf = conf;
        }
        config
    }

    /// Whether the node uses the plugin of these paths. Only the second name may be left unused.
    pub fn is_in_use(&self, paths: &Paths) -> bool {
        let is_named = self.ours(paths.name()).next().is_some();
        is_named || paths.name() != NAME_V6 || paths.state().exists()
    }

    /// The plugins that use `name` for IPAM, with their files.
    pub fn ours(&self, name: &str) -> impl Iterator<Item = (&ConfFile, &Plugin)> {
        let plugins = self.files.iter().flat_map(|file| {
            let plugins = file.conflist.iter().flat_map(|list| &list.plugins);
            plugins.map(move |plugin| (file, plugin))
        });
        plugins.filter(move |(_, plugin)| plugin.uses_ipam(name))
    }
}

impl Plugin {
    /// Whether it uses the plugin `name` for IPAM, or is that plugin.
    pub fn uses_ipam(&self, name: &str) -> bool {
        self.ipam_kind.as_deref() == Some(name) || self.kind == name
    }

    /// What the main plugin azure-vnet hands to the IPv6 sibling of the plugin that is named, when it is to give pods
    /// addresses of both families (contract section 19).
    fn apply_ipv6_call(&mut self) {
        let mode = self.netconf.text_at("ipv6Mode").unwrap_or_default();
        if self.kind != "azure-vnet" || mode.is_empty() {
            return;
        }
        if let (Tree::Object(members), Some((sibling, ipam))) = (&mut self.netconf, alone(NAME_V6))
        {
            members.retain(|(key, _)| !is(key, "ipam"));
            members.push(("ipam".to_owned(), ipam));
            self.ipam_kind = sibling.ipam_kind;
        }
    }

    /// The configuration as this plugin gets it: azure-vnet adds the subnet of a network that it knows (contract section 19).
    pub fn as_called(&self, paths: &Paths) -> Plugin {
        let mut plugin = Plugin {
            kind: self.kind.clone(),
            ipam_kind: self.ipam_kind.clone(),
            netconf: self.netconf.clone(),
        };
        let network = self.netconf.text_at("name").unwrap_or_default();
        if self.kind == "azure-vnet"
            && self.ipam_kind.as_deref() == Some(NAME)
            && let Some(subnet) = azure_vnet_subnet(&paths.azure_vnet(), &network)
            && let Tree::Object(members) = &mut plugin.netconf
            && let Some((_, Tree::Object(ipam))) = members.iter_mut().find(|(k, _)| is(k, "ipam"))
        {
            ipam.retain(|(key, _)| !is(key, "subnet"));
            ipam.push(("subnet".to_owned(), Tree::Text(subnet)));
        }
        plugin
    }

    /// Parses the configuration as an ADD would, for a container that holds nothing.
    ///
    /// # Errors
    /// As an ADD.
    pub fn parse_call(&self, defaults: &Defaults) -> Result<Call, CallError> {
        let nobody = Environment {
            command: "ADD".to_owned(),
            container_id: "azure-vnet-ipam-trial".to_owned(),
            netns: "/nonexistent".to_owned(),
            if_name: "eth0".to_owned(),
            args: String::new(),
        };
        let stdin = serde_json::to_vec(&self.netconf).unwrap_or_default();
        let mut call = Call::parse(&nobody, &stdin, defaults)?;
        call.conf.ipam.ipv6 |= self.ipam_kind.as_deref() == Some(NAME_V6);
        Ok(call)
    }
}

/// The subnet that azure-vnet has stored for a network, which it sends with every ADD after the first.
fn azure_vnet_subnet(path: &Path, network: &str) -> Option<String> {
    let Ok(ReadOutcome::Read(bytes)) = read_bounded(path, LIMIT) else {
        return None;
    };
    let whole = Tree::parse(&bytes).ok()?;
    let Tree::Object(interfaces) = whole.get("Network")?.get("ExternalInterfaces")? else {
        return None;
    };
    let networks = interfaces.iter().filter_map(|(_, i)| i.get("Networks"));
    let known = networks
        .filter_map(|networks| networks.get(network))
        .next()?;
    let Tree::List(subnets) = known.get("Subnets")? else {
        return None;
    };
    let prefix = subnets.first()?.get("Prefix")?;
    let address = prefix.text_at("IP")?.parse().ok()?;
    let length = mask_length(&prefix.text_at("Mask")?)?;
    Some(IpNet::new(address, length).ok()?.to_string())
}

/// The length of a prefix whose mask is in base64, as Go writes it.
fn mask_length(mask: &str) -> Option<u8> {
    let bytes = STANDARD.decode(mask).ok()?;
    let bits: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
    u8::try_from(bits).ok()
}

/// The configuration that a node without any stands for.
pub fn without_conflist(name: &str) -> Option<Plugin> {
    alone(name).map(|(plugin, _)| plugin)
}

/// A minimal configuration and its `ipam`.
fn alone(name: &str) -> Option<(Plugin, Tree)> {
    let conf = match name {
        NAME_V6 => ALONE_V6,
        _ => ALONE,
    };
    let plugin = parse(conf.as_bytes()).ok()?.plugins.pop()?;
    let ipam = plugin.netconf.get("ipam")?.clone();
    Some((plugin, ipam))
}

const ALONE: &str =
    r#"{"cniVersion": "1.0.0", "name": "azure", "ipam": {"type": "azure-vnet-ipam"}}"#;
const ALONE_V6: &str = r#"{"cniVersion": "1.0.0", "name": "azure",
    "ipam": {"type": "azure-vnet-ipamv6", "environment": "ipv6NodeIpam"}}"#;

/// The configuration files of a folder, by name.
fn conf_files(folder: &Path) -> io::Result<Vec<ConfFile>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let extension = path.extension().and_then(OsStr::to_str);
        if matches!(extension, Some("conf" | "conflist" | "json")) {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    let read = |path: PathBuf| {
        let conflist = match read_bounded(&path, LIMIT) {
            Ok(ReadOutcome::Read(bytes)) => parse(&bytes),
            Ok(ReadOutcome::Missing) => Err("it has gone meanwhile".to_owned()),
            Ok(ReadOutcome::TooLarge) => Err(format!("it is larger than {LIMIT} bytes")),
            Err(e) => Err(io_reason(&e)),
        };
        ConfFile { path, conflist }
    };
    Ok(paths.into_iter().map(read).collect())
}

/// Parses a network configuration. A `.conf` counts as a list of one plugin.
///
/// # Errors
/// It is not a JSON object.
pub fn parse(bytes: &[u8]) -> Result<Conflist, String> {
    let whole = Tree::parse(bytes)?;
    if !matches!(whole, Tree::Object(_)) {
        return Err("it is not an object".to_owned());
    }
    let shared = ["name", "cniVersion"].map(|key| (key, whole.get(key).cloned()));
    let (name, cni_version) = (whole.text_at("name"), whole.text_at("cniVersion"));
    let plugins = match whole.get("plugins") {
        Some(Tree::List(plugins)) => plugins.clone(),
        Some(_) => return Err("plugins must be a list".to_owned()),
        None => vec![whole],
    };
    let plugin = |netconf: Tree| {
        let Tree::Object(mut members) = netconf else {
            return Err("a plugin must be an object".to_owned());
        };
        for (key, value) in &shared {
            if let Some(value) = value {
                members.push(((*key).to_owned(), value.clone()));
            }
        }
        let netconf = Tree::Object(members);
        Ok(Plugin {
            kind: netconf.text_at("type").unwrap_or_default(),
            ipam_kind: netconf.get("ipam").and_then(|ipam| ipam.text_at("type")),
            netconf,
        })
    };
    Ok(Conflist {
        name,
        cni_version,
        plugins: plugins.into_iter().map(plugin).collect::<Result<_, _>>()?,
    })
}

/// A JSON value of any kind, for documents of which only a part is known. Numbers keep their spelling.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Tree {
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Tree>),
    /// An object; keys as they are spelled, in their order.
    #[serde(serialize_with = "serialize_members")]
    Object(Vec<(String, Tree)>),
    /// Anything else.
    Other(Box<RawValue>),
}

impl Default for Tree {
    fn default() -> Self {
        Tree::Object(Vec::new())
    }
}

impl Tree {
    /// Reads a document.
    ///
    /// # Errors
    /// It is not JSON, or nested too deeply.
    pub fn parse(json: &[u8]) -> Result<Tree, String> {
        /// Deeper than any configuration, and not so deep that a call's stack ends.
        const DEPTH: usize = 64;
        let mut tree = Tree::List(Vec::new());
        let read = document(&String::from_utf8_lossy(json), |cursor| {
            tree = Tree::read(cursor, DEPTH)?;
            Ok(())
        });
        read.map(|()| tree).map_err(|e| e.to_string())
    }

    fn read(json: &mut Cursor<'_>, depth: usize) -> Result<Tree, ParseError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err("it is nested too deeply".to_owned());
        };
        match json.peek() {
            Some(b'"') => Ok(Tree::Text(json.string()?.into_owned())),
            Some(b'[') => {
                let mut items = Vec::new();
                json.list(&mut |json| {
                    items.push(Tree::read(json, depth)?);
                    Ok(())
                })?;
                Ok(Tree::List(items))
            }
            Some(b'{') => {
                let mut members = Vec::new();
                json.object(&mut |key, json| {
                    members.push((key.to_owned(), Tree::read(json, depth)?));
                    Ok(())
                })?;
                Ok(Tree::Object(members))
            }
            _ => json.raw().map(Tree::Other),
        }
    }

    /// Returns the member of an object, whatever the key's case; the last one of a repeated key.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        let Tree::Object(members) = self else {
            return None;
        };
        let mut found = members.iter().rev().filter(|(name, _)| is(name, key));
        found.next().map(|(_, value)| value)
    }

    /// Returns the string, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Tree::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns a member of an object that is a string.
    pub fn text_at(&self, key: &str) -> Option<String> {
        Some(self.get(key)?.text()?.to_owned())
    }
}

fn serialize_members<S: Serializer>(
    members: &[(String, Tree)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(members.iter().map(|(key, value)| (key, value)))
}

/// `check-settings`: checks the settings file, or the named file. Errors go to stderr.
///
/// # Errors
/// None.
pub fn check_settings(
    paths: &Paths,
    args: &CheckSettingsArgs,
) -> Result<CommandOutput, CommandError> {
    let path = args.file.clone();
    let path = path.unwrap_or_else(|| paths.settings());
    let wrong = match path.exists() {
        true => read_settings(&path).1,
        false => vec!["it does not exist".to_owned()],
    };
    let path = path.display();
    if wrong.is_empty() {
        return Ok(CommandOutput::success(format!("{path} is valid\n")));
    }
    let lines: String = wrong.iter().map(|why| format!("{path}: {why}\n")).collect();
    stdio::eprint(&lines);
    Ok(CommandOutput {
        text: String::new(),
        status: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflist_and_a_conf_parse_alike() {
        let list = br#"{"cniVersion": "1.0.0", "name": "azure", "plugins": [
            {"type": "bridge", "ipam": {"type": "azure-vnet-ipam", "cooldown": 7}}, {"type": "portmap"}]}"#;
        let list = parse(list).unwrap();
        assert_eq!(list.name.as_deref(), Some("azure"));
        let ours: Vec<_> = list
            .plugins
            .iter()
            .map(|p| p.uses_ipam("azure-vnet-ipam"))
            .collect();
        assert_eq!(ours, [true, false]);
        let call = list.plugins[0].parse_call(&Defaults::default()).unwrap();
        assert_eq!(call.conf.ipam.cooldown.as_secs(), 7);
        let single = br#"{"cniVersion": "1.0.0", "name": "x", "type": "azure-vnet-ipamv6"}"#;
        let single = parse(single).unwrap();
        assert!(single.plugins[0].uses_ipam("azure-vnet-ipamv6"));
        assert!(!single.plugins[0].uses_ipam("azure-vnet-ipam"));
    }

    #[test]
    fn invalid_configurations_are_errors() {
        for wrong in [
            &b"[]"[..],
            b"{",
            br#"{"plugins": {}}"#,
            br#"{"plugins": [1]}"#,
        ] {
            assert!(parse(wrong).is_err());
        }
        let wrong = br#"{"cniVersion": "9.9.9", "name": "x", "ipam": {"type": "azure-vnet-ipam"}}"#;
        let wrong = parse(wrong).unwrap();
        assert!(wrong.plugins[0].parse_call(&Defaults::default()).is_err());
    }

    #[test]
    fn document_is_printed_as_it_was_read() {
        let text = r#"{"a":[1,2.50,{"b":null}],"c":"x\n\"y","d":true,"e":{}}"#;
        let tree = Tree::parse(text.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&tree).unwrap(), text);
        assert_eq!(tree.text_at("c").unwrap(), "x\n\"y");
        assert!(tree.text_at("a").is_none() && tree.get("x").is_none());
        assert!(
            tree.get("C").is_some(),
            "as the plugin reads its configuration"
        );
        let twice = Tree::parse(br#"{"a":"1","a":"2"}"#).unwrap();
        assert_eq!(twice.text_at("a").unwrap(), "2");
    }

    #[test]
    fn a_deep_document_is_refused() {
        assert!(Tree::parse("[".repeat(100_000).as_bytes()).is_err());
    }
}
