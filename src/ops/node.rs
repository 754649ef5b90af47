//! The node that a command works on.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ipnet::IpNet;
use rustix::process::geteuid;

use super::outcome::CommandError;
use super::screen::Screen;
use crate::cni::{NAME, NAME_V6};
use crate::events::History;
use crate::evidence::Progress;
use crate::host::{Paths, Timestamp, boot_now, namespace_id, read_text, wall_now};
use crate::ipam::{
    Candidate, Evidence, Holder, Ipam, Kernel, Moment, NetNs, OtherName, Place, Routes, Taken,
};
use crate::plugin::{Context, Scan};
use crate::state::{self, Condition, LockError, Locked, State, WAIT};
use crate::stdio;

/// What every command needs to know.
#[derive(Debug)]
pub struct Node {
    /// The context, as CNI calls have it.
    pub context: Context,
    /// The layout for stdout.
    pub screen: Screen,
    /// Now.
    pub now: Now,
    /// How a command names this program: its name where the PATH leads to it, else its path.
    pub program: String,
}

/// The current time of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The boot clock.
    pub boot: Moment,
    /// The wall clock: seconds since 1970.
    pub wall: i64,
}

impl Now {
    /// Now.
    pub fn read() -> Now {
        Now {
            boot: boot_now(),
            wall: wall_now().seconds,
        }
    }

    /// The time that passed since a moment.
    pub fn since(&self, moment: Moment) -> Duration {
        self.boot.since(moment)
    }

    /// The wall-clock time of a moment, in UTC: `2026-11-20T21:09:39Z`.
    pub fn wall_time(&self, moment: Moment) -> String {
        let ago = i64::try_from(self.since(moment).as_secs()).unwrap_or(i64::MAX);
        Timestamp::from_seconds(self.wall.saturating_sub(ago)).format(0)
    }
}

impl Node {
    /// The node that this process runs on.
    pub fn here(paths: &Paths, started: Moment) -> Node {
        Node {
            context: Context::new(paths, started),
            screen: Screen::for_stdout(),
            now: Now::read(),
            program: program(paths.name()),
        }
    }

    /// The paths of the node.
    pub fn paths(&self) -> &Paths {
        &self.context.paths
    }

    /// Whether this process sees other mounts than the node's first process, as in a container; `false` where that is unknown.
    pub fn is_in_container(&self) -> bool {
        let processes = self.paths().processes();
        // Everybody may read this list. The kernel gives each mount of each namespace a number of its own, the first field of a line.
        let root = |process: &str| {
            let mounts = read_text(&processes.join(process).join("mountinfo")).ok()?;
            mounts.split(' ').next().map(str::to_owned)
        };
        root("1").is_some_and(|first| root("self") != Some(first))
    }

    /// Whether this process is in another network namespace than the node, as in a container: the namespace of process 1 is another one,
    /// and has an address of a pool's subnet. Without that address, the node may be a part of a machine, whose process 1 is elsewhere.
    pub fn is_in_other_network(&self, ipam: &Ipam, kernel: &Kernel) -> bool {
        let namespace = self.paths().process(1).join("ns/net");
        let Some(first) = namespace_id(self.paths(), &namespace.display().to_string())
            .ok()
            .flatten()
        else {
            return false;
        };
        let subnets: Vec<IpNet> = ipam
            .pools()
            .filter_map(|(_, key, pool)| pool.net(key))
            .collect();
        let addresses = kernel.addresses_by_namespace.get(&first);
        let is_of_node = || {
            let mut of_first = addresses.into_iter().flatten();
            of_first.any(|address| subnets.iter().any(|net| net.contains(address)))
        };
        kernel.host.is_some_and(|own| own != first) && (subnets.is_empty() || is_of_node())
    }

    /// Marks what a scan cannot show where this process is in another network namespace than the node.
    pub fn note_other_network(&self, ipam: &Ipam, evidence: &mut Evidence) {
        if !self.is_in_other_network(ipam, &evidence.kernel) {
            return;
        }
        let why = "this process is in another network namespace than the node";
        evidence.kernel.incomplete = Some(why.to_owned());
        evidence.routes = Routes::Unreadable(why.to_owned());
        // Its own addresses are not those of the host.
        for place in evidence.kernel.configured.values_mut() {
            if *place == Place::Host {
                *place = Place::Namespace("/proc/self/ns/net".to_owned());
            }
        }
    }

    /// How to type this program for a command that needs root.
    pub fn program_as_root(&self) -> String {
        let sudo = if geteuid().is_root() { "" } else { "sudo " };
        format!("{sudo}{}", self.program)
    }

    /// The last operations.
    ///
    /// # Errors
    /// This user may not read them.
    pub fn history(&self) -> Result<History, CommandError> {
        let path = self.paths().events();
        History::read(self.paths())
            .map_err(|e| CommandError::from_io(&path.display().to_string(), &e))
    }

    /// The free addresses that the network namespaces of their last holders still have, as an ADD finds them.
    pub fn taken(&self, ipam: &Ipam) -> Taken {
        let host = &self.context.node;
        let still_has = |last: &NetNs, address, ago| host.namespace_has(last, address, ago);
        Taken {
            withheld: ipam.withheld(still_has, self.now.boot),
            ..Taken::default()
        }
    }

    /// Acquires the lock on the state.
    ///
    /// # Errors
    /// The wait timed out, or the system refuses.
    pub fn lock(&self) -> Result<Locked<'_>, CommandError> {
        let locked = Locked::acquire(self.paths(), WAIT);
        locked.map_err(|error| match error {
            LockError::Busy { ref holder, .. } => {
                CommandError(format!("{error}: {holder} holds it"))
            }
            LockError::Removed { .. } => CommandError(error.to_string()),
            LockError::Io { path, source } => {
                CommandError::from_io(&format!("cannot lock {}", path.display()), &source)
            }
        })
    }

    /// Saves the state.
    ///
    /// # Errors
    /// The system refuses, or the lock was lost, so another call may have overwritten the state.
    pub fn save(&self, locked: &mut Locked<'_>, state: &mut State) -> Result<(), CommandError> {
        match self.context.commit(locked, state) {
            Err(error) if error.lock_was_lost() => Err(CommandError(format!(
                "{} was removed during this command, and another call may have overwritten the state; try again",
                error.path.display()
            ))),
            other => Ok(other?),
        }
    }
}

/// How to type this program's name.
fn program(name: &str) -> String {
    let Ok(own) = std::env::current_exe().and_then(std::fs::canonicalize) else {
        return name.to_owned();
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name));
    let leads_here = found
        .filter(|path| path.is_file())
        .take(1)
        .any(|path| std::fs::canonicalize(path).is_ok_and(|path| path == own));
    if leads_here {
        name.to_owned()
    } else {
        own.display().to_string()
    }
}

/// How long a snapshot may take without a progress line.
const DELAY: Duration = Duration::from_millis(300);
/// The time between two updates of the line.
const INTERVAL: Duration = Duration::from_millis(100);

/// Captures a snapshot of the node. Shows the progress on stderr if that is a terminal.
pub fn capture_snapshot(candidates: Vec<Candidate>, context: &Context) -> Scan {
    let mut other_name = read_other_name(context);
    let mut scan = scan_with_progress(candidates, context);
    // What the other name allocated or released during the scan is in one of the two.
    other_name.holders.extend(read_other_name(context).holders);
    scan.evidence.other_name = other_name;
    scan
}

/// Reads what the state of the other name of this program holds. That is nothing if the state cannot be read, or is from another boot.
fn read_other_name(context: &Context) -> OtherName {
    let name = if context.paths.name() == NAME {
        NAME_V6
    } else {
        NAME
    };
    let mut other = OtherName {
        name,
        ..OtherName::default()
    };
    let state = state::view(&context.paths.of_plugin(name), context.boot_id.as_deref());
    if let Ok(state) = state
        && state.condition != Condition::NewBoot
    {
        for record in state.ipam().records() {
            if let Some(held) = record.held() {
                let holder = Holder::clone(&held.holder);
                other.holders.insert(record.address(), holder);
            }
        }
    }
    other
}

fn scan_with_progress(candidates: Vec<Candidate>, context: &Context) -> Scan {
    let progress = Progress::of_command();
    if !std::io::stderr().is_terminal() {
        return Scan::with_progress(candidates, context, &progress);
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let printer = scope.spawn(|| print_progress(&progress, &done));
        let snapshot = Scan::with_progress(candidates, context, &progress);
        done.store(true, Ordering::Relaxed);
        printer.thread().unpark();
        snapshot
    })
}

/// Prints the line until the snapshot is done, then clears it.
fn print_progress(progress: &Progress, done: &AtomicBool) {
    let mut has_printed = false;
    thread::park_timeout(DELAY);
    while !done.load(Ordering::Relaxed) {
        let (namespaces, cached) = progress.counts();
        stdio::eprint(&format!(
            "\rscanning the node: {namespaces} network namespaces, {cached} cached results"
        ));
        has_printed = true;
        thread::park_timeout(INTERVAL);
    }
    if has_printed {
        stdio::eprint("\r\x1b[K");
    }
}
