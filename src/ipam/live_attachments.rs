//! The attachments that have an address in use. Evidence for one address of an attachment counts for all of them: of a pod with two
//! families, one address may not be configured yet, or no more, and still no other pod may get it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::evidence::{Evidence, Existence, Kernel, Routes};
use super::{Attachment, Claim, Held, Ipam};

/// The attachments of which the kernel or a route of the host shows an address, and who came last into which network namespace.
#[derive(Debug, Default)]
pub struct LiveAttachments {
    attachments: Vec<(Attachment, IpAddr)>,
    /// By device and inode: the generation of the newest claim, and its container.
    newest: BTreeMap<(u64, u64), (u64, Box<str>)>,
}

impl LiveAttachments {
    /// Those of a state, as the evidence has it.
    pub fn new(ipam: &Ipam, evidence: &Evidence) -> LiveAttachments {
        LiveAttachments::from_kernel(ipam, &evidence.kernel, &evidence.routes)
    }

    /// The same by these two.
    pub fn from_kernel(ipam: &Ipam, kernel: &Kernel, routes: &Routes) -> LiveAttachments {
        let mut shown = Vec::new();
        let mut newest = BTreeMap::new();
        for record in ipam.pools().flat_map(|(_, _, pool)| &pool.records) {
            let address = record.address();
            if let Some((claim, id)) = record.held().and_then(Held::namespace) {
                // Whose the kernel knows it to be is newer than everybody else.
                let netns = claim.netns.as_ref();
                let exists = |netns| kernel.existence(netns) == Existence::Certain;
                let generation = match netns.is_some_and(exists) {
                    true => u64::MAX,
                    false => claim.generation,
                };
                let known = newest
                    .entry(id)
                    .or_insert((generation, claim.container_id.clone()));
                if known.0 < generation {
                    *known = (generation, claim.container_id.clone());
                }
            }
            let is_routed = matches!(routes, Routes::Read(routes) if routes.contains(&address));
            let is_shown = is_routed || kernel.configured.contains_key(&address);
            if is_shown
                && let Some(attachment) = record.held().and_then(|held| held.owner.attachment())
            {
                shown.push((attachment, address));
            }
        }
        shown.sort_by(|(a, _), (b, _)| a.cmp(b));
        LiveAttachments {
            attachments: shown,
            newest,
        }
    }

    /// Whether another container came later into a network namespace of the same device and inode: then that of the holder is
    /// gone, as containers do not share one.
    pub fn is_superseded(&self, held: &Held) -> bool {
        let Some((claim, id)) = held.namespace() else {
            return false;
        };
        self.newest.get(&id).is_some_and(|(generation, container)| {
            *generation > claim.generation && *container != claim.container_id
        })
    }

    /// Another address of a holder that is shown.
    pub fn other(&self, address: IpAddr, held: &Held) -> Option<IpAddr> {
        let attachment = held.owner.attachment()?;
        let start = self.attachments.partition_point(|(a, _)| *a < attachment);
        let same = self.attachments.get(start..)?.iter();
        let mut same = same.take_while(|(a, _)| *a == attachment);
        same.find(|(_, other)| *other != address)
            .map(|(_, other)| *other)
    }
}

impl Held {
    /// Device and inode of the network namespace that it came with, where both are known.
    fn namespace(&self) -> Option<(&Claim, (u64, u64))> {
        let claim = self.owner.claim()?;
        Some((claim, claim.netns.as_ref()?.id?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::testing::{attached, forget_claim, pool, with_pools};
    use crate::ipam::{Candidate, Moment, Place, Reason, Usage, Verdict};

    const NOW: Moment = Moment(100_000_000_000_000);
    const V4: &str = "10.1.0.5";
    const V6: &str = "fd00::5";

    /// Two pods of both families, long ago.
    fn two_pods() -> Ipam {
        let mut ipam = with_pools(&[
            ("10.1.0.0/16", 0, &[V4, "10.1.0.6"]),
            ("fd00::/120", 0, &[V6, "fd00::6"]),
        ]);
        for (subnet, key, id) in [
            ("10.1.0.0/16", V4, "c1"),
            ("fd00::/120", V6, "c1"),
            ("10.1.0.0/16", "10.1.0.6", "c2"),
            ("fd00::/120", "fd00::6", "c2"),
        ] {
            let record = pool(&mut ipam, subnet).record_mut(&key.parse().unwrap());
            record.unwrap().usage = Usage::Held(Held {
                owner: attached(id, 1),
                ..Held::default()
            });
        }
        ipam
    }

    fn evidence(configured: &[&str], routes: &[&str]) -> Evidence {
        let ip = |text: &&str| -> IpAddr { text.parse().unwrap() };
        let mut evidence = Evidence {
            routes: Routes::Read(routes.iter().map(ip).collect()),
            ..Evidence::default()
        };
        let places = configured.iter().map(|text| (ip(text), Place::Host));
        evidence.kernel.configured.extend(places);
        evidence
    }

    fn freed(ipam: &Ipam) -> Vec<String> {
        let records = ipam.pools().flat_map(|(_, _, pool)| &pool.records);
        let free = records.filter(|record| record.free().is_some());
        free.map(|record| record.key.to_string()).collect()
    }

    #[test]
    fn one_address_that_is_shown_speaks_for_the_other() {
        for (configured, routes) in [(V4, "10.9.9.9"), (V6, "10.9.9.9"), ("10.9.9.9", V6)] {
            let evidence = evidence(&[configured], &[routes]);
            let mut ipam = two_pods();
            let candidates: Vec<Candidate> = ipam.candidates(|_, _, _| true, NOW);
            let judged = ipam.reclaim(candidates.clone(), &evidence, NOW);
            let alive = judged
                .iter()
                .filter(|j| j.judgement.verdict == Verdict::Alive);
            assert_eq!(alive.clone().count(), 2, "{configured} {routes}");
            let reasons = alive.flat_map(|j| &j.judgement.reasons);
            let shown = if routes == V6 { V6 } else { configured };
            let other = Reason::OtherShown(shown.parse().unwrap());
            assert_eq!(reasons.filter(|reason| **reason == other).count(), 1);
            assert_eq!(freed(&ipam), ["10.1.0.6", "fd00::6"]);
            // A runtime that forgot the pod does not cost it either of them.
            let mut ipam = two_pods();
            ipam.collect(candidates, &evidence, NOW);
            assert_eq!(freed(&ipam), ["10.1.0.6", "fd00::6"]);
        }
    }

    #[test]
    fn after_a_reboot_only_what_the_kernel_has_speaks() {
        let mut ipam = two_pods();
        ipam.new_boot(&evidence(&[V4], &["fd00::6"]), NOW);
        assert_eq!(freed(&ipam), ["10.1.0.6", "fd00::6"]);
        let mut ipam = two_pods();
        ipam.new_boot(&evidence(&[], &[V4]), NOW);
        assert_eq!(freed(&ipam).len(), 4);
    }

    #[test]
    fn records_of_the_original_tell_no_attachment() {
        let mut ipam = two_pods();
        for pool in ipam.pools_mut() {
            for record in &mut pool.records {
                if let Usage::Held(held) = &mut record.usage {
                    forget_claim(&mut held.owner);
                }
            }
        }
        let candidates = ipam.candidates(|_, _, _| true, NOW);
        ipam.reclaim(candidates, &evidence(&[V4], &[]), NOW);
        assert_eq!(freed(&ipam), ["10.1.0.6", V6, "fd00::6"]);
    }
}
