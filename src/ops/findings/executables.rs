//! The executables that runtimes call for our networks: whether they are there, speak the CNI version, and which plugin stands in the
//! place of ours.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::cni::{CniVersion, NAME};
use crate::host::metadata_below;
use crate::ops::conf_file::{ConfFile, Plugin, SINCE_1_2, SINCE_1_3};
use crate::ops::finding::{Finding, FindingKind, Severity, is_plain_path, remount};
use crate::ops::install::{self, Kind};
use crate::ops::node::Node;
use crate::ops::node_config::NodeConfig;
use crate::ops::probe::{ProbeError, ask_version};

const KIND: FindingKind = FindingKind::Executable;

/// The executables of the networks that name this plugin.
#[derive(Debug, Default)]
pub struct Executables {
    folder: PathBuf,
    /// Why nothing follows from the folder, where it has none of them, not even a link.
    hidden_by: Option<&'static str>,
    /// The executables, by name.
    found: BTreeMap<String, Executable>,
    /// The names that this program has in the folder.
    ours: BTreeSet<String>,
    /// The plugins that do not speak the version of their network, by the path of its file.
    mismatches: BTreeMap<PathBuf, Finding>,
}

/// One executable.
#[derive(Debug)]
struct Executable {
    /// Whether it can be used.
    finding: Finding,
    /// The CNI versions that it supports; none where it does not say so.
    versions: Vec<String>,
    /// Why it cannot be said what it does, in the words behind "whether new pods get addresses".
    unknown: Option<String>,
}

/// The command that puts this program into its place.
fn install_command(node: &Node, options: &str) -> String {
    let program = node.program_as_root();
    let dir = if node.paths().has_named_plugin_folder() {
        format!(" --dir {}", node.paths().plugin_folder().display())
    } else {
        String::new()
    };
    format!("{program} install{dir}{options}")
}

impl Executables {
    /// Calls each of the executables in the folder with VERSION, which changes nothing.
    pub fn probe(node: &Node, config: &NodeConfig) -> Executables {
        let mut executables = Executables {
            folder: node.paths().plugin_folder(),
            ..Executables::default()
        };
        let folder = &executables.folder;
        for (file, plugin) in config.ours(node.paths().name()) {
            let ours = our_kind(plugin);
            executables.ours.insert(ours.to_owned());
            let kinds = file.plugins.iter().map(Plugin::kind).chain([ours]);
            for kind in kinds.filter(|kind| !kind.is_empty() && !kind.contains('/')) {
                let path = folder.join(kind);
                let examined = || {
                    let mut executable = Executable::examine(&path, kind == ours, node);
                    // A shell reads other names otherwise.
                    if !path.to_str().is_some_and(is_plain_path) {
                        let finding = &mut executable.finding;
                        finding.commands.clear();
                        finding.remedy = finding.remedy.trim_end_matches(':').to_owned();
                    }
                    executable
                };
                let entry = executables.found.entry(kind.to_owned());
                entry.or_insert_with(examined);
            }
        }
        let files = config.ours(node.paths().name()).map(|(file, _)| file);
        let always = files.flat_map(ConfFile::always_called).flat_map(kinds_of);
        let always: BTreeSet<&str> = always.collect();
        for (kind, found) in &mut executables.found {
            if found.finding.is_problem() && !always.contains(&**kind) {
                soften(&mut found.finding);
            }
        }
        let is_there = |kind| folder.join(kind).symlink_metadata().is_ok();
        let kinds = &executables.found;
        let are_elsewhere = !kinds.is_empty() && !kinds.keys().any(is_there);
        executables.hidden_by =
            are_elsewhere.then_some("cannot be seen from here: their plugins are elsewhere");
        for (file, _) in config.ours(node.paths().name()) {
            let other = || executables.mismatch_of_other(file);
            if let Some(finding) = executables.mismatch(file).or_else(other) {
                executables.mismatches.insert(file.path.clone(), finding);
            }
        }
        executables
    }

    /// The folder and the executables in it; nothing where no network names this plugin, or they are elsewhere.
    pub fn paths(&self) -> Vec<PathBuf> {
        if self.found.is_empty() || self.hidden_by.is_some() {
            return Vec::new();
        }
        let names = self.found.keys();
        let paths = names.map(|name| self.folder.join(name));
        [self.folder.clone()].into_iter().chain(paths).collect()
    }

    /// Whether something is wrong with this program in the folder, so that it may have to be installed again.
    pub fn is_ours_unusable(&self) -> bool {
        let mut found = self.ours.iter().filter_map(|name| self.found.get(name));
        self.hidden_by.is_none() && found.any(|found| found.finding.is_problem())
    }

    /// The path of a plugin that the folder lacks; `None` where it has the plugin. Without this program in it, the folder may not be the
    /// one of the runtime, so the answer is `None`, too.
    pub fn missing(&self, kind: &str) -> Option<PathBuf> {
        let path = self.folder.join(kind);
        (self.folder.join(NAME).exists() && !path.exists()).then_some(path)
    }

    /// Why it cannot be said what an ADD through the plugins of this file comes to.
    pub fn unknown(&self, file: &ConfFile) -> Option<String> {
        if let Some(why) = self.hidden_by {
            return Some(why.to_owned());
        }
        // It fails in any case.
        if self.failure(file).is_some() {
            return None;
        }
        let unknown = self.of_file(file).find_map(|found| found.unknown.clone());
        unknown.or_else(|| self.dispute(file))
    }

    /// Why some runtimes fail to call a plugin of this file, and others do not.
    fn dispute(&self, file: &ConfFile) -> Option<String> {
        if self.is_version_disputed(file) {
            return Some(format!(
                "is up to the runtime: {SINCE_1_2} asks for CNI {} there, others for {}",
                file.chosen_version.as_deref().unwrap_or_default(),
                file.version()
            ));
        }
        let mut in_folder = file.plugins.iter().filter(|p| p.folder.is_some());
        let plugin = in_folder.find(|plugin| {
            let found = self.found.get(plugin.kind());
            let is_problem = found.is_some_and(|found| found.finding.is_problem());
            let version = file.chosen_version.as_deref().unwrap_or(file.version());
            is_problem || self.refuses(plugin.kind(), version)
        })?;
        let kind = plugin.kind();
        Some(format!(
            "is up to the runtime: only {SINCE_1_3} calls {kind}"
        ))
    }

    /// Whether all plugins speak the version that some runtimes ask for, and not that of others.
    pub fn is_version_disputed(&self, file: &ConfFile) -> bool {
        let is_spoken = |version: &str| {
            let mut plugins = file.always_called();
            let is_refused = plugins.any(|plugin| self.refuses(plugin.kind(), version));
            CniVersion::parse(version).is_some() && !is_refused
        };
        let mut chosen = file.chosen_version.iter();
        chosen.any(|chosen| is_spoken(chosen) != is_spoken(file.version()))
    }

    /// Why an ADD through the plugins of this file fails, if one of their executables makes it fail.
    pub fn failure(&self, file: &ConfFile) -> Option<String> {
        let unusable = self.of_file(file).map(|found| &found.finding);
        let mut problems = unusable.chain(self.mismatches.get(&file.path));
        let problem = problems.find(|finding| finding.severity == Severity::Error)?;
        Some(problem.text.clone())
    }

    /// The finding for another plugin in the place of this one, if that does not speak the CNI version of a file.
    fn mismatch_of_other(&self, file: &ConfFile) -> Option<Finding> {
        let version = file.version();
        if file.chosen_version.is_some() {
            return None;
        }
        let is_other = |kind: &&str| {
            let found = self.found.get(*kind);
            found.is_some_and(|found| found.unknown.is_some())
        };
        let mut kinds = file.always_called().map(our_kind).filter(is_other);
        let kind = kinds.find(|kind| self.refuses(kind, version))?;
        let path = file.path.display();
        let text = format_args!(
            "the plugin in the place of {kind} does not speak CNI {version}, which {path} asks for, so every ADD of its network fails"
        );
        let remedy = format_args!("put this program there again, or lower cniVersion in {path}");
        Some(Finding::error(KIND, &text, &remedy).about(&path))
    }

    /// The executables of a file's plugins, and of ours.
    fn of_file(&self, file: &ConfFile) -> impl Iterator<Item = &Executable> {
        let kinds = file.plugins.iter().flat_map(kinds_of);
        kinds.filter_map(|kind| self.found.get(kind))
    }

    /// The plugins of a file that do not speak its version, with the newest that all of them speak.
    fn mismatch(&self, file: &ConfFile) -> Option<Finding> {
        let path = file.path.display();
        if self.is_version_disputed(file) {
            let chosen = file.chosen_version.as_deref().unwrap_or_default();
            let text = format_args!(
                "{SINCE_1_2} asks for CNI {chosen} in {path}, others for {}, and only one of these is spoken by all plugins",
                file.version()
            );
            let remedy = format_args!(
                "remove the other one from cniVersion and cniVersions in {path}, or install other plugins"
            );
            return Some(Finding::warning(KIND, &text, &remedy).about(&path));
        }
        // A version that this plugin does not speak is a mistake of the file, and is named as such.
        let version = CniVersion::parse(file.version())?.as_str();
        let refusing = self.refusing(file, version);
        let first = refusing.first()?;
        let names = refusing.join(", ");
        let (key, remedy) = match (&file.cni_version, self.common_version(file)) {
            (None, Some(common)) => (
                " without cniVersion",
                format!("add \"cniVersion\": \"{common}\" to it"),
            ),
            _ => ("", format!("install a newer {names}")),
        };
        let text = format!(
            "{} does not speak CNI {version}, which {path} asks for{key}, so every ADD of its network fails",
            if refusing.len() == 1 { first } else { &*names }
        );
        let mut finding = match self.ask_for_common_version(file) {
            Some((other_way, command)) => {
                let remedy = format!("{remedy}, or {other_way}");
                Finding::error(KIND, &text, &remedy).with_commands([command])
            }
            None => Finding::error(KIND, &text, &remedy),
        };
        let mut always = file.always_called();
        if !always.any(|plugin| self.refuses(plugin.kind(), version)) {
            soften(&mut finding);
        }
        Some(finding.about(&path))
    }

    /// The plugins of a file that answer VERSION and do not speak this version.
    fn refusing<'a>(&self, file: &'a ConfFile, version: &str) -> Vec<&'a str> {
        let kinds = file.plugins.iter().map(Plugin::kind);
        kinds.filter(|kind| self.refuses(kind, version)).collect()
    }

    /// Whether a plugin answers VERSION and does not speak this version.
    fn refuses(&self, kind: &str, version: &str) -> bool {
        let found = self.found.get(kind);
        let versions = found.map_or(&[][..], |found| &found.versions);
        !versions.is_empty() && versions.iter().all(|known| known != version)
    }

    /// A CNI version that all plugins of a file speak: the newest of those that every runtime speaks, or a newer one.
    pub fn common_version(&self, file: &ConfFile) -> Option<&'static str> {
        // containerd 1 speaks no newer one.
        const NEWEST_OF_ALL_RUNTIMES: &str = "1.0.0";
        let mut newest: Vec<&str> = CniVersion::texts().into_iter().rev().collect();
        newest.sort_by_key(|version| *version > NEWEST_OF_ALL_RUNTIMES);
        let is_spoken = |candidate: &&str| self.refusing(file, candidate).is_empty();
        newest.into_iter().find(is_spoken)
    }

    /// How a file asks for the newest CNI version that all of its plugins speak, and the command that does it.
    pub fn ask_for_common_version(&self, file: &ConfFile) -> Option<(String, String)> {
        let version = file.cni_version.as_deref()?;
        let path = file.path.to_str().filter(|path| is_plain_path(path))?;
        // Of `cniVersions`, another one may be chosen.
        (is_plain_path(version) && file.chosen_version.is_none()).then_some(())?;
        let common = self.common_version(file)?;
        let escaped = version.replace('.', "\\.");
        let command = format!(
            "sudo sed -i --follow-symlinks 's|\"cniVersion\" *: *\"{escaped}\"|\"cniVersion\": \"{common}\"|' {path}"
        );
        let remedy = format!("ask for {common}, which all plugins of the file speak:");
        Some((remedy, command))
    }
}

/// Says of a finding that it is about plugins in the folder of a network alone.
fn soften(finding: &mut Finding) {
    finding.severity = finding.severity.max(Severity::Warning);
    finding.text += &format!("; only {SINCE_1_3} calls it");
}

/// The executables that a plugin needs: its own, and that of ours.
fn kinds_of(plugin: &Plugin) -> [&str; 2] {
    [plugin.kind(), our_kind(plugin)]
}

/// The name of the executable: the type of `ipam`, or the plugin's own type.
fn our_kind(plugin: &Plugin) -> &str {
    plugin.ipam_kind().unwrap_or(plugin.kind())
}

impl Executable {
    fn new(finding: Finding) -> Executable {
        Executable {
            finding,
            versions: Vec::new(),
            unknown: None,
        }
    }

    fn examine(path: &Path, is_ours: bool, node: &Node) -> Executable {
        let shown = path.display();
        let here = fs::metadata(path);
        let (file, is_here) = if node.is_in_container() && leads_elsewhere(path) {
            let on_node = metadata_on_node(path, node);
            let is_here = matches!((&here, &on_node), (Ok(a), Ok(b)) if is_same_file(a, b));
            (on_node, is_here)
        } else {
            (here, true)
        };
        let is_missing = |e: &io::Error| {
            matches!(
                e.raw_os_error(),
                Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)
            )
        };
        if !is_here && file.as_ref().is_err_and(|e| !is_missing(e)) {
            let text = format_args!("{shown} is a link, and this container cannot follow it");
            return Executable {
                unknown: Some("cannot be seen in this container".to_owned()),
                ..Executable::new(Finding::ok(KIND, &text).about(&shown))
            };
        }
        if let Some(finding) = unusable_file(path, file.ok(), is_ours, node) {
            return Executable::new(finding.about(&shown));
        }
        if !is_here {
            let text =
                format_args!("{shown} is a link to a file that this container does not have");
            return Executable::new(Finding::ok(KIND, &text).about(&shown));
        }
        match ask_version(path) {
            Ok(versions) => Executable {
                versions,
                ..Executable::answering(path, is_ours, node)
            },
            Err(error) => {
                let finding = unanswering(path, &error, is_ours, node);
                Executable::new(finding.about(&shown))
            }
        }
    }

    /// Judges a file that answers as a CNI plugin.
    fn answering(path: &Path, is_ours: bool, node: &Node) -> Executable {
        let shown = path.display();
        if is_ours {
            let identified = install::identify(path, &node.paths().own_executable());
            if let Ok((Kind::Other, found)) = identified {
                let text = format_args!(
                    "{shown} is another plugin, and this program does not know what it allocates"
                );
                let remedy = "if something replaced it, such as a new image of the node, put this program there again; the other plugin is kept beside it:";
                let finding = Finding::warning(KIND, &text, &remedy)
                    .about(&shown)
                    .with_evidence(vec![format!("there is {found}")])
                    .with_commands([install_command(node, "")]);
                return Executable {
                    unknown: Some(format!(
                        "is up to the other plugin that is installed as {shown}"
                    )),
                    ..Executable::new(finding)
                };
            }
        }
        Executable::new(Finding::ok(KIND, &format_args!("{shown} is there")))
    }
}

/// The finding for a file that is missing or may not be executed.
fn unusable_file(
    path: &Path,
    file: Option<Metadata>,
    is_ours: bool,
    node: &Node,
) -> Option<Finding> {
    let shown = path.display();
    if file.as_ref().is_some_and(Metadata::is_dir) {
        return Some(folder_in_its_place(path, is_ours, node));
    }
    let exists = file.is_some();
    let Some(meta) = file.filter(Metadata::is_file) else {
        let why = match (path.is_symlink(), exists) {
            (true, true) => "is a link that leads to a device, a pipe or a socket",
            (true, false) => "is a link that leads to no file",
            (false, true) => "is a device, a pipe or a socket",
            (false, false) => "does not exist",
        };
        let text = format_args!("{shown} {why}, so every ADD of its network fails");
        return Some(if is_ours && exists {
            // `install` replaces only files, and links to them.
            let away = format!("sudo mv {shown} {shown}.old");
            let remedy = "move it away, and put this program there:";
            let finding = Finding::error(KIND, &text, &remedy);
            finding.with_commands([away, install_command(node, "")])
        } else if is_ours {
            let finding = Finding::error(KIND, &text, &"put this program there:");
            let force = if path.is_symlink() { " --force" } else { "" };
            finding.with_commands([install_command(node, force)])
        } else {
            let remedy = "install that plugin, or correct the type in the network configuration";
            Finding::error(KIND, &text, &remedy)
        });
    };
    let mode = meta.permissions().mode() & 0o7777;
    if mode & 0o111 == 0 {
        let text = format_args!("{shown} is not executable, mode {mode:04o}");
        let finding = Finding::error(KIND, &text, &"make it executable:");
        return Some(finding.with_commands([format!("sudo chmod 755 {shown}")]));
    }
    None
}

/// Whether a path is a link that leads out of its folder. In a container, another file or none may be there than on the node.
fn leads_elsewhere(path: &Path) -> bool {
    /// The kernel follows as many links.
    const MOST_LINKS: usize = 40;
    let mut link = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = fs::read_link(&link) else {
            return false;
        };
        let next = link.with_file_name(target);
        if next.parent() != link.parent() {
            return true;
        }
        link = next;
    }
    false
}

/// What a link leads to on the node, as its first process sees it.
fn metadata_on_node(path: &Path, node: &Node) -> io::Result<Metadata> {
    let root = node.paths().process(1).join("root");
    let folder = path.parent().unwrap_or(path);
    let is_here =
        |on_node: Metadata| fs::metadata(folder).is_ok_and(|f| is_same_file(&f, &on_node));
    if !metadata_below(&root, folder).is_ok_and(is_here) {
        // The container may have mounted the folder from elsewhere.
        return Err(io::ErrorKind::Unsupported.into());
    }
    metadata_below(&root, path)
}

fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The finding for a folder where an executable belongs.
fn folder_in_its_place(path: &Path, is_ours: bool, node: &Node) -> Finding {
    let shown = path.display();
    let text = format_args!("{shown} is a folder, so every ADD of its network fails");
    let away = format!("sudo mv {shown} {shown}.old");
    if is_ours {
        let finding = Finding::error(KIND, &text, &"move it away, and put this program there:");
        finding.with_commands([away, install_command(node, "")])
    } else {
        let finding = Finding::error(KIND, &text, &"install that plugin after moving it away:");
        finding.with_commands([away])
    }
}

/// The finding for a file that does not answer as a CNI plugin.
fn unanswering(path: &Path, error: &ProbeError, is_ours: bool, node: &Node) -> Finding {
    let shown = path.display();
    if !is_ours && node.is_in_container() {
        // Its loader or its interpreter may be on the node alone.
        return Finding::ok(
            KIND,
            &format_args!("{shown} is there, and cannot be asked in this container"),
        );
    }
    let text = format_args!("{shown} {error}");
    let (remedy, command) = match (error, is_ours) {
        (ProbeError::NoRoom(_), _) => {
            let remedy = "this says nothing about the file: raise the limits of this shell (`ulimit -n`), and run it again";
            return Finding::note(KIND, &text, &remedy);
        }
        (ProbeError::NoExec, _) => (
            "every ADD fails; allow programs to be executed there:",
            remount("exec", path),
        ),
        (ProbeError::Busy, true) => (
            "every ADD fails until the process has closed it; to put a whole file in its place:",
            install_command(node, " --force"),
        ),
        (ProbeError::Busy, false) => (
            "every ADD fails until the process has closed it; this shows which one it is:",
            format!("sudo find /proc/[0-9]*/fd -lname {shown}"),
        ),
        (ProbeError::Broken(_) | ProbeError::Other(_), true) => (
            "the file is another program, or damaged; put this program there, without keeping the file:",
            install_command(node, " --force"),
        ),
        (ProbeError::Broken(_), false) => {
            let remedy = "every ADD of its network fails: install that plugin again";
            return Finding::error(KIND, &text, &remedy);
        }
        (ProbeError::Other(_), false) => {
            let remedy =
                "no action needed if pods start; if they do not, install that plugin again";
            return Finding::note(KIND, &text, &remedy);
        }
    };
    Finding::error(KIND, &text, &remedy).with_commands([command])
}

/// Makes the findings about them.
pub fn examine(executables: &Executables) -> Vec<Finding> {
    let folder = executables.folder.display();
    if executables.hidden_by.is_some() {
        let names: Vec<&str> = executables.found.keys().map(String::as_str).collect();
        let text = format_args!("{folder} has none of the plugins {}", names.join(", "));
        let remedy = "if the runtime looks for plugins in another folder, name it with `check --dir`; if not, install them";
        return vec![Finding::warning(KIND, &text, &remedy).about(&folder)];
    }
    let found = executables.found.values().map(|found| &found.finding);
    let mismatches = executables.mismatches.values();
    found.chain(mismatches).cloned().collect()
}
