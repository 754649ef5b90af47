//! The fields of the search: kinds of problems, each with its events.

use azure_vnet_ipam::ipam::Family;

use super::events::{ALL_FATES, Answer, Blindness, Event, Fate, FileSet, Loss, Who};
use super::node::{Fault, Kill};
use super::world::Rules;

/// The pods: the first container's interface, its second one, and another container's.
const A: u8 = 0;
const A_NET1: u8 = 1;
const B: u8 = 2;

const NODE: Rules = Rules {
    families: &[Family::V4],
    addresses: 3,
    second_interface: Some(A_NET1),
    has_cookies: true,
    kernel_shows_addresses: true,
    is_ticking: false,
    releases_are_final: false,
    losses_are_seen_once: false,
    has_copies: false,
};

/// With copies of files that are put back.
const COPIES: Rules = Rules {
    has_copies: true,
    ..NODE
};

/// A field: its events, its initial histories and its depth.
pub(super) struct Field {
    pub name: &'static str,
    pub rules: Rules,
    pub beginnings: Vec<Vec<Event>>,
    pub events: Vec<Event>,
    /// The depth to which all histories must be tried.
    pub agreed: u8,
}

fn add(pod: u8) -> Event {
    Event::Add(pod, Who::We)
}

fn del(pod: u8) -> Event {
    Event::Del(pod, Who::We)
}

fn kills(most: u32) -> impl Iterator<Item = Kill> {
    let whole = (0..=most).map(|after| Kill {
        after,
        is_torn: false,
    });
    let torn = (1..=3).map(|after| Kill {
        after,
        is_torn: true,
    });
    whole.chain(torn)
}

/// All events.
fn all_events() -> Vec<Event> {
    use Event::{
        BootIdReadable, Cached, Gc, GoOn, KilledAdd, KilledDel, LateDel, Lose, LostAdd, Pass,
        RacedAdd, RacedDel, Reboot, Reclaim, Source, Vanish, WipeCache, Wire,
    };
    let mut events = Vec::new();
    for pod in [A, A_NET1, B] {
        events.extend([add(pod), Event::Begin(pod), GoOn(pod), del(pod), Wire(pod)]);
        events.extend([Cached(pod), LostAdd(pod), LateDel(pod)]);
    }
    events.extend([A, B].map(Vanish));
    for pod in [A, B] {
        events.extend([
            Event::Add(pod, Who::TheOriginal),
            Event::Del(pod, Who::TheOriginal),
        ]);
    }
    events.extend(kills(7).map(|kill| KilledAdd(B, kill)));
    events.extend(kills(4).map(|kill| KilledDel(A, kill)));
    events.extend((0..30).map(|step| RacedAdd(B, A, step)));
    events.extend((0..16).map(|step| RacedDel(A, B, step)));
    events.extend(ALL_LOSSES.map(Lose));
    events.extend([0b111, 0b001].map(Source));
    events.extend(ALL_ANSWERS.map(Event::Answer));
    events.extend([31, 65, 905, 3700].map(Pass));
    events.extend([true, false].map(|keeps_state| Reboot { keeps_state }));
    events.extend([true, false].map(BootIdReadable));
    events.extend([Blindness::No, Blindness::Namespaces, Blindness::Cache].map(Event::Blind));
    events.extend([None, Some(A), Some(B)].map(|forgets| Gc { forgets }));
    events.extend([WipeCache, Reclaim]);
    events.extend(all_changes());
    events.extend([Event::Keep, Event::OriginalsVersion, Event::SourceElsewhere]);
    events.extend([A, B].map(Event::OriginalStartsEmpty));
    events.extend([A, B].map(Event::SlowDel));
    events.extend(ALL_FAULTS.map(|fault| Event::FaultyAdd(B, fault)));
    events.extend(ALL_FAULTS.map(|fault| Event::FaultyDel(A, fault)));
    events
}

/// What can happen to any files together.
fn all_changes() -> impl Iterator<Item = Event> {
    FileSet::all().flat_map(|files| ALL_FATES.map(|fate| Event::Change(files, fate)))
}

fn changes(files: FileSet) -> impl Iterator<Item = Event> {
    ALL_FATES
        .into_iter()
        .map(move |fate| Event::Change(files, fate))
}

const ALL_FAULTS: [Fault; 8] = [
    Fault::NoSpaceForJournal,
    Fault::JournalStopsAfter(0),
    Fault::JournalStopsAfter(1),
    Fault::JournalStopsAfter(60),
    Fault::NoInode,
    Fault::JournalNotReplaceable,
    Fault::NoRecord,
    Fault::OnlyStateIsWritten,
];

const ALL_LOSSES: [Loss; 11] = [
    Loss::Deleted,
    Loss::Emptied,
    Loss::Damaged,
    Loss::RolledBack,
    Loss::OurKeyRemoved,
    Loss::JournalTorn,
    Loss::JournalRemoved,
    Loss::JournalEntryRemoved,
    Loss::JournalEntryDamaged,
    Loss::LockFolderRemoved,
    Loss::RunWiped,
];

const ALL_ANSWERS: [Answer; 4] = [Answer::Good, Answer::Empty, Answer::Unmatched, Answer::None];

/// All events to a small depth from several beginnings, and kinds of problems to a larger one.
pub(super) fn fields() -> Vec<Field> {
    use Event::{
        Begin, Blind, BootIdReadable, Cached, Gc, GoOn, LateDel, Lose, LostAdd, Pass, Reboot,
        Reclaim, Vanish, Wire,
    };
    let fresh = Vec::new;
    let running = || vec![add(A), Wire(A)];
    vec![
        Field {
            name: "everything",
            rules: NODE,
            beginnings: vec![
                fresh(),
                running(),
                vec![add(A), Wire(A), add(A_NET1), add(B)],
                vec![add(A), Wire(A), add(B), Wire(B), Pass(905), Vanish(A)],
                vec![add(A), Wire(A), Event::Add(B, Who::TheOriginal)],
            ],
            events: all_events(),
            agreed: 2,
        },
        Field {
            name: "a lost state and useless answers",
            rules: Rules {
                losses_are_seen_once: true,
                ..NODE
            },
            beginnings: vec![
                fresh(),
                vec![add(A), Lose(Loss::Deleted), Lose(Loss::JournalRemoved)],
            ],
            events: [
                vec![add(A), add(B), Wire(A), del(A), Pass(31)],
                vec![Lose(Loss::Deleted), Lose(Loss::JournalRemoved)],
                vec![
                    Event::Answer(Answer::Good),
                    Event::Answer(Answer::Unmatched),
                ],
            ]
            .concat(),
            agreed: 7,
        },
        Field {
            name: "old copies and reused inodes",
            rules: NODE,
            beginnings: vec![
                fresh(),
                vec![
                    Event::Source(0b001),
                    add(A),
                    Pass(905),
                    Vanish(A),
                    add(B),
                    Pass(905),
                    add(B),
                    Lose(Loss::RolledBack),
                    Lose(Loss::JournalRemoved),
                ],
            ],
            events: [
                vec![add(A), add(B), Wire(A), Wire(B), del(A), LateDel(A)],
                vec![Lose(Loss::RolledBack), Lose(Loss::JournalRemoved), Pass(31)],
            ]
            .concat(),
            agreed: 7,
        },
        Field {
            name: "the same without numbers of namespaces",
            rules: Rules {
                has_cookies: false,
                ..NODE
            },
            beginnings: vec![
                fresh(),
                vec![
                    Event::Source(0b001),
                    add(A),
                    add(B),
                    Pass(905),
                    Vanish(A),
                    add(B),
                    Pass(905),
                    add(B),
                    add(A),
                    Lose(Loss::RolledBack),
                    Lose(Loss::JournalRemoved),
                ],
            ],
            events: [
                vec![
                    add(A),
                    add(B),
                    Wire(A),
                    Wire(B),
                    Vanish(A),
                    del(A),
                    LateDel(A),
                ],
                vec![
                    Lose(Loss::RolledBack),
                    Lose(Loss::JournalRemoved),
                    Pass(905),
                ],
            ]
            .concat(),
            agreed: 6,
        },
        Field {
            name: "lists, GC and reclaim",
            rules: NODE,
            beginnings: vec![
                fresh(),
                running(),
                vec![
                    add(A),
                    Reboot { keeps_state: true },
                    Event::Add(B, Who::TheOriginal),
                ],
            ],
            events: [
                vec![add(A), add(B), Wire(B), Cached(A), Cached(B), Vanish(A)],
                vec![Lose(Loss::RunWiped), Lose(Loss::LockFolderRemoved)],
                vec![
                    Gc { forgets: None },
                    Gc { forgets: Some(B) },
                    Reclaim,
                    Pass(905),
                ],
                vec![Blind(Blindness::Namespaces), Blind(Blindness::No)],
            ]
            .concat(),
            agreed: 5,
        },
        Field {
            name: "boots",
            rules: NODE,
            beginnings: vec![
                fresh(),
                vec![add(A), Reboot { keeps_state: true }, BootIdReadable(false)],
            ],
            events: [
                vec![add(A), add(B), Wire(A), del(A), Pass(31)],
                vec![BootIdReadable(false), BootIdReadable(true)],
                vec![
                    Reboot { keeps_state: true },
                    Lose(Loss::Deleted),
                    Lose(Loss::RunWiped),
                ],
            ]
            .concat(),
            agreed: 6,
        },
        Field {
            name: "the original beside us",
            rules: NODE,
            beginnings: vec![fresh(), running()],
            events: [
                vec![add(A), add(A_NET1), add(B), Wire(A), del(A_NET1), del(B)],
                [A, B].map(|pod| Event::Add(pod, Who::TheOriginal)).to_vec(),
                [A, B].map(|pod| Event::Del(pod, Who::TheOriginal)).to_vec(),
                vec![Lose(Loss::OurKeyRemoved), Lose(Loss::Deleted), Pass(31)],
            ]
            .concat(),
            agreed: 5,
        },
        Field {
            name: "a journal that misses what the original did",
            rules: NODE,
            beginnings: vec![vec![
                Event::Source(0b001),
                add(A),
                Event::Del(A, Who::TheOriginal),
                Event::Add(B, Who::TheOriginal),
                Lose(Loss::Deleted),
            ]],
            events: vec![
                add(A),
                add(B),
                del(A),
                LateDel(A),
                Pass(31),
                Event::Source(0b111),
            ],
            agreed: 6,
        },
        Field {
            name: "a damaged journal",
            rules: NODE,
            beginnings: vec![fresh(), running()],
            events: [
                vec![add(A), add(B), del(A), del(B)],
                vec![
                    Lose(Loss::JournalEntryRemoved),
                    Lose(Loss::JournalEntryDamaged),
                    Lose(Loss::JournalTorn),
                ],
                vec![Lose(Loss::Deleted), Lose(Loss::RolledBack)],
            ]
            .concat(),
            agreed: 5,
        },
        Field {
            name: "pods that only the lists show",
            rules: Rules {
                kernel_shows_addresses: false,
                ..NODE
            },
            beginnings: vec![vec![
                Event::Source(0b001),
                add(A),
                Wire(A),
                Pass(3700),
                Vanish(A),
                add(B),
            ]],
            events: [
                vec![add(A), Wire(B), del(A), Vanish(B), Pass(905)],
                vec![Lose(Loss::RolledBack), Lose(Loss::JournalRemoved)],
                vec![Gc { forgets: None }, Reclaim],
            ]
            .concat(),
            agreed: 6,
        },
        Field {
            name: "releases",
            rules: Rules {
                releases_are_final: true,
                ..NODE
            },
            beginnings: vec![fresh()],
            events: [
                vec![add(A), add(B), del(A), del(B), LostAdd(B), Wire(A)],
                vec![Lose(Loss::Deleted), Pass(31)],
            ]
            .concat(),
            agreed: 6,
        },
        Field {
            name: "older and newer answers",
            rules: Rules {
                is_ticking: true,
                ..NODE
            },
            beginnings: vec![fresh()],
            events: [
                vec![Begin(A), GoOn(A), add(A), add(B), del(B)],
                vec![Event::Source(0b001), Event::Source(0b111)],
            ]
            .concat(),
            agreed: 5,
        },
        Field {
            name: "calls under way",
            rules: NODE,
            beginnings: vec![fresh(), running()],
            events: [
                vec![
                    Begin(A),
                    GoOn(A),
                    Begin(B),
                    GoOn(B),
                    add(B),
                    LostAdd(B),
                    del(B),
                ],
                vec![
                    Lose(Loss::Deleted),
                    Lose(Loss::Damaged),
                    Lose(Loss::JournalTorn),
                ],
                vec![Event::Source(0b001), Event::Source(0b111)],
            ]
            .concat(),
            agreed: 5,
        },
        Field {
            name: "kills and a lock that is lost",
            rules: NODE,
            beginnings: vec![fresh(), running()],
            events: {
                let mut events = vec![add(A), del(B), Lose(Loss::Deleted)];
                events.extend(kills(7).map(|kill| Event::KilledAdd(B, kill)));
                events.extend(kills(4).map(|kill| Event::KilledDel(A, kill)));
                events.extend((0..30).map(|step| Event::RacedAdd(B, A, step)));
                events.extend((0..16).map(|step| Event::RacedDel(A, B, step)));
                events
            },
            agreed: 3,
        },
        Field {
            name: "kills after a lock is lost",
            rules: NODE,
            beginnings: vec![fresh()],
            events: {
                let mut events = vec![add(A), add(B), Lose(Loss::Deleted)];
                let kills = (12..32).flat_map(|step| (0..4).map(move |changes| (step, changes)));
                events.extend(
                    kills.map(|(step, changes)| Event::KilledRacedAdd(B, A, step, changes)),
                );
                events
            },
            agreed: 3,
        },
        Field {
            name: "any files lost together",
            rules: COPIES,
            beginnings: vec![
                fresh(),
                vec![add(A), Event::Keep, add(B), Wire(A), del(A)],
                vec![add(A), Event::Keep, Reboot { keeps_state: true }, add(A)],
            ],
            events: [
                vec![add(A), add(B), del(A), Pass(31), Event::Keep],
                all_changes().collect(),
            ]
            .concat(),
            agreed: 3,
        },
        Field {
            name: "copies",
            rules: COPIES,
            beginnings: vec![
                fresh(),
                vec![add(A), Event::Keep, Reboot { keeps_state: true }],
            ],
            events: [
                vec![add(A), add(B), del(A), Event::Keep],
                FileSet::all()
                    .map(|files| Event::Change(files, Fate::KeptPutBack))
                    .collect(),
            ]
            .concat(),
            agreed: 5,
        },
        Field {
            name: "the original and lost files",
            rules: COPIES,
            beginnings: vec![fresh(), running(), vec![add(A), Event::Keep, add(B)]],
            events: [
                vec![add(A), add(B), del(A), Pass(31), Event::OriginalsVersion],
                vec![
                    Event::OriginalStartsEmpty(B),
                    Event::Add(B, Who::TheOriginal),
                ],
                vec![Event::Del(A, Who::TheOriginal)],
                changes(FileSet::STATE).collect(),
                vec![Event::Change(FileSet::JOURNAL, Fate::Removed)],
                vec![Event::Change(FileSet::LOCK, Fate::LastPutBack)],
            ]
            .concat(),
            agreed: 4,
        },
        Field {
            name: "writes that fail, and losses",
            rules: COPIES,
            beginnings: vec![fresh(), running()],
            events: [
                vec![add(A), add(B), del(A), del(B), Pass(31)],
                ALL_FAULTS.map(|fault| Event::FaultyAdd(B, fault)).to_vec(),
                ALL_FAULTS.map(|fault| Event::FaultyDel(A, fault)).to_vec(),
                vec![
                    Event::Change(FileSet::STATE, Fate::Removed),
                    Event::Change(FileSet::STATE, Fate::LastPutBack),
                    Event::Change(FileSet::LOCK, Fate::LastPutBack),
                ],
            ]
            .concat(),
            agreed: 4,
        },
        Field {
            name: "appends that stop at any byte",
            rules: COPIES,
            beginnings: vec![vec![add(A)]],
            events: [
                vec![add(A), Event::Change(FileSet::STATE, Fate::Removed)],
                (0..330)
                    .map(|bytes| Event::FaultyAdd(B, Fault::JournalStopsAfter(bytes)))
                    .collect(),
                (0..330)
                    .map(|bytes| Event::FaultyDel(A, Fault::JournalStopsAfter(bytes)))
                    .collect(),
            ]
            .concat(),
            agreed: 2,
        },
        Field {
            name: "slow teardowns and a changing source",
            rules: NODE,
            beginnings: vec![fresh(), running()],
            events: [
                vec![add(A), add(B), Wire(A), Event::SlowDel(A), LateDel(A)],
                vec![
                    Pass(5),
                    Pass(31),
                    Lose(Loss::Deleted),
                    Lose(Loss::JournalRemoved),
                ],
                vec![
                    Event::Source(0b001),
                    Event::Source(0b111),
                    Event::SourceElsewhere,
                ],
            ]
            .concat(),
            agreed: 5,
        },
    ]
}
