//! Whether new pods get addresses: what an ADD of each network configuration would come to now.

use std::io;
use std::path::Path;

use ipnet::IpNet;
use rustix::process::geteuid;
use serde::Serialize;

use super::configuration::ForeignGateway;
use super::host_network::lacks_ipv6;
use super::inspection::Inspection;
use super::storage::{cache_obstacle, visible_lock_obstacle};
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
use crate::state::{LockError, WAIT};

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
    /// The addresses that this plugin would allocate, even if the main plugin then fails.
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
    /// Whether the failure ends without any action within two minutes, because the runtime tries again.
    pub waits: bool,
    /// The kinds of findings of which one explains the failure.
    #[serde(skip)]
    pub explained_by: &'static [FindingKind],
}

impl Prediction {
    /// An ADD that fails before this plugin is called, or after it has succeeded.
    fn failed(self, msg: String, explained_by: &'static [FindingKind]) -> Prediction {
        Prediction {
            succeeds: Some(false),
            addresses: Vec::new(),
            msg: Some(msg),
            explained_by,
            ..self
        }
    }

    /// An ADD that this plugin refuses.
    fn refused(self, failure: &Failure, program: &str) -> Prediction {
        if let Failure::Store { error, .. } = failure
            && needs_root(&error.source)
        {
            return self.unknown(WITHOUT_ROOT.to_owned());
        }
        let CniError { code, msg, details } = failure.to_cni(program);
        Prediction {
            code: Some(code as u8),
            details: Some(details),
            remedy: failure.remedy(program, &self.conflist),
            waits: matches!(failure, Failure::Refused { refusal, .. } if ends_without_action(refusal)),
            ..self.failed(msg, explanations(failure))
        }
    }

    /// An ADD whose outcome cannot be known. The addresses are those that this plugin would allocate.
    fn unknown(self, why: String) -> Prediction {
        Prediction {
            conflist: self.conflist,
            network: self.network,
            addresses: self.addresses,
            unknown: Some(why),
            ..Prediction::default()
        }
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
        let add = predict_one(node, inspection, trial, file, plugin);
        let is_hidden = inspection.is_in_other_network && add.needs_network()
            || visibility.not_mounted.is_some() && add.explained_by.contains(&FindingKind::Source);
        if !is_hidden {
            return add;
        }
        // Addresses of this container would not be those of the node.
        Prediction {
            addresses: Vec::new(),
            ..add.unknown(IN_CONTAINER.to_owned())
        }
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
    let add = Prediction {
        conflist: path.display().to_string(),
        network: file.and_then(|file| file.name.clone()).unwrap_or_default(),
        ..Prediction::default()
    };
    if why == HIDDEN {
        return add.unknown(WITHOUT_ROOT.to_owned());
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
    let add = Prediction {
        conflist: file.path.display().to_string(),
        network: plugin.network().to_owned(),
        ..Prediction::default()
    };
    if let Some(why) = why_not_called(node.paths().name(), inspection, file, plugin) {
        return add.unknown(why);
    }
    if let Some(why) = inspection.executables.unknown(file) {
        return add.unknown(why);
    }
    if let Some(why) = inspection.executables.failure(file) {
        return add.failed(why, &[FindingKind::Executable]);
    }
    if let Some(kind) = file.first_that_needs_result() {
        let msg = format!("{kind} needs the result of another plugin");
        return add.failed(msg, &[FindingKind::Conflist]);
    }
    if let Some((kind, mistyped)) = file.mistyped_key() {
        let msg = format!("{kind} refuses {mistyped}");
        return add.failed(msg, &[FindingKind::Conflist]);
    }
    let add = match try_add(node, inspection, trial, plugin) {
        Ok(addresses) => {
            after_allocation(node, inspection, plugin, Prediction { addresses, ..add })
        }
        Err(failure) => add.refused(&failure, &node.program),
    };
    match why_unknown(inspection, file) {
        Some(why) if add.succeeds == Some(true) => add.unknown(why),
        // It fails in any case, but maybe before it comes to that.
        Some(_) => Prediction { code: None, ..add },
        None => add,
    }
}

/// Why some runtimes do not call this plugin, so that pods start or fail without it.
fn why_not_called(
    name: &str,
    inspection: &Inspection,
    file: &ConfFile,
    plugin: &Plugin,
) -> Option<String> {
    if let Some(first) = inspection.config.used_instead_of(file, name) {
        return Some(format!(
            "is up to the runtime: many use {} alone",
            first.path.display()
        ));
    }
    let folder = plugin.folder.as_ref()?;
    Some(format!(
        "is up to the runtime: only {SINCE_1_3} reads {}",
        folder.display()
    ))
}

/// What becomes of an ADD for which this plugin has allocated addresses. The main plugin configures them, and the runtime records them.
fn after_allocation(
    node: &Node,
    inspection: &Inspection,
    plugin: &Plugin,
    add: Prediction,
) -> Prediction {
    let defaults = &inspection.config.defaults;
    if let Some(foreign) = ForeignGateway::find(plugin, defaults, &add.addresses) {
        if !foreign.is_fatal {
            return add.unknown(format!("is up to {}: {foreign}", plugin.kind()));
        }
        return Prediction {
            remedy: format!("correct or remove that route in {}", add.conflist),
            ..add.failed(foreign.to_string(), &[FindingKind::Conflist])
        };
    }
    if let Some((folder, why)) = cache_obstacle(node) {
        // A short result still fits into one block.
        if why.kind() == io::ErrorKind::StorageFull && check_room(&folder, BLOCK).is_ok() {
            return add.unknown(format!("depends on the space left in {}", folder.display()));
        }
        let msg = format!("the runtime cannot record the result: {}", io_reason(&why));
        return add.failed(msg, &[FindingKind::Disk]);
    }
    let has_ipv6 = add.addresses.iter().any(|net| net.addr().is_ipv6());
    if has_ipv6 && lacks_ipv6(node.paths(), "default") {
        if plugin.kind() == "ptp" {
            let msg =
                "ptp cannot give the host's end of its link an IPv6 address: IPv6 is switched off";
            let addresses = add.addresses.clone();
            return Prediction {
                addresses,
                ..add.failed(msg.to_owned(), &[FindingKind::Interface])
            };
        }
        let why = "depends on the main plugin, as IPv6 is switched off";
        return add.unknown(why.to_owned());
    }
    Prediction {
        succeeds: Some(true),
        ..add
    }
}

/// Why nobody can know whether an ADD succeeds that this plugin lets succeed.
fn why_unknown(inspection: &Inspection, file: &ConfFile) -> Option<String> {
    if let Some(path) = refused_before(&inspection.config, file) {
        return Some(format!(
            "is up to the runtime: containerd starts no pod because of {}, CRI-O skips that file",
            path.display()
        ));
    }
    let mut read_before = inspection.config.usable().filter(|f| f.path <= file.path);
    if let Some(dispute) = read_before.find_map(ConfFile::dispute) {
        return Some(format!("is up to the runtime: {dispute}"));
    }
    let holder = inspection.lock_holder.as_ref()?;
    let process = &holder.process;
    let is_foreign = holder.is_foreign();
    is_foreign.then(|| format!("depends on when {process} releases the lock"))
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
    let called = plugin.as_called(node.paths());
    let call: Call = called.parse_call(&inspection.config.defaults)?;
    let holder = inspection.lock_holder.as_ref();
    if let Some(holder) = holder.filter(|holder| holder.is_stuck()) {
        return Err(Failure::Lock(LockError::Busy {
            path: node.paths().lock_file(),
            holder: holder.process.to_string(),
            waited: WAIT,
        }));
    }
    if let Some(obstacle) = visible_lock_obstacle(node, geteuid().is_root()) {
        return Err(obstacle.into_error(node.paths()).into());
    }
    let grants = trial.allocate(&call).outcome?;
    Ok(grants.iter().map(|grant| grant.address).collect())
}

/// Whether a later ADD succeeds without any action: after the quarantine, or after a second look at holders that may be dead.
fn ends_without_action(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Quarantined { .. } => true,
        Refusal::Exhausted { pools, listed, .. } => {
            listed.is_empty() && pools.iter().any(|pool| pool.suspect > 0)
        }
        _ => false,
    }
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
