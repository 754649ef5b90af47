//! Deciding an ADD: values in, values out. It does no IO and reads no clock, so that whole histories can be compared with a model.

use std::collections::BTreeSet;
use std::mem;
use std::net::IpAddr;

use super::context::{Host, NodeSnapshot};
use super::report::Action;
use crate::ipam::{
    Candidate, EvidenceList, Family, Grant, GrantKind, Inventory, Ipam, Moment, Pool, PoolSelector,
    Refusal, Request, Violation,
};
use crate::source::RefreshReason;
use crate::state::{Condition, QUARANTINE, State};

/// What an ADD is decided from, beside the state.
pub struct Inputs<'a> {
    /// The requested addresses: all of them are granted, or none.
    pub requests: &'a [Request<'a>],
    /// The answer of the source that is not in the state yet.
    pub inventory: Option<&'a Inventory>,
    /// The newest look at the node, if there was one.
    pub snapshot: Option<&'a NodeSnapshot>,
    /// Why the source can still be asked before the request is refused, if it can.
    pub retry: Option<RefreshReason>,
    /// Now.
    pub now: Moment,
}

/// What an ADD comes to. `State::must_save` says whether the state changed.
#[derive(Debug)]
pub enum Decision {
    /// The grant of each request.
    Granted(Vec<Grant>),
    /// Nothing can be granted.
    Refused(Refusal),
    /// A look at the node is needed first, with these records to be judged. The state must not be saved.
    Snapshot(Vec<Candidate>),
    /// The source must be asked first. The state must not be saved.
    Refresh(RefreshReason),
    /// An address would have two holders. The state must not be saved.
    Inconsistent(Vec<Violation>),
}

/// Decides an ADD.
pub fn decide(
    state: &mut State,
    inputs: &Inputs<'_>,
    host: &dyn Host,
    actions: &mut Vec<Action>,
) -> Decision {
    let (requests, now) = (inputs.requests, inputs.now);
    if let Some(inventory) = inputs.inventory {
        let merged = state.ipam_mut().merge(inventory);
        // The new addresses may be somebody's whom the state never knew.
        if merged.added > 0 && state.condition == Condition::Ready {
            state.condition = Condition::Reconcile;
        }
        actions.push(Action::Merged(merged));
        state.must_save |= merged.changed;
    }
    // So that the quarantine begins now, whatever else happens.
    state.must_save |= state.condition.lost().is_some();
    if let Condition::Lost(loss) = &mut state.condition
        && loss.may_be_fresh
    {
        let is_empty = state.is_empty();
        match inputs.snapshot {
            // Nothing can be proved before there are pools. As from the original, there is a state when the source has answered.
            _ if is_empty => state.must_save = inputs.inventory.is_some(),
            None => return Decision::Snapshot(Vec::new()),
            Some(snapshot) => prove_fresh(state, requests, snapshot),
        }
    }
    // The original's states are never empty, and a loss stays pending until there is something to compare.
    if !state.is_empty() {
        if is_reconciliation_due(state) {
            let Some(snapshot) = inputs.snapshot else {
                return Decision::Snapshot(Vec::new());
            };
            reconcile(state, snapshot, now, actions);
        }
        // The reconciliation of a lost state begins a quarantine. If the loss was seen long enough ago,
        // that quarantine is over at once.
        if let Some(until) = quarantine_over(state, now) {
            // A scan that began during the quarantine may lack pods that were configured during it.
            let Some(snapshot) = inputs.snapshot.filter(|snapshot| until <= snapshot.began) else {
                return Decision::Snapshot(Vec::new());
            };
            reconcile(state, snapshot, now, actions);
        }
    }
    // A record that names only the container may belong to another of its interfaces.
    if requests
        .iter()
        .any(|request| state.ipam().is_claimless(request.attachment))
    {
        let Some(snapshot) = inputs.snapshot else {
            return Decision::Snapshot(Vec::new());
        };
        state.must_save |= state.ipam_mut().adopt_claims(&snapshot.evidence);
    }
    let flags_before = pool_flags(state.ipam());
    let mut grants = allocate_all(state.ipam_mut(), requests, now, host, actions);
    // With pools, only a newer answer can help.
    let is_useful = |reason: &RefreshReason| *reason == RefreshReason::Newer || state.is_empty();
    if let (Err(_), Some(reason)) = (&grants, inputs.retry.filter(is_useful)) {
        return Decision::Refresh(reason);
    }
    if matches!(grants, Err(Refusal::Exhausted { .. })) {
        let judging = inputs.snapshot.filter(|s| !s.candidates.is_empty());
        if let Some(snapshot) = judging {
            let ipam = state.ipam_mut();
            let judged = ipam.reclaim(snapshot.candidates.clone(), &snapshot.evidence, now);
            state.must_save |= !judged.is_empty();
            actions.push(Action::Judged(judged));
            grants = allocate_all(state.ipam_mut(), requests, now, host, actions);
        } else {
            let candidates = candidates(state.ipam(), requests, now);
            if !candidates.is_empty() {
                return Decision::Snapshot(candidates);
            }
        }
    }
    if let Some(snapshot) = inputs.snapshot {
        let ipam = state.ipam_mut();
        state.must_save |= ipam.clear_suspects(&snapshot.evidence, snapshot.began, now);
    }
    let conflicts = find_conflicts(state.ipam(), grants.as_deref().unwrap_or_default());
    if !conflicts.is_empty() {
        return Decision::Inconsistent(conflicts);
    }
    state.must_save |=
        grants.is_ok() || flags_before != pool_flags(state.ipam()) || state.has_unsaved_moments();
    match grants {
        Ok(grants) => Decision::Granted(grants),
        Err(refusal) => Decision::Refused(refusal),
    }
}

/// Frees the candidates of a snapshot that are dead, for an operator. A pending reconciliation comes first, as in an ADD. In a quarantine
/// nothing is freed.
pub fn reclaim(state: &mut State, snapshot: &NodeSnapshot, now: Moment, actions: &mut Vec<Action>) {
    if is_reconciliation_due(state)
        || quarantine_over(state, now).is_some_and(|until| until <= snapshot.began)
    {
        reconcile(state, snapshot, now, actions);
    }
    let ipam = state.ipam_mut();
    // An address may be another pod's than the record says, and told a moment ago.
    let candidates = match ipam.quarantine {
        None => snapshot.candidates.clone(),
        Some(_) => Vec::new(),
    };
    let judged = ipam.reclaim(candidates, &snapshot.evidence, now);
    ipam.clear_suspects(&snapshot.evidence, snapshot.began, now);
    actions.push(Action::Judged(judged));
}

/// Decides whether a state that is not there is a fresh one: no pod uses an address that the source lists. Where pods have addresses
/// of another family only, these are those of another plugin, such as azure-vnet-ipam beside azure-vnet-ipamv6.
fn prove_fresh(state: &mut State, requests: &[Request<'_>], snapshot: &NodeSnapshot) {
    let in_use = state.ipam().used_by_pods(&snapshot.evidence);
    let is_of_a_requested_family = |address: &IpAddr| {
        let family = Family::from_address(*address);
        requests
            .iter()
            .any(|request| request.pool.family() == family)
    };
    let lists = snapshot.evidence.lists();
    let unreadable = lists
        .into_iter()
        .find(|(_, list)| matches!(list, EvidenceList::Unreadable(_)));
    let why = if in_use.iter().any(is_of_a_requested_family) {
        Some("it is not there, though pods have addresses of its pools".to_owned())
    } else {
        unreadable.map(|(name, _)| format!("it is not there, and {name} cannot be read"))
    };
    match (&mut state.condition, why) {
        (Condition::Lost(loss), Some(why)) => {
            loss.may_be_fresh = false;
            loss.why = why;
        }
        (condition, _) if in_use.is_empty() => *condition = Condition::Fresh,
        (condition, _) => *condition = Condition::Reconcile,
    }
}

/// Returns whether the state must be compared with the node before it is used.
fn is_reconciliation_due(state: &State) -> bool {
    !matches!(state.condition, Condition::Ready | Condition::Fresh)
}

/// Returns the end of the quarantine if that is past. Then every ADD from before the loss has finished, and
/// a scan of the node shows all of them. The state must be compared with the node once more.
fn quarantine_over(state: &State, now: Moment) -> Option<Moment> {
    state.ipam().quarantine.filter(|until| *until <= now)
}

/// Brings the state in line with the node. The state is ready afterwards. A state that was ready before leaves its quarantine.
fn reconcile(state: &mut State, snapshot: &NodeSnapshot, now: Moment, actions: &mut Vec<Action>) {
    let evidence = &snapshot.evidence;
    let condition = mem::replace(&mut state.condition, Condition::Ready);
    let ipam = state.ipam_mut();
    match &condition {
        Condition::Lost(loss) => {
            ipam.confirm_owners(evidence, now);
            ipam.quarantine = Some(loss.seen.after(QUARANTINE));
        }
        Condition::NewBoot => {
            actions.push(Action::FreedAfterReboot(ipam.new_boot(evidence, now)));
        }
        // The quarantine is over.
        Condition::Ready => {
            ipam.confirm_owners(evidence, now);
            ipam.quarantine = None;
        }
        _ => {}
    }
    let is_after_a_loss = matches!(condition, Condition::Lost(_) | Condition::Ready);
    let found = ipam.hold_evident(evidence, now, is_after_a_loss);
    if condition == Condition::Reconcile {
        ipam.adopt_claims(evidence);
    }
    actions.push(Action::Reconciled(condition, found));
    state.must_save = true;
}

/// Allocates an address for each request, or none at all.
pub(super) fn allocate_all(
    ipam: &mut Ipam,
    requests: &[Request<'_>],
    now: Moment,
    host: &dyn Host,
    actions: &mut Vec<Action>,
) -> Result<Vec<Grant>, Refusal> {
    let mut grants = Vec::new();
    for request in requests {
        match allocate(ipam, request, now, host, actions) {
            Ok(grant) => grants.push(grant),
            Err(refusal) => {
                ipam.revoke_all(request.attachment, &grants);
                return Err(refusal);
            }
        }
    }
    Ok(grants)
}

/// Returns the addresses that this call allocated although another record holds them. What contradicted itself before is still served.
fn find_conflicts(ipam: &Ipam, grants: &[Grant]) -> Vec<Violation> {
    let is_new = |grant: &&Grant| matches!(grant.kind, GrantKind::New(_));
    let allocated: BTreeSet<IpAddr> = grants
        .iter()
        .filter(is_new)
        .map(|grant| grant.address.addr())
        .collect();
    let mut violations = ipam.check();
    violations.retain(
        |violation| matches!(violation, Violation::HeldTwice { address, .. } if allocated.contains(address)),
    );
    violations
}

/// Allocates an address that the host neither has nor routes to. Such an address is somebody else's, whatever the pools say
/// (difference D19).
fn allocate(
    ipam: &mut Ipam,
    request: &Request<'_>,
    now: Moment,
    host: &dyn Host,
    actions: &mut Vec<Action>,
) -> Result<Grant, Refusal> {
    let mut on_host = BTreeSet::new();
    loop {
        let grant = ipam.allocate(
            &Request {
                on_host: &on_host,
                ..request.clone()
            },
            now,
        )?;
        let address = grant.address.addr();
        if matches!(grant.kind, GrantKind::Renewed) || !host.has(address) {
            return Ok(grant);
        }
        ipam.revoke(request.attachment, &grant);
        // Where there is one there are often many: cloud-init configures all addresses of an interface on the host.
        on_host.insert(address);
        on_host.extend(host.all());
        let count = ipam.mark_on_host(&on_host);
        actions.push(Action::SkippedOnHost { address, count });
    }
}

/// Returns the records to judge when the pools of the requests are exhausted.
pub(super) fn candidates(ipam: &Ipam, requests: &[Request<'_>], now: Moment) -> Vec<Candidate> {
    // A pool that a resized subnet left behind may hold what the named one lists.
    let lists = |request: &Request<'_>, subnet: &str, key: &IpAddr| {
        let space = ipam.spaces.get(request.space);
        let named = space.and_then(|space| space.pools.get(space.pool_named(subnet)?));
        named.is_some_and(|pool| pool.record(key).is_some())
    };
    let wanted = |space: &str, pool: &Pool, key: IpAddr| {
        requests.iter().any(|request| {
            space == request.space
                && match request.pool {
                    PoolSelector::Named(subnet) => lists(request, subnet, &key),
                    PoolSelector::Any { family, if_name } => pool.suits(family, if_name),
                }
        })
    };
    ipam.candidates(wanted, now)
}

/// Returns the pools' flags of having been handed out whole, the only thing that a refused request may change by itself.
fn pool_flags(ipam: &Ipam) -> Vec<i64> {
    ipam.pools().map(|(_, _, pool)| pool.ref_count).collect()
}

#[cfg(test)]
mod tests {
    //! What the histories cannot show: their node has no addresses of the host, no operator, and no state that contradicts itself.

    use super::*;
    use crate::ipam::testing::{
        attached, attachment, hold, holders, ip, request, shows, with_pools,
    };
    use crate::ipam::{Evidence, Held, Usage};
    use crate::state::Loss;

    const NOW: Moment = Moment(100_000_000_000_000);

    fn state() -> State {
        let mut state = State::default();
        *state.ipam_mut() = with_pools(&[("10.0.0.0/24", 0, &["10.0.0.4", "10.0.0.5"])]);
        state
    }

    fn look(evidence: Evidence) -> NodeSnapshot {
        NodeSnapshot {
            evidence,
            began: NOW,
            ..NodeSnapshot::default()
        }
    }

    fn inputs<'a>(requests: &'a [Request<'a>], snapshot: Option<&'a NodeSnapshot>) -> Inputs<'a> {
        Inputs {
            requests,
            inventory: None,
            snapshot,
            retry: None,
            now: NOW,
        }
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

    /// A host without these addresses.
    #[derive(Debug)]
    struct Nowhere;

    impl Host for Nowhere {
        fn has(&self, _: IpAddr) -> bool {
            false
        }

        fn all(&self) -> BTreeSet<IpAddr> {
            BTreeSet::new()
        }
    }

    #[test]
    fn an_address_of_the_host_is_skipped() {
        let mut state = state();
        let attachment = attachment("pod", "eth0");
        let requests = [request(&attachment)];
        let inputs = inputs(&requests, None);
        let decision = decide(&mut state, &inputs, &OnHost, &mut Vec::new());
        assert!(matches!(decision, Decision::Granted(_)));
        assert_eq!(holders(state.ipam()), "10.0.0.5=pod");
        // There is no other address.
        *state.ipam_mut() = with_pools(&[("10.0.0.0/24", 0, &["10.0.0.4"])]);
        let decision = decide(&mut state, &inputs, &OnHost, &mut Vec::new());
        assert!(matches!(decision, Decision::Refused(_)));
    }

    #[test]
    fn pods_of_another_family_do_not_make_a_new_state_a_lost_one() {
        let pod = attachment("pod", "eth0");
        for (used, expected) in [
            (None, "fd00::5=pod"),
            (Some("10.0.0.4"), "10.0.0.4= fd00::5=pod"),
            (Some("fd00::6"), "fd00::6="),
        ] {
            let mut state = State::default();
            *state.ipam_mut() = with_pools(&[
                ("10.0.0.0/24", 0, &["10.0.0.4"]),
                ("fd00::/120", 0, &["fd00::5", "fd00::6"]),
            ]);
            state.condition = Condition::Lost(Loss {
                seen: NOW,
                may_be_fresh: true,
                ..Loss::default()
            });
            let snapshot = look(shows(used.as_slice()));
            let v6 = Request {
                pool: PoolSelector::Any {
                    family: Family::V6,
                    if_name: None,
                },
                ..request(&pod)
            };
            let requests = [v6];
            let inputs = inputs(&requests, Some(&snapshot));
            decide(&mut state, &inputs, &Nowhere, &mut Vec::new());
            assert_eq!(holders(state.ipam()), expected, "{used:?}");
        }
    }

    #[test]
    fn a_refused_request_is_saved_only_if_it_changed_the_flag_of_a_pool() {
        let mut state = state();
        for (address, number) in [("10.0.0.4", 1), ("10.0.0.5", 2)] {
            hold(state.ipam_mut(), address, attached(address, number), NOW);
        }
        let pod = attachment("pod", "eth0");
        let snapshot = look(shows(&["10.0.0.4", "10.0.0.5"]));
        let requests = [request(&pod)];
        let inputs = inputs(&requests, Some(&snapshot));
        for must_save in [true, false] {
            state.must_save = false;
            let decision = decide(&mut state, &inputs, &Nowhere, &mut Vec::new());
            assert!(matches!(decision, Decision::Refused(_)), "{decision:?}");
            assert_eq!(state.must_save, must_save);
            assert_eq!(pool_flags(state.ipam()), [1]);
        }
    }

    #[test]
    fn a_list_that_cannot_be_read_does_not_show_that_a_state_is_new() {
        let pod = attachment("pod", "eth0");
        for (azure_vnet, expected) in [
            (EvidenceList::Absent, "10.0.0.4=pod"),
            (EvidenceList::Unreadable("EIO".to_owned()), ""),
        ] {
            let mut state = state();
            state.condition = Condition::Lost(Loss {
                seen: NOW,
                may_be_fresh: true,
                ..Loss::default()
            });
            let snapshot = look(Evidence {
                azure_vnet,
                ..Evidence::default()
            });
            let requests = [request(&pod)];
            let inputs = inputs(&requests, Some(&snapshot));
            decide(&mut state, &inputs, &Nowhere, &mut Vec::new());
            assert_eq!(holders(state.ipam()), expected);
        }
    }

    #[test]
    fn only_a_new_grant_of_an_address_that_another_record_holds_is_a_conflict() {
        let mut ipam = with_pools(&[
            ("10.0.0.0/24", 0, &["10.0.0.4", "10.0.0.5"]),
            ("10.0.0.0/16", 0, &["10.0.0.4"]),
        ]);
        let pod = attachment("pod", "eth0");
        let request = Request {
            pool: PoolSelector::Named("10.0.0.0/24"),
            address: Some("10.0.0.4"),
            ..request(&pod)
        };
        let new = ipam.allocate(&request, NOW).unwrap();
        assert_eq!(find_conflicts(&ipam, std::slice::from_ref(&new)), []);
        let other = ipam.spaces.values_mut().flat_map(|space| &mut space.pools);
        for (_, pool) in other.filter(|(name, _)| *name == "10.0.0.0/16") {
            pool.records[0].usage = Usage::Held(Held::default());
        }
        let renewed = Grant {
            kind: GrantKind::Renewed,
            ..new.clone()
        };
        assert_eq!(find_conflicts(&ipam, &[new]).len(), 1);
        assert_eq!(find_conflicts(&ipam, &[renewed]), []);
    }

    #[test]
    fn a_named_pool_gets_back_what_the_dead_hold_of_it_in_another_pool() {
        let (old, new) = ("10.0.0.0/24", "10.0.0.0/23");
        let mut ipam = with_pools(&[(old, 0, &["10.0.0.4", "10.0.0.5"]), (new, 0, &["10.0.0.4"])]);
        for address in ["10.0.0.4", "10.0.0.5"] {
            hold(&mut ipam, address, attached(address, 0), Moment(1));
        }
        let pod = attachment("pod", "eth0");
        let request = Request {
            pool: PoolSelector::Named(new),
            ..request(&pod)
        };
        let found = candidates(&ipam, std::slice::from_ref(&request), NOW);
        ipam.reclaim(found, &shows(&[]), NOW);
        let grant = ipam.allocate(&request, NOW).unwrap();
        assert_eq!(grant.address.to_string(), "10.0.0.4/23");
        assert_eq!(holders(&ipam), "10.0.0.4=pod 10.0.0.5=10.0.0.5");
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
}
