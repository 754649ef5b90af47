//! Reports what a call did: to the caller, the log and the list of operations.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing::{error, info, warn};

use crate::cni::{CniVersion, Environment, Verb};
use crate::events::{FreedAddress, OperationRecord};
use crate::failure::Failure;
use crate::host::{Paths, boot_now, wall_now};
use crate::ipam::{Attachment, Candidate, Holder, Judged, Merged, Moment, Verdict};
use crate::log::{self, Milliseconds};
use crate::state::{Condition, Loss};
use crate::stdio;

/// Reports how a call ended, on stdout and in the files. A panic hook owns a copy.
#[derive(Clone)]
pub(super) struct CallReporter {
    environment: Environment,
    paths: Paths,
    started: Moment,
    /// The caller's version, once it is known. Copies share it, so that a panic is reported in the same version.
    version: Arc<OnceLock<CniVersion>>,
}

impl CallReporter {
    pub(super) fn new(environment: &Environment, paths: &Paths, started: Moment) -> CallReporter {
        CallReporter {
            environment: environment.clone(),
            paths: paths.clone(),
            started,
            version: Arc::default(),
        }
    }

    /// Sets the CNI version of the error object. Until it is set, the newest is used.
    pub(super) fn set_version(&self, version: CniVersion) {
        // Fails only when it is set already.
        let _ = self.version.set(version);
    }

    fn version(&self) -> CniVersion {
        self.version.get().copied().unwrap_or(CniVersion::NEWEST)
    }

    fn took(&self) -> Duration {
        boot_now().since(self.started)
    }

    /// Reports success. The result is printed already.
    pub(super) fn report_success(&self, record: OperationRecord) {
        if self.environment.verb() != Some(Verb::Status) {
            let (command, took) = (&self.environment.command, Milliseconds(self.took()));
            info!(target: "cni-ipam", "{command} done in {took}.");
        }
        self.append_record(record);
        log::flush(&self.paths.log());
    }

    /// Reports a failure: prints the error object, and writes the log and the list of operations.
    pub(super) fn report_failure(&self, failure: &Failure, record: OperationRecord) {
        let (code, msg) = self.print_error(failure);
        let code = code.into();
        self.append_record(OperationRecord {
            code,
            msg,
            ..record
        });
        log::flush(&self.paths.log());
    }

    /// Reports a panic. The hook that calls this ends the process next.
    pub(super) fn report_panic(&self, what: String) {
        self.print_error(&Failure::Panic(what));
        log::flush(&self.paths.log());
    }

    /// Prints the error object and logs it. Returns its code and message.
    fn print_error(&self, failure: &Failure) -> (u8, String) {
        log::start(None);
        let error = failure.to_cni(self.paths.name());
        let (code, msg, details) = (error.code as u8, &error.msg, &error.details);
        let (command, took) = (&self.environment.command, Milliseconds(self.took()));
        error!(target: "cni-ipam", "{command} failed in {took} with code {code}: {msg} ({details})");
        // stdout carries one document (promise P3). After a result, or if this fails, only the exit status reports the failure.
        if !stdio::has_printed() {
            let _ = stdio::print(&error.print(self.version().as_str()));
        }
        (code, error.msg)
    }

    /// Adds the call to the list of operations. STATUS is left out: the runtime repeats it every few seconds, which would push out all
    /// others.
    fn append_record(&self, record: OperationRecord) {
        let verb = self.environment.verb();
        if verb == Some(Verb::Status) {
            return;
        }
        let attachment = Attachment {
            container_id: self.environment.container_id.clone(),
            if_name: (&self.environment.if_name).into(),
            ..record.holder.attachment
        };
        let record = OperationRecord {
            time: wall_now().to_string(),
            // Each verb is a row in the metrics. A caller could make up any number of unknown ones.
            verb: verb.map_or("unknown", Verb::as_str).to_owned(),
            holder: Holder {
                attachment,
                pod: self.environment.pod(),
                ..record.holder
            },
            microseconds: u64::try_from(self.took().as_micros()).unwrap_or(u64::MAX),
            ..record
        };
        record.append(&self.paths);
    }
}

/// A change of the state besides the grants, or a skipped address.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// An answer of the source was merged.
    Merged(Merged),
    /// An answer of the source was rejected, for this reason.
    Rejected(String),
    /// An answer of the source was dropped, because a newer one was in the state.
    Overtaken,
    /// The state was reconciled with the node, which uses these addresses. The condition is that of before. `Ready` means that a
    /// quarantine has ended.
    Reconciled(Condition, Vec<(IpAddr, Box<Holder>)>),
    /// These addresses of an earlier boot were freed.
    FreedAfterReboot(Vec<IpAddr>),
    /// The records of these holders were judged.
    Judged(Vec<Judged>),
    /// A free address was skipped, because the network namespace of its last holder still has it.
    Withheld(IpAddr),
    /// A free address was skipped, because the host has it or a route to it.
    SkippedOnHost {
        /// The address that would have been next.
        address: IpAddr,
        /// How many such addresses there are.
        count: usize,
    },
}

impl Action {
    /// Returns whether an answer of the source was rejected.
    pub fn is_rejection(&self) -> bool {
        matches!(self, Action::Rejected(_))
    }

    /// Returns the addresses that were reclaimed from dead holders.
    pub fn freed(&self) -> Vec<FreedAddress> {
        let Action::Judged(judged) = self else {
            return Vec::new();
        };
        let dead = judged.iter();
        let dead = dead.filter(|judged| judged.judgement.verdict == Verdict::Dead);
        dead.map(|judged| freed_address(&judged.candidate))
            .collect()
    }
}

/// Describes a reclaimed address, for the list of operations.
pub(super) fn freed_address(candidate: &Candidate) -> FreedAddress {
    FreedAddress::new(candidate.key, &candidate.held.holder)
}

/// Writes the actions to the log.
pub(crate) fn log_actions(actions: &[Action]) {
    for action in actions {
        match action {
            Action::Merged(merged) if !merged.changed => {}
            Action::Merged(merged) => {
                let Merged {
                    added,
                    removed,
                    unlisted,
                    ..
                } = merged;
                info!(target: "ipam", "merged: {added} addresses new, {removed} gone, {unlisted} in use but not listed.");
            }
            Action::Rejected(why) => {
                warn!(target: "ipam", "Source refresh failed, err:{why}; the stored pools stay for now.");
            }
            Action::Overtaken => {
                info!(target: "ipam", "the state already has a newer answer of the source.");
            }
            Action::Reconciled(condition, found) => log_reconciled(condition, found),
            Action::FreedAfterReboot(freed) => {
                info!(target: "ipam", "the node was restarted: freed {} addresses of the earlier boot.", freed.len());
            }
            Action::Judged(judged) => log_verdicts(judged),
            Action::Withheld(address) => {
                warn!(target: "ipam", "{address} is free, but the sandbox of its last pod still has it; it is withheld.");
            }
            Action::SkippedOnHost { address, count } => {
                warn!(target: "ipam", "{address} is free, but the host has it or a route to it; {count} such addresses are skipped.");
            }
        }
    }
}

fn log_reconciled(condition: &Condition, found: &[(IpAddr, Box<Holder>)]) {
    match condition {
        Condition::Lost(Loss { why, .. }) => {
            warn!(target: "ipam", "the state was lost ({why}) and is rebuilt.");
        }
        Condition::Reconcile => info!(target: "ipam", "the state is compared with the node."),
        Condition::Ready => info!(target: "ipam", "the quarantine is over."),
        Condition::NewBoot | Condition::Fresh | Condition::Newer { .. } => {}
    }
    for (address, holder) in found {
        let holder = match holder.container_id() {
            "" => "an unknown holder",
            id => id,
        };
        info!(target: "ipam", "{address} is in use on this node and is held for {holder}.");
    }
}

fn count(judged: &[Judged], verdict: Verdict) -> usize {
    let matching = judged.iter().filter(|j| j.judgement.verdict == verdict);
    matching.count()
}

fn log_verdicts(judged: &[Judged]) {
    info!(
        target: "ipam",
        "judged {} holders: {} dead, {} suspect, {} undecided, {} alive.",
        judged.len(),
        count(judged, Verdict::Dead),
        count(judged, Verdict::Suspect),
        count(judged, Verdict::Undecided),
        count(judged, Verdict::Alive)
    );
    for Judged {
        candidate,
        judgement,
    } in judged
    {
        let reasons: Vec<String> = judgement.reasons.iter().map(ToString::to_string).collect();
        let (address, held, reasons) = (candidate.key, &candidate.held, reasons.join("; "));
        let container = held.holder.container_text();
        let pod = held.holder.pod.as_deref().unwrap_or("-");
        match judgement.verdict {
            Verdict::Dead => {
                warn!(target: "ipam", "{address} is reclaimed from container {container}, pod {pod}: {reasons}.");
            }
            Verdict::Suspect | Verdict::Undecided => {
                info!(target: "ipam", "{address} of container {container}, pod {pod}, stays held: {reasons}.");
            }
            Verdict::Alive => {}
        }
    }
}
