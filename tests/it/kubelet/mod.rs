//! A real node in its own namespaces: kubelet with etcd, kube-apiserver, containerd, runc and the plugin bridge.
//!
//! `.ci/run kubelet` builds what is needed and runs these tests one after another. `tests/kubelet/README.md` has
//! their results. There is no scheduler and no controller: the tests bind each pod to the node, and replace the pods
//! themselves.

mod churn;
mod config;
mod controllers;
mod daemonset;
mod faults;
mod lab;
mod observe;
mod reboot;
mod sandboxes;
mod upgrade;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::callers::later;
use crate::genuine_azure_vnet::host::{genuine, version};
use crate::harness::wait::{output, wait_until};
use crate::harness::{is_long, package, skip};
use crate::privileged::run_again;

use churn::{Churn, Row, Seen, report, watch};
use lab::{Lab, MainPlugin};
use reboot::Run;

/// Runs a test again in the namespaces of a node. Returns true in the second run.
#[track_caller]
fn on_a_node(test: &str, options: &[&str]) -> bool {
    // The lab must end with this program, even when this program is killed.
    let mut lab = Command::new("setpriv");
    lab.args(["--pdeathsig", "KILL"]);
    lab.arg(package().join("tests/kubelet/lab")).args(options);
    run_again(&format!("kubelet::{test}"), &mut lab)
}

/// Replaces pods for some time on a node without faults.
fn churn(test: &str, scenario: &str, options: &[&str], seconds: u64) {
    if !on_a_node(test, options) {
        return;
    }
    let lab = &mut Lab::start(200);
    let seconds = if is_long() { 180 } else { seconds };
    let ((created, took, gone), seen) = watch(|| {
        let mut churn = Churn::start(lab, 30);
        churn.run(lab, Duration::from_secs(seconds), |_| ());
        let took = lab.wait_for_pods(&churn.wanted);
        (churn.created, took, churn.end(lab))
    });
    report_all_well(
        lab,
        format!("{scenario}, {seconds} s"),
        created,
        took,
        gone,
        seen,
    );
}

/// Reports a scenario in which no ADD may be refused. Checks that nothing is left after it.
fn report_all_well(
    lab: &Lab,
    scenario: String,
    pods: usize,
    took: Duration,
    gone: Duration,
    seen: Seen,
) {
    let observation = lab.observe();
    let refused = lab.refusals().len();
    report(&[Row {
        scenario,
        pods,
        took,
        refused,
        seen,
        to_reclaim: 0,
        lost: observation.lost().len(),
        remark: format!("all gone after {:.1} s", gone.as_secs_f64()),
    }]);
    assert_eq!(refused, 0);
    assert_eq!(observation.held, Some([].into()));
    assert_eq!(observation.forgotten(), [""; 0]);
}

#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc and the plugin bridge"]
fn churn_keeps_every_promise() {
    churn("churn_keeps_every_promise", "churn of 30 pods", &[], 30);
}

#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc and the plugin bridge"]
fn churn_in_a_pid_namespace_keeps_every_promise() {
    let test = "churn_in_a_pid_namespace_keeps_every_promise";
    let scenario = "churn of 30 pods in a PID namespace";
    churn(test, scenario, &["--own-pids"], 9);
}

/// Replaces pods under one fault after another.
fn under_faults(main_plugin: MainPlugin, start: fn(&Lab, usize) -> Churn) {
    let mut lab = Lab::start_with(200, main_plugin);
    let mut churn = start(&lab, 30);
    let mut rows = Vec::new();
    let mut refused_too_long = Vec::new();
    let only = std::env::var("KUBELET_FAULT").unwrap_or_default();
    let (under, faults) = match main_plugin {
        MainPlugin::Bridge => (String::new(), faults::faults(is_long())),
        MainPlugin::AzureVnet => (
            format!(", azure-vnet {}", version()),
            faults::faults_of_azure_vnet(is_long()),
        ),
        MainPlugin::Calico => (", Calico".to_owned(), faults::faults_of_calico(is_long())),
    };
    for fault in faults {
        if !fault.name.contains(&only) {
            continue;
        }
        let (mut row, is_refused_too_long) = faults::run(&fault, &mut lab, &mut churn);
        row.scenario += &under;
        if is_refused_too_long {
            refused_too_long.push(fault.name);
        }
        rows.push(row);
    }
    assert!(!rows.is_empty(), "no fault is named {only}");
    churn.end(&lab);
    report(&rows);
    assert_eq!(refused_too_long, [""; 0]);
    assert_eq!(lab.observe().held, Some([].into()));
}

#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc and the plugin bridge"]
fn faults_during_churn_break_no_promise() {
    if on_a_node("faults_during_churn_break_no_promise", &[]) {
        under_faults(MainPlugin::Bridge, Churn::start);
    }
}

#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc and the plugin bridge"]
fn faults_in_a_pid_namespace_break_no_promise() {
    if !is_long() {
        skip("the faults in a PID namespace run with LONG=1");
    } else if on_a_node(
        "faults_in_a_pid_namespace_break_no_promise",
        &["--own-pids"],
    ) {
        under_faults(MainPlugin::Bridge, Churn::start_at_random);
    }
}

#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc, iptables and azure-vnet"]
fn faults_under_azure_vnet_break_no_promise() {
    let test = "faults_under_azure_vnet_break_no_promise";
    if genuine(test).is_some() && on_a_node(test, &[]) {
        under_faults(MainPlugin::AzureVnet, Churn::start_at_random);
    }
}

#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc and Calico's plugin"]
fn faults_under_calico_break_no_promise() {
    let test = "faults_under_calico_break_no_promise";
    if !package().join("target/calico/calico").exists() {
        skip("tests/calico/build has not built Calico's plugin");
    } else if on_a_node(test, &[]) {
        under_faults(MainPlugin::Calico, Churn::start_at_random);
    }
}

#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc and the plugin bridge"]
fn many_pods_start_at_once() {
    if !on_a_node("many_pods_start_at_once", &[]) {
        return;
    }
    // kubelet runs at most 250 pods. In the long run, they use every address of the pool.
    let (pods, addresses) = if is_long() { (250, 250) } else { (110, 120) };
    let lab = Lab::start(addresses);
    let ((took, gone), seen) = watch(|| {
        let start = Instant::now();
        let churn = Churn::start(&lab, pods);
        let took = start.elapsed();
        (took, churn.end(&lab))
    });
    report_all_well(&lab, format!("{pods} pods at once"), pods, took, gone, seen);
}

#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc and the plugin bridge"]
fn pods_are_replaced_as_fast_as_the_node_can() {
    if !on_a_node("pods_are_replaced_as_fast_as_the_node_can", &[]) {
        return;
    }
    let time = Duration::from_secs(if is_long() { 300 } else { 10 });
    let lab = Lab::start(240);
    let ((created, took, gone), seen) = watch(|| {
        let mut churn = Churn::start_at_random(&lab, 60);
        let (start, before) = (Instant::now(), churn.created);
        let mut took = Duration::ZERO;
        while start.elapsed() < time {
            churn.burst(&lab);
            took = lab.wait_for_pods(&churn.wanted);
        }
        let created = churn.created - before;
        let minutes = start.elapsed().as_secs_f64() / 60.0;
        println!("{:.0} pods a minute", created as f64 / minutes);
        (created, took, churn.end(&lab))
    });
    let scenario = format!("10 pods replaced again and again, {} s", time.as_secs());
    report_all_well(&lab, scenario, created, took, gone, seen);
}

#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc and the plugin bridge"]
fn pods_come_back_after_a_reboot() {
    if !on_a_node("pods_come_back_after_a_reboot", &[]) {
        return;
    }
    const PODS: usize = 20;
    let mut lab = Lab::start(100);
    let churn = Churn::start(&lab, PODS);
    let mut rows = Vec::new();
    for (n, run) in [Run::Emptied, Run::Kept].into_iter().enumerate() {
        let boot_id = format!("8f3c5c52-0000-4000-8000-00000000000{n}");
        let before = lab.observe();
        let refused = lab.refusals().len();
        let (took, seen) = watch(|| {
            lab.reboot(&boot_id, run);
            lab.wait_for_pods(&churn.wanted)
        });
        let after = lab.observe();
        let is_new = |id: &String| !before.sandboxes.contains_key(id);
        assert!(after.sandboxes.keys().all(is_new), "{after:#?}");
        lab.assert_booted(&boot_id);
        rows.push(Row {
            scenario: format!("reboot, /run {run:?}").to_lowercase(),
            pods: PODS,
            took,
            refused: lab.refusals().len() - refused,
            seen,
            to_reclaim: 0,
            lost: after.lost().len(),
            remark: String::new(),
        });
    }
    churn.end(&lab);
    report(&rows);
    assert_eq!(lab.observe().held, Some([].into()));
}

#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc, iptables, azure-vnet and version 0.2.0"]
fn pods_live_through_upgrades_and_rollbacks() {
    let test = "pods_live_through_upgrades_and_rollbacks";
    if !upgrade::version_0_2().exists() {
        skip(".ci/run kubelet has not built version 0.2.0");
    } else if genuine(test).is_some() && on_a_node(test, &[]) {
        report(&[upgrade::run()]);
    }
}

#[test]
#[ignore = "needs root, the programs of a cluster, containerd, runc, the plugin bridge, python3 and a static executable"]
fn daemonset_installs_watches_and_removes_the_plugin() {
    if on_a_node("daemonset_installs_watches_and_removes_the_plugin", &[]) {
        report(&[daemonset::run()]);
    }
}

/// The network namespace of such a pod belongs to the pod's own user namespace.
#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc and the plugin bridge"]
fn pods_with_user_namespaces_keep_their_addresses() {
    if !on_a_node("pods_with_user_namespaces_keep_their_addresses", &[]) {
        return;
    }
    let lab = Lab::start(20);
    if !lab.has_user_namespaces() {
        skip("this container runtime has no user namespaces for pods");
        return;
    }
    let mut wanted: BTreeSet<_> = ["one", "two", "three"].map(str::to_owned).into();
    for pod in &wanted {
        lab.create_pod_of(pod, false);
    }
    lab.wait_for_pods(&wanted);
    let before = lab.observe();
    for id in before.sandboxes.keys() {
        assert_ne!(observe::user_namespace(id), observe::own_user_namespace());
    }
    let mut check = later(3700, "/opt/cni/bin/azure-vnet-ipam".as_ref());
    let check = output(check.args(["check", "-o", "json"]));
    let report: Value = serde_json::from_slice(&check.stdout).unwrap();
    assert_eq!(report["notSeen"], json!([]), "{report:#}");
    // The bridge has the gateway address of the virtual network, and `check` reports that.
    let findings = report["findings"].as_array().unwrap().iter();
    let kinds: Vec<_> = findings.map(|finding| &finding["kind"]).collect();
    assert_eq!(kinds, ["interface"], "{report:#}");
    assert_eq!(lab.reclaim(), 0);
    assert_eq!(lab.observe().held, before.held);
    // The network namespaces of the pods are enough to rebuild a lost state.
    fs::remove_file("/run/azure-vnet-ipam.json").unwrap();
    lab.create_pod_of("four", false);
    wanted.insert("four".to_owned());
    lab.wait_for_pods(&wanted);
    for (address, id) in before.held.iter().flatten() {
        assert_eq!(lab.observe().held.unwrap().get(address), Some(id));
    }
    for pod in &wanted {
        lab.delete_pod(pod);
    }
    lab.wait_for_pods(&BTreeSet::new());
    assert_eq!(lab.observe().held, Some([].into()));
}

/// A later plugin of the chain fails on ADD and on DEL, so each retry of kubelet takes an address and releases none.
#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc, perl and the plugin bridge"]
fn a_pod_that_is_retried_does_not_empty_the_node() {
    if on_a_node("a_pod_that_is_retried_does_not_empty_the_node", &[]) {
        report(&[sandboxes::retried()]);
    }
}

#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc and the plugin bridge"]
fn addresses_of_sandboxes_that_cannot_be_removed_are_withheld() {
    let test = "addresses_of_sandboxes_that_cannot_be_removed_are_withheld";
    if on_a_node(test, &[]) {
        report(&[sandboxes::stuck()]);
    }
}

/// The checks of this test detect a plugin that returns the same address for every pod and releases none.
#[test]
#[ignore = "needs root, etcd, kube-apiserver, kubelet, containerd, runc and the plugin bridge"]
fn broken_plugin_is_found() {
    if !on_a_node("broken_plugin_is_found", &[]) {
        return;
    }
    let lab = Lab::start(200);
    faults::wrap(faults::IPAM, faults::BROKEN);
    let (_, seen) = watch(|| {
        for pod in ["one", "two"] {
            lab.create_pod(pod);
        }
        wait_until("two pods", || lab.observe().sandboxes.len() == 2);
    });
    println!("{:#?}", seen.duplicates);
    assert!(!seen.duplicates.is_empty());
    let wanted = ["one".to_owned(), "two".to_owned()].into();
    let problems = lab.observe().problems_of_pods(&wanted);
    let is_reported = |words: &str| problems.iter().any(|p| p.contains(words));
    assert!(is_reported(".99 of sandbox"), "{problems:#?}");
    assert!(is_reported("is held for None"), "{problems:#?}");
    for pod in ["one", "two"] {
        lab.delete_pod(pod);
    }
    wait_until("the end of both", || {
        lab.observe().sandboxes.is_empty() && lab.pods().is_empty()
    });
    assert_eq!(lab.observe().lost().len(), 2);
}
