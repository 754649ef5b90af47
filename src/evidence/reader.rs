//! Shared by the readers of evidence: the progress of a scan of the node, and the values of list
//! entries.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::codec::read_address;
use crate::host::{Paths, namespace_id, netns_cookie};
use crate::ipam::{Entry, Kernel, NetNs};

/// The time limit of a scan of the node, and its progress. Another thread may read the counters
/// while the scan runs.
#[derive(Debug)]
pub struct Progress {
    /// A scan of the network namespaces that takes longer stops and is incomplete.
    pub(super) limit: Duration,
    /// The number of network namespaces scanned so far.
    pub(super) namespaces: AtomicUsize,
    /// The number of files of libcni's cache read so far.
    pub(super) cached: AtomicUsize,
}

impl Default for Progress {
    /// Returns the progress for a CNI call. azure-vnet waits 10 s for a call. The scan of an idle
    /// node with 400 network namespaces takes 25 ms.
    fn default() -> Progress {
        Progress {
            limit: Duration::from_secs(2),
            ..Progress::of_command()
        }
    }
}

impl Progress {
    /// Returns the progress for a command. It has no time limit, because the operator can interrupt
    /// it.
    pub fn of_command() -> Progress {
        Progress {
            limit: Duration::MAX,
            namespaces: AtomicUsize::new(0),
            cached: AtomicUsize::new(0),
        }
    }

    /// Returns the number of network namespaces scanned, and of files of libcni's cache read.
    pub fn counts(&self) -> (usize, usize) {
        (
            self.namespaces.load(Ordering::Relaxed),
            self.cached.load(Ordering::Relaxed),
        )
    }
}

/// Returns the network namespace at a path without its identity; `None` if the path is empty.
pub(super) fn named_namespace(path: String) -> Option<NetNs> {
    (!path.is_empty()).then(|| NetNs {
        path: path.into(),
        id: None,
        cookie: None,
    })
}

/// Parses addresses with or without a prefix length. Other texts are skipped.
pub(super) fn addresses<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<IpAddr> {
    texts
        .filter_map(|text| text.split('/').next())
        .filter_map(read_address)
        .map(|address| address.to_canonical())
        .collect()
}

/// Looks up the namespace that an entry names. Returns whether it exists and can belong to the
/// attachment. Returns true if it cannot be examined.
///
/// The host's own namespace never belongs to an attachment. A process ID in the path may have been
/// reused on the host or in another pod.
pub(super) fn find_namespace(paths: &Paths, kernel: &Kernel, entry: &mut Entry) -> bool {
    let Some(netns) = &mut entry.holder.netns else {
        return false;
    };
    // After its unmount and before its removal, the path of a namespace leads to an ordinary file.
    let Ok(target) = namespace_id(paths, &netns.path) else {
        return true;
    };
    let found = target.filter(|(dev, _)| kernel.is_of_namespaces(*dev));
    entry.may_be_hidden =
        found.is_none() && !is_beside_namespaces(paths, kernel, Path::new(&*netns.path));
    netns.id = found.filter(|id| kernel.host != Some(*id));
    let Some(id) = netns.id else {
        netns.cookie = None;
        return false;
    };
    // The scan may have found an earlier namespace with this inode.
    netns.cookie = netns_cookie(paths, &netns.path);
    if netns.path.starts_with("/proc/") {
        kernel.may_be_of(id, &entry.addresses)
    } else {
        kernel.is_of_a_pod(id)
    }
}

/// Returns whether the folder of a path contains a network namespace.
fn is_beside_namespaces(paths: &Paths, kernel: &Kernel, path: &Path) -> bool {
    let Some(folder) = path.parent().and_then(Path::to_str) else {
        return false;
    };
    let Ok(files) = fs::read_dir(paths.under_root(folder)) else {
        return false;
    };
    files
        .flatten()
        .filter_map(|file| fs::metadata(file.path()).ok())
        .any(|metadata| kernel.is_of_namespaces(metadata.dev()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_may_be_hidden_only_where_its_folder_has_no_namespace() {
        let paths = Paths::new(None, "azure-vnet-ipam");
        let own = namespace_id(&paths, "/proc/self/ns/net").unwrap().unwrap();
        let kernel = Kernel {
            // Another namespace than the test's own.
            host: Some((own.0, 0)),
            ..Kernel::default()
        };
        let folder = std::env::temp_dir().join(format!("no-namespace-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let file = folder.join("file");
        fs::write(&file, "").unwrap();
        let cookie = netns_cookie(&paths, "/proc/self/ns/net");
        for (path, is_found, may_be_hidden) in [
            ("/proc/self/ns/net", true, false),
            ("/proc/self/ns/gone", false, false),
            (file.to_str().unwrap(), false, true),
            ("/nonexistent/folder/file", false, true),
        ] {
            let mut entry = Entry::default();
            entry.holder.netns = named_namespace(path.to_owned());
            find_namespace(&paths, &kernel, &mut entry);
            let netns = entry.holder.netns.unwrap();
            assert_eq!(netns.id, is_found.then_some(own), "{path}");
            assert_eq!(netns.cookie, cookie.filter(|_| is_found), "{path}");
            assert_eq!(entry.may_be_hidden, may_be_hidden, "{path}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn namespace_that_cannot_be_examined_counts_as_live() {
        let paths = Paths::new(None, "azure-vnet-ipam");
        let link = std::env::temp_dir().join(format!("namespace-loop-{}", std::process::id()));
        std::os::unix::fs::symlink(&link, &link).unwrap();
        let mut entry = Entry::default();
        entry.holder.netns = named_namespace(link.to_str().unwrap().to_owned());
        assert!(find_namespace(&paths, &Kernel::default(), &mut entry));
        fs::remove_file(link).unwrap();
    }
}
