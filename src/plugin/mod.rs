//! One CNI call as one transaction: what was said -> is it right -> (ADD) are the pools fresh -> lock -> load -> decide on
//! values -> save -> unlock -> print.

mod add;
#[doc(hidden)]
pub mod allocation;
mod check;
mod commit;
#[doc(hidden)]
pub mod decide;
#[doc(hidden)]
pub mod del;
#[doc(hidden)]
pub mod doubt;
#[doc(hidden)]
pub mod gc;
#[doc(hidden)]
pub mod inquiry;
pub(crate) mod look;
mod node;
pub(crate) mod settings;
mod status;
#[doc(hidden)]
pub mod undo;
#[doc(hidden)]
pub mod wish;

use std::io::{ErrorKind, IsTerminal};
use std::panic;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::{debug, error, info, warn};

use crate::cni::{
    Call, CallError, CniError, CniVersion, Environment, NAME, NAME_V6, Verb, versions,
};
use crate::events::{Event, OperationRecord};
use crate::failure::Failure;
use crate::host::{Paths, boot_id, boot_now, io_reason, read_stream, wall_now};
use crate::ipam::Moment;
use crate::log;
use crate::log::Milliseconds;
use crate::source::SourceOverrides;
use crate::stdio;

pub use node::Node;

/// Larger network configurations are refused (promise P9).
pub const STDIN_LIMIT: usize = 1 << 20;

/// The version that a new state names, in the original's form.
const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Runtimes write the configuration at once, and close the pipe.
const STDIN_PATIENCE: Duration = Duration::from_secs(30);

/// What every step of a call needs to know.
#[derive(Debug)]
pub struct Context {
    /// Where things are.
    pub paths: Paths,
    /// When the process started.
    pub started: Moment,
    /// The boot that moments belong to.
    pub boot_id: Option<String>,
    /// What the environment says of the source.
    pub instead: SourceOverrides,
    /// What is to be told of the call when it is over.
    pub trail: Rc<OperationRecord>,
    /// The node that the call works on.
    pub node: Rc<dyn Node>,
}

impl Context {
    /// What there is to know for everything that starts now.
    pub fn of(paths: &Paths, started: Moment) -> Context {
        Context {
            paths: paths.clone(),
            started,
            boot_id: boot_id(paths),
            instead: SourceOverrides::of_environment(),
            trail: Rc::default(),
            node: Rc::new(paths.clone()),
        }
    }

    /// The same on a node that is somewhere else than on this machine, for the tests' model of one.
    #[doc(hidden)]
    pub fn on(node: Rc<dyn Node>, started: Moment, boot_id: Option<String>) -> Context {
        Context {
            paths: Paths::new(Some(PathBuf::from("/nonexistent")), NAME),
            started,
            boot_id,
            instead: SourceOverrides::default(),
            trail: Rc::default(),
            node,
        }
    }
}

/// Carries out a call, whatever happens: the runtime gets a result, or an error object and a non-zero exit status.
pub fn main(environment: &Environment, paths: &Paths, started: Moment) -> ExitCode {
    if environment.verb() == Some(Verb::Version) {
        return match stdio::print(&versions(&version_asked(started))) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let call = CallReporter {
        environment: environment.clone(),
        paths: paths.clone(),
        started,
    };
    let cni_version = Arc::new(Mutex::new(CniVersion::NEWEST));
    let (of_panic, spoken) = (call.clone(), Arc::clone(&cni_version));
    // A defect ends the process here and now, whichever thread meets it: nothing is unwound, and the kernel gives the locks back.
    panic::set_hook(Box::new(move |info| {
        let version = spoken.lock().map_or(CniVersion::NEWEST, |v| *v);
        of_panic.told(&Failure::Panic(info.to_string()), version);
        log::flush(&of_panic.paths.log());
        std::process::exit(1)
    }));
    let trail = Rc::default();
    match run(environment, paths, started, &cni_version, &trail) {
        Ok(()) => {
            call.succeeded(&trail);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let version = cni_version.lock().map_or(CniVersion::NEWEST, |v| *v);
            call.failed(&failure, version, &trail);
            ExitCode::FAILURE
        }
    }
}

/// What is needed to end a call.
#[derive(Clone)]
struct CallReporter {
    environment: Environment,
    paths: Paths,
    started: Moment,
}

impl CallReporter {
    fn took(&self) -> Duration {
        boot_now().since(self.started)
    }

    fn succeeded(&self, trail: &OperationRecord) {
        if self.environment.verb() != Some(Verb::Status) {
            let (command, took) = (&self.environment.command, Milliseconds(self.took()));
            info!(target: "cni-ipam", "{command} done in {took}.");
            self.note(trail, Event::default());
        }
        log::flush(&self.paths.log());
    }

    /// Tells the log and the caller. Gives the error's code and words.
    fn told(&self, failure: &Failure, version: CniVersion) -> (u8, String) {
        log::start(None);
        let error = failure.to_cni();
        let error = CniError {
            msg: shortened(error.msg),
            details: shortened(self.paths.named(error.details)),
            ..error
        };
        let (code, msg, details) = (error.code as u8, &error.msg, &error.details);
        let (command, took) = (&self.environment.command, Milliseconds(self.took()));
        error!(target: "cni-ipam", "{command} failed in {took} with code {code}: {msg} ({details})");
        // If not even that can be printed, the exit status must do; so it must behind a result, or the beginning of one.
        if !stdio::has_printed() {
            let _ = stdio::print(&error.print(version.as_str()));
        }
        (code, error.msg)
    }

    /// Tells everybody that it failed.
    fn failed(&self, failure: &Failure, version: CniVersion, trail: &OperationRecord) {
        let (code, msg) = self.told(failure, version);
        // Asked for every few seconds, it would push all others out.
        if self.environment.verb() != Some(Verb::Status) {
            let code = code.into();
            self.note(
                trail,
                Event {
                    code,
                    msg,
                    ..Event::default()
                },
            );
        }
        log::flush(&self.paths.log());
    }

    /// Writes down that the call is over.
    fn note(&self, trail: &OperationRecord, outcome: Event) {
        let mut event = Event {
            time: wall_now().to_string(),
            // Of what is none, callers could make up any number.
            verb: self
                .environment
                .verb()
                .map_or("unknown", Verb::as_str)
                .to_owned(),
            container_id: self.environment.container_id.clone(),
            if_name: self.environment.if_name.clone(),
            pod: self.environment.pod(),
            microseconds: u64::try_from(self.took().as_micros()).unwrap_or(u64::MAX),
            ..outcome
        };
        trail.end(&mut event);
        event.note(&self.paths);
    }
}

/// A text with what callers and servers say in it, which may be as long as their limits allow, at a length for people.
fn shortened(text: String) -> String {
    const LONGEST: usize = 4096;
    match log::beginning(&text, LONGEST) {
        all if all.len() == text.len() => text,
        beginning => format!("{beginning}..."),
    }
}

fn run(
    environment: &Environment,
    paths: &Paths,
    started: Moment,
    cni_version: &Mutex<CniVersion>,
    trail: &Rc<OperationRecord>,
) -> Result<(), Failure> {
    environment.check_required()?;
    let stdin = read_stdin(started)?;
    if let Some(version) = Call::version_asked(&stdin).and_then(|text| CniVersion::of(&text))
        && let Ok(mut spoken) = cni_version.lock()
    {
        *spoken = version;
    }
    let (defaults, wrong) = match environment.verb() {
        Some(verb) if verb.draws() => settings::read(&paths.settings()),
        _ => Default::default(),
    };
    let mut call = Call::parse(environment, &stdin, &defaults)?;
    call.conf.ipam.ipv6 |= paths.name() == NAME_V6;
    trail.network(&call.attachment.network);
    log::start(call.conf.log_level.as_deref());
    // STATUS is asked for every few seconds, and uses the same file.
    if call.verb == Verb::Add {
        const MOST: usize = 8;
        let path = paths.settings();
        for wrong in wrong.iter().take(MOST) {
            warn!(target: "cni-ipam", "{}: {wrong}; this is left out.", path.display());
        }
        if wrong.len() > MOST {
            warn!(target: "cni-ipam", "{}: and {} more.", path.display(), wrong.len() - MOST);
        }
    }
    announce(&call);
    let context = Context {
        trail: Rc::clone(trail),
        ..Context::of(paths, started)
    };
    match call.verb {
        Verb::Add => add::add(&call, &context),
        Verb::Del => del::del(&call, &context),
        Verb::Check => check::check(&call, &context),
        Verb::Gc => gc::gc(&call, &context),
        Verb::Status => status::status(&call, &context),
        // Answered before anything is read.
        Verb::Version => Ok(()),
    }
}

fn announce(call: &Call) {
    let (verb, attachment, conf) = (call.verb.as_str(), &call.attachment, &call.conf);
    let (container, if_name, network) = (
        &attachment.container_id,
        &attachment.if_name,
        &attachment.network,
    );
    // Runtimes ask every few seconds; what is wrong is logged all the same.
    if call.verb == Verb::Status {
        debug!(target: "cni-ipam", "{verb} network {network}.");
        return;
    }
    if call.verb == Verb::Gc {
        info!(target: "cni-ipam", "{verb} network {network}.");
        return;
    }
    let (netns, pod) = (&call.netns, call.pod.as_deref().unwrap_or("-"));
    let subnet = conf.ipam.subnet.as_deref().unwrap_or("-");
    let asked: Vec<String> = call.requested.iter().map(ToString::to_string).collect();
    let address = match &conf.ipam.ip_address {
        Some(said) => said,
        None if asked.is_empty() => "-",
        None => &asked.join(","),
    };
    info!(
        target: "cni-ipam",
        "{verb} container {container} interface {if_name} network {network} pod {pod} netns {netns} subnet {subnet} address {address}."
    );
}

fn read_stdin(started: Moment) -> Result<Vec<u8>, CallError> {
    /// Most configurations are shorter.
    const USUAL_LENGTH: usize = 4096;
    let deadline = started.after(STDIN_PATIENCE);
    let read = read_stream(std::io::stdin(), USUAL_LENGTH, STDIN_LIMIT, deadline);
    let bytes = read.map_err(|e| {
        CallError::Unreadable(match e.kind() {
            ErrorKind::TimedOut => {
                format!("it did not end within {} s", STDIN_PATIENCE.as_secs())
            }
            _ => io_reason(&e),
        })
    })?;
    if bytes.len() > STDIN_LIMIT {
        Err(CallError::TooLong(STDIN_LIMIT))
    } else {
        Ok(bytes)
    }
}

/// The version that the caller of VERSION speaks, to be echoed. Whatever is wrong with stdin, the answer is the same; nobody
/// is kept waiting at a terminal.
fn version_asked(started: Moment) -> String {
    let newest = || CniVersion::NEWEST.to_string();
    if std::io::stdin().is_terminal() {
        return newest();
    }
    let Ok(stdin) = read_stdin(started) else {
        return newest();
    };
    Call::version_asked(&stdin).unwrap_or_else(newest)
}
