//! Runs one CNI call as one transaction: parse the request, validate it, lock and read the state, decide, save, unlock, print. If a
//! decision needs the source or a scan of the node, the state is unlocked while that runs.

#[doc(hidden)]
pub mod add;
mod context;
#[doc(hidden)]
pub mod decide;
#[doc(hidden)]
pub mod del;
#[doc(hidden)]
pub mod gc;
mod known;
mod node;
mod report;
mod status;
mod transaction;
mod trial;
mod wanted;

use std::io::{self, ErrorKind, IsTerminal};
use std::panic;
use std::time::Duration;

use rustix::stdio::stdin;
use tracing::{debug, info, warn};

use crate::cni::{
    Call, CallError, CniVersion, Environment, RawNetworkConfig, Verb, print_result, print_versions,
};
use crate::events::OperationRecord;
use crate::failure::Failure;
use crate::host::{Paths, io_reason, read_stream};
use crate::ipam::{Attachment, Grant, Moment};
use crate::{log, stdio};

use report::CallReporter;

pub use context::Context;
pub(crate) use context::read_settings;
pub use known::{Known, Scan};
pub(crate) use node::note_moved_namespaces;
pub use node::{Host, Node};
pub use report::Action;
pub(crate) use report::log_actions;
pub(crate) use trial::{Trial, check_disk};

/// Larger network configurations are refused (promise P9).
pub const STDIN_LIMIT: usize = 1 << 20;

/// The longest that reading stdin may take. Runtimes write the configuration at once and close the pipe.
const STDIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a call. Whatever happens, the runtime gets either a result and exit status 0, or an error object and another exit status.
pub fn main(environment: &Environment, paths: &Paths, started: Moment) -> u8 {
    if environment.verb() == Some(Verb::Version) {
        let printed = stdio::print(&print_versions(&requested_version(started)));
        return u8::from(printed.is_err());
    }
    call(environment, paths, started)
}

/// Runs a call other than VERSION.
fn call(environment: &Environment, paths: &Paths, started: Moment) -> u8 {
    let reporter = CallReporter::new(environment, paths, started);
    let panic_reporter = reporter.clone();
    // A panic in any thread ends the process at once. Nothing is unwound, and the kernel releases the locks.
    panic::set_hook(Box::new(move |info| {
        panic_reporter.report_panic(info.to_string());
        std::process::exit(1)
    }));
    let mut record = OperationRecord::default();
    match run(environment, paths, started, &reporter, &mut record) {
        Ok(()) => {
            reporter.report_success(record);
            0
        }
        Err(failure) => {
            reporter.report_failure(&failure, record);
            1
        }
    }
}

fn run(
    environment: &Environment,
    paths: &Paths,
    started: Moment,
    reporter: &CallReporter,
    record: &mut OperationRecord,
) -> Result<(), Failure> {
    environment.check_required()?;
    let raw_config = RawNetworkConfig::read(&read_stdin(started)?)?;
    let version = raw_config.requested_version();
    if let Some(version) = version.and_then(|text| CniVersion::parse(&text)) {
        reporter.set_version(version);
    }
    if raw_config.wants_syslog() {
        log::use_syslog(paths.syslog());
    }
    let (defaults, problems) = match environment.verb() {
        Some(verb) if verb.allocates() => read_settings(&paths.settings()),
        _ => Default::default(),
    };
    let call = Call::parse(environment, &raw_config, &defaults, paths.name())?;
    call.attachment
        .network
        .clone_into(&mut record.holder.attachment.network);
    log::start(call.conf.log_level);
    // STATUS reads the same file, but would log this every few seconds.
    if call.verb == Verb::Add {
        log_problems(&problems, paths);
        for why in &call.conf.ignored {
            warn!(target: "cni-ipam", "{why}; this is ignored.");
        }
    }
    log_call(&call);
    let context = Context::new(paths, started);
    let outcome = match call.verb {
        Verb::Add => add::add(&call, &context, record)
            .and_then(|grants| print_grants(&call, &grants, &context)),
        Verb::Del => del::del(&call, &context, record),
        Verb::Check => status::check(&call, &context),
        Verb::Gc => gc::gc(&call, &context, record),
        Verb::Status => status::status(&call, &context),
        // Answered by `main`, before anything is read.
        Verb::Version => Ok(()),
    };
    record.lock_microseconds = context.lock_wait();
    outcome
}

/// Prints the result of an ADD.
///
/// # Errors
/// stdout cannot be written. The addresses are released again then.
fn print_grants(call: &Call, grants: &[Grant], context: &Context) -> Result<(), Failure> {
    let result = print_result(grants, &call.conf.ipam, call.conf.version);
    stdio::print(&result).map_err(|error| Failure::Output {
        error,
        fate: add::take_back(&call.attachment, grants, context),
    })
}

/// Logs the invalid members of the file of defaults.
fn log_problems(problems: &[String], paths: &Paths) {
    const MOST: usize = 8;
    let path = paths.settings();
    for problem in problems.iter().take(MOST) {
        warn!(target: "cni-ipam", "{}: {problem}; this is ignored.", path.display());
    }
    if problems.len() > MOST {
        warn!(target: "cni-ipam", "{}: and {} more.", path.display(), problems.len() - MOST);
    }
}

/// Logs what is requested.
fn log_call(call: &Call) {
    let (verb, conf) = (call.verb.as_str(), &call.conf);
    let Attachment {
        container_id,
        if_name,
        network,
    } = &call.attachment;
    match call.verb {
        // Runtimes repeat STATUS every few seconds.
        Verb::Status => return debug!(target: "cni-ipam", "{verb} network {network}."),
        Verb::Gc => return info!(target: "cni-ipam", "{verb} network {network}."),
        _ => {}
    }
    let (netns, pod) = (&call.netns, call.pod.as_deref().unwrap_or("-"));
    let subnet = conf.ipam.subnet.as_deref().unwrap_or("-");
    let requested: Vec<String> = call.requested.iter().map(ToString::to_string).collect();
    let address = match &conf.ipam.ip_address {
        Some(named) => named,
        None if requested.is_empty() => "-",
        None => &requested.join(","),
    };
    info!(
        target: "cni-ipam",
        "{verb} container {container_id} interface {if_name} network {network} pod {pod} netns {netns} subnet {subnet} address {address}."
    );
}

fn read_stdin(started: Moment) -> Result<Vec<u8>, CallError> {
    /// Most configurations are shorter.
    const USUAL_LENGTH: usize = 2048;
    let deadline = started.after(STDIN_TIMEOUT);
    let read = read_stream(stdin(), USUAL_LENGTH, STDIN_LIMIT, deadline);
    let why = |e: io::Error| match e.kind() {
        ErrorKind::TimedOut => format!("it did not end within {} s", STDIN_TIMEOUT.as_secs()),
        _ => io_reason(&e),
    };
    let bytes = read.map_err(|e| CallError::Unreadable(why(e)))?;
    if bytes.len() > STDIN_LIMIT {
        Err(CallError::TooLong(STDIN_LIMIT))
    } else {
        Ok(bytes)
    }
}

/// Returns the version that VERSION echoes: the caller's, or the newest if stdin has none. A terminal is not read, because it would
/// wait for input.
fn requested_version(started: Moment) -> String {
    let stdin = if stdin().is_terminal() {
        None
    } else {
        read_stdin(started).ok()
    };
    let raw_config = stdin.and_then(|stdin| RawNetworkConfig::read(&stdin).ok());
    let version = raw_config.and_then(|raw_config| raw_config.requested_version());
    version.unwrap_or_else(|| CniVersion::NEWEST.to_string())
}
