//! The executables that runtimes call for our networks: whether they are there, and whether ours answers.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::host::Paths;
use crate::ops::finding::{Finding, FindingKind};
use crate::ops::node_config::{NodeConfig, Plugin};
use crate::ops::probe::ask_version;

const KIND: FindingKind = FindingKind::Executable;

/// The executables of the networks that name this plugin.
#[derive(Debug, Default)]
pub struct Executables {
    folder: PathBuf,
    /// Why nothing follows from the folder, where it has none of them, not even a link.
    pub hidden_by: Option<&'static str>,
    /// The problem of each, by its name.
    found: BTreeMap<String, Option<Problem>>,
}

/// Why an executable cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    text: String,
    remedy: &'static str,
    command: Option<String>,
}

impl Executables {
    /// Looks at the executables, and calls ours with VERSION, which changes nothing.
    pub fn look(paths: &Paths, config: &NodeConfig) -> Executables {
        let mut executables = Executables {
            folder: paths.plugin_folder(),
            ..Executables::default()
        };
        for (file, plugin) in config.ours(paths.name()) {
            let ours = our_kind(plugin).to_owned();
            let others = file.conflist.iter().flat_map(|list| &list.plugins);
            let kinds = others.map(|plugin| plugin.kind.clone());
            let is_file_name = |kind: &String| !kind.is_empty() && !kind.contains('/');
            for kind in kinds.chain([ours.clone()]).filter(is_file_name) {
                let path = executables.folder.join(&kind);
                let problem = || find_problem(paths, &path, kind == ours);
                executables
                    .found
                    .entry(kind.clone())
                    .or_insert_with(problem);
            }
        }
        let is_there = |kind| executables.folder.join(kind).symlink_metadata().is_ok();
        let kinds = &executables.found;
        let are_elsewhere = !kinds.is_empty() && !kinds.keys().any(is_there);
        executables.hidden_by = are_elsewhere.then_some("from here: their plugins are elsewhere");
        executables
    }

    /// Why an ADD through these plugins fails, if one of their executables makes it fail.
    pub fn failure<'a>(&self, plugins: impl Iterator<Item = &'a Plugin>) -> Option<String> {
        let mut kinds = plugins.flat_map(|plugin| [&*plugin.kind, our_kind(plugin)]);
        let problem = kinds.find_map(|kind| self.found.get(kind)?.as_ref())?;
        Some(problem.text.clone())
    }
}

/// The name of the executable: the type of `ipam`, or the plugin's own type.
fn our_kind(plugin: &Plugin) -> &str {
    plugin.ipam_kind.as_deref().unwrap_or(&plugin.kind)
}

fn find_problem(paths: &Paths, path: &Path, is_ours: bool) -> Option<Problem> {
    let shown = path.display();
    let problem = |text: String, remedy| Problem {
        text: format!("{shown} {text}"),
        remedy,
        command: None,
    };
    let Some(meta) = fs::metadata(path).ok().filter(fs::Metadata::is_file) else {
        let text = match path.is_symlink() {
            true => "is a link that leads to no file, so every ADD of its network fails",
            false => "does not exist, so every ADD of its network fails",
        };
        let remedy = "install that plugin, or correct the type in the network configuration";
        return Some(problem(text.to_owned(), remedy));
    };
    let mode = meta.permissions().mode() & 0o7777;
    if mode & 0o111 == 0 {
        return Some(Problem {
            command: Some(format!("sudo chmod 755 {shown}")),
            ..problem(
                format!("is not executable, mode {mode:04o}"),
                "make it executable:",
            )
        });
    }
    let why = is_ours.then(|| ask_version(paths, path))?.err()?;
    Some(problem(
        why,
        "another program stands there, or it is damaged: install this plugin again",
    ))
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
    let findings = executables.found.iter().map(|(name, problem)| {
        let path = executables.folder.join(name);
        let path = path.display();
        match problem {
            None => Finding::ok(KIND, &format_args!("{path} is there")),
            Some(problem) => Finding::error(KIND, &problem.text, &problem.remedy)
                .about(path)
                .with_commands(problem.command.clone()),
        }
    });
    findings.collect()
}
