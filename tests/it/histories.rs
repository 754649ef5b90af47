//! Named histories of one node. Each is run against the model's node in memory and against the real executable.
//!
//! A history is a list of steps: calls, changes of pods, files and the source, and conditions that must hold. After
//! every call, both drivers also check two rules (`run.rs`): no address is returned to two live pods, and no address
//! of a live pod is freed.
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

/// A container with one network interface. Its network namespace exists from its first ADD, or from the first step
/// that configures or caches an address for it, until it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pod {
    A,
    B,
    C,
    D,
    E,
}

/// The addresses in the order in which they are allocated. Without a [`Step::Source`], the source lists X, Y, Z and
/// W.
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

/// A file of the plugin. `File::path` and `File::in_memory` return where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum File {
    State,
    Backup,
    Lock,
    /// The lock folder with everything in it. It can only be removed.
    LockFolder,
}

/// How a file is lost or changed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    Removed,
    Emptied,
    Halved,
    Zeroed,
    /// The text `{"IPAM":null}`, which the original may write.
    Nulled,
    /// The result of an original that started from nothing: our key is missing, and every record is free.
    Forgotten,
    /// The result of an edit: every record is free, and our key is unchanged.
    Freed,
    /// The file has the boot ID of another boot.
    OtherBoot,
}

/// Why an ADD is refused.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Refusal {
    Quarantined,
    Exhausted,
    /// There are no pools, and the source returns none.
    NoPools,
    /// The lock file was removed during the call.
    LockLost,
    /// The backup cannot be read at the moment.
    NotNow,
    /// Any reason.
    Any,
}

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// An ADD that succeeds with this address. The address is returned, but not configured.
    Add(Pod, &'static str),
    Refused(Pod, Refusal),
    /// An ADD that asks for the address and is refused.
    RefusedNaming(Pod, &'static str, Refusal),
    /// An ADD scans the node. Its decision is the pod's next step `Add` or `Refused`.
    Looks(Pod),
    /// An ADD decides, and stops right before it replaces the state. The lock folder is removed. The ADD continues
    /// with the pod's next step `Add` or `Refused`.
    Stops(Pod),
    /// A DEL that succeeds. The configuration by the main plugin stays, because the teardown is slow or fails.
    Del(Pod),
    /// A DEL that fails.
    DelFails(Pod, Refusal),
    /// A DEL of another interface of the pod, which succeeds.
    DelOther(Pod),
    /// A DEL that names the address.
    DelNaming(Pod, &'static str),
    /// A GC by a runtime that knows these pods.
    Gc(&'static [Pod]),
    /// An operation that the file system refuses to the next call.
    Fails(Fault),

    /// The original allocates this address. It starts from an empty state when there is none.
    OriginalAdd(Pod, &'static str),
    OriginalDel(Pod),
    /// The original saves the state without a change.
    OriginalSave,
    /// The original's VERSION. It takes the lock, and writes only the lock's text.
    OriginalVersion,

    /// The main plugin and the runtime are done. The kernel and libcni's cache show the address that the ADD
    /// returned.
    Configured(Pod),
    /// The kernel shows an address in the pod's network namespace.
    Shown(Pod, &'static str),
    /// libcni's cache has an entry of the pod. The pod's namespace exists.
    Cached(Pod, &'static str),
    /// libcni's cache has an entry of libcni before 1.2, which does not name the namespace. The pod's namespace
    /// exists.
    CachedWithoutNamespace(Pod, &'static str),
    /// libcni's cache has an empty file of the pod.
    CachedEmpty(Pod),
    /// azure-vnet's state has an endpoint of the pod. The pod's namespace exists.
    Endpoint(Pod, &'static str),
    NoEndpoint(Pod),
    /// The pod vanishes, or its teardown ends: namespace, cache entry and endpoint are gone.
    Gone(Pod),

    /// Time passes, in seconds.
    Wait(u64),
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
    /// Loses a file in each way of [`History::damages`]. Removes it if there are none.
    Lose(File),
    /// Copies these files under a name. A file that is missing is also missing in the copy.
    Keep(u8, &'static [File]),
    PutBack(u8, &'static [File]),

    /// The address is held: by this pod, by any holder, by an unknown holder, or not at all.
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
    /// The history runs once with each of these in place of [`Step::Lose`].
    damages: &'static [Damage],
    scan: Scan,
}

/// Whether scans of the kernel are complete in a history. The executable's scan is complete in private namespaces,
/// and incomplete elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scan {
    Any,
    Complete,
    Incomplete,
}

impl History {
    /// Whether a step makes the kernel show an address.
    fn shows_addresses(&self) -> bool {
        let shows = |step: &Step| matches!(step, Step::Shown(..) | Step::Configured(_));
        self.steps.iter().any(shows)
    }

    /// Whether a step happens in the middle of a call. Only the node in memory supports that.
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

/// All rows without faults. The faults need strace, which finds the files of descriptors in /proc, and /proc is
/// hidden in the namespaces.
#[test]
#[ignore = "needs root, unshare and iproute2"]
fn histories_hold_for_the_executable_in_namespaces() {
    if in_private_namespaces("histories::histories_hold_for_the_executable_in_namespaces") {
        let pods = Pods::in_namespaces(5..9);
        run_all(&mut process::Processes::in_namespaces(pods));
    }
}
