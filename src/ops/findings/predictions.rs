//! Answers "would an ADD work now?" for every network configuration that names this plugin.

use std::io;

use ipnet::IpNet;
use serde::Serialize;

use super::finding::{Finding, FindingKind};
use super::inspection::Inspection;
use super::lock;
use crate::cni::{Call, CniError};
use crate::failure::Failure;
use crate::ipam::Refusal;
use crate::ops::node::Node;
use crate::ops::node_config::{ConfFile, Plugin, without_conflist};
use crate::plugin::Trial;
use crate::state::LockError;

/// What an ADD of one network configuration would come to now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// Whether this user may see what decides it.
    #[serde(skip)]
    pub is_known: bool,
}

/// A prediction, and which findings explain a failure.
#[derive(Clone, Debug)]
pub struct ExplainedPrediction {
    /// The prediction.
    pub prediction: Prediction,
    explained_by: &'static [FindingKind],
}

impl ExplainedPrediction {
    /// A file that no runtime can read: nothing is called.
    fn unreadable(file: &ConfFile) -> ExplainedPrediction {
        ExplainedPrediction {
            prediction: Prediction {
                conflist: Some(file.path.display().to_string()),
                network: String::new(),
                succeeds: false,
                addresses: Vec::new(),
                code: None,
                msg: Some("the network configuration cannot be read".to_owned()),
                details: None,
                waits: false,
                is_known: !file
                    .conflist
                    .as_ref()
                    .is_err_and(|why| why == "permission denied"),
            },
            explained_by: &[FindingKind::Conflist],
        }
    }
}

/// Decides an ADD for each of these configurations, on the state in memory.
pub fn predict(
    node: &Node,
    inspection: &Inspection,
    trial: &Trial<'_>,
) -> Vec<ExplainedPrediction> {
    let name = node.paths().name();
    let ours: Vec<_> = inspection.config.ours(name).collect();
    let broken = inspection
        .config
        .files
        .iter()
        .find(|file| file.conflist.is_err());
    if let (true, Some(file)) = (ours.is_empty(), broken) {
        return vec![ExplainedPrediction::unreadable(file)];
    }
    if ours.is_empty() {
        let alone = without_conflist(name);
        let alone = alone.map(|plugin| predict_one(node, inspection, trial, None, &plugin));
        return alone.into_iter().collect();
    }
    ours.into_iter()
        .map(|(file, plugin)| predict_one(node, inspection, trial, Some(file), plugin))
        .collect()
}

fn predict_one(
    node: &Node,
    inspection: &Inspection,
    trial: &Trial<'_>,
    file: Option<&ConfFile>,
    plugin: &Plugin,
) -> ExplainedPrediction {
    let conflist = file.map(|file| file.path.display().to_string());
    let list = file.and_then(|file| file.conflist.as_ref().ok());
    let network = list.and_then(|list| list.name.clone()).unwrap_or_default();
    let failed = |code, msg, details, waits, is_known, explained_by| ExplainedPrediction {
        prediction: Prediction {
            conflist: conflist.clone(),
            network: network.clone(),
            succeeds: false,
            addresses: Vec::new(),
            code,
            msg: Some(msg),
            details,
            waits,
            is_known,
        },
        explained_by,
    };
    let kinds = list.into_iter().flat_map(|list| &list.plugins);
    if let Some(why) = inspection.executables.failure(kinds) {
        let executable = &[FindingKind::Executable];
        return failed(None, why, None, false, true, executable);
    }
    match try_add(node, inspection, trial, plugin) {
        Ok(addresses) => ExplainedPrediction {
            prediction: Prediction {
                conflist,
                network,
                succeeds: true,
                addresses,
                code: None,
                msg: None,
                details: None,
                waits: false,
                is_known: true,
            },
            explained_by: &[],
        },
        Err(failure) => {
            let CniError { code, msg, details } = failure.to_cni(&node.program);
            let waits = matches!(
                &failure,
                Failure::Refused {
                    refusal: Refusal::Quarantined { .. },
                    ..
                }
            );
            let is_hidden = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
            let is_known = match &failure {
                Failure::Store { error, .. } => !is_hidden(&error.source),
                _ => true,
            };
            let by = explanations(&failure);
            failed(Some(code as u8), msg, Some(details), waits, is_known, by)
        }
    }
}

/// Goes through an ADD in its order: the call, the lock, the state, the decision, the disk.
fn try_add(
    node: &Node,
    inspection: &Inspection,
    trial: &Trial<'_>,
    plugin: &Plugin,
) -> Result<Vec<IpNet>, Failure> {
    let call: Call = plugin
        .as_called(node.paths())
        .parse_call(&inspection.config.defaults)?;
    let stuck = inspection
        .lock_holder
        .as_ref()
        .filter(|holder| holder.is_stuck());
    if let Some(holder) = stuck {
        return Err(Failure::Lock(LockError::Busy {
            path: node.paths().lock_file(),
            holder: holder.process.to_string(),
            waited: crate::state::WAIT,
        }));
    }
    if let Some(error) = lock::obstacle(node.paths()) {
        return Err(error.into());
    }
    let result = trial.allocate(&call);
    let grants = result.outcome?;
    Ok(grants.iter().map(|grant| grant.address).collect())
}

/// The kinds of findings of which one explains the failure.
fn explanations(failure: &Failure) -> &'static [FindingKind] {
    use FindingKind as Kind;
    match failure {
        Failure::Call(_) => &[Kind::Conflist, Kind::Settings],
        Failure::Lock(_) => &[Kind::Lock, Kind::Disk],
        Failure::Store { .. } => &[Kind::Disk, Kind::State],
        Failure::NewerFormat { .. } => &[Kind::State],
        Failure::Refused { refusal, .. } => match refusal {
            Refusal::Quarantined { .. } => &[Kind::State],
            Refusal::Exhausted { .. } => &[Kind::Pool, Kind::Wired],
            Refusal::NoPools { passed_over, .. } if passed_over.is_empty() => {
                &[Kind::Source, Kind::Interface]
            }
            Refusal::NoSpace { .. } | Refusal::NoSubnet { .. } => &[Kind::Source, Kind::Interface],
            _ => &[],
        },
        _ => &[],
    }
}

/// Makes a finding of each failure that no other problem explains.
pub fn explain_failures(adds: &[ExplainedPrediction], findings: &[Finding]) -> Vec<Finding> {
    let is_explained = |add: &&ExplainedPrediction| {
        let explains = |f: &Finding| f.is_problem() && add.explained_by.contains(&f.kind);
        findings.iter().any(explains)
    };
    adds.iter()
        .filter(|add| !add.prediction.succeeds && add.prediction.is_known)
        .filter(|add| !is_explained(add))
        .map(|add| describe_failure(&add.prediction))
        .collect()
}

fn describe_failure(add: &Prediction) -> Finding {
    let msg = add.msg.as_deref().unwrap_or_default();
    let code = add
        .code
        .map_or_else(String::new, |code| format!("code {code}: "));
    let text = format!(
        "an ADD of network {:?} would fail now: {code}{msg}",
        add.network
    );
    let remedy = add.details.as_deref().unwrap_or_default();
    let subject = add.conflist.as_deref().unwrap_or("an ADD without conflist");
    Finding::error(FindingKind::Add, &text, &remedy).about(subject)
}
