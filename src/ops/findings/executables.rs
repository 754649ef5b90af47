//! The executables that runtimes call for our networks: whether they are there, and whether ours answers.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::host::Paths;
use crate::ops::finding::{Finding, FindingKind};
use crate::ops::node_config::{ConfFile, NodeConfig, Plugin};
use crate::ops::probe::ask_version;

const KIND: FindingKind = FindingKind::Executable;

/// The executables of the networks that name this plugin.
#[derive(Debug, Default)]
pub struct Executables {
    folder: PathBuf,
    /// Why nothing follows from the folder, where it has none of them, not even a link.
    pub hidden_by: Option<&'static str>,
    /// Whether each can be used, by its name.
    found: BTreeMap<String, Finding>,
}

impl Executables {
    /// Looks at the executables, and calls ours with VERSION, which changes nothing.
    pub fn look(paths: &Paths, config: &NodeConfig) -> Executables {
        let mut executables = Executables {
            folder: paths.plugin_folder(),
            ..Executables::default()
        };
        for (file, plugin) in config.ours(paths.name()) {
            let ours = our_kind(plugin);
            let kinds = file.plugins.iter().map(Plugin::kind).chain([ours]);
            for kind in kinds.filter(|kind| !kind.is_empty() && !kind.contains('/')) {
                let path = executables.folder.join(kind);
                let examined = || examine_one(&path, kind == ours);
                let entry = executables.found.entry(kind.to_owned());
                entry.or_insert_with(examined);
            }
        }
        let is_there = |kind| executables.folder.join(kind).symlink_metadata().is_ok();
        let kinds = &executables.found;
        let are_elsewhere = !kinds.is_empty() && !kinds.keys().any(is_there);
        executables.hidden_by = are_elsewhere.then_some("from here: their plugins are elsewhere");
        executables
    }

    /// Why an ADD through the plugins of this file fails, if one of their executables makes it fail.
    pub fn failure(&self, file: &ConfFile) -> Option<String> {
        let plugins = file.plugins.iter();
        let kinds = plugins.flat_map(|plugin| [plugin.kind(), our_kind(plugin)]);
        let mut found = kinds.filter_map(|kind| self.found.get(kind));
        let problem = found.find(|finding| finding.is_problem())?;
        Some(problem.text.clone())
    }
}

/// The name of the executable: the type of `ipam`, or the plugin's own type.
fn our_kind(plugin: &Plugin) -> &str {
    plugin.ipam_kind().unwrap_or(plugin.kind())
}

fn examine_one(path: &Path, is_ours: bool) -> Finding {
    let shown = path.display();
    let problem = |why: &str, remedy: &str| {
        Finding::error(KIND, &format_args!("{shown} {why}"), &remedy).about(&shown)
    };
    let Some(meta) = fs::metadata(path).ok().filter(fs::Metadata::is_file) else {
        let why = if path.is_symlink() {
            "is a link that leads to no file, so every ADD of its network fails"
        } else {
            "does not exist, so every ADD of its network fails"
        };
        let remedy = "install that plugin, or correct the type in the network configuration";
        return problem(why, remedy);
    };
    let mode = meta.permissions().mode() & 0o7777;
    if mode & 0o111 == 0 {
        let why = format!("is not executable, mode {mode:04o}");
        let finding = problem(&why, "make it executable:");
        return finding.with_commands([format!("sudo chmod 755 {shown}")]);
    }
    if is_ours && let Err(why) = ask_version(path) {
        let remedy = "another program stands there, or it is damaged: install this plugin again";
        return problem(&why, remedy);
    }
    Finding::ok(KIND, &format_args!("{shown} is there"))
}

/// Makes the findings about them.
pub fn examine(executables: &Executables) -> Vec<Finding> {
    if executables.hidden_by.is_some() {
        let names: Vec<&str> = executables.found.keys().map(String::as_str).collect();
        let (names, folder) = (names.join(", "), executables.folder.display());
        let text = format_args!("{folder} has none of the plugins {names}");
        let remedy = "install them there, unless the runtime looks for plugins in another folder";
        return vec![Finding::warning(KIND, &text, &remedy).about(&folder)];
    }
    executables.found.values().cloned().collect()
}
