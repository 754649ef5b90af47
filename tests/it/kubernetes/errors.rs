//! Failures of the query for the node object, and the remedies in the errors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::certificates::{Authority, Key};
use super::server::{Api, Play, TOKEN, Tls, node};
use super::{Cluster, GOOD, KUBECONFIG, netconf};
use crate::harness::{Outcome, install, run};

/// Checks that an ADD without pools fails, and that the details contain cause and remedy.
fn assert_reported(outcome: &Outcome, what: &str, remedy: &str) {
    let (code, msg) = outcome.error();
    let no_pool = "Failed to allocate pool: Invalid address space";
    assert_eq!((code, msg.as_str()), (100, no_pool), "{outcome:?}");
    let details = outcome.json()["details"].as_str().unwrap().to_owned();
    let reported = details.split_once("the list of addresses is old: Kubernetes node");
    let (_, reported) = reported.unwrap_or_else(|| panic!("{details}"));
    let (happened, to_do) = reported.split_once("; ").unwrap();
    assert!(reported.contains(what), "{what:?} is not in {reported}");
    assert!(reported.contains(remedy), "{remedy:?} is not in {reported}");
    assert!(!happened.is_empty() && !to_do.is_empty(), "{details}");
    let is_secret = |text| details.contains(text);
    assert!(![TOKEN, "BEGIN"].into_iter().any(is_secret), "{details}");
}

impl Cluster {
    fn assert_reported(&self, what: &str, remedy: &str) {
        assert_reported(&self.add("c1"), what, remedy);
        assert!(!self.node.state_path().exists());
    }
}

/// Words in the remedy for a bad kubeconfig, and in that for bad certificates, keys and tokens.
const KUBECONFIG_REMEDY: &str = "`kubectl config view --minify --kubeconfig FILE`";
const CREDENTIALS_REMEDY: &str = "`openssl x509 -noout -pubkey`";

#[test]
fn kubeconfig_errors_are_reported() {
    let cluster = Cluster::new("kubeconfig", Tls::Usual);
    let node = &cluster.node;
    let path = node.path(KUBECONFIG);
    let reported = |what: &str| cluster.assert_reported(what, KUBECONFIG_REMEDY);
    node.put(KUBECONFIG, "a: [");
    reported("the kubeconfig is not a YAML object");
    fs::remove_file(&path).unwrap();
    reported(&format!("the kubeconfig {} does not exist", path.display()));
    fs::create_dir(&path).unwrap();
    reported("cannot be read: is a directory");
    fs::remove_dir(&path).unwrap();
    node.put(KUBECONFIG, " ".repeat((1 << 20) + 1));
    reported("is larger than 1048576 bytes");
    cluster.put(json!({ "certificate-authority": null }), json!({}));
    reported("has no certificate-authority");
    cluster.put(json!({}), json!({ "exec": { "command": "kubelogin" } }));
    reported("no other program is started here");
    assert_eq!(cluster.api.connections(), 0, "nobody was asked");
}

#[test]
fn certificate_key_and_token_errors_are_reported() {
    let cluster = Cluster::new("kubefiles", Tls::Usual);
    let node = &cluster.node;
    let text = "no PEM at all";
    let certificate = &cluster.client.certificate;
    let cut = certificate.replace("-----END CERTIFICATE-----", "");
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let no_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for (name, content) in [
        ("text", text),
        ("cut", &cut),
        ("nonsense", nonsense),
        ("nokey", no_key),
        ("crt", certificate),
        ("empty", "\n"),
        ("lines", "a\nb"),
    ] {
        node.put(&format!("/k/{name}"), content);
    }
    let other = cluster.authority.client(Key::RsaPkcs8, GOOD);
    node.put("/k/other", other.key);
    for row in [
        "certificate-authority /k/none => k/none does not exist",
        "certificate-authority /k/text => k/text holds no certificate",
        "certificate-authority /k/cut => k/cut is not complete PEM",
        "certificate-authority /k/nonsense => k/nonsense holds a malformed certificate",
        "certificate-authority-data ! => the certificate-authority-data is not base64",
        "client-certificate /k/none => the client-certificate ",
        "client-certificate /k/text => k/text holds no certificate",
        "client-certificate /k/nonsense => k/nonsense holds a malformed certificate",
        "client-certificate  => has no client-certificate",
        "client-key /k/none => the client-key ",
        "client-key /k/crt => k/crt holds no private key",
        "client-key /k/nokey => k/nokey is malformed, or does not belong to the client-certificate",
        "client-key /k/other => k/other is malformed, or does not belong to the client-certificate",
        "client-key  => has no client-key",
    ] {
        let (input, what) = row.split_once(" => ").unwrap();
        let (member, value) = input.split_once(' ').unwrap();
        let more = json!({ member: value });
        if member.starts_with("certificate-authority") {
            cluster.put(more, json!({}));
        } else {
            cluster.put(json!({}), more);
        }
        cluster.assert_reported(what, CREDENTIALS_REMEDY);
    }
    let no_token = "is not one line of visible ASCII characters";
    for (token, what) in [
        (json!({ "tokenFile": "/k/none" }), "k/none does not exist"),
        (json!({ "tokenFile": "/k/empty" }), no_token),
        (json!({ "tokenFile": "/k/lines" }), no_token),
        (json!({ "token": "a b" }), no_token),
    ] {
        cluster.put_token(json!({}), token);
        cluster.assert_reported(what, CREDENTIALS_REMEDY);
    }
    assert_eq!(cluster.api.connections(), 0, "nobody was asked");
}

#[test]
fn permission_errors_are_reported() {
    let cluster = Cluster::new("kubedenied", Tls::Usual);
    let path = cluster.node.path(KUBECONFIG);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&path).is_err() {
        cluster.assert_reported("cannot be read: permission denied", "only root may read");
        return;
    }
    // Root may read everything, so another user runs the program from a folder that this user can reach.
    const NOBODY: u32 = 65534;
    let program = cluster.node.path("/program");
    install(&program);
    cluster.node.make_accessible_to_everybody();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(&cluster.node.call("ADD", "c1").env)
        .uid(NOBODY)
        .gid(NOBODY);
    let outcome = run(&mut command, &netconf(json!({})));
    assert_reported(
        &outcome,
        "cannot be read: permission denied",
        "only root may read",
    );
}

#[test]
fn node_object_errors_are_reported() {
    let cluster = Cluster::new("kubenode", Tls::Usual);
    let named = |rows: [[&str; 3]; 2]| {
        for [name, what, remedy] in rows {
            let outcome = cluster.add_with("c1", json!({ "nodeName": name }));
            assert_reported(&outcome, what, remedy);
        }
    };
    named([
        [
            "node2",
            "status 404: nodes \"node2\" not found",
            "set ipam.nodeName",
        ],
        [
            "forbidden",
            "status 403: nodes \"forbidden\" is ",
            "may read its own node only",
        ],
    ]);
    let before = cluster.api.connections();
    let unknown = "is not a valid node name";
    named(["a/../b", "Node1"].map(|name| [name, unknown, "set ipam.nodeName"]));
    assert_eq!(cluster.api.connections(), before);
    cluster.api.set(Play::Node(vec!["10.244.3.0/24"]));
    cluster.assert_reported(
        "its ranges are [10.244.3.0/24]",
        "-o jsonpath='{.spec.podCIDRs}'",
    );
    let other = node("node9", &["fd00::/64"]).to_string();
    let huge = format!("{{\"x\":\"{}\"}}", "x".repeat(4 << 20));
    let busy = "busy ".repeat(100);
    for (status, body, what, remedy) in [
        (200, "<html>", "is not a node: expected value", "jsonpath"),
        (200, "{\"kind\":\"Status\"}", "kind \"Status\"", "jsonpath"),
        (
            200,
            &other,
            "name \"node9\"; it is not the node",
            "jsonpath",
        ),
        (200, &huge, "is larger than 4194304 bytes", "/readyz"),
        (503, &busy, "answered with status 503: busy busy", "/readyz"),
        (418, "", "answered with status 418", "/readyz"),
    ] {
        let body = body.as_bytes().to_vec();
        cluster.api.set(Play::Answer(status, body));
        cluster.assert_reported(what, remedy);
    }
    cluster.api.set(Play::Node(vec!["fd00::/64"]));
    for token in [json!({ "token": "bad-token" }), json!({})] {
        cluster.put_token(json!({}), token);
        cluster.assert_reported(
            "answered with status 401: Unauthorized",
            "restart the kubelet to get new ones",
        );
    }
}

#[test]
fn untrusted_server_is_reported_and_gets_no_token() {
    let name = "tls-server-name in the kubeconfig must be one of the certificate's names";
    let dates = "`date` must be right on this node";
    let expired = "kubeadm certs check-expiration";
    for (issuer, own, valid, what, remedy) in [
        (
            "other",
            "127.0.0.1",
            GOOD,
            "was not issued by the kubeconfig's",
            "that of this very cluster",
        ),
        (
            "own",
            "127.0.0.1",
            2000..2020,
            "expired at 2020-01-01",
            expired,
        ),
        (
            "own",
            "127.0.0.1",
            2095..2100,
            "certificate not valid yet",
            dates,
        ),
        (
            "own",
            "127.0.0.2",
            GOOD,
            "certificate not valid for name \"127.0.0.1\"",
            name,
        ),
        (
            "own",
            "a.example",
            GOOD,
            "is only valid for DnsName(\"a.example\")",
            name,
        ),
    ] {
        let (authority, other) = (Authority::new("kubernetes"), Authority::new("other"));
        let issuer = if issuer == "own" { &authority } else { &other };
        let own = issuer.server(&[own], valid);
        let cluster = Cluster::with("kubeserver", authority, &own, Tls::Usual);
        cluster.put_token(json!({}), json!({ "token": TOKEN }));
        cluster.assert_reported(what, remedy);
        assert_eq!(cluster.api.connections(), 1);
        assert_eq!(cluster.api.requests(), [""; 0], "it saw nothing");
    }
}

#[test]
fn unreachable_or_invalid_server_is_reported() {
    let cluster = Cluster::new("kubeaway", Tls::Plain);
    let url = cluster.api.url().replace("http", "https");
    // A DNS label cannot be that long, so no request reaches the network.
    let unknown = format!("https://{}.invalid", "x".repeat(70));
    let reason = format!("{unknown} cannot be reached: failed to lookup address information: ");
    let refused = "https://127.0.0.1:1 cannot be reached: connection refused";
    let curl = "`curl -m 10 -k SERVER/readyz`";
    for (server, what, remedy) in [
        (&*url, "the TLS handshake with https://127.0.0.1", curl),
        ("https://127.0.0.1:1", refused, curl),
        (&unknown, &reason, "getent hosts"),
    ] {
        cluster.put(
            json!({ "server": server, "tls-server-name": "localhost" }),
            json!({}),
        );
        cluster.assert_reported(what, remedy);
    }
    assert_eq!(cluster.api.requests(), [""; 0]);
    let closing = Cluster::new("kubeaway", Tls::Closes);
    closing.assert_reported("cannot be reached: ", "must answer from this node");
}

#[test]
fn server_that_refuses_the_client_certificate_is_reported() {
    let cluster = Cluster::new("kuberefused", Tls::Strict);
    let stranger = Authority::new("other").client(Key::EcPkcs8, GOOD);
    cluster
        .node
        .put("/var/lib/kubelet/pki/current.pem", stranger.combined_pem());
    cluster.assert_reported(
        "refuses the TLS connection with the alert ",
        "of another cluster",
    );
    let expired = cluster.authority.client(Key::EcPkcs8, 2000..2020);
    cluster
        .node
        .put("/var/lib/kubelet/pki/current.pem", expired.combined_pem());
    cluster.assert_reported("with the alert CertificateExpired", "journalctl -u kubelet");
    cluster.put_token(json!({}), json!({ "token": TOKEN }));
    cluster.assert_reported("with the alert CertificateRequired", "of another cluster");
    assert_eq!(cluster.api.requests(), [""; 0]);
}

#[test]
fn hanging_server_is_cut_off_at_the_time_limit() {
    let beginning = "HTTP/1.1 200 OK\r\nX: ";
    let body = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{";
    let cases = [
        (Tls::Silent, ""),
        (Tls::Drips, ""),
        (Tls::Usual, beginning),
        (Tls::Usual, body),
    ];
    thread::scope(|scope| {
        for (tls, play) in cases {
            let cluster = Cluster::new("kubehangs", tls);
            cluster.api.set(Play::Drips(play));
            scope.spawn(move || {
                let outcome = cluster.add("c1");
                let late = "did not answer within 10 s";
                assert_reported(&outcome, late, "must answer from this node");
                let took = outcome.took;
                assert!(took >= Duration::from_secs(9), "{tls:?} {play:?}: {took:?}");
            });
            // When there are pools, the time limit is shorter.
            scope.spawn(move || {
                let cluster = Cluster::new("kubehangs", Tls::Usual);
                cluster.add("c1").success();
                let own = cluster.authority.server(&["127.0.0.1"], GOOD);
                let hanging = Api::new(&cluster.authority, &own, tls);
                hanging.set(Play::Drips(play));
                cluster.put(json!({ "server": hanging.url() }), json!({}));
                let outcome = cluster.add("c2");
                assert_eq!(outcome.address(), "fd00:10:244:3::3");
                let took = outcome.took;
                assert!(took >= Duration::from_secs(2), "{tls:?} {play:?}: {took:?}");
                assert!(cluster.node.log().contains("did not answer within 3 s"));
            });
        }
    });
}
