//! The files that are shipped for clusters: the DaemonSet, the alerts, the dashboard and the fleet check. Everything
//! that they name exists, and they do what their page says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::wait::wait_until;
use crate::harness::{Node, Reply, SUBNET, conf, install, package, run, xml};

/// The page that the alerts link to.
const RUNBOOK: &str = ".github/RUNBOOK.md";

fn folder() -> PathBuf {
    package().join("conflist-examples/kubernetes")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The labels of every metric, from a node on which every metric has a value.
fn metrics_with_labels() -> BTreeMap<String, BTreeSet<String>> {
    let (node, _wire) = Node::with_wire("cluster-metrics", Reply::Xml(xml(5..15)));
    node.add("c1").success();
    let taken = json!({ "subnet": SUBNET, "ipAddress": "10.224.0.5" });
    let taken = conf("0.3.0", taken);
    node.call("ADD", "c2").stdin(taken).run().error();
    let text = run_loop(&node, &["node-loop", "--output=FILE"]);
    let mut metrics: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let series = line.rsplit_once(' ').unwrap().0;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let known = metrics.entry(name.to_owned()).or_default();
        known.extend(label_names(labels).into_iter().map(str::to_owned));
    }
    metrics
}

/// The label names in a list of labels with comparisons.
fn label_names(labels: &str) -> Vec<&str> {
    let outside = labels.split('"').step_by(2);
    let names = outside.map(|part| part.trim_matches(|c: char| !c.is_alphanumeric() && c != '_'));
    names.filter(|name| !name.is_empty()).collect()
}

/// Runs the loop with these arguments until the first check is in its output file. Returns the content of that file,
/// which is in the folder of the node.
fn run_loop(node: &Node, args: &[&str]) -> String {
    node.put("/collected/x", "");
    let file = node.path("/collected/ipam.prom");
    let call = node.call("", "").without("CNI_COMMAND");
    let output = format!("--output={}", file.display());
    let call = args.iter().fold(call, |call, arg| match arg {
        arg if arg.starts_with("--output=") => call.arg(&output),
        arg => call.arg(arg),
    });
    let _ = fs::remove_file(&file);
    let mut node_loop = call.start();
    let text = || fs::read_to_string(&file).unwrap_or_default();
    wait_until("the first check", || {
        assert!(node_loop.is_running(), "the loop ended");
        text().contains("_last_check_status{")
    });
    node_loop.kill();
    text()
}

/// Each metric in an expression, with the labels that the expression selects by.
fn selectors(expression: &str) -> Vec<(String, Vec<String>)> {
    const PREFIX: &str = "azure_vnet_ipam_";
    let parts = expression.split(PREFIX).skip(1);
    let selectors = parts.map(|part| {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = part.split_at(end.unwrap_or(part.len()));
        let labels = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let labels = labels.map_or(Vec::new(), |(labels, _)| label_names(labels));
        let labels = labels.into_iter().map(str::to_owned).collect();
        (format!("{PREFIX}{name}"), labels)
    });
    selectors.collect()
}

/// The labels that an expression groups by, and the labels in its legend.
fn grouped_labels(expression: &str) -> Vec<String> {
    let groups = expression.split(" by (").skip(1);
    let groups = groups.filter_map(|rest| rest.split_once(')'));
    let labels = groups.flat_map(|(labels, _)| labels.split(", "));
    labels.map(str::to_owned).collect()
}

/// Checks that the metrics of an expression and their labels exist.
fn assert_selects_what_exists(
    expression: &str,
    more_labels: &[String],
    metrics: &BTreeMap<String, BTreeSet<String>>,
) {
    let selectors = selectors(expression);
    assert!(!selectors.is_empty(), "{expression}");
    let mut known = BTreeSet::from(["instance".to_owned()]);
    for (metric, labels) in selectors {
        let exist = metrics.get(&metric);
        let exist = exist.unwrap_or_else(|| panic!("there is no {metric}: {expression}"));
        for label in labels {
            let is_known = exist.contains(&label) || label == "instance";
            assert!(is_known, "{metric} has no label {label}: {expression}");
        }
        known.extend(exist.iter().cloned());
    }
    for label in grouped_labels(expression).iter().chain(more_labels) {
        assert!(known.contains(label), "no label {label}: {expression}");
    }
}

/// The label names in the `{{...}}` parts of a text.
fn labels_of_text(text: &str) -> Vec<String> {
    let parts = text.split("{{").skip(1);
    let parts = parts.filter_map(|rest| rest.split_once("}}"));
    let names = parts.map(|(name, _)| name.trim().trim_start_matches("$labels."));
    let names = names.filter(|name| !name.starts_with("$value"));
    names.map(str::to_owned).collect()
}

#[test]
fn dashboard_shows_metrics_that_exist() {
    let metrics = metrics_with_labels();
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let mut shown = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let legend = labels_of_text(target["legendFormat"].as_str().unwrap());
            // A sum over all nodes has no labels, and its legend is fixed.
            let of_everything = expression.starts_with("sum(") || expression.starts_with("count(");
            let legend = if of_everything { Vec::new() } else { legend };
            assert_selects_what_exists(expression, &legend, &metrics);
            shown.extend(selectors(expression).into_iter().map(|(metric, _)| metric));
        }
    }
    for name in
        "pool_free_addresses operations_total operation_duration_seconds_bucket last_check_findings"
            .split(' ')
    {
        assert!(shown.contains(&format!("azure_vnet_ipam_{name}")), "{name}");
    }
}

/// n1 is a node in use, n2 does not answer, and n3 has no pod.
#[test]
fn fleet_check_covers_both_names_of_every_node() {
    let (node, _wire) = Node::with_wire("cluster-fleet", Reply::Xml(xml(5..15)));
    for name in ["azure-vnet-ipam", "azure-vnet-ipamv6"] {
        install(&node.path(&format!("/opt/cni/bin/{name}")));
    }
    let conflist = r#"{"cniVersion": "1.0.0", "name": "azure", "type": "azure-vnet-ipam"}"#;
    node.put("/etc/cni/net.d/1.conf", conflist);
    let kubectl = r#"case "$*" in
        *"get nodes --selector kubernetes.io/os=linux,pool=a"*) echo n1 ;;
        *"get nodes --selector kubernetes.io/os=linux "*) printf '%s\n' n1 n2 n3 ;;
        *"get pods"*) printf '%s\n' 'n1 p1 Running' 'n2 p2 Running' ;;
        *" p2 "*) echo 'no "route"' >&2; exit 1 ;;
        *) while [ "$1" != -- ]; do shift; done; shift; "$FOLDER$@" || { echo "exit code 1" >&2; exit 1; } ;;
        esac"#;
    node.put("/kubectl", kubectl);
    let fleet_check = |args: &[&str]| {
        let mut command = Command::new("sh");
        command.arg(folder().join("fleet-check.sh")).args(args);
        command.env("KUBECTL", format!("sh {}", node.path("/kubectl").display()));
        command.env("FOLDER", node.path("/opt/cni/bin"));
        run(command.envs(&node.env), "")
    };
    let others = "n2: azure-vnet-ipamv6: not checked: no \"route\"\nn2: not checked: no \"route\"\n\
        n3: not checked: it has no pod of the DaemonSet\n3 of 3 nodes in trouble\n";
    // In a folder, no network namespaces of the node can be seen.
    let unseen = "n1: Nothing wrong was found in what could be checked; new pods get addresses.\n";
    let outcome = fleet_check(&[]);
    assert_eq!(outcome.stdout, format!("{unseen}{others}"));
    assert_eq!(outcome.exit, Some(1));
    let report = fleet_check(&["-o", "json", "default"]).json();
    let report = report.as_array().unwrap();
    assert_eq!(report.len(), 5, "{report:?}");
    let unused = "Nothing is wrong; azure-vnet-ipamv6 is not in use.";
    assert_eq!(report[1]["check"]["summary"], unused);
    assert_eq!(report[2]["error"], "not checked: no \"route\"");
    // A selector limits the check, for a rollout that has reached one node.
    let selected = format!("{unseen}1 of 1 nodes in trouble\n");
    for args in [&["-l", "pool=a"][..], &["--selector", "pool=a"]] {
        assert_eq!(fleet_check(args).stdout, selected, "{args:?}");
    }
    let report = fleet_check(&["--selector=pool=a", "-o", "json", "default"]).json();
    assert_eq!(report.as_array().unwrap().len(), 2, "{report:?}");
    for args in [&["-o", "text"][..], &["--frobnicate"], &["-l"], &["a", "b"]] {
        let outcome = fleet_check(args);
        assert_eq!(outcome.exit, Some(2), "{args:?}: {outcome:?}");
        assert!(outcome.stdout.is_empty(), "{args:?}: {outcome:?}");
    }
    // A state file is enough for a name to count as in use.
    node.put("/var/run/azure-vnet-ipamv6.json", "{");
    let outcome = fleet_check(&[]);
    let line = "\nn1: azure-vnet-ipamv6: 1 ";
    assert!(
        format!("\n{}", outcome.stdout).contains(line),
        "{outcome:?}"
    );
}

#[cfg(feature = "tls")]
mod yaml {
    use super::*;
    use crate::harness::binary;
    use crate::harness::wait::output;

    /// Checks that a command has all options among these words. Returns the options.
    #[track_caller]
    fn assert_options_exist<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let mut words = words.into_iter();
        let command = words.next().unwrap();
        let help = output(Command::new(binary()).env_clear().args([command, "--help"]));
        assert!(help.status.success(), "{command}: {help:?}");
        let help = String::from_utf8(help.stdout).unwrap();
        let options: Vec<_> = words.filter(|word| word.starts_with('-')).collect();
        for option in &options {
            let name = option.split('=').next().unwrap();
            let mut known = help.split_whitespace();
            assert!(known.any(|word| word == name), "{command} {name}: {help}");
        }
        options
    }

    fn documents(name: &str) -> Value {
        yaml_serde::from_str(&read(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// The values of a list of objects by the names of the objects.
    fn by_name(list: &Value) -> BTreeMap<&str, &Value> {
        let list = list.as_array().unwrap().iter();
        list.map(|item| (item["name"].as_str().unwrap(), item))
            .collect()
    }

    fn texts(list: &Value) -> Vec<&str> {
        let list = list.as_array().into_iter().flatten();
        list.map(|text| text.as_str().unwrap()).collect()
    }

    #[test]
    fn every_alert_is_complete_and_tested_and_has_a_runbook() {
        let metrics = metrics_with_labels();
        let (alerts, tests, page) = (
            documents("alerts.yaml"),
            documents("alerts.test.yaml"),
            fs::read_to_string(package().join(RUNBOOK)).unwrap(),
        );
        let rules = alerts["groups"][0]["rules"].as_array().unwrap();
        assert!(rules.len() >= 7);
        let fires = |alert: &str| {
            let cases = tests["tests"].as_array().unwrap().iter();
            let mut cases = cases.flat_map(|test| test["alert_rule_test"].as_array().unwrap());
            cases.any(|case| case["alertname"] == alert && case["exp_alerts"].is_array())
        };
        for rule in rules {
            let alert = rule["alert"].as_str().unwrap();
            assert!(rule["for"].is_string(), "{alert}");
            let severity = rule["labels"]["severity"].as_str().unwrap();
            assert!(["warning", "critical"].contains(&severity), "{alert}");
            let summary = labels_of_text(rule["annotations"]["summary"].as_str().unwrap());
            assert!(summary.contains(&"instance".to_owned()), "{alert}");
            assert_selects_what_exists(rule["expr"].as_str().unwrap(), &summary, &metrics);
            let runbook = rule["annotations"]["runbook_url"].as_str().unwrap();
            let (url, anchor) = runbook.split_once('#').unwrap();
            assert!(
                url.starts_with("https://") && url.ends_with(RUNBOOK),
                "{url}"
            );
            let (_, section) = page
                .split_once(&format!("<a id=\"{anchor}\"></a>\n\n### "))
                .unwrap_or_else(|| panic!("{runbook}"));
            let section = section.split("\n### ").next().unwrap();
            assert!(section.contains("\n```sh\n"), "{anchor}: what to type");
            assert!(fires(alert), "no test in which {alert} fires");
        }
    }

    #[test]
    fn daemonset_has_exactly_the_privileges_that_it_needs() {
        let daemonset = documents("daemonset.yaml");
        let spec = &daemonset["spec"];
        assert_eq!(spec["updateStrategy"]["rollingUpdate"]["maxUnavailable"], 1);
        let pod = &spec["template"]["spec"];
        let init = by_name(&pod["initContainers"]);
        let main = by_name(&pod["containers"]);
        assert_eq!((init.len(), main.len()), (1, 1));
        let (install, node_loop) = (init["install"], main["node-loop"]);
        // Only the kustomization has the image, and the nodes of the first rollout.
        let kustomization = documents("kustomization.yaml");
        let image = &kustomization["images"][0];
        for container in [install, node_loop] {
            assert_eq!(container["image"], image["name"]);
        }
        assert_eq!(image["newTag"], env!("CARGO_PKG_VERSION"));
        assert_eq!(kustomization["resources"], json!(["daemonset.yaml"]));
        for (container, capabilities) in [
            (install, &[][..]),
            (node_loop, &["SYS_ADMIN", "SYS_PTRACE"]),
        ] {
            let security = &container["securityContext"];
            assert_eq!(security["readOnlyRootFilesystem"], true);
            assert_eq!(security["privileged"], Value::Null);
            assert_eq!(texts(&security["capabilities"]["drop"]), ["ALL"]);
            assert_eq!(texts(&security["capabilities"]["add"]), capabilities);
        }
    }

    #[test]
    fn containers_run_with_their_arguments() {
        let daemonset = documents("daemonset.yaml");
        let pod = &daemonset["spec"]["template"]["spec"];
        let (node, _wire) = Node::with_wire("cluster-pod", Reply::Xml(xml(5..15)));
        fs::create_dir_all(node.path("/opt/cni/bin")).unwrap();
        let install = texts(&pod["initContainers"][0]["args"]);
        assert_options_exist(install.iter().copied());
        node.run_command(install).success();
        let args = texts(&pod["containers"][0]["args"]);
        assert!(assert_options_exist(args.iter().copied()).len() >= 3);
        let probe = texts(&pod["containers"][0]["livenessProbe"]["exec"]["command"]);
        assert_eq!(probe[0], "/azure-vnet-ipam");
        assert_options_exist(probe[1..].iter().copied());
        let file = |option: &str| {
            let mut words = args.iter().chain(&probe);
            words.find_map(|arg| arg.strip_prefix(option)).unwrap()
        };
        // The probe must use the output file and the intervals of the loop.
        for option in ["--output=", "--interval="] {
            let [loops, probes] = [&args, &probe].map(|words| {
                let mut found = words.iter().filter(|word| word.starts_with(option));
                found.next().unwrap()
            });
            assert_eq!(loops, probes);
        }
        let text = run_loop(&node, &args);
        assert!(!text.contains("ipamv6"), "it is not in use: {text}");
        node.put("/var/run/azure-vnet-ipamv6.json", "{");
        let both = run_loop(&node, &args);
        let second = "last_check_status{plugin=\"azure-vnet-ipamv6\"} 1\n";
        assert!(both.contains(second), "{both}");
        assert!(
            text.contains("executable_matches{plugin=\"azure-vnet-ipam\"} 1\n"),
            "{text}"
        );
        // The output file is in the folder that is mounted for it.
        let output = file("--output=");
        let volumes = by_name(&pod["volumes"]);
        let textfiles = volumes["textfiles"]["hostPath"]["path"].as_str().unwrap();
        assert!(output.starts_with(textfiles) && output.ends_with(".prom"));
        // The options that the comments of the manifest offer exist as well.
        assert_options_exist(["node-loop", "--reinstall", "--reclaim"]);
        assert_options_exist(["install", "--force"]);
        for offered in ["# - --reinstall\n", "# - --reclaim\n"] {
            assert!(read("daemonset.yaml").contains(offered));
        }
    }
}
