//! What the histories cannot show: their node has no addresses of the host, and no operator.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::*;
use crate::ipam::testing::{attached, attachment, hold, holders, ip, request, with_pools};
use crate::state::State;

const NOW: Moment = Moment(100_000_000_000_000);

fn state() -> State {
    let mut state = State::default();
    *state.ipam_mut() = with_pools(&[("10.0.0.0/24", 0, &["10.0.0.4", "10.0.0.5"])]);
    state
}

/// A host that has the first address.
#[derive(Debug)]
struct OnHost;

impl Host for OnHost {
    fn has(&self, address: IpAddr) -> bool {
        self.all().contains(&address)
    }

    fn all(&self) -> BTreeSet<IpAddr> {
        [ip("10.0.0.4")].into()
    }
}

#[test]
fn an_address_of_the_host_is_skipped() {
    let mut state = state();
    let attachment = attachment("pod", "eth0");
    let inputs = Inputs {
        requests: &[request(&attachment)],
        inventory: None,
        snapshot: None,
        retry: None,
        now: NOW,
    };
    let decision = decide(&mut state, &inputs, &OnHost, &mut Vec::new());
    assert!(matches!(decision, Decision::Granted(_)));
    assert_eq!(holders(state.ipam()), "10.0.0.5=pod");
}

#[test]
fn an_operator_reclaims_nothing_in_a_quarantine() {
    for (end, expected) in [(None, ""), (Some(Moment(NOW.0 + 1)), "10.0.0.4=dead")] {
        let mut state = state();
        let ipam = state.ipam_mut();
        hold(ipam, "10.0.0.4", attached("dead", 0), Moment(1));
        ipam.quarantine = end;
        let snapshot = NodeSnapshot {
            candidates: ipam.candidates(|_, _, _| true, NOW),
            began: NOW,
            ..NodeSnapshot::default()
        };
        reclaim(&mut state, &snapshot, NOW, &mut Vec::new());
        assert_eq!(holders(state.ipam()), expected, "{end:?}");
    }
}
