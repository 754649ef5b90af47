//! Named histories of one node, each run against the model's node in memory and against the real executable.
//!
//! A history is a list of steps: calls, what happens to pods, files and the source, and what must be true. Both drivers also check
//! after every call that no address is told to two live pods and that no address of a live pod is freed (`run.rs`).
//!
//! `AZURE_VNET_IPAM_HISTORY` selects the rows whose names contain it.

mod memory;
mod process;
mod run;
mod table;

use crate::model::{Answer, Fault};
use crate::namespaces::Pods;
use crate::privileged::in_private_namespaces;
pub use run::held;
use run::run_all;

/// A container with one network interface. Its network namespace exists from its first ADD, or the first thing that is configured
/// or cached for it, until it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pod {
    A,
    B,
    C,
    D,
    E,
}

/// The addresses in the order in which they are granted. Without a [`Step::Source`] the source lists X, Y, Z and W.
const X: &str = "10.224.0.5";
const Y: &str = "10.224.0.6";
const Z: &str = "10.224.0.7";
const W: &str = "10.224.0.8";
/// An address in another subnet.
const Q: &str = "10.225.0.5";
/// The node's own primary address, which is not for pods.
const PRIMARY: &str = "10.224.0.4";
/// An address in the subnet that the source never lists.
const UNLISTED: &str = "10.224.0.200";

/// A file of the plugin. `File::path` and `File::in_memory` say where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum File {
    State,
    Backup,
    Lock,
    /// The folder of the lock with everything in it. It can only be removed.
    LockFolder,
}

/// How a file is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    Removed,
    Emptied,
    Halved,
    Zeroed,
    /// The original's `{"IPAM":null}`.
    Nulled,
    /// As by an original that started from nothing: our key is missing, and every record is free.
    Forgotten,
    /// As by an editor: every record is free, and our key is as it was.
    Freed,
    /// The boot ID in it is another one.
    OtherBoot,
}

/// Why an ADD is refused.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Refusal {
    Quarantined,
    Exhausted,
    /// There are no pools, and the source does not help.
    NoPools,
    /// The lock file was removed during the call.
    LockLost,
    /// The backup cannot be read now.
    NotNow,
    /// For any reason.
    Any,
}

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// An ADD that succeeds with this address. The address is told, and not configured.
    Add(Pod, &'static str),
    Refused(Pod, Refusal),
    /// An ADD that asks for the address, and is refused.
    RefusedNaming(Pod, &'static str, Refusal),
    /// An ADD looks at the node. Its decision is the pod's next step `Add` or `Refused`.
    Looks(Pod),
    /// An ADD decides, and stops right before it replaces the state. The lock folder is removed. The ADD goes on with the pod's next step
    /// `Add` or `Refused`.
    Stops(Pod),
    /// A DEL that succeeds. What the main plugin configured stays: the teardown is slow, or fails.
    Del(Pod),
    /// A DEL that fails.
    DelFails(Pod, Refusal),
    /// A DEL of another interface of the pod, which succeeds.
    DelOther(Pod),
    /// A DEL that names the address.
    DelNaming(Pod, &'static str),
    /// A GC by a runtime that knows these pods.
    Gc(&'static [Pod]),
    /// What the file system refuses to the next call.
    Fails(Fault),

    /// The original grants this address. It starts from an empty state when there is none.
    OriginalAdd(Pod, &'static str),
    OriginalDel(Pod),
    /// The original saves the state without a change.
    OriginalSave,
    /// The original's VERSION: it takes the lock and writes nothing but the lock's text.
    OriginalVersion,

    /// The main plugin and the runtime are done: the kernel and libcni's cache show the address that the pod was told.
    Configured(Pod),
    /// The kernel shows an address in the pod's network namespace.
    Shown(Pod, &'static str),
    /// libcni's cache has an entry of the pod, whose namespace exists.
    Cached(Pod, &'static str),
    /// The same with an entry of libcni before 1.2, which does not name the namespace.
    CachedWithoutNamespace(Pod, &'static str),
    /// libcni's cache has an empty file of the pod.
    CachedEmpty(Pod),
    /// azure-vnet's state has an endpoint of the pod, whose namespace exists.
    Endpoint(Pod, &'static str),
    NoEndpoint(Pod),
    /// The pod vanishes, or its teardown ends: namespace, cache entry and endpoint are gone.
    Gone(Pod),

    /// Time passes, in seconds.
    Pass(u64),
    /// The pods are gone, and the boot ID is another one. The files stay.
    Reboot,
    BootIdReadable(bool),
    /// The source lists these addresses.
    Source(&'static [&'static str]),
    /// The subnets in which the source lists them.
    Subnets(&'static [&'static str]),
    /// How the source answers.
    Answers(Answer),

    Remove(&'static [File]),
    /// A file is lost in each way of [`History::damages`]; removed if there are none.
    Lose(File),
    /// Copies these files under a name. A missing file is missing in the copy, too.
    Keep(u8, &'static [File]),
    PutBack(u8, &'static [File]),

    /// The address is held by this pod; by anybody, known or not; by nobody known; or free.
    HeldBy(&'static str, Pod),
    Held(&'static str),
    HeldByNobodyKnown(&'static str),
    Free(&'static str),
    /// No temporary file is left.
    NoLeftovers,

    Repeat(usize, Vec<Step>),
}

/// A row of the table.
#[derive(Debug)]
struct History {
    name: &'static str,
    steps: Vec<Step>,
    /// The history is run once with each of these in the place of [`Step::Lose`].
    damages: &'static [Damage],
    look: Look,
}

/// What a look at the kernel is in a history. The executable's look is complete in private namespaces, and incomplete elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Look {
    Any,
    Complete,
    Incomplete,
}

impl History {
    /// Whether the kernel shows an address.
    fn shows_addresses(&self) -> bool {
        let shows = |step: &Step| matches!(step, Step::Shown(..) | Step::Configured(_));
        self.steps.iter().any(shows)
    }

    /// Whether something happens in the middle of a call, which only the node in memory can do.
    fn is_interleaved(&self) -> bool {
        let is_inside = |step: &Step| {
            matches!(
                step,
                Step::Looks(_) | Step::Stops(_) | Step::Fails(Fault::StateIsRemovedAtLook)
            )
        };
        self.steps.iter().any(is_inside)
    }

    fn has_faults(&self) -> bool {
        let fails = |step: &Step| matches!(step, Step::Fails(_));
        self.steps.iter().any(fails)
    }
}

#[test]
fn histories_hold_in_memory() {
    run_all(&mut memory::Memory::default());
}

/// The rows in which the kernel shows no address and the file system refuses nothing.
#[test]
fn histories_hold_for_the_executable() {
    run_all(&mut process::Processes::in_folder(false));
}

/// The rows in which the file system refuses something.
#[test]
#[ignore = "needs util-linux and strace"]
fn histories_with_faults_hold_for_the_executable() {
    run_all(&mut process::Processes::in_folder(true));
}

/// All rows without such faults: strace follows descriptors to their files in /proc, which is hidden in the namespaces.
#[test]
#[ignore = "needs root, unshare and iproute2"]
fn histories_hold_for_the_executable_in_namespaces() {
    if in_private_namespaces("histories::histories_hold_for_the_executable_in_namespaces") {
        let pods = Pods::in_namespaces(5..9);
        run_all(&mut process::Processes::in_namespaces(pods));
    }
}
