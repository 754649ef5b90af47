//! The identity of a network namespace.

use rustix::fs::stat;

use super::Paths;
use crate::ipam::NetNs;

/// The namespace at `path` (CNI_NETNS): its device and inode tell it from another that comes to have the same path later.
/// `None` when the path is empty.
pub fn netns(paths: &Paths, path: &str) -> Option<NetNs> {
    (!path.is_empty()).then(|| NetNs {
        path: path.into(),
        id: namespace_id(paths, path),
    })
}

/// Device and inode numbers of what `path` leads to; `None` when it leads nowhere.
pub fn namespace_id(paths: &Paths, path: &str) -> Option<(u64, u64)> {
    let found = stat(paths.under_root(path)).ok()?;
    Some((found.st_dev, found.st_ino))
}
