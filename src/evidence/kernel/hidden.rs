//! Searches for network namespaces in rare places: mounts in other mount namespaces, descriptors and sockets. Detects namespaces
//! that were not found.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use rustix::thread::{CapabilitySet, capabilities};

use super::mounts::{NetnsMount, list_netns_mounts};
use super::proc::id;
use super::scan::{FoundBy, IsExplained, Scan};
use crate::host::{Link, Paths, SocketsOfProcess, links, open};

impl Scan<'_> {
    /// Scans again while a namespace is missing. Namespaces come and go during a scan, and between its last unmount and its end a
    /// namespace is visible nowhere.
    pub(super) fn await_missing(&mut self, paths: &Paths, proc: &Path) {
        const ROUNDS: u32 = 5;
        const CHECKS: u32 = 5;
        const PAUSE: Duration = Duration::from_millis(1);
        for _ in 0..ROUNDS {
            for _ in 0..CHECKS {
                if self.missing().is_none() || self.is_over_time() {
                    return;
                }
                thread::sleep(PAUSE);
                self.forget_ended(paths);
            }
            self.visit_all(proc);
        }
    }

    /// Forgets numbers and links that no longer exist: another namespace may get the same number.
    fn forget_ended(&mut self, paths: &Paths) {
        let numbers = mem::take(&mut self.numbers);
        // The kernel is asked only for numbers of namespaces that were not found.
        let live = numbers
            .into_iter()
            .filter(|number| self.kernel.numbers.contains_key(number) || self.is_live(*number));
        self.numbers = live.collect();
        if let Ok(now) = links(paths) {
            let ends = |link: &Link| (link.index, link.peer_namespace);
            let now: BTreeSet<_> = now.iter().map(ends).collect();
            self.links.retain(|link| now.contains(&ends(link)));
        }
    }

    /// Searches the rare places one after the other, until every address is explained and no namespace is missing.
    pub(super) fn search_hidden(&mut self, proc: &Path, is_explained: IsExplained<'_>) {
        let is_over = |scan: &mut Self| {
            is_explained(&scan.kernel) && scan.missing().is_none() || scan.is_over_time()
        };
        if is_over(self) {
            return;
        }
        let processes = self.processes(proc);
        self.visit_other_mounts(proc, &processes);
        if is_over(self) {
            return;
        }
        let mut sockets = Vec::new();
        for process in &processes {
            self.visit_descriptors(process, &mut sockets);
        }
        if !is_over(self) {
            self.visit_sockets(&sockets);
        }
    }

    /// Visits the namespaces that are mounted in other mount namespaces.
    fn visit_other_mounts(&mut self, proc: &Path, processes: &[PathBuf]) {
        let of_users = |process: &Path| id(&process.join("ns/user")).ok();
        let own_users = of_users(&proc.join("self"));
        let mut seen = BTreeSet::new();
        seen.extend(id(&proc.join("self/ns/mnt")));
        for process in processes {
            let is_new = id(&process.join("ns/mnt")).is_ok_and(|id| seen.insert(id));
            if !is_new || self.is_over_time() {
                continue;
            }
            for mount in list_netns_mounts(&process.join("mountinfo")).unwrap_or_default() {
                let path = mount.path.strip_prefix("/").unwrap_or(&mount.path);
                let path = process.join("root").join(path);
                let is_it = || id(&path).is_ok_and(|(_, inode)| inode == mount.inode);
                if !self.has_seen(mount.inode) && is_it() {
                    // Any user can mount a namespace of their own in a mount namespace of their own.
                    let found_by = match of_users(process) == own_users {
                        true => FoundBy::Mount,
                        false => FoundBy::Process,
                    };
                    self.visit(&path, found_by);
                }
            }
        }
    }

    /// Visits the namespaces that a process has open, and collects its sockets.
    fn visit_descriptors(&mut self, process: &Path, sockets: &mut Vec<PathBuf>) {
        // The first thread may have ended while others run.
        let folders = match id(&process.join("ns/net")) {
            Ok(_) => vec![process.to_owned()],
            Err(_) => self.threads(process, true),
        };
        for folder in folders {
            let files = fs::read_dir(folder.join("fd"));
            self.note_refusal(process, files.as_ref().err());
            for file in files.into_iter().flatten().flatten() {
                let path = file.path();
                let name = fs::read_link(&path);
                self.note_refusal(process, name.as_ref().err());
                let Some(name) = name.ok().filter(|_| !self.is_over_time()) else {
                    continue;
                };
                let name = name.to_string_lossy();
                // A namespace that was opened by the path of its mount has that path as its name.
                let may_be = name.starts_with("net:[")
                    || name.starts_with('/') && !name.starts_with("/dev/");
                if name.starts_with("socket:[") {
                    sockets.push(path);
                } else if may_be
                    && self.is_unseen(&path)
                    && let Ok(file) = open(&path)
                {
                    // It may be another kind of namespace, or gone. One that may not be entered counts as not found.
                    let _ = self.enter(&file, &path, FoundBy::Process);
                }
            }
        }
    }

    /// Marks the scan as incomplete when this process may not inspect others, as it lacks CAP_SYS_PTRACE. With it, a refusal is about
    /// a single process that a security module protects from everyone, container runtimes included, so that it holds no pod.
    fn note_refusal(&mut self, process: &Path, error: Option<&io::Error>) {
        let is_refused = error.is_some_and(|e| e.kind() == io::ErrorKind::PermissionDenied);
        if is_refused && !may_inspect_processes() {
            let process = process.display();
            self.mark_incomplete(format!("{process} may not be inspected"));
        }
    }

    /// Visits the namespaces of sockets.
    fn visit_sockets(&mut self, sockets: &[PathBuf]) {
        let mut known: BTreeSet<u64> = self.kernel.cookies.values().copied().collect();
        let mut last: Option<(&Path, Option<SocketsOfProcess>)> = None;
        for socket in sockets {
            let process = socket.parent().and_then(Path::parent);
            let Some(process) = process.filter(|_| !self.is_over_time()) else {
                return;
            };
            if last.as_ref().is_none_or(|(of, _)| *of != process) {
                last = Some((process, SocketsOfProcess::open(process)));
            }
            let Some((_, Some(process))) = &last else {
                continue;
            };
            let namespace = process.namespace(socket, |cookie| known.contains(&cookie));
            // One that may not be entered counts as not found.
            if let Some(namespace) = namespace
                && self.enter(&namespace, socket, FoundBy::Process).is_ok()
            {
                known.extend(self.kernel.cookies.values());
            }
        }
    }

    /// Marks the scan as incomplete when one mount covers another in our mount namespace, so that no path leads to its namespace.
    pub(super) fn reject_covered(&mut self, mounts: &[NetnsMount], proc: &Path) {
        let is_unseen = |mount: &&NetnsMount| !self.has_seen(mount.inode);
        let Some(mount) = mounts.iter().find(is_unseen) else {
            return;
        };
        // It may have been removed meanwhile.
        let now = list_netns_mounts(&proc.join("self/mountinfo")).unwrap_or_default();
        let covered = now
            .iter()
            .find(|mount| mounts.contains(mount) && is_unseen(mount));
        if covered.is_some() {
            let path = mount.path.display();
            self.mark_incomplete(format!(
                "another mount covers the network namespace at {path}"
            ));
        }
    }

    /// Returns why there must be a namespace that was not found.
    pub(super) fn missing(&self) -> Option<String> {
        let is_missing = |number: &u32| {
            let is_seen = self.kernel.numbers.contains_key(number);
            !is_seen && self.is_live(*number)
        };
        let link = self
            .links
            .iter()
            .find(|link| link.peer_namespace.as_ref().is_some_and(is_missing));
        if let Some(link) = link {
            let name = &link.name;
            return Some(format!(
                "the other end of {name} is in a network namespace that was not found"
            ));
        }
        let number = self.numbers.iter().find(|number| is_missing(number))?;
        Some(format!(
            "the network namespace that the host knows as number {number} was not found"
        ))
    }

    /// Returns whether the kernel still uses the namespace of a number, and is not just about to remove it. True where the kernel does
    /// not tell.
    fn is_live(&self, number: u32) -> bool {
        // Before Linux 4.20 the kernel does not answer this question for any number.
        let known = self.kernel.numbers.keys().next();
        let can_tell = || known.is_some_and(|known| self.scanner.is_live(*known));
        self.scanner.is_live(number) || !can_tell()
    }

    /// Returns whether a descriptor is a namespace that was not visited.
    fn is_unseen(&self, descriptor: &Path) -> bool {
        /// Use cached attributes, as a file system that does not answer must not block the scan (statx(2)).
        const AT_STATX_DONT_SYNC: u32 = 0x4000;
        let flags = AtFlags::from_bits_retain(AT_STATX_DONT_SYNC);
        let found = statx(CWD, descriptor, flags, StatxFlags::INO);
        found.is_ok_and(|found| {
            let device = makedev(found.stx_dev_major, found.stx_dev_minor);
            let is_namespace = self.kernel.host.is_some_and(|(nsfs, _)| nsfs == device);
            is_namespace && !self.has_seen(found.stx_ino)
        })
    }

    /// Returns whether the namespace of this inode was visited.
    fn has_seen(&self, inode: u64) -> bool {
        let device = self.kernel.host.map(|(device, _)| device);
        device.is_some_and(|device| self.kernel.namespaces.contains(&(device, inode)))
    }
}

fn may_inspect_processes() -> bool {
    capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::SYS_PTRACE))
}
