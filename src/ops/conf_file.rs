//! The files in /etc/cni/net.d, as the releases of libcni read them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::conf_types::{Mistyped, libcni_refusal, mistyped_key};
use super::tree::Tree;
use crate::codec::Cursor;
use crate::host::{ReadOutcome, io_reason, read_bounded};

/// The size limit of a configuration file, in bytes.
const LIMIT: usize = 1 << 20;

// Every runtime reads the files with a release of libcni. Of some keys, each release has its own rules.
const BEFORE_1_2: &str = "libcni before 1.2, such as that of containerd 1,";
pub const SINCE_1_2: &str = "libcni 1.2 and later, such as that of containerd 2,";
const BEFORE_1_3: &str = "libcni before 1.3, such as that of containerd 2.0,";
pub const SINCE_1_3: &str = "libcni 1.3 and later, such as that of containerd 2.1,";

/// A file in /etc/cni/net.d with a network configuration: a list of plugins, of which a `.conf` has one.
#[derive(Debug, Default)]
pub struct ConfFile {
    /// The path.
    pub path: PathBuf,
    /// Why runtimes refuse the file, if they do.
    pub error: Option<String>,
    /// Which releases of libcni refuse the file, and why, if others accept it.
    pub disputed: Option<(&'static str, String)>,
    /// How the file is encoded.
    pub encoding: Encoding,
    /// The name of the file under which runtimes would accept it, if only that is wrong.
    pub right_name: Option<PathBuf>,
    /// The keys that one object of the file has more than once. The last one counts.
    pub repeated: BTreeSet<String>,
    /// Whether it is a list of plugins, as the ending `.conflist` promises.
    pub is_list: bool,
    /// The key `ipam` of such a list, beside `plugins`.
    pub outer_ipam: Option<Tree>,
    /// The network's name, if it is a string.
    pub name: Option<String>,
    /// The CNI version, if it is a string.
    pub cni_version: Option<String>,
    /// The version that libcni since 1.2 chooses, if the file has `cniVersions`.
    pub chosen_version: Option<String>,
    /// Whether the plugins in the folder of the network are not called.
    inlined_only: bool,
    /// The plugins in their order, then those that Multus among them calls, then those in the folder of the network.
    pub plugins: Vec<Plugin>,
}

/// How a file is encoded. Runtimes refuse all but the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8.
    #[default]
    Utf8,
    /// UTF-8 after a byte order mark.
    Utf8WithMark,
    /// UTF-16, as `iconv` names it.
    Utf16(&'static str),
}

/// One plugin of a list.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// The configuration as a runtime passes it, with `name` and `cniVersion` of the list.
    pub netconf: Tree,
    /// The folder of the network that it is in, which only libcni since 1.3 reads.
    pub folder: Option<PathBuf>,
}

impl ConfFile {
    /// Why libcni, and with it every runtime, refuses the file under this path, if it does.
    fn refusal(&self, path: &Path) -> Option<&'static str> {
        let is_named_list = path.extension().is_some_and(|ending| ending == "conflist");
        match (is_named_list, self.is_list) {
            (true, false) if self.plugins.iter().all(|plugin| plugin.kind().is_empty()) => {
                Some("it has no list `plugins`")
            }
            (true, false) => Some("it is a single plugin under the name of a list"),
            (false, true) => Some("it is a list of plugins under the name of a single plugin"),
            _ if self.plugins.is_empty() => Some("it has no plugins"),
            _ if self.plugins.iter().any(|plugin| plugin.kind().is_empty()) => {
                Some("one of its plugins has no type")
            }
            _ if self.name.as_deref().unwrap_or_default().is_empty() => Some("it has no name"),
            _ => None,
        }
    }

    /// Who refuses the file and why, if others accept it.
    pub fn dispute(&self) -> Option<String> {
        let (who, why) = self.disputed.as_ref()?;
        Some(format!("{who} refuses {}: {why}", self.path.display()))
    }

    /// The CNI version that libcni before 1.2 asks for, and others where there is no `cniVersions`.
    pub fn version(&self) -> &str {
        match self.cni_version.as_deref() {
            None | Some("") => "0.1.0",
            Some(version) => version,
        }
    }

    /// The plugins that every runtime calls: those in the folder of the network only if there are no others.
    pub fn always_called(&self) -> impl Iterator<Item = &Plugin> {
        let are_all_in_folder = self.plugins.iter().all(|plugin| plugin.folder.is_some());
        let plugins = self.plugins.iter();
        plugins.filter(move |plugin| are_all_in_folder || plugin.folder.is_none())
    }

    /// The first plugin of the list, if it is one of those that fail without the result of another.
    pub fn first_that_needs_result(&self) -> Option<&str> {
        let first = self.plugins.first().filter(|_| self.is_list)?;
        let needs_result = matches!(
            first.kind(),
            "bandwidth" | "firewall" | "portmap" | "sbr" | "tuning" | "vrf"
        );
        let has_result = first.netconf.get("prevResult").is_some();
        (needs_result && !has_result).then_some(first.kind())
    }

    /// The first key of a main plugin whose value that plugin refuses, with the type of the plugin.
    pub fn mistyped_key(&self) -> Option<(&str, Mistyped)> {
        let mistyped = |plugin: &'_ Plugin| mistyped_key(plugin.kind(), &plugin.netconf);
        let mut plugins = self.always_called();
        plugins.find_map(|plugin| Some((plugin.kind(), mistyped(plugin)?)))
    }

    /// Adds the plugins in the folder of the network. libcni since 1.3 calls them after those of the list, which may be missing then.
    fn add_folder(&mut self, path: &Path) {
        let name = self.name.as_deref().unwrap_or_default();
        let is_named_list = path.extension().is_some_and(|ending| ending == "conflist");
        let is_empty_list = self.is_list && self.plugins.is_empty();
        if name.is_empty() || self.inlined_only || !is_named_list || is_empty_list {
            return;
        }
        match plugins_in_folder(&path.with_file_name(name)) {
            Ok(found) if found.is_empty() => {}
            Ok(found) => {
                if !self.is_list {
                    // Releases that would read the folder refuse the file for another reason.
                    if let Some((SINCE_1_2 | SINCE_1_3, _)) = self.disputed {
                        return;
                    }
                    self.is_list = true;
                    self.plugins.clear();
                    let why = "it has no list `plugins`".to_owned();
                    self.disputed = Some((BEFORE_1_3, why));
                }
                for mut plugin in found {
                    plugin.set_network(self.name.as_ref(), self.cni_version.as_ref());
                    self.plugins.push(plugin);
                }
            }
            Err(why) => {
                self.disputed.get_or_insert((SINCE_1_3, why));
            }
        }
    }

    /// Reads the keys of a list that some releases of libcni read otherwise than others.
    fn read_disputed_keys(&mut self, members: &BTreeMap<String, Tree>) -> Result<(), String> {
        let disables_check = "disableCheck";
        boolean(members, disables_check)?;
        let is_refused_before_1_2 = matches!(members.get(disables_check), Some(Tree::Text(_)));
        if is_refused_before_1_2 {
            let why = format!("{disables_check} must not be in quotes");
            self.disputed = Some((BEFORE_1_2, why));
        }
        match chosen_version(members, self.cni_version.as_deref()) {
            Ok(version) => self.chosen_version = version,
            Err(why) => self.disputed = Some((SINCE_1_2, why)),
        }
        if let Err(why) = boolean(members, "disableGC") {
            self.disputed = Some((SINCE_1_2, why));
        }
        // Each release refuses it for one of two reasons.
        if let (true, Some((SINCE_1_2, why))) = (is_refused_before_1_2, &self.disputed) {
            return Err(why.clone());
        }
        match boolean(members, "loadOnlyInlinedPlugins") {
            Ok(inlined_only) => self.inlined_only = inlined_only,
            Err(why) => {
                self.inlined_only = true;
                self.disputed.get_or_insert((SINCE_1_3, why));
            }
        }
        Ok(())
    }

    /// Whether one of its plugins is Multus, which calls those of other networks.
    pub fn has_delegates(&self) -> bool {
        let mut plugins = self.plugins.iter();
        plugins.any(|plugin| {
            let keys = ["delegates", "clusterNetwork"];
            keys.iter().any(|key| plugin.netconf.get(key).is_some())
        })
    }

    /// Whether one of its plugins is Multus, and calls those of another file.
    pub fn leads_to(&self, other: &ConfFile) -> bool {
        let plugins = self.plugins.iter();
        let mut named = plugins.filter_map(|plugin| plugin.netconf.text_at("clusterNetwork"));
        named.any(|named| {
            Path::new(named).file_name() == other.path.file_name()
                || other.name.as_deref() == Some(named)
        })
    }
}

impl Plugin {
    /// Sets what a runtime passes to every plugin of a list.
    fn set_network(&mut self, name: Option<&String>, cni_version: Option<&String>) {
        if let Tree::Object(members) = &mut self.netconf {
            for (key, value) in [("name", name), ("cniVersion", cni_version)] {
                let text = value.cloned().unwrap_or_default();
                members.insert(key.to_owned(), Tree::Text(text));
            }
        }
    }

    /// Its `type`; empty where it has none.
    pub fn kind(&self) -> &str {
        self.netconf.text_at("type").unwrap_or_default()
    }

    /// Whether it gives packets of its pods for other networks an address of the host.
    pub fn masquerades(&self) -> bool {
        matches!(self.netconf.get("ipMasq"), Some(Tree::Other(value)) if value.get() == "true")
    }

    /// Whether it configures the routes of a result in the pod as they stand.
    pub fn configures_routes(&self) -> bool {
        let kind = self.kind();
        matches!(
            kind,
            "bridge" | "dummy" | "host-device" | "ipvlan" | "macvlan" | "ptp" | "tap" | "vlan"
        )
    }

    /// The name of its network; empty where it has none.
    pub fn network(&self) -> &str {
        self.netconf.text_at("name").unwrap_or_default()
    }

    /// The `type` of its `ipam`.
    pub fn ipam_kind(&self) -> Option<&str> {
        self.netconf.get("ipam")?.text_at("type")
    }

    /// Whether it uses the plugin `name` for IPAM, or is that plugin.
    pub fn uses_ipam(&self, name: &str) -> bool {
        self.ipam_kind() == Some(name) || self.kind() == name
    }
}

/// Reads the configuration files of a folder, by name.
///
/// # Errors
/// The folder cannot be read.
pub fn conf_files(folder: &Path) -> io::Result<Vec<ConfFile>> {
    let paths = paths_in(folder, has_known_ending)?;
    Ok(paths.into_iter().map(read_conf_file).collect())
}

/// The paths in a folder that runtimes read, by name. They skip folders, but not links to folders.
fn paths_in(folder: &Path, is_read: fn(&Path) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_folder = path.is_dir() && !path.is_symlink();
        if is_read(&path) && !is_folder {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// The plugins in the folder of a network, each in a file of its own.
fn plugins_in_folder(folder: &Path) -> Result<Vec<Plugin>, String> {
    let is_plugin = |path: &Path| path.extension().is_some_and(|ending| ending == "conf");
    let paths = match paths_in(folder, is_plugin) {
        Ok(paths) => paths,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(format!("{}: {}", folder.display(), io_reason(&e))),
    };
    let mut plugins = Vec::new();
    for path in paths {
        let plugin = read_bytes(&path).and_then(|bytes| {
            let file = parse(&String::from_utf8_lossy(&bytes))?;
            let plugin = file.plugins.into_iter().next().filter(|_| !file.is_list);
            plugin
                .filter(|plugin| !plugin.kind().is_empty())
                .ok_or_else(|| "it has no type".to_owned())
        });
        plugins.push(Plugin {
            folder: Some(folder.to_owned()),
            ..plugin.map_err(|why| format!("{}: {why}", path.display()))?
        });
    }
    Ok(plugins)
}

/// Reads a Boolean of a list as libcni since 1.2 does, which takes a string for it too.
fn boolean(members: &BTreeMap<String, Tree>, key: &str) -> Result<bool, String> {
    let text = match members.get(key) {
        None => return Ok(false),
        Some(Tree::Text(text)) => text.to_lowercase(),
        Some(Tree::Other(raw)) => raw.get().to_owned(),
        Some(_) => String::new(),
    };
    let parsed = text.parse();
    parsed.map_err(|_| format!("{key} must be true or false"))
}

/// The version that libcni since 1.2 chooses: the newest of `cniVersions` and `cniVersion` that it knows.
fn chosen_version(
    members: &BTreeMap<String, Tree>,
    cni_version: Option<&str>,
) -> Result<Option<String>, String> {
    /// The newest that libcni up to 1.3 knows.
    const NEWEST: [i64; 3] = [1, 1, 0];
    let listed = match members.get("cniVersions") {
        None => return Ok(None),
        Some(Tree::List(listed)) => listed,
        Some(_) => return Err("cniVersions must be a list".to_owned()),
    };
    let mut texts = Vec::new();
    for item in listed {
        match item {
            Tree::Text(text) => texts.push(text.as_str()),
            _ => return Err("cniVersions must be a list of strings".to_owned()),
        }
    }
    texts.extend(cni_version.filter(|version| !version.is_empty()));
    let mut known = Vec::new();
    for text in texts {
        let numbers = version_numbers(text).ok_or_else(|| format!("{text:?} is no CNI version"))?;
        if numbers <= NEWEST {
            known.push((numbers, text));
        }
    }
    let newest = known.into_iter().max().map(|(_, text)| text);
    Ok(newest.or(cni_version).map(str::to_owned))
}

/// The numbers of a version, as libcni reads it: those at the end may be missing.
fn version_numbers(text: &str) -> Option<[i64; 3]> {
    if text.is_empty() {
        return Some([0, 1, 0]);
    }
    let mut numbers = [0; 3];
    for (n, part) in text.split('.').enumerate() {
        *numbers.get_mut(n)? = part.parse().ok()?;
    }
    Some(numbers)
}

/// Reads the bytes of a configuration file.
fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
    match read_bounded(path, LIMIT) {
        Ok(ReadOutcome::Read(bytes)) => Ok(bytes),
        Ok(ReadOutcome::Missing) if path.is_symlink() => {
            Err("it is a link that leads to no file".to_owned())
        }
        Ok(ReadOutcome::Missing) => Err("it is gone now".to_owned()),
        Ok(ReadOutcome::TooLarge) => Err(format!("it is larger than {LIMIT} bytes")),
        Err(e) => Err(io_reason(&e)),
    }
}

/// Reads a file as runtimes do. Of one that they refuse, it keeps what can be read.
fn read_conf_file(path: PathBuf) -> ConfFile {
    let bytes = match read_bytes(&path) {
        Ok(bytes) => bytes,
        Err(why) => {
            return ConfFile {
                path,
                error: Some(why),
                ..ConfFile::default()
            };
        }
    };
    let (text, encoding) = decode(&bytes);
    let mut file = match parse(&text) {
        Ok(mut file) => {
            file.add_folder(&path);
            let ending = if file.is_list { "conflist" } else { "conf" };
            let is_plugin = file.is_list || file.plugins.iter().any(|p| !p.kind().is_empty());
            let is_misnamed = file.is_list != path.extension().is_some_and(|e| e == "conflist");
            let right_name = (is_plugin && is_misnamed).then(|| path.with_extension(ending));
            let error = file.refusal(&path).map(str::to_owned);
            ConfFile {
                right_name,
                error,
                ..file
            }
        }
        Err(why) => ConfFile {
            name: find_name(&text),
            error: Some(why),
            ..ConfFile::default()
        },
    };
    file.error = encoding.refusal().map(str::to_owned).or(file.error);
    ConfFile {
        path,
        encoding,
        ..file
    }
}

/// The name of the network in a list that cannot be parsed, as far as it can be read.
fn find_name(text: &str) -> Option<String> {
    let mut name = None;
    let _ = Cursor::new(text).object(&mut |key, json| match key {
        "name" => json.string().map(|found| name = Some(found.into_owned())),
        _ => json.skip(),
    });
    name
}

/// The text of a file, whatever its encoding is. As runtimes do, it replaces what is not UTF-8.
fn decode(bytes: &[u8]) -> (Cow<'_, str>, Encoding) {
    let (text, name, unit): (_, _, fn([u8; 2]) -> u16) = match bytes {
        [0xef, 0xbb, 0xbf, text @ ..] => {
            return (String::from_utf8_lossy(text), Encoding::Utf8WithMark);
        }
        [0xff, 0xfe, text @ ..] => (text, "UTF-16", u16::from_le_bytes),
        [0xfe, 0xff, text @ ..] => (text, "UTF-16", u16::from_be_bytes),
        [1..=u8::MAX, 0, ..] => (bytes, "UTF-16LE", u16::from_le_bytes),
        [0, 1..=u8::MAX, ..] => (bytes, "UTF-16BE", u16::from_be_bytes),
        _ => return (String::from_utf8_lossy(bytes), Encoding::Utf8),
    };
    let (pairs, _) = text.as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
    (
        String::from_utf16_lossy(&units).into(),
        Encoding::Utf16(name),
    )
}

impl Encoding {
    /// Why runtimes refuse a file with this encoding, if they do.
    fn refusal(self) -> Option<&'static str> {
        match self {
            Encoding::Utf8 => None,
            Encoding::Utf8WithMark => {
                Some("it begins with a byte order mark, which JSON does not allow")
            }
            Encoding::Utf16(_) => Some("it is encoded in UTF-16, and runtimes read UTF-8 alone"),
        }
    }
}

/// Lists the files of the folder that name a plugin for IPAM, and whose endings runtimes do not read.
pub fn ignored_files(folder: &Path, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut found: Vec<PathBuf> = paths
        .filter(|path| !has_known_ending(path) && path.is_file())
        .filter(|path| {
            let Ok(ReadOutcome::Read(bytes)) = read_bounded(path, LIMIT) else {
                return false;
            };
            let parsed = parse(&decode(&bytes).0);
            parsed.is_ok_and(|file| file.plugins.iter().any(|plugin| plugin.uses_ipam(name)))
        })
        .collect();
    found.sort_unstable();
    found
}

fn has_known_ending(path: &Path) -> bool {
    let ending = path.extension().and_then(OsStr::to_str);
    matches!(ending, Some("conf" | "conflist" | "json"))
}

/// Parses a network configuration, whose path is left empty. A `.conf` counts as a list of one plugin.
///
/// # Errors
/// It is not a JSON object, or a key has the wrong type.
pub fn parse(text: &str) -> Result<ConfFile, String> {
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut repeated = BTreeSet::new();
    let whole = Tree::parse_text(text, &mut repeated)?;
    let file = conf_file(whole)?;
    Ok(ConfFile { repeated, ..file })
}

fn conf_file(whole: Tree) -> Result<ConfFile, String> {
    let Tree::Object(members) = &whole else {
        return Err("it is not an object".to_owned());
    };
    // libcni reads the keys of a list as they are spelt, and those of a single plugin in any case.
    let is_list = members.contains_key("plugins");
    let text = |key: &str| {
        let found = if is_list {
            members.get(key)
        } else {
            whole.get(key)
        };
        match found {
            None => Ok(None),
            Some(Tree::Text(text)) => Ok(Some(text.clone())),
            Some(Tree::Other(raw)) if !is_list && raw.get() == "null" => Ok(None),
            Some(_) => Err(format!("{key} must be a string")),
        }
    };
    let (name, cni_version) = (text("name")?, text("cniVersion")?);
    let plugins = match members.get("plugins") {
        Some(Tree::List(plugins)) => plugins.clone(),
        Some(_) => return Err("plugins must be a list".to_owned()),
        None => vec![whole.clone()],
    };
    let plugin = |netconf: Tree| {
        if !matches!(netconf, Tree::Object(_)) {
            return Err("a plugin must be an object".to_owned());
        }
        if let Some(why) = libcni_refusal(&netconf) {
            return Err(why);
        }
        let folder = None;
        let mut plugin = Plugin { netconf, folder };
        plugin.set_network(name.as_ref(), cni_version.as_ref());
        Ok(plugin)
    };
    let mut plugins: Vec<_> = plugins.into_iter().map(plugin).collect::<Result<_, _>>()?;
    // Each delegate is a configuration of its own.
    let delegates = plugins
        .iter()
        .flat_map(|plugin| plugin.netconf.get("delegates"))
        .flat_map(Tree::items)
        .cloned()
        .map(conf_file);
    for file in delegates.collect::<Result<Vec<_>, _>>()? {
        plugins.extend(file.plugins);
    }
    let mut file = ConfFile {
        is_list,
        outer_ipam: members.get("ipam").filter(|_| is_list).cloned(),
        name: name.clone(),
        cni_version: cni_version.clone(),
        plugins,
        ..ConfFile::default()
    };
    if is_list || whole.get("type").is_none() {
        file.read_disputed_keys(members)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::Defaults;

    #[test]
    fn a_conflist_and_a_conf_parse_alike() {
        let list = r#"{"cniVersion": "1.0.0", "name": "azure", "plugins": [
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
        let single = r#"{"cniVersion": "1.0.0", "name": "x", "type": "azure-vnet-ipamv6"}"#;
        let single = parse(single).unwrap();
        assert!(single.plugins[0].uses_ipam("azure-vnet-ipamv6"));
        assert!(!single.plugins[0].uses_ipam("azure-vnet-ipam"));
    }

    #[test]
    fn invalid_configurations_are_errors() {
        for wrong in [
            "[]",
            "{",
            "",
            "{} x",
            r#"{"plugins": {}}"#,
            r#"{"plugins": [1]}"#,
            r#"{"plugins": [], "cniVersion": 1}"#,
        ] {
            assert!(parse(wrong).is_err());
        }
        let wrong = r#"{"cniVersion": "9.9.9", "name": "x", "ipam": {"type": "azure-vnet-ipam"}}"#;
        let wrong = parse(wrong).unwrap();
        assert!(wrong.plugins[0].parse_call(&Defaults::default()).is_err());
    }

    #[test]
    fn a_repeated_key_is_noted_and_the_last_one_counts() {
        let text = r#"{"name": "a", "name": "b", "plugins": [
            {"type": "ptp", "ipam": {"type": "x"}, "ipam": {"type": "azure-vnet-ipam"}, "IPAM": {"type": "y"}}]}"#;
        let file = parse(text).unwrap();
        let repeated: Vec<&String> = file.repeated.iter().collect();
        assert_eq!(repeated, ["ipam", "name"]);
        assert_eq!(file.name.as_deref(), Some("b"));
        assert_eq!(file.plugins[0].ipam_kind(), Some("azure-vnet-ipam"));
    }

    #[test]
    fn the_keys_of_a_list_are_read_as_they_are_spelt() {
        let text = r#"{"Name": "a", "cniVersion": "1.0.0", "plugins": [{"Type": "ptp"}]}"#;
        let file = parse(text).unwrap();
        let path = Path::new("x.conflist");
        assert_eq!(file.refusal(path), Some("it has no name"));
        assert_eq!(file.plugins[0].kind(), "ptp");
        let file = parse(&text.replace("plugins", "Plugins")).unwrap();
        assert_eq!(file.refusal(path), Some("it has no list `plugins`"));
    }

    #[test]
    fn keys_of_a_list_are_read_as_every_release_of_libcni_does() {
        let read = |keys: &str| {
            let text = format!(r#"{{"name": "a", {keys}, "plugins": [{{"type": "ptp"}}]}}"#);
            let file = parse(&text)?;
            let who = file.disputed.map(|(who, _)| who);
            Ok::<_, String>((who, file.chosen_version.unwrap_or_default()))
        };
        for (keys, who, version) in [
            (r#""cniVersions": []"#, None, ""),
            (r#""cniVersion": "1.0.0", "cniVersions": []"#, None, "1.0.0"),
            (
                r#""cniVersion": "1.0.0", "cniVersions": ["0.4.0"]"#,
                None,
                "1.0.0",
            ),
            (
                r#""cniVersion": "0.3.1", "cniVersions": ["1.0.0", "1.2.0", "1.1.0"]"#,
                None,
                "1.1.0",
            ),
            (
                r#""cniVersion": "1.2.0", "cniVersions": ["0.4"]"#,
                None,
                "0.4",
            ),
            (
                r#""cniVersion": "1.2.0", "cniVersions": ["1.3.0"]"#,
                None,
                "1.2.0",
            ),
            (
                r#""cniVersion": "x", "cniVersions": ["1.0.0"]"#,
                Some(SINCE_1_2),
                "",
            ),
            (r#""cniVersions": ["1.0.0.0"]"#, Some(SINCE_1_2), ""),
            (r#""cniVersions": [1]"#, Some(SINCE_1_2), ""),
            (r#""cniVersions": "1.0.0""#, Some(SINCE_1_2), ""),
            (r#""disableCheck": true, "disableGC": "False""#, None, ""),
            (r#""disableCheck": "TRUE""#, Some(BEFORE_1_2), ""),
            (r#""disableGC": 1"#, Some(SINCE_1_2), ""),
            (r#""loadOnlyInlinedPlugins": null"#, Some(SINCE_1_3), ""),
        ] {
            assert_eq!(read(keys), Ok((who, version.to_owned())), "{keys}");
        }
        read(r#""disableCheck": "true", "disableGC": 1"#).unwrap_err();
        read(r#""disableCheck": "true", "cniVersions": 1"#).unwrap_err();
        for value in ["null", "1", "\"yes\"", "[]"] {
            read(&format!(r#""disableCheck": {value}"#)).unwrap_err();
        }
        // A single plugin has none of these keys.
        let single = r#"{"name": "a", "type": "ptp", "disableCheck": 1, "cniVersions": 1}"#;
        assert!(parse(single).unwrap().disputed.is_none());
    }

    #[test]
    fn a_file_of_any_encoding_names_its_network() {
        let text = r#"{"name": "azure", "plugins": []} x"#;
        let (le, be): (Vec<_>, Vec<_>) = text
            .encode_utf16()
            .map(|unit| (unit.to_le_bytes(), unit.to_be_bytes()))
            .unzip();
        let with = |mark: &[u8], text: &[u8]| [mark, text].concat();
        for (bytes, encoding) in [
            (with(b"", text.as_bytes()), Encoding::Utf8),
            (
                with(b"\xef\xbb\xbf", text.as_bytes()),
                Encoding::Utf8WithMark,
            ),
            (
                with(b"\xff\xfe", le.as_flattened()),
                Encoding::Utf16("UTF-16"),
            ),
            (
                with(b"\xfe\xff", be.as_flattened()),
                Encoding::Utf16("UTF-16"),
            ),
            (with(b"", le.as_flattened()), Encoding::Utf16("UTF-16LE")),
            (with(b"", be.as_flattened()), Encoding::Utf16("UTF-16BE")),
        ] {
            let (decoded, found) = decode(&bytes);
            assert_eq!((&*decoded, found), (text, encoding));
            assert_eq!(find_name(&decoded).as_deref(), Some("azure"));
        }
    }
}
