//! What to do about a source that gave no pools, and about missing permissions.

use crate::cni::ServerUrl;
use crate::source::{AnswerError, FetchError, Source, SourceError};

/// Describes the error of a source, with the remedy if it does not depend on the source.
pub fn message_with_remedy(error: &SourceError) -> String {
    match error {
        SourceError::Node(_, why) => format!("{error}; {}", why.remedy()),
        _ => error.to_string(),
    }
}

/// What to do about a missing permission.
pub const SUDO_REMEDY: &str = "run it with sudo";

/// What to do about a source that cannot be chosen.
pub const ENVIRONMENT_REMEDY: &str = "unset or correct AZURE_VNET_IPAM_QUERY_URL";

/// What to do about a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remedy {
    /// The cause as far as it is known, and what to do, without full stop.
    pub text: String,
    /// The commands to type.
    pub commands: Vec<String>,
}

/// What to do about `source`, which failed with `error`. `is_root` is whether this process runs as
/// root.
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
            vec![with_whole_url(
                format!("curl -s '{url}' | head -c 2000"),
                url,
            )],
        ),
        (_, SourceError::File(path, _))
        | (Source::SavedAnswer(path) | Source::InterfacesFile(path), _) => (
            "correct the file, or its mode:",
            vec![format!("sudo ls -l {}", path.display())],
        ),
        (_, SourceError::Links(_)) => (
            "look at the interfaces of this node:",
            vec!["ip link".to_owned()],
        ),
        _ => ("no action needed: the next ADD asks again", vec![]),
    };
    Remedy {
        text: text.to_owned(),
        commands,
    }
}

/// What to do about a server that did not answer with status 200, and the commands to type.
fn fetch_remedy(url: &ServerUrl, error: &FetchError) -> (&'static str, Vec<String>) {
    let host = host_of(url.whole());
    let show_answer = vec![with_whole_url(format!("curl -i '{url}'"), url)];
    let show_path_of_packets = vec![
        format!("ip route get {host}"),
        format!("sudo iptables -S | grep -w {host}"),
    ];
    let show_routes = vec![format!(
        "ip route show table all | grep -E '{host}|default|blackhole|unreachable|prohibit'"
    )];
    match error {
        FetchError::Status(401 | 403) => (
            "the route is right, as something answers, but it refuses the request: it answers only requests of root on the node itself; where this is root, a proxy or a rule of the cloud stands in between; look at the answer:",
            show_answer,
        ),
        FetchError::Status(300..=399) => (
            "the route is right, but something other than the wire server answers, which never redirects: a proxy or a login page; find out what, and let requests to this address through:",
            show_answer,
        ),
        FetchError::Status(429 | 500..) => (
            "the route is right, but the server is in trouble; the next ADD asks again; where it lasts, Azure's side is broken: redeploy the node",
            show_answer,
        ),
        FetchError::Status(_) => (
            "the route is right, but what answers does not know this request: is ipam.queryUrl or AZURE_VNET_IPAM_QUERY_URL set to another server? Look at the answer:",
            show_answer,
        ),
        FetchError::TimedOut(_) => (
            "packets get lost: a route to a wrong device, a firewall rule that drops them, or Azure's side. The first command must name the device that leads out of the node, the second must print nothing; where both are right, redeploy the node:",
            show_path_of_packets,
        ),
        FetchError::Refused => (
            "its address is reached, but nothing listens: a route may lead to another machine, or a firewall rule reject it:",
            show_path_of_packets,
        ),
        FetchError::NoRoute(_) => (
            "remove the route that blocks it, or restore the default route; these commands show both:",
            show_routes,
        ),
        FetchError::Transport(_) => ("look at what answers:", show_answer),
    }
}

/// Says where the secrets of a URL come from, which a command lacks.
fn with_whole_url(command: String, url: &ServerUrl) -> String {
    if url.has_secrets() {
        format!("{command}  # with the whole URL, as it is configured")
    } else {
        command
    }
}

/// What to do about an answer that cannot be used.
fn answer_remedy(error: &AnswerError) -> &'static str {
    match error {
        AnswerError::Cut => {
            "the answer ends too early; the next ADD asks again; where it lasts, look at the answer:"
        }
        AnswerError::Empty => {
            "Azure knows no network interface of this node: look at the virtual machine in Azure; right after a start this ends by itself"
        }
        AnswerError::Root(_) | AnswerError::Xml(_) => {
            "the route is right, but something other than the wire server answers, like a proxy or a login page; look at the answer:"
        }
        AnswerError::Declaration(_) | AnswerError::Flag(_) => "the answer is damaged; look at it:",
        AnswerError::TooMany(..) => {
            "an interface of Azure has at most 256 addresses, so something else may answer; look at the answer:"
        }
    }
}

/// Returns the host of a URL.
fn host_of(url: &str) -> &str {
    let without_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = without_scheme.split(['/', '?']).next().unwrap_or_default();
    let host_and_port = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    host_and_port.split(':').next().unwrap_or_default()
}

/// Returns whether `source` probably failed with `error` because only root may query it.
pub fn needs_root(source: &Source, error: &SourceError, is_root: bool) -> bool {
    !is_root && source.is_wire_server() && matches!(error, SourceError::Fetch(..))
}
