//! One CNI call as one transaction: what was said -> is it right -> (ADD) are the pools fresh -> lock -> load -> decide on
//! values -> save -> unlock -> print.

mod add;
mod check;
#[doc(hidden)]
pub mod decide;
mod del;
mod gc;
mod look;
mod settings;
mod status;
mod wish;

pub(crate) use settings::check_settings;

use std::io::IsTerminal;
use std::panic;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use tracing::{debug, error, info, warn};

use crate::cni::{Call, CallError, CniVersion, Environment, QueryUrl, Verb, versions};
use crate::failure::Failure;
use crate::host::{Paths, boot_id, boot_now, read_up_to, wall_now, words};
use crate::ipam::Moment;
use crate::log::Milliseconds;
use crate::stdio;
use crate::{log, state};

/// Larger network configurations are refused (promise P9).
pub const STDIN_LIMIT: usize = 1 << 20;

/// The version that a new state names, in the original's form.
const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// What every step of a call needs to know.
#[derive(Debug)]
pub struct Context {
    /// Where things are.
    pub paths: Paths,
    /// When the process started.
    pub started: Moment,
    /// The boot that moments belong to.
    pub boot_id: Option<String>,
    /// AZURE_VNET_IPAM_QUERY_URL.
    pub query_url: Option<String>,
}

impl Context {
    /// Replaces the state under its lock.
    fn save(
        &self,
        locked: &mut state::Locked<'_>,
        document: &mut state::Document,
    ) -> Result<(), state::StoreError> {
        let time = wall_now().to_string();
        let stamp = state::Stamp {
            version: VERSION,
            time: &time,
            boot_id: self.boot_id.as_deref(),
        };
        locked.save(document, stamp)
    }
}

/// Carries out a call, whatever happens: the runtime gets a result, or an error object and a non-zero exit status.
pub fn main(environment: &Environment, paths: &Paths, started: Moment) -> ExitCode {
    if environment.verb() == Some(Verb::Version) {
        return match stdio::print(&versions(&version_asked())) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let call = Ending {
        command: environment.command.clone(),
        log: paths.log(),
        started,
    };
    let cni_version = Arc::new(Mutex::new(CniVersion::NEWEST));
    let (of_panic, spoken) = (call.clone(), Arc::clone(&cni_version));
    // A defect ends the process here and now, whichever thread meets it: nothing is unwound, and the kernel gives the locks back.
    panic::set_hook(Box::new(move |info| {
        let version = spoken.lock().map_or(CniVersion::NEWEST, |v| *v);
        of_panic.failed(&Failure::Panic(info.to_string()), version);
        std::process::exit(1)
    }));
    match run(environment, paths, started, &cni_version) {
        Ok(()) => {
            if environment.verb() != Some(Verb::Status) {
                let took = call.took();
                info!(target: "cni-ipam", "{} done in {took}.", call.command);
            }
            log::flush(&call.log);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let version = cni_version.lock().map_or(CniVersion::NEWEST, |v| *v);
            call.failed(&failure, version);
            ExitCode::FAILURE
        }
    }
}

/// What is needed to end a call.
#[derive(Clone)]
struct Ending {
    command: String,
    log: PathBuf,
    started: Moment,
}

impl Ending {
    fn took(&self) -> Milliseconds {
        Milliseconds(boot_now().since(self.started))
    }

    /// Tells the log and the caller.
    fn failed(&self, failure: &Failure, version: CniVersion) {
        log::start(None);
        let error = failure.to_cni();
        let (code, msg, details) = (error.code as u8, &error.msg, &error.details);
        let (command, took) = (&self.command, self.took());
        error!(target: "cni-ipam", "{command} failed in {took} with code {code}: {msg} ({details})");
        // If not even that can be printed, the exit status must do.
        let _ = stdio::print(&error.print(version.as_str()));
        log::flush(&self.log);
    }
}

fn run(
    environment: &Environment,
    paths: &Paths,
    started: Moment,
    cni_version: &Mutex<CniVersion>,
) -> Result<(), Failure> {
    environment.check_required()?;
    let stdin = read_stdin()?;
    if let Some(version) = Call::version_asked(&stdin).and_then(|text| CniVersion::of(&text))
        && let Ok(mut spoken) = cni_version.lock()
    {
        *spoken = version;
    }
    let (defaults, wrong) = match environment.verb() {
        Some(verb) if verb.draws() => settings::read(&paths.settings()),
        _ => Default::default(),
    };
    let call = Call::parse(environment, &stdin, &defaults)?;
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
    let query_url = std::env::var("AZURE_VNET_IPAM_QUERY_URL")
        .ok()
        .filter(|url| !url.is_empty());
    let context = Context {
        paths: paths.clone(),
        started,
        boot_id: boot_id(paths),
        query_url,
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

fn read_stdin() -> Result<Vec<u8>, CallError> {
    /// Most configurations are shorter.
    const USUAL_LENGTH: usize = 4096;
    let read = read_up_to(std::io::stdin(), USUAL_LENGTH, STDIN_LIMIT);
    let bytes = read.map_err(|e| CallError::Unreadable(words(&e)))?;
    if bytes.len() > STDIN_LIMIT {
        Err(CallError::TooLong(STDIN_LIMIT))
    } else {
        Ok(bytes)
    }
}

/// The version that the caller of VERSION speaks, to be echoed. Whatever is wrong with stdin, the answer is the same; nobody
/// is kept waiting at a terminal.
fn version_asked() -> String {
    let newest = || CniVersion::NEWEST.to_string();
    if std::io::stdin().is_terminal() {
        return newest();
    }
    let Ok(stdin) = read_stdin() else {
        return newest();
    };
    Call::version_asked(&stdin).unwrap_or_else(newest)
}

/// The URL from the environment, which goes before the configuration's.
fn query_url(context: &Context) -> Result<Option<QueryUrl>, CallError> {
    context
        .query_url
        .as_deref()
        .map(QueryUrl::parse)
        .transpose()
}
