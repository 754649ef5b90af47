//! The state as a command finds it, and the one wording of its health.

use std::io;

use serde::{Serialize, Serializer};

use super::node::Node;
use super::outcome::CommandError;
use crate::host::io_reason;
use crate::ipam::Ipam;
use crate::state::{Condition, FORMAT, QUARANTINE, State, StoreError};

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
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StateReport {
    /// The path of the file.
    pub path: String,
    /// What it is worth, in a word; `None` where the system does not let the file be read.
    #[serde(serialize_with = "serialize_condition")]
    pub condition: Option<Condition>,
    /// The reason, unless the state is healthy.
    pub detail: Option<String>,
    /// How long the quarantine after a rebuild still lasts.
    pub quarantine_seconds: Option<u64>,
    /// Whether the file is there, but is no state.
    #[serde(skip)]
    pub is_corrupt: bool,
    /// Whether only the key of this plugin cannot be read.
    #[serde(skip)]
    pub is_key_unreadable: bool,
    /// Whether the file is lost, but the journal has the whole state.
    #[serde(skip)]
    pub is_restored: bool,
}

fn serialize_condition<S: Serializer>(
    condition: &Option<Condition>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match condition {
        None => "unreadable",
        Some(Condition::Ready) => "ok",
        Some(Condition::Fresh) => "fresh",
        Some(Condition::Lost(_)) => "lost",
        Some(Condition::Newer { .. }) => "newer-format",
        Some(Condition::Reconcile | Condition::NewBoot) => "doubtful",
    })
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
        StateView::from_opened(node, node.context.view())
    }

    /// Judges what was read.
    pub fn from_opened(node: &Node, opened: Result<State, StoreError>) -> StateView {
        let report = StateReport {
            path: node.paths().state().display().to_string(),
            condition: None,
            detail: None,
            quarantine_seconds: None,
            is_corrupt: false,
            is_key_unreadable: false,
            is_restored: false,
        };
        let state = match opened {
            Ok(state) => state,
            Err(error) => {
                return StateView {
                    report: StateReport {
                        detail: Some(io_reason(&error.source)),
                        ..report
                    },
                    state: State::default(),
                    error: Some(error),
                };
            }
        };
        let (condition, detail) = judge(&state);
        let quarantine = state.ipam().quarantine;
        let quarantine = quarantine.map(|until| until.since(node.now.boot).as_secs());
        StateView {
            report: StateReport {
                condition: Some(condition),
                detail,
                quarantine_seconds: quarantine.filter(|left| *left > 0),
                is_corrupt: state.corrupt.is_some() && state.restored.is_none(),
                is_key_unreadable: state.key_unreadable.is_some(),
                is_restored: state.restored.is_some(),
                ..report
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
            Some(
                Condition::Ready | Condition::Fresh | Condition::Reconcile | Condition::NewBoot,
            ) => Ok(Some(self.state).filter(|state| !state.is_empty())),
            Some(Condition::Lost(_) | Condition::Newer { .. }) | None => Err(match self.error {
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

/// What a state that was read is worth, and the reason.
fn judge(state: &State) -> (Condition, Option<String>) {
    let detail = match (&state.condition, &state.key_unreadable) {
        (Condition::Newer { format }, _) => Some(format!(
            "state format {format}; this version supports up to {FORMAT}"
        )),
        (Condition::Lost(loss), _) if loss.may_be_fresh => return (Condition::Fresh, None),
        (Condition::Lost(loss), _) => Some(loss.why.clone()),
        (_, Some(why)) => Some(format!("the key of this plugin cannot be read: {why}")),
        _ if state.is_empty() => return (Condition::Fresh, None),
        (condition, None) => {
            let pending = match condition {
                Condition::Reconcile => {
                    "it may lack addresses in use; the next ADD looks for those that it does not know"
                }
                Condition::NewBoot => {
                    "it is of before the last start of the node; the next ADD frees what the node does not show"
                }
                _ => "",
            };
            let pending = (!pending.is_empty()).then(|| pending.to_owned());
            state.restored.clone().or(pending)
        }
    };
    (state.condition.clone(), detail)
}

impl StateReport {
    /// Whether the file is a state, or absent.
    pub fn is_readable(&self) -> bool {
        self.condition.is_some() && !self.is_corrupt
    }

    /// Why records of holders may be missing, without full stop; `None` where the state has all of them.
    pub fn describe_missing_records(&self) -> Option<&'static str> {
        match &self.condition {
            None => Some("the state cannot be read"),
            Some(Condition::Lost(_)) if self.is_corrupt => Some("the state is corrupt"),
            Some(Condition::Lost(_)) => Some("the state was lost"),
            Some(Condition::Newer { .. }) => Some("a newer version wrote the state"),
            Some(
                Condition::Ready | Condition::Fresh | Condition::Reconcile | Condition::NewBoot,
            ) => None,
        }
    }

    /// What is unusual about the state, without full stop; `None` where nothing is.
    pub fn text(&self) -> Option<String> {
        let (path, detail) = (&self.path, self.detail.as_deref());
        let because = detail.unwrap_or_default();
        Some(match &self.condition {
            None => format!("{path} cannot be read: {because}"),
            Some(Condition::Lost(_)) if self.is_corrupt => format!("{path} is corrupt: {because}"),
            Some(Condition::Lost(_)) => format!("{path} was lost: {because}"),
            Some(Condition::Fresh) => {
                format!("{path} has no pools yet; the first ADD creates them")
            }
            Some(_) if self.is_restored => format!("{path} was lost or damaged: {because}"),
            Some(_) => format!("{path}: {}", detail?),
        })
    }

    /// What to do about it, without full stop; `None` where nothing is wrong.
    pub fn remedy(&self) -> Option<String> {
        Some(match &self.condition {
            None => "no pod gets an address until it can be read: check the file and its folder with `ls -l`, and the disk with `dmesg`".to_owned(),
            Some(Condition::Lost(_)) if self.is_corrupt => {
                format!("{}; the corrupt file is kept", rebuild_remedy())
            }
            Some(Condition::Lost(_)) => rebuild_remedy(),
            Some(Condition::Newer { .. }) => "install the newer version that wrote it".to_owned(),
            Some(_) if self.is_key_unreadable => {
                "no cleanup is needed: the next ADD inspects the node and writes the key again"
                    .to_owned()
            }
            Some(_) if self.is_restored => {
                "no action needed: the journal of grants has all of it, and the next ADD restores it at once"
                    .to_owned()
            }
            Some(
                Condition::Ready | Condition::Fresh | Condition::Reconcile | Condition::NewBoot,
            ) => return None,
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
        "no cleanup is needed, and running pods keep their addresses: the next ADD rebuilds it from the node and the journal of grants; new pods wait {} s",
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
    use crate::state::Loss;

    fn report(condition: Option<Condition>, detail: Option<&str>) -> StateReport {
        StateReport {
            path: "/s".to_owned(),
            condition,
            detail: detail.map(str::to_owned),
            ..StateReport::default()
        }
    }

    #[test]
    fn sentences_join_text_remedy_and_quarantine() {
        let mut ready = report(Some(Condition::Ready), None);
        assert_eq!(ready.sentences(), None);
        ready.quarantine_seconds = Some(7);
        assert_eq!(
            ready.sentences().unwrap(),
            "The state was lost and rebuilt: new pods wait for 7 s more."
        );
        let lost = report(Some(Condition::Lost(Loss::default())), Some("why"));
        let text = lost.sentences().unwrap();
        assert!(text.starts_with("/s was lost: why. No cleanup is needed, "));
        assert!(text.contains("new pods wait 30 s"), "{text}");
        let newer = report(Some(Condition::Newer { format: 9 }), Some("state format 9"));
        assert_eq!(
            newer.sentences().unwrap(),
            "/s: state format 9. Install the newer version that wrote it."
        );
    }

    #[test]
    fn only_an_unhealthy_state_has_a_remedy() {
        for (condition, word, is_wrong) in [
            (Some(Condition::Ready), "ok", false),
            (Some(Condition::Fresh), "fresh", false),
            (Some(Condition::Reconcile), "doubtful", false),
            (Some(Condition::NewBoot), "doubtful", false),
            (Some(Condition::Lost(Loss::default())), "lost", true),
            (Some(Condition::Newer { format: 9 }), "newer-format", true),
            (None, "unreadable", true),
        ] {
            let report = report(condition, None);
            assert_eq!(report.remedy().is_some(), is_wrong, "{word}");
            let json = serde_json::to_value(&report).unwrap();
            assert_eq!(json["condition"], word);
        }
        let mut damaged = report(Some(Condition::Reconcile), None);
        damaged.is_key_unreadable = true;
        assert!(damaged.remedy().is_some());
    }
}
