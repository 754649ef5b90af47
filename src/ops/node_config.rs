//! The configuration of this plugin on the node: the settings file, and the network configurations that name it.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipnet::IpNet;

use super::conf_file::{ConfFile, Plugin, conf_files, parse};
use super::tree::Tree;
use crate::cni::{
    Call, CallError, Defaults, Environment, IpamConfig, NAME, NAME_V6, RawNetworkConfig,
};
use crate::codec::is;
use crate::host::{Paths, ReadOutcome, io_reason, read_bounded};
use crate::plugin::read_settings;

/// The settings and all network configurations.
#[derive(Debug, Default)]
pub struct NodeConfig {
    /// The network configurations in /etc/cni/net.d, by file name, which is the order of the runtimes.
    pub files: Vec<ConfFile>,
    /// The folder and why it cannot be read, if it cannot.
    pub unreadable: Option<(PathBuf, String)>,
    /// The errors in /etc/azure-vnet-ipam.json.
    pub wrong_settings: Vec<String>,
    /// The defaults of /etc/azure-vnet-ipam.json.
    pub defaults: Defaults,
    /// Whether the log goes to syslog.
    pub syslog: bool,
    /// The `ipam` of the first valid network configuration that names this plugin, or the defaults.
    pub conf: IpamConfig,
}

impl NodeConfig {
    /// Reads all configuration of the node.
    pub fn read(paths: &Paths) -> NodeConfig {
        let (defaults, wrong_settings) = read_settings(&paths.settings());
        let folder = paths.conf_folder();
        let (files, unreadable) = match conf_files(&folder) {
            Ok(files) => (files, None),
            Err(e) if e.kind() == io::ErrorKind::NotFound => (Vec::new(), None),
            Err(e) => (Vec::new(), Some((folder, io_reason(&e)))),
        };
        let mut config = NodeConfig {
            files,
            unreadable,
            wrong_settings,
            defaults,
            syslog: false,
            conf: IpamConfig::default(),
        };
        if paths.name() == NAME_V6 {
            let plugins = config.files.iter_mut().flat_map(|file| &mut file.plugins);
            plugins.for_each(Plugin::apply_ipv6_call);
        }
        // Without a network configuration, the settings file alone counts.
        let alone = without_conflist(paths.name());
        let plugins = config.ours(paths.name()).map(|(_, plugin)| plugin);
        let parse = |plugin: &Plugin| plugin.parse_call(&config.defaults).ok();
        let call = plugins.chain(&alone).find_map(parse);
        if let Some(call) = call {
            config.syslog = call.conf.syslog;
            config.conf = call.conf.ipam;
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
        let plugins = self
            .usable()
            .flat_map(|file| file.plugins.iter().map(move |plugin| (file, plugin)));
        plugins.filter(move |(_, plugin)| plugin.uses_ipam(name))
    }

    /// The file that many runtimes use alone, because its name is the first, in place of this one of ours.
    pub fn used_instead_of(&self, file: &ConfFile, name: &str) -> Option<&ConfFile> {
        let first = self.files.first().filter(|first| first.error.is_none())?;
        let is_ours = first.plugins.iter().any(|plugin| plugin.uses_ipam(name));
        (!is_ours && !first.leads_to(file)).then_some(first)
    }

    /// The files that runtimes accept.
    pub fn usable(&self) -> impl Iterator<Item = &ConfFile> {
        self.files.iter().filter(|file| file.error.is_none())
    }

    /// The folder or the files that cannot be read or parsed, and why.
    pub fn unusable(&self) -> impl Iterator<Item = (&Path, &str)> {
        let folder = self.unreadable.iter();
        let folder = folder.map(|(folder, why)| (&**folder, &**why));
        let files = self.files.iter();
        folder.chain(files.filter_map(|file| Some((&*file.path, file.error.as_deref()?))))
    }
}

/// What this plugin gets of a network configuration.
impl Plugin {
    /// What the main plugin azure-vnet hands to the IPv6 sibling of the plugin that is named, when it is to give pods
    /// addresses of both families (contract section 19).
    fn apply_ipv6_call(&mut self) {
        let mode = self.netconf.text_at("ipv6Mode").unwrap_or_default();
        if self.kind() != "azure-vnet" || mode.is_empty() {
            return;
        }
        let sibling = without_conflist(NAME_V6);
        let ipam = sibling.and_then(|sibling| sibling.netconf.get("ipam").cloned());
        if let (Tree::Object(members), Some(ipam)) = (&mut self.netconf, ipam) {
            members.retain(|key, _| !is(key, "ipam"));
            members.insert("ipam".to_owned(), ipam);
        }
    }

    /// The configuration as this plugin gets it: azure-vnet adds the subnet of a network that it knows (contract section 19).
    pub fn as_called(&self, paths: &Paths) -> Plugin {
        let mut plugin = self.clone();
        if self.kind() == "azure-vnet"
            && self.ipam_kind() == Some(NAME)
            && let Some(subnet) = azure_vnet_subnet(&paths.azure_vnet(), self.network())
            && let Tree::Object(members) = &mut plugin.netconf
            && let Some((_, Tree::Object(ipam))) = members.iter_mut().rfind(|(k, _)| is(k, "ipam"))
        {
            ipam.retain(|key, _| !is(key, "subnet"));
            ipam.insert("subnet".to_owned(), Tree::Text(subnet));
        }
        plugin
    }

    /// Parses the configuration as an ADD would, for a container that holds nothing.
    ///
    /// # Errors
    /// As an ADD.
    pub fn parse_call(&self, defaults: &Defaults) -> Result<Call, CallError> {
        let environment = Environment {
            command: "ADD".to_owned(),
            container_id: "azure-vnet-ipam-trial".to_owned(),
            netns: "/nonexistent".to_owned(),
            if_name: "eth0".to_owned(),
            args: String::new(),
        };
        let stdin = serde_json::to_vec(&self.netconf).unwrap_or_default();
        let raw_config = RawNetworkConfig::read(&stdin)?;
        Call::parse(
            &environment,
            &raw_config,
            defaults,
            self.ipam_kind().unwrap_or(NAME),
        )
    }
}

/// The subnet that azure-vnet has stored for a network, which it sends with every ADD after the first.
fn azure_vnet_subnet(path: &Path, network: &str) -> Option<String> {
    /// The size limit of azure-vnet's state, in bytes.
    const LIMIT: usize = 1 << 20;
    let Ok(ReadOutcome::Read(bytes)) = read_bounded(path, LIMIT) else {
        return None;
    };
    let whole = Tree::parse(&bytes).ok()?;
    let mut interfaces = whole.get("Network")?.get("ExternalInterfaces")?.members();
    let known = interfaces.find_map(|(_, i)| i.get("Networks")?.get(network))?;
    let prefix = known.get("Subnets")?.items().first()?.get("Prefix")?;
    let address = prefix.text_at("IP")?.parse().ok()?;
    let length = mask_length(prefix.text_at("Mask")?)?;
    Some(IpNet::new(address, length).ok()?.to_string())
}

/// The length of a prefix whose mask is in base64, as Go writes it.
fn mask_length(mask: &str) -> Option<u8> {
    let bytes = STANDARD.decode(mask).ok()?;
    let bits: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
    u8::try_from(bits).ok()
}

/// The minimal configuration, which a node without any stands for.
fn without_conflist(name: &str) -> Option<Plugin> {
    let conf = match name {
        NAME_V6 => ALONE_V6,
        _ => ALONE,
    };
    parse(conf).ok()?.plugins.pop()
}

const ALONE: &str =
    r#"{"cniVersion": "1.0.0", "name": "azure", "ipam": {"type": "azure-vnet-ipam"}}"#;

const ALONE_V6: &str = r#"{"cniVersion": "1.0.0", "name": "azure",
    "ipam": {"type": "azure-vnet-ipamv6", "environment": "ipv6NodeIpam"}}"#;
