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

use super::proc::{NetnsMount, id, list_netns_mounts};
use super::scan::{FoundBy, Scan};
use crate::host::{Link, SocketsOfProcess, io_reason, links, open};

impl Scan<'_> {
    /// Scans again while a namespace is missing. Namespaces come and go during a scan, and between its last unmount and its end a
    /// namespace is visible nowhere.
    pub(super) fn await_missing(&mut self) {
        const ROUNDS: u32 = 5;
        const CHECKS: u32 = 5;
        const PAUSE: Duration = Duration::from_millis(1);
        for _ in 0..ROUNDS {
            for _ in 0..CHECKS {
                if self.missing().is_none() || self.is_over_time() {
                    return;
                }
                thread::sleep(PAUSE);
                self.forget_ended();
            }
            self.visit_all();
        }
    }

    /// Forgets links that no longer exist, and numbers that are no longer missing: another namespace may get the same number.
    fn forget_ended(&mut self) {
        let numbers = mem::take(&mut self.numbers).into_iter();
        self.numbers = numbers.filter(|number| self.is_missing(*number)).collect();
        if let Ok(now) = links(self.paths) {
            let ends = |link: &Link| (link.index, link.peer_namespace);
            let now: BTreeSet<_> = now.iter().map(ends).collect();
            self.links.retain(|link| now.contains(&ends(link)));
        }
    }

    /// Searches the rare places one after the other.
    pub(super) fn search_hidden(&mut self) {
        let processes = self.processes();
        self.visit_other_mounts(&processes);
        let mut sockets = Vec::new();
        for process in &processes {
            self.visit_descriptors(process, &mut sockets);
        }
        self.visit_sockets(&sockets);
    }

    /// Visits the namespaces that are mounted in other mount namespaces.
    fn visit_other_mounts(&mut self, processes: &[PathBuf]) {
        let of_users = |process: &Path| id(&process.join("ns/user")).ok();
        let own_users = of_users(&self.proc.join("self"));
        let mut seen = BTreeSet::new();
        seen.extend(id(&self.proc.join("self/ns/mnt")));
        for process in processes {
            let is_new = id(&process.join("ns/mnt")).is_ok_and(|id| seen.insert(id));
            if !is_new || self.is_over_time() {
                continue;
            }
            let mounts = list_netns_mounts(&process.join("mountinfo"));
            for mount in self.noted(process, mounts).unwrap_or_default() {
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
        if self.is_over_time() {
            return;
        }
        // The first thread may have ended while others run.
        let folders = match id(&process.join("ns/net")) {
            Ok(_) => vec![process.to_owned()],
            Err(_) => self.threads(process, true),
        };
        for folder in folders {
            let files = fs::read_dir(folder.join("fd"));
            for file in self.noted(process, files).into_iter().flatten() {
                let path = file.map(|file| file.path());
                let Some(path) = self.noted(process, path) else {
                    continue;
                };
                let name = self.noted(process, fs::read_link(&path));
                let Some(name) = name.filter(|_| !self.is_over_time()) else {
                    continue;
                };
                let name = name.to_string_lossy();
                // A namespace that was opened by the path of its mount has that path as its name.
                let may_be = name.starts_with("net:[")
                    || name.starts_with('/') && !name.starts_with("/dev/");
                if name.starts_with("socket:[") {
                    sockets.push(path);
                } else if may_be && self.is_unseen(&path) {
                    // It may be another kind of namespace, or gone. One that may not be entered counts as not found.
                    let entered =
                        open(&path).and_then(|file| self.enter(&file, &path, FoundBy::Process));
                    self.noted(process, entered);
                }
            }
        }
    }

    /// Returns what was read of a process. If that failed, marks the scan as incomplete when the system fails or runs out of
    /// descriptors or memory, or when this process may not inspect others, as it lacks CAP_SYS_PTRACE. With it, a refusal is about a
    /// single process that a security module protects from everyone, container runtimes included, so that it holds no pod.
    fn noted<T>(&mut self, process: &Path, read: io::Result<T>) -> Option<T> {
        let error = match read {
            Ok(read) => return Some(read),
            Err(error) => error,
        };
        let is_failure = matches!(
            error.raw_os_error(),
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EIO)
        );
        let is_refused = error.kind() == io::ErrorKind::PermissionDenied;
        if is_failure || is_refused && !may_inspect_processes() {
            let (process, reason) = (process.display(), io_reason(&error));
            self.mark_incomplete(format!("{process} may not be inspected: {reason}"));
        }
        None
    }

    /// Visits the namespaces of sockets.
    fn visit_sockets(&mut self, sockets: &[PathBuf]) {
        let mut known: BTreeSet<u64> = self.kernel.cookies.values().copied().collect();
        for sockets in sockets.chunk_by(|one, next| one.parent() == next.parent()) {
            let path = sockets.first().and_then(|socket| socket.parent()?.parent());
            let Some(path) = path else { continue };
            let Some(process) = self.noted(path, SocketsOfProcess::open(path)) else {
                continue;
            };
            for socket in sockets {
                if self.is_over_time() {
                    return;
                }
                let namespace = process.namespace(socket, |cookie| known.contains(&cookie));
                // One that may not be entered counts as not found.
                let mut enter = |file| self.enter(&file, socket, FoundBy::Process);
                let entered = namespace.and_then(|found| found.map(&mut enter).transpose());
                if let Some(Some(())) = self.noted(path, entered) {
                    known.extend(self.kernel.cookies.values());
                }
            }
        }
    }

    /// Marks the scan as incomplete when one mount covers another in our mount namespace, so that no path leads to its namespace.
    pub(super) fn reject_covered(&mut self, mounts: &[NetnsMount]) {
        let is_unseen = |mount: &&NetnsMount| !self.has_seen(mount.inode);
        let Some(mount) = mounts.iter().find(is_unseen) else {
            return;
        };
        // It may have been removed meanwhile.
        let now = list_netns_mounts(&self.proc.join("self/mountinfo")).unwrap_or_default();
        if now.iter().filter(is_unseen).any(|now| mounts.contains(now)) {
            let path = mount.path.display();
            self.mark_incomplete(format!(
                "another mount covers the network namespace at {path}"
            ));
        }
    }

    /// Returns why there must be a namespace that was not found.
    pub(super) fn missing(&self) -> Option<String> {
        let lacks_peer = |link: &&Link| link.peer_namespace.is_some_and(|n| self.is_missing(n));
        if let Some(Link { name, .. }) = self.links.iter().find(lacks_peer) {
            return Some(format!(
                "the other end of {name} is in a network namespace that was not found"
            ));
        }
        let number = self.numbers.iter().find(|n| self.is_missing(**n))?;
        Some(format!(
            "the network namespace that the host knows as number {number} was not found"
        ))
    }

    /// Returns whether the kernel uses the namespace of a number, and it was not found. The kernel is asked only then.
    fn is_missing(&self, number: u32) -> bool {
        !self.kernel.numbers.contains_key(&number) && self.is_live(number)
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
            self.kernel.is_of_namespaces(device) && !self.has_seen(found.stx_ino)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Progress;
    use crate::host::Paths;

    #[test]
    fn path_that_is_unmounted_and_not_removed_is_no_namespace() {
        let paths = Paths::new(None, "azure-vnet-ipam");
        let (proc, progress) = (paths.processes(), Progress::of_command());
        let mut scan = Scan::start(&paths, &proc, &progress).unwrap();
        scan.kernel.incomplete = None;
        let file = std::env::temp_dir().join(format!("unmounted-{}", std::process::id()));
        fs::write(&file, "").unwrap();
        scan.visit(&file, FoundBy::Mount);
        assert_eq!(scan.kernel.incomplete, None);
        fs::remove_file(file).unwrap();
    }

    #[test]
    fn search_that_runs_out_of_descriptors_is_incomplete() {
        let paths = Paths::new(None, "azure-vnet-ipam");
        let (proc, progress) = (paths.processes(), Progress::of_command());
        for (error, is_incomplete) in [
            (libc::EMFILE, true),
            (libc::ENOMEM, true),
            (libc::EIO, true),
            (libc::ENOENT, false),
        ] {
            let mut scan = Scan::start(&paths, &proc, &progress).unwrap();
            scan.kernel.incomplete = None;
            let failed: io::Result<()> = Err(io::Error::from_raw_os_error(error));
            scan.noted(&proc.join("1"), failed);
            assert_eq!(scan.kernel.incomplete.is_some(), is_incomplete, "{error}");
        }
    }
}
