//! Decides how far a state can be relied on, for every verb and command.
//!
//! The state or the backup counts if it is from this boot and its number is not below the record's. If neither counts, addresses may be
//! missing, which is a loss. Without a record of this boot nothing is proved.

use super::condition::Condition;
use super::lock::{LockText, is_same_boot};
use super::model::Document;
use super::opened::State;
use super::origin::{Origin, Save};
use super::ours::Loss;
use crate::ipam::Moment;

/// The state or the backup as it was read.
#[derive(Debug)]
pub(super) enum Copy {
    /// The file is missing or empty.
    Missing,
    /// It cannot be parsed, for this reason.
    Corrupt(String),
    Parsed(Box<Document>),
}

/// What the state and the backup are compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge<'a> {
    /// The text of the lock file, which is the record of the last save.
    pub lock: &'a LockText,
    /// The ID of this boot; `None` if it cannot be read.
    pub boot_id: Option<&'a str>,
    /// Now.
    pub now: Moment,
}

impl Judge<'_> {
    /// Returns whether a copy is from this boot. If the boot ID is unknown, the boot of the record counts as this one.
    fn is_of_this_boot(&self, copy: &Document) -> bool {
        let boot_id = self.boot_id.or(self.lock.boot_id());
        is_same_boot(copy.origin.boot_id(), boot_id)
    }

    /// Returns the number in the record, if the record is from this boot.
    fn record(&self) -> Option<u64> {
        self.lock.number_in(self.boot_id)
    }

    /// Returns whether the record proves a state or a backup. This program must have saved it in this boot. There must be no later save and
    /// no edit.
    pub fn is_proved(&self, copy: &Document) -> bool {
        let (Some(save), Some(record)) = (copy.origin.save(), self.record()) else {
            return false;
        };
        self.is_of_this_boot(copy)
            && !save.is_edited
            && (save.number == record
                || save.number > record && !self.may_be_of_an_earlier_boot(save))
    }

    /// Returns whether the boot ID could not be read at a save, but can be read now. The number of that save may be from any boot.
    fn may_be_of_an_earlier_boot(&self, save: &Save) -> bool {
        self.boot_id.is_some() && save.boot_id.is_none()
    }

    /// Returns whether a copy is from the last save.
    pub fn is_last(&self, copy: &Document) -> bool {
        self.is_proved(copy) && copy.origin.number() == self.record()
    }

    /// Returns the state of a proved document.
    pub fn proved(&self, document: Box<Document>) -> State {
        State {
            // If the record lacks the save, that call was killed or could not write the record. That call reported nothing. This call may
            // report the same addresses, so it must save first.
            must_save: document.origin.number() > self.record(),
            ..State::new(document)
        }
    }

    /// Decides how far the state can be relied on if the record does not prove it.
    pub fn decide(&self, state: Copy, backup: Copy) -> State {
        let (found, corrupt) = match state {
            Copy::Parsed(document) => (Some(document), None),
            Copy::Missing => (None, None),
            Copy::Corrupt(why) => (None, Some(why)),
        };
        let has_no_backup = matches!(backup, Copy::Missing);
        // Beside a record of another boot, a corrupt backup is from that boot too.
        let is_backup_corrupt = matches!(backup, Copy::Corrupt(_))
            && (self.record().is_some() || !matches!(self.lock, LockText::Record(_)));
        let backup = match backup {
            // A backup of another boot says nothing about this boot.
            Copy::Parsed(backup) if self.is_of_this_boot(&backup) => match backup.origin {
                Origin::Ours(_) => Some(backup),
                // A newer version saved last, so only releases are safe.
                Origin::Newer { .. } if found.is_none() => {
                    return State {
                        corrupt,
                        ..State::new(backup)
                    };
                }
                _ => None,
            },
            _ => None,
        };
        let newest_number = self
            .record()
            .max(backup.as_ref().and_then(|b| b.origin.number()));
        let seen = newest_number.unwrap_or(0);
        let loss = |why: &str| Loss {
            why: why.to_owned(),
            seen: self.now,
            ..Loss::default()
        };
        let (found, loss) = match (found, &corrupt) {
            (Some(found), _) if found.has_content() => {
                let Some(why) = self.reason_for_loss(&found, backup.as_deref(), is_backup_corrupt)
                else {
                    return State {
                        seen,
                        ..self.accept(found, backup)
                    };
                };
                (Some(found), loss(why))
            }
            (found, Some(why)) => (found, loss(why)),
            (found, None) if newest_number.is_some() => {
                let why = "it is gone, though addresses were allocated since the node started";
                (found, loss(why))
            }
            (found, None) => {
                let mut loss = loss("it is missing");
                loss.may_be_fresh = has_no_backup && *self.lock != LockText::Other;
                (found, loss)
            }
        };
        let mut state = match backup {
            Some(backup) if self.boot_id.is_some() && self.is_proved(&backup) => State {
                restored: Some(loss.why),
                must_save: true,
                ..State::new(backup)
            },
            backup => {
                let mut document = self.union(found, backup);
                document.ipam_mut().forget_last_namespaces();
                State {
                    condition: Condition::Lost(loss),
                    ..State::new(document)
                }
            }
        };
        state.corrupt = corrupt;
        state.seen = seen;
        state
    }

    /// Returns why addresses may be missing in the state; `None` if nothing shows that.
    fn reason_for_loss(
        &self,
        found: &Document,
        backup: Option<&Document>,
        is_backup_corrupt: bool,
    ) -> Option<&'static str> {
        let (record, backup) = (self.record(), backup.and_then(|b| b.origin.number()));
        let is_beside_others = record.is_some() || backup.is_some();
        match &found.origin {
            Origin::Newer { .. } => None,
            // Version 0.2 kept the same record, and no backup.
            Origin::Older(Some(number)) => {
                (Some(*number) < record || backup.is_some() || is_backup_corrupt)
                    .then_some("it is a copy from before this version")
            }
            Origin::Foreign | Origin::Unreadable(_) | Origin::Older(None) => {
                (is_beside_others || is_backup_corrupt).then_some("another program recreated it")
            }
            Origin::Ours(save) if self.may_be_of_an_earlier_boot(save) => {
                is_beside_others.then_some("it may be a copy from an earlier boot")
            }
            Origin::Ours(_) if !self.is_of_this_boot(found) => {
                is_beside_others.then_some("it is a copy from an earlier boot")
            }
            Origin::Ours(save) if Some(save.number) < record => {
                Some("it is older than the last address that was allocated")
            }
            // Another program saves without a record.
            Origin::Ours(save) => (save.is_overtaken && Some(save.number) < backup)
                .then_some("another program went on from an old copy of it"),
        }
    }

    /// Accepts a state if the record and the backup show no loss. Its condition says what must be done before it can be relied on.
    fn accept(&self, found: Box<Document>, backup: Option<Box<Document>>) -> State {
        let is_of_this_boot = self.is_of_this_boot(&found);
        let is_ours = found.origin.is_ours();
        let is_unproved = is_ours && is_of_this_boot;
        // No record proves either copy, so the newer one counts.
        let newer =
            backup.filter(|backup| is_unproved && backup.origin.number() > found.origin.number());
        let mut document = newer.unwrap_or(found);
        if is_unproved {
            document.ipam_mut().forget_last_namespaces();
        }
        let condition = match document.origin.condition() {
            Condition::Newer { format } => Condition::Newer { format },
            Condition::Lost(loss) if is_of_this_boot => Condition::Lost(loss),
            _ if is_ours && !is_of_this_boot && self.boot_id.is_some() => Condition::NewBoot,
            _ => Condition::Reconcile,
        };
        State {
            condition,
            must_save: is_unproved,
            ..State::new(document)
        }
    }

    /// Returns the newer of two copies, with the further held addresses of the other. The backup must be from this boot.
    fn union(&self, found: Option<Box<Document>>, backup: Option<Box<Document>>) -> Box<Document> {
        let is_older = |found: &Document, backup: &Document| {
            !found.has_content()
                || found.origin.save().is_some()
                    && (found.origin.number() < backup.origin.number()
                        || !self.is_of_this_boot(found))
        };
        let (mut newer, older) = match (found, backup) {
            (Some(found), Some(backup)) if is_older(&found, &backup) => (backup, Some(found)),
            (Some(found), backup) => (found, backup),
            (None, backup) => (backup.unwrap_or_default(), None),
        };
        // The newer copy already has all of the older one, if another program continued from the save in the older one.
        let has_continued = |older: &Document| {
            let continued = newer.origin.save().filter(|save| save.is_overtaken);
            continued.is_some_and(|save| Some(save.number) == older.origin.number())
        };
        if let Some(older) = older.filter(|older| !has_continued(older)) {
            newer.ipam_mut().hold_also(older.ipam(), self.now);
        }
        newer
    }
}
