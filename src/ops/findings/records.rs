//! Compares the records with the evidence. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use super::finding::{Finding, FindingKind};
use super::foreign;
use super::inspection::HostAddresses;
use crate::ipam::{
    AGAIN, Evidence, EvidenceIndex, Existence, Held, Ipam, Judgement, Place, Pool, Reason, Record,
    Verdict,
};
use crate::ops::describe_evidence::{describe_missing, describe_uses};
use crate::ops::lease::{Lease, held_records, records_by_address};
use crate::ops::node::Now;

/// What records are compared with.
#[derive(Debug)]
pub struct NodeView<'a> {
    /// The evidence of the node.
    pub evidence: &'a Evidence,
    /// The addresses of the host itself, as a command that removes them names them.
    pub host: &'a HostAddresses,
    /// Networks of this plugin, in addition to those that the records name.
    pub networks: &'a BTreeSet<String>,
    /// Now.
    pub now: &'a Now,
    /// How commands name this program.
    pub program: &'a str,
    /// The path of the state.
    pub state: PathBuf,
    /// The path of the lock file.
    pub lock: PathBuf,
}

/// All findings about addresses, from the state before and after the evidence was collected.
pub fn findings((before, ipam): (&Ipam, &Ipam), view: &NodeView<'_>) -> Vec<Finding> {
    let (evidence, now) = (view.evidence, view.now);
    let index = EvidenceIndex::new(evidence, ipam);
    let mut found = Vec::new();
    let mut holders = Vec::new();
    for (_, pool, record, holder) in held_records(ipam) {
        let address = record.address();
        let lease = Lease::new(pool, address, holder, now);
        let judgement = index.judge(address, holder, now.boot);
        found.extend(leak(address, holder, &lease, &judgement, view));
        if holder.owner.is_unknown() {
            found.push(unknown_owner(&lease, evidence));
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
        found.extend(free.filter_map(|record| in_use(record, pool, &index, view)));
        found.extend(foreign::unlisted(key, pool, evidence));
    }
    found.extend(foreign::outside_of_pools(ipam, evidence, view.networks));
    found
}

/// A lease without evidence, or with nothing but a host route that may be left over.
fn leak(
    address: IpAddr,
    held: &Held,
    holder: &Lease,
    judgement: &Judgement,
    view: &NodeView<'_>,
) -> Option<Finding> {
    let (evidence, now, program) = (view.evidence, view.now, view.program);
    let age = now.since(held.since);
    let reclaim = format!("sudo {program} reclaim --yes");
    let only = |wanted: fn(&Reason) -> bool| judgement.reasons.iter().all(wanted);
    let (cause, remedy, commands) = match judgement.verdict {
        Verdict::Dead => (
            "held, but nothing on this node shows the pods: they are dead",
            "an ADD frees leaks when their pool is exhausted; to free them all now:".to_owned(),
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
                "held, but nothing on this node shows the pods: they may be dead",
                format!("it is freed when it is found dead twice; {seen}"),
                vec![reclaim],
            )
        }
        // A running ADD has its network namespace, but a DEL may be about to come.
        Verdict::Undecided if only(|r| matches!(r, Reason::Young(_))) && age >= AGAIN => (
            "held for less than 15 minutes, but nothing on this node shows the pods",
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
                "held, but only a host route shows the pods",
                "the namespace of the pod is gone, so the route is left over; remove it:"
                    .to_owned(),
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
    let text = format!(
        "held by {} for {since}{}, {shown}",
        holder.describe_holder(),
        crate::ops::screen::format_age(age)
    );
    let finding = Finding::warning(FindingKind::Leak, &text, &remedy).about(address);
    Some(Finding {
        cause,
        evidence: describe_missing(address, held, evidence),
        commands,
        holder: Some(holder.clone()),
        ..finding
    })
}

fn own_namespace_is_gone(held: &Held, evidence: &Evidence) -> bool {
    let netns = held.owner.netns();
    netns.is_some_and(|netns| {
        netns.id.is_some() && evidence.kernel.existence(netns) == Existence::None
    })
}

/// A lease with an unknown owner.
fn unknown_owner(holder: &Lease, evidence: &Evidence) -> Finding {
    let cause = "held for an unknown owner: it was found in use after the state was lost";
    let remedy = "no action needed: the DEL of its pod frees it, or reclaim once the pod is dead";
    let finding = Finding::note(FindingKind::UnknownOwner, &cause, &remedy).about(holder.address);
    Finding {
        cause,
        evidence: describe_uses(holder.address, evidence),
        holder: Some(holder.clone()),
        ..finding
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
    let also = evidence
        .kernel
        .more_places
        .iter()
        .map(|(address, _)| *address);
    let mut twice: BTreeSet<_> = also.filter(|address| is_ours(*address)).collect();
    let all = evidence.lists();
    let entries = all.iter().flat_map(|(_, list)| list.entries());
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
        let text = "more than one attachment has this address";
        let remedy = "find out which pod answers, and delete the others: nothing else ends this; recreated pods get another address";
        Finding {
            evidence: holders.chain(describe_uses(address, evidence)).collect(),
            holder: held.first().cloned(),
            ..Finding::error(FindingKind::Duplicate, &text, &remedy).about(address)
        }
    };
    twice.into_iter().map(finding).collect()
}

/// A free address that is in use.
fn in_use(
    record: &Record,
    pool: &Pool,
    index: &EvidenceIndex<'_>,
    view: &NodeView<'_>,
) -> Option<Finding> {
    let (address, evidence) = (record.address(), view.evidence);
    let place = evidence.kernel.configured.get(&address);
    let routed = evidence.routes.contains(address);
    let listed = index.is_listed(address);
    let finding = match place {
        Some(Place::Host) => on_host(address, pool, view),
        Some(Place::Namespace(_)) => stray(view),
        None | Some(Place::OfUser(_)) if listed => stray(view),
        None | Some(Place::OfUser(_)) if routed => routed_by_host(address),
        None | Some(Place::OfUser(_)) => return None,
    };
    let finding = finding.about(address);
    Some(finding.with_evidence(describe_uses(address, evidence)))
}

/// A free address that a pod has.
fn stray(view: &NodeView<'_>) -> Finding {
    let cause = "in use on this node, but free in the state: another pod may get it too";
    let remedy = "have the state rebuilt from the node: the next ADD does, holds it, and takes no address from any pod; new pods wait for 30 s:";
    let (state, lock) = (view.state.display(), view.lock.display());
    let finding = Finding::error(FindingKind::Stray, &cause, &remedy);
    // Without the record in the lock file, the journal does not restore the same state again.
    let commands = [
        format!("sudo truncate -c -s 0 {lock}"),
        format!("sudo mv {state} {state}.old"),
    ];
    let finding = finding.with_commands(commands);
    Finding { cause, ..finding }
}

/// A free address that the host itself has.
fn on_host(address: IpAddr, pool: &Pool, view: &NodeView<'_>) -> Finding {
    let cause = "free, but the host itself has it, so that no pod gets it";
    let link = match &*pool.if_name {
        "" => "the interface",
        if_name => if_name,
    };
    let remedy = format_args!(
        "usually cloud-init configured it: put `network: {{config: disabled}}` into /etc/cloud/cloud.cfg.d/99-disable-network-config.cfg, and leave nothing but DHCP for {link} in /etc/netplan; then remove it:"
    );
    let finding = Finding::warning(FindingKind::Wired, &cause, &remedy);
    let named = view.host.get(&address);
    let command = |named: &String| format!("sudo ip address del {named}");
    Finding {
        cause,
        ..finding.with_commands(named.map(command))
    }
}

/// A free address that the host has a route to.
fn routed_by_host(address: IpAddr) -> Finding {
    let cause = "free, but the host has a route to it; it is not given to pods";
    let remedy = "no pod has it, so the route is left over; remove it:";
    let finding = Finding::warning(FindingKind::Wired, &cause, &remedy);
    let command = format!("sudo ip route del {address}");
    Finding {
        cause,
        ..finding.with_commands([command])
    }
}
