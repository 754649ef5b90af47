//! `uninstall`: brings the original back.

use super::access::{look, note, plugin_folder};
use super::errors::step_error;
use super::folder::{LockedFolder, PluginPaths};
use super::occupant::Occupant;
use super::plan::{UninstallPlan, plan_uninstall};
use super::report::{UninstallReport, UninstalledPlugin};
use crate::cni::{NAME, NAME_V6};
use crate::ops::build_info;
use crate::ops::cli::UninstallArgs;
use crate::ops::node::Node;
use crate::ops::outcome::{CommandError, CommandOutput, json};

/// Runs `uninstall`.
///
/// # Errors
/// The system refuses something.
pub fn run(node: &Node, args: &UninstallArgs) -> Result<CommandOutput, CommandError> {
    let folder = plugin_folder(node, args.dir.as_deref());
    // The IPv6 plugin, and the original that is kept of it, may be links to the other plugin, which comes back first.
    let names = match args.name {
        Some(name) => vec![name.as_str()],
        None => vec![NAME, NAME_V6],
    };
    let locked = LockedFolder::lock(&folder)
        .map_err(|error| step_error("uninstall", &folder.join(NAME), &error))?;
    let mut report = UninstallReport {
        time: node.now.wall_time(node.now.boot),
        plugins: Vec::new(),
        warnings: Vec::new(),
    };
    for name in names {
        let paths = PluginPaths::new(&folder, name);
        match uninstall(node, args.force, &locked, &paths) {
            Ok(plugin) => report.plugins.push(plugin),
            // An error would hide what was done already.
            Err(error) if report.plugins.iter().any(|plugin| plugin.changed) => {
                report.warnings.push(error.0);
            }
            Err(error) => return Err(error),
        }
    }
    let is_refused = report.plugins.iter().any(|plugin| plugin.refused.is_some());
    Ok(CommandOutput {
        status: u8::from(is_refused || !report.warnings.is_empty()),
        text: match args.format.is_json() {
            true => json(&report)?,
            false => report.print(&node.screen),
        },
    })
}

/// Uninstalls the plugin of one name.
fn uninstall(
    node: &Node,
    force: bool,
    locked: &LockedFolder,
    paths: &PluginPaths,
) -> Result<UninstalledPlugin, CommandError> {
    let failed = |error| step_error("uninstall", &paths.plugin, &error);
    let path = paths.plugin.display();
    let mut plugin = UninstalledPlugin {
        path: paths.plugin.clone(),
        changed: false,
        refused: None,
        found: look(&paths.plugin)?,
        restored: None,
    };
    let (newest, former) = (look(&paths.newest)?, look(&paths.former)?);
    let plan = plan_uninstall(&plugin.found, &newest, &former, force);
    locked.remove_leftovers(paths).map_err(failed)?;
    match plan {
        UninstallPlan::NotInstalled => return Ok(plugin),
        UninstallPlan::Refuse => {
            let why = describe_missing(paths, &newest, &former);
            plugin.refused = Some(format!(
                "{why}, so that nothing would stand there, and no pod would start whose configuration names it; add --force if none does"
            ));
            return Ok(plugin);
        }
        UninstallPlan::RestoreNewest => {
            locked
                .rename(&paths.newest, &paths.plugin)
                .map_err(failed)?;
            plugin.restored = Some(newest);
        }
        UninstallPlan::RestoreFormer => {
            locked
                .rename(&paths.former, &paths.plugin)
                .map_err(failed)?;
            plugin.restored = Some(former);
        }
        UninstallPlan::Remove => locked.remove(&paths.plugin).map_err(failed)?,
    }
    plugin.changed = true;
    let line = build_info::LINE;
    note(node, &format!("{line} was uninstalled from {path}"));
    Ok(plugin)
}

/// Describes why no original can be brought back.
fn describe_missing(paths: &PluginPaths, newest: &Occupant, former: &Occupant) -> String {
    let kept = [(newest, &paths.newest), (former, &paths.former)];
    let mut kept = kept.iter().filter(|(saved, _)| saved.identity.is_some());
    let Some((saved, path)) = kept.next() else {
        return format!("no original is kept beside {}", paths.plugin.display());
    };
    let is_file = saved.sha256.is_some();
    let mode = match is_file && !saved.executable {
        true => " that may not be executed",
        false => "",
    };
    format!("{} is {}{mode}", path.display(), saved.describe())
}
