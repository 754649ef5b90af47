//! E0, the heart of it: the addresses configured in every network namespace of the node. No list can be as right as that.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::stat;

use super::Progress;
use crate::host::{Bounded, Paths, Visitor, links, read_bounded, words};
use crate::ipam::{Kernel, Place};

/// The inode of the first PID namespace (PROC_PID_INIT_INO). In another one not every process is to be seen.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// A list of mounts, or of a namespace's addresses, takes no more than this.
const LIST_LIMIT: usize = 64 << 20;
/// No such process.
const ESRCH: i32 = 3;

/// Looks into every network namespace: those mounted somewhere and those of processes, each once.
///
/// Going into a namespace changes the thread that does it for good, so another thread does it all.
pub fn look(paths: &Paths, progress: &Progress) -> Kernel {
    let failed = |e: &io::Error| Kernel {
        incomplete: Some(words(e)),
        ..Kernel::default()
    };
    thread::scope(|scope| {
        match thread::Builder::new().spawn_scoped(scope, || Looker::look(paths, progress)) {
            Ok(looker) => looker
                .join()
                .unwrap_or_else(|_| failed(&io::Error::other("the look at the kernel failed"))),
            Err(e) => failed(&e),
        }
    })
}

/// One look, as far as it has come.
struct Looker<'a> {
    progress: &'a Progress,
    kernel: Kernel,
    visitor: Visitor,
}

impl Looker<'_> {
    fn look(paths: &Paths, progress: &Progress) -> Kernel {
        let proc = paths.processes();
        let start = || Ok::<_, io::Error>((id(&proc.join("self/ns/net"))?, Visitor::new(paths)?));
        let (host, visitor) = match start() {
            Ok(start) => start,
            Err(e) => {
                let incomplete = Some(format!("{}: {}", proc.display(), words(&e)));
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
        };
        if !sees_all_processes(&proc) {
            looker.doubt("not every process is to be seen from here".to_owned());
        }
        // Before the namespaces, so that one made meanwhile is not missed.
        let links = links(paths);
        looker.visit(&proc.join("self/ns/net"), Way::Process);
        match mounted(&proc.join("self/mountinfo")) {
            Ok(mounts) => mounts
                .iter()
                .for_each(|path| looker.visit(path, Way::Mount)),
            Err(e) => looker.doubt(format!("the list of mounts: {}", words(&e))),
        }
        looker.visit_processes(&proc);
        match links {
            Ok(links) => {
                // Its other end is in a namespace that something hides from us.
                let stray = |link: &&crate::host::Link| {
                    link.peer_namespace
                        .is_some_and(|n| !looker.kernel.numbers.contains_key(&n))
                };
                if let Some(link) = links.iter().find(stray) {
                    let name = &link.name;
                    looker.doubt(format!(
                        "the other end of {name} is in a network namespace that was not found"
                    ));
                }
            }
            Err(e) => looker.doubt(format!("the interfaces of the host: {}", words(&e))),
        }
        looker.kernel
    }

    /// Takes note of why the look is not complete; one reason will do.
    fn doubt(&mut self, why: String) {
        self.kernel.incomplete.get_or_insert(why);
    }

    fn visit_processes(&mut self, proc: &Path) {
        let entries = match fs::read_dir(proc) {
            Ok(entries) => entries,
            Err(e) => return self.doubt(format!("{}: {}", proc.display(), words(&e))),
        };
        for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            if name.bytes().all(|b| b.is_ascii_digit()) {
                self.visit_process(&proc.join(name));
            }
        }
    }

    fn visit_process(&mut self, process: &Path) {
        let namespace = process.join("ns/net");
        match id(&namespace) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => match shown(process) {
                Ok(addresses) => self.take(
                    Place::Namespace(process.join("net").display().to_string()),
                    addresses,
                ),
                Err(e) if is_gone(&e) => {}
                Err(e) => self.doubt(format!("{}: {}", namespace.display(), words(&e))),
            },
            Ok(_) | Err(_) => self.visit(&namespace, Way::Process),
        }
    }

    /// Looks into the namespace that a path leads to, unless it was seen already. One that has gone meanwhile holds nobody;
    /// if another path leads to it too, that one will be tried.
    fn visit(&mut self, path: &Path, way: Way) {
        let visit = id(path).and_then(|id| match self.is_visited(id, path) {
            true => Ok(None),
            false => Ok(Some((id, self.visitor.visit(path)?))),
        });
        match visit {
            Ok(None) => {}
            Ok(Some((id, visit))) => {
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
            }
            Err(e) if is_gone(&e) || id(path).is_err_and(|e| is_gone(&e)) => {}
            Err(e) => self.doubt(format!("{}: {}", path.display(), words(&e))),
        }
    }

    fn is_visited(&self, id: (u64, u64), path: &Path) -> bool {
        let cookie = self.kernel.cookies.get(&id).copied();
        self.kernel.namespaces.contains(&id) && !Visitor::is_another(path, cookie)
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

/// The addresses of a process's namespace as /proc shows them, where the namespace itself may not be looked at.
fn shown(process: &Path) -> io::Result<BTreeSet<IpAddr>> {
    let text = |name: &str| list(&process.join("net").join(name));
    let mut found = own_addresses(&text("fib_trie")?);
    // Not there where IPv6 is off.
    let v6 = text("if_inet6").or_else(|e| {
        if is_gone(&e) {
            Ok(String::new())
        } else {
            Err(e)
        }
    })?;
    found.extend(v6.lines().filter_map(|line| {
        let bits = u128::from_str_radix(line.split_whitespace().next()?, 16).ok()?;
        Some(IpAddr::from(bits.to_be_bytes()).to_canonical())
    }));
    Ok(found)
}

/// The text of one of the kernel's lists.
fn list(path: &Path) -> io::Result<String> {
    match read_bounded(path, LIST_LIMIT)? {
        Bounded::Read(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Bounded::Missing => Err(io::ErrorKind::NotFound.into()),
        Bounded::TooLarge => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// The local addresses in the text of fib_trie: each is followed by a line that says so.
fn own_addresses(fib_trie: &str) -> BTreeSet<IpAddr> {
    let mut found = BTreeSet::new();
    let mut leaf: Option<Ipv4Addr> = None;
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(leaf.map(IpAddr::V4));
        }
    }
    found
}

/// Whether /proc shows every process of the machine: only in the first PID namespace, and only where its mount does not hide
/// those of others from us.
fn sees_all_processes(proc: &Path) -> bool {
    let first = id(&proc.join("self/ns/pid")).is_ok_and(|(_, inode)| inode == FIRST_PID_NAMESPACE);
    first && proc.join("1/net/fib_trie").exists()
}

/// Where network namespaces are mounted.
fn mounted(mountinfo: &Path) -> io::Result<Vec<PathBuf>> {
    let text = list(mountinfo)?;
    let namespaces = text.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (root, path) = (fields.next()?, fields.next()?);
        root.starts_with("net:[")
            .then(|| PathBuf::from(unescaped(path)))
    });
    Ok(namespaces.collect())
}

/// Mountinfo writes spaces and the like as a backslash and three octal digits.
fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let octal =
            octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(octal.unwrap_or(*first));
        rest = if octal.is_some() {
            after.get(3..).unwrap_or_default()
        } else {
            after
        };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn id(path: &Path) -> io::Result<(u64, u64)> {
    let stat = stat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_unescaped() {
        assert_eq!(unescaped("/run/netns/a\\040b\\134c"), "/run/netns/a b\\c");
        assert_eq!(unescaped("/x\\"), "/x\\");
        assert_eq!(unescaped("/x\\9zz"), "/x\\9zz");
    }

    #[test]
    fn only_mounted_network_namespaces_count() {
        let path = std::env::temp_dir().join(format!("mountinfo-{}", std::process::id()));
        let lines = "36 35 0:4 net:[4026532198] /run/netns/cni-1 rw shared:1 - nsfs nsfs rw\n\
                     37 35 0:4 mnt:[4026532199] /run/snapd/ns/x rw - nsfs nsfs rw\n\
                     38 35 0:4 net:[4026532200] /run/netns/a\\040b rw - nsfs nsfs rw\n\
                     short line\n";
        fs::write(&path, lines).unwrap();
        let found = mounted(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(
            found,
            [
                PathBuf::from("/run/netns/cni-1"),
                PathBuf::from("/run/netns/a b")
            ]
        );
        assert!(mounted(&path).is_err());
    }

    #[test]
    fn without_proc_nothing_is_known() {
        let root = std::env::temp_dir().join(format!("noproc-{}", std::process::id()));
        let kernel = look(
            &Paths::new(Some(root), "azure-vnet-ipam"),
            &Progress::default(),
        );
        assert!(kernel.incomplete.is_some());
        assert!(kernel.configured.is_empty());
    }

    #[test]
    fn addresses_are_read_from_what_proc_shows() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 10.1.0.0/16 2 0 2\n        |-- 10.1.0.0\n           /16 link UNICAST\n        |-- 10.1.0.5\n           /32 host LOCAL\n     |-- 10.1.255.255\n        /32 link BROADCAST\nLocal:\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        let found: Vec<_> = own_addresses(text)
            .into_iter()
            .map(|a| a.to_string())
            .collect();
        assert_eq!(found, ["10.1.0.5", "127.0.0.1"]);
        let ours = shown(Path::new("/proc/self")).unwrap();
        assert!(ours.contains(&"127.0.0.1".parse().unwrap()));
    }
}
