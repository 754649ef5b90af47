//! Visits network namespaces, and records the addresses configured in each.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::fstat;

use super::mounts::{NetnsMount, list_netns_mounts};
use super::proc::{id, is_gone, list_numbered, list_threads, sees_all_processes};
use super::proc_addresses::read_addresses;
use crate::evidence::Progress;
use crate::host::{Link, NetnsScanner, Paths, boot_now, io_reason, links, open};
use crate::ipam::{Kernel, Moment, Place};

/// Returns whether every address in question was found, so that the search in rare places can be skipped.
pub type IsExplained<'a> = &'a (dyn Fn(&Kernel) -> bool + Sync);

/// The state of a scan.
pub(super) struct Scan<'a> {
    progress: &'a Progress,
    pub kernel: Kernel,
    pub scanner: NetnsScanner,
    /// The numbers by which the host knows other namespaces (netnsid), also those of links that were removed.
    pub numbers: BTreeSet<u32>,
    pub links: Vec<Link>,
    /// When the scan stops, and after how long that is.
    stop: (Moment, Duration),
}

impl<'a> Scan<'a> {
    /// Visits the host's own namespace, and lists the links and numbers that lead to others.
    ///
    /// # Errors
    /// /proc or rtnetlink cannot be used.
    pub fn start(
        paths: &Paths,
        proc: &Path,
        progress: &'a Progress,
        stop: (Moment, Duration),
    ) -> io::Result<Scan<'a>> {
        let host = id(&proc.join("self/ns/net"))?;
        let mut scan = Scan {
            progress,
            kernel: Kernel {
                host: Some(host),
                ..Kernel::default()
            },
            scanner: NetnsScanner::new(paths)?,
            numbers: BTreeSet::new(),
            links: Vec::new(),
            stop,
        };
        scan.is_over_time();
        if !sees_all_processes(proc) {
            scan.mark_incomplete("not every process is to be seen from here".to_owned());
        }
        // Before the namespaces, so that one made meanwhile is not missed.
        match links(paths) {
            Ok(links) => scan.links = links,
            Err(e) => {
                scan.mark_incomplete(format!("the interfaces of the host: {}", io_reason(&e)));
            }
        }
        // A macvlan that was moved into a namespace leaves a number behind, and no link. Old kernels do not list them.
        if paths.links().is_none() {
            scan.numbers = scan.scanner.numbers().unwrap_or_default();
        }
        scan.visit(&proc.join("self/ns/net"), FoundBy::Process);
        Ok(scan)
    }

    /// Marks the scan as incomplete. The first reason is kept.
    pub fn mark_incomplete(&mut self, why: String) {
        self.kernel.incomplete.get_or_insert(why);
    }

    /// Returns whether the time is over, and marks the scan as incomplete then.
    pub fn is_over_time(&mut self) -> bool {
        let (at, limit) = self.stop;
        let is_over = boot_now() >= at;
        if is_over {
            self.mark_incomplete(format!("stopped after {} s", limit.as_secs()));
        }
        is_over
    }

    /// Visits the namespaces that are mounted in our mount namespace, and those of all threads. Returns the mounts.
    pub fn visit_all(&mut self, proc: &Path) -> Vec<NetnsMount> {
        let mounts = list_netns_mounts(&proc.join("self/mountinfo")).unwrap_or_else(|e| {
            self.mark_incomplete(format!("the list of mounts: {}", io_reason(&e)));
            Vec::new()
        });
        for mount in &mounts {
            self.visit(&mount.path, FoundBy::Mount);
        }
        for process in &self.processes(proc) {
            self.visit_process(process);
        }
        mounts
    }

    /// Lists the folders of all processes.
    pub fn processes(&mut self, proc: &Path) -> Vec<PathBuf> {
        match list_numbered(proc) {
            Ok(processes) => processes,
            Err(e) => {
                self.mark_incomplete(format!("{}: {}", proc.display(), io_reason(&e)));
                Vec::new()
            }
        }
    }

    /// Lists the folders of the threads of a process, as [`list_threads`] does.
    pub fn threads(&mut self, process: &Path, in_any_case: bool) -> Vec<PathBuf> {
        list_threads(process, in_any_case).unwrap_or_else(|e| {
            self.mark_incomplete(format!(
                "the threads of {}: {}",
                process.display(),
                io_reason(&e)
            ));
            Vec::new()
        })
    }

    fn visit_process(&mut self, process: &Path) {
        if self.is_over_time() {
            return;
        }
        let namespace = process.join("ns/net");
        let first = id(&namespace);
        match &first {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                match read_addresses(process) {
                    Ok(addresses) => self.take(
                        Place::Namespace(process.join("net").display().to_string()),
                        addresses,
                    ),
                    Err(e) if is_gone(&e) => {}
                    Err(e) => {
                        self.mark_incomplete(format!("{}: {}", namespace.display(), io_reason(&e)))
                    }
                }
                return;
            }
            Ok(_) | Err(_) => self.visit(&namespace, FoundBy::Process),
        }
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
        match visited {
            Ok(()) => {}
            Err(e) if is_gone(&e) || id(path).is_err_and(|e| is_gone(&e)) => {}
            Err(e) => self.mark_incomplete(format!("{}: {}", path.display(), io_reason(&e))),
        }
    }

    /// Enters the namespace that a file is, and records its addresses. `path` is for messages.
    pub fn enter(&mut self, file: &File, path: &Path, found_by: FoundBy) -> io::Result<()> {
        let found = fstat(file)?;
        let id = (found.st_dev, found.st_ino);
        let found_inside = self.scanner.scan(file)?;
        self.progress.count_namespace();
        self.kernel.namespaces.insert(id);
        // The inode may have been reused by a later namespace, whose cookie counts.
        match found_inside.cookie {
            Some(cookie) => self.kernel.cookies.insert(id, cookie),
            None => self.kernel.cookies.remove(&id),
        };
        let number = found_inside.number.map(|number| (number, id));
        self.kernel.numbers.extend(number);
        let own = found_inside.addresses.iter().copied();
        let own = own.filter(|address| !is_local(*address)).collect();
        self.kernel.addresses_by_namespace.insert(id, own);
        // Only root mounts in our mount namespace, also the namespaces of pods with users of their own.
        let is_of_users = found_inside.is_of_other_users && found_by == FoundBy::Process;
        let path = path.display().to_string();
        let place = match (self.kernel.host == Some(id), is_of_users) {
            (true, _) => Place::Host,
            (false, true) => Place::OfUser(path),
            (false, false) => Place::Namespace(path),
        };
        if is_of_users {
            self.kernel.user_namespaces.insert(id);
        } else {
            self.kernel.user_namespaces.remove(&id);
        }
        self.take(place, found_inside.addresses);
        Ok(())
    }

    fn is_visited(&self, id: (u64, u64), path: &Path) -> bool {
        let cookie = self.kernel.cookies.get(&id).copied();
        self.kernel.namespaces.contains(&id) && !NetnsScanner::is_another(path, cookie)
    }

    /// Records addresses. An address that both the host and a pod have counts as the pod's.
    fn take(&mut self, place: Place, addresses: BTreeSet<IpAddr>) {
        for address in addresses {
            let mut entry = match self.kernel.configured.entry(address) {
                Entry::Vacant(entry) => {
                    entry.insert(place.clone());
                    continue;
                }
                Entry::Occupied(entry) => entry,
            };
            let lesser = match entry.get().precedence() < place.precedence() {
                true => entry.insert(place.clone()),
                false => place.clone(),
            };
            // Every namespace has local addresses of its own.
            if lesser != Place::Host && !is_local(address) {
                self.kernel.more_places.push((address, lesser));
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
