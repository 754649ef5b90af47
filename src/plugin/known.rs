//! What a call has learnt from the source and the node. Learning takes time, so a call does it without the lock on the state.

use std::time::Duration;

use tracing::{info, warn};

use super::context::Context;
use crate::evidence::Progress;
use crate::failure::message_with_remedy;
use crate::ipam::{Candidate, Evidence, Moment, Wanted};
use crate::log::Milliseconds;
use crate::source::{FreshAnswer, Source, SourceError, Turn, time_limit};
use crate::state::State;

/// Something that a decision needs first.
#[derive(Debug)]
pub enum Need {
    /// An answer of the source, within this time. Nothing is decided yet, and the state is still as it was read.
    Answer(Duration),
    /// An answer of the source, within this time. The stored pools cannot serve the call.
    NewerAnswer(Duration),
    /// A scan of the node, to judge these records.
    Scan(Vec<Candidate>),
}

/// What a call has learnt.
#[derive(Debug, Default)]
pub struct Known<'a> {
    /// The source, for a call that allocates.
    pub source: Option<&'a Source>,
    /// How old an answer in the state may be (`ipam.queryInterval`).
    pub interval: Option<Duration>,
    /// When the call began. An answer or a failure of the source since then counts for this call.
    pub started: Moment,
    /// The turn to query the source, which is kept until the commit. `None` if another call has it, or if it was not needed.
    pub turn: Option<Turn>,
    /// Whether a wait of this call for the turn timed out.
    pub has_timed_out: bool,
    /// What the source answered to this call, or why it did not answer.
    pub answer: Option<Result<FreshAnswer, String>>,
    /// Whether this call failed to get an answer of the source.
    pub has_failed: bool,
    /// The newest scan of the node.
    pub scan: Option<Scan>,
    /// The state as it was read before the source was queried.
    pub state: Option<State>,
}

impl<'a> Known<'a> {
    /// Creates what a call knows that may query this source. Waits for the turn to query it: the state that the call reads afterwards may
    /// already have the answer of another call. With an `interval`, a query may be unnecessary, and it does not wait.
    pub fn of_source(source: &'a Source, interval: Option<Duration>, context: &Context) -> Self {
        let mut known = Known {
            source: Some(source),
            interval,
            started: context.started,
            ..Known::default()
        };
        if interval.is_none() {
            known.wait_for_turn(time_limit(true), context);
        }
        known
    }

    /// Gets what a decision needs first.
    pub(super) fn get(&mut self, need: Need, wanted: Option<&Wanted>, context: &Context) {
        match need {
            Need::Answer(limit) | Need::NewerAnswer(limit) => {
                if self.turn.is_some() {
                    self.ask(limit, context);
                } else {
                    // The answer of the call that has the turn may be enough.
                    self.wait_for_turn(limit, context);
                }
            }
            Need::Scan(candidates) => {
                let mut scan = Scan::at_node(candidates, context);
                if let Some(wanted) = wanted {
                    scan.note_own_namespace(wanted);
                }
                self.scan = Some(scan);
            }
        }
    }

    fn wait_for_turn(&mut self, limit: Duration, context: &Context) {
        let Some(source) = self.source else { return };
        let boot_id = context.boot_id.as_deref();
        match context.node.wait_for_turn(source, boot_id, limit) {
            Ok(Some(turn)) => self.turn = Some(turn),
            Ok(None) if self.has_timed_out => self.fail(&SourceError::Busy),
            // The stored pools may be enough.
            Ok(None) => {
                warn!(target: "ipam", "Source refresh failed, err:{}.", SourceError::Busy);
                self.has_timed_out = true;
            }
            Err(error) => self.fail(&error),
        }
    }

    fn ask(&mut self, limit: Duration, context: &Context) {
        let (Some(source), Some(turn)) = (self.source, &mut self.turn) else {
            return;
        };
        let began = context.now();
        let queried = context.node.query(source, turn, limit);
        match turn.note(queried, began, context.now()) {
            Ok(answer) => {
                log_answer(&answer);
                self.answer = Some(Ok(answer));
            }
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &SourceError) {
        warn!(target: "ipam", "Source refresh failed, err:{error}.");
        self.answer = Some(Err(message_with_remedy(self.source, error)));
        self.has_failed = true;
    }

    /// Returns the newest scan of the node.
    ///
    /// # Errors
    /// There was none.
    pub(super) fn scan(&self) -> Result<&Scan, Need> {
        self.scan.as_ref().ok_or(Need::Scan(Vec::new()))
    }

    /// The name of the source.
    pub(super) fn source_name(&self) -> String {
        self.source.map_or_else(String::new, Source::name)
    }

    /// When the last answer of the source was merged into a state.
    pub(super) fn merged_at(&self, state: &State) -> Option<Moment> {
        state.document.refreshed_by(&self.source_name())
    }

    /// Returns whether the query of another call has failed since this call began.
    pub(super) fn is_failed_by_peer(&self) -> bool {
        let failed = self.turn.as_ref().and_then(Turn::failed);
        self.answer.is_none() && failed > Some(self.started)
    }
}

/// How many hardware addresses are logged individually; a node has fewer interfaces.
const MOST_LOGGED: usize = 64;

/// Logs what a source listed.
fn log_answer(answer: &FreshAnswer) {
    let matched = &answer.matched;
    let unmatched = &matched.unmatched;
    for interface in unmatched.iter().take(MOST_LOGGED) {
        let mac = &interface.mac;
        info!(target: "ipam", "Failed to find interface with MAC address:{mac}.");
    }
    if let Some(more) = unmatched.len().checked_sub(MOST_LOGGED).filter(|n| *n > 0) {
        info!(target: "ipam", "Failed to find interface with {more} more MAC addresses.");
    }
    for pool in &matched.inventory.pools {
        let (count, subnet) = (pool.addresses.len(), pool.subnet);
        // The node's own range belongs to no interface.
        let if_name = match &*pool.if_name {
            "" => "-",
            name => name,
        };
        info!(target: "ipam", "got {count} addresses from interface {if_name}, subnet {subnet}.");
    }
    let took = Milliseconds(answer.arrived.since(answer.began));
    let (primary, unusable) = (matched.primary.len(), &matched.unusable);
    info!(target: "ipam", "the source answered in {took}; {primary} addresses are the host's, {} unusable.", unusable.count);
    if let Some(first) = &unusable.first {
        warn!(target: "ipam", "the source lists {first}.");
    }
}

/// A scan of the node.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// What it showed.
    pub evidence: Evidence,
    /// The records to judge by it, as they were before it began. So a holder that the scan does
    /// not show cannot be newer than the scan.
    pub candidates: Vec<Candidate>,
    /// When it began.
    pub began: Moment,
}

impl Scan {
    /// Scans the node now.
    pub fn at_node(candidates: Vec<Candidate>, context: &Context) -> Scan {
        Scan::with_progress(candidates, context, &Progress::default())
    }

    /// Scans the node now, and reports its progress.
    pub(crate) fn with_progress(
        candidates: Vec<Candidate>,
        context: &Context,
        progress: &Progress,
    ) -> Scan {
        let began = context.now();
        let evidence = context.node.evidence(&candidates, progress);
        let kernel = &evidence.kernel;
        info!(
            target: "ipam",
            "scanned the node in {}: {} network namespaces with {} addresses{}.",
            Milliseconds(context.now().since(began)),
            kernel.namespaces.len(),
            kernel.configured.len(),
            kernel.incomplete.as_ref().map_or_else(String::new, |why| format!("; not complete: {why}"))
        );
        Scan {
            evidence,
            candidates,
            began,
        }
    }

    /// Marks the recorded network namespaces that have the same inode as the namespace of this ADD. The kernel reuses the inodes of
    /// namespaces, so those namespaces no longer exist. Older kernels have no other number that distinguishes namespaces.
    fn note_own_namespace(&mut self, wanted: &Wanted) {
        let Some(own) = &wanted.netns else { return };
        for held in self.candidates.iter().map(|candidate| &candidate.held) {
            if !held.holder.is_container(&wanted.attachment.container_id)
                && let Some(then) = &held.holder.netns
                && let Some(id) = then.id.filter(|id| Some(*id) == own.id)
                && then.path != own.path
            {
                let elsewhere = (then.path.clone(), id);
                self.evidence.kernel.moved_paths.insert(elsewhere);
            }
        }
    }
}
