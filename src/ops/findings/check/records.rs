//! Compares the records with the evidence. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::finding::{Finding, FindingKind};
use super::foreign;
use crate::host::Paths;
use crate::ipam::{
    AGAIN, Evidence, Existence, Held, Ipam, Judge, Judgement, LiveAttachments, Place, Reason,
    Record, Routes, Verdict,
};
use crate::ops::describe_evidence::{describe_missing, describe_uses};
use crate::ops::lease::{Lease, held_records, records_by_address};
use crate::ops::node::Now;

/// All findings about addresses, from the state before and after the evidence was collected. `networks` are networks of this
/// plugin, in addition to those that the records name. Remedies name the commands of `program`.
pub fn findings(
    (before, ipam): (&Ipam, &Ipam),
    evidence: &Evidence,
    networks: &BTreeSet<String>,
    now: &Now,
    program: &'static str,
) -> Vec<Finding> {
    let judge = Judge::new(evidence, LiveAttachments::new(ipam, evidence));
    let mut found = Vec::new();
    let mut holders = Vec::new();
    for (_, pool, record, holder) in held_records(ipam) {
        let address = record.address();
        let lease = Lease::new(pool, address, holder, now);
        let judgement = judge.judge(address, holder, now.boot);
        found.extend(leak(
            address,
            holder,
            &lease,
            &judgement,
            evidence,
            (now, program),
        ));
        if holder.owner.is_unknown() {
            found.push(unknown_owner(&lease, evidence, program));
        }
        holders.push(lease);
    }
    holders.sort_by_key(|holder| holder.address);
    found.extend(duplicates(&holders, ipam, evidence));
    // The evidence may still show what was released meanwhile.
    let taken = held_records(before).map(|(_, _, record, _)| record.address());
    let taken: BTreeSet<_> = taken
        .chain(holders.iter().map(|holder| holder.address))
        .collect();
    for (_, key, pool) in ipam.pools() {
        let free = records_by_address(pool)
            .into_iter()
            .filter(|record| record.free().is_some());
        let free = free.filter(|record| !taken.contains(&record.address()));
        found.extend(free.filter_map(|record| in_use(record, &judge, evidence, program)));
        found.extend(foreign::unlisted(key, pool, evidence));
    }
    found.extend(foreign::outside_of_pools(ipam, evidence, networks));
    found
}

/// A lease without evidence, or with nothing but a host route that may be left over.
fn leak(
    address: IpAddr,
    held: &Held,
    holder: &Lease,
    judgement: &Judgement,
    evidence: &Evidence,
    (now, program): (&Now, &str),
) -> Option<Finding> {
    let age = now.since(held.since);
    let reclaim = format!("sudo {program} reclaim --yes");
    let only = |wanted: fn(&Reason) -> bool| judgement.reasons.iter().all(wanted);
    let (remedy, commands) = match judgement.verdict {
        Verdict::Dead => (
            "free it and all other dead leases:".to_owned(),
            vec![reclaim],
        ),
        Verdict::Suspect => {
            let seen = held.suspect.map_or_else(
                || format!("now, and again in {} s or later:", AGAIN.as_secs()),
                |at| {
                    let left = AGAIN.saturating_sub(now.since(at));
                    format!("once more, in {} s or later:", left.as_secs())
                },
            );
            (
                format!("it is freed when it is found dead twice; {seen}"),
                vec![reclaim],
            )
        }
        // A running ADD has its network namespace, but a DEL may be about to come.
        Verdict::Undecided if only(|r| matches!(r, Reason::Young(_))) && age >= AGAIN => (
            "reclaim frees it when it is 15 minutes old; if it cannot wait:".to_owned(),
            vec![format!(
                "sudo {program} release {address} --container {}",
                holder.container_text()
            )],
        ),
        Verdict::Alive
            if only(|r| *r == Reason::HostRoute) && own_namespace_is_gone(held, evidence) =>
        {
            (
                "if the route is left over:".to_owned(),
                vec![format!("sudo ip route del {address}"), reclaim],
            )
        }
        Verdict::Alive | Verdict::Undecided => return None,
    };
    let shown = match judgement.verdict {
        Verdict::Alive => "but only a host route shows it",
        _ => "but nothing on this node shows it",
    };
    let since = if holder.first_seen { "at least " } else { "" };
    Some(Finding {
        kind: FindingKind::Leak,
        subject: address.to_string(),
        text: format!(
            "held by {} for {since}{}, {shown}",
            holder.describe_holder(),
            crate::ops::screen::format_age(age)
        ),
        evidence: describe_missing(address, held, evidence),
        remedy,
        commands,
        holder: Some(holder.clone()),
    })
}

fn own_namespace_is_gone(held: &Held, evidence: &Evidence) -> bool {
    let netns = held.owner.netns();
    netns.is_some_and(|netns| {
        netns.id.is_some() && evidence.kernel.existence(netns) == Existence::None
    })
}

/// A lease with an unknown owner.
fn unknown_owner(holder: &Lease, evidence: &Evidence, program: &'static str) -> Finding {
    Finding {
        kind: FindingKind::UnknownOwner,
        subject: holder.address.to_string(),
        text: "held for an unknown owner: it was found in use after the state was lost"
            .to_owned(),
        evidence: describe_uses(holder.address, evidence),
        remedy: "no action while the pod runs: the DEL of the pod frees it, or reclaim once the pod is dead; by hand:".to_owned(),
        commands: vec![format!(
            "sudo {program} release {} --container unknown",
            holder.address
        )],
        holder: Some(holder.clone()),
    }
}

/// Addresses that more than one attachment claims: in the state, in the kernel, or by the lists of others. `holders` come by
/// address.
fn duplicates(holders: &[Lease], ipam: &Ipam, evidence: &Evidence) -> Vec<Finding> {
    let of = |address: IpAddr| {
        let first = holders.partition_point(|holder| holder.address < address);
        let rest = holders.get(first..).unwrap_or_default();
        let count = rest.partition_point(|holder| holder.address == address);
        rest.get(..count).unwrap_or_default()
    };
    let is_ours = |address: IpAddr| {
        let mut pools = ipam.pools();
        pools.any(|(_, _, pool)| pool.records.iter().any(|r| r.address() == address))
    };
    let also = evidence.kernel.also.iter().map(|(address, _)| *address);
    let mut twice: BTreeSet<_> = also.filter(|address| is_ours(*address)).collect();
    let all = evidence.lists();
    let entries = all.iter().flat_map(|(_, witness)| witness.entries());
    for entry in entries.filter(|entry| entry.is_live && !entry.container_id.is_empty()) {
        let is_other = |holder: &Lease| {
            let id = holder.container.as_ref();
            id.is_some_and(|id| *id != entry.container_id)
        };
        let claimed = entry.addresses.iter().filter(|address| {
            let holders = of(**address);
            !holders.is_empty() && holders.iter().all(is_other)
        });
        twice.extend(claimed);
    }
    for pair in holders.windows(2) {
        if let [first, second] = pair
            && first.address == second.address
        {
            twice.insert(first.address);
        }
    }
    let finding = |address: IpAddr| {
        let held = of(address);
        let holders = held
            .iter()
            .map(|h| format!("held by {} in pool {}", h.describe_holder(), h.pool));
        Finding {
            kind: FindingKind::Duplicate,
            subject: address.to_string(),
            text: "more than one attachment has this address".to_owned(),
            evidence: holders.chain(describe_uses(address, evidence)).collect(),
            remedy:
                "delete all but one of the pods that have it; recreated pods get another address"
                    .to_owned(),
            commands: Vec::new(),
            holder: held.first().cloned(),
        }
    };
    twice.into_iter().map(finding).collect()
}

/// A free address that is in use.
fn in_use(
    record: &Record,
    judge: &Judge<'_>,
    evidence: &Evidence,
    program: &'static str,
) -> Option<Finding> {
    let address = record.address();
    let place = evidence.kernel.configured.get(&address);
    let routed = matches!(&evidence.routes, Routes::Read(routes) if routes.contains(&address));
    let listed = !judge.listed(address).is_empty();
    let state = Paths::new(None, program).state();
    let stray = || {
        (
            FindingKind::Stray,
            "in use on this node, but free in the state: another pod may get it too",
            "delete the pod that has it; or have the state rebuilt from the node, which blocks new pods for 30 s:".to_owned(),
            vec![format!("sudo mv {0} {0}.old", state.display())],
        )
    };
    let (kind, text, remedy, commands) = match place {
        Some(Place::Host) => (
            FindingKind::Wired,
            "free, but the host itself has it; it is skipped",
            format!("`{program} doctor` shows how to prevent this; remove it:"),
            vec![format!("sudo ip address del {address} dev INTERFACE")],
        ),
        Some(Place::Namespace(_)) => stray(),
        None | Some(Place::OfUser(_)) if listed => stray(),
        None | Some(Place::OfUser(_)) if routed => (
            FindingKind::Wired,
            "free, but the host has a route to it; it is skipped",
            "if the route is left over:".to_owned(),
            vec![format!("sudo ip route del {address}")],
        ),
        None | Some(Place::OfUser(_)) => return None,
    };
    Some(Finding {
        kind,
        subject: address.to_string(),
        text: text.to_owned(),
        evidence: describe_uses(address, evidence),
        remedy,
        commands,
        holder: None,
    })
}
