//! The program without the feature `tls`. It knows the environment, but cannot serve it.

use serde_json::json;

use crate::harness::{Node, conf};

#[test]
#[ignore = "needs the executable without TLS, in AZURE_VNET_IPAM_UNDER_TEST"]
fn kubernetes_source_is_known_but_unavailable() {
    let node = Node::new("withouttls").env("AZURE_VNET_IPAM_KUBECONFIG", "/k");
    let netconf = conf("1.0.0", json!({ "environment": "ipv6NodeIpam" }));
    let outcome = node.call("ADD", "c1").stdin(netconf.clone()).run();
    let (code, msg) = outcome.error();
    assert_eq!(
        (code, msg.as_str()),
        (100, "Failed to allocate pool: Invalid address space")
    );
    let details = outcome.json()["details"].as_str().unwrap().to_owned();
    let path = node.path("/k");
    let cause = format!(
        "Kubernetes node, by {}: this executable was built without the feature `tls`, which queries of the Kubernetes API need; install the default build, which has this feature; ",
        path.display()
    );
    assert!(details.contains(&cause), "{details}");
    node.call("DEL", "c1")
        .stdin(netconf)
        .run()
        .assert_no_output();
}
