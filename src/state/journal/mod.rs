//! The journal of grants: the state of a save, called the base, and a line for each save after it. It is outside the lock's folder. With a
//! record in the lock file that names one of its saves, it is the state again when that is lost.
//!
//! A header line (`azure-vnet-ipam-journal 2`, boot ID, length and checksum of the base), the base, and its generation in fixed width.
//! Then lines: generation, the generation before it, checksum, the changes as JSON, and the generation again in fixed width, by which
//! the last save is found without reading the rest. Nothing is flushed to the disk, as a journal of another boot says nothing.

mod line;

pub(super) use line::print_line;

use line::{END, Line, parse_end, print_end};

use super::State;
use super::files::{Files, OpenJournal, StateFile};
use super::lock::is_same_boot;
use crate::codec::{BASIS, checksum};
use crate::host::ReadOutcome;
use crate::ipam::{Change, Ipam, Moment};

/// What the header begins with.
const MAGIC: &str = "azure-vnet-ipam-journal 2 ";
/// Larger files are not read (promise P9): more than twice the largest state.
const LIMIT: usize = 160 << 20;
/// A smaller file is not written anew for its size.
const SMALL: u64 = 64 << 10;

/// The contents of the journal.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// The base with every line that continues it.
    chain: Option<Box<State>>,
    /// The generations of those saves.
    generations: Vec<u64>,
    /// The changes of lines behind a gap.
    loose: Vec<Change>,
    /// The boot of the header; `None` where it cannot be read.
    pub boot_id: Option<String>,
    /// The newest generation of the chain and of the lines behind a gap.
    pub newest: Option<u64>,
    /// Whether its last line is whole.
    pub ends_whole: bool,
}

impl Journal {
    /// Reads the journal. `None` where there is none, or where it is of another boot, whose pods are all gone. One that cannot be read has
    /// no chain.
    pub fn read(files: &dyn Files, boot_id: Option<&str>) -> Option<Journal> {
        match files.read(StateFile::Journal, LIMIT, 0) {
            Ok(ReadOutcome::Missing) => None,
            Ok(ReadOutcome::Read(bytes)) => Journal::parse(&bytes, boot_id, files.now()),
            Ok(ReadOutcome::TooLarge) | Err(_) => Some(Journal::default()),
        }
    }

    fn parse(bytes: &[u8], boot_id: Option<&str>, now: Moment) -> Option<Journal> {
        let mut journal = Journal {
            ends_whole: bytes.ends_with(b"\n"),
            ..Journal::default()
        };
        let (header, rest) = split_line(bytes);
        let Some((of_boot, length, checksum)) = parse_header(header) else {
            return Some(journal);
        };
        if !is_same_boot(Some(of_boot), boot_id) {
            return None;
        }
        journal.boot_id = Some(of_boot.to_owned());
        let Some((base, rest)) = rest.split_at_checked(length) else {
            return Some(journal);
        };
        let (end, mut lines) = rest.split_at_checked(END).unwrap_or((rest, b""));
        let base = parse_end(end)
            .filter(|generation| base_checksum(base, *generation) == checksum)
            .and_then(|generation| {
                let state = State::parse(base, Some(of_boot), now).ok()?;
                Some((generation, state))
            });
        let mut last = None;
        if let Some((generation, state)) = base {
            journal.chain = Some(state);
            journal.generations.push(generation);
            last = Some(generation);
        }
        while !lines.is_empty() {
            let (line, rest) = split_line(lines);
            lines = rest;
            let Some(line) = std::str::from_utf8(line).ok().and_then(Line::parse) else {
                continue;
            };
            journal.newest = journal.newest.max(Some(line.generation));
            match &mut journal.chain {
                Some(state) if Some(line.before) == last => {
                    state.ipam_mut().replay(&line.changes);
                    last = Some(line.generation);
                    journal.generations.push(line.generation);
                }
                _ => journal.loose.extend(line.changes),
            }
        }
        journal.newest = journal.newest.max(last);
        if let (Some(state), Some(last)) = (&mut journal.chain, last) {
            state.saved = Some(last);
            state.ipam_mut().generation = last;
            state.ipam_mut().changes = Default::default();
        }
        Some(journal)
    }

    /// The generation of the first save in the chain, the base.
    pub fn first(&self) -> Option<u64> {
        self.generations.first().copied()
    }

    /// The generation of the last save in the chain.
    pub fn last(&self) -> Option<u64> {
        self.generations.last().copied()
    }

    /// Whether the save of this generation is in the chain.
    pub fn has(&self, generation: u64) -> bool {
        self.generations.contains(&generation)
    }

    /// The state that the chain makes.
    pub fn into_state(self) -> Option<Box<State>> {
        self.chain
    }

    /// What the chain and every other line hold, and those lines.
    pub fn into_holds(self) -> (Option<Box<Ipam>>, Vec<Change>) {
        let mut state = self.chain.unwrap_or_default();
        state.ipam_mut().replay_holds(&self.loose);
        let ipam = std::mem::take(state.ipam_mut());
        (Some(Box::new(ipam)), self.loose)
    }
}

/// The generation of the last save, as the last bytes of the file tell, and the file.
pub(super) fn end(files: &dyn Files) -> Option<(u64, OpenJournal)> {
    let mut end = [0; END];
    let journal = files.open_journal(&mut end).ok()?;
    Some((parse_end(&end)?, journal))
}

/// The generation of the last save, for a caller that does not write.
pub(super) fn last_generation(files: &dyn Files) -> Option<u64> {
    let mut end = [0; END];
    files.read_journal_end(&mut end).ok()?;
    parse_end(&end)
}

/// Whether a journal of this length is to be written anew, beside a state of `state` bytes.
pub(super) fn is_grown(length: u64, state: usize) -> bool {
    length > SMALL.max((state as u64).saturating_mul(2))
}

/// The text of a journal with this state as its base, and nothing else.
pub(super) fn print_base(boot_id: &str, state: &[u8], generation: u64) -> Vec<u8> {
    let (length, checksum) = (state.len(), base_checksum(state, generation));
    let mut text = format!("{MAGIC}{boot_id} {length} {checksum:016x}\n").into_bytes();
    text.reserve(length + END);
    text.extend_from_slice(state);
    text.extend_from_slice(print_end(generation).as_bytes());
    text
}

fn split_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    bytes.split_at(end.map_or(bytes.len(), |end| end + 1))
}

/// The boot ID in a header, and the length and the checksum of the base.
fn parse_header(line: &[u8]) -> Option<(&str, usize, u64)> {
    let line = std::str::from_utf8(line).ok()?.strip_prefix(MAGIC)?;
    let mut fields = line.strip_suffix('\n')?.split(' ');
    let (boot_id, length) = (fields.next()?, fields.next()?.parse().ok()?);
    let checksum = u64::from_str_radix(fields.next()?, 16).ok()?;
    Some((boot_id, length, checksum))
}

fn base_checksum(state: &[u8], generation: u64) -> u64 {
    checksum(checksum(BASIS, state), &generation.to_le_bytes())
}
