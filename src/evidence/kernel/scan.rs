//! Visits network namespaces, and records the addresses configured in each.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use rustix::fs::fstat;

use super::proc::{
    NetnsMount, id, is_gone, list_netns_mounts, list_numbered, list_threads, read_addresses,
    sees_all_processes,
};
use crate::evidence::Progress;
use crate::host::{Link, NetnsScanner, Paths, boot_now, io_reason, links, open};
use crate::ipam::{Kernel, Moment, Place};

/// The state of a scan.
pub(super) struct Scan<'a> {
    pub paths: &'a Paths,
    pub proc: &'a Path,
    progress: &'a Progress,
    pub kernel: Kernel,
    /// What each namespace has, by device and inode, until the scan is over.
    inside: BTreeMap<(u64, u64), (Place, BTreeSet<IpAddr>)>,
    pub scanner: NetnsScanner,
    /// The numbers by which the host knows other namespaces (netnsid), also those of links that were removed.
    pub numbers: BTreeSet<u32>,
    pub links: Vec<Link>,
    /// When the scan stops.
    stop: Moment,
}

impl<'a> Scan<'a> {
    /// Visits the host's own namespace, and lists the links and numbers that lead to others.
    ///
    /// # Errors
    /// /proc or rtnetlink cannot be used.
    pub fn start(paths: &'a Paths, proc: &'a Path, progress: &'a Progress) -> io::Result<Scan<'a>> {
        let kernel = Kernel {
            host: Some(id(&proc.join("self/ns/net"))?),
            ..Kernel::default()
        };
        let mut scan = Scan {
            paths,
            proc,
            progress,
            kernel,
            inside: BTreeMap::new(),
            scanner: NetnsScanner::new(paths)?,
            numbers: BTreeSet::new(),
            links: Vec::new(),
            stop: boot_now().after(progress.limit),
        };
        scan.is_over_time();
        if !sees_all_processes(proc) {
            scan.mark_incomplete("not every process is to be seen from here".to_owned());
        }
        // Before the namespaces, so that one made meanwhile is not missed.
        scan.links = scan.or_incomplete("the interfaces of the host", links(paths));
        // A macvlan that was moved into a namespace leaves a number behind, and no link. Old kernels do not list them.
        if paths.links().is_none() {
            scan.numbers = scan.scanner.numbers().unwrap_or_default();
        }
        scan.visit(&proc.join("self/ns/net"), FoundBy::Process);
        Ok(scan)
    }

    /// Scans all namespaces.
    pub fn run(mut self) -> Kernel {
        let mounts = self.visit_all();
        self.await_missing();
        self.search_hidden();
        self.reject_covered(&mounts);
        if let Some(why) = self.missing() {
            self.mark_incomplete(why);
        }
        // In the order of the places, so that the same node is told in the same way whatever its inodes are.
        let inside = mem::take(&mut self.inside).into_values();
        for (place, addresses) in inside.collect::<BTreeSet<_>>() {
            self.take(place, addresses);
        }
        self.kernel
    }

    /// Marks the scan as incomplete. The first reason is kept.
    pub fn mark_incomplete(&mut self, why: String) {
        self.kernel.incomplete.get_or_insert(why);
    }

    /// Returns what was read. If that failed, returns nothing and marks the scan as incomplete.
    pub fn or_incomplete<T: Default>(&mut self, what: impl Display, read: io::Result<T>) -> T {
        read.unwrap_or_else(|e| {
            self.mark_incomplete(format!("{what}: {}", io_reason(&e)));
            T::default()
        })
    }

    /// Returns whether the time is over, and marks the scan as incomplete then.
    pub fn is_over_time(&mut self) -> bool {
        let is_over = boot_now() >= self.stop;
        if is_over {
            let seconds = self.progress.limit.as_secs();
            self.mark_incomplete(format!("stopped after {seconds} s"));
        }
        is_over
    }

    /// Visits the namespaces that are mounted in our mount namespace, and those of all threads. Returns the mounts.
    pub fn visit_all(&mut self) -> Vec<NetnsMount> {
        let mounts = list_netns_mounts(&self.proc.join("self/mountinfo"));
        let mounts = self.or_incomplete("the list of mounts", mounts);
        for mount in &mounts {
            self.visit(&mount.path, FoundBy::Mount);
        }
        for process in &self.processes() {
            self.visit_process(process);
        }
        mounts
    }

    /// Lists the folders of all processes.
    pub fn processes(&mut self) -> Vec<PathBuf> {
        self.or_incomplete(self.proc.display(), list_numbered(self.proc))
    }

    /// Lists the folders of the threads of a process, as [`list_threads`] does.
    pub fn threads(&mut self, process: &Path, in_any_case: bool) -> Vec<PathBuf> {
        let found = list_threads(process, in_any_case);
        self.or_incomplete(format_args!("the threads of {}", process.display()), found)
    }

    fn visit_process(&mut self, process: &Path) {
        if self.is_over_time() {
            return;
        }
        let namespace = process.join("ns/net");
        let first = id(&namespace);
        if matches!(&first, Err(e) if e.kind() == io::ErrorKind::PermissionDenied) {
            let read = read_addresses(process);
            if !read.as_ref().is_err_and(is_gone) {
                let addresses = self.or_incomplete(namespace.display(), read);
                let place = process.join("net").display().to_string();
                self.take(Place::Namespace(place), addresses);
            }
            return;
        }
        self.visit(&namespace, FoundBy::Process);
        // A thread may be in another namespace than its process, and the first thread may have ended.
        for thread in self.threads(process, first.is_err()) {
            let namespace = thread.join("ns/net");
            if id(&namespace).ok() != first.as_ref().ok().copied() {
                self.visit(&namespace, FoundBy::Process);
            }
        }
    }

    /// Visits the namespace at a path unless it was visited before. A namespace that was removed meanwhile holds no address; if
    /// another path leads to it, that path is tried as well.
    pub fn visit(&mut self, path: &Path, found_by: FoundBy) {
        if self.is_over_time() {
            return;
        }
        let visited = id(path).and_then(|id| match self.is_visited(id, path) {
            true => Ok(()),
            false => self.enter(&open(path)?, path, found_by),
        });
        let is_ended = || match id(path) {
            // Between its unmount and its removal, a path leads to an ordinary file.
            Ok((dev, _)) => !self.kernel.is_of_namespaces(dev),
            Err(e) => is_gone(&e),
        };
        match visited {
            Err(e) if is_gone(&e) || is_ended() => {}
            visited => self.or_incomplete(path.display(), visited),
        }
    }

    /// Enters the namespace that a file is, and records its addresses. `path` is for messages.
    pub fn enter(&mut self, file: &File, path: &Path, found_by: FoundBy) -> io::Result<()> {
        let found = fstat(file)?;
        let id = (found.st_dev, found.st_ino);
        let inside = self.scanner.scan(file)?;
        self.progress.namespaces.fetch_add(1, Ordering::Relaxed);
        self.kernel.namespaces.insert(id);
        // The inode may have been reused by a later namespace, whose facts count.
        self.kernel.cookies.remove(&id);
        let cookie = inside.cookie.map(|cookie| (id, cookie));
        self.kernel.cookies.extend(cookie);
        let number = inside.number.map(|number| (number, id));
        self.kernel.numbers.extend(number);
        let own = inside.addresses.iter().copied();
        let own = own.filter(|address| !is_local(*address)).collect();
        self.kernel.addresses_by_namespace.insert(id, own);
        // Only root mounts in our mount namespace, also the namespaces of pods with users of their own.
        let is_of_users = inside.is_of_other_users && found_by == FoundBy::Process;
        let path = path.display().to_string();
        let place = match (self.kernel.host == Some(id), is_of_users) {
            (true, _) => Place::Host,
            (false, true) => Place::OfUser(path),
            (false, false) => Place::Namespace(path),
        };
        self.kernel.user_namespaces.remove(&id);
        let of_users = is_of_users.then_some(id);
        self.kernel.user_namespaces.extend(of_users);
        self.inside.insert(id, (place, inside.addresses));
        Ok(())
    }

    fn is_visited(&self, id: (u64, u64), path: &Path) -> bool {
        let cookie = self.kernel.cookies.get(&id).copied();
        self.kernel.namespaces.contains(&id) && !NetnsScanner::is_another(path, cookie)
    }

    /// Records addresses. Namespaces come before the host, so that an address that both have counts as a pod's.
    fn take(&mut self, place: Place, addresses: BTreeSet<IpAddr>) {
        for address in addresses {
            match self.kernel.configured.entry(address) {
                Entry::Vacant(entry) => drop(entry.insert(place.clone())),
                // Every namespace has local addresses of its own.
                Entry::Occupied(_) if place != Place::Host && !is_local(address) => {
                    self.kernel.more_places.push((address, place.clone()));
                }
                Entry::Occupied(_) => {}
            }
        }
    }
}

/// How a namespace was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundBy {
    /// A mount.
    Mount,
    /// A process.
    Process,
}

/// Returns whether an address has no meaning outside of its own namespace or link.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
    }
}
