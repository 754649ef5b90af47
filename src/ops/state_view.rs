//! The state as a command finds it, and the one wording of its health.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use serde::Serialize;

use super::finding::{Finding, FindingKind, Severity};
use super::node::{Node, Now, capture_snapshot};
use super::outcome::CommandError;
use crate::host::io_reason;
use crate::ipam::{Evidence, Ipam, Moment, Place, Routes};
use crate::plugin::note_moved_namespaces;
use crate::state::{Condition, FORMAT, Origin, QUARANTINE, State, StoreError};

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
    /// What it is worth, in a word.
    pub condition: &'static str,
    /// The reason, unless the state is healthy.
    pub detail: Option<String>,
    /// How long the quarantine after a rebuild still lasts.
    pub quarantine_seconds: Option<u64>,
    /// Whether the file is a state, or absent.
    #[serde(skip)]
    pub is_readable: bool,
    /// Why records of holders may be missing, without full stop; `None` where the state has all of them.
    #[serde(skip)]
    pub missing_records: Option<&'static str>,
    /// The health as `check` reports it; `None` where nothing is unusual.
    #[serde(skip)]
    pub finding: Option<Finding>,
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

    /// Scans the node, then reads the state. So the state has what changed during the scan.
    pub fn load_with_evidence(node: &Node) -> (StateView, Evidence) {
        let mut evidence = capture_snapshot(Vec::new(), &node.context).evidence;
        let state = StateView::load(node);
        note_moved_namespaces(state.ipam().holders(), &mut evidence, node.paths());
        node.note_other_network(state.ipam(), &mut evidence);
        (state, evidence)
    }

    /// Reads the state without a lock, as writers always replace the whole file.
    pub fn load(node: &Node) -> StateView {
        StateView::from_opened(node, node.context.view())
    }

    /// Judges what was read.
    pub fn from_opened(node: &Node, opened: Result<State, StoreError>) -> StateView {
        let path = node.paths().state().display().to_string();
        match opened {
            Ok(state) => StateView {
                report: StateReport::new(path, &state, node.now.boot),
                state,
                error: None,
            },
            Err(error) => StateView {
                report: StateReport::unreadable(path, io_reason(&error.source)),
                state: State::default(),
                error: Some(error),
            },
        }
    }

    /// The addresses; none where the state cannot be read.
    pub fn ipam(&self) -> &Ipam {
        self.state.ipam()
    }

    /// The addresses, with a mark at those that the host has now. The state has the marks of the last ADD.
    /// `is_routed` says whether the kernel uses a route to an address.
    pub fn present_ipam(
        &self,
        node: &Node,
        evidence: &Evidence,
        is_routed: impl Fn(IpAddr) -> bool,
    ) -> Ipam {
        let mut ipam = self.ipam().clone();
        if let (true, Routes::Read(routes)) = (node.paths().is_this_host(), &evidence.routes) {
            let configured = evidence.kernel.configured.iter();
            let own = configured
                .filter(|(_, place)| **place == Place::Host)
                .map(|(address, _)| address);
            let routed = routes.iter().filter(|to| is_routed(**to));
            ipam.mark_on_host(&own.chain(routed).copied().collect());
        }
        ipam
    }

    /// The addresses that the next ADD frees as those of another boot, if the state is from before the last start of the node.
    pub fn freed_after_reboot(&self, evidence: &Evidence, now: &Now) -> Option<BTreeSet<IpAddr>> {
        let is_from_another_boot = self.state.condition == Condition::NewBoot;
        let freed = || self.ipam().clone().new_boot(evidence, now.boot);
        is_from_another_boot.then(|| freed().into_iter().collect())
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
        if let Some(error) = self.error {
            return Err(error.into());
        }
        match (self.report.missing_records, self.report.finding) {
            (Some(_), Some(Finding { text, remedy, .. })) => {
                Err(CommandError(format!("{text}; {remedy}")))
            }
            _ => Ok(Some(self.state).filter(|state| !state.is_empty())),
        }
    }
}

impl StateReport {
    /// Judges a state that was read.
    pub fn new(path: String, state: &State, now: Moment) -> StateReport {
        use Severity::{Error, Note, Ok, Warning};
        let is_corrupt = state.corrupt.is_some() && state.restored.is_none();
        let is_fresh = match &state.condition {
            Condition::Lost(loss) => loss.may_be_fresh,
            Condition::Newer { .. } => false,
            Condition::Fresh => true,
            Condition::Ready | Condition::Reconcile | Condition::NewBoot => state.is_empty(),
        };
        let key_unreadable = match &state.document.origin {
            Origin::Unreadable(why) => Some(why),
            _ => None,
        };
        let is_fresh = is_fresh && key_unreadable.is_none();
        let (word, missing_records) = match &state.condition {
            _ if is_fresh => ("fresh", None),
            Condition::Ready | Condition::Fresh => ("ok", None),
            Condition::Reconcile | Condition::NewBoot => ("doubtful", None),
            Condition::Lost(_) if is_corrupt => ("lost", Some("the state is corrupt")),
            Condition::Lost(_) => ("lost", Some("the state was lost")),
            Condition::Newer { .. } => ("newer-format", Some("a newer version wrote the state")),
        };
        let kept = if is_corrupt {
            "; the corrupt file is kept"
        } else {
            ""
        };
        let rebuilt = format!(
            "no cleanup is needed, and running pods keep their addresses: the next ADD rebuilds it \
             from the node and any usable backup; new pods wait {} s{kept}",
            QUARANTINE.as_secs()
        );
        let say = |detail: &str| Some(detail.to_owned());
        let (severity, what, detail, remedy) = match &state.condition {
            Condition::Newer { format } => (
                Error,
                ":",
                Some(format!(
                    "state format {format}; this version supports up to {FORMAT}"
                )),
                "install the newer version that wrote it",
            ),
            _ if is_fresh => (
                Ok,
                " has no pools yet; the first ADD creates them",
                None,
                "",
            ),
            Condition::Lost(loss) if is_corrupt => {
                (Warning, " is corrupt:", say(&loss.why), rebuilt.as_str())
            }
            Condition::Lost(loss) => (Warning, " was lost:", say(&loss.why), rebuilt.as_str()),
            _ if key_unreadable.is_some() => (
                Note,
                ":",
                key_unreadable.map(|why| format!("the key of this plugin cannot be read: {why}")),
                "no cleanup is needed: the next ADD inspects the node and writes the key again",
            ),
            _ if state.restored.is_some() => (
                Note,
                " was lost or damaged:",
                state.restored.clone(),
                "no action needed: the backup has all of it, and the next ADD restores it at once",
            ),
            Condition::Reconcile => (
                Ok,
                ":",
                say(
                    "it may lack addresses in use; the next ADD looks for those that it does not \
                     know",
                ),
                "",
            ),
            Condition::NewBoot => (
                Ok,
                ":",
                say(
                    "it is from before the last start of the node; the next ADD frees what a complete \
                     scan of the node does not show",
                ),
                "",
            ),
            Condition::Ready | Condition::Fresh => (Ok, "", None, ""),
        };
        let because = detail.iter().map(|detail| format!(" {detail}"));
        let text = format!("{path}{what}{}", because.collect::<String>());
        let finding = Finding::new(severity, FindingKind::State, &text, &remedy).about(&path);
        let quarantine = state.ipam().quarantine;
        let quarantine = quarantine.map(|until| until.since(now).as_secs());
        StateReport {
            condition: word,
            detail,
            quarantine_seconds: quarantine.filter(|left| *left > 0),
            is_readable: !is_corrupt,
            missing_records,
            finding: (!what.is_empty()).then_some(finding),
            path,
        }
    }

    /// The report on a file that the system does not let be read.
    fn unreadable(path: String, why: String) -> StateReport {
        let text = format!("{path} cannot be read: {why}");
        let remedy = "no pod gets an address until it can be read: check the file and its folder \
                      with `ls -l`, and the disk with `dmesg`";
        StateReport {
            condition: "unreadable",
            missing_records: Some("the state cannot be read"),
            finding: Some(Finding::error(FindingKind::State, &text, &remedy).about(&path)),
            detail: Some(why),
            path,
            ..StateReport::default()
        }
    }

    /// The quarantine, while it lasts, without full stop.
    pub fn quarantine(&self) -> Option<String> {
        let seconds = self.quarantine_seconds?;
        Some(format!(
            "the state is being rebuilt: new pods wait for {seconds} s more"
        ))
    }

    /// All of it in sentences, if there is anything to say.
    pub fn sentences(&self) -> Option<String> {
        let health = self.finding.iter().flat_map(|f| [&f.text, &f.remedy]);
        let parts = health.cloned().chain(self.quarantine());
        let sentences = parts.filter(|part| !part.is_empty()).map(sentence);
        let sentences: Vec<String> = sentences.collect();
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }
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
    use crate::state::{Document, Loss};

    fn report(condition: Condition, change: impl Fn(&mut State)) -> StateReport {
        let document = Document::parse(
            br#"{"IPAM":{"AddressSpaces":{"local":{"Pools":{"10.1.0.0/16":{}}}}}}"#,
            None,
            Moment(9),
        )
        .unwrap();
        let mut state = State {
            condition,
            ..State::new(document)
        };
        change(&mut state);
        StateReport::new("/s".to_owned(), &state, Moment(9))
    }

    fn lost(may_be_fresh: bool) -> Condition {
        Condition::Lost(Loss {
            why: "why".to_owned(),
            may_be_fresh,
            ..Loss::default()
        })
    }

    #[test]
    fn every_health_has_its_word_its_severity_and_its_sentences() {
        use Severity::{Error, Note, Ok, Warning};
        let nothing = |_: &mut State| {};
        let corrupt: fn(&mut State) = |state| state.corrupt = Some("why".to_owned());
        let key: fn(&mut State) =
            |state| state.document.origin = Origin::Unreadable("why".to_owned());
        let restored: fn(&mut State) = |state| state.restored = Some("why".to_owned());
        let quarantine: fn(&mut State) =
            |state| state.ipam_mut().quarantine = Some(Moment(7_000_000_009));
        let newer = Condition::Newer { format: 9 };
        for (report, word, severity, sentences) in [
            (report(Condition::Ready, nothing), "ok", None, ""),
            (
                report(Condition::Ready, quarantine),
                "ok",
                None,
                "The state is being rebuilt: new pods wait for 7 s more.",
            ),
            (
                report(Condition::Fresh, nothing),
                "fresh",
                Some(Ok),
                "/s has no pools yet; the first ADD creates them.",
            ),
            (
                report(lost(true), nothing),
                "fresh",
                Some(Ok),
                "/s has no pools yet;",
            ),
            (
                report(lost(false), nothing),
                "lost",
                Some(Warning),
                "/s was lost: why. No cleanup is needed, ",
            ),
            (
                report(lost(false), corrupt),
                "lost",
                Some(Warning),
                "/s is corrupt: why. No cleanup is needed, ",
            ),
            (
                report(Condition::Reconcile, nothing),
                "doubtful",
                Some(Ok),
                "/s: it may lack addresses in use;",
            ),
            (
                report(Condition::NewBoot, nothing),
                "doubtful",
                Some(Ok),
                "/s: it is from before",
            ),
            (
                report(Condition::Reconcile, key),
                "doubtful",
                Some(Note),
                "/s: the key of this plugin cannot be read: why. No ",
            ),
            (
                report(Condition::Ready, restored),
                "ok",
                Some(Note),
                "/s was lost or damaged: why. No action needed: ",
            ),
            (
                report(newer, nothing),
                "newer-format",
                Some(Error),
                "/s: state format 9; this version supports up to 4. Install the newer version that wrote it.",
            ),
            (
                StateReport::unreadable("/s".into(), "why".into()),
                "unreadable",
                Some(Error),
                "/s cannot be read: why. No pod gets an address until",
            ),
        ] {
            let found = report.finding.as_ref();
            assert_eq!(
                (report.condition, found.map(|f| f.severity)),
                (word, severity),
                "{report:?}"
            );
            let is_missing = matches!(word, "lost" | "newer-format" | "unreadable");
            assert_eq!(report.missing_records.is_some(), is_missing, "{word}");
            let text = report.sentences().unwrap_or_default();
            assert!(text.starts_with(sentences), "{text}");
            let has_remedy = found.is_some_and(|f| !f.remedy.is_empty());
            assert_eq!(has_remedy, severity.is_some_and(|s| s != Ok), "{word}");
        }
    }
}
