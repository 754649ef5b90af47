//! Decides an ADD. It reads no file and no clock, so that tests can compare whole histories with a model. It only asks the node whether
//! the host or a network namespace has an address.

use std::collections::BTreeSet;
use std::mem;
use std::net::IpAddr;
use std::time::Duration;

use super::known::{Known, Need, Scan};
use super::node::Host;
use super::report::Action;
use crate::failure::{Failure, message_with_remedy};
use crate::ipam::{
    Candidate, EvidenceList, Family, Free, Grant, GrantKind, Ipam, Moment, Pool, PoolSelector,
    Refusal, Taken, Violation, Wanted, WantedAddress,
};
use crate::source::{FreshAnswer, SourceError, Turn, time_limit};
use crate::state::{Condition, QUARANTINE, Refreshed, State};

/// The outcome of an ADD. `State::must_save` says whether the state must be saved.
#[derive(Debug)]
pub struct Decision {
    /// The grant of each address, or why nothing is granted.
    pub granted: Result<Vec<Grant>, Failure>,
    /// The other changes of the state.
    pub actions: Vec<Action>,
}

/// Decides an ADD.
///
/// # Errors
/// The decision needs something first. The state must not be saved then.
pub fn decide(
    state: &mut State,
    wanted: &Wanted,
    known: &Known<'_>,
    now: Moment,
    host: &dyn Host,
) -> Result<Decision, Need> {
    let mut actions = Vec::new();
    if let Condition::Newer { format } = state.condition {
        state.must_save = false;
        let granted = Err(Failure::NewerFormat { found: format });
        return Ok(Decision { granted, actions });
    }
    require_answer(state, known, now)?;
    let source_failure = merge_answer(state, known, now, &mut actions);
    require_proof_of_freshness(state, wanted, known)?;
    reconcile_if_due(state, known, now, &mut actions)?;
    complete_holders(state, wanted, known)?;
    let flags_before = pool_flags(state.ipam());
    let mut grants = allocate_all(state.ipam_mut(), wanted, now, host, &mut actions);
    if grants.is_err() {
        require_newer_answer(state, known)?;
    }
    if matches!(grants, Err(Refusal::Exhausted { .. }))
        && reclaim_for(state, wanted, known, now, &mut actions)?
    {
        grants = allocate_all(state.ipam_mut(), wanted, now, host, &mut actions);
    }
    if let Some(scan) = &known.scan {
        let ipam = state.ipam_mut();
        state.must_save |= ipam.clear_suspects(&scan.evidence, scan.began, now);
    }
    let conflicts = find_conflicts(state.ipam(), grants.as_deref().unwrap_or_default());
    if !conflicts.is_empty() {
        state.must_save = false;
        let granted = Err(Failure::Broken(conflicts));
        return Ok(Decision { granted, actions });
    }
    state.must_save |= grants.is_ok()
        || flags_before != pool_flags(state.ipam())
        || state.document.has_unsaved_moments();
    let granted = grants.map_err(|refusal| Failure::Refused {
        refusal,
        source: source_failure,
        configured_address: wanted.configured_address.clone(),
    });
    Ok(Decision { granted, actions })
}

/// Requires an answer of the source, unless the last one is recent enough or a query has just failed.
fn require_answer(state: &State, known: &Known<'_>, now: Moment) -> Result<(), Need> {
    /// The pause after a failed query, while the pools are usable.
    const PAUSE: Duration = Duration::from_secs(10);
    let has_pools = !state.is_empty();
    if is_answered(state, known) {
        return Ok(());
    }
    if has_pools {
        if known.has_timed_out {
            return Ok(());
        }
        let answered = known.merged_at(state);
        if let (Some(answered), Some(interval)) = (answered, known.interval)
            && now.since(answered) <= interval
        {
            return Ok(());
        }
        if let Some(failed) = known.turn.as_ref().and_then(Turn::failed)
            && answered < Some(failed)
            && now.since(failed) < PAUSE
        {
            return Ok(());
        }
    }
    Err(Need::Answer(time_limit(has_pools)))
}

/// Requires a new answer of the source before an ADD is refused. An answer that is recent enough to allocate from may lack the addresses
/// that were added since.
fn require_newer_answer(state: &State, known: &Known<'_>) -> Result<(), Need> {
    if is_answered(state, known) {
        return Ok(());
    }
    Err(Need::NewerAnswer(time_limit(!state.is_empty())))
}

/// Returns whether the source was queried since this call began, with or without success. The query of another call counts too.
fn is_answered(state: &State, known: &Known<'_>) -> bool {
    known.answer.is_some()
        || known.merged_at(state) > Some(known.started)
        || known.is_failed_by_peer()
}

/// Merges the answer that this call got. Returns what is wrong with the list of addresses, if anything: the source failed, or it lists
/// values that cannot be used.
fn merge_answer(
    state: &mut State,
    known: &Known<'_>,
    now: Moment,
    actions: &mut Vec<Action>,
) -> Option<String> {
    let answer = match &known.answer {
        Some(Ok(answer)) => answer,
        Some(Err(why)) => return Some(not_fresh(why)),
        None if known.is_failed_by_peer() => {
            return Some(not_fresh(&message_with_remedy(
                known.source,
                &SourceError::FailedByPeer,
            )));
        }
        None => return None,
    };
    if answer.is_implausible() && !state.is_empty() {
        let rejection = reject(answer);
        let why = message_with_remedy(known.source, &rejection);
        actions.push(Action::Rejected(rejection.to_string()));
        return Some(unusable(answer).unwrap_or_else(|| not_fresh(&why)));
    }
    // Another call may have merged a newer answer. Two calls can query at once if the file of the turn is removed.
    if Some(answer.began) < known.merged_at(state) {
        actions.push(Action::Overtaken);
        return None;
    }
    let merged = state.ipam_mut().merge(&answer.matched.inventory, now);
    // Pods that are not recorded may already use the new addresses.
    if merged.added > 0 && state.condition == Condition::Ready {
        state.condition = Condition::Reconcile;
    }
    actions.push(Action::Merged(merged));
    state.document.refreshed = Some(Refreshed {
        at: answer.arrived,
        source: known.source_name(),
    });
    state.must_save = true;
    unusable(answer)
}

/// Describes the first value of an answer that cannot be used, if there is one.
fn unusable(answer: &FreshAnswer) -> Option<String> {
    let first = answer.matched.unusable.first.as_ref()?;
    Some(format!("the source lists {first}"))
}

fn not_fresh(why: &str) -> String {
    format!("the list of addresses is old: {why}")
}

/// The error for an answer that would remove all pools (difference D6).
fn reject(answer: &FreshAnswer) -> SourceError {
    let matched = &answer.matched;
    let pools = matched.inventory.pools.iter();
    SourceError::Implausible {
        subnets: pools.filter(|pool| pool.addresses.is_empty()).count(),
        interfaces: matched.unmatched.len(),
    }
}

/// Requires a scan of the node where the state is missing. The scan shows whether the state is new or was lost.
fn require_proof_of_freshness(
    state: &mut State,
    wanted: &Wanted,
    known: &Known<'_>,
) -> Result<(), Need> {
    let Condition::Lost(loss) = &state.condition else {
        return Ok(());
    };
    if loss.may_be_fresh && state.is_empty() {
        // Nothing can be proved before there are pools. As in the original, the state is first saved when the source has answered.
        state.must_save = matches!(known.answer, Some(Ok(_)));
        return Ok(());
    }
    // The quarantine begins now, even if this ADD fails.
    let may_be_fresh = loss.may_be_fresh;
    state.must_save = true;
    if may_be_fresh {
        prove_fresh(state, wanted, known.scan()?);
    }
    Ok(())
}

/// Decides whether a missing state is new: no pod uses an address that the source lists. If pods have addresses of another family only,
/// these belong to another plugin, such as azure-vnet-ipam beside azure-vnet-ipamv6.
fn prove_fresh(state: &mut State, wanted: &Wanted, scan: &Scan) {
    let in_use = state.ipam().used_by_pods(&scan.evidence);
    let is_wanted_family = |address: &IpAddr| {
        let family = Family::from_address(*address);
        wanted
            .addresses
            .iter()
            .any(|wanted| wanted.pool.family() == family)
    };
    let lists = scan.evidence.lists();
    let unreadable = lists
        .into_iter()
        .find(|(_, list)| matches!(list, EvidenceList::Unreadable(_)));
    let why = if in_use.iter().any(is_wanted_family) {
        Some("it is missing, though pods have addresses of its pools".to_owned())
    } else {
        unreadable.map(|(name, _)| format!("it is missing, and {name} cannot be read"))
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

/// Reconciles the state with the node if that must come first. A state without pools has nothing to reconcile.
fn reconcile_if_due(
    state: &mut State,
    known: &Known<'_>,
    now: Moment,
    actions: &mut Vec<Action>,
) -> Result<(), Need> {
    if state.is_empty() {
        return Ok(());
    }
    if is_reconciliation_due(state) {
        reconcile(state, known.scan()?, now, actions);
    }
    // The quarantine counts from when the loss was first seen. One that begins now may therefore be over at once.
    if let Some(until) = ended_quarantine(state, now) {
        let scan = known.scan()?;
        // A scan that began during the quarantine may lack pods that were configured during it.
        if scan.began < until {
            return Err(Need::Scan(Vec::new()));
        }
        reconcile(state, scan, now, actions);
    }
    Ok(())
}

/// Returns whether the state must be reconciled with the node before it is used.
fn is_reconciliation_due(state: &State) -> bool {
    !matches!(state.condition, Condition::Ready | Condition::Fresh)
}

/// Returns the end of the quarantine if it has passed. Every ADD from before the loss has finished by then, and a scan of the node shows
/// the address of each. The state must be reconciled once more.
fn ended_quarantine(state: &State, now: Moment) -> Option<Moment> {
    state.ipam().quarantine.filter(|until| *until <= now)
}

/// Reconciles the state with the node. The state is ready afterwards. A state that was ready before leaves its quarantine.
fn reconcile(state: &mut State, scan: &Scan, now: Moment, actions: &mut Vec<Action>) {
    let evidence = &scan.evidence;
    let condition = mem::replace(&mut state.condition, Condition::Ready);
    let ipam = state.ipam_mut();
    match &condition {
        Condition::Lost(loss) => {
            ipam.confirm_holders(evidence, now);
            ipam.quarantine = Some(loss.seen.after(QUARANTINE));
        }
        Condition::NewBoot => {
            actions.push(Action::FreedAfterReboot(ipam.new_boot(evidence, now)));
            ipam.replace_outdated_holders(evidence, scan.began, now, true);
        }
        Condition::Reconcile => ipam.replace_outdated_holders(evidence, scan.began, now, false),
        // The quarantine is over.
        Condition::Ready => {
            ipam.confirm_holders(evidence, now);
            ipam.quarantine = None;
        }
        _ => {}
    }
    let is_after_a_loss = matches!(condition, Condition::Lost(_) | Condition::Ready);
    let found = ipam.hold_evident(evidence, now, is_after_a_loss);
    ipam.complete_holders(evidence);
    actions.push(Action::Reconciled(condition, found));
    state.must_save = true;
}

/// Completes the records that name the container of this ADD, but no interface. They may belong to another of its interfaces.
fn complete_holders(state: &mut State, wanted: &Wanted, known: &Known<'_>) -> Result<(), Need> {
    if state.ipam().lacks_interface(&wanted.attachment) {
        let evidence = &known.scan()?.evidence;
        state.must_save |= state.ipam_mut().complete_holders(evidence);
    }
    Ok(())
}

/// Allocates each wanted address, or none at all.
fn allocate_all(
    ipam: &mut Ipam,
    wanted: &Wanted,
    now: Moment,
    host: &dyn Host,
    actions: &mut Vec<Action>,
) -> Result<Vec<Grant>, Refusal> {
    let mut grants = Vec::new();
    for address in &wanted.addresses {
        match allocate(ipam, wanted, address, now, host, actions) {
            Ok(grant) => grants.push(grant),
            Err(refusal) => {
                ipam.revoke_all(&wanted.attachment, &grants);
                return Err(refusal);
            }
        }
    }
    Ok(grants)
}

/// Allocates an address. Skips those that the network namespace of the last holder still has (difference D24). Skips those that the host
/// has or routes to (difference D19). Such addresses are in use, even if they are free in the pools.
pub(super) fn allocate(
    ipam: &mut Ipam,
    wanted: &Wanted,
    address: &WantedAddress,
    now: Moment,
    host: &dyn Host,
    actions: &mut Vec<Action>,
) -> Result<Grant, Refusal> {
    let mut taken = Taken::default();
    loop {
        let grant = ipam.allocate(wanted, address, &taken, now)?;
        let granted = grant.address.addr();
        let GrantKind::New(before) = &grant.kind else {
            return Ok(grant);
        };
        if is_withheld(before, granted, wanted, now, host) {
            ipam.revoke(&wanted.attachment, &grant);
            if taken.withheld.is_empty() && host.has(granted) {
                // Many sandboxes may be stuck, each with a route: the addresses without one are tried first.
                ipam.mark_on_host(&host.all());
            }
            taken.withheld.insert(granted);
            actions.push(Action::Withheld(granted));
            continue;
        }
        if !host.has(granted) {
            return Ok(grant);
        }
        ipam.revoke(&wanted.attachment, &grant);
        // One such address is seldom alone: cloud-init configures all addresses of an interface on the host.
        taken.on_host.insert(granted);
        taken.on_host.extend(host.all());
        let count = ipam.mark_on_host(&taken.on_host);
        actions.push(Action::SkippedOnHost {
            address: granted,
            count,
        });
    }
}

/// Returns whether the network namespace of the last holder still has a released address. The main plugin or the runtime failed to tear
/// the sandbox down then. An ADD for the same namespace may have the address again.
fn is_withheld(
    free: &Free,
    address: IpAddr,
    wanted: &Wanted,
    now: Moment,
    host: &dyn Host,
) -> bool {
    free.last_holder_still_has(address, now, |last, address, ago| {
        let is_own = wanted.netns.as_ref().is_some_and(|own| own.is_same(last));
        !is_own && host.namespace_has(last, address, ago)
    })
}

/// Reclaims the addresses of dead holders in the exhausted pools. That needs a scan of the node. Returns whether there was any record to
/// judge.
fn reclaim_for(
    state: &mut State,
    wanted: &Wanted,
    known: &Known<'_>,
    now: Moment,
    actions: &mut Vec<Action>,
) -> Result<bool, Need> {
    let judging = known
        .scan
        .as_ref()
        .filter(|scan| !scan.candidates.is_empty());
    let Some(scan) = judging else {
        let candidates = candidates(state.ipam(), wanted, now);
        if candidates.is_empty() {
            return Ok(false);
        }
        return Err(Need::Scan(candidates));
    };
    let ipam = state.ipam_mut();
    let judged = ipam.reclaim(scan.candidates.clone(), &scan.evidence, Some(wanted), now);
    state.must_save |= !judged.is_empty();
    actions.push(Action::Judged(judged));
    Ok(true)
}

/// Returns the records to judge when the pools of an ADD are exhausted.
pub(super) fn candidates(ipam: &Ipam, wanted: &Wanted, now: Moment) -> Vec<Candidate> {
    // When a subnet was resized, its old pool may hold addresses that the named pool lists.
    let lists = |subnet: &str, key: &IpAddr| {
        let space = ipam.spaces.get(&wanted.space);
        let named = space.and_then(|space| space.pools.get(space.pool_named(subnet)?));
        named.is_some_and(|pool| pool.record(key).is_some())
    };
    let is_wanted = |space: &str, pool: &Pool, key: IpAddr| {
        space == wanted.space
            && wanted.addresses.iter().any(|wanted| match &wanted.pool {
                PoolSelector::Named(subnet) => lists(subnet, &key),
                PoolSelector::Any { family, if_name } => pool.suits(*family, if_name.as_deref()),
            })
    };
    ipam.candidates(is_wanted, Some(wanted), now)
}

/// Returns the addresses that this call allocated although another record holds them. Older contradictions in the state do not fail an
/// ADD.
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

/// Returns each pool's flag that says that it was handed out whole. A refused request may change only these.
fn pool_flags(ipam: &Ipam) -> Vec<i64> {
    ipam.pools().map(|(_, _, pool)| pool.ref_count).collect()
}

/// Reclaims the addresses of dead candidates, for an operator. A pending reconciliation comes first, as in an ADD. During a quarantine
/// nothing is reclaimed.
pub fn reclaim(state: &mut State, scan: &Scan, now: Moment, actions: &mut Vec<Action>) {
    if is_reconciliation_due(state)
        || ended_quarantine(state, now).is_some_and(|until| until <= scan.began)
    {
        reconcile(state, scan, now, actions);
    }
    let ipam = state.ipam_mut();
    // During a quarantine, a pod that is not recorded may have an address of a candidate, and may not have configured it yet.
    let candidates = match ipam.quarantine {
        None => scan.candidates.clone(),
        Some(_) => Vec::new(),
    };
    let judged = ipam.reclaim(candidates, &scan.evidence, None, now);
    ipam.clear_suspects(&scan.evidence, scan.began, now);
    actions.push(Action::Judged(judged));
}

#[cfg(test)]
mod tests {
    //! Tests what the histories cannot reach: addresses of the host, the operator, and a state that contradicts itself.

    use super::*;
    use crate::ipam::NetNs;
    use crate::ipam::testing::{
        allocate as allocate_from, attached, hold, holders, ip, shows, wanted, wanted_of,
        with_pools,
    };
    use crate::ipam::{Evidence, Held, InUseBy, Usage};
    use crate::source::{Attempts, Source};
    use crate::state::Loss;

    const NOW: Moment = Moment(100_000_000_000_000);

    fn state() -> State {
        let mut state = State::default();
        *state.ipam_mut() = with_pools(&[("10.0.0.0/24", 0, &["10.0.0.4", "10.0.0.5"])]);
        state
    }

    /// What a call knows after a scan that found this evidence. The source does not answer.
    fn known_after_scan(evidence: Evidence) -> Known<'static> {
        Known {
            scan: Some(Scan {
                evidence,
                began: NOW,
                ..Scan::default()
            }),
            ..known_without_scan()
        }
    }

    fn known_without_scan() -> Known<'static> {
        Known {
            answer: Some(Err("it does not answer".to_owned())),
            ..Known::default()
        }
    }

    /// The turn of a call that finds this failure recorded.
    fn turn(failed: Option<Moment>, now: Moment) -> Turn {
        let found = Attempts {
            failed,
            ..Attempts::default()
        };
        Turn::of_trial(found, "", None, now)
    }

    fn decide_at(
        state: &mut State,
        wanted: &Wanted,
        known: &Known<'_>,
        host: &dyn Host,
    ) -> Result<Vec<Grant>, Failure> {
        decide(state, wanted, known, NOW, host).unwrap().granted
    }

    /// What the host and other network namespaces have.
    #[derive(Debug, Default)]
    struct TestHost {
        on_host: BTreeSet<IpAddr>,
        /// Whether the namespaces of the last holders still have all addresses.
        is_withheld: bool,
    }

    impl Host for TestHost {
        fn has(&self, address: IpAddr) -> bool {
            self.on_host.contains(&address)
        }

        fn all(&self) -> BTreeSet<IpAddr> {
            self.on_host.clone()
        }

        fn namespace_has(&self, _: &NetNs, _: IpAddr, _: Duration) -> bool {
            self.is_withheld
        }
    }

    /// A host that has no address of the pools.
    fn empty_host() -> TestHost {
        TestHost::default()
    }

    #[test]
    fn source_is_queried_unless_an_answer_or_a_failure_is_recent() {
        let at = |second: u64| Moment(second * 1_000_000_000);
        let (started, now) = (at(1000), at(1001));
        let needs = |refreshed: Option<u64>, failed: Option<u64>, interval: Option<u64>| {
            [true, false].map(|has_pools| {
                let mut state = if has_pools { state() } else { State::default() };
                state.document.refreshed = refreshed.map(|second| Refreshed {
                    at: at(second),
                    source: Source::Null.name(),
                });
                let known = Known {
                    source: Some(&Source::Null),
                    started,
                    interval: interval.map(Duration::from_secs),
                    turn: Some(turn(failed.map(at), now)),
                    ..Known::default()
                };
                match require_answer(&state, &known, now) {
                    Ok(()) => None,
                    Err(need) => Some(format!("{need:?}")),
                }
            })
        };
        let (short, long) = (
            Some("Answer(3s)".to_owned()),
            Some("Answer(10s)".to_owned()),
        );
        let always = [short, long.clone()];
        for (refreshed, failed, interval, expected) in [
            // An answer or a failure since this call began.
            (Some(1001), None, None, [None, None]),
            (None, Some(1001), None, [None, None]),
            (Some(1000), None, None, always.clone()),
            // A pause of ten seconds, unless an answer came since.
            (Some(900), Some(992), None, [None, long.clone()]),
            (Some(900), Some(991), None, always.clone()),
            (Some(993), Some(992), None, always.clone()),
            (Some(991), None, Some(10), [None, long]),
            (Some(990), None, Some(10), always.clone()),
            (None, None, Some(100), always),
        ] {
            let found = needs(refreshed, failed, interval);
            assert_eq!(found, expected, "{refreshed:?} {failed:?} {interval:?}");
        }
    }

    #[test]
    fn the_answer_of_another_source_does_not_count() {
        let mut state = state();
        state.document.refreshed = Some(Refreshed {
            at: NOW,
            source: "another".to_owned(),
        });
        let known = Known {
            source: Some(&Source::Null),
            interval: Some(Duration::MAX),
            ..Known::default()
        };
        assert!(require_answer(&state, &known, NOW).is_err());
    }

    #[test]
    fn source_is_queried_before_a_refusal() {
        let mut known = Known {
            source: Some(&Source::Null),
            interval: Some(Duration::MAX),
            ..Known::default()
        };
        let mut state = state();
        state.document.refreshed = Some(Refreshed {
            at: Moment(0),
            source: Source::Null.name(),
        });
        for pod in ["a", "b"] {
            assert!(decide_at(&mut state, &wanted(pod), &known, &empty_host()).is_ok());
        }
        let full = decide(&mut state, &wanted("c"), &known, NOW, &empty_host());
        assert!(matches!(full, Err(Need::NewerAnswer(_))), "{full:?}");
        known.has_timed_out = true;
        let empty = decide(
            &mut State::default(),
            &wanted("a"),
            &known,
            NOW,
            &empty_host(),
        );
        assert!(matches!(empty, Err(Need::Answer(_))), "{empty:?}");
        known.answer = Some(Err("it does not answer".to_owned()));
        let refused = decide_at(&mut State::default(), &wanted("a"), &known, &empty_host());
        let Err(Failure::Refused { source, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(
            source.as_deref(),
            Some("the list of addresses is old: it does not answer")
        );
    }

    #[test]
    fn an_address_of_the_host_is_skipped() {
        let mut state = state();
        let (pod, known) = (wanted("pod"), known_without_scan());
        let on_host = TestHost {
            on_host: [ip("10.0.0.4")].into(),
            ..TestHost::default()
        };
        assert!(decide_at(&mut state, &pod, &known, &on_host).is_ok());
        assert_eq!(holders(state.ipam()), "10.0.0.5=pod");
        // There is no other address.
        *state.ipam_mut() = with_pools(&[("10.0.0.0/24", 0, &["10.0.0.4"])]);
        let refused = decide_at(&mut state, &pod, &known, &on_host);
        assert!(matches!(refused, Err(Failure::Refused { .. })));
    }

    #[test]
    fn missing_state_is_new_if_pods_use_only_another_family() {
        let v6 = PoolSelector::Any {
            family: Family::V6,
            if_name: None,
        };
        let pod = wanted_of("pod", v6, None);
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
            let known = known_after_scan(shows(used.as_slice()));
            let _ = decide_at(&mut state, &pod, &known, &empty_host());
            assert_eq!(holders(state.ipam()), expected, "{used:?}");
        }
    }

    #[test]
    fn a_refused_request_is_saved_only_if_it_changed_the_flag_of_a_pool() {
        let mut state = state();
        for (address, number) in [("10.0.0.4", 1), ("10.0.0.5", 2)] {
            hold(state.ipam_mut(), address, attached(address, number), NOW);
        }
        let known = known_after_scan(shows(&["10.0.0.4", "10.0.0.5"]));
        for must_save in [true, false] {
            state.must_save = false;
            let refused = decide_at(&mut state, &wanted("pod"), &known, &empty_host());
            assert!(
                matches!(refused, Err(Failure::Refused { .. })),
                "{refused:?}"
            );
            assert_eq!(state.must_save, must_save);
            assert_eq!(pool_flags(state.ipam()), [1]);
        }
    }

    #[test]
    fn missing_state_is_not_new_if_a_list_of_evidence_is_unreadable() {
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
            let known = known_after_scan(Evidence {
                azure_vnet,
                ..Evidence::default()
            });
            let _ = decide_at(&mut state, &wanted("pod"), &known, &empty_host());
            assert_eq!(holders(state.ipam()), expected);
        }
    }

    #[test]
    fn only_a_new_grant_of_an_address_that_another_record_holds_is_a_conflict() {
        let mut ipam = with_pools(&[
            ("10.0.0.0/24", 0, &["10.0.0.4", "10.0.0.5"]),
            ("10.0.0.0/16", 0, &["10.0.0.4"]),
        ]);
        let pool = PoolSelector::Named("10.0.0.0/24".to_owned());
        let wanted = wanted_of("pod", pool, Some("10.0.0.4"));
        let new = allocate_from(&mut ipam, &wanted, NOW).unwrap();
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
    fn a_released_address_is_withheld_while_its_last_namespace_has_it() {
        let netns = |cookie| {
            Some(NetNs {
                path: "/run/netns/x".into(),
                id: Some((4, 77)),
                cookie: Some(cookie),
            })
        };
        let still_there = TestHost {
            is_withheld: true,
            ..TestHost::default()
        };
        let with_a_route = TestHost {
            is_withheld: true,
            on_host: [ip("10.0.0.4")].into(),
        };
        let mut state = state();
        for record in state.ipam_mut().pools_mut().flat_map(|p| &mut p.records) {
            record.usage = Usage::Free(Free {
                released: Some(Moment(1)),
                last_netns: netns(7),
                ..Free::default()
            });
        }
        for (own, host, expected) in [
            (None, &still_there, false),
            (None, &with_a_route, false),
            (netns(8), &still_there, false),
            (netns(7), &still_there, true),
            (None, &empty_host(), true),
        ] {
            let wanted = Wanted {
                netns: own,
                ..wanted("pod")
            };
            let mut ipam = state.ipam().clone();
            let granted = allocate_all(&mut ipam, &wanted, NOW, host, &mut Vec::new());
            assert_eq!(granted.is_ok(), expected, "{granted:?}");
            if let Err(refusal) = granted {
                assert!(refusal.to_string().ends_with("0 free, 2 withheld"));
                assert_eq!(ipam.records().count(), 2);
                let free = || ipam.records().map(|r| (r.address(), r.free().unwrap()));
                assert!(free().all(|(_, free)| free.released.is_some()));
                let marked = free().filter(|(_, free)| free.on_host);
                assert!(marked.map(|(address, _)| address).eq(host.on_host.clone()));
            }
        }
        let named = PoolSelector::Named("10.0.0.0/24".to_owned());
        let named = wanted_of("pod", named, Some("10.0.0.4"));
        let refused = allocate_all(state.ipam_mut(), &named, NOW, &still_there, &mut Vec::new());
        let in_use_by = InUseBy::LastSandbox;
        let address = ip("10.0.0.4");
        assert_eq!(refused, Err(Refusal::AddressInUse { address, in_use_by }));
    }

    #[test]
    fn named_pool_reclaims_its_addresses_from_dead_holders_in_another_pool() {
        let (old, new) = ("10.0.0.0/24", "10.0.0.0/23");
        let mut ipam = with_pools(&[(old, 0, &["10.0.0.4", "10.0.0.5"]), (new, 0, &["10.0.0.4"])]);
        for address in ["10.0.0.4", "10.0.0.5"] {
            hold(&mut ipam, address, attached(address, 0), Moment(1));
        }
        let wanted = wanted_of("pod", PoolSelector::Named(new.to_owned()), None);
        let found = candidates(&ipam, &wanted, NOW);
        ipam.reclaim(found, &shows(&[]), Some(&wanted), NOW);
        let grant = allocate_from(&mut ipam, &wanted, NOW).unwrap();
        assert_eq!(grant.address.to_string(), "10.0.0.4/23");
        assert_eq!(holders(&ipam), "10.0.0.4=pod 10.0.0.5=10.0.0.5");
    }

    #[test]
    fn operator_reclaims_nothing_during_a_quarantine() {
        for (end, expected) in [(None, ""), (Some(Moment(NOW.0 + 1)), "10.0.0.4=dead")] {
            let mut state = state();
            let ipam = state.ipam_mut();
            hold(ipam, "10.0.0.4", attached("dead", 0), Moment(1));
            ipam.quarantine = end;
            let scan = Scan {
                candidates: ipam.candidates(|_, _, _| true, None, NOW),
                began: NOW,
                ..Scan::default()
            };
            reclaim(&mut state, &scan, NOW, &mut Vec::new());
            assert_eq!(holders(state.ipam()), expected, "{end:?}");
        }
    }
}
