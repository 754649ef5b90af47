//! What can happen to a node, and how often each of it is thrown.

use proptest::prelude::*;

use super::node::Kill;

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// An ADD of this pod, by us or by the original; a pod that has an address asks again.
    Add(u8, Who),
    /// The ADD of a pod whose result reaches nobody.
    LostAdd(u8),
    /// An ADD that looks, and is decided only after something else happened.
    SlowAdd(u8, Box<Event>),
    /// An ADD asks the source, and then takes its time.
    Begin(u8),
    /// It goes on: until it has looked at the node, or to its end.
    GoOn(u8),
    /// An ADD that is killed.
    KilledAdd(u8, Kill),
    /// After so many steps of an ADD the folder of the lock is removed, and another pod's ADD runs from beginning to end.
    RacedAdd(u8, u8, u32),
    /// A DEL.
    Del(u8, Who),
    /// A DEL that is killed.
    KilledDel(u8, Kill),
    /// A `RacedAdd` that is killed when it has changed so many more things after the other ADD.
    KilledRacedAdd(u8, u8, u32, u32),
    /// The same as of an ADD.
    RacedDel(u8, u8, u32),
    /// A DEL of the container that the pod had before.
    LateDel(u8),
    /// The pod is gone, and nobody says so.
    Vanish(u8),
    /// The main plugin is through with the pod, and libcni has noted the result.
    Wire(u8),
    /// libcni has noted the result, and the address is on no link (yet).
    Cached(u8),
    /// The main plugin is through with the pods that have an address.
    WireAll,
    /// Seconds go by.
    Pass(u16),
    /// The source lists the addresses whose bits are set.
    Source(u8),
    /// What the source answers from now on.
    Answer(Answer),
    /// Something happens to the files.
    Lose(Loss),
    /// Every pod dies; the files stay or go.
    Reboot { keeps_state: bool },
    /// Whether calls can read the boot ID from now on.
    BootIdReadable(bool),
    /// What cannot be seen from now on.
    Blind(Blindness),
    /// libcni's cache is wiped.
    WipeCache,
    /// The runtime's GC; it may have forgotten a pod that lives.
    Gc { forgets: Option<u8> },
    /// The operator's reclaim.
    Reclaim,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Who {
    We,
    TheOriginal,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Loss {
    Deleted,
    Emptied,
    Damaged,
    RolledBack,
    OurKeyRemoved,
    JournalTorn,
    JournalRemoved,
    /// The first entry of several.
    JournalEntryRemoved,
    /// An address in an entry reads as another one.
    JournalEntryDamaged,
    LockFolderRemoved,
    /// The state and the folder of the lock.
    RunWiped,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Answer {
    /// The addresses that are listed.
    Good,
    /// A subnet without addresses.
    Empty,
    /// Interfaces that this node does not have.
    Unmatched,
    /// Nothing.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Blindness {
    No,
    Namespaces,
    Cache,
    Routes,
}

fn kill() -> impl Strategy<Value = Kill> {
    (0..8u32, any::<bool>()).prop_map(|(after, is_torn)| Kill { after, is_torn })
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
        Just(Loss::JournalTorn),
        Just(Loss::JournalRemoved),
        Just(Loss::JournalEntryRemoved),
        Just(Loss::JournalEntryDamaged),
        Just(Loss::LockFolderRemoved),
        Just(Loss::RunWiped),
    ];
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
        2 => Just(Event::WireAll),
        1 => pod().prop_map(Event::Cached),
        3 => prop_oneof![Just(5u16), Just(31), Just(65), Just(905), Just(3700)].prop_map(Event::Pass),
        1 => any::<u8>().prop_map(Event::Source),
        1 => answer.prop_map(Event::Answer),
        2 => loss.prop_map(Event::Lose),
        1 => prop_oneof![2 => Just(true), 1 => Just(false)].prop_map(Event::BootIdReadable),
        1 => prop_oneof![2 => Just(Blindness::No), 1 => Just(Blindness::Namespaces), 1 => Just(Blindness::Cache), 1 => Just(Blindness::Routes)].prop_map(Event::Blind),
        1 => Just(Event::WipeCache),
        1 => prop::option::of(pod()).prop_map(|forgets| Event::Gc { forgets }),
        1 => Just(Event::Reclaim),
    ];
    let quick = quick.boxed();
    prop_oneof![
        20 => quick.clone(),
        // No process lives through a reboot.
        1 => any::<bool>().prop_map(|keeps_state| Event::Reboot { keeps_state }),
        10 => (pod(), quick).prop_map(|(p, e)| Event::SlowAdd(p, Box::new(e))),
        2 => (pod(), pod(), 0..40u32).prop_map(|(p, o, n)| Event::RacedAdd(p, o, n)),
        1 => (pod(), pod(), 0..30u32).prop_map(|(p, o, n)| Event::RacedDel(p, o, n)),
    ]
}
