//! `install`: puts this executable in place; `install --verify` compares.

use std::path::Path;

use super::access::{look, note, plugin_folder};
use super::errors::step_error;
use super::folder::{LockedFolder, PluginPaths};
use super::occupant::{Occupant, sha256};
use super::plan::{InstallPlan, InstallRefusal, Save, plan_install};
use super::report::{InstallReport, VerifyReport};
use crate::host::open;
use crate::ops::build_info;
use crate::ops::cli::InstallArgs;
use crate::ops::node::Node;
use crate::ops::outcome::{CommandError, CommandOutput, json};

/// Runs `install` or `install --verify`.
///
/// # Errors
/// The system refuses something. The plugin is what it was then.
pub fn run(node: &Node, args: &InstallArgs) -> Result<CommandOutput, CommandError> {
    let name = args.name.map_or(node.paths().name(), |name| name.as_str());
    let paths = PluginPaths::new(&plugin_folder(node, args.dir.as_deref()), name);
    let own = own_sha256(node)?;
    if args.verify {
        return verify(node, args, &paths, own);
    }
    let report = install(node, args.force, &paths, own)?;
    Ok(CommandOutput {
        status: u8::from(report.refused.is_some() || !report.warnings.is_empty()),
        text: match args.format.is_json() {
            true => json(&report)?,
            false => report.print(&node.screen),
        },
    })
}

fn own_sha256(node: &Node) -> Result<String, CommandError> {
    let path = node.paths().own_executable();
    let sum = open(&path).and_then(sha256);
    sum.map_err(|e| CommandError::from_io("failed to read this executable", &e))
}

fn verify(
    node: &Node,
    args: &InstallArgs,
    paths: &PluginPaths,
    own: String,
) -> Result<CommandOutput, CommandError> {
    let report = compare(node, paths, own)?;
    Ok(CommandOutput {
        status: u8::from(!report.same),
        text: match args.format.is_json() {
            true => json(&report)?,
            false => report.print(&node.screen),
        },
    })
}

/// Compares the installed file with this executable.
fn compare(node: &Node, paths: &PluginPaths, own: String) -> Result<VerifyReport, CommandError> {
    let found = look(&paths.plugin)?;
    Ok(VerifyReport {
        time: node.now.wall_time(node.now.boot),
        path: paths.plugin.clone(),
        same: found.executable && found.sha256.as_ref() == Some(&own),
        found,
        version: build_info::LINE,
        sha256: own,
    })
}

/// One place where this executable is to be installed, as a program watches it that goes on for long.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The name of the plugin.
    pub name: &'static str,
    paths: PluginPaths,
    own: String,
}

impl Installation {
    /// The plugin `name` in the folder that was typed, or in the usual one.
    ///
    /// # Errors
    /// This executable cannot be read.
    pub fn new(
        node: &Node,
        dir: Option<&Path>,
        name: &'static str,
    ) -> Result<Installation, CommandError> {
        Ok(Installation {
            name,
            paths: PluginPaths::new(&plugin_folder(node, dir), name),
            own: own_sha256(node)?,
        })
    }

    /// Returns what stands there instead, as a phrase; `None` if it is this executable.
    ///
    /// # Errors
    /// The file exists but cannot be read.
    pub fn replaced_by(&self, node: &Node) -> Result<Option<String>, CommandError> {
        let report = compare(node, &self.paths, self.own.clone())?;
        let (path, found) = (report.path.display(), report.found.describe());
        let is_own = report.found.sha256.as_ref() == Some(&report.sha256);
        Ok(match (report.same, is_own) {
            (true, _) => None,
            (false, true) => Some(format!("{path} may not be executed")),
            (false, false) => Some(format!("{path} is not this executable: there is {found}")),
        })
    }

    /// Installs this executable there, as `install` without `--force` does. Returns why it was refused, if it was.
    ///
    /// # Errors
    /// The system refuses something. The plugin is what it was then.
    pub fn install(&self, node: &Node) -> Result<Option<String>, CommandError> {
        Ok(install(node, false, &self.paths, self.own.clone())?.refused)
    }
}

fn install(
    node: &Node,
    force: bool,
    paths: &PluginPaths,
    own: String,
) -> Result<InstallReport, CommandError> {
    let failed = |error| step_error("install", &paths.plugin, &error);
    let folder = paths.plugin.parent().unwrap_or(&paths.plugin);
    let locked = LockedFolder::lock(folder).map_err(failed)?;
    let found = look(&paths.plugin)?;
    let plan = plan_install(&own, &found, &look(&paths.newest)?, force);
    let mut report = InstallReport {
        time: node.now.wall_time(node.now.boot),
        path: paths.plugin.clone(),
        changed: false,
        refused: None,
        found,
        version: build_info::LINE,
        sha256: own,
        saved: None,
        warnings: Vec::new(),
    };
    let save = match plan {
        InstallPlan::Replace(save) => save,
        InstallPlan::Keep => {
            locked.remove_leftovers(paths).map_err(failed)?;
            return Ok(report);
        }
        InstallPlan::Refuse(refusal) => {
            report.refused = Some(describe_refusal(refusal, paths, &report.found));
            return Ok(report);
        }
    };
    locked.remove_leftovers(paths).map_err(failed)?;
    let executable = open(&node.paths().own_executable());
    let executable =
        executable.map_err(|e| CommandError::from_io("failed to read this executable", &e))?;
    let warning = locked.prepare(&executable, paths).map_err(failed)?;
    report.warnings.extend(warning);
    match save {
        Save::Nothing | Save::IsSaved => Ok(()),
        Save::AsOriginal => locked.save(paths, false),
        Save::AsNewerOriginal => locked.save(paths, true),
    }
    .and_then(|()| locked.put_in_place(paths))
    .map_err(|error| {
        let _ = locked.remove_leftovers(paths);
        failed(error)
    })?;
    report.changed = true;
    report.saved = (save != Save::Nothing).then(|| paths.newest.clone());
    note(
        node,
        &format!(
            "{} was installed as {}",
            build_info::LINE,
            paths.plugin.display()
        ),
    );
    Ok(report)
}

fn describe_refusal(refusal: InstallRefusal, paths: &PluginPaths, found: &Occupant) -> String {
    let (path, found) = (paths.plugin.display(), found.describe());
    match refusal {
        InstallRefusal::Foreign => format!(
            "at {path} there is {found}; if it is to be replaced, add --force, which keeps it as {}",
            paths.newest.display()
        ),
        InstallRefusal::NotAFile => format!("at {path} there is {found}; remove it"),
        InstallRefusal::CannotSave => format!(
            "{found} cannot be kept, as at {} there is a folder or a device; remove that",
            paths.newest.display()
        ),
    }
}
