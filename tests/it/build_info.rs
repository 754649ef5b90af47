//! What the executable reports about its own build: in `--version`, in `version` and in the metrics.

use crate::harness::Node;

/// The four texts that identify a build.
fn build(node: &Node) -> [String; 4] {
    let report = node.run_line("version -o json").success().json();
    let text = |key: &str| report[key].as_str().unwrap().to_owned();
    let features = report["features"].as_array().unwrap().iter();
    let features: Vec<_> = features.map(|f| f.as_str().unwrap()).collect();
    [
        text("version"),
        text("commit"),
        text("target"),
        features.join(","),
    ]
}

#[test]
fn version_is_the_same_everywhere() {
    let node = Node::new("build");
    let [version, commit, target, features] = build(&node);
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    let is_commit = commit.len() == 7 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    assert!(is_commit || commit == "unknown", "{commit}");
    assert!(target.contains("-linux-"), "{target}");
    assert_eq!(features.contains("tls"), cfg!(feature = "tls"));
    let mut inside = format!("commit {commit}, {target}");
    if !features.is_empty() {
        inside += &format!(", {features}");
    }
    let line = format!("azure-vnet-ipam {version} ({inside})\n");
    for option in ["version", "--version", "-V", "version -o text"] {
        let printed = node.run_line(option).success().stdout.clone();
        assert_eq!(printed, line, "{option}");
    }
    let metrics = node.run_line("metrics").success().stdout.clone();
    let labels = format!(
        r#"build_info{{plugin="azure-vnet-ipam",version="{version}",commit="{commit}",target="{target}",features="{features}"}} 1"#
    );
    assert!(metrics.contains(&labels), "{metrics}");
    assert!(!node.path("/var").exists(), "no state, lock or log");
}
