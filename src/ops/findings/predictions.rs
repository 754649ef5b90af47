//! Answers "would an ADD work now?" for every network configuration that names this plugin.

use std::io;

use ipnet::IpNet;
use serde::Serialize;

use super::finding::{Finding, FindingKind as Kind};
use super::inspection::Inspection;
use super::storage::lock_obstacle;
use crate::cni::{Call, CniError};
use crate::failure::Failure;
use crate::ipam::Refusal;
use crate::ops::node::Node;
use crate::ops::node_config::{ConfFile, Plugin, without_conflist};
use crate::plugin::Trial;
use crate::state::{LockError, WAIT};

/// What an ADD of one network configuration would come to now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Prediction {
    /// The file; `null` where none names this plugin and its defaults were tried.
    pub conflist: Option<String>,
    /// The network's name.
    pub network: String,
    /// Whether it would succeed.
    pub succeeds: bool,
    /// The addresses that it would get.
    pub addresses: Vec<IpNet>,
    /// The CNI error code, if it would fail.
    pub code: Option<u8>,
    /// The message of the error.
    pub msg: Option<String>,
    /// The details of the error.
    pub details: Option<String>,
    /// Whether the failure ends by itself, and the runtime tries again.
    pub waits: bool,
    /// Whether this user may not see what decides it.
    #[serde(skip)]
    pub is_hidden: bool,
    /// The kinds of findings of which one explains the failure.
    #[serde(skip)]
    explained_by: &'static [Kind],
}

/// Decides an ADD for each of these configurations, on the state in memory.
pub fn predict(node: &Node, inspection: &Inspection, trial: &Trial<'_>) -> Vec<Prediction> {
    let (config, name) = (&inspection.config, node.paths().name());
    let alone = without_conflist(name);
    let ours = config.ours(name).map(|(file, plugin)| (Some(file), plugin));
    let mut tried: Vec<(Option<&ConfFile>, &Plugin)> = ours.collect();
    if tried.is_empty() {
        let broken = config.files.iter().find(|file| file.conflist.is_err());
        if let Some(file) = broken {
            return vec![unreadable(file)];
        }
        tried.extend(alone.iter().map(|plugin| (None, plugin)));
    }
    let predict = |(file, plugin)| predict_one(node, inspection, trial, file, plugin);
    tried.into_iter().map(predict).collect()
}

/// A file that no runtime can read: nothing is called.
fn unreadable(file: &ConfFile) -> Prediction {
    let why = file.conflist.as_ref().err();
    Prediction {
        conflist: Some(file.path.display().to_string()),
        msg: Some("the network configuration cannot be read".to_owned()),
        is_hidden: why.is_some_and(|why| why == "permission denied"),
        explained_by: &[Kind::Conflist],
        ..Prediction::default()
    }
}

fn predict_one(
    node: &Node,
    inspection: &Inspection,
    trial: &Trial<'_>,
    file: Option<&ConfFile>,
    plugin: &Plugin,
) -> Prediction {
    let list = file.and_then(|file| file.conflist.as_ref().ok());
    let prediction = Prediction {
        conflist: file.map(|file| file.path.display().to_string()),
        network: list.and_then(|list| list.name.clone()).unwrap_or_default(),
        ..Prediction::default()
    };
    let plugins = list.into_iter().flat_map(|list| &list.plugins);
    if let Some(why) = inspection.executables.failure(plugins) {
        return Prediction {
            msg: Some(why),
            explained_by: &[Kind::Executable],
            ..prediction
        };
    }
    let failure = match try_add(node, inspection, trial, plugin) {
        Ok(addresses) => {
            return Prediction {
                succeeds: true,
                addresses,
                ..prediction
            };
        }
        Err(failure) => failure,
    };
    let CniError { code, msg, details } = failure.to_cni(&node.program);
    let (mut waits, mut is_hidden) = (false, false);
    match &failure {
        Failure::Refused { refusal, .. } => waits = matches!(refusal, Refusal::Quarantined { .. }),
        Failure::Store { error, .. } => {
            is_hidden = error.source.kind() == io::ErrorKind::PermissionDenied;
        }
        _ => {}
    }
    Prediction {
        code: Some(code as u8),
        msg: Some(msg),
        details: Some(details),
        waits,
        is_hidden,
        explained_by: explanations(&failure),
        ..prediction
    }
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
    if let Some(error) = lock_obstacle(node.paths()) {
        return Err(error.into());
    }
    let grants = trial.allocate(&call).outcome?;
    Ok(grants.iter().map(|grant| grant.address).collect())
}

/// The kinds of findings of which one explains the failure.
fn explanations(failure: &Failure) -> &'static [Kind] {
    match failure {
        Failure::Call(_) => &[Kind::Conflist, Kind::Settings],
        Failure::Lock(_) => &[Kind::Lock, Kind::Disk],
        Failure::Store { .. } => &[Kind::Disk, Kind::State],
        Failure::NewerFormat { .. } => &[Kind::State],
        Failure::Refused { refusal, .. } => match refusal {
            Refusal::Quarantined { .. } => &[Kind::State],
            Refusal::Exhausted { .. } => &[Kind::Pool, Kind::OnHost],
            Refusal::NoPools { passed_over, .. } if !passed_over.is_empty() => &[],
            Refusal::NoPools { .. } | Refusal::NoSpace { .. } | Refusal::NoSubnet { .. } => {
                &[Kind::Source, Kind::Interface]
            }
            _ => &[],
        },
        _ => &[],
    }
}

/// Makes a finding of each failure that no other problem explains.
pub fn explain_failures(adds: &[Prediction], findings: &[Finding]) -> Vec<Finding> {
    let mut problems = Vec::new();
    for add in adds.iter().filter(|add| !add.succeeds && !add.is_hidden) {
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
        let remedy = add.details.as_deref().unwrap_or_default();
        let subject = add.conflist.as_deref().unwrap_or("an ADD without conflist");
        problems.push(Finding::error(Kind::Add, &text, &remedy).about(subject));
    }
    problems
}
