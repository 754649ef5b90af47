//! The notes of the last grant, kept beside the state in case that is lost.

use super::error::StoreError;
use super::files::{Files, StateFile};
use super::position::MOST_COUNTED;
use crate::host::ReadOutcome;

/// The most bytes of a note.
const NOTE_LIMIT: usize = 4096;

/// The generation of [`last_grant`].
pub fn last_granted_generation(files: &dyn Files, boot_id: Option<&str>) -> Option<u64> {
    last_grant(files, boot_id).map(|last| last.generation)
}

/// The note of the last grant since the node started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastGrant {
    /// The generation of its claim; 0 if unknown.
    pub generation: u64,
    /// Whether it is known to be of this boot. Where a boot ID cannot be read, it may be.
    pub is_of_this_boot: bool,
}

/// Reads the note of the last grant since the node started. `None` when nothing was granted in this boot.
pub fn last_grant(files: &dyn Files, boot_id: Option<&str>) -> Option<LastGrant> {
    let unknown = LastGrant {
        generation: 0,
        is_of_this_boot: false,
    };
    let text = match files.read(StateFile::LastGrant, NOTE_LIMIT, 0) {
        Ok(ReadOutcome::Read(bytes)) => String::from_utf8(bytes).unwrap_or_default(),
        Ok(ReadOutcome::Missing) => {
            // This marker survives the loss of the whole folder. It only says that something was granted.
            let Ok(ReadOutcome::Read(bytes)) = files.read(StateFile::BootMarker, NOTE_LIMIT, 0)
            else {
                return None;
            };
            let marker = String::from_utf8(bytes).ok()?;
            return is_same_boot(id(&marker), boot_id).then_some(unknown);
        }
        // Unreadable, but it exists.
        Ok(ReadOutcome::TooLarge) | Err(_) => return Some(unknown),
    };
    match text.split_once(' ') {
        Some((generation, of)) if is_same_boot(id(of), boot_id) => Some(LastGrant {
            generation: number(generation).unwrap_or(0),
            is_of_this_boot: id(of).is_some() && boot_id.is_some(),
        }),
        Some(_) => None,
        None => Some(unknown),
    }
}

/// Parses a generation; `None` for an impossible one.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n| *n <= MOST_COUNTED)
}

/// Parses a boot ID; `None` where it was unknown.
fn id(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|id| !id.is_empty())
}

/// Whether both may be of one boot. A boot ID that a caller cannot read is unknown, never another boot.
pub(super) fn is_same_boot(one: Option<&str>, other: Option<&str>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

/// Notes that addresses are granted in this boot, outside of the folder that [`note_use`] writes to.
///
/// # Errors
/// The system refuses.
pub fn note_boot(files: &dyn Files, boot_id: Option<&str>) -> Result<(), StoreError> {
    note(files, StateFile::BootMarker, boot_id.unwrap_or_default())
}

/// Notes the generation of a grant.
///
/// # Errors
/// The system refuses.
pub fn note_use(
    files: &dyn Files,
    boot_id: Option<&str>,
    generation: u64,
) -> Result<(), StoreError> {
    // Always of the same length, so that it overwrites the last one.
    let text = format!("{generation:020} {}", boot_id.unwrap_or_default());
    note(files, StateFile::LastGrant, &text)
}

fn note(files: &dyn Files, file: StateFile, text: &str) -> Result<(), StoreError> {
    files
        .overwrite(file, text.as_bytes())
        .map_err(|e| StoreError::at("cannot write", &files.path(file))(e))
}
