//! The whole story of one address, and who else uses it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;

use crate::cni::IpamConfig;
use crate::ipam::{
    AGAIN, Attachment, Entry, Evidence, EvidenceIndex, Free, GRACE, Held, Holder, Ipam, Judgement,
    Place, Pool, Reason, Record, Usage, Verdict,
};
use crate::ops::findings::host_network::HostNetwork;
use crate::ops::held::{
    HeldAddress, describe_lack, describe_missing, describe_uses, entry_of_place, held_records,
    is_path, lacks, shorten_container_id,
};
use crate::ops::leak::{Leak, is_leaked};
use crate::ops::node::Now;
use crate::ops::screen::{Screen, Tint, format_age, format_time};

/// The column of the facts about an address.
const INDENT: usize = 14;

/// The report of one address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressReport {
    /// The address.
    pub address: IpAddr,
    /// The subnet of its pool.
    pub pool: Option<String>,
    /// Its use.
    #[serde(rename = "use")]
    pub usage: AddressUse,
    /// The held address, if somebody holds it.
    pub holder: Option<HeldAddress>,
    /// Where it is in use on the node.
    pub shown: Vec<String>,
    /// Who uses it beside its holder.
    pub also_used_by: Vec<OtherUser>,
    /// The evidence that does not show it: all of it, or of a live holder its own network namespace.
    pub missing: Vec<String>,
    /// The verdict about its holder: `alive`, `dead`, `suspect` or `undecided`.
    pub verdict: Option<&'static str>,
    /// The reasons.
    pub reasons: Vec<String>,
    /// What the plugin does next with it.
    pub next: Vec<String>,
    /// Whether the state is from before the last start of the node, so that it is not known since when the address is held.
    #[serde(skip)]
    pub is_from_another_boot: bool,
}

/// The use of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressUse {
    /// An attachment holds it.
    Held,
    /// It was released recently and is in cooldown.
    Cooldown,
    /// Free to allocate.
    Free,
    /// It is free, but the host has it or a route to it.
    OnHost,
    /// It is free, but the sandbox of its last holder still has it.
    Withheld,
    /// The configuration excludes it.
    Excluded,
    /// In the subnet of a pool, but not listed by the source.
    Unlisted,
    /// In no pool.
    Elsewhere,
    /// Not known, as records are missing.
    Unknown,
}

/// What a report is made from.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The records.
    pub ipam: &'a Ipam,
    /// The evidence of the node.
    pub evidence: &'a Evidence,
    /// The configuration.
    pub conf: &'a IpamConfig,
    /// Now.
    pub now: &'a Now,
    /// How to type the program for a command that needs root.
    pub program: &'a str,
    /// The links, routes and addresses of the host.
    pub host: &'a HostNetwork,
    /// The free addresses that the network namespaces of their last holders still have.
    pub withheld: &'a BTreeSet<IpAddr>,
    /// The held addresses that the next ADD frees, if the state is from before the last start of the node.
    pub freed_after_reboot: Option<&'a BTreeSet<IpAddr>>,
}

impl AddressReport {
    /// Makes it from a record of a pool.
    pub fn new(facts: &Facts<'_>, (key, pool): (&str, &Pool), record: &Record) -> Self {
        let Facts { ipam, now, .. } = *facts;
        let address = record.address();
        let mut report = AddressReport {
            pool: Some(key.to_owned()),
            ..AddressReport::bare(address, facts.evidence)
        };
        match &record.usage {
            Usage::Held(held) => report.held(key, held, facts),
            Usage::Free(free) => report.free(pool, record, free, facts),
        }
        if report.usage != AddressUse::Held
            && let Some(until) = ipam.quarantine.filter(|at| *at > now.boot)
        {
            report.next.push(format!(
                "the state is being rebuilt: new pods wait for {} more",
                format_age(until.since(now.boot))
            ));
        }
        let elsewhere =
            held_records(ipam).find(|(_, other, r, _)| *other != key && r.address() == address);
        if report.usage != AddressUse::Held
            && let Some((_, other, _, held)) = elsewhere
        {
            report.usage = AddressUse::Held;
            let holder = HeldAddress::new(other, address, held, now);
            report.next = vec![format!(
                "it is not allocated from here: it is held in pool {other}, by {}",
                holder.describe_holder()
            )];
            report.holder = Some(holder);
        }
        report
    }

    fn bare(address: IpAddr, evidence: &Evidence) -> AddressReport {
        AddressReport {
            address,
            pool: None,
            usage: AddressUse::Elsewhere,
            holder: None,
            shown: describe_uses(address, evidence),
            also_used_by: Vec::new(),
            missing: Vec::new(),
            verdict: None,
            reasons: Vec::new(),
            next: Vec::new(),
            is_from_another_boot: false,
        }
    }

    /// Makes it for an address that has no record.
    pub fn unlisted(address: IpAddr, facts: &Facts<'_>) -> AddressReport {
        let mut report = AddressReport::bare(address, facts.evidence);
        let mut pools = facts.ipam.pools();
        let is_around = |key: &str, pool: &Pool| {
            let net = pool.net(key);
            net.is_some_and(|net| net.contains(&address))
        };
        let why = match pools.find(|(_, key, pool)| is_around(key, pool)) {
            Some((_, key, _)) => {
                report.usage = AddressUse::Unlisted;
                format!(
                    "the source does not list it among the addresses of {key} for pods of this node"
                )
            }
            None => "it is in none of the pools".to_owned(),
        };
        report.next.push(format!("it is not allocated: {why}"));
        report
    }

    /// Whether its place in the pools is known.
    pub fn is_placed(&self) -> bool {
        !matches!(self.usage, AddressUse::Elsewhere | AddressUse::Unknown)
    }

    /// Takes back what follows from the absence of a holder.
    pub fn mark_unknown(&mut self, why: &str) {
        if self.usage != AddressUse::Held {
            self.usage = AddressUse::Unknown;
            self.reasons = vec![format!("{why}, so a pod may hold it")];
            self.next.clear();
        }
    }

    fn held(&mut self, key: &str, held: &Held, facts: &Facts<'_>) {
        let Facts { evidence, now, .. } = *facts;
        self.is_from_another_boot = facts.freed_after_reboot.is_some();
        let mut freed = facts.freed_after_reboot.into_iter().flatten();
        let is_freed_after_reboot = freed.any(|address| *address == self.address);
        let index = EvidenceIndex::new(evidence, facts.ipam);
        let judgement = index.judge(self.address, held, now.boot);
        let holder = HeldAddress {
            leaked: is_leaked(held, &judgement, evidence, now),
            ..HeldAddress::new(key, self.address, held, now)
        };
        self.usage = AddressUse::Held;
        self.also_used_by = other_users(self.address, held, evidence);
        // Beside a pod's, the place on the host is not kept.
        let on_host = OtherUser::new(None, Some(&Place::Host));
        let is_on_host = facts.host.find(self.address).is_some();
        if is_on_host && !self.also_used_by.contains(&on_host) {
            self.also_used_by.push(on_host);
        }
        self.verdict = Some(match judgement.verdict {
            Verdict::Alive => "alive",
            Verdict::Dead => "dead",
            Verdict::Suspect => "suspect",
            Verdict::Undecided => "undecided",
        });
        self.reasons = judgement.reasons.iter().map(ToString::to_string).collect();
        if judgement.verdict != Verdict::Alive {
            self.missing = describe_missing(self.address, held, evidence);
        } else if let Some(netns) = &held.holder.netns
            && lacks(&evidence.kernel, netns, self.address)
        {
            self.missing.push(describe_lack(netns));
        }
        let ways = if held.holder.is_unknown() {
            "a DEL that names it frees it, if the node no longer shows it"
        } else {
            "an ADD of the same attachment gets it again, and its DEL frees it"
        };
        if is_freed_after_reboot {
            // Its age is not known, so the judgement takes it for that of a new holder.
            self.verdict = Some("dead");
            self.reasons = vec!["it was held before the node was restarted".to_owned()];
            let program = facts.program;
            self.next.push(format!(
                "the next ADD frees it, as no holder survives a restart; to free it now: {program} reclaim --yes"
            ));
        } else {
            self.next.push(ways.to_owned());
            self.next.push(fate(&judgement, held, facts));
        }
        let left = match Leak::find(held, &judgement, facts.evidence, facts.now) {
            Some(Leak::RouteLeft) => Some(("route", "remove")),
            Some(Leak::EntryLeft) => Some(("entry", "release")),
            _ => None,
        };
        if let Some((what, end)) = left {
            let program = facts.program;
            self.next.push(format!(
                "its own network namespace is gone, so the {what} is left over: `{program} check` prints how to {end} it"
            ));
        }
        if held.unlisted.is_some() && facts.ipam.listed_addresses().contains(&self.address) {
            self.next.push(
                "the source lists it in another subnet now: it moves there when it is freed"
                    .to_owned(),
            );
        } else if let Some(at) = held.unlisted {
            self.next.push(format!(
                "the source has not listed it for {}: it leaves the pool when it is freed",
                format_age(now.since(at))
            ));
        }
        self.holder = Some(holder);
    }

    fn free(&mut self, pool: &Pool, record: &Record, free: &Free, facts: &Facts<'_>) {
        let Facts { conf, now, .. } = *facts;
        let since = free.released.map(|at| now.since(at));
        let left = since.and_then(|since| conf.cooldown.checked_sub(since));
        let left = left.filter(|left| *left > Duration::ZERO);
        let excluded = conf.exclude.contain(&self.address);
        self.reasons.push(match since {
            Some(ago) => format!("it was released {} ago", format_age(ago)),
            None => "no release of it is known".to_owned(),
        });
        let turn = match pool.queue_position(record) {
            0 => "it is next in the queue".to_owned(),
            1 => "one address is before it in the queue".to_owned(),
            n => format!("{n} addresses are before it in the queue"),
        };
        (self.usage, self.next) = if excluded {
            let why = "it is not allocated: ipam.exclude covers it";
            (AddressUse::Excluded, vec![why.to_owned()])
        } else if facts.withheld.contains(&self.address) {
            let why = "it is not allocated: the sandbox of its last holder was released, and still has it";
            (AddressUse::Withheld, vec![why.to_owned()])
        } else if free.on_host {
            let why = "it is skipped: the host has it, or a route to it";
            (AddressUse::OnHost, vec![why.to_owned()])
        } else if let Some(left) = left {
            let cooldown = format!(
                "it is in cooldown for {} more, and allocated earlier only when nothing else is free",
                format_age(left)
            );
            (AddressUse::Cooldown, vec![cooldown, turn])
        } else {
            (AddressUse::Free, vec![turn])
        };
    }

    /// Prints it as text.
    pub fn print(&self, screen: &Screen) -> String {
        let holder = self.holder.as_ref();
        let is_leaked = holder.is_some_and(|holder| holder.leaked == Some(true));
        let usage = match self.usage {
            AddressUse::Held if is_leaked => "leaked",
            AddressUse::Held => "held",
            AddressUse::Cooldown => "in cooldown",
            AddressUse::Free => "free",
            AddressUse::OnHost => "free, but on the host",
            AddressUse::Withheld => "free, but withheld",
            AddressUse::Excluded => "excluded",
            AddressUse::Unlisted => "not listed for pods of this node",
            AddressUse::Elsewhere => "in none of the pools",
            AddressUse::Unknown => "unknown whether a pod holds it",
        };
        let address = screen.tint(Tint::Strong, &self.address.to_string());
        let mut text = format!("{address}  {usage}\n");
        let mut facts = |name: &str, lines: &[String]| {
            text.push_str(&describe_list(name, lines, screen));
        };
        facts("pool", self.pool.as_slice());
        if let Some(held) = &self.holder {
            let Holder {
                attachment,
                pod,
                netns,
                ..
            } = &held.holder;
            let container = held.holder.container_text();
            let Attachment {
                network, if_name, ..
            } = attachment;
            let where_to = (!network.is_empty()).then(|| format!("{network}, interface {if_name}"));
            let path = netns.as_ref().map(|netns| netns.path.to_string());
            let since = if held.first_seen {
                "first seen"
            } else {
                "since"
            };
            let when = if self.is_from_another_boot {
                "before the last start of the node".to_owned()
            } else {
                let age = format_age(Duration::from_secs(held.age_seconds));
                format!("{}, {age} ago", format_time(&held.since))
            };
            facts("pod", pod.as_slice());
            facts("container", &[container.to_owned()]);
            facts("network", where_to.as_slice());
            facts("netns", path.as_slice());
            facts(since, &[when]);
        }
        facts("verdict", self.verdict.map(str::to_owned).as_slice());
        facts("why", &self.reasons);
        facts("in use", &self.shown);
        let others: Vec<String> = self.also_used_by.iter().map(OtherUser::describe).collect();
        facts("conflict", &others);
        facts("checked", &self.missing);
        facts("now", &self.next);
        text
    }
}

/// A name, and beside it one line per item. Empty ones are left out.
pub fn describe_list(name: &str, lines: &[String], screen: &Screen) -> String {
    let mut text = String::new();
    let mut head = format!("  {name}");
    for line in lines.iter().filter(|line| !line.is_empty()) {
        text.push_str(&screen.paragraph(&head, INDENT, line));
        head.clear();
    }
    text
}

/// What happens to a held address if no DEL comes.
fn fate(judgement: &Judgement, held: &Held, facts: &Facts<'_>) -> String {
    let Facts { now, program, .. } = *facts;
    match judgement.verdict {
        Verdict::Alive => "it is not reclaimed while any evidence shows its holder".to_owned(),
        Verdict::Dead => {
            format!(
                "an ADD reclaims it when the pool is empty; to reclaim it now: {program} reclaim --yes"
            )
        }
        Verdict::Suspect => match held.suspect {
            None => format!(
                "no evidence shows its holder; two runs of `{program} reclaim --yes` free it, at least {} s apart",
                AGAIN.as_secs()
            ),
            Some(at) => format!(
                "no evidence shows its holder; one more run of `{program} reclaim --yes` frees it, in {} s or later",
                AGAIN.saturating_sub(now.since(at)).as_secs()
            ),
        },
        Verdict::Undecided => {
            let young = |reason: &Reason| matches!(reason, Reason::Young(_));
            if judgement.reasons.iter().all(young) {
                let left = GRACE.saturating_sub(now.since(held.since));
                format!(
                    "no evidence shows its holder, but it is too young to be reclaimed for {} more",
                    format_age(left)
                )
            } else {
                "it is not reclaimed, as not all evidence could be checked".to_owned()
            }
        }
    }
}

/// Another user of an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherUser {
    /// `namespace/name` of the pod, if a list of another program has it.
    pub pod: Option<String>,
    /// The container ID, likewise.
    pub container: Option<String>,
    /// Where the address is configured: `in PATH` or `on the host`; `None` where only a list has it.
    pub place: Option<String>,
}

/// Finds every user of the address but its holder. Returns none if the holder is unknown, as any of them may be the holder.
pub fn other_users(address: IpAddr, held: &Held, evidence: &Evidence) -> Vec<OtherUser> {
    if held.holder.is_unknown() {
        return Vec::new();
    }
    let container_id = held.holder.container_id();
    let mut others: Vec<OtherUser> = Vec::new();
    let mut unidentified = Vec::new();
    let mut is_holder_seen = false;
    let own = held.holder.netns.as_ref();
    let is_own = |place| own.is_some_and(|own| is_path(place, &own.path));
    for place in evidence.kernel.places(address) {
        match entry_of_place(place, evidence) {
            Some(entry) if entry.holder.is_container(container_id) => is_holder_seen = true,
            Some(entry) => others.push(OtherUser::new(Some(entry), Some(place))),
            None if is_own(place) => is_holder_seen = true,
            None => unidentified.push(place),
        }
    }
    // The holder's namespace may be known by another path than that of its ADD.
    let of_namespace = &evidence.kernel.addresses_by_namespace;
    let inside = own.and_then(|own| of_namespace.get(&own.id?));
    let is_inside = inside.is_some_and(|all| all.contains(&address));
    if !is_holder_seen && is_inside && !unidentified.is_empty() {
        unidentified.remove(0);
    }
    let unidentified = unidentified.into_iter();
    others.extend(unidentified.map(|place| OtherUser::new(None, Some(place))));
    let lists = evidence.lists();
    let entries = lists.iter().flat_map(|(_, list)| list.entries());
    for entry in entries.filter(|entry| entry.is_live && entry.addresses.contains(&address)) {
        let is_known =
            |other: &OtherUser| other.container.as_deref() == Some(entry.holder.container_id());
        if !entry.holder.is_container(container_id) && !others.iter().any(is_known) {
            others.push(OtherUser::new(Some(entry), None));
        }
    }
    others
}

impl OtherUser {
    fn new(entry: Option<&Entry>, place: Option<&Place>) -> OtherUser {
        let holder = entry.map(|entry| &entry.holder);
        let container = holder.map(|holder| holder.container_id().to_owned());
        OtherUser {
            pod: holder.and_then(|holder| holder.pod.clone()),
            container: container.filter(|id| !id.is_empty()),
            place: place.map(ToString::to_string),
        }
    }

    /// Names it in a sentence.
    pub fn describe(&self) -> String {
        let container = self.container.as_deref().map(shorten_container_id);
        let who = match (&self.pod, container) {
            (Some(pod), Some(id)) => format!("pod {pod} (container {id})"),
            (Some(pod), None) => format!("pod {pod}"),
            (None, Some(id)) => format!("container {id}"),
            (None, None) => "an unknown pod or program".to_owned(),
        };
        match &self.place {
            Some(place) => format!("{who} has it too, {place}"),
            None => format!("{who} has it too, by the list of its runtime"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::{EvidenceList, NetNs};

    const ADDRESS: &str = "10.224.0.5";

    fn netns(name: &str, id: u64) -> NetNs {
        NetNs {
            path: format!("/var/run/netns/{name}").into(),
            id: Some((4, id)),
            cookie: None,
        }
    }

    fn entry(name: &str, id: u64, addresses: &[&str]) -> Entry {
        Entry {
            holder: Holder {
                pod: Some(format!("default/{name}")),
                netns: Some(netns(name, id)),
                ..Holder::from_container_id(&format!("{name}-container"))
            },
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            is_live: true,
            ..Entry::default()
        }
    }

    /// `web-1` holds the address, and these network namespaces have it.
    fn others(places: &[&str], entries: Vec<Entry>, own_id: u64) -> Vec<String> {
        let address: IpAddr = ADDRESS.parse().unwrap();
        let held = Held {
            holder: Box::new(Holder {
                attachment: Attachment {
                    network: "azure".into(),
                    container_id: "web-1-container".into(),
                    if_name: "eth0".into(),
                },
                netns: Some(netns("web-1", own_id)),
                ..Holder::default()
            }),
            ..Held::default()
        };
        let mut evidence = Evidence {
            cache: EvidenceList::Read {
                entries,
                doubtful: Vec::new(),
            },
            ..Evidence::default()
        };
        let mut places = places.iter().map(|path| match *path {
            "host" => Place::Host,
            path => Place::Namespace(path.to_owned()),
        });
        let kernel = &mut evidence.kernel;
        kernel
            .addresses_by_namespace
            .insert((4, 1), [address].into());
        kernel
            .configured
            .extend(places.next().map(|p| (address, p)));
        kernel.more_places.extend(places.map(|p| (address, p)));
        let found = other_users(address, &held, &evidence);
        found.iter().map(OtherUser::describe).collect()
    }

    #[test]
    fn a_second_pod_is_named_by_the_list_that_knows_its_namespace() {
        let pods = || {
            vec![
                entry("web-1", 1, &[ADDRESS]),
                entry("web-2", 2, &["10.9.9.9"]),
            ]
        };
        let places = ["/run/netns/web-1", "/run/netns/web-2"];
        assert_eq!(
            others(&places, pods(), 1),
            ["pod default/web-2 (container web-2-contai) has it too, in /run/netns/web-2"]
        );
        // Nobody knows the second namespace.
        assert_eq!(
            others(&places, pods()[..1].to_vec(), 1),
            ["an unknown pod or program has it too, in /run/netns/web-2"]
        );
        assert_eq!(others(&places[..1], pods(), 1), [""; 0]);
        assert_eq!(others(&places[..1], Vec::new(), 1), [""; 0]);
        assert_eq!(
            others(&["/run/netns/web-1", "host"], pods(), 1),
            ["an unknown pod or program has it too, on the host"]
        );
    }

    #[test]
    fn the_holder_is_no_other_where_its_namespace_has_another_path() {
        assert_eq!(others(&["/proc/7/ns/net"], Vec::new(), 1), [""; 0]);
        // The namespace of the holder does not have the address.
        assert_eq!(
            others(&["/proc/7/ns/net"], Vec::new(), 9),
            ["an unknown pod or program has it too, in /proc/7/ns/net"]
        );
    }

    #[test]
    fn a_second_pod_may_be_known_by_a_list_alone() {
        let entries = vec![entry("web-1", 1, &[ADDRESS]), entry("web-2", 2, &[ADDRESS])];
        assert_eq!(
            others(&["/run/netns/web-1"], entries, 1),
            ["pod default/web-2 (container web-2-contai) has it too, by the list of its runtime"]
        );
    }
}
