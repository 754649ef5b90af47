//! The story of one address. Pure.

use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;

use crate::cni::IpamConf;
use crate::ipam::{
    AGAIN, Evidence, Free, GRACE, Held, Ipam, Judgement, Pool, Reason, Record, Usage, Verdict,
    judge,
};
use crate::ops::describe_evidence::{describe_missing, describe_uses};
use crate::ops::lease::{Lease, held_records};
use crate::ops::node::Now;
use crate::ops::screen::format_age;

/// One address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressExplanation {
    /// Which.
    pub address: IpAddr,
    /// The subnet of its pool.
    pub pool: Option<String>,
    /// In which use it is.
    #[serde(rename = "use")]
    pub usage: AddressUse,
    /// Who holds it.
    pub holder: Option<Lease>,
    /// Where the node shows it in use.
    pub shown: Vec<String>,
    /// What was looked at and does not show it, where nothing does.
    pub missing: Vec<String>,
    /// What is to be thought of its holder: `alive`, `dead`, `suspect` or `undecided`.
    pub verdict: Option<&'static str>,
    /// Why.
    pub reasons: Vec<String>,
    /// What the plugin would do now.
    pub next: Vec<String>,
}

/// The use that an address is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressUse {
    /// Somebody holds it.
    Held,
    /// It was released a moment ago.
    Resting,
    /// To be given.
    Free,
    /// Nobody holds it, but the host has it or a route to it.
    Wired,
    /// The configuration excludes it.
    Excluded,
    /// Of the subnet of a pool, but the source does not list it.
    Unlisted,
    /// Of no pool.
    Elsewhere,
}

impl AddressExplanation {
    /// That of a record.
    pub fn new(
        (ipam, key, pool): (&Ipam, &str, &Pool),
        record: &Record,
        evidence: &Evidence,
        conf: &IpamConf,
        now: &Now,
    ) -> AddressExplanation {
        let address = record.address();
        let mut explanation = AddressExplanation {
            pool: Some(key.to_owned()),
            ..AddressExplanation::bare(address, evidence)
        };
        match &record.usage {
            Usage::Held(held) => explanation.held((ipam, key), held, evidence, now),
            Usage::Free(free) => explanation.free(pool, record, free, conf, now),
        }
        if explanation.usage != AddressUse::Held
            && let Some(until) = ipam.quarantine.filter(|at| *at > now.boot)
        {
            explanation.next.push(format!(
                "the state was lost: for {} more no address is given to new pods",
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
                "it is not given from here: it is held in pool {other}, by {}",
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
            missing: Vec::new(),
            verdict: None,
            reasons: Vec::new(),
            next: Vec::new(),
        }
    }

    /// An address that is in no pool.
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
                    "it is not given: the source does not list it among the addresses of {key} for this node"
                ));
            }
            None => explanation
                .next
                .push("it is not given: it is in none of the pools".to_owned()),
        }
        explanation
    }

    fn held(&mut self, (ipam, key): (&Ipam, &str), held: &Held, evidence: &Evidence, now: &Now) {
        let judgement = judge(self.address, held, (ipam, evidence), now.boot);
        let holder = Lease::new(key, self.address, held, now);
        self.usage = AddressUse::Held;
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
        self.next.push(fate(&judgement, held, now));
        if held.unlisted {
            self.next.push(
                "the source no longer lists it: it leaves the pool when it is freed".to_owned(),
            );
        }
        self.holder = Some(holder);
    }

    fn free(&mut self, pool: &Pool, record: &Record, free: &Free, conf: &IpamConf, now: &Now) {
        let rested = free.released.map(|at| now.since(at));
        let left = rested.and_then(|rested| conf.rest.checked_sub(rested));
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
            0 => "it is the next to be given".to_owned(),
            1 => "it is given after one other".to_owned(),
            n => format!("it is given after {n} others"),
        };
        (self.usage, self.next) = if excluded {
            (
                AddressUse::Excluded,
                vec!["it is not given: ipam.exclude covers it".to_owned()],
            )
        } else if free.wired {
            let why =
                "it is skipped: the host had it, or a route to it, when it was last looked at";
            (AddressUse::Wired, vec![why.to_owned()])
        } else if let Some(left) = left {
            let rests = format!(
                "it rests for {} more, and is given before that only when nothing else is left",
                format_age(left)
            );
            (AddressUse::Resting, vec![rests, turn])
        } else {
            (AddressUse::Free, vec![turn])
        };
    }
}

/// What becomes of a holder whose pod sends no DEL.
fn fate(judgement: &Judgement, held: &Held, now: &Now) -> String {
    match judgement.verdict {
        Verdict::Alive => "it is not taken back while anything speaks for its holder".to_owned(),
        Verdict::Dead => {
            "it is taken back when an ADD finds the pool empty; at once: sudo azure-vnet-ipam reclaim --yes"
                .to_owned()
        }
        Verdict::Suspect => match held.suspect {
            None => format!(
                "nothing speaks for its holder; when that is found twice, {} s apart, it is taken back: sudo azure-vnet-ipam reclaim --yes",
                AGAIN.as_secs()
            ),
            Some(at) => format!(
                "nothing speaks for its holder; it is taken back when that is found again in {} s or later",
                AGAIN.saturating_sub(now.since(at)).as_secs()
            ),
        },
        Verdict::Undecided => {
            let young = |reason: &Reason| matches!(reason, Reason::Young(_));
            if judgement.reasons.iter().all(young) {
                let left = GRACE.saturating_sub(now.since(held.since));
                format!(
                    "nothing speaks for its holder, but it is too young to be judged for {} more",
                    format_age(left)
                )
            } else {
                "it is not taken back, as not everything could be looked at".to_owned()
            }
        }
    }
}
