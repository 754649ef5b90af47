//! A node in memory with files, lock and clock. The plugin's own ADD, DEL and GC run on it. A call can be killed
//! between any two steps, and other events can happen between them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use azure_vnet_ipam::evidence::Progress;
use azure_vnet_ipam::ipam::{Candidate, Evidence, Inventory, Moment, NetNs};
use azure_vnet_ipam::plugin::{Host, Node};
use azure_vnet_ipam::source::{Attempts, MatchedListing, Source, SourceError, Turn};
use azure_vnet_ipam::state::{Files, HeldLock, LockError, ReadOutcome, StateFile, StoreError};

/// The files on the disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Disk {
    pub files: BTreeMap<StateFile, Rc<[u8]>>,
    /// The content of the lock file.
    pub lock: Rc<[u8]>,
    /// The number of earlier lock files.
    pub removed_locks: u32,
}

impl Disk {
    pub fn text(&self, file: StateFile) -> Option<&[u8]> {
        self.files.get(&file).map(|text| &**text)
    }

    pub fn put(&mut self, file: StateFile, text: &[u8]) {
        self.files.insert(file, text.into());
    }

    /// `rm -rf /var/run/azure-vnet`
    pub fn remove_lock_folder(&mut self) {
        self.lock = Rc::default();
        self.removed_locks += 1;
    }
}

/// When a call is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kill {
    /// After this many changes.
    pub after: u32,
}

/// The operation that the file system refuses to a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The backup cannot be written.
    NoSpaceForBackup,
    /// Neither the backup nor the text of the lock file can be written.
    OnlyStateIsWritten,
    /// No file can be created.
    NoInode,
    /// The text of the lock file cannot be written.
    NoRecord,
    /// The text of the lock file cannot be read.
    RecordNotReadable,
    /// The backup cannot be read.
    BackupNotReadable,
    /// The state is removed while the call scans the node.
    StateIsRemovedAtLook,
}

/// An event between two steps of a call.
type Interruption = Box<dyn FnOnce(&MemoryNode)>;

/// The node of a call. Clones share the same node.
#[derive(Clone)]
pub(super) struct MemoryNode(Rc<Inner>);

struct Inner {
    disk: RefCell<Disk>,
    now: Cell<Moment>,
    evidence: Evidence,
    kill: Cell<Option<Kill>>,
    is_dead: Cell<bool>,
    fault: Option<Fault>,
    /// The number of changes by calls.
    changes: Cell<u32>,
    /// The number of steps by calls, with or without a change.
    steps: Cell<u32>,
    /// The step after which an event happens.
    interruption: RefCell<Option<(u32, Interruption)>>,
    /// The disk and the time that other programs leave behind between a call's last check of the lock file and its
    /// rename.
    before_rename: RefCell<Option<(Disk, Moment)>>,
    /// The source's answer, if there is one.
    inventory: Option<Inventory>,
    /// When its answers began to be implausible.
    doubtful_since: Option<Moment>,
    /// The network namespace of the call, if it is known.
    netns: RefCell<Option<NetNs>>,
    /// Whether the call stops after its next scan of the node.
    rests: Cell<bool>,
    /// Whether the lock is held.
    is_locked: Cell<bool>,
    /// The slow operations of the call so far: queries, and scans with their candidates. A call must not repeat one.
    asked: RefCell<Vec<String>>,
}

/// The condition of an interrupted call.
pub(super) struct Suspended {
    is_locked: bool,
    asked: Vec<String>,
}

impl MemoryNode {
    pub fn new(disk: Disk, now: Moment, evidence: Evidence) -> MemoryNode {
        MemoryNode(Rc::new(Inner {
            disk: RefCell::new(disk),
            now: Cell::new(now),
            evidence,
            kill: Cell::default(),
            is_dead: Cell::default(),
            fault: None,
            changes: Cell::default(),
            steps: Cell::default(),
            interruption: RefCell::default(),
            before_rename: RefCell::default(),
            inventory: None,
            doubtful_since: None,
            netns: RefCell::default(),
            rests: Cell::default(),
            is_locked: Cell::default(),
            asked: RefCell::default(),
        }))
    }

    /// Makes the file system refuse an operation.
    pub fn with_fault(mut self, fault: Option<Fault>) -> MemoryNode {
        Rc::get_mut(&mut self.0).unwrap().fault = fault;
        self
    }

    /// Makes the source return this answer. Its answers have been implausible since the given moment.
    pub fn with_source(
        mut self,
        inventory: Option<Inventory>,
        doubtful_since: Option<Moment>,
    ) -> MemoryNode {
        let inner = Rc::get_mut(&mut self.0).unwrap();
        (inner.inventory, inner.doubtful_since) = (inventory, doubtful_since);
        self
    }

    /// Begins a call for this network namespace. With `rests`, the call stops after its next scan of the node.
    pub fn begin(&self, netns: NetNs, rests: bool) {
        *self.0.netns.borrow_mut() = Some(netns);
        self.0.rests.set(rests);
    }

    /// Suspends a call, so that another one can run.
    pub fn suspend(&self) -> Suspended {
        Suspended {
            is_locked: self.0.is_locked.take(),
            asked: self.0.asked.take(),
        }
    }

    /// Continues a call.
    pub fn resume(&self, call: Suspended) {
        self.0.is_locked.set(call.is_locked);
        *self.0.asked.borrow_mut() = call.asked;
    }

    /// Checks that a call does not hold the lock during an operation that takes time, and does not repeat the
    /// operation.
    fn ask(&self, what: String) {
        assert!(
            !self.0.is_locked.get(),
            "the lock on the state is held during {what}"
        );
        let mut asked = self.0.asked.borrow_mut();
        assert!(!asked.contains(&what), "a call asks twice for {what}");
        asked.push(what);
    }

    /// Replaces the disk and the time between the next check of the lock file and the rename after it.
    pub fn stop_before_rename(&self, disk: Disk, now: Moment) {
        *self.0.before_rename.borrow_mut() = Some((disk, now));
    }

    /// Refuses to create or write a file. A replacement always creates a new temporary file.
    fn refuse(&self, file: StateFile, is_new: bool) -> io::Result<()> {
        match self.0.fault {
            Some(Fault::NoSpaceForBackup) if file == StateFile::Backup => {
                Err(refused("no space left"))
            }
            Some(Fault::OnlyStateIsWritten) if file != StateFile::State => {
                Err(refused("read-only"))
            }
            Some(Fault::NoInode) if is_new => Err(refused("no inode left")),
            _ => Ok(()),
        }
    }

    pub fn kill(&self, kill: Option<Kill>) {
        self.0.kill.set(kill);
    }

    /// Kills the call after this many more changes.
    pub fn kill_after(&self, changes: u32) {
        self.kill(Some(Kill {
            after: self.0.changes.get() + changes,
        }));
    }

    pub fn is_dead(&self) -> bool {
        self.0.is_dead.get()
    }

    /// Runs an event after this many steps.
    pub fn interrupt(&self, after: u32, interruption: Interruption) {
        *self.0.interruption.borrow_mut() = Some((after, interruption));
    }

    pub fn disk(&self) -> Disk {
        self.0.disk.borrow().clone()
    }

    pub fn change(&self, change: impl FnOnce(&mut Disk)) {
        change(&mut self.0.disk.borrow_mut());
    }

    fn step(&self) -> io::Result<()> {
        let steps = self.0.steps.get() + 1;
        self.0.steps.set(steps);
        let due = self.0.interruption.borrow_mut();
        let due = { due }.take_if(|(after, _)| *after < steps);
        if let Some((_, interruption)) = due {
            interruption(self);
        }
        if self.is_dead() {
            Err(io::Error::other("killed"))
        } else {
            Ok(())
        }
    }

    /// Changes the disk, unless the call was killed before.
    fn write(&self, change: impl FnOnce(&mut Disk)) -> io::Result<()> {
        self.step()?;
        let changes = self.0.changes.get();
        if let Some(kill) = self.0.kill.get()
            && kill.after <= changes
        {
            self.0.is_dead.set(true);
            return Err(io::Error::other("killed"));
        }
        self.0.changes.set(changes + 1);
        self.change(change);
        Ok(())
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryNode")
    }
}

#[derive(Debug)]
struct MemoryLock<'n> {
    node: &'n MemoryNode,
    /// The number of the lock file that is locked.
    file: u32,
}

impl HeldLock for MemoryLock<'_> {
    fn is_current(&self) -> bool {
        let _ = self.node.step();
        self.node.0.disk.borrow().removed_locks == self.file
    }

    fn text(&self) -> io::Result<Vec<u8>> {
        match self.node.0.fault {
            Some(Fault::RecordNotReadable) => Err(refused("input/output error")),
            _ => Ok(self.node.0.disk.borrow().lock.to_vec()),
        }
    }

    fn set_text(&self, text: &[u8]) -> io::Result<()> {
        self.node.refuse(StateFile::Lock, false)?;
        if let Some(Fault::NoRecord) = self.node.0.fault {
            return Err(refused("input/output error"));
        }
        let file = self.file;
        self.node.write(|disk| {
            if disk.removed_locks == file {
                disk.lock = text.into();
            }
        })
    }
}

impl Drop for MemoryLock<'_> {
    fn drop(&mut self) {
        self.node.0.is_locked.set(false);
    }
}

fn refused(why: &'static str) -> io::Error {
    io::Error::other(why)
}

fn length(text: &[u8]) -> u64 {
    u64::try_from(text.len()).unwrap()
}

impl Files for MemoryNode {
    fn now(&self) -> Moment {
        self.0.now.get()
    }

    fn wall_time(&self) -> String {
        // The original writes a different process ID.
        "ours".to_owned()
    }

    fn lock(&self, _: Duration) -> Result<Box<dyn HeldLock + '_>, LockError> {
        self.step().map_err(|source| LockError::Io {
            path: PathBuf::from("lock"),
            source,
        })?;
        let file = self.0.disk.borrow().removed_locks;
        self.0.is_locked.set(true);
        Ok(Box::new(MemoryLock { node: self, file }))
    }

    fn path(&self, file: StateFile) -> PathBuf {
        PathBuf::from(format!("{file:?}"))
    }

    fn read(&self, file: StateFile, limit: usize, _: usize) -> io::Result<ReadOutcome> {
        self.step()?;
        if let (StateFile::Backup, Some(Fault::BackupNotReadable)) = (file, self.0.fault) {
            return Err(refused("input/output error"));
        }
        let disk = self.0.disk.borrow();
        let text = match file {
            StateFile::Lock => Some(&*disk.lock).filter(|text| !text.is_empty()),
            StateFile::State | StateFile::Backup => disk.text(file),
        };
        Ok(match text {
            None => ReadOutcome::Missing,
            Some(text) if text.len() > limit => ReadOutcome::TooLarge,
            Some(text) => ReadOutcome::Read(text.to_vec()),
        })
    }

    fn size(&self, file: StateFile) -> Option<u64> {
        self.step().ok()?;
        self.0.disk.borrow().text(file).map(length)
    }

    fn replace_backup(&self, lock: &dyn HeldLock, text: &[u8]) -> io::Result<()> {
        self.refuse(StateFile::Backup, true)?;
        if !lock.is_current() {
            return Err(refused("the lock was lost"));
        }
        // As with the state, no event happens between the check of the lock and the replacement.
        let interruption = self.0.interruption.take();
        let written = self.write(|disk| disk.put(StateFile::Backup, text));
        *self.0.interruption.borrow_mut() = interruption;
        written
    }

    fn replace_state(
        &self,
        lock: &dyn HeldLock,
        text: &[u8],
        _: Option<&str>,
    ) -> Result<(), StoreError> {
        let path = self.path(StateFile::State);
        // Random events do not happen between the check of the lock and the rename. `.github/BEHAVIOR.md` names that
        // moment as a limitation.
        if !lock.is_current() {
            return Err(StoreError::lost_lock(&path));
        }
        if let Some((disk, now)) = self.0.before_rename.take() {
            self.change(|there| *there = disk);
            self.0.now.set(now);
        }
        self.refuse(StateFile::State, true)
            .map_err(StoreError::at("cannot write", &path))?;
        let interruption = self.0.interruption.take();
        let written = self.write(|disk| disk.put(StateFile::State, text));
        *self.0.interruption.borrow_mut() = interruption;
        written.map_err(StoreError::at("cannot write", &path))
    }

    fn remove_leftovers(&self) {}
}

impl Host for MemoryNode {
    fn has(&self, _: IpAddr) -> bool {
        false
    }

    fn all(&self) -> BTreeSet<IpAddr> {
        BTreeSet::new()
    }

    fn namespace_has(&self, last: &NetNs, address: IpAddr, ago: Duration) -> bool {
        let kernel = &self.0.evidence.kernel;
        let there = last.id.filter(|id| kernel.namespaces.contains(id));
        there.is_some_and(|id| {
            let cookie = kernel.cookies.get(&id).copied();
            let inside = kernel.addresses_by_namespace.get(&id);
            last.is_still(id, cookie, ago) && inside.is_some_and(|inside| inside.contains(&address))
        })
    }
}

impl Node for MemoryNode {
    fn netns(&self, path: &str) -> Option<NetNs> {
        let unknown = NetNs {
            path: path.into(),
            id: None,
            cookie: None,
        };
        Some(self.0.netns.borrow().clone().unwrap_or(unknown))
    }

    fn wait_for_turn(
        &self,
        _: &Source,
        boot_id: Option<&str>,
        _: Duration,
    ) -> Result<Option<Turn>, SourceError> {
        self.ask("the turn".to_owned());
        let found = Attempts {
            boot_id: boot_id.map(str::to_owned),
            doubtful_since: self.0.doubtful_since,
            ..Attempts::default()
        };
        // No other call on the node queries the source.
        Ok(Some(Turn::of_trial(found, "", boot_id, self.now())))
    }

    fn query(&self, _: &Source, _: &Turn, _: Duration) -> Result<MatchedListing, SourceError> {
        self.ask("an answer".to_owned());
        match &self.0.inventory {
            Some(inventory) => Ok(MatchedListing {
                inventory: inventory.clone(),
                ..MatchedListing::default()
            }),
            None => Err(SourceError::Busy),
        }
    }

    fn evidence(&self, candidates: &[Candidate], _: &Progress) -> Evidence {
        let addresses: Vec<IpAddr> = candidates.iter().map(|c| c.key).collect();
        self.ask(format!("a scan with {addresses:?} at {:?}", self.now()));
        if self.0.rests.get() {
            self.0.is_dead.set(true);
        }
        if let Some(Fault::StateIsRemovedAtLook) = self.0.fault {
            self.change(|disk| drop(disk.files.remove(&StateFile::State)));
        }
        self.0.evidence.clone()
    }

    fn is_connected(&self, _: &str, _: IpAddr) -> bool {
        false
    }

    fn is_host_netns(&self, _: &NetNs) -> bool {
        false
    }

    fn is_gone(&self, netns: &NetNs) -> bool {
        netns
            .id
            .is_none_or(|id| !self.0.evidence.kernel.namespaces.contains(&id))
    }
}
