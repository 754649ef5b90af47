//! Writes the journal: the changes of a saved state, and the release of a DEL that found no state.

use std::io;

use super::line::{entries, print_line};
use super::{Journal, MAGIC, SMALL};
use crate::ipam::{Attachment, Change, ChangeKind, JournalEntry, Moment, Owner};
use crate::state::files::{Files, StateFile};
use crate::state::out::Out;
use crate::state::position::Position;
use crate::state::{KeyStatus, PendingWork, State};

/// What to write after the state is in place.
#[derive(Debug)]
pub enum JournalUpdate {
    /// Nothing.
    Nothing,
    /// Append lines to a file of this length.
    Append(u64, Vec<u8>),
    /// Replace the whole file.
    Replace(Vec<u8>),
}

impl JournalUpdate {
    /// Whether the whole file is replaced.
    pub fn is_replacement(&self) -> bool {
        matches!(self, JournalUpdate::Replace(_))
    }
}

/// Prepares the journal for a state that is about to be saved, and sets the state's position in it.
pub fn prepare_update(
    state: &mut State,
    files: &dyn Files,
    boot_id: Option<&str>,
    now: Moment,
) -> JournalUpdate {
    let changes = std::mem::take(&mut state.ipam_mut().changes.0);
    if matches!(state.key_status, KeyStatus::Newer { .. }) {
        return JournalUpdate::Nothing;
    }
    let before = state.journal.take();
    // A state without pools knows no holders, but the journal may.
    let (Some(boot_id), false) = (
        boot_id,
        state.is_empty() || matches!(state.pending, PendingWork::Rebuild(_)),
    ) else {
        return JournalUpdate::Nothing;
    };
    let generation = state.ipam().generation;
    let fits = |position: &Position| {
        let is_grown = position.size > SMALL.max(position.compacted.saturating_mul(2));
        let is_whole = files.size(StateFile::Journal) == Some(position.size);
        matches!(state.key_status, KeyStatus::Ours) && is_whole && !is_grown
    };
    if let Some(position) = before.filter(fits) {
        let mut out = Out::default();
        let entries = entries(changes, position.sequence + 1, generation, now);
        for entry in &entries {
            print_line(&mut out, entry);
        }
        let text = out.into_bytes();
        state.journal = Some(Position {
            sequence: position.sequence + entries.len() as u64,
            size: position.size + text.len() as u64,
            ..position
        });
        return match text.is_empty() {
            true => JournalUpdate::Nothing,
            false => JournalUpdate::Append(position.size, text),
        };
    }
    // While the state may lack a grant, a journal made from it would lack it too and count as complete.
    if state.ipam().quarantine.is_some() {
        return JournalUpdate::Nothing;
    }
    let journal = Journal::read(files, Some(boot_id));
    // The grants after an old copy of the state are only in the journal.
    if journal.generation > generation && !journal.entries.is_empty() {
        return JournalUpdate::Nothing;
    }
    // Made from the state, which has every holder.
    let known = before.map_or(0, |position| position.sequence);
    let first = journal.last().max(known) + 1;
    let records = state.ipam().pools().flat_map(|(_, _, pool)| &pool.records);
    let held = records.filter_map(|record| Some((record.address(), record.held()?)));
    let held = held.map(|(address, held)| Change {
        kind: ChangeKind::Granted,
        address,
        held: held.clone(),
    });
    let entries = entries(held.collect(), first, generation, now);
    let mut out = Out::default();
    out.text(&format!(
        "{MAGIC} {boot_id} {first} {} {generation}\n",
        entries.len()
    ));
    for entry in &entries {
        print_line(&mut out, entry);
    }
    let text = out.into_bytes();
    let size = text.len() as u64;
    state.journal = Some(Position {
        sequence: first + entries.len() as u64 - 1,
        size,
        compacted: size,
    });
    JournalUpdate::Replace(text)
}

/// Writes the update. If that fails, the state and the file no longer match, and the next call rewrites the file.
///
/// # Errors
/// The system refuses.
pub fn write_update(prepare_update: JournalUpdate, files: &dyn Files) -> io::Result<()> {
    match prepare_update {
        JournalUpdate::Nothing => Ok(()),
        JournalUpdate::Append(size, text) => files.append(StateFile::Journal, size, &text),
        JournalUpdate::Replace(text) => files.replace(StateFile::Journal, &text),
    }
}

/// Notes a release of an attachment by a DEL that found no state to release it from.
///
/// # Errors
/// There is no journal of this boot, or it cannot be written.
pub fn note_release(
    files: &dyn Files,
    boot_id: Option<&str>,
    attachment: &Attachment,
    now: Moment,
) -> io::Result<()> {
    let journal = Journal::read(files, boot_id);
    if let Some(why) = journal.distrusted {
        return Err(io::Error::other(why));
    }
    let entry = JournalEntry {
        sequence: journal.last() + 1,
        kind: ChangeKind::Released,
        at: now,
        generation: journal.generation,
        addresses: Vec::new(),
        owner: Owner::from_attachment(attachment),
    };
    let mut out = Out::default();
    print_line(&mut out, &entry);
    if journal.is_torn {
        files.truncate(StateFile::Journal, journal.whole)?;
    }
    files.append(StateFile::Journal, journal.whole, &out.into_bytes())
}
