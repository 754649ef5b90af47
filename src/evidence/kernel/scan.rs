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
    /// The place and the addresses of each namespace, by device and inode. [`Scan::run`] moves them
    /// to `kernel` at the end of the scan.
    inside: BTreeMap<(u64, u64), (Place, BTreeSet<IpAddr>)>,
    pub scanner: NetnsScanner,
    /// The host's numbers (netnsid) for other namespaces, including those of links that were
    /// removed.
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
            scan.mark_incomplete("not every process is visible".to_owned());
        }
        // Links are listed before namespaces. Otherwise a namespace that is created in between
        // would count as missing.
        scan.links = scan.or_incomplete("the interfaces of the host", links(paths));
        // A macvlan interface that was moved into a namespace leaves a number and no link. Old
        // kernels do not list the numbers.
        if paths.links().is_none() {
            scan.numbers = scan.scanner.numbers().unwrap_or_default();
        }
        scan.visit(&proc.join("self/ns/net"), FoundBy::Process);
        Ok(scan)
    }

    /// Scans all namespaces, and returns what was found.
    pub fn run(mut self) -> Kernel {
        let mounts = self.visit_all();
        self.await_missing();
        self.visit_other_mounts();
        self.reject_covered(&mounts);
        if let Some(why) = self.missing() {
            self.mark_incomplete(why);
        }
        // Sorting by place makes the result independent of inodes. An address of both the host and
        // another namespace then counts as a pod's.
        let inside: BTreeSet<_> = mem::take(&mut self.inside).into_values().collect();
        for (place, addresses) in inside {
            self.record_addresses(place, addresses);
        }
        self.kernel
    }

    /// Marks the scan as incomplete. A later reason does not replace the first one.
    pub fn mark_incomplete(&mut self, why: String) {
        self.kernel.incomplete.get_or_insert(why);
    }

    /// Returns the value that was read. If reading failed, marks the scan as incomplete and returns
    /// an empty value.
    pub fn or_incomplete<T: Default>(&mut self, what: impl Display, read: io::Result<T>) -> T {
        read.unwrap_or_else(|e| {
            self.mark_incomplete(format!("{what}: {}", io_reason(&e)));
            T::default()
        })
    }

    /// Returns whether the time limit is reached. If so, marks the scan as incomplete.
    pub fn is_over_time(&mut self) -> bool {
        let is_over = boot_now() >= self.stop;
        if is_over {
            let seconds = self.progress.limit.as_secs();
            self.mark_incomplete(format!("stopped after {seconds} s"));
        }
        is_over
    }

    /// Visits the namespaces that are mounted in our mount namespace, and those of all threads.
    /// Returns the mounts.
    pub fn visit_all(&mut self) -> Vec<NetnsMount> {
        let listed = list_netns_mounts(&self.proc.join("self/mountinfo"));
        let mounts = self.or_incomplete("the list of mounts", listed);
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
        let listed = list_threads(process, in_any_case);
        self.or_incomplete(format_args!("the threads of {}", process.display()), listed)
    }

    /// Visits the namespaces of the threads of a process.
    fn visit_process(&mut self, process: &Path) {
        if self.is_over_time() {
            return;
        }
        let namespace = process.join("ns/net");
        let process_id = match id(&namespace) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                self.read_process(process);
                return;
            }
            Ok(id) => Some(id),
            Err(_) => None,
        };
        self.visit(&namespace, FoundBy::Process);
        // A thread may be in another namespace than its process, and the first thread may have
        // ended.
        for thread in self.threads(process, process_id.is_none()) {
            let thread_namespace = thread.join("ns/net");
            if id(&thread_namespace).ok() != process_id {
                self.visit(&thread_namespace, FoundBy::Process);
            }
        }
    }

    /// Records the addresses of a process with a namespace that may not be entered.
    fn read_process(&mut self, process: &Path) {
        match read_addresses(process) {
            Ok(addresses) => {
                let place = process.join("net").display().to_string();
                self.record_addresses(Place::Namespace(place), addresses);
            }
            // A process that has ended has no address.
            Err(e) if is_gone(&e) => {}
            Err(e) => {
                let path = process.join("ns/net");
                self.mark_incomplete(format!("{}: {}", path.display(), io_reason(&e)));
            }
        }
    }

    /// Visits the namespace at a path, unless it was visited before. A namespace that was removed
    /// since it was listed has no address. If another path leads to it, the scan visits that path
    /// too.
    pub fn visit(&mut self, path: &Path, found_by: FoundBy) {
        if self.is_over_time() {
            return;
        }
        if let Err(e) = self.try_visit(path, found_by)
            && !is_gone(&e)
            && !self.was_removed(path)
        {
            self.mark_incomplete(format!("{}: {}", path.display(), io_reason(&e)));
        }
    }

    fn try_visit(&mut self, path: &Path, found_by: FoundBy) -> io::Result<()> {
        if self.is_visited(id(path)?, path) {
            return Ok(());
        }
        self.enter(&open(path)?, path, found_by)
    }

    /// Returns whether a path no longer leads to a namespace.
    fn was_removed(&self, path: &Path) -> bool {
        match id(path) {
            // After its unmount and before its removal, a path leads to an ordinary file.
            Ok((device, _)) => !self.kernel.is_of_namespaces(device),
            Err(e) => is_gone(&e),
        }
    }

    /// Enters the namespace of an open file, and records its addresses. `path` is for messages.
    pub fn enter(&mut self, file: &File, path: &Path, found_by: FoundBy) -> io::Result<()> {
        let found = fstat(file)?;
        let id = (found.st_dev, found.st_ino);
        let inside = self.scanner.scan(file)?;
        self.progress.namespaces.fetch_add(1, Ordering::Relaxed);
        self.kernel.namespaces.insert(id);
        // A later namespace may have the inode of an earlier one. So everything is replaced.
        match inside.cookie {
            Some(cookie) => self.kernel.cookies.insert(id, cookie),
            None => self.kernel.cookies.remove(&id),
        };
        if let Some(number) = inside.number {
            self.kernel.numbers.insert(number, id);
        }
        let global_addresses = inside
            .addresses
            .iter()
            .copied()
            .filter(|address| !is_local(*address))
            .collect();
        self.kernel
            .addresses_by_namespace
            .insert(id, global_addresses);
        // Any user can create such a namespace. Only root can mount one in our mount namespace, and
        // container runtimes do so for pods with user namespaces.
        let is_of_user = inside.is_of_other_users && found_by == FoundBy::Process;
        if is_of_user {
            self.kernel.user_namespaces.insert(id);
        } else {
            self.kernel.user_namespaces.remove(&id);
        }
        let place = if self.kernel.host == Some(id) {
            Place::Host
        } else if is_of_user {
            Place::OfUser(path.display().to_string())
        } else {
            Place::Namespace(path.display().to_string())
        };
        self.inside.insert(id, (place, inside.addresses));
        Ok(())
    }

    fn is_visited(&self, id: (u64, u64), path: &Path) -> bool {
        let cookie = self.kernel.cookies.get(&id).copied();
        self.kernel.namespaces.contains(&id) && !NetnsScanner::is_another(path, cookie)
    }

    /// Records the addresses configured at a place. If several places have an address, the first
    /// one recorded counts.
    fn record_addresses(&mut self, place: Place, addresses: BTreeSet<IpAddr>) {
        for address in addresses {
            match self.kernel.configured.entry(address) {
                Entry::Vacant(entry) => {
                    entry.insert(place.clone());
                }
                // Every namespace has its own loopback and link-local addresses.
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
    /// Through a mount.
    Mount,
    /// Through a process.
    Process,
}

/// Returns whether an address has no meaning outside of its own namespace or link.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
    }
}
