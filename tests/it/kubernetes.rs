//! The environment `ipv6NodeIpam`. Its pools come from the node object of a test server with real TLS.

mod certificates;
mod errors;
mod server;

use std::fs;
use std::ops::Range;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Node, Outcome, conf, merged};
use certificates::{Authority, Key, Pair, base64};
use server::{Api, Play, TOKEN, Tls};

/// The years in which the certificates are valid.
const GOOD: Range<i32> = 2000..2090;

/// The default path of the kubeconfig.
const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";

/// A cluster with one node.
struct Cluster {
    authority: Authority,
    client: Pair,
    api: Api,
    node: Node,
}

impl Cluster {
    fn new(name: &str, tls: Tls) -> Cluster {
        let authority = Authority::new("kubernetes");
        let own = authority.server(&["127.0.0.1", "kubernetes.default"], GOOD);
        Cluster::with(name, authority, &own, tls)
    }

    fn with(name: &str, authority: Authority, own: &Pair, tls: Tls) -> Cluster {
        let node = Node::new(name);
        node.put("/proc/sys/kernel/hostname", "Node1\n");
        let cluster = Cluster {
            client: authority.client(Key::EcPkcs8, GOOD),
            api: Api::new(&authority, own, tls),
            authority,
            node,
        };
        let node = &cluster.node;
        node.put("/etc/kubernetes/certs/ca.crt", cluster.authority.pem());
        node.put(
            "/var/lib/kubelet/pki/current.pem",
            cluster.client.combined_pem(),
        );
        node.put(KUBECONFIG, cluster.kubeconfig(json!({}), json!({})));
        cluster
    }

    /// A kubelet's kubeconfig. Merges these members into its cluster and user; `null` removes a member.
    fn kubeconfig(&self, cluster: Value, user: Value) -> String {
        let cluster = merged(
            json!({ "server": self.api.url(), "certificate-authority": "/etc/kubernetes/certs/ca.crt" }),
            cluster,
        );
        let user = merged(
            json!({ "client-certificate": "pki/current.pem", "client-key": "/var/lib/kubelet/pki/current.pem" }),
            user,
        );
        kubeconfig(&cluster, &user)
    }

    fn put(&self, cluster: Value, user: Value) {
        self.node.put(KUBECONFIG, self.kubeconfig(cluster, user));
    }

    /// Writes a kubeconfig with a token and no certificate.
    fn put_token(&self, cluster: Value, token: Value) {
        let none = json!({ "client-certificate": null, "client-key": null });
        self.put(cluster, merged(none, token));
    }

    fn add(&self, container_id: &str) -> Outcome {
        self.add_with(container_id, json!({}))
    }

    fn add_with(&self, container_id: &str, ipam: Value) -> Outcome {
        let call = self.node.call("ADD", container_id);
        call.stdin(netconf(ipam)).run()
    }

    fn del(&self, container_id: &str) {
        let call = self.node.call("DEL", container_id);
        call.stdin(netconf(json!({}))).run().assert_no_output();
    }
}

fn netconf(ipam: Value) -> String {
    conf(
        "1.0.0",
        merged(json!({ "environment": "ipv6NodeIpam" }), ipam),
    )
}

/// A kubeconfig whose cluster and user have these members.
pub fn kubeconfig(cluster: &Value, user: &Value) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: localcluster\n  cluster: {cluster}\nusers:\n- name: client\n  user: {user}\ncontexts:\n- context:\n    cluster: localcluster\n    user: client\n  name: localclustercontext\ncurrent-context: localclustercontext\n"
    )
}

/// Creates a Kubernetes API and, below `root`, the files of a kubelet that joined its cluster. The node is node1 and
/// has this IPv6 range.
pub fn joined_below(root: &Path, range: &str) -> Api {
    let authority = Authority::new("kubernetes");
    let own = authority.server(&["127.0.0.1"], GOOD);
    let api = Api::new(&authority, &own, Tls::Strict);
    api.set(Play::Node(vec!["10.244.3.0/24", range.to_owned().leak()]));
    let folder = root.join("var/lib/kubelet");
    fs::create_dir_all(folder.join("pki")).unwrap();
    let client = authority.client(Key::EcPkcs8, GOOD).combined_pem();
    fs::write(folder.join("pki/kubelet-client-current.pem"), client).unwrap();
    let ca = base64(authority.pem().as_bytes());
    let own = "/var/lib/kubelet/pki/kubelet-client-current.pem";
    let kubeconfig = kubeconfig(
        &json!({ "server": api.url(), "certificate-authority-data": ca }),
        &json!({ "client-certificate": own, "client-key": own }),
    );
    fs::write(folder.join("kubeconfig"), kubeconfig).unwrap();
    api
}

#[test]
fn pod_gets_an_address_of_the_node_range() {
    let cluster = Cluster::new("kube", Tls::Usual);
    let result = cluster.add("c1").json();
    assert_eq!(result["ips"][0]["address"], "fd00:10:244:3::2/120");
    assert_eq!(result["ips"][0]["gateway"], "fd00:10:244:3::1");
    assert_eq!(result["routes"][0]["dst"], "::/0");
    assert_eq!(cluster.add("c2").address(), "fd00:10:244:3::3");
    let pools = &cluster.node.state()["IPAM"]["AddressSpaces"]["local"]["Pools"];
    let pool = &pools["fd00:10:244:3::/120"];
    assert_eq!(pools.as_object().unwrap().len(), 1);
    assert_eq!(
        [&pool["IfName"], &pool["Priority"]],
        [&json!(""), &json!(0)]
    );
    assert_eq!(pool["Addresses"].as_object().unwrap().len(), 254);
    // Check the request of the plugin.
    let requests = cluster.api.requests();
    assert_eq!(requests.len(), 2);
    let head = requests[0].to_lowercase();
    let begin = "get /api/v1/nodes/node1 http/1.1\r\n";
    for words in [
        begin,
        "accept: application/json\r\n",
        "user-agent: azure-vnet-ipam/",
    ] {
        assert!(head.contains(words), "{words} {head}");
    }
    assert!(
        !head.contains("gzip") && !head.contains("authorization"),
        "{head}"
    );
    cluster.del("c1");
    assert_eq!(cluster.api.connections(), 2, "a DEL asks nobody");
}

#[test]
fn client_keys_work_from_files_and_from_the_kubeconfig() {
    for tls in [Tls::Strict, Tls::Old] {
        let cluster = Cluster::new("kubekeys", tls);
        for key in [
            Key::EcPkcs8,
            Key::EcSec1,
            Key::Ed25519,
            Key::RsaPkcs8,
            Key::RsaPkcs1,
        ] {
            let pair = cluster.authority.client(key, GOOD);
            let node = &cluster.node;
            node.put("/etc/k/client.crt", &pair.certificate);
            node.put("/etc/k/client.key", &pair.key);
            let files = json!({ "client-certificate": "/etc/k/client.crt", "client-key": "/etc/k/client.key" });
            cluster.put(json!({}), files);
            cluster.add("c1").success();
            node.put("/var/lib/kubelet/pki/one.pem", pair.combined_pem());
            let one = json!({ "client-certificate": "pki/one.pem", "client-key": "pki/one.pem" });
            cluster.put(json!({}), one);
            cluster.add("c1").success();
            // Inline data takes precedence over files.
            let data = json!({
                "client-certificate": "/none", "client-certificate-data": base64(pair.certificate.as_bytes()),
                "client-key": "/none", "client-key-data": base64(pair.key.as_bytes()),
            });
            let ca = json!({ "certificate-authority": "/none", "certificate-authority-data": base64(cluster.authority.pem().as_bytes()) });
            cluster.put(ca, data);
            cluster.add("c1").success();
        }
        assert_eq!(cluster.api.requests().len(), 15, "{tls:?}");
        assert!(!cluster.node.log().contains("Source refresh failed"));
    }
}

#[test]
fn current_token_is_sent() {
    let cluster = Cluster::new("kubetoken", Tls::Usual);
    cluster.put_token(json!({}), json!({ "token": TOKEN }));
    cluster.add("c1").success();
    cluster
        .node
        .put("/var/run/secrets/token", format!("{TOKEN}\n"));
    let both = json!({ "token": "old", "tokenFile": "/var/run/secrets/token" });
    cluster.put_token(json!({}), both);
    cluster.add("c1").success();
    let requests = cluster.api.requests();
    assert_eq!(requests.len(), 2);
    for head in requests {
        let is_sent = |line: &str| {
            line.to_lowercase().starts_with("authorization:")
                && line.ends_with(&format!(" Bearer {TOKEN}"))
        };
        assert!(head.lines().any(is_sent), "{head}");
    }
    assert!(!cluster.node.log().contains("Source refresh failed"));
    assert!(!cluster.node.log().contains(TOKEN), "it stands nowhere");
}

#[test]
fn kubeconfig_is_found_in_order_of_precedence() {
    let mut cluster = Cluster::new("kubeplaces", Tls::Usual);
    let certificate = json!({ "client-certificate": "/var/lib/kubelet/pki/current.pem" });
    let good = cluster.kubeconfig(json!({}), certificate);
    let missing = |outcome: &Outcome, path: &str| {
        let words = format!("{path} does not exist");
        assert!(outcome.stdout.contains(&words), "{outcome:?}");
    };
    fs::remove_file(cluster.node.path(KUBECONFIG)).unwrap();
    missing(&cluster.add("c1"), KUBECONFIG);
    // The settings file is for main plugins that drop unknown keys.
    let settings = json!({ "environment": "ipv6NodeIpam", "kubeconfig": "/etc/k/settings", "nodeName": "node1" });
    cluster
        .node
        .put("/etc/azure-vnet-ipam.json", settings.to_string());
    missing(&cluster.add("c1"), "/etc/k/settings");
    let configured = json!({ "kubeconfig": "/etc/k/configured" });
    missing(
        &cluster.add_with("c1", configured.clone()),
        "/etc/k/configured",
    );
    cluster.node = cluster
        .node
        .env("AZURE_VNET_IPAM_KUBECONFIG", "/etc/k/environment");
    missing(
        &cluster.add_with("c1", configured.clone()),
        "/etc/k/environment",
    );
    cluster.node.put("/etc/k/environment", &good);
    cluster.add_with("c1", configured.clone()).success();
    cluster.node.env.remove("AZURE_VNET_IPAM_KUBECONFIG");
    cluster.node.put("/etc/k/configured", &good);
    cluster.add_with("c2", configured).success();
    cluster.node.put("/etc/k/settings", &good);
    let bare = conf("1.0.0", json!({}));
    cluster.node.call("ADD", "c3").stdin(bare).run().success();
    assert_eq!(cluster.node.held().len(), 3);
}

#[test]
fn server_can_be_an_address_name_or_subpath() {
    let cluster = Cluster::new("kubename", Tls::Usual);
    let authority = Authority::new("kubernetes");
    let own = authority.server(&["localhost"], GOOD);
    let named = Cluster::with("kubename", authority, &own, Tls::Usual);
    let localhost = format!("https://localhost:{}/", named.api.port());
    named.put(json!({ "server": localhost }), json!({}));
    named.add("c1").success();
    // The certificate is for this name, not for the address.
    named.put(json!({ "tls-server-name": "localhost" }), json!({}));
    named.add("c1").success();
    let configured = json!({ "tls-server-name": "kubernetes.default" });
    cluster.put(configured, json!({}));
    cluster.add("c1").success();
    for log in [named.node.log(), cluster.node.log()] {
        assert!(!log.contains("Source refresh failed"), "{log}");
    }
    let prefixed = format!("{}/k8s/clusters/c-1/", cluster.api.url());
    cluster.put(json!({ "server": prefixed }), json!({}));
    cluster.add("c1").success();
    let last = cluster.api.requests().pop().unwrap();
    let path = "GET /k8s/clusters/c-1/api/v1/nodes/node1 ";
    assert!(last.starts_with(path), "{last}");
}

#[test]
fn plain_http_is_used_only_without_credentials() {
    let cluster = Cluster::new("kubeclear", Tls::Plain);
    cluster.put_token(json!({ "certificate-authority": null }), json!({}));
    cluster.add("c1").success();
    cluster.put_token(json!({}), json!({ "token": TOKEN }));
    cluster.add("c2").success();
    let log = cluster.node.log();
    assert!(log.contains("would send credentials"), "{log}");
    assert_eq!(cluster.api.connections(), 1);
}

#[test]
fn proxies_and_redirects_are_ignored() {
    let mut cluster = Cluster::new("kubeproxy", Tls::Usual);
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY"] {
        cluster.node = cluster.node.env(name, "http://127.0.0.1:1");
    }
    cluster.put(json!({ "proxy-url": "http://127.0.0.1:1" }), json!({}));
    cluster.add("c1").success();
    assert!(!cluster.node.log().contains("Source refresh failed"));
    cluster.api.set(Play::Answer(302, Vec::new()));
    cluster.add("c2").success();
    assert!(cluster.node.log().contains("answered with status 302"));
    assert_eq!(cluster.api.connections(), 2);
}

#[test]
fn failed_query_keeps_the_pools() {
    let cluster = Cluster::new("kubefails", Tls::Usual);
    cluster.add("c1").success();
    for (id, play) in [
        ("c2", Play::Answer(500, b"oops".to_vec())),
        ("c3", Play::Node(vec!["10.244.3.0/24"])),
        ("c4", Play::Answer(200, b"{}".to_vec())),
    ] {
        cluster.api.set(play);
        // Skip the pause after the previous failure.
        let _ = fs::remove_file(cluster.node.fetch_lock_path());
        cluster.add(id).success();
    }
    assert_eq!(cluster.api.requests().len(), 4);
    assert_eq!(cluster.node.held().len(), 4);
    let log = cluster.node.log();
    let failed = log.matches("Source refresh failed, err:Kubernetes node, by ");
    assert_eq!(failed.count(), 3, "{log}");
    cluster.add("c5").success();
    let asked = cluster.api.requests().len();
    assert_eq!(asked, 4, "not asked again within ten seconds");
}

#[test]
fn node_name_defaults_to_the_lower_case_host_name() {
    let cluster = Cluster::new("kubehost", Tls::Usual);
    cluster.node.put("/proc/sys/kernel/hostname", "NODE1\n");
    cluster.add("c1").success();
    cluster.node.put("/proc/sys/kernel/hostname", "other\n");
    let named = cluster.add_with("c2", json!({ "nodeName": "node1" }));
    named.success();
    assert!(!cluster.node.log().contains("Source refresh failed"));
    let requests = cluster.api.requests();
    let is_of_node1 = |head: &String| head.starts_with("GET /api/v1/nodes/node1 ");
    assert!(requests.len() == 2 && requests.iter().all(is_of_node1));
}

#[test]
fn status_queries_the_node_only_without_pools() {
    let cluster = Cluster::new("kubestatus", Tls::Usual);
    let status = || {
        let of_1_1 = netconf(json!({})).replace("1.0.0", "1.1.0");
        cluster.node.call("STATUS", "").stdin(of_1_1).run()
    };
    status().assert_no_output();
    cluster.api.set(Play::Node(vec!["10.244.3.0/24"]));
    let (code, msg) = status().error();
    assert_eq!(code, 50);
    assert!(msg.contains("its ranges are [10.244.3.0/24]"), "{msg}");
}

#[test]
fn check_reports_the_node_range_or_a_remedy() {
    let cluster = Cluster::new("kubecheck", Tls::Usual);
    cluster.node.put(
        "/etc/azure-vnet-ipam.json",
        r#"{"environment":"ipv6NodeIpam"}"#,
    );
    let report = cluster.node.run_line("check --all").stdout;
    let range = "the node has fd00:10:244:3::/120 with 254 addresses for pods";
    assert!(report.contains(range), "{report}");
    cluster.api.set(Play::Node(vec!["10.244.3.0/24"]));
    let report = cluster.node.run_line("check --json").stdout;
    let remedy = "kubectl get node NAME -o jsonpath='{.spec.podCIDRs}'";
    for words in ["has no IPv6 range with addresses for pods", remedy] {
        assert!(report.contains(words), "{report}");
    }
}
