//! What to do about a source that gave no pools, and about missing permissions.

use std::path::Path;

use crate::source::{FetchError, NodeError, Source, SourceError, WireError};

/// Describes the error of a source, with the remedy if it does not depend on the source.
pub fn message_with_remedy(error: &SourceError) -> String {
    match error {
        SourceError::Node { node, error: why } => {
            format!("{error}; {}", node_remedy(why, &node.kubeconfig))
        }
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

impl Remedy {
    fn new(text: impl Into<String>, commands: &[String]) -> Remedy {
        Remedy {
            text: text.into(),
            commands: commands.to_vec(),
        }
    }
}

/// What to do about `source`, which failed with `error`. `is_root` is whether this process runs as root.
pub fn source_remedy(source: &Source, error: &SourceError, is_root: bool) -> Remedy {
    match (source, error) {
        (_, SourceError::Node { node, error }) => {
            Remedy::new(node_remedy(error, &node.kubeconfig), &[])
        }
        (_, SourceError::Fetch { .. }) if needs_root(source, error, is_root) => Remedy::new(
            "on many nodes only root may ask it: run this with sudo",
            &[],
        ),
        (_, SourceError::Fetch { url, source: why }) => fetch_remedy(url, why),
        (Source::Wire(url), SourceError::Wire { source: why, .. }) => answer_remedy(url, why),
        (Source::Wire(url), SourceError::TooMany { .. }) => Remedy::new(
            "an interface of Azure has at most 256 addresses, so something else may answer; look at the answer:",
            &[format!("curl -s '{url}' | head -c 2000")],
        ),
        (_, SourceError::File { path, .. } | SourceError::Lock { path, .. }) => Remedy::new(
            "correct the file, or its mode:",
            &[format!("sudo ls -l {}", path.display())],
        ),
        (Source::SavedAnswer(path) | Source::InterfacesFile(path), _) => {
            Remedy::new(format!("correct {}", path.display()), &[])
        }
        (_, SourceError::Links(_)) => Remedy::new(
            "look at the interfaces of this node:",
            &["ip link".to_owned()],
        ),
        _ => Remedy::new("no action needed: the next ADD asks again", &[]),
    }
}

/// What to do about a server that did not answer with status 200.
fn fetch_remedy(url: &str, error: &FetchError) -> Remedy {
    let host = host_of(url);
    let ask = format!("curl -i '{url}'");
    let route = format!("ip route get {host}");
    match error {
        FetchError::Status(401 | 403) => Remedy::new(
            "the route is right, as something answers, but it refuses the request: it answers only requests of root on the node itself; where this is root, a proxy or a rule of the cloud stands in between; look at the answer:",
            &[ask],
        ),
        FetchError::Status(300..=399) => Remedy::new(
            "the route is right, but something other than the wire server answers, which never redirects: a proxy or a login page; find out what, and let requests to this address through:",
            &[ask],
        ),
        FetchError::Status(429 | 500..) => Remedy::new(
            "the route is right, but the server is in trouble; the next ADD asks again; where it lasts, Azure's side is broken: redeploy the node",
            &[ask],
        ),
        FetchError::Status(_) => Remedy::new(
            "the route is right, but what answers does not know this request: is ipam.queryUrl or AZURE_VNET_IPAM_QUERY_URL set to another server? Look at the answer:",
            &[ask],
        ),
        FetchError::TimedOut(_) => Remedy::new(
            "packets get lost: a route to a wrong device, a firewall rule that drops them, or Azure's side. The first command must name the device that leads out of the node, the second must print nothing; where both are right, redeploy the node:",
            &[route, format!("sudo iptables -S | grep -w {host}")],
        ),
        FetchError::Refused => Remedy::new(
            "its address is reached, but nothing listens: a route may lead to another machine, or a firewall rule reject it:",
            &[route, format!("sudo iptables -S | grep -w {host}")],
        ),
        FetchError::NoRoute(_) => Remedy::new(
            "remove the route that blocks it, or restore the default route; these commands show both:",
            &[format!(
                "ip route show table all | grep -E '{host}|default|blackhole|unreachable|prohibit'"
            )],
        ),
        FetchError::Transport(_) => Remedy::new("look at what answers:", &[ask]),
    }
}

/// What to do about an answer that cannot be used.
fn answer_remedy(url: &str, error: &WireError) -> Remedy {
    let look = [format!("curl -s '{url}' | head -c 2000")];
    match error {
        WireError::Cut => Remedy::new(
            "the answer ends too early; the next ADD asks again; where it lasts, look at the answer:",
            &look,
        ),
        WireError::Empty => Remedy::new(
            "Azure knows no network interface of this node: look at the virtual machine in Azure; right after a start this ends by itself",
            &look,
        ),
        WireError::Root(_) | WireError::Xml(_) => Remedy::new(
            "the route is right, but something other than the wire server answers, like a proxy or a login page; look at the answer:",
            &look,
        ),
        WireError::Declaration(_) | WireError::Flag(_) => {
            Remedy::new("the answer is damaged; look at it:", &look)
        }
    }
}

/// The host of a URL.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let end = rest.find(['/', ':', '?']).unwrap_or(rest.len());
    rest.get(..end).unwrap_or(rest)
}

/// Whether `source` failed with `error` probably because only root may query it.
pub fn needs_root(source: &Source, error: &SourceError, is_root: bool) -> bool {
    !is_root && source.is_wire_server() && matches!(error, SourceError::Fetch { .. })
}

/// What to do about a node object that gave no pools. `kubeconfig` is its path.
#[cfg(not(feature = "tls"))]
pub fn node_remedy(_: &NodeError, _: &Path) -> String {
    "install one that was built with it, as the default one is".to_owned()
}

/// What to do about a node object that gave no pools: one sentence that names the files and what to type. `kubeconfig` is its path.
#[cfg(feature = "tls")]
pub fn node_remedy(error: &NodeError, kubeconfig: &Path) -> String {
    let file = kubeconfig.display();
    match error {
        NodeError::NoKubeconfig(_) => "set ipam.kubeconfig to the one of the kubelet, which `ps -o args= -C kubelet` names; if it is that one, the kubelet has not joined the cluster yet: `journalctl -u kubelet` says why".to_owned(),
        NodeError::Unreadable { path, denied: true, .. } => {
            format!("only those whom `ls -l {}` shows may read it: run this as root, as container runtimes do", path.display())
        }
        NodeError::Unreadable { what: "kubeconfig", path, .. } => {
            format!("it must be a regular file of at most 1 MiB: look at `ls -l {}`", path.display())
        }
        NodeError::Unreadable { what, path, .. } => {
            format!("correct {what} in {file}, or put the file back: look at `ls -l {}`", path.display())
        }
        NodeError::BadKubeconfig(_) => format!(
            "correct it until `kubectl config view --minify --kubeconfig {file}` shows a cluster with a server https://HOST:PORT, and a user; `kubectl config get-contexts --kubeconfig {file}` lists the contexts, and `kubectl config use-context NAME --kubeconfig {file}` chooses one"
        ),
        NodeError::Unverifiable { cluster, .. } => format!(
            "`kubectl config set-cluster {cluster} --insecure-skip-tls-verify=false --certificate-authority FILE --kubeconfig {file}` sets the cluster's own, often /etc/kubernetes/certs/ca.crt or /etc/kubernetes/pki/ca.crt"
        ),
        NodeError::Unsupported { .. } => "no other program is started here, and no password is sent: set ipam.kubeconfig to a kubeconfig with client-certificate and client-key, or with tokenFile".to_owned(),
        NodeError::BadCredentials { what, .. } => {
            format!("correct {what} in {file}, or the file that it names: it must be {}", credential_form(what))
        }
        NodeError::NoNodeName(_) => "set ipam.nodeName to the name that `kubectl get nodes` shows for this node".to_owned(),
        NodeError::Unreachable { server, .. } => format!(
            "`curl -k {server}/version` must answer from this node: is the server in {file} right, can `getent hosts` find it, is the API server up, and does a firewall let this node reach it?"
        ),
        NodeError::Handshake { server, .. } => format!(
            "correct the server in {file}: `openssl s_client -connect HOST:PORT` for {server} says more; TLS 1.2 and 1.3 are supported"
        ),
        NodeError::ServerExpired { .. } => "renew it on the control plane (`kubeadm certs check-expiration` where kubeadm made it); `date` must be right on this node".to_owned(),
        NodeError::ServerUntrusted { server, .. } => format!(
            "in {file}, the server or tls-server-name must be one of the certificate's names, and certificate-authority must be that of this very cluster; something between this node and {server} may also be answering in its place"
        ),
        NodeError::ClientRefused { .. } => format!(
            "it may be expired, revoked, or of another cluster: `openssl x509 -noout -issuer -dates` shows whose the client-certificate in {file} is; restart the kubelet to get a new one, and look at `journalctl -u kubelet`"
        ),
        NodeError::Status { status, server, node, .. } => status_remedy(*status, server, node, kubeconfig),
        NodeError::BadAnswer { server, .. } => is_it_kubernetes(server, kubeconfig),
        NodeError::NoRange { node, .. } => format!(
            "`kubectl get node {node} -o jsonpath='{{.spec.podCIDRs}}'` must show an IPv6 prefix, /120 or shorter: the cluster must give its nodes IPv6 ranges (--node-cidr-mask-size-ipv6 of the kube-controller-manager); a node's ranges cannot be changed, so delete the node object, and restart the kubelet to recreate it"
        ),
    }
}

#[cfg(feature = "tls")]
fn credential_form(what: &str) -> &'static str {
    match what {
        "client-certificate" => {
            "certificates in PEM, whose key is client-key; one file may hold both"
        }
        "client-key" => {
            "a private key in PEM (PKCS #8, PKCS #1 or SEC 1; RSA, ECDSA or Ed25519) without password, and that of client-certificate: `openssl x509 -noout -pubkey` of the one and `openssl pkey -pubout` of the other print the same"
        }
        "tokenFile" | "token" => "one line of visible ASCII characters",
        _ => "certificates in PEM",
    }
}

#[cfg(feature = "tls")]
fn status_remedy(status: u16, server: &str, node: &str, kubeconfig: &Path) -> String {
    let file = kubeconfig.display();
    match status {
        401 => format!(
            "it does not know the client-certificate or token of {file}, or they are expired: restart the kubelet to get new ones; `kubectl get node {node} --kubeconfig {file}` must answer"
        ),
        403 => format!(
            "a kubelet may read its own node only: set ipam.nodeName to the name that the user of {file} has behind system:node:, or let an RBAC role give that user `get` of `nodes`"
        ),
        404 => format!(
            "where the node has another name than the host, set ipam.nodeName to the one that `kubectl get nodes` shows; {node} is what was asked for"
        ),
        500.. | 429 => format!(
            "the API server is in trouble; `kubectl get --raw /readyz --kubeconfig {file}` tells when it is well again"
        ),
        _ => is_it_kubernetes(server, kubeconfig),
    }
}

#[cfg(feature = "tls")]
fn is_it_kubernetes(server: &str, kubeconfig: &Path) -> String {
    format!(
        "is {server} really a Kubernetes API? `kubectl get --raw /version --kubeconfig {}` must answer",
        kubeconfig.display()
    )
}

/// The rows of the documentation's table of what can go wrong with the Kubernetes API: message and remedy.
#[cfg(feature = "tls")]
#[doc(hidden)]
pub fn kubernetes_table() -> Vec<(String, String)> {
    let file = Path::new("FILE");
    let rows = NodeError::examples().into_iter();
    rows.map(|error| (error.to_string(), node_remedy(&error, file)))
        .collect()
}
