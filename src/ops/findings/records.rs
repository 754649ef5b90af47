//! Compares the records with the evidence. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::host_network::{Configurer, HostNetwork};
use super::pod_routes::{self, PodPlace, RoutesOfPods};
use crate::ipam::{
    AGAIN, Entry, Evidence, EvidenceIndex, EvidenceList, Exclusions, Free, GRACE, Held, Holder,
    Ipam, Place, Pool, Record, Verdict,
};
use crate::ops::conf_file::Plugin;
use crate::ops::finding::{Finding, FindingKind, Severity};
use crate::ops::held::{
    HeldAddress, describe_holder, describe_lack, describe_missing, describe_uses, held_records,
    lacks, records_by_address,
};
use crate::ops::leak::Leak;
use crate::ops::node::Now;
use crate::ops::screen::format_age;

/// What records are compared with.
#[derive(Debug)]
pub struct NodeView<'a> {
    /// The evidence of the node.
    pub evidence: &'a Evidence,
    /// The addresses of the host itself.
    pub host: &'a HostNetwork,
    /// How the host routes the packets of pods.
    pub routes_of_pods: &'a RoutesOfPods,
    /// The free addresses that the network namespaces of their last holders still have.
    pub withheld: &'a BTreeSet<IpAddr>,
    /// The addresses that the configuration excludes.
    pub exclude: &'a Exclusions,
    /// Who released each address last, as far as the list of operations goes back.
    pub last_holders: &'a BTreeMap<IpAddr, Holder>,
    /// Networks of this plugin, in addition to those that the records name, with their main plugins.
    pub networks: &'a BTreeMap<String, &'a Plugin>,
    /// The addresses that the source lists for network interfaces that the host does not have.
    pub of_missing_interfaces: &'a BTreeSet<IpAddr>,
    /// The addresses of the host that connect a second link to a subnet, or are its gateway. They are findings of their own.
    pub connecting: &'a BTreeSet<IpAddr>,
    /// Now.
    pub now: &'a Now,
    /// How commands name this program.
    pub program: &'a str,
    /// The path of the state.
    pub state: PathBuf,
    /// The path of the lock file.
    pub lock: PathBuf,
}

/// The holders of each held address: several where it is in more than one pool.
type Holders = BTreeMap<IpAddr, Vec<HeldAddress>>;

/// All findings about addresses, from those held before the evidence was collected, and the state after that.
pub fn findings((before, ipam): (&BTreeSet<IpAddr>, &Ipam), view: &NodeView<'_>) -> Vec<Finding> {
    let (evidence, now) = (view.evidence, view.now);
    let index = EvidenceIndex::new(evidence, ipam);
    let mut found = Vec::new();
    let mut holders = Holders::new();
    let listed = ipam.listed_addresses();
    let mut replaced: BTreeMap<&str, Vec<Finding>> = BTreeMap::new();
    let mut newest: BTreeMap<&str, Duration> = BTreeMap::new();
    for (_, pool, record, held) in held_records(ipam) {
        let address = record.address();
        let holder = HeldAddress::new(pool, address, held, now);
        let judgement = index.judge(address, held, now.boot);
        let leak = Leak::find(held, &judgement, evidence, now);
        found.extend(leak.map(|leak| leaked(leak, held, &holder, view)));
        let is_on_host = view.host.find(address).is_some() && !view.connecting.contains(&address);
        if is_on_host && judgement.verdict == Verdict::Alive {
            let holder = Some(holder.clone());
            found.push(Finding {
                holder,
                ..on_host(address, true, view)
            });
        }
        if held.holder.is_unknown() {
            found.push(unknown_holder(&holder, evidence));
        }
        if !listed.contains(&address) && !view.of_missing_interfaces.contains(&address) {
            found.push(unlisted(&holder));
        }
        if let Some(pod) = &held.holder.pod {
            let age = now.since(held.since);
            let least = newest.entry(pod).or_insert(age);
            *least = age.min(*least);
            if judgement.verdict == Verdict::Alive && index.is_replaced(&held.holder) {
                let findings = replaced.entry(pod).or_default();
                findings.push(replaced_sandbox(&holder, evidence));
            }
        }
        holders.entry(address).or_default().push(holder);
    }
    // The sandbox before the newest may be on its way out. Each can have an address of both families.
    let are_kept = |pod: &str, found: &[Finding]| {
        let holders = found.iter().filter_map(|finding| finding.holder.as_ref());
        let sandboxes: BTreeSet<&str> = holders.map(|held| held.holder.container_id()).collect();
        sandboxes.len() > 1 || newest.get(pod).is_some_and(|age| *age >= GRACE)
    };
    let kept = replaced
        .into_iter()
        .filter(|(pod, found)| are_kept(pod, found));
    found.extend(kept.flat_map(|(_, found)| found));
    let twice = duplicates(&holders, ipam, evidence);
    let mut misplaced = misplaced(&holders, view);
    let mut unrouted = unrouted(&holders, ipam, view);
    for findings in [&mut misplaced, &mut unrouted] {
        findings.retain(|finding| twice.iter().all(|other| other.subject != finding.subject));
    }
    found.extend(twice.into_iter().chain(misplaced));
    found.extend(named_for_another(&holders, evidence));
    found.extend(unconfigured(&holders, &index, view));
    found.extend(unrouted);
    // The evidence may still show what was released after the scan.
    let is_taken = |address| before.contains(&address) || holders.contains_key(&address);
    let mut known: BTreeSet<_> = ipam.records().map(Record::address).collect();
    known.extend(view.of_missing_interfaces);
    for (_, key, pool) in ipam.pools() {
        let records = records_by_address(pool).into_iter();
        for record in records.filter(|record| !is_taken(record.address())) {
            if let Some(free) = record.free() {
                found.extend(in_use(record.address(), free, ipam, &index, view));
            }
        }
        found.extend(never_listed(key, pool, &known, evidence));
    }
    found.extend(outside_of_pools(ipam, evidence, view.networks));
    if found.iter().any(|f| f.kind == FindingKind::Duplicate) {
        let strays = found.iter_mut().filter(|f| f.kind == FindingKind::Stray);
        strays.for_each(postpone);
    }
    found
}

/// Leaves the state where it is until the duplicates are gone: a rebuild would not know their rightful holders.
fn postpone(stray: &mut Finding) {
    let remedy = "end the duplicates first; then `check` prints how to have the state rebuilt, which holds this address";
    stray.remedy = remedy.to_owned();
    stray.commands.clear();
}

/// A held address that its holder has leaked.
fn leaked(leak: Leak, held: &Held, holder: &HeldAddress, view: &NodeView<'_>) -> Finding {
    let (address, program) = (holder.address, view.program);
    let reclaim = format!("sudo {program} reclaim --yes");
    let shown = match leak {
        Leak::RouteLeft => "only a host route shows it",
        Leak::EntryLeft => "only an entry for a network namespace that is gone shows it",
        Leak::Dead | Leak::MayBeDead | Leak::Young => "nothing on this node shows it",
    };
    let (cause, remedy, commands) = match leak {
        Leak::Dead => (
            "held, but nothing on this node shows the pods: they are dead",
            "an ADD frees leaks when their pool is exhausted; to free them all now:".to_owned(),
            vec![reclaim],
        ),
        Leak::MayBeDead => {
            let runs = match held.suspect {
                None => format!(
                    "two runs of this free it, at least {} s apart:",
                    AGAIN.as_secs()
                ),
                Some(at) => {
                    let left = AGAIN.saturating_sub(view.now.since(at));
                    format!(
                        "one more run of this frees it, in {} s or later:",
                        left.as_secs()
                    )
                }
            };
            (
                "held, but nothing on this node shows the pods: they may be dead",
                runs,
                vec![reclaim],
            )
        }
        Leak::Young => (
            "held for less than 15 minutes, but nothing on this node shows the pods",
            "once it is 15 minutes old, two ADDs that find the pool exhausted free it, 60 s apart, or two runs of reclaim; if it cannot wait:".to_owned(),
            vec![format!(
                "sudo {program} release {address} --container {}",
                holder.container_text()
            )],
        ),
        Leak::RouteLeft => (
            "held, but only a host route shows the pods",
            "the namespace of the pod is gone, so the route is left over; remove it:".to_owned(),
            view.host
                .removals(address)
                .into_iter()
                .chain([reclaim])
                .collect(),
        ),
        Leak::EntryLeft => (
            "held, but only an entry for a network namespace that is gone shows the pods",
            "another network namespace has its path now, so no reclaim frees it; release it:".to_owned(),
            vec![format!(
                "sudo {program} release {address} --container {} --force",
                holder.container_text()
            )],
        ),
    };
    let since = if holder.first_seen { "at least " } else { "" };
    let text = format!(
        "held by {} for {since}{}, but {shown}",
        holder.describe_holder(),
        format_age(view.now.since(held.since))
    );
    let finding = Finding::warning(FindingKind::Leak, &text, &remedy).about(address);
    Finding {
        cause,
        evidence: describe_missing(address, held, view.evidence),
        commands,
        holder: Some(holder.clone()),
        ..finding
    }
}

/// An address with an unknown holder.
fn unknown_holder(holder: &HeldAddress, evidence: &Evidence) -> Finding {
    let cause =
        "held for an unknown holder: found in use, or in an old copy, when the state was rebuilt";
    let remedy =
        "no action needed: the DEL of its pod frees it, or else reclaim once the pod is dead";
    Finding {
        cause,
        evidence: describe_uses(holder.address, evidence),
        holder: Some(holder.clone()),
        ..Finding::note(FindingKind::UnknownHolder, &cause, &remedy).about(holder.address)
    }
}

/// Addresses that more than one attachment claims: in the state, in the kernel, or by the lists of others.
fn duplicates(holders: &Holders, ipam: &Ipam, evidence: &Evidence) -> Vec<Finding> {
    let is_ours = |address: &IpAddr| {
        let mut pools = ipam.pools();
        pools.any(|(_, _, pool)| pool.records.iter().any(|r| r.address() == *address))
    };
    let also = evidence.kernel.more_places.iter();
    // The check of the other name of this program reports those that only its state holds.
    let belongs_to_other_name = |address: &IpAddr| {
        !holders.contains_key(address) && evidence.other_name.holders.contains_key(address)
    };
    let mut twice: BTreeSet<IpAddr> = also
        .map(|(address, _)| *address)
        .filter(|address| is_ours(address) && !belongs_to_other_name(address))
        .collect();
    let of_cache = claims_of_others(&evidence.cache, holders)
        .filter(|(entry, address)| !evidence.is_unconfirmed(entry, *address));
    let listed = claims_of_others(&evidence.azure_vnet, holders).chain(of_cache);
    twice.extend(listed.map(|(_, address)| address));
    let several = holders.iter().filter(|(_, all)| all.len() > 1);
    twice.extend(several.map(|(address, _)| address));
    let finding = |address: IpAddr| {
        let all = holders.get(&address).map_or(&[][..], Vec::as_slice);
        let claim = |h: &HeldAddress| format!("held by {} in pool {}", h.describe_holder(), h.pool);
        let claims = all.iter().map(claim);
        let text = "more than one attachment has this address, so both may lose packets";
        Finding {
            evidence: claims.chain(describe_uses(address, evidence)).collect(),
            holder: all.first().cloned(),
            ..Finding::error(FindingKind::Duplicate, &text, &end_of_duplicate(all)).about(address)
        }
    };
    twice.into_iter().map(finding).collect()
}

/// The live entries of a list that name held addresses for other containers than their known holders, with these addresses.
fn claims_of_others<'a>(
    list: &'a EvidenceList,
    holders: &'a Holders,
) -> impl Iterator<Item = (&'a Entry, IpAddr)> {
    let is_claim = |(entry, address): &(&Entry, IpAddr)| {
        let is_other = |held: &HeldAddress| {
            let holder = &held.holder;
            !holder.is_unknown() && !holder.is_container(entry.holder.container_id())
        };
        let all = holders.get(address);
        all.is_some_and(|all| all.iter().all(is_other))
    };
    let entries = list.entries().iter();
    entries
        .filter(|entry| entry.is_live && !entry.holder.is_unknown())
        .flat_map(|entry| entry.addresses.iter().map(move |address| (entry, *address)))
        .filter(is_claim)
}

/// Held addresses that the CNI cache also names for another sandbox, whose network namespace does not have them.
fn named_for_another(holders: &Holders, evidence: &Evidence) -> Vec<Finding> {
    let cause = "held, but the CNI cache also names it for another sandbox, and the network namespace of that sandbox does not have it";
    let named: BTreeSet<IpAddr> = claims_of_others(&evidence.cache, holders)
        .filter(|(entry, address)| evidence.is_unconfirmed(entry, *address))
        .map(|(_, address)| address)
        .collect();
    let finding = |address: IpAddr| Finding {
        holder: holders.get(&address).and_then(|all| all.first()).cloned(),
        ..left_over_entry(cause, address, evidence)
    };
    named.into_iter().map(finding).collect()
}

/// An address that the CNI cache names for a sandbox whose network namespace does not have it. A rebuild of the state would hold it for
/// that sandbox, so no command is printed.
fn left_over_entry(cause: &'static str, address: IpAddr, evidence: &Evidence) -> Finding {
    let remedy = "no action needed if that pod was deleted: the runtime could not remove the entry. If the pod runs and hands the address on, for example to a virtual machine, another pod may use it too; as a last resort delete the pod";
    let entries = evidence.cache.entries().iter();
    let files = entries
        .filter(|entry| entry.is_live && entry.addresses.contains(&address))
        .filter(|entry| evidence.is_unconfirmed(entry, address))
        .map(|entry| format!("the entry of the CNI cache: {}", entry.file));
    let uses = describe_uses(address, evidence).into_iter();
    Finding {
        cause,
        evidence: uses.chain(files).collect(),
        ..Finding::note(FindingKind::Cache, &cause, &remedy).about(address)
    }
}

/// A main plugin configures an address within this time after the ADD, in seconds.
const CONFIGURED_AFTER: u64 = 60;

/// Held addresses that no network namespace has, although that of their holder exists.
fn unconfigured(holders: &Holders, index: &EvidenceIndex<'_>, view: &NodeView<'_>) -> Vec<Finding> {
    let kernel = &view.evidence.kernel;
    let finding = |(address, all): (&IpAddr, &Vec<HeldAddress>)| {
        let held = all.first()?;
        let netns = held.holder.netns.as_ref()?;
        let is_lacking = held.age_seconds >= CONFIGURED_AFTER
            && !index.is_replaced(&held.holder)
            && kernel.places(*address).next().is_none()
            && lacks(kernel, netns, *address);
        let cause = "held, but the network namespace of the pod does not have it";
        let remedy = "no action needed if the pod hands it on, for example to a virtual machine; if not, find out what removed it, and configure it again; as a last resort delete the pod";
        let finding = Finding {
            cause,
            evidence: vec![describe_lack(netns)],
            holder: Some(held.clone()),
            ..Finding::note(FindingKind::Unconfigured, &cause, &remedy).about(address)
        };
        is_lacking.then_some(finding)
    };
    holders.iter().filter_map(finding).collect()
}

/// Held addresses whose packets the host does not route as it should.
fn unrouted(holders: &Holders, ipam: &Ipam, view: &NodeView<'_>) -> Vec<Finding> {
    let interfaces = ipam.pools().map(|(_, _, pool)| &*pool.if_name).collect();
    let finding = |(address, all): (&IpAddr, &Vec<HeldAddress>)| {
        let held = all.first()?;
        let netns = held.holder.netns.as_ref()?;
        let is_configured = view.evidence.kernel.addresses_in(netns)?.contains(address);
        let routes = view.routes_of_pods.get(&(netns.id?, *address))?;
        if !is_configured || held.age_seconds < CONFIGURED_AFTER {
            return None;
        }
        let (_, _, pool) = ipam.pools().find(|(_, key, _)| *key == held.pool)?;
        let plugin = view.networks.get(&*held.holder.attachment.network)?;
        let pod = PodPlace {
            address: *address,
            plugin: plugin.kind(),
            is_masqueraded: plugin.masquerades(),
            if_name: &pool.if_name,
            gateway: pool.gateway,
            interfaces: &interfaces,
            host: view.host,
        };
        let finding = pod_routes::examine(pod, routes)?;
        let holder = Some(held.clone());
        Some(Finding { holder, ..finding })
    };
    holders.iter().filter_map(finding).collect()
}

/// Held addresses that another network namespace has, and that of their holder does not.
fn misplaced(holders: &Holders, view: &NodeView<'_>) -> Vec<Finding> {
    let having = holders_by_configured_address(holders, view.evidence);
    let kernel = &view.evidence.kernel;
    // Without a mount, it may be a namespace that the pod itself made.
    let is_mounted =
        |place: &Place| matches!(place, Place::Namespace(path) if !path.contains("/proc/"));
    let finding = |(address, all): (&IpAddr, &Vec<HeldAddress>)| {
        let held = all.first().filter(|held| !held.holder.is_unknown())?;
        let (id, place) = (held.holder.container_id(), kernel.configured.get(address)?);
        let netns = held.holder.netns.as_ref();
        let lacking = netns.filter(|netns| lacks(kernel, netns, *address));
        let whose = match having.get(address).map(Vec::as_slice) {
            Some(users) if users.iter().any(|user| user.is_container(id)) => return None,
            Some([user, ..]) => format!(", the network namespace of {}", describe_holder(user)),
            _ if lacking.is_some() && is_mounted(place) => String::new(),
            _ => return None,
        };
        let holder = held.describe_holder();
        let text = format!("held by {holder}, but configured {place}{whose}");
        let remedy = "find out what changed the addresses in the network namespaces, and change them back; as a last resort delete these pods, which ends their connections: recreated, they get addresses of their own; this shows its history:";
        let lack = lacking.map(describe_lack);
        let uses = describe_uses(*address, view.evidence);
        let finding = Finding::error(FindingKind::Duplicate, &text, &remedy)
            .about(address)
            .with_evidence(lack.into_iter().chain(uses).collect())
            .with_commands([format!("sudo {} show {address}", view.program)]);
        let holder = Some(held.clone());
        Some(Finding { holder, ..finding })
    };
    holders.iter().filter_map(finding).collect()
}

/// The known holders by the addresses that their network namespaces have.
fn holders_by_configured_address<'a>(
    holders: &'a Holders,
    evidence: &'a Evidence,
) -> BTreeMap<IpAddr, Vec<&'a Holder>> {
    let recorded = holders.values().flatten().map(|held| &held.holder);
    let entries = evidence
        .lists()
        .into_iter()
        .flat_map(|(_, list)| list.entries());
    let listed = entries
        .filter(|entry| entry.is_live)
        .map(|entry| &entry.holder);
    let mut found: BTreeMap<IpAddr, Vec<&Holder>> = BTreeMap::new();
    for holder in recorded.chain(listed).filter(|holder| !holder.is_unknown()) {
        let netns = holder.netns.as_ref();
        let inside = netns.and_then(|netns| evidence.kernel.addresses_in(netns));
        for address in inside.into_iter().flatten() {
            found.entry(*address).or_default().push(holder);
        }
    }
    found
}

/// What ends a duplicate. The pods that must go break, so this is a last resort.
fn end_of_duplicate(holders: &[HeldAddress]) -> String {
    let rightful = match holders {
        [only] if !only.holder.is_unknown() => {
            let holder = only.describe_holder();
            format!("{holder} is the rightful holder, so leave it alone")
        }
        _ => "the state does not name one rightful holder, so find out which pod answers, and leave that one alone"
            .to_owned(),
    };
    format!(
        "{rightful}; as a last resort, delete the others: that ends their connections, and they get other addresses when they are recreated"
    )
}

/// An address that the source took from a running pod.
fn unlisted(holder: &HeldAddress) -> Finding {
    let cause =
        "held, but the source no longer lists it for pods, so Azure may not deliver to the pod";
    let remedy = "make the addresses secondary addresses of the network interface in Azure again; as a last resort, and only while other addresses are free, delete the pods: that ends their connections, and recreated, they get other addresses";
    let since = holder.unlisted_seconds.map(|seconds| {
        let age = format_age(Duration::from_secs(seconds));
        format!("the plugin noticed it {age} ago")
    });
    Finding {
        cause,
        evidence: since.into_iter().collect(),
        holder: Some(holder.clone()),
        ..Finding::warning(FindingKind::Unlisted, &cause, &remedy).about(holder.address)
    }
}

/// The command that removes a sandbox, but not a running one: without `-f`, crictl refuses that.
fn remove_sandbox(container: &str) -> String {
    format!("sudo crictl rmp {container}")
}

/// The address of a sandbox that the runtime has replaced and kept.
fn replaced_sandbox(held: &HeldAddress, evidence: &Evidence) -> Finding {
    let cause = "held by old sandboxes of a pod that has a newer one";
    let remedy = "find out why (`kubectl describe pod`): sandboxes that fail, of which each retry takes an address, or containers that did not end when the pod was deleted by force; end the old sandboxes, with `crictl stopp` first if they run:";
    let command = remove_sandbox(held.holder.container_id());
    let finding = Finding::warning(FindingKind::Replaced, &cause, &remedy).about(held.address);
    Finding {
        cause,
        evidence: describe_uses(held.address, evidence),
        holder: Some(held.clone()),
        ..finding.with_commands([command])
    }
}

/// A free address that is in use: by a pod, by the host itself, or by a route of the host.
fn in_use(
    address: IpAddr,
    free: &Free,
    ipam: &Ipam,
    index: &EvidenceIndex<'_>,
    view: &NodeView<'_>,
) -> Option<Finding> {
    const LEFT_OVER: &str =
        "free, but the CNI cache names it for a sandbox, whose network namespace does not have it";
    let evidence = view.evidence;
    // No pod gets it, so the host may have it.
    let is_excluded = view.exclude.contain(&address);
    let finding = match evidence.kernel.configured.get(&address) {
        // `check` under the other name reports it.
        _ if index.belongs_to_other_name(address) => return None,
        _ if view.withheld.contains(&address) => withheld(address, free, ipam, view),
        Some(Place::Host) if view.connecting.contains(&address) || is_excluded => return None,
        Some(Place::Host) => on_host(address, false, view),
        Some(Place::Namespace(_)) => stray(view),
        _ if index.is_listed_reliably(address) => stray(view),
        _ if evidence.routes.contains(address) && !is_excluded => routed_by_host(address, view),
        _ if index.is_listed(address) => {
            return Some(left_over_entry(LEFT_OVER, address, evidence));
        }
        _ => return None,
    };
    let finding = finding.about(address);
    Some(finding.with_evidence(describe_uses(address, evidence)))
}

/// A free address that a pod has.
fn stray(view: &NodeView<'_>) -> Finding {
    let cause = "in use on this node, but free in the state: another pod may get it too";
    let remedy = "move the state away, and the next ADD rebuilds it from the node: it holds this address, and takes none from any pod; new pods wait for 30 s:";
    let (state, lock) = (view.state.display(), view.lock.display());
    // Without the record in the lock file, the backup does not restore the same state again.
    let commands = [
        format!("sudo truncate -c -s 0 {lock}"),
        format!("sudo mv {state} {state}.old"),
    ];
    let finding = Finding::error(FindingKind::Stray, &cause, &remedy).with_commands(commands);
    Finding { cause, ..finding }
}

/// A free address that the sandbox of its last holder still has.
fn withheld(address: IpAddr, free: &Free, ipam: &Ipam, view: &NodeView<'_>) -> Finding {
    /// A teardown usually takes less time.
    const TEARDOWN: Duration = Duration::from_secs(60);
    let cause = "free, but not allocated: the sandbox of its last holder still has it";
    let remedy = "it is allocated again when the sandbox is gone. No action is needed if the pod runs: a second ADD, which failed, released the address. If not, the runtime failed to remove the sandbox, and this does:";
    let ago = free.released.map(|at| view.now.since(at));
    let severity = match ago {
        Some(ago) if ago < TEARDOWN => Severity::Note,
        _ => Severity::Warning,
    };
    // A list of another program names it until its DEL succeeds, also without a network namespace.
    let lists = view.evidence.lists();
    let entries = || lists.iter().flat_map(|(_, list)| list.entries());
    let mut named: BTreeSet<&str> = entries()
        .filter(|entry| entry.addresses.contains(&address))
        .map(|entry| entry.holder.container_id())
        .collect();
    named.extend(view.last_holders.get(&address).map(Holder::container_id));
    named.remove("");
    // One interface of a running pod may have been released.
    let has_others = |id: &str| {
        held_records(ipam).any(|(_, _, _, held)| held.holder.container_id() == id)
            || entries().any(|entry| {
                entry.holder.container_id() == id && !entry.addresses.contains(&address)
            })
    };
    let commands: Vec<String> = match &*named.into_iter().collect::<Vec<_>>() {
        [only] if !has_others(only) => vec![remove_sandbox(only)],
        _ => vec!["sudo crictl pods".to_owned()],
    };
    let finding = Finding::new(severity, FindingKind::Withheld, &cause, &remedy);
    Finding {
        cause,
        ..finding.about(address).with_commands(commands)
    }
}

/// An address of a pool that the host itself has.
fn on_host(address: IpAddr, is_held: bool, view: &NodeView<'_>) -> Finding {
    const HELD: &str = "held, but the host has it too: packets to the pod end there";
    const FREE: &str = "free, but not allocated: the host itself has it";
    const LOOPBACK: &str = "free, but not allocated: it is on the loopback link of the host";
    const NEEDED: &str = "free, but not allocated: the host itself has it, and may lose other addresses or routes with it";
    let (severity, cause) = if is_held {
        (Severity::Error, HELD)
    } else {
        (Severity::Warning, FREE)
    };
    let Some(entry) = view.host.find(address) else {
        let remedy = Configurer::Unknown.remedy();
        let finding = Finding::new(severity, FindingKind::OnHost, &cause, &remedy);
        return Finding {
            cause,
            ..finding.about(address)
        };
    };
    let configurer = view.host.configurer(entry);
    let may_be_removed = view.host.may_be_removed(entry);
    let cause = match configurer {
        Configurer::Loopback if !is_held => LOOPBACK,
        _ if !may_be_removed && !is_held => NEEDED,
        _ => cause,
    };
    let mut commands = configurer.commands();
    let mut remedy = configurer.remedy();
    if may_be_removed {
        remedy.push_str("; then remove it:");
        commands.push(entry.removal());
    } else if !matches!(
        configurer,
        Configurer::KubeProxy | Configurer::Loopback | Configurer::Own
    ) {
        remedy.push_str("; then restart the node: removing the address now would also remove other addresses or the default route");
    }
    let finding = Finding::new(severity, FindingKind::OnHost, &cause, &remedy);
    Finding {
        cause,
        ..finding.about(address).with_commands(commands)
    }
}

/// A free address that the host has a route to.
fn routed_by_host(address: IpAddr, view: &NodeView<'_>) -> Finding {
    const USED: &str = "free, but not allocated: the host has a route to it";
    const UNUSED: &str = "free, and may be allocated: the host has a route to it, in a table that its own packets do not use";
    let is_used = view.host.uses_route_to(address);
    let removals = view.host.removals(address);
    let (severity, cause, remedy, commands) = if !is_used {
        // Rules for forwarded packets may lead there on purpose.
        let remedy = format!(
            "no action needed, unless a rule (`ip rule`) leads packets for pods to that table; then remove the route (`{}`)",
            removals.join("; ")
        );
        (Severity::Note, UNUSED, remedy, Vec::new())
    } else if view.evidence.kernel.incomplete.is_none() {
        let remedy = "no pod uses the route; remove it:".to_owned();
        (Severity::Warning, USED, remedy, removals)
    } else {
        // It may be in a namespace that was not found.
        let remedy = "leave the route: a pod that was not seen may need it".to_owned();
        (Severity::Warning, USED, remedy, Vec::new())
    };
    let finding = Finding::new(severity, FindingKind::OnHost, &cause, &remedy);
    Finding {
        cause,
        ..finding.with_commands(commands)
    }
}

/// Addresses of the pool's subnet that a pod has, and that the source does not list. `known` are those that it lists.
fn never_listed(
    key: &str,
    pool: &Pool,
    known: &BTreeSet<IpAddr>,
    evidence: &Evidence,
) -> Vec<Finding> {
    let Some(net) = pool.net(key).filter(|net| net.prefix_len() > 0) else {
        return Vec::new();
    };
    let remedy = "Azure delivers nothing to it, so the pod needs another address. Find out who allocated it: another IPAM plugin, or this one before Azure removed it from the network interface. As a last resort delete the pod: recreated, it gets another address";
    let text = format_args!(
        "a pod has this address of {key}, which the source does not list for this node"
    );
    let mut found = Vec::new();
    for (address, place) in &evidence.kernel.configured {
        let is_pod = matches!(place, Place::Namespace(_));
        if is_pod && net.contains(address) && !known.contains(address) {
            let finding = Finding::warning(FindingKind::Foreign, &text, &remedy).about(address);
            found.push(finding.with_evidence(describe_uses(*address, evidence)));
        }
    }
    found
}

/// Pods of our networks with addresses outside of all pools.
fn outside_of_pools(
    ipam: &Ipam,
    evidence: &Evidence,
    networks: &BTreeMap<String, &Plugin>,
) -> Vec<Finding> {
    let held = held_records(ipam).map(|(_, _, _, held)| &*held.holder.attachment.network);
    let ours = networks.keys().map(String::as_str).chain(held);
    let networks: BTreeSet<&str> = ours.filter(|network| !network.is_empty()).collect();
    let nets = ipam.pools().filter_map(|(_, key, pool)| pool.net(key));
    let nets: Vec<IpNet> = nets.collect();
    let is_outside = |address: &&IpAddr| {
        let is_family = |net: &IpNet| net.addr().is_ipv6() == address.is_ipv6();
        nets.iter().any(is_family) && !nets.iter().any(|net| net.contains(*address))
    };
    let remedy = "no action needed while the pod works; recreated, it gets an address of the pools";
    let mut found = Vec::new();
    for entry in evidence.cache.entries().iter().filter(|e| e.is_live) {
        let network = &*entry.holder.attachment.network;
        if !networks.contains(network) {
            continue;
        }
        let text = format_args!(
            "a pod of network {network} has this address, which is in none of the pools"
        );
        for address in entry.addresses.iter().filter(is_outside) {
            let finding = Finding::note(FindingKind::Foreign, &text, &remedy).about(address);
            found.push(finding.with_evidence(describe_uses(*address, evidence)));
        }
    }
    found
}
