//! Decides in one place, for every verb and command, what a state is worth.
//!
//! Of state and backup, the one that is of this boot and whose number is not below the record's is the truth. Where neither is, addresses
//! may be missing, and that is a loss. Without a record of this boot nothing is proved.

use super::condition::Condition;
use super::lock::{LockText, is_same_boot};
use super::model::State;
use super::origin::{Origin, Save};
use super::ours::Loss;
use crate::ipam::Moment;

/// The state or the backup as it was read.
#[derive(Debug)]
pub(super) enum Copy {
    /// There is none, or it is empty.
    Missing,
    /// It cannot be parsed, for this reason.
    Corrupt(String),
    Parsed(Box<State>),
}

impl Copy {
    /// The state, or why there is none where the file is no state.
    fn into_state(self) -> (Option<Box<State>>, Option<String>) {
        match self {
            Copy::Parsed(state) => (Some(state), None),
            Copy::Missing => (None, None),
            Copy::Corrupt(why) => (None, Some(why)),
        }
    }
}

/// What state and backup are compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge<'a> {
    /// The text of the lock file, which is the record of the last save.
    pub lock: &'a LockText,
    /// This boot; `None` where its ID cannot be read.
    pub boot_id: Option<&'a str>,
    /// Now.
    pub now: Moment,
}

impl Judge<'_> {
    /// Whether a state is of this boot. Where that is unknown, the record tells the boot, as if nothing had rebooted.
    fn is_of_this_boot(&self, state: &State) -> bool {
        let boot_id = self.boot_id.or(self.lock.boot_id());
        is_same_boot(state.origin.boot_id(), boot_id)
    }

    /// The number in a record of this boot.
    fn record(&self) -> Option<u64> {
        self.lock.number_in(self.boot_id)
    }

    /// Whether the record proves a state or a backup: it was saved by this program in this boot, there was no later save, and nobody
    /// edited it.
    pub fn is_proved(&self, copy: &State) -> bool {
        let (Some(save), Some(record)) = (copy.origin.save(), self.record()) else {
            return false;
        };
        self.is_of_this_boot(copy)
            && !save.is_edited
            && (save.number == record
                || save.number > record && !self.may_be_of_an_earlier_boot(save))
    }

    /// Whether a save was made while the boot ID could not be read, as it can be now. Its number may be of any boot.
    fn may_be_of_an_earlier_boot(&self, save: &Save) -> bool {
        self.boot_id.is_some() && save.boot_id.is_none()
    }

    /// Whether a copy is the last that was saved.
    pub fn is_last(&self, copy: &State) -> bool {
        self.is_proved(copy) && copy.origin.number() == self.record()
    }

    /// Whether the record lacks the save of a proved state. The call that saved it was killed, or could not write the record.
    pub fn is_ahead(&self, state: &State) -> bool {
        state.origin.number() > self.record()
    }

    /// Decides what the state is worth where the record does not prove it.
    pub fn settle(&self, state: Copy, backup: Copy) -> Box<State> {
        let (found, corrupt) = state.into_state();
        let has_no_backup = matches!(backup, Copy::Missing);
        // Beside a record of another boot it is of that boot, too.
        let is_backup_corrupt = matches!(backup, Copy::Corrupt(_))
            && (self.record().is_some() || !matches!(self.lock, LockText::Record(_)));
        let backup = match backup.into_state() {
            // A newer version saved last, so only releases are safe.
            (Some(mut newer), _)
                if found.is_none() && newer.is_newer() && self.is_of_this_boot(&newer) =>
            {
                newer.corrupt = corrupt;
                return newer;
            }
            (backup, _) => backup,
        };
        // One of another boot says nothing about this one.
        let backup =
            backup.filter(|backup| backup.origin.save().is_some() && self.is_of_this_boot(backup));
        let newest_number = self
            .record()
            .max(backup.as_ref().and_then(|b| b.origin.number()));
        let state = found.as_ref().filter(|state| state.says_something());
        let says_nothing = state.is_none();
        let why = match (state, &corrupt) {
            (Some(state), _) => match self.lack(state, backup.as_deref(), is_backup_corrupt) {
                Some(why) => why.to_owned(),
                None => {
                    let mut believed = self.believed(found.unwrap_or_default(), backup);
                    believed.seen = newest_number.unwrap_or(0);
                    return believed;
                }
            },
            (None, Some(why)) => why.clone(),
            (None, None) if newest_number.is_some() => {
                "it is gone, though addresses were allocated since the node started".to_owned()
            }
            (None, None) => "it is not there".to_owned(),
        };
        let may_be_fresh = says_nothing
            && corrupt.is_none()
            && has_no_backup
            && newest_number.is_none()
            && *self.lock != LockText::Other;
        let mut settled = match backup {
            Some(mut backup) if self.boot_id.is_some() && self.is_proved(&backup) => {
                backup.restored = Some(why);
                backup.must_save = true;
                backup
            }
            backup => {
                let mut lost = self.union(found, backup);
                lost.ipam_mut().forget_last_namespaces();
                lost.condition = Condition::Lost(Loss {
                    why,
                    seen: self.now,
                    may_be_fresh,
                });
                lost
            }
        };
        settled.corrupt = corrupt;
        // A number of another boot may be far ahead of this one's clock.
        let own_number = settled
            .origin
            .number()
            .filter(|_| self.is_of_this_boot(&settled));
        settled.seen = newest_number.max(own_number).unwrap_or(0);
        settled
    }

    /// Why addresses may be missing in a state, if they may.
    fn lack(
        &self,
        state: &State,
        backup: Option<&State>,
        is_backup_corrupt: bool,
    ) -> Option<&'static str> {
        let (record, backup) = (self.record(), backup.and_then(|b| b.origin.number()));
        let is_beside_others = record.is_some() || backup.is_some();
        match &state.origin {
            Origin::Newer { .. } => None,
            // Version 0.2 kept the same record, and no backup.
            Origin::Older(Some(number)) => {
                (Some(*number) < record || backup.is_some() || is_backup_corrupt)
                    .then_some("it is a copy from before this version")
            }
            Origin::Foreign | Origin::Unreadable(_) | Origin::Older(None) => {
                (is_beside_others || is_backup_corrupt).then_some("another program began it anew")
            }
            Origin::Ours(save) if self.may_be_of_an_earlier_boot(save) => {
                is_beside_others.then_some("it may be a copy of an earlier boot")
            }
            Origin::Ours(_) if !self.is_of_this_boot(state) => {
                is_beside_others.then_some("it is a copy of an earlier boot")
            }
            Origin::Ours(save) if Some(save.number) < record => {
                Some("it is older than the last address that was allocated")
            }
            // What another program saves has no record.
            Origin::Ours(save) => (save.is_overtaken && Some(save.number) < backup)
                .then_some("another program went on from an old copy of it"),
        }
    }

    /// A state that lacks nothing by what else is there, with what must be done before it can be relied on.
    fn believed(&self, mut state: Box<State>, backup: Option<Box<State>>) -> Box<State> {
        if state.is_newer() {
            return state;
        }
        let is_of_this_boot = self.is_of_this_boot(&state);
        let is_ours = state.origin.is_ours();
        if is_ours && is_of_this_boot {
            // Nothing is proved, and the newer of the two counts.
            if let Some(backup) =
                backup.filter(|backup| backup.origin.number() > state.origin.number())
            {
                state = backup;
            }
            state.ipam_mut().forget_last_namespaces();
            state.must_save = true;
        }
        let is_known_reboot = is_ours && !is_of_this_boot && self.boot_id.is_some();
        state.condition = match state.condition {
            Condition::Lost(loss) if is_of_this_boot => Condition::Lost(loss),
            _ if is_known_reboot => Condition::NewBoot,
            _ => Condition::Reconcile,
        };
        state
    }

    /// The newer of two copies, with whatever else the other one holds. The backup is of this boot.
    fn union(&self, found: Option<Box<State>>, backup: Option<Box<State>>) -> Box<State> {
        let is_older = |found: &State, backup: &State| {
            !found.says_something()
                || found.origin.save().is_some()
                    && (found.origin.number() < backup.origin.number()
                        || !self.is_of_this_boot(found))
        };
        let (mut newer, older) = match (found, backup) {
            (Some(found), Some(backup)) if is_older(&found, &backup) => (backup, Some(found)),
            (Some(found), backup) => (found, backup),
            (None, backup) => (backup.unwrap_or_default(), None),
        };
        // A program that went on from the very save that the other one has knows more than that.
        let has_gone_on = |older: &State| {
            let gone_on = newer.origin.save().filter(|save| save.is_overtaken);
            gone_on.is_some_and(|save| Some(save.number) == older.origin.number())
        };
        if let Some(older) = older.filter(|older| !has_gone_on(older)) {
            newer.ipam_mut().hold_also(older.ipam());
        }
        newer
    }
}
