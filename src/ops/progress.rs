//! Telling those who wait at a terminal that something is being done.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::evidence::Progress;
use crate::ipam::Candidate;
use crate::plugin::Context;
use crate::plugin::NodeSnapshot;
use crate::stdio;

/// What is over sooner needs no telling.
const PATIENCE: Duration = Duration::from_millis(300);
const STEP: Duration = Duration::from_millis(100);

/// Looks at the node, and tells on stderr how far that has come when it takes a while and somebody sits there.
pub fn look(candidates: Vec<Candidate>, context: &Context) -> NodeSnapshot {
    if !std::io::stderr().is_terminal() {
        return NodeSnapshot::capture(candidates, context);
    }
    let progress = Progress::default();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let teller = scope.spawn(|| tell(&progress, &done));
        let look = NodeSnapshot::capture_with_progress(candidates, context, &progress);
        done.store(true, Ordering::Relaxed);
        teller.thread().unpark();
        look
    })
}

/// Tells until all is done.
fn tell(progress: &Progress, done: &AtomicBool) {
    let mut told = false;
    thread::park_timeout(PATIENCE);
    while !done.load(Ordering::Relaxed) {
        let (namespaces, cached) = progress.counts();
        stdio::tell(&format!(
            "\rlooking at the node: {namespaces} network namespaces, {cached} cached results"
        ));
        told = true;
        thread::park_timeout(STEP);
    }
    if told {
        // Back to the start of the line, and clear it.
        stdio::tell("\r\x1b[K");
    }
}
