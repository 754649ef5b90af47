//! The network namespaces that the lists name.

use crate::host::{Paths, namespace_id};
use crate::ipam::{Entry, Kernel};

/// Finds out which namespace the entry's path leads to, and tells whether that exists and may be the attachment's. The host's own is
/// no attachment's: the number of a process that has ended may be that of one on the host by now, or in another pod.
pub(super) fn find_namespace(paths: &Paths, kernel: &Kernel, entry: &mut Entry) -> bool {
    let Some(netns) = &mut entry.netns else {
        return false;
    };
    netns.id = namespace_id(paths, &netns.path).filter(|id| kernel.host != Some(*id));
    netns
        .id
        .is_some_and(|id| match netns.path.starts_with("/proc/") {
            true => kernel.may_be_of(id, &entry.addresses),
            false => kernel.is_of_a_pod(id),
        })
}
