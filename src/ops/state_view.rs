//! The state as a command finds it, and the one wording of its health.

use std::io;

use serde::Serialize;

use super::node::Node;
use super::outcome::CommandError;
use crate::host::io_reason;
use crate::ipam::Ipam;
use crate::state::{FORMAT, KeyStatus, Loaded, QUARANTINE, State, StoreError, load};

/// The state and its health.
#[derive(Debug)]
pub struct StateView {
    /// The state; an empty one where there is none that can be read.
    pub state: State,
    /// Its health.
    pub report: StateReport,
    /// Why the system does not let the file be read.
    error: Option<StoreError>,
}

/// The health of the state file, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StateReport {
    /// The path of the file.
    pub path: String,
    /// The health in one word.
    pub condition: StateHealth,
    /// The reason, unless the state is healthy.
    pub detail: Option<String>,
    /// How long the quarantine after a rebuild still lasts.
    pub quarantine_seconds: Option<u64>,
}

/// The health of the state in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateHealth {
    /// Nothing is wrong.
    Ok,
    /// There are no pools, and none are needed yet.
    Fresh,
    /// Records are missing; the next ADD rebuilds the state.
    Lost,
    /// The file is not a state; the next ADD rebuilds it.
    Corrupt,
    /// The system does not let the file be read.
    Unreadable,
    /// A newer version of this plugin wrote it.
    NewerFormat,
    /// The state works, but the next ADD has to compare it with the node first.
    Doubtful,
    /// As `Doubtful`, because the key of this plugin cannot be read.
    #[serde(rename = "doubtful")]
    KeyUnreadable,
}

impl StateView {
    /// Reads the state for a command that cannot do without the permission to read it.
    ///
    /// # Errors
    /// This user may not read the file.
    pub fn read(node: &Node) -> Result<StateView, CommandError> {
        let view = StateView::load(node);
        view.require_permission()?;
        Ok(view)
    }

    /// Reads the state without a lock, as writers always replace the whole file.
    pub fn load(node: &Node) -> StateView {
        let loaded = load(node.paths(), node.context.boot_id.as_deref());
        StateView::from_loaded(node, loaded)
    }

    /// Judges what was loaded.
    pub fn from_loaded(node: &Node, loaded: Result<Loaded, StoreError>) -> StateView {
        let unread = |condition, detail: String, error| StateView {
            state: State::default(),
            report: StateReport::new(node, condition, Some(detail)),
            error,
        };
        let mut state = match loaded {
            Ok(Loaded::Ready(state) | Loaded::Newer { state, .. }) => *state,
            // A missing file may be a lost one.
            Ok(Loaded::Missing) => State::default(),
            Ok(Loaded::Corrupt(why)) => return unread(StateHealth::Corrupt, why, None),
            Err(e) => return unread(StateHealth::Unreadable, io_reason(&e.source), Some(e)),
        };
        // As every call does that changes it.
        node.context.catch_up(&mut state);
        let (condition, detail) = judge(node, &state);
        let quarantine = state.ipam().quarantine;
        let quarantine = quarantine.map(|until| until.since(node.now.boot).as_secs());
        StateView {
            report: StateReport {
                quarantine_seconds: quarantine.filter(|left| *left > 0),
                ..StateReport::new(node, condition, detail)
            },
            state,
            error: None,
        }
    }

    /// The addresses; none where the state cannot be read.
    pub fn ipam(&self) -> &Ipam {
        self.state.ipam()
    }

    /// Fails where this user may not read the file.
    ///
    /// # Errors
    /// Permission denied.
    pub fn require_permission(&self) -> Result<(), CommandError> {
        match &self.error {
            Some(e) if e.source.kind() == io::ErrorKind::PermissionDenied => {
                let what = format!("{} {}", e.step, e.path.display());
                Err(CommandError::from_io(&what, &e.source))
            }
            _ => Ok(()),
        }
    }

    /// The state for a command that changes it; `None` where there are no pools yet.
    ///
    /// # Errors
    /// The state cannot be read, is lost, or a newer version wrote it.
    pub fn into_writable(self) -> Result<Option<State>, CommandError> {
        match self.report.condition {
            StateHealth::Ok
            | StateHealth::Fresh
            | StateHealth::Doubtful
            | StateHealth::KeyUnreadable => Ok(Some(self.state).filter(|state| !state.is_empty())),
            StateHealth::Lost
            | StateHealth::Corrupt
            | StateHealth::Unreadable
            | StateHealth::NewerFormat => Err(match self.error {
                Some(error) => error.into(),
                None => CommandError(format!(
                    "{}; {}",
                    self.report.text().unwrap_or_default(),
                    self.report.remedy().unwrap_or_default()
                )),
            }),
        }
    }
}

/// The health of a state that was read, and the reason.
fn judge(node: &Node, state: &State) -> (StateHealth, Option<String>) {
    if let KeyStatus::Newer { format, .. } = &state.key_status {
        let detail = format!("state format {format}; this version supports up to {FORMAT}");
        return (StateHealth::NewerFormat, Some(detail));
    }
    if let Some(why) = node.context.lost_reason(state) {
        return (StateHealth::Lost, Some(why));
    }
    match (&state.key_status, state.describe_pending()) {
        (KeyStatus::Unreadable(why), _) => {
            let detail = format!("the key of this plugin cannot be read: {why}");
            (StateHealth::KeyUnreadable, Some(detail))
        }
        _ if state.is_empty() => (StateHealth::Fresh, None),
        (_, Some(doubt)) => (StateHealth::Doubtful, Some(doubt.to_owned())),
        (_, None) => (StateHealth::Ok, None),
    }
}

impl StateHealth {
    /// Whether the file is a state, or absent.
    pub fn is_readable(self) -> bool {
        !matches!(self, StateHealth::Corrupt | StateHealth::Unreadable)
    }

    /// Why records of holders may be missing, without full stop; `None` where the state has all of them.
    pub fn describe_missing_records(self) -> Option<&'static str> {
        match self {
            StateHealth::Lost => Some("the state was lost"),
            StateHealth::Corrupt => Some("the state is corrupt"),
            StateHealth::Unreadable => Some("the state cannot be read"),
            StateHealth::NewerFormat => Some("a newer version wrote the state"),
            StateHealth::Ok
            | StateHealth::Fresh
            | StateHealth::Doubtful
            | StateHealth::KeyUnreadable => None,
        }
    }
}

impl StateReport {
    fn new(node: &Node, condition: StateHealth, detail: Option<String>) -> StateReport {
        StateReport {
            path: node.paths().state().display().to_string(),
            condition,
            detail,
            quarantine_seconds: None,
        }
    }

    /// What is unusual about the state, without full stop; `None` where nothing is.
    pub fn text(&self) -> Option<String> {
        let (path, detail) = (&self.path, self.detail.as_deref().unwrap_or_default());
        Some(match self.condition {
            StateHealth::Ok => return None,
            StateHealth::Fresh => format!("{path} has no pools yet; the first ADD creates them"),
            StateHealth::Lost => format!("{path} was lost: {detail}"),
            StateHealth::Corrupt => format!("{path} is corrupt: {detail}"),
            StateHealth::Unreadable => format!("{path} cannot be read: {detail}"),
            StateHealth::NewerFormat | StateHealth::Doubtful | StateHealth::KeyUnreadable => {
                format!("{path}: {detail}")
            }
        })
    }

    /// What to do about it, without full stop; `None` where nothing is wrong.
    pub fn remedy(&self) -> Option<String> {
        Some(match self.condition {
            StateHealth::Ok | StateHealth::Fresh | StateHealth::Doubtful => return None,
            StateHealth::Lost => rebuild_remedy(),
            StateHealth::Corrupt => format!("{}; the corrupt file is kept", rebuild_remedy()),
            StateHealth::Unreadable => "no pod gets an address until it can be read: check the file and its folder with `ls -l`, and the disk with `dmesg`".to_owned(),
            StateHealth::NewerFormat => "install the newer version that wrote it".to_owned(),
            StateHealth::KeyUnreadable => {
                "no cleanup is needed: the next ADD inspects the node and writes the key again"
                    .to_owned()
            }
        })
    }

    /// The quarantine, while it lasts, without full stop.
    pub fn quarantine(&self) -> Option<String> {
        let seconds = self.quarantine_seconds?;
        Some(format!(
            "the state was lost and rebuilt: new pods wait for {seconds} s more"
        ))
    }

    /// All of it in sentences, if there is anything to say.
    pub fn sentences(&self) -> Option<String> {
        let parts = [self.text(), self.remedy(), self.quarantine()];
        let sentences: Vec<String> = parts.into_iter().flatten().map(sentence).collect();
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }
}

/// How the next ADD rebuilds the state, and what that means for pods.
fn rebuild_remedy() -> String {
    format!(
        "no cleanup is needed, and running pods keep their addresses: the next ADD rebuilds it from the node and the journal of grants; new pods wait {} s unless the journal is complete",
        QUARANTINE.as_secs()
    )
}

/// The text with a capital letter and a full stop.
fn sentence(text: String) -> String {
    let mut rest = text.chars();
    let first = rest.next().map(|c| c.to_ascii_uppercase());
    let first = first.map_or_else(String::new, String::from);
    format!("{first}{}.", rest.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_join_text_remedy_and_quarantine() {
        let report = |condition, detail: Option<&str>, quarantine_seconds| StateReport {
            path: "/s".to_owned(),
            condition,
            detail: detail.map(str::to_owned),
            quarantine_seconds,
        };
        assert_eq!(report(StateHealth::Ok, None, None).sentences(), None);
        assert_eq!(
            report(StateHealth::Ok, None, Some(7)).sentences().unwrap(),
            "The state was lost and rebuilt: new pods wait for 7 s more."
        );
        let lost = report(StateHealth::Lost, Some("why"), None);
        let text = lost.sentences().unwrap();
        assert!(text.starts_with("/s was lost: why. No cleanup is needed, "));
        assert!(text.contains("new pods wait 30 s"), "{text}");
        let newer = report(StateHealth::NewerFormat, Some("state format 9"), None);
        assert_eq!(
            newer.sentences().unwrap(),
            "/s: state format 9. Install the newer version that wrote it."
        );
    }

    #[test]
    fn only_an_unhealthy_state_has_a_remedy() {
        for (condition, is_wrong) in [
            (StateHealth::Ok, false),
            (StateHealth::Fresh, false),
            (StateHealth::Doubtful, false),
            (StateHealth::KeyUnreadable, true),
            (StateHealth::Lost, true),
            (StateHealth::Corrupt, true),
            (StateHealth::Unreadable, true),
            (StateHealth::NewerFormat, true),
        ] {
            let report = StateReport {
                path: String::new(),
                condition,
                detail: None,
                quarantine_seconds: None,
            };
            assert_eq!(report.remedy().is_some(), is_wrong, "{condition:?}");
        }
        let json = serde_json::to_string(&StateHealth::KeyUnreadable).unwrap();
        assert_eq!(json, "\"doubtful\"");
    }
}
