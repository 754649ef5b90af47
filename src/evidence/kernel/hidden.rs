//! Searches for network namespaces that are mounted in other mount namespaces. Detects namespaces
//! that were not found.

use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::thread::{CapabilitySet, capabilities};

use super::proc::{NetnsMount, id, list_netns_mounts};
use super::scan::{FoundBy, Scan};
use crate::host::{Link, io_reason, links};

impl Scan<'_> {
    /// Scans again while a namespace is missing. Namespaces come and go during a scan. After its
    /// last unmount and before its end, a namespace is visible nowhere.
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

    /// Forgets links that no longer exist, and numbers that are no longer missing. The kernel may
    /// reuse such a number for another namespace.
    fn forget_ended(&mut self) {
        let mut numbers = mem::take(&mut self.numbers);
        numbers.retain(|number| self.is_missing(*number));
        self.numbers = numbers;
        if let Ok(present) = links(self.paths) {
            let ends = |link: &Link| (link.index, link.peer_namespace);
            let present_ends: BTreeSet<_> = present.iter().map(ends).collect();
            self.links.retain(|link| present_ends.contains(&ends(link)));
        }
    }

    /// Visits the namespaces that are mounted in other mount namespaces.
    ///
    /// A namespace that only a descriptor or a socket keeps alive is not searched for. Any pod can
    /// open so many of them that the search would take too long. If such a namespace has or had a
    /// link to the host, [`Scan::missing`] reports it.
    pub(super) fn visit_other_mounts(&mut self) {
        let processes = self.processes();
        let user_namespace = |process: &Path| id(&process.join("ns/user")).ok();
        let own_user_namespace = user_namespace(&self.proc.join("self"));
        let mut seen = BTreeSet::new();
        seen.extend(id(&self.proc.join("self/ns/mnt")));
        for process in &processes {
            let found = id(&process.join("ns/mnt"));
            let is_new = self
                .note_failure(process, found)
                .is_some_and(|id| seen.insert(id));
            if !is_new || self.is_over_time() {
                continue;
            }
            let listed = list_netns_mounts(&process.join("mountinfo"));
            for mount in self.note_failure(process, listed).unwrap_or_default() {
                let inside = mount.path.strip_prefix("/").unwrap_or(&mount.path);
                let path = process.join("root").join(inside);
                let leads_there = || id(&path).is_ok_and(|(_, inode)| inode == mount.inode);
                if !self.has_seen(mount.inode) && leads_there() {
                    // In a mount namespace of their own, users can mount their own network
                    // namespaces.
                    let found_by = if user_namespace(process) == own_user_namespace {
                        FoundBy::Mount
                    } else {
                        FoundBy::Process
                    };
                    self.visit(&path, found_by);
                }
            }
        }
    }

    /// Returns the value that was read from a process, or `None` if reading failed.
    ///
    /// Marks the scan as incomplete when the system fails or runs out of descriptors or memory. It
    /// also does so when access is denied because this process lacks CAP_SYS_PTRACE.
    ///
    /// With that capability, access is denied only to a process that a security module protects
    /// from everyone. Container runtimes cannot access it either, so it belongs to no pod.
    fn note_failure<T>(&mut self, process: &Path, read: io::Result<T>) -> Option<T> {
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
            let reason = io_reason(&error);
            self.mark_incomplete(format!(
                "{} may not be inspected: {reason}",
                process.display()
            ));
        }
        None
    }

    /// Marks the scan as incomplete when one mount covers another in our mount namespace. No path
    /// leads to the namespace of a covered mount.
    pub(super) fn reject_covered(&mut self, mounts: &[NetnsMount]) {
        let is_unseen = |mount: &&NetnsMount| !self.has_seen(mount.inode);
        let Some(mount) = mounts.iter().find(is_unseen) else {
            return;
        };
        // The mount may have been removed since it was listed.
        let present = list_netns_mounts(&self.proc.join("self/mountinfo")).unwrap_or_default();
        let is_covered = present
            .iter()
            .filter(is_unseen)
            .any(|mount| mounts.contains(mount));
        if is_covered {
            self.mark_incomplete(format!(
                "another mount covers the network namespace at {}",
                mount.path.display()
            ));
        }
    }

    /// Returns why the scan must have missed a namespace; `None` if nothing shows that it did.
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

    /// Returns whether the namespace of a number was not found, although the kernel still uses it.
    fn is_missing(&self, number: u32) -> bool {
        !self.kernel.numbers.contains_key(&number) && self.is_live(number)
    }

    /// Returns whether the kernel still uses the namespace of a number, and is not about to remove
    /// it. Returns true where the kernel cannot answer.
    fn is_live(&self, number: u32) -> bool {
        if self.scanner.is_live(number) {
            return true;
        }
        // Before Linux 4.20 the kernel cannot answer this question, not even for a known number.
        let known = self.kernel.numbers.keys().next();
        let can_answer = known.is_some_and(|known| self.scanner.is_live(*known));
        !can_answer
    }

    /// Returns whether the namespace with this inode was visited.
    fn has_seen(&self, inode: u64) -> bool {
        let Some((device, _)) = self.kernel.host else {
            return false;
        };
        self.kernel.namespaces.contains(&(device, inode))
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
        let proc = paths.processes();
        let progress = Progress::of_command();
        let mut scan = Scan::start(&paths, &proc, &progress).unwrap();
        scan.kernel.incomplete = None;
        let file = std::env::temp_dir().join(format!("unmounted-{}", std::process::id()));
        std::fs::write(&file, "").unwrap();
        scan.visit(&file, FoundBy::Mount);
        assert_eq!(scan.kernel.incomplete, None);
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn search_that_runs_out_of_descriptors_is_incomplete() {
        let paths = Paths::new(None, "azure-vnet-ipam");
        let proc = paths.processes();
        let progress = Progress::of_command();
        for (error, is_incomplete) in [
            (libc::EMFILE, true),
            (libc::ENOMEM, true),
            (libc::EIO, true),
            (libc::ENOENT, false),
        ] {
            let mut scan = Scan::start(&paths, &proc, &progress).unwrap();
            scan.kernel.incomplete = None;
            let failed: io::Result<()> = Err(io::Error::from_raw_os_error(error));
            scan.note_failure(&proc.join("1"), failed);
            assert_eq!(scan.kernel.incomplete.is_some(), is_incomplete, "{error}");
        }
    }
}
