//! Reads the state with its backup and its record, and replaces all three (promise P5: the whole old state or the whole new one).

use std::io;

use tracing::warn;

use super::files::{Files, SaveOutcome, StateFile, StoreError};
use super::judge::{Copy, Judge};
use super::lock::{LOCK_TEXT_LIMIT, LockRecord, LockText, Locked};
use super::model::{Document, ROOM};
use super::{Origin, State, WriteStamp};
use crate::host::{ReadOutcome, io_reason};

/// Larger states than this are not read (promise P9). 65,536 addresses take 7 MB.
const LIMIT: usize = 64 << 20;

/// The mode of the state: only root reads it.
pub const MODE: u32 = 0o600;

/// Reads the state without the lock, as a call would find it. The record is read first: a state that is newer comes from a call in
/// progress.
///
/// # Errors
/// The state exists but cannot be read, or the backup is needed and cannot be read.
pub fn view(files: &dyn Files, boot_id: Option<&str>) -> Result<State, StoreError> {
    let lock = match files.read(StateFile::Lock, LOCK_TEXT_LIMIT, 0) {
        Ok(ReadOutcome::Read(text)) => LockText::parse(&text),
        Ok(ReadOutcome::Missing) => LockText::None,
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => LockText::None,
        // Such a file is not a record.
        Ok(ReadOutcome::TooLarge) | Err(_) => LockText::Other,
    };
    let judge = Judge {
        lock: &lock,
        boot_id,
        now: files.now(),
    };
    match read_copy(files, StateFile::State, boot_id)? {
        Copy::Parsed(document) if judge.is_proved(&document) => Ok(judge.proved(document)),
        _ => {
            let backup = read_backup(files, boot_id)?;
            // The state is read again, because another call may have saved both since.
            let state = read_copy(files, StateFile::State, boot_id)?;
            Ok(judge.decide(state, backup))
        }
    }
}

/// Reads the state or the backup.
fn read_copy(
    files: &dyn Files,
    file: StateFile,
    boot_id: Option<&str>,
) -> Result<Copy, StoreError> {
    let bytes = match files.read(file, LIMIT, ROOM) {
        Ok(ReadOutcome::Read(bytes)) => bytes,
        Ok(ReadOutcome::Missing) => return Ok(Copy::Missing),
        Ok(ReadOutcome::TooLarge) => {
            return Ok(Copy::Corrupt(format!("it is larger than {LIMIT} bytes")));
        }
        Err(e) if e.kind() == io::ErrorKind::IsADirectory => {
            return Ok(Copy::Corrupt("it is a folder".to_owned()));
        }
        // A pipe or a device.
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
            return Ok(Copy::Corrupt(io_reason(&e)));
        }
        Err(e) => return Err(StoreError::at("cannot read", &files.path(file))(e)),
    };
    if bytes.is_empty() {
        return Ok(Copy::Missing);
    }
    Ok(match Document::parse(&bytes, boot_id, files.now()) {
        Ok(mut document) => {
            document.buffer = bytes;
            Copy::Parsed(document)
        }
        Err(error) => Copy::Corrupt(error.to_string()),
    })
}

/// Reads the backup. Nothing can be decided if it cannot be read.
fn read_backup(files: &dyn Files, boot_id: Option<&str>) -> Result<Copy, StoreError> {
    read_copy(files, StateFile::Backup, boot_id).map_err(|error| StoreError {
        outcome: SaveOutcome::NotDecided,
        ..error
    })
}

impl Locked<'_> {
    /// Reads the state. Reuses the state that was `read` before and not changed, if no call has saved since.
    ///
    /// # Errors
    /// The errors of [`view`], or the record cannot be read.
    pub fn open(
        &mut self,
        boot_id: Option<&str>,
        read: Option<State>,
    ) -> Result<State, StoreError> {
        if let LockText::Unreadable(kind) = self.text {
            let path = self.files.path(StateFile::Lock);
            return Err(StoreError {
                outcome: SaveOutcome::NotDecided,
                ..StoreError::at("cannot read", &path)(kind.into())
            });
        }
        let judge = Judge {
            lock: &self.text,
            boot_id,
            now: self.files.now(),
        };
        if let Some(state) = read.filter(|state| judge.is_last(&state.document)) {
            self.is_proved = true;
            return Ok(state);
        }
        let mut state = match read_copy(self.files, StateFile::State, boot_id)? {
            Copy::Parsed(document) if judge.is_proved(&document) => {
                self.is_proved = true;
                judge.proved(document)
            }
            copy => {
                self.is_proved = false;
                judge.decide(copy, read_backup(self.files, boot_id)?)
            }
        };
        if let Some(why) = &state.restored {
            warn!(target: "ipam", "the state was lost ({why}); the backup restores it.");
        }
        if let Origin::Unreadable(why) = &state.document.origin {
            warn!(target: "ipam", "our part of the state could not be read: {why}.");
        }
        let clock = self.files.now().0 / 1000;
        let seen = state.seen;
        let ipam = state.ipam_mut();
        ipam.generation = ipam.generation.max(seen).max(clock);
        Ok(state)
    }

    /// Replaces the state, then the backup, and then the record in the lock file, which proves both.
    ///
    /// # Errors
    /// The state cannot be written, an outdated record cannot be replaced, or the lock was lost.
    pub fn commit(&mut self, state: &mut State, stamp: WriteStamp<'_>) -> Result<(), StoreError> {
        let newest_number = state.document.origin.number().max(Some(state.seen));
        let ipam = state.ipam_mut();
        if newest_number >= Some(ipam.generation) {
            ipam.generation += 1;
        }
        let number = ipam.generation;
        if !self.is_proved {
            self.files.remove_leftovers();
        }
        let text = state.print(stamp);
        if text.len() > LIMIT {
            let source = io::Error::other(format!("it would be larger than {LIMIT} bytes"));
            let path = self.files.path(StateFile::State);
            return Err(StoreError::at("cannot write", &path)(source));
        }
        let aside = state.corrupt.as_ref().map(|_| stamp.time);
        if state.is_newer() {
            // The newer version's key keeps its number, which is below the number of this save. Without a record, the newer version scans
            // the node, as after a save of the original.
            self.clear_record()?;
            self.files.replace_state(&*self.lock, &text, aside)?;
            return self.check_lock();
        }
        self.files.replace_state(&*self.lock, &text, aside)?;
        if state.condition.may_be_fresh() {
            return Ok(());
        }
        let backup = self.files.replace_backup(&*self.lock, &text);
        // If the boot ID is unknown, the boot of the old record counts as this one.
        let old_boot_id = self.text.boot_id().map(str::to_owned);
        let record = match stamp.boot_id.or(old_boot_id.as_deref()) {
            Some(boot_id) => self.write_record(boot_id, number),
            None => Ok(()),
        };
        for (file, written) in [(StateFile::Backup, &backup), (StateFile::Lock, &record)] {
            if let Err(e) = written {
                let path = self.files.path(file);
                warn!(target: "ipam", "{} could not be written: {}.", path.display(), io_reason(e));
            }
        }
        self.check_lock()?;
        // An old backup is older than the new record, so it is not used. An old record would prove a copy that lacks this save.
        if let Err(e) = record
            && self.text.number_in(stamp.boot_id).is_some()
        {
            let path = self.files.path(StateFile::Lock);
            return Err(StoreError {
                outcome: SaveOutcome::Saved,
                ..StoreError::at("cannot write", &path)(e)
            });
        }
        Ok(())
    }

    /// Checks after a save that the lock file is still the one that others lock.
    fn check_lock(&self) -> Result<(), StoreError> {
        if self.lock.is_current() {
            return Ok(());
        }
        Err(StoreError {
            outcome: SaveOutcome::LockLostAfterSave,
            ..StoreError::lost_lock(&self.files.path(StateFile::Lock))
        })
    }

    fn clear_record(&mut self) -> Result<(), StoreError> {
        let path = self.files.path(StateFile::Lock);
        self.lock
            .set_text(b"")
            .map_err(StoreError::at("cannot write", &path))?;
        self.text = LockText::None;
        Ok(())
    }

    fn write_record(&mut self, boot_id: &str, number: u64) -> io::Result<()> {
        let record = LockRecord {
            boot_id: boot_id.to_owned(),
            number,
        };
        let text = record.print().ok_or(io::ErrorKind::InvalidData)?;
        self.lock.set_text(text.as_bytes())?;
        self.text = LockText::Record(record);
        Ok(())
    }
}
