//! Evidence E0: the addresses configured in every network namespace of the node.

mod hidden;
mod mounts;
mod proc;
mod proc_addresses;
mod scan;

use std::io;
use std::thread;

use super::Progress;
use crate::host::{Paths, io_reason};
use crate::ipam::Kernel;
use scan::Scan;

pub use scan::IsExplained;

/// Scans every network namespace once: those that are mounted and those of threads. As long as `is_explained` is not satisfied, it
/// also scans those that only a mount in another mount namespace, a descriptor or a socket keeps.
///
/// Entering a namespace changes the thread for good, so the scan has a thread of its own.
pub fn scan_namespaces(
    paths: &Paths,
    progress: &Progress,
    is_explained: IsExplained<'_>,
) -> Kernel {
    let failed = |e: &io::Error| Kernel {
        incomplete: Some(io_reason(e)),
        ..Kernel::default()
    };
    let scan = || scan_in_this_thread(paths, progress, is_explained);
    thread::scope(
        |scope| match thread::Builder::new().spawn_scoped(scope, scan) {
            Ok(scan) => scan
                .join()
                .unwrap_or_else(|_| failed(&io::Error::other("the look at the kernel failed"))),
            Err(e) => failed(&e),
        },
    )
}

fn scan_in_this_thread(
    paths: &Paths,
    progress: &Progress,
    is_explained: IsExplained<'_>,
) -> Kernel {
    let proc = paths.processes();
    let mut scan = match Scan::start(paths, &proc, progress) {
        Ok(scan) => scan,
        Err(e) => {
            let incomplete = Some(format!("{}: {}", proc.display(), io_reason(&e)));
            return Kernel {
                incomplete,
                ..Kernel::default()
            };
        }
    };
    let mounts = scan.visit_all(&proc);
    scan.await_missing(paths, &proc);
    scan.search_hidden(&proc, is_explained);
    scan.reject_covered(&mounts, &proc);
    if let Some(why) = scan.missing() {
        scan.mark_incomplete(why);
    }
    scan.kernel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_without_proc_is_incomplete() {
        let root = std::env::temp_dir().join(format!("noproc-{}", std::process::id()));
        let kernel = scan_namespaces(
            &Paths::new(Some(root), "azure-vnet-ipam"),
            &Progress::default(),
            &|_| false,
        );
        assert!(kernel.incomplete.is_some());
        assert!(kernel.configured.is_empty());
    }
}
