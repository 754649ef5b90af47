//! The fields of the search. A field is a kind of problem with its events.

use azure_vnet_ipam::ipam::Family;

use super::events::{ALL_FATES, Answer, Blindness, Event, Fate, FileSet, Loss, Who};
use super::node::{Fault, Kill};
use super::world::Rules;

/// The pods: the first container's interface, its second interface, and another container's interface.
const A: u8 = 0;
const A_NET1: u8 = 1;
const B: u8 = 2;
/// The pod that is an agent, in fields that have one.
const AGENT: u8 = 4;

const NODE: Rules = Rules {
    families: &[Family::V4],
    addresses: 3,
    second_interface: Some(A_NET1),
    agent: None,
    has_cookies: true,
    kernel_shows_addresses: true,
    is_ticking: false,
    releases_are_final: false,
    losses_are_seen_once: false,
    has_copies: false,
};

/// Copies of files are put back.
const COPIES: Rules = Rules {
    has_copies: true,
    ..NODE
};
const LOSSES_SEEN_ONCE: Rules = Rules {
    losses_are_seen_once: true,
    ..NODE
};
const WITHOUT_COOKIES: Rules = Rules {
    has_cookies: false,
    ..NODE
};
const ONLY_LISTS_SHOW: Rules = Rules {
    kernel_shows_addresses: false,
    ..NODE
};
const WITH_AGENT: Rules = Rules {
    agent: Some(AGENT),
    ..NODE
};
const RELEASES_ARE_FINAL: Rules = Rules {
    releases_are_final: true,
    ..NODE
};
const TICKING: Rules = Rules {
    is_ticking: true,
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

/// A field that begins with a fresh node.
fn field(name: &'static str, rules: Rules, agreed: u8) -> Field {
    Field {
        name,
        rules,
        beginnings: vec![Vec::new()],
        events: Vec::new(),
        agreed,
    }
}

impl Field {
    /// Adds another beginning.
    fn from<const N: usize>(mut self, beginning: [Event; N]) -> Field {
        self.beginnings.push(beginning.into());
        self
    }

    /// Removes the beginning with a fresh node.
    fn not_fresh(mut self) -> Field {
        self.beginnings.remove(0);
        self
    }

    fn with(mut self, events: impl IntoIterator<Item = Event>) -> Field {
        self.events.extend(events);
        self
    }
}

fn add(pod: u8) -> Event {
    Event::Add(pod, Who::We)
}

fn del(pod: u8) -> Event {
    Event::Del(pod, Who::We)
}

fn kills(most: u32) -> impl Iterator<Item = Kill> {
    (0..=most).map(|after| Kill { after })
}

/// All events.
fn all_events() -> Vec<Event> {
    use Event::{
        BootIdReadable, Cached, Configure, Gc, GoOn, KilledAdd, KilledDel, LateDel, Lose, LostAdd,
        RacedAdd, RacedDel, Reboot, Reclaim, Source, Vanish, Wait, WipeCache,
    };
    let mut events = Vec::new();
    for pod in [A, A_NET1, B] {
        events.extend([
            add(pod),
            Event::Begin(pod),
            GoOn(pod),
            del(pod),
            Configure(pod),
        ]);
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
    events.extend([31, 65, 905, 3700].map(Wait));
    events.extend([true, false].map(|keeps_state| Reboot { keeps_state }));
    events.extend([true, false].map(BootIdReadable));
    events.extend([Blindness::No, Blindness::Namespaces, Blindness::Cache].map(Event::Blind));
    events.extend([None, Some(A), Some(B)].map(|forgets| Gc { forgets }));
    events.extend([WipeCache, Reclaim]);
    events.extend(all_changes());
    events.extend([Event::Keep, Event::OriginalsVersion, Event::SourceElsewhere]);
    events.extend([A, B].map(Event::OriginalStartsEmpty));
    events.extend([A, B].map(Event::SlowDel));
    events.extend([A, B].map(Event::StuckDel));
    events.extend([A, B].map(Event::Retry));
    events.extend(ALL_FAULTS.map(|fault| Event::FaultyAdd(B, fault)));
    events.extend(ALL_FAULTS.map(|fault| Event::FaultyDel(A, fault)));
    events
}

/// Every fate of every set of files.
fn all_changes() -> impl Iterator<Item = Event> {
    FileSet::all().flat_map(|files| ALL_FATES.map(|fate| Event::Change(files, fate)))
}

const ALL_FAULTS: [Fault; 5] = [
    Fault::NoSpaceForBackup,
    Fault::BackupNotReadable,
    Fault::NoInode,
    Fault::NoRecord,
    Fault::OnlyStateIsWritten,
];

const ALL_LOSSES: [Loss; 10] = [
    Loss::Deleted,
    Loss::Emptied,
    Loss::Damaged,
    Loss::RolledBack,
    Loss::OurKeyRemoved,
    Loss::BackupRemoved,
    Loss::BackupEmptied,
    Loss::BackupDamaged,
    Loss::LockFolderRemoved,
    Loss::RunWiped,
];

const ALL_ANSWERS: [Answer; 4] = [Answer::Good, Answer::Empty, Answer::Unmatched, Answer::None];

/// The fields: one with all events and a small depth from several beginnings, and one with a larger depth for each
/// kind of problem.
pub(super) fn fields() -> Vec<Field> {
    use super::events::Answer::{Good, Unmatched};
    use Event::{
        Answer, Begin, Blind, BootIdReadable, Cached, Change, Configure, FaultyAdd, FaultyDel, Gc,
        GoOn, Keep, KilledAdd, KilledDel, KilledRacedAdd, LateDel, Lose, LostAdd,
        OriginalStartsEmpty, OriginalsVersion, RacedAdd, RacedDel, Reboot, Reclaim, Retry, SlowDel,
        Source, SourceElsewhere, StuckDel, Vanish, Wait,
    };
    use Loss::*;
    let theirs = |pod| Event::Add(pod, Who::TheOriginal);
    let their_del = |pod| Event::Del(pod, Who::TheOriginal);
    let reboot = || Reboot { keeps_state: true };
    let gc = |forgets| Gc { forgets };
    let kills_after_a_lost_lock = (12..32).flat_map(|step| (0..4).map(move |n| (step, n)));
    let last_back = |files| Change(files, Fate::LastPutBack);
    vec![
        field("everything", NODE, 2)
            .from([add(A), Configure(A)])
            .from([add(A), Configure(A), add(A_NET1), add(B)])
            .from([
                add(A),
                Configure(A),
                add(B),
                Configure(B),
                Wait(905),
                Vanish(A),
            ])
            .from([add(A), Configure(A), theirs(B)])
            .with(all_events()),
        field("a lost state and useless answers", LOSSES_SEEN_ONCE, 7)
            .from([add(A), Lose(Deleted), Lose(BackupRemoved)])
            .with([add(A), add(B), Configure(A), del(A), Wait(31)])
            .with([Lose(Deleted), Lose(BackupRemoved)])
            .with([Answer(Good), Answer(Unmatched)]),
        field("old copies and reused inodes", NODE, 7)
            .from([
                Source(0b001),
                add(A),
                Wait(905),
                Vanish(A),
                add(B),
                Wait(905),
                add(B),
                Lose(RolledBack),
                Lose(BackupRemoved),
            ])
            .with([
                add(A),
                add(B),
                Configure(A),
                Configure(B),
                del(A),
                LateDel(A),
            ])
            .with([Lose(RolledBack), Lose(BackupRemoved), Wait(31)]),
        field(
            "old copies and reused inodes without namespace cookies",
            WITHOUT_COOKIES,
            6,
        )
        .from([
            Source(0b001),
            add(A),
            add(B),
            Wait(905),
            Vanish(A),
            add(B),
            Wait(905),
            add(B),
            add(A),
            Lose(RolledBack),
            Lose(BackupRemoved),
        ])
        .with([
            add(A),
            add(B),
            Configure(A),
            Configure(B),
            Vanish(A),
            del(A),
        ])
        .with([LateDel(A), Lose(RolledBack), Lose(BackupRemoved), Wait(905)]),
        field("lists, GC and reclaim", NODE, 5)
            .from([add(A), Configure(A)])
            .from([add(A), reboot(), theirs(B)])
            .with([
                add(A),
                add(B),
                Configure(B),
                Cached(A),
                Cached(B),
                Vanish(A),
            ])
            .with([Lose(RunWiped), Lose(LockFolderRemoved)])
            .with([gc(None), gc(Some(B)), Reclaim, Wait(905)])
            .with([Blind(Blindness::Namespaces), Blind(Blindness::No)]),
        field("boots", NODE, 6)
            .from([add(A), reboot(), BootIdReadable(false)])
            .with([add(A), add(B), Configure(A), del(A), Wait(31)])
            .with([false, true].map(BootIdReadable))
            .with([reboot(), Lose(Deleted), Lose(RunWiped)]),
        field("the original beside us", NODE, 5)
            .from([add(A), Configure(A)])
            .with([
                add(A),
                add(A_NET1),
                add(B),
                Configure(A),
                del(A_NET1),
                del(B),
            ])
            .with([theirs(A), theirs(B), their_del(A), their_del(B)])
            .with([Lose(OurKeyRemoved), Lose(Deleted), Wait(31)]),
        field("a backup that misses what the original did", NODE, 6)
            .not_fresh()
            .from([
                Source(0b001),
                add(A),
                their_del(A),
                theirs(B),
                Lose(Deleted),
            ])
            .with([add(A), add(B), del(A), LateDel(A), Wait(31), Source(0b111)]),
        field("a damaged backup", NODE, 5)
            .from([add(A), Configure(A)])
            .with([add(A), add(B), del(A), del(B)])
            .with([BackupRemoved, BackupEmptied, BackupDamaged].map(Lose))
            .with([Lose(Deleted), Lose(RolledBack)]),
        field("pods that only the lists show", ONLY_LISTS_SHOW, 6)
            .not_fresh()
            .from([
                Source(0b001),
                add(A),
                Configure(A),
                Wait(3700),
                Vanish(A),
                add(B),
            ])
            .with([add(A), Configure(B), del(A), Vanish(B), Wait(905)])
            .with([Lose(RolledBack), Lose(BackupRemoved)])
            .with([gc(None), Reclaim]),
        field("releases", RELEASES_ARE_FINAL, 6)
            .with([add(A), add(B), del(A), del(B), LostAdd(B), Configure(A)])
            .with([Lose(Deleted), Wait(31)]),
        field("older and newer answers", TICKING, 5)
            .with([Begin(A), GoOn(A), add(A), add(B), del(B)])
            .with([Source(0b001), Source(0b111)]),
        field("calls under way", NODE, 5)
            .from([add(A), Configure(A)])
            .with([
                Begin(A),
                GoOn(A),
                Begin(B),
                GoOn(B),
                add(B),
                LostAdd(B),
                del(B),
            ])
            .with([Lose(Deleted), Lose(Damaged), Lose(BackupDamaged)])
            .with([Source(0b001), Source(0b111)]),
        field("kills and a lock that is lost", NODE, 3)
            .from([add(A), Configure(A)])
            .with([add(A), del(B), Lose(Deleted)])
            .with(kills(7).map(|kill| KilledAdd(B, kill)))
            .with(kills(4).map(|kill| KilledDel(A, kill)))
            .with((0..30).map(|step| RacedAdd(B, A, step)))
            .with((0..16).map(|step| RacedDel(A, B, step))),
        field("kills after a lock is lost", NODE, 3)
            .with([add(A), add(B), Lose(Deleted)])
            .with(kills_after_a_lost_lock.map(|(step, n)| KilledRacedAdd(B, A, step, n))),
        field("any files lost together", COPIES, 3)
            .from([add(A), Keep, add(B), Configure(A), del(A)])
            .from([add(A), Keep, reboot(), add(A)])
            .with([add(A), add(B), del(A), Wait(31), Keep])
            .with(all_changes()),
        field("copies", COPIES, 5)
            .from([add(A), Keep, reboot()])
            .with([add(A), add(B), del(A), Keep])
            .with(FileSet::all().map(|files| Change(files, Fate::KeptPutBack))),
        field("the original and lost files", COPIES, 4)
            .from([add(A), Configure(A)])
            .from([add(A), Keep, add(B)])
            .with([add(A), add(B), del(A), Wait(31), OriginalsVersion])
            .with([OriginalStartsEmpty(B), theirs(B), their_del(A)])
            .with(ALL_FATES.map(|fate| Change(FileSet::STATE, fate)))
            .with([
                Change(FileSet::BACKUP, Fate::Removed),
                last_back(FileSet::LOCK),
            ]),
        field("writes that fail, and losses", COPIES, 4)
            .from([add(A), Configure(A)])
            .with([add(A), add(B), del(A), del(B), Wait(31)])
            .with(ALL_FAULTS.map(|fault| FaultyAdd(B, fault)))
            .with(ALL_FAULTS.map(|fault| FaultyDel(A, fault)))
            .with([Change(FileSet::STATE, Fate::Removed)])
            .with([FileSet::STATE, FileSet::LOCK].map(last_back)),
        field("slow teardowns and a changing source", NODE, 5)
            .from([add(A), Configure(A)])
            .with([add(A), add(B), Configure(A), SlowDel(A), LateDel(A)])
            .with([Wait(5), Wait(31), Lose(Deleted), Lose(BackupRemoved)])
            .with([Source(0b001), Source(0b111), SourceElsewhere]),
        field("sandboxes that are retried", NODE, 6)
            .not_fresh()
            .from([Source(0b001), add(A), Vanish(A)])
            .from([add(A), Configure(A), Retry(A), add(A)])
            .with([
                add(A),
                Configure(A),
                Vanish(A),
                Retry(A),
                del(A),
                LateDel(A),
            ])
            .with([add(B), Reclaim, gc(None), Wait(31)])
            .with([Blind(Blindness::Namespaces), Blind(Blindness::No)]),
        field("sandboxes that cannot be removed", NODE, 6)
            .from([Source(0b001), add(A), Configure(A), StuckDel(A), Wait(31)])
            .with([
                add(A),
                add(B),
                Configure(A),
                Configure(B),
                StuckDel(A),
                SlowDel(B),
            ])
            .with([Wait(31), Wait(905), reboot(), Lose(Deleted)]),
        field("an agent without evidence", WITH_AGENT, 6)
            .from([add(AGENT), Wait(3700)])
            .with([
                add(AGENT),
                del(AGENT),
                add(A),
                add(B),
                Vanish(A),
                Configure(B),
            ])
            .with([Wait(905), Wait(3700), Reclaim, gc(None), gc(Some(AGENT))])
            .with([reboot(), Lose(Deleted)]),
    ]
}
