//! Whether a pod reaches its gateway and this host.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

use crate::host::{Route, in_namespace, io_reason, is_resolved};
use crate::ipam::{Held, Ipam, Record};
use crate::ops::finding::{Finding, FindingKind};
use crate::ops::held::{ambiguous, find_pods, held_records};
use crate::ops::node::Node;
use crate::ops::outcome::CommandError;

/// How long a hop may take to answer: longer than an ordinary one, shorter than an operator's patience.
const WAIT: Duration = Duration::from_secs(1);

/// Asks from the pod's network namespace, for each of its addresses.
///
/// # Errors
/// The name stands for no pod with an address, or for several.
pub fn examine(node: &Node, ipam: &Ipam, name: &str) -> Result<Vec<Finding>, CommandError> {
    let pods = ipam.holders().filter_map(|held| held.holder.pod.as_deref());
    let pods = Vec::from_iter(find_pods(name, pods));
    let [pod] = &*pods else {
        return Err(match &*pods {
            [] => CommandError(format!("no pod {name} holds an address")),
            _ => ambiguous(name, "pods have it in their names", &pods),
        });
    };
    let held = held_records(ipam).filter(|(.., held)| held.holder.pod.as_ref() == Some(pod));
    let finding = |(_, _, record, held): (_, _, &Record, &Held)| {
        let address = record.address();
        let netns = held.holder.netns.as_ref().map_or("", |netns| &netns.path);
        let host = Route::to_the_outside(address).map(|route| route?.source);
        let problem = in_namespace(node.paths(), netns, || find_problem(address, host?));
        let (problem, remedy) = match problem {
            Ok(None) => {
                let text = format_args!("pod {pod}, {address}: its gateway and this host answer");
                return Finding::ok(FindingKind::Reach, &text);
            }
            Ok(Some(problem)) => problem,
            Err(error) => (
                format!("its network namespace {netns}: {}", io_reason(&error)),
                "if it is gone, so is the pod: see the other findings; else run this as root on the node itself",
            ),
        };
        let text = format_args!("pod {pod}: {problem}");
        Finding::error(FindingKind::Reach, &text, &remedy)
            .about(address)
            .with_commands([
                format!("sudo nsenter --net={netns} ip addr"),
                format!("ip route get {address}"),
            ])
    };
    Ok(held.map(finding).collect())
}

/// The first hop that does not answer, and what to do, in the namespace of the calling thread. Azure's gateway answers no ping. The
/// kernel resolves a gateway, so that one that it resolved a moment ago counts as one that answers.
fn find_problem(pod: IpAddr, host: Option<IpAddr>) -> io::Result<Option<(String, &'static str)>> {
    let Some(route) = Route::to_the_outside(pod)? else {
        let text = "it has no route to the outside".to_owned();
        let remedy = "its link may be down or gone; its main plugin sets the route only once, so delete the pod:";
        return Ok(Some((text, remedy)));
    };
    Ok(match (route.gateway, host) {
        (Some(gateway), _) if !is_resolved(gateway, route.link, WAIT)? => Some((
            format!("its gateway {gateway} has no hardware address: nothing answers"),
            "see whether the other end of the pod's link is up; if it is gone, delete the pod:",
        )),
        (_, Some(host)) if !answers_ping(host)? => Some((
            format!("its gateway is there, but this host, {host}, answers no ping"),
            "see whether the host's route leads to the pod's link, and whether a firewall is between:",
        )),
        _ => None,
    })
}

/// Whether an ICMP echo request is answered.
fn answers_ping(to: IpAddr) -> io::Result<bool> {
    /// The checksum is that of IPv4, without data; the kernel computes that of IPv6.
    const ECHO: [u8; 8] = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    const ECHO_V6: [u8; 8] = [128, 0, 0, 0, 0, 0, 0, 0];
    let (family, protocol, request, reply) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, ECHO, (20, 0)),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, ECHO_V6, (0, 129)),
    };
    let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
    let socket = UdpSocket::from(socket_with(family, kind, flags, Some(protocol))?);
    socket.set_read_timeout(Some(WAIT))?;
    let asked = socket.connect((to, 0)).and_then(|()| socket.send(&request));
    let mut answer = [0; 64];
    let until = Instant::now() + WAIT;
    while asked.is_ok() && Instant::now() < until {
        let length = socket.recv(&mut answer).unwrap_or(0);
        // IPv4 comes with its header.
        if answer.get(..length).and_then(|a| a.get(reply.0)) == Some(&reply.1) {
            return Ok(true);
        }
    }
    Ok(false)
}
