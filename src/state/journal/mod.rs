//! The journal of grants: the grants and releases of this boot, kept in another folder than the state. When the state is lost, it alone
//! knows a grant whose address is not configured yet.
//!
//! A header line (`azure-vnet-ipam-journal 1`, boot ID, first number, how many entries were written with it, generation), then a line for each holder that a call changed:
//! number, checksum, JSON. The state says which number it contains, and how long the file is then; where the two do not fit, the file
//! is rewritten from the state. Nothing is flushed to the disk, as a journal of another boot says nothing.

mod line;
mod other_writer;
mod write;

use line::parse_line;
pub use other_writer::note_other_writer;
use other_writer::other_writer;
pub use write::{note_release, prepare_update, write_update};

use super::position::{MOST_COUNTED, Position};
use super::{KeyStatus, QUARANTINE, State};
use crate::host::ReadOutcome;
use crate::ipam::{JournalEntry, Moment};
use crate::state::files::{Files, StateFile};

/// What the header begins with.
const MAGIC: &str = "azure-vnet-ipam-journal 1";
/// Larger files are not read (promise P9): the journal of 65,536 holders takes half of that.
const LIMIT: usize = 64 << 20;
/// A smaller file is not compacted.
const SMALL: u64 = 64 << 10;

/// The contents of the journal.
#[derive(Debug, Default)]
pub struct Journal {
    /// Its entries, even where it is incomplete.
    pub entries: Vec<JournalEntry>,
    /// Why other grants may be missing, if so.
    pub distrusted: Option<String>,
    /// The highest generation in it.
    pub generation: u64,
    first: u64,
    /// The length of its whole lines, in bytes.
    whole: u64,
    is_torn: bool,
}

impl Journal {
    /// Reads the journal. A file that cannot be read counts as incomplete.
    pub fn read(files: &dyn Files, boot_id: Option<&str>) -> Journal {
        let doubtful = |why: &str| Journal {
            distrusted: Some(why.to_owned()),
            ..Journal::default()
        };
        match files.read(StateFile::Journal, LIMIT, 0) {
            Ok(ReadOutcome::Read(bytes)) => match std::str::from_utf8(&bytes) {
                Ok(text) => Journal::parse(text, boot_id),
                Err(_) => Journal {
                    distrusted: Some("it is not text".to_owned()),
                    ..Journal::parse(&String::from_utf8_lossy(&bytes), boot_id)
                },
            },
            Ok(ReadOutcome::Missing) => doubtful("it is not there"),
            Ok(ReadOutcome::TooLarge) => doubtful("it is too large"),
            Err(e) => doubtful(&crate::host::io_reason(&e)),
        }
    }

    /// Parses the text of a journal. Entries of another boot are left out. Without a `boot_id` it counts as incomplete.
    pub fn parse(text: &str, boot_id: Option<&str>) -> Journal {
        // The last line may be torn. Its grant was never printed.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut lines = text.get(..whole).unwrap_or_default().lines();
        let header = lines.next().and_then(|line| {
            let mut fields = line.strip_prefix(MAGIC)?.split_whitespace();
            let (boot, first) = (fields.next()?, fields.next()?);
            let (count, generation) = (fields.next()?, fields.next()?);
            let number = |word: &str| word.parse().ok().filter(|n: &u64| *n <= MOST_COUNTED);
            Some((boot, number(first)?, number(count)?, number(generation)?))
        });
        let Some((boot, first, count, generation)) = header else {
            return Journal {
                distrusted: Some("its first line is damaged".to_owned()),
                ..Journal::default()
            };
        };
        let mut journal = Journal {
            first,
            generation,
            whole: whole as u64,
            is_torn: whole < text.len(),
            ..Journal::default()
        };
        match boot_id {
            Some(current) if current == boot => {}
            Some(_) => {
                // No pod of that boot is alive.
                journal.distrusted = Some("it is of another boot".to_owned());
                return journal;
            }
            None => journal.distrusted = Some("the boot ID cannot be read".to_owned()),
        }
        for line in lines {
            let expected = journal.last() + 1;
            match parse_line(line) {
                Some(entry) => {
                    if entry.sequence != expected {
                        journal.distrusted = Some(format!("entry {expected} is missing"));
                    }
                    journal.generation = journal.generation.max(entry.generation);
                    journal.entries.push(entry);
                }
                None => journal.distrusted = Some(format!("entry {expected} is damaged")),
            }
        }
        // They were written together with the header, so a kill cannot have cut them off.
        if journal.last() + 1 < first.saturating_add(count) {
            journal.distrusted = Some(format!("entry {} is missing", journal.last() + 1));
        }
        journal
    }

    /// The number of its last entry.
    fn last(&self) -> u64 {
        let last = self.entries.last().map(|entry| entry.sequence);
        last.unwrap_or(self.first.saturating_sub(1))
    }

    /// Applies the entries that came after an old copy of the state, if none is missing. Returns their number.
    pub fn catch_up(files: &dyn Files, boot_id: Option<&str>, state: &mut State) -> usize {
        let Some(position) = state
            .journal
            .filter(|_| matches!(state.key_status, KeyStatus::Ours))
        else {
            return 0;
        };
        if state.is_empty() || files.size(StateFile::Journal) == Some(position.size) {
            return 0;
        }
        let journal = Journal::read(files, boot_id);
        let missed = journal
            .after(&position)
            .filter(|_| journal.distrusted.is_none());
        let Some(missed) = missed.filter(|missed| !missed.is_empty()) else {
            return 0;
        };
        // A journal that is behind the state belongs to another line of states.
        if journal.generation < state.ipam().generation {
            return 0;
        }
        let ipam = state.ipam_mut();
        ipam.replay(missed);
        ipam.generation = ipam.generation.max(journal.generation);
        state.journal = Some(Position {
            sequence: journal.last(),
            size: journal.whole,
            ..position
        });
        missed.len()
    }

    /// Checks that the journal has every grant of this boot: it is whole, it contains the last grant that was noted, and no program
    /// without a journal held the lock within the [`QUARANTINE`].
    ///
    /// # Errors
    /// Why a grant may be missing.
    pub fn check_complete(
        &self,
        files: &dyn Files,
        last: Option<u64>,
        now: Moment,
    ) -> Result<(), String> {
        if let Some(why) = &self.distrusted {
            return Err(why.clone());
        }
        if last.is_some_and(|last| self.generation < last) {
            return Err("it is older than the last address that was given".to_owned());
        }
        match other_writer(files) {
            Some(at) if now.since(at) < QUARANTINE => {
                Err("somebody else has used the state a moment ago".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns the entries after the last one that a state contains; `None` where one is missing.
    pub fn after(&self, position: &Position) -> Option<&[JournalEntry]> {
        if position.sequence + 1 < self.first || position.sequence > self.last() {
            return None;
        }
        let skipped = usize::try_from(position.sequence + 1 - self.first).ok()?;
        self.entries.get(skipped..)
    }
}

#[cfg(test)]
mod tests {
    use super::line::{KINDS, print_line};
    use super::*;
    use crate::ipam::{Attachment, ChangeKind, LastWords, NetNs, Owner};
    use crate::state::out::Out;

    const BOOT: Option<&str> = Some("boot-1");

    fn grant(sequence: u64, container_id: &str, address: &str) -> JournalEntry {
        JournalEntry {
            sequence,
            kind: ChangeKind::Granted,
            at: Moment(sequence * 10),
            generation: sequence,
            addresses: vec![(address.parse().unwrap(), sequence)],
            owner: Owner::from_attachment(&Attachment {
                network: "azure".into(),
                container_id: container_id.into(),
                if_name: "eth0".into(),
            }),
        }
    }

    fn text(entries: &[JournalEntry]) -> String {
        let mut out = Out::default();
        for entry in entries {
            print_line(&mut out, entry);
        }
        let lines = String::from_utf8(out.into_bytes()).unwrap();
        // The first of them was written with the header.
        let count = entries.len().min(1);
        format!("{MAGIC} boot-1 5 {count} 4\n{lines}")
    }

    fn three_entries() -> [JournalEntry; 3] {
        [
            grant(5, "c1", "10.1.0.5"),
            grant(6, "c2", "10.1.0.6"),
            grant(7, "c\"3", "fd00::7"),
        ]
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut entries = three_entries();
        let Owner::Attachment(claim) = &mut entries[0].owner else {
            panic!("an attachment")
        };
        claim.pod = Some("default/web-1".into());
        claim.netns = Some(NetNs {
            path: "/run/netns/x".into(),
            id: Some((4, 77)),
            cookie: Some(9),
        });
        entries[1].owner = Owner::from_container_id("c2");
        for (kind, _) in KINDS {
            entries[1].kind = kind;
            let journal = Journal::parse(&text(&entries), BOOT);
            assert_eq!(journal.distrusted, None);
            assert_eq!(journal.entries, entries);
            assert_eq!(journal.generation, 7);
        }
        assert_eq!(Journal::parse(&text(&[]), BOOT).distrusted, None);
    }

    #[test]
    fn a_torn_last_line_was_never_told_to_anybody() {
        let whole = text(&three_entries()[..2]);
        let more = text(&three_entries());
        for end in whole.len()..more.len() {
            let journal = Journal::parse(&more[..end], BOOT);
            assert_eq!(journal.distrusted, None, "{end}");
            assert_eq!(journal.entries.len(), 2, "{end}");
            assert_eq!(journal.whole, whole.len() as u64);
        }
    }

    #[test]
    fn entries_that_came_with_the_header_are_missed() {
        let text = text(&three_entries()[..1]);
        let header = text.find('\n').unwrap() + 1;
        for end in header..text.len() {
            let journal = Journal::parse(&text[..end], BOOT);
            assert_eq!(
                journal.distrusted.as_deref(),
                Some("entry 5 is missing"),
                "{end}"
            );
        }
    }

    #[test]
    fn damage_and_gaps_prove_nothing_but_hold_what_is_left() {
        let good = text(&three_entries());
        let lines: Vec<&str> = good.lines().collect();
        let without = |n: usize| {
            let mut lines = lines.clone();
            lines.remove(n);
            lines.join("\n") + "\n"
        };
        for n in [1, 2] {
            let journal = Journal::parse(&without(n), BOOT);
            assert!(journal.distrusted.is_some(), "line {n}");
            assert_eq!(LastWords::of(&journal.entries).held.len(), 2, "line {n}");
        }
        // The last lines can be cut off without a trace in the file: the note of the last use tells.
        assert_eq!(Journal::parse(&without(3), BOOT).distrusted, None);
        assert_eq!(Journal::parse(&without(3), BOOT).generation, 6);
        assert!(Journal::parse(&without(0), BOOT).distrusted.is_some());
        for at in 0..good.len() {
            let mut bytes = good.clone().into_bytes();
            bytes[at] ^= 1;
            let Ok(text) = String::from_utf8(bytes) else {
                continue;
            };
            let journal = Journal::parse(&text, BOOT);
            let is_seen =
                journal.distrusted.is_some() || journal.entries.len() < 3 || journal.is_torn;
            let header = lines[0].len();
            assert!(is_seen || at <= header, "{at}: {text}");
        }
    }

    #[test]
    fn numbers_without_room_for_the_next_ones_are_damage() {
        let most = u64::MAX;
        for header in [
            format!("{MAGIC} boot-1 {most} 0 1\n"),
            format!("{MAGIC} boot-1 1 {most} 1\n"),
            format!("{MAGIC} boot-1 1 0 {most}\n"),
        ] {
            let journal = Journal::parse(&header, BOOT);
            assert!(
                journal.distrusted.is_some() && journal.last() < 10,
                "{header}"
            );
        }
        let last = |change: &dyn Fn(&mut JournalEntry)| {
            let mut entries = three_entries();
            change(&mut entries[2]);
            Journal::parse(&text(&entries), BOOT)
        };
        assert_eq!(last(&|_| ()).distrusted, None);
        for journal in [
            last(&|entry| entry.sequence = most),
            last(&|entry| entry.generation = most),
            last(&|entry| entry.addresses[0].1 = most),
        ] {
            assert!(journal.distrusted.is_some());
            assert_eq!((journal.last(), journal.generation), (6, 6));
        }
    }

    #[test]
    fn of_another_boot_it_says_nothing_and_without_a_boot_id_it_proves_nothing() {
        let other = Journal::parse(&text(&three_entries()), Some("boot-2"));
        assert!(other.distrusted.is_some() && other.entries.is_empty());
        let unknown = Journal::parse(&text(&three_entries()), None);
        assert!(unknown.distrusted.is_some());
        assert_eq!(unknown.entries.len(), 3);
    }

    #[test]
    fn what_comes_after_a_state_is_told_when_all_of_it_is_there() {
        let journal = Journal::parse(&text(&three_entries()), BOOT);
        let after = |sequence: u64| {
            let position = Position {
                sequence,
                ..Position::default()
            };
            journal.after(&position).map(<[_]>::len)
        };
        assert_eq!(
            [3, 4, 5, 7, 8].map(after),
            [None, Some(3), Some(2), Some(0), None]
        );
    }
}
