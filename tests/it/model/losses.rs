//! Losses of files that leave something by which the plugin can detect them.

use azure_vnet_ipam::ipam::Moment;
use azure_vnet_ipam::state::{KeyStatus, State, StateFile};
use serde_json::Value;

use super::events::{Blindness, Loss};
use super::world::World;

fn lacks_our_key(text: &[u8]) -> bool {
    State::parse(text, None, Moment(0)).is_ok_and(|d| matches!(d.key_status, KeyStatus::Absent))
}

impl World {
    pub(super) fn lose(&mut self, loss: Loss) {
        self.loss_seen = None;
        self.newest_answer = None;
        let state = self.disk.text(StateFile::State).map(<[u8]>::to_vec);
        match loss {
            // Nothing else records that the original grants addresses, until the kernel shows one of them.
            Loss::Deleted | Loss::Emptied | Loss::RunWiped
                if self.is_unseen_work_of_the_original() => {}
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
            // Addresses that the original granted since our last call are only in the state (`src/README.md`, with the original on the same node).
            Loss::RolledBack if self.original_wrote_last => {}
            // Nothing is left that identifies an old copy (`src/README.md`, known limitations).
            Loss::RolledBack if self.disk.text(StateFile::LastGrant).is_none() => {}
            // There was no state before the rebuild.
            Loss::RolledBack
                if self.old_state.as_deref().is_none_or(<[u8]>::is_empty)
                    && self.is_unseen_work_of_the_original() => {}
            // An old copy without our key looks like a state of the original and starts no quarantine.
            Loss::RolledBack if self.old_state.as_deref().is_some_and(lacks_our_key) => {}
            Loss::RolledBack => {
                let old = self.old_state.take();
                self.old_state = state.map(Into::into);
                match old {
                    Some(old) => drop(self.disk.files.insert(StateFile::State, old)),
                    None => drop(self.disk.files.remove(&StateFile::State)),
                }
            }
            // Only our key records which interface of a container an address is for, until there is other evidence.
            Loss::OurKeyRemoved
                if self.pods.keys().any(|id| id.interface != 0)
                    || self.in_flight.values().any(|add| add.id.interface != 0) => {}
            // Only for a complete state. A state that was lost and then loses our key within the quarantine
            // forgets pods that are being configured (`src/README.md`, known limitations).
            Loss::OurKeyRemoved if self.is_whole() => {
                let value = state.and_then(|text| serde_json::from_slice(&text).ok());
                if let Some(mut value) = value {
                    let value: &mut Value = &mut value;
                    value.as_object_mut().unwrap().remove("azure-vnet-ipam");
                    let text = value.to_string();
                    self.disk.put(StateFile::State, text.as_bytes());
                }
            }
            Loss::OurKeyRemoved => {}
            Loss::JournalTorn => {
                let journal = self.disk.text(StateFile::Journal).map(<[u8]>::to_vec);
                if let Some(text) = journal.filter(|text| text.len() > 10) {
                    self.disk.put(StateFile::Journal, &text[..text.len() - 10]);
                }
            }
            Loss::JournalRemoved => drop(self.disk.files.remove(&StateFile::Journal)),
            Loss::JournalEntryRemoved => self.change_journal(|journal| {
                let mut lines: Vec<&str> = journal.split_inclusive('\n').collect();
                if lines.len() > 2 {
                    lines.remove(1);
                }
                lines.concat()
            }),
            Loss::JournalEntryDamaged => {
                self.change_journal(|journal| journal.replacen("10.0.0.7", "10.0.0.9", 1));
            }
            Loss::LockFolderRemoved if self.is_old_copy() => {}
            Loss::LockFolderRemoved => self.disk.remove_lock_folder(),
        }
    }

    /// Whether the state is an old copy. Without the lock folder this cannot be detected (`src/README.md`, known limitations).
    pub(super) fn is_old_copy(&self) -> bool {
        self.state()
            .is_some_and(|state| self.loss(&state).is_some())
    }

    /// Whether only the original granted addresses in this boot, and neither the kernel shows one of them nor libcni's cache all of
    /// them.
    pub(super) fn is_unseen_work_of_the_original(&self) -> bool {
        let is_listed = self.blind != Blindness::Cache
            && self.pods.keys().all(|id| self.cache.contains_key(id));
        self.last_granted_generation().is_none()
            && !is_listed
            && self.pods.values().all(|pod| !pod.wired)
    }

    /// Whether only libcni's cache shows that the original granted addresses.
    pub(super) fn only_lists_tell(&self) -> bool {
        self.state().is_none_or(|state| state.is_empty())
            && self.last_granted_generation().is_none()
            && self.pods.values().all(|pod| !pod.wired)
    }

    pub(super) fn change_journal(&mut self, change: impl FnOnce(&str) -> String) {
        if let Some(journal) = self.disk.text(StateFile::Journal) {
            let changed = change(&String::from_utf8_lossy(journal));
            self.disk.put(StateFile::Journal, changed.as_bytes());
        }
    }
}
