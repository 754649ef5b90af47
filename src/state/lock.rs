//! The lock on the state, which the original takes too (contract section 4). Only its holder can write. A text in
//! the lock file records which state was saved last.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use std::{fmt, fs};

use rustix::fs::{major, minor};

use super::files::{Files, HeldLock, LockError};
use crate::host::{Paths, read_text};

/// How long a call waits for the lock: longer than a burst of calls takes, and shorter than kubelet's timeout.
pub const WAIT: Duration = Duration::from_secs(30);

/// The acquired lock on the state, and with it the right to write. It is released when this is dropped.
#[derive(Debug)]
pub struct Locked<'f> {
    pub(super) files: &'f dyn Files,
    pub(super) lock: Box<dyn HeldLock + 'f>,
    /// The record of the last save.
    pub(super) text: LockText,
    /// Whether the state and the record agreed when the state was read.
    pub(super) is_proved: bool,
}

impl<'f> Locked<'f> {
    /// Waits for the lock.
    ///
    /// # Errors
    /// See [`LockError`].
    pub fn acquire(files: &'f dyn Files, wait: Duration) -> Result<Self, LockError> {
        let lock = files.lock(wait)?;
        let text = match lock.text() {
            Ok(text) => LockText::parse(&text),
            Err(error) => LockText::Unreadable(error.kind()),
        };
        Ok(Locked {
            files,
            text,
            lock,
            is_proved: false,
        })
    }
}

/// A process that holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its process ID.
    pub pid: u32,
    /// The name of its program, if /proc has it.
    pub name: Option<String>,
}

impl fmt::Display for LockHolder {
    /// `process 7 (sleep)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        match &self.name {
            Some(name) => write!(f, " ({name})"),
            None => Ok(()),
        }
    }
}

/// Returns the present holder of the lock from the kernel's list, without taking the lock. Returns `None` if there is none, or if the list
/// cannot be read.
pub fn holder_now(paths: &Paths) -> Option<LockHolder> {
    let file = fs::metadata(paths.lock_file()).ok()?;
    let (dev, ino) = (file.dev(), file.ino());
    let locks = read_text(&paths.locks()).ok()?;
    let id = format!("{:02x}:{:02x}:{ino}", major(dev), minor(dev));
    let pid = locks.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (kind, _, _) = (fields.next()?, fields.next()?, fields.next()?);
        let (pid, file) = (fields.next()?, fields.next()?);
        (kind == "FLOCK" && file == id)
            .then(|| pid.parse::<u32>().ok())
            .flatten()
    })?;
    let name = read_text(&paths.process(pid).join("comm"));
    let name = name.ok().map(|name| name.trim().to_owned());
    Some(LockHolder { pid, name })
}

/// Returns the holder of the lock for an error message.
pub(super) fn holder(paths: &Paths) -> String {
    holder_now(paths).map_or_else(|| "an unknown process".to_owned(), |h| h.to_string())
}

/// The text that every record begins with.
const MARK: &str = "azure-vnet-ipam ";
/// The length of a boot ID.
const BOOT: usize = 36;
/// The largest plausible number of a save. A count of microseconds does not reach it, so a larger number is damaged.
pub(super) const MOST_COUNTED: u64 = 1 << 53;
/// The digits of the number.
pub(super) const DIGITS: usize = 18;
/// How many bytes of the lock file are read at most: more than a record or a process ID has.
pub(super) const LOCK_TEXT_LIMIT: usize = 128;
/// The length of every record in bytes. One record replaces another without truncation and without further space.
pub(super) const LENGTH: usize = MARK.len() + BOOT + 1 + DIGITS + 1;

/// The text of the lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LockText {
    /// No text of a known program. The file is new or missing, or it has some other text.
    None,
    /// The process ID of a call of the original (contract section 4), or a damaged record.
    Other,
    /// It cannot be read now, for this reason.
    Unreadable(ErrorKind),
    /// A record of this program.
    Record(LockRecord),
}

/// The record of the last save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LockRecord {
    /// The boot.
    pub boot_id: String,
    /// The number of the save.
    pub number: u64,
}

impl LockText {
    pub fn parse(text: &[u8]) -> LockText {
        let is_process_id = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        match LockRecord::parse(text) {
            Some(record) => LockText::Record(record),
            None if is_process_id || text.starts_with(MARK.as_bytes()) => LockText::Other,
            None => LockText::None,
        }
    }

    /// Returns the number in a record of this boot. If the boot ID is unknown, the boot of the record counts as this one.
    pub fn number_in(&self, boot_id: Option<&str>) -> Option<u64> {
        match self {
            LockText::Record(record) if is_same_boot(Some(&record.boot_id), boot_id) => {
                Some(record.number)
            }
            _ => None,
        }
    }

    /// Returns the boot of the last save, for a call that cannot read the boot ID.
    pub fn boot_id(&self) -> Option<&str> {
        match self {
            LockText::Record(record) => Some(&record.boot_id),
            LockText::None | LockText::Other | LockText::Unreadable(_) => None,
        }
    }
}

impl LockRecord {
    fn parse(text: &[u8]) -> Option<LockRecord> {
        let text = std::str::from_utf8(text).ok()?;
        let rest = text.strip_prefix(MARK).filter(|_| text.len() == LENGTH)?;
        let (boot_id, rest) = rest.split_at_checked(BOOT)?;
        let number = rest.strip_prefix(' ')?.strip_suffix('\n')?;
        let boot_id = boot_id.trim_end();
        if boot_id.is_empty() {
            return None;
        }
        Some(LockRecord {
            boot_id: boot_id.to_owned(),
            number: number.parse().ok().filter(|n| *n <= MOST_COUNTED)?,
        })
    }

    /// Returns the text; `None` if the boot ID is not valid.
    pub fn print(&self) -> Option<String> {
        let LockRecord { boot_id, number } = self;
        let is_boot_id = boot_id.len() <= BOOT && !boot_id.contains(char::is_whitespace);
        is_boot_id.then(|| format!("{MARK}{boot_id:BOOT$} {number:0DIGITS$}\n"))
    }
}

/// Returns whether two boot IDs may name the same boot. An unknown one may name any boot.
pub(super) fn is_same_boot(one: Option<&str>, other: Option<&str>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT_ID: &str = "8f3c5c52-0000-4000-8000-000000000001";

    fn record() -> LockRecord {
        LockRecord {
            boot_id: BOOT_ID.to_owned(),
            number: 4_711,
        }
    }

    #[test]
    fn records_are_equal_after_print_and_parse_and_have_one_length() {
        for boot_id in [BOOT_ID, "short"] {
            let record = LockRecord {
                boot_id: boot_id.to_owned(),
                ..record()
            };
            let text = record.print().unwrap();
            assert_eq!(text.len(), LENGTH);
            assert_eq!(
                LockText::parse(text.as_bytes()),
                LockText::Record(record),
                "{text}"
            );
        }
        let record = LockRecord {
            boot_id: "not one word".to_owned(),
            ..record()
        };
        assert_eq!(record.print(), None);
    }

    #[test]
    fn texts_of_plugins_are_distinguished_from_other_texts() {
        let good = record().print().unwrap();
        let implausible = good.replace(" 0", " 9");
        let without_boot = good.replace(BOOT_ID, &" ".repeat(BOOT));
        let (longer, torn) = (format!("{good}x"), &good[..20]);
        for text in ["4711", &longer, torn, &implausible, &without_boot] {
            let parsed = LockText::parse(text.as_bytes());
            assert_eq!(parsed, LockText::Other, "{text:?}");
        }
        for text in ["", "\n", "4711\n", "a note", &good[1..]] {
            let parsed = LockText::parse(text.as_bytes());
            assert_eq!(parsed, LockText::None, "{text:?}");
        }
    }

    #[test]
    fn record_counts_only_in_its_boot() {
        let text = LockText::Record(record());
        assert_eq!(text.number_in(Some(BOOT_ID)), Some(4_711));
        assert_eq!(
            text.number_in(None),
            Some(4_711),
            "unknown counts as the same"
        );
        assert_eq!(text.number_in(Some("another")), None);
    }
}
