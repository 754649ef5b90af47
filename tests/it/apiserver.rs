//! A real kube-apiserver with etcd. The plugin asks it for the node's range, with a kubelet's certificate or a token.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use serde_json::{Value, json};

use crate::harness::wait::{Process, output, watched};
use crate::harness::{Node, Outcome, conf, merged, package};
use crate::kubernetes::kubeconfig;

/// The node of testdata/node.json.
const SAVED: &str = "aks-nodepool1-31718369-vmss000000";

/// The nodes with a certificate. All tests share one server, so each test has its own nodes.
const NODES: [&str; 3] = [SAVED, "authz", "token"];

const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
const CA: &str = "/etc/kubernetes/certs/ca.crt";

/// The identity of a request.
pub enum As<'a> {
    /// An administrator.
    Admin,
    /// The kubelet of a node.
    Kubelet(&'a str),
    /// The holder of this token.
    Token(&'a str),
    Nobody,
}

/// A running API server. It ends when its stdin is closed, so it also ends when this process is killed.
pub struct ApiServer {
    pub folder: PathBuf,
    process: Option<Process>,
    /// `https://127.0.0.1:PORT`
    pub url: String,
}

impl ApiServer {
    /// The server that all parallel tests share, because it takes seconds to start.
    fn shared() -> Arc<ApiServer> {
        static SHARED: Mutex<Weak<ApiServer>> = Mutex::new(Weak::new());
        // The test that failed to start the server has reported the reason.
        let mut shared = SHARED.lock().unwrap_or_else(|e| e.into_inner());
        shared.upgrade().unwrap_or_else(|| {
            let started = Arc::new(ApiServer::start(&NODES));
            *shared = Arc::downgrade(&started);
            started
        })
    }

    /// Starts a server that has certificates for these nodes.
    pub fn start(nodes: &[&str]) -> ApiServer {
        // A previous server may still be stopping.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("azure-vnet-ipam-apiserver-{}-{n}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        let mut command = Command::new(package().join("tests/apiserver/run"));
        command.arg(&folder).args(nodes);
        let mut process = Process::start_piped(&mut command);
        let stdout = process.child().stdout.take().unwrap();
        let lines = watched("kube-apiserver to be ready", || {
            let lines = BufReader::new(stdout).lines().map(Result::unwrap);
            lines
                .take_while(|line| line != "READY=1")
                .collect::<Vec<_>>()
        });
        let url = lines.iter().find_map(|line| line.strip_prefix("SERVER="));
        let Some(url) = url else {
            panic!("{}", String::from_utf8_lossy(&process.output().stderr));
        };
        ApiServer {
            folder,
            process: Some(process),
            url: url.to_owned(),
        }
    }

    /// Sends a request and returns status and body.
    pub fn ask(&self, who: As, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let (status, text) = self.ask_text(who, method, path, body);
        let json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}: {text}"));
        (status, json)
    }

    pub fn ask_text(
        &self,
        who: As,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> (u16, String) {
        let mut curl = Command::new("curl");
        curl.args("-sS --max-time 30 -w %{http_code} -X".split(' '))
            .args([method, "--cacert"])
            .arg(self.folder.join("ca.crt"))
            .arg(format!("{}{path}", self.url));
        let certificate = |name: &str| self.folder.join(format!("{name}.pem"));
        // The server records this name as field manager.
        let agent = match who {
            As::Kubelet(node) => {
                curl.arg("--cert").arg(certificate(node));
                "kubelet/v1.34.4"
            }
            As::Admin => {
                curl.arg("--cert").arg(certificate("admin"));
                "kube-controller-manager/v1.34.4"
            }
            As::Token(token) => {
                curl.args(["-H", &format!("Authorization: Bearer {token}")]);
                "curl"
            }
            As::Nobody => "curl",
        };
        curl.args(["-A", agent]);
        if let Some(body) = body {
            let kind = match method {
                "PATCH" => "application/strategic-merge-patch+json",
                _ => "application/json",
            };
            curl.args(["-H", &format!("Content-Type: {kind}")]);
            curl.args(["-d", &body.to_string()]);
        }
        let output = output(&mut curl);
        assert!(output.status.success(), "{method} {path}: {output:?}");
        let mut text = String::from_utf8(output.stdout).unwrap();
        let status = text.split_off(text.len() - 3).parse().unwrap();
        (status, text)
    }

    pub fn request_successfully(&self, who: As, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(who, method, path, Some(body));
        assert!(
            (200..300).contains(&status),
            "{method} {path}: {status} {answer}"
        );
        answer
    }

    /// Creates a node object as a cluster does: the kubelet registers it, a controller assigns the ranges.
    fn register_node(&self, node: &str, ranges: &[&str]) {
        let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node } });
        self.request_successfully(As::Kubelet(node), "POST", "/api/v1/nodes", &object);
        self.assign_ranges(node, ranges);
    }

    fn assign_ranges(&self, node: &str, ranges: &[&str]) {
        let spec = json!({ "spec": { "podCIDR": ranges[0], "podCIDRs": ranges } });
        self.request_successfully(As::Admin, "PATCH", &object(node), &spec);
    }

    fn delete(&self, node: &str) {
        self.request_successfully(As::Admin, "DELETE", &object(node), &json!({}));
    }

    /// The token of a service account that may read nodes.
    fn service_account_token(&self, account: &str) -> String {
        const ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        let metadata = json!({ "name": account });
        let made = [
            (ACCOUNTS.to_owned(), json!({ "metadata": metadata })),
            (
                format!("{RBAC}/clusterroles"),
                json!({
                    "metadata": metadata,
                    "rules": [{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] }],
                }),
            ),
            (
                format!("{RBAC}/clusterrolebindings"),
                json!({
                    "metadata": metadata,
                    "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account },
                    "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": "kube-system" }],
                }),
            ),
        ];
        for (path, body) in made {
            self.request_successfully(As::Admin, "POST", &path, &body);
        }
        let path = format!("{ACCOUNTS}/{account}/token");
        let asked = json!({ "spec": { "expirationSeconds": 3600 } });
        let answer = self.request_successfully(As::Admin, "POST", &path, &asked);
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    /// A node whose kubelet joined the cluster: kubeconfig, current certificate, and the cluster's CA.
    fn join_node(&self, name: &str) -> Node {
        let node = Node::new(name);
        node.put("/proc/sys/kernel/hostname", format!("{name}\n"));
        node.put(CA, fs::read(self.folder.join("ca.crt")).unwrap());
        const PKI: &str = "/var/lib/kubelet/pki";
        let rotated = "kubelet-client-2026-01-31-09-26-53.pem";
        let certificate = fs::read(self.folder.join(format!("{name}.pem"))).unwrap();
        node.put(&format!("{PKI}/{rotated}"), certificate);
        let current = format!("{PKI}/kubelet-client-current.pem");
        symlink(rotated, node.path(&current)).unwrap();
        let kubeconfig = kubeconfig(
            &json!({ "server": self.url, "certificate-authority": CA }),
            &json!({ "client-certificate": current, "client-key": current }),
        );
        node.put(KUBECONFIG, kubeconfig);
        node
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        let mut process = self.process.take().unwrap();
        drop(process.child().stdin.take());
        process.status();
        if std::thread::panicking() {
            println!("the files of kube-apiserver are in {:?}", self.folder);
        } else {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

fn object(node: &str) -> String {
    format!("/api/v1/nodes/{node}")
}

/// Runs an ADD of the IPv6 plugin with these additional keys of `ipam`.
fn add(node: &Node, id: &str, more: Value) -> Outcome {
    let ipam = json!({ "environment": "ipv6NodeIpam" });
    node.call("ADD", id)
        .stdin(conf("1.0.0", merged(ipam, more)))
        .run()
}

/// The address of a result, with its prefix length.
fn address_of(outcome: &Outcome) -> String {
    let result = outcome.success().json();
    result["ips"][0]["address"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs etcd, kube-apiserver, openssl and curl"]
fn real_server_answers_like_a_cluster() {
    let server = ApiServer::shared();
    server.register_node("authz", &["10.244.1.0/24", "fd00:10:244:1::/64"]);
    let own = As::Kubelet("authz");
    let (status, node) = server.ask(own, "GET", &object("authz"), None);
    assert_eq!(status, 200, "{node}");
    assert_eq!(
        node["spec"]["podCIDRs"],
        json!(["10.244.1.0/24", "fd00:10:244:1::/64"])
    );
    let token = server.service_account_token("authz");
    let (status, seen) = server.ask(As::Token(&token), "GET", &object("authz"), None);
    assert_eq!((status, &seen["spec"]), (200, &node["spec"]));
    let fail = |who: As, name: &str| {
        let (status, answer) = server.ask(who, "GET", &object(name), None);
        assert_eq!(answer["kind"], "Status", "{answer}");
        (status, answer["message"].as_str().unwrap().to_owned())
    };
    let (status, message) = fail(As::Kubelet("authz"), "other");
    assert_eq!(status, 403);
    assert!(message.contains("only its own Node object"), "{message}");
    assert_eq!(fail(As::Nobody, "authz").0, 403);
    assert_eq!(
        fail(As::Token("nonsense"), "authz"),
        (401, "Unauthorized".into())
    );
    server.delete("authz");
    let unknown = (404, r#"nodes "authz" not found"#.to_owned());
    assert_eq!(fail(As::Kubelet("authz"), "authz"), unknown);
}

/// Removes the values of a node object that differ in each run, and sorts the managed fields. The server sorts
/// managers by time in whole seconds, so their order varies.
fn without_volatile_fields(mut node: Value) -> Value {
    let metadata = &mut node["metadata"];
    for key in ["uid", "resourceVersion", "creationTimestamp"] {
        assert!(metadata[key].take().is_string(), "{key}");
    }
    let managers = metadata["managedFields"].as_array_mut().unwrap();
    for manager in managers.iter_mut() {
        assert!(manager["time"].take().is_string(), "{manager}");
    }
    managers.sort_by_key(Value::to_string);
    node
}

#[test]
#[ignore = "needs etcd, kube-apiserver, openssl and curl"]
fn saved_node_object_matches_the_real_server() {
    let server = ApiServer::shared();
    let saved = fs::read(package().join("testdata/node.json")).unwrap();
    let values: Value = serde_json::from_slice(&saved).unwrap();
    assert_eq!(values["metadata"]["name"], SAVED);
    // The server adds the second taint to the node object.
    let registered = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": SAVED,
            "labels": values["metadata"]["labels"],
            "annotations": values["metadata"]["annotations"],
        },
        "spec": {
            "providerID": values["spec"]["providerID"],
            "taints": [values["spec"]["taints"][0]],
        },
    });
    let kubelet = || As::Kubelet(SAVED);
    server.request_successfully(kubelet(), "POST", "/api/v1/nodes", &registered);
    server.assign_ranges(SAVED, &["10.244.3.0/24", "fd00:10:244:3::/64"]);
    let reported = json!({ "status": values["status"] });
    let path = format!("{}/status", object(SAVED));
    server.request_successfully(kubelet(), "PATCH", &path, &reported);
    let (status, printed) = server.ask_text(kubelet(), "GET", &object(SAVED), None);
    assert_eq!(status, 200);
    let seen = serde_json::from_str(&printed).unwrap();
    if without_volatile_fields(seen) != without_volatile_fields(values) {
        let actual = std::env::temp_dir().join("azure-vnet-ipam-node.json");
        fs::write(&actual, printed).unwrap();
        panic!("testdata/node.json is not what the server prints; that is in {actual:?}");
    }
    let node = server.join_node(SAVED);
    // Host names may have upper-case letters, node names have none.
    node.put("/proc/sys/kernel/hostname", SAVED.to_uppercase());
    for (id, address) in [
        ("c1", "fd00:10:244:3::2/120"),
        ("c2", "fd00:10:244:3::3/120"),
    ] {
        assert_eq!(address_of(&add(&node, id, json!({}))), address);
    }
}

#[test]
#[ignore = "needs etcd, kube-apiserver, openssl and curl"]
fn service_account_token_is_accepted() {
    const TOKEN: &str = "/etc/cni/net.d/ipam.d/token";
    let server = ApiServer::shared();
    server.register_node("token", &["fd00:10:244:4::/64", "10.244.4.0/24"]);
    let node = server.join_node("token");
    node.put("/proc/sys/kernel/hostname", "another\n");
    // Installers of CNI plugins write such a kubeconfig. The server's URL has an IP address; its certificate has a
    // name.
    let kubeconfig = kubeconfig(
        &json!({ "server": server.url, "certificate-authority": CA, "tls-server-name": "kubernetes.default.svc" }),
        &json!({ "tokenFile": TOKEN }),
    );
    node.put("/etc/cni/net.d/ipam.d/kubeconfig", kubeconfig);
    fs::remove_file(node.path(KUBECONFIG)).unwrap();
    let wanted = json!({ "kubeconfig": "/etc/cni/net.d/ipam.d/kubeconfig", "nodeName": "token" });
    node.put(TOKEN, "nonsense\n");
    let outcome = add(&node, "c1", wanted.clone());
    outcome.error();
    assert!(outcome.stdout.contains("status 401: Unauthorized"));
    assert!(!outcome.stdout.contains("nonsense"), "{outcome:?}");
    node.put(TOKEN, server.service_account_token("ipam"));
    assert_eq!(
        address_of(&add(&node, "c1", wanted)),
        "fd00:10:244:4::2/120"
    );
}
