//! Evidence E0: the addresses configured in every network namespace of the node.

mod hidden;
mod proc;
mod scan;

use std::thread;

use super::Progress;
use crate::host::{Paths, io_reason};
use crate::ipam::Kernel;
use scan::Scan;

/// Scans every network namespace once: those that are mounted in any mount namespace, and those of
/// threads. A scan that reaches its time limit is incomplete.
pub fn scan_namespaces(paths: &Paths, progress: &Progress) -> Kernel {
    scan_in_thread(paths, progress).unwrap_or_else(|why| Kernel {
        incomplete: Some(why),
        ..Kernel::default()
    })
}

/// Runs the scan in a thread of its own, because a thread cannot leave a namespace that it entered.
///
/// # Errors
/// The scan cannot be started or finished.
fn scan_in_thread(paths: &Paths, progress: &Progress) -> Result<Kernel, String> {
    let proc = paths.processes();
    let run = || match Scan::start(paths, &proc, progress) {
        Ok(scan) => Ok(scan.run()),
        Err(e) => Err(format!("{}: {}", proc.display(), io_reason(&e))),
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .spawn_scoped(scope, run)
            .map_err(|e| io_reason(&e))?;
        thread
            .join()
            .unwrap_or_else(|_| Err("the scan of the kernel failed".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn scan(root: Option<std::path::PathBuf>, limit: Duration) -> Kernel {
        let paths = Paths::new(root, "azure-vnet-ipam");
        let progress = Progress {
            limit,
            ..Progress::default()
        };
        scan_namespaces(&paths, &progress)
    }

    #[test]
    fn scan_without_proc_is_incomplete() {
        let root = std::env::temp_dir().join(format!("noproc-{}", std::process::id()));
        let kernel = scan(Some(root), Duration::MAX);
        assert!(kernel.incomplete.is_some());
        assert!(kernel.configured.is_empty());
    }

    #[test]
    fn scan_that_reaches_its_limit_stops_and_is_incomplete() {
        let stopped = scan(None, Duration::ZERO);
        assert_eq!(stopped.incomplete.as_deref(), Some("stopped after 0 s"));
        assert!(stopped.namespaces.is_empty(), "{stopped:?}");
        let whole = scan(None, Duration::MAX);
        assert_ne!(whole.incomplete, stopped.incomplete);
    }
}
