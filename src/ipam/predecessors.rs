//! Finds the sandboxes of pods that the runtime has replaced. kubelet runs one sandbox of a pod at a time. If a later plugin of the chain
//! fails, each retry is a new sandbox. Nothing releases the addresses of the earlier ones.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use smol_str::SmolStr;

use super::{Holder, Ipam, Pool, RetriedPod, Wanted};

/// An interface of a pod: `namespace/name` of the pod, the network and CNI_IFNAME.
type PodInterface = (String, SmolStr, SmolStr);

/// The newest ADD for each interface of a pod: its number and its container.
///
/// The name of a pod proves neither life nor ownership. It only shortens the wait for holders without any evidence.
#[derive(Clone, Debug, Default)]
pub(super) struct NewestAdds(BTreeMap<PodInterface, (u64, String)>);

impl NewestAdds {
    /// Collects the ADDs of all holders.
    pub fn new(ipam: &Ipam) -> NewestAdds {
        let mut newest = NewestAdds::default();
        for held in ipam.holders() {
            newest.note(&held.holder, held.holder.number);
        }
        newest
    }

    /// Adds the ADD that is being decided, if there is one. It is the newest of its pod.
    pub fn with(mut self, adding: Option<&Wanted>) -> NewestAdds {
        if let Some(adding) = adding {
            self.note(&adding.holder(0), u64::MAX);
        }
        self
    }

    fn note(&mut self, holder: &Holder, number: u64) {
        let Some(interface) = pod_interface(holder) else {
            return;
        };
        let newest = self.0.entry(interface).or_default();
        if newest.0 < number {
            *newest = (number, holder.container_id().to_owned());
        }
    }

    /// Returns whether a newer ADD for the same interface of the same pod came for another container. The network namespace of the holder
    /// must be known. Otherwise a scan cannot show whether it is gone.
    pub fn have_replaced(&self, holder: &Holder) -> bool {
        let is_namespace_known = holder
            .netns
            .as_ref()
            .is_some_and(|netns| netns.id.is_some());
        let newest = pod_interface(holder).and_then(|interface| self.0.get(&interface));
        is_namespace_known
            && newest.is_some_and(|(number, container_id)| {
                *number > holder.number && container_id != holder.container_id()
            })
    }
}

fn pod_interface(holder: &Holder) -> Option<PodInterface> {
    let pod = holder.pod.clone().filter(|_| holder.has_interface())?;
    let attachment = &holder.attachment;
    Some((pod, attachment.network.clone(), attachment.if_name.clone()))
}

impl Pool {
    /// Finds the pod with the most sandboxes that hold addresses, as [`retried_pod`] does.
    pub fn retried_pod(&self) -> Option<RetriedPod> {
        retried_pod(iter::once(self))
    }
}

/// Finds the pod with the most sandboxes that hold addresses of these pools, if there are more than a restart needs.
pub(super) fn retried_pod<'a>(pools: impl Iterator<Item = &'a Pool>) -> Option<RetriedPod> {
    /// One sandbox runs, and the one before it may be ending.
    const USUAL: usize = 2;
    let mut sandboxes: BTreeMap<&str, (BTreeSet<&str>, usize)> = BTreeMap::new();
    for (_, held) in pools.flat_map(Pool::held) {
        if let Some(pod) = &held.holder.pod {
            let (containers, addresses) = sandboxes.entry(pod).or_default();
            containers.insert(held.holder.container_id());
            *addresses += 1;
        }
    }
    let retried = sandboxes
        .into_iter()
        .filter(|(_, (containers, _))| containers.len() > USUAL);
    let (pod, (_, held)) = retried.max_by_key(|(_, (containers, _))| containers.len())?;
    Some(RetriedPod {
        pod: pod.to_owned(),
        held,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::testing::{attached, attached_to, hold, wanted, with_pools};
    use crate::ipam::{Moment, NetNs};

    fn of_pod(pod: &str, holder: Holder) -> Holder {
        Holder {
            pod: Some(pod.to_owned()),
            netns: Some(NetNs {
                path: "/run/netns/x".into(),
                id: Some((4, 77)),
                cookie: Some(9),
            }),
            ..holder
        }
    }

    #[test]
    fn only_older_add_of_same_interface_of_same_pod_is_replaced() {
        let old = of_pod("ns/p", attached("c1", 5));
        for (newer, expected) in [
            (of_pod("ns/p", attached("c2", 6)), true),
            (of_pod("ns/p", attached("c2", 5)), false),
            (of_pod("ns/p", attached("c2", 4)), false),
            (of_pod("ns/p", attached("c1", 6)), false),
            (of_pod("ns/q", attached("c2", 6)), false),
            (of_pod("other/p", attached("c2", 6)), false),
            (of_pod("ns/p", attached_to("other", "c2", 6)), false),
            (attached("c2", 6), false),
        ] {
            let mut ipam = with_pools(&[("10.1.0.0/16", 0, &["10.1.0.5", "10.1.0.6"])]);
            hold(&mut ipam, "10.1.0.5", old.clone(), Moment(1));
            hold(&mut ipam, "10.1.0.6", newer.clone(), Moment(1));
            let newest = NewestAdds::new(&ipam);
            assert_eq!(newest.have_replaced(&old), expected, "{newer:?}");
        }
    }

    #[test]
    fn add_in_progress_is_newest() {
        let mut ipam = with_pools(&[("10.1.0.0/16", 0, &["10.1.0.5"])]);
        let old = of_pod("ns/p", attached("c1", 5));
        hold(&mut ipam, "10.1.0.5", old.clone(), Moment(1));
        for (container, pod, expected) in [
            ("c2", Some("ns/p"), true),
            ("c1", Some("ns/p"), false),
            ("c2", Some("ns/q"), false),
            ("c2", None, false),
        ] {
            let mut adding = wanted(container);
            adding.pod = pod.map(str::to_owned);
            let newest = NewestAdds::new(&ipam).with(Some(&adding));
            assert_eq!(newest.have_replaced(&old), expected, "{container} {pod:?}");
        }
    }

    #[test]
    fn holder_with_unknown_namespace_is_not_replaced() {
        let newer = of_pod("ns/p", attached("c2", 6));
        let mut ipam = with_pools(&[("10.1.0.0/16", 0, &["10.1.0.6"])]);
        hold(&mut ipam, "10.1.0.6", newer, Moment(1));
        let newest = NewestAdds::new(&ipam);
        let mut old = of_pod("ns/p", attached("c1", 5));
        assert!(newest.have_replaced(&old));
        old.netns = old.netns.map(|netns| NetNs { id: None, ..netns });
        assert!(!newest.have_replaced(&old));
        old.netns = None;
        assert!(!newest.have_replaced(&old));
    }
}
