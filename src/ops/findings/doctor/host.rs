//! Pool addresses that are configured on the host itself, so that no pod can have them.

use super::diagnostic::{Diagnostic, Subject, Visibility, join_first};
use super::pools::KnownPool;
use crate::ipam::{Kernel, Place};
use crate::ops::screen::pluralize;

const SUBJECT: Subject = Subject::Host;

/// The lines about them. Below a root with interfaces of its own, the kernel's addresses are those of another node.
pub fn examine(
    pools: &[KnownPool],
    kernel: &Kernel,
    is_this_host: bool,
    visibility: &mut Visibility,
) -> Vec<Diagnostic> {
    let mut lines = Vec::new();
    if is_this_host {
        lines.extend(pools.iter().filter_map(|pool| on_host(pool, kernel)));
    }
    if let Some(why) = &kernel.incomplete {
        // Users other than root never see everything, whatever the reason says.
        let reason = if visibility.is_root {
            why
        } else {
            "permission denied"
        };
        if !visibility.hides("network namespaces of pods", reason) {
            lines.push(incomplete(why));
        }
    } else if is_this_host && lines.is_empty() && !pools.is_empty() {
        let text = "no address of the pools is configured on the host itself";
        lines.push(Diagnostic::ok(SUBJECT, &text));
    }
    lines
}

/// The pool addresses that the host has.
fn on_host(pool: &KnownPool, kernel: &Kernel) -> Option<Diagnostic> {
    let is_there = |address| kernel.configured.get(address) == Some(&Place::Host);
    let there: Vec<_> = pool.addresses.iter().filter(|a| is_there(a)).collect();
    let first = there.first()?;
    let length = pool.subnet.prefix_len();
    let if_name = match &*pool.if_name {
        "" => "IF",
        if_name => if_name,
    };
    let text = format_args!(
        "{} of {} configured on the host itself, where no pod can use them: {}",
        pluralize(there.len(), "address", "addresses"),
        pool.subnet,
        join_first(there.iter().map(ToString::to_string))
    );
    let remedy = format_args!(
        "usually cloud-init configured them. Remove each: `ip address del {first}/{length} dev {if_name}`; then keep it from doing so again: `network: {{config: disabled}}` in /etc/cloud/cloud.cfg.d/99-disable-network-config.cfg, and in /etc/netplan nothing but DHCP for {if_name}"
    );
    Some(Diagnostic::wrong(SUBJECT, &text, &remedy))
}

fn incomplete(why: &str) -> Diagnostic {
    Diagnostic::warning(
        SUBJECT,
        &format_args!("the node could not be scanned completely: {why}"),
        &"run it as root on the node itself, not in a container; with no more access than this, the plugin reclaims nothing",
    )
}

#[cfg(test)]
mod tests {
    use super::super::diagnostic::Status;
    use super::*;

    fn pool() -> KnownPool {
        KnownPool {
            subnet: "10.224.0.0/16".parse().unwrap(),
            if_name: "eth0".into(),
            addresses: ["10.224.0.5", "10.224.0.6", "10.224.0.7"]
                .map(|a| a.parse().unwrap())
                .into(),
        }
    }

    fn kernel(incomplete: Option<&str>) -> Kernel {
        let pod = Place::Namespace("/run/netns/a".into());
        let configured = [
            ("10.224.0.4", Place::Host),
            ("10.224.0.5", Place::Host),
            ("10.224.0.6", pod),
        ];
        Kernel {
            incomplete: incomplete.map(str::to_owned),
            configured: configured
                .map(|(address, place)| (address.parse().unwrap(), place))
                .into(),
            ..Kernel::default()
        }
    }

    #[test]
    fn pool_addresses_on_the_host_are_wrong() {
        let lines = examine(&[pool()], &kernel(None), true, &mut Visibility::new(true));
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].status, Status::Wrong);
        assert!(lines[0].text.starts_with("1 address of 10.224.0.0/16"));
        assert!(lines[0].text.ends_with(": 10.224.0.5"), "{lines:?}");
        let remedy = lines[0].remedy.as_ref().unwrap();
        assert!(remedy.contains("ip address del 10.224.0.5/16 dev eth0"));
        assert!(remedy.contains("{config: disabled}"), "{remedy}");
        let elsewhere = examine(&[pool()], &kernel(None), false, &mut Visibility::new(true));
        assert_eq!(elsewhere, [], "it is another node's kernel");
        let mut other = pool();
        other.addresses.clear();
        let lines = examine(&[other], &kernel(None), true, &mut Visibility::new(true));
        assert_eq!(lines[0].status, Status::Ok);
    }

    #[test]
    fn an_incomplete_scan_is_reported() {
        let hidden = kernel(Some("not every process is to be seen from here"));
        let lines = examine(&[], &hidden, true, &mut Visibility::new(true));
        assert_eq!(lines[0].status, Status::Warning);
        assert!(lines[0].text.contains("not every process"));
        let mut visibility = Visibility::new(false);
        assert_eq!(examine(&[], &hidden, true, &mut visibility), []);
        assert!(
            visibility
                .line()
                .unwrap()
                .text
                .contains("network namespaces")
        );
    }
}
