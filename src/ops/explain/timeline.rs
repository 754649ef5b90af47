//! The operations that concern the subject of `explain`, also those of others. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::query::Query;
use crate::cni::Verb;
use crate::events::OperationRecord;

/// Keeps the operations that name the subject, and those of others that touched an address while the subject held it: a reclaim,
/// a GC, a command, or an ADD that got the same address. The operations are in the order of their time.
pub fn operations(query: &Query, events: Vec<OperationRecord>) -> Vec<OperationRecord> {
    let mut held: BTreeSet<IpAddr> = BTreeSet::new();
    let concerns = |event: &OperationRecord| {
        let touched = event.all_addresses();
        let is_concerned = query.is_event(event) || touched.iter().any(|a| held.contains(a));
        let is_add = event.verb == Verb::Add.as_str();
        if query.is_subject(event) && is_add {
            if event.code == 0 {
                held.extend(&event.addresses);
            }
        } else if event.code == 0 || !is_transaction(&event.verb) {
            held.retain(|address| !touched.contains(address));
        }
        is_concerned
    };
    let mut concerns = concerns;
    events.into_iter().filter(|event| concerns(event)).collect()
}

/// Whether an operation that failed changed nothing. A GC that kept some addresses fails, but freed those that it lists.
fn is_transaction(verb: &str) -> bool {
    verb == Verb::Add.as_str() || verb == Verb::Del.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::FreedAddress;

    fn address(n: u8) -> IpAddr {
        [10, 224, 0, n].into()
    }

    fn event(verb: &str, pod: &str, addresses: &[u8]) -> OperationRecord {
        OperationRecord {
            verb: verb.into(),
            pod: Some(pod.to_owned()).filter(|pod| !pod.is_empty()),
            addresses: addresses.iter().map(|n| address(*n)).collect(),
            ..OperationRecord::default()
        }
    }

    fn failed(event: OperationRecord) -> OperationRecord {
        OperationRecord { code: 5, ..event }
    }

    /// The positions of the operations that concern a pod.
    fn concerning(pod: &str, events: &[OperationRecord]) -> Vec<usize> {
        let numbered = events.iter().enumerate().map(|(n, event)| OperationRecord {
            microseconds: u64::try_from(n).unwrap(),
            ..event.clone()
        });
        let found = operations(&Query::parse(pod), numbered.collect());
        let numbers = found
            .iter()
            .map(|e| usize::try_from(e.microseconds).unwrap());
        numbers.collect()
    }

    #[test]
    fn operations_of_others_on_an_address_count_while_the_pod_holds_it() {
        let taken_by_add = OperationRecord {
            freed: vec![FreedAddress {
                address: Some(address(5)),
                ..FreedAddress::default()
            }],
            ..event("ADD", "x/other", &[9])
        };
        for taker in [
            event("reclaim", "", &[4, 5]),
            event("GC", "", &[5]),
            failed(event("GC", "", &[5])),
            event("release", "", &[5]),
            event("ADD", "x/other", &[5]),
            taken_by_add,
        ] {
            let events = [
                event("DEL", "x/earlier", &[5]),
                event("ADD", "x/web", &[5]),
                event("ADD", "x/other", &[6]),
                taker.clone(),
                event("ADD", "x/third", &[5]),
                event("DEL", "x/third", &[5]),
            ];
            assert_eq!(concerning("x/web", &events), [1, 3], "{taker:?}");
            assert_eq!(
                concerning("10.224.0.5", &events),
                [0, 1, 3, 4, 5],
                "{taker:?}"
            );
        }
    }

    #[test]
    fn a_failed_operation_of_another_ends_nothing() {
        let events = [
            failed(event("ADD", "x/web", &[7])),
            event("reclaim", "", &[7]),
            event("ADD", "x/web", &[5]),
            failed(event("DEL", "x/web", &[5])),
            failed(event("ADD", "x/other", &[5])),
            event("reclaim", "", &[5]),
        ];
        assert_eq!(concerning("x/web", &events), [0, 2, 3, 4, 5]);
    }

    #[test]
    fn a_reclaim_that_names_the_holder_needs_no_add_before_it() {
        let freed = |pod: &str| FreedAddress {
            address: Some(address(5)),
            container: "c1".into(),
            pod: Some(pod.into()),
        };
        let reclaim = OperationRecord {
            freed: vec![freed("x/web")],
            ..event("reclaim", "", &[])
        };
        assert_eq!(concerning("web", std::slice::from_ref(&reclaim)), [0]);
        assert_eq!(concerning("other", &[reclaim]), [0; 0]);
    }
}
