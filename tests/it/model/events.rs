//! What can happen to a node, and how often each of it is thrown.

use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// An ADD of this pod, by us or by the original; a pod that has an address asks again.
    Add(u8, Who),
    /// The ADD of a pod whose result reaches nobody.
    LostAdd(u8),
    /// A DEL.
    Del(u8, Who),
    /// The pod is gone, and nobody says so.
    Vanish(u8),
    /// The main plugin is through with the pods that have an address.
    WireAll,
    /// Seconds go by.
    Pass(u16),
    /// The source lists the addresses whose bits are set.
    Source(u8),
    /// Something happens to the state file.
    Lose(Loss),
    /// Every pod dies; the state file stays or goes.
    Reboot { keeps_state: bool },
    /// What cannot be seen from now on.
    Blind(Blindness),
    /// libcni's cache is wiped.
    WipeCache,
    /// An ADD that looks, and is decided only after something else happened.
    SlowAdd(u8, Box<Event>),
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
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Blindness {
    No,
    Namespaces,
    Cache,
    Routes,
}

pub(super) fn event() -> impl Strategy<Value = Event> {
    let pod = || 0..8u8;
    let who = || prop_oneof![5 => Just(Who::We), 1 => Just(Who::TheOriginal)];
    let quick = prop_oneof![
        8 => (pod(), who()).prop_map(|(p, w)| Event::Add(p, w)),
        1 => pod().prop_map(Event::LostAdd),
        4 => (pod(), who()).prop_map(|(p, w)| Event::Del(p, w)),
        3 => pod().prop_map(Event::Vanish),
        2 => Just(Event::WireAll),
        3 => prop_oneof![Just(5u16), Just(31), Just(65), Just(905), Just(3700)].prop_map(Event::Pass),
        1 => any::<u8>().prop_map(Event::Source),
        2 => prop_oneof![Just(Loss::Deleted), Just(Loss::Emptied), Just(Loss::Damaged), Just(Loss::RolledBack), Just(Loss::OurKeyRemoved)].prop_map(Event::Lose),
        1 => prop_oneof![2 => Just(Blindness::No), 1 => Just(Blindness::Namespaces), 1 => Just(Blindness::Cache), 1 => Just(Blindness::Routes)].prop_map(Event::Blind),
        1 => Just(Event::WipeCache),
    ];
    let quick = quick.boxed();
    prop_oneof![
        20 => quick.clone(),
        // No process lives through a reboot.
        1 => any::<bool>().prop_map(|keeps_state| Event::Reboot { keeps_state }),
        10 => (pod(), quick).prop_map(|(p, e)| Event::SlowAdd(p, Box::new(e))),
    ]
}
