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
    /// The problem of each, by its name.
    found: BTreeMap<String, Option<Problem>>,
    /// The names under which this plugin is called.
    ours: Vec<String>,
}

/// Why an executable cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    is_missing: bool,
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
            if !executables.ours.contains(&ours) {
                executables.ours.push(ours.clone());
            }
            let others = file.conflist.iter().flat_map(|list| &list.plugins);
            let kinds = others.map(|plugin| plugin.kind.clone());
            let is_file_name = |kind: &String| !kind.is_empty() && !kind.contains('/');
            for kind in kinds.chain([ours]).filter(is_file_name) {
                let path = executables.folder.join(&kind);
                let is_ours = executables.ours.contains(&kind);
                let problem = || find_problem(paths, &path, is_ours);
                executables.found.entry(kind).or_insert_with(problem);
            }
        }
        executables
    }

    /// Whether ours is in the folder. If not, the runtime may look for plugins elsewhere.
    fn is_in_use(&self) -> bool {
        let mut ours = self.ours.iter().filter_map(|name| self.found.get(name));
        ours.any(|problem| !problem.as_ref().is_some_and(|problem| problem.is_missing))
    }

    /// Why an ADD through these plugins fails, if one of their executables makes it fail.
    pub fn failure<'a>(&self, plugins: impl Iterator<Item = &'a Plugin>) -> Option<String> {
        let mut kinds = plugins.flat_map(|plugin| [&*plugin.kind, our_kind(plugin)]);
        let problem = kinds.find_map(|kind| self.found.get(kind)?.as_ref())?;
        self.is_in_use().then(|| problem.text.clone())
    }
}

/// The name of the executable: the type of `ipam`, or the plugin's own type.
fn our_kind(plugin: &Plugin) -> &str {
    plugin.ipam_kind.as_deref().unwrap_or(&plugin.kind)
}

fn find_problem(paths: &Paths, path: &Path, is_ours: bool) -> Option<Problem> {
    let shown = path.display();
    let problem = |text: String, remedy| Problem {
        is_missing: false,
        text: format!("{shown} {text}"),
        remedy,
        command: None,
    };
    let Some(meta) = fs::metadata(path).ok().filter(fs::Metadata::is_file) else {
        return Some(Problem {
            is_missing: true,
            ..problem(
                "does not exist".to_owned(),
                "install that plugin, or correct the type in the network configuration",
            )
        });
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
    let is_in_use = executables.is_in_use();
    let findings = executables.found.iter().filter_map(|(name, problem)| {
        let path = executables.folder.join(name);
        let finding = match problem {
            None => {
                return Some(Finding::ok(
                    KIND,
                    &format_args!("{} is there", path.display()),
                ));
            }
            // Elsewhere, all of them may be there.
            Some(_) if !is_in_use && !executables.ours.contains(name) => return None,
            Some(problem) if !is_in_use => Finding::warning(
                KIND,
                &problem.text,
                &"install it there, unless the runtime looks for plugins elsewhere",
            ),
            Some(problem) if problem.is_missing => Finding::error(
                KIND,
                &format_args!("{}, so every ADD of its network fails", problem.text),
                &problem.remedy,
            ),
            Some(problem) => Finding::error(KIND, &problem.text, &problem.remedy)
                .with_commands(problem.command.clone()),
        };
        Some(finding.about(path.display()))
    });
    findings.collect()
}
