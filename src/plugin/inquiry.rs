//! What a source has to say to an ADD, and what is made of it before it is merged.

use tracing::{debug, info, warn};

use crate::events::OperationRecord;
use crate::failure::message_with_remedy;
use crate::log::Milliseconds;
use crate::source::{FreshAnswer, RefreshOutcome, RefreshReason, SourceError};
use crate::state::State;

/// What the source had to say.
#[derive(Debug, Default)]
pub struct Inquiry {
    /// An answer that is not in the state yet.
    pub news: Option<Box<FreshAnswer>>,
    /// What to ask for before it is said that there is nothing.
    pub again: Option<RefreshReason>,
    /// Why there is no fresh answer.
    pub failed: Option<String>,
}

impl Inquiry {
    /// What came of asking; the log is told.
    pub fn of(asked: RefreshOutcome, record: &mut OperationRecord) -> Inquiry {
        match asked {
            RefreshOutcome::Fresh(news) => {
                announce(&news);
                Inquiry {
                    news: Some(news),
                    ..Inquiry::default()
                }
            }
            RefreshOutcome::Answered => Inquiry {
                again: Some(RefreshReason::Lost),
                ..Inquiry::default()
            },
            RefreshOutcome::Skipped(why) => {
                debug!(target: "ipam", "the source is not asked: {why}.");
                Inquiry {
                    again: Some(RefreshReason::Newer),
                    ..Inquiry::default()
                }
            }
            RefreshOutcome::Failed(error) => {
                warn!(target: "ipam", "Source refresh failed, err:{error}.");
                // Whoever asked tells of it.
                if !matches!(error, SourceError::FailedByPeer) {
                    record.refresh_failed = true;
                }
                Inquiry {
                    failed: Some(message_with_remedy(&error)),
                    ..Inquiry::default()
                }
            }
        }
    }

    /// Drops an answer that would take everything away and has not stayed so for long (difference D6).
    pub fn reject_implausible(&mut self, state: &State, record: &mut OperationRecord) {
        let doubtful =
            |news: &FreshAnswer| news.is_doubtful() && !state.is_empty() && !news.is_persistent();
        let Some(news) = self.news.take_if(|news| doubtful(news)) else {
            return;
        };
        let pools = &news.matched.inventory.pools;
        let why = format!(
            "the source lists {} subnets with no address for pods, and {} interfaces that this node does not have",
            pools
                .iter()
                .filter(|pool| pool.addresses.is_empty())
                .count(),
            news.matched.unmatched.len()
        );
        warn!(target: "ipam", "Source refresh failed, err:{why}; the stored pools stay for now.");
        record.refresh_failed = true;
        self.failed = Some(why);
        news.reject();
    }
}

/// So many hardware addresses are logged one by one; a node has fewer interfaces.
const MOST_TOLD: usize = 64;

/// Tells the log what a source said.
fn announce(news: &FreshAnswer) {
    let matched = &news.matched;
    let unmatched = &matched.unmatched;
    for mac in unmatched.iter().take(MOST_TOLD) {
        info!(target: "ipam", "Failed to find interface with MAC address:{mac}.");
    }
    if let Some(more) = unmatched.len().checked_sub(MOST_TOLD).filter(|n| *n > 0) {
        info!(target: "ipam", "Failed to find interface with {more} more MAC addresses.");
    }
    for pool in &matched.inventory.pools {
        let (count, subnet) = (pool.addresses.len(), pool.subnet);
        // A range of the node is on none.
        let if_name = if pool.if_name.is_empty() {
            "-"
        } else {
            &pool.if_name
        };
        info!(target: "ipam", "got {count} addresses from interface {if_name}, subnet {subnet}.");
    }
    let took = Milliseconds(news.took);
    let (primary, skipped) = (matched.primary, matched.skipped);
    info!(target: "ipam", "the source answered in {took}; {primary} addresses are the host's, {skipped} unusable.");
}
