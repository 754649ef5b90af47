//! What to do about a node object that gave no pools.

use std::path::Path;

use super::error::{Fault, Means, NodeError};

impl NodeError {
    /// What to do, in one sentence that names the files and what to type. `kubeconfig` is where that is.
    pub fn remedy(&self, kubeconfig: &Path) -> String {
        let file = kubeconfig.display();
        match self {
            NodeError::NoKubeconfig(_) => "set ipam.kubeconfig to the one of the kubelet, which `ps -o args= -C kubelet` names; where that is the one, the kubelet has not joined the cluster yet: `journalctl -u kubelet` tells why".to_owned(),
            NodeError::Unreadable { path, denied: true, .. } => {
                format!("only those whom `ls -l {}` shows may read it: run this as root, as container runtimes do", path.display())
            }
            NodeError::Unreadable { what: "kubeconfig", path, .. } => {
                format!("it must be a regular file of at most 1 MiB: look at `ls -l {}`", path.display())
            }
            NodeError::Unreadable { what, path, .. } => {
                format!("correct {what} in {file}, or put the file back: look at `ls -l {}`", path.display())
            }
            NodeError::NotYaml(_) => format!("correct it until `kubectl config view --kubeconfig {file}` reads it"),
            NodeError::NoCurrentContext | NodeError::Unknown { kind: "context", .. } => {
                format!("`kubectl config get-contexts --kubeconfig {file}` lists the contexts, and `kubectl config use-context NAME --kubeconfig {file}` chooses one")
            }
            NodeError::Unknown { kind, .. } => {
                format!("let the current context name one that is there: `kubectl config set-context --current --{kind} NAME --kubeconfig {file}`")
            }
            NodeError::NoServer(cluster) => {
                format!("`kubectl config set-cluster {cluster} --server https://HOST:PORT --kubeconfig {file}` sets it")
            }
            NodeError::BadServer(_) => format!("correct the server in {file}"),
            NodeError::SkipsVerification(cluster) | NodeError::NoAuthority(cluster) => {
                format!("`kubectl config set-cluster {cluster} --insecure-skip-tls-verify=false --certificate-authority FILE --kubeconfig {file}` sets the cluster's own, often /etc/kubernetes/certs/ca.crt or /etc/kubernetes/pki/ca.crt")
            }
            NodeError::BadServerName(_) => format!("correct tls-server-name in {file}, or remove it"),
            NodeError::InClear { .. } => format!("let the server in {file} begin with https://"),
            NodeError::Unsupported { means: Means::Exec, .. } => {
                "no other program is started here: name a kubeconfig with client-certificate and client-key, or with tokenFile, in ipam.kubeconfig".to_owned()
            }
            NodeError::Unsupported { .. } => {
                "name a kubeconfig with client-certificate and client-key, or with tokenFile, in ipam.kubeconfig".to_owned()
            }
            NodeError::Malformed { what, .. } => {
                format!("it must be {}: correct {what} in {file}, or the file that it names", must_be(what))
            }
            NodeError::Half { lacks, .. } => format!("add {lacks} to the user in {file}; one file may hold both"),
            NodeError::KeyMismatch { .. } => {
                format!("correct client-certificate and client-key in {file}, so that `openssl x509 -noout -pubkey` of the one and `openssl pkey -pubout` of the other print the same")
            }
            NodeError::ClientExpired { .. } => {
                "the kubelet renews it while it runs: `journalctl -u kubelet` tells why it did not, and `date` must be right".to_owned()
            }
            NodeError::BadName(_) => "set ipam.nodeName to the name that `kubectl get nodes` shows for this node".to_owned(),
            NodeError::NoHostName(_) => "set ipam.nodeName".to_owned(),
            NodeError::NoSuchHost { .. } => {
                format!("`getent hosts NAME` must find the server named in {file}: correct that, /etc/resolv.conf or /etc/hosts")
            }
            NodeError::Unreachable { server, .. } | NodeError::TimedOut { server, .. } => {
                format!("`curl -k {server}/version` must answer from this node: is the API server up, and does a firewall let this node reach it?")
            }
            NodeError::NotTls(server) => {
                format!("correct the server in {file}; `curl -k {server}/version` must answer")
            }
            NodeError::Handshake { server, .. } => {
                format!("`openssl s_client -connect HOST:PORT` for {server} tells more; TLS 1.2 and 1.3 are spoken here")
            }
            NodeError::ServerCertificate { server, fault } => of_server(server, fault, kubeconfig),
            NodeError::ClientRefused { .. } => {
                format!("it may be revoked, or of another cluster: `openssl x509 -noout -issuer -dates` shows whose the client-certificate in {file} is; restart the kubelet to get a new one")
            }
            NodeError::Status { status, server, node, .. } => of_status(*status, server, node, kubeconfig),
            NodeError::BadAnswer { server, .. } => {
                format!("is {server} really a Kubernetes API? `kubectl get --raw /version --kubeconfig {file}` must answer")
            }
            NodeError::NoIpv6 { node, .. } => {
                format!("only clusters with IPv6 give their nodes such a range: `kubectl get node {node} -o jsonpath='{{.spec.podCIDRs}}'` must show it; else use another ipam.environment")
            }
            NodeError::BadRange { node, .. } => {
                format!("look at `kubectl get node {node} -o jsonpath='{{.spec.podCIDRs}}'`; a node's ranges cannot be changed, so delete the node object, and restart the kubelet to make it anew")
            }
            NodeError::SmallRange { .. } => {
                "give the cluster's nodes larger ranges: --node-cidr-mask-size-ipv6 of the kube-controller-manager may be 120 at most".to_owned()
            }
        }
    }
}

fn must_be(what: &str) -> &'static str {
    match what {
        "client-key" => {
            "a private key in PEM: PKCS #8, PKCS #1 or SEC 1, RSA, ECDSA or Ed25519, without password"
        }
        "tokenFile" | "token" => "one line of visible ASCII characters",
        _ => "certificates in PEM",
    }
}

fn of_server(server: &str, fault: &Fault, kubeconfig: &Path) -> String {
    let file = kubeconfig.display();
    match fault {
        Fault::Expired(_) | Fault::NotYet(_) => {
            "renew it on the control plane (`kubeadm certs check-expiration` where kubeadm made it); `date` must be right on this node".to_owned()
        }
        Fault::Name { .. } => {
            format!("let the server in {file} be one of the certificate's names, or set tls-server-name to one of them there")
        }
        Fault::Authority(authority) => {
            format!("the certificate-authority {authority} must be that of this very cluster: correct it in {file}; something between this node and {server} may also be answering in its place")
        }
        Fault::Other(_) => format!("`openssl s_client -showcerts -connect HOST:PORT` shows the certificate of {server}"),
    }
}

fn of_status(status: u16, server: &str, node: &str, kubeconfig: &Path) -> String {
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
        _ => format!(
            "is {server} really a Kubernetes API? `kubectl get --raw /version --kubeconfig {file}` must answer"
        ),
    }
}
