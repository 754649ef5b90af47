//! The progress line on the terminal of an operator.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::evidence::Progress;
use crate::ipam::Candidate;
use crate::plugin::{Context, NodeSnapshot};

use crate::stdio;

/// How long a snapshot may take without a progress line.
const DELAY: Duration = Duration::from_millis(300);
/// The time between two updates of the line.
const INTERVAL: Duration = Duration::from_millis(100);

/// Captures a snapshot of the node. Shows the progress on stderr if that is a terminal.
pub fn capture_snapshot(candidates: Vec<Candidate>, context: &Context) -> NodeSnapshot {
    let progress = Progress::of_command();
    if !std::io::stderr().is_terminal() {
        return NodeSnapshot::capture_with_progress(candidates, context, &progress);
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let printer = scope.spawn(|| print_progress(&progress, &done));
        let snapshot = NodeSnapshot::capture_with_progress(candidates, context, &progress);
        done.store(true, Ordering::Relaxed);
        printer.thread().unpark();
        snapshot
    })
}

/// Prints the line until the snapshot is done, then clears it.
fn print_progress(progress: &Progress, done: &AtomicBool) {
    let mut has_printed = false;
    thread::park_timeout(DELAY);
    while !done.load(Ordering::Relaxed) {
        let (namespaces, cached) = progress.counts();
        stdio::eprint(&format!(
            "\rlooking at the node: {namespaces} network namespaces, {cached} cached results"
        ));
        has_printed = true;
        thread::park_timeout(INTERVAL);
    }
    if has_printed {
        stdio::eprint("\r\x1b[K");
    }
}
