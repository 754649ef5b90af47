//! The events of a node, and their frequencies.

use proptest::prelude::*;

use super::node::{Fault, Kill};

#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// An ADD of this pod, by us or by the original. A pod with an address repeats its ADD.
    Add(u8, Who),
    /// An ADD with a lost result.
    LostAdd(u8),
    /// An ADD that scans the node and decides after another event.
    SlowAdd(u8, Box<Event>),
    /// An ADD queries the source and is then suspended.
    Begin(u8),
    /// The suspended ADD continues until it has scanned the node, or until it ends.
    GoOn(u8),
    /// An ADD that is killed.
    KilledAdd(u8, Kill),
    /// After some steps of an ADD the lock folder is removed, and another pod's ADD runs completely.
    RacedAdd(u8, u8, u32),
    /// A DEL.
    Del(u8, Who),
    /// A DEL that is killed.
    KilledDel(u8, Kill),
    /// A `RacedAdd` that is killed after this many further changes.
    KilledRacedAdd(u8, u8, u32, u32),
    /// A DEL that is raced like the ADD in `RacedAdd`.
    RacedDel(u8, u8, u32),
    /// A DEL of the pod's previous container.
    LateDel(u8),
    /// The pod vanishes without a DEL.
    Vanish(u8),
    /// The main plugin has configured the pod, and libcni has cached the result.
    Configure(u8),
    /// libcni has cached the result, but no link has the address yet.
    Cached(u8),
    /// The main plugin has configured all pods with an address.
    ConfigureAll,
    /// Time passes, in seconds.
    Wait(u16),
    /// The source lists the addresses whose bits are set.
    Source(u8),
    /// How the source answers from now on.
    Answer(Answer),
    /// A loss of files.
    Lose(Loss),
    /// Copies all files.
    Keep,
    /// Changes each of these files in the same way.
    Change(FileSet, Fate),
    /// The original's VERSION takes the lock.
    OriginalsVersion,
    /// The original's ADD of this pod finds no state and starts from nothing.
    OriginalStartsEmpty(u8),
    /// An ADD during which the file system refuses an operation.
    FaultyAdd(u8, Fault),
    /// A DEL during which the file system refuses an operation.
    FaultyDel(u8, Fault),
    /// A DEL after which the container's namespace, addresses and cache entries stay for a while.
    SlowDel(u8),
    /// A DEL like that of `SlowDel`. The container stays until the node restarts.
    StuckDel(u8),
    /// The runtime replaces the pod's sandbox at its next ADD, and the old one keeps running.
    Retry(u8),
    /// The source lists only another subnet.
    SourceElsewhere,
    /// A reboot: every pod dies; the files survive or not.
    Reboot { keeps_state: bool },
    /// Whether calls can read the boot ID from now on.
    BootIdReadable(bool),
    /// What a scan cannot see from now on.
    Blind(Blindness),
    /// libcni's cache is wiped.
    WipeCache,
    /// A GC by the runtime, which may have forgotten a live pod.
    Gc { forgets: Option<u8> },
    /// A reclaim by the operator.
    Reclaim,
}

impl Event {
    /// Whether only complete calls of ours change the state in this event.
    pub fn keeps_state_as_it_is(&self) -> bool {
        match self {
            Event::Add(_, who) | Event::Del(_, who) => *who == Who::We,
            Event::SlowDel(_)
            | Event::StuckDel(_)
            | Event::Retry(_)
            | Event::Vanish(_)
            | Event::Configure(_)
            | Event::ConfigureAll
            | Event::Cached(_)
            | Event::Wait(_)
            | Event::Gc { .. }
            | Event::Reclaim => true,
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Who {
    We,
    TheOriginal,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    Deleted,
    Emptied,
    Damaged,
    RolledBack,
    OurKeyRemoved,
    BackupRemoved,
    BackupEmptied,
    BackupDamaged,
    LockFolderRemoved,
    /// The state and the folder of the lock.
    RunWiped,
}

/// A set of files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FileSet(pub u8);

impl FileSet {
    pub const STATE: FileSet = FileSet(1);
    pub const BACKUP: FileSet = FileSet(2);
    pub const LOCK: FileSet = FileSet(4);

    /// All sets but the empty one.
    pub fn all() -> impl Iterator<Item = FileSet> {
        (1..8).map(FileSet)
    }

    pub fn has(self, file: FileSet) -> bool {
        self.0 & file.0 != 0
    }
}

/// What happens to files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    Removed,
    Emptied,
    /// The second half is missing.
    Torn,
    /// The kept copy is put back. A file that did not exist when the copy was made is removed.
    KeptPutBack,
    /// The copy from before the last write is put back in the same way.
    LastPutBack,
}

pub(super) const ALL_FATES: [Fate; 5] = [
    Fate::Removed,
    Fate::Emptied,
    Fate::Torn,
    Fate::KeptPutBack,
    Fate::LastPutBack,
];

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    /// The addresses that are listed.
    Good,
    /// A subnet without addresses.
    Empty,
    /// Interfaces that this node does not have.
    Unmatched,
    /// No answer.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Blindness {
    No,
    Namespaces,
    Cache,
    Routes,
}

fn kill() -> impl Strategy<Value = Kill> {
    (0..8u32).prop_map(|after| Kill { after })
}

pub(super) fn event() -> impl Strategy<Value = Event> {
    let pod = || 0..8u8;
    let who = || prop_oneof![5 => Just(Who::We), 1 => Just(Who::TheOriginal)];
    let loss = prop_oneof![
        Just(Loss::Deleted),
        Just(Loss::Emptied),
        Just(Loss::Damaged),
        Just(Loss::RolledBack),
        Just(Loss::OurKeyRemoved),
        Just(Loss::BackupRemoved),
        Just(Loss::BackupEmptied),
        Just(Loss::BackupDamaged),
        Just(Loss::LockFolderRemoved),
        Just(Loss::RunWiped),
    ];
    let fault = || {
        prop_oneof![
            Just(Fault::NoSpaceForBackup),
            Just(Fault::NoInode),
            Just(Fault::NoRecord),
            Just(Fault::OnlyStateIsWritten),
        ]
    };
    let fate = prop::sample::select(ALL_FATES.to_vec());
    let answer = prop_oneof![
        3 => Just(Answer::Good), 1 => Just(Answer::Empty), 1 => Just(Answer::Unmatched), 1 => Just(Answer::None)
    ];
    let quick = prop_oneof![
        8 => (pod(), who()).prop_map(|(p, w)| Event::Add(p, w)),
        1 => pod().prop_map(Event::LostAdd),
        1 => (pod(), kill()).prop_map(|(p, k)| Event::KilledAdd(p, k)),
        1 => pod().prop_map(Event::Begin),
        2 => pod().prop_map(Event::GoOn),
        4 => (pod(), who()).prop_map(|(p, w)| Event::Del(p, w)),
        1 => (pod(), kill()).prop_map(|(p, k)| Event::KilledDel(p, k)),
        1 => pod().prop_map(Event::LateDel),
        3 => pod().prop_map(Event::Vanish),
        2 => Just(Event::ConfigureAll),
        1 => pod().prop_map(Event::Cached),
        3 => prop_oneof![Just(5u16), Just(31), Just(65), Just(905), Just(3700)].prop_map(Event::Wait),
        1 => any::<u8>().prop_map(Event::Source),
        1 => answer.prop_map(Event::Answer),
        2 => loss.prop_map(Event::Lose),
        2 => Just(Event::Keep),
        3 => (1..8u8, fate).prop_map(|(files, fate)| Event::Change(FileSet(files), fate)),
        1 => Just(Event::OriginalsVersion),
        1 => pod().prop_map(Event::OriginalStartsEmpty),
        1 => (pod(), fault()).prop_map(|(p, f)| Event::FaultyAdd(p, f)),
        1 => (pod(), fault()).prop_map(|(p, f)| Event::FaultyDel(p, f)),
        2 => pod().prop_map(Event::SlowDel),
        1 => pod().prop_map(Event::StuckDel),
        2 => pod().prop_map(Event::Retry),
        1 => Just(Event::SourceElsewhere),
        1 => prop_oneof![2 => Just(true), 1 => Just(false)].prop_map(Event::BootIdReadable),
        1 => prop_oneof![2 => Just(Blindness::No), 1 => Just(Blindness::Namespaces), 1 => Just(Blindness::Cache), 1 => Just(Blindness::Routes)].prop_map(Event::Blind),
        1 => Just(Event::WipeCache),
        1 => prop::option::of(pod()).prop_map(|forgets| Event::Gc { forgets }),
        1 => Just(Event::Reclaim),
    ];
    let quick = quick.boxed();
    prop_oneof![
        20 => quick.clone(),
        // No process survives a reboot.
        1 => any::<bool>().prop_map(|keeps_state| Event::Reboot { keeps_state }),
        10 => (pod(), quick).prop_map(|(p, e)| Event::SlowAdd(p, Box::new(e))),
        2 => (pod(), pod(), 0..40u32).prop_map(|(p, o, n)| Event::RacedAdd(p, o, n)),
        1 => (pod(), pod(), 0..30u32).prop_map(|(p, o, n)| Event::RacedDel(p, o, n)),
    ]
}
