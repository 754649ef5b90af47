//! The identity of a network namespace.

use rustix::fs::stat;

use super::Paths;
use crate::ipam::NetNs;

/// The namespace at `path` (CNI_NETNS): its device and inode tell it from another that comes to have the same path later.
pub fn netns(paths: &Paths, path: &str) -> Option<NetNs> {
    if path.is_empty() {
        return None;
    }
    let id = stat(paths.under_root(path))
        .ok()
        .map(|s| (s.st_dev, s.st_ino));
    Some(NetNs {
        path: path.into(),
        id,
    })
}
