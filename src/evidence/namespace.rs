//! Resolves the network namespaces that cached entries name.

use crate::host::{Paths, namespace_id};
use crate::ipam::{Entry, Kernel};

/// Finds the namespace that an entry names, and returns whether it exists and can be the attachment's. The host's own namespace is
/// never an attachment's: a process ID in the path may have been reused on the host or in another pod.
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
