//! Whether new pods get addresses: what an ADD of each network configuration would come to now.

use std::io;
use std::path::Path;

use ipnet::IpNet;
use rustix::process::geteuid;
use serde::Serialize;

use super::configuration::ForeignGateway;
use super::host_links::lacks_ipv6;
use super::inspection::Inspection;
use super::storage::cache_obstacle;
use crate::cni::{Call, CniError, LOCAL_SPACE};
use crate::failure::Failure;
use crate::host::{BLOCK, check_room, io_reason};
use crate::ipam::Refusal;
use crate::ops::conf_file::{ConfFile, Plugin, SINCE_1_3};
use crate::ops::finding::{Finding, FindingKind, Visibility};
use crate::ops::node::Node;
use crate::ops::node_config::NodeConfig;
use crate::ops::outcome::needs_root;
use crate::plugin::Trial;
use crate::state::{LockError, WAIT, lock_obstacle};

/// What an ADD of one network configuration would come to now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Prediction {
    /// The file.
    pub conflist: String,
    /// The network's name.
    pub network: String,
    /// Whether it would succeed; `None` where that cannot be known.
    pub succeeds: Option<bool>,
    /// Why it cannot be known, in the words behind "whether new pods get addresses".
    pub unknown: Option<String>,
    /// The addresses that it would get.
    pub addresses: Vec<IpNet>,
    /// The CNI error code, if it would fail and the code is certain.
    pub code: Option<u8>,
    /// The message of the error.
    pub msg: Option<String>,
    /// The details of the error.
    pub details: Option<String>,
    /// What to do, as a finding says it.
    #[serde(skip)]
    pub remedy: String,
    /// Whether the failure ends by itself, and the runtime tries again.
    pub waits: bool,
    /// The kinds of findings of which one explains the failure.
    #[serde(skip)]
    pub explained_by: &'static [FindingKind],
}

impl Prediction {
    /// An ADD that fails before this plugin is called, or after it has succeeded.
    fn failed(mut self, msg: String, explained_by: &'static [FindingKind]) -> Prediction {
        self.succeeds = Some(false);
        self.msg = Some(msg);
        self.explained_by = explained_by;
        self
    }

    /// Whether it depends on the network of the node. Failures of files, disks, locks and executables do not.
    fn needs_network(&self) -> bool {
        use FindingKind::{Conflist, Disk, Executable, Lock, Settings};
        let seen_anywhere = [Conflist, Disk, Executable, Lock, Settings];
        !self
            .explained_by
            .iter()
            .any(|kind| seen_anywhere.contains(kind))
    }

    /// Takes back what was predicted.
    fn set_unknown(&mut self, why: String) {
        *self = Prediction {
            conflist: std::mem::take(&mut self.conflist),
            network: std::mem::take(&mut self.network),
            unknown: Some(why),
            ..Prediction::default()
        };
    }
}

/// Decides an ADD for each network configuration of this plugin, on the state in memory.
pub fn predict(
    node: &Node,
    inspection: &Inspection,
    trial: &Trial<'_>,
    visibility: &Visibility,
) -> Vec<Prediction> {
    let (config, paths) = (&inspection.config, node.paths());
    let predict = |(file, plugin)| {
        let mut add = predict_one(node, inspection, trial, file, plugin);
        let is_hidden = inspection.is_in_other_network && add.needs_network()
            || visibility.not_mounted.is_some() && add.explained_by.contains(&FindingKind::Source);
        if is_hidden {
            add.set_unknown(IN_CONTAINER.to_owned());
        }
        add
    };
    let adds: Vec<_> = config.ours(paths.name()).map(predict).collect();
    match (&*adds, config.unusable().next()) {
        ([], Some((path, why))) => vec![refused_by_runtimes(config, path, why)],
        _ => adds,
    }
}

/// What cannot be decided by somebody who does not see the whole node.
const IN_CONTAINER: &str = "cannot be seen in this container";
/// What cannot be decided by somebody who is not root.
const WITHOUT_ROOT: &str = "cannot be seen without root";
/// The error of a file that this user may not read.
const HIDDEN: &str = "permission denied";

/// A file that no runtime can use: nothing is called.
fn refused_by_runtimes(config: &NodeConfig, path: &Path, why: &str) -> Prediction {
    let file = config.files.iter().find(|file| file.path == path);
    let mut add = Prediction {
        conflist: path.display().to_string(),
        network: file.and_then(|file| file.name.clone()).unwrap_or_default(),
        ..Prediction::default()
    };
    if why == HIDDEN {
        add.set_unknown(WITHOUT_ROOT.to_owned());
        return add;
    }
    let msg = "runtimes refuse the network configuration".to_owned();
    add.failed(msg, &[FindingKind::Conflist])
}

fn predict_one(
    node: &Node,
    inspection: &Inspection,
    trial: &Trial<'_>,
    file: &ConfFile,
    plugin: &Plugin,
) -> Prediction {
    let mut add = Prediction {
        conflist: file.path.display().to_string(),
        network: plugin.network().to_owned(),
        ..Prediction::default()
    };
    if let Some(why) = inspection.executables.unknown(file) {
        add.set_unknown(why);
        return add;
    }
    if let Some(why) = inspection.executables.failure(file) {
        return add.failed(why, &[FindingKind::Executable]);
    }
    if let Some(kind) = file.first_that_needs_result() {
        let msg = format!("{kind} needs the result of another plugin");
        return add.failed(msg, &[FindingKind::Conflist]);
    }
    match try_add(node, inspection, trial, plugin) {
        Ok(addresses) => {
            let defaults = &inspection.config.defaults;
            if let Some(foreign) = ForeignGateway::find(plugin, defaults, &addresses) {
                if foreign.is_fatal {
                    add.remedy = format!("correct or remove that route in {}", add.conflist);
                    return add.failed(foreign.to_string(), &[FindingKind::Conflist]);
                }
                add.set_unknown(format!("is up to {}: {foreign}", plugin.kind()));
                return add;
            }
            if let Some((folder, why)) = cache_obstacle(node) {
                // A short result still fits into one block.
                if why.kind() == io::ErrorKind::StorageFull && check_room(&folder, BLOCK).is_ok() {
                    add.set_unknown(format!("depends on the last room in {}", folder.display()));
                    return add;
                }
                let msg = format!("the runtime cannot record the result: {}", io_reason(&why));
                return add.failed(msg, &[FindingKind::Disk]);
            }
            let has_ipv6 = addresses.iter().any(|net| net.addr().is_ipv6());
            if has_ipv6 && lacks_ipv6(node.paths(), "default") {
                let why = "depends on the main plugin, as IPv6 is switched off";
                add.set_unknown(why.to_owned());
                add.addresses = addresses;
                return add;
            }
            (add.succeeds, add.addresses) = (Some(true), addresses);
        }
        Err(failure) => {
            let CniError { code, msg, details } = failure.to_cni(&node.program);
            (add.code, add.details) = (Some(code as u8), Some(details));
            add.remedy = failure.remedy(&node.program, &add.conflist);
            add = add.failed(msg, explanations(&failure));
            if let Failure::Refused { refusal, .. } = &failure {
                add.waits = matches!(refusal, Refusal::Quarantined { .. });
            } else if let Failure::Store { error, .. } = &failure
                && needs_root(&error.source)
            {
                add.set_unknown(WITHOUT_ROOT.to_owned());
            }
        }
    }
    match why_unknown(node.paths().name(), inspection, file, plugin) {
        Some(why) if add.succeeds == Some(true) => add.set_unknown(why),
        // It fails in any case, but maybe before it comes to that.
        Some(_) => add.code = None,
        None => {}
    }
    add
}

/// Why nobody can know whether an ADD succeeds that this plugin lets succeed.
fn why_unknown(
    name: &str,
    inspection: &Inspection,
    file: &ConfFile,
    plugin: &Plugin,
) -> Option<String> {
    if let Some(path) = refused_before(&inspection.config, file) {
        return Some(format!(
            "is up to the runtime: containerd starts no pod because of {}, CRI-O skips that file",
            path.display()
        ));
    }
    if let Some(first) = inspection.config.used_instead_of(file, name) {
        return Some(format!(
            "is up to the runtime: many use {} alone",
            first.path.display()
        ));
    }
    let mut read_before = inspection.config.usable().filter(|f| f.path <= file.path);
    if let Some(dispute) = read_before.find_map(ConfFile::dispute) {
        return Some(format!("is up to the runtime: {dispute}"));
    }
    if let Some(folder) = &plugin.folder {
        return Some(format!(
            "is up to the runtime: only {SINCE_1_3} reads {}",
            folder.display()
        ));
    }
    let holder = inspection.lock_holder.as_ref()?;
    let process = &holder.process;
    let is_foreign = holder.is_foreign();
    is_foreign.then(|| format!("depends on when {process} lets go of the lock"))
}

/// A file that runtimes refuse, and that containerd reads before this one.
fn refused_before<'a>(config: &'a NodeConfig, file: &ConfFile) -> Option<&'a Path> {
    let mut unusable = config.unusable();
    let found = unusable.find(|(path, why)| *why != HIDDEN && *path < &*file.path);
    found.map(|(path, _)| path)
}

/// Goes through an ADD in its order: the call, the lock, the state, the decision, the disk.
fn try_add(
    node: &Node,
    inspection: &Inspection,
    trial: &Trial<'_>,
    plugin: &Plugin,
) -> Result<Vec<IpNet>, Failure> {
    let plugin = plugin.as_called(node.paths());
    let call: Call = plugin.parse_call(&inspection.config.defaults)?;
    let holder = inspection.lock_holder.as_ref();
    if let Some(holder) = holder.filter(|holder| holder.is_stuck()) {
        return Err(Failure::Lock(LockError::Busy {
            path: node.paths().lock_file(),
            holder: holder.process.to_string(),
            waited: WAIT,
        }));
    }
    if let Some(obstacle) = lock_obstacle(node.paths(), geteuid().is_root()) {
        return Err(obstacle.into_error(node.paths()).into());
    }
    let grants = trial.allocate(&call).outcome?;
    Ok(grants.iter().map(|grant| grant.address).collect())
}

/// The kinds of findings of which one explains the failure.
fn explanations(failure: &Failure) -> &'static [FindingKind] {
    match failure {
        Failure::Call(_) => &[FindingKind::Conflist, FindingKind::Settings],
        Failure::Lock(_) => &[FindingKind::Lock, FindingKind::Disk],
        Failure::Store { .. } => &[FindingKind::Disk, FindingKind::State],
        Failure::NewerFormat { .. } => &[FindingKind::State],
        Failure::Refused { refusal, .. } => match refusal {
            Refusal::Quarantined { .. } => &[FindingKind::State],
            // The network configuration is the cause.
            Refusal::Exhausted { listed, .. } if !listed.is_empty() => &[],
            Refusal::NoSpace { space, .. } if space != LOCAL_SPACE => &[],
            Refusal::Exhausted { .. } => &[FindingKind::Pool, FindingKind::OnHost],
            Refusal::NoPools { passed_over, .. } if !passed_over.is_empty() => &[],
            Refusal::NoPools { .. } | Refusal::NoSpace { .. } | Refusal::NoSubnet { .. } => {
                &[FindingKind::Source, FindingKind::Interface]
            }
            _ => &[],
        },
        _ => &[],
    }
}

/// Makes a finding of each failure that no other problem explains.
pub fn explain_failures(adds: &[Prediction], findings: &[Finding]) -> Vec<Finding> {
    let mut problems = Vec::new();
    let is_certain = |add: &&Prediction| add.succeeds == Some(false);
    for add in adds.iter().filter(is_certain) {
        let explains = |f: &Finding| f.is_problem() && add.explained_by.contains(&f.kind);
        if findings.iter().any(explains) {
            continue;
        }
        let code = add.code.map(|code| format!("code {code}: "));
        let text = format!(
            "an ADD of network {:?} would fail now: {}{}",
            add.network,
            code.unwrap_or_default(),
            add.msg.as_deref().unwrap_or_default()
        );
        problems.push(Finding::error(FindingKind::Add, &text, &add.remedy).about(&add.conflist));
    }
    problems
}
