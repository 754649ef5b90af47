//! The end of a call: what the caller, the log and the list of operations are told.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing::{error, info};

use crate::cni::{CniError, CniVersion, Environment, Verb};
use crate::events::OperationRecord;
use crate::failure::Failure;
use crate::host::{Paths, boot_now, wall_now};
use crate::ipam::Moment;
use crate::log::{self, Milliseconds};
use crate::stdio;

/// Reports how a call ended, on stdout and in the files. A panic hook owns a copy.
#[derive(Clone)]
pub(super) struct CallReporter {
    environment: Environment,
    paths: Paths,
    started: Moment,
    /// The caller's version, once it is known. Copies share it, so that a panic is reported in it.
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

    /// Reports in this version from now on. Before it is known, the newest is used.
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

    /// Reports a panic, for the hook, which ends the process next.
    pub(super) fn report_panic(&self, what: String) {
        self.print_error(&Failure::Panic(what));
        log::flush(&self.paths.log());
    }

    /// Prints the error object and logs it. Returns its code and message.
    fn print_error(&self, failure: &Failure) -> (u8, String) {
        log::start(None);
        let error = failure.to_cni(self.paths.name());
        let error = CniError {
            msg: shorten(error.msg),
            details: shorten(error.details),
            ..error
        };
        let (code, msg, details) = (error.code as u8, &error.msg, &error.details);
        let (command, took) = (&self.environment.command, Milliseconds(self.took()));
        error!(target: "cni-ipam", "{command} failed in {took} with code {code}: {msg} ({details})");
        // stdout carries one document (promise P3). Behind a result, or when this fails, the exit status must do.
        if !stdio::has_printed() {
            let _ = stdio::print(&error.print(self.version().as_str()));
        }
        (code, error.msg)
    }

    /// Adds the call to the list of operations. The runtime repeats STATUS every few seconds, which would push out all others.
    fn append_record(&self, record: OperationRecord) {
        let verb = self.environment.verb();
        if verb == Some(Verb::Status) {
            return;
        }
        let record = OperationRecord {
            time: wall_now().to_string(),
            // Callers could make up any number of unknown verbs, each a row of its own in the metrics.
            verb: verb.map_or("unknown", Verb::as_str).to_owned(),
            container_id: self.environment.container_id.clone(),
            if_name: self.environment.if_name.clone(),
            pod: self.environment.pod(),
            microseconds: u64::try_from(self.took().as_micros()).unwrap_or(u64::MAX),
            ..record
        };
        record.append(&self.paths);
    }
}

/// Shortens a text that quotes callers and servers, who may send as much as their limits allow.
fn shorten(text: String) -> String {
    const LONGEST: usize = 4096;
    match log::truncate_bytes(&text, LONGEST) {
        all if all.len() == text.len() => text,
        beginning => format!("{beginning}..."),
    }
}
