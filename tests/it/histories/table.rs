//! The table of histories.

use super::Damage::*;
use super::File::*;
use super::Pod::*;
use super::Refusal::*;
use super::Scan::{Complete, Incomplete};
use super::Step::*;
use super::{Damage, History, PRIMARY, Q, Scan, Step, UNLISTED, W, X, Y, Z};
use crate::model::{Answer, Fault};

const HOUR: u64 = 3601;

const RESIZED: &[&str] = &["10.224.0.0/17"];
const TWICE: &[&str] = &["10.224.0.0/16", "10.224.0.0/17"];
/// Every way to lose the state. The backup can be lost in the same ways.
const STATE_LOSSES: &[Damage] = &[Removed, Emptied, Halved, Zeroed, Nulled, Forgotten];
const BACKUP_LOSSES: &[Damage] = &[Removed, Emptied, Halved, Zeroed, OtherBoot];

fn row<const N: usize>(name: &'static str, steps: [Step; N]) -> History {
    History {
        name,
        steps: steps.into(),
        damages: &[],
        scan: Scan::Any,
    }
}

impl History {
    fn each(self, damages: &'static [Damage]) -> History {
        History { damages, ..self }
    }

    fn with_scan(self, scan: Scan) -> History {
        History { scan, ..self }
    }
}

fn renew(times: usize, pod: super::Pod, address: &'static str) -> Step {
    Repeat(times, vec![Add(pod, address)])
}

#[rustfmt::skip]
pub(super) fn histories() -> Vec<History> {
    vec![
        // A proved backup restores a lost state at once, with holders, releases and pools.
        row("a lost state is rebuilt at once", [
            Add(A, X), Add(B, Y), Add(C, Z), Add(D, W), Del(D), Lose(State),
            Add(E, W), HeldBy(X, A), HeldBy(Y, B), HeldBy(Z, C),
            // Lose the state again: the restored state has a backup, too.
            Remove(&[State]), Del(B), Add(A, X), Free(Y), HeldBy(X, A), HeldBy(Z, C),
        ]).each(&[Removed, Emptied, Halved, Zeroed]),
        row("a lost state is rebuilt at once while the source is down", [
            Add(A, X), Answers(Answer::None), Lose(State), Add(B, Y), HeldBy(X, A),
        ]).each(&[Removed, Emptied, Halved, Zeroed]),
        row("a DEL without a state releases", [
            Add(A, X), Add(B, Y), Lose(State), Del(A), Answers(Answer::None), Del(B), Del(D), Answers(Answer::Good),
            Add(C, Z), Free(X), Free(Y),
        ]).each(&[Removed, Emptied, Halved]),
        row("a DEL of an unknown attachment restores a lost state", [
            Add(A, X), Lose(State), Del(D), HeldBy(X, A),
        ]).each(&[Removed, Emptied, Halved]),
        row("a backup that cannot be read once decides nothing", [
            Add(A, X), Add(B, Y), Lose(State), Fails(Fault::BackupNotReadable), Refused(D, NotNow), Fails(Fault::BackupNotReadable),
            DelFails(A, NotNow), Add(D, Z), HeldBy(X, A), HeldBy(Y, B),
        ]).each(&[Removed, Emptied, Halved]),
        row("a release in the backup counts while the teardown lasts", [
            Add(A, X), Configured(A), Del(A), Remove(&[State]), Add(B, Y), Free(X),
        ]),
        row("a release in a backup that nothing proves does not count", [
            Add(A, X), Configured(A), Del(A), Remove(&[State, Lock]), Refused(B, Quarantined), Held(X),
        ]),
        row("a released address is withheld while its last namespace has it", [
            Source(&[X, Y]), Add(A, X), Configured(A), Del(A), Add(B, Y), Refused(C, Exhausted), Add(A, X), Del(A), Refused(C, Exhausted),
            Gone(A), Add(C, X),
        ]),
        row("another namespace than the releaser's counts at once", [
            Add(A, X), Del(A), Gone(A), Shown(E, X), Remove(&[Lock]), Add(B, Y), Held(X),
        ]),

        row("a DEL that saves only the state fails each time", [
            Add(A, X), Fails(Fault::OnlyStateIsWritten), DelFails(A, Any), Fails(Fault::OnlyStateIsWritten), DelFails(A, Any), Del(A),
        ]),
        row("a DEL that saved only the state is not undone by a loss", [
            Add(A, X), Add(B, Y), Fails(Fault::OnlyStateIsWritten), DelFails(A, Any), Del(A), Remove(&[State]), Add(C, Z),
            Free(X), HeldBy(Y, B),
        ]),

        // Old copies.
        row("a late DEL of a former holder that an old state names", [
            Source(&[X]), Add(A, X), Keep(1, &[State]), Del(A), Wait(31), Add(B, X), PutBack(1, &[State]), Del(A), HeldBy(X, B),
        ]),
        row("a late DEL of a former holder that an old state names beside a newer backup", [
            Source(&[X]), Add(A, X), Keep(1, &[State]), Del(A), Wait(31), Add(B, X), PutBack(1, &[State]), Remove(&[LockFolder]),
            Del(A), HeldBy(X, B),
        ]),
        row("a late DEL of a former holder that an old state names beside a backup that nothing proves", [
            Source(&[X]), Add(A, X), Keep(1, &[State]), Del(A), Wait(31), Add(B, X), Fails(Fault::NoSpaceForBackup), Add(B, X),
            PutBack(1, &[State]), Del(A), Refused(D, Quarantined), Held(X),
        ]),
        row("the original goes on from an old copy of the state", [
            Add(A, X), Keep(1, &[State]), Add(B, Y), PutBack(1, &[State]), OriginalAdd(C, Z), Refused(D, Quarantined),
            Held(X), Held(Y), Held(Z),
        ]),
        row("what the original released is not held again after a loss", [
            Add(A, X), Add(B, Y), OriginalDel(A), Keep(1, &[State]), Fails(Fault::NoSpaceForBackup), Add(B, Y), PutBack(1, &[State]),
            Refused(D, Quarantined), Free(X), Held(Y),
        ]),
        row("an old state is brought up to date", [
            Add(A, X), Keep(1, &[State]), Add(B, Y), Keep(2, &[State]), Add(C, Z), Del(C),
            PutBack(1, &[State]), Add(D, W), HeldBy(X, A), HeldBy(Y, B), Free(Z),
            PutBack(2, &[State]), Del(B), Add(C, Z), Free(Y), HeldBy(W, D),
        ]),
        row("an old state from before a subnet", [
            Source(&[X]), Add(A, X), Keep(1, &[State]), Source(&[X, Q]), Add(B, Q),
            PutBack(1, &[State]), Refused(D, Exhausted), HeldBy(X, A), HeldBy(Q, B),
        ]),
        row("an answer that omits a subnet during a rebuild", [
            Source(&[X]), Add(A, X), Source(&[X, Q]), Add(B, Q), Remove(&[State]),
            Source(&[X]), Refused(D, Exhausted), Source(&[X, Q]), Refused(D, Exhausted), HeldBy(Q, B),
        ]),
        row("a state of an earlier boot with a higher generation", [
            Add(A, X), renew(9, A, X), Keep(1, &[State]), Reboot, Remove(&[State, LockFolder, Backup]),
            Add(B, X), PutBack(1, &[State]), Add(D, Y), HeldBy(X, B),
        ]).with_scan(Complete),
        row("a number of another boot does not prove an old state", [
            Add(A, X), Wait(HOUR), Add(A, X), Keep(1, &[State]), Reboot, Add(B, X), PutBack(1, &[State]), Remove(&[Backup]),
            Refused(D, Quarantined), Keep(2, &[State]), Wait(31), Gone(B), Remove(&[State, LockFolder, Backup]), Add(E, X),
            PutBack(2, &[State]), Add(C, Y), HeldBy(X, E),
        ]).with_scan(Complete),
        row("an old state of a node that lost all its files", [
            Add(A, X), Wait(HOUR), Add(A, X), Reboot, Add(B, X), Keep(1, &[State]), Gone(B), Remove(&[State, LockFolder, Backup]),
            Add(D, X), Add(E, Y), PutBack(1, &[State]), Add(C, Z), Held(Y),
        ]).with_scan(Complete),
        row("an old state alone", [
            Add(A, X), Keep(1, &[State]), Add(B, Y), Shown(B, Y), PutBack(1, &[State]), Remove(&[LockFolder, Backup]), Add(D, Z), Held(Y),
        ]),
        row("an old state after the original's VERSION", [
            Add(A, X), Keep(1, &[State]), Add(B, Y), OriginalVersion, PutBack(1, &[State]), Add(D, Z), HeldBy(X, A), HeldBy(Y, B),
        ]),
        row("an old state without backup", [
            Add(A, X), Shown(A, X), Keep(1, &[State]), Add(B, Y), Shown(B, Y), PutBack(1, &[State]), Remove(&[Backup]),
            Refused(D, Quarantined), Held(X), HeldByNobodyKnown(Y), Wait(31), Add(D, Z), Add(E, W),
        ]),

        // Losses that cause a quarantine. All addresses that any evidence names are held.
        row("a lost state and a lost backup cause a quarantine", [
            Add(A, X), Add(B, Y), Add(C, Z), Lose(Backup), Remove(&[State]), Refused(D, Quarantined),
            Cached(A, X), Cached(B, Y), Cached(C, Z), Wait(31), Add(D, W), Held(X), Held(Y), Held(Z),
        ]).each(BACKUP_LOSSES),
        row("a backup that could not be written proves nothing", [
            Add(A, X), Fails(Fault::NoSpaceForBackup), Add(B, Y), Remove(&[State]), Refused(D, Quarantined), Held(X),
        ]),
        row("neither the backup nor the record can be written", [
            Add(A, X), Fails(Fault::OnlyStateIsWritten), Refused(B, Any), Remove(&[State]), Add(D, Y), HeldBy(X, A),
        ]),
        row("neither the backup nor the record can be written, and the boot ID cannot be read", [
            Add(A, X), BootIdReadable(false), Fails(Fault::OnlyStateIsWritten), Refused(B, Any), BootIdReadable(true),
            Remove(&[State]), Add(D, Y), HeldBy(X, A),
        ]),
        row("an ADD that fails after its save takes its address back", [
            Add(A, X), Fails(Fault::OnlyStateIsWritten), Refused(B, Any), Free(Y), Add(D, Y), HeldBy(X, A),
        ]),
        row("a full disk leaves no temporary file", [
            Add(A, X), OriginalAdd(B, Y), Fails(Fault::NoSpaceForBackup), Add(D, Z), NoLeftovers,
        ]),
        row("lost state and backup", [
            Add(A, X), Shown(A, X), Add(B, Y), Configured(B), Lose(State), Remove(&[Backup]),
            Refused(D, Quarantined), HeldByNobodyKnown(X), HeldBy(Y, B), Wait(31), Add(D, Z), Del(D), Del(B), Free(Y), Held(X),
        ]).each(STATE_LOSSES),
        row("pods that are configured during the quarantine", [
            Add(A, X), Add(B, Y), Remove(&[State, Backup]), Refused(D, Quarantined), Shown(A, X), Wait(16),
            Refused(D, Quarantined), Shown(B, Y), Wait(15), Add(D, Z), HeldByNobodyKnown(X), HeldByNobodyKnown(Y),
        ]),
        row("a loss is remembered while the source is useless", [
            Add(A, X), Cached(A, X), Lose(State), Remove(&[Backup]), Answers(Answer::Unmatched), Refused(B, Any),
            Answers(Answer::Empty), Refused(B, Any),
            Answers(Answer::Good), Refused(B, Quarantined), HeldBy(X, A), Wait(31), Add(B, Y),
        ]).each(&[Removed, Halved]),
        row("a loss is remembered while the lock folder is removed", [
            Add(A, X), Remove(&[State, Backup]), Answers(Answer::None), Refused(B, NoPools), Remove(&[LockFolder]),
            Answers(Answer::Good), Refused(B, Quarantined),
        ]),
        row("a quarantine starts when the loss is seen with the source down", [
            Add(A, X), Cached(A, X), Remove(&[State, Backup]), Answers(Answer::None), Refused(B, NoPools), Wait(20),
            Refused(B, NoPools), Wait(11), Answers(Answer::Good), Add(B, Y), HeldBy(X, A),
        ]),
        row("a copy of a state of an earlier loss", [
            Add(A, X), Cached(A, X), Remove(&[State, Backup]), Answers(Answer::None), Refused(B, NoPools), Keep(1, &[State]),
            Answers(Answer::Good), Refused(B, Quarantined), Wait(31), Add(B, Y), PutBack(1, &[State]), Remove(&[Backup]),
            Refused(D, Quarantined), HeldBy(X, A),
        ]),
        row("a DEL during a loss does not restart the quarantine, and its release stays", [
            Add(A, X), Add(B, Y), Remove(&[State, Lock]), Del(A), Wait(20), Refused(D, Quarantined), Free(X), Wait(11), Add(D, Z),
            Free(X), HeldByNobodyKnown(Y),
        ]),
        row("a backup that cannot be read is not replaced while the state is lost", [
            Add(A, X), Remove(&[State, Lock]), Answers(Answer::None), Fails(Fault::BackupNotReadable), Refused(B, NotNow),
            Answers(Answer::Good), Refused(B, Quarantined), Held(X),
        ]),
        row("a scan that began before the quarantine ended does not end it", [
            Add(A, X), Remove(&[State, Backup]), Looks(C), Refused(D, Quarantined), Shown(A, X), Wait(31),
            Add(C, Y), HeldByNobodyKnown(X),
        ]),
        row("a known holder gets no other address during a quarantine", [
            Add(A, X), Cached(A, X), Add(B, Y), Remove(&[State, Backup]), Refused(D, Quarantined),
            RefusedNaming(A, Y, Quarantined), Add(A, X), Free(Y),
        ]),
        row("a DEL does not end a quarantine", [
            Add(A, X), Cached(A, X), Remove(&[State, Backup]), Answers(Answer::None), Refused(B, NoPools), Del(C),
            Answers(Answer::Good), Refused(B, Quarantined), HeldBy(X, A),
        ]),
        row("state and lock folder are lost", [
            Add(A, X), Cached(A, X), Remove(&[State, LockFolder]), Refused(B, Quarantined), HeldBy(X, A),
        ]),
        row("state and lock folder are lost before a pod is configured", [
            Add(A, X), Remove(&[State, LockFolder]), Refused(B, Quarantined), Gone(A), Wait(31), Add(B, Y), HeldByNobodyKnown(X),
        ]),
        row("state and lock folder are lost in another boot", [
            Add(A, X), Remove(&[State, LockFolder]), Reboot, Refused(B, Quarantined), Wait(31), Add(B, X),
        ]),
        row("the lock folder is lost", [Add(A, X), Remove(&[LockFolder]), Add(B, Y), HeldBy(X, A)]),

        // The lock file is lost during a call.
        row("two calls with two lock files", [
            Stops(A), Add(B, X), Refused(A, LockLost), Add(D, Y), HeldBy(X, B),
        ]),
        row("two calls with two lock files, and the original's VERSION", [
            Stops(A), Add(B, X), OriginalVersion, Refused(A, LockLost), Add(D, Y), HeldBy(X, B),
        ]),
        row("the state is lost while a DEL scans the node", [
            Add(A, X), Shown(A, X), Add(B, Y), Remove(&[State, Backup]), Refused(D, Quarantined), Cached(B, Y), Wait(31), Add(D, Z),
            Gone(A), Fails(Fault::StateIsRemovedAtLook), DelNaming(A, X), Free(X), Add(E, W), HeldBy(Y, B), HeldBy(Z, D),
        ]),

        // Generations above the clock. A state that survives a reboot keeps the generation of its save.
        row("a DEL after a reboot that could not be detected has a number of its own", [
            Add(A, X), Reboot, BootIdReadable(false), Add(B, Y), BootIdReadable(true), Refused(B, Quarantined), Wait(31), Add(B, Z),
            Keep(1, &[State]), Del(B), PutBack(1, &[State]), Add(D, W), Free(Z),
        ]),
        row("a DEL during a loss after a reboot has a number of its own", [
            Add(A, X), Reboot, BootIdReadable(false), Add(B, Y), Cached(B, Y), BootIdReadable(true), Refused(D, Quarantined), Wait(31),
            Add(C, Z), Keep(1, &[State]), Remove(&[State]), Del(B), PutBack(1, &[State]), Add(D, W), Free(Y),
        ]),
        row("an old state after a loss after a reboot that cannot be detected", [
            Add(A, X), Keep(1, &[State]), Reboot, BootIdReadable(false), Remove(&[State, Backup]), Refused(B, Quarantined), Wait(31),
            Add(B, X), PutBack(1, &[State]), Remove(&[Backup]), Refused(D, Quarantined),
        ]),
        row("a loss after a reboot that cannot be detected", [
            Add(A, X), Add(B, Y), Reboot, BootIdReadable(false), Remove(&[State]), Refused(D, Quarantined), Wait(31), Add(D, Z),
        ]),

        // Backups that no record proves.
        row("a backup that nothing proves has a subnet that the state lacks", [
            Source(&[X]), Add(A, X), Keep(1, &[State]), Source(&[X, Q]), Add(B, Q), Fails(Fault::NoSpaceForBackup), Add(B, Q),
            PutBack(1, &[State]), Answers(Answer::None), Refused(D, Quarantined), Held(X), Held(Q),
        ]),
        row("a copy from before a save in an unknown boot is old", [
            Add(A, X), Keep(1, &[State]), BootIdReadable(false), Add(B, Y), BootIdReadable(true), PutBack(1, &[State]), Add(D, Z),
            HeldBy(Y, B),
        ]),
        row("a copy that an unknown boot saved, of an earlier boot", [
            BootIdReadable(false), Add(A, X), Keep(1, &[State]), BootIdReadable(true), Reboot, Remove(&[State, LockFolder, Backup]),
            Add(B, X), Add(C, Y), PutBack(1, &[State]), Add(D, Z), HeldBy(X, B), HeldBy(Y, C),
        ]),
        row("an old copy of a state that the original saved last", [
            Add(A, X), OriginalAdd(B, Y), Keep(1, &[State]), Add(C, Z), Remove(&[Backup]), PutBack(1, &[State]), Refused(D, Quarantined),
            HeldByNobodyKnown(X),
        ]),
        row("the original starts from nothing, and knows a subnet less", [
            Source(&[X, Y, Q]), Add(A, X), Add(B, Q), Remove(&[State]), Source(&[X, Y]), OriginalAdd(C, Y), Refused(D, Quarantined),
            Held(Q),
        ]),
        row("the original starts from nothing beside a damaged backup", [
            Add(A, X), Lose(Backup), Remove(&[State]), OriginalAdd(B, Y), Refused(D, Quarantined), HeldByNobodyKnown(Y),
        ]).each(&[Halved, Zeroed]),
        row("a release that nothing proves does not hide a pod that came again", [
            Source(&[X]), Add(A, X), Del(A), Keep(1, &[State]), Add(A, X), Configured(A), PutBack(1, &[State]),
            Remove(&[LockFolder, Backup]), Refused(D, Exhausted), Held(X),
        ]),
        row("a late DEL during a loss does not hide the pod that a cache entry without a namespace names", [
            Source(&[X]), Add(A, X), Keep(1, &[State]), Add(A, X), CachedWithoutNamespace(E, X), PutBack(1, &[State]), Remove(&[Backup]),
            Del(A), Refused(D, Quarantined), Wait(31), Refused(D, Exhausted), Held(X),
        ]),
        row("an old state beside a record that cannot be read once", [
            Add(A, X), Keep(1, &[State]), Add(B, Y), PutBack(1, &[State]), Remove(&[Backup]), Fails(Fault::RecordNotReadable),
            Refused(D, NotNow), Refused(D, Quarantined),
        ]),
        row("an old state without record, and a newer backup", [
            Source(&[X]), Add(A, X), Keep(1, &[State]), Source(&[X, Q]), Add(B, Q), Remove(&[Lock]), PutBack(1, &[State]),
            Answers(Answer::None), Refused(D, Exhausted), HeldBy(Q, B),
        ]),
        row("a backup that nothing proves, no state, and no source", [
            Add(A, X), Remove(&[State, Lock]), Answers(Answer::None), Refused(B, Quarantined), Held(X),
        ]),
        row("a restored state is saved though nothing is granted", [
            Source(&[X]), Add(A, X), Remove(&[State]), Answers(Answer::None), Refused(B, Exhausted), HeldBy(X, A),
        ]),
        row("a GC frees nothing from an old state", [
            Add(A, X), Add(B, Y), Keep(1, &[State]), Add(C, Z), Remove(&[Backup]), PutBack(1, &[State]), Wait(120),
            Gc(&[]), Held(X), Held(Y),
        ]).with_scan(Complete),

        // A fresh node.
        row("a state that says nothing, or that is corrupt, is not fresh", [
            Add(A, X), Add(B, Y), Cached(A, X), Lose(State), Remove(&[LockFolder, Backup]), Refused(D, Quarantined),
        ]).each(&[Emptied, Halved, Zeroed, Nulled]),
        row("a corrupt state alone is not fresh", [
            Add(A, X), Lose(State), Remove(&[LockFolder, Backup]), Refused(D, Quarantined),
        ]).each(&[Halved, Zeroed]),
        row("a damaged backup alone is not fresh", [
            Add(A, X), Lose(Backup), Remove(&[State, LockFolder]), Refused(D, Quarantined),
        ]).each(&[Halved, Zeroed, OtherBoot]),
        row("the original's lock text alone is not fresh", [
            Add(A, X), OriginalVersion, Remove(&[State, Backup]), Refused(D, Quarantined),
        ]),
        row("a lock text that cannot be read is not that of a fresh node", [
            Add(A, X), Remove(&[State, Backup]), Fails(Fault::RecordNotReadable), Refused(D, NotNow),
        ]),
        row("a fresh node whose source is down at first", [
            Answers(Answer::None), Refused(A, NoPools), Answers(Answer::Good), Add(A, X),
        ]),
        row("a node in use whose source is down at first", [
            Cached(E, Y), Answers(Answer::None), Refused(A, NoPools), Answers(Answer::Good), Refused(A, Quarantined), HeldBy(Y, E),
        ]),
        row("a fresh node with a listed address in use", [Shown(E, Y), Refused(A, Quarantined), HeldByNobodyKnown(Y)]),
        row("a fresh node with an address that the source never listed", [Shown(E, UNLISTED), Add(A, X), Free(UNLISTED)]),
        row("a fresh node with its own primary address in a namespace", [Shown(E, PRIMARY), Add(A, X), Free(PRIMARY)]),

        // A record with only a container ID may belong to another interface than the one of the DEL.
        row("after a loss a DEL of one interface leaves the address of another", [
            Add(E, X), Del(E), Gone(E), Remove(&[State]), OriginalAdd(A, X), Cached(A, X), Refused(B, Quarantined), Wait(31), Add(B, Y),
            DelOther(A), HeldBy(X, A),
        ]),
        row("a DEL of one interface leaves the address that the original allocated to another", [
            Add(B, X), OriginalAdd(A, Y), Cached(A, Y), DelOther(A), HeldBy(Y, A), Del(A), Free(Y),
        ]),
        // No record proves that a copy is old, but the node shows other holders.
        row("an old copy without a record names a holder that has gone", [
            Source(&[X]), Add(A, X), Keep(1, &[State]), Del(A), Gone(A), Wait(31), Add(B, X), Configured(B),
            Remove(&[LockFolder, Backup]), PutBack(1, &[State]), Refused(D, Exhausted), HeldBy(X, B), Del(A), HeldBy(X, B), Del(B), Free(X),
        ]).with_scan(Complete),
        row("a copy of an earlier boot names a holder that has gone", [
            Source(&[X]), Add(A, X), Keep(1, &[State]), Reboot, Add(B, X), Configured(B), Remove(&[LockFolder, Backup]),
            PutBack(1, &[State]), Refused(D, Exhausted), Del(A), HeldBy(X, B), Del(B), Free(X),
        ]).with_scan(Complete),
        row("an edited state frees what a pod has", [
            Add(A, X), Configured(A), Lose(State), Wait(31), Add(B, Y), HeldBy(X, A), Configured(B), Lose(State), Remove(&[Backup]), Del(D),
            Add(C, Z), HeldBy(X, A), HeldBy(Y, B),
        ]).each(&[Freed]),
        // The original.
        row("the original wrote first, and did not know a pod", [
            OriginalAdd(A, X), Cached(B, Y), Add(D, Z), HeldBy(X, A), HeldBy(Y, B),
        ]),
        row("what is known of an address is void when the original allocates it to another pod", [
            Source(&[X]), Add(A, X), OriginalDel(A), OriginalAdd(B, X), Configured(B), Refused(C, Exhausted), Gone(B), Wait(HOUR),
            Add(C, X),
        ]),
        row("the age of a record is void when the original may have allocated the address again", [
            Source(&[X]), Add(A, X), Wait(HOUR), OriginalDel(A), Gone(A), OriginalAdd(A, X), Refused(C, Exhausted), HeldBy(X, A),
        ]),
        row("releases of another boot are void after the original wrote", [Add(A, X), Del(A), Reboot, OriginalSave, Add(B, X)]),
        row("a release by the original is one of now", [Add(A, X), OriginalDel(A), Add(B, Y), Free(X)]),
        row("a GC counts the age of an address that the original may have allocated again", [
            Add(A, X), Gone(A), Wait(HOUR), OriginalSave, Gc(&[]), Held(X), Wait(61), Gc(&[]), Free(X),
        ]).with_scan(Complete),
        row("the original allocates an address after a reboot", [
            Add(A, X), Reboot, OriginalAdd(B, Y), Add(D, Z), HeldBy(Y, B),
        ]).with_scan(Complete),
        // Calls that change nothing: the original's VERSION, and the second DEL of a container that never had an ADD.
        row("the original's VERSION, then a loss", [
            Add(A, X), Cached(A, X), OriginalVersion, Remove(&[State]), Refused(D, Quarantined), Wait(31), Add(D, Y), HeldBy(X, A),
        ]),
        row("the original's VERSION, then a save of ours", [
            Add(A, X), OriginalVersion, Add(B, Y), Remove(&[State]), Add(D, Z), HeldBy(X, A), HeldBy(Y, B),
        ]),
        row("a call that changes nothing does not hide the original", [
            Add(A, X), Del(D), Cached(A, X), OriginalAdd(B, Y), Del(D), Cached(B, Y), Remove(&[State]),
            Refused(E, Quarantined), HeldBy(X, A), HeldBy(Y, B),
        ]),
        row("addresses that the original adds are compared with the node", [
            Source(&[Y, Z, W]), Add(B, Y), Shown(E, X), Source(&[X, Y, Z, W]), OriginalAdd(D, W), Add(C, Z), Refused(A, Exhausted),
            HeldByNobodyKnown(X),
        ]),
        row("an old release is not believed when the lock text is gone", [
            Source(&[X]), Add(A, X), Del(A), Gone(A), OriginalAdd(B, X), Configured(B), Remove(&[Lock, State]),
            Refused(D, Quarantined), HeldBy(X, B),
        ]),
        row("the original moves an address, and a loss follows after a while", [
            Source(&[X]), Add(A, X), Del(E), OriginalDel(A), Gone(A), OriginalAdd(B, X), Shown(B, X), Del(E), Wait(45),
            Remove(&[State]), Refused(D, Any), Del(A), Held(X), Refused(D, Quarantined),
        ]),
        row("the original starts from nothing", [
            Add(A, X), Remove(&[State]), OriginalAdd(B, Y), Refused(D, Quarantined), Held(X), Held(Y),
            Cached(A, X), Cached(B, Y), Wait(31), Add(D, Z), HeldBy(X, A), HeldBy(Y, B),
        ]).with_scan(Complete),
        row("no inode is left after a call of the original", [
            Add(A, X), OriginalAdd(B, Y), Fails(Fault::NoInode), Del(D), Remove(&[State]),
            Refused(E, Quarantined), Cached(A, X), Cached(B, Y), Wait(31), Add(E, Z),
        ]),
        row("leaks are reclaimed after the original wrote and the source died", [
            Source(&[X, Y]), Add(A, X), Configured(A), Gone(A), Add(B, Y), Configured(B), Gone(B),
            OriginalSave, Answers(Answer::None), Refused(C, Exhausted), Wait(HOUR), Add(C, X),
        ]),

        row("an entry of libcni's cache without a namespace holds its address after a loss", [
            Add(A, X), CachedWithoutNamespace(A, X), Remove(&[State, Backup]), Refused(B, Quarantined), Wait(31), Add(B, Y), HeldBy(X, A),
        ]),

        // One address in several subnets.
        row("a subnet is resized", [
            Add(A, X), Shown(A, X), Subnets(RESIZED), Add(B, Y), Add(A, X), Del(A), Add(C, Z), Add(D, W), Free(X), Gone(A), Wait(31),
            Add(E, X),
        ]),
        row("a subnet is resized, and then the state is lost", [
            Add(A, X), Subnets(RESIZED), Add(B, Y), Remove(&[State, Backup]), Cached(A, X), Cached(B, Y), Refused(D, Quarantined),
            Add(A, X), Wait(31), Add(D, Z), Del(A), Free(X), HeldBy(Y, B),
        ]),
        row("the original releases an address of a resized subnet", [
            Add(A, X), Subnets(RESIZED), Add(B, Y), OriginalDel(A), Add(C, Z), Add(D, W), Free(X), HeldBy(Y, B),
        ]),
        row("an address that two subnets list is released in both", [
            Subnets(RESIZED), Add(A, X), Shown(A, X), Subnets(TWICE), Add(B, Y), Add(A, X), Del(A), Add(C, Z), Add(D, W), Free(X),
        ]),
        row("leaks are reclaimed after a subnet was resized", [
            Source(&[X]), Add(A, X), Configured(A), Gone(A), Subnets(RESIZED), Wait(HOUR), Add(C, X), Refused(D, Exhausted),
        ]),

        // Addresses that are released and still configured.
        row("a failed teardown does not name the holder after a loss", [
            Source(&[X]), Add(A, X), Cached(A, X), Del(A), Wait(31), Add(B, X), Remove(&[State]),
            Refused(D, Exhausted), Del(A), HeldBy(X, B),
        ]),
        row("an address that the source omits for a moment is released", [
            Add(A, X), Shown(A, X), Source(&[Y, Z, W]), Add(B, Y), Del(A), Source(&[X, Y, Z, W]), Add(D, Z), Free(X),
            Gone(A), Wait(31), Add(E, W), Add(C, X),
        ]),
        row("an address that the source omits is released despite an empty file in libcni's cache", [
            Add(A, X), Shown(A, X), Source(&[Y, Z]), CachedEmpty(E), Add(B, Y), Del(A), Source(&[X, Y, Z]), Add(D, Z),
            Gone(A), Wait(2 * HOUR), Add(C, X),
        ]),
        row("a released address that another network namespace has, too, is held", [
            Source(&[X, Y]), Add(A, X), Shown(A, X), Del(A), Shown(E, X), Source(&[X, Y, Z]), Add(B, Y), HeldByNobodyKnown(X),
        ]),
        row("an address that the source omits for a moment after its release", [
            Add(A, X), Shown(A, X), Del(A), Source(&[Y, Z, W]), Add(B, Y), Source(&[X, Y, Z, W]), Add(D, Z), Free(X),
        ]),

        row("an old state does not name a holder whose teardown failed", [
            Source(&[X]), Add(A, X), Keep(1, &[State]), Del(A), Wait(31), Add(B, X), PutBack(1, &[State]), Remove(&[Backup]),
            Refused(D, Quarantined), Held(X), Del(A), Held(X),
        ]),

        // Holders according to libcni's cache and azure-vnet's state.
        row("two lists that agree name the holder", [
            Add(A, X), Remove(&[State, Backup]), CachedWithoutNamespace(A, X), Endpoint(A, X),
            Refused(B, Quarantined), HeldBy(X, A), Del(B), HeldBy(X, A), Del(A), Free(X),
        ]),
        row("one list names the holder", [
            Add(A, X), Remove(&[State, Backup]), CachedWithoutNamespace(A, X),
            Refused(B, Quarantined), HeldBy(X, A), Del(B), HeldBy(X, A), Del(A), Free(X),
        ]).with_scan(Incomplete),
        row("one list names the holder of what the kernel shows", [
            Add(A, X), Shown(A, X), Remove(&[State, Backup]), CachedWithoutNamespace(A, X), Refused(B, Quarantined), HeldBy(X, A),
        ]).with_scan(Complete),
        row("two lists that disagree name no holder", [
            Add(A, X), Remove(&[State, Backup]), Cached(A, X), Endpoint(C, X),
            Refused(B, Quarantined), HeldByNobodyKnown(X), DelNaming(C, X), HeldByNobodyKnown(X),
        ]),
        row("an orphaned address is released for the container in the lists", [
            Add(A, X), Remove(&[State, Backup]), Cached(A, X), Endpoint(C, X), Refused(B, Quarantined), NoEndpoint(C),
            DelNaming(C, X), HeldByNobodyKnown(X), DelNaming(A, X), Free(X),
        ]),
        row("an orphaned address is not released while another's cache entry stands", [
            Source(&[X]), Add(A, X), Endpoint(A, X), Del(A), Wait(31), Add(B, X), Cached(B, X), Remove(&[State, Backup]),
            Refused(D, Quarantined), HeldByNobodyKnown(X), Gone(A), DelNaming(A, X), HeldByNobodyKnown(X),
        ]).with_scan(Complete),
        row("an orphaned address is released by a DEL that names it", [
            Add(A, X), Shown(A, X), Remove(&[State, Backup]), Refused(D, Quarantined), HeldByNobodyKnown(X),
            DelNaming(A, X), HeldByNobodyKnown(X), Gone(A), Del(A), HeldByNobodyKnown(X), DelNaming(A, X), Free(X),
        ]),
        row("a GC keeps what another container's entry claims", [
            Add(A, X), Add(B, Y), Add(C, Z), Cached(E, X), Endpoint(D, Y), Wait(120), Gc(&[]),
            HeldBy(X, A), HeldBy(Y, B), Free(Z), Gone(E), Gone(D), Gc(&[]), Free(X), Free(Y),
        ]).with_scan(Complete),

        // The boot ID.
        row("an unreadable boot ID is not a reboot", [
            Source(&[X]), Add(A, X), BootIdReadable(false), Refused(B, Exhausted), HeldBy(X, A), Del(A), Gone(A), Add(C, X),
            BootIdReadable(true), Refused(D, Exhausted), HeldBy(X, C),
            Remove(&[State]), BootIdReadable(false), Refused(E, Quarantined),
        ]),
        row("a DEL that saved only the state while the boot ID cannot be read", [
            Add(A, X), Add(B, Y), BootIdReadable(false), Fails(Fault::OnlyStateIsWritten), DelFails(A, Any), Del(A), Remove(&[State]),
            Refused(C, Quarantined), Free(X), HeldByNobodyKnown(Y), Wait(31), Add(C, Z),
        ]),
        row("a backup that cannot be read once while the boot ID cannot be read", [
            Add(A, X), Cached(A, X), BootIdReadable(false), Remove(&[State]), Fails(Fault::BackupNotReadable), DelFails(A, NotNow),
            Refused(B, Quarantined), Held(X), Del(A), Free(X),
        ]),
        row("a DEL during a loss while the boot ID cannot be read", [
            Add(A, X), Add(B, Y), Cached(B, Y), BootIdReadable(false), Remove(&[State]), Del(A), Refused(D, Quarantined), Free(X),
            Wait(31), Add(D, Z), Free(X), HeldBy(Y, B),
        ]),
        row("the original goes on from an old copy while the boot ID cannot be read", [
            Add(A, X), Keep(1, &[State]), Add(B, Y), BootIdReadable(false), PutBack(1, &[State]), OriginalAdd(C, Z),
            Refused(D, Quarantined), Held(X), Held(Y), Held(Z),
        ]),
        row("a release by the original, which goes on from an old copy while the boot ID cannot be read", [
            Add(A, X), Keep(1, &[State]), Add(B, Y), Cached(B, Y), BootIdReadable(false), PutBack(1, &[State]), OriginalDel(A),
            Refused(D, Quarantined), HeldBy(Y, B), Wait(31), Add(D, Z),
        ]),
        row("a record of another boot does not make the state an old one", [
            Add(A, X), Reboot, Remove(&[Backup]), Add(B, X),
        ]).with_scan(Complete),
        row("a loss that is pending ends with its boot", [
            Add(A, X), Remove(&[State, Backup]), Answers(Answer::None), Refused(B, NoPools), Reboot,
            Answers(Answer::Good), Add(D, X),
        ]).with_scan(Complete),
        row("a release before a reboot is forgotten", [Add(A, X), Del(A), Reboot, Add(B, X)]).with_scan(Complete),
        row("a reboot frees every address that no pod has", [
            Add(A, X), Add(B, Y), Reboot, Shown(E, Y), Add(C, X), HeldBy(Y, B), Add(D, Z),
        ]),
    ]
}
