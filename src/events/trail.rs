//! What a call leaves for its event on the way, whatever becomes of it in the end.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;

use super::Event;

/// Notes of one call.
#[derive(Debug, Default)]
pub struct OperationRecord {
    network: RefCell<String>,
    addresses: RefCell<Vec<IpAddr>>,
    reclaimed: Cell<usize>,
    refresh_failed: Cell<bool>,
}

impl OperationRecord {
    /// The network's name.
    pub fn network(&self, name: &str) {
        name.clone_into(&mut self.network.borrow_mut());
    }

    /// An address was given, or came back.
    pub fn address(&self, address: IpAddr) {
        self.addresses.borrow_mut().push(address);
    }

    /// So many addresses were taken back from dead holders.
    pub fn reclaimed(&self, count: usize) {
        self.reclaimed.set(self.reclaimed.get() + count);
    }

    /// A query of the source failed.
    pub fn refresh_failed(&self) {
        self.refresh_failed.set(true);
    }

    /// Adds the notes to the event.
    pub fn end(&self, event: &mut Event) {
        event.network.clone_from(&self.network.borrow());
        event.addresses.clone_from(&self.addresses.borrow());
        event.reclaimed = u64::try_from(self.reclaimed.get()).unwrap_or(u64::MAX);
        event.refresh_failed = self.refresh_failed.get();
    }
}
