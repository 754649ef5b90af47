//! E0, the heart of it: the addresses configured in every network namespace of the node. No list can be as right as that.

mod hidden;
mod mounts;
mod shown;

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::{fstat, stat};

use super::Progress;
use crate::host::{Link, NetnsScanner, Paths, ReadOutcome, io_reason, links, open, read_bounded};
use crate::ipam::{Kernel, Place};
use mounts::{Mount, mounted};
use shown::shown;

/// The inode of the first PID namespace (PROC_PID_INIT_INO). In another one not every process is to be seen.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// A list of mounts, or of a namespace's addresses, takes no more than this.
const LIST_LIMIT: usize = 64 << 20;
/// No such process.
const ESRCH: i32 = 3;

/// Whether what a look is for was found, so that it need not search where namespaces are seldom kept.
pub type IsExplained<'a> = &'a (dyn Fn(&Kernel) -> bool + Sync);

/// Looks into every network namespace, each once: those mounted somewhere and those of threads; and as long as something is not
/// explained, those that only a mount elsewhere, a descriptor or a socket keeps.
///
/// Going into a namespace changes the thread that does it for good, so another thread does it all.
pub fn look(paths: &Paths, progress: &Progress, is_explained: IsExplained<'_>) -> Kernel {
    let failed = |e: &io::Error| Kernel {
        incomplete: Some(io_reason(e)),
        ..Kernel::default()
    };
    let look = || Looker::look(paths, progress, is_explained);
    thread::scope(
        |scope| match thread::Builder::new().spawn_scoped(scope, look) {
            Ok(looker) => looker
                .join()
                .unwrap_or_else(|_| failed(&io::Error::other("the look at the kernel failed"))),
            Err(e) => failed(&e),
        },
    )
}

/// One look, as far as it has come.
struct Looker<'a> {
    progress: &'a Progress,
    kernel: Kernel,
    visitor: NetnsScanner,
    /// Numbers of namespaces that the host has or had to do with.
    numbers: BTreeSet<u32>,
    links: Vec<Link>,
}

impl Looker<'_> {
    fn look(paths: &Paths, progress: &Progress, is_explained: IsExplained<'_>) -> Kernel {
        let proc = paths.processes();
        let start =
            || Ok::<_, io::Error>((id(&proc.join("self/ns/net"))?, NetnsScanner::new(paths)?));
        let (host, visitor) = match start() {
            Ok(start) => start,
            Err(e) => {
                let incomplete = Some(format!("{}: {}", proc.display(), io_reason(&e)));
                return Kernel {
                    incomplete,
                    ..Kernel::default()
                };
            }
        };
        let mut looker = Looker {
            progress,
            kernel: Kernel {
                host: Some(host),
                ..Kernel::default()
            },
            visitor,
            numbers: BTreeSet::new(),
            links: Vec::new(),
        };
        if !sees_all_processes(&proc) {
            looker.doubt("not every process is to be seen from here".to_owned());
        }
        // Before the namespaces, so that one made meanwhile is not missed.
        match links(paths) {
            Ok(links) => looker.links = links,
            Err(e) => looker.doubt(format!("the interfaces of the host: {}", io_reason(&e))),
        }
        // A macvlan that was moved into a namespace leaves a number behind, and no link. Old kernels do not list them.
        if paths.links().is_none() {
            looker.numbers = looker.visitor.numbers().unwrap_or_default();
        }
        looker.visit(&proc.join("self/ns/net"), Way::Process);
        let mounts = looker.visit_all(&proc);
        looker.await_missing(paths, &proc);
        looker.search(&proc, is_explained);
        looker.doubt_covered(&mounts, &proc);
        if let Some(why) = looker.missing() {
            looker.doubt(why);
        }
        looker.kernel
    }

    /// Takes note of why the look is not complete; one reason will do.
    fn doubt(&mut self, why: String) {
        self.kernel.incomplete.get_or_insert(why);
    }

    /// Visits what is mounted where we see it, and where threads are. Gives the mounts.
    fn visit_all(&mut self, proc: &Path) -> Vec<Mount> {
        let mounts = mounted(&proc.join("self/mountinfo")).unwrap_or_else(|e| {
            self.doubt(format!("the list of mounts: {}", io_reason(&e)));
            Vec::new()
        });
        for mount in &mounts {
            self.visit(&mount.path, Way::Mount);
        }
        for process in &self.processes(proc) {
            self.visit_process(process);
        }
        mounts
    }

    /// What leads to each process.
    fn processes(&mut self, proc: &Path) -> Vec<PathBuf> {
        match numbered(proc) {
            Ok(processes) => processes,
            Err(e) => {
                self.doubt(format!("{}: {}", proc.display(), io_reason(&e)));
                Vec::new()
            }
        }
    }

    fn visit_process(&mut self, process: &Path) {
        let namespace = process.join("ns/net");
        let first = id(&namespace);
        match &first {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                match shown(process) {
                    Ok(addresses) => self.take(
                        Place::Namespace(process.join("net").display().to_string()),
                        addresses,
                    ),
                    Err(e) if is_gone(&e) => {}
                    Err(e) => self.doubt(format!("{}: {}", namespace.display(), io_reason(&e))),
                }
                return;
            }
            Ok(_) | Err(_) => self.visit(&namespace, Way::Process),
        }
        // Threads may be elsewhere, and the first may have ended before the others.
        for thread in threads(process, first.is_err()) {
            let namespace = thread.join("ns/net");
            if id(&namespace).ok() != first.as_ref().ok().copied() {
                self.visit(&namespace, Way::Process);
            }
        }
    }

    /// Looks into the namespace that a path leads to, unless it was seen already. One that has gone meanwhile holds nobody;
    /// if another path leads to it too, that one will be tried.
    fn visit(&mut self, path: &Path, way: Way) {
        let visited = id(path).and_then(|id| match self.is_visited(id, path) {
            true => Ok(()),
            false => self.enter(&open(path)?, path, way),
        });
        match visited {
            Ok(()) => {}
            Err(e) if is_gone(&e) || id(path).is_err_and(|e| is_gone(&e)) => {}
            Err(e) => self.doubt(format!("{}: {}", path.display(), io_reason(&e))),
        }
    }

    /// Looks into the namespace that a file is; `path` leads to it, for people.
    fn enter(&mut self, file: &File, path: &Path, way: Way) -> io::Result<()> {
        let found = fstat(file)?;
        let id = (found.st_dev, found.st_ino);
        let visit = self.visitor.visit(file)?;
        self.progress.namespace();
        self.kernel.namespaces.insert(id);
        // Of one that came later in the place of another, the later.
        match visit.cookie {
            Some(cookie) => self.kernel.cookies.insert(id, cookie),
            None => self.kernel.cookies.remove(&id),
        };
        let numbered = visit.number.map(|number| (number, id));
        self.kernel.numbers.extend(numbered);
        let own = visit.addresses.iter().copied();
        let own = own.filter(|address| !is_local(*address)).collect();
        self.kernel.inside.insert(id, own);
        // What is mounted where we see it was mounted by root, such as that of a pod with users of its own.
        let is_of_users = visit.is_of_other_users && way == Way::Process;
        let path = path.display().to_string();
        let place = match (self.kernel.host == Some(id), is_of_users) {
            (true, _) => Place::Host,
            (false, true) => Place::OfUser(path),
            (false, false) => Place::Namespace(path),
        };
        if is_of_users {
            self.kernel.of_users.insert(id);
        } else {
            self.kernel.of_users.remove(&id);
        }
        self.take(place, visit.addresses);
        Ok(())
    }

    fn is_visited(&self, id: (u64, u64), path: &Path) -> bool {
        let cookie = self.kernel.cookies.get(&id).copied();
        self.kernel.namespaces.contains(&id) && !NetnsScanner::is_another(path, cookie)
    }

    /// Takes note of addresses. One that the host has too is a pod's.
    fn take(&mut self, place: Place, addresses: BTreeSet<IpAddr>) {
        for address in addresses {
            let mut entry = match self.kernel.configured.entry(address) {
                Entry::Vacant(entry) => {
                    entry.insert(place.clone());
                    continue;
                }
                Entry::Occupied(entry) => entry,
            };
            let lesser = match entry.get().weight() < place.weight() {
                true => entry.insert(place.clone()),
                false => place.clone(),
            };
            // Every namespace has local addresses of its own.
            if lesser != Place::Host && !is_local(address) {
                self.kernel.also.push((address, lesser));
            }
        }
    }
}

/// What leads to each of the processes or threads in a folder of /proc.
fn numbered(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let names =
        fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let numbers = names.filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    Ok(numbers.map(|name| folder.join(name)).collect())
}

/// What leads to each thread of a process, if it has more than one or they are wanted anyway.
fn threads(process: &Path, in_any_case: bool) -> Vec<PathBuf> {
    let task = process.join("task");
    // A folder has two links, and this one another for each thread.
    let has_one = || stat(&task).is_ok_and(|found| found.st_nlink <= 3);
    match !in_any_case && has_one() {
        true => Vec::new(),
        false => numbered(&task).unwrap_or_default(),
    }
}

/// What leads to a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A mount.
    Mount,
    /// A process.
    Process,
}

/// Whether an address means nothing outside of its own namespace or link.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local(),
    }
}

/// What leads to a process that has ended, or to a mount that is covered or gone.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
}

/// The text of one of the kernel's lists.
fn list(path: &Path) -> io::Result<String> {
    match read_bounded(path, LIST_LIMIT)? {
        ReadOutcome::Read(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        ReadOutcome::Missing => Err(io::ErrorKind::NotFound.into()),
        ReadOutcome::TooLarge => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// Whether /proc shows every process of the machine: only in the first PID namespace, and only where its mount does not hide
/// those of others from us.
fn sees_all_processes(proc: &Path) -> bool {
    let first = id(&proc.join("self/ns/pid")).is_ok_and(|(_, inode)| inode == FIRST_PID_NAMESPACE);
    first && proc.join("1/net/fib_trie").exists()
}

fn id(path: &Path) -> io::Result<(u64, u64)> {
    let stat = stat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_proc_nothing_is_known() {
        let root = std::env::temp_dir().join(format!("noproc-{}", std::process::id()));
        let kernel = look(
            &Paths::new(Some(root), "azure-vnet-ipam"),
            &Progress::default(),
            &|_| false,
        );
        assert!(kernel.incomplete.is_some());
        assert!(kernel.configured.is_empty());
    }
}
