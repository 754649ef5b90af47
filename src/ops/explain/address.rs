//! The explanation of one address. Pure.

use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;

use super::sharing::{OtherUser, other_users};
use crate::cni::IpamConfig;
use crate::ipam::{
    AGAIN, Evidence, EvidenceIndex, Free, GRACE, Held, Ipam, Judgement, Pool, Reason, Record,
    Usage, Verdict,
};
use crate::ops::describe_evidence::{describe_missing, describe_uses};
use crate::ops::lease::{Lease, held_records};
use crate::ops::node::Now;
use crate::ops::screen::format_age;

/// The explanation of one address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressExplanation {
    /// The address.
    pub address: IpAddr,
    /// The subnet of its pool.
    pub pool: Option<String>,
    /// Its use.
    #[serde(rename = "use")]
    pub usage: AddressUse,
    /// The lease.
    pub holder: Option<Lease>,
    /// Where it is in use on the node.
    pub shown: Vec<String>,
    /// Who uses it beside its holder.
    pub also_used_by: Vec<OtherUser>,
    /// The evidence that does not show it, unless the holder is alive.
    pub missing: Vec<String>,
    /// The verdict about its holder: `alive`, `dead`, `suspect` or `undecided`.
    pub verdict: Option<&'static str>,
    /// The reasons.
    pub reasons: Vec<String>,
    /// What the plugin does next with it.
    pub next: Vec<String>,
}

/// The use of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressUse {
    /// An attachment holds it.
    Held,
    /// It was released recently and is in cooldown.
    Resting,
    /// Free to allocate.
    Free,
    /// It is free, but the host has it or a route to it.
    Wired,
    /// The configuration excludes it.
    Excluded,
    /// In the subnet of a pool, but not listed by the source.
    Unlisted,
    /// In no pool.
    Elsewhere,
    /// Not known, as records are missing.
    Unknown,
}

impl AddressExplanation {
    /// Makes it from a record.
    pub fn new(
        (ipam, key, pool): (&Ipam, &str, &Pool),
        record: &Record,
        evidence: &Evidence,
        conf: &IpamConfig,
        now: &Now,
        program: &str,
    ) -> AddressExplanation {
        let address = record.address();
        let mut explanation = AddressExplanation {
            pool: Some(key.to_owned()),
            ..AddressExplanation::bare(address, evidence)
        };
        match &record.usage {
            Usage::Held(held) => explanation.held((ipam, key), held, evidence, now, program),
            Usage::Free(free) => explanation.free(pool, record, free, conf, now),
        }
        if explanation.usage != AddressUse::Held
            && let Some(until) = ipam.quarantine.filter(|at| *at > now.boot)
        {
            explanation.next.push(format!(
                "the state was lost: new pods wait for {} more",
                format_age(until.since(now.boot))
            ));
        }
        let elsewhere =
            held_records(ipam).find(|(_, other, r, _)| *other != key && r.address() == address);
        if explanation.usage != AddressUse::Held
            && let Some((_, other, _, held)) = elsewhere
        {
            explanation.usage = AddressUse::Held;
            let holder = Lease::new(other, address, held, now);
            explanation.next = vec![format!(
                "it is not allocated from here: it is held in pool {other}, by {}",
                holder.describe_holder()
            )];
            explanation.holder = Some(holder);
        }
        explanation
    }

    fn bare(address: IpAddr, evidence: &Evidence) -> AddressExplanation {
        AddressExplanation {
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
        }
    }

    /// Explains an address that has no record.
    pub fn unlisted(address: IpAddr, ipam: &Ipam, evidence: &Evidence) -> AddressExplanation {
        let mut explanation = AddressExplanation::bare(address, evidence);
        let nets = ipam
            .pools()
            .filter_map(|(_, key, pool)| Some((key, pool.net(key)?)));
        let mut around = nets.filter(|(_, net)| net.contains(&address));
        match around.next() {
            Some((key, _)) => {
                explanation.usage = AddressUse::Unlisted;
                explanation.next.push(format!(
                    "it is not allocated: the source does not list it among the addresses of {key} for this node"
                ));
            }
            None => explanation
                .next
                .push("it is not allocated: it is in none of the pools".to_owned()),
        }
        explanation
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

    fn held(
        &mut self,
        (ipam, key): (&Ipam, &str),
        held: &Held,
        evidence: &Evidence,
        now: &Now,
        program: &str,
    ) {
        let index = EvidenceIndex::new(evidence, ipam);
        let judgement = index.judge(self.address, held, now.boot);
        let holder = Lease::new(key, self.address, held, now);
        self.usage = AddressUse::Held;
        self.also_used_by = other_users(self.address, held, evidence);
        self.verdict = Some(match judgement.verdict {
            Verdict::Alive => "alive",
            Verdict::Dead => "dead",
            Verdict::Suspect => "suspect",
            Verdict::Undecided => "undecided",
        });
        self.reasons = judgement.reasons.iter().map(ToString::to_string).collect();
        if judgement.verdict != Verdict::Alive {
            self.missing = describe_missing(self.address, held, evidence);
        }
        self.next.push(match &holder.container {
            Some(_) => {
                "an ADD of the same attachment gets it again, and its DEL frees it".to_owned()
            }
            None => "a DEL that names it frees it, if the node no longer shows it".to_owned(),
        });
        self.next.push(fate(&judgement, held, now, program));
        if held.unlisted {
            self.next.push(
                "the source no longer lists it: it leaves the pool when it is freed".to_owned(),
            );
        }
        self.holder = Some(holder);
    }

    fn free(&mut self, pool: &Pool, record: &Record, free: &Free, conf: &IpamConfig, now: &Now) {
        let rested = free.released.map(|at| now.since(at));
        let left = rested.and_then(|rested| conf.cooldown.checked_sub(rested));
        let left = left.filter(|left| *left > Duration::ZERO);
        let excluded = conf.exclude.iter().any(|net| net.contains(&self.address));
        if let Some(ago) = rested {
            self.reasons
                .push(format!("it was released {} ago", format_age(ago)));
        } else {
            self.reasons.push("no release of it is known".to_owned());
        }
        let before = pool.queue_position(record);
        let turn = match before {
            0 => "it is next in the queue".to_owned(),
            1 => "one address is before it in the queue".to_owned(),
            n => format!("{n} addresses are before it in the queue"),
        };
        (self.usage, self.next) = if excluded {
            (
                AddressUse::Excluded,
                vec!["it is not allocated: ipam.exclude covers it".to_owned()],
            )
        } else if free.on_host {
            let why = "it is skipped: the host had it, or a route to it, at the last check";
            (AddressUse::Wired, vec![why.to_owned()])
        } else if let Some(left) = left {
            let rests = format!(
                "it is in cooldown for {} more, and allocated earlier only when nothing else is free",
                format_age(left)
            );
            (AddressUse::Resting, vec![rests, turn])
        } else {
            (AddressUse::Free, vec![turn])
        };
    }
}

/// What happens to a lease if no DEL comes.
fn fate(judgement: &Judgement, held: &Held, now: &Now, program: &str) -> String {
    match judgement.verdict {
        Verdict::Alive => "it is not reclaimed while any evidence shows its holder".to_owned(),
        Verdict::Dead => {
            format!(
                "an ADD reclaims it when the pool is empty; to reclaim it now: sudo {program} reclaim --yes"
            )
        }
        Verdict::Suspect => match held.suspect {
            None => format!(
                "no evidence shows its holder; it is reclaimed when that is found twice, {} s apart: sudo {program} reclaim --yes",
                AGAIN.as_secs()
            ),
            Some(at) => format!(
                "no evidence shows its holder; it is reclaimed when that is found again in {} s or later",
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
