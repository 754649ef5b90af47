//! What has become of the state.

use std::io;

use serde::Serialize;

use super::node::Node;
use super::outcome::CommandError;
use crate::host::io_reason;
use crate::ipam::Ipam;
use crate::state::{Document, FORMAT, KeyStatus, Loaded, StoreError, load};

/// The state file, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Where it is.
    pub path: String,
    /// In a word.
    pub condition: StateHealth,
    /// What is the matter with it.
    pub detail: Option<String>,
    /// For how long only what is known to be held is given, after it was lost.
    pub quarantine_seconds: Option<u64>,
}

/// A word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateHealth {
    /// As it should be.
    Ok,
    /// Not there, and none is needed yet.
    Fresh,
    /// It is not what it was, and the next ADD rebuilds it.
    Lost,
    /// There, but no state; the next ADD rebuilds it.
    Corrupt,
    /// There, but the system does not let it be read.
    Unreadable,
    /// A newer version of this plugin wrote it.
    NewerFormat,
    /// It works, but not all that it says is known to be so yet.
    Doubtful,
}

/// A state and its condition. Where it cannot be read there are no pools.
pub struct StateReport {
    /// What it says about addresses.
    pub ipam: Ipam,
    /// What has become of it.
    pub condition: Condition,
}

impl StateReport {
    /// Reads it.
    ///
    /// # Errors
    /// This user may not read it.
    pub fn read(node: &Node) -> Result<StateReport, CommandError> {
        StateReport::of(node, &load(node.paths(), node.context.boot_id.as_deref()))
    }

    /// That of what was read.
    ///
    /// # Errors
    /// This user may not read it.
    pub fn of(
        node: &Node,
        loaded: &Result<Loaded, StoreError>,
    ) -> Result<StateReport, CommandError> {
        let nothing = |word, why: String| StateReport {
            ipam: Ipam::default(),
            condition: Condition::of(node, word, Some(why)),
        };
        let none = Document::default();
        let document = match loaded {
            Ok(Loaded::Read(document)) => &**document,
            Ok(Loaded::Missing) => &none,
            Ok(Loaded::Corrupt(why)) => return Ok(nothing(StateHealth::Corrupt, why.clone())),
            Err(e) if e.source.kind() == io::ErrorKind::PermissionDenied => {
                return Err(CommandError::with(
                    &format!("{} {}", e.step, e.path.display()),
                    &e.source,
                ));
            }
            Err(e) => return Ok(nothing(StateHealth::Unreadable, io_reason(&e.source))),
        };
        let doubt = match &document.own {
            KeyStatus::Unreadable(why) => Some(format!("our part of it cannot be read: {why}")),
            _ => document.doubt().map(str::to_owned),
        };
        let (word, detail) = match (&document.own, node.loss(document)) {
            (KeyStatus::Newer { format, .. }, _) => {
                let detail =
                    format!("it is of format {format}, and this version knows up to {FORMAT}");
                (StateHealth::NewerFormat, Some(detail))
            }
            (_, Some(why)) => (StateHealth::Lost, Some(why.to_owned())),
            (_, None) if document.is_empty() => (StateHealth::Fresh, None),
            (_, None) if doubt.is_some() => (StateHealth::Doubtful, doubt),
            (_, None) => (StateHealth::Ok, None),
        };
        let quarantine = document.ipam().quarantine;
        let quarantine = quarantine.map(|until| until.since(node.now.boot).as_secs());
        Ok(StateReport {
            ipam: document.ipam().clone(),
            condition: Condition {
                quarantine_seconds: quarantine.filter(|left| *left > 0),
                ..Condition::of(node, word, detail)
            },
        })
    }
}

impl Condition {
    fn of(node: &Node, condition: StateHealth, detail: Option<String>) -> Condition {
        Condition {
            path: node.paths().state().display().to_string(),
            condition,
            detail,
            quarantine_seconds: None,
        }
    }

    /// In a sentence, if there is anything to say.
    pub fn sentence(&self) -> Option<String> {
        let (path, detail) = (&self.path, self.detail.as_deref().unwrap_or_default());
        let sentence = match self.condition {
            StateHealth::Ok => return self.quarantine(),
            StateHealth::Fresh => {
                format!("{path}: there are no pools yet; the first ADD makes them.")
            }
            StateHealth::Lost => format!("{path} is lost: {detail}. {REBUILD}"),
            StateHealth::Corrupt => format!("{path} cannot be read: {detail}. {REBUILD}"),
            StateHealth::Unreadable => {
                format!("{path} cannot be read: {detail}. No pod gets an address until it can be.")
            }
            StateHealth::NewerFormat => format!("{path}: {detail}. Use the newer version."),
            StateHealth::Doubtful => format!("{path}: {detail}."),
        };
        Some(match self.quarantine() {
            Some(quarantine) => format!("{sentence} {quarantine}"),
            None => sentence,
        })
    }

    fn quarantine(&self) -> Option<String> {
        let seconds = self.quarantine_seconds?;
        Some(format!(
            "The state was lost and rebuilt; for {seconds} s more, new pods are told to try again."
        ))
    }
}

/// What happens to a state that is lost.
const REBUILD: &str = "The next ADD rebuilds it from what the node shows to be in use, and keeps a copy of what cannot be read; unless the journal of grants is whole, new pods are told to try again for 30 s after that. There is nothing to clean up.";
