//! The source of the pools, and the interfaces of the node that its answer is about.

use super::diagnostic::{Diagnostic, Subject, Visibility, join_first};
use super::inspection::{Inspection, SourceAnswer};
use crate::failure::{ENVIRONMENT_REMEDY, needs_root, source_remedy};
use crate::host::{Link, Paths, io_reason, links};
use crate::log::Milliseconds;
use crate::ops::screen::pluralize;
use crate::source::{MatchedListing, Source, SourceError};

/// Examines them.
pub fn examine(paths: &Paths, inspection: &Inspection, visibility: &Visibility) -> Vec<Diagnostic> {
    let (source, answer) = match &inspection.source {
        Ok(answered) => answered,
        Err(why) => {
            return vec![Diagnostic::wrong(
                Subject::Source,
                &why.0.clone(),
                &ENVIRONMENT_REMEDY,
            )];
        }
    };
    if matches!(source, Source::Null) {
        let text = "ipam.environment is null: there are no pools but those in the state";
        return vec![Diagnostic::ok(Subject::Source, &text)];
    }
    let matched = match &answer.matched {
        Ok(matched) => matched,
        Err(error) => return vec![unanswered(source, error, visibility.is_root)],
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
        Diagnostic::ok(
            Subject::Interface,
            &format_args!("{owner} has {subnet} with {count} for pods"),
        )
    });
    lines.extend(pools);
    let carrying = matched.link_names();
    if !matched.unmatched.is_empty() {
        let own = links(paths).map_err(|e| io_reason(&e));
        lines.push(unmatched(&matched.unmatched, &carrying, own));
    }
    // The addresses of a missing interface are unknown.
    let is_matched = matched.unmatched.is_empty() || !carrying.is_empty();
    if is_matched && matched.inventory.addresses() == 0 {
        lines.push(no_addresses());
    }
    lines
}

fn answered(source: &Source, matched: &MatchedListing, answer: &SourceAnswer) -> Diagnostic {
    let links = matched.link_names().len() + matched.unmatched.len();
    let text = format_args!(
        "{} answered in {}: {}, {} for pods, {} the host's",
        source.name(),
        Milliseconds(answer.took),
        pluralize(links, "interface", "interfaces"),
        pluralize(matched.inventory.addresses(), "address", "addresses"),
        matched.primary
    );
    Diagnostic::ok(Subject::Source, &text)
}

fn skipped(matched: &MatchedListing) -> Option<Diagnostic> {
    let skipped = matched.skipped;
    (skipped > 0).then(|| {
        Diagnostic::warning(
            Subject::Source, &format_args!("{skipped} of the listed addresses and subnets cannot be used"), &"check the answer: they are malformed, outside their subnet, or in a subnet that is listed twice")
    })
}

/// The diagnostic and remedy for a source that failed.
fn unanswered(source: &Source, error: &SourceError, is_root: bool) -> Diagnostic {
    let text = error.to_string();
    let source = source.failed_part(error);
    let remedy = source_remedy(source, error, is_root);
    match needs_root(source, error, is_root) {
        true => Diagnostic::warning(Subject::Source, &text, &remedy),
        false => Diagnostic::wrong(Subject::Source, &text, &remedy),
    }
}

/// Listed interfaces that this node does not have. `carrying` are the listed interfaces that it has.
fn unmatched(macs: &[String], carrying: &[String], own: Result<Vec<Link>, String>) -> Diagnostic {
    let listed = join_first(macs.iter().map(|mac| format_mac(mac)));
    let mut by_hand = ("INTERFACE".to_owned(), "ADDRESS".to_owned());
    let own = match own {
        Ok(links) => {
            // The host's ends of pod links are many, and never the listed interface.
            let real: Vec<_> = links
                .iter()
                .filter(|link| !link.mac.is_empty() && link.peer_namespace.is_none())
                .collect();
            // With more than one candidate, the operator must choose.
            if let ([mac], [only], []) = (macs, &*real, carrying)
                && !listed.starts_with('"')
            {
                by_hand = (only.name.clone(), format_mac(mac));
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
    let (if_name, mac) = by_hand;
    Diagnostic::wrong(
        Subject::Interface,
        &format_args!("the source lists {listed}, which no interface of this node has; {own}"),
        &format_args!(
            "no pod gets an address of it until Azure and the node agree: attach the interface, or restart the node; where the address was changed by hand: sudo ip link set dev {if_name} address {mac}"
        ),
    )
}

fn no_addresses() -> Diagnostic {
    Diagnostic::wrong(
        Subject::Interface,
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
    use super::super::diagnostic::Status;
    use super::*;

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
        let line = unmatched(&["7C1E52F9F3C9".to_owned()], &[], Ok(own.clone()));
        assert_eq!(line.status, Status::Wrong);
        assert!(line.text.contains("lists 7c:1e:52:f9:f3:c9,"), "{line:?}");
        assert!(line.text.ends_with("it has eth0 7c:1e:52:f9:f3:c4"));
        let remedy = line.remedy.unwrap();
        let command = "sudo ip link set dev eth0 address 7c:1e:52:f9:f3:c9";
        assert!(remedy.ends_with(command), "{remedy}");
        // An address that Azure knows must not be changed.
        let listed = ["7C1E52F9F3C9".to_owned()];
        let line = unmatched(&listed, &["eth0".to_owned()], Ok(own));
        assert!(line.remedy.unwrap().ends_with("INTERFACE address ADDRESS"));
        let line = unmatched(&["*".to_owned()], &[], Ok(vec![]));
        assert!(line.text.ends_with("it has none"));
    }

    #[test]
    fn the_remedy_depends_on_the_server() {
        let url = "http://168.63.129.16/machine/plugins?comp=nmagent&type=getinterfaceinfov1";
        let paths = Paths::new(None, "azure-vnet-ipam");
        let conf = crate::cni::IpamConfig::default();
        let wire = Source::from_config(&conf, &Default::default(), &paths).unwrap();
        assert_eq!(wire, Source::Wire(url.to_owned()));
        let error = SourceError::FailedByPeer;
        let line = unanswered(&wire, &error, true);
        assert_eq!(line.status, Status::Wrong);
        let remedy = line.remedy.unwrap();
        assert!(
            remedy.contains("iptables") && remedy.contains(url),
            "{remedy}"
        );
        let other = Source::Wire("http://wire.example/".to_owned());
        let remedy = unanswered(&other, &error, true).remedy.unwrap();
        assert!(remedy.starts_with("try `curl 'http://wire.example/'`"));
    }
}
