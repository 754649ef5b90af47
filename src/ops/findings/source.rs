//! The source of the pools, and the interfaces of the node that its answer is about.

use std::collections::BTreeSet;

use super::finding::{Finding, FindingKind};
use super::inspection::{Inspection, SourceAnswer};
use super::texts::join_first;
use super::visibility::Visibility;
use crate::failure::{ENVIRONMENT_REMEDY, needs_root, source_remedy};
use crate::host::{Link, io_reason, links};
use crate::ipam::{Ipam, Pool};
use crate::log::Milliseconds;
use crate::ops::node::Node;
use crate::ops::screen::pluralize;
use crate::source::{MatchedListing, Source, SourceError};

/// Examines them.
pub fn examine(node: &Node, inspection: &Inspection, visibility: &Visibility) -> Vec<Finding> {
    let paths = node.paths();
    let (source, answer) = match &inspection.source {
        Ok(answered) => answered,
        Err(why) => {
            return vec![Finding::error(
                FindingKind::Source,
                &why.0.clone(),
                &ENVIRONMENT_REMEDY,
            )];
        }
    };
    if matches!(source, Source::Null) {
        let text = "ipam.environment is null: there are no pools but those in the state";
        return vec![Finding::ok(FindingKind::Source, &text)];
    }
    let matched = match &answer.matched {
        Ok(matched) => matched,
        Err(error) => {
            let meanwhile = meanwhile(inspection.state.ipam(), inspection.config.conf.ipv6);
            return vec![unanswered(source, error, visibility.is_root, meanwhile)];
        }
    };
    let mut lines = vec![answered(source, matched, answer)];
    lines.extend(skipped(matched));
    let pools = matched.inventory.pools.iter().map(|pool| {
        let (subnet, if_name) = (pool.subnet, &pool.if_name);
        let count = pluralize(pool.addresses.len(), "address", "addresses");
        // A range of the node is on no interface in particular.
        let owner = if if_name.is_empty() {
            "the node"
        } else {
            if_name
        };
        Finding::ok(
            FindingKind::Interface,
            &format_args!("{owner} has {subnet} with {count} for pods"),
        )
    });
    lines.extend(pools);
    let carrying = matched.link_names();
    if !matched.unmatched.is_empty() {
        let own = links(paths).map_err(|e| io_reason(&e));
        let stored = inspection
            .state
            .ipam()
            .pools()
            .map(|(_, _, pool)| &*pool.if_name);
        lines.push(unmatched(
            &matched.unmatched,
            &carrying,
            stored.collect(),
            own,
        ));
    }
    // The addresses of a missing interface are unknown.
    let is_matched = matched.unmatched.is_empty() || !carrying.is_empty();
    if is_matched && matched.inventory.addresses() == 0 {
        lines.push(no_addresses());
    }
    lines
}

fn answered(source: &Source, matched: &MatchedListing, answer: &SourceAnswer) -> Finding {
    let links = matched.link_names().len() + matched.unmatched.len();
    let text = format_args!(
        "{} answered in {}: {}, {} for pods, {} the host's",
        source.name(),
        Milliseconds(answer.took),
        pluralize(links, "interface", "interfaces"),
        pluralize(matched.inventory.addresses(), "address", "addresses"),
        matched.primary
    );
    Finding::ok(FindingKind::Source, &text)
}

fn skipped(matched: &MatchedListing) -> Option<Finding> {
    let skipped = matched.skipped;
    (skipped > 0).then(|| {
        Finding::warning(
            FindingKind::Source, &format_args!("{skipped} of the listed addresses and subnets cannot be used"), &"check the answer: they are malformed, outside their subnet, or in a subnet that is listed twice")
    })
}

/// What happens to new pods, of which only pools of one family are used, while the source does not answer.
fn meanwhile(ipam: &Ipam, ipv6: bool) -> &'static str {
    let is_used = |key: &str, pool: &Pool| {
        let net = pool.net(key);
        net.is_some_and(|net| net.addr().is_ipv6() == ipv6)
    };
    let used: Vec<&Pool> = ipam
        .pools()
        .filter(|(_, key, pool)| is_used(key, pool))
        .map(|(_, _, pool)| pool)
        .collect();
    let mut records = used.iter().flat_map(|pool| &pool.records);
    match (used.is_empty(), records.any(|r| r.free().is_some())) {
        (false, true) => {
            "meanwhile pods get addresses of the stored pools, while there are free ones"
        }
        (false, false) => {
            "meanwhile no new pod gets an address, as the stored pools have no free one"
        }
        (true, _) => "meanwhile no pod gets an address, as there are no stored pools",
    }
}

/// The finding for a source that failed.
fn unanswered(
    source: &Source,
    error: &SourceError,
    is_root: bool,
    meanwhile: &'static str,
) -> Finding {
    let text = error.to_string();
    let source = source.failed_part(error);
    let remedy = source_remedy(source, error, is_root);
    let finding = match needs_root(source, error, is_root) {
        true => Finding::note(FindingKind::Source, &text, &remedy.text),
        false => Finding::error(FindingKind::Source, &text, &remedy.text),
    };
    let evidence = vec![meanwhile.to_owned()];
    let finding = finding.about(source.name()).with_evidence(evidence);
    finding.with_commands(remedy.commands)
}

/// Listed interfaces that this node does not have. `carrying` are the listed interfaces that it has.
/// `stored` are the interfaces of the stored pools.
fn unmatched(
    macs: &[String],
    carrying: &[String],
    stored: BTreeSet<&str>,
    own: Result<Vec<Link>, String>,
) -> Finding {
    let listed = join_first(macs.iter().map(|mac| format_mac(mac)));
    let mut command = None;
    let own = match own {
        Ok(links) => {
            // The host's ends of pod links are many, and never the listed interface.
            let real: Vec<_> = links
                .iter()
                .filter(|link| !link.mac.is_empty() && link.peer_namespace.is_none())
                .collect();
            // The pools tell which of several it was; without pools, the operator must choose.
            let was_it = |link: &&&Link| stored.contains(&*link.name) || real.len() == 1;
            let candidates: Vec<_> = real.iter().filter(was_it).collect();
            if let ([mac], [only], []) = (macs, &*candidates, carrying)
                && !listed.starts_with('"')
            {
                let (link, mac) = (&only.name, format_mac(mac));
                command = Some(format!("sudo ip link set dev {link} address {mac}"));
            }
            let own_links = real
                .iter()
                .map(|link| format!("{} {}", link.name, format_mac(&link.mac)));
            match real.is_empty() {
                true => "it has none".to_owned(),
                false => format!("it has {}", join_first(own_links)),
            }
        }
        Err(why) => format!("its interfaces cannot be listed: {why}"),
    };
    let text =
        format_args!("the source lists {listed}, which no interface of this node has; {own}");
    let by_hand = match command {
        Some(_) => "; where the address was changed by hand:",
        None => "",
    };
    let remedy = format_args!(
        "no pod gets an address of it until Azure and the node agree: attach the interface, or restart the node{by_hand}"
    );
    Finding::error(FindingKind::Interface, &text, &remedy).with_commands(command)
}

fn no_addresses() -> Finding {
    Finding::error(
        FindingKind::Interface,
        &"the source lists no address for pods",
        &"assign secondary IP configurations to the node's network interface in Azure",
    )
}

/// Formats a hardware address as `ip link` does; anything else is quoted.
fn format_mac(mac: &str) -> String {
    let mut shown = String::new();
    let mut digits = 0_usize;
    for c in mac.chars().filter(|c| !matches!(c, ':' | '-' | '.')) {
        if !c.is_ascii_hexdigit() {
            return format!("{mac:?}");
        }
        if digits > 0 && digits.is_multiple_of(2) {
            shown.push(':');
        }
        shown.push(c.to_ascii_lowercase());
        digits += 1;
    }
    match digits > 0 && digits.is_multiple_of(2) {
        true => shown,
        false => format!("{mac:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::finding::Severity;
    use super::*;
    use crate::ipam::{Inventory, ListedPool};
    use crate::source::{FetchError, WireError};

    #[test]
    fn hardware_addresses_are_shown_as_ip_link_does() {
        for (mac, shown) in [
            ("7C1E52F9F3C4", "7c:1e:52:f9:f3:c4"),
            ("7c-1e-52-f9-f3-c4", "7c:1e:52:f9:f3:c4"),
            ("*", "\"*\""),
            ("", "\"\""),
            ("abc", "\"abc\""),
        ] {
            assert_eq!(format_mac(mac), shown);
        }
    }

    #[test]
    fn a_missing_interface_is_reported_with_the_existing_ones() {
        let link = |name: &str, mac: &str, peer| Link {
            name: name.into(),
            mac: mac.into(),
            peer_namespace: peer,
            ..Link::default()
        };
        let own = vec![
            link("lo", "", None),
            link("eth0", "7c1e52f9f3c4", None),
            link("azv1", "aaaaaaaaaaaa", Some(3)),
        ];
        let stored = |names: &[&'static str]| names.iter().copied().collect::<BTreeSet<_>>();
        let line = unmatched(
            &["7C1E52F9F3C9".to_owned()],
            &[],
            stored(&[]),
            Ok(own.clone()),
        );
        assert_eq!(line.severity, Severity::Error);
        assert!(line.text.contains("lists 7c:1e:52:f9:f3:c9,"), "{line:?}");
        assert!(line.text.ends_with("it has eth0 7c:1e:52:f9:f3:c4"));
        let remedy = line.remedy;
        assert!(remedy.ends_with("changed by hand:"), "{remedy}");
        let command = "sudo ip link set dev eth0 address 7c:1e:52:f9:f3:c9";
        assert_eq!(line.commands, [command]);
        // An address that Azure knows must not be changed.
        let listed = ["7C1E52F9F3C9".to_owned()];
        let line = unmatched(
            &listed,
            &["eth0".to_owned()],
            stored(&["eth0"]),
            Ok(own.clone()),
        );
        assert_eq!(line.commands, [""; 0]);
        // Of two, it was the one of the pools.
        let two = [own, vec![link("azbr0", "bbbbbbbbbbbb", None)]].concat();
        let commands = |names: &[&'static str]| {
            unmatched(&listed, &[], stored(names), Ok(two.clone())).commands
        };
        assert_eq!(commands(&["eth0"]), [command]);
        assert_eq!(commands(&[]), [""; 0]);
        let line = unmatched(&["*".to_owned()], &[], stored(&[]), Ok(vec![]));
        assert!(line.text.ends_with("it has none"));
    }

    fn remedy(error: SourceError) -> Finding {
        let url = "http://168.63.129.16/machine/plugins?comp=nmagent&type=getinterfaceinfov1";
        unanswered(&Source::Wire(url.to_owned()), &error, true, "")
    }

    #[test]
    fn every_trouble_of_the_server_has_its_own_remedy() {
        let fetch = |source| SourceError::Fetch {
            url: "http://168.63.129.16/x".to_owned(),
            source,
        };
        let wire = |source| SourceError::Wire {
            name: "x".to_owned(),
            source,
        };
        let errors = [
            fetch(FetchError::Status(403)),
            fetch(FetchError::Status(302)),
            fetch(FetchError::Status(500)),
            fetch(FetchError::Status(404)),
            fetch(FetchError::TimedOut(Duration::from_secs(3))),
            fetch(FetchError::Refused),
            fetch(FetchError::NoRoute("x".to_owned())),
            fetch(FetchError::Transport("x".to_owned())),
            wire(WireError::Cut),
            wire(WireError::Empty),
            wire(WireError::Root("html".to_owned())),
        ];
        let findings = errors.map(remedy);
        for (n, finding) in findings.iter().enumerate() {
            assert_eq!(finding.severity, Severity::Error);
            assert!(
                !finding.remedy.is_empty() && !finding.commands.is_empty(),
                "{finding:?}"
            );
            let others = findings.iter().skip(n + 1);
            assert!(
                others.into_iter().all(|f| f.remedy != finding.remedy),
                "{finding:?}"
            );
            // An answer proves that the route works.
            let is_answered = finding.text.contains("status");
            assert!(
                !is_answered || !finding.commands[0].contains("ip route"),
                "{finding:?}"
            );
        }
        assert_eq!(findings[4].commands[0], "ip route get 168.63.129.16");
    }

    #[test]
    fn the_stored_pools_are_promised_only_where_there_are_some() {
        assert!(meanwhile(&Ipam::default(), false).contains("no stored pools"));
        let pool = ListedPool::new(
            "10.1.0.0/16".parse().unwrap(),
            "eth0".into(),
            0,
            vec!["10.1.0.5".parse().unwrap()],
        );
        let mut ipam = Ipam::default();
        ipam.merge(&Inventory { pools: vec![pool] });
        assert!(meanwhile(&ipam, false).contains("meanwhile pods get addresses"));
        assert!(meanwhile(&ipam, true).contains("no stored pools"));
    }
}
