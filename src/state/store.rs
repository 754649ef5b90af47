//! Reads the state with all that stands beside it, and replaces it (promise P5: the whole old state or the whole new one).

use std::io;
use std::mem;

use tracing::{info, warn};

use super::files::{Files, SaveOutcome, StateFile, StoreError};
use super::journal::{self, Journal};
use super::lock::{LOCK_TEXT_LIMIT, LockRecord, LockText, Locked};
use super::model::ROOM;
use super::settle::{StateText, settle};
use super::{State, WriteStamp};
use crate::host::{ReadOutcome, io_reason};
use crate::ipam::{Attachment, Freed, Hint};

/// Larger states than this are not read (promise P9). 65,536 addresses take 7 MB.
const LIMIT: usize = 64 << 20;

/// The mode of the state: only root reads it.
pub const MODE: u32 = 0o600;

/// Reads the state without the lock, as a call would find it. The files are read in the order in which none of them can seem to be behind
/// another: a state ahead is a call in progress.
///
/// # Errors
/// The state is there, but the system does not let it be read.
pub fn view(files: &dyn Files, boot_id: Option<&str>) -> Result<Box<State>, StoreError> {
    let text = match files.read(StateFile::Lock, LOCK_TEXT_LIMIT, 0) {
        Ok(ReadOutcome::Read(text)) => LockText::parse(&text),
        Ok(ReadOutcome::Missing) => LockText::None,
        // Whatever it is, it is no record.
        Ok(ReadOutcome::TooLarge) | Err(_) => LockText::Other,
    };
    let last = journal::last_generation(files);
    let journal = match read_state(files, boot_id)? {
        StateText::Parsed(state) if is_in_step(&state, &text, last, boot_id) => {
            return Ok(state);
        }
        _ => Journal::read(files, boot_id),
    };
    let state = read_state(files, boot_id)?;
    Ok(settle(state, &text, journal, boot_id, files.now()))
}

/// Whether the state, the record and the journal are of one save, so that the journal need not be read.
fn is_in_step(
    state: &State,
    text: &LockText,
    last_in_journal: Option<u64>,
    boot_id: Option<&str>,
) -> bool {
    let proof = text.proof(boot_id);
    state.saved == proof
        && state.boot_id.as_deref() == boot_id
        && !state.other_wrote_last
        && last_in_journal.is_some_and(|generation| Some(generation) == proof)
}

fn read_state(files: &dyn Files, boot_id: Option<&str>) -> Result<StateText, StoreError> {
    let bytes = match files.read(StateFile::State, LIMIT, ROOM) {
        Ok(ReadOutcome::Read(bytes)) => bytes,
        Ok(ReadOutcome::Missing) => return Ok(StateText::Missing),
        Ok(ReadOutcome::TooLarge) => {
            return Ok(StateText::Corrupt(format!(
                "it is larger than {LIMIT} bytes"
            )));
        }
        Err(e) if e.kind() == io::ErrorKind::IsADirectory => {
            return Ok(StateText::Corrupt("it is a folder".to_owned()));
        }
        // A pipe or a device.
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
            return Ok(StateText::Corrupt(io_reason(&e)));
        }
        Err(e) => {
            let path = files.path(StateFile::State);
            return Err(StoreError::at("cannot read", &path)(e));
        }
    };
    if bytes.is_empty() {
        return Ok(StateText::Missing);
    }
    Ok(match State::parse(&bytes, boot_id, files.now()) {
        Ok(mut state) => {
            state.keep_buffer(bytes);
            StateText::Parsed(state)
        }
        Err(error) => StateText::Corrupt(error.to_string()),
    })
}

impl Locked<'_> {
    /// Reads the state.
    ///
    /// # Errors
    /// As [`view`].
    pub fn open(&mut self, boot_id: Option<&str>) -> Result<Box<State>, StoreError> {
        self.in_step = None;
        let end = journal::end(self.files);
        let last = end.as_ref().map(|(generation, _)| *generation);
        let mut state = match read_state(self.files, boot_id)? {
            StateText::Parsed(state) if is_in_step(&state, &self.text, last, boot_id) => {
                self.in_step = end.map(|(_, journal)| journal);
                state
            }
            text => {
                let journal = Journal::read(self.files, boot_id);
                settle(text, &self.text, journal, boot_id, self.files.now())
            }
        };
        if let Some(why) = &state.restored {
            warn!(target: "ipam", "the state was lost ({why}); the journal restores it.");
        }
        if let Some(why) = &state.key_unreadable {
            warn!(target: "ipam", "our part of the state could not be read: {why}.");
        }
        let clock = self.files.now().0 / 1000;
        let seen = state.seen;
        let ipam = state.ipam_mut();
        ipam.generation = ipam.generation.max(seen).max(clock);
        Ok(state)
    }

    /// Replaces the state, brings the journal up to it, and proves that by the record in the lock file.
    ///
    /// # Errors
    /// The state cannot be written, or the old record, which no longer holds, cannot be replaced; or the lock was lost.
    pub fn commit(&mut self, state: &mut State, stamp: WriteStamp<'_>) -> Result<(), StoreError> {
        let (before, seen) = (state.saved.take(), state.seen);
        let ipam = state.ipam_mut();
        if before.max(Some(seen)) >= Some(ipam.generation) {
            ipam.generation += 1;
        }
        let generation = ipam.generation;
        let changes = mem::take(&mut ipam.changes);
        if self.in_step.is_none() {
            self.files.remove_leftovers();
        }
        let text = state.print(stamp);
        if text.len() > LIMIT {
            let source = io::Error::other(format!("it would be larger than {LIMIT} bytes"));
            let path = self.files.path(StateFile::State);
            return Err(StoreError::at("cannot write", &path)(source));
        }
        let aside = state.corrupt.as_ref().map(|_| stamp.time);
        self.files.replace_state(&*self.lock, &text, aside)?;
        state.saved = Some(generation);
        if state.may_be_fresh() {
            return Ok(());
        }
        let is_appended = match (self.in_step.take(), before) {
            (Some(journal), Some(before))
                if !changes.are_beyond_list && !journal::is_grown(journal.length, text.len()) =>
            {
                let line = journal::print_line(generation, before, &changes.list);
                self.files.append_to_journal(journal, &line).is_ok()
            }
            _ => false,
        };
        // As long as the state is lost, only the old journal has what it lacks.
        if let Some(boot_id) = stamp.boot_id
            && !is_appended
            && state.condition.lost().is_none()
        {
            self.replace_journal(boot_id, &text, generation);
        }
        self.write_record(stamp.boot_id, generation)?;
        if self.lock.is_current() {
            Ok(())
        } else {
            Err(StoreError {
                outcome: SaveOutcome::LockLostAfterSave,
                ..StoreError::lost_lock(&self.files.path(StateFile::Lock))
            })
        }
    }

    /// Writes the journal anew.
    fn replace_journal(&self, boot_id: &str, state: &[u8], generation: u64) {
        // Without the lock, the journal of a newer holder must not be replaced.
        if self.lock.is_current() {
            let text = journal::print_base(boot_id, state, generation);
            if let Err(e) = self.files.replace_journal(&text) {
                self.warn_unwritten(StateFile::Journal, &e);
            }
        }
    }

    fn write_record(&mut self, boot_id: Option<&str>, generation: u64) -> Result<(), StoreError> {
        let record = LockRecord {
            boot_id: boot_id.map(str::to_owned),
            generation,
        };
        match self.lock.set_text(record.print().as_bytes()) {
            Ok(()) => self.text = LockText::Record(record),
            // The old one would prove a journal that lacks this save, if an older copy of it is put back.
            Err(e) if self.text.record_of(boot_id).is_some() => {
                let path = self.files.path(StateFile::Lock);
                return Err(StoreError {
                    outcome: SaveOutcome::Saved,
                    ..StoreError::at("cannot write", &path)(e)
                });
            }
            Err(e) => self.warn_unwritten(StateFile::Lock, &e),
        }
        Ok(())
    }

    fn warn_unwritten(&self, file: StateFile, error: &io::Error) {
        let path = self.files.path(file);
        warn!(target: "ipam", "{} could not be written: {}.", path.display(), io_reason(error));
    }

    /// Appends the release of a DEL that came while the state is lost, if the journal holds something for its attachment. Returns what it
    /// holds.
    ///
    /// # Errors
    /// The journal cannot be written, or the lock was lost.
    pub fn append_release(
        &mut self,
        attachment: &Attachment,
        hint: Hint<'_>,
        boot_id: Option<&str>,
    ) -> Result<Vec<Freed>, StoreError> {
        // Before the lock is looked at, so that this is not the journal of a newer holder.
        let opened = self.files.open_journal(&mut []);
        let journal = Journal::read(self.files, boot_id);
        // Without the lock, the state that was read may be older than the journal of a newer holder.
        if !self.lock.is_current() {
            return Err(StoreError::lost_lock(&self.files.path(StateFile::Lock)));
        }
        let Some(journal) = journal else {
            return Ok(Vec::new());
        };
        let (ends_whole, newest) = (journal.ends_whole, journal.newest);
        let (Some(before), Some(mut state)) = (journal.last(), journal.into_state()) else {
            return Ok(Vec::new());
        };
        let now = self.files.now();
        let freed = state.ipam_mut().release(attachment, hint, now);
        if freed.is_empty() {
            return Ok(freed);
        }
        let changes = mem::take(&mut state.ipam_mut().changes);
        let recorded = self.text.record_of(boot_id).map(|record| record.generation);
        let seen = newest.max(recorded).unwrap_or(before);
        let generation = (now.0 / 1000).max(seen + 1);
        let mut line = journal::print_line(generation, before, &changes.list);
        if !ends_whole {
            line.insert(0, b'\n');
        }
        let path = self.files.path(StateFile::Journal);
        let appended = opened.and_then(|opened| self.files.append_to_journal(opened, &line));
        appended.map_err(StoreError::at("cannot write", &path))?;
        info!(target: "ipam", "the state is lost; the journal has the release.");
        Ok(freed)
    }
}
