//! The configuration of the node: the settings file, the network configurations that name this plugin, and other IPAM plugins that
//! allocate from our subnets.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;

use super::executables::Executables;
use super::inspection::Inspection;
use crate::cni::{CallError, Defaults, NAME, NAME_V6, Route, ipam_keys, is_ipam_key};
use crate::codec::named_address;
use crate::failure::Failure;
use crate::host::Paths;
use crate::ipam::{Ipam, Record};
use crate::ops::conf_file::{ConfFile, Encoding, Plugin, ignored_files};
use crate::ops::finding::{Finding, FindingKind, Severity, Visibility, is_plain_path};
use crate::ops::node::Node;
use crate::ops::node_config::NodeConfig;
use crate::ops::screen::pluralize;
use crate::ops::tree::Tree;
use crate::source::{MatchedListing, parse_prefix};

/// Examines all of it.
pub fn examine(node: &Node, inspection: &Inspection, visibility: &mut Visibility) -> Vec<Finding> {
    let (paths, config) = (node.paths(), &inspection.config);
    let mut found = settings(node, config, visibility);
    let held = inspection.state.ipam().holders().count();
    let executables = &inspection.executables;
    found.extend(conflists(paths, config, executables, held, visibility));
    let known = Known::new(inspection.state.ipam(), inspection.matched());
    found.extend(overlapping(config, paths.name(), &known));
    let subnets: Vec<IpNet> = known.subnets.into_iter().collect();
    found.extend(config.ours(paths.name()).filter_map(|(file, plugin)| {
        let foreign = ForeignGateway::find(plugin, &config.defaults, &subnets)?;
        let severity = if foreign.is_fatal {
            Severity::Error
        } else {
            Severity::Warning
        };
        let remedy = "correct or remove that route";
        let finding = Finding::new(severity, FindingKind::Conflist, &foreign, &remedy);
        Some(finding.about(file.path.display()))
    }));
    found
}

/// The settings file.
fn settings(node: &Node, config: &NodeConfig, visibility: &mut Visibility) -> Vec<Finding> {
    const KIND: FindingKind = FindingKind::Settings;
    let path = node.paths().settings();
    let shown = path.display().to_string();
    if config.wrong_settings.is_empty() {
        let how = match fs::symlink_metadata(&path) {
            Ok(_) if !path.exists() && !node.is_in_container() => {
                let text = format_args!("{shown} is a link that leads nowhere: defaults apply");
                return vec![Finding::warning(
                    KIND,
                    &text,
                    &"correct the link, or remove it",
                )];
            }
            Ok(_) => "is valid",
            Err(_) => "does not exist: defaults apply",
        };
        return vec![Finding::ok(KIND, &format_args!("{shown} {how}"))];
    }
    let remedy = "it is ignored until it is corrected";
    let wrong = config.wrong_settings.iter();
    let wrong = wrong.filter(|why| !visibility.hides(&shown, why));
    let finding = |why: &String| {
        let text = format_args!("{shown}: {why}");
        Finding::warning(KIND, &text, &remedy)
    };
    wrong.map(finding).collect()
}

/// The network configurations that name this plugin. `held` is the number of held addresses.
fn conflists(
    paths: &Paths,
    config: &NodeConfig,
    executables: &Executables,
    held: usize,
    visibility: &mut Visibility,
) -> Vec<Finding> {
    const KIND: FindingKind = FindingKind::Conflist;
    let (name, folder) = (paths.name(), paths.conf_folder());
    let mut found = Vec::new();
    let ours: Vec<_> = config.ours(name).collect();
    for (path, why) in config.unusable() {
        let shown = path.display().to_string();
        if !visibility.hides(&shown, why) {
            let before = config.usable().find(|other| &*other.path < path);
            let is_first = ours.first().is_none_or(|(file, _)| path < &*file.path);
            let file = config.files.iter().find(|file| file.path == path);
            let is_ours = file.is_some_and(|file| file.plugins.iter().any(|p| p.uses_ipam(name)));
            // What else names this plugin may be in use, and a file that comes before it would take its place.
            let is_only_one = is_ours && ours.is_empty();
            let mut finding = refused(why, file, is_first, is_only_one).about(shown);
            if let Some(other) = before
                && ours.is_empty()
            {
                finding.text.push_str(&format!(
                    "; {} comes first by name: many runtimes use that alone",
                    other.path.display()
                ));
            }
            found.push(finding);
        }
    }
    // One that cannot be read may be the one that names this plugin.
    let is_known = config.unusable().next().is_none();
    for (file, plugin) in &ours {
        found.extend(conflist(file, plugin, config, executables, paths));
    }
    found.extend(misspelt_types(config, name));
    let is_named = !ours.is_empty();
    let misplaced = |file| ipam_of_list(file, name, is_named);
    found.extend(config.usable().filter_map(misplaced));
    match (config.files.first(), ours.first()) {
        (_, None) if is_known && found.is_empty() => {
            let shown = folder.display();
            let (text, step) = match (folder.exists(), folder.is_symlink()) {
                (true, _) => (
                    format!("no network configuration in {shown} names {name}"),
                    "put one there",
                ),
                (false, true) => (
                    format!(
                        "{shown} is a link that leads to no folder: no pod gets a network, unless the runtime reads another folder"
                    ),
                    "correct the link, and put a network configuration there",
                ),
                (false, false) => (
                    format!(
                        "{shown} does not exist: no pod gets a network, unless the runtime reads another folder"
                    ),
                    "make it, and put a network configuration there",
                ),
            };
            let ignored = ignored_files(&folder, name);
            let finding = match &*ignored {
                [] => {
                    let remedy = format_args!(
                        "{step} whose ipam has \"type\": \"{name}\", if this node is to use it"
                    );
                    Finding::warning(KIND, &text, &remedy)
                }
                [first, ..] => not_read(&text, first),
            };
            let about_folder = finding.about(&shown);
            let first = config.files.first();
            found.push(taken_over(about_folder, first, executables, held, name));
        }
        (_, Some((file, _))) => {
            if let Some(first) = config.used_instead_of(file, name) {
                let (shown, other) = (file.path.display(), first.path.display());
                let text = format_args!(
                    "{other} comes before {shown} by name, and many runtimes use only the first file"
                );
                let remedy = format_args!(
                    "unless {other} delegates to it, as Multus does, remove {other}, or rename {shown} so that it comes first"
                );
                let finding = Finding::warning(KIND, &text, &remedy).about(&shown);
                found.push(taken_over(finding, Some(first), executables, held, name));
            }
        }
        _ => {}
    }
    let mut others = ours.iter().skip_while(|(file, _)| is_same(file, &ours));
    if let (Some((first, _)), Some((other, _))) = (ours.first(), others.next())
        && !first.has_delegates()
    {
        let (first, other) = (first.path.display(), other.path.display());
        let text = format_args!("{first} and {other} both name {name}");
        let remedy = format_args!(
            "no action needed if that is intended: containerd and CRI-O give pods the first network by name, of {first}, unless their own configuration names another"
        );
        found.push(Finding::note(KIND, &text, &remedy).about(&other));
    }
    found.extend(config.files.iter().flat_map(repeated_keys));
    found.extend(config.usable().filter_map(disputed));
    found
}

/// Whether a file is the first one of ours.
fn is_same(file: &ConfFile, ours: &[(&ConfFile, &Plugin)]) -> bool {
    ours.first()
        .is_some_and(|(first, _)| first.path == file.path)
}

/// A file that runtimes refuse. `is_first` says whether they read it before all of ours; `is_only_one`, whether it alone names this
/// plugin. Another network is not made valid: it would take the pods over.
fn refused(why: &str, file: Option<&ConfFile>, is_first: bool, is_only_one: bool) -> Finding {
    const KIND: FindingKind = FindingKind::Conflist;
    let severity = if is_first {
        Severity::Error
    } else {
        Severity::Warning
    };
    let text = format_args!("runtimes refuse it: {why}");
    match file.filter(|_| is_only_one).and_then(repair_command) {
        Some((remedy, command)) => {
            let finding = Finding::new(severity, KIND, &text, &remedy);
            finding.with_commands([command])
        }
        None => {
            let remedy = "correct it or remove it; containerd starts no pod because of a file that it reads first";
            Finding::new(severity, KIND, &text, &remedy)
        }
    }
}

/// What makes runtimes accept a file whose text is right, and the command that does it.
fn repair_command(file: &ConfFile) -> Option<(&'static str, String)> {
    let from = file.path.to_str().filter(|path| is_plain_path(path))?;
    match (file.encoding, &file.right_name) {
        (Encoding::Utf8WithMark, _) => Some((
            "remove the byte order mark:",
            format!(r"sudo sed -i '1s/^\xEF\xBB\xBF//' {from}"),
        )),
        (Encoding::Utf16(name), _) => Some((
            "write it in UTF-8:",
            format!(
                "sudo sh -c 'cp -p {from} {from}.new && iconv -f {name} -t UTF-8 {from} >{from}.new && mv {from}.new {from}'"
            ),
        )),
        (Encoding::Utf8, Some(to)) if !to.exists() => Some((
            "give it the ending that fits:",
            format!("sudo mv {from} {}", to.display()),
        )),
        (Encoding::Utf8, _) => None,
    }
}

/// A file that some runtimes refuse and others accept.
fn disputed(file: &ConfFile) -> Option<Finding> {
    let text = format!("some runtimes refuse it: {}", file.dispute()?);
    let remedy = "correct it, so that every runtime accepts it";
    Some(Finding::warning(FindingKind::Conflist, &text, &remedy).about(file.path.display()))
}

/// A list with `ipam` outside of its plugins, where nothing reads it. `is_named` says whether a plugin of any file names this one.
fn ipam_of_list(file: &ConfFile, name: &str, is_named: bool) -> Option<Finding> {
    const KIND: FindingKind = FindingKind::Conflist;
    let ipam = file.outer_ipam.as_ref()?;
    let shown = file.path.display();
    if file.plugins.iter().any(|plugin| plugin.uses_ipam(name)) {
        let text = format_args!("ipam beside plugins has no effect");
        let remedy =
            format_args!("put its keys into ipam of the main plugin in {shown}, or remove it");
        return Some(Finding::warning(KIND, &text, &remedy).about(&shown));
    }
    if ipam.text_at("type") != Some(name) {
        return None;
    }
    let severity = if is_named {
        Severity::Warning
    } else {
        Severity::Error
    };
    let text = format_args!("ipam beside plugins has no effect, so {shown} does not use {name}");
    let remedy = format_args!("move it into the main plugin in {shown}");
    Some(Finding::new(severity, KIND, &text, &remedy).about(&shown))
}

/// The keys that a file has more than once.
fn repeated_keys(file: &ConfFile) -> impl Iterator<Item = Finding> {
    let shown = file.path.display().to_string();
    file.repeated.iter().map(move |key| {
        let text = format!(
            "{shown} has the key {key} more than once in one place: only the last one counts"
        );
        let remedy = format!("remove the others from {shown}, or the last one if another is meant");
        Finding::warning(FindingKind::Conflist, &text, &remedy).about(&shown)
    })
}

/// A configuration in a file whose ending runtimes do not read.
fn not_read(text: &str, path: &Path) -> Finding {
    let shown = path.display();
    let text =
        format_args!("{text}, but {shown} does, and runtimes do not read files with that ending");
    let without_ending = path.with_extension("");
    let plain = without_ending.display();
    let is_free = !without_ending.exists() && path.to_str().is_some_and(is_plain_path);
    let command = is_free.then(|| format!("sudo mv {shown} {plain}"));
    let end = if is_free { ":" } else { "" };
    let remedy = format!("if it is meant to be used, give it its ending back{end}");
    Finding::warning(FindingKind::Conflist, &text, &remedy).with_commands(command)
}

/// Adds to a finding that pods still hold addresses, though another plugin makes new ones.
fn taken_over(
    finding: Finding,
    first: Option<&ConfFile>,
    executables: &Executables,
    held: usize,
    name: &str,
) -> Finding {
    let Some(first) = first.filter(|_| held > 0) else {
        return finding;
    };
    let kind = first.plugins.first().map_or("unknown", Plugin::kind);
    if let Some(missing) = executables.missing(kind) {
        let (missing, first) = (missing.display(), first.path.display());
        return Finding {
            text: format!(
                "{}; {missing}, which {first} needs, is missing",
                finding.text
            ),
            ..finding
        };
    }
    let addresses = pluralize(held, "address is", "addresses are");
    Finding {
        text: format!(
            "{}; another plugin took over ({kind}, in {}), and {addresses} held",
            finding.text,
            first.path.display()
        ),
        remedy: format!(
            "if the other plugin is meant to take over, recreate the pods that hold them, then free what their DEL did not: `{name} reclaim --yes`; {}",
            finding.remedy
        ),
        ..finding
    }
}

/// Types of plugins that are spelt almost like this plugin's name.
fn misspelt_types(config: &NodeConfig, name: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in config.usable() {
        let plugins = file.plugins.iter();
        let kinds =
            plugins.flat_map(|plugin| plugin.ipam_kind().into_iter().chain([plugin.kind()]));
        let is_known = |kind: &&str| [NAME, NAME_V6].contains(kind);
        for kind in kinds.filter(|kind| !is_known(kind) && is_near(kind, name)) {
            let shown = file.path.display();
            let text = format_args!("{shown} names the plugin {kind}, which is not this one");
            let remedy = format_args!("if {name} is meant, correct it in {shown}");
            found.push(Finding::error(FindingKind::Conflist, &text, &remedy).about(&shown));
        }
    }
    found
}

/// A plugin that uses this one.
fn conflist(
    file: &ConfFile,
    plugin: &Plugin,
    config: &NodeConfig,
    executables: &Executables,
    paths: &Paths,
) -> Vec<Finding> {
    const KIND: FindingKind = FindingKind::Conflist;
    let shown = file.path.display();
    let call = match plugin.parse_call(&config.defaults) {
        Ok(call) => call,
        Err(CallError::Incompatible(_)) if executables.is_version_disputed(file) => {
            return Vec::new();
        }
        Err(error) => {
            let text = format!("every ADD fails: {error}");
            let is_version = matches!(error, CallError::Incompatible(_) | CallError::NoVersion(_));
            let remedy = Failure::from(error).remedy(paths.name(), &shown.to_string());
            let other_way = executables.ask_for_common_version(file);
            let finding = match other_way.filter(|_| is_version) {
                Some((step, command)) => {
                    let remedy = format!("{remedy}; {step}");
                    Finding::error(KIND, &text, &remedy).with_commands([command])
                }
                None => Finding::error(KIND, &text, &remedy),
            };
            return vec![finding.about(&shown)];
        }
    };
    let mut found = misspelt_keys(plugin, &shown.to_string());
    found.extend(file.first_that_needs_result().map(|kind| {
        let text = format_args!(
            "every ADD fails: {kind} is the first plugin, and needs the result of another"
        );
        let remedy = format_args!("put it after the main plugin in {shown}");
        Finding::error(KIND, &text, &remedy).about(&shown)
    }));
    found.extend(file.mistyped_key().map(|(kind, mistyped)| {
        let text = format_args!("every ADD fails: {kind} refuses {mistyped}");
        let remedy = format_args!("correct it in {shown}");
        Finding::error(KIND, &text, &remedy).about(&shown)
    }));
    found.extend(call.conf.ignored.iter().map(|why| {
        let text = format_args!("{why}; this is ignored");
        let remedy = format_args!("correct it in {shown}");
        Finding::warning(KIND, &text, &remedy).about(&shown)
    }));
    found.extend(call.conf.ipam.ip_address.as_ref().map(|address| {
        let text = format_args!(
            "ipam.ipAddress requests {address} for every pod, so only one pod at a time gets an address"
        );
        let remedy = format_args!("unless that is intended, remove ipam.ipAddress from {shown}");
        Finding::warning(KIND, &text, &remedy).about(&shown)
    }));
    let name = plugin.network();
    let kind = match plugin.kind() {
        "" => "a plugin without type",
        kind => kind,
    };
    let text = format_args!("{shown}: network {name}, plugin {kind}");
    let version = file.chosen_version.as_ref().or(file.cni_version.as_ref());
    found.push(match version.map_or("", String::as_str) {
        "" => {
            let text = format_args!("{text}, without cniVersion, which means 0.1.0");
            let common = executables.common_version(file).unwrap_or("1.0.0");
            let remedy = format_args!("add \"cniVersion\": \"{common}\" to {shown}");
            Finding::note(KIND, &text, &remedy)
        }
        version => Finding::ok(KIND, &format_args!("{text}, CNI {version}")),
    });
    found
}

/// Keys that nobody reads, and that are spelt almost like one that this plugin reads or are in the wrong place. Most keys beside `type`
/// belong to the main plugin.
fn misspelt_keys(plugin: &Plugin, shown: &str) -> Vec<Finding> {
    const BESIDE_TYPE: [&str; 2] = ["logLevel", "logTarget"];
    // Main plugins have keys such as routes and master themselves.
    const ONLY_OURS: [&str; 6] = [
        "cooldown",
        "exclude",
        "families",
        "keep",
        "queryInterval",
        "queryUrl",
    ];
    let near_one = |key: &str| BESIDE_TYPE.into_iter().find(|known| is_near(key, known));
    let finding = |key: &str, remedy: String| {
        let text = format!("{key} is not a key of this plugin, so it has no effect");
        Finding::warning(FindingKind::Conflist, &text, &remedy).about(shown)
    };
    let ipam = plugin.netconf.get("ipam");
    let keys = ipam.into_iter().flat_map(Tree::members).map(|(key, _)| key);
    let in_ipam = keys.filter(|key| !is_ipam_key(key)).filter_map(|key| {
        let remedy = match ipam_keys().find(|known| is_near(key, known)) {
            Some(known) => format!("if ipam.{known} is meant, correct it in {shown}"),
            None => format!(
                "if {} is meant, put it beside type of the main plugin in {shown}",
                near_one(key)?
            ),
        };
        Some(finding(&format!("ipam.{key}"), remedy))
    });
    let keys = plugin.netconf.members().map(|(key, _)| key);
    let beside_type = keys.filter_map(|key| {
        let known = near_one(key)?;
        // Calico has a log_level of its own.
        let is_wrong = !key.eq_ignore_ascii_case(known) && !key.contains('_');
        let remedy = format!("if {known} is meant, correct it in {shown}");
        is_wrong.then(|| finding(key, remedy))
    });
    let keys = plugin.netconf.members().map(|(key, _)| key);
    let is_ours = |key: &&String| ONLY_OURS.iter().any(|ours| key.eq_ignore_ascii_case(ours));
    let outside = keys.filter(is_ours).map(|key| {
        let text = format!("{key} beside type has no effect on addresses");
        let remedy = format!("if ipam.{key} is meant, put it into ipam in {shown}");
        Finding::warning(FindingKind::Conflist, &text, &remedy).about(shown)
    });
    in_ipam.chain(beside_type).chain(outside).collect()
}

/// Whether a word is probably a misspelling of another.
fn is_near(word: &str, known: &str) -> bool {
    let distance = strsim::damerau_levenshtein(&word.to_lowercase(), &known.to_lowercase());
    distance <= (known.len() / 3).min(2)
}

/// A gateway of `ipam.routes` that is in no subnet of the pods.
#[derive(Debug, PartialEq, Eq)]
pub struct ForeignGateway {
    gateway: IpAddr,
    /// Whether the main plugin fails because of it. Others do not configure the routes as they stand.
    pub is_fatal: bool,
}

impl ForeignGateway {
    /// Finds one, unless there are no subnets.
    pub fn find(plugin: &Plugin, defaults: &Defaults, subnets: &[IpNet]) -> Option<ForeignGateway> {
        let routes = plugin.parse_call(defaults).ok()?.conf.ipam.routes?;
        // A link-local one needs no subnet.
        let is_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let is_ours = |ip: &IpAddr| subnets.iter().any(|subnet| subnet.contains(ip));
        let mut gateways = routes.iter().filter_map(|route| route.gw);
        let has_family = |ip: &IpAddr| {
            let mut families = subnets.iter().map(|subnet| subnet.addr().is_ipv4());
            families.any(|is_ipv4| is_ipv4 == ip.is_ipv4())
        };
        let gateway = gateways.find(|ip| has_family(ip) && !is_local(ip) && !is_ours(ip))?;
        let leads_there = |route: &Route| {
            route.dst.prefix_len() > 0 && route.dst.contains(&gateway) && route.gw != Some(gateway)
        };
        Some(ForeignGateway {
            gateway,
            is_fatal: plugin.configures_routes() && !routes.iter().any(leads_there),
        })
    }
}

impl Display for ForeignGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gateway = self.gateway;
        write!(
            f,
            "the gateway {gateway} in ipam.routes is in no subnet of the pods"
        )?;
        if self.is_fatal {
            f.write_str(", so every ADD fails")?;
        }
        Ok(())
    }
}

/// What this plugin allocates from: the state's pools and the listed ones.
struct Known {
    /// Without the subnet of all addresses.
    subnets: BTreeSet<IpNet>,
    addresses: BTreeSet<IpAddr>,
}

impl Known {
    fn new(ipam: &Ipam, matched: Option<&MatchedListing>) -> Known {
        let listed = matched.iter().flat_map(|m| &m.inventory.pools);
        let stored = ipam.pools().filter_map(|(_, key, pool)| pool.net(key));
        let subnets = stored.chain(listed.clone().map(|pool| pool.subnet));
        let addresses = ipam.records().map(Record::address);
        Known {
            subnets: subnets.filter(|subnet| subnet.prefix_len() > 0).collect(),
            addresses: addresses
                .chain(listed.flat_map(|pool| pool.addresses.iter().copied()))
                .collect(),
        }
    }

    /// The subnet that another plugin allocates from, too.
    fn overlap(&self, range: &AddressRange) -> Option<&IpNet> {
        let mut addresses = self.addresses.iter();
        if range.is_bounded() && !addresses.any(|address| range.contains(*address)) {
            return None;
        }
        let mut subnets = self.subnets.iter();
        subnets.find(|ours| ours.contains(&range.net) || range.net.contains(*ours))
    }
}

/// The addresses that another plugin allocates.
struct AddressRange {
    net: IpNet,
    /// The first and the last one, if only a part of the prefix is allocated.
    first: Option<IpAddr>,
    last: Option<IpAddr>,
}

impl AddressRange {
    fn is_bounded(&self) -> bool {
        self.first.is_some() || self.last.is_some()
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.net.contains(&address)
            && self.first.is_none_or(|first| first <= address)
            && self.last.is_none_or(|last| address <= last)
    }
}

impl From<IpNet> for AddressRange {
    fn from(net: IpNet) -> Self {
        AddressRange {
            net,
            first: None,
            last: None,
        }
    }
}

/// Plugins whose `ipam` names addresses that are in our subnets.
fn overlapping(config: &NodeConfig, name: &str, known: &Known) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in config.usable() {
        for plugin in file.plugins.iter().filter(|plugin| !plugin.uses_ipam(name)) {
            let mut theirs = Vec::new();
            if let Some(ipam) = plugin.netconf.get("ipam") {
                ranges(ipam, &mut theirs);
            }
            let overlap = theirs
                .iter()
                .find_map(|range| Some((range.net, known.overlap(range)?)));
            if let Some((net, subnet)) = overlap {
                let path = file.path.display();
                let kind = plugin.ipam_kind().unwrap_or("unknown");
                let text = format_args!(
                    "{path}: the IPAM plugin {kind} allocates from {net}, which overlaps our {subnet}"
                );
                let remedy = format_args!(
                    "give it another subnet, or remove {path}: two pods with one address break both"
                );
                found.push(Finding::error(FindingKind::Conflict, &text, &remedy));
            }
        }
    }
    if found.is_empty() && !known.subnets.is_empty() {
        let text = "no other IPAM plugin allocates our addresses";
        found.push(Finding::ok(FindingKind::Conflict, &text));
    }
    found
}

/// Collects every prefix that a plugin allocates from: `subnet`, `ranges`, `range` and the like.
fn ranges(value: &Tree, found: &mut Vec<AddressRange>) {
    match value {
        Tree::Text(text) => found.extend(parse_prefix(text).map(AddressRange::from)),
        Tree::List(items) => items.iter().for_each(|item| ranges(item, found)),
        Tree::Object(members) => {
            let mut own = Vec::new();
            for (key, value) in members {
                match (&**key, value) {
                    // These are not allocated from.
                    ("routes" | "exclude" | "gateway" | "dns", _) => {}
                    // The prefix length of a single address is that of its network.
                    ("address", Tree::Text(text)) => {
                        own.extend(
                            named_address(text).map(|one| AddressRange::from(IpNet::from(one))),
                        );
                    }
                    (_, value) => ranges(value, &mut own),
                }
            }
            // host-local and whereabouts spell them differently.
            let bound = |keys: [&str; 2]| {
                let mut texts = keys.iter().filter_map(|key| value.text_at(key));
                texts.find_map(named_address)
            };
            for range in &mut own {
                range.first = range.first.or(bound(["rangeStart", "range_start"]));
                range.last = range.last.or(bound(["rangeEnd", "range_end"]));
            }
            found.extend(own);
        }
        Tree::Other(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::Moment;
    use crate::ops::conf_file::parse;
    use crate::ops::findings::tests::listed;

    fn clash(ipam: &str) -> Vec<Finding> {
        let text = format!(r#"{{"name":"x","type":"bridge","ipam":{ipam}}}"#);
        let config = NodeConfig {
            files: vec![parse(&text).unwrap()],
            ..NodeConfig::default()
        };
        let ours = listed("10.224.0.0/16", &["10.224.0.6", "10.224.0.7"]);
        let known = Known::new(&Ipam::default(), Some(&ours));
        overlapping(&config, "azure-vnet-ipam", &known)
    }

    #[test]
    fn subnets_are_found_wherever_a_plugin_names_them() {
        for ipam in [
            r#"{"type":"host-local","subnet":"10.224.4.0/24"}"#,
            r#"{"type":"host-local","ranges":[[{"subnet":"10.9.0.0/16"}],[{"subnet":"10.0.0.0/8"}]]}"#,
            r#"{"type":"whereabouts","range":"10.224.0.0/17"}"#,
            r#"{"type":"static","addresses":[{"address":"10.224.0.9/24"}]}"#,
            r#"{"type":"host-local","ranges":[[{"subnet":"10.224.0.0/16","rangeStart":"10.224.0.7","rangeEnd":"10.224.0.9"}]]}"#,
            r#"{"type":"whereabouts","range":"10.224.0.0/16","range_end":"10.224.0.6"}"#,
        ] {
            let lines = clash(ipam);
            assert_eq!(lines.len(), 1, "{ipam}");
            assert_eq!(lines[0].severity, Severity::Error);
            assert!(lines[0].text.contains("our 10.224.0.0/16"), "{lines:?}");
        }
        for ipam in [
            r#"{"type":"host-local","subnet":"10.225.0.0/16","routes":[{"dst":"0.0.0.0/0"}]}"#,
            r#"{"type":"static","addresses":[{"address":"10.9.0.1/4"}]}"#,
            r#"{"type":"host-local","ranges":[[{"subnet":"10.224.0.0/16","rangeStart":"10.224.0.8"}]]}"#,
            r#"{"type":"whereabouts","range":"10.224.0.0/16","range_start":"10.224.0.1","range_end":"10.224.0.5"}"#,
            r#"{"type":"azure-vnet-ipam","subnet":"10.224.0.0/16"}"#,
            r#"{"type":"dhcp"}"#,
            "null",
        ] {
            let lines = clash(ipam);
            assert_eq!(lines.len(), 1, "{ipam}");
            assert_eq!(lines[0].severity, Severity::Ok, "{lines:?}");
        }
    }

    #[test]
    fn misspelt_and_misplaced_keys_are_found() {
        let remedies = |text: &str| {
            let plugin = parse(text).unwrap().plugins.remove(0);
            let found = misspelt_keys(&plugin, "FILE").into_iter();
            Vec::from_iter(found.map(|finding| finding.remedy))
        };
        let wrong = r#"{"type":"ptp","logLevels":"warn","ipam":{"colddown":1,"LogLevel":"off"}}"#;
        assert_eq!(
            remedies(wrong),
            [
                "if logLevel is meant, put it beside type of the main plugin in FILE",
                "if ipam.cooldown is meant, correct it in FILE",
                "if logLevel is meant, correct it in FILE",
            ]
        );
        let right = r#"{"type":"calico","log_level":"info","LOGLEVEL":"warn","mtu":1,"ipam":{"Cooldown":1,"x":1}}"#;
        assert!(remedies(right).is_empty());
    }

    #[test]
    fn gateway_in_no_subnet_is_found() {
        let find = |kind: &str, routes: &str| {
            let text = format!(
                r#"{{"name":"x","type":"{kind}","ipam":{{"type":"azure-vnet-ipam","routes":[{routes}]}}}}"#
            );
            let plugin = parse(&text).unwrap().plugins.remove(0);
            let subnets = ["10.224.0.0/16".parse().unwrap()];
            let found = ForeignGateway::find(&plugin, &Defaults::default(), &subnets);
            found.map(|found| found.is_fatal)
        };
        let own = r#"{"dst":"0.0.0.0/0","gw":"10.224.0.1"},{"dst":"10.9.0.0/16"},{"dst":"::/0","gw":"fe80::1"}"#;
        let foreign = r#"{"dst":"10.225.0.0/16","gw":"10.225.0.1"}"#;
        let leads_there = format!(r#"{{"dst":"10.225.0.1/32"}},{foreign}"#);
        let after_ipv6 = format!(r#"{{"dst":"::/0","gw":"fd01::1"}},{foreign}"#);
        assert_eq!(find("ptp", own), None);
        assert_eq!(find("ptp", foreign), Some(true));
        assert_eq!(find("ptp", &after_ipv6), Some(true));
        assert_eq!(find("ptp", &leads_there), Some(false));
        assert_eq!(find("azure-vnet", foreign), Some(false));
    }

    #[test]
    fn subnets_of_state_and_source_are_known_but_not_that_of_all_addresses() {
        let mut ipam = Ipam::default();
        ipam.merge(&listed("10.1.0.0/16", &["10.1.0.6"]).inventory, Moment(1));
        let subnets = |answer: &str| {
            let known = Known::new(&ipam, Some(&listed(answer, &[])));
            Vec::from_iter(known.subnets.iter().map(ToString::to_string))
        };
        assert_eq!(subnets("10.2.0.0/16"), ["10.1.0.0/16", "10.2.0.0/16"]);
        assert_eq!(subnets("0.0.0.0/0"), ["10.1.0.0/16"]);
    }
}
