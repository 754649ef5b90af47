//! Losses of files that leave something by which the plugin can detect them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::rc::Rc;

use azure_vnet_ipam::ipam::{Evidence, Moment};
use azure_vnet_ipam::state::{Document, State, StateFile, view};
use serde_json::Value;

use super::events::{Blindness, Fate, FileSet, Loss};
use super::node::{Disk, MemoryNode};
use super::original::LOCK_TEXT;
use super::world::{Id, World};

/// What was saved in this boot, even if files were lost since.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    /// The last saved state.
    pub state: Option<Rc<[u8]>>,
    /// The backup with the record that proves it.
    proof: Option<[Rc<[u8]>; 2]>,
    /// The generation of the last save before the last loss.
    newest: u64,
    /// Whether an ADD may be refused with a quarantine, because neither the state nor the backup with its record
    /// survived a loss.
    pub may_refuse: bool,
    /// Whether the boot ID was unreadable at any time, in any boot.
    pub was_unreadable: bool,
    /// Whether `state` is a state of the original that started from nothing.
    has_started_empty: bool,
    /// The attachments that a DEL released while the state was lost and the backup proved.
    pub released: BTreeSet<Id>,
}

impl Truth {
    /// Records that a call of ours changed files.
    pub fn called(&mut self, before: &Disk, after: &Disk) {
        let get = |disk: &Disk, file| disk.files.get(&file).cloned();
        let state = get(after, StateFile::State);
        if state != get(before, StateFile::State) {
            self.state = state;
            self.has_started_empty = false;
        }
        if before != after {
            let backup = get(after, StateFile::Backup);
            let is_saved = backup.is_some() && backup == self.state && is_named(after);
            self.proof = backup
                .filter(|_| is_saved)
                .map(|backup| [backup, Rc::clone(&after.lock)]);
        }
    }

    /// Records that the original saved its state.
    pub fn original_saved(&mut self, before: Option<&Rc<[u8]>>, after: &Disk) {
        // The original may have written over an old copy. Then neither the last state nor its proof is left.
        let is_over_copy = before.is_some() && before != self.state.as_ref();
        self.may_refuse |= is_over_copy;
        let state = after.files.get(&StateFile::State);
        self.state = state.filter(|_| !is_over_copy).cloned();
        self.proof = None;
        self.released.clear();
    }

    /// Records that the original has replaced a lost state by an empty one.
    pub fn started_empty(&mut self) {
        self.has_started_empty = true;
        self.may_refuse = true;
    }

    /// Starts another boot. Only the state of the boot before is still valid, if it survived.
    pub fn reboot(&mut self, after: &Disk) {
        let state = after.files.get(&StateFile::State);
        let state = state.filter(|state| Some(*state) == self.state.as_ref());
        *self = Truth {
            state: state.cloned(),
            may_refuse: !state.is_some_and(|text| says_something(text)),
            was_unreadable: self.was_unreadable,
            ..Truth::default()
        };
    }

    /// Whether the backup is the last one, with the record that proves it.
    fn is_proved(&self, disk: &Disk) -> bool {
        self.proof.as_ref().is_some_and(|[backup, lock]| {
            disk.files.get(&StateFile::Backup) == Some(backup) && disk.lock == *lock
        })
    }
}

/// Whether the record names the save of the backup.
fn is_named(disk: &Disk) -> bool {
    let number = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        text.split_whitespace().last()?.parse::<u64>().ok()
    };
    let backup = disk.text(StateFile::Backup).unwrap_or_default();
    let backup = Document::parse(backup, None, Moment(0));
    number(&disk.lock).is_some_and(|number| backup.is_ok_and(|b| b.origin.number() == Some(number)))
}

/// Whether the file was lost, even if the backup has restored the state.
pub(super) fn is_lost_on_disk(state: &State) -> bool {
    state.restored.is_some() || state.condition.lost().is_some()
}

/// Whether a state has pools or our key. A state without both contains no more information than a missing one.
fn says_something(text: &[u8]) -> bool {
    let document = Document::parse(text, None, Moment(0));
    document.is_ok_and(|document| document.origin.save().is_some() || !document.is_empty())
}

impl World {
    pub(super) fn lose(&mut self, loss: Loss) {
        self.loss_seen = None;
        self.newest_answer = None;
        let state = self.disk.text(StateFile::State).map(<[u8]>::to_vec);
        self.begin_loss();
        let before = self.disk.clone();
        match loss {
            Loss::Deleted => drop(self.disk.files.remove(&StateFile::State)),
            Loss::RunWiped => {
                self.disk.files.remove(&StateFile::State);
                self.disk.remove_lock_folder();
            }
            Loss::Emptied => {
                if state.is_some() {
                    self.disk.put(StateFile::State, b"");
                }
            }
            Loss::Damaged => {
                if let Some(text) = state {
                    self.disk.put(StateFile::State, &text[..text.len() / 2]);
                }
            }
            Loss::RolledBack => {
                let old = self.old_state.take();
                self.old_state = state.map(Into::into);
                match old {
                    Some(old) => drop(self.disk.files.insert(StateFile::State, old)),
                    None => drop(self.disk.files.remove(&StateFile::State)),
                }
            }
            // Only our key shows which interface of a container an address is for: "Records of the original
            // (container ID only) match by container ID" (D8).
            Loss::OurKeyRemoved
                if self.pods.keys().any(|id| id.interface != 0)
                    || self.in_flight.values().any(|add| add.id.interface != 0) => {}
            Loss::OurKeyRemoved => {
                // A pending quarantine is only in our key.
                let view = self.view();
                let was_complete =
                    view.condition.lost().is_none() && view.ipam().quarantine.is_none();
                let value = state.and_then(|text| serde_json::from_slice(&text).ok());
                if let Some(mut value) = value {
                    let value: &mut Value = &mut value;
                    value.as_object_mut().unwrap().remove("azure-vnet-ipam");
                    let text = value.to_string();
                    self.disk.put(StateFile::State, text.as_bytes());
                    // "Behind: beside a record or a chain of this boot it has no key"
                    self.truth.may_refuse = true;
                    if was_complete
                        && before.files.get(&StateFile::State) == self.truth.state.as_ref()
                    {
                        // The records are those of the last save.
                        self.truth.state = self.disk.files.get(&StateFile::State).cloned();
                    }
                }
            }
            Loss::BackupRemoved => drop(self.disk.files.remove(&StateFile::Backup)),
            Loss::BackupEmptied => self.change_backup(|_| Vec::new()),
            Loss::BackupDamaged => self.change_backup(|text| text[..text.len() / 2].to_vec()),
            Loss::LockFolderRemoved => self.disk.remove_lock_folder(),
        }
        self.end_loss(before);
    }

    /// Changes files in the same way.
    pub(super) fn change(&mut self, files: FileSet, fate: Fate) {
        let copy = match fate {
            Fate::KeptPutBack => self.kept.clone(),
            Fate::LastPutBack => self.last_copy.clone(),
            _ => Some(Disk::default()),
        };
        let Some(copy) = copy else { return };
        // No promise covers an older backup or lock text that is put back.
        if matches!(fate, Fate::KeptPutBack | Fate::LastPutBack) && files != FileSet::STATE {
            return;
        }
        self.begin_loss();
        let before = self.disk.clone();
        let changed = |text: Option<&Rc<[u8]>>, old: Option<&Rc<[u8]>>| match fate {
            Fate::Removed => None,
            Fate::Emptied => text.map(|_| Rc::default()),
            Fate::Torn => text.map(|text| Rc::from(&text[..text.len() / 2])),
            Fate::KeptPutBack | Fate::LastPutBack => old.cloned(),
        };
        for (set, file) in [
            (FileSet::STATE, StateFile::State),
            (FileSet::BACKUP, StateFile::Backup),
        ] {
            if files.has(set) {
                match changed(self.disk.files.get(&file), copy.files.get(&file)) {
                    Some(text) => drop(self.disk.files.insert(file, text)),
                    None => drop(self.disk.files.remove(&file)),
                }
            }
        }
        if files.has(FileSet::LOCK) {
            match changed(Some(&self.disk.lock), Some(&copy.lock)) {
                Some(text) => self.disk.lock = text,
                None => self.disk.remove_lock_folder(),
            }
        }
        self.end_loss(before);
    }

    /// Records the generation of the last save before files change.
    pub(super) fn begin_loss(&mut self) {
        self.loss_seen = None;
        self.newest_answer = None;
        let state = self.view_of_boot(&self.disk);
        let saved = self.saved_in_boot(&state);
        self.truth.newest = self.truth.newest.max(saved).max(self.known(&self.disk));
    }

    /// Undoes a loss that the design does not cover. Returns whether it did.
    pub(super) fn end_loss(&mut self, before: Disk) -> bool {
        if self.is_open() {
            self.disk = before;
            return true;
        }
        if before == self.disk {
            return false;
        }
        let state = self.disk.files.get(&StateFile::State);
        let has_state =
            state.is_some_and(|text| says_something(text)) && state == self.truth.state.as_ref();
        // "Of state and backup, the one that is of this boot and whose number is not below the record's is the
        // truth". This does not apply when another program wrote the state last.
        let is_foreign = self.state().is_some_and(|state| !state.origin.is_ours());
        let is_complete = self.truth.is_proved(&self.disk) && !is_foreign;
        // A state that survives a reboot brings generations above the clock. If everything was removed after that,
        // generations start again at the clock. A copy of the former record is then above them.
        let saved = self
            .state()
            .and_then(|state| state.origin.number())
            .unwrap_or(0);
        let is_behind = self.known(&self.disk) > saved;
        self.truth.may_refuse |= !is_complete && (!has_state || is_behind);
        let is_same = |file| before.files.get(&file) == self.disk.files.get(&file);
        if !is_same(StateFile::Backup)
            || before.lock != self.disk.lock
            || state.is_some_and(|text| !text.is_empty()) && !is_same(StateFile::State)
        {
            self.truth.released.clear();
        }
        false
    }

    /// Prepares for a lock folder that is removed during a call. Returns whether the design covers the result.
    pub(super) fn may_lose_lock_folder(&mut self) -> bool {
        self.may_change(Disk::remove_lock_folder)
    }

    /// Prepares for the original, which replaces the text of the lock file. Returns whether the design covers the
    /// result.
    pub(super) fn may_lose_record(&mut self) -> bool {
        self.may_change(|disk| disk.lock = LOCK_TEXT.into())
    }

    fn may_change(&mut self, change: impl FnOnce(&mut Disk)) -> bool {
        let mut after = self.clone();
        after.begin_loss();
        let before = after.disk.clone();
        change(&mut after.disk);
        if after.end_loss(before) {
            return false;
        }
        self.truth = after.truth;
        true
    }

    /// Whether the files are in a condition that the design does not cover ("What remains open").
    fn is_open(&self) -> bool {
        let state = self.view_of_boot(&self.disk);
        // "everything removed while an ADD is not configured yet"
        if let Some(loss) = state.condition.lost() {
            return loss.may_be_fresh && self.has_unseen_pod()
                || self.is_believed_without_boot_id();
        }
        let text = self.disk.files.get(&StateFile::State);
        let is_newest = text.is_some() && text == self.truth.state.as_ref();
        if is_newest && !self.truth.has_started_empty {
            return false;
        }
        // "an old copy put back right after the original saved"
        if self.original_wrote_last && !is_newest {
            return true;
        }
        // "A boot ID that cannot be read is unknown, never another boot": a copy that was written without one may be
        // from any boot.
        if self.truth.was_unreadable && text.is_some() && !is_newest && state.restored.is_none() {
            return true;
        }
        let saved = self.saved_in_boot(&state);
        let is_known = self.known(&self.disk).max(saved) >= self.truth.newest;
        match state.document.origin.number() {
            // "everything removed while an ADD is not configured yet": here the original has then started from
            // nothing.
            None => !is_known && self.has_unseen_pod(),
            // "state, backup and lock text restored together within one boot": the remaining files are all from one
            // earlier moment, or name no later one.
            Some(_) => !is_known,
        }
    }

    /// Whether a call that cannot read the boot ID accepts a state that is lost. "A boot ID that cannot be read is
    /// unknown, never another boot."
    pub(super) fn is_believed_without_boot_id(&self) -> bool {
        !self.is_boot_id_readable
            && self.view_of_boot(&self.disk).condition.lost().is_some()
            && self.view().condition.lost().is_none()
    }

    /// The files as a call in this boot reads them.
    fn view_of_boot(&self, disk: &Disk) -> State {
        let files = MemoryNode::new(disk.clone(), self.now(), Evidence::default());
        view(&files, Some(&format!("boot-{}", self.boot))).unwrap()
    }

    /// The generation of a state that is known to be from this boot: "Where `IPAM.TimeStamp` is no longer the one we
    /// wrote, the original has written since: the boot ID is void then".
    fn saved_in_boot(&self, state: &State) -> u64 {
        let text = self.disk.text(StateFile::State).unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        let boot = |text: &str| {
            text.split_once("\"bootId\": \"")
                .map(|(_, id)| id.to_owned())
        };
        let is_here = |id: String| id.starts_with(&format!("boot-{}\"", self.boot));
        let origin = &state.document.origin;
        let is_of_boot = origin.is_ours() && boot(&text).is_none_or(is_here);
        origin.number().filter(|_| is_of_boot).unwrap_or(0)
    }

    /// The generation of the last save according to the record or the backup.
    fn known(&self, disk: &Disk) -> u64 {
        let mut disk = disk.clone();
        disk.files.remove(&StateFile::State);
        self.view_of_boot(&disk).seen
    }

    /// The part of a fingerprint that distinguishes worlds in which the program must know different things.
    pub(super) fn truth_fingerprint(&self) -> String {
        let truth = &self.truth;
        let state = self.disk.files.get(&StateFile::State);
        let mut text = format!(
            "{:?}{}{}{}{}{}{}",
            truth.released,
            truth.was_unreadable,
            truth.may_refuse,
            truth.has_started_empty,
            state == truth.state.as_ref(),
            self.old_state.as_ref() == truth.state.as_ref(),
            truth.is_proved(&self.disk),
        );
        if self.rules.has_copies {
            let copies = self.kept.iter().chain(&self.last_copy);
            for disk in copies {
                let files = disk.files.values().chain([&disk.lock]);
                for file in files {
                    text.push_str(&String::from_utf8_lossy(file));
                    text.push('\n');
                }
                text.push_str(if truth.is_proved(disk) { "+" } else { "-" });
            }
            let newest = truth.newest;
            text.push_str(&format!("{newest}"));
        }
        text
    }

    /// Whether no file shows that there was a state in this boot, even to a call that can read the boot ID.
    fn nothing_is_left(&self) -> bool {
        let boot_id = format!("boot-{}", self.boot);
        let state = view(&self.files(), Some(&boot_id)).unwrap();
        state.condition.lost().is_some_and(|loss| loss.may_be_fresh)
    }

    /// Whether neither the kernel nor a readable list shows some pod.
    fn has_unseen_pod(&self) -> bool {
        // After a repeated ADD, the cache still has the address of the ADD before it until the pod is configured
        // again.
        let is_listed = |id, addresses: &Vec<IpAddr>| {
            self.blind != Blindness::Cache && self.cache.get(id) == Some(addresses)
        };
        let mut pods = self.pods.iter();
        pods.any(|(id, pod)| !pod.configured && !is_listed(id, &pod.addresses))
    }

    /// Whether the state is an old copy.
    pub(super) fn is_old_copy(&self) -> bool {
        self.state().is_some() && is_lost_on_disk(&self.view())
    }

    /// Whether only libcni's cache shows that addresses were allocated.
    pub(super) fn only_lists_show_addresses(&self) -> bool {
        self.nothing_is_left() && self.pods.values().all(|pod| !pod.configured)
    }

    fn change_backup(&mut self, change: impl FnOnce(&[u8]) -> Vec<u8>) {
        if let Some(backup) = self.disk.text(StateFile::Backup) {
            let changed = change(backup);
            self.disk.put(StateFile::Backup, &changed);
        }
    }
}
