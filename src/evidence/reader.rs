//! What the readers of evidence share: how far a look at the node has come, and the values of the entries in lists.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::codec::read_address;
use crate::host::{CookieLookup, Paths, namespace_id};
use crate::ipam::{Entry, Kernel, NetNs};

/// How long a look at the node may take, and how far it has come: counters that another thread may read meanwhile.
#[derive(Debug)]
pub struct Progress {
    /// A look at the network namespaces that takes longer stops, and is not complete.
    pub(super) limit: Duration,
    /// The network namespaces that were scanned.
    pub(super) namespaces: AtomicUsize,
    /// The files of libcni's cache that were read.
    pub(super) cached: AtomicUsize,
}

impl Default for Progress {
    /// Of a call, for which azure-vnet waits for 10 s. An idle node with 400 network namespaces takes 25 ms.
    fn default() -> Progress {
        Progress {
            limit: Duration::from_secs(2),
            ..Progress::of_command()
        }
    }
}

impl Progress {
    /// Of a command, which people can end.
    pub fn of_command() -> Progress {
        Progress {
            limit: Duration::MAX,
            namespaces: AtomicUsize::new(0),
            cached: AtomicUsize::new(0),
        }
    }

    /// Returns how many network namespaces were scanned, and how many files of libcni's cache were read.
    pub fn counts(&self) -> (usize, usize) {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        (count(&self.namespaces), count(&self.cached))
    }
}

/// Returns a text that a list may leave out or empty.
pub(super) fn not_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// Returns the network namespace at a path, before it is looked up; `None` when the path is empty.
pub(super) fn named_namespace(path: String) -> Option<NetNs> {
    not_empty(path).map(|path| NetNs {
        path: path.into(),
        id: None,
        cookie: None,
    })
}

/// Parses addresses, with or without the length of a prefix. Other texts are skipped.
pub(super) fn addresses<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<IpAddr> {
    let bare = texts.filter_map(|text| text.split('/').next());
    let addresses = bare.filter_map(read_address);
    addresses.map(|address| address.to_canonical()).collect()
}

/// Finds the namespace that an entry names, and returns whether it exists and can be the attachment's. The host's own namespace is
/// never an attachment's: a process ID in the path may have been reused on the host or in another pod.
pub(super) fn find_namespace(paths: &Paths, kernel: &Kernel, entry: &mut Entry) -> bool {
    let Some(netns) = &mut entry.netns else {
        return false;
    };
    // Between its unmount and its removal, a path leads to an ordinary file.
    let id = namespace_id(paths, &netns.path).filter(|(dev, _)| kernel.is_of_namespaces(*dev));
    entry.may_be_hidden = id.is_none() && !has_namespaces_beside(paths, kernel, &netns.path);
    netns.id = id.filter(|id| kernel.host != Some(*id));
    // The scan may have met an earlier namespace with this inode.
    netns.cookie = netns
        .id
        .and_then(|_| CookieLookup::start(paths, &netns.path).finish());
    netns
        .id
        .is_some_and(|id| match netns.path.starts_with("/proc/") {
            true => kernel.may_be_of(id, &entry.addresses),
            false => kernel.is_of_a_pod(id),
        })
}

/// Returns whether a network namespace is in the folder of a path.
fn has_namespaces_beside(paths: &Paths, kernel: &Kernel, path: &str) -> bool {
    let folder = Path::new(path).parent().and_then(Path::to_str);
    let files = folder.and_then(|folder| fs::read_dir(paths.under_root(folder)).ok());
    let found = files.into_iter().flatten().flatten();
    let mut found = found.filter_map(|file| fs::metadata(file.path()).ok());
    found.any(|found| kernel.is_of_namespaces(found.dev()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_may_be_hidden_only_where_its_folder_has_no_namespace() {
        let paths = Paths::new(None, "azure-vnet-ipam");
        let own = namespace_id(&paths, "/proc/self/ns/net").unwrap();
        let kernel = Kernel {
            // Another than this one.
            host: Some((own.0, 0)),
            ..Kernel::default()
        };
        let file = std::env::temp_dir().join(format!("no-namespace-{}", std::process::id()));
        fs::create_dir(&file).unwrap();
        let file = file.join("file");
        fs::write(&file, "").unwrap();
        let file = file.to_string_lossy();
        let cookie = CookieLookup::start(&paths, "/proc/self/ns/net").finish();
        for (path, is_found, may_be_hidden) in [
            ("/proc/self/ns/net", true, false),
            ("/proc/self/ns/gone", false, false),
            (&*file, false, true),
            ("/nonexistent/folder/file", false, true),
        ] {
            let mut entry = Entry {
                netns: named_namespace(path.to_owned()),
                ..Entry::default()
            };
            find_namespace(&paths, &kernel, &mut entry);
            let netns = entry.netns.unwrap();
            assert_eq!(netns.id, is_found.then_some(own), "{path}");
            assert_eq!(netns.cookie, cookie.filter(|_| is_found), "{path}");
            assert_eq!(entry.may_be_hidden, may_be_hidden, "{path}");
        }
        fs::remove_dir_all(Path::new(&*file).parent().unwrap()).unwrap();
    }
}
