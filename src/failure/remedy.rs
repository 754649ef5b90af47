//! What to do about a source that failed, and about missing permissions.

use std::net::IpAddr;

use crate::cni::ServerUrl;
use crate::source::{AnswerError, FetchError, Source, SourceError};

/// Describes the error of a source. Names the key that selects the source, or adds the remedy for the Kubernetes API.
pub fn message_with_remedy(source: Option<&Source>, error: &SourceError) -> String {
    let is_from_source = matches!(
        error,
        SourceError::Fetch(..) | SourceError::Answer(..) | SourceError::File(..)
    );
    let failed = source.filter(|_| is_from_source);
    let key = failed.and_then(|source| source.failed_part(error).chosen_by());
    match (error, key) {
        (SourceError::Node(_, why), _) => format!("{error}; {}", why.remedy()),
        (_, Some(key)) => format!("{error} ({key} names this source)"),
        (_, None) => error.to_string(),
    }
}

/// What to do about a missing permission.
pub const SUDO_REMEDY: &str = "run it with sudo";

/// What to do about a source that cannot be chosen.
pub const ENVIRONMENT_REMEDY: &str = "unset or correct AZURE_VNET_IPAM_QUERY_URL";

/// What to do about a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remedy {
    /// The cause, as far as it is known, and what to do. It has no full stop.
    pub text: String,
    /// The commands to type.
    pub commands: Vec<String>,
}

/// Returns what to do about `source`, which failed with `error`. `is_root` says whether this process
/// runs as root.
pub fn source_remedy(source: &Source, error: &SourceError, is_root: bool) -> Remedy {
    let (text, commands) = match (source, error) {
        (_, SourceError::Node(_, why)) => (why.remedy(), vec![]),
        (_, SourceError::Fetch(..)) if needs_root(source, error, is_root) => (
            "on many nodes only root may ask it: run this with sudo",
            vec![],
        ),
        (_, SourceError::Fetch(url, why)) => fetch_remedy(url, why),
        (Source::Wire(url), SourceError::Answer(_, why)) => (
            answer_remedy(why),
            vec![with_whole_url(show_answer(url), url)],
        ),
        (_, SourceError::File(path, _))
        | (Source::SavedAnswer(path) | Source::InterfacesFile(path), _) => (
            "correct the file, or its mode:",
            vec![format!("sudo ls -l {}", path.display())],
        ),
        (_, SourceError::Links(_)) => (
            "list the interfaces of this node:",
            vec!["ip link".to_owned()],
        ),
        _ => ("no action needed: the next ADD asks again", vec![]),
    };
    Remedy {
        text: text.to_owned(),
        commands,
    }
}

/// Returns what to do about a server that did not answer with status 200, and the commands to type.
fn fetch_remedy(url: &ServerUrl, error: &FetchError) -> (&'static str, Vec<String>) {
    let host = host_in(url.whole());
    let pattern = host.replace('.', "[.]");
    let show_answer = vec![with_whole_url(show_answer(url), url)];
    let show_path_of_packets = vec![
        format!("ip route get {host} || ip rule"),
        show_filters(&pattern),
    ];
    let show_neighbours = "ip neigh show nud permanent nud failed nud incomplete".to_owned();
    let family = match host.parse() {
        Ok(IpAddr::V4(_)) => "-4 ",
        _ => "",
    };
    let show_routes = vec![
        "ip -brief link show up".to_owned(),
        "ip rule".to_owned(),
        format!(
            "ip {family}route show table all | grep -wE '{pattern}|default|blackhole|unreachable|prohibit' || echo 'there is no such route'"
        ),
    ];
    match error {
        FetchError::Status(401 | 403) => (
            "the route is right, but the request is refused: the wire server answers only root on the node itself; if this is root, a proxy or a rule of the cloud refuses it; inspect the answer:",
            show_answer,
        ),
        FetchError::Status(300..=399) => (
            "the route is right, but something other than the wire server answers, which never redirects: a proxy or a login page; find out what, and let requests to this address through:",
            show_answer,
        ),
        FetchError::Status(429 | 500..) => (
            "the route is right, but the server is in trouble; the next ADD asks again; if it lasts, Azure's side is broken: redeploy the node",
            show_answer,
        ),
        FetchError::Status(_) => (
            "the route is right, but the server that answers does not know this request: is ipam.queryUrl or AZURE_VNET_IPAM_QUERY_URL set to another server? Inspect the answer:",
            show_answer,
        ),
        FetchError::TimedOut(_) => (
            "packets get lost: a route to a wrong device, a firewall rule that drops them, or Azure's side. The first command must name the device that leads out of the node. The second prints every rule of nft and iptables that drops, rejects or redirects packets, or names the address: none may apply to this request by root. (The Azure agent has rules in the table security that accept root's packets and drop those of others.) The third lists neighbours with a fixed or no hardware address: the gateway must not be among them. Only where all are right, redeploy the node:",
            [show_path_of_packets, vec![show_neighbours]].concat(),
        ),
        FetchError::SlowAnswer(_) => (
            "the route is right, and the answer comes too slowly: packets get lost on the way, or the server is in trouble; the next ADD asks again; if it lasts, measure how fast the answer comes:",
            show_answer,
        ),
        FetchError::Refused => (
            "something refuses the connection: another machine that a route leads to, or a firewall rule. The first command shows the route, the second the rules:",
            show_path_of_packets,
        ),
        FetchError::NoRoute(_) => (
            "no route leads there, a rule forbids it, or the gateway does not answer. The first command shows the links that are up: if the one that leads out of the node is missing, switch it on (`ip link set dev LINK up`). The second shows the rules: remove one with prohibit, blackhole or unreachable (`ip rule del`), and add the one for the table main if it is missing (`ip rule add lookup main priority 32766`). The third shows the routes: there must be a default route, and no other that blocks this address. The fourth lists neighbours with a fixed or no hardware address: if the gateway is among them and should not be, its link leads to another network, or Azure's side is broken:",
            [show_routes, vec![show_neighbours]].concat(),
        ),
        FetchError::NoLocalPort => (
            "too many connections of this host are open, or too few ports are allowed:",
            vec![
                "ss -s".to_owned(),
                "sysctl net.ipv4.ip_local_port_range net.ipv4.ip_local_reserved_ports".to_owned(),
            ],
        ),
        FetchError::Transport(_) => ("inspect what answers:", show_answer),
    }
}

/// Returns the command that shows the beginning of an answer.
fn show_answer(url: &ServerUrl) -> String {
    format!("curl -sS -i -m 10 '{url}' | head -c 2000")
}

/// Returns the command that shows all packet filters that may drop packets to a host. `pattern` matches the name of the host. The command
/// loads no kernel module.
fn show_filters(pattern: &str) -> String {
    format!(
        "for tool in 'nft list ruleset' iptables-nft-save iptables-legacy-save iptables-save; do command -v ${{tool%% *}} >/dev/null && sudo timeout 10 $tool 2>/dev/null; done | awk '/^[*]|^table /{{table=$0; chain=\"\"}} /[cC]hain /{{chain=$0}} /{pattern}|DROP|REJECT|REDIRECT|TPROXY|drop|reject|redirect|tproxy/{{if (!seen[table chain $0]++) print table, chain, $0; n++}} END{{if (!n) print \"no rule drops or redirects packets\"}}'"
    )
}

/// Adds a note to a command if its URL was printed without secrets.
fn with_whole_url(command: String, url: &ServerUrl) -> String {
    if url.has_secrets() {
        format!("{command}  # with the whole URL, as it is configured")
    } else {
        command
    }
}

/// Returns what to do about an answer that cannot be used.
fn answer_remedy(error: &AnswerError) -> &'static str {
    match error {
        AnswerError::Cut => {
            "the answer ends too early; the next ADD asks again; if it lasts, inspect the answer:"
        }
        AnswerError::Empty => {
            "Azure knows no network interface of this node: check the virtual machine in Azure; right after its start, wait a few minutes"
        }
        AnswerError::Root(_) | AnswerError::Xml(_) | AnswerError::NotXml(_) => {
            "the route is right, but something other than the wire server answers, like a proxy or a login page; inspect the answer:"
        }
        AnswerError::Declaration(_) | AnswerError::Flag(_) => "the answer is damaged; inspect it:",
        AnswerError::TooMany(..) => {
            "an interface of Azure has at most 256 addresses, so something else may answer; inspect the answer:"
        }
    }
}

/// Returns the host of a URL.
fn host_in(url: &str) -> &str {
    let without_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = without_scheme.split(['/', '?']).next().unwrap_or_default();
    let host_and_port = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    host_and_port.split(':').next().unwrap_or_default()
}

/// Returns whether `source` probably failed with `error` because only root may query it.
pub fn needs_root(source: &Source, error: &SourceError, is_root: bool) -> bool {
    let is_unanswered = |why: &FetchError| !matches!(why, FetchError::SlowAnswer(_));
    let is_refused = matches!(error, SourceError::Fetch(_, why) if is_unanswered(why));
    !is_root && source.is_wire_server() && is_refused
}
